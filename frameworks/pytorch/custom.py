"""Custom operators in PyTorch: :func:`custom_op` makes any :class:`~deep500.operators.base.CustomOp` a differentiable
function of tensors.

Every operator is registered with ``torch.library`` (:mod:`~deep500.frameworks.pytorch.library`). Compiled operators
have a short way besides (:mod:`~deep500.frameworks.pytorch.shortcut`), because registered ones cost microseconds.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Protocol

import torch
from torch.autograd import forward_ad

from deep500.errors import Deep500Error, InputError
from deep500.frameworks.pytorch.arrays import desc_from_tensor
from deep500.frameworks.pytorch.compiled import short_way
from deep500.frameworks.pytorch.gpu import runs_on_card
from deep500.frameworks.pytorch.library import TorchLibrary, lasting_key
from deep500.frameworks.pytorch.native_op import NativeOp, custom_op_from_native
from deep500.networks.custom import named, operator_of, place_of
from deep500.networks.execution.custom import OperatorFunctions
from deep500.networks.node import Node
from deep500.operators.base import CustomOp
from deep500.operators.python_op import GradientOp
from deep500.tensors import TensorDescriptor


class TensorFunction(Protocol):
    """The function that :func:`custom_op` returns.

    Attributes:
        op: the operator.
        implementation: ``"builtin"``: compiled, the short way; ``"library"``: all through torch.library; ``"native"``:
            made of a torch function.
        library: its ``forward`` and ``backward`` are the operators in ``torch.ops.deep500``; None for ``"native"``.
    """

    op: CustomOp
    implementation: str
    library: Any

    def __call__(self, *inputs: Any) -> Any: ...


def custom_op(op: CustomOp) -> TensorFunction:
    """An operator as a function of tensors: one tensor, or a tuple of them if it has several outputs.

    Autograd, ``torch.compile(fullgraph=True)``, ``torch.export``, FakeTensors and ``torch.library.opcheck`` work on it;
    ``torch.func``'s transformations do not. Make it outside of the code that is compiled. Contiguous tensors are used
    where they are, without copies; others are made contiguous first. Compiled operators let other Python threads run
    from 32 KiB of inputs on.

    Args:
        op: any operator; dtypes and shapes of the outputs are what its ``infer`` says. Sizes stay symbolic under
            ``torch.compile(dynamic=True)`` where descriptors tell how outputs follow from inputs.

    Returns:
        A function with attributes, see :class:`TensorFunction`. Asked again, the same one.

    Raises:
        InputError: when called, inputs that do not fit the operator, or are on a GPU while it is not in CUDA.
        UnsupportedOperator: when differentiated, an operator without a gradient; when differentiated twice, one
            without Hessian-vector products; in forward mode, one without Jacobian-vector products (Enzyme makes both).

    Example:
        >>> import deep500 as d5
        >>> class Cube(d5.CustomPythonOp):
        ...     def forward(self, inputs):
        ...         return inputs[0] ** 3
        ...     def backward(self, grads, fwd_inputs, fwd_outputs):
        ...         return 3 * grads[0] * fwd_inputs[0] ** 2
        >>> x = torch.tensor(2.0, requires_grad=True)
        >>> custom_op(Cube())(x).backward()
        >>> x.grad
        tensor(12.)
    """
    return _functions.function_for(op, _key)


def _key(op: CustomOp) -> object:
    """The same for operators that do the same."""
    if isinstance(op, GradientOp):  # made anew at every request
        return GradientOp, op.count, _key(op.operator)
    return lasting_key(op) or id(op)  # the function holds the operator, so no other gets its id


def _make(op: CustomOp) -> TensorFunction:
    return _native(op) if isinstance(op, NativeOp) else _function(op)


_functions = OperatorFunctions(_make, "torch", most=None)  # what is registered with torch.library stays


def _function(op: CustomOp) -> TensorFunction:
    library = TorchLibrary(op)
    short, tracing = short_way(op, library), torch.compiler.is_dynamo_compiling

    def by_library(*inputs: Any) -> Any:
        return library(*inputs)

    def by_builtin(*inputs: Any) -> Any:
        return library(*inputs) if tracing() or forward_ad._current_level >= 0 else short(*inputs)  # type: ignore[misc]

    function = by_library if short is None else by_builtin
    if op.communicates:  # compilers may move what does not depend on each other; ranks must call in one order
        function = torch.compiler.disable(function)
    return _labelled(function, op, "library" if short is None else "builtin", library)


def _native(op: NativeOp) -> TensorFunction:
    def native(*inputs: Any) -> Any:
        op.check([desc_from_tensor(x) for x in inputs])
        return op.function(*inputs)

    return _labelled(native, op, "native", None)


def _labelled(function: Any, op: CustomOp, implementation: str, library: TorchLibrary | None) -> TensorFunction:
    function.__name__ = function.__qualname__ = op.name
    function.op, function.implementation, function.library = op, implementation, library
    typed: TensorFunction = function
    return typed


def node_function(
    node: Node, descriptors: Mapping[str, TensorDescriptor], device: torch.device | None = None
) -> Callable[..., Any]:
    """The operator of a network's node as a function that returns a tuple; its errors name the node.

    An operator for the processor in a network on a GPU goes by way of the processor, gradient included, as in JAX.

    Args:
        node: of domain ``deep500``.
        descriptors: what is known of its inputs.
        device: where the network runs; the processor if None.
    """
    on_card = device is not None and device.type == "cuda"
    known = all(name in descriptors and descriptors[name].dtype for name in node.inputs)
    function = custom_op(operator_of(node, descriptors)) if known else None

    def call(*inputs: Any) -> tuple[Any, ...]:
        nonlocal function
        try:
            if function is None:  # in a sub-graph
                described = zip(node.inputs, map(desc_from_tensor, inputs), strict=True)
                function = custom_op(operator_of(node, dict(described)))
            by_host = on_card and not runs_on_card(function.op)
            outputs = function(*[x.cpu() for x in inputs] if by_host else inputs)
        except InputError as error:
            raise InputError(f"{place_of(node)}: {error}") from error
        except Deep500Error as error:
            raise named(node, error) from error
        several = outputs if isinstance(outputs, tuple) else (outputs,)
        return tuple(y.to(device) for y in several) if by_host else several

    call.__name__ = call.__qualname__ = node.op_type
    return call


__all__ = ["custom_op", "custom_op_from_native", "desc_from_tensor", "node_function"]
