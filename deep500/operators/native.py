"""The common part of frameworks' functions as operators: backends add how to trace, call and differentiate them."""

from __future__ import annotations

import abc
from collections.abc import Callable
from typing import Any

from deep500.errors import UnsupportedOperator
from deep500.operators.base import CustomOp, Descriptors
from deep500.tensors import TensorDescriptor


class NativeFunction(CustomOp):
    """A framework's own function as an operator, with the gradient that the framework derives.

    Args:
        function: takes the framework's tensors and returns one, or a list or tuple of them.
        input_descriptors, output_descriptors: see :class:`CustomOp`; outputs not declared are found by tracing.
    """

    def __init__(
        self,
        function: Callable[..., Any],
        input_descriptors: Descriptors | None = None,
        output_descriptors: Descriptors | None = None,
    ) -> None:
        super().__init__(input_descriptors, output_descriptors)
        self.function = function

    @property
    def name(self) -> str:
        """The function's, or its class's."""
        return str(getattr(self.function, "__name__", type(self.function).__name__))

    @property
    def differentiable(self) -> bool:
        """Yes: the framework differentiates it."""
        return True

    def infer(self, inputs: Descriptors) -> list[TensorDescriptor]:
        """See :meth:`CustomOp.infer`; outputs that are not declared are found by tracing."""
        if self.output_descriptors is not None:
            return super().infer(inputs)
        self.check(inputs)
        return self._trace(inputs)

    @abc.abstractmethod
    def _trace(self, inputs: Descriptors) -> list[TensorDescriptor]:
        """Descriptors of the outputs, found without data."""

    def _need_sizes(self, inputs: Descriptors) -> None:
        """Raise UnsupportedOperator unless every size and dtype is known."""
        if not all(d.is_static and d.dtype is not None for d in inputs):
            raise UnsupportedOperator(
                f"operator {self.name!r}: got inputs of unknown size ({', '.join(map(str, inputs))}); expected known "
                "ones, or declared outputs: pass output_descriptors"
            )
