"""If and Loop as Python control flow: what they depend on must be known when the network is compiled, else it runs
eagerly. So is Scan over a few slices; over many, or a number that batches decide, it is a loop of the graph."""

from __future__ import annotations

from typing import Any

from deep500.frameworks.tensorflow.operators.table import NeedsValue, op, scalar
from deep500.frameworks.tensorflow.runtime import tf

Tensor = Any
MOST_UNROLLED = 256
"""Loops that are longer are not written out: their graph would grow too large."""


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
    turned = [tf.reverse(x, [a]) if b else x for x, a, b in zip(scanned, axes, backward, strict=True)]
    length = scanned[0].shape[axes[0]]
    if tf.executing_eagerly() or (length is not None and length <= MOST_UNROLLED):
        results = [tf.unstack(x, length, a) for x, a in zip(turned, axes, strict=True)]
        states, columns = _written_out(run, states, results)
    else:
        states, columns = _in_the_graph(run, states, [_moved(x, a) for x, a in zip(turned, axes, strict=True)])
    out_axes, out_backward = scan_output_axes or (0,) * len(columns), scan_output_directions or (0,) * len(columns)
    ordered = [tf.reverse(c, [0]) if b else c for c, b in zip(columns, out_backward, strict=True)]
    return (*states, *(_moved(c, 0, a) for c, a in zip(ordered, out_axes, strict=True)))


def _written_out(run: Any, states: list[Tensor], slices: list[list[Tensor]]) -> tuple[list[Tensor], list[Tensor]]:
    rows = []
    for xs in zip(*slices, strict=True):
        results = run(*states, *xs)
        states = list(results[: len(states)])
        rows.append(results[len(states) :])
    return states, [tf.stack(column) for column in zip(*rows, strict=True)]


def _in_the_graph(run: Any, begun: list[Tensor], scanned: list[Tensor]) -> tuple[list[Tensor], list[Tensor]]:
    """One body for all slices, which lie in the first axis: ``tf.while_loop``, whose gradient is another one."""
    count = tf.shape(scanned[0])[0]
    outputs = run(*begun, *(x[0] for x in scanned))[len(begun) :]  # only their types are used
    rows = [tf.TensorArray(x.dtype, size=count, element_shape=x.shape) for x in outputs]

    def step(number: Tensor, states: list[Tensor], rows: list[Any]) -> tuple[Tensor, list[Tensor], list[Any]]:
        results = run(*_shaped(states, begun), *(x[number] for x in scanned))
        written = [array.write(number, x) for array, x in zip(rows, results[len(begun) :], strict=True)]
        return number + 1, list(results[: len(begun)]), written

    anything = [tf.TensorShape([None] * len(x.shape)) for x in begun]
    shapes = (tf.TensorShape([]), anything, [tf.TensorShape(None)] * len(rows))
    values = (tf.constant(0), begun, rows)
    _, states, rows = tf.while_loop(lambda number, *_: number < count, step, values, shapes, maximum_iterations=count)
    return _shaped(states, begun), [array.stack() for array in rows]


def _shaped(states: list[Tensor], begun: list[Tensor]) -> list[Tensor]:
    """The states of a scan keep their shapes, which TensorFlow forgets in a loop."""
    return [tf.ensure_shape(x, like.shape) for x, like in zip(states, begun, strict=True)]


def _moved(x: Tensor, axis: int, to: int = 0) -> Tensor:
    order = list(range(len(x.shape)))
    order.insert(to % len(order), order.pop(axis))
    return x if order == sorted(order) else tf.transpose(x, order)
