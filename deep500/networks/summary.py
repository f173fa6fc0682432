"""A network as a table to read: what ``print(network)`` shows."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from deep500.networks.flops import count_flops

if TYPE_CHECKING:
    from deep500.networks.graph import Graph

_HEAD = ("name", "operator", "output", "parameters", "FLOPs")
_WIDEST = 40  # characters of a name


def summary(network: Graph) -> str:
    """One line per node (operator, first output, parameters that it reads first, FLOPs per sample), and totals.

    Parameters are the floating ones, trainable or not; integers such as shapes do not count. FLOPs are counted as
    :mod:`deep500.networks.flops` says, with 1 for every symbolic size; ``?`` is unknown, not 0, and a total with
    unknown parts is a lower bound, marked ``>=``. Below stand the arrays of a file that may be weights and stay fixed.
    """
    descriptors, flops = network.descriptors(), count_flops(network)
    rows: list[tuple[str, ...]] = [_HEAD]
    seen: set[str] = set()
    for node in network.nodes:
        first_read = [n for n in node.inputs if n in network.parameters and n not in seen]
        seen.update(first_read)
        rows.append(
            (
                node.name,
                f"{node.domain}.{node.op_type}" if node.domain else node.op_type,
                str(descriptors[node.writes[0]]),
                f"{_count(network, first_read):,}",
                _flops([flops[node.name]]),
            )
        )
    trainable = _count(network, network.trainable())
    fixed = _count(network, network.parameters) - trainable
    return "\n".join(
        [
            f"network {network.name!r}",
            *(f"  input   {name}: {descriptor}" for name, descriptor in network.inputs.items()),
            *(f"  output  {name}: {descriptors[name]}" for name in network.outputs),
            *_table(rows),
            f"{len(network.nodes)} nodes, {trainable:,} trainable parameters, {fixed:,} others; "
            f"FLOPs per sample: {_flops(flops.values())}",
            *(f"  fixed, may be a weight: {n}: {p.doubt}" for n, p in network.parameters.items() if p.doubt),
        ]
    )


def _count(network: Graph, names: Iterable[str]) -> int:
    """Elements of floating parameters (integers are shapes and axes)."""
    values = [network.parameters[n].value for n in names]
    return sum(v.size for v in values if v.dtype.kind not in "iubO")


def _flops(counts: Iterable[int | None]) -> str:
    counts = list(counts)
    known = [c for c in counts if c is not None]
    if len(known) == len(counts):
        return f"{sum(known):,}"
    return f">= {sum(known):,}" if known else "?"


def _table(rows: list[tuple[str, ...]]) -> list[str]:
    cut = [tuple(_shorten(cell) for cell in row) for row in rows]
    widths = [max(map(len, column)) for column in zip(*cut, strict=True)]
    lines = [
        "  ".join(
            c.rjust(w) if i >= 3 else c.ljust(w) for i, (c, w) in enumerate(zip(row, widths, strict=True))
        ).rstrip()
        for row in cut
    ]
    rule = "-" * max(map(len, lines))
    return [rule, lines[0], rule, *lines[1:], rule]


def _shorten(text: str) -> str:
    return text if len(text) <= _WIDEST else f"{text[: _WIDEST - 3]}..."
