"""The table of gradient tests: one row is one operator with inputs and attributes; a new rule is tested by a new row.

Floating inputs are differentiated, unless ``fixed`` names them. Values stay clear of kinks, where finite differences
mean nothing.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

Array = np.ndarray
_RNG = np.random.default_rng(500)


@dataclass(frozen=True)
class Case:
    """One operator application in float64; None stands for an optional input that is left out."""

    name: str
    op_type: str
    inputs: tuple[Array | None, ...]
    attributes: dict[str, Any] = field(default_factory=dict)
    outputs: int = 1
    fixed: tuple[int, ...] = ()
    symbolic: bool = True  # whether the rule must also work when no size is known
    through: tuple[int, ...] = (0,)  # outputs that the loss reads


def n(*shape: int) -> Array:
    """Normal numbers."""
    return _RNG.normal(size=shape)


def away(*shape: int, low: float = 0.2) -> Array:
    """Numbers of both signs with magnitude between ``low`` and ``low + 1``."""
    return _RNG.choice([-1.0, 1.0], size=shape) * _RNG.uniform(low, low + 1, shape)


def pos(*shape: int, low: float = 0.5, high: float = 2.0) -> Array:
    """Positive numbers."""
    return _RNG.uniform(low, high, shape)


def apart(*shape: int) -> Array:
    """Distinct numbers at least 0.1 apart, none near zero: no ties for maxima."""
    count = int(np.prod(shape))
    return (_RNG.permutation(count) * 0.1 - count * 0.05 + 0.03).reshape(shape)


def i(*values: Any) -> Array:
    """An int64 vector."""
    return np.array(values, np.int64)


CASES: list[Case] = []


def row(
    op_type: str,
    *inputs: Array | None,
    label: str = "",
    outputs: int = 1,
    fixed: tuple[int, ...] = (),
    symbolic: bool = True,
    through: tuple[int, ...] = (0,),
    **attributes: Any,
) -> None:
    """Add a row."""
    name = f"{op_type}-{label or sum(c.op_type == op_type for c in CASES)}"
    CASES.append(Case(name, op_type, inputs, attributes, outputs, fixed, symbolic, through))


def rows(op_types: str, make: Callable[[], Array], **attributes: Any) -> None:
    """Add a row for each of several operators with one input."""
    for op_type in op_types.split():
        row(op_type, make(), **attributes)


# -- arithmetic --------------------------------------------------------------------------------------------------------
rows("Identity Neg Exp Erf Sin Cos Tanh Atan Sinh Cosh Asinh Sigmoid Softplus Gelu Mish Swish", lambda: n(2, 3))
rows("Abs Reciprocal Relu LeakyRelu Elu Selu Celu Softsign HardSigmoid HardSwish", lambda: away(3, 4))
rows("Sqrt Log", lambda: pos(2, 3))
rows("Tan Asin Acos Atanh", lambda: _RNG.uniform(-0.9, 0.9, (2, 3)))
row("Acosh", pos(2, 3, low=1.2, high=3))
row("Gelu", n(2, 3), approximate="tanh")
row("Swish", n(2, 3), alpha=1.75)
row("LeakyRelu", away(2, 3), alpha=0.375)
row("Elu", away(2, 3), alpha=0.75)
row("Celu", away(2, 3), alpha=0.75)
row("Selu", away(2, 3), alpha=1.25, gamma=0.75)
row("HardSigmoid", away(2, 5, low=1.2), alpha=0.375, beta=0.3125)
row("HardSwish", away(2, 5, low=2.6))
row("ThresholdedRelu", away(3, 4), alpha=0.75)
row("Shrink", away(3, 4), lambd=0.625)
row("PRelu", away(2, 3, 4), pos(3, 1))
row("PRelu", away(2, 3), pos(1))
for _op in ("Add", "Sub", "Mul"):
    row(_op, n(2, 3), n(2, 3), label="same")
    row(_op, n(2, 3, 4), n(3, 1), label="broadcast right")
    row(_op, n(3, 1), n(2, 1, 4), label="broadcast both")
    row(_op, n(1, 1), n(3), label="broadcast left")
row("Div", n(2, 3), away(3))
row("Div", n(3, 1), away(2, 1, 4))
row("Pow", pos(2, 3), n(3))
row("Pow", away(2, 3), np.array(2.0), fixed=(1,))
row("Pow", away(2, 3), np.array(3.0), fixed=(1,))
row("Pow", pos(2, 3), np.array(0.5))
row("Pow", away(2, 3), i(2, 0, 3))
row("Pow", np.array([0.0, 1.5]), np.array(1.0), fixed=(1,))
row("Mod", np.array([[5.3, -4.1, 2.2], [-7.7, 0.4, 3.5]]), np.array([1.5, -1.3, 0.9]), fmod=1)
row("Sum", n(2, 3), n(3), n(2, 1))
row("Sum", n(2, 3))
row("Mean", n(2, 3), n(3), n(2, 1))
row("Max", apart(3, 4), apart(3, 4) + 0.02)
row("Max", apart(3, 4), np.array(0.0), n(4) + 0.013)
row("Max", apart(4))
row("Min", apart(3, 4), apart(4) + 0.02)
row("Clip", apart(4, 5), np.array(-0.5), np.array(0.6))
row("Clip", apart(4, 5), None, np.array(0.6))
row("Clip", apart(4, 5), np.array(-0.5))
row("Clip", apart(4, 5))
row("Where", np.array([[True], [False]]), n(2, 3), n(3))
row("Cast", n(2, 3), to=11)
row("CastLike", n(2, 3), np.zeros(1), fixed=(1,))
for _kw in ({}, {"exclusive": 1}, {"reverse": 1}, {"exclusive": 1, "reverse": 1}):
    row("CumSum", n(2, 4), np.array(1, np.int64), **_kw)

# -- activations over an axis ------------------------------------------------------------------------------------------
for _op in ("Softmax", "LogSoftmax"):
    row(_op, n(3, 4))
    row(_op, n(2, 4, 3), axis=1)
row("Dropout", n(3, 4), label="evaluation")
row("Dropout", n(3, 4), np.array(0.5), np.array(False), fixed=(1,))

# -- matrix products ---------------------------------------------------------------------------------------------------
_MATRICES = [((2, 3), (3, 4)), ((5, 2, 3), (3, 4)), ((5, 2, 3), (5, 3, 4)), ((2, 3), (5, 3, 4)), ((3,), (3,))]
_MATRICES += [((5, 1, 2, 3), (4, 3, 2)), ((3,), (3, 4)), ((2, 3), (3,)), ((3,), (5, 3, 4)), ((5, 2, 3), (3,))]
for _a, _b in _MATRICES:
    row("MatMul", n(*_a), n(*_b), label=f"{_a} x {_b}")
for _ta in (0, 1):
    for _tb in (0, 1):
        row(
            "Gemm",
            n(*((3, 2) if _ta else (2, 3))),
            n(*((4, 3) if _tb else (3, 4))),
            n(4),
            transA=_ta,
            transB=_tb,
            alpha=0.5,
            beta=2.0,
        )
row("Gemm", n(2, 3), n(3, 4))
row("Gemm", n(2, 3), n(3, 4), n(2, 1))
row("Gemm", n(2, 3), n(3, 4), np.array(0.3))
for _eq, _shapes in [
    ("ij,jk->ik", ((2, 3), (3, 4))),
    ("bhqd,bhkd->bhqk", ((2, 2, 3, 4), (2, 2, 5, 4))),
    ("ij->ji", ((2, 3),)),
    ("ij->i", ((2, 3),)),
    ("ij,jk,kl", ((2, 3), (3, 2), (2, 4))),
    ("i,j->ij", ((2,), (3,))),
    ("ab,cb->c", ((2, 3), (4, 3))),
]:
    row("Einsum", *(n(*s) for s in _shapes), label=_eq, equation=_eq)

# -- convolution -------------------------------------------------------------------------------------------------------
row("Conv", n(2, 3, 5, 5), n(4, 3, 3, 3), n(4), label="plain")
row("Conv", n(2, 3, 6, 5), n(4, 3, 3, 2), n(4), label="strides pads", strides=[2, 3], pads=[1, 0, 2, 1])
row("Conv", n(2, 2, 7, 7), n(3, 2, 2, 2), label="unreached border", strides=[3, 2])
row(
    "Conv",
    n(2, 4, 7, 6),
    n(6, 2, 3, 2),
    n(6),
    label="groups",
    group=2,
    dilations=[2, 1],
    pads=[1, 1, 1, 1],
    strides=[1, 2],
)
row("Conv", n(2, 3, 5, 5), n(6, 1, 3, 3), label="depthwise", group=3, pads=[1, 1, 1, 1])
row("Conv", n(2, 3, 4, 4), n(2, 3, 1, 1), label="pointwise", strides=[2, 2])
row("Conv", n(1, 2, 4, 4), n(2, 2, 4, 4), label="full kernel")
row("Conv", n(2, 2, 3, 3), n(2, 2, 3, 3), label="wide pads", pads=[2, 2, 2, 2])
row("Conv", n(2, 2, 9), n(3, 2, 3), n(3), label="1-D", strides=[2], pads=[1, 0])
row("Conv", n(1, 2, 4, 3, 4), n(2, 2, 2, 2, 2), n(2), label="3-D", strides=[1, 1, 2], pads=[0, 1, 0, 0, 0, 1])
row("Conv", n(1, 2, 5, 6), n(2, 2, 3, 2), label="same upper", auto_pad="SAME_UPPER", strides=[2, 2], symbolic=False)
row("Conv", n(1, 2, 5, 6), n(2, 2, 2, 2), label="same lower", auto_pad="SAME_LOWER", strides=[1, 2], symbolic=False)
row("Conv", n(1, 2, 5, 6), n(2, 2, 3, 2), label="same, stride 1", auto_pad="SAME_UPPER", dilations=[1, 2])
row("Conv", n(1, 2, 5, 6), n(2, 2, 3, 2), label="valid", auto_pad="VALID", strides=[2, 1])
row("ConvTranspose", n(2, 3, 4, 4), n(3, 2, 3, 3), n(2), label="plain")
row("ConvTranspose", n(2, 3, 4, 3), n(3, 2, 3, 2), label="strides pads", strides=[2, 3], pads=[1, 0, 0, 1])
row(
    "ConvTranspose",
    n(2, 3, 3, 3),
    n(3, 2, 3, 3),
    label="output padding",
    strides=[2, 2],
    output_padding=[1, 1],
    pads=[1, 1, 1, 1],
)
row("ConvTranspose", n(1, 4, 3, 3), n(4, 3, 2, 3), n(6), label="groups", group=2, dilations=[2, 1], strides=[1, 2])
row("ConvTranspose", n(2, 2, 5), n(2, 3, 3), label="1-D", strides=[2])
row(
    "ConvTranspose",
    n(1, 2, 3, 3),
    n(2, 2, 3, 3),
    label="output shape",
    strides=[2, 2],
    output_shape=[6, 6],
    symbolic=False,
)
row("ConvTranspose", n(1, 2, 3, 3), n(2, 2, 3, 3), label="same", strides=[2, 2], auto_pad="SAME_UPPER", symbolic=False)
row("Col2Im", n(2, 12, 9), i(4, 4), i(2, 2))
row("Col2Im", n(1, 6, 8), i(7, 6), i(3, 2), strides=[2, 3], pads=[1, 0, 2, 1], dilations=[1, 2])
row("Col2Im", n(2, 6, 5), i(9), i(3), label="1-D", strides=[2], pads=[1, 1])

# -- Fourier transforms ------------------------------------------------------------------------------------------------
for _inverse in (0, 1):
    for _parts in (1, 2):
        row("DFT", n(2, 5, 3, _parts), label=f"{_parts} {_inverse}", inverse=_inverse)
        row("DFT", n(2, 5, 3, _parts), None, np.array(1), label=f"{_parts} {_inverse} axis", inverse=_inverse)
        for _size in (4, 7):
            row("DFT", n(2, 5, _parts), np.array(_size), label=f"{_parts} {_inverse} of {_size}", inverse=_inverse)
for _size in (4, 5):
    row("DFT", n(3, _size, 1), label=f"half of {_size}", onesided=1)
    row("DFT", n(3, 4, 2), np.array(_size), np.array(1), label=f"cut {_size}", onesided=1, inverse=1, symbolic=False)
row("DFT", n(3, 6, 1), np.array(4), label="half of 4 of 6", onesided=1)
row("DFT", n(3, 6, 1), np.array(9), np.array(-2), label="half of 9 of 6", onesided=1)
row("DFT", n(3, 6, 2), label="whole of 6", onesided=1, inverse=1, symbolic=False)

# -- pooling -----------------------------------------------------------------------------------------------------------
row("MaxPool", apart(2, 3, 4, 4), label="disjoint", kernel_shape=[2, 2], strides=[2, 2])
row("MaxPool", apart(2, 2, 5, 5), label="overlapping", kernel_shape=[3, 3], strides=[2, 2], pads=[1, 1, 1, 1])
row("MaxPool", apart(2, 2, 5, 5), label="stride 1", kernel_shape=[2, 3])
row("MaxPool", apart(1, 2, 6, 6), label="ceil", kernel_shape=[2, 2], strides=[3, 3], ceil_mode=1, dilations=[2, 1])
row("MaxPool", apart(2, 2, 7), label="1-D", kernel_shape=[3], strides=[2])
row("AveragePool", n(2, 3, 4, 6), label="tiles", kernel_shape=[2, 3], strides=[2, 3])
row("AveragePool", n(2, 2, 5, 5), label="overlapping", kernel_shape=[3, 2], strides=[2, 1])
row("AveragePool", n(1, 2, 5, 5), label="pads", kernel_shape=[3, 3], strides=[2, 2], pads=[1, 1, 1, 1], symbolic=False)
row(
    "AveragePool",
    n(1, 2, 5, 5),
    label="pads counted",
    kernel_shape=[3, 3],
    strides=[2, 2],
    pads=[1, 1, 1, 1],
    count_include_pad=1,
)
row("AveragePool", n(1, 2, 6, 6), label="ceil", kernel_shape=[3, 3], strides=[2, 2], ceil_mode=1, symbolic=False)
row(
    "AveragePool",
    n(1, 2, 6, 6),
    label="ceil, pads counted",
    kernel_shape=[3, 3],
    strides=[2, 2],
    ceil_mode=1,
    pads=[1, 1, 1, 1],
    count_include_pad=1,
    symbolic=False,
)
row("AveragePool", n(2, 2, 7), label="1-D", kernel_shape=[3], strides=[2])
row(
    "AveragePool",
    n(1, 2, 5, 5),
    label="same",
    kernel_shape=[3, 3],
    strides=[2, 2],
    auto_pad="SAME_UPPER",
    symbolic=False,
)
row("LpPool", away(1, 2, 5, 5), kernel_shape=[3, 3], strides=[2, 2], p=3)
row("LpPool", away(1, 2, 4, 4), kernel_shape=[2, 2], strides=[2, 2])
row("GlobalAveragePool", n(2, 3, 4, 5))
row("GlobalMaxPool", apart(2, 3, 4, 5))
row("LRN", n(2, 5, 3), size=3, alpha=0.375, beta=0.625, bias=1.5, symbolic=False)
row("LRN", n(2, 5, 2, 2), size=4, alpha=0.375, symbolic=False)

# -- normalisation -----------------------------------------------------------------------------------------------------
for _shape in ((4, 3), (3, 2, 4, 4)):
    _c = _shape[1]
    row(
        "BatchNormalization",
        n(*_shape),
        pos(_c),
        n(_c),
        n(_c),
        pos(_c),
        label=f"training {_shape}",
        outputs=3,
        fixed=(3, 4),
        training_mode=1,
        epsilon=2**-7,
    )
    row("BatchNormalization", n(*_shape), pos(_c), n(_c), n(_c), pos(_c), label=f"evaluation {_shape}", epsilon=2**-7)
row("InstanceNormalization", n(2, 3, 4, 5), pos(3), n(3), epsilon=2**-7)
row("GroupNormalization", n(2, 6, 3, 2), pos(6), n(6), num_groups=3, epsilon=2**-7, stash_type=11)
row("LayerNormalization", n(2, 3, 4), pos(4), n(4), epsilon=2**-7, stash_type=11)
row("LayerNormalization", n(2, 3, 4), pos(3, 4), None, axis=1, epsilon=2**-7, stash_type=11)
row("RMSNormalization", n(2, 3, 4), pos(4), epsilon=2**-7)
row("LpNormalization", away(2, 3, 4), axis=1)
row("LpNormalization", away(2, 3, 4), axis=-1, p=1)

# -- losses ------------------------------------------------------------------------------------------------------------
_labels, _masked = np.array([1, 0, 3, 3]), np.array([1, -100, 3, 0])
for _op in ("SoftmaxCrossEntropyLoss", "NegativeLogLikelihoodLoss"):
    for _reduction in ("mean", "sum", "none"):
        row(_op, n(4, 5), _labels, label=_reduction, reduction=_reduction)
        row(
            _op,
            n(4, 5),
            _masked,
            pos(5),
            label=f"{_reduction} weights ignore",
            reduction=_reduction,
            ignore_index=-100,
            fixed=(2,),
        )
    row(_op, n(2, 3, 2, 2), _RNG.integers(0, 3, (2, 2, 2)), pos(3), label="images", fixed=(2,))
    row(_op, n(2, 3, 2), np.array([[0, 9], [2, 1]], np.int32), label="ignore", ignore_index=9)
row("SoftmaxCrossEntropyLoss", n(4, 5), _labels, label="log p", outputs=2, through=(0, 1))
row("SoftmaxCrossEntropyLoss", n(4, 5), _labels, label="only log p", outputs=2, through=(1,))

# -- shape -------------------------------------------------------------------------------------------------------------
row("Reshape", n(2, 6), i(3, 4))
row("Reshape", n(2, 6), i(0, -1, 2))
row("Flatten", n(2, 3, 4), axis=1)
row("Squeeze", n(2, 1, 3), i(1))
row("Squeeze", n(1, 2, 1))
row("Unsqueeze", n(2, 3), i(0, -1))
row("Transpose", n(2, 3, 4), perm=[2, 0, 1])
row("Transpose", n(2, 3, 4))
row("Concat", n(2, 3), n(2, 1), n(2, 2), axis=1)
row("Concat", n(2, 3), n(4, 3), axis=-2)
row("Split", n(2, 6), i(1, 3, 2), axis=1, outputs=3, through=(0, 2))
row("Split", n(7, 2), outputs=3, num_outputs=3, through=(1, 2))
row("Slice", n(5, 6), i(1, 0), i(4, -2))
row("Slice", n(5, 6), i(-4), i(99), i(-1))
row("Slice", n(5, 6), i(4, 1), i(-99, 6), i(0, 1), i(-2, 2))
row("Pad", n(3, 4), i(1, 0, 2, 3))
row("Pad", n(3, 4), i(1, 2), np.array(0.5), i(-1))
row("Pad", n(4, 5), i(1, -2, -1, 1), np.array(0.5))
row("Pad", n(4, 5), i(1, 2, 3, 0), mode="reflect")
row("Pad", n(4, 5), i(1, 2, 0, 3), mode="edge")
row("Pad", n(4, 5), i(1, 2, 0, 3), mode="wrap")
row("Expand", n(3, 1), i(2, 3, 4))
row("Expand", n(2, 3), i(1))
row("Tile", n(2, 3), i(2, 3))
row("DepthToSpace", n(2, 8, 2, 3), blocksize=2)
row("DepthToSpace", n(2, 8, 2, 3), blocksize=2, mode="CRD", symbolic=False)
row("SpaceToDepth", n(2, 3, 4, 6), blocksize=2)
row("Trilu", n(4, 5))
row("Trilu", n(2, 4, 5), np.array(-1, np.int64), upper=0)

# -- indexing ----------------------------------------------------------------------------------------------------------
row("Gather", n(4, 3), i([0, 2], [2, -1]))
row("Gather", n(2, 4, 3), i(3, 1, 1), axis=1)
row("Gather", n(2, 4, 3), i([2, 0], [1, 2]), axis=-1)
row("Gather", n(4, 3), np.array(1, np.int64), axis=0)
row("Gather", n(4, 3), np.array([2, 0], np.int32), label="int32")
row("GatherND", n(3, 4, 2), i([0, 1], [2, 3], [0, 1]))
row("GatherND", n(2, 4, 3), i([[1], [1]], [[0], [3]]), batch_dims=1)
row("GatherElements", n(3, 4), i([0, 2, 1, 1], [1, 1, 2, 0]), axis=0)
row("ScatterND", n(4, 3), i([1], [3]), n(2, 3))
row("ScatterND", n(4, 3), i([1], [1]), n(2, 3), reduction="add")
row("ScatterElements", n(3, 4), i([0, 2], [1, 3]), n(2, 2), axis=1)
row("ScatterElements", n(3, 4), i([0, 0], [1, 3]), n(2, 2), axis=1, reduction="add")
for _reduction in ("max", "min", "mul"):
    row("ScatterND", apart(4, 3), i([1], [1], [3]), apart(3, 3) + 0.013, label=_reduction, reduction=_reduction)
    row(
        "ScatterElements",
        apart(3, 4),
        i([0, 0], [1, 3]),
        apart(2, 2) + 0.013,
        label=_reduction,
        axis=1,
        reduction=_reduction,
    )
row("TopK", apart(3, 5), i(2), outputs=2, axis=1)
row("OneHot", i([0, 2], [1, 7]), np.array(3), n(2), axis=1)
row("Compress", n(3, 4), np.array([True, False, True]), axis=0)
row("Compress", n(2, 3), np.array([False, True, True, False, True]))
row("ReverseSequence", n(4, 3, 2), i(2, 4, 1), time_axis=0, batch_axis=1)
row("TopK", apart(5, 3), i(2), outputs=2, axis=0, largest=0)

# -- reductions --------------------------------------------------------------------------------------------------------
for _op in (
    "ReduceSum",
    "ReduceMean",
    "ReduceSumSquare",
    "ReduceLogSumExp",
    "ReduceMax",
    "ReduceMin",
    "ReduceL1",
    "ReduceL2",
    "ReduceProd",
    "ReduceLogSum",
):
    _x = pos if _op == "ReduceLogSum" else apart if _op in ("ReduceMax", "ReduceMin", "ReduceL1") else away
    row(_op, _x(2, 3, 4), i(1), label="axis")
    row(_op, _x(2, 3, 4), i(-1, 0), label="axes", keepdims=0)
    row(_op, _x(2, 3), label="all", keepdims=0)
    row(_op, _x(2, 3), label="all kept")
row("ReduceSum", n(2, 3), label="nothing", noop_with_empty_axes=1)
row("ReduceProd", np.array([[0.0, 2.0, 3.0], [1.5, 0.0, 0.0], [1.0, 2.0, 3.0]]), i(1), label="zeros")

# -- resize ------------------------------------------------------------------------------------------------------------
for _mode in ("nearest", "linear", "cubic"):
    for _place in ("half_pixel", "asymmetric", "align_corners", "pytorch_half_pixel"):
        row(
            "Resize",
            n(1, 2, 3, 4),
            None,
            None,
            i(1, 2, 5, 3),
            label=f"{_mode} {_place}",
            mode=_mode,
            coordinate_transformation_mode=_place,
            symbolic=False,
        )
row(
    "Resize",
    n(1, 2, 3, 4),
    None,
    np.array([1, 1, 2, 2], np.float32),
    label="scales",
    mode="nearest",
    fixed=(2,),
    symbolic=False,
)
row(
    "Resize",
    n(1, 2, 3, 4),
    None,
    np.array([2, 1.5], np.float32),
    label="axes",
    mode="linear",
    axes=[2, 3],
    fixed=(2,),
    symbolic=False,
)

row(
    "Resize",
    n(1, 2, 6, 4),
    np.array([0.1, -0.2, 0.8, 1.1]),
    None,
    i(4, 5),
    label="crop",
    mode="linear",
    axes=[2, 3],
    coordinate_transformation_mode="tf_crop_and_resize",
    fixed=(1,),
    symbolic=False,
)
row(
    "Resize",
    n(1, 2, 6, 4),
    None,
    None,
    i(3, 3),
    label="antialias",
    mode="cubic",
    axes=[2, 3],
    antialias=1,
    symbolic=False,
)
row(
    "Resize",
    n(1, 2, 6, 4),
    None,
    None,
    i(3, 3),
    label="policy",
    mode="linear",
    axes=[2, 3],
    keep_aspect_ratio_policy="not_larger",
    symbolic=False,
)

DIFFERENT = {"Dropout-evaluation": "backpropagation runs in training mode, where this Dropout drops"}
"""Rows without an answer of PyTorch's to compare with, and why."""
