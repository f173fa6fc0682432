"""`work_hash`: which networks do the same work, so that timing one of them is timing the other."""

from __future__ import annotations

import hashlib
from dataclasses import replace

import numpy as np

from deep500.networks.graph import Graph
from deep500.networks.hashing import LISTED
from deep500.networks.node import Node
from deep500.networks.protos import node_proto

RESHAPING = frozenset({"Reshape", "Flatten", "Squeeze", "Unsqueeze"})
"""Operators that give the same elements another shape: which shape is said by their result."""

NEUTRAL = {"dilations": 1, "strides": 1, "pads": 0}
"""Defaults of windows, on every axis."""


def work_hash(network: Graph) -> str:
    """SHA-256 over operators, attributes, shapes, and what reads what.

    Neither names nor the values of weights count, so a network whose weights were computed beforehand in another
    order is the same. Integers among the parameters count (axes, sizes of parts), except for the targets of reshapes.

    Example:
        >>> from deep500.networks import create
        >>> mlp, other = create("mlp"), create("mlp", seed=1)
        >>> work_hash(mlp) == work_hash(other), work_hash(mlp) == work_hash(create("mlp", hidden=(8,)))
        (True, False)
    """
    described, known = network.descriptors(), dict[str, str]()
    for name, described_input in network.inputs.items():
        known[name] = _hash("input", name, described_input.dtype, described_input.shape)
    for name, parameter in network.parameters.items():
        array = np.asarray(parameter.value)
        whole = array.tolist() if array.dtype.kind in "iub" and array.size <= LISTED else None
        known[name] = _hash("parameter", str(array.dtype), array.shape, whole)
    every = list[str]()
    for node in network.nodes:
        if node.op_type in RESHAPING and not node.domain:
            node_hash = _hash("Reshape", known[node.inputs[0]])
        else:
            attributes = {
                key: value for key, value in node.all_attributes().items() if not _is_default(node, key, value)
            }
            plain = replace(node, name="", inputs=(), outputs=(), attributes=attributes)
            read = [known.get(name, name) for name in (*node.inputs, *node.captured)]
            node_hash = _hash(node_proto(plain).SerializeToString(deterministic=True), read)
        every.append(node_hash)
        for place, name in enumerate(node.outputs):
            result = described.get(name)
            known[name] = _hash(node_hash, place, result and (result.dtype, result.shape))
    return _hash(sorted(every), [known[name] for name in network.outputs])


def _is_default(node: Node, key: str, value: object) -> bool:
    """Return whether an attribute says what is so without it."""
    neutral = NEUTRAL.get(key)
    same = neutral is not None and isinstance(value, (tuple, list)) and all(size == neutral for size in value)
    return same or (key == "kernel_shape" and node.op_type.startswith("Conv"))


def _hash(*words: object) -> str:
    return hashlib.sha256(repr(words).encode()).hexdigest()
