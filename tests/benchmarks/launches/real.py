"""Real runs of :mod:`tests.benchmarks.launches.recipe`, apart and in turns."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from deep500.compare.runs import HEADLINE, compare_runs
from deep500.measure.comparison import FASTER, SLOWER
from tests.benchmarks.filling import say
from tests.benchmarks.launches import APART, PLANTED, SECONDS, TURNS

RECIPE = Path(__file__).with_name("recipe.py")
LAUNCHES = 12


def apart(comparisons: int, folder: Path) -> None:
    """Runs one after the other, two by two: without what earlier ones tell, and with it."""
    alone, known = [], []
    for number in range(comparisons):
        pair = [_plain(folder / "all")[0] for _ in range(2)]
        lonely = [shutil.copytree(run, folder / f"pair-{number}" / run.name) for run in pair]
        alone.append(_headline(compare_runs(*lonely).as_dict()))
        known.append(_headline(compare_runs(*pair).as_dict()))
        print(f"apart {number + 1}: alone {_text(alone[-1])}; with earlier {_text(known[-1])}{_load()}", flush=True)
    wrong = [_wrong(series) for series in (alone, known)]
    say(APART, f"alone {wrong[0]}, beside earlier runs {wrong[1]} of {comparisons}", max(wrong) <= 0.05 * comparisons)


def turns(comparisons: int, pairs: int, folder: Path) -> None:
    """The recipe against itself, and what that costs over two plain runs."""
    found, seconds = _against(comparisons, pairs, folder / "turns", "", "turns")
    say(TURNS, f"{_wrong(found)} of {comparisons}, {pairs} pairs each", _wrong(found) <= 0.05 * comparisons)
    plain = sum(_plain(folder / "plain", pairs)[1] for _ in range(2))
    mean = sum(seconds) / len(seconds)
    say(SECONDS, f"{mean / plain:.2f}: {mean:.0f} s for {pairs} pairs, {plain:.0f} s for as many plain launches")


def planted(comparisons: int, pairs: int, folder: Path) -> None:
    """The recipe against itself with 3 % more."""
    found, _ = _against(comparisons, pairs, folder / "planted", f"events={RECIPE}:MoreWork", "planted")
    seen = sum(one["verdict"] == FASTER for one in found)  # the base takes longer
    wrong = sum(one["verdict"] == SLOWER for one in found)
    text = f"{seen} of {comparisons}, the wrong way in {wrong}, {pairs} pairs each"
    say(PLANTED, text, seen >= 0.8 * comparisons and not wrong)


def _against(
    comparisons: int, pairs: int, out: Path, words: str, name: str
) -> tuple[list[dict[str, Any]], list[float]]:
    found, seconds = [], []
    for number in range(comparisons):
        begin = time.monotonic()
        said = _deep500("run", str(RECIPE), "--against", words, "--pairs", str(pairs), "--out", str(out))
        seconds.append(time.monotonic() - begin)
        found.append(_headline(said))
        print(f"{name} {number + 1}: {_text(found[-1])} ({seconds[-1]:.0f} s){_load()}", flush=True)
    return found, seconds


def _plain(out: Path, launches: int = LAUNCHES) -> tuple[Path, float]:
    """One ordinary run: its folder, and seconds."""
    begin = time.monotonic()
    said = _deep500("run", str(RECIPE), "--repeat", str(launches), "--out", str(out))
    return Path(said["path"]), time.monotonic() - begin


def _deep500(*words: str) -> dict[str, Any]:
    done = subprocess.run(
        [sys.executable, "-m", "deep500", *words, "--json"], capture_output=True, text=True, check=False
    )
    try:
        said: dict[str, Any] = json.loads(done.stdout)
    except ValueError:
        raise SystemExit(f"{' '.join(words)}: {done.stderr}") from None
    return said


def _headline(comparison: dict[str, Any]) -> dict[str, Any]:
    return next(series for series in comparison["series"] if series["series"] == HEADLINE)


def _text(one: dict[str, Any]) -> str:
    ends = "" if one["low"] is None else f" [{one['low']:.3f}, {one['high']:.3f}]"
    return f"{one['verdict']} {one['ratio']:.3f}{ends}" + (f" ({one['reason']})" if one["reason"] else "")


def _wrong(found: list[dict[str, Any]]) -> int:
    return sum(one["verdict"] in (FASTER, SLOWER) for one in found)


def _load() -> str:
    return f", load {os.getloadavg()[0]:.1f}"
