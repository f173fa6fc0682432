"""Real runs of :mod:`tests.benchmarks.launches.recipe`, apart and in turns."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from deep500.compare.runs import HEADLINE, compare_runs
from deep500.measure.comparison import FASTER, SLOWER, UNRESOLVED
from tests.benchmarks.filling import say
from tests.benchmarks.launches import APART, SECONDS, SLIGHT, TENTH, TURNS
from tests.benchmarks.launches.plants import calibrated

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


@dataclass(frozen=True)
class How:
    """How comparisons in turns are made.

    Attributes:
        comparisons, pairs: their number, and launches of each side at most.
        at_once: how many run at the same time: more than one is a busy machine.
        minutes: after which one is stopped, and counts as it stands; None: never.
    """

    comparisons: int
    pairs: int
    at_once: int = 1
    minutes: float | None = None


def turns(how: How, folder: Path) -> None:
    """The recipe against itself, and what that costs over two plain runs."""
    comparisons = _against(how, folder / "turns", "", "turns")
    text = f"{_wrong(comparisons)} of {how.comparisons}, at most {how.pairs} pairs each"
    say(TURNS, text, _wrong(comparisons) <= 0.05 * how.comparisons)
    pairs = [one["pairs"] for one in comparisons]
    plain = sum(_plain(folder / "plain", how.pairs)[1] for _ in range(2)) / how.pairs
    each = sum(one["seconds"] for one in comparisons) / sum(pairs)
    say(SECONDS, f"{each / plain:.2f}: {each:.1f} s a pair, {plain:.1f} s as two plain launches")


def planted(how: How, folder: Path, effects: Sequence[float]) -> None:
    """The recipe against itself when its step takes so much longer."""
    for figure, effect in ((SLIGHT, 0.03), (TENTH, 0.1)):
        if effect not in effects:
            continue
        place = folder / f"planted-{effect:g}"
        comparisons = _against(how, place, f"events={calibrated(effect, place)}", f"planted {effect:.0%}")
        seen = sum(one["verdict"] == FASTER for one in comparisons)  # the base takes longer
        wrong = sum(one["verdict"] == SLOWER for one in comparisons)
        stopped = sum(one["stopped"] for one in comparisons)
        pairs = sorted(one["pairs"] for one in comparisons)
        text = f"{seen} of {how.comparisons}, the wrong way in {wrong}, {pairs[0]} to {pairs[-1]} pairs"
        text += f", {stopped} stopped after {how.minutes:g} min" if stopped else ""
        say(figure, f"{text}{_load()}", seen >= 0.8 * how.comparisons and not wrong)


def _against(how: How, out: Path, words: str, name: str) -> list[dict[str, Any]]:
    """Comparisons in turns; those that are there already are not made again."""
    with ThreadPoolExecutor(how.at_once) as pool:
        return list(pool.map(partial(_compared, how, out, words, name), range(how.comparisons)))


def _compared(how: How, out: Path, words: str, name: str, number: int) -> dict[str, Any]:
    """One comparison: its last look, seconds, and whether it was stopped."""
    place, record = out / str(number), out / f"{number}.json"
    if record.exists():
        return dict(json.loads(record.read_text()))
    command = ["run", str(RECIPE), "--against", words, "--pairs", str(how.pairs), "--out", str(place), "--json"]
    begin = time.monotonic()
    process = subprocess.Popen(
        [sys.executable, "-m", "deep500", *command], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    try:
        out_text, errors = process.communicate(timeout=None if how.minutes is None else 60 * how.minutes)
        stopped = False
    except subprocess.TimeoutExpired:
        process.terminate()
        (out_text, errors), stopped = process.communicate(), True
    states = sorted(place.glob(f"against-{RECIPE.stem}/*.json"))
    if not states:
        raise SystemExit(f"{' '.join(command)}: {errors}")
    facts = json.loads(states[-1].read_text())
    nothing = {"verdict": UNRESOLVED, "reason": "no pair", "ratio": float("nan"), "low": None, "high": None}
    last = [nothing, *facts["looks"]][-1] if stopped else _headline(json.loads(out_text))
    one = {**last, "pairs": len(facts["pairs"]), "seconds": time.monotonic() - begin, "stopped": stopped}
    record.write_text(json.dumps(one))
    print(f"{name} {number + 1}: {_text(one)}, {one['pairs']} pairs in {one['seconds']:.0f} s{_load()}", flush=True)
    return one


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


def _wrong(comparisons: list[dict[str, Any]]) -> int:
    return sum(one["verdict"] in (FASTER, SLOWER) for one in comparisons)


def _load() -> str:
    return f", load {os.getloadavg()[0]:.1f}"
