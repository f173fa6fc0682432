"""Operators that ONNX Runtime fused, taken apart: each against its own kernel."""

from __future__ import annotations

from types import ModuleType
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper

from deep500.errors import NetworkError
from deep500.networks import Network
from tests.conftest import load_backend
from tests.tolerances import assert_close

runtime = pytest.importorskip("onnxruntime")


def n(*shape: int) -> np.ndarray:
    """Normal numbers."""
    return np.random.default_rng(sum(shape)).standard_normal(shape).astype(np.float32)


def i(*shape: int, most: int = 5, dtype: Any = np.int32) -> np.ndarray:
    """Whole numbers."""
    return np.random.default_rng(1).integers(0, most, shape).astype(dtype)


ANGLES = np.outer(np.arange(9), [1.0, 0.3])
COS, SIN = np.cos(ANGLES).astype(np.float32), np.sin(ANGLES).astype(np.float32)
MASK = np.array([[1, 1, 1, 1], [1, 1, 0, 0]], np.int32)
QKV = [n(2, 3, 8), n(2, 4, 8), n(2, 4, 8) * 2]
EMBED = [i(2, 4), i(2, 4, most=2), n(5, 6), n(9, 6), n(2, 6), n(6), n(6) + 1]

# fmt: off
CASES: dict[str, tuple[str, list[Any], dict[str, Any], int]] = {
    "bias gelu": ("BiasGelu", [n(2, 3), n(3)], {}, 1),
    "gelu": ("Gelu", [n(2, 3)], {}, 1),
    "fast gelu": ("FastGelu", [n(2, 3)], {}, 1),
    "fast gelu with bias": ("FastGelu", [n(2, 3), n(3)], {}, 1),
    "quick gelu": ("QuickGelu", [n(2, 3)], {"alpha": 1.5}, 1),
    "matmul": ("FusedMatMul", [n(2, 4, 3), n(2, 5, 4)], {"alpha": 0.5, "transA": 1, "transB": 1}, 1),
    "matmul without alpha": ("FusedMatMul", [n(3, 4), n(4, 2)], {}, 1),
    "gemm": (
        "FusedGemm", [n(3, 4), n(5, 4), n(5)], {"transB": 1, "activation": "LeakyRelu", "activation_alpha": 0.2}, 1),
    "conv": ("FusedConv", [n(1, 2, 5, 5), n(3, 2, 3, 3), n(3)], {"activation": "Relu", "pads": [1, 1, 1, 1]}, 1),
    "conv and sum": ("FusedConv", [n(1, 2, 5, 5), n(3, 2, 3, 3), n(3), n(1, 3, 3, 3)], {"activation": "Relu"}, 1),
    "conv and clip": ("FusedConv", [n(1, 2, 5, 5), n(3, 2, 3, 3)],
                      {"activation": "Clip", "activation_params": [-0.5, 0.5]}, 1),
    "skip": ("SkipLayerNormalization", [n(2, 3, 4), n(2, 3, 4) * 2, n(4), n(4) + 1], {"epsilon": 1e-3}, 1),
    "skip with bias": ("SkipLayerNormalization", [n(2, 3, 4), n(2, 3, 4), n(4), n(4) + 1, n(4)], {}, 4),
    "skip rms": ("SkipSimplifiedLayerNormalization", [n(2, 3, 4), n(2, 3, 4), n(4)], {}, 4),
    "rms": ("SimplifiedLayerNormalization", [n(2, 3, 4), n(4)], {"axis": -1, "epsilon": 1e-3}, 1),
    "embed": ("EmbedLayerNormalization", EMBED, {}, 2),
    "embed with mask": ("EmbedLayerNormalization", [*EMBED, MASK], {"epsilon": 1e-3}, 2),
    "embed with places": (
        "EmbedLayerNormalization", [EMBED[0], None, *EMBED[2:4], None, *EMBED[5:], None, i(2, 4)], {}, 2),
    "attention": ("Attention", [n(2, 4, 6), n(6, 24), n(24)], {"num_heads": 2}, 1),
    "attention with mask": ("Attention", [n(2, 4, 6), n(6, 24), n(24), MASK], {"num_heads": 4}, 1),
    "attention with lengths": (
        "Attention", [n(2, 4, 6), n(6, 24), n(24), np.array([4, 2], np.int32)], {"num_heads": 2}, 1),
    "attention, causal": ("Attention", [n(2, 4, 6), n(6, 24), n(24)], {"num_heads": 2, "unidirectional": 1}, 1),
    "attention, sizes": ("Attention", [n(2, 4, 6), n(6, 20), n(20)],
                         {"num_heads": 2, "qkv_hidden_sizes": [8, 8, 4], "scale": 0.3}, 1),
    "heads": ("MultiHeadAttention", QKV, {"num_heads": 2}, 1),
    "heads with bias": ("MultiHeadAttention", [*QKV, n(24)], {"num_heads": 2, "scale": 0.7}, 1),
    "heads with mask": ("MultiHeadAttention", [*QKV, None, MASK], {"num_heads": 2}, 1),
    "heads with more": ("MultiHeadAttention", [*QKV, n(24), None, n(2, 2, 3, 4)], {"num_heads": 2}, 1),
    "rotary": ("RotaryEmbedding", [n(2, 3, 8), i(2, 3, dtype=np.int64), COS, SIN], {}, 1),
    "rotary, one place": ("RotaryEmbedding", [n(2, 2, 3, 4), np.array([2]), COS, SIN], {"interleaved": 1}, 1),
}
# fmt: on


def model(kind: str, inputs: list[Any], attributes: dict[str, Any], outputs: int, domain: str = "com.microsoft") -> Any:
    """One node, its first floating operand an input; of more outputs only the first and the last have names."""
    names = [f"i{k}" if a is not None else "" for k, a in enumerate(inputs)]
    arrays = {m: a for m, a in zip(names, inputs, strict=True) if m}
    fed = {m: a for m, a in arrays.items() if m == "i0" or a.dtype.kind == "i"}
    written = [f"o{k}" if k in (0, outputs - 1) else "" for k in range(outputs)]
    node = helper.make_node(kind, names, written, domain=domain, **attributes)
    described = [
        helper.make_tensor_value_info(m, helper.np_dtype_to_tensor_dtype(a.dtype), a.shape) for m, a in fed.items()
    ]
    kinds = {"o1": onnx.TensorProto.INT32}
    graph = helper.make_graph(
        [node],
        kind,
        described,
        [helper.make_tensor_value_info(o, kinds.get(o, onnx.TensorProto.FLOAT), None) for o in written if o],
        [numpy_helper.from_array(a, m) for m, a in arrays.items() if m not in fed],
    )
    opsets = [helper.make_opsetid("", 14)] + [helper.make_opsetid(domain, 1)] * bool(domain)
    return helper.make_model(graph, opset_imports=opsets, ir_version=8), fed


@pytest.mark.filterwarnings("ignore:model. 0 arrays train")  # tables of sines
@pytest.mark.parametrize("case", CASES)
def test_what_is_taken_apart_is_what_the_kernel_computes(case: str) -> None:
    kind, inputs, attributes, outputs = CASES[case]
    proto, feeds = model(kind, inputs, attributes, outputs, "" if case == "rms" else "com.microsoft")
    session = runtime.InferenceSession(proto.SerializeToString(), providers=["CPUExecutionProvider"])
    want = session.run(None, feeds)
    network = Network.from_onnx(proto)
    assert {node.domain for node in network.nodes} == {""}
    got = load_backend("reference").from_model(network).inference(feeds)
    for name, value in zip(network.outputs, want, strict=True):
        assert_close(np.asarray(got[name]), value, err_msg=name)
        assert np.abs(value).max() > 0.01 or name == "o1"
    assert (
        network.trainable() == [m for m in network.parameters if m.startswith("i") and m[1:].isdigit()]
        or kind == "RotaryEmbedding"
    )


@pytest.mark.parametrize("case", ["attention with mask", "skip with bias", "conv and sum", "matmul", "embed with mask"])
def test_every_backend_trains_them(backend: ModuleType, case: str) -> None:
    proto, feeds = model(*CASES[case])
    network = Network.from_onnx(proto)
    network.add_node("Mul", ["o0", "o0"], ["square"])
    network.add_node("ReduceSum", ["square"], ["loss"], keepdims=0)
    network.add_output("loss")
    pairs = [g for _, g in network.gradient()]
    results = []
    for chosen in (backend, load_backend("reference")):
        executor = chosen.from_model(network)
        executor.inference_and_backprop(feeds)
        results.append([executor.network.to_numpy(t) for t in executor.network.fetch_tensors(pairs)])
    for name, got, want in zip(pairs, *results, strict=True):
        assert_close(got / np.abs(want).max(), want / np.abs(want).max(), "gradient", err_msg=name)
    assert any(np.abs(g).max() > 0.01 for g in results[1])


@pytest.mark.parametrize(
    ("kind", "inputs", "attributes", "outputs", "message"),
    [
        ("Attention", [n(2, 4, 6), n(6, 18), n(18), None, n(2, 2, 1, 5, 3)], {"num_heads": 2}, 1, "got a past"),
        ("FusedMatMul", [n(2, 4, 3), n(2, 4, 3)], {"transBatchA": 1}, 1, "got transBatchA"),
        ("Gelu", [n(2, 3)], {"approximate": "tanh"}, 1, "got attribute 'approximate'"),
        ("SkipLayerNormalization", [n(2, 3, 4), n(2, 3, 4), n(4)], {}, 2, "got output 'o1'"),
    ],
)
def test_other_forms_are_refused(kind: str, inputs: list[Any], attributes: Any, outputs: int, message: str) -> None:
    with pytest.raises(NetworkError, match=rf"model: node 'o0' \(com.microsoft.{kind}\): {message}"):
        Network.from_onnx(model(kind, inputs, attributes, outputs)[0])
