"""Files that other optimizers wrote take part only where they compute the same."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import numpy_helper

from deep500.networks import Network
from deep500.transformations.substitutions import simplifiers
from deep500.transformations.substitutions.delivery import Source
from tests.transformations.substitutions.samples import branches


@pytest.fixture
def source(tmp_path: Path) -> Source:
    network = branches("N")
    network.add_node("Identity", ["y"], ["z"])
    network.add_output("z")
    network.to_onnx(tmp_path / "in.onnx", opset=17)
    return Source.read(tmp_path / "in.onnx", network)


def doubled(model: onnx.ModelProto) -> onnx.ModelProto:
    weight = model.graph.initializer[0]
    weight.CopyFrom(numpy_helper.from_array(np.float32(2) * numpy_helper.to_array(weight), weight.name))
    return model


def renamed(model: onnx.ModelProto) -> onnx.ModelProto:
    model.graph.node[-1].output[0] = model.graph.output[-1].name = "other"
    return model


def refused(model: onnx.ModelProto) -> Any:
    raise RuntimeError("no such operator\nand more")


def described(model: onnx.ModelProto) -> onnx.ModelProto:
    model.doc_string = "simplified"
    return model


def test_what_fails_or_computes_something_else_is_left_out(source: Source, monkeypatch: pytest.MonkeyPatch) -> None:
    fakes = {"good": described, "wrong": doubled, "same": lambda m: m, "renamed": renamed, "refused": refused}
    monkeypatch.setattr(simplifiers, "SIMPLIFIERS", {**fakes, "absent": described})
    monkeypatch.setattr(simplifiers, "find_spec", lambda name: None if name == "absent" else name)
    failed: dict[str, str] = {}
    results = simplifiers.simplified(source, failed)
    assert [onnx.load_from_string(data).doc_string for data in results.values()] == ["simplified"]
    assert list(results) == ["good"] and set(failed) == {"wrong", "renamed", "refused"}
    assert failed["refused"] == "RuntimeError: no such operator" and "relative error" in failed["wrong"]
    monkeypatch.setattr(simplifiers, "MOST_BYTES", 1000)
    assert not simplifiers.simplified(source, failed) and "2 GiB" in failed["good"]


def fixed(model: onnx.ModelProto) -> onnx.ModelProto:
    """Right for batches of up to eight."""
    name, whole = model.graph.output[-1].name, model.graph.node[-1]
    whole.output[0] = "whole"
    ends = [numpy_helper.from_array(np.array([number]), f"end{number}") for number in (0, 8)]
    model.graph.initializer.extend(ends)
    model.graph.node.append(onnx.helper.make_node("Slice", ["whole", "end0", "end8", "end0"], [name]))
    return model


def test_what_holds_for_some_sizes_only_is_left_out(source: Source, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(simplifiers, "SIMPLIFIERS", {"fixed": fixed})
    monkeypatch.setattr(simplifiers, "find_spec", lambda name: name)
    failed: dict[str, str] = {}
    assert max(source.numbers(Network.from_onnx(source.path)).values()) < 8
    assert not simplifiers.simplified(source, failed) and "relative error inf" in failed["fixed"]


def test_no_further_one_begins_after_its_time(source: Source, monkeypatch: pytest.MonkeyPatch) -> None:
    clock = iter(range(0, 100, 4))
    monkeypatch.setattr(simplifiers, "cpu_seconds", lambda: next(clock))
    monkeypatch.setattr(simplifiers, "SIMPLIFIERS", {"first": described, "second": described})
    monkeypatch.setattr(simplifiers, "find_spec", lambda name: name)
    failed: dict[str, str] = {}
    assert list(simplifiers.simplified(source, failed, 5.0)) == ["first"]
    assert "at most 5" in failed["second"]


@pytest.mark.parametrize("certifies", [False, True])
def test_onnxsim_does_not_prove_what_is_checked_here(
    certifies: bool, source: Source, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its proof by Z3 took 48 of the 65 seconds of a GPT-2; older ones have no such option."""

    def older(model: onnx.ModelProto) -> tuple[onnx.ModelProto, bool]:
        return described(model), True

    def newer(model: onnx.ModelProto, certify: bool | None = None) -> tuple[onnx.ModelProto, bool]:
        assert certify is False
        return described(model), True

    package = SimpleNamespace(simplify=newer if certifies else older)
    monkeypatch.setattr(simplifiers, "import_module", lambda name: package)
    monkeypatch.setattr(simplifiers, "SIMPLIFIERS", {"onnxsim": simplifiers.SIMPLIFIERS["onnxsim"]})
    monkeypatch.setattr(simplifiers, "find_spec", lambda name: name)
    failed: dict[str, str] = {}
    assert list(simplifiers.simplified(source, failed)) == ["onnxsim"] and not failed


def test_onnxscript_takes_part(source: Source) -> None:
    pytest.importorskip("onnxscript")
    failed: dict[str, str] = {}
    results = simplifiers.simplified(source, failed)
    assert "onnxscript" not in failed
    assert len(Network.from_onnx(results["onnxscript"]).nodes) < len(branches().nodes) + 2, "the copy goes"
