"""The report's view of a parallel plan: which node is divided how, and what is sent before it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from deep500.measure.units import amount, unit_for
from deep500.report.figures import Figure
from deep500.report.plot import Axis, Plot, place_names, room_for

REPLICATE = "replicate"  # the strategy of a node that every rank runs whole


def division_view(division: Mapping[str, Any] | None) -> dict[str, Any] | None:
    """Collect what the template needs; None where the network was not divided."""
    if division is None:
        return None
    nodes = [node for node in division["nodes"] if node["operator"] or node["nbytes"]]
    figures = [placement_figure(nodes)]
    figures += [traffic_figure(nodes)] if any(node["nbytes"] for node in nodes) else []
    return {"sentence": sentence(division), "figures": figures, "rows": division["nodes"]}


def sentence(division: Mapping[str, Any]) -> str:
    """The plan in one sentence.

    Example:
        >>> nodes = [{"strategy": "n"}, {"strategy": "replicate"}]
        >>> sentence({"ranks": 2, "nbytes": 1000, "memory": 2000, "nodes": nodes})[:48]
        '1 of 2 nodes of a step divided among 2 ranks; ea'
    """
    names = [node["strategy"] for node in division["nodes"] if node["strategy"]]
    parts = len(names) - names.count(REPLICATE)
    return (
        f"{parts} of {len(names)} nodes of a step divided among {division['ranks']} ranks; each sends "
        f"{amount(division['nbytes'], 'B')} a step and holds {amount(division['memory'], 'B')} of parameters and their "
        "state."
    )


def placement_figure(nodes: Sequence[Mapping[str, Any]]) -> Figure:
    """A dot for each node of the step, in its order, on the row of how its first output lies."""
    kinds = dict.fromkeys(["R", *(node["shardings"].partition(",")[0] for node in nodes if node["shardings"])])
    names = place_names(list(kinds))
    plot = Plot(
        Axis(-0.02 * len(nodes), 1.02 * len(nodes), "node of the step, forward and then backward", whole=True),
        Axis(0.6 - len(kinds), 0.6, "", labels=names),
        f"how {len(nodes)} nodes of a step are divided: {', '.join(kinds)}",
        left=room_for(names),
        height=120 + 24 * len(kinds),
    )
    for row, kind in enumerate(kinds):
        at = [i for i, node in enumerate(nodes) if node["shardings"].partition(",")[0] == kind]
        if at:
            plot.points(at, [-row] * len(at), row, size=4)
    caption = "R: the same on every rank; S0, S1, ...: cut along that axis; P: a part of the sum; of the first output"
    return Figure.from_plot("How does each node lie on the ranks?", plot, caption, len(nodes))


def traffic_figure(nodes: Sequence[Mapping[str, Any]]) -> Figure:
    """Bytes that a rank sends before each node."""
    at = [i for i, node in enumerate(nodes) if node["nbytes"]]
    factor, unit = unit_for(max(nodes[i]["nbytes"] for i in at), "B")
    sent = [factor * nodes[i]["nbytes"] for i in at]
    plot = Plot(
        Axis(-0.02 * len(nodes), 1.02 * len(nodes), "node of the step, forward and then backward", whole=True),
        Axis(0, 1.08 * max(sent), f"sent before it ({unit})"),
        f"bytes that a rank sends before each of {len(at)} nodes",
    )
    plot.points(at, sent, size=4)
    caption = f"{len(at)} collectives of a step, sizes as they were planned; nodes without one have no dot"
    return Figure.from_plot("Where is what sent?", plot, caption, len(at))
