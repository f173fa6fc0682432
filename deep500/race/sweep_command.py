"""``deep500 sweep RECIPE key=a,b,c``: many settings of a recipe, and one page about all of them."""

from __future__ import annotations

import argparse
import functools
import math
import shlex
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from deep500.errors import RecipeError
from deep500.progress import above
from deep500.race.engines import ENGINES, RayTasks, write_array
from deep500.race.sweeping import RecipeSweep, SweepAxis, SweepOptions, run_apart
from deep500.report.figures import Figure
from deep500.report.plot import Axis, Plot
from deep500.results.command import add_json
from deep500.results.files import to_json, write_atomic

RESULT, PAGE = "result.json", "sweep.html"


def add_command(parser: argparse.ArgumentParser) -> Callable[[argparse.Namespace], int]:
    """Declare the options of ``sweep``; returns what executes it."""
    add = parser.add_argument
    # fmt: off
    add("recipe", nargs="?", help="a file, or a name that 'deep500 list' shows")
    add("words", nargs="*", metavar="key=values",
        help="key=a,b,c or key=log:1e-4..1e-1:7 or key=lin:0..1:5, of keys as for 'deep500 run'; key=value for all")
    add("--repeat", type=int, default=1, metavar="N", help="seeds per cell (1)")
    add("--points", type=int, metavar="N", help="a quasi-random sweep of N cells instead of the grid")
    add("--sampler", metavar="NAME", help="optuna proposes the --points from the values of those before")
    add("--engine", choices=ENGINES, default="processes",
        help="where cells run: processes, tasks of ray (--jobs at a time), or an array of slurm, whose script is "
        "written (processes)")
    add("--cell", type=int, metavar="N", help="with --resume: run this cell only, as the array of slurm does")
    add("--seed", type=int, default=0, metavar="S", help="of the points and of the order (0)")
    add("--jobs", type=int, default=1, metavar="N", help="cells at a time; times of several are no measurements (1)")
    for flag, about in (("backend", "run on another backend"), ("device", "cpu, gpu or gpu:<number>"),
                        ("data", "the folder with data sets")):
        add(f"--{flag}", metavar=flag.upper(), help=about)
    for flag in ("open", "download", "strict"):
        add(f"--{flag}", action="store_true", help="as for 'deep500 run'")
    add("--list", action="store_true", help="list the cells, and stop")
    add("--resume", type=Path, metavar="DIR", help="go on with a sweep; other options are its own")
    add("--out", type=Path, default=Path("results"), metavar="DIR", help="where results go (./results)")
    add("--quiet", action="store_true", help="print the result only")
    # fmt: on
    add_json(parser)
    return _sweep


def _sweep(args: argparse.Namespace) -> int:
    if args.cell is not None and args.resume is None:
        raise RecipeError(f"got --cell {args.cell} without a sweep; expected its folder: add --resume DIR")
    if args.engine == "slurm" and args.sampler is not None:
        raise RecipeError(
            f"got --engine slurm and --sampler {args.sampler}, which sees all cells; expected one of them"
        )
    ray = RayTasks(run_apart) if args.engine == "ray" else None  # before a folder is made
    if args.resume is not None:
        sweep = RecipeSweep.reopen(args.resume)
    elif args.recipe is None:
        raise RecipeError("got no recipe; expected one with words such as batch_size=32,64: name it, or --resume DIR")
    else:
        flags = [w for name in ("backend", "device", "data") if (v := getattr(args, name)) for w in (f"--{name}", v)]
        flags += [f"--{name}" for name in ("open", "download", "strict") if getattr(args, name)]
        shared = args.repeat, args.points, args.seed, args.jobs, args.sampler
        options = SweepOptions(args.recipe, tuple(args.words), tuple(flags), *shared)
        if args.list and args.sampler is not None:
            raise RecipeError(f"got --list and --sampler {args.sampler}, which knows no cell before it ran; drop one")
        if args.list:
            cells = [list(cell) for cell in RecipeSweep.resolved(options).cells]
            lines = "\n".join(" ".join(cell) for cell in cells)
            sys.stdout.write((to_json({"cells": cells}) if args.json else lines) + "\n")
            return 0
        sweep = RecipeSweep.begin(options, args.out)
    say = _silent if args.quiet or args.json else above
    say(f"results: {sweep.path}")
    alone = functools.partial(run_apart, jobs=sweep.options.jobs)
    if args.cell is not None:
        return 0 if sweep.run_one(args.cell, above, alone) else 1
    if args.engine == "slurm":
        script = write_array(sweep.path, "sweep", "--cell", Path(sweep.options.recipe).stem, range(len(sweep.cells)))
        say(f"then, with what all have found: deep500 sweep --resume {sweep.path}")
        shown = {"path": str(sweep.path), "script": str(script)}
        sys.stdout.write((to_json(shown) if args.json else f"sbatch {shlex.quote(str(script))}") + "\n")
        return 0
    sweep.run(say, alone if ray is None else lambda words: ray(list(words), 2))
    result = write_result(sweep)
    place = {"path": str(sweep.path), "page": str(sweep.path / PAGE)}
    sys.stdout.write(
        to_json({**result, **place}) + "\n" if args.json else f"{_text(result)}\n\npage: {place['page']}\n"
    )
    return 0 if result["best"] is not None else 1


def result_of(sweep: RecipeSweep) -> dict[str, Any]:
    """Return the cells from the best to the worst, and what must be said of them."""
    rows = []
    for number, record in sorted(sweep.records.items()):
        known = [value for value in record["values"] if value is not None]
        whole = bool(known) and not record["reason"]
        median = float(np.median(known)) if whole else None
        ends = [min(known), max(known)] if whole else None
        rows.append({"cell": number, "words": record["words"], "median": median, "range": ends, **_outcome(record)})
    quality = next((r["quality"] for r in sweep.records.values() if "quality" in r), None)
    sign = -1 if quality is not None and quality["direction"] == "higher" else 1
    rows.sort(key=lambda row: math.inf if row["median"] is None else sign * row["median"])
    best = rows[0] if rows and rows[0]["median"] is not None else None
    again = None if best is None else shlex.join(["deep500", *_again(sweep, best["words"])])
    remarks = _remarks(sweep, rows, quality)
    return {
        "recipe": sweep.options.recipe,
        "quality": quality,
        "rows": rows,
        "best": best,
        "again": again,
        "remarks": remarks,
    }


def _outcome(record: dict[str, Any]) -> dict[str, Any]:
    return {key: record.get(key) for key in ("values", "reason", "run", "metrics", "warnings")}


def _again(sweep: RecipeSweep, words: Sequence[str]) -> list[str]:
    """The command that runs a cell with seeds that no cell has seen."""
    o, fewest = sweep.options, 7  # with which runs can be told apart by their launches
    seeds = [w.partition("=")[2] for w in words if w.startswith("seed=")]
    first = (int(seeds[0]) if seeds and seeds[0].isdecimal() else 0) + o.repeat
    rest = [w for w in words if not w.startswith("seed=")]
    return ["run", o.recipe, *rest, *o.flags, "--seed", str(first), "--repeat", str(max(o.repeat, fewest))]


def _remarks(sweep: RecipeSweep, rows: Sequence[dict[str, Any]], quality: dict[str, Any] | None) -> list[str]:
    known = [row for row in rows if row["median"] is not None]
    remarks = [f"{len(known)} of {len(sweep.cells)} cells have a value; {len(rows) - len(known)} failed."]
    if quality is not None:
        apart = all(record.get("held_out") for record in sweep.records.values() if "quality" in record)
        data = (
            "the validation data" if apart else "the test data, which are the recipe's validation data: no test is left"
        )
        remarks.append(f"Cells are ordered by {quality['name']} on {data}, after the last epoch.")
    remarks.append(
        f"The best of {len(known)} cells is the luckiest of them, too: it is no result until it was run again with "
        "new seeds."
    )
    luck = _luck(known)
    if luck is not None:
        remarks.append(
            f"If all cells were equal, the best would still look {luck:.3g} better than their mean by chance."
        )
    if sweep.options.jobs > 1:
        remarks.append(f"{sweep.options.jobs} cells ran at a time: times of their steps are no measurements.")
    notes = dict.fromkeys(note.partition("; kept: ")[0] for row in rows for note in row["warnings"] or ())
    return [*remarks, *notes]


def _luck(rows: Sequence[dict[str, Any]]) -> float | None:
    """The expected largest of as many means of seeds of equal cells (Blom 1958); None without two seeds."""
    from scipy.stats import norm

    spreads = [(np.var(row["values"], ddof=1), len(row["values"])) for row in rows if len(row["values"]) > 1]
    if len(rows) < 2 or not spreads:
        return None
    error = math.sqrt(float(np.mean([variance / count for variance, count in spreads])))
    return float(norm.ppf((len(rows) - 0.375) / (len(rows) + 0.25))) * error


def response(axis: SweepAxis, rows: Sequence[dict[str, Any]], quality: dict[str, Any]) -> Figure | None:
    """The quality over one axis: every cell a dot, their median at each value, and a band from smallest to largest.

    None for an axis of one value.
    """
    at: dict[str, list[float]] = {}
    for row in rows:
        text = next(word.partition("=")[2] for word in row["words"] if word.partition("=")[0] == axis.key)
        if row["median"] is not None:
            at.setdefault(text, []).append(row["median"])
    if len(at) < 2:
        return None
    numbers = {text: _number(text) for text in at}
    ordered = all(value is not None for value in numbers.values())
    places = {text: (numbers[text] if ordered else float(place)) for place, text in enumerate(at)}
    x, y = zip(*((places[text], value) for text, values in at.items() for value in values), strict=True)
    log = ordered and min(x) > 0 and max(x) / min(x) > 30
    labels = () if ordered else tuple((float(n), t if len(t) <= 16 else f"{t[:15]}…") for n, t in enumerate(at))
    named = f"{quality['name'].replace('_', ' ')} {quality['unit']}".strip()
    horizontal = Axis.around(x, axis.key, log=log) if ordered else Axis(-0.5, len(at) - 0.5, axis.key, labels=labels)
    plot = Plot(horizontal, Axis.around(y, named), f"{named} over {axis.key}, {len(y)} cells")
    plot.points(x, y, 0, 8)
    joined, every = "", sorted(at, key=lambda text: places[text] or 0)
    if ordered and len(every) < len(y):
        shared = [places[text] for text in every]
        plot.band(shared, [min(at[text]) for text in every], [max(at[text]) for text in every])
        joined = "; line: median, band: smallest to largest over the other settings"
        plot.line(shared, [float(np.median(at[text])) for text in every])
    caption = f"a dot is a cell, n = {len(y)}{joined}"
    return Figure.from_plot(f"Does {axis.key} matter?", plot, caption, len(y))


def _number(text: str) -> float | None:
    try:
        return float(text)
    except ValueError:
        return None


def write_result(sweep: RecipeSweep) -> dict[str, Any]:
    """Write ``result.json`` and the page into the sweep's folder; returns what the first holds."""
    from deep500.report.rendering import render_template

    result = result_of(sweep)
    write_atomic(sweep.path / RESULT, to_json(result))
    drawn = [response(axis, result["rows"], result["quality"]) for axis in sweep.axes] if result["quality"] else []
    figures = [figure for figure in drawn if figure is not None]
    write_atomic(sweep.path / PAGE, render_template("sweep.html.j2", sweep=result, figures=figures))
    return result


def _text(result: dict[str, Any]) -> str:
    lines = []
    for row in result["rows"][:20]:
        shown = f"failed: {row['reason']}" if row["median"] is None else f"{row['median']:.4g}"
        lines.append(f"{shown:>10}  {' '.join(row['words'])}")
    more = [f"... and {len(result['rows']) - 20} more on the page"] if len(result["rows"]) > 20 else []
    again = [f"again with new seeds: {result['again']}"] if result["again"] else []
    return "\n".join([*lines, *more, "", *result["remarks"], *again])


def _silent(_: str) -> None:
    pass
