"""Files to be damaged: sound results folders of several kinds, and files of every other format."""

from __future__ import annotations

import contextlib
import io
import json
import os
import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from deep500 import cli
from deep500.compare.package import package
from deep500.compare.review import review, unpack
from deep500.measure.statistics import Interval
from deep500.networks import add_loss, create
from deep500.operators.cpp import build
from deep500.operators.cpp.spec import BuildSpec
from deep500.results.checkpoint import load_checkpoint, save_checkpoint
from deep500.results.ledger import enter
from deep500.results.ranks import Rank, Ranks
from deep500.results.recomputation import record_of
from deep500.results.scaling import Scaling, ScalingBase, ScalingBound, ScalingPoint
from deep500.results.verify import seal
from deep500.transformations.recomputation import find_regions, load_plan, plan_network
from deep500.transformations.substitutions.cost.database import Database, Place, PriceRow
from deep500.transformations.substitutions.result import History
from deep500.transformations.substitutions.rules import rule_file
from deep500.transformations.substitutions.search.moves import AppliedRule
from tests.results.report_cases import finished

RECIPE = '''"""A recipe that takes a moment."""
import deep500 as d5
from deep500.frameworks import reference

FIXED = {"model": "mlp", "model_kwargs": {"hidden": (4,)}, "dataset": "digits", "epochs": 2}
MUTABLE = {"batch_size": 256, "executor": reference.from_model, "optimizer": reference.MomentumOptimizer,
           "optimizer_kwargs": {"lr": 0.1, "momentum": 0.9}}
METRICS = [(d5.TestAccuracy(), 0.0), (d5.metrics.TrainingTime(), None), (d5.metrics.TimingBreakdown(), None)]
'''
TIME = Interval(0.1, 0.09, 0.11, 40)
ROW = {"processes": 1, "seconds": 8.0, "global_batch": 64, "quality": 95.0, "quality_low": 94.0}
DEVICE = {"year": 2024, "peak_flops": 1e12}
# fmt: off
CLAIMS: list[dict[str, Any]] = [
    {"type": "speedup", "value": 3.6, "base": {"kind": "serial-best", "seconds": 8.0, "low": 7.9, "high": 8.1}},
    {"type": "aggregate", "kind": "ratio", "mean": "geometric", "note": "costs of the parts are not known"},
    {"type": "centre", "series": "step", "statistic": "mean", "interval": "t"},
    {"type": "comparison", "verdict": "faster", "p": 0.001, "corrected": True, "effect": [0.8, 0.9], "margin": 0.02},
    {"type": "percentile", "series": "step", "q": 0.99, "value": 0.002},
    {"type": "parallel", "ranks": 4, "sync": "window", "summary": "max", "rank_p": 0.001},
    {"type": "rate", "flops": 1e9, "counted_flops": 2e9, "seconds": 2.0, "bound": 4e9, "dtype": "float32", "bytes": 1e8,
     "roofs": {"flops": 4e9, "bandwidth": 1e10}},
    {"type": "rate", "flops": 1e9, "counted_flops": 2e9, "seconds": 2.0, "bound": 4e9},
    {"type": "scaling", "rows": [ROW, {**ROW, "processes": 4}], "bounds": ["ideal", "amdahl"], "labels": ["strong"]},
    {"type": "plot", "kind": "bar", "x": "categorical", "from_zero": True, "n": 800, "level": 0.95},
    {"type": "breakdown", "parts": {"forward": 0.6, "backward": 0.395}, "wall": 1.0},
    {"type": "input", "source": "disk", "end_to_end": True, "cold": True},
    {"type": "baseline", "device": DEVICE, "own_device": {**DEVICE, "year": 2025}, "tuning_runs": 5,
     "own_tuning_runs": 6, "measures": ["time_to_accuracy", "final_accuracy", "cost"]},
    {"type": "headline", "quantity": "speed", "config_sha256": "aa"},
    {"type": "workload", "shape": [3, 32, 32], "native_shape": [3, 32, 32], "flops_per_sample": 1e6,
     "fixed_flops_per_sample": 1e6},
]
# fmt: on


@dataclass(frozen=True)
class Original:
    """Something sound.

    Attributes:
        name: for people.
        base: a folder that holds all of it, and is copied.
        inside: what is damaged, below ``base``.
        resumes: whether ``run --resume`` is tried on it.
        load: reads it, for what is no results folder; None for one.
    """

    name: str
    base: Path
    inside: str
    resumes: bool = False
    load: Callable[[Path], object] | None = None


def make(folder: Path) -> list[Original]:
    """All kinds, made below a folder."""
    made = [_shown(folder / "shown"), *_trained(folder), *_files(folder)]
    made.append(_packed(made[1], folder / "packed"))
    for original in made:
        assert (original.base / original.inside).exists()
    return made


def _shown(base: Path) -> Original:
    """A run with all that a page can show, made without training."""
    record = finished(base / "results", samples=60, seeds=2, series=("step", "epoch"), claims=CLAIMS, ranks=2)
    points = tuple(ScalingPoint(p, 64, "ring", TIME, "measured", 95.0, 94.0) for p in (1, 2, 4))
    bounds = (ScalingBound("all-reduce", (2, 4), (0.05, 0.06)),)
    Scaling(ScalingBase("one process", "parallel-1", 64, TIME), points, "accuracy", bounds).write(record.path)
    Ranks((Rank(0, TIME, 0.0, 1e-6, 0.1, 1e6), Rank(1, TIME)), "barrier", "max", 0.1, 0.2).write(record.path)
    network = add_loss(create("resnet", depth=8))
    record_of(find_regions(network, batch=2), plan_network(network, 0.9, batch=2)).write(record.path)
    for number in range(2):
        enter(record.path.parent, {"run": record.path.name if number else "before", "at": "now"})
    seal(record.path)
    return Original("shown", base, str(record.path.relative_to(base)))


def _trained(folder: Path) -> list[Original]:
    """A trained run: sealed, killed before its seal, and killed within its second seed."""
    base = folder / "trained"
    base.mkdir()
    (base / "job.py").write_text(RECIPE)
    said = io.StringIO()
    with within(base), contextlib.redirect_stdout(said), contextlib.redirect_stderr(said):
        assert cli.main(["run", str(base / "job.py"), "--repeat", "2", "--out", "results", "--quiet"]) == 0, (
            said.getvalue()
        )
    (run,) = (base / "results" / "job").glob("2*-*")
    inside = str(run.relative_to(base))
    unsealed, killed = (Path(shutil.copytree(base, folder / name)) for name in ("unsealed", "killed"))
    for name in ("SHA256SUMS", "report.html", "rules.json", "claims.json"):
        (unsealed / inside / name).unlink()
        (killed / inside / name).unlink()
    for name in ("summary.json", "stats.json"):
        (killed / inside / name).unlink()
    seeds = json.loads((killed / inside / "seeds.json").read_text())
    (killed / inside / "seeds.json").write_text(json.dumps({"0": seeds["0"]}))
    return [Original(name, base.with_name(name), inside, resumes=True) for name in ("trained", "unsealed", "killed")]


@contextlib.contextmanager
def within(folder: Path) -> Iterator[None]:
    """Work in a folder."""
    before = Path.cwd()
    os.chdir(folder)
    try:
        yield
    finally:
        os.chdir(before)


def _files(folder: Path) -> list[Original]:
    """A file of every other format, with what reads it."""
    base = folder / "files"
    base.mkdir()
    network = add_loss(create("resnet", depth=8))
    plan_network(network, 0.9, batch=2).save(base / "plan.json")
    History("0" * 64, "0" * 16, False, {"N": 2}, (AppliedRule("a", ("b", "c")),)).save(base / "history.json")
    rule_file.write(rule_file.read()[:6], base / "rules.jsonl")
    place = Place("reference", "1", "m", "cpu", 1)
    database = Database(base / "prices.sqlite")
    for unit in ("relu", "add"):
        database.add(place, unit, PriceRow(2e-6, 1e-8, 30, "2026-01-01T00:00:00+00:00"))
    (base / "entry.json").write_text(json.dumps(["<deep500>/deep500/abi.h", "/usr/include/stdio.h"]))
    state = {"arrays": {"network/w": np.ones((2, 3))}, "values": {"epoch": 3, "loss": [0.1]}}
    save_checkpoint(base, 3, state)
    spec = BuildSpec("simple", "", None, (), ())

    def entry(path: Path) -> object:
        return build._cached(path.parent, path.stem, spec)

    def prices(path: Path) -> object:
        read = Database(path)
        return read.load(place), read.add(place, "relu", PriceRow(1.0, 0.0, 1, "now"))

    readers: dict[str, Callable[[Path], object]] = {
        "plan.json": load_plan,
        "history.json": History.load,
        "rules.jsonl": rule_file.read,
        "prices.sqlite": prices,
        "entry.json": entry,
        "epoch-3.safetensors": load_checkpoint,
    }
    return [Original(name, base, name, load=load) for name, load in readers.items()]


def _packed(trained: Original, base: Path) -> Original:
    """A package, which a reviewer unpacks beside it."""
    base.mkdir()
    package(trained.base / trained.inside, base / "run.tar.gz")
    return Original(
        "package", base, "run.tar.gz", load=lambda path: list(review(unpack(path, path.parent / "unpacked")))
    )
