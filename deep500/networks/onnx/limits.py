"""Limits on what a file may ask for before any of it is expanded: checks of the parsed message alone, in one pass.

ONNX's checker looks at each node by itself. What it lets through and no tool survives is refused here: functions that
double themselves at every level, constants with no value or two, sums over more letters than an index can have.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

import onnx

from deep500.errors import NetworkError
from deep500.networks.node import graphs_of

MOST_NODES = 2**20
"""Nodes of a model once its functions are written out; the largest networks that people exchange have some 10,000."""

MOST_LETTERS = 16
"""Different letters of one ``Einsum``: the indices of its loops."""

_TERM = r"[A-Za-z ]*(\.\.\.)?[A-Za-z ]*"
_EQUATION = re.compile(rf"{_TERM}(,{_TERM})*(->{_TERM})?")

_VALUES = {"value", "sparse_value", "value_int", "value_ints", "value_float", "value_floats", "value_string"}
_VALUES |= {"value_strings"}
_Key = tuple[str, str, str]


def check_limits(proto: onnx.ModelProto, where: str) -> None:
    """Refuse a model that goes beyond these limits.

    Args:
        proto: the model as it was parsed.
        where: how errors call it.

    Raises:
        NetworkError: naming the function or node, what it holds and what is allowed.
    """
    bodies = {(f.domain, f.name, f.overload): f.node for f in proto.functions}
    count = _expanded(proto.graph.node, bodies, {}, (), where)
    if count > MOST_NODES:
        raise NetworkError(
            f"{where}: got functions that make {_about(count)} nodes when they are written out; expected at most "
            f"{MOST_NODES}: export the model with fewer levels of functions"
        )
    for nodes in (proto.graph.node, *bodies.values()):
        for node in _every(nodes):
            if node.domain in ("", "ai.onnx"):
                _check_node(node, where)


def _about(count: int) -> str:
    return str(count) if count < 10**9 else f"{float(min(count, 10**300)):.1g}"


def _every(nodes: Iterable[onnx.NodeProto]) -> Iterator[onnx.NodeProto]:
    for node in nodes:
        yield node
        for graph in graphs_of(node):
            yield from _every(graph.node)


def _expanded(
    nodes: Iterable[onnx.NodeProto],
    bodies: dict[_Key, Iterable[onnx.NodeProto]],
    sizes: dict[_Key, int],
    within: tuple[_Key, ...],
    where: str,
) -> int:
    """Number of nodes once all calls of functions are replaced by their bodies; each body is counted once."""
    total = 0
    for node in _every(nodes):
        key = (node.domain, node.op_type, node.overload)
        if key in within:
            raise NetworkError(
                f"{where}: got function {node.op_type!r} that calls itself; expected functions that end: write it as "
                "a Loop"
            )
        if key in bodies and key not in sizes:
            sizes[key] = _expanded(bodies[key], bodies, sizes, (*within, key), where)
        total += sizes.get(key, 1)
    return total


def _check_node(node: onnx.NodeProto, where: str) -> None:
    name = f"{where}: node {node.name or next(iter(node.output), '')!r} ({node.op_type})"
    if node.op_type == "Constant":
        names = sorted(attribute.name for attribute in node.attribute if attribute.name in _VALUES)
        if len(names) != 1:
            what = f"the values {', '.join(names)}" if names else "no value"
            raise NetworkError(f"{name}: got {what}; expected one: keep one of its attributes")
    if node.op_type == "Einsum":
        equation = next((a.s for a in node.attribute if a.name == "equation"), b"").decode("utf-8", "replace")
        if not _EQUATION.fullmatch(equation):  # ONNX's shape inference never ends
            raise NetworkError(
                f"{name}: got equation {equation[:80]!r}; expected letters, commas, '...' and one '->': correct it"
            )
        letters = {letter for letter in equation if letter.isalpha()}
        if len(letters) > MOST_LETTERS:
            raise NetworkError(
                f"{name}: got {len(letters)} letters in its equation; expected at most {MOST_LETTERS}: write it as "
                "several products"
            )
