"""Every metric of time in every backend, and whoever waits for a device that works ahead: no alarm, no lie passes."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

import deep500 as d5
from deep500 import metrics as m
from deep500.recipe import run_recipe
from deep500.registry import load_backend
from deep500.results.relations import findings, unjudged
from deep500.results.rules import FLAGGED, RunView, check
from deep500.results.verify import examine, seal
from deep500.training.listeners import ProgressBar
from tests.recipes.common import quick
from tests.results.broken_folders import Folder

KINDS = (m.TimingBreakdown, m.IOShare, m.WallTime, m.TrainingTime, m.Throughput, m.FlopRate, m.EnergyUse)
TIMES = [
    *((kind(), None) for kind in (*KINDS, m.CPUUtilisation, m.CommunicationShare)),
    *((m.StepLatency(q), None) for q in (0.5, 0.9)),
    (m.FrameworkOverhead(steps=2), None),
    (m.Cost({"cpu": 0.05, "gpu": 0.05}), None),
    (m.TimeToQuality(m.TestAccuracy(), 99.9, every=20), None),
    (m.OfflineThroughput(16, 64), None),
]
RIGHTLY = "R11"
"""A rate without the machine's roof, which takes seconds to measure."""


def run(out, backend="reference", **changes):
    """The folder of a run of 88 steps."""
    changes = {"metrics": TIMES, "batch_size": 32, "epochs": 2, **changes}
    return Path(run_recipe(*quick(backend, **changes), argv=["--quiet", "--out", str(out)]).path)


def alarms(path):
    """All that relations, files and rules find."""
    flagged = {name: found.reason for name, found in check(path).items() if found.status in FLAGGED}
    return [*examine(path).problems, *(f"{name}: {text}" for name, text in flagged.items() if name != RIGHTLY)]


def scale(folder, name, factor):
    """Another value of a metric; nothing else knows of it."""
    folder.edit("seeds.json", lambda seeds: seeds["0"]["values"].update({name: factor * seeds["0"]["values"][name]}))


def shortened(block, _):
    """Steps of a tenth of their time."""
    block["duration_ns"] //= 10
    return block


@pytest.fixture
def works_ahead(monkeypatch):
    """A device that has finished a step some time after it was asked for it, as GPUs and JAX have."""
    executor = load_backend("reference").Executor
    asked = executor.inference_and_backprop
    due = [0.0]

    def ask(self, *arguments, **words):
        due[0] = max(due[0], time.perf_counter()) + 0.004
        return asked(self, *arguments, **words)

    def wait(self):
        time.sleep(max(0.0, due[0] - time.perf_counter()))

    monkeypatch.setattr(executor, "inference_and_backprop", ask)
    monkeypatch.setattr(executor, "synchronize", wait)


def test_metrics_of_time_agree_with_the_recorded_steps(backend_name, tmp_path):
    path = run(tmp_path, backend_name)
    assert alarms(path) == []
    folder = Folder(path, tmp_path / "copy")
    for name, factor in (("step_latency_p50", 10.0), ("step_latency_p90", 10.0), ("step_latency_p50", 1e-3)):
        if RunView(path).seeds["0"]["values"][name] is not None:  # a series that drifts has none
            scale(folder, name, factor)
            assert any(name in problem for problem in findings(RunView(folder.path)))
            scale(folder, name, 1 / factor)
    folder.edit_samples(shortened, ("step",))
    assert check(folder.path)["F5"].status in FLAGGED


class Judges(d5.Event):
    """Judges when it likes, not by the listener for that."""

    def after_batch(self, run):
        run.trainer.check()


class Reads(d5.Event):
    """Waits as any listener does that reads a loss."""

    def after_batch(self, run):
        run.executor.synchronize()


WAITING = {
    "a latency": {"metrics": [(m.StepLatency(), None)]},
    "parts": {"metrics": [(m.TimingBreakdown(), None)]},
    "a bar": {"events": [ProgressBar(interval=0.0, force=True)]},
    "a listener": {"events": [Reads]},
    "checks of its own": {"events": [Judges], "validation_split": 0.1},
    "checks": {"metrics": [(m.TimeToQuality(m.TestAccuracy(), 99.9, every=1), None)], "validation_split": 0.1},
}


@pytest.mark.parametrize("kind", WAITING)
def test_a_step_is_its_work_whoever_waits_for_it(kind, works_ahead, tmp_path):
    path = run(tmp_path, batch_size=64, epochs=1, **WAITING[kind])
    assert alarms(path) == []


def test_epochs_of_one_step_are_no_parts_of_a_whole(tmp_path):
    assert alarms(run(tmp_path, batch_size=1400, epochs=7, metrics=[(m.TestAccuracy(), None)])) == []


def test_a_folder_of_an_older_format_is_not_said_to_be_altered(tmp_path):
    folder = Folder(run(tmp_path, metrics=[(m.StepLatency(), None)]), tmp_path / "copy")

    def older(lines):
        for line in lines:
            del line["clock"]["process"], line["clock"]["listening_seconds"], line["load"]["resident_bytes"]

    def without_later_facts(manifest):
        del manifest["format"], manifest["load"]["resident_bytes"]
        for half in manifest["data"].values():
            del half["label_counts"]

    folder.edit_lines("metrics.jsonl", older)
    assert any("KeyError: 'process'" in problem for problem in findings(RunView(folder.path)))
    assert not unjudged(RunView(folder.path))
    folder.edit("manifest.json", without_later_facts)
    folder.edit("summary.json", lambda summary: summary["load"].pop("resident_bytes") and None)
    folder.edit("network.json", lambda network: [node.pop("operations") for node in network["nodes"]] and None)
    seal(folder.path)
    examined = examine(folder.path)
    assert examined.problems == ()
    remarks = str(examined)
    assert "latencies of steps" in remarks and "older format" in remarks
    assert "operations of a sample" in remarks
