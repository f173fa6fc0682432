"""From a recipe and a command line to a plan: halves merged, overrides and options applied, everything checked.

Nothing is built yet, and no data are read.
"""

from __future__ import annotations

import copy
import dataclasses
import hashlib
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from deep500.devices import to_device
from deep500.errors import RecipeError
from deep500.metrics import Metric
from deep500.recipe import overrides
from deep500.recipe.names import describe, is_own_name, own_file, own_object, resolve_name, retarget, source_of
from deep500.recipe.options import AUTO, Options
from deep500.recipe.repetition import Repetition
from deep500.recipe.schema import KEYS, check_values, merge, with_defaults
from deep500.registry import backend_of, load_backend


@dataclass(frozen=True)
class Source:
    """Where a recipe comes from: its name (the file's), its file if it has one, that file's SHA-256."""

    name: str = "recipe"
    path: Path | None = None

    @classmethod
    def of(cls, path: str | Path | None) -> Source:
        """The source of a file; one without a name for None and for what is not a file, such as standard input."""
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


@dataclass
class Plan:
    """A resolved recipe.

    Attributes:
        values: every key with its value, defaults filled in.
        metrics: (metric, target) pairs; the metrics are copies.
        seeds: one per repetition.
        opened: what was changed against FIXED; empty means the closed division.
        repetition: when to train more seeds than these, None for never.
        own: what was named as ``path.py:Name`` or ``module:Name``, with the SHA-256 of its file.
        left_out: arguments of the recipe's that another class, named on the command line, does not take, in words.
        resolved: all of this as JSON, the same in every process.
    """

    values: dict[str, Any]
    metrics: list[tuple[Any, float | None]]
    seeds: list[int]
    opened: list[str] = field(default_factory=list)
    repetition: Repetition | None = None
    own: list[dict[str, str | None]] = field(default_factory=list)
    left_out: list[str] = field(default_factory=list)

    @property
    def division(self) -> str:
        """``closed`` or ``open``."""
        return "open" if self.opened else "closed"

    @property
    def resolved(self) -> dict[str, Any]:
        metrics = [{**_facts(metric), "target": target} for metric, target in self.metrics]
        more: dict[str, Any] = {} if self.repetition is None else {"repetition": dataclasses.asdict(self.repetition)}
        more |= {"own": self.own} if self.own else {}
        return {"recipe": describe(self.values), "metrics": metrics, "seeds": self.seeds, "opened": self.opened, **more}


def make_plan(
    fixed: Mapping[str, Any],
    mutable: Mapping[str, Any],
    metrics: Sequence[Any],
    options: Options,
    folder: Path | None = None,
) -> Plan:
    """Resolve a recipe; raises RecipeError for whatever is wrong with it or with the command line.

    ``folder`` is the recipe's, where files are looked for that it names as ``path.py:Name``.
    """
    values = merge(fixed, mutable)
    changes = overrides.parse(options.overrides, values)
    opened = [str(change) for change in changes if _override(values, change, fixed, mutable, options.open)]
    own = Own(folder)
    own.load(values)
    left_out = overrides.leave_out(values, changes)
    if options.device is not None:
        if overrides.refuse_fixed(f"--device {options.device}", "executor_kwargs", fixed, mutable, options.open):
            opened.append(f"--device {options.device}")
        values["executor_kwargs"] = {**values.get("executor_kwargs", {}), "device": to_device(options.device)}
    if options.framework is not None:
        opened += _retarget(values, options, fixed, mutable)
    for key in ("model", "executor"):
        own.note(key, values[key])
    check_values(values)
    full = with_defaults(values)
    if options.seed is not None and options.seed != full["seed"]:
        if overrides.refuse_fixed(f"--seed {options.seed}", "seed", fixed, mutable, options.open):
            opened.append(f"--seed {options.seed}")
        full["seed"] = options.seed
    if options.dry_run:
        full["epochs"] = 1
    seeds = [full["seed"] + number for number in range(1 if isinstance(options.repeat, str) else options.repeat)]
    pairs = check_metrics(own.metrics(metrics))
    return Plan(full, pairs, seeds, opened, _repetition(options), own.files, left_out)


class Own:
    """What a recipe names of the user's own, loaded, and the files that it came from."""

    def __init__(self, folder: Path | None) -> None:
        self.folder = folder
        self.files: list[dict[str, str | None]] = []

    def load(self, values: dict[str, Any]) -> None:
        """Put the objects into the places of their names."""
        for key in [key for key, about in KEYS.items() if about.own and key in values]:
            value, made = values[key], KEYS[key].made
            if isinstance(value, (list, tuple)):
                values[key] = type(value)(self._object(key, item, made) for item in value)
            else:
                values[key] = self._object(key, value, made)

    def note(self, key: str, value: Any) -> None:
        """Add the file that an object of the user's own came from, if it is one."""
        source = source_of(key, value)
        if source is not None and source not in self.files:
            self.files.append(source)

    def metrics(self, metrics: Sequence[Any]) -> Sequence[Any]:
        """METRICS with objects in the places of names."""
        if not isinstance(metrics, (list, tuple)):
            return metrics
        return [
            (self._object("METRICS", entry[0], True), *entry[1:])
            if isinstance(entry, (list, tuple)) and entry
            else self._object("METRICS", entry, True)
            for entry in metrics
        ]

    def _object(self, key: str, value: Any, made: bool) -> Any:
        if not is_own_name(key, value):
            return value
        self.files.append(own_file(key, value, self.folder))
        loaded = own_object(key, value, self.folder)
        return loaded() if made and isinstance(loaded, type) else loaded


def _repetition(options: Options) -> Repetition | None:
    """When to train more seeds; a dry run trains one."""
    if options.repeat != AUTO or options.budget is None or options.dry_run:
        return None
    return Repetition(options.budget) if options.precision is None else Repetition(options.budget, options.precision)


def _override(
    values: dict[str, Any],
    change: overrides.Override,
    fixed: Mapping[str, Any],
    mutable: Mapping[str, Any],
    is_open: bool,
) -> bool:
    opens = overrides.refuse_fixed(str(change), change.key, fixed, mutable, is_open)
    overrides.apply(values, change, resolve_name)
    return opens


def _retarget(
    values: dict[str, Any], options: Options, fixed: Mapping[str, Any], mutable: Mapping[str, Any]
) -> list[str]:
    """Exchange what belongs to another backend; what was FIXED among it opens the run."""
    framework = backend_of(load_backend(str(options.framework)).from_model) or str(options.framework)
    opened = []
    for key in list(values):
        new = retarget(values[key], framework)
        if describe(new) != describe(values[key]):
            what = f"--framework {framework}"
            if overrides.refuse_fixed(what, key, fixed, mutable, options.open):
                opened.append(f"{what} ({key})")
            values[key] = new
    if backend_of(values["executor"]) != framework:
        raise RecipeError(
            f"got --framework {framework} but the executor is {describe(values['executor'])}; expected one that "
            "belongs to a backend, such as d5fw.from_model: change the recipe"
        )
    return opened


def check_metrics(metrics: Sequence[Any]) -> list[tuple[Any, float | None]]:
    """METRICS as (metric, target) pairs, the metrics copied; raises RecipeError for anything else."""
    if not isinstance(metrics, (list, tuple)):
        raise RecipeError(f"METRICS: got {type(metrics).__name__}; expected a list of (metric, target or None)")
    pairs = []
    for entry in metrics:
        metric, target = entry if isinstance(entry, (list, tuple)) and len(entry) == 2 else (entry, None)
        if isinstance(metric, type) or not isinstance(metric, Metric):
            hint = (
                "add the parentheses: TestAccuracy()"
                if isinstance(metric, type)
                else "such as (d5.TestAccuracy(), 93.0)"
            )
            raise RecipeError(f"METRICS: got {entry!r}; expected (metric, target or None); {hint}")
        if target is not None and (
            isinstance(target, bool) or not isinstance(target, (int, float)) or math.isnan(target)
        ):
            raise RecipeError(
                f"METRICS: got target {target!r} for {metric.name!r}; expected a number or None; give one"
            )
        pairs.append((copy.deepcopy(metric), target))
    names = [metric.name for metric, _ in pairs]
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice is not None:
        raise RecipeError(f"METRICS: got {twice!r} twice; expected each metric once; remove one or name it differently")
    return pairs


def _facts(metric: Any) -> dict[str, Any]:
    facts = {name: getattr(metric, name, None) for name in ("name", "unit", "direction", "kind")}
    made_of = {"arguments": metric.arguments} if getattr(metric, "arguments", None) else {}
    return {"class": describe(type(metric)), **facts, **made_of}


def mutable_lines(plan: Plan, fixed: Mapping[str, Any], mutable: Mapping[str, Any]) -> list[str]:
    """What ``--list-mutable`` prints: every key that may be changed, its value and its meaning."""
    shown = []
    for name, value in plan.values.items():
        base = next((key for key in KEYS if name in (f"{key}_args", f"{key}_kwargs")), name)
        if not overrides.is_closed(name, fixed, mutable) and (name in KEYS or value):
            meaning = KEYS[base].meaning if name in KEYS else f"arguments of {base}"
            shown.append(f"{name} = {describe(value)!r}  # {meaning}")
    return shown
