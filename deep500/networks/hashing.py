"""What a network is but for its weights, as a hash: plans and histories hold for that."""

from __future__ import annotations

import hashlib

import numpy as np

from deep500.networks.network import Network
from deep500.networks.onnx.protos import node_proto


def structure_hash(network: Network) -> str:
    """SHA-256 over operators, attributes, names, shapes and dtypes, inputs and outputs; weights do not count.

    Parameters of integers and booleans do, since shapes and axes are among them.

    Example:
        >>> from deep500.networks import create
        >>> one, other = create("mlp"), create("mlp")
        >>> other.set_parameter("fc1.weight", 0 * other.parameters["fc1.weight"].value)
        >>> structure_hash(one) == structure_hash(other), structure_hash(one) == structure_hash(create("lenet"))
        (True, False)
    """
    digest = hashlib.sha256()
    digest.update(repr([(n, d.dtype, d.shape) for n, d in network.inputs.items()]).encode())
    digest.update(repr(network.outputs).encode())
    for name, parameter in sorted(network.parameters.items()):
        value = parameter.value
        digest.update(repr((name, str(value.dtype), value.shape, parameter.trainable)).encode())
        if np.dtype(value.dtype).kind in "iub":
            digest.update(repr(value.tolist()).encode())
    for node in sorted(network.nodes, key=lambda node: node.name):
        digest.update(node_proto(node).SerializeToString(deterministic=True))
    return digest.hexdigest()
