"""The keys that say how a recipe trains: resumed as if never stopped, recorded, refused where they do not fit."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from deep500.errors import Deep500Error, InputError, RecipeError
from deep500.events import Event
from deep500.metrics import TestQuality
from deep500.recipe import run_recipe
from deep500.results import Record
from deep500.results.averaging import average_checkpoints
from deep500.results.checkpoint import list_checkpoints, load_checkpoint
from deep500.tasks.tokens import Characters
from deep500.training.data.text import Passages
from deep500.training.loss_scaling import LossScaling
from tests.recipes.common import quick

pytestmark = pytest.mark.slow

MOMENTUM = {"lr": 0.1, "momentum": 0.9}
FEATURES: dict[str, dict[str, Any]] = {
    "precision": {"precision": "bf16"},
    "accumulate": {"accumulate": 3},
    "freeze": {"freeze": ["fc1.*"]},
    "groups": {"groups": [{"parameters": "fc2.*", "lr": 0.02, "momentum": 0.5}]},
    "no_decay": {"no_decay": "norms_and_biases", "optimizer_kwargs": {**MOMENTUM, "weight_decay": 0.1}},
    "ema": {"ema": 0.9},
    # the scale grows twice in an epoch, and begins so high that the first steps are left out
    "f16": {
        "precision": "f16",
        "optimizer_kwargs": {**MOMENTUM, "loss_scaling": LossScaling(2.0**24, growth_interval=4)},
    },
}
TOGETHER = {name: value for feature in FEATURES.values() for name, value in feature.items()}
TOGETHER["optimizer_kwargs"] = {**FEATURES["f16"]["optimizer_kwargs"], "weight_decay": 0.1}
TOGETHER["freeze"] = ["fc1.bias"]


class Interrupted(Event):
    """Ends the process, as it were, after an epoch."""

    at: int | None = None

    def after_epoch(self, run: Any) -> None:
        if run.epoch == Interrupted.at:
            raise KeyboardInterrupt


def run(out: Path, backend: str, *words: str, **changes: Any) -> Record:
    recipe = quick(backend, **{"epochs": 2, "events": [Interrupted], **changes})
    return Record(Path(run_recipe(*recipe, argv=["--out", str(out), "--quiet", *words]).path))


def arrays(record: Record) -> dict[str, np.ndarray]:
    return load_checkpoint(list_checkpoints(record.path / "checkpoints" / "seed-0")[-1])["arrays"]


def end_of(record: Record) -> tuple[list[dict[str, Any]], dict[str, np.ndarray]]:
    times = ("train_seconds", "test_seconds", "clock", "load")
    return [{k: v for k, v in line.items() if k not in times} for line in record.epochs()], arrays(record)


def assert_resumes(folder: Path, backend: str, changes: dict[str, Any]) -> Record:
    whole = run(folder / "whole", backend, **changes)
    Interrupted.at = 0
    try:
        with pytest.raises(KeyboardInterrupt):
            run(folder / "broken", backend, **changes)
    finally:
        Interrupted.at = None
    resumed = run(folder / "broken", backend, "--resume", **changes)
    assert resumed.manifest()["resumed"]
    (lines, got), (expected, want) = end_of(resumed), end_of(whole)
    assert lines == expected and len(lines) == 2 and got.keys() == want.keys()
    for name, array in want.items():
        np.testing.assert_array_equal(got[name], array, err_msg=name)
    return whole


@pytest.mark.parametrize("feature", FEATURES)
def test_a_resumed_run_is_the_run_that_was_never_stopped(tmp_path: Path, feature: str) -> None:
    whole = assert_resumes(tmp_path, "reference", FEATURES[feature])
    plain = arrays(run(tmp_path / "plain", "reference"))
    network = {name: array for name, array in arrays(whole).items() if name.startswith("network/")}
    same = all(np.array_equal(plain[name], array) for name, array in network.items())
    assert same == (feature == "ema"), "the feature changed nothing"
    if feature == "f16":
        assert sum(line["skipped_steps"] for line in whole.epochs()) > 0
    if feature == "ema":
        assert "ema/weight/fc1.weight" in arrays(whole)


def test_so_is_one_with_all_of_them(tmp_path: Path, backend_name: str) -> None:
    assert_resumes(tmp_path, backend_name, TOGETHER)


def test_the_record_says_what_patterns_stand_for(tmp_path: Path) -> None:
    record = run(tmp_path, "reference", **{**TOGETHER, "epochs": 1})
    facts, resolved = record.manifest()["training"], record.manifest()["resolved"]["recipe"]
    assert facts["precision"] == {"name": "f16", "loss_scale": 2.0**24}
    assert facts["trained"] == ["fc1.weight", "fc2.weight", "fc2.bias"]
    assert {"lr": 0.02, "momentum": 0.5, "weight_decay": 0.0, "parameters": ["fc2.bias"]} in facts["groups"]
    assert (resolved["accumulate"], resolved["ema"], resolved["freeze"]) == (3, 0.9, ["fc1.bias"])


def test_words_of_the_command_line_set_them(tmp_path: Path) -> None:
    words = ["precision=bf16", "accumulate=2", "freeze=fc1.*", "no_decay=norms_and_biases", "ema=0.5"]
    record = run(tmp_path, "reference", *words, "keep_checkpoints=3", "--open", epochs=3)
    resolved = record.manifest()["resolved"]["recipe"]
    assert [resolved[word.partition("=")[0]] for word in words] == ["bf16", 2, "fc1.*", "norms_and_biases", 0.5]
    folder = record.path / "checkpoints" / "seed-0"
    assert len(list_checkpoints(folder)) == 3
    states = [load_checkpoint(path)["arrays"]["network/fc2.bias"] for path in list_checkpoints(folder)]
    np.testing.assert_allclose(average_checkpoints(folder)["fc2.bias"], np.mean(states, axis=0), rtol=1e-6)


def test_batch_normalization_in_pieces_is_a_line_of_the_record(tmp_path: Path) -> None:
    changes = {"model": "resnet", "model_kwargs": {"depth": 8}, "accumulate": 2, "epochs": 1, "augmentation": []}
    record = run(tmp_path, "pytorch", "--dry-run", **changes)
    assert any("9 BatchNormalization nodes" in line for line in record.manifest()["warnings"])


@pytest.mark.parametrize(
    ("changes", "kind", "named"),
    [
        ({"precision": "fp16"}, RecipeError, "precision: got 'fp16'"),
        ({"accumulate": 0}, RecipeError, "accumulate: got 0"),
        ({"freeze": ["fc3.*"]}, InputError, "freeze: got 'fc3"),
        ({"freeze": [3]}, RecipeError, "freeze: got"),
        ({"groups": [{"lr": 1}]}, RecipeError, "groups: got"),
        ({"groups": [{"parameters": "fc2.*", "lrr": 1}]}, InputError, "'lrr'"),
        ({"ema": 1.0}, RecipeError, "ema: got 1.0"),
        ({"precision": "f16", "checkpointing": 0.9}, RecipeError, "checkpointing with precision"),
        ({"accumulate": 2, "checkpointing": 0.9}, RecipeError, "checkpointing with accumulate"),
    ],
    ids=str,
)
def test_what_does_not_fit_is_an_error_before_training(
    tmp_path: Path, changes: dict[str, Any], kind: type[Deep500Error], named: str
) -> None:
    with pytest.raises(kind, match=named):
        run(tmp_path, "reference", **changes)


def prose() -> tuple[Passages, Passages]:
    """Passages of a text to learn from and to be judged by."""
    text = "a rank has a share of a batch, and no batch is its own. " * 4
    alphabet = Characters.of(text)
    return Passages(text, alphabet, 8), Passages(text[:64], alphabet, 8)


LANGUAGE = {
    "model": "gru_language_model",
    "model_kwargs": {"width": 5, "embedding": 3},
    "dataset": prose,
    "task": "language_modelling",
    "batch_size": 8,
    "augmentation": [],
    "metrics": [(TestQuality("bits_per_character", "bits", direction="lower"), None)],
}


def test_a_language_model_learns_the_same_by_pieces_of_its_loss(tmp_path: Path, backend_name: str) -> None:
    whole = run(tmp_path / "whole", backend_name, **LANGUAGE)
    pieces = run(tmp_path / "pieces", backend_name, **LANGUAGE, loss_pieces=3)
    for a, b in zip(whole.epochs(), pieces.epochs(), strict=True):
        assert a["test_bits_per_character"] == pytest.approx(b["test_bits_per_character"], rel=1e-3)
    for name, array in arrays(whole).items():
        np.testing.assert_allclose(arrays(pieces)[name], array, rtol=1e-3, atol=1e-4, err_msg=name)


def test_a_loss_in_pieces_leaves_no_scores_to_judge(tmp_path: Path) -> None:
    with pytest.raises(RecipeError, match="judges the scores of every training batch"):
        run(tmp_path, "reference", loss_pieces=2)
