"""Nodes by which sharding rules are judged, with sizes that 2, 3 and 4 ranks divide or not."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from deep500.transformations.parallel.rules import SHARDING_RULES
from deep500.transformations.parallel.rules.elementwise import FUNCTIONS, MERGING


class RuleCase(NamedTuple):
    """A node: arrays are its inputs, those numbered in ``fixed`` parameters, None an input left out."""

    op_type: str
    inputs: list[np.ndarray | None]
    outputs: int
    attributes: dict[str, Any]
    fixed: frozenset[int]


_rng = np.random.default_rng(39)


def numbers(*shape: int, low: float = -2, high: float = 2) -> np.ndarray:
    """Floating numbers, none near 0 or a border of a piecewise function."""
    return np.round(_rng.uniform(low, high, shape), 3) + 0.0117


def whole(*shape: int, high: int) -> np.ndarray:
    """Indices."""
    return _rng.integers(0, high, shape)


def ints(*values: int) -> np.ndarray:
    return np.array(values, np.int64)


def case(op_type: str, *inputs: np.ndarray | None, outputs: int = 1, fixed: str = "", **attributes: Any) -> RuleCase:
    return RuleCase(op_type, list(inputs), outputs, attributes, frozenset(map(int, fixed)))


A, B = (4, 5, 6), (12, 7)
_BOUNDED = {"Acos", "Asin", "Atanh"}
_POSITIVE = {"Acosh", "Log", "Sqrt"}
_BOOL = {"And", "Or", "Xor", "Not"}
_INTS = {"BitShift", "BitwiseAnd", "BitwiseOr", "BitwiseXor", "BitwiseNot"}
_LOSSES = ("SoftmaxCrossEntropyLoss", "NegativeLogLikelihoodLoss")


def _operand(op_type: str, shape: tuple[int, ...]) -> np.ndarray:
    if op_type in _BOOL:
        return numbers(*shape) > 0
    if op_type in _INTS:
        return whole(*shape, high=7).astype(np.uint8)
    low, high = (-0.9, 0.9) if op_type in _BOUNDED else (1.1, 3.0) if op_type in _POSITIVE | {"Pow"} else (-2.0, 2.0)
    return numbers(*shape, low=low, high=high)


def _elementwise() -> list[RuleCase]:
    cases = []
    for op_type in FUNCTIONS.split():
        cases += [case(op_type, _operand(op_type, shape)) for shape in (A, B)]
    for op_type in MERGING.split():
        extra: dict[str, Any] = {"direction": "LEFT"} if op_type == "BitShift" else {}
        extra |= {"fmod": 1} if op_type == "Mod" else {}
        for left, right in (((4, 5, 6), (5, 1)), ((12, 7), (12, 7))):
            cases.append(case(op_type, _operand(op_type, left), _operand(op_type, right), **extra))
    for op_type in ("Add", "Sub", "Mul", "Div", "Sum", "Mean"):
        cases += [case(op_type, numbers(4, 5, 6), numbers(5, 1)), case(op_type, numbers(5, 1), numbers(12, 5, 4))]
    return [
        *cases,
        case("Identity", numbers(*A)),
        case("Neg", numbers(*B)),
        case("Cast", numbers(*A), to=1),
        case("Cast", numbers(*A), to=7),
        case("Where", numbers(4, 5, 1) > 0, numbers(5, 6), numbers(4, 5, 6)),
        case("Clip", numbers(*A), np.array(-1.0), np.array(1.0)),
        case("Dropout", numbers(*A)),
    ]


def _contractions() -> list[RuleCase]:
    x, w, r = numbers(3, 4, 5), numbers(1, 24, 5), numbers(1, 24, 6)
    cases = [
        case("MatMul", numbers(4, 6), numbers(6, 8)),
        case("MatMul", numbers(5, 4, 7), numbers(5, 7, 3)),
        case("MatMul", numbers(2, 4, 4, 7), numbers(4, 7, 3)),
        case("Gemm", numbers(4, 6), numbers(6, 8), numbers(8)),
        case("Gemm", numbers(6, 4), numbers(5, 6), numbers(4, 1), transA=1, transB=1, alpha=0.5, beta=1.5),
        case("Gemm", numbers(7, 5), numbers(5, 3)),
        case("Einsum", numbers(4, 5, 6), numbers(4, 6, 3), equation="bij,bjk->bik"),
        case("Einsum", numbers(4, 5), numbers(3), equation="ik,j->ij"),
        case("LSTM", x, w, r, numbers(1, 48), None, numbers(1, 4, 6), outputs=3, hidden_size=6),
        case("GRU", x, numbers(1, 18, 5), numbers(1, 18, 6), outputs=2, hidden_size=6, linear_before_reset=1),
        case("RNN", x, numbers(1, 6, 5), numbers(1, 6, 6), numbers(1, 12), outputs=2, hidden_size=6),
        case("LayerNormalization", numbers(4, 5, 6), numbers(6), numbers(6)),
        case("LayerNormalization", numbers(4, 5, 6), numbers(5, 6), numbers(5, 6), axis=1, outputs=3),
        case("RMSNormalization", numbers(4, 5, 6), numbers(6)),
        case("GroupNormalization", numbers(4, 6, 3), numbers(6), numbers(6), num_groups=3),
        case("InstanceNormalization", numbers(4, 6, 3), numbers(6), numbers(6)),
        case("LRN", numbers(4, 5, 3, 4), size=3),
    ]
    channels = [numbers(4), numbers(4), numbers(4), numbers(4, low=0.5)]
    cases += [
        case("BatchNormalization", numbers(5, 4, 3, 4), *channels),
        case("BatchNormalization", numbers(5, 4, 3, 4), *channels, outputs=3, training_mode=1),
    ]
    return cases + [
        case(op_type, numbers(4, 5, 6), axis=axis)
        for op_type in ("Softmax", "LogSoftmax", "Hardmax", "LpNormalization")
        for axis in (1, -1)
    ]


def _windows() -> list[RuleCase]:
    image = numbers(5, 4, 5, 6)
    return [
        case("Conv", image, numbers(8, 4, 3, 3), numbers(8), pads=[1, 1, 1, 1]),
        case("Conv", image, numbers(7, 4, 2, 2), strides=[2, 1]),
        case("Conv", image, numbers(8, 1, 3, 3), numbers(8), group=4, pads=[1, 1, 1, 1]),
        case("Conv", numbers(2, 6, 4, 4), numbers(6, 1, 3, 3), group=6),
        case("ConvTranspose", image, numbers(4, 6, 2, 2), numbers(6), strides=[2, 2]),
        case("ConvTranspose", image, numbers(4, 2, 2, 2), group=4),
        case("MaxPool", image, kernel_shape=[2, 2]),
        case("MaxPool", numbers(12, 2, 4, 4), outputs=2, kernel_shape=[2, 2], strides=[2, 2]),
        case("AveragePool", image, kernel_shape=[3, 3], pads=[1, 1, 1, 1]),
        case("LpPool", image, kernel_shape=[2, 2]),
        case("GlobalAveragePool", image),
        case("GlobalMaxPool", image),
        case("DepthToSpace", numbers(5, 8, 2, 3), blocksize=2),
        case("SpaceToDepth", numbers(5, 2, 4, 6), blocksize=2),
    ]


def _reductions() -> list[RuleCase]:
    names = "ReduceSum ReduceSumSquare ReduceL1 ReduceMean ReduceMax ReduceMin ReduceProd ReduceL2 ReduceLogSumExp"
    cases = [case("ReduceLogSum", numbers(4, 5, 6, low=0.5), ints(1), fixed="1")]
    for op_type in names.split():
        cases += [
            case(op_type, numbers(4, 5, 6), ints(1, -1), fixed="1"),
            case(op_type, numbers(4, 7, 6), ints(0), fixed="1", keepdims=0),
            case(op_type, numbers(5, 7)),
        ]
    for op_type in _LOSSES:
        labels, weights = whole(5, 6, high=4), numbers(4, low=0.5)
        for reduction in ("sum", "none", "mean"):
            cases += [
                case(op_type, numbers(6, 4), whole(6, high=4), reduction=reduction),
                case(op_type, numbers(5, 4, 6), labels, weights, reduction=reduction, ignore_index=2),
            ]
    return [
        *cases,
        case("ArgMax", numbers(4, 5, 6), axis=1),
        case("ArgMin", numbers(4, 5, 6), axis=-1, keepdims=0),
        case("TopK", numbers(4, 5, 6), ints(2), outputs=2, fixed="1", axis=1),
        case("CumSum", numbers(4, 5, 6), np.array(1), fixed="1"),
    ]


def _movement() -> list[RuleCase]:
    x = numbers(4, 5, 6)
    return [
        case("Transpose", x, perm=[2, 0, 1]),
        case("Transpose", x),
        case("Reshape", numbers(4, 6, 5), ints(24, 5), fixed="1"),
        case("Reshape", numbers(12, 8), ints(12, 2, -1), fixed="1"),
        case("Reshape", numbers(5, 4, 6), ints(0, -1), fixed="1"),
        case("Reshape", numbers(1, 6, 4), ints(2, 12, 1), fixed="1"),
        case("Flatten", numbers(4, 6, 5), axis=1),
        case("Flatten", numbers(4, 6, 5), axis=2),
        case("Squeeze", numbers(4, 1, 6), ints(1), fixed="1"),
        case("Unsqueeze", numbers(4, 6), ints(0, 2), fixed="1"),
        case("Expand", numbers(4, 1, 6), ints(3, 4, 5, 6), fixed="1"),
        case("Expand", numbers(5, 1), ints(7), fixed="1"),
        case("ConstantOfShape", ints(4, 5), fixed="0", value=np.array([2.5])),
        case("Concat", numbers(4, 5, 6), numbers(4, 3, 6), axis=1),
        case("Split", x, ints(2, 4), outputs=2, fixed="1", axis=2),
        case("Split", x, outputs=3, axis=-1, num_outputs=3),
        case("Slice", x, ints(1), ints(4), ints(1), fixed="123"),
        case("Pad", x, ints(0, 1, 0, 0, 2, 0), fixed="1"),
        case("Pad", x, ints(1, 1), np.array(1.5), ints(2), fixed="123"),
        case("Tile", x, ints(1, 2, 1), fixed="1"),
        case("Trilu", numbers(5, 4, 4)),
        case("Gather", numbers(7, 5, 6), whole(4, 3, high=7), axis=0),
        case("Gather", numbers(4, 7, 6), whole(5, high=7), axis=1),
        case("GatherElements", numbers(4, 7, 6), whole(4, 3, 5, high=7), axis=1),
        case("ScatterElements", numbers(4, 3, 6), np.tile(ints(2, 0)[:, None], (4, 1, 6)), numbers(4, 2, 6), axis=1),
        case("ScatterND", numbers(7, 5), whole(4, 3, 1, high=7), numbers(4, 3, 5), reduction="add"),
        case("ScatterND", numbers(7, 5), ints(3, 1)[:, None], numbers(2, 5)),
        case("OneHot", whole(4, 5, high=6), np.array(6), np.array([0.0, 1.0]), axis=1, fixed="1"),
    ]


CASES = [*_elementwise(), *_contractions(), *_windows(), *_reductions(), *_movement()]
UNTRIED = {"CumProd", "Swish"}
"""Operators of opsets beyond some installed ONNX."""

assert set(SHARDING_RULES) - {c.op_type for c in CASES} <= UNTRIED
