"""Kill a random rank at a random step, go on with ``--resume``, again and again: is the end the same, bit by bit?

python -m tests.benchmarks.kill_loop --kills 50 --ranks 2

Prints how many kills there were, how many runs they were spread over, and how many of those ended unlike a run that
was not disturbed (and leaves with 1 if one did). Over MPI by the reference, then under torchrun with ``FSDP`` on
PyTorch, where somebody must name the rank that was killed: those that are left, or, where it ended them before they
could, torchrun, as the root cause. ``--only torchrun`` leaves the first out.
"""

from __future__ import annotations

import argparse
import re
import sys
import tempfile
from collections import Counter
from pathlib import Path
from typing import NamedTuple

import numpy as np
from tqdm import tqdm

from tests.benchmarks.filling import say
from tests.distributed import jobs

FIGURES = {
    "runs that end otherwise than undisturbed, of those with a rank killed": "0 (50 kills)",
    "under torchrun with FSDP: runs that end otherwise, and killed ranks that are not named": "0 and 0 (50 kills)",
}
PLAIN, NATIVE = FIGURES

EPOCHS, STEPS = 3, 10  # of the recipe


def main() -> int:
    """Loop, count, compare."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kills", type=int, default=50)
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", choices=("mpi", "torchrun"))
    words = parser.parse_args()
    met = True
    if words.only != "torchrun":
        started = Start(["--ranks", str(words.ranks)], [], {})
        kills, runs, lost, *_ = loop(started, words.kills, words.ranks, words.seed)
        met = say(PLAIN, f"{lost} of {runs} runs, {kills} kills on {words.ranks} ranks", lost == 0)
    if words.only != "mpi":
        launcher = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(words.ranks)]
        started = Start(["--backend", "pytorch"], launcher, {"SCHEME": "FSDP", "DEEP500_COMM_TIMEOUT": "60"})
        kills, runs, lost, silent, late = loop(started, words.kills, words.ranks, words.seed)
        text = f"{lost} of {runs} runs, {silent} of {kills} kills on {words.ranks} ranks, {late} by torchrun alone"
        met = say(NATIVE, text, lost == silent == 0) and met
    return 0 if met else 1


class Start(NamedTuple):
    """How a run begins: its words, what starts its ranks, and variables."""

    words: list[str]
    launcher: list[str]
    variables: dict[str, str]


def loop(started: Start, most: int, ranks: int, seed: int) -> tuple[int, int, int, int, int]:
    """Kills, runs, runs that ended unlike an undisturbed one, and kills after which nobody named the rank, or only
    torchrun."""
    rng = np.random.default_rng(seed)
    with tempfile.TemporaryDirectory() as place, tqdm(total=most, disable=None, unit="kill") as bar:
        calm = Path(place) / "calm"
        calm.mkdir()
        job = jobs.run(calm, *started.words, launcher=started.launcher, **started.variables)
        if job.code:
            raise SystemExit(job.errors)
        expected = jobs.outcome(calm)
        kills = runs = lost = 0
        names: Counter[str] = Counter()
        while kills < most:
            folder = Path(place) / f"run-{runs}"
            folder.mkdir()
            more = disturbed(folder, started, ranks, rng, most - kills, bar)
            kills, runs, names = kills + more.total(), runs + 1, names + more
            lost += not same(jobs.outcome(folder), expected)
    return kills, runs, lost, names["nobody"], names["torchrun"]


def named_by(errors: str, rank: str) -> str:
    """Who names the rank that was killed."""
    if f"rank {rank} ended before the others" in errors.replace("]", ""):
        return "ranks"
    first = re.search(r"Root Cause.*?rank +: (\d+) ", errors, re.DOTALL)
    return "torchrun" if first is not None and first[1] == rank else "nobody"


def disturbed(
    folder: Path,
    started: Start,
    ranks: int,
    rng: np.random.Generator,
    most: int,
    bar: tqdm,  # type: ignore[type-arg]
) -> Counter[str]:
    """One run, killed until it is through or ``most`` kills are done; returns how many were named by whom."""
    names, words = Counter[str](), started.words
    while True:
        step = int(rng.integers(epochs_done(folder) * STEPS, EPOCHS * STEPS + 5))  # beyond the end: let it finish
        who = (
            {"FAIL_RANK": str(rng.integers(ranks)), "FAIL_STEP": str(step), "FAIL_HOW": "kill"}
            if names.total() < most
            else {}
        )
        job = jobs.run(folder, *words, limit=300, launcher=started.launcher, **started.variables, **who)
        if job.code == 0:
            return names
        if jobs.summary(folder) is not None or not who:
            raise SystemExit(f"a run that failed has a summary, or failed by itself:\n{job.errors}")
        names[name := named_by(job.errors, who["FAIL_RANK"])] += 1
        if name == "nobody":
            sys.stderr.write(f"nobody named rank {who['FAIL_RANK']}, killed at step {step}:\n{job.errors}\n")
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
