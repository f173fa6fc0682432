"""Programs, which get compiled: the slice of a network that some outputs need, in operators that the table has.

For backends that generate code: they hand over a :class:`Backend`, their table and their dtypes. An operator without an
entry is replaced by the body that ONNX's schema gives it, if there is one. What is left over is one UnsupportedOperator
that names every offending node.
"""

from __future__ import annotations

import re
from collections.abc import Container, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import onnx

from deep500.errors import UnsupportedOperator
from deep500.networks.bodies import expand
from deep500.networks.custom import is_custom, missing_plugins, unregistered
from deep500.networks.execution.operands import check_network, check_types
from deep500.networks.execution.operator_table import OperatorEntry
from deep500.networks.execution.sizes import check_sizes
from deep500.networks.execution.slicing import check_outputs, needed_nodes, values_read, without_gradients
from deep500.networks.graph import Graph
from deep500.networks.node import Node, captures, from_proto
from deep500.networks.protos import UNKNOWN
from deep500.tensors import TensorDescriptor

Descriptors = Mapping[str, TensorDescriptor]


@dataclass(frozen=True)
class Backend:
    """A backend as programs see it: its name, its table by (domain, operator), the dtypes that it can hold."""

    backend: str
    table: Mapping[tuple[str, str], OperatorEntry]
    dtypes: Container[str]


@dataclass
class Program:
    """Nodes in order between inputs and outputs. ``constants`` are arrays of its own (sub-graphs and function bodies
    bring some); ``attributes`` names the module's attributes that hold the parameters which it reads."""

    inputs: list[str]
    outputs: list[str]
    nodes: list[Node]
    constants: dict[str, np.ndarray] = field(default_factory=dict)
    attributes: dict[str, str] = field(default_factory=dict)
    descriptors: dict[str, TensorDescriptor] = field(default_factory=dict)

    def __getstate__(self) -> dict[str, Any]:  # nodes hold read-only mappings, which cannot be pickled
        nodes = [(n.op_type, n.inputs, n.outputs, n.name, n.domain, dict(n.attributes)) for n in self.nodes]
        return {**self.__dict__, "nodes": nodes}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state, nodes=[Node(*parts) for parts in state["nodes"]])


def from_network(
    network: Graph,
    outputs: Sequence[str],
    target: Backend,
    attributes: Mapping[str, str],
    all_inputs: bool = False,
    differentiated: bool = True,
) -> Program:
    """The part of a network that the outputs depend on; ``attributes`` maps its parameters to module attributes.

    What only a ``CustomGradient`` reads to give gradients is left out where the program is not ``differentiated``.
    """
    check_outputs(network, outputs)
    nodes = needed_nodes(network.nodes if differentiated else without_gradients(network.nodes), outputs)
    read = values_read(nodes, outputs)
    inputs = [name for name in network.inputs if all_inputs or name in read]
    used = {name: attributes[name] for name in attributes if name in read}
    check_sizes(nodes, network.descriptors())
    check_network(network, nodes)
    check_types(nodes, network.descriptors())
    program = Program(inputs, list(outputs), nodes, attributes=used, descriptors=dict(network.descriptors()))
    return supported(program, target)


def from_graph(graph: onnx.GraphProto, target: Backend) -> Program:
    """A sub-graph (the body of If, Loop or Scan) as a program; what it captures is an input after its own."""
    constants = {t.name: onnx.numpy_helper.to_array(t) for t in graph.initializer}
    inputs = [v.name for v in graph.input] + captures(graph)
    nodes = [from_proto(proto, proto.name or f"{graph.name}/{i}") for i, proto in enumerate(graph.node)]
    return supported(Program(inputs, [v.name for v in graph.output], nodes, constants), target)


def supported(program: Program, target: Backend) -> Program:
    """The program with function bodies in place of operators that the table lacks; raises UnsupportedOperator.

    Custom operators (domain ``deep500``) stay: backends call what :func:`deep500.networks.custom.operator_of` finds.
    """
    nodes, problems = [], []
    if missing := unregistered(program.nodes):
        raise UnsupportedOperator(missing_plugins(missing))
    for node in program.nodes:
        rare = rare_dtype(node, program.descriptors, target)
        problem = trouble(node, target) or rare
        # A body of the schema's helps where the operator is missing, not where a dtype is: its nodes would meet it too.
        body = expand(node, program.descriptors) if problem and rare is None else None
        if problem and body is None:
            problems.append(problem)
        elif body is None:
            nodes.append(node)
        else:
            nodes += supported(Program([], [], body, descriptors=program.descriptors), target).nodes
    if problems:
        raise UnsupportedOperator(
            f"got {len(problems)} node(s) that backend {target.backend!r} cannot run: {'; '.join(problems[:20])}; "
            "expected operators that it has: try backend 'reference', or remove these nodes"
        )
    return replace(program, nodes=nodes)


def trouble(node: Node, target: Backend) -> str | None:
    """Name what keeps a node from being run natively; None if nothing does."""
    if node.op_type == "Constant" and not node.domain:
        return None  # becomes part of the module
    if is_custom(node):
        return None  # the backend calls the operator itself
    entry = target.table.get((node.domain, node.op_type))
    where = f"{node.name!r} ({node.domain + '.' if node.domain else ''}{node.op_type})"
    if entry is None:
        return where
    for graph in node.graphs:
        try:
            from_graph(graph, target)
        except UnsupportedOperator as error:
            return f"{where}: {error}"
    refused = entry.refuses(node)
    return None if refused is None else f"{where} with {refused}"


def rare_dtype(node: Node, descriptors: Descriptors, target: Backend) -> str | None:
    """A dtype among a node's values that the target lacks (strings, 4-bit numbers)."""
    for name in (*node.reads, *node.writes):
        kind = re.split(r"[(),]", (descriptors.get(name, UNKNOWN).dtype or "float32").rstrip(")"))[-1]
        if kind not in target.dtypes and kind != "undefined":
            return f"{node.name!r} ({node.op_type} of {kind})"
    return None


def constant_value(node: Node) -> np.ndarray:
    """The array of a Constant node."""
    ((kind, value),) = node.attributes.items()
    if kind == "value":
        return np.asarray(value)
    whole, floating = np.int64, np.float32
    dtypes: dict[str, Any] = {
        "value_int": whole,
        "value_ints": whole,
        "value_float": floating,
        "value_floats": floating,
    }
    return np.array(value, dtypes.get(kind, object))
