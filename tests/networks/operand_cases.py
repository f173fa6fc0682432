"""Which operands of which operators are trained by tests/networks/test_operand_gradients.py, and what they give.

The rows of tests/networks/gradient_cases.py, rows for operators without a rule of their own, and the refusals.
"""

from __future__ import annotations

import numpy as np

from tests.networks.gradient_cases import _RNG, CASES, Case, apart, away, i, n, pos

FLOATS = {"tensor(float16)", "tensor(float)", "tensor(double)", "tensor(bfloat16)"}
OTHERS: list[Case] = []


def other(op_type: str, *inputs: np.ndarray | None, outputs: int = 1, **attributes: object) -> None:
    """Add a row for an operator without a rule; the loss reads all of its outputs."""
    name = f"{op_type}-other {sum(c.op_type == op_type for c in OTHERS)}"
    OTHERS.append(Case(name, op_type, inputs, attributes, outputs, through=tuple(range(outputs))))


def _recurrent(op_type: str, gates: int, *more: np.ndarray) -> None:
    weights = [n(1, 3 * gates, 2), n(1, 3 * gates, 3), n(1, 6 * gates)]
    other(op_type, n(4, 2, 2), *weights, None, *more, hidden_size=3)


_recurrent("RNN", 1, n(1, 2, 3))
_recurrent("GRU", 3, n(1, 2, 3))
_recurrent("LSTM", 4, n(1, 2, 3), n(1, 2, 3))
_recurrent("LSTM", 4, n(1, 2, 3), n(1, 2, 3), n(1, 9))
_heads = [n(1, 2, 3, 4), n(1, 2, 5, 4), n(1, 2, 5, 4)]
other("Attention", *_heads, n(3, 7), n(1, 2, 2, 4), n(1, 2, 2, 4))
other("AffineGrid", n(2, 2, 3), i(2, 3, 4, 5))
_places = _RNG.integers(0, 3, (1, 3, 3, 2)) + _RNG.uniform(0.2, 0.8, (1, 3, 3, 2))  # of pixels, clear of their middles
other("GridSample", n(1, 2, 4, 5), (2 * _places + 1) / np.array([5, 4]) - 1)
other("DequantizeLinear", np.array([[1, -3], [7, 100]], np.int8), np.array(0.25), np.array(3, np.int8))
other("OneHot", i(0, 2, -1), np.array(4), n(2))
other("Range", np.array(0.3), np.array(3.1), np.array(0.5))
other("RotaryEmbedding", n(1, 2, 3, 4), n(1, 3, 2), n(1, 3, 2))
other("SwiGLU", n(2, 3), n(2, 3))
other("CumProd", away(2, 4), np.array(1, np.int64))
other("Det", n(2, 3, 3))
other("CenterCropPad", n(3, 5), i(4, 3))
other("STFT", n(1, 9, 1), np.array(2, np.int64), n(4))
other("DeformConv", n(1, 2, 4, 4), n(2, 2, 2, 2), _RNG.uniform(0.2, 0.4, (1, 8, 3, 3)), n(2), n(1, 4, 3, 3))
other("MaxUnpool", n(1, 1, 2, 2), i([[[0, 3], [9, 14]]]).reshape(1, 1, 2, 2), kernel_shape=[2, 2], strides=[2, 2])
_box = np.array([[0.6, 0.7, 4.2, 3.9]])
other("RoiAlign", n(1, 2, 6, 6), _box, i(0), output_height=2, output_width=2, sampling_ratio=2)
other("TensorScatter", n(1, 2, 5, 3), n(1, 2, 2, 3), i(1))
other("Unique", apart(6))
_tokens = [n(1, 3, 4), n(1, 3, 4), n(1, 3, 4), n(1, 2, 2, 2)]
other("LinearAttention", *_tokens, n(1, 3, 2), pos(1, 3, 2), outputs=2, q_num_heads=2, kv_num_heads=2)
other("CausalConvWithState", n(1, 2, 5), n(2, 1, 3), n(2), n(1, 2, 2), outputs=2)
for _op in ("Ceil", "Floor", "Round", "Sign"):
    other(_op, away(2, 3))

REFUSED: dict[str, str] = {
    "Dropout-1": "ratio has no gradient",
    "Resize-scales": "scales has no gradient|depends on data|cannot run",
    "Resize-axes": "scales has no gradient|depends on data|cannot run",
    "Resize-crop": "region has no gradient|depends on data|cannot run",
}
"""Rows that are an error in every backend, and what it says."""

BLOCKED: dict[tuple[str, int], str] = {
    ("Attention", 6): "lengths are counts",
    ("OneHot", 0): "indices",
    ("OneHot", 1): "a count",
    ("Tile", 1): "counts",
    ("CastLike", 1): "only its type is read",
    ("DFT", 1): "a count",
}
"""Operands that may be floating and only decide, by (operator, index)."""

ELSEWHERE: dict[str, str] = {
    "BitCast": "no numbers pass it, only bits",
    "Dropout-evaluation": "drops in training",
    "GlobalLpPool": "the reference has no kernel, and ONNX no body",
    "MaxRoiPool": "the reference has no kernel, and ONNX no body",
    "MeanVarianceNormalization": "ONNX's body is of float32",
    "MelWeightMatrix": "its edges are bins",
    "OptionalGetElement": "passes what it is given",
    **dict.fromkeys(("If", "Loop", "Scan"), "tests/networks/gradients/rules/test_control.py"),
    **dict.fromkeys(("Bernoulli", "RandomNormalLike", "RandomUniformLike"), "drawn"),
}
"""Operators that no row is for."""


ALSO = ("BatchNormalization-evaluation (4, 3)", "Pad-2", "Resize-scales", "Resize-axes", "Resize-crop")
"""Rows whose operands an earlier row trains otherwise."""


def floating(case: Case) -> list[int]:
    """Indices of its floating operands."""
    return [k for k, value in enumerate(case.inputs) if value is not None and value.dtype.kind == "f"]


def _chosen() -> list[Case]:
    """Rows in order, without those that train no operand that an earlier one does not."""
    seen: set[tuple[str, int]] = set()
    chosen = []
    for case in (*CASES, *OTHERS):
        new = {(case.op_type, k) for k in floating(case)} - seen
        if (new or case.name in ALSO) and case.name not in ELSEWHERE and case.op_type not in ELSEWHERE:
            seen |= new if case.name not in REFUSED else set()
            chosen.append(case)
    return chosen


CHOSEN = _chosen()
