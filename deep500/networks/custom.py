"""Custom operators as nodes of networks: domain ``deep500``, the registered name as type, the factory's arguments as
attributes.

What backends share: which nodes are custom ones, whether their plugins are there, the operator of a node, and a call of
it whose errors name the node.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from deep500.errors import Deep500Error, InputError, NetworkError, UnsupportedOperator, nearest
from deep500.networks.node import Node, from_proto
from deep500.networks.protos import UNKNOWN
from deep500.operators.base import CustomOp
from deep500.operators.registry import DOMAIN, RESERVED, find_operator, is_registered, operator_names
from deep500.tensors import TensorDescriptor


def is_custom(node: Node) -> bool:
    """Whether the node is a custom operator, its plugin loaded or not."""
    return node.domain == DOMAIN and node.op_type not in RESERVED


def place_of(node: Node) -> str:
    """``node 'act' (deep500.Mish)``: how errors begin."""
    return f"node {node.name!r} ({node.domain}.{node.op_type})"


def unregistered(nodes: Iterable[Node]) -> list[Node]:
    """Custom nodes, those in sub-graphs included, whose operator no plugin provides."""
    return [node for node in every_node(nodes) if is_custom(node) and not is_registered(node.op_type)]


def every_node(nodes: Iterable[Node]) -> Iterator[Node]:
    """The nodes and those of their sub-graphs."""
    for node in nodes:
        yield node
        for graph in node.graphs:
            yield from every_node(from_proto(inner) for inner in graph.node)


def check_plugins(nodes: Iterable[Node]) -> None:
    """Raise one UnsupportedOperator that names every custom node without a plugin, and the cure.

    Example:
        >>> try:
        ...     check_plugins([Node("Mysterious", ("x",), ("y",), "act", "deep500")])
        ... except UnsupportedOperator as error:
        ...     print(str(error).partition(";")[0])
        got custom operator(s) that no plugin provides: 'Mysterious' in node 'act'
    """
    if missing := unregistered(nodes):
        raise UnsupportedOperator(missing_plugins(missing))


def missing_plugins(nodes: Sequence[Node]) -> str:
    """The error message for custom nodes without a plugin."""
    listed = ", ".join(f"{node.op_type!r} in node {node.name!r}" for node in nodes[:20])
    known = nearest(nodes[0].op_type, operator_names())
    return (
        f"got custom operator(s) that no plugin provides: {listed}; expected registered ones ({known}): load their "
        "plugins with deep500.load_plugin('path/to/folder'), a recipe's 'custom_ops': ['path/to/folder'] or "
        "'deep500 compare --custom-op path/to/folder'"
    )


def operator_of(node: Node, descriptors: Mapping[str, TensorDescriptor]) -> CustomOp:
    """The operator of a custom node, made for what is known of the node's inputs.

    Raises:
        UnsupportedOperator: no plugin provides it.
        NetworkError: attributes or inputs that the operator refuses; names the node.
    """
    check_plugins([node])
    if "" in node.inputs:
        raise NetworkError(
            f"{place_of(node)}: got input {node.inputs.index('')} left out; expected a value: custom operators have no "
            "optional inputs"
        )
    inputs = [descriptors.get(name, UNKNOWN) for name in node.inputs]
    try:
        return find_operator(node.op_type, node.attributes, inputs)
    except Deep500Error as error:
        raise named(node, error) from error


def named(node: Node, error: Deep500Error) -> Deep500Error:
    """The same error, beginning with the node; what does not fit is the network's fault."""
    kind = NetworkError if isinstance(error, InputError) else type(error)
    return kind(f"{place_of(node)}: {error}")


class CustomCall:
    """A custom node as a function of arrays, for backends whose tensors are NumPy's.

    The operator is made at once where the inputs' dtypes are known, else (in sub-graphs) at the first call.

    Args:
        node: a custom node.
        descriptors: what is known of its inputs.
    """

    def __init__(self, node: Node, descriptors: Mapping[str, TensorDescriptor]) -> None:
        self.node = node
        self.operator: CustomOp | None = None
        check_plugins([node])
        if all(descriptors.get(name, UNKNOWN).dtype is not None for name in node.inputs):
            self.operator = operator_of(node, descriptors)

    def __call__(self, *arrays: Any) -> tuple[np.ndarray, ...]:
        """The outputs; inputs that are not contiguous are copied."""
        node = self.node
        operands = [x if x.flags.c_contiguous else np.ascontiguousarray(x) for x in map(np.asarray, arrays)]
        if self.operator is None:
            known = {n: TensorDescriptor(str(x.dtype), x.shape) for n, x in zip(node.inputs, operands, strict=True)}
            self.operator = operator_of(node, known)
        try:
            with np.errstate(all="ignore"):  # IEEE arithmetic, as in all of a network
                outputs = self.operator.run(operands)
        except InputError as error:
            raise InputError(f"{place_of(node)}: {error}") from error
        except Deep500Error as error:
            raise named(node, error) from error
        except Exception as error:  # any error of the operator's own code
            shapes = ", ".join(f"{x.dtype}{list(x.shape)}" for x in operands)
            raise NetworkError(
                f"{place_of(node)}: got {type(error).__name__} ({error}) from its operator for {shapes}; expected "
                "outputs: mend the operator"
            ) from error
        if len(outputs) < len(node.outputs):
            raise NetworkError(
                f"{place_of(node)}: got {len(outputs)} output(s) from its operator; expected {len(node.outputs)}, "
                "which the node names: remove the others"
            )
        return tuple(outputs)
