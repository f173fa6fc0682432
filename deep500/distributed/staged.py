"""`Staged`: what schemes have in common in which no rank holds the whole network, which they run as stages."""

from __future__ import annotations

import abc
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, ClassVar

import numpy as np

from deep500.distributed.optimizer import DistributedOptimizer
from deep500.errors import InputError
from deep500.training.clipping import ClipGradientNorm
from deep500.training.optimizers.base import Optimizer
from deep500.transformations.stages import TrainingStage


class Staged(DistributedOptimizer):
    """Base of :class:`Pipeline` and :class:`ShardedParameters`; on one rank the base optimizer trains as it is.

    Attributes:
        stages: of the network, in order; empty on one rank.
        absent: names of the parameters that the executor does not hold between steps.
    """

    waits = "together"
    whole = False
    computes_once: ClassVar[str] = (
        "whose stages run again by themselves; expected one of them: leave checkpointing out, or use FSDP"
    )
    """Why a checkpointing plan is refused, and what to do."""
    stages: list[TrainingStage]
    absent: list[str]

    def _begin(self) -> None:
        """Let go of what other ranks keep; states of the network are those of all ranks from here on."""
        self.network.sharded = self
        self.exchanges_gradients = True  # a rank without samples takes part
        self.release(self.absent)

    @abc.abstractmethod
    def run_stages(self, inputs: Mapping[str, Any]) -> dict[str, Any]:
        """All stages forward and backward; keep the gradients for :meth:`update_parts`, and return the outputs."""

    @abc.abstractmethod
    def update_parts(self) -> None:
        """Apply the base optimizer's rule to what this rank keeps."""

    @abc.abstractmethod
    def gathered(self) -> Iterator[tuple[str, np.ndarray]]:
        """From all ranks together, those parameters and running statistics that the executor lacks."""

    def whole_state(self) -> dict[str, np.ndarray]:
        """``network.state()``, of all ranks together."""
        whole = dict(self.gathered())
        names = [name for name in self.network.parameters if name not in whole]
        whole.update(zip(names, map(np.array, self.arrays(self.network.fetch_tensors(names))), strict=True))
        return {name: whole[name] for name in self.network.parameters}

    def backprop(self, inputs: Mapping[str, Any]) -> dict[str, Any]:
        """Forward and backward, stage by stage."""
        if self.comm.size == 1:
            return super().backprop(inputs)
        if self.executor.checkpointing is not None:
            raise InputError(f"got a checkpointing plan with {type(self).__name__}, {self.computes_once}")
        self.base_optimizer.backprops += 1
        events = self.executor.events
        if events.before_forward_backward:
            events.emit(events.before_forward_backward, self.executor)
        outputs = self.run_stages(inputs)
        if events.after_forward_backward:
            events.emit(events.after_forward_backward, self.executor)
        return outputs

    def update(self) -> None:
        """Each rank updates what it keeps."""
        if self.comm.size == 1:
            super().update()
        else:
            self.base_optimizer.modifications += 1  # by this scheme: it has parts of gradients
            self.update_parts()

    @contextmanager
    def evaluation(self) -> Iterator[None]:
        """Within it every rank holds the whole network."""
        with self.base_optimizer.evaluation():
            if self.comm.size == 1:
                yield
                return
            with self.communicating():
                for name, array in self.gathered():
                    self.network.assign_tensor(name, self.network.to_tensor(array))
            try:
                yield
            finally:
                self.release(self.absent)

    def release(self, names: list[str]) -> None:
        """Let go of parameters' memory (:meth:`BoundNetwork.release_tensor`)."""
        for name in names:
            self.network.release_tensor(name)

    def load_whole_state(self, state: Mapping[str, Any]) -> None:
        """``network.load_state()``, of which each rank keeps its part."""
        values = self.network.parameters
        odd = sorted(set(state) ^ set(values)) or [n for n in values if np.shape(state[n]) != values[n].value.shape]
        if odd:
            raise InputError(
                f"got a state that differs in {odd[:4]}; expected the network's parameters: use the same network"
            )
        self.feed_arrays(here := [name for name in values if self.has(name)], [state[name] for name in here])

    def has(self, name: str) -> bool:
        """Whether a parameter or running statistic is this rank's to hold, whole."""
        return name not in self.absent

    def drawn(self, stage: TrainingStage, *place: int) -> int:
        """The seed of a stage's run in this step, which is the same forward and backward."""
        if not stage.random:
            return 0
        words = [self.executor.seed, self.base_optimizer.backprops, *place]
        return int(np.random.SeedSequence(words).generate_state(1)[0])


def check_options(base: Optimizer, scheme: str, advice: str, modifier: bool, pieces: bool = False) -> None:
    """Raise InputError for what takes the gradients of all parameters at once.

    Args:
        base: with these options.
        scheme: its name.
        advice: the end of the message.
        modifier: whether a gradient modifier is allowed.
        pieces: whether ``accumulate`` and loss scaling are.
    """
    odd = {
        "accumulate or loss scaling": not pieces and base.in_pieces,
        "a gradient_modifier": not modifier and base.gradient_modifier is not None,
        "a gradient_transform other than ClipGradientNorm": not isinstance(
            base.gradient_transform, ClipGradientNorm | None
        ),
    }
    for option, present in odd.items():
        if present:
            raise InputError(f"got {option} with {scheme}; expected none{advice}")


def check_elementwise(base: Any, scheme: str, kind: type = Optimizer) -> None:
    """Raise InputError for an optimizer that looks at whole tensors, or is of another kind."""
    if isinstance(base, Optimizer) and not (isinstance(base, kind) and vars(type(base)).get("elementwise")):
        rule = type(base)
        raise InputError(
            f"got {rule.__module__}.{rule.__qualname__} for {scheme}, whose ranks update some elements of a parameter "
            "each; expected an update rule that says elementwise = True of itself: use one of "
            "deep500.training.optimizers (AdamOptimizer, AdamWOptimizer, MomentumOptimizer, ...), or ShardedOptimizer"
        )
