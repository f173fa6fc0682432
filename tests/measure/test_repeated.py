"""Several launches: processes of their own or one that is shared, intervals over launches, and words for both."""

from __future__ import annotations

import functools
import os
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from deep500.errors import InputError
from deep500.measure import Budget, Plan, Target, measure
from deep500.measure.launches import over_launches
from deep500.measure.quantiles import quantile
from deep500.measure.repeated import SHARED
from tests.conftest import HANG
from tests.measure.test_sampling import FakeClock

MEDIAN = (Target(0.5, 0.95, 0.05),)


class LevelClock(FakeClock):
    """A clock by which every launch of ``size`` calls is slower or faster than the others by its own factor."""

    def __init__(self, levels, size, spread=0.01, warm_up=0):
        rng = np.random.default_rng(0)
        slow = 1 + 4 * (np.arange(size) < warm_up)
        super().__init__(
            np.concatenate([level * slow * np.exp(spread * rng.standard_normal(size)) for level in levels])
        )


def shared(levels, rel=0.05, size=40, **about):
    clock = LevelClock(levels, size, **about)
    plan = Plan(
        (Target(0.5, 0.95, rel),), Budget(size, size, max_s=1e9, launches=len(levels), fresh=False, min_neff=20)
    )
    return measure(clock.work, plan, clock=clock)


def note_process(file):
    """Note the process that calls."""
    with Path(file).open("a") as out:
        out.write(f"{os.getpid()}\n")


def fail():
    """Fail."""
    raise ValueError("no such thing")


def die():
    """End the process, as a crash of native code would."""
    os.kill(os.getpid(), signal.SIGKILL)


def test_launches_that_share_a_process_have_an_interval_over_them():
    levels = [1.0, 1.02, 0.97, 1.01, 0.99, 1.03]
    measurement = shared(levels)
    assert (
        measurement.reached
        and measurement.basis == "over 6 launches in one process"
        and measurement.problems == (SHARED,)
    )
    assert len(measurement.launches) == 6 and measurement.samples.size == 240
    expected = over_launches([launch.kept for launch in measurement.launches]).estimate
    assert measurement.estimates == (expected,) and expected.low < 0.98 and expected.high > 1.02
    # all samples taken together know it too well
    assert quantile(measurement.kept, independent=True).high < 1.02 < expected.high
    assert str(measurement).endswith(f" samples worth 158, over 6 launches in one process\n  {SHARED}")
    assert not shared(levels, rel=0.01).reached


def test_every_launch_has_its_own_warm_up():
    measurement = shared([1.0] * 6, warm_up=5)
    cuts = [launch.steady.cut for launch in measurement.launches]
    assert min(cuts) == 5 and measurement.kept.max() < 1.1 and measurement.kept.size == 6 * 40 - sum(cuts)
    assert (measurement.samples > 4).sum() == 6 * 5


@pytest.mark.parametrize(("levels", "reached"), [([1.0, 1.0, 1.0], True), ([1.0, 1.1, 0.9], False)])
def test_few_launches_hold_within_them_and_are_no_result_where_they_differ(levels, reached):
    measurement = shared(levels, rel=0.2, size=120)
    assert measurement.reached is reached and measurement.basis == "within 3 launches in one process"
    assert (
        any(
            ": launches differ (Kruskal-Wallis p " in problem and "6 have an interval over launches" in problem
            for problem in measurement.problems
        )
        is not reached
    )
    assert (measurement.estimates[0].low is not None) is reached


def test_a_launch_that_drifts_is_named():
    clock = FakeClock(np.concatenate([np.full(300, 1.0), np.linspace(1, 2, 300)]))
    budget = Budget(300, 300, max_s=1e9, launches=2, fresh=False)
    measurement = measure(clock.work, Plan(MEDIAN, budget), clock=clock)
    assert not measurement.reached and measurement.problems[0].startswith("no steady state in launch 2")
    assert not measurement.steady.is_steady


def test_one_launch_says_so():
    measurement = measure("gc:get_count", Plan(MEDIAN, Budget(max_n=60)))
    assert (
        measurement.basis == "within one launch"
        and not measurement.launches
        and "within one launch" in str(measurement)
    )


def test_launches_are_processes_of_their_own(tmp_path):
    file = tmp_path / "processes"
    measurement = measure(functools.partial(note_process, str(file)), Plan(MEDIAN, Budget(5, 5, launches=2)))
    calls = file.read_text().split()
    assert len(calls) == 10 and len(set(calls)) == 2 and str(os.getpid()) not in calls
    assert (
        measurement.basis == "within 2 launches"
        and SHARED not in measurement.problems
        and measurement.samples.min() > 0
    )


@pytest.mark.parametrize(
    ("function", "message"),
    [
        (lambda: None, "cannot be sent to a new process"),
        (fail, "got launch 1, which failed: ValueError: no such thing"),
        ("tests.measure.test_repeated:fail", "ValueError: no such thing"),
        ("os:sep", "InputError: got 'os:sep', which is"),
        ("nothing_of_this_name:f", "cannot be imported"),
        (die, "its process ended with exit code -9"),
    ],
)
def test_what_cannot_be_measured_in_a_process_of_its_own(function, message):
    with pytest.raises(InputError) as caught:
        measure(function, Plan(MEDIAN, Budget(2, 2, launches=2)))
    assert message in str(caught.value)


def test_a_script_without_guard_gets_one_error_and_no_swarm_of_processes(tmp_path):
    script = tmp_path / "job.py"
    script.write_text(
        "from deep500.measure import Budget, Plan, measure\n"
        "def work(): pass\n"
        "measure(work, Plan(budget=Budget(2, 2, launches=2)))\n"
    )
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2]), "OMP_NUM_THREADS": "1"}
    done = subprocess.run(
        [sys.executable, str(script)], env=environment, capture_output=True, text=True, timeout=HANG, check=False
    )
    assert done.returncode == 1
    assert "if __name__ == '__main__':" in done.stderr.splitlines()[-1] and "launch 1" in done.stderr.splitlines()[-1]


def test_no_launch_is_refused():
    with pytest.raises(InputError, match="at least one launch"):
        Budget(launches=0)
