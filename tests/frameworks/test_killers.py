"""Numbers that end processes elsewhere: on every backend the right answer or one error of ours, never a raw one.

A case that kills its process takes the whole run down with it: that is meant to be seen.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np
import pytest
from onnx import helper, numpy_helper

from deep500.errors import Deep500Error
from deep500.networks import Network
from deep500.registry import load_backend

BACKENDS = ("reference", "pytorch", "onnxruntime", "tensorflow", "jax")
INF, NAN = float("inf"), float("nan")
ROW = np.arange(4, dtype=np.float32)
IMAGE = np.ones((1, 1, 4, 4), np.float32)


class Case(NamedTuple):
    """One node; ``answer`` is the right one, None where there is none."""

    kind: str
    operands: tuple[np.ndarray | None, ...]
    attributes: Mapping[str, Any] = MappingProxyType({})
    answer: np.ndarray | None = None
    outputs: int = 1


def whole(*values: int) -> np.ndarray:
    return np.array(values, np.int64)


def real(*values: float) -> np.ndarray:
    return np.array(values, np.float32)


def shift(direction: str, by: int) -> Case:
    answer = np.array([0, 0], np.uint8)
    return Case("BitShift", (np.array([1, 255], np.uint8), np.full(2, by, np.uint8)), {"direction": direction}, answer)


def pool(kind: str, **attributes: Any) -> Case:
    return Case(kind, (IMAGE,), attributes)


CASES = {
    "shift left by the width": shift("LEFT", 8),
    "shift right by the width": shift("RIGHT", 8),
    "shift left by more": shift("LEFT", 200),
    "shift right by more": shift("RIGHT", 200),
    "convolution by stride 0": Case("Conv", (IMAGE, np.ones((1, 1, 2, 2), np.float32)), {"strides": [0, 1]}),
    "convolution by dilation 0": Case("Conv", (IMAGE, np.ones((1, 1, 2, 2), np.float32)), {"dilations": [0, 1]}),
    "top -1": Case("TopK", (ROW, whole(-1)), outputs=2),
    "top 9 of 4": Case("TopK", (ROW, whole(9)), outputs=2),
    "step 0": Case("Slice", (ROW, whole(0), whole(4), whole(0), whole(0))),
    "cut more than there is": Case("Pad", (ROW, whole(-3, -3))),
    "parts of too little": Case("Split", (ROW, whole(1, 2)), outputs=2),
    "parts of too much": Case("Split", (ROW, whole(4, 4)), outputs=2),
    "parts below zero": Case("Split", (ROW, whole(-1, 5)), outputs=2),
    **{f"scale {by}": Case("Resize", (IMAGE, None, real(1, 1, by, 1))) for by in (0.0, INF, NAN, -1.0)},
    "maximum of kernel 0": pool("MaxPool", kernel_shape=[0, 2]),
    "mean of kernel 0": pool("AveragePool", kernel_shape=[0, 2]),
    "maximum by stride 0": pool("MaxPool", kernel_shape=[2, 2], strides=[0, 1]),
    "mean of a kernel below zero": pool("AveragePool", kernel_shape=[-1, 2]),
    "hidden size of nobody": Case(
        "LSTM",
        (np.ones((2, 1, 3), np.float32), np.ones((1, 8, 3), np.float32), np.ones((1, 8, 2), np.float32)),
        {"hidden_size": 5},
    ),
    "a layout of nobody": Case(
        "LSTM",
        (np.ones((2, 1, 3), np.float32), np.ones((1, 8, 3), np.float32), np.ones((1, 8, 2), np.float32)),
        {"hidden_size": 2, "layout": -(2**31)},
    ),
    "gather beyond": Case("Gather", (ROW, whole(4))),
    "gather before": Case("Gather", (ROW, whole(-5))),
    "gather far beyond": Case("Gather", (ROW, whole(2**62))),
    "gather points beyond": Case("GatherND", (ROW, whole(4)[:, None])),
    "gather points before": Case("GatherND", (ROW, whole(-5)[:, None])),
    "gather elements beyond": Case("GatherElements", (ROW, whole(4))),
    "scatter points beyond": Case("ScatterND", (ROW, whole(4)[:, None], real(1))),
    "scatter points before": Case("ScatterND", (ROW, whole(-5)[:, None], real(1))),
    "scatter elements beyond": Case("ScatterElements", (ROW, whole(4), real(1))),
    "two sizes left open": Case("Reshape", (ROW, whole(-1, -1))),
    "a size of -2": Case("Reshape", (ROW, whole(-2, 2))),
    "attention of no heads": Case("Attention", (np.ones((1, 2, 4), np.float32),) * 3, {"q_num_heads": 2}),
    "a stride too many": pool("AveragePool", kernel_shape=[2, 2], strides=[1, 1, 1]),
    "random up to nowhere": Case("RandomUniformLike", (ROW,), {"high": NAN}),
    "random from above": Case("RandomUniformLike", (ROW,), {"low": 2.0, "high": 1.0}),
    "heads below zero": Case(
        "Attention", (np.ones((1, 2, 4), np.float32),) * 3, {"q_num_heads": -(2**63), "kv_num_heads": 2}
    ),
    "unique along no axis": Case("Unique", (ROW,), {"axis": 3}),
    "an image of no size": Case("Col2Im", (np.ones((1, 5, 15), np.float32), whole(2**31, -1), whole(1, 5))),
    "blocks of everything": Case(
        "DequantizeLinear", (np.ones(5, np.int8), real(1), np.zeros(1, np.int8)), {"block_size": 2**63 - 1}
    ),
    "batches before the first": Case("GatherND", (IMAGE, whole(0)[:, None]), {"batch_dims": -7}),
    "an axis of more than 32 bits": Case("LayerNormalization", (IMAGE, np.ones(4, np.float32)), {"axis": 2**31}),
    "parts of another number": Case("Split", (ROW,), {"num_outputs": 2}, outputs=3),
    "spectrum of no length": Case("STFT", (np.ones((1, 8, 1), np.float32), whole(2)[0])),
    "nothing in a list": Case("Min", (ROW, None)),
    "smallest by -1": Case("Div", (whole(-(2**63)), whole(-1)), {}, whole(-(2**63))),
}


def network(case: Case, fixed: bool) -> tuple[bytes, dict[str, np.ndarray]]:
    """The file, and what to feed: its operands after the first are in the file, or fed."""
    names = ["" if value is None else f"x{i}" for i, value in enumerate(case.operands)]
    given = {name: value for name, value in zip(names, case.operands, strict=True) if value is not None}
    fed = {name: value for name, value in given.items() if name == "x0" or not fixed}
    arrays = [numpy_helper.from_array(value, name) for name, value in given.items() if name not in fed]
    kinds = {name: helper.np_dtype_to_tensor_dtype(value.dtype) for name, value in given.items()}
    inputs = [helper.make_tensor_value_info(name, kinds[name], value.shape) for name, value in fed.items()]
    results = [f"y{i}" for i in range(case.outputs)]
    outputs = [
        helper.make_tensor_value_info(n, 7 if n == "y1" and case.kind == "TopK" else kinds["x0"], None) for n in results
    ]
    node = helper.make_node(case.kind, names, results, name="killer", **case.attributes)
    graph = helper.make_graph([node], "graph", inputs, outputs, arrays)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 23)], ir_version=11)
    return model.SerializeToString(), fed


@pytest.mark.filterwarnings("ignore::deep500.networks.onnx.load.DoubtfulParametersWarning")
@pytest.mark.parametrize("fixed", [True, False], ids=["in the file", "fed"])
@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("backend", BACKENDS)
def test_killers_end_in_an_answer_or_an_error_of_ours(backend: str, name: str, fixed: bool) -> None:
    if backend != "reference":
        pytest.importorskip({"pytorch": "torch"}.get(backend, backend))
    case = CASES[name]
    data, feeds = network(case, fixed)
    if case.answer is not None:
        got = load_backend(backend).from_model(Network.from_onnx(data)).inference(feeds)["y0"]
        np.testing.assert_array_equal(np.asarray(got), case.answer)
        return
    with pytest.raises(Deep500Error):
        load_backend(backend).from_model(Network.from_onnx(data)).inference(feeds)
