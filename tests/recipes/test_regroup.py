"""``--resume`` on another number of ranks: what goes on as if nothing had happened, and what is refused in words."""

from __future__ import annotations

import os
import shutil
import threading
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import deep500 as d5
from deep500.distributed import Serial, Threads, schemes
from deep500.distributed.sampler import DistributedSampler
from deep500.errors import Deep500Error, ResultsError
from deep500.measure.fingerprint import full_environment
from deep500.recipe import ranks as recipe_ranks
from deep500.recipe import resume, run_recipe, runner, session
from deep500.recipe.options import parse_options
from deep500.results import Record
from deep500.results.checkpoint import list_checkpoints, load_checkpoint
from deep500.results.ranks import Ranks
from deep500.results.verify import verify
from deep500.training import optimizers
from tests.recipes.common import quick

BREAK: list[int] = []
"""In which epoch the last rank breaks down; nowhere if empty."""


class BreakDown(d5.Event):
    def after_batch(self, run: Any) -> None:
        comm = getattr(run.optimizer, "comm", Serial())
        if BREAK and run.epoch == BREAK[0] and run.batch == 1 and comm.rank == comm.size - 1:
            raise RuntimeError("broke down")


def data() -> tuple[Any, Any]:
    x = np.random.default_rng(0).normal(size=(120, 1, 4, 4)).astype(np.float32)
    y = np.arange(120) % 3
    return d5.NumpyDataset(x[:96], labels=y[:96]), d5.NumpyDataset(x[96:], labels=y[96:])


def recipe(**changes: Any) -> tuple[Any, Any, Any]:
    usual = {
        "dataset": data,
        "epochs": 4,
        "batch_size": 24,
        "events": [BreakDown],
        "augmentation": [],
        "schedule": None,
    }
    return quick("reference", **{**usual, **changes})


ENVIRONMENT = full_environment(None)
"""Of all runs here: finding it out takes longer than they do."""

HERE = threading.local()
"""Each thread's communicator: a process has one world, and here ranks are threads."""


@pytest.fixture(autouse=True)
def world_of_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(session, "full_environment", lambda folder: ENVIRONMENT)
    for module, name in ((runner, "world"), (resume, "current_world"), (recipe_ranks, "current_world")):
        monkeypatch.setattr(module, name, lambda: getattr(HERE, "comm", Serial()))


def train(ranks: int, out: Path, *words: str, **changes: Any) -> Record:
    """A run on so many ranks; its folder."""

    def work(comm: Any) -> str:
        HERE.comm = comm
        words_of_all = ["--quiet", "--out", str(out), *(["--ranks", "1"] if comm.size == 1 else [])]
        return str(run_recipe(*recipe(**changes), argv=[*words, *words_of_all]).path)

    try:
        return Record(Path((Threads(ranks).run(work) if ranks > 1 else [work(Serial())])[0]))
    finally:
        HERE.__dict__.clear()


WHOLE: dict[str, Record] = {}


@pytest.fixture
def whole(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """The run of one process that is never stopped."""

    def of(**changes: Any) -> Record:
        key = str(sorted(changes.items()))
        if key not in WHOLE:
            WHOLE[key] = train(1, tmp_path_factory.mktemp("whole"), **changes)
        return WHOLE[key]

    return of


def only(out: Path) -> Record:
    (path,) = (path for path in (out / Path(__file__).stem).iterdir() if path.is_dir())
    return Record(path)


def broken(ranks: int, out: Path, *words: str, at: int = 2, **changes: Any) -> Record:
    """A run that broke down in an epoch."""
    BREAK[:] = [at]
    try:
        with pytest.raises((Deep500Error, RuntimeError), match="broke down"):
            train(ranks, out, *words, **changes)
    finally:
        BREAK.clear()
    return only(out)


def arrays(record: Record) -> dict[str, np.ndarray]:
    newest = list_checkpoints(record.path / "checkpoints" / "seed-0")[-1]
    assert newest.name == "epoch-4.safetensors"
    return {name: a for name, a in load_checkpoint(newest)["arrays"].items() if "place" not in name}


def assert_same(one: Record, other: Record, most: float) -> None:
    a, b = arrays(one), arrays(other)
    common = {
        name for name in a if name.partition("/")[0] == "network" or "/momentum_buffer" in name or "/exp_avg" in name
    }
    assert common and common <= b.keys()
    for name in common:
        assert np.abs(a[name] - b[name]).max() <= most, name


REPRODUCIBLE = {"scheme": schemes.ReproducibleDecentralized, "scheme_kwargs": {"blocks": 12}}


@pytest.mark.parametrize("course", [(2, 3), (1, 2), (3, 1), (2, 4, 3)], ids=str)
def test_the_same_bits_as_never_stopped(tmp_path: Path, whole: Any, course: tuple[int, ...]) -> None:
    never_stopped = whole(**REPRODUCIBLE)
    broken(course[0], tmp_path / "broken", at=1, **REPRODUCIBLE)
    for at, ranks in enumerate(course[1:-1], 2):
        broken(ranks, tmp_path / "broken", "--resume", at=at, **REPRODUCIBLE)
    resumed = train(course[-1], tmp_path / "broken", "--resume", **REPRODUCIBLE)
    assert_same(resumed, never_stopped, 0)
    curves = [[line["test_accuracy"] for line in run.epochs(0)] for run in (resumed, never_stopped)]
    assert curves[0] == curves[1] and len(curves[0]) == 4
    manifest = resumed.manifest()
    changes = [entry["ranks"] for entry in manifest["resumed"]]
    assert changes == [list(pair) for pair in pairwise(course)]
    assert manifest["ranks"] == course[-1] and len(manifest["processes"]["each"]) == course[-1]
    assert verify(resumed.path) == [] and "number of ranks changed" in resumed.summary()["labels"]
    page = (resumed.path / "report.html").read_text(encoding="utf-8")
    assert all(f" on {count} rank" in page for count in course) and "the same bits as of a run" in page
    folders = sorted(path.name for path in (resumed.path / "checkpoints" / "seed-0").glob("*/"))
    assert folders == [f"rank-{rank}" for rank in range(1, course[-1])]
    if course[-1] > 1:
        assert len(Ranks.read(resumed.path).ranks) == course[-1]


ADAM = {"optimizer": optimizers.AdamOptimizer, "optimizer_kwargs": {"lr": 0.01}}


@pytest.mark.parametrize(
    "name",
    [
        "ConsistentDecentralized",
        "ConsistentParameterServer",
        "ShardedOptimizer",
        "ShardedParameters",
        "Pipeline",
        "DividedNetwork",
        "SparseAllreduce",
    ],
)
def test_what_ranks_hold_is_put_together(tmp_path: Path, whole: Any, name: str) -> None:
    """Against one process that was never stopped; without the optimizer's state Adam would take other steps."""
    deep = {**ADAM, "model_kwargs": {"hidden": (16, 16)}}
    changes = {**deep, "scheme": getattr(schemes, name)}
    never_stopped = whole(**deep)
    broken(2, tmp_path / "broken", **changes)
    resumed = train(3, tmp_path / "broken", "--resume", **changes)
    assert [entry["ranks"] for entry in resumed.manifest()["resumed"]] == [[2, 3]]
    assert_same(resumed, never_stopped, 2e-5)
    broken(3, tmp_path / "back", **changes)
    assert_same(train(1, tmp_path / "back", "--resume", **changes), never_stopped, 2e-5)


def test_without_a_scheme_of_the_recipe(tmp_path: Path, whole: Any) -> None:
    """One process has no scheme, several have the usual one."""
    never_stopped = whole()
    for course in ((1, 3), (3, 1)):
        out = tmp_path / str(course)
        broken(course[0], out)
        assert_same(train(course[1], out, "--resume"), never_stopped, 2e-5)


def test_running_statistics_go_on_from_those_that_were_judged(tmp_path: Path) -> None:
    """Ranks normalise by their own samples; a validation is of the mean, which is what the checkpoint has."""
    broken(2, tmp_path, model=_normalised, model_kwargs={})
    folder = broken(3, tmp_path, "--resume", at=2, model=_normalised, model_kwargs={}).path / "checkpoints" / "seed-0"
    states = [load_checkpoint(p / "epoch-2.safetensors")["arrays"] for p in (folder, *sorted(folder.glob("rank-*")))]
    assert len(states) == 3 and np.abs(states[0]["network/v"] - 1).max() > 1e-3
    assert all(
        state[f"network/{name}"].tobytes() == states[0][f"network/{name}"].tobytes()
        for state in states
        for name in "mv"
    )
    record = train(1, tmp_path, "--resume", model=_normalised, model_kwargs={})
    assert len(record.epochs(0)) == 4 and verify(record.path) == []


def _normalised() -> Any:
    rng, net = np.random.default_rng(1), d5.Network("normalised")
    net.add_input("input", ("N", 1, 4, 4), "float32")
    net.add_parameter("w", rng.normal(size=(4, 1, 3, 3)).astype("float32"))
    for name, value, trainable in (("s", 1, True), ("b", 0, True), ("m", 0, False), ("v", 1, False)):
        net.add_parameter(name, np.full(4, value, "float32"), trainable=trainable)
    net.add_parameter("w2", rng.normal(size=(16, 3)).astype("float32"))
    net.add_node("Conv", ["input", "w"], ["c"])
    net.add_node("BatchNormalization", ["c", "s", "b", "m", "v"], ["n"])
    net.add_node("Flatten", ["n"], ["f"])
    net.add_node("MatMul", ["f", "w2"], ["y"])
    net.add_output("y")
    return net


@pytest.mark.parametrize(
    ("name", "kept"),
    [
        ("LocalSGD", "parameters of its own"),
        ("DiLoCo", "parameters of its own"),
        ("ConsistentNeighbors", "parameters of its own"),
        ("InconsistentDecentralized", "parameters of its own"),
        ("InconsistentParameterServer", "parameters from when it last asked the server"),
        ("StaleSynchronous", "parameters from when it last asked the server"),
        ("TopK", r"gradients that it still owes \(error feedback\)"),
        ("PowerSGD", r"gradients that it still owes \(error feedback\)"),
        ("SignSGD", r"gradients that it still owes \(error feedback\)"),
    ],
)
def test_schemes_with_a_state_of_each_rank_are_refused(tmp_path: Path, name: str, kept: str) -> None:
    scheme = getattr(d5.schemes, name)
    before = broken(2, tmp_path, scheme=scheme, at=0)
    with pytest.raises(ResultsError, match=f"got 3 ranks; expected 2, .* for in {name} each rank keeps {kept}"):
        train(3, tmp_path, "--resume", scheme=scheme)
    assert before.manifest()["resumed"] == [] and before.manifest()["ranks"] == 2


def test_a_checkpoint_that_is_lost_costs_an_epoch_and_leaves_no_samples(tmp_path: Path, whole: Any) -> None:
    """The second rank has fewer epochs than the run: those before it came."""
    never_stopped = whole(**REPRODUCIBLE)
    broken(1, tmp_path / "broken", at=1, **REPRODUCIBLE)
    record = broken(2, tmp_path / "broken", "--resume", at=3, **REPRODUCIBLE)
    for path in (record.path / "checkpoints").rglob("epoch-3.safetensors"):
        path.unlink()
    resumed = train(2, tmp_path / "broken", "--resume", **REPRODUCIBLE)
    assert_same(resumed, never_stopped, 0)
    assert verify(resumed.path) == [] and len(resumed.samples.load("step-rank-1", 0)) == 3 * 4


@pytest.mark.parametrize("ranks", [2, 3], ids=["as before", "as wanted"])
def test_broken_off_at_any_write(tmp_path: Path, whole: Any, monkeypatch: pytest.MonkeyPatch, ranks: int) -> None:
    """Between putting together and taking over: both numbers of ranks can go on, to the same end."""
    broken(2, tmp_path / "begun", **REPRODUCIBLE)
    never_stopped = whole(**REPRODUCIBLE)
    replace, calls, lock = os.replace, [0], threading.Lock()
    for number in (1, 2, 4):  # the state of all, the manifest, the checkpoint of a rank

        def breaking(*words: Any, last: int = number) -> None:
            with lock:
                calls[0] += 1
                if calls[0] >= last:
                    raise KeyboardInterrupt
            replace(*words)

        out = tmp_path / str(number)
        shutil.copytree(tmp_path / "begun", out)
        calls[0] = 0
        with monkeypatch.context() as patched, pytest.raises((Deep500Error, KeyboardInterrupt)):
            patched.setattr(os, "replace", breaking)
            train(3, out, "--resume", **REPRODUCIBLE)
        assert calls[0] >= number and only(out).epochs(0)[-1]["epoch"] == 2
        assert_same(train(ranks, out, "--resume", **REPRODUCIBLE), never_stopped, 0)


def test_numbers_of_ranks_and_words(tmp_path: Path) -> None:
    """Without a number the run goes on as it last did; --resume-or-start finds it whatever its number was."""
    broken(2, tmp_path, "batch_size=32")
    with pytest.raises(ResultsError, match=r"got --resume with batch_size=48; expected .*batch_size=32"):
        train(3, tmp_path, "--resume", "batch_size=48")
    broken(3, tmp_path, "--resume-or-start", "batch_size=32", at=3)
    record = only(tmp_path)
    assert record.manifest()["ranks"] == 3 and resume.options_of(record, parse_options(["--resume"])).ranks == 3
    assert resume.options_of(record, parse_options(["--resume", "--ranks", "2"])).ranks == 2
    assert train(2, tmp_path, "--resume-or-start", "batch_size=32").summary() is not None
    assert only(tmp_path).manifest()["argv"][0] == "batch_size=32"


def test_a_sampler_goes_on_within_an_epoch_on_other_ranks() -> None:
    """Every sample once: two batches on two ranks, the rest of the epoch on three."""

    def samplers(ranks: int) -> list[Any]:
        whole = d5.NumpyDataset(np.arange(50))
        return [
            DistributedSampler(d5.ShuffleSampler(whole, 12, seed=3, drop_last_batch=False), r, ranks)
            for r in range(ranks)
        ]

    seen, states = list[int](), list[dict[str, int]]()
    for sampler in samplers(2):
        batches = iter(sampler)
        seen += [int(value) for _ in range(2) for value in next(batches)["input"]]
        states.append(sampler.state())
    assert states[0] == states[1] and states[0]["position"] == 2 and len(seen) == 24
    for sampler in samplers(3):
        sampler.resume(states[0])
        rest = [batch["input"].tolist() for batch in sampler]
        assert len(rest) == 3
        seen += [value for batch in rest for value in batch]
    assert sorted(seen) == list(range(50))


def test_what_differs_without_being_declared_is_refused_by_name(tmp_path: Path, whole: Any) -> None:
    """Momentum of each rank's own gradients; without momentum nothing is kept."""
    broken(2, tmp_path / "one", scheme=schemes.ModelAverage)
    with pytest.raises(
        ResultsError, match=r"ranks of ModelAverage that differ in 'momentum_buffer/fc1.*go on with as many"
    ):
        train(3, tmp_path / "one", "--resume", scheme=schemes.ModelAverage)
    assert only(tmp_path / "one").manifest()["ranks"] == 2
    train(2, tmp_path / "one", "--resume", scheme=schemes.ModelAverage)
    plain = {"optimizer": optimizers.GradientDescent, "optimizer_kwargs": {"lr": 0.1}, "scheme": schemes.ModelAverage}
    broken(2, tmp_path / "two", **plain)
    never_stopped = whole(**{**plain, "scheme": None})
    assert_same(train(3, tmp_path / "two", "--resume", **plain), never_stopped, 2e-5)
