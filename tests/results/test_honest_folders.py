"""Forty honest folders: runs of many kinds, and claims that are right. No rule and no check raises an alarm."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import deep500 as d5
from deep500 import metrics as m
from deep500.recipe import run_recipe
from deep500.report.command import examine_with_page
from deep500.report.page import headline_line
from deep500.results import recomputed
from deep500.results.files import read_json
from deep500.results.rules import FLAGGED, RunView, check
from deep500.tasks.tokens import Characters
from deep500.training.data.text import Passages
from deep500.training.listeners import StopAtAccuracy
from tests.recipes.common import quick
from tests.results.broken_folders import BASE, ROWS, Folder, resealed

QUALITY = [(m.TestAccuracy(), 20.0)]


def run(out, *argv, **changes):
    """The folder of a run; the recipe's own metrics unless others are given."""
    recipe = quick("reference", **changes)
    return Path(run_recipe(*recipe, argv=[*argv, "--quiet", "--out", str(out)]).path)


def base_run(out):
    """A run to which claims are added."""
    parts = [(metric, None) for metric in (m.Throughput(), m.TimingBreakdown(), m.RoofShare())]
    return run(out, "--repeat", "2", metrics=[*QUALITY, *parts])


@pytest.fixture(scope="module")
def base(tmp_path_factory):
    """The run that others are copies of."""
    return base_run(tmp_path_factory.mktemp("base"))


def problems(path):
    """What rules and checks find."""
    flagged = {name: found.reason for name, found in check(path).items() if found.status in FLAGGED}
    return flagged, list(examine_with_page(path).problems)


def resumed(out):
    """A run that was stopped after its first epoch and went on."""

    class Stop(d5.Event):
        """Ctrl-C once."""

        armed = True

        def after_epoch(self, run):
            if Stop.armed:
                Stop.armed = False
                raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run(out, events=[Stop])
    return run(out, "--resume", events=[Stop])


def second(out):
    """The second of two runs of a recipe."""
    run(out)
    return run(out, "batch_size=64")


def prose():
    """Passages of a text: a step has more tokens than its batch has passages."""
    text = "a rank has a share of a batch, and no batch is its own. " * 4
    return tuple(Passages(part, Characters.of(text), 8) for part in (text, text[:64]))


def of_tokens(out):
    """A language model, whose samples are tokens."""
    model = {"model": "gru_language_model", "model_kwargs": {"width": 5, "embedding": 3}, "task": "language_modelling"}
    bits = [(m.TestQuality("bits_per_character", "bits", direction="lower"), None)]
    return run(out, dataset=prose, batch_size=8, augmentation=None, metrics=bits, **model)


def renamed(out):
    """A run whose folder has another name by now."""
    path = run(out)
    return path.rename(path.with_name("first"))


# fmt: off
RUNS = {
    "as it is": run,
    "dry run": lambda out: run(out, "--dry-run"),
    "dry run of more epochs": lambda out: run(out, "--dry-run", "epochs=3", "--open"),
    "tokens": of_tokens,
    "six seeds": lambda out: run(out, "--repeat", "6", epochs=1),
    "seeds until tight": lambda out: run(out, "--repeat", "auto", "--budget", "0.2", epochs=1),
    "another seed": lambda out: run(out, "--seed", "7"),
    "open division": lambda out: run(out, "epochs=1", "--open"),
    "stand-in data": lambda out: run(out, "--dry-run", dataset="mnist", augmentation=None),
    "smaller batches": lambda out: run(out, "batch_size=50"),
    "one batch": lambda out: run(out, "batch_size=1438", metrics=[(m.TestAccuracy(), None)]),
    "target missed": lambda out: run(out, metrics=[(m.TestAccuracy(), 100.0)]),
    "no targets": lambda out: run(out, metrics=[(m.TestAccuracy(), None)]),
    "time to an accuracy": lambda out: run(out, "--repeat", "3", metrics=[(m.TimeToAccuracy(30), None)]),
    "never that accurate": lambda out: run(out, "--repeat", "2", metrics=[(m.TimeToAccuracy(100), None)]),
    "variance": lambda out: run(out, "--repeat", "2", metrics=[(m.VarianceOverSeeds(m.TestAccuracy()), None)]),
    "losses": lambda out: run(out, metrics=[(m.TestLoss(), 9.0), (m.TrainingLoss(), 9.0), (m.TrainingAccuracy(), 1)]),
    "latency and top five": lambda out: run(out, metrics=[(m.StepLatency(0.5), None), (m.TopKAccuracy(5), 10.0)]),
    "operations": lambda out: run(out, metrics=[*QUALITY, (m.RoofShare(), None)]),
    "stopped by a rule of the recipe": lambda out: run(
        out, validation_split=0.2, epochs=9, events=[StopAtAccuracy(20.0)]
    ),
    "resumed": resumed,
    "after another": second,
    "renamed": renamed,
}
OWN_DEVICE = {"year": 2025, "peak_flops": 2e12}
COMPARED = {"type": "comparison", "p": 0.001, "corrected": True, "margin": 0.02}
CLAIMS = {
    "speed-up over the best serial run": {"type": "speedup", "value": 4.0, "seconds": 2.0, "base": BASE},
    "speed-up over something said": {
        "type": "speedup", "value": 2.0, "base": {"kind": "other", "seconds": 1.0, "text": "version 1"}},
    "speed-up of four processes": {"type": "speedup", "value": 3.6, "processes": 4, "base": BASE},
    "faster": {**COMPARED, "verdict": "faster", "effect": [0.8, 0.9]},
    "slower": {**COMPARED, "verdict": "slower", "effect": [1.2, 1.4]},
    "equivalent": {**COMPARED, "verdict": "equivalent", "p": 0.6, "effect": [0.99, 1.01]},
    "unresolved": {**COMPARED, "verdict": "unresolved", "p": 0.3, "effect": [0.9, 1.1]},
    "costs": {"type": "aggregate", "kind": "cost", "mean": "arithmetic"},
    "rates": {"type": "aggregate", "kind": "rate", "mean": "harmonic"},
    "ratios": {"type": "aggregate", "kind": "ratio", "mean": "geometric", "note": "the costs are not known"},
    "rate below a peak": {"type": "rate", "flops": 1e9, "counted_flops": 2e9, "seconds": 2.0, "bound": 4e9,
                          "dtype": "float32", "peak_dtype": "float32"},
    "strong scaling": {"type": "scaling", "rows": [ROWS[0], {**ROWS[1], "seconds": 2.2}], "bounds": ["ideal"],
                       "labels": ["strong"]},
    "weak scaling": {"type": "scaling", "rows": [ROWS[0], {**ROWS[1], "seconds": 8.4, "global_batch": 256}],
                     "bounds": ["ideal"], "labels": ["weak"]},
    "more than linear, and why": {"type": "scaling", "rows": ROWS, "bounds": ["ideal"], "labels": ["strong"],
                                  "note": "a rank's share fits into its cache"},
    "bars": {"type": "plot", "kind": "bar", "x": "categorical", "from_zero": True, "axis": [0, 100], "n": 9},
    "violins": {"type": "plot", "kind": "violin", "x": "categorical", "n": 9},
    "parts of a step": {"type": "breakdown", "of": "a step elsewhere", "parts": {"a": 0.6, "b": 0.395}, "wall": 1.0},
    "baseline": {"type": "baseline", "device": {"year": 2024, "peak_flops": 1e12}, "own_device": OWN_DEVICE,
                 "tuning_runs": 5, "own_tuning_runs": 6, "measures": ["time_to_accuracy", "final_accuracy", "cost"]},
    "input from a cold disk": {"type": "input", "source": "disk", "end_to_end": True, "cold": True},
    "workload": {"type": "workload", "shape": [1, 8, 8], "native_shape": [1, 8, 8]},
}
# fmt: on


def busy_and_told(folder):
    """A busy machine, whose times are observations."""

    def load(lines):
        for line in lines:
            line["load"].update(seconds=2.0, cpus=2, busy=3.9, own=0.2)

    folder.edit_lines("metrics.jsonl", load)

    run = RunView(folder.path)
    metrics = [recomputed._judged(run, *pair).as_dict() for pair in recomputed._declared(run)]
    folder.edit("summary.json", lambda summary: summary.update(labels=["busy machine"], metrics=metrics))


def quiet(folder):
    """A quiet machine, long enough to tell."""

    def load(lines):
        for line in lines:
            line["load"].update(seconds=2.0, cpus=2, busy=2.1, own=2.0, steal=0.0, throttled=0.0, swapped_pages=0)

    folder.edit_lines("metrics.jsonl", load)


def untold_by_the_kernel(folder):
    """A system without counters."""

    def load(lines):
        for line in lines:
            line["load"].update(dict.fromkeys(line["load"]), seconds=2.0, cpus=2)

    folder.edit_lines("metrics.jsonl", load)


MACHINES = {"busy and told": busy_and_told, "quiet": quiet, "untold by the kernel": untold_by_the_kernel}


def folder_of(table, kind, base, place):
    """One of the honest folders, sealed."""
    if table is RUNS:
        return RUNS[kind](place)
    folder = Folder(base, place)
    if table is CLAIMS:
        folder.claim(**CLAIMS[kind])
    else:
        MACHINES[kind](folder)
    folder.anew()
    return resealed(folder)


def problems_of_kind(table, kind, base, place):
    """What rules and checks find in it."""
    return problems(folder_of(table, kind, base, place))


OF_LOAD = "load|s of epochs between|'busy machine'"
"""Problems of a run of milliseconds that is given the load of seconds, or of one whose machine was busy in truth."""


@pytest.mark.parametrize("kind", RUNS)
def test_an_honest_run(kind, tmp_path):
    assert problems_of_kind(RUNS, kind, None, tmp_path) == ({}, [])


@pytest.mark.parametrize("kind", CLAIMS)
def test_a_claim_that_is_right(kind, base, tmp_path):
    assert problems_of_kind(CLAIMS, kind, base, tmp_path / "copy") == ({}, [])


@pytest.mark.parametrize("kind", MACHINES)
def test_a_machine_that_is_told(kind, base, tmp_path):
    """No rule minds; relations of the load do, since a run of milliseconds is given the load of seconds."""
    rules, found = problems_of_kind(MACHINES, kind, base, tmp_path / "copy")
    relations = [problem for problem in found if not re.search(OF_LOAD, problem)]
    assert (rules, relations) == ({}, []) and found


def test_times_on_a_busy_machine_are_observations(base, tmp_path):
    path = folder_of(MACHINES, "busy and told", base, tmp_path / "copy")
    stats = read_json(path / "stats.json")["series"]
    estimates = [estimate for stat in stats.values() for estimate in stat["estimates"]]
    assert {e["standing"] for e in estimates} == {"observation"} and all(e["ci"]["low"] is None for e in estimates)
    assert "observation (busy machine: other processes took" in headline_line(path)
    assert "The machine was busy: other processes took" in (path / "report.html").read_text()
    assert check(path)["D2"].status == "pass" and "called observations" in check(path)["D2"].reason


def test_there_are_forty():
    assert len(RUNS) + len(CLAIMS) + len(MACHINES) >= 40
