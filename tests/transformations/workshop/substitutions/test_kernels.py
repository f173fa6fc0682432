"""Every axiom with the real kernels of every backend; what a wrong kernel or a wrong axiom does there is found."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import pytest
from onnx import checker

from deep500.errors import MissingBackend
from deep500.networks.onnx.dump import dump
from deep500.transformations.substitutions.operators.arithmetic import Real
from deep500.transformations.substitutions.operators.specification import ShapeMismatch, operator
from deep500.transformations.substitutions.proofs import kernels, lowering
from deep500.transformations.substitutions.proofs.axioms import Axiom, axioms
from deep500.transformations.substitutions.proofs.kernels import Magnitude, check_kernels
from deep500.transformations.substitutions.proofs.lowering import cases, lower
from deep500.transformations.substitutions.proofs.validation import Sides
from deep500.transformations.substitutions.rules.patterns import parse

SAME = '"3,3" "1,1" "1,1,1,1"'
EXCLUDED = Axiom(
    "average without padding as conv",
    f'(conv {SAME} "1,1" g x (pool_kernel q))',
    f'(avgpool {SAME} "False" x)',
    ("g = size (pool_kernel q) 0",),
)
POOLING = [axiom for axiom in axioms() if axiom.name.startswith(("38 ", "42 "))]


def test_axioms_hold_with_the_kernels_of_every_backend(backend_name: str) -> None:
    chosen = [case for axiom in axioms() for case in cases(axiom, 1, seed=3)]
    result = check_kernels(backend_name, chosen)
    assert not result.differences and not result.refused
    assert result.cases == len(chosen) == len(axioms()) and 0 < result.worst < 1


@pytest.mark.parametrize("backend", ["reference", "onnxruntime"])
def test_axioms_hold_in_float64(backend: str, request: pytest.FixtureRequest) -> None:
    request.applymarker(pytest.mark.backend(backend))
    pytest.importorskip({"reference": "numpy"}.get(backend, backend))
    result = check_kernels(backend, [case for axiom in axioms() for case in cases(axiom, 1, seed=4)], "float64")
    assert not result.differences and not result.refused and 0 < result.worst < 1


def test_a_wrong_axiom_differs_on_every_backend(backend_name: str) -> None:
    """A pool that excludes padding from what it divides by is no convolution."""
    result = check_kernels(backend_name, cases(EXCLUDED, 3, seed=1))
    assert set(result.differences) == {EXCLUDED.name} and "differ by" in result.differences[EXCLUDED.name]
    assert result.worst > 1


def test_a_kernel_that_excludes_padding_breaks_axioms_38_and_42(monkeypatch: pytest.MonkeyPatch) -> None:
    """The defect of cuDNN's pool in the paper's system, planted in the ONNX form: the axioms themselves are right."""
    chosen = [case for axiom in POOLING for case in cases(axiom, 4, seed=1)]
    assert not check_kernels("reference", chosen).differences
    right = operator("avgpool")

    def exclude(inputs: Any, outputs: Any, parameters: Any, shapes: Any) -> Any:
        return right.onnx(inputs, outputs, {**parameters, "count_padding": False}, shapes)

    planted = dataclasses.replace(right, onnx=exclude)
    monkeypatch.setattr(lowering, "operator", lambda name: planted if name == "avgpool" else operator(name))
    assert set(check_kernels("reference", chosen).differences) == {axiom.name for axiom in POOLING}


def test_a_kernel_wrong_on_both_sides_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """Both sides of the axiom agree with each other; neither agrees with the specification."""
    (chosen,) = ([c for c in cases(axiom, 40, seed=1)] for axiom in axioms() if axiom.name == "average scale")
    assert any(case.parameters["c"] and any(case.parameters["d"]) for case in chosen)
    right = operator("avgpool")
    planted = dataclasses.replace(
        right, onnx=lambda i, o, parameters, s: right.onnx(i, o, {**parameters, "count_padding": False}, s)
    )
    monkeypatch.setattr(lowering, "operator", lambda name: planted if name == "avgpool" else operator(name))
    result = check_kernels("reference", chosen)
    assert "float64" in result.differences["average scale"]


def test_what_a_backend_refuses_is_named_and_keeps_no_other_from_running(monkeypatch: pytest.MonkeyPatch) -> None:
    chosen = [case for axiom in axioms()[:5] for case in cases(axiom, 1)]
    real = kernels._run

    def refuse(backend: str, batch: Any, dtype: str) -> Any:
        if any(case.axiom is axioms_first for case in batch):
            raise ShapeMismatch("got this axiom; expected another; choose it")
        return real(backend, batch, dtype)

    axioms_first = chosen[2].axiom
    monkeypatch.setattr(kernels, "_run", refuse)
    result = check_kernels("reference", chosen)
    assert result.refused == {axioms_first.name: "got this axiom; expected another; choose it"} and result.cases == 4


def test_a_missing_backend_is_an_error() -> None:
    with pytest.raises(MissingBackend):
        check_kernels("torch", [])


def test_lowered_sides_are_what_the_evaluator_computes() -> None:
    """The network of all axioms, checked and run by ONNX's own evaluator, which shares no code with backends."""
    from onnx.reference import ReferenceEvaluator

    chosen = [case for axiom in axioms() for case in cases(axiom, 1, seed=5) if case.parameters.get("f") != "gelu"]
    model = dump(lower(chosen, "float64"), opset=20)
    checker.check_model(model, full_check=True)
    inputs = {f"c{n}_{name}": value for n, case in enumerate(chosen) for name, value in case.inputs.items()}
    result = ReferenceEvaluator(model).run(None, inputs)
    assert len(chosen) > 60
    for case, left, right in zip(chosen, result[::2], result[1::2], strict=True):
        sides = Sides({name: value[None] for name, value in case.inputs.items()}, case.parameters, Real())
        expected = case.evaluate(sides)[0][0]
        for side in (left, right):
            np.testing.assert_allclose(side, expected, rtol=1e-10, atol=1e-12, err_msg=case.axiom.name)


def test_magnitude_bounds_what_cancels() -> None:
    values = {"x": np.array([[[1.0, -1.0]]]), "y": np.array([[[3.0], [3.0]]])}
    pattern, magnitude = parse("(matmul x y)"), Magnitude()
    assert Sides(values, {}, Real()).evaluate(pattern).item() == 0
    assert Sides({n: abs(v) for n, v in values.items()}, {}, magnitude).evaluate(pattern).item() == 6
    assert magnitude.terms == 3


def test_too_few_sizes_that_fit_are_an_error() -> None:
    with pytest.raises(ShapeMismatch, match="got 0 cases"):
        cases(Axiom("never", "(matmul (identity q) (pool_kernel q))", "(pool_kernel q)"), 1, trials=50)
