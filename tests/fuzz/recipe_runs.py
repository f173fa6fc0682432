"""A drawn recipe as it runs: models and data, the training, and its last checkpoint, losses and metric."""

from __future__ import annotations

import contextlib
import io
import os
import pickle
import subprocess
import sys
import tempfile
import warnings
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
from scipy.special import log_softmax

import deep500 as d5
from deep500.distributed import Threads, set_world
from deep500.errors import Deep500Error
from deep500.events import Event
from deep500.metrics import TestAccuracy, TestLoss
from deep500.recipe import run_recipe
from deep500.registry import load_backend
from deep500.results import Record
from deep500.results.checkpoint import list_checkpoints, load_checkpoint
from deep500.tasks.language_modelling import IGNORE
from deep500.tasks.tokens import Characters

ROOT = Path(__file__).resolve().parents[2]
SAMPLES, VALIDATION, BATCH = 60, 24, 16
"""For training, for validation, and in a batch: the last of an epoch is smaller, or left out."""


@dataclass(frozen=True)
class Drawn:
    """One recipe.

    Attributes:
        backend: its name.
        model: a key of :data:`MODELS`.
        dtype: of weights and data.
        optimizer: its class's name, with its hyper-parameters.
        keys: further keys of the recipe.
        ranks: threads that train together.
        argv: of the command line.
        stops: whether it is interrupted after the first epoch and goes on.
        processes: whether ranks are processes that a command starts, and a model in float32 is one by name.
        counts: a key of :data:`COUNTS`: what of the labels counts in the loss.
    """

    backend: str = "reference"
    model: str = "mlp"
    dtype: str = "float64"
    optimizer: tuple[str, Mapping[str, Any]] = ("MomentumOptimizer", {"lr": 0.05, "momentum": 0.9})
    keys: Mapping[str, Any] = field(default_factory=dict)
    ranks: int = 1
    argv: tuple[str, ...] = ()
    stops: bool = False
    processes: bool = False
    counts: str = "all"

    def with_keys(self, **keys: Any) -> Drawn:
        """The same with further keys."""
        return replace(self, keys={**self.keys, **keys})

    def __str__(self) -> str:
        name, options = self.optimizer
        keys = ", ".join(f"{key}={getattr(value, '__name__', value)}" for key, value in sorted(self.keys.items()))
        kind = "processes" if self.processes else "ranks"
        where = f"{self.backend} {self.dtype}" + (f", {self.ranks} {kind}" if self.ranks > 1 else "")
        rest = " ".join([f"counts: {self.counts}", *self.argv, *["stopped and resumed"] * self.stops])
        return f"{self.model} on {where}, {name}({options}), {keys or 'no more keys'} {rest}".rstrip()


@dataclass
class Outcome:
    """A run's result. ``refused`` is the text of an error of Deep500's, ``broken`` that of any other exception."""

    arrays: dict[str, np.ndarray] = field(default_factory=dict)
    losses: list[float] = field(default_factory=list)
    metric: float | None = None
    refused: str = ""
    broken: str = ""


class Interrupt(Event):
    """Ends the run after its first epoch, while it is on."""

    on = "DRAWN_STOPS" in os.environ

    def after_epoch(self, run: Any) -> None:
        if self.on:
            raise KeyboardInterrupt


def halved(_: str, __: Any, gradient: Any) -> Any:
    """A modifier of gradients."""
    return gradient * 0.5


def unchanged(_: str, __: Any, gradient: Any) -> Any:
    """One that does nothing."""
    return gradient


IMAGES = {"shape": (1, 8, 8), "classes": 10}
TEXTS = {"shape": (8,), "classes": 12, "width": 16, "heads": 2, "layers": 1}
MODELS: dict[str, tuple[str, dict[str, Any]]] = {
    "mlp": ("mlp", {"hidden": (16,), **IMAGES}),
    "lenet": ("lenet", IMAGES),
    "resnet": ("resnet", {"depth": 8, **IMAGES}),
    "lstm": ("lstm", {"shape": (8, 8), "classes": 10, "width": 12}),
    "regression": ("mlp", {"hidden": (16,), "shape": (1, 8, 8), "classes": 3}),
    "language": ("causal_transformer", TEXTS),
    "dropout": ("causal_transformer", {**TEXTS, "dropout": 0.2}),
}
"""Networks of the zoo by name, without a loss."""
IGNORED = 7
"""The label that does not count where most labels do not."""
CLASSES = np.array([1.0, 0.25, 0.5, 2.0, 0.01, 0.7, 3.0, 0.1, 0.02, 1.5])
COUNTS: Mapping[str, Mapping[str, Any]] = {
    "all": {},
    "some": {"ignore_index": IGNORED},
    "classes": {},
    "classes of some": {"ignore_index": IGNORED},
    "smooth": {"ignore_index": IGNORED, "label_smoothing": 0.1},
}
"""Ways to say what counts in the loss, with options of a cross entropy. Of small pieces of a batch nothing may."""
TOKENS = ("language", "dropout")
MIXES = ("resnet",)
"""Models whose samples see each other: batch normalization."""


def arrays(drawn: Drawn) -> tuple[np.ndarray, np.ndarray]:
    """Samples and labels that depend on them, most of which may not count; the last are for validation."""
    rng, model, dtype = np.random.default_rng(7), drawn.model, drawn.dtype
    count = SAMPLES + VALIDATION
    if model in TOKENS:
        tokens = (np.cumsum(rng.integers(0, 3, (count, 9)), axis=1) % 12).astype(np.int64)
        x, y = tokens[:, :-1], np.array(tokens[:, 1:])
        if drawn.counts != "all":
            y[rng.random(count) < 0.5, 2:] = IGNORE
            y[rng.random(count) < 0.5] = IGNORE
    else:
        x = rng.normal(size=(count, 8, 8) if model == "lstm" else (count, 1, 8, 8)).astype(dtype)
        flat = x.reshape(count, -1)
        y = (flat[:, :3] if model == "regression" else np.argmax(flat[:, :10], axis=1)).astype(
            dtype if model == "regression" else np.int64
        )
        if "ignore_index" in COUNTS[drawn.counts] and model != "regression":
            y[rng.random(count) < 0.6] = IGNORED
    return x, y


def data(drawn: Drawn) -> tuple[d5.Dataset, d5.Dataset]:
    """For training and for validation."""
    x, y = arrays(drawn)
    ignored = {"ignore_index": IGNORE} if drawn.model in TOKENS and drawn.counts != "all" else {}
    training, validation = ((x[rows], y[rows]) for rows in (slice(SAMPLES), slice(SAMPLES, None)))
    return d5.NumpyDataset(training[0], labels=training[1], **ignored), d5.NumpyDataset(
        validation[0], labels=validation[1], **ignored
    )


def judged_outside(drawn: Drawn, outcome: Outcome) -> float | None:
    """The metric by NumPy from the checkpoint's weights; None where they are of another network, or other weights."""
    network = _model(drawn)
    part = "ema/weight/" if "ema" in drawn.keys else "network/"
    weights = {
        name: outcome.arrays.get(f"{part}{name}", outcome.arrays.get(f"network/{name}")) for name in network.parameters
    }
    if drawn.optimizer[0].startswith("ScheduleFree") or any(value is None for value in weights.values()):
        return None
    for name, value in weights.items():
        network.set_parameter(name, value)
    x, y = (array[SAMPLES:] for array in arrays(drawn))
    scores = load_backend("reference").from_model(network).inference({"input": x})["output"].astype(np.float64)
    if drawn.model == "regression":
        return float(np.mean((scores - y) ** 2))
    if drawn.model in TOKENS or drawn.counts != "all":
        return _mean_loss(drawn, log_softmax(scores, axis=1), y)
    return float(100 * np.mean(np.argmax(scores, axis=1) == y))


def _mean_loss(drawn: Drawn, log_p: np.ndarray, y: np.ndarray) -> float:
    """The mean over all labels that count, by their weights."""
    log_p = np.moveaxis(log_p, 1, -1)[y != IGNORE]
    labels, smooth = y[y != IGNORE], COUNTS[drawn.counts].get("label_smoothing", 0.0)
    losses = -(1 - smooth) * log_p[np.arange(len(labels)), labels] - smooth * log_p.mean(axis=1)
    if drawn.model in TOKENS:
        return float(losses.mean())
    weights = CLASSES[labels] if drawn.counts.startswith("classes") else np.ones(len(labels))
    if "ignore_index" in COUNTS[drawn.counts]:
        weights = weights * (labels != IGNORED)
    return float(losses @ weights / weights.sum())


def _model(drawn: Drawn) -> Any:
    name, options = MODELS[drawn.model]
    network = d5.networks.create(name, **options)
    return network if drawn.dtype == "float32" else d5.networks.to_dtype(network, drawn.dtype)


def _with_loss(drawn: Drawn) -> Any:
    """With a loss of its own where that is another than the task's."""
    network = _model(drawn)
    if drawn.counts == "all" or drawn.model in ("regression", *TOKENS):
        return network
    if not drawn.counts.startswith("classes"):
        return d5.add_loss(network, **COUNTS[drawn.counts])
    network.add_input("label", (next(iter(network.inputs.values())).shape[0],), "int64")
    network.add_parameter("classes", CLASSES.astype(drawn.dtype), trainable=False)
    inputs = ["output", "label", "classes"]
    network.add_node("SoftmaxCrossEntropyLoss", inputs, ["loss"], reduction="mean", **COUNTS[drawn.counts])
    network.add_output("loss")
    return network


def recipe(drawn: Drawn) -> tuple[dict[str, Any], dict[str, Any], list[Any]]:
    """FIXED, MUTABLE and METRICS."""
    d5fw = load_backend(drawn.backend)
    name, options = drawn.optimizer
    fixed = {"model": lambda: _with_loss(drawn), "dataset": lambda: data(drawn), "epochs": 2}
    if drawn.model == "regression":
        fixed["task"] = "regression"
    elif drawn.model in TOKENS:
        fixed |= {"task": "language_modelling", "task_kwargs": {"vocabulary": Characters("abcdefghijkl")}}
    if drawn.processes and drawn.dtype == "float32" and drawn.counts == "all":
        fixed["model"], fixed["model_kwargs"] = MODELS[drawn.model]
    mutable = {
        "batch_size": BATCH,
        "executor": d5fw.from_model,
        "optimizer": getattr(d5fw, name, None) or getattr(d5.optimizers, name),
        "optimizer_kwargs": dict(options),
        **drawn.keys,
    }
    judged = TestLoss() if drawn.model in ("regression", *TOKENS) or drawn.counts != "all" else TestAccuracy()
    return fixed, mutable, [(judged, None)]


def observe(drawn: Drawn) -> Outcome:
    """Train it in this process."""
    with tempfile.TemporaryDirectory(prefix="deep500-drawn-") as folder, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
            try:
                path = (_started if drawn.processes else _trained)(drawn, Path(folder))
            except Deep500Error as error:
                return Outcome(refused=str(error) or type(error).__name__)
            except Exception as error:  # noqa: BLE001 - whatever it is, is what is looked for
                return Outcome(broken=f"{type(error).__name__}: {error}")
        return _read(Record.open(path), drawn)


def _trained(drawn: Drawn, folder: Path) -> Path:
    fixed, mutable, metrics = recipe(drawn)
    argv = ["--quiet", "--out", str(folder), *drawn.argv]
    if drawn.stops:
        mutable["events"] = [Interrupt()]
        Interrupt.on = True
        try:
            _run(drawn.ranks, fixed, mutable, metrics, argv)
        except KeyboardInterrupt:
            argv.append("--resume")
        finally:
            Interrupt.on = False
    return _run(drawn.ranks, fixed, mutable, metrics, argv)


RECIPE = """
import pickle
from pathlib import Path
from tests.fuzz.recipe_runs import Interrupt, recipe

FIXED, MUTABLE, METRICS = recipe(pickle.loads(Path(__file__).with_suffix(".pickle").read_bytes()))
MUTABLE["events"] = [Interrupt()]
"""


def _started(drawn: Drawn, folder: Path) -> Path:
    """Like :func:`_trained`, by commands that start processes; raises what they end with."""
    file = folder / "drawn.py"
    file.write_text(RECIPE, encoding="utf-8")
    file.with_suffix(".pickle").write_bytes(pickle.dumps(drawn))
    words = [sys.executable, "-m", "deep500", "run", str(file), "--quiet", "--out", str(folder)]
    more = ["--ranks", str(drawn.ranks), *drawn.argv]
    for stops in ([True] if drawn.stops else []) + [False]:
        environment = {**os.environ, "PYTHONPATH": str(ROOT), **({"DRAWN_STOPS": "yes"} if stops else {})}
        done = subprocess.run(
            [*words, *more], env=environment, capture_output=True, text=True, timeout=300, check=False
        )
        if done.returncode != (130 if stops else 0):
            broken = "Traceback" in done.stderr or not done.stderr.strip()
            raise (RuntimeError if broken else Deep500Error)(
                f"exit code {done.returncode}: {done.stderr[-1500:].strip()}"
            )
        more = ["--resume"]
    return next(folder.glob("drawn/2*"))


def _run(ranks: int, fixed: Any, mutable: Any, metrics: Any, argv: list[str]) -> Path:
    if ranks == 1:
        return Path(run_recipe(fixed, mutable, metrics, argv).path)

    def work(comm: Any) -> str:
        set_world(comm)
        try:
            return str(run_recipe(fixed, mutable, metrics, argv).path)
        finally:
            set_world(None)

    return Path(Threads(ranks).run(work)[0])


def _read(record: Record, drawn: Drawn) -> Outcome:
    seed = max(int(seed) for seed in record.seeds())
    last = load_checkpoint(list_checkpoints(record.checkpoints(seed))[-1])
    losses = [epoch["train_loss"] for epoch in last["values"]["statistics"]["epochs"]]
    (value,) = (record.finished_seed(seed) or {}).values()
    return Outcome(last["arrays"], losses, value)
