"""Find the first node at which two frameworks part, by making inner values outputs, in order, until one differs."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from deep500.compare.checks import relative
from deep500.compare.subject import Batch, Candidate
from deep500.compare.traces import as_arrays
from deep500.networks.execution.executor import GraphExecutor
from deep500.networks.network import Network
from deep500.networks.node import Node

CHUNK = 32
"""Nodes whose outputs are compared at a time, which bounds the memory."""
FUSED = "no inner value differs once it is an output: a fusion of nodes is at fault"


def describe_node(node: Node, value: str) -> str:
    """``value 'conv1' of node 'conv1' (Conv)``."""
    return f"value {value!r} of node {node.name!r} ({node.op_type})"


def evaluation(judge: Candidate, other: Candidate, network: Network, batches: Sequence[Batch], tolerance: float) -> str:
    """The first value that differs in evaluation mode on the last of ``batches``, which are all run in their order."""
    executors = [candidate.build(network) for candidate in (judge, other)]
    for chunk in chunks(network):
        values = [value for _, value in values_of(chunk)]
        expected, got = (_last_run(executor, network, batches, values) for executor in executors)
        for node, value in values_of(chunk):
            difference = relative(got[value], expected[value])
            if difference > tolerance:
                return f"first {describe_node(node, value)}, by {difference:.1e}"
    return FUSED


def training(judge: Candidate, other: Candidate, network: Network, batch: Batch, loss: str, tolerance: float) -> str:
    """The first value that differs in training mode."""
    for chunk in chunks(network):
        shown = network.copy()
        shown.outputs[:] = [loss]
        for _, value in values_of(chunk):
            if value not in shown.outputs:
                shown.add_output(value)
        seen = [_train(candidate, shown, batch, loss) for candidate in (judge, other)]
        for node, value in values_of(chunk):
            if value not in seen[0] or value not in seen[1]:
                continue
            difference = relative(seen[1][value], seen[0][value])
            if difference > tolerance:
                return f"first {describe_node(node, value)}, by {difference:.1e}"
    return FUSED


def reader(network: Network, parameter: str) -> tuple[int, str]:
    """The last node that reads a parameter: its place, and a phrase that names it."""
    for place, node in reversed(list(enumerate(network.nodes))):
        if parameter in node.reads:
            return place, f"{parameter!r}, read by node {node.name!r} ({node.op_type})"
    return -1, repr(parameter)


def _last_run(
    executor: GraphExecutor, network: Network, batches: Sequence[Batch], values: Sequence[str]
) -> dict[str, np.ndarray]:
    values_seen: dict[str, np.ndarray] = {}
    for batch in batches:
        values_seen = as_arrays(executor, executor.inference(_needed(network, batch), values))
    return values_seen


def _train(candidate: Candidate, network: Network, batch: Batch, loss: str) -> dict[str, np.ndarray]:
    executor = candidate.build(network)
    return as_arrays(executor, executor.inference_and_backprop(batch, loss))


def _needed(network: Network, batch: Batch) -> Batch:
    return {name: value for name, value in batch.items() if name in network.inputs}


def chunks(network: Network) -> Iterator[list[Node]]:
    """The nodes in their order, so many at a time that their values fit into memory."""
    nodes = [node for node in network.nodes if node.writes]
    for start in range(0, len(nodes), CHUNK):
        yield nodes[start : start + CHUNK]


def values_of(nodes: Sequence[Node]) -> list[tuple[Node, str]]:
    """Every value that nodes write, with its node."""
    return [(node, value) for node in nodes for value in node.writes]
