"""The table of models: its own measurements on modules of torch's own, which need no further package, and its page.

What the exporter writes for real is in these modules: constant folding, weights shared behind Identity nodes, shapes
computed at run time, a symbolic batch. The file is traced with another batch size than the one that is run.
"""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from deep500.networks import Network
from deep500.registry import backend_names
from tests.models import __main__ as program
from tests.models import cells, results
from tests.models.architectures import ARCHITECTURES
from tests.models.compare import BAR, relative_difference, runtime_answer
from tests.models.exported import Exported, export, match
from tests.models.page import PAGE, SHOW, page

MODULES = ("convolutions", "views", "encoder", "recurrent")  # of modules.py, which needs torch
GRADIENT_BAR = 1e-7
"""One constant of the file, the sixth of Hardswish, is a float32."""


def exported_module(name: str, folder: Path) -> Exported:
    """One of the modules, or a row that needs torch alone."""
    pytest.importorskip("torch", reason="torch writes the files")
    from tests.models.modules import MODULES as modules

    return export({**ARCHITECTURES, **modules}[name], folder)


@pytest.fixture(scope="module", params=MODULES)
def exported(request: Any, tmp_path_factory: Any) -> Exported:
    return exported_module(request.param, tmp_path_factory.mktemp("models"))


def test_the_file_computes_what_the_module_does(exported: Exported) -> None:
    pytest.importorskip("onnxruntime")
    (got,) = runtime_answer(exported.path, exported.inputs)
    assert relative_difference(got, exported.outputs[0]) <= BAR  # the exporter did its part


def test_an_exported_module_gives_the_originals_answer(exported: Exported, backend_name: str) -> None:
    cell = cells.forward_error(Network.from_onnx(exported.path), exported, backend_name)
    assert cell["value"] <= BAR


@pytest.mark.parametrize("backend", ["reference", "pytorch"])
def test_gradients_are_those_of_torch_in_float64(exported: Exported, backend: str) -> None:
    if backend == "reference" and exported.path.name.startswith("convolutions"):
        pytest.skip("its Resize has a symbolic batch, which no emitted gradient takes")
    cell = cells.gradient_error(Network.from_onnx(exported.path), exported, backend)
    assert cell["value"] <= GRADIENT_BAR and cell["parameters"] == len(exported.gradients) and not cell["others"]


def test_wrong_gradients_and_answers_show(exported: Exported) -> None:
    gradients = {name: g * (1 + 1e-5) for name, g in exported.gradients.items()}
    other = dataclasses.replace(exported, gradients=gradients, outputs=[2 * y for y in exported.outputs])
    found = cells.accuracy(other, "pytorch")
    assert found["gradient"]["value"] == pytest.approx(1e-5, rel=0.1) and found["forward"]["value"] == pytest.approx(
        0.5
    )


@pytest.mark.parametrize("name", ["siren", "dlrm"])
def test_a_row_from_end_to_end(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    exported = exported_module(name, tmp_path)
    monkeypatch.setattr(cells, "ROUNDS", cells.FEWEST)  # the least that have an interval
    made = cells.accuracy(exported, "pytorch")
    made |= cells.speed(exported, "pytorch", cells.original(ARCHITECTURES[name], exported.inputs))
    assert set(made) == set(results.CELLS) and all("value" in cell for cell in made.values()), made
    assert made["gradient"]["value"] <= 1e-12 and made["step"]["low"] <= made["step"]["value"] <= made["step"]["high"]
    recorded = {"conditions": {}, "files": {}, "cells": {name: {"pytorch": made}}}
    results.write(recorded, tmp_path / "results.json")
    text = page(results.read(tmp_path / "results.json"))
    assert f"| `{name}` | (1) | {SHOW['forward'](made['forward'])} |" in text.replace("| (1) | (1) |", "| (1) |")


# -- what has no number has a reason ----------------------------------------------------------------------------------
def test_reading_and_a_bare_session_are_measured_against(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    exported = exported_module("siren", tmp_path)
    pytest.importorskip("onnxruntime")
    from tests.models import beside

    monkeypatch.setattr(cells, "ROUNDS", cells.FEWEST)
    found = beside.bare(exported, ARCHITECTURES["siren"])["bare"]
    assert 0 < found["low"] <= found["value"] <= found["high"], found
    other = dataclasses.replace(exported, path=tmp_path / "none.onnx")
    assert "reason" in beside.bare(other, ARCHITECTURES["siren"])["bare"]
    recorded = {"conditions": {}, "files": {}, "cells": {"siren": {"onnxruntime": {"bare": found}}}}
    assert f"| `siren` | (1) | {SHOW['step'](found)} |" in page(recorded)


def test_what_fails_is_said_in_the_cell(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    exported = exported_module("siren", tmp_path)
    monkeypatch.setattr(cells.load_backend("reference"), "from_model", lambda network: 1 / 0)
    found = cells.accuracy(exported, "reference")
    assert found["forward"]["reason"] == found["gradient"]["reason"] == "ZeroDivisionError: division by zero"
    frozen = dataclasses.replace(exported, parameters={n: p + 1 for n, p in exported.parameters.items()})
    found = cells.accuracy(frozen, "reference")
    assert "6 of 6 parameters do not train in the file: layers.0.bias" in found["gradient"]["reason"]


@pytest.mark.parametrize(
    ("model", "limit", "reason"), [("siren", 0.01, "took longer"), ("none", 60, "KeyError: 'none'")]
)
def test_a_process_that_ends_without_cells_is_a_reason(model: str, limit: float, reason: str, tmp_path: Path) -> None:
    found = program.run("accuracy", model, "reference", tmp_path, limit)
    assert all(reason in found[name]["reason"] for name in results.PARTS["accuracy"])


def test_a_reason_names_no_folder_and_ends_at_a_word() -> None:
    assert cells.shorten("/home/me/cache/m.onnx: node 'a' (b): got c") == "m.onnx: node 'a' (b): got c"
    assert cells.shorten("word " * 100).endswith("word ...") and len(cells.shorten("word " * 100)) <= cells.LENGTH + 4


def test_parameters_are_found_by_value_however_they_are_turned() -> None:
    rng = np.random.default_rng(0)
    kernel, bias, scale = rng.standard_normal((2, 3, 4, 5)), rng.standard_normal(7), np.ones(1)
    mine = {"a": kernel.transpose(3, 2, 0, 1), "again": kernel, "b": bias[None], "scale": scale, "other": bias + 1}
    found = match(mine, {"kernel": kernel, "bias": bias, "scale": scale, "lost": bias[:3]})
    assert found["kernel"] == [("a", (3, 2, 0, 1)), ("again", (0, 1, 2, 3))]
    assert found["bias"] == [("b", (0,))] and found["scale"] == [("scale", (0,))] and found["lost"] == []


# -- differences ------------------------------------------------------------------------------------------------------
def test_a_difference_is_relative_to_the_largest_value_expected() -> None:
    want = np.array([0.0, 2.0], np.float32)
    assert relative_difference(np.array([0.5, 2.0], np.float32), want) == 0.25


@pytest.mark.parametrize(
    ("got", "message"),
    [
        (np.zeros(3, np.float32), "expected float32"),
        (np.zeros(2), "expected float32"),
        (np.array([np.nan, 2], np.float32), "not finite"),
    ],
)
def test_what_cannot_agree_is_said(got: np.ndarray, message: str) -> None:
    with pytest.raises(AssertionError, match=message):
        relative_difference(got, np.array([0.0, 2.0], np.float32))


def test_agreement_of_networks_that_vanish_is_refused() -> None:
    tiny = np.full(3, 1e-6, np.float32)
    with pytest.raises(AssertionError, match="would say nothing"):
        relative_difference(tiny, tiny)


# -- the page ---------------------------------------------------------------------------------------------------------
def test_the_page_is_the_programs_own_and_no_cell_is_blank() -> None:
    recorded = results.read()
    text = PAGE.read_text(encoding="utf-8")
    assert text == page(recorded), "python -m tests.models --page"
    for model in ARCHITECTURES:
        rows = [line.split(" | ") for line in text.splitlines() if line.startswith(f"| `{model}` ")]
        assert len(rows) == 1 + len(results.CELLS) + 2 and all(e.strip(" |") for row in rows for e in row), model
        for backend in backend_names():
            for name in results.CELLS:
                cell = results.cell(recorded, model, backend, name)
                assert ("value" in cell) != ("reason" in cell) and cell.get("reason", True), (model, backend, name)


def test_there_are_the_architectures_that_users_bring() -> None:
    assert len(ARCHITECTURES) >= 25
    collections = {architecture.collection for architecture in ARCHITECTURES.values()}
    assert collections >= {
        "torchvision",
        "timm",
        "transformers",
        "diffusers",
        "torch_geometric",
        "keras",
        "scikit-learn",
    }
    assert {"ssdlite", "gpt2", "t5", "mixtral", "gat", "diffusion_unet", "mamba"} <= set(ARCHITECTURES)
