"""`NativePipeline`: every rank has a stage or several of the network, run by ``torch.distributed.pipelining``."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from deep500.distributed.schemes.native import NativeScheme
from deep500.distributed.schemes.pipeline import Pipeline, UnderWay, check_rule_and_ranks
from deep500.distributed.stage_runs import clip_factor
from deep500.distributed.transports.communicator import Communicator
from deep500.errors import InputError, nearest
from deep500.networks.losses import gradient_name
from deep500.training.accumulation import pieces
from deep500.training.optimizers.base import Optimizer, ThreeStepOptimizer

SCHEDULES = {
    "GPipe": 1,
    "1F1B": 1,
    "LoopedBFS": 2,
    "Interleaved1F1B": 2,
    "InterleavedZeroBubble": 2,
    "ZBVZeroBubble": 2,
}
"""Stages on each rank by schedule, where nothing else is said."""
ONE_NUMBER = ("GPipe", "1F1B", "ZBVZeroBubble")
"""Schedules that take that number only."""


class NativePipeline(Pipeline, NativeScheme):
    """A pipeline by PyTorch's own schedules (``torch.distributed.pipelining``).
    :class:`~deep500.distributed.schemes.pipeline.Pipeline` is the same mathematics: its cuts, its micro-batches.

    PyTorch's modules are cut where ``Pipeline`` cuts the network; activations are held for the backward run instead of
    being computed again. What the schedules are: GPipe (Huang et al. 2019, arXiv 1811.06965) and 1F1B (Narayanan et al.
    2019, PipeDream) with one stage on a rank; with several LoopedBFS (Lamy-Poirier 2022, arXiv 2211.05953),
    Interleaved1F1B (Narayanan et al. 2021, arXiv 2104.04473), and those that go backward to activations and to
    parameters in two parts, InterleavedZeroBubble and ZBVZeroBubble (Qi et al. 2023, arXiv 2401.10241).

    Micro-batches of two sizes, where a batch does not divide evenly, run as two schedules one after the other. Where
    there are fewer than a schedule takes, GPipe (LoopedBFS with several stages) runs; ``engine.ran`` says it.

    Payload per step: what crosses between ranks, labels included, there and back, and outputs to rank 0.

    Args:
        base_optimizer: PyTorch's own, elementwise; or a three-step optimizer.
        comm, micro_batches: see ``Pipeline``.
        schedule: a key of :data:`SCHEDULES`.
        stages_per_rank: how many; those of the schedule if None. Stage k is on rank k modulo P, for ZBVZeroBubble on k
            or 2 P - 1 - k.

    Attributes:
        engine: see :class:`~deep500.distributed.schemes.native.NativeScheme`.

    Raises:
        InputError: another backend than PyTorch, threads as ranks, what ``Pipeline`` refuses, an unknown schedule, or a
            number of stages that it cannot have.

    Example (``deep500 run recipe.py --ranks 2 scheme=NativePipeline``, or in a recipe):
        >>> from functools import partial
        >>> MUTABLE = {"scheme": partial(NativePipeline, schedule="Interleaved1F1B", micro_batches=8)}
        >>> SCHEDULES["Interleaved1F1B"]
        2
    """

    definition = "Pipeline"
    computes_once = (
        "whose schedule holds what stages computed; expected none: leave checkpointing out, or use Pipeline or FSDP"
    )
    agrees_on_overflow = False

    def __init__(
        self,
        base_optimizer: Optimizer,
        comm: Communicator | None = None,
        micro_batches: int | None = None,
        schedule: str = "1F1B",
        stages_per_rank: int | None = None,
    ) -> None:
        if schedule not in SCHEDULES:
            raise InputError(
                f"got schedule={schedule!r}; expected one of {', '.join(SCHEDULES)}: {nearest(schedule, SCHEDULES)}"
            )
        several = SCHEDULES[schedule] if stages_per_rank is None else stages_per_rank
        if several < SCHEDULES[schedule] or (several > SCHEDULES[schedule] and schedule in ONE_NUMBER):
            most = "" if schedule in ONE_NUMBER else " or more"
            raise InputError(
                f"got stages_per_rank={several} with the schedule {schedule}; expected {SCHEDULES[schedule]}{most}: "
                "leave it out, or choose another schedule"
            )
        self.schedule, self.stages_per_rank, self.engine = schedule, several, None
        super().__init__(base_optimizer, comm, micro_batches)

    def _check(self) -> None:
        base, kind = self.base_optimizer, type(self.base_optimizer)
        if not isinstance(base, ThreeStepOptimizer) and not vars(kind).get("elementwise"):
            raise InputError(
                f"got {kind.__module__}.{kind.__qualname__} for NativePipeline, which may look at all parameters at "
                "once; expected a three-step optimizer or an elementwise one of PyTorch's: use one of "
                "deep500.frameworks.pytorch (AdamOptimizer, MomentumOptimizer, ...)"
            )
        check_rule_and_ranks(base, self.comm, type(self).__name__)
        fixed = [name for name, d in self.network.inputs.items() if not d.shape or isinstance(d.shape[0], int)]
        if fixed:
            raise InputError(
                f"got input {fixed[0]!r} without a first size that is symbolic for NativePipeline, which divides all "
                "inputs in micro-batches; expected one: make the network without batch=..., or use Pipeline"
            )

    def _divided(self) -> dict[str, int]:
        """See the base class; the engine has cut PyTorch's modules."""
        ranks, rounds = range(self.comm.size), self.stages_per_rank
        back = self.schedule == "ZBVZeroBubble"
        places = [rank for turn in range(rounds) for rank in (ranks[::-1] if back and turn else ranks)]
        self.start(schedule=self.schedule, places=places)
        return dict(self.engine.homes)

    def _outputs_of_ranks(self) -> list[Sequence[str]]:
        last = self.engine.places[-1]
        return [self.engine.outputs if rank == last else () for rank in range(self.comm.size)]

    def run_stages(self, inputs: Mapping[str, Any]) -> dict[str, Any]:
        """All micro-batches forward and backward, as the schedule says."""
        parts = list(pieces(self.network, inputs, self.micro_batches))
        facts = [
            [[size, self.batch_weights(piece)] for size, piece in parts],
            self.engine.take(self._counting(inputs, [piece for _, piece in parts])) if parts else {},
        ]
        counts, described = self.comm.gather_facts(facts)[0]
        if not counts:
            return {}
        state = UnderWay(counts, [])
        state.results = self.engine.run(described, [size for size, _ in counts], state.shares)
        for kind, size in self.engine.sent.items():
            self.comm.traffic.add(kind, size, 0)
        return self._returned(state)

    def _counting(self, inputs: Mapping[str, Any], parts: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
        """The batch, with labels that count where a micro-batch has none: its loss is multiplied by 0."""
        whole = dict(inputs)
        for name in self.batch_weights.read if any(not self.batch_weights(piece) for piece in parts) else ():
            arrays = [np.asarray(self.network.to_numpy(self.batch_weights.counting(piece)[name])) for piece in parts]
            whole[name] = np.concatenate(arrays)
        return whole

    def update_parts(self) -> None:
        """The base optimizer's rule on the parameters of this rank's stages."""
        if isinstance(self.base_optimizer, ThreeStepOptimizer):
            gradients = self.network.fetch_tensors([gradient_name(name) for name in self._kept])
            self._gradients = dict(zip(self._kept, gradients, strict=True))
            super().update_parts()
        else:
            self.base_optimizer.update()

    def transformed(self, transform: Any, names: Sequence[str], gradients: Sequence[Any]) -> Sequence[Any]:
        """Clipping by the norm of all ranks' gradients."""
        if self.engine is None:
            return super().transformed(transform, names, gradients)
        with self.communicating():
            factor = clip_factor(self.comm, transform, self.arrays(gradients))
        return [gradient * factor for gradient in gradients]
