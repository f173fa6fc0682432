"""Collectives as nodes: ``AllReduce``, ``AllGather``, ``ReduceScatter``, ``AllToAll`` and ``Broadcast``.

Ranks run networks of their own, equal but for constants, and meet in these nodes; networks divided by a parallel plan
hold them. They communicate by :func:`deep500.distributed.collectives.communicating_by`, else by this process's ranks.

Gradients have the dual type (Shoeybi et al. 2019, arXiv 1909.08053, section 3): the one loss is the same on every rank,
and where a value is whole on every rank, so is its gradient. So back from a sum of terms the gradient passes as it is,
back from a gathered value each rank takes its piece, and back from a scattered sum the pieces are gathered.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

import deep500 as d5
from deep500.distributed.collectives import present_communicator, run_collective
from deep500.errors import InputError, UnsupportedOperator
from deep500.tensors import Dim

Sizes = Sequence[int]
"""Of the ranks' pieces of an axis."""


class CollectiveOp(d5.CustomPythonOp):
    """Base of the collectives: one input, one output, and attributes that every rank agrees on but ``rank``."""

    def __init__(self, **attributes: Any) -> None:
        super().__init__()
        self.attributes: Mapping[str, Any] = {
            name: value if isinstance(value, int | str) else tuple(value) for name, value in attributes.items()
        }

    @property
    def name(self) -> str:
        """The node's type."""
        return type(self).__name__

    @property
    def communicates(self) -> bool:
        """It does."""
        return True

    def forward(self, inputs: Sequence[np.ndarray]) -> np.ndarray:
        """Run it with all ranks."""
        return run_collective(self.name, inputs[0], self.attributes, present_communicator())

    def infer(self, inputs: Sequence[d5.TensorDescriptor]) -> list[d5.TensorDescriptor]:
        """The shape of this rank's part."""
        shape = inputs[0].shape
        if shape is None:
            return [inputs[0]]
        return [replace(inputs[0], shape=tuple(self.sized(axis, n) for axis, n in enumerate(shape)))]

    def sized(self, axis: int, size: Dim | None) -> Dim | None:
        """The size of an axis of the output whose input has this one."""
        return size

    def expect(self, got: Dim | None, expected: int) -> None:
        """Raise InputError unless an axis has the size that the attributes say."""
        if isinstance(got, int) and got != expected:
            raise InputError(
                f"operator {self.name!r}: got {got} elements along the axis that sizes describe; expected {expected}: "
                "correct sizes"
            )


@d5.register_op("AllReduce")
class AllReduce(CollectiveOp):
    """The sum (or the maximum or minimum) of the ranks' terms, on every rank."""

    def __init__(self, reduction: str = "sum", group: str = "ranks") -> None:
        super().__init__(reduction=reduction, group=group)

    def backward(self, grads: Sequence[np.ndarray], *forward: Sequence[np.ndarray]) -> np.ndarray:
        """The gradient as it is: each term enters once."""
        if self.attributes["reduction"] != "sum":
            raise UnsupportedOperator(
                f"operator 'AllReduce': got a gradient of reduction {self.attributes['reduction']!r}; expected 'sum': "
                "differentiate the serial network, and divide its gradient"
            )
        return grads[0].copy()


@d5.register_op("AllGather")
class AllGather(CollectiveOp):
    """The whole of which each rank has a piece; ``sizes`` are those of all pieces along ``axis``."""

    def __init__(self, axis: int, sizes: Sizes, group: str = "ranks") -> None:
        super().__init__(axis=axis, sizes=sizes, group=group)

    def sized(self, axis: int, size: Dim | None) -> Dim | None:
        """The sum of the pieces along the axis."""
        return sum(self.attributes["sizes"]) if axis == self.attributes["axis"] else size

    def backward(self, grads: Sequence[np.ndarray], *forward: Sequence[np.ndarray]) -> np.ndarray:
        """This rank's piece of the gradient."""
        axis, sizes = self.attributes["axis"], self.attributes["sizes"]
        rank = present_communicator().rank
        return np.take(grads[0], range(sum(sizes[:rank]), sum(sizes[: rank + 1])), axis)


@d5.register_op("ReduceScatter")
class ReduceScatter(CollectiveOp):
    """This rank's piece, along ``axis``, of the sum of the ranks' terms."""

    def __init__(self, axis: int, sizes: Sizes, rank: int, reduction: str = "sum", group: str = "ranks") -> None:
        super().__init__(axis=axis, sizes=sizes, rank=rank, reduction=reduction, group=group)

    def sized(self, axis: int, size: Dim | None) -> Dim | None:
        """The piece's size along the axis."""
        if axis != self.attributes["axis"]:
            return size
        self.expect(size, sum(self.attributes["sizes"]))
        return int(self.attributes["sizes"][self.attributes["rank"]])

    def backward(self, grads: Sequence[np.ndarray], *forward: Sequence[np.ndarray]) -> np.ndarray:
        """The pieces of the gradient, gathered."""
        return run_collective("AllGather", grads[0], _of_axis(self.attributes), present_communicator())


@d5.register_op("AllToAll")
class AllToAll(CollectiveOp):
    """Pieces along ``axis`` of what was in pieces along ``gather_axis``."""

    def __init__(
        self, axis: int, sizes: Sizes, rank: int, gather_axis: int, gather_sizes: Sizes, group: str = "ranks"
    ) -> None:
        gather = {"gather_axis": gather_axis, "gather_sizes": gather_sizes}
        super().__init__(axis=axis, sizes=sizes, rank=rank, group=group, **gather)

    def sized(self, axis: int, size: Dim | None) -> Dim | None:
        """The piece's size along one axis, the whole along the other."""
        about = self.attributes
        if axis == about["axis"]:
            self.expect(size, sum(about["sizes"]))
            return int(about["sizes"][about["rank"]])
        return sum(about["gather_sizes"]) if axis == about["gather_axis"] else size

    def backward(self, grads: Sequence[np.ndarray], *forward: Sequence[np.ndarray]) -> np.ndarray:
        """The way back."""
        about = self.attributes
        back = {"axis": about["gather_axis"], "sizes": about["gather_sizes"], "rank": about["rank"]}
        back |= {"gather_axis": about["axis"], "gather_sizes": about["sizes"], "group": about["group"]}
        return run_collective("AllToAll", grads[0], back, present_communicator())


@d5.register_op("Broadcast")
class Broadcast(CollectiveOp):
    """The array of rank ``root``, on every rank."""

    def __init__(self, root: int = 0, group: str = "ranks") -> None:
        super().__init__(root=root, group=group)

    def backward(self, grads: Sequence[np.ndarray], *forward: Sequence[np.ndarray]) -> np.ndarray:
        """The gradient on ``root``, zeros elsewhere, whose arrays have no influence."""
        return grads[0] * grads[0].dtype.type(present_communicator().rank == self.attributes["root"])


def _of_axis(attributes: Mapping[str, Any]) -> dict[str, Any]:
    return {name: attributes[name] for name in ("axis", "sizes", "group")}
