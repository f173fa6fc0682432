"""From a recipe's measured compute times and a network's parameters to the time of a step on many ranks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from deep500.distributed import Communicator
from deep500.errors import CommunicationError, InputError
from deep500.measure.statistics import Interval
from deep500.progress import stage
from deep500.results.scaling import PREDICTED, STRONG, WEAK, Scaling, ScalingBase, ScalingBound, ScalingPoint
from deep500.scaling.model import Interconnect
from deep500.scaling.noise import Noise
from deep500.scaling.pretend import ROWS, Demand, demand
from deep500.scaling.rig import Rig, SchemeChoice, StepFunction, period_of
from deep500.scaling.simulation import Case, served, server_service, simulate, together, waiting_of

SHARED = 1.25
"""Seconds for a second of work from which on a core is not a rank's own: others have a fifth of it."""


@dataclass
class Machine:
    """The machine on which ranks run.

    Attributes:
        net: the network.
        cores: how many there are for all ranks; None: each rank has its own.
        seed: of the draws.
        noise: what others take of the cores; None: nothing but what is in the compute times.
    """

    net: Interconnect
    cores: int | None = None
    seed: int = 0
    noise: Noise | None = None

    def check(self, ranks: int) -> None:
        """Raise InputError where ranks would share cores, with each other or with other programs: who waits then keeps
        others from computing, or has to be woken, which the model leaves out. Predictions were off by 5 to 84 % there.
        """
        if self.noise is not None and self.noise.dilation > SHARED:
            raise InputError(
                f"got cores of which others take {1 - 1 / self.noise.dilation:.0%}; expected at most "
                f"{1 - 1 / SHARED:.0%}, which is noise: what is more is sharing, which is not modelled: wait until the "
                "machine is quiet"
            )
        if self.cores is not None and ranks > self.cores:
            raise InputError(
                f"got {ranks} ranks on {self.cores} cores; expected a core for each: waiting on shared cores is not "
                "modelled, so measure instead (python -m recipes.studies.scaling)"
            )


@dataclass
class Compute:
    """Measured times of a step without communication, by the number of samples, and how to get more of them.

    Attributes:
        traces: seconds per step, by batch size.
        rig: measures what is missing; None where times come from a results folder.
        steps, seconds: of each measurement.
    """

    traces: dict[int, np.ndarray]
    rig: Rig | None = None
    steps: int = 100
    seconds: float = 5.0
    known_seconds: dict[tuple[str, int], float] = field(default_factory=dict)

    def trace(self, batch: int) -> np.ndarray:
        """Seconds per step on batches of this size.

        Raises:
            InputError: they were not measured, and cannot be.
        """
        if batch not in self.traces:
            if self.rig is None:
                raise InputError(
                    f"got compute times of {sorted(self.traces)} samples; expected those of {batch}: leave out --from, "
                    "or predict weak scaling only"
                )
            stage(f"times of steps of {batch} samples")
            self.traces[batch] = self.rig.trace(batch, self.steps, self.seconds)
        return self.traces[batch]

    def own_seconds(self, rig: Rig, scheme: SchemeChoice, ranks: int) -> float:
        """Return a scheme's seconds of computing; growing with the ranks where it decodes what all of them send."""
        # Measured on two small numbers of ranks and extended along the line through both: a pretended rank hands out
        # at most ``ROWS`` messages, since those of 4096 ranks would not fit into memory.
        ends = []
        for few in (2, ROWS):
            key = (str(scheme), few)
            if key not in self.known_seconds:
                stage(f"what {scheme} computes on {few} ranks")
                self.known_seconds[key] = rig.own_seconds(scheme, few, max(5, self.steps // 5))
            ends.append(self.known_seconds[key])
        gathers = any(call.kind == "all_gather" for call in demand_of(rig, scheme, ROWS)[0].calls)
        more = max(0.0, ends[1] - ends[0]) / (ROWS - 2) if gathers else 0.0
        return ends[0] + more * max(0, ranks - 2)


def demand_of(rig: Rig, scheme: SchemeChoice, ranks: int) -> tuple[Demand, Any]:
    """Return what the scheme asks of the network, and the scheme's optimizer that was asked."""
    known: dict[str, Any] = {}

    def make(comm: Communicator) -> StepFunction:
        step, known["optimizer"] = rig.step(1, comm, scheme)
        return step

    per_step = demand(make, ranks, 1)
    period = period_of(known["optimizer"])
    return per_step if period == 1 else demand(make, ranks, period), known["optimizer"]


def step_seconds(
    compute: Compute, rig: Rig, scheme: SchemeChoice, ranks: int, global_batch: int, machine: Machine
) -> tuple[Interval, float]:
    """Seconds of a step, and what the network alone takes of it.

    Raises:
        InputError: fewer samples than ranks that compute, or more ranks than cores.
    """
    machine.check(ranks)
    workers = len(scheme.workers(ranks))
    share = -(-global_batch // workers)  # the slowest rank has the largest share
    if global_batch < workers:
        raise InputError(f"{global_batch} samples are too few for {workers} ranks")
    asked, optimizer = demand_of(rig, scheme, ranks)
    scheme_seconds = compute.own_seconds(rig, scheme, ranks)
    trace = compute.trace(share)
    if machine.noise is not None:  # the mean is of noise, too: work is what was left, and noise comes on top again
        trace = np.array([trace.mean() / machine.noise.dilation])
    trace = trace + scheme_seconds
    waits = waiting_of(scheme.kind)
    if waits is served:  # messages queue at the server's link, so their time is its service, not a term of every step
        service = server_service(machine.net, asked.payload, rig.update_seconds())
        case = Case(
            ranks, trace, 0.0, bound=getattr(optimizer, "staleness", None), service=service, noise=machine.noise
        )
        network = 2 * machine.net.send(asked.payload)
    else:
        network = asked.network_seconds(machine.net)
        case = Case(
            ranks, trace, network, period_of(optimizer), matrix=getattr(optimizer, "matrix", None), noise=machine.noise
        )
    return simulate(waits, case, machine.seed), network


def predict(
    compute: Compute, rig: Rig, schemes: Sequence[SchemeChoice], counts: Sequence[int], mode: str, machine: Machine
) -> tuple[Scaling, dict[tuple[str, int], str]]:
    """A table of strong or weak scaling, with what the network alone takes and Amdahl's law as bounds.

    Strong: the recipe's batch is divided; weak: every rank that computes has one. The base is the mean step of one
    process. Amdahl's serial share is the part of a step that smaller batches do not make shorter.

    Returns:
        the table, and for each scheme and number of ranks that it lacks, why.
    """
    for scheme in schemes:
        waiting_of(scheme.kind)  # refuses one that has not declared it, before anything is measured
    batch = rig.batch_size
    base = simulate(together, Case(1, compute.trace(batch), 0.0), machine.seed)
    entries, why, alone = [], {}, dict[str, dict[int, float]]()
    for scheme in schemes:
        for ranks in counts:
            whole = batch * (len(scheme.workers(ranks)) if mode == WEAK else 1)
            try:
                seconds, network = step_seconds(compute, rig, scheme, ranks, whole, machine)
            except (InputError, CommunicationError) as error:
                why[str(scheme), ranks] = str(error)
                continue
            entries.append(ScalingPoint(ranks, whole, str(scheme), seconds, PREDICTED))
            alone.setdefault(str(scheme), {})[ranks] = network
    bounds = [
        ScalingBound(f"network alone, {name}", tuple(seconds_by_ranks), tuple(seconds_by_ranks.values()))
        for name, seconds_by_ranks in alone.items()
        if min(seconds_by_ranks.values()) > 0
    ]
    if mode == STRONG:
        serial = serial_share(compute.traces)
        if serial is not None:
            law = tuple(base.median * (serial + (1 - serial) / ranks) for ranks in counts)
            bounds.append(ScalingBound(f"Amdahl, serial share {serial:.1%}", tuple(counts), law))
    text = f"one process without a scheme, batch {batch}, mean of its measured steps"
    return Scaling(ScalingBase(text, "parallel-1", batch, base), tuple(entries), bounds=tuple(bounds)), why


def serial_share(traces: Mapping[int, np.ndarray]) -> float | None:
    """The part of a step with the largest batch that does not depend on its size: least squares of
    ``t(b) = t_0 + c b`` through the medians; None with fewer than two sizes.

    Example:
        >>> round(serial_share({b: np.array([1.0 + 0.125 * b]) for b in (8, 4, 2)}), 6)
        0.5
    """
    if len(traces) < 2:
        return None
    sizes = np.array(sorted(traces), np.float64)
    medians = np.array([np.median(traces[int(size)]) for size in sizes])
    slope, begin = np.polyfit(sizes, medians, 1)
    return float(np.clip(begin / (begin + slope * sizes[-1]), 0.0, 1.0))
