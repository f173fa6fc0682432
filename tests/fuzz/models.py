"""Damaged ONNX files through load and every backend: ``python -m tests.fuzz.models --count 10000 --seed 1``.

``--replay NUMBER`` shows one number of a seed on every backend. Each backend has a process of its own with a limit on
memory and time, which is started again when it dies: no file may end it, hang it, or raise an error that is not ours.
"""

from __future__ import annotations

import argparse
import json
import pickle
import select
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from tests.fuzz.model_files import corpus, damaged

BACKENDS = ("load", "reference", "pytorch", "onnxruntime", "tensorflow", "jax")
SELDOM = {"tensorflow": 10, "jax": 10}
"""One case in so many, where a backend compiles each for long."""
HANG = 45
"""Seconds until the parent kills: more than the alarm of :mod:`tests.fuzz.model_worker`."""


class Worker:
    """A process that runs numbers on one backend."""

    def __init__(self, backend: str, seed: int, originals: Path) -> None:
        self.backend, self.seed, self.originals = backend, seed, originals
        self.process: subprocess.Popen[str] | None = None

    def _start(self) -> subprocess.Popen[str]:
        words = [sys.executable, "-m", "tests.fuzz.model_worker", self.backend, str(self.seed), str(self.originals)]
        pipe = subprocess.PIPE
        process = subprocess.Popen(words, stdin=pipe, stdout=pipe, stderr=subprocess.DEVNULL, text=True)
        if _line(process, 300) != "ready\n":
            process.kill()
            raise RuntimeError(f"the process for {self.backend} does not start")
        return process

    def case(self, number: int) -> tuple[str, str]:
        """How one number ended; see :func:`tests.fuzz.model_worker.one`."""
        self.process = self.process or self._start()
        assert self.process.stdin is not None
        self.process.stdin.write(f"{number}\n")
        self.process.stdin.flush()
        line = _line(self.process, HANG)
        if line:
            _, how, said = json.loads(line)
            return how, said
        hung = line is None
        if hung:
            self.process.kill()
        code, self.process = self.process.wait(), None
        return "fault", "hang" if hung else f"death by signal {-code}" if code < 0 else f"exit {code}"

    def close(self) -> None:
        if self.process is not None:
            self.process.kill()
            self.process.wait()


def _line(process: subprocess.Popen[str], seconds: float) -> str | None:
    """The next line, "" where the process has ended, None where it says nothing for so long."""
    assert process.stdout is not None
    ready, _, _ = select.select([process.stdout], [], [], seconds)
    return process.stdout.readline() if ready else None


def run(seed: int, numbers: Sequence[int], backends: list[str], everywhere: bool) -> Counter[str]:
    """Run numbers; faults are said as they come. Returns how many of each kind there were."""
    faults: Counter[str] = Counter()
    ends: Counter[str] = Counter()
    begin = time.monotonic()
    folder = tempfile.TemporaryDirectory(prefix="deep500-fuzz-")
    kept = Path(folder.name) / "originals"
    originals = corpus()  # once for all processes
    kept.write_bytes(pickle.dumps(originals))
    workers = [Worker(backend, seed, kept) for backend in backends]
    for number in numbers:
        for worker in workers:
            if not everywhere and number % SELDOM.get(worker.backend, 1):
                continue
            how, said = worker.case(number)
            ends[f"{worker.backend} {how}"] += 1
            if how == "fault":
                kind = said.partition("\n")[0]
                faults[f"{worker.backend}: {kind}"] += 1
                print(f"{number}: {worker.backend}: {damaged(originals, seed, number)[0]}: {said}\n", flush=True)
            elif everywhere:
                print(f"{number}: {worker.backend}: {damaged(originals, seed, number)[0]}: {how} {said}")
    for worker in workers:
        worker.close()
    folder.cleanup()
    print(f"{len(numbers)} files, {time.monotonic() - begin:.0f} s; {dict(sorted(ends.items()))}")
    print("faults: " + (", ".join(f"{kind}: {n}" for kind, n in faults.most_common()) or "none"))
    return faults


def main() -> int:
    """Exit code 1 where a file was too much for us."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=300, help="how many files (300)")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--from", type=int, default=0, dest="first", metavar="N", help="the first number (0)")
    parser.add_argument("--replay", type=int, metavar="N", help="this one alone, on every backend")
    parser.add_argument("--backends", default=",".join(BACKENDS))
    words = parser.parse_args()
    backends = words.backends.split(",")
    if words.replay is not None:
        return int(bool(run(words.seed, [words.replay], backends, True)))
    return int(bool(run(words.seed, range(words.first, words.first + words.count), backends, False)))


if __name__ == "__main__":
    sys.exit(main())
