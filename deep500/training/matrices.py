"""Weights between hidden layers that are matrices, and which of their axes is the output's, read from the graph."""

from __future__ import annotations

from typing import NamedTuple

from deep500.networks.network import Network
from deep500.networks.node import Node


class Matrix(NamedTuple):
    """How a weight is a matrix of (outputs, inputs).

    Attributes:
        outputs, inputs: sizes; inputs are those of a whole window for a convolution.
        outputs_first: whether the outputs are along the first axis as it is stored, else along the last of two.
    """

    outputs: int
    inputs: int
    outputs_first: bool


def hidden_matrices(network: Network) -> dict[str, Matrix]:
    """The weights that optimizers of matrices take, by name.

    ``Gemm`` and ``MatMul`` with a weight of two axes, as ``transB`` and its place say, behind ``Transpose`` and ``Cast``
    too; ``Conv`` of one group, whose windows are flattened. Not: weights whose readers disagree or look up rows
    (embeddings), stacks of matrices and fused gates (``LSTM``), grouped and depthwise convolutions, and output layers,
    from which no way leads through another weight of two axes or more.

    Example:
        >>> from deep500.networks.zoo import create
        >>> hidden_matrices(create("mlp", shape=(4,), hidden=(3, 5), classes=2))
        {'fc1.weight': Matrix(outputs=3, inputs=4, outputs_first=True), 'fc2.weight': Matrix(outputs=5, inputs=3, outputs_first=True)}
    """  # noqa: E501
    readers: dict[str, list[tuple[Node, int]]] = {}
    for node in network.nodes:
        for index, name in enumerate(node.inputs):
            readers.setdefault(name, []).append((node, index))
    weights = {n: network.parameters[n].value.shape for n in network.trainable()}
    weights = {name: shape for name, shape in weights.items() if len(shape) >= 2}
    uses = {name: _uses(name, False, readers) for name in weights}
    users = {id(node) for some in uses.values() for node, *_ in some}
    last = _without_another(network, readers, users)
    matrices = {}
    for name, shape in weights.items():
        kinds = {_matrix(node, index, turned, shape) for node, index, turned in uses[name]}
        if len(kinds) == 1 and None not in kinds and not all(id(node) in last for node, *_ in uses[name]):
            matrices[name] = next(kind for kind in kinds if kind is not None)
    return matrices


def _uses(name: str, turned: bool, readers: dict[str, list[tuple[Node, int]]]) -> list[tuple[Node, int, bool]]:
    """Nodes that compute with a weight, its place among their inputs, and whether it is transposed before."""
    uses = []
    for node, index in readers.get(name, []):
        if node.op_type == "Cast" or (
            node.op_type == "Transpose" and tuple(node.attributes.get("perm", (1, 0))) == (1, 0)
        ):
            uses += _uses(node.outputs[0], turned != (node.op_type == "Transpose"), readers)
        else:
            uses.append((node, index, turned))
    return uses


def _matrix(node: Node, index: int, turned: bool, shape: tuple[int, ...]) -> Matrix | None:
    """The matrix that a node sees in a weight; None if it is not one."""
    kind = node.op_type if not node.domain else ""
    if kind == "Conv" and index == 1 and not turned and node.attributes.get("group", 1) == 1:
        inputs = 1
        for size in shape[1:]:
            inputs *= size
        return Matrix(shape[0], inputs, True)
    if kind not in ("Gemm", "MatMul") or len(shape) != 2 or index > 1:
        return None
    option = node.attributes.get("transB" if index else "transA", 0) if kind == "Gemm" else 0
    first = bool(option) if index else not option  # of x W outputs are columns, of W x rows
    first = first != turned
    return Matrix(*(shape if first else shape[::-1]), first)


def _without_another(network: Network, readers: dict[str, list[tuple[Node, int]]], users: set[int]) -> set[int]:
    """Of the nodes that use weights, those behind which no other is."""
    leads: dict[int, bool] = {}
    last = set()
    for node in reversed(network.nodes):
        after = [reader for output in node.outputs for reader, _ in readers.get(output, [])]
        behind = any(leads[id(reader)] or id(reader) in users for reader in after)
        leads[id(node)] = behind
        if id(node) in users and not behind:
            last.add(id(node))
    return last
