"""If, Loop and Scan: by Python where what decides is known while JAX traces, else by ``jax.lax``."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from deep500.frameworks.jax.operators.table import Array, DependsOnData, is_known, op, scalar

UNROLLED = 16
"""Scans of at most that many steps are written out; longer ones are one step, repeated."""


@op("If", many=True)
def if_(condition: Array, *, then_branch: Any, else_branch: Any, context: Any) -> Any:
    if is_known(condition):
        return (then_branch if bool(np.ravel(condition)[0]) else else_branch)()
    drawn = context.draws
    try:
        return jax.lax.cond(condition.reshape(()), lambda: _arrays(then_branch()), lambda: _arrays(else_branch()))
    except TypeError as error:  # the branches differ in shape or dtype
        context.draws = drawn
        raise DependsOnData from error


def _arrays(values: Any) -> Any:
    return jax.tree.map(jnp.asarray, values)


@op("Loop", many=True)
def loop(count: Any, condition: Array | None, *initial: Any, body: Any, context: Any) -> Any:
    """``for i in range(count) while condition``; what the body yields beyond its states is stacked."""
    if not is_known([count, condition]):
        return _while(count, condition, initial, body)
    states, limit, rows = initial, scalar(count), list[tuple[Any, ...]]()
    going = True if condition is None else bool(scalar(condition))
    while going and (limit is None or len(rows) < limit):
        proceed, *results = body(np.array(len(rows), np.int64), np.array(True), *states)
        if not is_known(proceed):
            if not rows:
                return _while(count, condition, initial, body)
            raise DependsOnData
        states = tuple(results[: len(initial)])
        rows.append(tuple(results[len(initial) :]))
        going = bool(scalar(proceed))
    stacked: tuple[Any, ...] = tuple(jnp.stack([jnp.asarray(v) for v in column]) for column in zip(*rows, strict=True))
    if not rows:  # nothing ran: the shapes that scans would have are not known
        stacked = tuple(np.zeros(0, np.float32) for _ in range(len(body.program.outputs) - 1 - len(initial)))
    return (*states, *stacked)


def _while(count: Any, condition: Any, initial: tuple[Any, ...], body: Any) -> Any:
    """A loop whose length depends on data: its states keep their shapes and it collects nothing."""
    if len(body.program.outputs) - 1 > len(initial):
        raise DependsOnData
    start = (jnp.zeros((), np.int64), jnp.ones((), bool) if condition is None else jnp.ravel(condition)[0])

    def going(carried: Any) -> Array:
        i, proceed, _ = carried
        return proceed if count is None else proceed & (i < jnp.ravel(count)[0])

    def step(carried: Any) -> Any:
        i, proceed, states = carried
        again, *results = body(i, proceed, *states)
        return i + 1, jnp.ravel(jnp.asarray(again))[0], tuple(_arrays(results))

    try:
        return jax.lax.while_loop(going, step, (*start, tuple(_arrays(list(initial)))))[2]
    except TypeError as error:  # states change their shape or dtype
        raise DependsOnData from error


@op("Scan", many=True)
def scan(
    *args: Array,
    body: Any,
    num_scan_inputs: int,
    scan_input_axes: Any = None,
    scan_input_directions: Any = None,
    scan_output_axes: Any = None,
    scan_output_directions: Any = None,
    context: Any,
) -> Any:
    split = len(args) - num_scan_inputs
    axes, backward = scan_input_axes or (0,) * num_scan_inputs, scan_input_directions or (0,) * num_scan_inputs
    columns = [jnp.moveaxis(x, a, 0) for x, a in zip(args[split:], axes, strict=True)]
    columns = [jnp.flip(x, 0) if b else x for x, b in zip(columns, backward, strict=True)]
    states, length = args[:split], len(columns[0])
    if length <= UNROLLED:
        rows = []
        for i in range(length):
            results = body(*states, *(x[i] for x in columns))
            states = results[:split]
            rows.append(results[split:])
        stacked = [jnp.stack([jnp.asarray(v) for v in column]) for column in zip(*rows, strict=True)]
    else:

        def step(carried: Any, xs: Any) -> Any:
            results = _arrays(body(*carried, *xs))
            return tuple(results[:split]), tuple(results[split:])

        states, stacked = jax.lax.scan(step, tuple(_arrays(list(states))), tuple(columns))
    out_axes, out_backward = scan_output_axes or (0,) * len(stacked), scan_output_directions or (0,) * len(stacked)
    turned = [jnp.flip(y, 0) if b else y for y, b in zip(stacked, out_backward, strict=True)]
    return (*states, *(jnp.moveaxis(y, 0, a) for y, a in zip(turned, out_axes, strict=True)))
