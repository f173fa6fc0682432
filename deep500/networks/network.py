"""`Network`: a graph with what users ask of one: files, gradients, FLOPs, the printed table.

All of these lie below this file; each is imported when it is first asked for, because most networks never need it.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from typing import TYPE_CHECKING

from deep500.networks.graph import Choice, Graph, Parameter

if TYPE_CHECKING:
    import onnx

    from deep500.networks.flops import FlopCount

__all__ = ["Choice", "Network", "Parameter"]


class Network(Graph):
    """An editable graph of ONNX operators that is read from files, written to files, differentiated and counted.

    Example:
        >>> import numpy as np
        >>> net = Network("tiny")
        >>> net.add_input("x", ("N", 3))
        >>> net.add_parameter("w", np.ones((3, 2), "float32"))
        >>> net.add_node("MatMul", ["x", "w"], ["y"], name="product")
        >>> net.add_output("y")
        >>> net.flops(batch=8).total
        96
    """

    # -- files ------------------------------------------------------------------------------------------------------
    @classmethod
    def from_onnx(
        cls, model: str | os.PathLike[str] | bytes | onnx.ModelProto, trainable: Choice | None = None
    ) -> Network:
        """Read an ONNX model, and say which of its arrays train; see :func:`deep500.networks.onnx.load.load`."""
        from deep500.networks.onnx.load import load

        return load(model, trainable, Network)

    def to_onnx(
        self, path: str | os.PathLike[str] | None = None, opset: int | None = None, external: bool | None = None
    ) -> onnx.ModelProto:
        """The network as an ONNX model, written to ``path`` if given; see :func:`deep500.networks.onnx.dump.dump`."""
        from deep500.networks.onnx.dump import dump

        return dump(self, path, opset, external)

    # -- gradients and what they cost -------------------------------------------------------------------------------
    def with_gradient(
        self, loss: str = "loss", wrt: Iterable[str] | None = None, quantization: str | None = None
    ) -> Network:
        """A copy with the gradients of ``loss`` as outputs; see :mod:`deep500.networks.gradients.autodiff`."""
        from deep500.networks.gradients.autodiff import with_gradient

        return with_gradient(self, loss, wrt, quantization)

    def gradient(self, loss: str = "loss", quantization: str | None = None) -> list[tuple[str, str]]:
        """``[(parameter, name of its gradient)]`` for every trainable parameter that ``loss`` depends on."""
        from deep500.networks.gradients.autodiff import gradient_names

        return gradient_names(self, loss, quantization)

    def flops(self, batch: int = 1, loss: str | None = None) -> FlopCount:
        """Operations of one forward run, or of a training step on ``loss``; see :mod:`deep500.networks.flops`."""
        from deep500.networks.flops import flop_count

        return flop_count(self, batch, loss)

    # -- looking ----------------------------------------------------------------------------------------------------
    def __str__(self) -> str:
        from deep500.networks.summary import summary

        return summary(self)

    def _repr_html_(self) -> str:
        from deep500.notebooks import folded  # which notebooks alone call

        return folded(repr(self), str(self))
