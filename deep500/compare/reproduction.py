"""Does a run come out again? The seeds of a folder trained once more here, every epoch and the parameters compared.

Where the same bits are promised (one process on a CPU, the same machine, versions and threads) every loss and quality
of every epoch and every element of the newest parameters must be equal. Elsewhere rounding differs and training
amplifies it: there losses are shown with their drift, and a quality must agree within what a test set of its size and
the scatter between the seeds leave open.
"""

from __future__ import annotations

import argparse
import hashlib
import math
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from deep500.compare.differences import as_lines
from deep500.errors import ResultsError
from deep500.measure.fingerprint import differences
from deep500.progress import above, progress
from deep500.reading import read_bytes
from deep500.recipe.options import parse_options
from deep500.report.command import add_verify as add_verify_alone
from deep500.results.checkpoint import list_checkpoints, load_checkpoint
from deep500.results.files import read_json, read_lines
from deep500.results.record import MANIFEST, METRICS, SUMMARY
from deep500.results.sealing import SUMS

SEEDS = "seeds.json"
WORDS = {True: "agrees", False: "DIFFERS", None: "seen here"}
SETTINGS = ("resolved", "data", "backend", "device", "division", "dtype", "ranks", "recipe_sha256")
"""Facts of a manifest that follow from the recipe, the command line and the data."""
SIGMAS = 4.0
"""Standard deviations of a fraction of a test set, within which two trainings that differ by rounding must end."""


@dataclass(frozen=True)
class Answer:
    """Whether something is what it should be, and what was looked at; None: seen here, not judged."""

    agrees: bool | None
    what: str

    def __str__(self) -> str:
        return f"{WORDS[self.agrees]}: {self.what}"


def add_verify(parser: argparse.ArgumentParser) -> Callable[[argparse.Namespace], int]:
    """Declare the options of ``verify``; returns what executes it."""
    execute = add_verify_alone(parser)
    about = "train N seeds again and compare: this runs the recipe file that the manifest names"
    parser.add_argument("--replay", type=int, metavar="N", help=about)
    return lambda args: execute(args) if args.replay is None else _verify_and_replay(args, execute)


def _verify_and_replay(args: argparse.Namespace, execute: Callable[[argparse.Namespace], int]) -> int:
    if args.json:
        raise ResultsError("got --replay with --json; expected one of them: leave --json out")
    code, answers = execute(args), []
    with tempfile.TemporaryDirectory(prefix="deep500-replay-") as out, progress("training again"):
        for answer in replay(args.folder, args.replay, Path(out)):
            above(str(answer))
            answers.append(answer)
    judged = [answer.agrees for answer in answers if answer.agrees is not None]
    sys.stdout.write(f"{sum(judged)} of {len(judged)} agree, trained again\n")
    return code or int(not all(judged))


def replay(folder: Path, count: int, out: Path) -> Iterator[Answer]:
    """Train some seeds of a run again, from the recipe file that its manifest names, and compare.

    Args:
        folder: a finished run.
        count: how many seeds; which ones follows from the seal, so that nobody could choose them.
        out: where the new runs go.

    Raises:
        ResultsError: there are fewer seeds, or the recipe file is not there as it was.
    """
    manifest = read_json(folder / MANIFEST)
    recipe, seeds = Path(str(manifest.get("recipe_file"))), list(manifest["seeds"])
    digest = hashlib.sha256(read_bytes(recipe)).hexdigest() if recipe.is_file() else "no file"
    if digest != manifest["recipe_sha256"]:
        raise ResultsError(
            f"{folder}: got {recipe} with the hash {digest[:12]}; expected the recipe that ran "
            f"({manifest['recipe_sha256'][:12]}): restore it, or review a package, which holds it"
        )
    if not 1 <= count <= len(seeds):
        raise ResultsError(f"got --replay {count}; expected 1 to {len(seeds)}, the seeds of {folder}: name fewer")
    drawn = np.random.default_rng(list(hashlib.sha256(read_bytes(folder / SUMS)).digest()))
    for seed in sorted(drawn.choice(seeds, count, replace=False).tolist()):
        yield from run_again(recipe, folder, out / f"seed-{seed}", seed)


def run_again(recipe: Path, folder: Path, out: Path, seed: int | None = None) -> Iterator[Answer]:
    """Run a recipe with the options that a folder's manifest holds, in a process of its own, and compare.

    Args:
        recipe: its file.
        folder: the run that is judged.
        out: where the new run goes.
        seed: the only one to train; all of the run's if None.
    """
    with begun_again(recipe, folder, out, seed) as process:
        yield from ended_again(process, folder, out, seed)


@contextmanager
def begun_again(recipe: Path, folder: Path, out: Path, seed: int | None = None) -> Iterator[subprocess.Popen[str]]:
    """The process of :func:`run_again`; it is ended if it was not waited for."""
    options = parse_options(read_json(folder / MANIFEST)["argv"])
    if seed is not None:
        options = replace(options, seed=seed, repeat=1, budget=None, precision=None)
    command = [sys.executable, "-m", "deep500", "run", str(recipe), *options.defining(), "--out", str(out)]
    streams: dict[str, Any] = {"stdout": subprocess.DEVNULL, "stderr": subprocess.PIPE}
    with subprocess.Popen(command, text=True, errors="replace", **streams) as process:
        try:
            yield process
        finally:
            if process.poll() is None:
                process.kill()


def ended_again(process: subprocess.Popen[str], folder: Path, out: Path, seed: int | None = None) -> Iterator[Answer]:
    """Wait for the process of :func:`begun_again`, and compare."""
    _, errors = process.communicate()
    ended = sorted(path.parent for path in out.rglob(SUMMARY))
    if not ended:
        problem = (errors.strip().splitlines() or ["nothing was printed"])[-1]
        yield Answer(False, f"the recipe does not run here (exit code {process.returncode}): {problem[:300]}")
        return
    yield from reproduced(folder, ended[0], None if seed is None else [seed])


def reproduced(folder: Path, again: Path, seeds: Sequence[int] | None = None) -> Iterator[Answer]:
    """Compare a run with another one of the same recipe and options: settings, curves, parameters, qualities.

    Args:
        folder: the run that is judged.
        again: the one that was made to judge it.
        seeds: those that ``again`` trained; all of ``folder``'s if None.
    """
    first, second = read_json(folder / MANIFEST), read_json(again / MANIFEST)
    yield _settings(first, second, seeds)
    promised, curves = _promised(first, second), [_curves(path) for path in (folder, again)]
    values = [_values(path) for path in (folder, again)]
    metrics = (first["resolved"] or {}).get("metrics") or ()
    for seed in first["seeds"] if seeds is None else seeds:
        mine, theirs = (curve.get(seed, {}) for curve in curves)
        if promised:
            yield _same_curve(seed, mine, theirs)
            yield _parameters(seed, folder, again)
        else:
            yield _near_curve(seed, mine, theirs)
            yield from _near_qualities(seed, *curves)
        there, here = (side.get(str(seed), {}) for side in values)
        yield from _same_values(seed, metrics, there, here, promised)
    if seeds is None:
        verdicts = [read_json(path / SUMMARY)["verdict"] for path in (folder, again)]
        yield Answer(verdicts[0] == verdicts[1], f"the verdict, run again: {verdicts[1]} (package: {verdicts[0]})")


def _settings(first: Mapping[str, Any], second: Mapping[str, Any], seeds: Sequence[int] | None) -> Answer:
    """Compare what the recipe and the command line say, made anew, with what the folder says of itself."""
    sides = [{name: side.get(name) for name in SETTINGS} for side in (first, second)]
    for facts in sides:
        metrics = {metric["name"]: metric for metric in (facts["resolved"] or {}).get("metrics") or ()}
        facts["resolved"] = {**(facts["resolved"] or {}), "metrics": metrics}
    if seeds is None:
        sides = [{**facts, "seeds": side.get("seeds")} for facts, side in zip(sides, (first, second), strict=True)]
    ours = {"resolved.seeds", "resolved.recipe.seed"} if seeds is not None else set()
    changed = {name: ends for name, ends in differences(*sides).items() if name not in ours}
    about = "settings, targets, seeds and data, from recipe and command line"
    return Answer(
        not changed, f"{about}: {'; '.join(line.strip() for line in as_lines(changed))}" if changed else about
    )


def _promised(first: Mapping[str, Any], second: Mapping[str, Any]) -> bool:
    """Whether the second must compute the same bits."""
    facts = ("cpu", "machine", "cores", "usable_cores", "versions")
    sides = [(side.get("environment") or {}) for side in (first, second)]
    threads = [side.get("threads") or {} for side in sides]  # of a library that a process did not load: None
    alike = all(sides[0].get(name) == sides[1].get(name) for name in facts)
    alike &= all(threads[1].get(name) in (count, None) for name, count in threads[0].items() if count is not None)
    used = [str((side.get("device") or {}).get("used")) for side in (first, second)]
    return alike and all(name.startswith("cpu") for name in used) and first.get("ranks") == second.get("ranks") == 1


Curve = dict[str, dict[str, float]]
"""Numbers that are no times, by epoch in words and by name."""


def _curves(path: Path) -> dict[int, Curve]:
    """The curve of each seed; the evaluation after training, on other data, stands last."""
    curves: dict[int, Curve] = {}
    for line in read_lines(path / METRICS):
        curves.setdefault(line["seed"], {})[f"epoch {line['epoch']}"] = _numbers(line)
    for seed, facts in (read_json(path / SEEDS) if (path / SEEDS).is_file() else {}).items():
        if facts.get("final"):
            curves.setdefault(int(seed), {})["the evaluation after training"] = _numbers(facts["final"])
    return curves


def _numbers(line: Mapping[str, Any]) -> dict[str, float]:
    named = {
        name: value for name, value in line.items() if name not in ("seed", "epoch") and not name.endswith("seconds")
    }
    return {name: float(value) for name, value in named.items() if type(value) in (int, float)}


def _same_curve(seed: int, mine: Curve, theirs: Curve) -> Answer:
    """The first number that is not the same, bit by bit."""
    for epoch in [*mine, *(epoch for epoch in theirs if epoch not in mine)]:
        if epoch not in mine or epoch not in theirs:
            where = "the folder" if epoch not in mine else "the run that was made here"
            return Answer(False, f"seed {seed}: {epoch} is not in {where}")
        for name in sorted(mine[epoch].keys() | theirs[epoch].keys()):
            a, b = mine[epoch].get(name), theirs[epoch].get(name)
            if a != b and not (a is not None and b is not None and math.isnan(a) and math.isnan(b)):
                return Answer(False, f"seed {seed} parts in {epoch}: {name} is {a!r} there, {b!r} here")
    numbers = sum(map(len, mine.values()))
    return Answer(
        bool(mine),
        f"seed {seed}: {numbers} losses, qualities and counts up to {next(reversed(mine), 'nothing')}, bit by bit",
    )


def _values(path: Path) -> dict[str, dict[str, Any]]:
    """The values of metrics, by seed and name."""
    entries = read_json(path / SEEDS) if (path / SEEDS).is_file() else {}
    return {seed: entry.get("values") or {} for seed, entry in entries.items()}


def _same_values(
    seed: int, metrics: Sequence[Mapping[str, Any]], mine: Mapping[str, Any], theirs: Mapping[str, Any], promised: bool
) -> Iterator[Answer]:
    """Judge metrics of quality, which follow from the same bits; of the author's others say that they cannot be."""
    qualities = [facts["name"] for facts in metrics if facts.get("kind") == "quality" and facts["name"] in mine]
    if promised and qualities:
        odd = [name for name in qualities if str(mine[name]) != str(theirs.get(name))]  # NaN is NaN
        ends = f": {odd[0]} is {mine[odd[0]]!r} there, {theirs.get(odd[0])!r} here" if odd else ""
        yield Answer(not odd, f"seed {seed}: {len(qualities)} metrics of quality, bit by bit{ends}")
    for facts in metrics:
        name, foreign = facts["name"], not str(facts.get("class", "deep500.")).startswith("deep500.")
        if foreign and name in mine and not (promised and name in qualities):
            why = "no bound is known where rounding differs" if name in qualities else "no quality: runs may differ"
            yield Answer(None, f"seed {seed}: {name} {mine[name]!r} there, {theirs.get(name)!r} here; {why}")


def _near_curve(seed: int, mine: Curve, theirs: Curve) -> Answer:
    """How far losses and qualities drift; judged is whether the same numbers are there, and which are finite."""
    if mine.keys() != theirs.keys() or not mine:
        ends = [next(reversed(curve), "nothing") for curve in (mine, theirs)]
        return Answer(False, f"seed {seed}: got a curve up to {ends[0]}, here up to {ends[1]}")
    drifts = [(0.0, "", "")]
    for epoch, numbers in mine.items():
        for name in sorted(numbers.keys() | theirs[epoch].keys()):
            a, b = numbers.get(name), theirs[epoch].get(name)
            if a is None or b is None or (str(a) != str(b) and not (math.isfinite(a) and math.isfinite(b))):
                return Answer(False, f"seed {seed} parts in {epoch}: {name} is {a!r} there, {b!r} here")
            drifts.append((abs(a - b) / max(abs(a), abs(b)) if a != b and math.isfinite(a) else 0.0, name, epoch))
    largest, name, epoch = max(drifts)
    where = f"the largest is {largest:.2g} of {name} in {epoch}" if largest else "none is seen"
    return Answer(None, f"seed {seed}: drift, where no equal bits are promised: {where}")


def _parameters(seed: int, folder: Path, again: Path) -> Answer:
    """Compare the newest parameters that both folders hold."""
    newest = [
        {path.name: path for path in list_checkpoints(run / "checkpoints" / f"seed-{seed}")} for run in (folder, again)
    ]
    shared = [name for name in newest[0] if name in newest[1]]
    if not shared:
        return Answer(None, f"seed {seed}: parameters cannot be compared, since the folder holds no checkpoint of it")
    arrays = [load_checkpoint(places[shared[-1]])["arrays"] for places in newest]
    odd = [
        name
        for name in sorted(arrays[0].keys() | arrays[1].keys())
        if name not in arrays[0] or name not in arrays[1] or arrays[0][name].tobytes() != arrays[1][name].tobytes()
    ]
    about = f"seed {seed}: {len(arrays[0])} arrays of {shared[-1]}, bit by bit"
    return Answer(not odd, f"{about}: {len(odd)} differ, such as {odd[0]}" if odd else about)


def _near_qualities(seed: int, first: Mapping[int, Curve], second: Mapping[int, Curve]) -> Iterator[Answer]:
    """Judge fractions of a test set by its size and by how far the folder's seeds lie apart."""
    ends = {number: curve[next(reversed(curve))] for number, curve in first.items() if curve}
    mine, theirs = ends.get(seed, {}), second.get(seed, {"": {}})
    other = theirs[next(reversed(theirs))]
    count = mine.get("test_samples", 0.0)
    judged = [name for name in mine if name.startswith("test_") and name.endswith("accuracy") and count]
    for name in judged:
        a, b = mine[name], other.get(name, math.nan)
        known = [end[name] for end in ends.values() if name in end]
        share = min(max((a + b) / 200, 1 / count), 1 - 1 / count)
        bound = 100 * SIGMAS * math.sqrt(2 * share * (1 - share) / count) + (max(known) - min(known))
        what = f"seed {seed}: {name} {a:.5g} there, {b:.5g} here (at most {bound:.3g} apart by chance)"
        yield Answer(abs(a - b) <= bound, what)
    if others := sorted(name for name in mine if name.startswith("test_") and name not in (*judged, "test_samples")):
        yield Answer(None, f"seed {seed}: no bound is known for {', '.join(others)} where rounding differs")
