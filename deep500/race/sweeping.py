"""Sweeps: one recipe with many settings, each cell a sealed run as ``deep500 run`` makes it, resumable as a whole."""

from __future__ import annotations

import itertools
import json
import math
import os
import subprocess
import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from deep500.errors import RecipeError, ResultsError
from deep500.guard import INTERRUPTED
from deep500.measure.machine import usable_cores
from deep500.race.adaptive import AdaptiveCells, load_optuna
from deep500.race.folder import DO, begin_folder, definition_of, part_lock, run_all
from deep500.race.submissions import Choices, Span, point
from deep500.race.worker import THREADS
from deep500.reading import declare, read_json, word
from deep500.recipe.loader import find_recipe, load_recipe
from deep500.recipe.options import parse_options
from deep500.recipe.plan import RecipeFile
from deep500.recipe.schema import KEYS
from deep500.recipe.steps import make_plan
from deep500.results.files import to_json, write_atomic
from deep500.results.record import Record, full_hash

SCHEMA = "deep500-sweep-1"
DEFINITION, CELLS, RUNS = "sweep.json", "cells", "runs"
MOST_CELLS = 10_000
RunCell = Callable[[Sequence[str]], tuple[int, str, str]]
_CELL = declare({"schema": word(SCHEMA), "words": [str], "run": (str, None), "reason": str, "values": [(float, None)]})


@dataclass(frozen=True)
class SweepAxis:
    """One word with several values.

    Attributes:
        key: such as ``optimizer_kwargs.lr``.
        values: all of them, for a grid; empty for a range without a number of points.
        span: of the range.
    """

    key: str
    values: tuple[str, ...] = ()
    span: Span | None = None


def axis_of(text: str) -> SweepAxis:
    """Read ``key=a,b,c``, ``key=log:1e-4..1e-1:7`` or ``key=lin:0..1``; commas within brackets or quotes part nothing.

    Raises:
        RecipeError: no word, or a range that is none.

    Example:
        >>> axis_of("batch_size=32,64").values, axis_of("optimizer_kwargs.lr=log:0.001..0.1:3").values
        (('32', '64'), ('0.001', '0.01', '0.1'))
    """
    key, equals, value = text.partition("=")
    if not equals or not key or not value:
        raise RecipeError(f"got {text!r}; expected key=value, key=a,b,c or key=log:1e-4..1e-1:7")
    kind, colon, rest = value.partition(":")
    if not colon or kind not in ("log", "lin"):
        return SweepAxis(key, tuple(_parted(value)))
    ends, _, count = rest.partition(":")
    low, _, high = ends.partition("..")
    try:
        numbers, points = (float(low), float(high)), int(count or 0)
    except ValueError:
        raise RecipeError(f"got {text!r}; expected numbers: such as {key}={kind}:1e-4..1e-1:7") from None
    if count and points < 2:
        raise RecipeError(f"got {text!r}; expected two points or more: write a larger number, or one value")
    span = Span(*numbers, kind == "log")
    shares = [place / (points - 1) for place in range(points)]
    return SweepAxis(key, tuple(f"{span.at(share):g}" for share in shares), span)


def _as_in_recipe(axis: SweepAxis, values: Mapping[str, Any]) -> SweepAxis:
    """The axis, with the whole numbers of its range where the recipe, or a key's default, has a whole number."""
    key, *path = axis.key.split(".")
    present = values.get(key, KEYS[key].default if key in KEYS else None)
    for step in path:
        present = present.get(step) if isinstance(present, Mapping) else None
    is_whole = isinstance(present, int) and not isinstance(present, bool)
    if axis.span is None or not is_whole or axis.span.low % 1 or axis.span.high % 1:
        return axis
    span = replace(axis.span, whole=True)
    return SweepAxis(axis.key, tuple(dict.fromkeys(str(round(float(value))) for value in axis.values)), span)


def _parted(value: str) -> list[str]:
    """The text between commas that are in no brackets and no quotes."""
    parts, depth, quote = [""], 0, ""
    for letter in value:
        if quote or letter in "'\"":
            quote = "" if letter == quote else quote or letter
        depth += (letter in "([{") - (letter in ")]}") if not quote else 0
        if letter == "," and not depth and not quote:
            parts.append("")
        else:
            parts[-1] += letter
    return parts


def cells_of(axes: Sequence[SweepAxis], points: int | None, seed: int) -> list[tuple[str, ...]]:
    """Return the words of every cell: a grid, or ``points`` of a scrambled Halton sequence.

    Raises:
        RecipeError: a range without points in a grid, a value twice, or too many cells.

    Example:
        >>> cells_of([axis_of("a=1,2"), axis_of("b=3,4")], None, 0)
        [('a=1', 'b=3'), ('a=1', 'b=4'), ('a=2', 'b=3'), ('a=2', 'b=4')]
    """
    for axis in axes:
        if len(set(axis.values)) < len(axis.values):
            raise RecipeError(f"got a value of {axis.key} twice; expected each once: leave one out")
        if points is None and not axis.values:
            raise RecipeError(
                f"got a range of {axis.key} without points; expected them in a grid: add :7, or --points N"
            )
    count = math.prod(len(axis.values) for axis in axes) if points is None else points
    if not 1 < count <= MOST_CELLS:
        raise RecipeError(f"got {count} cells; expected 2 to {MOST_CELLS}: give several values, or fewer")
    if points is None:
        values = itertools.product(*(axis.values for axis in axes))
        return [tuple(f"{axis.key}={v}" for axis, v in zip(axes, cell, strict=True)) for cell in values]
    free = [axis for axis in axes if axis.span or len(axis.values) > 1]
    cells = []
    for index in range(points):
        at = iter(point(index, len(free), seed))
        chosen = [(axis.span or Choices(axis.values)).at(next(at)) if axis in free else axis.values[0] for axis in axes]
        cells.append(tuple(f"{axis.key}={value}" for axis, value in zip(axes, chosen, strict=True)))
    return cells


@dataclass(frozen=True)
class SweepOptions:
    """The words of a sweep, from which it can be begun again.

    Attributes:
        recipe: file or name.
        words: ``key=values``.
        flags: options of ``deep500 run`` for every cell, such as ``--open``.
        repeat: seeds per cell.
        points: of a quasi-random sweep; None for a grid.
        sampler: ``"optuna"`` proposes the points from the values of those before; None for a quasi-random sweep.
        seed: of the points and of the order.
        jobs: cells at a time.
    """

    recipe: str
    words: tuple[str, ...]
    flags: tuple[str, ...] = ()
    repeat: int = 1
    points: int | None = None
    seed: int = 0
    jobs: int = 1
    sampler: str | None = None

    def __post_init__(self) -> None:
        if self.sampler not in (None, "optuna"):
            raise RecipeError(f"got --sampler {self.sampler!r}; expected optuna: write that, or leave it out")
        if self.sampler is not None and self.points is None:
            raise RecipeError(f"got --sampler {self.sampler} without a number of cells; expected one: add --points N")
        for name in ("repeat", "jobs"):
            if getattr(self, name) < 1:
                raise RecipeError(f"got --{name} {getattr(self, name)}; expected at least 1: give a larger number")


@dataclass
class RecipeSweep:
    """A sweep in its folder; ``records`` are the files of the cells that have ended, by their number."""

    path: Path
    options: SweepOptions
    axes: list[SweepAxis]
    cells: list[tuple[str, ...]]
    records: dict[int, dict[str, Any]] = field(default_factory=dict)

    @classmethod
    def resolved(cls, options: SweepOptions) -> RecipeSweep:
        """The sweep, after every cell was put into the recipe; without a folder yet."""
        path = find_recipe(options.recipe)
        recipe = load_recipe(path, parse_options(options.flags, program="sweep").framework)
        axes = [_as_in_recipe(axis_of(text), {**recipe.FIXED, **recipe.MUTABLE}) for text in options.words]
        cells = checked = cells_of(axes, options.points, options.seed)
        if options.sampler is not None:
            load_optuna()
            spans = [(axis.span.low, axis.span.high) if axis.span else () for axis in axes]
            ends = [axis.values or tuple(map("{:g}".format, span)) for axis, span in zip(axes, spans, strict=True)]
            first = [f"{axis.key}={values[0]}" for axis, values in zip(axes, ends, strict=True)]
            checked = [
                (*first[:place], f"{axes[place].key}={value}", *first[place + 1 :])
                for place, values in enumerate(ends)
                for value in values
            ]
            cells = [() for _ in cells]  # words are asked for when a cell begins
        for cell in checked:
            parsed = parse_options([*cell, *options.flags], program="sweep")
            make_plan(recipe.FIXED, recipe.MUTABLE, recipe.METRICS, parsed, path.parent)
        return cls(Path(), options, axes, cells)

    @classmethod
    def begin(cls, options: SweepOptions, out: Path) -> RecipeSweep:
        """Resolve every cell, and make the folder.

        Raises:
            RecipeError: a word that the recipe does not take, in any cell.
            ResultsError: the folder cannot be made.
        """
        sweep = cls.resolved(options)
        place = out / f"sweep-{Path(options.recipe).stem}"
        sweep.path = begin_folder(place, DEFINITION, CELLS, sweep._facts())
        return sweep

    @classmethod
    def reopen(cls, path: Path) -> RecipeSweep:
        """Read a sweep that was begun; raises ResultsError for another folder, or a recipe that has changed since."""
        definition = definition_of(path / DEFINITION, SCHEMA)
        try:
            lists = {name: tuple(definition["options"][name]) for name in ("words", "flags")}
            options = SweepOptions(**{**definition["options"], **lists})
        except (TypeError, KeyError) as error:
            raise ResultsError(f"{path / DEFINITION}: got other options ({error}); {DO}") from error
        sweep = cls.resolved(options)
        sweep.path = path
        if sweep._facts()["sha256"] != definition["sha256"]:
            raise ResultsError(f"{path}: got another recipe than the sweep began with; expected the same: restore it")
        for file in sorted((path / CELLS).glob("*.json")):
            sweep.records[int(file.stem)] = record = read_json(file, _CELL, do=DO)
            sweep.cells[int(file.stem)] = tuple(record["words"])
        return sweep

    def run(self, say: Callable[[str], None], run_cell: RunCell) -> None:
        """Run the cells that are left, in an order drawn by chance.

        Args:
            say: takes a line about each.
            run_cell: runs ``deep500`` with these words; returns exit code, output and last error.
        """
        order = np.random.default_rng(self.options.seed).permutation(len(self.cells))
        guard, asking = threading.Lock(), None
        if self.options.sampler is not None:
            asking = AdaptiveCells(self.axes, self.options.seed, self.records)

        def one_cell(cell: int, stopped: Callable[[], bool]) -> None:
            if asking is not None:
                with guard:
                    self.cells[cell] = asking.ask(cell)
            record = self._run_cell(cell, run_cell)
            if record is None:
                return
            with guard:
                self.records[cell] = record
                if asking is not None:
                    asking.tell(cell, record)
                say(f"{len(self.records)}/{len(self.cells)} {' '.join(self.cells[cell])}: {_shown(record)}")

        left = [int(number) for number in order if int(number) not in self.records]
        run_all(self.path, left, one_cell, self.options.jobs, "sweep")

    def run_one(self, cell: int, say: Callable[[str], None], run_cell: RunCell) -> bool:
        """Run one cell, for an array of jobs that share the folder; whether it has a value.

        Raises:
            RecipeError: there is no such cell, or a sampler has to see the cells before.
            ResultsError: another process is at it.
        """
        if self.options.sampler is not None:
            raise RecipeError(f"got --cell and --sampler {self.options.sampler}, which sees all cells; drop --cell")
        if not 0 <= cell < len(self.cells):
            raise RecipeError(f"got --cell {cell}; expected 0 to {len(self.cells) - 1}: choose one of the sweep's")
        if cell not in self.records:
            record = self._run_cell(cell, run_cell)
            if record is None:
                raise KeyboardInterrupt
            self.records[cell] = record
        say(f"cell {cell}, {' '.join(self.cells[cell])}: {_shown(self.records[cell])}")
        return not self.records[cell]["reason"]

    def _run_cell(self, cell: int, run_cell: RunCell) -> dict[str, Any] | None:
        """Run a cell and write its file; None if it was interrupted."""
        with part_lock(self.path, f"{cell:04d}"):
            code, out, error = run_cell(self.command(cell))
            if code == INTERRUPTED:
                return None
            record = self._record(cell, code, out, error)
            write_atomic(self.path / CELLS / f"{cell:04d}.json", to_json(record))
            return record

    def command(self, cell: int) -> list[str]:
        """Return the words of ``deep500`` that run a cell, or go on with it."""
        o = self.options
        words = ["run", str(find_recipe(o.recipe)), *self.cells[cell], *o.flags, "--repeat", str(o.repeat)]
        return [*words, "--resume-or-start", "--out", str(self.path / RUNS), "--json"]

    def _record(self, cell: int, code: int, out: str, error: str) -> dict[str, Any]:
        facts: dict[str, Any] = {"schema": SCHEMA, "words": list(self.cells[cell]), "run": None, "values": []}
        try:
            run = Record.open(Path(json.loads(out)["path"]))
        except (ValueError, KeyError, ResultsError):
            return {**facts, "reason": error or f"exit code {code}"}
        manifest, summary = run.manifest(), run.summary() or {}
        quality = manifest["task"]["qualities"][0]
        ends = [run.epochs(seed)[-1:] for seed in manifest["seeds"]]
        values = [epochs[0].get(f"test_{quality['name']}") if epochs else None for epochs in ends]
        reason = str(summary.get("error") or "")
        metrics = [{key: m[key] for key in ("name", "value", "unit")} for m in summary.get("metrics", [])]
        more = {"quality": quality, "held_out": "test" in manifest["data"], "warnings": manifest["warnings"]}
        return {**facts, "run": str(run.path), "values": values, "reason": reason, "metrics": metrics, **more}

    def _facts(self) -> dict[str, Any]:
        plain = {name: value for name, value in asdict(self.options).items() if (name, value) != ("sampler", None)}
        options = {**plain, "words": list(self.options.words), "flags": list(self.options.flags)}
        sha256 = full_hash([options, RecipeFile.at(find_recipe(self.options.recipe)).sha256()])
        return {"schema": SCHEMA, "options": options, "sha256": sha256}


def _shown(record: Mapping[str, Any]) -> str:
    known = [value for value in record["values"] if value is not None]
    if record["reason"] or not known:
        return f"failed: {record['reason'] or 'no value'}"
    return f"{record['quality']['name']} {float(np.median(known)):.4g} {record['quality']['unit']}".rstrip()


def run_apart(words: Sequence[str], jobs: int = 1) -> tuple[int, str, str]:
    """Run ``deep500`` in a process of its own; returns exit code, output and the last line of its errors."""
    threads = str(max(1, usable_cores() // jobs))
    path = os.pathsep.join(dict.fromkeys(entry for entry in sys.path if entry))
    environment = {**os.environ, "PYTHONPATH": path, **(dict.fromkeys(THREADS, threads) if jobs > 1 else {})}
    done = subprocess.run(
        [sys.executable, "-m", "deep500", *words], capture_output=True, text=True, check=False, env=environment
    )
    last = (done.stderr.strip().splitlines() or [""])[-1].removeprefix("deep500: error: ")
    return done.returncode, done.stdout, last
