"""A recipe that takes a moment: a small network on the built-in digits."""

from __future__ import annotations

from typing import Any

from deep500.metrics import TestAccuracy, TrainingTime
from deep500.registry import load_backend
from deep500.training.data.augmentation import Crop
from deep500.training.schedules import CosineSchedule


def quick(backend: str, **changes: Any) -> tuple[dict[str, Any], dict[str, Any], list[Any]]:
    """FIXED, MUTABLE and METRICS; ``changes`` go into MUTABLE, or into FIXED if the key is there; None removes it."""
    d5fw = load_backend(backend)
    fixed: dict[str, Any] = {
        "model": "mlp",
        "model_kwargs": {"hidden": (16,)},
        "dataset": "digits",
        "epochs": 2,
        "augmentation": [Crop(8, padding=1)],
    }
    mutable: dict[str, Any] = {
        "batch_size": 128,
        "executor": d5fw.from_model,
        "optimizer": d5fw.MomentumOptimizer,
        "optimizer_kwargs": {"lr": 0.1, "momentum": 0.9},
        "schedule": CosineSchedule(total=10),
    }
    metrics = changes.pop("metrics", [(TestAccuracy(), 20.0), (TrainingTime(), None)])
    for key, value in changes.items():
        half = fixed if key in fixed else mutable
        half[key] = value
        if value is None:
            del half[key]
    return fixed, mutable, metrics
