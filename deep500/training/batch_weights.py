"""`BatchWeights`: what a batch, a piece of one or a rank's share of it counts in a mean over several."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from deep500.networks.execution.labels import LOSSES

if TYPE_CHECKING:
    from deep500.networks.execution.executor import GraphExecutor
    from deep500.tasks.task import Task
    from deep500.transformations.denominators import Denominator

TRIED = range(4)
"""Numbers that are tried for labels and masks that count."""


class BatchWeights:
    """Divisors of mean losses: samples, or what the network's loss says
    (:func:`~deep500.transformations.denominators.loss_denominator`), or a task of its own ``weight``.

    Args:
        executor: runs the network; it may be edited.
        loss: name of the loss.

    Attributes:
        count: samples of a batch; a trainer puts its task's in place (:meth:`ask`).

    Example:
        >>> from deep500.frameworks import reference
        >>> from deep500.networks import add_loss, create
        >>> network = add_loss(create("mlp", shape=(4,), classes=3), ignore_index=-1)
        >>> weights = BatchWeights(reference.from_model(network), "loss")
        >>> weights({"input": np.ones((3, 4), "float32"), "label": np.array([0, -1, 2])})
        2
    """

    def __init__(self, executor: GraphExecutor, loss: str) -> None:
        self.executor, self.loss = executor, loss
        self.count: Callable[[Mapping[str, Any]], int] = _items
        self._asked = False
        self._known: tuple[int, Denominator] | None = None

    def ask(self, task: Task) -> None:
        """Let a task count samples; where it has a ``weight`` of its own, that is what losses divide by."""
        from deep500.tasks.task import Task  # here, because steps alone have none

        self.count, self._asked = task.weight, type(task).weight is not Task.weight

    @property
    def denominator(self) -> Denominator:
        """The divisor of the loss of the network as it is now."""
        version = self.executor.network.version
        if self._known is None or self._known[0] != version:
            from deep500.transformations.denominators import loss_denominator  # here, because many steps need none

            self._known = version, loss_denominator(self.executor.network, self.loss)
        return self._known[1]

    def ignored(self, label: str) -> int | None:
        """The label of an input that counts for nothing in the loss; None if all count."""
        if label not in self.denominator.reads:
            return None
        losses = [node for node in self.executor.network.nodes if node.op_type in LOSSES and not node.domain]
        ignored = {node.attribute("ignore_index") for node in losses if node.inputs[1] == label}
        return ignored.pop() if len(ignored) == 1 else self.denominator.ignored

    @property
    def counted(self) -> bool:
        """Whether batches of as many samples may weigh differently."""
        return self._asked or self.denominator.counted

    @property
    def read(self) -> tuple[str, ...]:
        """Inputs by which batches of as many samples weigh differently, as far as the network says it."""
        return self.denominator.reads if self.denominator.counted and not self._asked else ()

    def __call__(self, batch: Mapping[str, Any]) -> float:
        """The weight of a batch; 0 where nothing in it counts."""
        if not self.read:
            return self.count(batch)
        empty = any(np.shape(batch[name])[:1] == (0,) for name in self.read)
        return 0 if empty else self.denominator.count(batch, self.executor)

    def counting(self, batch: Mapping[str, Any]) -> dict[str, Any]:
        """A batch like this in which something counts, if one is easily made: a mean over nothing may be NaN, and so
        may its gradients, which stay NaN when they are weighted by 0."""
        counting, to_numpy = dict(batch), self.executor.network.to_numpy
        for number in TRIED if self.read and not self(batch) else ():
            counting.update({name: np.full_like(np.asarray(to_numpy(batch[name])), number) for name in self.read})
            if self(counting):
                break
        return counting


def _items(batch: Mapping[str, Any]) -> int:
    """Items of a batch whose label is called so, or is the first array."""
    from deep500.tasks.task import batch_length

    return batch_length(batch, "label")
