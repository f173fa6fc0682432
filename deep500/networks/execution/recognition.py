"""Operators that exporters took apart, found again: the nodes of a normalisation, an activation, an attention or a
dense layer become one node, for which backends have one function.

:data:`PATTERNS` is the table of what is known (:mod:`deep500.networks.execution.patterns`). Each pattern looks at a
node and what leads to it; what it finds is the same for every input but for rounding. The values in between must have
no other reader and be no output. Names of parameters, and so of gradients, stay.

One difference is left: a query that a mask of -inf hides from every key gives NaN taken apart, and 0 in one piece, as
ONNX's Attention has it.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import replace

from deep500.networks.execution.chains import Known, ProgramGraph
from deep500.networks.execution.patterns import PATTERNS, Pattern
from deep500.networks.execution.program import Program
from deep500.networks.execution.slicing import needed_nodes
from deep500.networks.execution.stacks import stacked


def recognised(
    program: Program, operators: Collection[tuple[str, str]], known: Known, trains: Callable[[str], bool]
) -> tuple[Program, dict[str, str]]:
    """The program with recognised operators in place of their parts, and these by the values that they give.

    Args:
        program: stays as it is. Constants should be folded.
        operators: by domain and name, those that the backend has one function for.
        known: values of parameters that may stand in the code, None for others.
        trains: whether a value is a parameter that trains.

    Example:
        >>> from deep500.networks.node import Node
        >>> nodes = [Node("Sigmoid", ("x",), ("s",), "a"), Node("Mul", ("x", "s"), ("y",), "b")]
        >>> program, found = recognised(Program(["x"], ["y"], nodes), {("", "Swish")}, lambda n: None, lambda n: False)
        >>> [str(node) for node in program.nodes], found
        (['y = Swish(x)  # b'], {'y': 'Swish'})
    """
    operators_of: dict[str, str] = {}
    graph = ProgramGraph(program, known, trains)
    patterns = PATTERNS
    if any(node.op_type == "Mul" for node in program.nodes):  # in which all of those end; most programs have none
        from deep500.networks.execution.gradient_patterns import GRADIENT_PATTERNS

        patterns += GRADIENT_PATTERNS
    for operator, pattern in patterns:
        if operator in operators:
            changed, values = everywhere(graph, pattern)
            operators_of.update(dict.fromkeys(values, operator[1]))
            if changed is not program:
                program, graph = changed, ProgramGraph(changed, known, trains)
    program = stacked(graph)
    left = {value for node in program.nodes for value in node.writes}
    return program, {value: operator for value, operator in operators_of.items() if value in left}


def everywhere(graph: ProgramGraph, pattern: Pattern) -> tuple[Program, list[str]]:
    """One pattern at all nodes, the last first, so that a form is met before a shorter one that ends inside it."""
    program = graph.program
    rewritten, values = {node.name: [node] for node in program.nodes}, list[str]()
    used: set[str] = set()
    for root in reversed(program.nodes):
        if root.domain or root.name in used:
            continue
        match = pattern(graph, root)
        if match is None or used & match.inner or not graph.encloses(match, root):
            continue
        rewritten[root.name] = match.nodes
        used |= match.inner | {root.name}
        values.append(root.outputs[0])
        for name in match.inner - {root.name}:
            del rewritten[name]
    if not values:
        return program, []
    nodes = needed_nodes([node for group in rewritten.values() for node in group], program.outputs)
    return replace(program, nodes=nodes, constants={**program.constants, **graph.new_constants}), values
