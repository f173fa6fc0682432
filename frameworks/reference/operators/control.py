"""If, Loop and Scan: sub-graphs, compiled once like the network around them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

import numpy as np

from deep500.frameworks.reference.operators.table import op

Array = np.ndarray


class Body(Protocol):
    """A compiled sub-graph."""

    inputs: Sequence[str]
    """Names of its own inputs, without what it captures."""

    def __call__(self, values: Sequence[Any], captured: dict[str, Any]) -> list[Any]:
        """Its outputs for these inputs."""


@op("If")
def if_(condition: Array, *values: Any, then_branch: Body, else_branch: Body, captured: Sequence[str]) -> Any:
    """One of two sub-graphs."""
    branch = then_branch if np.ravel(condition)[0] else else_branch
    return tuple(branch([], dict(zip(captured, values, strict=True))))


@op("Loop")
def loop(trips: Array | None, condition: Array | None, *values: Any, body: Body, captured: Sequence[str]) -> Any:
    """Repeat while the condition holds, at most ``trips`` times; carried values, then one stack per scan output."""
    carried = len(body.inputs) - 2
    state, outside = list(values[:carried]), dict(zip(captured, values[carried:], strict=True))
    most = None if trips is None else int(np.ravel(trips)[0])
    go_on = np.array(True) if condition is None else condition
    rows: list[list[Array]] = []
    count = 0
    while np.ravel(go_on)[0] and (most is None or count < most):
        go_on, *results = body([np.array(count, np.int64), go_on, *state], outside)
        state = results[:carried]
        rows.append(results[carried:])
        count += 1
    return (*state, *_stacks(rows, body, carried + 1))


def _stacks(rows: Sequence[Sequence[Any]], body: Any, skip: int) -> list[Array]:
    """The rows of each scan output, stacked; nothing in float32 if the body never ran: its shape is unknown then."""
    if rows:
        return [np.stack(column) for column in zip(*rows, strict=True)]
    return [np.zeros(0, np.float32)] * (len(body.outputs) - skip)


@op("Scan")
def scan(
    *values: Any,
    body: Body,
    captured: Sequence[str],
    num_scan_inputs: int,
    scan_input_axes: Sequence[int] | None = None,
    scan_input_directions: Sequence[int] | None = None,
    scan_output_axes: Sequence[int] | None = None,
    scan_output_directions: Sequence[int] | None = None,
) -> Any:
    """Go along an axis of the scanned inputs at once, carrying a state; backwards where the direction is 1."""
    operands = len(values) - len(captured)
    carried = operands - num_scan_inputs
    state, outside = list(values[:carried]), dict(zip(captured, values[operands:], strict=True))
    inputs = [
        np.flip(moved, 0) if backwards else moved
        for moved, backwards in zip(
            (
                np.moveaxis(x, a, 0)
                for x, a in zip(values[carried:operands], scan_input_axes or [0] * operands, strict=False)
            ),
            scan_input_directions or [0] * operands,
            strict=False,
        )
    ]
    rows = []
    for parts in zip(*inputs, strict=True):
        results = body([*state, *map(np.asarray, parts)], outside)
        state = results[:carried]
        rows.append(results[carried:])
    stacks = _stacks(rows, body, carried)
    backwards = scan_output_directions or [0] * len(stacks)
    axes = scan_output_axes or [0] * len(stacks)
    stacks = [np.flip(s, 0) if b else s for s, b in zip(stacks, backwards, strict=True)]
    return (*state, *(np.moveaxis(s, 0, a) for s, a in zip(stacks, axes, strict=True)))
