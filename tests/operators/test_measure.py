"""`measure_op`: times that are known, and what is derived from them."""

from __future__ import annotations

import numpy as np
import pytest

import deep500 as d5
from deep500.errors import InputError
from deep500.operators import measure


class Clock:
    """A clock that advances only where an operator says so: a busy machine is none of its business."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now = 0.0
        monkeypatch.setattr(measure, "perf_counter", lambda: self.now)


class Sleeper(d5.CustomPythonOp):
    """Two milliseconds forward, four backward."""

    def __init__(self, clock: Clock) -> None:
        super().__init__()
        self.calls, self.clock = 0, clock

    def forward(self, inputs):
        self.calls += 1
        self.clock.now += 0.002
        return inputs[0].copy()

    def backward(self, grads, fwd_inputs, fwd_outputs):
        self.clock.now += 0.004
        return grads[0]


def test_medians_with_intervals_and_rates(monkeypatch: pytest.MonkeyPatch) -> None:
    op = Sleeper(Clock(monkeypatch))
    result = d5.measure_op(op, [np.ones(10, np.float32)], flop=1e6, bytes=80, samples=9, warmup=2)
    assert result.forward.median == pytest.approx(0.002) and result.backward.median == pytest.approx(0.004)
    assert result.forward.low <= result.forward.median <= result.forward.high and result.forward.n == 9
    assert result.flops.median == pytest.approx(1e6 / result.forward.median)
    assert result.flops.low == pytest.approx(1e6 / result.forward.high)
    assert result.bandwidth.median == pytest.approx(80 / result.forward.median)
    assert op.calls == 1 + 2 + 1 + 9, "one for the outputs, two to warm up, one for the length of a sample"
    assert str(result).startswith("Sleeper: forward 0.00") and "FLOP/s" in str(result)


def test_short_calls_are_repeated_within_a_sample(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Clock(monkeypatch)

    class Nothing(d5.CustomPythonOp):
        calls = 0

        def forward(self, inputs):
            self.calls += 1
            clock.now += 1e-6
            return inputs[0]

    op = Nothing()
    result = d5.measure_op(op, [np.ones(1)], samples=6)
    assert op.calls > 1000 and result.forward.median == pytest.approx(1e-6)
    assert result.backward is None and result.flops is None and result.bandwidth is None


def test_no_samples_are_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(InputError, match="got samples=0"):
        d5.measure_op(Sleeper(Clock(monkeypatch)), [np.ones(1)], samples=0)
