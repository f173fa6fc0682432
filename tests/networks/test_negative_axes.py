"""Axes counted from the other end are the same axes: every row with an axis, gradients on five backends."""

from __future__ import annotations

import dataclasses
from types import ModuleType
from typing import Any

import numpy as np
import pytest
from onnx import defs

from deep500.errors import Deep500Error
from tests.networks.gradient_cases import CASES, Case, i, n
from tests.networks.operand_cases import ELSEWHERE, OTHERS, REFUSED, floating
from tests.networks.test_operand_gradients import gradients

NAMES = ("axis", "axes", "perm")
MORE = (
    Case("Transpose-three", "Transpose", (n(2, 3, 4),), {"perm": [1, 2, 0]}),
    Case("DequantizeLinear-axis", "DequantizeLinear", (i([1, -3], [7, 9]).astype(np.int8), n(2)), {"axis": 0}),
    Case("OneHot-axis", "OneHot", (i(0, 2, 1), np.array(4), n(2)), {"axis": 0}),
    Case("RMSNormalization-axis", "RMSNormalization", (n(2, 3, 4), n(3, 4)), {"axis": 1}),
    Case("CenterCropPad-axes", "CenterCropPad", (n(3, 5), i(4)), {"axes": [1]}),
    Case("TensorScatter-axis", "TensorScatter", (n(1, 2, 5, 3), n(1, 2, 2, 3), i(1)), {"axis": 2}),
    Case("Unique-axis", "Unique", (n(3, 2),), {"axis": 1}),
)
UNTRAINED = {
    **dict.fromkeys(("ArgMax", "ArgMin", "Hardmax", "QuantizeLinear"), "their gradient is zero"),
    **dict.fromkeys(("ConcatFromSequence", "SplitToSequence"), "tests/networks/gradients/test_sequences.py"),
    "MeanVarianceNormalization": "ONNX's body of it is of float32",
}
"""Operators with axes that have no row here, and why."""
RIGHT = {"reference": 57, "pytorch": 60, "tensorflow": 60, "jax": 60, "onnxruntime": 50}
"""How many rows have a gradient at least; the others are errors that name the node."""


def other_end(case: Case) -> Case | None:
    """The row with every axis counted from the other end; None where it has none."""
    rank = np.ndim(case.inputs[0])
    if case.op_type == "Unsqueeze":
        rank += np.size(case.inputs[1])
    elif case.op_type == "OneHot":
        rank += 1

    def turned(value: Any) -> Any:
        value = np.asarray(value)
        return np.where(value < 0, value + rank, value - rank)

    attributes = {k: turned(v).tolist() if k in NAMES else v for k, v in case.attributes.items()}
    names = [operand.name for operand in defs.get_schema(case.op_type).inputs]
    inputs = [
        turned(value) if value is not None and name in NAMES else value
        for name, value in zip([*names, *names[-1:] * len(case.inputs)], case.inputs, strict=False)
    ]
    same = attributes == case.attributes and all(a is b for a, b in zip(inputs, case.inputs, strict=True))
    return None if same else dataclasses.replace(case, inputs=tuple(inputs), attributes=attributes)


PAIRS = {
    case.name: (case, turned)
    for case in (*CASES, *OTHERS, *MORE)
    if floating(case) and case.op_type not in ELSEWHERE and case.name not in REFUSED
    if (turned := other_end(case)) is not None
}


@pytest.mark.slow
def test_axes_counted_from_the_other_end_have_the_same_gradients(backend: ModuleType) -> None:
    right, wrong, refused = 0, [], []
    turned = _found(backend, [turned for _, turned in PAIRS.values()])
    for name, want in _found(backend, [case for case, _ in PAIRS.values()]).items():
        got = turned[name]
        if isinstance(want, Deep500Error) or isinstance(got, Deep500Error):
            wrong += [] if type(want) is type(got) else [f"{name}: got {got}; expected {want}"]
            refused.append(f"{name}: {want}")
            continue
        right += 1
        for operand, gradient in got.items():
            if not np.allclose(gradient, want[operand], 1e-6, 1e-8):
                wrong.append(f"{operand}: got {gradient.ravel()[:4]}; expected {want[operand].ravel()[:4]}")
    assert not wrong, "\n".join(wrong)
    assert right >= RIGHT[backend.__name__.rpartition(".")[2]], "\n".join(refused)


def _found(backend: ModuleType, cases: list[Case]) -> dict[str, Any]:
    return {case.name: found for case, found in gradients(backend, cases)}


def test_every_operator_with_axes_has_a_row() -> None:
    rows = {case.op_type for case, _ in PAIRS.values()}
    missing = [
        schema.name
        for schema in defs.get_all_schemas()
        if not schema.domain and not schema.deprecated and schema.name not in {*UNTRAINED, *rows}
        if {*schema.attributes, *(operand.name for operand in schema.inputs)} & {*NAMES}
    ]
    assert not missing
