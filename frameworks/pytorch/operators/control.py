"""If, Loop and Scan as Python control flow.

A body is a triple: its compiled module, the values that it captures, and the device that it runs on, by name.
"""

from __future__ import annotations

from typing import Any

import torch

from deep500.frameworks.pytorch.operators.table import op, scalar

Tensor = torch.Tensor


def run_body(body: Any, *args: Any) -> tuple[Any, ...]:
    """Results of a sub-graph for its own inputs; what it captures comes with it."""
    module, captured, _ = body
    results = module(*args, *captured)
    return results if isinstance(results, tuple) else (results,)


@op("If", many=True)
def if_(condition: Tensor, *, then_branch: Any, else_branch: Any) -> Any:
    return run_body(then_branch if bool(scalar(condition)) else else_branch)


@op("Loop", many=True, static=(0,))
def loop(count: Any, condition: Tensor | None, *initial: Any, body: Any) -> Any:
    """``for i in range(count) while condition``; what the body yields beyond its states is stacked."""
    states, limit, scans, device = initial, scalar(count), list[tuple[Any, ...]](), body[2]
    going = True if condition is None else bool(scalar(condition))
    while going and (limit is None or len(scans) < limit):
        number, yes = torch.tensor(len(scans), device=device), torch.tensor(True, device=device)
        proceed, *results = run_body(body, number, yes, *states)
        states = tuple(results[: len(initial)])
        scans.append(tuple(results[len(initial) :]))
        going = bool(scalar(proceed))
    stacked = tuple(torch.stack(column) for column in zip(*scans, strict=True))
    if not scans:  # nothing ran: the shapes that scans would have are not known
        stacked = tuple(torch.empty(0, device=device) for _ in range(len(body[0].program.outputs) - 1 - len(initial)))
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
) -> Any:
    split = len(args) - num_scan_inputs
    states, scanned = args[:split], args[split:]
    axes, backward = scan_input_axes or (0,) * num_scan_inputs, scan_input_directions or (0,) * num_scan_inputs
    slices = [x.flip(a).unbind(a) if b else x.unbind(a) for x, a, b in zip(scanned, axes, backward, strict=True)]
    rows = []
    for xs in zip(*slices, strict=True):
        results = run_body(body, *states, *xs)
        states = results[:split]
        rows.append(results[split:])
    columns = list(zip(*rows, strict=True))
    out_axes, out_backward = scan_output_axes or (0,) * len(columns), scan_output_directions or (0,) * len(columns)
    stacked = [torch.stack(c[::-1] if b else c, a) for c, a, b in zip(columns, out_axes, out_backward, strict=True)]
    return (*states, *stacked)
