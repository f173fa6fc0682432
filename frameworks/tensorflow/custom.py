"""Custom operators in TensorFlow: :func:`custom_op` makes any :class:`~deep500.operators.base.CustomOp` a
differentiable function of tensors, eagerly and under ``tf.function``.

Compiled operators run as a TensorFlow operator of their own on TensorFlow's memory
(:mod:`deep500.frameworks.tensorflow.custom_native`), Python operators as ``tf.numpy_function``, and functions that were
TensorFlow's in the first place as they are.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar

from deep500.errors import UnsupportedOperator
from deep500.frameworks.tensorflow.custom_routes import NumpyFunction, Route, UnknownSizes, describe
from deep500.frameworks.tensorflow.native_op import NativeOp
from deep500.frameworks.tensorflow.operators import NeedsValue
from deep500.frameworks.tensorflow.runtime import tf
from deep500.networks.execution.custom import OperatorFunctions, refuse_ranks
from deep500.networks.execution.custom import call_node as call_custom_node
from deep500.networks.node import Node
from deep500.operators.base import CustomOp, as_list
from deep500.operators.bridge import can_bridge
from deep500.operators.failures import Reported, find_failure
from deep500.operators.python_op import GradientOp
from deep500.tensors import TensorDescriptor


def custom_op(op: CustomOp) -> TensorFlowOperator:
    """An operator as a function of tensors: one tensor, or a list of them if it has several outputs.

    It works eagerly and in ``tf.function`` (also with sizes that are not known while tracing), under
    ``tf.GradientTape`` and in Keras layers. Inputs that are no floating numbers have no gradient. Errors of an eager
    call are Deep500's; within ``tf.function`` they are TensorFlow's, with the same text. XLA cannot run it: a function
    with ``jit_compile=True`` is refused, so Keras models need ``compile(jit_compile=False)``.

    Args:
        op: any operator; dtypes and shapes of the outputs are what its ``infer`` says.

    Returns:
        A function with attributes ``op`` and ``implementation``: ``"op_kernel"`` (compiled operators: a real operator
        through TensorFlow's C API, no copies), ``"numpy_function"`` (operators in Python) or ``"native"`` (made of a
        TensorFlow function).

    Raises:
        InputError: when called, inputs that do not fit the operator.
        UnsupportedOperator: when differentiated, an operator without a gradient; when traced for XLA.

    Example:
        >>> import deep500 as d5
        >>> class Cube(d5.CustomPythonOp):
        ...     def forward(self, inputs):
        ...         return inputs[0] ** 3
        ...     def backward(self, grads, fwd_inputs, fwd_outputs):
        ...         return 3 * grads[0] * fwd_inputs[0] ** 2
        >>> x = tf.Variable(2.0)
        >>> with tf.GradientTape() as tape:
        ...     y = custom_op(Cube())(x)
        >>> float(tape.gradient(y, x))
        12.0
    """
    return _functions.function_for(op)


class TensorFlowOperator:
    """An operator as a function of tensors; made by :func:`custom_op`."""

    autograph_info__: ClassVar[dict[str, Any]] = {}  # AutoGraph is to leave it as it is (a decorator costs each call)

    def __init__(self, op: CustomOp) -> None:
        self.op = op
        self._route = _route(op)
        self.implementation = self._route.implementation
        self.__name__ = op.name

    def __call__(self, *inputs: Any) -> Any:
        """The outputs for these inputs (tensors, variables, or what ``tf.convert_to_tensor`` takes)."""
        outputs = self.all(inputs)
        return outputs[0] if len(outputs) == 1 else outputs

    def all(self, inputs: Sequence[Any]) -> list[Any]:
        """The outputs, always as a list."""
        tensors = [x if isinstance(x, tf.Tensor) else tf.convert_to_tensor(x) for x in inputs]
        if tf.executing_eagerly():
            try:
                return self._route.eager(tensors)
            except (tf.errors.OpError, Reported) as error:
                ours = find_failure(str(error))
                if ours is None:
                    raise
                raise ours from error
        if not isinstance(self.op, NativeOp) and _for_xla(tf.compat.v1.get_default_graph()):
            raise UnsupportedOperator(
                f"operator {self.op.name!r}: got a function with jit_compile=True; expected one without: XLA cannot "
                "call custom operators in TensorFlow (in Keras: compile(jit_compile=False))"
            )
        return self._route.traced(tensors)

    def resume(self, inputs: Sequence[Any], outputs: Sequence[Any]) -> list[Any]:
        """Outputs that an earlier call gave for these inputs, with the operator's gradient but without another call.

        What has no gradient of its own is called: an operator that was made of a TensorFlow function, say.
        """
        gradient: Callable[..., list[Any]] | None = getattr(self._route, "gradient", None)
        if gradient is None:
            return self.all(inputs)

        @tf.custom_gradient
        def function(*arguments: Any) -> Any:
            return [tf.identity(y) for y in outputs], lambda *grads: gradient(arguments, outputs, grads, ())

        return as_list(function(*map(tf.convert_to_tensor, inputs)))

    def __repr__(self) -> str:
        return f"<{self.op.name} for TensorFlow by {self.implementation}>"


_functions = OperatorFunctions(TensorFlowOperator, "TensorFlow")


def _route(op: CustomOp) -> Route:
    """How an operator is run.

    Raises:
        UnsupportedOperator: it communicates.
    """
    refuse_ranks(op, "TensorFlow")
    if isinstance(op, NativeOp):
        return op
    if not can_bridge(op.operator if isinstance(op, GradientOp) else op):
        return NumpyFunction(op)
    from deep500.frameworks.tensorflow.custom_native import GradientKernel, OpKernel

    return GradientKernel(op) if isinstance(op, GradientOp) else OpKernel(op)


def _for_xla(graph: Any) -> bool:
    """Whether what is traced now is to be compiled by XLA."""
    while graph is not None:
        context = graph._get_control_flow_context()
        while context is not None:
            if context.IsXLAContext():
                return True
            context = context.outer_context
        graph = getattr(graph, "outer_graph", None)
    return False


def call_node(
    node: Node,
    tensors: Sequence[Any],
    descriptors: Mapping[str, TensorDescriptor],
    earlier: Sequence[Any] | None = None,
) -> Sequence[Any]:
    """See :func:`deep500.networks.execution.custom.call_node`; NeedsValue where a size must be known before a run."""
    try:
        return call_custom_node(node, tensors, descriptors, custom_op, describe, earlier)
    except UnknownSizes as error:
        raise NeedsValue from error


def custom_op_from_native(
    function: Callable[..., Any],
    input_descriptors: Sequence[TensorDescriptor] | None = None,
    output_descriptors: Sequence[TensorDescriptor] | None = None,
) -> CustomOp:
    """A TensorFlow function as an operator for every framework, with TensorFlow's gradient.

    Args:
        function: takes tensors and returns one or a list of them.
        input_descriptors, output_descriptors: see :class:`~deep500.operators.base.CustomOp`; outputs that are not
            declared are found by tracing.

    Example:
        >>> import numpy as np
        >>> custom_op_from_native(tf.tanh)(np.zeros(2, "float32")).tolist()
        [0.0, 0.0]
    """
    return NativeOp(function, input_descriptors, output_descriptors)


def desc_from_tensor(tensor: Any) -> TensorDescriptor:
    """Dtype and shape of a tensor (sizes not known while tracing are None), or of what ``tf.convert_to_tensor`` takes.

    Example:
        >>> str(desc_from_tensor(tf.ones((2, 3))))
        'float32[2x3]'
    """
    return describe(tensor if isinstance(tensor, (tf.Tensor, tf.Variable)) else tf.convert_to_tensor(tensor))
