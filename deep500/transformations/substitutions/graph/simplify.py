"""What a store makes of an application instead of a new node, where less does the same.

Each case is an axiom read in one direction: parts of concatenations (25, 26 and associativity), transposing twice (29),
nested reshapes, biases of sums and of biases; and reshapes that keep the last axis move behind what works element by
element or along that axis, so that products of matrices meet what follows them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from deep500.transformations.substitutions.operators.elementwise import ACTIVATIONS

if TYPE_CHECKING:
    from deep500.transformations.substitutions.graph.store import Store, Value

Values = tuple["Value", ...]
Parameters = Mapping[str, Any]


def parts(store: Store, value: Value, axis: int) -> list[Value]:
    """What nested concatenations along one axis are made of, in order.

    Example:
        >>> from deep500.transformations.substitutions.graph.store import Store
        >>> store = Store()
        >>> x, y, z = (store.input(name, (2, 3), "float32") for name in "xyz")
        >>> both, = store.add("concat", x, y, axis=0)
        >>> parts(store, store.add("concat", both, z, axis=0)[0], 0) == [x, y, z]
        True
    """
    node = store.node(value)
    if node.op != "concat" or node.parameter("axis") != axis:
        return [value]
    return [part for one in node.inputs for part in parts(store, one, axis)]


def joined(store: Store, values: Sequence[Value], axis: int) -> Value:
    """The concatenation of one or more values, from left to right."""
    whole = values[0]
    for one in values[1:]:
        (whole,) = store.add("concat", whole, one, axis=axis)
    return whole


def _split(store: Store, inputs: Values, parameters: Parameters) -> Values | None:
    axis, cut, position = parameters["axis"], parameters["cut"], 0
    found = parts(store, inputs[0], axis)
    for count, part in enumerate(found):
        if position == cut:
            return joined(store, found[:count], axis), joined(store, found[count:], axis)
        position += store.shape(part)[axis]
    return None


def _concat(store: Store, inputs: Values, parameters: Parameters) -> Values | None:
    """Nested to the left, so that equal concatenations are one; neighbours that were cut apart grow together."""
    axis = parameters["axis"]
    left, right = (parts(store, one, axis) for one in inputs)
    first, second = left[-1], right[0]
    node = store.node(first)
    halves = first.node == second.node and (first.output, second.output) == (0, 1) and node.op == "split"
    if halves and node.parameter("axis") == axis:
        return (joined(store, [*left[:-1], node.inputs[0], *right[1:]], axis),)
    return (joined(store, [*left, *right], axis),) if len(right) > 1 else None


def _transpose(store: Store, inputs: Values, parameters: Parameters) -> Values | None:
    order, node = tuple(parameters["perm"]), store.node(inputs[0])
    if order == tuple(range(len(order))):
        return inputs
    if node.op != "transpose":
        return None
    inner = node.parameter("perm")
    return store.add("transpose", node.inputs[0], perm=tuple(inner[axis] for axis in order))


def _reshape(store: Store, inputs: Values, parameters: Parameters) -> Values | None:
    node = store.node(inputs[0])
    if tuple(parameters["shape"]) == store.shape(inputs[0]):
        return inputs
    return store.add("reshape", node.inputs[0], shape=parameters["shape"]) if node.op == "reshape" else None


def _add(store: Store, inputs: Values, parameters: Parameters) -> Values | None:
    """A bias moves behind a sum, where it meets others; the written network has it in a product before (`units`)."""
    for one, other in (inputs, inputs[::-1]):
        node = store.node(one)
        if node.op == "bias" and not node.constant:
            (total,) = store.add("add", node.inputs[0], other)
            return store.add("bias", total, node.inputs[1], axis=node.parameter("axis"))
    return None


def _bias(store: Store, inputs: Values, parameters: Parameters) -> Values | None:
    node = store.node(inputs[0])
    if node.op != "bias" or node.constant or node.parameter("axis") != parameters["axis"]:
        return None
    (both,) = store.add("add", node.inputs[1], inputs[1])
    return store.add("bias", node.inputs[0], both, axis=parameters["axis"])


def _no_change(store: Store, inputs: Values, parameters: Parameters) -> Values | None:
    unchanged = parameters.get("source", 0) == parameters.get("target", 1) or parameters.get("factor") == 1
    return inputs if unchanged else None


def _behind_reshape(store: Store, op: str, inputs: Values, parameters: Parameters) -> Values | None:
    """The same on what the reshapes of whole tensors read, and the reshape behind it."""
    first, shape = store.node(inputs[0]), store.shape(inputs[0])
    if first.op != "reshape" or first.constant:
        return None
    source = store.shape(first.inputs[0])
    last = parameters.get("axis") == len(shape) - 1 if "axis" in parameters else op in ELEMENTWISE
    if not last or source[-1] != shape[-1] or len(source) != 2:
        return None
    inner = [first.inputs[0]]
    for one in inputs[1:]:
        if store.shape(one) == shape:
            node = store.node(one)
            if node.op != "reshape" or store.shape(node.inputs[0]) != source:
                return None
            inner.append(node.inputs[0])
        else:
            inner.append(one)
    moved = {**parameters, "axis": 1} if "axis" in parameters else parameters
    results = store.add(op, *inner, **moved)
    return tuple(store.add("reshape", one, shape=(*shape[:-1], store.shape(one)[-1]))[0] for one in results)


ELEMENTWISE = {*ACTIVATIONS, "add", "mul", "scale", "shift"}
_MOVING = {*ELEMENTWISE, "bias", "gain", "split"}
_CASES: dict[str, Callable[[Store, Values, Parameters], Values | None]] = {
    "add": _add,
    "bias": _bias,
    "split": _split,
    "concat": _concat,
    "transpose": _transpose,
    "reshape": _reshape,
    "enlarge": _no_change,
    "merge_groups": _no_change,
}


def simplified(store: Store, op: str, inputs: Values, parameters: Parameters) -> Values | None:
    """Values that stand for an application without a node for it; None where there are none.

    Example:
        >>> from deep500.transformations.substitutions.graph.store import Store
        >>> store = Store()
        >>> x, y = store.input("x", (2, 3), "float32"), store.input("y", (4, 3), "float32")
        >>> both, = store.add("concat", x, y, axis=0)
        >>> store.add("split", both, axis=0, cut=2) == (x, y)
        True
    """
    found = _CASES[op](store, inputs, parameters) if op in _CASES else None
    if found is None and op in _MOVING:
        found = _behind_reshape(store, op, inputs, parameters)
    return found
