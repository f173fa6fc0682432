"""Trials that train: the clock, the target between two evaluations, and submissions that misbehave."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from deep500.errors import InputError, RecipeError
from deep500.events import StopTraining
from deep500.race.running import Race, RaceOptions
from deep500.race.trial import Request, StopWatch, TargetWatch, run_trial
from deep500.race.workloads import Workload

RECIPE = "from tests.recipes.common import quick\nFIXED, MUTABLE, METRICS = quick('reference', epochs=1)\n"
MINE = """
import numpy as np
from deep500.race.submissions import *
from deep500.training.optimizers import GradientDescent

class Nan(GradientDescent):
    def update_rule(self, gradient, parameter, name):
        return parameter * float("nan")

class Raises(GradientDescent):
    def update_rule(self, gradient, parameter, name):
        raise KeyError("lost")

class Hungry(GradientDescent):
    def update_rule(self, gradient, parameter, name):
        raise MemoryError

class Edits(GradientDescent):
    def __init__(self, executor, loss, **more):
        super().__init__(executor, loss, **more)
        executor.network.add_parameter("more", np.ones(3, "float32"))

ALL = [Submission(kind.__name__, kind, {"lr": 0.1}, "constant") for kind in (Nan, Raises, Hungry, Edits)]
ALL += [Submission("good", GradientDescent, {"lr": 0.1}, "constant"), Submission("bad", GradientDescent, {"rate": 1.0})]
"""


@pytest.fixture
def request_of(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(tmp_path)
    Path("job.py").write_text(RECIPE)
    Path("mine.py").write_text(MINE)

    def made(name: str, target: float = 101.0, limit: float = 60.0, steps: int = 6, **more) -> Request:
        workload = {**asdict(Workload("job.py", target, 60, steps, 2)), "words": []}
        return Request(workload, ["mine.py:ALL"], name, 0, 0, 0, 7, limit, steps, **more)

    return made


def test_a_trial_is_the_same_again_and_its_curve_is_said(request_of) -> None:
    curves: list[list[dict]] = [[], []]
    outcomes = [run_trial(request_of("good"), curve.append) for curve in curves]
    assert outcomes[0]["reason"] == "not within 6 steps" and outcomes[0]["seconds"] is None
    assert [point["step"] for point in curves[0]] == [0, 2, 4, 6]
    assert [point["quality"] for point in curves[0]] == [point["quality"] for point in curves[1]]
    assert outcomes[0]["best"] == max(point["quality"] for point in curves[0])
    assert curves[0][0]["seconds"] == 0 < curves[0][1]["seconds"] <= outcomes[0]["spent"]


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("Nan", "diverged: validation, step 2"),
        ("Raises", "crashed: KeyError: 'lost'"),
        ("Hungry", "out of memory"),
        ("Edits", "got a changed model, which belongs to the workload"),
    ],
)
def test_what_misbehaves_is_a_miss(request_of, name, says) -> None:
    outcome = run_trial(request_of(name))
    assert outcome["reason"].startswith(says) and outcome["seconds"] is None and "\n" not in outcome["reason"]


def test_settings_that_an_optimizer_does_not_take(request_of) -> None:
    with pytest.raises(InputError, match="got hyper-parameter 'rate'"):
        run_trial(request_of("bad"))
    Path("suite.json").write_text(json.dumps({"workload": [{**request_of("bad").workload, "words": []}]}))
    with pytest.raises(RecipeError, match="submission 'bad' on 'job': got 'rate'; expected a setting of GradientDes"):
        Race.begin(RaceOptions("suite.json", ("mine.py:ALL",)), Path("results"))
    assert not Path("results").exists()


def test_a_target_that_is_met_before_training_is_none(request_of) -> None:
    outcome = run_trial(request_of("good", target=-1.0))
    assert outcome["reason"].startswith("the target is met before training") and outcome["seconds"] is None


class Judge:
    """A trainer whose quality is a function of the step, while a clock advances by hand."""

    def __init__(self, qualities: dict[int, float], now: list[float], calibration: float) -> None:
        self.qualities, self.now, self.calibration = qualities, now, calibration

    def calibrate(self):
        self.now[0] += self.calibration

    def evaluate(self, sampler, what):
        self.now[0] += 100.0  # evaluations take long
        step = int(what.rpartition(" ")[2])
        return SimpleNamespace(qualities=lambda: {"q": self.qualities[step]})


def watched(
    qualities: dict[int, float], higher: bool = True, limit: float = 50.0, steps: int = 40, calibration: float = 0.0
):
    """A watch after a run of one second per step, evaluated every ten, and the last step of it."""
    now = [0.0]
    watch = TargetWatch(("q", higher), 5.0, 10, limit, steps, clock=StopWatch(lambda: now[0]))
    run = SimpleNamespace(
        step=0, executor=SimpleNamespace(synchronize=lambda: None), trainer=Judge(qualities, now, calibration)
    )
    with pytest.raises(StopTraining):
        watch.before_run(run)
        for step in range(1, 10**4):
            now[0] += 1.0
            run.step = step
            watch.after_batch(run)
    return watch, run.step


def test_calibration_counts_as_training() -> None:
    qualities = {0: 0.0, 10: 4.0, 20: 6.0}
    (plain, _), (longer, _) = (watched(qualities, calibration=seconds) for seconds in (0.0, 2.0))
    assert plain.reached == (15.0, 15.0) and longer.reached == ((12.0 + 24.0) / 2, 15.0)


def test_targets_lie_between_two_evaluations_and_the_clock_stands_still_in_them() -> None:
    watch, step = watched({0: 0.0, 10: 4.0, 20: 8.0})
    assert watch.reached == (12.5, 12.5) and step == 20 and watch.best == 8
    watch, _ = watched({0: 9.0, 10: 8.0, 20: 5.0}, higher=False)
    assert watch.reached == (20.0, 20.0) and watch.best == 5


def test_a_clock_that_stands_still_stays() -> None:
    now = [5.0]
    clock = StopWatch(lambda: now[0])
    assert clock.stop() == 0
    clock.start()
    now[0] = 7.0
    assert clock.stop() == 2
    now[0] = 70.0
    assert clock.stop() == 2
    clock.start()
    now[0] = 71.0
    assert clock.stop() == 3


def test_limits_end_at_an_evaluation_and_not_between_two() -> None:
    flat = dict.fromkeys(range(0, 100, 10), 1.0)
    watch, step = watched(flat, limit=15.0)
    assert watch.reached is None and step == 20 and watch.reason == "not within 15 s"
    watch, step = watched({**flat, 20: 9.0}, limit=15.0)
    assert watch.reached == (15.0, 15.0), "the crossing was in time, although the evaluation was not"
    watch, step = watched({**flat, 20: 6.0}, limit=15.0)
    assert watch.reached is None and watch.reason == "not within 15 s", "it crossed at 18"
    watch, step = watched(flat)
    assert step == 40 and watch.reason == "not within 40 steps"
    watch, _ = watched({**flat, 10: np.nan, 20: np.inf, 30: 9.0})
    assert watch.reached == (15.0, 15.0), "what is not finite is no point of the curve"
