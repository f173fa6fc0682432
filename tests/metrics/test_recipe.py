"""Metrics in a recipe: their values, units and reasons reach the record, the summary and the report."""

from __future__ import annotations

import html
import json
import re
from pathlib import Path

import pytest

import deep500 as d5
from deep500.measure.bounds import Roofs

METRICS = [
    d5.TestAccuracy(),
    d5.metrics.TopKAccuracy(3),
    d5.metrics.TimeToAccuracy(100.0),
    d5.metrics.WallTime(),
    d5.metrics.TimingBreakdown(),
    d5.metrics.IOShare(),
    d5.metrics.Flops("step"),
    d5.metrics.RoofShare(Roofs(1e15, 1e12)),
    d5.metrics.EnergyUse([]),
    d5.metrics.Carbon(400, "a table", []),
    d5.metrics.Cost({"cpu": 0.05}),
    d5.metrics.GPUUtilisation(),
    d5.metrics.CommunicationVolume(),
    d5.metrics.VarianceOverSeeds(d5.metrics.TrainingLoss()),
]
NOT_MEASURED = {
    "energy": "no counter",
    "carbon": "no counter",
    "gpu_utilisation": "the run used cpu:0",
    "communication_volume": "the run was not distributed",
}


@pytest.fixture(scope="module")
def result(tmp_path_factory):
    import deep500.frameworks.reference as d5fw

    fixed = {"model": "mlp", "model_kwargs": {"hidden": (16,)}, "dataset": "digits", "epochs": 1}
    mutable = {
        "batch_size": 64,
        "executor": d5fw.from_model,
        "optimizer": d5fw.GradientDescent,
        "optimizer_kwargs": {"lr": 0.1},
    }
    words = ["--repeat", "2", "--quiet", "--out", str(tmp_path_factory.mktemp("runs"))]
    return d5.run_recipe(fixed, mutable, METRICS, words)


def test_every_metric_has_a_value_or_a_reason(result):
    assert [outcome.name for outcome in result.metrics] == [metric.name for metric in METRICS]
    for outcome in result.metrics:
        if outcome.name in NOT_MEASURED:
            assert outcome.value is None and outcome.remark == NOT_MEASURED[outcome.name]
        elif outcome.name == "time_to_accuracy_100":
            assert (
                outcome.value is None
                and outcome.remark.startswith("0 of 2 runs reached it")
                and "best of 1" in outcome.remark
            )
        else:
            assert outcome.value is not None and outcome.value > 0, outcome
    losses = [value for value in result["variance_of_train_loss"].values if value is not None]
    assert result["variance_of_train_loss"].value == pytest.approx((losses[0] - losses[1]) ** 2 / 2)


def test_the_numbers_behind_the_values_are_kept(result):
    seeds = json.loads((Path(result.path) / "seeds.json").read_text())
    for seed in seeds.values():
        assert seed["notes"]["energy"]["reason"] == "no counter"
        assert {"io", "forward_backward", "update", "validation", "other"} <= set(
            seed["notes"]["timing_breakdown"]["details"]
        )
    parts = result["timing_breakdown"].details
    for seed, total in zip(parts, result["timing_breakdown"].values, strict=True):
        assert sum(seed.values()) == pytest.approx(total, rel=1e-9)
    assert result["step_flops"].details[0]["Gemm"] > 0


def test_the_report_shows_them_with_units_and_reasons(result):
    page = html.unescape(re.sub(r"<[^>]+>", " ", Path(result.report).read_text(encoding="utf-8")))
    page = re.sub(r"\s+", " ", page)
    for reason in NOT_MEASURED.values():
        assert f"not measured {reason}" in page
    assert re.search(r"step_flops \S+ FLOP/sample", page) and re.search(r"top_3_accuracy \S+ %", page)
    assert "0 of 2 runs reached it" in page and "forward backward" in page


def test_a_resumed_record_gives_the_same_notes(result):
    from deep500.results.record import Record

    record = Record.open(Path(result.path))
    assert record.seed_notes(0)["carbon"]["details"]["origin"] == "a table" and record.seed_notes(99) == {}
