"""Bytes that PyTorch's allocator hands out while something runs: exact sums of its events, not samples of the process.

On processors the allocator reports every allocation and every release to the profiler; their running sum is what
tensors hold. On GPUs it counts by itself.
"""

from __future__ import annotations

import gc
import os
import time
from collections.abc import Callable
from itertools import accumulate
from typing import Any, NamedTuple

import torch

os.environ.setdefault("KINETO_LOG_LEVEL", "6")  # else the profiler writes two lines to stderr at every measurement


class Footprint(NamedTuple):
    """Bytes of tensors, relative to what was held before.

    Attributes:
        peak: most that was held at once.
        left: held at the end.
    """

    peak: int
    left: int


def footprint(run: Callable[[], Any], device: torch.device | None = None) -> Footprint:
    """Measure what a call holds of the allocator's memory.

    Counted is what tensors ask for; scratch memory that kernels get elsewhere (oneDNN's) is not, nor is rounding. Call
    :func:`settle` before, where other calls have been counted and objects with cycles, such as executors, dropped.

    Args:
        run: is called once; what it returns is dropped after the count.
        device: where to count; the processor if None.

    Example:
        >>> footprint(lambda: torch.zeros(100).sum())
        Footprint(peak=404, left=4)
    """
    if device is not None and device.type == "cuda":
        return _on_gpu(run, device)
    _, live, result = _events(run)
    del result
    return Footprint(max([0, *live]), live[-1] if live else 0)


def timeline(run: Callable[[], Any]) -> tuple[list[float], list[int]]:
    """Bytes that a call holds of the CPU's memory, from each allocation or release to the next.

    Returns:
        seconds since the call began, one more than counts, as the last is its end; and bytes.

    Example:
        >>> at, held = timeline(lambda: torch.zeros(100).sum())
        >>> held, len(at) - len(held), at == sorted(at)
        ([0, 400, 404, 4], 1, True)
    """
    settle()
    times, live, result = _events(run)
    del result
    return [0.0, *times], [0, *live]


def settle() -> None:
    """Release garbage first: released during a measurement, it would be counted there."""
    gc.collect()


def _events(run: Callable[[], Any]) -> tuple[list[float], list[int], Any]:
    """When bytes were allocated or released, and the end; bytes then held; and what the call returned."""
    from torch.profiler import ProfilerActivity, profile

    with profile(activities=[ProfilerActivity.CPU], profile_memory=True, acc_events=True) as profiler:
        begin = time.time_ns()
        result = run()
        end = time.time_ns()
    events: Any = profiler.profiler
    events = [e for e in events.kineto_results.events() if e.name() == "[memory]" and e.device_type().name == "CPU"]
    events.sort(key=lambda e: e.start_ns())
    live = list(accumulate(event.nbytes() for event in events))
    return [(t - begin) / 1e9 for t in (*(e.start_ns() for e in events), end)], live, result


def _on_gpu(run: Callable[[], Any], device: torch.device) -> Footprint:
    torch.cuda.synchronize(device)
    torch.cuda.reset_peak_memory_stats(device)
    before = requested(device, "current")
    result = run()
    torch.cuda.synchronize(device)
    after, peak = requested(device, "current"), requested(device, "peak")
    del result
    return Footprint(peak - before, after - before)


def requested(device: torch.device, which: str) -> int:
    """Bytes that tensors of a GPU asked for, ``current`` or ``peak``, before they are rounded up to blocks of 512."""
    return int(torch.cuda.memory_stats(device).get(f"requested_bytes.all.{which}", 0))
