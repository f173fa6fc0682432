"""The user's own objects: what they hold survives a stop, and no seed goes on from another's."""

from __future__ import annotations

import json
import random
from collections import Counter, OrderedDict, defaultdict, deque
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import deep500 as d5
from deep500.recipe import run_recipe
from deep500.recipe.object_states import ObjectStates, Unstorable, pack, unpack
from deep500.results import Record
from deep500.results.checkpoint import list_checkpoints, load_checkpoint
from tests.recipes.common import quick

EPOCHS = 4


class Stop(d5.Event):
    """Interrupts in the third epoch, if it is armed."""

    armed = False

    def before_batch(self, run: Any) -> None:
        if Stop.armed and run.epoch == 2 and run.batch == 1:
            raise KeyboardInterrupt


class Plateau(d5.Event):
    """Halves the rate where a loss is not the best."""

    def __init__(self) -> None:
        self.losses: list[float] = []

    def after_epoch(self, run: Any) -> None:
        self.losses.append(run.statistics.epochs[-1].train_loss)
        run.optimizer.lr *= 0.5 if self.losses[-1] > 0.99 * min(self.losses[:-1], default=9.0) else 0.9


class Decay(d5.Event):
    """Changes the rate when an epoch is over, and holds nothing."""

    def after_epoch(self, run: Any) -> None:
        run.optimizer.lr *= 0.5


class AutoClip:
    """Scales to the median of the norms so far."""

    def __init__(self) -> None:
        self.norms: deque[np.floating] = deque(maxlen=50)

    def __call__(self, names: Any, gradients: Any) -> Any:
        self.norms.append(np.sqrt(sum((np.asarray(g) ** 2).sum() for g in gradients)))
        return [g * min(1.0, float(np.median(self.norms) / self.norms[-1])) for g in gradients]


class Ramp:
    """Noise of its own generator, which grows with the batches."""

    def __init__(self) -> None:
        self.rng, self.seen = np.random.default_rng(5), Counter[str]()

    def __call__(self, batch: Any, rng: Any) -> Any:
        self.seen["batches"] += 1
        noise = 0.01 * self.seen["batches"] * self.rng.normal(size=batch["input"].shape)
        return {**batch, "input": batch["input"] + noise.astype(np.float32)}


class Halving(d5.schedules.Schedule):
    """Counts how often it is asked."""

    asked = 0

    def value(self, position: int, base: float) -> float:
        self.asked += 1
        return base * 0.8**self.asked


class Largest(d5.Metric, d5.Event):
    """The largest rate of any step: a metric that listens."""

    name, unit, direction, seen = "largest", "", "lower", 0.0

    def after_batch(self, run: Any) -> None:
        self.seen = max(self.seen, run.optimizer.lr / (1 + run.epoch))

    def measure(self, statistics: Any) -> float:
        return float(self.seen)


OBJECTS = {
    "plateau": lambda: {"events": [Stop, Plateau()]},
    "class of listeners": lambda: {"events": [Stop, Plateau]},
    "a listener that holds nothing": lambda: {"events": [Stop, Decay()]},
    "gradient_transform": lambda: {"events": [Stop], "gradient_transform": AutoClip()},
    "method": lambda: {"events": [Stop], "gradient_transform": AutoClip().__call__},
    "augmentation": lambda: {"events": [Stop], "augmentation": [Ramp()]},
    "schedule": lambda: {"events": [Stop], "schedule": Halving()},
}


@pytest.fixture
def data() -> Any:
    x = np.random.default_rng(0).normal(size=(96, 4)).astype(np.float32)
    y = (x[:, 0] > 0).astype(np.int64)
    return lambda: (d5.NumpyDataset(x[:64], labels=y[:64]), d5.NumpyDataset(x[64:], labels=y[64:]))


def train(folder: Path, data: Any, words: list[str], **keys: Any) -> Record:
    changes = {"dataset": data, "epochs": EPOCHS, "model_kwargs": {"hidden": (4,)}, "batch_size": 16, "schedule": None}
    recipe = quick("reference", **{**changes, "augmentation": None, **keys})
    metrics = [(d5.TestAccuracy(), None), (Largest(), None)]
    return Record(Path(run_recipe(recipe[0], recipe[1], metrics, ["--quiet", "--out", str(folder), *words]).path))


def ending(record: Record, seed: int = 0) -> list[Any]:
    """Weights after the last epoch, and the metrics' values."""
    state = load_checkpoint(list_checkpoints(record.checkpoints(seed))[-1])
    weights = [array.tobytes() for name, array in sorted(state["arrays"].items()) if name.startswith("network/")]
    return [*weights, record.finished_seed(seed)]


@pytest.mark.parametrize("kind", OBJECTS)
def test_a_stop_changes_nothing(kind: str, data: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = train(tmp_path / "whole", data, [], **OBJECTS[kind]())
    plain = train(tmp_path / "plain", data, [], events=[Stop])
    assert ending(whole) != ending(plain), "the object does nothing"
    monkeypatch.setattr(Stop, "armed", True)
    with pytest.raises(KeyboardInterrupt):
        train(tmp_path / "cut", data, [], **OBJECTS[kind]())
    monkeypatch.setattr(Stop, "armed", False)
    resumed = train(tmp_path / "cut", data, ["--resume"], **OBJECTS[kind]())
    assert ending(resumed) == ending(whole) and resumed.manifest()["warnings"] == []


@pytest.mark.parametrize("kind", sorted(set(OBJECTS) - {"plateau"}))
def test_a_seed_goes_on_from_no_other(kind: str, data: Any, tmp_path: Path) -> None:
    both = train(tmp_path / "both", data, ["--repeat", "2"], **OBJECTS[kind]())
    alone = train(tmp_path / "alone", data, ["--seed", "1"], **OBJECTS[kind]())
    assert ending(both, 1) == ending(alone, 1) and both.manifest()["warnings"] == []


def test_a_listener_that_brings_something_along_is_named(data: Any, tmp_path: Path) -> None:
    both = train(tmp_path, data, ["--repeat", "2"], **OBJECTS["plateau"]())
    assert [text.partition(";")[0] for text in both.manifest()["warnings"]] == [
        "events[1]: got Plateau, whose 'losses' the seed before has changed"
    ]


def test_what_cannot_be_stored_is_named(data: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def keys() -> dict[str, Any]:
        listener = Plateau()
        listener.inner = SimpleNamespace(count=0)
        listener.after_batch = lambda run: setattr(listener.inner, "count", run.step)
        return {"events": [Stop, listener]}

    monkeypatch.setattr(Stop, "armed", True)
    with pytest.raises(KeyboardInterrupt):
        train(tmp_path, data, [], **keys())
    monkeypatch.setattr(Stop, "armed", False)
    (text,) = train(tmp_path, data, ["--resume"], **keys()).manifest()["warnings"]
    assert text.startswith("events[1]: Plateau begins anew with 'inner', which no checkpoint has")


def test_what_cannot_be_made_anew_is_refused() -> None:
    def transform(names: Any, gradients: Any) -> Any:
        transform.inner.count += 1

    transform.inner = SimpleNamespace(count=0)
    states = ObjectStates({"gradient_transform": transform})
    transform((), ())
    with pytest.raises(
        d5.errors.ResultsError, match=r"gradient_transform: got function, whose 'inner' the seed before"
    ):
        states.begin()


@pytest.mark.parametrize("kind", ["numpy", "torch"])
def test_large_arrays_are_looked_at_and_not_stored(kind: str) -> None:
    def augment(batch: Any, rng: Any) -> Any:
        augment.sum += 1

    augment.sum = np.zeros((2000, 600))
    if kind == "torch":
        augment.sum = pytest.importorskip("torch").zeros(2000, 600)
    states = ObjectStates({"augmentation": [augment]})
    assert states.state() == {}
    augment(None, None)
    state = states.state()
    assert state == {"augmentation[0]": {"sum": {"lost": True}}}
    (text,) = states.load(state)
    assert text.startswith("augmentation[0]: function begins anew with 'sum', which no checkpoint has")


PLAIN = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text() | st.binary()
KEYS = st.integers() | st.text() | st.tuples(st.integers(), st.text())
VALUES = st.recursive(
    PLAIN,
    lambda inner: (
        st.lists(inner)
        | st.lists(inner).map(tuple)
        | st.dictionaries(KEYS, inner)
        | st.dictionaries(KEYS, inner).map(OrderedDict)
        | st.dictionaries(KEYS, inner).map(lambda d: defaultdict(list, d))
        | st.dictionaries(KEYS, st.integers()).map(Counter)
        | st.lists(inner).map(lambda e: deque(e, maxlen=7))
        | st.frozensets(KEYS)
        | st.sets(KEYS)
    ),
    max_leaves=12,
)


@given(VALUES)
def test_what_is_stored_is_the_same_again(value: Any) -> None:
    again = unpack(json.loads(json.dumps(pack(value))))
    assert again == value and type(again) is type(value) and pack(again) == pack(value)


@pytest.mark.parametrize("dtype", ["float64", "float16", "int8", "uint64", "bool", "complex64", "U3"])
def test_arrays_are_the_same_again(dtype: str) -> None:
    for array in (
        np.arange(6).reshape(2, 3).astype(dtype),
        np.zeros((), dtype),
        np.zeros((0, 2), dtype),
        np.ones(3, dtype)[0],
    ):
        again = unpack(json.loads(json.dumps(pack(array))))
        assert type(again) is type(array) and again.dtype == array.dtype and np.array_equal(again, array)
        assert np.shape(again) == np.shape(array)


@pytest.mark.parametrize("kind", ["torch:tensor", "jax.numpy:asarray", "tensorflow:constant"])
def test_tensors_are_the_same_again(kind: str) -> None:
    module, _, function = kind.partition(":")
    make = getattr(pytest.importorskip(module), function)
    for value in (make(2.5), make([[1.0, -2.0]]), make([True, False]), make([3, 4])):
        again = unpack(json.loads(json.dumps(pack([value]))))[0]
        assert type(again) is type(value) and again.dtype == value.dtype
        assert np.asarray(again).tobytes() == np.asarray(value).tobytes() and again.shape == value.shape


@pytest.mark.parametrize("kind", ["PCG64", "MT19937", "Philox", "SFC64"])
def test_generators_go_on(kind: str) -> None:
    mine, other = np.random.Generator(getattr(np.random, kind)(3)), random.Random(3)
    mine.normal(size=3), other.gauss(0, 1)
    again = unpack(json.loads(json.dumps(pack([mine, other]))))
    assert (again[0].normal(), again[1].gauss(0, 1)) == (mine.normal(), other.gauss(0, 1))


@pytest.mark.parametrize("value", [object(), len, {1: [object()]}, defaultdict(object), np.array([object()])])
def test_nothing_else_is_stored(value: Any) -> None:
    with pytest.raises(Unstorable):
        pack(value)
