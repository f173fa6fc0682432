"""Half precision on the reference: what float32 computes of the same numbers, rounded once; near what float64 says."""

from __future__ import annotations

import numpy as np
import pytest

from deep500.frameworks.reference import Executor
from deep500.networks import Network
from deep500.tensors import numpy_dtype
from tests.networks.gradient_cases import CASES, Case
from tests.networks.operand_cases import ELSEWHERE, OTHERS, REFUSED, floating

ROWS = [
    case
    for case in (*CASES, *OTHERS)
    if floating(case) and case.op_type not in ELSEWHERE and case.name not in REFUSED and case.op_type != "Dropout"
]
DECIDED_BY_ROUNDING = {"GridSample": "a grid's edges are decided by rounding", "Unique": "numbers become equal"}
"""Rows that are not compared, and why."""


def run(case: Case, dtype: str, compute: str) -> tuple[tuple[str, ...], tuple[np.ndarray, ...]]:
    """Dtypes announced, and results in ``compute`` of inputs that were rounded to ``dtype``."""
    net, feeds = Network(case.name), {}
    names = ["" if value is None else f"x{k}" for k, value in enumerate(case.inputs)]
    for name, value in zip(names, case.inputs, strict=True):
        if value is not None and value.dtype.kind == "f":
            net.add_input(name, value.shape, compute)
            feeds[name] = value.astype(numpy_dtype(dtype)).astype(numpy_dtype(compute))
        elif value is not None:
            net.add_parameter(name, value, trainable=False)
    outputs = [f"y{k}" for k in range(case.outputs)]
    net.add_node(case.op_type, names, outputs, **case.attributes)
    for name in outputs:
        net.add_output(name)
    results = Executor(net).inference(feeds)
    return tuple(str(net.descriptors()[name].dtype) for name in outputs), tuple(results[name] for name in outputs)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
@pytest.mark.parametrize("case", ROWS, ids=lambda case: case.name)
def test_every_operator_is_computed_in_float32_and_rounded_once(case: Case, dtype: str) -> None:
    if case.op_type in DECIDED_BY_ROUNDING:
        pytest.skip(DECIDED_BY_ROUNDING[case.op_type])
    announced, got = run(case, dtype, dtype)
    _, single = run(case, dtype, "float32")
    _, double = run(case, dtype, "float64")
    for y, want, exact, name in zip(got, single, double, announced, strict=True):
        assert str(y.dtype) == name or name == "None"  # GroupNormalization's is not inferred
        np.testing.assert_array_equal(y, want.astype(y.dtype))
        half_a_step = 2.0**-11 if y.dtype == np.float16 else 2.0**-8
        np.testing.assert_allclose(y.astype(np.float64), exact, 1.02 * half_a_step, 1e-6 * np.abs(exact).max(initial=0))


def test_numbers_that_half_precision_alone_gets_wrong() -> None:
    mean = Case("mean", "ReduceMean", (np.full((5000,), -2340, "float16"),), {"keepdims": 0})
    assert run(mean, "float16", "float16")[1][0] == -2340
    point = Case("point", "Sigmoid", (np.array([-5.594], "float16"),))
    assert run(point, "float16", "float16")[1][0] == np.float16(1 / (1 + np.exp(5.59375)))
