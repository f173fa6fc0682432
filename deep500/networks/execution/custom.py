"""Turn a custom operator into a function of a framework's tensors (``custom_op``): the half that backends share."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Generic, TypeVar

from deep500.errors import Deep500Error, InputError, UnsupportedOperator
from deep500.networks.custom import named, operator_of
from deep500.networks.node import Node
from deep500.operators.base import CustomOp, for_more_derivatives
from deep500.tensors import TensorDescriptor

Made = TypeVar("Made")
KEPT = 1024
"""Operators whose functions are kept."""


def custom_op(op: CustomOp) -> Callable[..., Any]:
    """The operator as a function of NumPy arrays: one array, or a list if it has several outputs.

    For backends whose tensors are NumPy arrays, or share memory with them.

    Raises:
        InputError: by the function, for inputs that the operator refuses.

    Example:
        >>> import deep500 as d5
        >>> class Twice(d5.CustomPythonOp):
        ...     def forward(self, inputs):
        ...         return 2 * inputs[0]
        >>> custom_op(Twice())([1.0, 2.0]).tolist()
        [2.0, 4.0]
    """

    def call(*inputs: Any) -> Any:
        return op(*inputs)

    call.__name__ = op.name
    return call


def refuse_ranks(op: CustomOp, framework: str) -> None:
    """Raise UnsupportedOperator for an operator whose ranks wait for each other, where calls may change their order."""
    if op.communicates:
        raise UnsupportedOperator(
            f"operator {op.name!r}: got an operator with ranks in {framework}, which runs what does not depend on each "
            "other in any order, so that ranks would wait for different messages; expected one of reference, "
            "onnxruntime and pytorch, which keep to the program's order: choose one, or leave comm out"
        )


class OperatorFunctions(Generic[Made]):
    """Functions by operator, made once: to trace or to register an operator anew for every call would take long.

    Args:
        make: the function of an operator; it must hold the operator, or another would get its ``id``.
        framework: for the error.
        most: functions that are kept, the last used ones; None for all.
    """

    def __init__(self, make: Callable[[Any], Made], framework: str, most: int | None = KEPT) -> None:
        self.make, self.framework, self.most = make, framework, most
        self._made: OrderedDict[object, Made] = OrderedDict()
        self._lock = threading.Lock()

    def function_for(self, op: CustomOp, key: Callable[[CustomOp], object] = id) -> Made:
        """The function of an operator; operators of one key share it. Raises InputError for anything else."""
        if not isinstance(op, CustomOp):
            raise InputError(
                f"got {op!r}; expected a CustomOp: derive from CustomPythonOp, compile one, or wrap a {self.framework} "
                "function with custom_op_from_native"
            )
        name = key(op)
        with self._lock:
            if name not in self._made:
                self._made[name] = self.make(op)
                if self.most is not None and len(self._made) > self.most:
                    self._made.popitem(last=False)
            return self._made[name]


def call_node(
    node: Node,
    tensors: Sequence[Any],
    descriptors: Mapping[str, TensorDescriptor],
    function_of: Callable[[CustomOp], Any],
    describe: Callable[[Any], TensorDescriptor],
    earlier: Sequence[Any] | None = None,
) -> Sequence[Any]:
    """All outputs of a network's custom node; the operator does not run again where those of an earlier call are given.

    Args:
        node: of domain ``deep500``.
        tensors: its inputs.
        descriptors: what is known of values before the run.
        function_of: the backend's ``custom_op``; its functions have methods ``all`` and ``resume``.
        describe: dtype and shape of a tensor.
        earlier: outputs of an earlier call with these inputs.

    Raises:
        Deep500Error: naming the node.
    """
    known = {
        name: declared if (declared := descriptors.get(name)) is not None and declared.dtype else describe(tensor)
        for name, tensor in zip(node.inputs, tensors, strict=True)
        if name
    }
    function = function_of(operator_of(node, known))
    try:
        outputs: Sequence[Any] = function.all(tensors) if earlier is None else function.resume(tensors, earlier)
    except Deep500Error as error:
        raise named(node, error) from error
    return outputs


def no_gradient(op: CustomOp) -> UnsupportedOperator:
    """The error for an operator that has no gradient."""
    return UnsupportedOperator(
        f"operator {op.name!r}: got a call of its gradient; expected an operator that has one: write backward (in C++ "
        "gradient='enzyme' finds it)"
    )


def no_forward(op: CustomOp) -> UnsupportedOperator:
    """The error for an operator that is to be differentiated forwards."""
    return UnsupportedOperator(
        f"operator {op.name!r}: got tangents of forward mode; expected reverse mode (grad, jacrev), or an operator "
        f"with more derivatives: {for_more_derivatives(op, 'jvp')}"
    )


def no_second(op: CustomOp) -> UnsupportedOperator:
    """The error for an operator whose gradient is to be differentiated."""
    return UnsupportedOperator(
        f"operator {op.name!r}: got a call of its second derivative; expected at most the gradient, or an operator "
        f"with more derivatives: {for_more_derivatives(op, 'jvp', 'hvp')}"
    )


def unlike_inferred(op: CustomOp, array: Any, inferred: Any) -> InputError:
    """The error for an output of another dtype or shape than the operator's ``infer`` says."""
    return InputError(
        f"operator {op.name!r}: got an output {array.dtype}{list(array.shape)}; expected {inferred}, as infer says: "
        "let forward return that, or declare output_descriptors"
    )
