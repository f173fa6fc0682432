"""Roofs and scaling against numbers that are known."""

from __future__ import annotations

import pytest

from deep500.errors import InputError
from deep500.measure.bounds import Roofs, measure_roofs, roofline, scaling_table
from deep500.measure.statistics import Interval

ROOFS = Roofs(flops=1e12, bandwidth=1e11)


@pytest.mark.parametrize(
    ("flops", "moved", "limit", "bound"), [(1e9, 1e9, "memory", 1e11), (1e12, 1e9, "compute", 1e12)]
)
def test_the_lower_roof_counts(flops, moved, limit, bound):
    point = roofline(flops, moved, 2 * flops / bound, ROOFS)
    assert (point.limit, point.bound, point.share) == (limit, bound, pytest.approx(0.5))


def test_more_than_the_roof_is_an_error_in_the_count():
    with pytest.raises(InputError, match="check the counts"):
        roofline(1e9, 1e9, 0.001, ROOFS)
    with pytest.raises(InputError, match="positive"):
        roofline(0, 1, 1, ROOFS)


def test_this_machine_has_roofs():
    roofs = measure_roofs(size=256, megabytes=8, repeats=3)
    assert 1e8 < roofs.bandwidth < 1e13 and 1e8 < roofs.flops < 1e15


def times(function, counts=(1, 2, 4, 8)):
    return {p: Interval(function(p), None, None, 1) for p in counts}


@pytest.mark.parametrize("serial", [0.0, 0.05, 0.5])
def test_amdahl_and_gustafson_are_fitted(serial):
    strong, fitted = scaling_table(times(lambda p: 3 * (serial + (1 - serial) / p)))
    assert fitted == pytest.approx(serial, abs=1e-9)
    assert [row.speedup for row in strong] == pytest.approx([row.amdahl for row in strong])
    weak, fitted = scaling_table(times(lambda p: 3 * p / (p - serial * (p - 1))), weak=True)
    assert fitted == pytest.approx(serial, abs=1e-9) and weak[-1].ideal == 8
    assert weak[-1].speedup == pytest.approx(8 - serial * 7)


def test_superlinear_speedup_has_no_negative_serial_share():
    rows, serial = scaling_table(times(lambda p: 1 / p**1.1))
    assert serial == 0 and rows[-1].efficiency > 1


def test_a_speedup_needs_its_base():
    with pytest.raises(InputError, match="base of the speedup"):
        scaling_table(times(lambda p: 1 / p, (2, 4)))
