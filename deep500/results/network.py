"""``network.json``: the nodes of a run's network in their order, what each writes, reads and trains, for the report."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from deep500.errors import Deep500Error
from deep500.networks.flops import operations_of
from deep500.results.files import read_json, to_json, write_atomic
from deep500.results.formats import NETWORK_SCHEMA

if TYPE_CHECKING:
    from deep500.networks.graph import Graph

NETWORK = "network.json"
MOST_NODES = 4_000
"""Nodes that are listed; totals are of all."""


def write_network(folder: Path, network: Graph, batch: int) -> None:
    """Write :func:`network_facts` into a results folder."""
    write_atomic(folder / NETWORK, to_json(network_facts(network, batch), indent=None) + "\n")


def read_network(folder: Path) -> dict[str, Any] | None:
    """Those of a results folder; None where the version that wrote it kept none."""
    return read_json(folder / NETWORK) if (folder / NETWORK).exists() else None


def network_facts(network: Graph, batch: int) -> dict[str, Any]:
    """List the nodes of a network. A parameter counts at the node that reads it first; integers do not count.

    Args:
        network: the whole one, before ranks divide it. A model that runs as it is has one node for itself.
        batch: put in the place of the symbol that stands first in the inputs' shapes.

    Example:
        >>> from deep500.networks import create
        >>> facts = network_facts(create("mlp", shape=(4,), hidden=(8,), classes=2), batch=16)
        >>> facts["parameters"], [(node["name"], node["parameters"]) for node in facts["nodes"]]
        (58, [('fc1', 40), ('relu1', 0), ('fc2', 18)])
    """
    try:
        shapes = {name: descriptor.shape for name, descriptor in network.descriptors().items()}
    except Deep500Error:  # a custom operator refuses its inputs: training will say so, here sizes are unknown
        shapes = {}
    symbols = {known.shape[0] for known in network.inputs.values() if known.shape and isinstance(known.shape[0], str)}

    def shape(value: str) -> list[int | str | None] | None:
        sizes = shapes.get(value)
        if sizes is None:
            return None
        return [batch if size in symbols else _text(size) if isinstance(size, str) else size for size in sizes]

    def sizes(value: str) -> tuple[int, ...] | None:
        known = shape(value) if symbols else None  # sizes that are of no batch say nothing about a sample
        return None if known is None or not all(isinstance(size, int) for size in known) else tuple(known)  # type: ignore[arg-type]

    places: dict[str, int | str] = {name: _text(name) for name in network.inputs}
    parameters, nodes, totals = network.parameters, [], {"parameters": 0, "fixed": 0}
    for place, node in enumerate(network.nodes):
        counts = dict.fromkeys(totals, 0)
        for parameter in (parameters.pop(name) for name in dict.fromkeys(node.reads) if name in parameters):
            if parameter.value.dtype.kind not in "iubO":
                counts["parameters" if parameter.trainable else "fixed"] += parameter.value.size
        totals = {key: totals[key] + count for key, count in counts.items()}
        operator = _text(f"{node.domain}.{node.op_type}" if node.domain else node.op_type)
        reads = list(dict.fromkeys(places[name] for name in node.reads if name in places))[:100]
        about = {"name": _text(node.name), "operator": operator, "shape": shape(node.writes[0]), "reads": reads}
        nodes.append({**about, **counts, "operations": operations_of(node, sizes)})
        places.update(dict.fromkeys(node.writes, place))
    inputs = [{"name": _text(name), "shape": shape(name)} for name in network.inputs]
    whole = {"schema": NETWORK_SCHEMA, "name": _text(network.name), "batch": batch, "inputs": inputs, **totals}
    return {**whole, "count": len(nodes), "nodes": nodes[:MOST_NODES]}


def _text(name: str) -> str:
    """A name as a file of JSON may hold it and a page show it, whatever a file of ONNX calls it."""
    return name[:200].encode("utf-8", "replace").decode("utf-8").replace("\0", "?")
