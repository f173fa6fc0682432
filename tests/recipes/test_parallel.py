"""The key ``parallel``: a run on several ranks that share the network out, its plan among the results, going on."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from deep500.distributed import schemes
from deep500.errors import RecipeError
from deep500.recipe.parallel import PARALLEL_PLAN_FILE
from deep500.results.verify import verify
from deep500.training import optimizers
from deep500.transformations.parallel.plan_file import load_parallel_plan
from tests.recipes.test_regroup import assert_same, broken, train, world_of_thread

pytestmark = pytest.mark.backend("reference")
RULE: dict[str, Any] = {"optimizer": optimizers.AdamOptimizer, "optimizer_kwargs": {"lr": 0.01}}
PINS = {"fc1": "n", "fc2": "k"}

__all__ = ["world_of_thread"]  # a fixture of every test here


def test_a_recipe_divides_its_network_keeps_the_plan_and_goes_on_by_it(tmp_path: Path) -> None:
    changes = {**RULE, "model": "mlp", "model_kwargs": {"hidden": (16,)}}
    serial = train(1, tmp_path / "serial", **changes)
    record = train(2, tmp_path / "divided", **changes, parallel=PINS)
    assert_same(record, serial, 2e-5)
    assert verify(record.path) == []
    assert record.manifest()["processes"]["scheme"] == "DividedNetwork"
    plan = load_parallel_plan(record.path / PARALLEL_PLAN_FILE)
    assert (plan.ranks, plan.strategies["fc1"], plan.sources["fc2.weight"]) == (2, "n", "S1")
    page = (record.path / "report.html").read_text()
    assert "How is the network divided?" in page and "How does each node lie on the ranks?" in page
    again = train(2, tmp_path / "again", **changes, parallel=str(record.path / PARALLEL_PLAN_FILE))
    assert_same(again, record, 0)
    broken(2, tmp_path / "broken", **changes, parallel=PINS)
    assert_same(train(2, tmp_path / "broken", "--resume", **changes, parallel=PINS), record, 0)


def test_the_network_is_divided_within_data_parallelism(tmp_path: Path) -> None:
    changes = {**RULE, "model": "mlp", "model_kwargs": {"hidden": (16,)}}
    mesh = {**changes, "parallel": PINS, "mesh": {"data": 2, "model": 2}}
    serial, record = train(1, tmp_path / "serial", **changes), train(4, tmp_path / "mesh", **mesh)
    assert_same(record, serial, 2e-5)
    assert record.manifest()["processes"]["scheme"] == "data: ConsistentDecentralized, model: DividedNetwork"
    plan = load_parallel_plan(record.path / PARALLEL_PLAN_FILE)
    assert (plan.ranks, plan.strategies["fc1"]) == (2, "n") and verify(record.path) == []
    broken(4, tmp_path / "broken", **mesh)
    assert_same(train(4, tmp_path / "broken", "--resume", **mesh), record, 0)


def test_ranks_compute_again_what_they_do_not_keep_to_the_same_bits(tmp_path: Path) -> None:
    changes = {**RULE, "model": "mlp", "model_kwargs": {"hidden": (32, 32, 32, 32)}}
    pins = {f"fc{i}": "m" for i in range(1, 6)}
    record = train(2, tmp_path / "all", **changes, parallel=pins)
    again = train(2, tmp_path / "again", **changes, parallel=pins, checkpointing=0.95)
    assert_same(again, record, 0)
    plan = load_parallel_plan(again.path / PARALLEL_PLAN_FILE)
    assert plan.again and plan.peaks[0] <= 0.95 * plan.peaks[1] and verify(again.path) == []
    assert plan.strategies == load_parallel_plan(record.path / PARALLEL_PLAN_FILE).strategies
    assert not (again.path / "checkpointing_plan.json").exists()
    broken(2, tmp_path / "broken", **changes, parallel=pins, checkpointing=0.95)
    resumed = train(2, tmp_path / "broken", "--resume", **changes, parallel=pins, checkpointing=0.95)
    assert_same(resumed, record, 0)


def test_one_rank_trains_as_it_is_and_what_does_not_go_together_is_refused(tmp_path: Path) -> None:
    record = train(1, tmp_path / "one", **RULE, parallel="auto", epochs=1)
    assert not (record.path / PARALLEL_PLAN_FILE).exists()
    with pytest.raises(RecipeError, match="got parallel='auto' with scheme="):
        train(1, tmp_path / "two", **RULE, parallel="auto", scheme=schemes.ModelAverage)
    with pytest.raises(RecipeError, match=r"with mesh=\{'data': 2\}; expected an axis 'model'"):
        train(2, tmp_path / "mesh", **RULE, parallel="auto", mesh={"data": 2})
    with pytest.raises(RecipeError, match=r"with memory=0\.5; expected checkpointing, as no rank works on pieces"):
        train(1, tmp_path / "memory", **RULE, parallel="auto", memory=0.5)
    with pytest.raises(RecipeError, match=r"with checkpointing='plan\.json'; expected a budget"):
        train(1, tmp_path / "file", **RULE, parallel="auto", checkpointing="plan.json")
    with pytest.raises(RecipeError, match="expected 'auto', 'measured', bytes"):
        train(1, tmp_path / "three", **RULE, parallel=0.5)
