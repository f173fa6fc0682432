"""If, Loop and Scan as Python control flow: what they depend on must be known when the network is compiled, else it
runs eagerly."""

from __future__ import annotations

from typing import Any

from deep500.frameworks.tensorflow.operators.table import NeedsValue, op, scalar, static_sizes
from deep500.frameworks.tensorflow.runtime import tf

Tensor = Any
MOST_UNROLLED = 256
"""Loops that are longer run eagerly: their graph would grow too large."""


@op("If", many=True)
def if_(condition: Tensor, *, then_branch: Any, else_branch: Any, context: Any) -> Any:
    return tuple(context.body(then_branch if scalar(condition) else else_branch)())


@op("Loop", many=True, static=(0,))
def loop(count: Any, condition: Tensor | None, *initial: Any, body: Any, context: Any) -> Any:
    """``for i in range(count) while condition``; what the body yields beyond its states is stacked."""
    states, limit, scans = list(initial), scalar(count), list[list[Any]]()
    run, going = context.body(body), True if condition is None else bool(scalar(condition))
    while going and (limit is None or len(scans) < limit):
        if len(scans) == MOST_UNROLLED and not tf.executing_eagerly():
            raise NeedsValue
        proceed, *results = run(tf.constant(len(scans), tf.int64), tf.constant(True), *states)
        states, scanned = results[: len(initial)], results[len(initial) :]
        scans.append(scanned)
        going = bool(scalar(proceed))
    stacked = [tf.stack(column) for column in zip(*scans, strict=True)]
    if not scans:  # nothing ran: the shapes that scans would have are not known
        stacked = [tf.zeros([0])] * (len(body.output) - 1 - len(initial))
    return (*states, *stacked)


@op("Scan", many=True)
def scan(
    *args: Tensor,
    body: Any,
    num_scan_inputs: int,
    scan_input_axes: Any = None,
    scan_input_directions: Any = None,
    scan_output_axes: Any = None,
    scan_output_directions: Any = None,
    context: Any,
) -> Any:
    split = len(args) - num_scan_inputs
    states, scanned, run = list(args[:split]), args[split:], context.body(body)
    axes, backward = scan_input_axes or (0,) * num_scan_inputs, scan_input_directions or (0,) * num_scan_inputs
    (length,) = static_sizes(scanned[0], axes[0])
    if length > MOST_UNROLLED and not tf.executing_eagerly():
        raise NeedsValue
    slices = [
        tf.unstack(tf.reverse(x, [a]) if b else x, length, a) for x, a, b in zip(scanned, axes, backward, strict=True)
    ]
    rows = []
    for xs in zip(*slices, strict=True):
        results = run(*states, *xs)
        states = results[:split]
        rows.append(results[split:])
    columns = list(zip(*rows, strict=True))
    out_axes, out_backward = scan_output_axes or (0,) * len(columns), scan_output_directions or (0,) * len(columns)
    stacked = [tf.stack(c[::-1] if b else c, a) for c, a, b in zip(columns, out_axes, out_backward, strict=True)]
    return (*states, *stacked)
