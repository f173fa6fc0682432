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
        print(f"apart {number + 1}: alone {_say(alone[-1])}; with earlier runs {_say(known[-1])}{_load()}", flush=True)
    for words, series in (("alone", alone), ("beside earlier runs", known)):
        print(f"apart, {LAUNCHES} launches each, {words}: {_wrong(series)} of {comparisons} false verdicts", flush=True)


def turns(comparisons: int, pairs: int, folder: Path) -> None:
    """The recipe against itself, and what that costs over two plain runs."""
    found, seconds = _against(comparisons, pairs, folder / "turns", "", "turns")
    print(f"turns, {pairs} pairs each: {_wrong(found)} of {comparisons} false verdicts", flush=True)
    plain = sum(_plain(folder / "plain", pairs)[1] for _ in range(2))
    mean = sum(seconds) / len(seconds)
    print(f"turns: {mean:.0f} s for {pairs} pairs, two plain runs of as many launches {plain:.0f} s", flush=True)


def planted(comparisons: int, pairs: int, folder: Path) -> None:
    """The recipe against itself with 3 % more."""
    found, _ = _against(comparisons, pairs, folder / "planted", f"events={RECIPE}:MoreWork", "planted")
    seen = sum(one["verdict"] == FASTER for one in found)  # the base takes longer
    wrong = sum(one["verdict"] == SLOWER for one in found)
    print(f"planted 3 %, {pairs} pairs each: found in {seen} of {comparisons}, the wrong way in {wrong}", flush=True)


def _against(
    comparisons: int, pairs: int, out: Path, words: str, name: str
) -> tuple[list[dict[str, Any]], list[float]]:
    found, seconds = [], []
    for number in range(comparisons):
        begin = time.monotonic()
        said = _deep500("run", str(RECIPE), "--against", words, "--pairs", str(pairs), "--out", str(out))
        seconds.append(time.monotonic() - begin)
        found.append(_headline(said))
        print(f"{name} {number + 1}: {_say(found[-1])} ({seconds[-1]:.0f} s){_load()}", flush=True)
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


def _say(one: dict[str, Any]) -> str:
    ends = "" if one["low"] is None else f" [{one['low']:.3f}, {one['high']:.3f}]"
    return f"{one['verdict']} {one['ratio']:.3f}{ends}" + (f" ({one['reason']})" if one["reason"] else "")


def _wrong(found: list[dict[str, Any]]) -> int:
    return sum(one["verdict"] in (FASTER, SLOWER) for one in found)


def _load() -> str:
    return f", load {os.getloadavg()[0]:.1f}"
