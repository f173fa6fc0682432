"""Metrics on statistics made up for the purpose, whose answers are known."""

from __future__ import annotations

import copy
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

import deep500.metrics as d5m
from deep500.errors import InputError
from deep500.metrics import (
    Metric,
    ObservingMetric,
    ProbingMetric,
    TestAccuracy,
    TestLoss,
    TestMetric,
    Throughput,
    TimeToAccuracy,
    TimeToQuality,
    TrainingAccuracy,
    TrainingLoss,
    TrainingTime,
)
from deep500.training.statistics import EpochRecord, TrainingStatistics

CHECKS = [  # seconds are of the epoch's training; the one before lasted 4
    {"step": 5, "seconds": 0.5, "took": 9.0, "test_accuracy": 55.0, "test_loss": 0.9},
    {"step": 7, "seconds": 0.75, "took": 9.0, "test_accuracy": 65.0, "test_loss": 0.8},
    {"step": 10, "seconds": 1.5, "took": 9.0, "test_accuracy": 70.0, "test_loss": 0.7},
]
STATISTICS = TrainingStatistics(
    [
        EpochRecord(0, 2.0, 30.0, 100, 4.0, 1.5, 40.0, 20, 1.0),
        EpochRecord(1, 0.5, 80.0, 100, 2.0, 0.4, 90.0, 20, 1.0, qualities={"test_word_error_rate": 5.0}, checks=CHECKS),
        EpochRecord(2, 0.7, 70.0, 50, 2.0, 0.6, 85.0, 20, 1.0, qualities={"test_word_error_rate": 7.0}),
    ]
)
UNVALIDATED = TrainingStatistics([EpochRecord(0, 2.0, None, 100, 4.0)])
METRICS = [  # metric, name, unit, direction, kind, value, value without validation
    (TestAccuracy(), "test_accuracy", "%", "higher", "quality", 85.0, None),
    (TestAccuracy(max_acc=True), "best_test_accuracy", "%", "higher", "quality", 90.0, None),
    (TestAccuracy(True), "best_test_accuracy", "%", "higher", "quality", 90.0, None),
    (TrainingAccuracy(), "train_accuracy", "%", "higher", "quality", 70.0, None),
    (TrainingAccuracy(max_acc=True), "best_train_accuracy", "%", "higher", "quality", 80.0, None),
    (TestLoss(), "test_loss", "", "lower", "quality", 0.6, None),
    (TestLoss(best=True), "best_test_loss", "", "lower", "quality", 0.4, None),
    (TrainingLoss(), "train_loss", "", "lower", "quality", 0.7, 2.0),
    (d5m.TestQuality("word_error_rate", "%", "lower"), "test_word_error_rate", "%", "lower", "quality", 7.0, None),
    (
        d5m.TestQuality("word_error_rate", "%", "lower", best=True),
        "best_test_word_error_rate",
        "%",
        "lower",
        "quality",
        5.0,
        None,
    ),
    (TrainingTime(), "training_time", "s", "lower", "cost", 8.0, 4.0),
    (Throughput(), "throughput", "samples/s", "higher", "rate", 250 / 8, 25.0),
    (TimeToQuality(TestAccuracy(), 40), "time_to_accuracy_40", "s", "lower", "cost", 4.0, None),
    (TimeToQuality(TestLoss(), 0.5), "time_to_loss_0.5", "s", "lower", "cost", 6.0, None),
    (TimeToQuality(TestLoss(), 0.1, every=5), "time_to_loss_0.1_every_5", "s", "lower", "cost", None, None),
    (TimeToQuality(TestAccuracy(), 60, every=5), "time_to_accuracy_60_every_5", "s", "lower", "cost", 5.5, None),
    (TimeToQuality(TestAccuracy(), 60, every=7), "time_to_accuracy_60_every_7", "s", "lower", "cost", 4.75, None),
    (TimeToAccuracy(40), "time_to_accuracy_40", "s", "lower", "cost", 5.0, None),
    (TimeToAccuracy(89.5), "time_to_accuracy_89.5", "s", "lower", "cost", 8.0, None),
    (TimeToAccuracy(90.5), "time_to_accuracy_90.5", "s", "lower", "cost", None, None),
]


@pytest.mark.parametrize(("metric", "name", "unit", "direction", "kind", "value", "unvalidated"), METRICS)
def test_metric(metric, name, unit, direction, kind, value, unvalidated):
    assert (metric.name, metric.unit, metric.direction, metric.kind) == (name, unit, direction, kind)
    assert metric.measure(STATISTICS) == value
    assert metric.measure(UNVALIDATED) == unvalidated
    assert metric.measure(TrainingStatistics()) is None


BASES = (Metric, ObservingMetric, ProbingMetric)
WATCHING = [  # (metric, name, unit, direction, kind); their values have files of their own
    (d5m.WallTime(), "wall_time", "s", "lower", "cost"),
    (d5m.TimingBreakdown(), "timing_breakdown", "s", "lower", "cost"),
    (d5m.IOShare(), "io_share", "%", "lower", "ratio"),
    (d5m.CommunicationShare(), "communication_share", "%", "lower", "ratio"),
    (d5m.StepLatency(0.99), "step_latency_p99", "s", "lower", "cost"),
    (d5m.InferenceLatency(), "single_stream_p90", "s", "lower", "cost"),
    (d5m.GenerationLatency(), "first_token_p90", "s", "lower", "cost"),
    (d5m.GenerationRate(), "generation_rate_8", "tokens/s", "higher", "rate"),
    (d5m.GenerationUnderLoad(), "answer_under_load_p90", "s", "lower", "cost"),
    (d5m.DatasetLatency(0.99), "dataset_latency_p99", "s", "lower", "cost"),
    (d5m.FrameworkOverhead(), "framework_overhead", "%", "lower", "ratio"),
    (d5m.LoaderThroughput(), "loader_throughput", "samples/s", "higher", "rate"),
    (d5m.OfflineThroughput(), "offline_throughput", "samples/s", "higher", "rate"),
    (d5m.ServerRate(0.1), "server_rate_0.1s", "queries/s", "higher", "rate"),
    (d5m.PeakMemory(), "peak_memory_host", "B", "lower", "cost"),
    (d5m.CPUUtilisation(), "cpu_utilisation", "%", "higher", "ratio"),
    (d5m.GPUUtilisation(), "gpu_utilisation", "%", "higher", "ratio"),
    (d5m.EnergyUse(), "energy", "J", "lower", "cost"),
    (d5m.Carbon(400, "made up"), "carbon", "g", "lower", "cost"),
    (d5m.Cost({"cpu": 1.0}), "cost", "USD", "lower", "cost"),
    (d5m.Flops("step"), "step_flops", "FLOP/sample", "lower", "count"),
    (d5m.FlopRate(), "flop_rate", "FLOP/s", "higher", "rate"),
    (d5m.RoofShare(), "roof_share", "%", "higher", "ratio"),
    (d5m.CommunicationVolume(), "communication_volume", "B", "lower", "count"),
    (d5m.Messages(), "messages", "", "lower", "count"),
    (d5m.LoadImbalance(), "load_imbalance", "%", "lower", "ratio"),
    (d5m.WaitShare(), "wait_share", "%", "lower", "ratio"),
    (d5m.ScalingEfficiency(1.0), "strong_scaling_efficiency", "%", "higher", "ratio"),
    (d5m.TopKAccuracy(3), "top_3_accuracy", "%", "higher", "quality"),
    (d5m.VarianceOverSeeds(TestLoss()), "variance_of_test_loss", "", "lower", "quality"),
    (d5m.OutputError(), "output_relative_l2_error", "", "lower", "quality"),
    (d5m.GradientError(), "gradient_relative_l2_error", "", "lower", "quality"),
    (d5m.DifferenceMap("x.png"), "difference_map", "", "lower", "quality"),
    (d5m.BitwiseEqual("0" * 64), "bitwise_equal", "", "higher", "quality"),
    (d5m.DatasetBias(10), "dataset_bias_p", "", "higher", "quality"),
    (d5m.NgramBits(4), "ngram_bits_4", "bits", "lower", "quality"),
    (d5m.PackedBits(), "packed_bits", "bits", "lower", "quality"),
]


@pytest.mark.parametrize(("metric", "name", "unit", "direction", "kind"), WATCHING, ids=str)
def test_declared(metric, name, unit, direction, kind):
    assert (metric.name, metric.unit, metric.direction, metric.kind) == (name, unit, direction, kind)
    assert copy.deepcopy(metric).name == name, "a recipe copies its metrics, one per seed"
    assert metric.measure(TrainingStatistics()) is None, "without a run nothing is measured"


def test_every_metric_has_a_row():
    named = {c for name in dir(d5m) if isinstance(c := getattr(d5m, name), type) and issubclass(c, Metric)}
    assert named - set(BASES) == {type(row[0]) for row in [*METRICS, *WATCHING]}


@pytest.mark.parametrize("metric", [row[0] for row in METRICS])
@given(a=st.floats(allow_nan=False), b=st.floats(allow_nan=False))
def test_better_and_passes_agree_with_the_direction(metric, a, b):
    assert metric.better(a, b) == (a > b if metric.direction == "higher" else a < b)
    assert metric.passes(a, b) == (a >= b if metric.direction == "higher" else a <= b)


@pytest.mark.parametrize("missing", [None, math.nan])
@pytest.mark.parametrize("metric", [row[0] for row in METRICS])
def test_what_was_not_measured_neither_wins_nor_passes(metric, missing):
    assert metric.better(1.0, missing) and not metric.better(missing, 1.0) and not metric.better(missing, missing)
    assert not metric.passes(missing, 1.0)


def test_time_to_accuracy_refuses_a_target_that_is_no_percentage():
    with pytest.raises(InputError, match="percent"):
        TimeToAccuracy(930)


def test_the_historical_name_is_not_collected():
    assert TestMetric is Metric and TestAccuracy.__test__ is False
    with pytest.raises(TypeError, match="abstract"):
        Metric()
