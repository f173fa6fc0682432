"""`FrameworkClock`: which part of a training step passes in the framework's own calls; the rest is Deep500's."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from time import perf_counter
from typing import Any, NamedTuple


class ClockedStep(NamedTuple):
    """Seconds of a training step's forward and backward, and those of them in the framework's own calls."""

    seconds: float
    inside: float


class FrameworkClock:
    """Adds up the time of the calls that are made through it.

    Args:
        wait: returns when the framework has finished what it was asked for, so that a call's work is in its own time.

    Attributes:
        seconds: of all calls so far.
        calls: how many there were.

    Example:
        >>> clock = FrameworkClock()
        >>> clock.timed(sum)([1, 2]), clock.calls, clock.seconds > 0
        (3, 1, True)
    """

    def __init__(self, wait: Callable[[], None] = lambda: None) -> None:
        self.seconds, self.calls, self._wait = 0.0, 0, wait

    def timed(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """The same function; its calls are added here."""

        def call(*operands: Any, **settings: Any) -> Any:
            begin = perf_counter()
            try:
                results = function(*operands, **settings)
                self._wait()
                return results
            finally:
                self.seconds += perf_counter() - begin
                self.calls += 1

        return call

    def step(self, executor: Any, inputs: Mapping[str, Any], loss: str) -> ClockedStep:
        """Run a training step of an executor whose calls of its framework go through this clock."""
        executor.synchronize()
        self.seconds, begin = 0.0, perf_counter()
        executor.inference_and_backprop(inputs, loss)
        executor.synchronize()
        return ClockedStep(perf_counter() - begin, self.seconds)
