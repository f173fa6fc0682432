"""Custom operators in JAX: :func:`custom_op` makes any :class:`~deep500.operators.base.CustomOp` a differentiable
function of JAX arrays, for use under ``jit``, ``grad`` and ``vmap``.

Compiled operators run as an XLA custom call on XLA's own buffers (:mod:`deep500.frameworks.jax.custom_native`), Python
operators as ``jax.pure_callback``, and functions that were JAX's in the first place as they are.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from deep500.errors import UnsupportedOperator
from deep500.frameworks.jax.custom_routes import Callback, Route, Specs, settle
from deep500.frameworks.jax.derivatives import differentiable
from deep500.frameworks.jax.dtypes import DTYPES
from deep500.frameworks.jax.native_op import NativeOp
from deep500.networks.execution.custom import OperatorFunctions, refuse_ranks
from deep500.operators.base import CustomOp
from deep500.operators.bridge import can_bridge
from deep500.operators.failures import find_failure
from deep500.operators.python_op import GradientOp
from deep500.tensors import TensorDescriptor, numpy_dtype


def custom_op(op: CustomOp) -> JaxOperator:
    """An operator as a function of JAX arrays: one array, or a tuple of them if it has several outputs.

    It works under ``jax.jit``, ``jax.grad`` (in every floating dtype) and ``jax.vmap`` (one call after the other), and
    where Enzyme made its gradient under ``jax.jvp``, ``jax.jacfwd`` and ``jax.hessian``. Inputs that are no floating
    numbers have no gradient. Errors of a call are Deep500's; where it stands in a function that the caller has jitted
    they are JAX's, with the same text.

    Args:
        op: any operator; dtypes and shapes of the outputs are what its ``infer`` says.

    Returns:
        A function with attributes ``op`` and ``implementation``: ``"xla_ffi"`` (compiled operators, no copies),
        ``"pure_callback"`` (operators in Python) or ``"native"`` (made of a JAX function).

    Raises:
        InputError: when called, inputs that do not fit the operator.
        UnsupportedOperator: when differentiated, an operator without a gradient.

    Example:
        >>> import deep500 as d5
        >>> class Cube(d5.CustomPythonOp):
        ...     def forward(self, inputs):
        ...         return inputs[0] ** 3
        ...     def backward(self, grads, fwd_inputs, fwd_outputs):
        ...         return 3 * grads[0] * fwd_inputs[0] ** 2
        >>> float(jax.grad(custom_op(Cube()))(jnp.float32(2)))
        12.0
    """
    return _functions.function_for(op, lambda op: (id(op), _platform()))


def _platform() -> str:
    """Where a function that is being traced will run: on the executor's device, else on JAX's default one."""
    chosen: Any = jax.config.values["jax_default_device"]
    if chosen is None:
        return str(jax.default_backend())
    return chosen if isinstance(chosen, str) else str(chosen.platform)


def _route(op: CustomOp) -> Route:
    """How an operator is run: compiled ones by XLA itself where it is XLA for processors, all others through Python.

    Raises:
        UnsupportedOperator: it communicates.
    """
    refuse_ranks(op, "JAX")
    if _platform() != "cpu":
        return Callback(op)
    inner = op.operator if isinstance(op, GradientOp) else op
    if not can_bridge(inner):
        return Callback(op)
    from deep500.frameworks.jax.custom_native import XlaCall, XlaGradientCall

    return XlaGradientCall(op) if isinstance(op, GradientOp) else XlaCall(op)


class JaxOperator:
    """An operator as a function of JAX arrays; made by :func:`custom_op`."""

    def __init__(self, op: CustomOp) -> None:
        self.op = op
        self._route = op if isinstance(op, NativeOp) else _route(op)
        self.implementation = self._route.implementation
        self.__name__ = self.__qualname__ = op.name
        jitted = jax.jit(self._forward, inline=True)
        self._run = jitted if isinstance(op, NativeOp) else finished(jitted, _wait)
        self._traced = jitted if isinstance(self._route, NativeOp) else differentiable(op, self._route, jitted)

    def __call__(self, *inputs: Any) -> Any:
        """The outputs for these inputs (arrays, or what ``jnp.asarray`` takes)."""
        outputs = self.all(inputs)
        return outputs[0] if len(outputs) == 1 else outputs

    def all(self, inputs: Sequence[Any]) -> tuple[Any, ...]:
        """The outputs, always as a tuple."""
        for x in inputs:
            if isinstance(x, jax.core.Tracer):
                return self._traced(*map(jnp.asarray, inputs))
        return self._run(*inputs)

    def resume(self, inputs: Sequence[Any], outputs: Sequence[Any]) -> tuple[Any, ...]:
        """Outputs that an earlier call gave for these inputs, with the operator's gradient but without another call.

        An operator that was made of a JAX function, which is pure, is called.
        """
        if isinstance(self._route, NativeOp):
            return self.all(inputs)
        known = differentiable(self.op, self._route, lambda *both: both[len(inputs) :], extra=len(outputs))
        return known(*map(jnp.asarray, inputs), *outputs)

    def _forward(self, *inputs: Any) -> tuple[Any, ...]:
        specs = _specs(self.op, inputs)
        if isinstance(self._route, NativeOp):
            return self._route.apply(*inputs)
        return self._route.forward(specs, inputs)

    def __repr__(self) -> str:
        return f"<{self.op.name} for JAX by {self.implementation}>"


_functions = OperatorFunctions(JaxOperator, "JAX")


def _wait(outputs: tuple[Any, ...]) -> tuple[Any, ...]:
    """Wait as ``jax.block_until_ready`` does, for a few arrays and in less time."""
    for output in outputs:
        if not isinstance(output, jax.core.Tracer):
            output.block_until_ready()
    return outputs


def finished(function: Callable[..., Any], wait: Callable[..., Any] = jax.block_until_ready) -> Callable[..., Any]:
    """A jitted function whose failures are ours. It waits for results, because JAX reports failures with them."""

    def call(*args: Any) -> Any:
        try:
            return wait(function(*args))
        except (jax.errors.JaxRuntimeError, ValueError) as error:  # which of them depends on where it is noticed
            ours = find_failure(str(error))
            if ours is None:
                raise
            settle()
            raise ours from error

    return call


def _specs(op: CustomOp, inputs: Sequence[Any]) -> Specs:
    """Dtypes and shapes of the outputs."""
    descriptors = op.infer([desc_from_tensor(x) for x in inputs])
    odd = [d for d in descriptors if not d.is_static or d.dtype not in DTYPES]
    if odd:
        raise UnsupportedOperator(
            f"operator {op.name!r}: got an output {odd[0]}; expected a known size and a dtype that JAX has: declare "
            "output_descriptors, or give the operator an infer that tells them"
        )
    return [jax.ShapeDtypeStruct(d.shape, numpy_dtype(str(d.dtype))) for d in descriptors]


def custom_op_from_native(
    function: Callable[..., Any],
    input_descriptors: Sequence[TensorDescriptor] | None = None,
    output_descriptors: Sequence[TensorDescriptor] | None = None,
) -> CustomOp:
    """A JAX function as an operator for every framework, with JAX's gradient.

    Args:
        function: takes arrays and returns one or a tuple of them.
        input_descriptors, output_descriptors: see :class:`~deep500.operators.base.CustomOp`; outputs that are not
            declared are found by tracing.

    Example:
        >>> op = custom_op_from_native(jnp.tanh)
        >>> op(np.zeros(2, "float32")).tolist()
        [0.0, 0.0]
    """
    return NativeOp(function, input_descriptors, output_descriptors)


def desc_from_tensor(tensor: Any) -> TensorDescriptor:
    """Dtype and shape of a JAX array (a traced one too), or of what ``jnp.asarray`` takes.

    Example:
        >>> str(desc_from_tensor(jnp.ones((2, 3), "float32")))
        'float32[2x3]'
    """
    array = tensor if isinstance(tensor, (jax.Array, np.ndarray)) else jnp.asarray(tensor)
    return TensorDescriptor(str(np.dtype(array.dtype)), tuple(array.shape))
