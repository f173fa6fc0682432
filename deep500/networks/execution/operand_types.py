"""Types of a node's operands against what ONNX lets the operator mix."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from deep500.errors import NetworkError
from deep500.networks.node import Node, find_schema
from deep500.tensors import TensorDescriptor


def refuse_mixed(nodes: Iterable[Node], described: Mapping[str, TensorDescriptor]) -> None:
    """Refuse operands of other types than ONNX lets an operator mix, where the types are known.

    Frameworks differ in what they do with these: some widen, some raise, and gradients are of a third type.

    Raises:
        NetworkError: naming the node, both values and their types.

    Example:
        >>> types = {"a": TensorDescriptor("float64", (2,)), "b": TensorDescriptor("float32", (2,))}
        >>> refuse_mixed([Node("Mul", ("a", "b"), ("c",), "scale")], types)  # doctest: +IGNORE_EXCEPTION_DETAIL
        Traceback (most recent call last):
        deep500.errors.NetworkError: node 'scale' (Mul): got 'a' of float64 and 'b' of float32; expected ...
    """
    for node in nodes:
        schema = None if node.domain else find_schema(node.op_type)
        if schema is None or len(node.inputs) < 2:
            continue
        formals, firsts = schema.inputs, dict[str, tuple[str, str]]()
        for place, name in enumerate(node.inputs):
            formal = formals[min(place, len(formals) - 1)]
            dtype = described[name].dtype if name in described else None
            if dtype is None or not formal.is_homogeneous:
                continue
            first, expected = firsts.setdefault(formal.type_str, (name, dtype))
            if dtype != expected:
                raise NetworkError(
                    f"node {node.name!r} ({node.op_type}): got {first!r} of {expected} and {name!r} of {dtype}; "
                    "expected one type for both: put a Cast before one, or give the parameter the input's dtype"
                )
