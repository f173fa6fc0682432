"""End a random rank in a random way at a random moment: is that rank named, do all end in time, is no process left?

python -m tests.benchmarks.kill_names --kills 50

By ``--ranks`` over MPI and by torchrun, on 2 and 3 ranks, with seven schemes; by signal 9, by signal 15, by
``os._exit(0)`` and ``os._exit(7)`` from a thread, at a moment between the import of the recipe and the end of the run,
and by ``sys.exit(3)`` after a step. Prints every ending that is not right, and counts (leaves with 1 if one is not).
"""

from __future__ import annotations

import argparse
import re
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

import numpy as np
from tqdm import tqdm

from tests.benchmarks.filling import say
from tests.distributed import jobs

FIGURES = {"ranks ended at random that are named alone, with all ended in two minutes and no process left": "all"}
(FIGURE,) = FIGURES

SCHEMES = (
    "ConsistentDecentralized",
    "ConsistentParameterServer",
    "ModelAverage",
    "ConsistentNeighbors",
    "LocalSGD",
    "StaleSynchronous",
    "ShardedOptimizer",
)
WAYS = ("kill", "term", "leave", "leave-7", "exit")
LIMIT = 120.0  # torchrun takes os._exit(0) for an end: ranks that have not met wait for a minute
NAMED = (
    r"^\[rank ([\d, or]+)\] ended before the others",  # our launcher
    r"CommunicationError: ranks? ([\d, ]+) ended before the others",  # a rank whose call failed
    r"\brank ([\d, ]+) ended before the others",
    r"take part: rank ([\d, ]+) has ended, or never came",
    r"got no rank ([\d, ]+) at the meeting",
    r"rank (\d+) has not entered \w+ \d+: it is at its end",
)
BY_TORCHRUN = r"Root Cause \(first observed failure\):\n\[0\]:(?:\n.*?)*?rank\s*:\s*(\d+)"


def main() -> int:
    """Loop and count."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kills", type=int, default=50)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--seconds", type=float, default=2.0, help="longest time from the import of the recipe")
    words = parser.parse_args()
    rng, counts, slowest = np.random.default_rng(words.seed), Counter[str](), 0.0
    with tempfile.TemporaryDirectory() as place, tqdm(total=words.kills, disable=None, unit="kill") as bar:
        number = 0
        while counts["killed"] < words.kills:
            number += 1
            folder = Path(place) / str(number)
            folder.mkdir()
            verdict, seconds = one(folder, rng, words.seconds, f"kill-names-{words.seed}-{number}")
            counts["killed"] += verdict != "over"
            counts[verdict] += 1
            slowest = max(slowest, seconds)
            bar.update(verdict != "over")
    text = f"{counts['right']} of {counts['killed']}, {dict(counts)}; the slowest ended after {slowest:.0f} s"
    return 0 if say(FIGURE, text, counts["right"] == counts["killed"]) else 1


def one(folder: Path, rng: np.random.Generator, longest: float, marker: str) -> tuple[str, float]:
    """One run; ``right``, what is wrong with its end, or ``over`` where the run was through before; and its seconds."""
    transport, ranks = str(rng.choice(["mpi", "torch"])), int(rng.integers(2, 4))
    scheme, how, who = str(rng.choice(SCHEMES)), str(rng.choice(WAYS)), int(rng.integers(ranks))
    moment = {"FAIL_STEP": str(rng.integers(30))} if how == "exit" else {"FAIL_AFTER": f"{rng.uniform(0, longest):.3f}"}
    launcher = (
        () if transport == "mpi" else ("-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(ranks))
    )
    begin = time.monotonic()
    variables = {"FAIL_RANK": str(who), "FAIL_HOW": how, "SCHEME": scheme, "DEEP500_COMM_TIMEOUT": "20", **moment}
    options = ("--ranks", str(ranks)) if transport == "mpi" else ()
    try:
        job = jobs.run(folder, *options, launcher=launcher, limit=LIMIT, marker=marker, **variables)
    except subprocess.TimeoutExpired:
        job = jobs.Job(-1, "", "not ended in time")
    seconds = time.monotonic() - begin
    if job.code == 0 and jobs.summary(folder) is not None:
        return "over", 0.0
    verdict = judged(job, who)
    deadline = time.monotonic() + 10
    while jobs.survivors(marker) and time.monotonic() < deadline:
        time.sleep(0.1)
    if jobs.survivors(marker):
        verdict = "processes left"
    if verdict != "right":
        tqdm.write(f"{verdict}: {transport}, {ranks} ranks, {scheme}, {how} on rank {who}, {moment}, {seconds:.0f} s")
        tqdm.write(
            "\n".join(f"    {line[:300]}" for line in job.errors.splitlines() if "rror: " in line or "rank " in line)
        )
    return verdict, seconds


def judged(job: jobs.Job, who: int) -> str:
    """Whether the rank is named, and no other."""
    if job.code == 0:
        return "code 0"
    if job.code == -1:
        return "not in time"
    said = {text for pattern in NAMED for text in re.findall(pattern, job.errors, re.MULTILINE)}
    if not said:  # before ranks have met torchrun alone knows
        said = set(re.findall(BY_TORCHRUN, job.errors))
    if said == {str(who)}:
        return "right"
    return "no rank named" if not said else "another named"


if __name__ == "__main__":
    sys.exit(main())
