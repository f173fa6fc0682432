"""Ways to break one fact of a sealed run: another number, another word, another run's, another seed's, none at all.

A mutation changes one leaf of one of the folder's files of JSON, makes anew what follows by machine (statistics,
claims, rules and the page), and seals. What follows from nothing may pass unseen, see :data:`UNKNOWABLE`.
"""

from __future__ import annotations

import json
import random
import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from deep500.errors import ResultsError
from deep500.report.command import examine_with_page
from deep500.results.files import to_json
from deep500.results.relations import leaves, matches
from deep500.results.rules import FLAGGED, check
from deep500.results.verify import examine, seal

OBJECTS = (
    *("manifest.json", "seeds.json", "summary.json", "exhibits.json", "network.json"),
    *("stats.json", "rules.json", "claims.json"),
)
LINES = ("metrics.jsonl", "journal.jsonl")

NUMBERS = {
    "a tenth more": lambda v, rng: v * 1.1,
    "a third": lambda v, rng: v / 3,
    "ten times": lambda v, rng: v * 10,
    "shifted": lambda v, rng: v + 1,
    "nothing": lambda v, rng: 0 if v else 7,
    "negative": lambda v, rng: -v if v else -1,
    "jittered": lambda v, rng: v * (1 + 0.003 * rng.choice((-1, 1))),
}
WORDS = {
    "another word": lambda v, rng: v + "x",
    "no word": lambda v, rng: "" if v else "x",
    "a year later": lambda v, rng: re.sub(r"^20(\d\d)", lambda m: f"20{int(m[1]) + 1}", v),
    "another digit": lambda v, rng: re.sub(r"[0-9](?=[^0-9]*$)", lambda m: str((int(m[0]) + 1) % 10), v),
}
ANY = ("deleted", "null", "of another place")

UNKNOWABLE = {
    "manifest.json": (
        "data.*.digest",
        "data.*.provenance",
        "environment.volatile",
        "load",
        "processes",
        "warnings",
        "recipe_file",
        "recipe_sha256",
        "numerics",
        "dtype",
        "task.qualities",
        "custom_ops",
        "turns",
        "started",
    ),
    "metrics.jsonl": ("load", "skipped_steps", "clock", "checks", "ranks", "acting"),
    "seeds.json": ("*.notes", "*.wall_seconds", "*.final"),
    "summary.json": ("load", "finished", "tuning", "repetition", "error"),
    "exhibits.json": ("",),
    "network.json": ("name", "inputs", "nodes.*.name", "nodes.*.operator", "nodes.*.shape", "nodes.*.reads"),
}
"""Facts that a change may leave in agreement with all others: nothing else of the folder determines them."""


@dataclass(frozen=True)
class Mutation:
    """One leaf, changed."""

    file: str
    line: int | None
    path: tuple[str, ...]
    way: str
    before: Any
    after: Any

    @property
    def fact(self) -> str:
        """The leaf without seeds, places in lists and names of metrics."""
        parts = ["*" if part.isdigit() else part for part in self.path]
        return f"{self.file}:{'.'.join(parts)}"


def content_of(folder: Path, name: str) -> Any:
    """A file's value, a list of those of its lines."""
    text = (folder / name).read_text()
    return [json.loads(line) for line in text.splitlines()] if name in LINES else json.loads(text)


def all_leaves(folder: Path) -> Iterator[tuple[str, tuple[str, ...], Any]]:
    """Every leaf of the folder's JSON: file, path, value."""
    for name in (*OBJECTS, *LINES):
        if (folder / name).exists():
            for path, value in leaves(content_of(folder, name)):
                yield name, path, value


def mutated(folder: Path, other: Path, file: str, path: tuple[str, ...], value: Any, rng: random.Random) -> Mutation:
    """Write one change of a leaf into the folder and seal it; ``other`` is an honest run that values are taken from."""
    ways: dict[str, Any] = {}
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        ways = NUMBERS
    elif isinstance(value, str):
        ways = WORDS
    tries = list(dict.fromkeys([*ways, *ANY]))
    rng.shuffle(tries)
    content = content_of(folder, file)
    *within, last = path
    holder = content
    for name in within:
        holder = holder[int(name)] if isinstance(holder, list) else holder[name]
    key: Any = int(last) if isinstance(holder, list) else last
    for way in tries:
        after: Any = None
        if way in ways:
            after = ways[way](value, rng)
            after = type(value)(round(after)) if isinstance(value, int) else after
        elif way == "of another place":
            pool = [v for _, p, v in all_leaves(other) if p[-1] == last and isinstance(v, type(value))]
            after = rng.choice(pool) if pool else value
        if way != "deleted" and after == value:
            continue
        if way == "deleted":
            del holder[key]
        else:
            holder[key] = after
        text = "".join(to_json(x, indent=None) + "\n" for x in content) if file in LINES else to_json(content) + "\n"
        (folder / file).write_text(text)
        seal(folder)
        return Mutation(file, None, path, way, value, after)
    raise AssertionError(f"no way to change {file}:{'.'.join(path)}")


def found(folder: Path, page: bool = False) -> list[str]:
    """Findings of ``verify`` and the rules of a folder, its page left out unless asked for, or a refusal to read it.

    The page shows most facts, so it tells of a change by itself; who forges with care draws it anew.
    """
    try:
        rules = [name for name, finding in check(folder).items() if finding.status in FLAGGED]
        return [*(examine_with_page if page else examine)(folder).problems, *rules]
    except (ResultsError, KeyError, TypeError, ValueError, AttributeError, IndexError, ArithmeticError) as error:
        return [repr(error)]  # a refusal is a finding, too


def is_unknowable(mutation: Mutation) -> bool:
    """Whether the fact is one of those that nothing determines."""
    return any(
        matches(pattern, mutation.path[mutation.file in LINES :]) for pattern in UNKNOWABLE.get(mutation.file, ())
    )


def table(results: list[tuple[Mutation, bool]]) -> str:
    """Flagged of all, by class of fact: the first two names of its path."""
    caught, every = Counter(), Counter()
    for mutation, flagged in results:
        depth = 2 if mutation.file in OBJECTS else 3
        parts = ["*" if part.isdigit() else part for part in mutation.path[:depth]]
        name = f"{mutation.file}:{'.'.join(parts)}"
        every[name] += 1
        caught[name] += flagged
    lines = [f"{caught[name]:5} of {count:5}  {name}" for name, count in sorted(every.items())]
    return "\n".join([*lines, f"{sum(caught.values()):5} of {sum(every.values()):5}  together"])
