"""The report's view of a network: its layers in order, blocks that repeat drawn once, a bar for their parameters."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from typing import Any

SCREEN = 20
"""Rows that are shown without being asked for."""

SHARING = ("Add", "BatchNormalization", "GroupNormalization", "InstanceNormalization", "Mul", "PRelu")
"""Operators with parameters that begin no layer; other normalizations stand before a block, not within a layer."""


def network_view(network: Mapping[str, Any] | None) -> dict[str, Any] | None:
    """Collect what the template needs; None where a folder does not hold it.

    Example:
        >>> node = {"name": "fc", "operator": "Gemm", "shape": [16, 2], "parameters": 10, "fixed": 0, "reads": ["x"]}
        >>> about = {"name": "net", "batch": 16, "inputs": [{"name": "x", "shape": [16, 4]}], "count": 1}
        >>> network_view({**about, "parameters": 10, "fixed": 0, "nodes": [node]})["sentence"]
        'net: 10 parameters that train, 1 node. Sizes are those of a batch of 16: x 16 × 4.'
    """
    if network is None:
        return None
    layers = _layers(network["nodes"])
    groups = [
        {"times": times, "rows": layers[at : at + size], "last": layers[at + size * times - 1]["name"]}
        for at, size, times in _blocks(layers)
    ]
    largest = max([group["times"] * row["parameters"] for group in groups for row in group["rows"]], default=0)
    for group in groups:
        for row in group["rows"]:
            row["share"] = round(100 * group["times"] * row["parameters"] / (largest or 1), 1)
    rows = sum(len(group["rows"]) for group in groups)
    left_out = network["count"] - len(network["nodes"])
    about = {"sentence": _sentence(network), "groups": groups, "rows": rows}
    return {**about, "short": rows <= SCREEN, "left_out": left_out}


def _sentence(network: Mapping[str, Any]) -> str:
    fixed = f" (and {network['fixed']:,} fixed)" if network["fixed"] else ""
    inputs = ", ".join(f"{value['name']} {_shape_text(value['shape'])}" for value in network["inputs"])
    return (
        f"{network['name']}: {network['parameters']:,} parameters that train{fixed}, {network['count']:,} "
        f"node{'' if network['count'] == 1 else 's'}. Sizes are those of a batch of {network['batch']}: {inputs}."
    )


def _shape_text(shape: Sequence[int | str | None] | None) -> str:
    if shape is None:
        return "size not known"
    return " × ".join("?" if size is None else str(size) for size in shape) or "scalar"


def _layers(nodes: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Put each node into the layer of the node before it where it alone reads that, keeps its shape, and is no layer
    of its own, as a normalization, an activation, a bias and the sum of a skip connection are not."""
    readers = Counter(place for node in nodes for place in node["reads"])
    layers: list[dict[str, Any]] = []
    places: list[int] = []
    for place, node in enumerate(nodes):
        operator = node["operator"]
        light = not node["parameters"] or operator in SHARING
        alone = place - 1 in node["reads"] and readers[place - 1] == 1
        if light and alone and node["shape"] is not None and node["shape"] == nodes[place - 1]["shape"]:
            layers[-1]["operators"] += f", {operator}"
            layers[-1]["parameters"] += node["parameters"]
        else:
            about = {"name": node["name"], "operators": operator, "shape": _shape_text(node["shape"])}
            layers.append({**about, "parameters": node["parameters"], "sources": {}})
        places.append(len(layers) - 1)
        read = (places[source] if isinstance(source, int) else source for source in node["reads"])
        layers[-1]["sources"].update(dict.fromkeys(source for source in read if source != len(layers) - 1))
    for place, layer in enumerate(layers):
        names = [layers[s]["name"] if isinstance(s, int) else s for s in layer["sources"] if s != place - 1]
        words = ", ".join(names[:3]) + (f", {len(names) - 3} more" if len(names) > 3 else "")
        layer["from"] = words and f"{'and ' if place - 1 in layer['sources'] else ''}from {words}"
    return layers


def _blocks(layers: Sequence[Mapping[str, Any]]) -> list[tuple[int, int, int]]:
    """Where blocks of layers begin, of how many layers they are, and how often each comes in a row.

    Blocks are alike if their layers have the same operators, shapes and numbers of parameters, and read, each time, the
    layers that lie as far back, or the very same. What repeats farthest is taken first, from the first layer on.
    """
    keys = [(layer["operators"], layer["shape"], layer["parameters"]) for layer in layers]
    best = [(1, -1, 1)] * len(layers)  # layers covered, less their period, times
    for size in range(1, min(100, len(layers) // 2) + 1):
        alike, ways = 0, dict[int, Sequence[bool] | None]()
        for place in range(len(layers) - size - 1, -1, -1):
            same = keys[place] == keys[place + size]
            ways[place] = _ways(layers[place]["sources"], layers[place + size]["sources"], size) if same else None
            alike = 0 if ways[place] is None else alike + 1
            if alike > size and ways[place] != ways[place + size]:
                alike = size
            if alike >= size:
                times = 1 + alike // size
                best[place] = max(best[place], (size * times, -size, times))
    blocks, place = [], 0
    while place < len(layers):
        covered, period, times = best[place]
        blocks.append((place, -period, times))
        place += covered
    return blocks


def _ways(first: Collection[int | str], second: Collection[int | str], distance: int) -> Sequence[bool] | None:
    """For each source whether it is the very same; None unless all others lie as far back."""
    pairs = list(zip(first, second, strict=False))
    alike = all(a == b or (isinstance(a, int) and a + distance == b) for a, b in pairs)
    return [a == b for a, b in pairs] if alike and len(first) == len(second) else None
