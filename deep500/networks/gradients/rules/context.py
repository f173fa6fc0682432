"""`GradContext`: what a gradient rule sees of its node, and `Value`: names with arithmetic, so rules read as formulas.

Sizes that shape inference knows become constants of the emitted graph; the others are read by Shape nodes at run time,
so a symbolic batch stays symbolic.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NoReturn, TypeAlias

import numpy as np

from deep500.errors import UnsupportedOperator
from deep500.networks.emit import Emitter
from deep500.networks.graph import Graph
from deep500.networks.node import Node
from deep500.networks.shapes import known_value
from deep500.tensors import Dim, TensorDescriptor, dtype_to_onnx, numpy_dtype

Operand: TypeAlias = "Value | str | float | None"
PullBack: TypeAlias = "Callable[[Graph, Mapping[str, str], Sequence[str]], list[str]]"
""":func:`deep500.networks.gradients.autodiff.pull_back`, which lies above the rules."""


class Value:
    """A value of the gradient network; arithmetic on it emits nodes, numbers become constants of the node's dtype."""

    __slots__ = ("context", "name")

    def __init__(self, context: NodeView, name: str) -> None:
        self.context = context
        self.name = name

    def __str__(self) -> str:
        return self.name

    def __add__(self, other: Operand) -> Value:
        return self.context("Add", self, other)

    def __radd__(self, other: Operand) -> Value:
        return self.context("Add", other, self)

    def __sub__(self, other: Operand) -> Value:
        return self.context("Sub", self, other)

    def __rsub__(self, other: Operand) -> Value:
        return self.context("Sub", other, self)

    def __mul__(self, other: Operand) -> Value:
        return self.context("Mul", self, other)

    def __rmul__(self, other: Operand) -> Value:
        return self.context("Mul", other, self)

    def __truediv__(self, other: Operand) -> Value:
        return self.context("Div", self, other)

    def __rtruediv__(self, other: Operand) -> Value:
        return self.context("Div", other, self)

    def __neg__(self) -> Value:
        return self.context("Neg", self)


class NodeView:
    """One node seen backwards, and what is known of its values. Calling it emits a node and returns its output.

    Attributes:
        node: the forward node.
        inputs, outputs: its values (``""`` ones are None).
        grads: gradient of the loss with respect to each output, None where none flows.
        dtype: dtype in which the gradient is computed, that of the node's outputs.
        pull_back: differentiates a network in place, for rules of operators with sub-graphs.
    """

    def __init__(
        self,
        emitter: Emitter,
        node: Node,
        descriptors: Mapping[str, TensorDescriptor],
        grads: Sequence[str | None],
        needed: frozenset[int],
        shapes: dict[str, str],
        pull_back: PullBack,
    ) -> None:
        self.emitter = emitter
        self.node = node
        self.inputs = [Value(self, n) if n else None for n in node.inputs]
        self.outputs = [Value(self, n) if n else None for n in node.outputs]
        self.grads = [None if n is None else Value(self, n) for n in grads]
        self.dtype = (
            next(
                (
                    descriptors[n].dtype
                    for n, d in zip(node.outputs, grads, strict=False)
                    if d is not None and n in descriptors
                ),
                None,
            )
            or "float32"
        )
        self._descriptors = descriptors
        self._needed = needed
        self._shapes = shapes
        self.pull_back = pull_back

    def needs(self, index: int) -> bool:
        """Whether the gradient of that input is wanted."""
        return index in self._needed

    def attribute(self, name: str, default: Any = None) -> Any:
        """The node's attribute, else its schema's default, else ``default``."""
        return self.node.attribute(name, default)

    def input(self, index: int) -> Value:
        """That input; refuses the node if it is left out."""
        value = self.optional(index)
        return self.refuse(f"input {index} is left out") if value is None else value

    def optional(self, index: int) -> Value | None:
        """That input, None if it is left out."""
        return self.inputs[index] if index < len(self.inputs) else None

    def output(self, index: int = 0) -> Value:
        """That output of the forward node."""
        value = self.outputs[index]
        return self.refuse(f"output {index} is left out") if value is None else value

    def __call__(self, op_type: str, *inputs: Operand, domain: str = "", **attributes: Any) -> Value:
        return Value(self, self.emitter(op_type, *map(self._name, inputs), domain=domain, **attributes))

    def many(self, op_type: str, *inputs: Operand, outputs: int, **attributes: Any) -> list[Value]:
        """Emit a node with several outputs."""
        names = self.emitter.many(op_type, *map(self._name, inputs), outputs=outputs, **attributes)
        return [Value(self, n) for n in names]

    def _name(self, operand: Operand) -> str:
        if operand is None:
            return ""
        return str(operand) if isinstance(operand, (Value, str)) else str(self.scalar(operand))

    def scalar(self, number: float) -> Value:
        """A constant of the gradient's dtype."""
        return self.array(np.asarray(number))

    def array(self, values: Any) -> Value:
        """A constant array of the gradient's dtype."""
        return Value(self, self.emitter.constant(np.asarray(values).astype(numpy_dtype(self.dtype))))

    def describe(self, value: Value | str) -> TensorDescriptor:
        """Dtype and shape of a forward value, as far as they are known."""
        return self._descriptors.get(str(value), TensorDescriptor(None, None))

    def dims(self, value: Value | str) -> tuple[Dim, ...] | None:
        """Its sizes as far as they are known, None if not even the rank is."""
        return self.describe(value).shape

    def rank(self, value: Value | str) -> int:
        """Its rank; refuses the node if unknown."""
        shape = self.dims(value)
        return self.refuse(f"the rank of {str(value)!r} is unknown") if shape is None else len(shape)

    def static(self, value: Value | str, axes: Sequence[int] | None = None) -> tuple[int, ...] | None:
        """Its sizes (along ``axes``) as numbers, None unless all are known."""
        shape = self.dims(value)
        if shape is None:
            return None
        sizes = [d for d in (shape if axes is None else [shape[a] for a in axes]) if isinstance(d, int)]
        return tuple(sizes) if len(sizes) == (len(shape) if axes is None else len(axes)) else None

    def constant_of(self, index: int) -> np.ndarray | None:
        """The value of an input that is known before the run (a fixed parameter, a Constant node), else None."""
        value = self.optional(index)
        return None if value is None else self.known(value)

    def known(self, value: Value | str) -> np.ndarray | None:
        """Like :meth:`constant_of` for any value."""
        return known_value(self.emitter.network, str(value))

    def refuse(self, reason: str) -> NoReturn:
        """Raise :class:`UnsupportedOperator`; the driver gathers these and names all nodes."""
        raise UnsupportedOperator(reason)


class Emission(NodeView):
    """Nodes of the gradient that shapes are needed for; sizes that are known become constants."""

    def ints(self, *values: int) -> Value:
        """A constant int64 vector."""
        return Value(self, self.emitter.ints(*values))

    def cast(self, value: Value, dtype: str | None = None) -> Value:
        """Convert to a dtype (the gradient's own by default)."""
        return self("Cast", value, to=dtype_to_onnx(dtype or self.dtype))

    def shape(self, value: Value | str) -> Value:
        """Its shape as an int64 vector: a constant if known, else read at run time."""
        sizes = self.static(value)
        if sizes is not None:
            return self.ints(*sizes)
        name = str(value)
        if name not in self._shapes:  # one Shape node for all rules that read it: many do
            self._shapes[name] = self.emitter("Shape", name)
        return Value(self, self._shapes[name])

    def sizes(self, value: Value | str, axes: Sequence[int]) -> Value:
        """Its sizes along some axes as an int64 vector."""
        known = self.static(value, axes)
        return self.ints(*known) if known is not None else self("Gather", self.shape(value), self.ints(*axes))

    def count(self, value: Value | str, axes: Sequence[int] | None = None) -> Value | float:
        """Number of elements (along ``axes``) in the gradient's dtype."""
        known = self.static(value, axes)
        if known is not None:
            return float(np.prod(known))
        sizes = self.shape(value) if axes is None else self.sizes(value, axes)
        return self.cast(self("ReduceProd", sizes, keepdims=0))

    def reshape(self, value: Value, *sizes: int) -> Value:
        """Reshape to constant sizes; one may be -1."""
        return self("Reshape", value, self.ints(*sizes))

    def expand_like(self, value: Value, like: Value | str) -> Value:
        """Broadcast to the shape of a forward value."""
        return self("Expand", value, self.shape(like))

    def zeros(self, shape: Value) -> Value:
        """Zeros of a shape given as an int64 vector."""
        return self("ConstantOfShape", shape, value=np.zeros(1, numpy_dtype(self.dtype)))

    def transpose(self, value: Value, perm: Sequence[int]) -> Value:
        """Transpose, or nothing at all for the identity."""
        return value if list(perm) == list(range(len(perm))) else self("Transpose", value, perm=tuple(perm))

    def total(self, value: Value, axes: Sequence[int], keepdims: bool = False) -> Value:
        """Sum over axes; nothing at all for no axes."""
        return self("ReduceSum", value, self.ints(*axes), keepdims=int(keepdims)) if axes else value

    def where(self, condition: Value, yes: Operand, no: Operand) -> Value:
        """Where(condition, yes, no)."""
        return self("Where", condition, yes, no)


class GradContext(Emission):
    """All that a gradient rule may ask for: gradients that flow into the node, brought to the shapes of its inputs."""

    def grad(self, index: int = 0) -> Value:
        """Gradient of that output; zeros of its shape if none flows."""
        value = self.grads[index] if index < len(self.grads) else None
        return self.zeros_like(self.output(index)) if value is None else value

    def only_first_output(self) -> Value:
        """Gradient of the first output; refuses the node if a gradient flows into another one."""
        if any(d is not None for d in self.grads[1:]):
            self.refuse("a gradient flows into an output other than the first")
        return self.grad(0)

    def reshape_like(self, value: Value, like: Value | str) -> Value:
        """Reshape to the shape of a forward value; one unknown size is left to Reshape itself."""
        dims = self.dims(like)
        if dims is not None:
            unknown = [i for i, d in enumerate(dims) if not isinstance(d, int)]
            if len(unknown) == 1 and all(d != 0 for d in dims):  # beside a size of 0, -1 could be any number
                return self.reshape(value, *(d if isinstance(d, int) else -1 for d in dims))
        return self("Reshape", value, self.shape(like))

    def reshape_to(self, value: Value, sizes: Sequence[int | tuple[Value, int]]) -> Value:
        """Reshape to sizes given as numbers or as (forward value, axis): that value's size along that axis."""
        known: list[int | None] = []
        for size in sizes:
            fixed = (size,) if isinstance(size, int) else self.static(size[0], [size[1]])
            known.append(fixed[0] if fixed else None)
        numbers = [n for n in known if n is not None]
        if len(numbers) == len(known) or (len(numbers) == len(known) - 1 and min(numbers, default=1) > 0):
            return self.reshape(value, *(-1 if n is None else n for n in known))
        parts = [self.ints(size) if isinstance(size, int) else self.sizes(size[0], [size[1]]) for size in sizes]
        return self("Reshape", value, self("Concat", *parts, axis=0))

    def zeros_like(self, value: Value | str) -> Value:
        """Zeros of the shape of a forward value."""
        return self.zeros(self.shape(value))

    def unbroadcast(self, gradient: Value, like: Value) -> Value:
        """Sum a gradient, which has the shape of the first output, over what broadcasting had repeated.

        The axes are constants if the shapes decide them. A symbolic size on the small side is no obstacle where the
        large side has the same symbol; any other unknown size may be 1 in some runs, so the axes are found at run time.
        """
        small, large = self.dims(like), self.dims(self.output())
        if small is None or large is None or len(small) > len(large):
            return self.unbroadcast_at_run_time(gradient, like)
        lead = len(large) - len(small)
        pairs = list(zip(small, large[lead:], strict=True))
        if any((s != b and not isinstance(s, int)) or s is None for s, b in pairs):
            return self.unbroadcast_at_run_time(gradient, like)
        ones = [lead + i for i, (s, b) in enumerate(pairs) if s == 1 and b != 1]
        if not ones or not lead:
            return self.total(gradient, [*range(lead), *ones], keepdims=not lead)
        return self.reshape_like(self.total(gradient, [*range(lead), *ones]), like)

    def unbroadcast_at_run_time(self, gradient: Value, like: Value) -> Value:
        """The same with axes computed in the graph: where the shape of ``like``, filled up with ones, differs."""
        small, large = self.shape(like), self("Shape", gradient)
        missing = self("Sub", self("Shape", large), self("Shape", small))
        ones = self("ConstantOfShape", missing, value=np.ones(1, np.int64))
        repeated = self("Not", self("Equal", self("Concat", ones, small, axis=0), large))
        axes = self.reshape(self("NonZero", repeated), -1)
        return self("Reshape", self("ReduceSum", gradient, axes, keepdims=1, noop_with_empty_axes=1), small)

    def scatter_back(self, positions: Value, gradient: Value, like: Value, unique: bool = False) -> Value:
        """Gradient of data movement: add ``gradient`` into zeros of ``like``'s shape at flat ``positions`` (int64).

        ``unique=True`` promises that no position occurs twice, which is faster.
        """
        flat = self.reshape(gradient, -1)
        sizes = self.static(like)
        size = self.reshape(self("Size", like), 1) if sizes is None else self.ints(int(np.prod(sizes)))
        reduction = "none" if unique else "add"
        filled = self(
            "ScatterElements", self.zeros(size), self.reshape(positions, -1), flat, axis=0, reduction=reduction
        )
        return self.reshape_like(filled, like)

    def positions(self, like: Value) -> Value:
        """Flat position of every element of a forward value, as int64 in its shape."""
        sizes = self.static(like)
        if sizes is not None:
            return Value(self, self.emitter.constant(np.arange(int(np.prod(sizes))).reshape(sizes)))
        start, step = (self.emitter.constant(np.array(n, np.int64)) for n in (0, 1))
        return self("Reshape", self("Range", start, self("Size", like), step), self.shape(like))


def inverse(perm: Sequence[int]) -> tuple[int, ...]:
    """The permutation that undoes ``perm``."""
    return tuple(int(i) for i in np.argsort(perm))
