"""Checks that edits of a network make before they change anything; each raises NetworkError or returns."""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from deep500.errors import NetworkError
from deep500.networks.node import Node
from deep500.networks.protos import node_proto, type_proto
from deep500.tensors import Dim, TensorDescriptor, dtype_to_onnx


def check_name(name: Any, what: str) -> None:
    """Names are non-empty strings that UTF-8 can hold."""
    if not isinstance(name, str) or not name:
        raise NetworkError(f"got {name!r} as {what} name; expected a non-empty string: name it")
    try:
        name.encode()
    except UnicodeEncodeError as error:
        raise NetworkError(f"got {name!r} as {what} name; expected text that UTF-8 can hold: rename it") from error


def check_storable(node: Node) -> None:
    """The node must fit into ONNX's message: attribute values of types and sizes that ONNX has."""
    try:
        node_proto(node)
    except (ValueError, TypeError) as error:  # InputError and NetworkError among them
        raise NetworkError(
            f"node {node.name!r}: got an attribute that ONNX cannot hold ({error}); expected numbers, "
            "strings, arrays, graphs or lists of them: convert it"
        ) from error


def as_shape(name: str, shape: Sequence[Dim] | None) -> tuple[Dim, ...] | None:
    """A shape with Python's own integers; sizes must be integers >= 0, non-empty strings or None."""
    if shape is None:
        return None
    dims = tuple(shape) if isinstance(shape, Iterable) and not isinstance(shape, str) else (object(),)
    sizes: tuple[Any, ...] = tuple(int(d) if isinstance(d, np.integer) else d for d in dims)
    if not all(d is None or (isinstance(d, str) and d) or (isinstance(d, int) and d >= 0) for d in sizes):
        raise NetworkError(
            f"input {name!r}: got shape {shape!r}; expected a list of sizes >= 0: use a string for a free size"
        )
    return sizes


def as_dtype(name: str, dtype: Any) -> str | None:
    """The name of a dtype of ONNX's, possibly nested as in ``"sequence(float32)"``; NumPy's dtypes are taken too."""
    if dtype is None:
        return None
    try:
        named = dtype if isinstance(dtype, str) else np.dtype(dtype).name
        type_proto(TensorDescriptor(named))
        return named
    except TypeError as error:
        raise NetworkError(f"input {name!r}: got dtype {dtype!r}; expected one of ONNX's: 'float32'?") from error
    except ValueError as error:
        raise NetworkError(f"input {name!r}: {error}") from error


def as_parameter(name: str, value: Any, trainable: bool, copy: bool = True) -> np.ndarray:
    """A value, by default a copy, as an array that ONNX can hold, strings as objects; only floating ones can train."""
    try:
        array = np.array(value, copy=copy or None)
    except ValueError as error:
        raise NetworkError(f"parameter {name!r}: got {error}; expected an array: make its rows equally long") from error
    if array.dtype.kind in "US":
        array = array.astype(object)
    if not array.dtype.isnative:  # from a file of another machine
        array = array.astype(array.dtype.newbyteorder("="))
    if array.dtype == object and not all(isinstance(v, (str, bytes)) for v in array.flat):
        raise NetworkError(f"parameter {name!r}: got Python objects; expected numbers or strings: convert them")
    try:
        dtype_to_onnx(array.dtype)
    except ValueError as error:
        raise NetworkError(f"parameter {name!r}: {error}") from error
    if trainable and not (array.dtype.kind in "fc" or "float" in array.dtype.name):
        raise NetworkError(
            f"parameter {name!r}: got dtype {array.dtype}; expected a floating one to train: pass trainable=False"
        )
    return array


def sort_nodes(nodes: dict[str, Node]) -> dict[str, Node]:
    """Nodes with producers before consumers, otherwise in the order given; NetworkError naming a cycle (Kahn 1962)."""
    order = {name: i for i, name in enumerate(nodes)}
    owner = {value: name for name, node in nodes.items() for value in node.writes}
    if all(order[owner[v]] < order[name] for name, node in nodes.items() for v in node.reads if v in owner):
        return nodes
    readers: dict[str, list[str]] = {name: [] for name in nodes}
    waiting = dict.fromkeys(nodes, 0)
    for name, node in nodes.items():
        for source in {owner[v] for v in node.reads if v in owner}:
            readers[source].append(name)
            waiting[name] += 1
    ready = [(order[name], name) for name, count in waiting.items() if count == 0]
    heapq.heapify(ready)
    done: dict[str, Node] = {}
    while ready:
        _, name = heapq.heappop(ready)
        done[name] = nodes[name]
        for reader in readers[name]:
            waiting[reader] -= 1
            if waiting[reader] == 0:
                heapq.heappush(ready, (order[reader], reader))
    if len(done) != len(nodes):
        stuck = ", ".join(repr(name) for name in [n for n in nodes if n not in done][:6])
        raise NetworkError(f"got a cycle through nodes {stuck}; expected an acyclic graph: remove one of these edges")
    return done
