"""Times of a custom operator: ``measure_op``."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from time import perf_counter
from typing import Any

import numpy as np

from deep500.errors import InputError
from deep500.measure.statistics import Interval, median_interval
from deep500.operators.base import CustomOp

SHORTEST = 1e-3
"""A sample repeats the call until it lasts this number of seconds, so that the clock's own cost does not count."""


@dataclass(frozen=True)
class OpMeasurement:
    """Times of an operator.

    Attributes:
        operator: its name.
        forward: seconds per call.
        backward: seconds per call, None if it has none or was not asked for.
        flop, bytes: operations and bytes moved of one forward, as they were given.
    """

    operator: str
    forward: Interval
    backward: Interval | None = None
    flop: float | None = None
    bytes: float | None = None

    @property
    def flops(self) -> Interval | None:
        """Forward's operations per second, None if their number was not given."""
        return rate(self.flop, self.forward)

    @property
    def bandwidth(self) -> Interval | None:
        """Forward's bytes per second, None if their number was not given."""
        return rate(self.bytes, self.forward)

    def __str__(self) -> str:
        parts = [("forward", self.forward, "s"), ("backward", self.backward, "s")]
        parts += [("forward", self.flops, "FLOP/s"), ("forward", self.bandwidth, "B/s")]
        texts = [f"{what} {value} {unit}" for what, value, unit in parts if value is not None]
        return f"{self.operator}: " + "; ".join(texts)


def measure_op(
    op: CustomOp,
    inputs: Sequence[Any],
    *,
    flop: float | None = None,
    bytes: float | None = None,
    backward: bool = True,
    samples: int = 30,
    warmup: int = 3,
) -> OpMeasurement:
    """Time forward and backward on host arrays: medians with 95 % intervals.

    Args:
        op: the operator; also what a framework's ``custom_op_from_native`` makes.
        inputs: its arrays.
        flop, bytes: operations and bytes of one forward, reported per second.
        backward: time the gradient too, where there is one, with output gradients of ones.
        samples: how many times are taken; fewer than 6 have no interval.
        warmup: calls before the first, which are not counted.

    Raises:
        InputError: the operator refuses the inputs, or ``samples`` is below 1.

    Example:
        >>> from deep500.operators.python_op import CustomPythonOp
        >>> class Twice(CustomPythonOp):
        ...     def forward(self, inputs):
        ...         return 2 * inputs[0]
        >>> result = measure_op(Twice(), [np.ones(1000)], flop=1000, samples=6)
        >>> result.flops.median > 0
        True
    """
    if samples < 1 or warmup < 0:
        raise InputError(f"got samples={samples}, warmup={warmup}; expected at least 1 and 0: give larger numbers")
    arrays = [np.ascontiguousarray(x) for x in inputs]
    outputs = op.run(arrays)
    forward = time_calls(lambda: op.forward(arrays), samples, warmup)
    times = None
    if backward and op.differentiable:
        grads = [np.ones_like(y) for y in outputs]
        op.run_backward(grads, arrays, outputs)
        times = time_calls(lambda: op.backward(grads, arrays, outputs), samples, warmup)
    return OpMeasurement(op.name, forward, times, flop, bytes)


def time_calls(call: Callable[[], Any], samples: int, warmup: int) -> Interval:
    """Seconds per call: median of samples, each of as many calls as last a millisecond.

    Args:
        call: what to time; it must have finished its work when it returns.
        samples, warmup: as for :func:`measure_op`.
    """
    for _ in range(warmup):
        call()
    count = 1
    while (taken := _seconds(call, count)) < SHORTEST:
        count = max(2 * count, int(count * SHORTEST / max(taken, 1e-9)))
    return median_interval([_seconds(call, count) / count for _ in range(samples)])


def _seconds(call: Callable[[], Any], count: int) -> float:
    started = perf_counter()
    for _ in range(count):
        call()
    return perf_counter() - started


def rate(amount: float | None, seconds: Interval) -> Interval | None:
    """An amount per second, from an interval of seconds; None without an amount.

    Example:
        >>> rate(10.0, Interval(2.0, 1.0, 5.0, 9)).low
        2.0
    """
    if amount is None:
        return None
    low, high = (None if x is None else amount / x for x in (seconds.high, seconds.low))
    return Interval(amount / seconds.median, low, high, seconds.n, seconds.level)
