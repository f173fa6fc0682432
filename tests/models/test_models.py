"""Modules of torch's own, exported as in ``python -m tests.models`` but with no further package, against ONNX Runtime.

What the exporter writes for real: constant folding, weights shared behind Identity nodes, shapes computed at run time,
a symbolic batch. The file is traced with another batch size than the one that is run.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.conftest import load_backend
from tests.models.compare import (
    BAR,
    compare,
    compare_gradients,
    gradients,
    relative_difference,
    runtime_answer,
    training_copy,
)

MODULES = ("convolutions", "views", "encoder", "recurrent")  # of modules.py, which needs torch


@pytest.fixture(scope="module", params=MODULES)
def exported(request: Any, tmp_path_factory: Any) -> tuple[str, Path, dict[str, np.ndarray], list[np.ndarray]]:
    """Name, file, inputs, ONNX Runtime's outputs."""
    torch = pytest.importorskip("torch", reason="torch writes the files")
    pytest.importorskip("onnxruntime", reason="ONNX Runtime gives the answers")
    from tests.models import modules
    from tests.models.sources import SEED, prepare, write

    build, example = modules.MODULES[request.param]
    torch.manual_seed(SEED)
    generator = torch.Generator().manual_seed(SEED)
    batch = torch.cat([example(generator)[0] for _ in range(8)])
    module = prepare(build(), (batch,))
    path = tmp_path_factory.mktemp("models") / f"{request.param}.onnx"
    write(module, (batch[:3],), path)
    inputs = {"input0": batch[:2].numpy()}
    want = runtime_answer(path, inputs)
    with torch.no_grad():
        assert relative_difference(module(batch[:2]).numpy(), want[0]) <= BAR  # the exporter did its part
    return request.param, path, inputs, want


def test_an_exported_module_computes_what_onnx_runtime_does(exported: Any, backend_name: str) -> None:
    name, path, inputs, want = exported
    row = compare(name, path, inputs, want, backend_name)
    assert row.good, row


def test_gradients_of_an_exported_module_agree_in_float64(exported: Any) -> None:
    name, path, inputs, _ = exported
    load_backend("pytorch")
    want = gradients(training_copy(path), "reference", inputs)
    row = compare_gradients(name, path, inputs, want, "pytorch")
    assert row.good, row
    assert compare_gradients(name, path, inputs, want * (1 + 1e-8), "pytorch").verdict == "WRONG"


def test_a_backend_that_computes_something_else_or_fails_is_said(
    exported: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    name, path, inputs, want = exported
    assert compare(name, path, inputs, [w * (1 + 2 * BAR) for w in want], "reference").verdict == "WRONG"
    monkeypatch.setattr(load_backend("reference"), "from_model", lambda network: 1 / 0)
    row = compare(name, path, inputs, want, "reference")
    assert (row.verdict, row.good) == ("ERROR", False) and "division" in row.reason


# -- the comparison itself --------------------------------------------------------------------------------------------
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


def test_there_are_more_than_ten_architectures_of_three_collections() -> None:
    pytest.importorskip("torch")
    from tests.models.sources import SOURCES

    names = [source.name for source in SOURCES]
    assert len(set(names)) == len(names) >= 10
    assert {source.collection for source in SOURCES} == {"torchvision", "timm", "transformers"}
