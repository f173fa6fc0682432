"""Differences between two runs, for people: in groups, the recipe first and packages in one line."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

PACKAGES = "packages"
GROUPS = {  # group: prefixes of the names in it; the first prefix that fits decides
    PACKAGES: ("environment.versions.", "environment.process.packages."),
    "code": ("environment.git", "recipe_file"),
    "data": ("data",),
    "machine": ("environment.", "device", "processes."),
    "recipe": ("resolved.recipe.", "resolved.", ""),
}
ORDER = ("recipe", "data", "code", "machine", PACKAGES)
SHOWN = 4
"""How many packages are listed by name; the rest are only counted."""


def in_groups(changed: Mapping[str, tuple[Any, Any]], most: int = 60) -> dict[str, dict[str, tuple[str, str]]]:
    """Differences by group, the recipe first and packages last, with values as short texts.

    Packages under ``environment.versions`` (the frameworks and what they rest on) come before all other packages.

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
    return {name: changes for name, changes in groups.items() if changes}


def _rank(name: str) -> int:
    """Sort key: resolved settings before their copies elsewhere, framework versions before other packages."""
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
    for group, changes in in_groups(changed).items():
        texts = [f"{name} {first} -> {second}" for name, (first, second) in changes.items()]
        if group == PACKAGES:
            more = f", and {len(texts) - SHOWN} more (--json names all)" if len(texts) > SHOWN else ""
            lines.append(f"  {group}: {', '.join(texts[:SHOWN])}{more}")
        else:
            lines += [f"  {group}: {text}" for text in texts]
    return lines or ["  nothing"]


def short(value: Any, most: int = 60) -> str:
    """A value as text, cut to ``most`` characters; floats have six digits.

    Example:
        >>> short(98.05013927576601)
        '98.0501'
    """
    text = f"{value:.6g}" if isinstance(value, float) else str(value)
    return text if len(text) <= most else f"{text[: most - 3]}..."
