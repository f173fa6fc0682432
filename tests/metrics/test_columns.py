"""The 24 columns: what fills each of them gives the right answer, and the check notices when it is a stub.

Every column has a check with a known answer, and names the functions or methods that give it. The check is run as it
is; then each of those is replaced by one that returns None, 0 or 1, and the check has to fail.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NamedTuple

import numpy as np
import pytest

import deep500 as d5
from deep500 import metrics, tasks
from deep500.errors import RecipeError
from deep500.measure import bounds
from deep500.measure.bounds import Roofs, scaling_table
from deep500.measure.statistics import Interval
from deep500.metrics import resources
from deep500.recipe.options import parse_options
from deep500.recipe.plan import RunPlan
from deep500.recipe.steps import make_plan
from deep500.tasks.boxes import encode
from deep500.tasks.control import advantages
from deep500.tasks.tokens import Characters
from deep500.training import data as datasets
from deep500.training.statistics import EpochRecord, TrainingStatistics
from tests.metrics.test_communication import RANKS
from tests.metrics.test_latency import Served
from tests.metrics.test_resources import Counter, MadeUpGPU
from tests.metrics.test_work import STEP, watched
from tests.metrics.watched import STEPS, TAKES, TOTAL, Clock, train, watch
from tests.packages import serve

PAGES = Path(__file__).parent.parent.parent / "docs"
CURVE = TrainingStatistics(
    [
        EpochRecord(0, 2.0, 30.0, 100, 4.0, 1.5, 40.0, 20, 1.0),
        EpochRecord(1, 0.5, 80.0, 100, 2.0, 0.4, 91.0, 20, 1.0),
        EpochRecord(2, 0.7, 70.0, 50, 2.0, 0.6, 85.0, 20, 1.0),
    ]
)


class Column(NamedTuple):
    """A column's name, its check, and what the check would miss if it were a stub: (owner, attribute)."""

    name: str
    check: Callable[[pytest.MonkeyPatch], None]
    filled_by: tuple[tuple[Any, str], ...]


def close(got: Any, want: float, rel: float = 1e-6) -> None:
    assert got is not None and got == pytest.approx(want, rel=rel)


def performance(patch: Any) -> None:
    statistics = TrainingStatistics([EpochRecord(0, train_samples=400, train_seconds=2.0)])
    close(watched(metrics.FlopRate()).measure(statistics), 200 * STEP)
    close(watched(metrics.RoofShare(Roofs(1000.0 * STEP, 1.0))).measure(statistics), 20)


def times(patch: Any) -> None:
    clock = Clock()
    wall = metrics.WallTime(clock)
    watch(wall, metrics.TimingBreakdown(clock.nanoseconds), clock=clock)
    close(wall.measure(None), TOTAL)
    close(metrics.TrainingTime().measure(CURVE), 8.0)


def cost(patch: Any) -> None:
    clock, metric = Clock(), metrics.Cost({"cpu": 7.2})
    patch.setattr("deep500.measure.energy.EnergyMeter.__init__.__defaults__", (None, clock, "no counter"))
    watch(metric, metrics.TimingBreakdown(clock.nanoseconds), clock=clock)
    close(metric.measure(TrainingStatistics()), TOTAL * 7.2 / 3600)


def energy(patch: Any) -> None:
    clock = Clock()
    patch.setattr("deep500.measure.energy.EnergyMeter.__init__.__defaults__", (None, clock, "no counter"))
    used, carbon = (metrics.EnergyUse([Counter(90.0, clock)]), metrics.Carbon(400, "a table", [Counter(90.0, clock)]))
    watch(used, carbon, metrics.TimingBreakdown(clock.nanoseconds), clock=clock)
    close(used.measure(None), 90 * TOTAL)
    close(carbon.measure(None), 90 * TOTAL / 3.6e6 * 400)


def utilisation(patch: Any) -> None:
    patch.setattr(resources, "find_gpu", lambda device: (MadeUpGPU(), ""))
    clock = Clock()
    gpu = metrics.GPUUtilisation(period=0.01, clock=clock)
    watch(gpu, clock=clock, device=d5.GPUDevice())
    close(gpu.measure(None), 50, rel=0.1)
    cpu = metrics.CPUUtilisation()
    times = SimpleNamespace(perf_counter=clock, process_time=lambda: 0.5 * clock.now)
    patch.setattr("deep500.measure.memory.time", times)
    patch.setattr("deep500.measure.memory.usable_cores", lambda: 2)
    watch(cpu, clock=clock)
    close(cpu.measure(None), 25)


def memory(patch: Any) -> None:
    patch.setattr(resources, "find_gpu", lambda device: (MadeUpGPU(), ""))
    metric = metrics.PeakMemory("device")
    watch(metric, device=d5.GPUDevice())
    close(metric.measure(None), 1000 * STEPS / 2)


def throughput(patch: Any) -> None:
    close(metrics.Throughput().measure(CURVE), 250 / 8)
    clock = Clock()
    close(Served(clock, 0.5).measure(metrics.OfflineThroughput(32, 1024, clock.nanoseconds)), 64)


def breakdown(patch: Any) -> None:
    clock = Clock()
    whole, io = metrics.TimingBreakdown(clock.nanoseconds), metrics.IOShare(clock.nanoseconds)
    statistics = watch(whole, io, clock=clock)
    close(whole.measure(None), TOTAL)
    close(whole.details["backward"], STEPS * TAKES["backward"])
    close(io.measure(statistics), 100 * STEPS * TAKES["io"] / metrics.TrainingTime().measure(statistics))


def strong_scaling(patch: Any) -> None:
    run = TrainingStatistics([EpochRecord(0, train_seconds=20.0)], communication=RANKS)
    close(metrics.ScalingEfficiency(45.0).measure(run), 75)
    rows, serial = scaling_table({p: Interval(0.2 + 0.8 / p, None, None, 1) for p in (1, 2, 4)})
    close(serial, 0.2)
    close(rows[-1].efficiency, 1 / (0.2 * 4 + 0.8))


def communication(patch: Any) -> None:
    run = TrainingStatistics(communication=RANKS)
    close(metrics.CommunicationVolume().measure(run), 6000)
    close(metrics.LoadImbalance().measure(run), 12.5)


def latency(patch: Any) -> None:
    clock = Clock()
    step = metrics.StepLatency(clock=clock.nanoseconds)
    watch(step, clock=clock)
    close(step.measure(None), sum(TAKES.values()) + 0.004)
    close(Served(clock, 0.25).measure(metrics.InferenceLatency(queries=200, clock=clock.nanoseconds)), 0.25)


def accuracy(patch: Any) -> None:
    close(d5.TestAccuracy(max_acc=True).measure(CURVE), 91)
    everything = metrics.TopKAccuracy(4)
    _, statistics = train(everything, epochs=1)
    close(everything.measure(statistics), 100)


def plan(*words: str, fixed: Any = ()) -> RunPlan:
    values = {"model": "mlp", "dataset": "digits", "epochs": 1, "batch_size": 8, "executor": print, "optimizer": print}
    values |= dict(fixed)
    mutable = {"batch_size": values.pop("batch_size")}
    return make_plan(values, mutable, [], parse_options(list(words)))


def closed(patch: Any) -> None:
    assert plan("batch_size=16").division == "closed"
    with pytest.raises(RecipeError, match="--open"):
        plan("epochs=2")


def opened(patch: Any) -> None:
    changed = plan("epochs=2", "--open")
    assert changed.division == "open" and changed.opened == ["epochs=2"]


def infrastructure(patch: Any) -> None:
    device = {"executor_kwargs": {"device": d5.CPUDevice()}}
    with pytest.raises(RecipeError, match="--open"):
        plan("--device", "gpu", fixed=device)
    assert plan("--device", "gpu", "--open", fixed=device).opened == ["--device gpu"]


class Twice(d5.CustomPythonOp):
    def forward(self, inputs: Any) -> Any:
        return 2 * inputs[0]


def operators(patch: Any) -> None:
    measurement = d5.measure_op(Twice(), [np.ones(100)], flop=100, samples=6)
    close(measurement.flops.median, 100 / measurement.forward.median)
    assert measurement.forward.n == 6


def images(patch: Any) -> None:
    training, validation = datasets.load_dataset("digits32")
    assert training.shape == (3, 32, 32) and training.classes == 10 and len(training) + len(validation) == 1797


def detection(patch: Any) -> None:
    scenes, _ = datasets.load_dataset("digit_scenes", train=2, test=1)
    task = tasks.Detection((64, 64), 10, 4, [[13.0, 20.0]], [1.45], output="output")
    batch = scenes[:]
    wanted = task.targets(batch)
    scores = np.where(np.arange(10) == wanted["anchor_label"][..., None], 8.0, -8.0)
    found = {"output": np.concatenate([encode(wanted["anchor_box"], task.anchors), scores], axis=-1)}
    sums = task.judge(batch, found)
    assert task.measure(sums, None)["map"] > 0.99 and task.measure(task.zero(), None)["map"] is None


def speech(patch: Any) -> None:
    serve(patch)
    strings, _ = datasets.load_dataset("connected_digits")
    task = tasks.Transcription(output="scores", dataset=strings)
    batch = strings[:2]
    labels = batch["label"][0][: batch["label_length"][0]]
    heard = [label for said in (*labels[:-1], labels[0]) for label in (said, 0)]  # the last word is another one
    one = {name: rows[:1] for name, rows in batch.items()} | {"input_length": np.array([len(heard)])}
    rate = task.measure(task.judge(one, {"scores": np.eye(11)[[heard]]}), None)["word_error_rate"]
    close(rate, 0 if labels[0] == labels[-1] else 100 / len(labels))


def text(patch: Any) -> None:
    train, _ = datasets.load_dataset("number_pairs", train=20, test=2)
    task = tasks.Transduction(output="output", dataset=train)
    batch = train[:4]
    said = np.where(batch["label"] < 0, 0, batch["label"])
    got = task.measure(task.judge(batch, {"decoded": said}), None)
    close(got["exact_match"], 100)
    close(got["bleu"], 100)
    letters = tasks.LanguageModelling(output="scores", vocabulary=Characters("abcd"))
    sums = letters.judge({"label": np.array([[0, 3, -100]])}, {"scores": np.zeros((1, 4, 3))})
    close(letters.measure(sums, None)["bits_per_character"], 2)


def control(patch: Any) -> None:
    task = tasks.ProximalPolicyOptimization(SimpleNamespace(make=lambda: None, name="a world", classes=2))
    ends = {"episode_return": np.array([500.0, 480.0, 475.0]), "episode_length": np.array([500, 480, 475])}
    close(task.measure(task.judge({}, ends), None)["mean_return"], 485)
    ended = np.array([[False], [False], [True]])
    found = advantages(np.ones((3, 1)), np.zeros((3, 1)), ended, np.array([9.0]), 0.5, 1.0)
    np.testing.assert_allclose(found[:, 0], [1.75, 1.5, 1.0])


# fmt: off
COLUMNS = [
    Column("performance", performance, ((metrics.FlopRate, "measure"), (metrics.RoofShare, "measure"))),
    Column("time", times, ((metrics.WallTime, "measure"), (metrics.TrainingTime, "measure"))),
    Column("convergence", lambda _: close(metrics.TrainingLoss().measure(CURVE), 0.7),
           ((metrics.TrainingLoss, "measure"),)),
    Column("accuracy", accuracy, ((d5.TestAccuracy, "measure"), (metrics.TopKAccuracy, "measure"))),
    Column("cost", cost, ((metrics.Cost, "measure"),)),
    Column("energy", energy, ((metrics.EnergyUse, "measure"), (metrics.Carbon, "measure"))),
    Column("utilisation", utilisation, ((metrics.GPUUtilisation, "measure"), (metrics.CPUUtilisation, "measure"))),
    Column("memory", memory, ((metrics.PeakMemory, "measure"),)),
    Column("throughput", throughput, ((metrics.Throughput, "measure"), (metrics.OfflineThroughput, "measure"))),
    Column("breakdown", breakdown, ((metrics.TimingBreakdown, "measure"), (metrics.IOShare, "measure"))),
    Column("strong scaling", strong_scaling, ((metrics.ScalingEfficiency, "measure"), (bounds, "_serial_share"))),
    Column("communication and balance", communication,
           ((metrics.CommunicationVolume, "measure"), (metrics.LoadImbalance, "measure"))),
    Column("time to accuracy", lambda _: close(metrics.TimeToAccuracy(90).measure(CURVE), 8),
           ((metrics.TimeToAccuracy, "measure"),)),
    Column("final test accuracy", lambda _: close(d5.TestAccuracy().measure(CURVE), 85),
           ((d5.TestAccuracy, "measure"),)),
    Column("latency", latency, ((metrics.StepLatency, "measure"), (metrics.InferenceLatency, "measure"))),
    Column("closed contest", closed, ((RunPlan, "division"), (RunPlan, "open_for"))),
    Column("open contest", opened, ((RunPlan, "division"),)),
    Column("fixed infrastructure", infrastructure, ((RunPlan, "open_for"),)),
    Column("operators", operators, ((d5, "measure_op"),)),
    Column("images", images, ((datasets, "load_dataset"),)),
    Column("object detection", detection, ((tasks.Detection, "measure"), (datasets, "load_dataset"))),
    Column("speech", speech, ((tasks.Transcription, "measure"), (datasets, "load_dataset"))),
    Column("text", text, ((tasks.LanguageModelling, "measure"), (tasks.Transduction, "measure"))),
    Column("reinforcement learning", control, ((tasks.ProximalPolicyOptimization, "measure"),)),
]
# fmt: on
STUBS = [
    (column, owner, name, value) for column in COLUMNS for owner, name in column.filled_by for value in (None, 0.0, 1.0)
]


@pytest.mark.parametrize("column", COLUMNS, ids=lambda column: column.name)
def test_column_is_filled(column, monkeypatch):
    column.check(monkeypatch)


@pytest.mark.parametrize(
    ("column", "owner", "name", "value"),
    STUBS,
    ids=[f"{c.name}-{getattr(o, '__name__', '')}.{n}-{v}" for c, o, n, v in STUBS],
)
def test_a_stub_is_noticed(column, owner, name, value, monkeypatch):
    kept = inspect.getattr_static(owner, name, None)  # None: a name of the face that was not used yet
    monkeypatch.setattr(
        owner, name, property(lambda _: value) if isinstance(kept, property) else lambda *_, **__: value
    )
    with pytest.raises((AssertionError, TypeError, AttributeError, pytest.fail.Exception)):
        column.check(monkeypatch)


def rows(page: str, title: str) -> list[list[str]]:
    """Cells of the table below a heading of the page."""
    section = (PAGES / page).read_text(encoding="utf-8").partition(f"## {title}\n")[2].partition("\n## ")[0]
    cells = [[cell.strip() for cell in line.split("|")[1:-1]] for line in section.splitlines() if line.startswith("|")]
    return cells[2:]


def test_there_are_24_and_the_page_names_what_fills_them():
    listed = {name: by for name, by, *_ in rows("table_ii.md", "The 24 columns")}
    assert list(listed) == [column.name for column in COLUMNS] and len(listed) == 24
    for name, by in listed.items():
        for kind in re.findall(r"`d5\.tasks\.(\w+)`", by):
            assert hasattr(tasks, kind), f"{name}: {kind}"
        for metric in re.findall(r"`([A-Z]\w+)\(", by):
            assert hasattr(metrics, metric), f"{name}: {metric}"


def test_the_page_lists_every_metric_with_its_unit_and_direction():
    listed = {}
    for names, unit, better, *_ in rows("metrics.md", "All of them"):
        for name in re.findall(r"`(\w+)\(", names):
            listed[name] = (unit, better)
    shown = {name: getattr(metrics, name) for name in dir(metrics)}
    kinds = {
        name: value for name, value in shown.items() if inspect.isclass(value) and issubclass(value, metrics.Metric)
    }
    known = {name: metric for name, metric in kinds.items() if not inspect.isabstract(metric)}
    assert listed.keys() == known.keys()
    for name, metric in known.items():
        unit = getattr(metric, "unit", "")
        assert listed[name][1] == metric.direction, name
        assert listed[name][0] == unit or name in ("Cost", "VarianceOverSeeds"), name
