"""What differs between two runs, for people: in groups, the recipe first and packages in one line."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

PACKAGES = "packages"
GROUPS = {  # group: how the names of what belongs to it begin; the first that fits takes it
    PACKAGES: ("environment.versions.", "environment.process.packages."),
    "code": ("environment.git", "recipe_file"),
    "data": ("data",),
    "machine": ("environment.", "device", "processes."),
    "recipe": ("resolved.recipe.", "resolved.", ""),
}
ORDER = ("recipe", "data", "code", "machine", PACKAGES)
SHOWN = 4
"""Packages that are named; the others are counted."""


def in_groups(changed: Mapping[str, tuple[Any, Any]], most: int = 60) -> dict[str, dict[str, tuple[str, str]]]:
    """Differences by group, in the order in which a reader asks for them, values as short texts.

    Packages that the environment lists among its own versions, frameworks above all, stand before others.

    Args:
        changed: both values by dotted name, see :attr:`deep500.compare.runs.RunComparison.changed`.
        most: characters of a value that are shown.

    Example:
        >>> in_groups({"environment.versions.torch": ("2.1", "2.2"), "resolved.recipe.batch_size": (32, 64)})
        {'recipe': {'batch_size': ('32', '64')}, 'packages': {'torch': ('2.1', '2.2')}}
    """
    groups: dict[str, dict[str, tuple[str, str]]] = {name: {} for name in ORDER}
    for name, (first, second) in sorted(changed.items(), key=lambda item: _rank(item[0])):
        group, prefix = next((g, p) for g, starts in GROUPS.items() for p in starts if name.startswith(p))
        shown = name[len(prefix) :] if prefix.endswith(".") else name
        groups[group].setdefault(shown, (short(first, most), short(second, most)))
    return {name: found for name, found in groups.items() if found}


def _rank(name: str) -> int:
    """Settings as they were resolved come before their copies, and the versions of frameworks before other packages."""
    return 0 if name.startswith(("resolved.", "environment.versions.")) else 1


def as_lines(changed: Mapping[str, tuple[Any, Any]]) -> list[str]:
    """The groups as lines of text; packages are one line.

    Example:
        >>> as_lines({"environment.versions.torch": ("2.1", "2.2"), "resolved.recipe.batch_size": (32, 64)})
        ['  recipe: batch_size 32 -> 64', '  packages: torch 2.1 -> 2.2']
        >>> as_lines({})
        ['  nothing']
    """
    lines = []
    for group, found in in_groups(changed).items():
        each = [f"{name} {first} -> {second}" for name, (first, second) in found.items()]
        if group == PACKAGES:
            more = f", and {len(each) - SHOWN} more (--json names all)" if len(each) > SHOWN else ""
            lines.append(f"  {group}: {', '.join(each[:SHOWN])}{more}")
        else:
            lines += [f"  {group}: {one}" for one in each]
    return lines or ["  nothing"]


def short(value: Any, most: int = 60) -> str:
    """A value in at most so many characters; numbers with six digits.

    Example:
        >>> short(98.05013927576601)
        '98.0501'
    """
    text = f"{value:.6g}" if isinstance(value, float) else str(value)
    return text if len(text) <= most else f"{text[: most - 3]}..."
