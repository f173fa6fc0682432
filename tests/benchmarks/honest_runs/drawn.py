"""The parts of an honest run, drawn from its number: recipe, words of the command line, kind."""

from __future__ import annotations

import random
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

import deep500 as d5
from deep500 import metrics as m
from deep500.registry import BACKENDS, is_installed, load_backend
from deep500.training import optimizers, schedules
from deep500.training.data.augmentation import Crop
from deep500.training.listeners import StopAtAccuracy

KINDS = (
    *("plain", "ranks", "repeat", "interrupted", "recipe", "stopped", "plain", "dry", "killed", "plain", "repeat"),
    *("interrupted", "launches", "diverged", "recipe", "plain", "stopped", "until tight", "interrupted", "ranks"),
    "recipe",
)
RECIPES = {
    "digits_lenet": ["epochs=1", "--open"],
    "digits_every_metric": ["epochs=1", "--open"],
    "digits_macro_f1": ["epochs=1", "--open"],
    "digits_lenet_mish": ["--dry-run"],
    "digit_scenes_ssd": ["epochs=1", "dataset_kwargs={'train': 96, 'test': 32}", "--open"],
    "cartpole_ppo": ["epochs=1", "environment_kwargs.samples=1024", "environment_kwargs.judged=3", "--open"],
    "number_translation": ["--dry-run"],
    "prose_generation": ["--dry-run"],
    "digits32_resnet20": ["--dry-run", "executor_kwargs={}"],
    "connected_digits_ctc": ["--dry-run"],
    "kjv_language_model": ["--dry-run", "dataset='python_prose'", "--open"],
    "mnist5k_lenet": ["--dry-run"],
    "cifar10_resnet44": ["--dry-run"],
}
SCHEMES = (
    *("ConsistentDecentralized", "ReproducibleDecentralized", "LocalSGD", "ModelAverage", "ShardedOptimizer"),
    *("ShardedParameters", "DiLoCo", "ConsistentParameterServer", "StaleSynchronous", "ConsistentNeighbors"),
    *("InconsistentParameterServer", "TopK", "QSGD", "SignSGD", "PowerSGD", "Pipeline", "DDP", "FSDP"),
)
OPTIMIZERS: dict[str, dict[str, Any]] = {
    "GradientDescent": {"lr": 0.1},
    "MomentumOptimizer": {"lr": 0.1, "momentum": 0.9},
    "AdamOptimizer": {"lr": 0.01},
    "AdamWOptimizer": {"lr": 0.01, "weight_decay": 0.01},
    "AdaGradOptimizer": {"lr": 0.05},
    "RMSPropOptimizer": {"lr": 0.005},
    "LionOptimizer": {"lr": 0.002},
    "NAdamOptimizer": {"lr": 0.01},
    "AMSGradOptimizer": {"lr": 0.01},
    "LAMBOptimizer": {"lr": 0.01},
    "LARSOptimizer": {"lr": 0.5},
    "MuonOptimizer": {"lr": 0.02},
    "SOAPOptimizer": {"lr": 0.01},
    "AdafactorOptimizer": {},
    "ProdigyOptimizer": {},
    "AdEMAMixOptimizer": {"lr": 0.01},
    "ScheduleFreeSGDOptimizer": {"lr": 0.5},
    "ScheduleFreeAdamWOptimizer": {"lr": 0.01},
}
METRICS: tuple[Callable[[], Any], ...] = (
    partial(m.TestAccuracy, True),
    *(partial(m.TopKAccuracy, k) for k in (2, 3, 5)),
    *(partial(m.StepLatency, q) for q in (0.5, 0.9, 0.99)),
    *(partial(m.TimeToAccuracy, target) for target in (30, 85, 100)),
    partial(m.VarianceOverSeeds, m.TestAccuracy()),
    partial(m.InferenceLatency, "single_stream", queries=60),
    partial(m.OfflineThroughput, 32, 64),
    partial(m.Carbon, 400, "a round figure"),
    partial(m.Cost, {"cpu": 0.05, "gpu": 2.5}),
    partial(m.PeakMemory, "host"),
    *(m.TrainingAccuracy, m.TrainingLoss, m.TestLoss, m.TrainingTime, m.WallTime, m.Throughput, m.TimingBreakdown),
    *(m.IOShare, m.FlopRate, m.RoofShare, m.CPUUtilisation, m.GPUUtilisation, m.EnergyUse, m.FrameworkOverhead),
    *(m.DatasetLatency, m.CommunicationVolume, m.Messages, m.CommunicationShare, m.LoadImbalance, m.WaitShare),
)


class Gap(m.Metric):
    """How much better training data are known than the others: a metric of the author's own."""

    name, unit, direction = "accuracy_gap", "%", "lower"

    def measure(self, statistics: Any) -> float | None:
        """The last epoch's difference."""
        ends = (
            [statistics.epochs[-1].get(f"{half}_accuracy") for half in ("train", "test")]
            if statistics.epochs
            else [None]
        )
        return None if None in ends else ends[0] - ends[1]


class Interrupt(d5.Event):
    """Ctrl-C after an epoch of the first seed, once."""

    at: int | None = None

    def after_epoch(self, run: Any) -> None:
        """Interrupt."""
        if run.epoch == Interrupt.at:
            Interrupt.at = None
            raise KeyboardInterrupt


def few() -> tuple[Any, Any]:
    """Points of three classes."""
    x = np.random.default_rng(0).normal(size=(150, 1, 4, 4)).astype(np.float32)
    y = (x.sum(axis=(1, 2, 3)) > 0).astype(np.int64) + (x[:, 0, 0, 0] > 0)
    return d5.NumpyDataset(x[:110], labels=y[:110]), d5.NumpyDataset(x[110:], labels=y[110:])


def recipe(number: int, attempt: int) -> tuple[dict[str, Any], dict[str, Any], list[Any]]:
    """FIXED, MUTABLE and METRICS of a run."""
    rng, backend, kind = drawn(number, attempt)
    d5fw, epochs = load_backend(backend), rng.choice((1, 2, 2, 3))
    name = rng.choice(list(OPTIMIZERS))
    place = d5fw if hasattr(d5fw, name) and rng.random() < 0.7 else optimizers
    fixed: dict[str, Any] = {"epochs": max(2, epochs) if kind in ("interrupted", "killed", "diverged") else epochs}
    fixed |= rng.choice(
        (
            {"dataset": "digits", "model": "mlp", "model_kwargs": {"hidden": (rng.choice((4, 16, 40)),)}},
            {"dataset": "digits", "model": "mlp", "model_kwargs": {"hidden": (12, 8)}},
            {"dataset": "digits", "model": "lenet"},
            {"dataset": few, "model": "mlp", "model_kwargs": {"hidden": (6,)}},
        )
    )
    mutable: dict[str, Any] = {
        "batch_size": rng.choice((20, 32, 50, 64, 100, 128, 200)),
        "executor": d5fw.from_model,
        "optimizer": getattr(place, name),
        "optimizer_kwargs": dict(OPTIMIZERS[name]),
        "keep_checkpoints": rng.choice((1, 2, 3)),
        "seed": rng.choice((0, 1, 17)),
    }
    if kind == "diverged":
        mutable |= {"optimizer": d5fw.GradientDescent, "optimizer_kwargs": {"lr": rng.choice((1e3, 1e25, 1e38))}}
    mutable |= _features(rng, fixed["epochs"], 4 if fixed["dataset"] is few else 8, kind)
    if kind == "interrupted":
        mutable["events"] = [*mutable.get("events", []), Interrupt]
    sampled = rng.sample(METRICS, rng.choice((0, 1, 3, 6, 12)))
    chosen = [m.TestAccuracy(), *(make() for make in sampled), *([Gap()] if rng.random() < 0.2 else [])]
    return fixed, mutable, [(metric, rng.choice((None, None, 20.0, 99.9))) for metric in chosen]


def _features(rng: random.Random, epochs: int, size: int, kind: str) -> dict[str, Any]:
    """Keys that some recipes have."""
    make: dict[str, tuple[float, Callable[[], Any]]] = {
        "validation_split": (0.5, lambda: rng.choice((0.1, 0.2, 0.35))),
        "schedule": (
            0.5,
            lambda: rng.choice(
                (
                    schedules.CosineSchedule(total=epochs),
                    schedules.StepSchedule(1, 0.5),
                    schedules.WarmUp(5, unit="step"),
                    schedules.TableSchedule({0: 0.1, 1: 0.05}),
                )
            ),
        ),
        "augmentation": (0.3, lambda: [Crop(size, padding=1)]),
        "accumulate": (0.15, lambda: rng.choice((2, 3))),
        "ema": (0.15, lambda: rng.choice((0.9, 0.999))),
        "precision": (0.1, lambda: rng.choice(("bf16", "f16"))),
        "memory": (0.08, lambda: rng.choice((0.5, 0.8))),
        "checkpointing": (0.08, lambda: rng.choice((0.6, 0.9))),
        "freeze": (0.1, lambda: ["fc1.bias"]),
        "groups": (0.1, lambda: [{"parameters": "fc2.*", "lr": 0.02}]),
        "no_decay": (0.1, lambda: "norms_and_biases"),
        "data_threads": (0.15, lambda: 2),
        "malloc": (0.1, lambda: rng.choice(("kept", "returned"))),
        "gradient_transform": (0.15, lambda: d5.ClipGradientNorm(1.0)),
        "events": (0.1, lambda: [StopAtAccuracy(rng.choice((30.0, 80.0)))]),
    }
    chosen = {key: draw() for key, (share, draw) in make.items() if rng.random() < share}
    if kind == "ranks":
        chosen |= {"parallel": "auto"} if rng.random() < 0.15 else {"scheme": _scheme(rng)}
    return chosen


def _scheme(rng: random.Random) -> Any:
    return getattr(d5.schemes, rng.choice(SCHEMES))


def drawn(number: int, attempt: int) -> tuple[random.Random, str, str]:
    """The source of a run's choices: random numbers, backend and kind."""
    backends = [name for name in BACKENDS if is_installed(name)]
    place, turn = number % len(backends), number // len(backends)
    return random.Random(f"{number} {attempt}"), backends[place], KINDS[(turn + 3 * place) % len(KINDS)]


def words_of(number: int, attempt: int, kind: str) -> list[str]:
    """The options of a run."""
    rng = random.Random(f"words of {number} {attempt}")
    words = ["--quiet"]
    words += ["--seed", str(rng.randrange(100))] if rng.random() < 0.3 else []
    words += [f"batch_size={rng.choice((25, 64, 96))}"] if rng.random() < 0.3 else []
    words += ["epochs=2", "--open"] if rng.random() < 0.15 else []
    words += ["--name", "baseline", "--tag", "old"] if rng.random() < 0.15 else []
    if kind in ("repeat", "stopped", "ranks", "killed"):
        words += ["--repeat", str(rng.choice((2, 3)) if kind != "ranks" else rng.choice((1, 1, 2)))]
    more = {
        "ranks": ["--ranks", "2"],
        "dry": ["--dry-run"],
        "launches": ["--repeat", "6"],
        "until tight": ["--repeat", "auto", "--budget", "0.2"],
    }
    return [*words, *more.get(kind, [])]
