"""Kill a random rank at a random step, go on with ``--resume``, again and again: is the end the same, bit by bit?

python -m tests.benchmarks.kill_loop --kills 50 --ranks 2

Prints how many kills there were, how many runs they were spread over, and how many of those ended unlike a run that
was not disturbed (and leaves with 1 if one did).
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from pathlib import Path

import numpy as np
from tqdm import tqdm

from tests.benchmarks.filling import say
from tests.distributed import jobs

FIGURES = {"runs that end otherwise than undisturbed, of those with a rank killed": "0 (50 kills)"}
(FIGURE,) = FIGURES

EPOCHS, STEPS = 3, 10  # of the recipe


def main() -> int:
    """Loop, count, compare."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kills", type=int, default=50)
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--seed", type=int, default=0)
    words = parser.parse_args()
    rng = np.random.default_rng(words.seed)
    with tempfile.TemporaryDirectory() as place, tqdm(total=words.kills, disable=None, unit="kill") as bar:
        calm = Path(place) / "calm"
        calm.mkdir()
        job = jobs.run(calm, "--ranks", str(words.ranks))
        if job.code:
            sys.stderr.write(job.errors)
            return job.code
        expected = jobs.outcome(calm)
        kills = runs = lost = 0
        while kills < words.kills:
            folder = Path(place) / f"run-{runs}"
            folder.mkdir()
            more = disturbed(folder, words.ranks, rng, words.kills - kills, bar)
            kills, runs, lost = kills + more, runs + 1, lost + (not same(jobs.outcome(folder), expected))
    return 0 if say(FIGURE, f"{lost} of {runs} runs, {kills} kills on {words.ranks} ranks", lost == 0) else 1


def disturbed(folder: Path, ranks: int, rng: np.random.Generator, most: int, bar: tqdm) -> int:  # type: ignore[type-arg]
    """One run, killed until it is through or ``most`` kills are done; returns the number of kills."""
    kills, words = 0, ["--ranks", str(ranks)]
    while True:
        step = int(rng.integers(epochs_done(folder) * STEPS, EPOCHS * STEPS + 5))  # beyond the end: let it finish
        who = (
            {"FAIL_RANK": str(rng.integers(ranks)), "FAIL_STEP": str(step), "FAIL_HOW": "kill"} if kills < most else {}
        )
        job = jobs.run(folder, *words, limit=300, **who)
        if job.code == 0:
            return kills
        if jobs.summary(folder) is not None or not who:
            raise SystemExit(f"a run that failed has a summary, or failed by itself:\n{job.errors}")
        kills += 1
        bar.update()
        words = ["--resume"] if list(folder.glob("results/*/2*/manifest.json")) else words


def epochs_done(folder: Path) -> int:
    """Epochs that every rank has a checkpoint of."""
    (path,) = (
        folder.glob("results/*/2*/checkpoints/seed-0") if list(folder.glob("results/*/2*/checkpoints")) else (None,)
    )
    if path is None:
        return 0
    newest = [
        max((int(file.stem.split("-")[1]) for file in place.glob("epoch-*.safetensors")), default=0)
        for place in (path, *path.glob("rank-*"))
    ]
    return min(newest)


def same(outcome: tuple, expected: tuple) -> bool:  # type: ignore[type-arg]
    """Whether two outcomes have the same bits."""
    arrays, lines = outcome
    equal = arrays.keys() == expected[0].keys() and all(np.array_equal(arrays[n], expected[0][n]) for n in arrays)
    return equal and lines == expected[1]


if __name__ == "__main__":
    sys.exit(main())
