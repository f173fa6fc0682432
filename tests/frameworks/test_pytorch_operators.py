"""The PyTorch backend's operators against ONNX's node tests (all: ``python -m tests.conformance``)."""

from __future__ import annotations

import importlib
import pkgutil
import re
import warnings
from typing import Any

import numpy as np
import onnx
import onnx.backend.test.case.node as cases
import pytest

import deep500.frameworks.pytorch as d5fw
from deep500.errors import UnsupportedOperator

pytestmark = pytest.mark.backend("pytorch")

NOT_RUN = {
    r"ai_onnx_ml|adagrad|adam|momentum|image_decoder|strnorm|string|regex|tfidf|label_encoder": "no tensor arithmetic",
    r"_expanded$": "function bodies of operators that are tested themselves",
    r"bernoulli|training_dropout": "random: the numbers cannot be equal",
    r"float8|e8m0|float4|e2m1|e5m2|e4m3|int4|int2": "dtypes that torch rounds differently or lacks",
    r"dft_inverse|attention_4d_causal_fp16": "the suite's absolute tolerance is below round-off",
    r"if_opt|loop16_seq_none|scan_sum|unique_bfloat16|sequence_map_extract": "rare types",
}
"""Cases that are left out, by reason; what stands in no table must pass or be refused by name."""
UNSUPPORTED = {"DeformConv", "FlexAttention", "MaxRoiPool", "MelWeightMatrix", "RoiAlign"}
SLOW = {"averagepool", "maxpool", "lppool", "image_decoder"}  # building their cases takes a second each
MODULES = sorted({m.name for m in pkgutil.iter_modules(cases.__path__)} - SLOW)


def _cases(module: str) -> list[Any]:
    """The cases that importing a module of the suite adds."""
    before = len(cases._NodeTestCases)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        importlib.import_module(f"onnx.backend.test.case.node.{module}")
    return cases._NodeTestCases[before:]


@pytest.mark.parametrize("module", MODULES)
def test_node_cases_of_the_suite(module: str) -> None:
    for case in _cases(module):
        if any(re.search(pattern, case.name, re.IGNORECASE) for pattern in NOT_RUN):
            continue
        try:
            executor = d5fw.from_onnx(case.model)
        except UnsupportedOperator as error:
            assert any(name in str(error) for name in UNSUPPORTED), f"{case.name}: {error}"
            continue
        for inputs, wanted in case.data_sets:
            given = {n: _array(v) for n, v in zip(executor.network.inputs, inputs, strict=False)}
            got = executor.inference(given)
            for name, want in zip(executor.network.outputs, wanted, strict=True):
                _compare(case, got[name], want)


def _array(value: Any) -> Any:
    if value is None or isinstance(value, list):
        return value
    return onnx.numpy_helper.to_array(value) if isinstance(value, onnx.TensorProto) else np.asarray(value)


def _compare(case: Any, got: Any, want: Any) -> None:
    if isinstance(want, list):
        assert len(got) == len(want), case.name
        for part, wanted in zip(got, want, strict=True):
            _compare(case, part, wanted)
        return
    array, want = d5fw.dtypes.to_array(got), _array(want)
    assert (array.shape, array.dtype) == (want.shape, want.dtype), case.name
    rtol = 2**-6 if array.dtype.name == "bfloat16" else case.rtol
    if array.dtype.name == "bfloat16":
        array, want = array.astype(np.float32), want.astype(np.float32)
    np.testing.assert_allclose(array, want, rtol=rtol, atol=1e-6, err_msg=case.name)
