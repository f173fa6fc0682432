"""One launch of a proxy in a form: ``python -m recipes.studies.parallel_gradients.worker JOB FILE``, under a launcher
where there are ranks. Rank 0 writes the answer to ``FILE``, which NumPy reads.

``JOB`` is JSON: ``proxy``, ``form``, ``library``, ``problem``, ``ranks``, ``threads``; and ``samples``: how often to
take times; 0: check derivatives.
"""

from __future__ import annotations

import ctypes
import json
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np

from recipes.studies.parallel_gradients import docking, hydro
from recipes.studies.parallel_gradients.proxy import Arrays, ProblemPart

SCALES = {"hydro": (1e-2, 1.0, 1.0, 1.0), "docking": (1.0,)}
"""Sizes of directions beside those of the inputs."""
STEP = 1e-6
PATIENCE = 600.0
"""Seconds that a rank is waited for."""


class RankGroup:
    """All ranks, or the only one."""

    def __init__(self, is_parallel: bool) -> None:
        self.comm: Any = None
        if is_parallel:
            from mpi4py import MPI

            self.comm = MPI.COMM_WORLD
        self.rank = self.comm.Get_rank() if self.comm else 0
        self.size = self.comm.Get_size() if self.comm else 1

    def gather(self, value: Any) -> list[Any]:
        """Every rank's value, on rank 0; on the others nothing."""
        return (self.comm.gather(value) or []) if self.comm else [value]

    def wait(self) -> None:
        """For all."""
        if self.comm:
            self.comm.Barrier()


def part_of(job: dict[str, Any], rank: int) -> ProblemPart:
    """This rank's part of the job's problem."""
    if job["proxy"] == "docking":
        return docking.PosesPart(docking.Deal(**job["problem"], ranks=job["ranks"]), rank)
    shape = tuple(job["problem"]["shape"])
    return hydro.BoxPart(hydro.Box(**{**job["problem"], "shape": shape}, ranks=hydro.parts_of(job["ranks"])), rank)


def weights_of(part: ProblemPart) -> Arrays:
    """Derivatives of a function of the result, the same however many ranks there are: each number counts once."""
    rng = np.random.default_rng(3)
    whole = [rng.standard_normal(size) for size in part.result_sizes]
    return [w[at] * owned for w, at, owned in zip(whole, part.result_at, part.result_owned, strict=True)]


def direction_of(part: ProblemPart) -> Arrays:
    """A direction of all inputs."""
    rng = np.random.default_rng(4)
    whole = [rng.standard_normal(size) * scale for size, scale in zip(part.sizes, SCALES[part.name], strict=True)]
    return [w[at] for w, at in zip(whole, part.at, strict=True)]


def product(left: Arrays, right: Arrays) -> float:
    """Of two lists of arrays."""
    return float(sum((a * b).sum() for a, b in zip(left, right, strict=True)))


def gradient(ranks: RankGroup, part: ProblemPart, library: ctypes.CDLL) -> dict[str, Any]:
    """The whole gradient, put together from all ranks', and whether what is constant stayed as it was."""
    before, values, shadows = part.bytes_of_constants(), part.values(part.start), part.reverse_shadows(weights_of(part))
    part.gradient(library, values, shadows)
    mine = shadows[: len(part.start)]
    answer: dict[str, Any] = {"unchanged": all(ranks.gather(part.bytes_of_constants() == before))}
    for i, size in enumerate(part.sizes):
        whole = np.zeros(size)
        for at, values_there in ranks.gather((part.at[i], mine[i])):
            np.add.at(whole, at, values_there)
        answer[f"gradient{i}"] = whole
    return answer


def derivatives(ranks: RankGroup, part: ProblemPart, library: ctypes.CDLL) -> dict[str, Any]:
    """The derivative along one direction three times: by the gradient, by forward mode, by central differences.

    ``tangent`` is NaN in forms that have no forward mode.
    """
    weights, direction = weights_of(part), direction_of(part)
    shadows = part.reverse_shadows(weights)
    part.gradient(library, part.values(part.start), shadows)
    mine = {"gradient": product(shadows[: len(part.start)], direction), "tangent": float("nan")}
    if hasattr(library, f"{part.name}_tangent"):
        forward = part.forward_shadows(direction)
        part.tangent(library, part.values(part.start), forward)
        mine["tangent"] = product(part.results(forward), weights)
    ends = []
    for sign in (1, -1):
        values = part.values([a + sign * STEP * d for a, d in zip(part.start, direction, strict=True)])
        part.primal(library, values)
        ends.append(product(part.results(values), weights))
    mine["differences"] = (ends[0] - ends[1]) / (2 * STEP)
    sums = ranks.gather(mine)
    return {name: sum(sums_of_rank[name] for sums_of_rank in sums) for name in mine}


def times(ranks: RankGroup, part: ProblemPart, library: ctypes.CDLL, samples: int) -> dict[str, Any]:
    """Seconds of primal and gradient in turns: by the wall's clock, from when all ranks begin to when the last one has
    ended; of CPUs, of all ranks and threads together; and of the thread that had most of them.
    """
    weights, seconds = weights_of(part), np.zeros((samples + 1, 2, 3))
    for sample in range(samples + 1):
        values, shadows = part.values(part.start), part.reverse_shadows(weights)
        seconds[sample, 0] = _timed(ranks, lambda: part.primal(library, values))  # noqa: B023
        values = part.values(part.start)
        seconds[sample, 1] = _timed(ranks, lambda: part.gradient(library, values, shadows))  # noqa: B023
    every = ranks.gather(seconds[1:])  # the first of each brings memory
    if not every:
        return {}
    wall, processor = np.max(every, axis=0)[..., 0], np.sum(every, axis=0)[..., 1]
    busiest = np.max(every, axis=0)[..., 2]
    return {
        "primal": wall[:, 0],
        "gradient": wall[:, 1],
        "primal_processor": processor[:, 0],
        "gradient_processor": processor[:, 1],
        "primal_busiest": busiest[:, 0],
        "gradient_busiest": busiest[:, 1],
    }


def _timed(ranks: RankGroup, call: Callable[[], None]) -> tuple[float, float, float]:
    ranks.wait()
    threads = _threads()
    start = time.perf_counter(), time.process_time()
    call()
    wall, processor = time.perf_counter() - start[0], time.process_time() - start[1]
    return wall, processor, max(seconds - threads.get(name, 0.0) for name, seconds in _threads().items())


def _threads() -> dict[str, float]:
    """Processor's seconds of every thread, as Linux counts them (in nanoseconds)."""
    seconds = {}
    for place in Path("/proc/self/task").iterdir():
        with suppress(FileNotFoundError):
            seconds[place.name] = int((place / "schedstat").read_text().split()[0]) / 1e9
    return seconds


def main(words: list[str]) -> None:
    """Do the job."""
    job: dict[str, Any] = json.loads(words[0])
    ranks = RankGroup(job["form"] in ("mpi", "hybrid"))
    library = ctypes.CDLL(job["library"])
    if ranks.comm:
        from mpi4py import MPI

        library.d500_communicate(ctypes.c_void_p(MPI._addressof(ranks.comm)), ctypes.c_double(PATIENCE))
    if hasattr(library, "omp_set_num_threads"):
        library.omp_set_num_threads(job["threads"])
    part = part_of(job, ranks.rank)
    if ranks.size != job["ranks"]:
        raise RuntimeError(f"got {ranks.size} ranks; expected {job['ranks']}: an MPI that does not find the others")
    if job["samples"]:
        answer = times(ranks, part, library, job["samples"])
    else:
        answer = gradient(ranks, part, library) | derivatives(ranks, part, library)
    if ranks.rank == 0:
        np.savez(words[1], **answer)


if __name__ == "__main__":
    main(sys.argv[1:])
