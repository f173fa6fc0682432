"""Channels last: TensorFlow has no gradient of a channels-first convolution on the processor, and is slower with it.

ONNX's layout is channels first. Operators with windows take and give :class:`Last`, and what works element by element
keeps it, so that a network of convolutions is transposed once where its input enters and once where it leaves them.
Kernels are held the way TensorFlow wants them, so that no step has to turn them.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from deep500.frameworks.tensorflow.operators.table import sizes
from deep500.frameworks.tensorflow.runtime import tf
from deep500.networks.node import Node


class Last:
    """A value of rank 3 or more whose channels come last; ``first`` is the same in ONNX's layout."""

    def __init__(self, tensor: Any) -> None:
        self.tensor = tensor
        self._first: Any = None

    @property
    def rank(self) -> int:
        """Number of dimensions."""
        return self.tensor.shape.rank

    @property
    def first(self) -> Any:
        """The tensor with channels first; computed once."""
        if self._first is None:
            x, rank = self.tensor, self.rank
            if all(n == 1 for n in x.shape.as_list()[1:-1]):  # nothing moves
                n = x.shape.as_list()
                n = [-1 if k is None else k for k in n] if n.count(None) == 1 and 0 not in n else sizes(x)
                self._first = tf.reshape(x, [n[0], n[-1], *n[1:-1]])
            else:
                self._first = tf.transpose(x, [0, rank - 1, *range(1, rank - 1)])
        return self._first


def to_last(tensor: Any) -> Any:
    """Channels first to channels last, as a tensor."""
    rank = tensor.shape.rank
    return tensor if rank < 3 else tf.transpose(tensor, [0, *range(2, rank), 1])


def align(value: Any, rank: int) -> Any:
    """An operand of a broadcast against a :class:`Last` of that rank, as a tensor; None if it has more axes."""
    if isinstance(value, Last):
        return value.tensor if value.rank == rank else align(value.first, rank)
    known = value.shape.rank
    if known is None or known > rank:
        return None
    if known == 0:
        return value
    if known < rank:
        value = tf.reshape(value, [1] * (rank - known) + sizes(value))
    return to_last(value)


def last_axis(axis: int, rank: int) -> int:
    """Where an axis goes when channels move to the end."""
    axis %= rank
    return axis if axis == 0 else rank - 1 if axis == 1 else axis - 1


def kernels(nodes: Iterable[Node]) -> set[str]:
    """Values that some node takes as the kernel of a convolution."""
    return {node.inputs[1] for node in nodes if node.op_type == "Conv" and not node.domain}
