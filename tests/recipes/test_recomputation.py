"""The key ``checkpointing``: the same training in less memory, one plan for seeds, ranks and resumed runs."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import deep500 as d5
from deep500.distributed import Threads, set_world
from deep500.errors import BudgetError, PlanError, RecipeError
from deep500.events import Event
from deep500.networks import create
from deep500.recipe import run_recipe
from deep500.recipe.recomputation import PLAN_FILE
from deep500.results import Record
from deep500.results.checkpoint import list_checkpoints, load_checkpoint
from deep500.results.recomputation import RecomputationRecord
from deep500.results.verify import verify
from deep500.transformations.recomputation import load_plan, planning
from tests.conftest import load_backend
from tests.recipes.common import quick

pytestmark = pytest.mark.slow

RESNET = {"model": "resnet", "model_kwargs": {"depth": 8}, "batch_size": 32}


def data() -> tuple[d5.Dataset, d5.Dataset]:
    """Nothing to learn, and little of it."""
    x = np.random.default_rng(0).normal(size=(160, 1, 8, 8)).astype(np.float32)
    y = np.arange(160) % 10
    return d5.NumpyDataset(x[:128], labels=y[:128]), d5.NumpyDataset(x[128:], labels=y[128:])


def run(folder: Path, *words: str, backend: str = "reference", **changes: Any) -> Record:
    recipe = quick(backend, **{**RESNET, "dataset": data, "metrics": [(d5.TestAccuracy(), None)], **changes})
    result = run_recipe(*recipe, [*words, "--out", str(folder)])
    return Record.open(Path(result.path))


def arrays(record: Record) -> dict[str, np.ndarray]:
    return load_checkpoint(list_checkpoints(record.path / "checkpoints" / "seed-0")[-1])["arrays"]


@pytest.mark.parametrize("optimizer", ["MomentumOptimizer", "AdamOptimizer"])
@pytest.mark.parametrize("backend", ["reference", "onnxruntime"])
def test_two_epochs_end_with_the_same_bits(backend: str, optimizer: str, tmp_path: Path) -> None:
    choice = {"optimizer": getattr(load_backend(backend), optimizer), "optimizer_kwargs": {"lr": 0.01}}
    free = run(tmp_path / "free", "--quiet", backend=backend, **choice)
    planned = run(tmp_path / "planned", "--quiet", "checkpointing=0.85", backend=backend, **choice)
    facts = planned.manifest()["checkpointing"]
    assert facts["regions"] > 0 and facts["predicted_peak"] <= facts["budget"] and facts["measured_peak"] is None
    plan = load_plan(planned.path / PLAN_FILE)
    assert (plan.batch, len(plan.regions), plan.backend) == (32, facts["regions"], backend)
    assert "checkpointing" not in free.manifest() and not (free.path / PLAN_FILE).exists()
    want, got = arrays(free), arrays(planned)
    assert want.keys() == got.keys() and any(name.startswith("optimizer/") for name in want)
    for name, array in want.items():
        np.testing.assert_array_equal(got[name], array, err_msg=name)
    assert planned.manifest()["division"] == "closed"
    shown = RecomputationRecord.read(planned.path)
    assert shown is not None and shown.choices[1].predicted_peak == plan.predicted_peak
    page = (planned.path / "report.html").read_text(encoding="utf-8")
    assert "When is how much memory held?" in page and "When is how much memory held?" not in (
        free.path / "report.html"
    ).read_text(encoding="utf-8")
    assert verify(planned.path) == []


@pytest.mark.any_backend
def test_a_dry_run_states_predicted_and_measured(backend_name: str, tmp_path: Path, capsys: Any) -> None:
    record = run(tmp_path, "--dry-run", "checkpointing=0.9", backend=backend_name)
    out = capsys.readouterr().out
    facts = record.manifest()["checkpointing"]
    assert f"predicted peak {facts['predicted_peak']:,} B, measured " in out
    assert "gradients and statistics" in out
    if facts["measured_peak"] is None:
        assert "measured not measured (no counter of memory on this backend and device)" in out
    else:
        assert f"measured {facts['measured_peak']:,} B" in out
        assert facts["measured_peak"] < facts["measured_peak_without"]
        if backend_name != "jax":  # XLA also reserves what its kernels need inside
            assert 0.8 * facts["predicted_peak"] < facts["measured_peak"] <= facts["predicted_peak"] * 1.05
    assert (backend_name in ("reference", "pytorch", "jax")) == (facts["measured_peak"] is not None)


class _Interrupt(Event):
    def after_epoch(self, run: Any) -> None:
        raise KeyboardInterrupt


def test_a_resumed_run_keeps_the_plan_that_it_began_with(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = run(tmp_path / "whole", "--quiet", checkpointing=0.85)
    with pytest.raises(KeyboardInterrupt):
        run(tmp_path / "broken", "--quiet", checkpointing=0.85, events=[_Interrupt])
    (path,) = (tmp_path / "broken").rglob(PLAN_FILE)
    before = path.read_bytes()

    def refuse(*_: Any, **__: Any) -> None:
        raise AssertionError("planned again")

    monkeypatch.setattr(planning, "plan_checkpointing", refuse)
    monkeypatch.setattr(_Interrupt, "after_epoch", lambda self, run: None)
    resumed = run(tmp_path / "broken", "--quiet", "--resume", checkpointing=0.85, events=[_Interrupt])
    assert resumed.path == path.parent and path.read_bytes() == before and resumed.manifest()["resumed"]
    want, got = arrays(whole), arrays(resumed)
    for name, array in want.items():
        np.testing.assert_array_equal(got[name], array, err_msg=name)


def test_ranks_share_one_plan(tmp_path: Path) -> None:
    recipe = quick("reference", **RESNET, dataset=data, metrics=[(d5.TestAccuracy(), None)], checkpointing=0.9)

    def work(comm: Any) -> str:
        set_world(comm)
        try:
            return str(run_recipe(*recipe, ["--quiet", "--out", str(tmp_path)]).path)
        finally:
            set_world(None)

    record = Record.open(Path(Threads(2).run(work)[0]))
    assert load_plan(record.path / PLAN_FILE).batch == 16
    uneven = quick("reference", **{**RESNET, "batch_size": 31}, dataset=data, metrics=[], checkpointing=0.85)

    def fail(comm: Any) -> str:
        set_world(comm)
        try:
            with pytest.raises(RecipeError, match=r"batches of \[15, 16\] samples on 2 rank"):
                run_recipe(*uneven, ["--quiet", "--out", str(tmp_path)])
            return "refused"
        finally:
            set_world(None)

    assert Threads(2).run(fail) == ["refused"] * 2


def test_plans_and_plan_files(tmp_path: Path) -> None:
    network = d5.add_loss(create("resnet", depth=8, shape=(1, 8, 8), classes=10))
    record = run(tmp_path / "first", "--quiet", "checkpointing=0.85")
    path = record.path / PLAN_FILE
    again = run(tmp_path / "second", "--quiet", f"checkpointing={path}", checkpointing=0.5)
    assert json.loads((again.path / PLAN_FILE).read_text()) == json.loads(path.read_text())
    third = run(tmp_path / "third", "--quiet", checkpointing=load_plan(path))
    assert load_plan(third.path / PLAN_FILE) == load_plan(path)
    assert not (run(tmp_path / "none", "--quiet", "checkpointing=None", checkpointing=0.85).path / PLAN_FILE).exists()
    other = d5.plan_checkpointing(network, 1.0, batch=32)
    with pytest.raises(PlanError, match=r"checkpointing: got network .* plan again for this network"):
        run(tmp_path / "other", "--quiet", checkpointing=other, model="mlp", model_kwargs={})
    with pytest.raises(PlanError, match="checkpointing: got batch size 16; expected 32"):
        run(tmp_path / "batch", "--quiet", checkpointing=load_plan(path), batch_size=16)
    with pytest.raises(PlanError, match=r"nowhere\.json: got no such file"):
        run(tmp_path / "absent", "--quiet", checkpointing="nowhere.json")


@pytest.mark.parametrize("value", [0, 0.0, -0.5, 1.5, -7, True, "", [0.5]])
def test_values_that_are_none(value: Any, tmp_path: Path) -> None:
    with pytest.raises(RecipeError, match=r"checkpointing: got .*; expected a share of the peak"):
        run(tmp_path, "--quiet", checkpointing=value)


def test_a_budget_that_cannot_be_met_names_the_smallest(tmp_path: Path) -> None:
    with pytest.raises(BudgetError, match="checkpointing: got a budget of") as caught:
        run(tmp_path, "--quiet", checkpointing=0.01)
    smallest = caught.value.smallest
    assert smallest is not None and smallest > 0
    facts = run(tmp_path, "--quiet", f"checkpointing={smallest}").manifest()["checkpointing"]
    assert facts["predicted_peak"] == smallest
    with pytest.raises(RecipeError, match=r"drop_last_batch=True"):
        run(tmp_path, "--quiet", checkpointing=0.85, train_sampler=d5.OrderedSampler, batch_size=30)
