"""Run honest runs, verify them, count alarms."""

from __future__ import annotations

import argparse
import contextlib
import io
import json
import os
import re
import subprocess
import sys
import tempfile
import time
import traceback
from collections import Counter
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from random import Random
from typing import Any

from deep500 import cli
from deep500.compare.package import package
from deep500.compare.review import review, unpack
from deep500.registry import BACKENDS
from deep500.report.command import examine_with_page
from deep500.results.rules import FLAGGED, check
from tests.benchmarks import honest_runs
from tests.benchmarks.filling import say
from tests.benchmarks.honest_runs import ALARMS
from tests.benchmarks.honest_runs.drawn import RECIPES, Interrupt, drawn, words_of

ROOT = Path(__file__).resolve().parents[3]
REFUSED, MOST_ATTEMPTS, LIMIT = (2, 3), 12, 300
OUTCOMES = "outcomes.jsonl"
RIGHTLY = ("R11: .* FLOP/s without a bound", "F2: .* by the data that judge")
"""Findings that are no alarms: a rate without its roof, an epoch, an end or settings that were chosen."""


class Refused(Exception):
    """The project said in words that it does not run this."""


def begin(number: int, attempt: int, folder: Path) -> tuple[Path, list[str]]:
    """Run one to its end; returns its folder and the words."""
    rng, backend, kind = drawn(number, attempt)
    if kind == "recipe":
        name = list(RECIPES)[(number // 7 + attempt) % len(RECIPES)]
        command, stem = [name, *RECIPES[name], "--backend", backend, "--quiet"], name
    else:
        file = folder / f"honest_{number % 20:02d}.py"
        lines = ["from tests.benchmarks.honest_runs.drawn import recipe", ""]
        file.write_text("\n".join([*lines, f"FIXED, MUTABLE, METRICS = recipe({number}, {attempt})", ""]))
        command, stem = [str(file), *words_of(number, attempt, kind)], file.stem
    before = {path.name for path in (folder / "results" / stem).glob("2*")}
    words = ["run", *command, "--out", str(folder / "results")]
    here = partial(_new_run, folder / "results" / stem, before)
    if kind == "killed":
        _kill(words, here, rng)
    else:
        Interrupt.at = 0 if kind == "interrupted" else None
        first = [*words, "--stop-after", "1"] if kind == "stopped" else words
        (_in_a_process if kind in ("ranks", "launches", "until tight") else _here)(first)
    for _ in range(4):
        if here() is not None and not (here() / "summary.json").exists():
            _here(
                ["run", command[0], "--resume", str(here()), "--quiet", *(["--stop-after", "1"] * (kind == "stopped"))]
            )
    path = here()
    if path is None or not (path / "SHA256SUMS").exists():
        raise RuntimeError(f"run {number}: {' '.join(command)} left no finished run")
    return path, command[1:]


def _new_run(place: Path, before: set[str]) -> Path | None:
    return next((path for path in sorted(place.glob("2*")) if path.name not in before), None)


def _here(words: Sequence[str]) -> None:
    """In this process, which has loaded the frameworks."""
    out, errors = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(errors):
        code = cli.main(list(words))
    _judge_end(code, errors.getvalue())


def _in_a_process(words: Sequence[str]) -> None:
    command = [sys.executable, "-m", "deep500", *words]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=LIMIT, env=_environment())
    _judge_end(done.returncode, done.stderr)


def _environment() -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}


def _judge_end(code: int, errors: str) -> None:
    lines = errors.strip().splitlines()
    last = [*(lines[-1:] or [""]), *(line for line in lines if "deep500: error: " in line)][-1]
    if code in REFUSED:
        raise Refused(last)
    if code not in (0, 1, 130) or "Traceback" in errors:
        raise RuntimeError(f"exit code {code}: {errors[-2000:]}")
    if code == 1 and "error" in last and "diverged" not in last and "checkpoint and a report" not in last:
        raise Refused(last)


def _kill(words: Sequence[str], here: Callable[[], Path | None], rng: Random) -> None:
    """SIGKILL, some time after the first epoch."""
    command = [sys.executable, "-m", "deep500", *words]
    with subprocess.Popen(
        command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, env=_environment()
    ) as process:
        end = time.monotonic() + LIMIT
        while process.poll() is None and time.monotonic() < end:
            path = here()
            if path is not None and (path / "metrics.jsonl").exists():
                time.sleep(rng.choice((0.0, 0.02, 0.2)))
                process.kill()
                break
            time.sleep(0.02)
        _, errors = process.communicate()
    if process.returncode != -9:
        _judge_end(process.returncode, errors)


def problems_of(path: Path) -> list[str]:
    """Alarms of verify and the rules, without those that a rule rightly gives for the metrics that were drawn."""
    flagged = [f"{name}: {finding.reason}" for name, finding in check(path).items() if finding.status in FLAGGED]
    alarms = [text for text in flagged if not re.match("|".join(RIGHTLY), text)]
    return [*examine_with_page(path).problems, *alarms]


def reviewed(path: Path) -> list[str]:
    """Alarms that a reviewer of its package meets."""
    with tempfile.TemporaryDirectory() as place:
        packed = package(path, Path(place) / "run.tar.gz")
        return [str(answer) for answer in review(unpack(packed, Path(place))) if answer.agrees is False]


def run(number: int, folder: Path) -> dict[str, Any]:
    """One honest run and the alarms that it gave."""
    refused: list[str] = []
    crashed: list[str] = []
    began = time.monotonic()
    for attempt in range(MOST_ATTEMPTS):
        _, backend, kind = drawn(number, attempt)
        try:
            path, words = begin(number, attempt, folder)
        except Refused as error:
            refused.append(str(error))
            continue
        except Exception:  # noqa: BLE001 - a defect, but no alarm: told, and another setting tried
            crashed.append(traceback.format_exc()[-3000:])
            print(f"{number} {backend} {kind}, attempt {attempt}, CRASHED:\n{crashed[-1]}", flush=True)
            continue
        problems = problems_of(path)
        if (number // len(BACKENDS)) % 4 == 1:
            problems += reviewed(path)
        facts = {"number": number, "attempt": attempt, "backend": backend, "kind": kind, "words": words}
        facts |= {"path": str(path.relative_to(folder)), "problems": problems, "refused": refused, "crashed": crashed}
        return {**facts, "seconds": round(time.monotonic() - began, 1)}
    raise RuntimeError(f"run {number}: refused {MOST_ATTEMPTS} times: {[*refused, *crashed]}")


def main() -> int:
    """Run, print a line each, verify all again; returns 1 after an alarm."""
    parser = argparse.ArgumentParser(
        prog="python -m tests.benchmarks.honest_runs",
        description=honest_runs.__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--runs", type=int, default=200)
    parser.add_argument("--first", type=int, default=0, help="number of the first (0)")
    parser.add_argument("--folder", type=Path, help="keep the runs here, and go on with those that are here")
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory() as place:
        folder = (asked.folder or Path(place)).resolve()
        folder.mkdir(parents=True, exist_ok=True)
        return 0 if _all(range(asked.first, asked.first + asked.runs), folder) else 1


def _all(numbers: range, folder: Path) -> bool:
    file = folder / OUTCOMES
    known = [json.loads(line) for line in file.read_text().splitlines()] if file.exists() else []
    done = {outcome["number"]: outcome for outcome in known}
    for number in (number for number in numbers if number not in done):
        outcome = run(number, folder)
        done[number] = outcome
        with file.open("a") as stream:
            stream.write(json.dumps(outcome) + "\n")
        told = [f"ALARM: {outcome['problems'][:3]}"] if outcome["problems"] else []
        told += [f"refused before: {'; '.join(outcome['refused'])}"] if outcome["refused"] else []
        print(f"{number} {outcome['backend']} {outcome['kind']}: {'; '.join(told) or 'sound'}", flush=True)
    alarms = set()
    for number in numbers:
        later = problems_of(folder / done[number]["path"])
        if later and not done[number]["problems"]:
            print(f"{number} ALARM when all were there: {later[:3]}")
        alarms |= {number} if later or done[number]["problems"] else set()
    kinds = Counter(f"{done[number]['backend']} {done[number]['kind']}" for number in numbers)
    print("; ".join(f"{kind} {count}" for kind, count in sorted(kinds.items())))
    refusals, crashes = (sum(len(done[number][what]) for number in numbers) for what in ("refused", "crashed"))
    text = f"{len(alarms)} of {len(numbers)}, {refusals} settings refused, {crashes} crashed"
    return say(ALARMS, text, not alarms)


if __name__ == "__main__":
    sys.exit(main())
