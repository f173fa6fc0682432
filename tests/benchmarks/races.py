"""How often are a race's words wrong, how often do they find 15 %? By simulation: ``python -m tests.benchmarks.races``.

Studies scatter as AlgoPerf's recorded ones do (the shape of their log times about each study group's mean), scaled to
the standard deviation that is asked for.
"""

from __future__ import annotations

import argparse
import csv
import math
from pathlib import Path

import numpy as np

from deep500.race.judging import judge
from deep500.race.scores import StudyTable
from tests.benchmarks.filling import say

FIGURES = {
    "equals told apart in one of two questions, 2 submissions, 5 workloads, 3 studies, noise .10": (
        "each word in at most 5 % of 400"
    ),
    "the same with one study in five a miss": "each word in at most 5 % of 400",
    "15 % found for these workloads, 2 submissions, noise .10": "at least 80 % of 400",
    "15 % found for these workloads, 4 submissions (6 pairs), noise .10": "no bar",
}

RECORDED = Path(__file__).parents[1] / "race" / "algoperf_v05.csv"


def recorded_shape() -> np.ndarray:
    """Recorded deviations of log times from the mean of their five studies, scaled to a standard deviation of 1."""
    lines = RECORDED.read_text(encoding="utf-8").splitlines()
    groups: dict[tuple[str, str], list[float]] = {}
    for row in csv.DictReader(line for line in lines if not line.startswith("#")):
        groups.setdefault((row["submission"], row["workload"]), []).append(math.log(float(row["seconds"] or "nan")))
    whole = [np.array(group) for group in groups.values() if len(group) == 5 and np.isfinite(group).all()]
    rest = [np.sqrt(5 / 4) * (group - group.mean()) for group in whole if group.std() < 0.3]
    return np.concatenate(rest) / np.std(np.concatenate(rest))


def simulated(rng: np.random.Generator, shape: np.ndarray, size: tuple[int, int, int], gain: float, missing: float):
    """Times of one race of submissions of which the first is ``gain`` times faster."""
    logs = 0.1 * rng.choice(shape, size) + rng.normal(0, 1, (1, size[1], 1))
    logs[0] -= math.log(gain)
    times = np.exp(logs)
    times[rng.random(size) < missing] = np.inf
    return StudyTable(tuple(map(str, range(size[0]))), tuple(map(str, range(size[1]))), times)


def words(shape: np.ndarray, submissions: int, gain: float, races: int, missing: float = 0.0) -> dict[str, float]:
    """Share of pairs with the first submission (of all pairs without a gain) by question and word."""
    rng, counts, pairs = np.random.default_rng(35), dict[str, int](), 0
    for _ in range(races):
        for pair in judge(simulated(rng, shape, (submissions, 5, 3), gain, missing)):
            if gain > 1 and pair.here.first != "0":
                continue
            pairs += 1
            for question in ("here", "elsewhere"):
                word = f"{question} {getattr(pair, question).verdict}"
                counts[word] = counts.get(word, 0) + 1
    return {word: count / pairs for word, count in sorted(counts.items())}


def main() -> int:
    """Print each figure with its shares; returns 1 if a bar is missed."""
    parser = argparse.ArgumentParser(prog="python -m tests.benchmarks.races", description=__doc__)
    parser.add_argument("--races", type=int, default=400)
    races, shape, met = parser.parse_args().races, recorded_shape(), True
    cases = [(2, 1.0, 0.0), (2, 1.0, 0.2), (2, 1.15, 0.0), (4, 1.15, 0.0)]
    for figure, (submissions, gain, missing) in zip(FIGURES, cases, strict=True):
        shares = words(shape, submissions, gain, races, missing)
        print(f"{figure}: " + ", ".join(f"{word} {100 * share:.1f} %" for word, share in shares.items()))
        resolved = {word: share for word, share in shares.items() if word.endswith(("faster", "slower"))}
        good = max(resolved.values(), default=0) <= 0.05 if gain == 1 else shares.get("here faster", 0) >= 0.8
        text = ", ".join(f"{word} {100 * share:.1f} %" for word, share in resolved.items()) or "none"
        met &= say(figure, f"{text}, of {races}", good if submissions == 2 else None)
    return 0 if met else 1


if __name__ == "__main__":
    raise SystemExit(main())
