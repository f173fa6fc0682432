"""Drawn recipes: a few in every run, and the judge finds what is planted."""

from __future__ import annotations

import itertools
import random
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import deep500 as d5
from deep500.training.data.samplers import ShuffleSampler
from deep500.training.trainer import Trainer
from tests.conftest import load_backend
from tests.fuzz.recipe_runs import Drawn, Outcome
from tests.fuzz.recipes import RELATIONS, Judge, difference, draw

pytestmark = pytest.mark.slow
ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.parametrize("number", range(16))
@pytest.mark.parametrize("backend", ["reference", "pytorch"])
def test_a_drawn_recipe(number: int, backend: str) -> None:
    load_backend(backend)
    judge = Judge(at_most=2)
    finding = judge.judge(draw(number, 0, [backend]), random.Random(number))
    assert finding is None, judge.reduced(finding)


@pytest.mark.long
def test_a_thousand_drawn_recipes() -> None:
    command = [sys.executable, "-m", "tests.fuzz.recipes", "--count", "1000", "--seed", "1"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout[-6000:] + done.stderr[-2000:]


def _forgetful(load: Callable[..., None]) -> Callable[..., None]:
    def loads(trainer: Any, state: Any) -> None:
        load(trainer, {**state, "values": {**state["values"], "step": 0}})

    return loads


def test_a_resumption_that_forgets_its_step_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    drawn = Drawn(keys={"schedule": d5.schedules.CosineSchedule(total=6, unit="step"), "no_decay": "norms_and_biases"})
    judge = Judge(["stopped and resumed"])
    assert judge.judge(drawn, random.Random(0)) is None and judge.compared["stopped and resumed"] == 1
    monkeypatch.setattr(Trainer, "load_state", _forgetful(Trainer.load_state))
    finding = judge.judge(drawn, random.Random(0))
    assert finding is not None and "off" in finding.what
    assert list(judge.reduced(finding).drawn.keys) == ["schedule"]


def test_an_order_that_drifts_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each run takes its samples in another order, as one that depends on the time would."""
    judge = Judge(["again"])
    order, run, runs = ShuffleSampler.order, Trainer.run, itertools.count()

    def counted(trainer: Trainer, *arguments: Any) -> Any:
        number = next(runs)
        monkeypatch.setattr(ShuffleSampler, "order", lambda sampler, epoch: order(sampler, epoch + 10 * number))
        return run(trainer, *arguments)

    monkeypatch.setattr(Trainer, "run", counted)
    finding = judge.judge(Drawn(), random.Random(0))
    assert finding is not None and finding.relation == "again"


def test_difference() -> None:
    one, other = (
        Outcome({"network/w": np.array([1.0, 2.0])}, [0.5]),
        Outcome({"network/w": np.array([1.0, 2.1])}, [0.5]),
    )
    assert difference(one, one, True, 0) == ""
    assert difference(one, other, False, 0.1) == "" and "0.05 off" in difference(one, other, False, 0.01)
    assert "absent" in difference(one, Outcome({}, [0.5]), False, 1)
    assert "losses" in difference(one, Outcome(one.arrays, [0.6]), False, 0.1)
    assert difference(one, Outcome(one.arrays, [np.nextafter(0.5, 1)]), True, 0.1) != ""


def test_every_relation_holds_for_some_drawn_recipe() -> None:
    drawn = [draw(number, 0, ["reference", "pytorch"]) for number in range(60)]
    assert not [name for name, relation in RELATIONS.items() if not any(map(relation.holds, drawn))]
