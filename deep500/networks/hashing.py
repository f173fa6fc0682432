"""Networks as hashes: `content_hash` covers all, `structure_hash` leaves the weights out, as plans and histories do."""

from __future__ import annotations

import hashlib
from collections.abc import Callable

import numpy as np

from deep500.networks.protos import ReadableNetwork, node_proto


def content_hash(network: ReadableNetwork) -> str:
    """SHA-256, in hexadecimal, over operators, attributes, names, parameters, inputs and outputs.

    The network's own name does not count, nor the order in which nodes and parameters were added.

    Example:
        >>> from deep500.networks.graph import Graph
        >>> content_hash(Graph("a")) == content_hash(Graph("b"))
        True
    """
    from deep500.networks.drawing import check_drawn  # editing hashes nothing

    check_drawn(network, "a hash of the content")
    return _hash(network, _content)


LISTED = 1024
"""Integers of larger arrays count by their bytes."""


def structure_hash(network: ReadableNetwork) -> str:
    """SHA-256 over operators, attributes, names, shapes and dtypes, inputs and outputs; weights do not count.

    Parameters of integers and booleans do, since shapes and axes are among them.

    Example:
        >>> from deep500.networks import create
        >>> mlp, lenet, other = create("mlp"), create("lenet"), create("mlp")
        >>> other.set_parameter("fc1.weight", 0 * other.parameters["fc1.weight"].value)
        >>> structure_hash(mlp) == structure_hash(other), structure_hash(mlp) == structure_hash(lenet)
        (True, False)
    """
    return _hash(network, _integers)


def _hash(network: ReadableNetwork, content: Callable[[np.ndarray], bytes | memoryview]) -> str:
    """The hash in which ``content`` stands for each parameter's value."""
    digest = hashlib.sha256()
    digest.update(repr([(n, d.dtype, d.shape) for n, d in network.inputs.items()]).encode())
    digest.update(repr(network.outputs).encode())
    for name, parameter in sorted(network.parameters.items()):
        value = parameter.value
        digest.update(repr((name, str(value.dtype), value.shape, parameter.trainable)).encode())
        digest.update(content(value))
    for node in sorted(network.nodes, key=lambda node: node.name):
        digest.update(node_proto(node).SerializeToString(deterministic=True))
    return digest.hexdigest()


def _content(array: np.ndarray) -> bytes | memoryview:
    """All bytes in C order, without a copy where possible; also for dtypes that NumPy itself does not know."""
    if array.dtype == object:
        return repr(array.tolist()).encode()
    return np.ascontiguousarray(array).reshape(-1).view(np.uint8).data


def _integers(array: np.ndarray) -> bytes | memoryview:
    """The values of integers and booleans, nothing of others; large ones are not listed."""
    if np.dtype(array.dtype).kind not in "iub":
        return b""
    return repr(array.tolist()).encode() if array.size <= LISTED else _content(array)
