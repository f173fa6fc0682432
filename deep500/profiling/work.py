"""Operations and bytes of each node of a step, forward and backward, counted from shapes."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from math import prod
from typing import Any

from deep500.networks.execution.step_profile import BACKWARD, FORWARD, Places
from deep500.networks.flops import count_flops
from deep500.networks.gradients.autodiff import with_gradient
from deep500.networks.graph import Graph
from deep500.tensors import TensorDescriptor, numpy_dtype


@dataclass(frozen=True)
class Work:
    """Work of a node in one phase: operations and bytes; None where a shape or a formula is unknown."""

    flops: int | None
    bytes: int | None


def node_work(
    network: Graph, inputs: Mapping[str, Any], loss: str | None
) -> tuple[dict[tuple[str, str], Work], int | None]:
    """Work by (node, phase), and the operations that belong to no node.

    Operations are those of :func:`deep500.networks.flops.flop_count`, whose sum they have. Bytes are the least that
    must be moved: forward each operand is read and each result written once; backward the operands and the gradients
    of the results are read, and the gradients of the floating operands written.

    Args:
        network: is not changed.
        inputs: arrays by input name, for their shapes.
        loss: what is differentiated; None for a forward run.

    Example:
        >>> import numpy as np
        >>> from deep500.networks import Network
        >>> net = Network(); net.add_input("x", ("N", 3)); net.add_node("Relu", ["x"], ["y"], name="relu")
        >>> net.add_output("y")
        >>> node_work(net, {"x": np.ones((8, 3), "float32")}, None)[0]["relu", "forward"]
        Work(flops=24, bytes=192)
    """
    counted = network.copy() if loss is None else with_gradient(network, loss)
    for name, array in inputs.items():
        if name in counted.inputs:
            counted.set_input(name, tuple(array.shape))
    places = Places(network.nodes).learn([(n.name, n.reads, n.writes) for n in counted.nodes])
    counts, descriptors = count_flops(counted), counted.descriptors()
    sums: dict[tuple[str, str] | None, list[int | None]] = {}
    for node, place in zip(counted.nodes, places, strict=True):
        sums.setdefault(None if place is None else tuple(place), []).append(counts[node.name])  # type: ignore[arg-type]
    outside = _total(sums.pop(None, []))
    work: dict[tuple[str, str], Work] = {}
    for node in network.nodes:
        moved = _total(_size(descriptors.get(name)) for name in (*node.reads, *node.writes))
        gradients = _total(_size(descriptors.get(name)) for name in node.reads if _is_floating(descriptors.get(name)))
        work[node.name, FORWARD] = Work(_total(sums.get((node.name, FORWARD), [])), moved)
        if (node.name, BACKWARD) in sums:
            both = None if moved is None or gradients is None else moved + gradients
            work[node.name, BACKWARD] = Work(_total(sums[node.name, BACKWARD]), both)
    return work, outside


def _total(counts: Iterable[int | None]) -> int | None:
    """The sum; None if a part is unknown."""
    total = 0
    for count in counts:
        if count is None:
            return None
        total += count
    return total


def _size(described: TensorDescriptor | None) -> int | None:
    if described is None or described.shape is None or described.dtype is None or not described.is_static:
        return None
    return prod(int(n) for n in described.shape if n is not None) * numpy_dtype(described.dtype).itemsize


def _is_floating(described: TensorDescriptor | None) -> bool:
    return described is not None and "float" in (described.dtype or "")
