"""Measurements on several ranks: ``python -m deep500.scaling.ranks_job JOB FILE`` under a launcher.

``JOB`` is JSON: ``{"do": "network"}`` fits the network's parameters, ``{"do": "noise"}`` measures what others take of
the cores, ``{"do": "steps", ...}`` times a recipe's step under a scheme. Rank 0 writes the answer to ``FILE``.
"""

from __future__ import annotations

import json
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from deep500.compare.subject import Setting
from deep500.distributed import Communicator, world
from deep500.distributed.clocks import gather_quietly
from deep500.distributed.launch import launch
from deep500.distributed.pingpong import measure_network
from deep500.distributed.timing import parallel
from deep500.errors import CommunicationError
from deep500.measure import Budget, Plan, Target
from deep500.scaling.model import Interconnect
from deep500.scaling.noise import fixed_work, measure_noise
from deep500.scaling.rig import Rig, SchemeChoice, period_of


def on_ranks(ranks: int, job: dict[str, Any]) -> dict[str, Any]:
    """Start ranks of this machine, let them do a job and return rank 0's answer.

    Raises:
        MissingBackend: there is no MPI.
        CommunicationError: a rank failed; its own words are on stderr.
    """
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "answer.json"
        code = launch(ranks, ["-m", "deep500.scaling.ranks_job", json.dumps(job), str(file)])
        if code or not file.exists():
            raise CommunicationError(
                f"got exit code {code} of {ranks} ranks; expected an answer: see above what failed"
            )
        answer: dict[str, Any] = json.loads(file.read_text(encoding="utf-8"))
        return answer


@dataclass(frozen=True)
class StepsJob:
    """The steps to time.

    Args:
        setting: of the recipe, see :class:`~deep500.compare.subject.Setting`.
        framework: None: the recipe's.
        scheme: see :meth:`~deep500.scaling.rig.SchemeChoice.parse`.
        global_batch: samples of all ranks together.
        blocks, block_seconds: how many, and how long each should take.
        timed: number of further steps that are timed rank by rank, begun together as ``sync`` says; see
            :func:`~deep500.distributed.timing.parallel`.
    """

    setting: dict[str, Any]
    framework: str | None
    scheme: str
    global_batch: int
    blocks: int
    block_seconds: float
    timed: int = 0
    sync: str = "barrier"


def time_steps(comm: Communicator, job: StepsJob) -> dict[str, Any]:
    """Seconds per step of a scheme: blocks of steps, from when all ranks begin to when the last one has ended. In turns
    with them, blocks of steps without any exchange, all ranks at once: what ranks compute on this machine as it is, and
    blocks of fixed work: what others take of it.
    """
    rig = Rig(job.framework, Setting(**{**job.setting, "overrides": tuple(job.setting["overrides"])}))
    choice = SchemeChoice.parse(job.scheme)
    workers = choice.workers(comm.size)
    mine = len(range(workers.index(comm.rank), job.global_batch, len(workers))) if comm.rank in workers else 0
    step, optimizer = rig.step(mine, comm, choice)
    plain = rig.step(mine)[0] if mine else None
    count = period = period_of(optimizer)
    samples, compute, noise = list[float](), list[float](), list[list[list[float]]]()
    for number in range(job.blocks + 2):  # two blocks warm up and tell how long the others must be
        alone = _block(comm, plain, count)
        taken = sum(_block(comm, step, count))
        longest = float(comm.all_gather(np.array([taken]), control=8).max())
        if number < 2:
            count = period * max(1, round(job.block_seconds / longest * count / period))
        else:
            samples.append(longest / count)
            compute += alone
            noise.append(fixed_work(comm, job.block_seconds))
    every = np.zeros(0) if plain is None else np.array(compute)
    answer = {
        "seconds": samples,
        "workers": len(workers),
        "steps_per_block": count,
        "compute": np.concatenate(comm.all_gather_ragged(every)).tolist(),
        "noise": noise,
    }
    return {**answer, "ranks": _rank_by_rank(comm, step, job.timed, job.sync)} if job.timed else answer


def _block(comm: Communicator, step: Callable[[], object] | None, count: int) -> list[float]:
    """Times of some steps, which all ranks begin together; None: this rank has nothing to do."""
    gather_quietly(comm)
    times = []
    for _ in range(count if step is not None else 0):
        assert step is not None
        begin = time.perf_counter()
        step()
        times.append(time.perf_counter() - begin)
    return times


def _rank_by_rank(comm: Communicator, step: Callable[[], object], count: int, sync: str) -> dict[str, Any]:
    """Every rank's own times."""
    plan = Plan((Target(rel=0.01),), Budget(min_n=count, max_n=count, max_s=60.0))
    timing = parallel(step, plan, comm, sync)
    return {
        "sync": sync,
        "summary": "max",
        "imbalance": timing.imbalance.value,
        "rank_p": timing.rank_p,
        "text": str(timing),
        "offsets": [clock.offset / 1e9 for clock in timing.clocks],
        "errors": [clock.error / 1e9 for clock in timing.clocks],
        "waiting": list(timing.communicating),
        "sent": list(timing.sent_bytes),
        "seconds": timing.kept.T.tolist(),
    }


def fitted(answer: dict[str, Any]) -> Interconnect:
    """The network of :func:`~deep500.distributed.pingpong.measure_network`."""
    return Interconnect(answer["alpha"], answer["beta"], answer["gamma"])


JOBS: dict[str, Callable[..., dict[str, Any]]] = {
    "network": measure_network,
    "noise": measure_noise,
    "steps": lambda comm, **words: time_steps(comm, StepsJob(**words)),
}


def main(job: str, file: str) -> None:
    """This rank's part."""
    comm, words = world(), json.loads(job)
    answer = JOBS[words.pop("do")](comm, **words)
    if comm.rank == 0:
        Path(file).write_text(json.dumps(answer), encoding="utf-8")
    comm.barrier()
    comm.close()


if __name__ == "__main__":
    main(*sys.argv[1:])
