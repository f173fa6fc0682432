"""Networks with custom operators: ordinary sessions between them, and each operator called on the sessions' arrays.

ONNX Runtime's packages have no operator that calls back into Python, and a library of custom operators would need its
C++ headers. So the network is cut at its custom nodes: what can run before the first of them is one session, what can
run after it and before the next a second one, and so on. On the processor the arrays between are the sessions'
own memory, in both directions; nothing is copied. A value is dropped after its last reader.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from itertools import groupby
from typing import Any, NamedTuple

import numpy as np
import onnxruntime as ort

from deep500.errors import UnsupportedOperator
from deep500.frameworks.onnxruntime.program import SessionProgram
from deep500.networks.custom import CustomCall, check_plugins, every_node, is_custom, place_of
from deep500.networks.execution.slicing import needed_nodes, values_read, without_gradients
from deep500.networks.graph import Graph, Parameter
from deep500.networks.node import Node
from deep500.tensors import TensorDescriptor

Values = dict[str, Any]
Descriptors = Mapping[str, TensorDescriptor]


class SegmentStep(NamedTuple):
    """A session or an operator: it takes the values so far and returns new ones; ``done`` are not read later."""

    run: Callable[[Values], Values]
    done: tuple[str, ...]


class Segments:
    """Like :class:`~deep500.frameworks.onnxruntime.program.SessionProgram`, for a network with custom nodes.

    Attributes:
        inputs, constants, is_random: as there.
        programs: the sessions, in order.
    """

    def __init__(
        self,
        network: Graph,
        outputs: Sequence[str],
        variables: Sequence[str],
        live: Mapping[str, Parameter],
        settings: ort.SessionOptions,
        providers: Sequence[Any],
        seed: int,
    ) -> None:
        self.outputs = tuple(dict.fromkeys(outputs))
        nodes = needed_nodes(without_gradients(network.nodes), self.outputs)
        _check(nodes)
        used = values_read(nodes, outputs)
        self.inputs = [n for n in network.inputs if n in used]
        self._parameters = {n: live.get(n, p) for n, p in network.parameters.items() if n in used}
        self.programs: list[SessionProgram] = []
        descriptors = network.descriptors()
        steps: list[tuple[Callable[[Values], Values], set[str]]] = []
        in_order = settings.execution_order == ort.ExecutionOrder.PRIORITY_BASED
        groups = consecutive(nodes) if in_order else split(nodes)
        for group, read_later in zip(groups, _read_later(groups, self.outputs), strict=True):
            reads = {n for node in group for n in node.reads}
            if is_custom(group[0]):
                steps.append((_Operator(group[0], descriptors, self._parameters), reads))
                continue
            results = [n for node in group for n in node.writes if n in read_later]
            work = _network(network, group, results, descriptors)
            program = SessionProgram(work, results, variables, live, settings, providers, seed)
            self.programs.append(program)
            steps.append((program.run, reads))
        self.steps = _with_ends(steps, self.outputs)
        self.constants = {n for program in self.programs for n in program.constants}
        self.is_random = any(program.is_random for program in self.programs)

    def run(self, inputs: Mapping[str, Any]) -> Values:
        """The wanted values by name."""
        values = dict(inputs)
        for step in self.steps:
            values.update(step.run(values))
            for name in step.done:
                values.pop(name, None)
        results = {n: values[n] if n in values else self._parameters[n].value for n in self.outputs}
        return {n: v if isinstance(v, (list, type(None))) else np.asarray(v) for n, v in results.items()}


def make_program(
    network: Graph,
    outputs: Sequence[str],
    variables: Sequence[str],
    live: Mapping[str, Parameter],
    settings: ort.SessionOptions,
    providers: Sequence[Any],
    seed: int,
) -> SessionProgram | Segments:
    """One session if it can be, else several with the custom operators between them."""
    custom = any(is_custom(node) for node in every_node(needed_nodes(without_gradients(network.nodes), outputs)))
    kind = Segments if custom else SessionProgram
    return kind(network, outputs, variables, live, settings, providers, seed)


def split(nodes: Sequence[Node]) -> list[list[Node]]:
    """Nodes in groups that run one after the other: custom nodes alone, as few groups of others as possible.

    The groups are stages: all ordinary nodes that need no later custom node, then the custom nodes that wait for them,
    in the network's order. Each node is in the first stage that it can be in.
    """
    stages: list[tuple[list[Node], list[Node]]] = []
    stage: dict[str, int] = {}  # of a value
    by_custom: set[str] = set()  # values that ordinary nodes can read in the stage after only
    for node in nodes:
        late = 0 if is_custom(node) else 1
        number = max((stage[n] + late * (n in by_custom) for n in node.reads if n in stage), default=0)
        while len(stages) <= number:
            stages.append(([], []))
        stages[number][1 - late].append(node)
        stage.update(dict.fromkeys(node.writes, number))
        by_custom.update(node.writes if is_custom(node) else ())
    return [group for ordinary, custom in stages for group in ([ordinary] if ordinary else []) + [[n] for n in custom]]


def consecutive(nodes: Sequence[Node]) -> list[list[Node]]:
    """Nodes in groups as :func:`split`, but in the order given: what is to run late does not run early."""
    return [
        part
        for custom, group in groupby(nodes, key=is_custom)
        for part in ([[node] for node in group] if custom else [list(group)])
    ]


class _Operator:
    """A custom node as a step; parameters that it reads are the live ones."""

    def __init__(self, node: Node, descriptors: Descriptors, parameters: Mapping[str, Parameter]) -> None:
        self.node, self.parameters = node, parameters
        self.call = CustomCall(node, descriptors)

    def __call__(self, values: Values) -> Values:
        parameters = self.parameters
        arrays = [parameters[n].value if n in parameters else values[n] for n in self.node.inputs]
        return {n: y for n, y in zip(self.node.outputs, self.call(*arrays), strict=False) if n}


def _network(network: Graph, nodes: Sequence[Node], outputs: Sequence[str], descriptors: Descriptors) -> Graph:
    """These nodes as a network; what others compute is an input."""
    work = Graph(network.name)
    written = {n for node in nodes for n in node.writes}
    for name in dict.fromkeys(n for node in nodes for n in node.reads if n not in written):
        if network.has_parameter(name):
            work.put_parameters({name: network.parameter(name)})
            continue
        if descriptors[name].dtype is None:
            source = network.producer(name)
            raise UnsupportedOperator(
                f"{place_of(source) if source else name}: got output {name!r} of unknown dtype; expected a known one, "
                "which backend 'onnxruntime' needs: declare the operator's output_descriptors"
            )
        work.inputs[name] = descriptors[name]
    for node in nodes:
        work.insert(node)
    work.outputs = list(outputs)
    work.declare(network.declared)
    return work


def _read_later(groups: Sequence[Sequence[Node]], results: Collection[str]) -> list[set[str]]:
    """For each group what later ones, or the caller, read."""
    later: list[set[str]] = []
    read = set(results)
    for group in reversed(groups):
        later.append(set(read))
        read.update(n for node in group for n in node.reads)
    return later[::-1]


def _with_ends(
    steps: Sequence[tuple[Callable[[Values], Values], set[str]]], results: Collection[str]
) -> list[SegmentStep]:
    """Each step with the values that no later step reads."""
    later, ended = set(results), []
    for run, reads in reversed(steps):
        ended.append(SegmentStep(run, tuple(sorted(reads - later))))
        later |= reads
    return ended[::-1]


def _check(nodes: Sequence[Node]) -> None:
    """Raise UnsupportedOperator for missing plugins and for custom nodes where no session can be cut."""
    check_plugins(nodes)
    for node in nodes:
        inner = [nested for nested in every_node([node]) if nested is not node and is_custom(nested)]
        if inner:
            raise UnsupportedOperator(
                f"node {node.name!r} ({node.op_type}): got custom operator {inner[0].op_type!r} inside its sub-graph; "
                "expected custom operators outside, backend 'onnxruntime' cannot call them in there: try backend "
                "'reference'"
            )
