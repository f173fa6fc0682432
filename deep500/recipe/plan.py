"""A recipe on its way to a run: the value that the five steps of :mod:`deep500.recipe.steps` take and hand on, and the
first of them, which puts both halves together."""

from __future__ import annotations

import dataclasses
import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from deep500.errors import RecipeError
from deep500.metrics import Metric
from deep500.recipe.describing import describe
from deep500.recipe.options import Options
from deep500.recipe.schema import BASES, FREE, KEYS, check_name

if TYPE_CHECKING:
    from deep500.recipe.repetition import Repetition


@dataclass(frozen=True)
class RecipeFile:
    """Where a recipe comes from: its name (the file's), its file if it has one, that file's SHA-256."""

    name: str = "recipe"
    path: Path | None = None

    @classmethod
    def at(cls, path: str | Path | None) -> RecipeFile:
        """The recipe in a file; one without a name for None and for what is not a file, such as standard input."""
        return cls() if path is None or not Path(path).is_file() else cls(Path(path).stem, Path(path))

    @property
    def folder(self) -> Path | None:
        """The file's folder, None without a file."""
        return self.path.parent if self.path else None

    def sha256(self) -> str | None:
        """SHA-256 of the file's content, None without a file."""
        if self.path is None or not self.path.is_file():
            return None
        return hashlib.sha256(self.path.read_bytes()).hexdigest()


@dataclass(frozen=True)
class Override:
    """One ``key.path=value``; ``text`` is the value as it was typed."""

    key: str
    path: tuple[str, ...]
    text: str

    def __str__(self) -> str:
        return f"{'.'.join((self.key, *self.path))}={self.text}"


@dataclass
class RunPlan:
    """A recipe and what the command line makes of it; after the last step nothing about it is open.

    Attributes:
        fixed, mutable: both halves as they were written.
        metrics: (metric, target) pairs; from the last step on the metrics are copies.
        options: of the command line.
        folder: of the recipe, where files are looked for that it names as ``path.py:Name``.
        values: every key with its value; defaults are filled in by the last step.
        closed: keys whose change leaves the closed division, with the reason.
        overrides: the words of the command line.
        words: keys whose value is a name from the command line, with the callable that it replaces.
        opened: what was changed against FIXED; empty means the closed division.
        left_out: arguments of the recipe's that another class, named on the command line, does not take, in words.
        sources: what was named as ``path.py:Name`` or ``module:Name``, with the SHA-256 of its file.
        seeds: one per repetition.
        repetition: when to train more seeds than these, None for never.
    """

    fixed: Mapping[str, Any]
    mutable: Mapping[str, Any]
    metrics: Any
    options: Options
    folder: Path | None = None
    values: dict[str, Any] = field(default_factory=dict)
    closed: dict[str, str] = field(default_factory=dict)
    overrides: list[Override] = field(default_factory=list)
    words: dict[str, Any] = field(default_factory=dict)
    opened: list[str] = field(default_factory=list)
    left_out: list[str] = field(default_factory=list)
    sources: list[dict[str, str | None]] = field(default_factory=list)
    seeds: list[int] = field(default_factory=list)
    repetition: Repetition | None = None

    def open_for(self, what: str, key: str, name: str | None = None) -> None:
        """Note that something changes a key, which opens the run if the key is closed.

        Args:
            what: changes it, for the message.
            key: of the recipe.
            name: how `opened` lists it, if not as ``what``.

        Raises:
            RecipeError: the key is closed, and ``--open`` was not given.
        """
        if key not in self.closed:
            return
        if not self.options.open:
            free = sorted(key for key in self.mutable if not key.endswith(("_args", "_kwargs"))) or ["none"]
            raise RecipeError(
                f"got {what}, but {key!r} is {self.closed[key]}; expected changes to MUTABLE keys only "
                f"({', '.join(free)}); add --open to leave the closed division (the report will say so)"
            )
        self.opened.append(name or what)

    @property
    def division(self) -> str:
        """``closed`` or ``open``."""
        return "open" if self.opened else "closed"

    @property
    def resolved(self) -> dict[str, Any]:
        """All of this as JSON, the same in every process."""
        metrics = [{**_facts(metric), "target": target} for metric, target in self.metrics]
        more: dict[str, Any] = {} if self.repetition is None else {"repetition": dataclasses.asdict(self.repetition)}
        more |= {"own": self.sources} if self.sources else {}
        return {"recipe": describe(self.values), "metrics": metrics, "seeds": self.seeds, "opened": self.opened, **more}


def merge(plan: RunPlan) -> RunPlan:
    """Put both halves into one dict, containers copied, so that overrides never reach the caller's; no defaults yet.

    Raises:
        RecipeError: unknown key (with the nearest name), key in both halves, missing key.
    """
    fixed, mutable = plan.fixed, plan.mutable
    for half, half_name in ((fixed, "FIXED"), (mutable, "MUTABLE")):
        if not isinstance(half, Mapping):
            raise RecipeError(f"got {type(half).__name__} as {half_name}; expected a dict; write {half_name} = {{...}}")
        for name in half:
            check_name(name, f"in {half_name}")
    both = sorted(set(fixed) & set(mutable))
    if both:
        raise RecipeError(
            f"got {both[0]!r} in FIXED and in MUTABLE; expected it in one of them; remove it from the other"
        )
    plan.values = {key: _copied(value) for key, value in {**fixed, **mutable}.items()}
    for name, key in KEYS.items():
        if key.required and name not in plan.values:
            raise RecipeError(f"got no {name!r}; expected {key.meaning}; add it to FIXED or MUTABLE")
    if "dataset" not in plan.values and "environment" not in plan.values:
        raise RecipeError(f"got no 'dataset'; expected {KEYS['dataset'].meaning}; add it to FIXED or MUTABLE")
    if "dataset" in plan.values and "environment" in plan.values:
        raise RecipeError("got 'dataset' and 'environment'; expected one of them: remove the other")
    for name, base in BASES.items():
        if name in fixed or (base in fixed and name not in mutable):
            plan.closed[name] = "FIXED"
        elif name not in mutable and base not in mutable and base not in FREE:
            plan.closed[name] = "left at its default by the recipe"
    return plan


def _copied(value: Any) -> Any:
    if type(value) is dict:
        return {key: _copied(item) for key, item in value.items()}
    if type(value) in (list, tuple):
        return type(value)(_copied(item) for item in value)
    return value


def _facts(metric: Any) -> dict[str, Any]:
    facts = {name: getattr(metric, name, None) for name in ("name", "unit", "direction", "kind")}
    configured = {"arguments": metric.arguments} if getattr(metric, "arguments", None) else {}
    plain = (type(metric).combine, type(metric).passes) == (Metric.combine, Metric.passes)
    configured |= {} if getattr(metric, "unit_of_seeds", None) is None else {"unit_of_seeds": metric.unit_of_seeds}
    configured |= {"over_seeds": "median"} if plain and not type(metric).__module__.startswith("deep500.") else {}
    return {"class": describe(type(metric)), **facts, **configured}
