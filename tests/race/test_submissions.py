"""Search spaces and what a submission may change; each bad one is an error of one line."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from scipy.stats import qmc

from deep500.errors import RecipeError
from deep500.race.submissions import BUILT_IN, Submission, choices, find_submissions, loguniform, point, uniform
from deep500.race.workloads import Workload
from deep500.training.schedules import CosineSchedule, WarmUp

SPACE = {"lr": loguniform(1e-4, 1e-1), "momentum": uniform(0.5, 1), "nesterov": choices(True, False), "weight_decay": 0}


def test_points_are_those_of_scipy_in_any_order() -> None:
    whole = qmc.Halton(3, scramble=True, seed=7).random(20)
    assert np.allclose([point(index, 3, 7) for index in reversed(range(20))], whole[::-1])
    submission = Submission("a", "MomentumOptimizer", SPACE)
    tried = [submission.settings(index, 7) for index in range(64)]
    assert all(1e-4 <= t["lr"] <= 1e-1 and 0.5 <= t["momentum"] <= 1 and t["weight_decay"] == 0 for t in tried)
    assert 28 <= sum(t["nesterov"] for t in tried) <= 36, "evenly spread"
    assert 28 <= sum(t["lr"] < 10**-2.5 for t in tried) <= 36, "in the logarithm"
    assert tried[3] == submission.settings(3, 7) != submission.settings(3, 8)


def test_lists_are_tried_in_order() -> None:
    submission = Submission("a", "AdamOptimizer", [{"lr": 0.1}, {"lr": 0.2}])
    assert submission.trials(5) == 2 and [submission.settings(9, 0, trial)["lr"] for trial in (0, 1)] == [0.1, 0.2]
    assert Submission("a", "AdamOptimizer", self_tuning=True).trials(5) == 1


@pytest.mark.backend("pytorch")
def test_what_a_trial_is_made_of() -> None:
    """The recipe's own optimizer, its arguments, its schedule and its regularisation are gone."""
    import deep500.frameworks.pytorch as d5fw

    workload = Workload("digits_lenet", 90, 1, 200, 10, ("batch_size=16",))
    values = workload.plan().values
    values.update(ema=0.9, no_decay="norms_and_biases", accumulate=2)
    submission = Submission("a", "AdamWOptimizer", {"lr": 0.01, "horizon": 0.5, "warmup": 0.1, "ema": 0.99})
    submission.put_into(values, submission.settings(0, 0), workload.steps, None)
    assert values["optimizer"] is d5fw.AdamWOptimizer and values["optimizer_kwargs"] == {"lr": 0.01}
    assert (values["ema"], values["no_decay"], values["accumulate"], values["batch_size"]) == (0.99, None, 1, 16)
    assert values["schedule"] == WarmUp(10, CosineSchedule(100, unit="step"))
    constant = Submission("a", "AdamWOptimizer", {"lr": 0.01, "warmup": 0}, schedule="constant")
    constant.put_into(values, constant.settings(0, 0), 200, None)
    assert values["schedule"] is None and values["ema"] is None
    mine = Submission("a", d5fw.AdamOptimizer, {"lr": 1}, schedule=lambda steps, settings: CosineSchedule(steps))
    mine.put_into(values, mine.settings(0, 0), 7, None)
    assert values["schedule"] == CosineSchedule(7) and values["optimizer"] is d5fw.AdamOptimizer


@pytest.mark.parametrize(
    ("make", "says"),
    [
        (lambda: Submission("a/b", "AdamOptimizer", {"lr": 1}), "got submission 'a/b'"),
        (lambda: Submission("", "AdamOptimizer", {"lr": 1}), "got submission ''"),
        (lambda: Submission("a", "AdamOptimizer"), "empty space"),
        (lambda: Submission("a", "AdamOptimizer", []), "empty space"),
        (lambda: Submission("a", "AdamOptimizer", {"lr": 1, "model": "mlp"}), "belongs to the workload"),
        (lambda: Submission("a", "AdamOptimizer", [{"dataset_kwargs": {}}]), "belongs to the workload"),
        (lambda: Submission("a", "AdamOptimizer", {"lr": 1}, schedule="linear"), "got schedule 'linear'"),
        (choices, "choices without a value"),
        (lambda: uniform(2, 1), "exchange its ends"),
        (lambda: loguniform(0, 1), "begin above 0"),
        (lambda: uniform(0, float("inf")), "finite range"),
        (lambda: find_submissions(["adam", "adam"]), "got two submissions 'adam'"),
        (lambda: find_submissions(["adam"]), "got 1 submissions"),
        (lambda: find_submissions(["adan", "adam"]), "did you mean 'adam'"),
        (lambda: find_submissions(["nowhere.py:A", "adam"]), r"expected the file nowhere\.py"),
        (lambda: find_submissions(["math:pi", "adam"]), "got 'math:pi', float"),
    ],
)
def test_bad_submissions(make, says) -> None:
    with pytest.raises(RecipeError, match=says) as error:
        make()
    assert "\n" not in str(error.value)


def test_several_of_a_file(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("mine.py").write_text(
        "from deep500.race.submissions import *\n"
        "ONE = Submission('one', 'AdamOptimizer', {'lr': loguniform(1e-3, 1e-1)})\n"
        "ALL = [ONE, Submission('adam', 'AdamOptimizer', {'lr': 1.0})]\n"
    )
    assert [s.name for s in find_submissions(["mine.py:ALL", "nesterov"])] == ["one", "adam", "nesterov"]
    with pytest.raises(RecipeError, match="two submissions 'adam'"):
        find_submissions(["mine.py:ALL", "adam"])
    assert all(name == submission.name for name, submission in BUILT_IN.items())
