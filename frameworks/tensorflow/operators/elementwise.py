"""Operators that work element by element, with NumPy's broadcasting: arithmetic, comparison, activations, casts."""

from __future__ import annotations

import functools
import math
from typing import Any

from deep500.frameworks.tensorflow.dtypes import onnx_dtype
from deep500.frameworks.tensorflow.operators.table import enter_all, number, op, scalar
from deep500.frameworks.tensorflow.runtime import tf

Tensor = Any

enter_all({
    "Add": tf.add, "Sub": tf.subtract, "Mul": tf.multiply, "Neg": tf.negative, "Abs": tf.abs, "Sqrt": tf.sqrt,
    "Exp": tf.exp, "Log": tf.math.log, "Reciprocal": tf.math.reciprocal, "Sign": tf.sign, "Erf": tf.math.erf,
    "Sin": tf.sin, "Cos": tf.cos, "Tan": tf.tan, "Asin": tf.asin, "Acos": tf.acos, "Atan": tf.atan,
    "Sinh": tf.sinh, "Cosh": tf.cosh, "Tanh": tf.tanh, "Asinh": tf.asinh, "Acosh": tf.acosh, "Atanh": tf.atanh,
    "Floor": tf.floor, "Ceil": tf.math.ceil, "Round": tf.round, "Sigmoid": tf.sigmoid, "Relu": tf.nn.relu,
    "Softsign": tf.nn.softsign, "Softplus": tf.nn.softplus,
    "Equal": tf.equal, "Less": tf.less, "LessOrEqual": tf.less_equal, "Greater": tf.greater,
    "GreaterOrEqual": tf.greater_equal, "And": tf.logical_and, "Or": tf.logical_or, "Xor": tf.math.logical_xor,
    "Not": tf.logical_not, "BitwiseAnd": tf.bitwise.bitwise_and, "BitwiseOr": tf.bitwise.bitwise_or,
    "BitwiseXor": tf.bitwise.bitwise_xor, "BitwiseNot": tf.bitwise.invert, "IsNaN": tf.math.is_nan, "Where": tf.where,
}, layout="any")  # fmt: skip


@op("Identity", layout="any")
def identity(x: Any) -> Any:
    return x


@op("Div", layout="any")
def div(a: Tensor, b: Tensor) -> Tensor:
    """Integers are divided as in C: towards zero."""
    return tf.realdiv(a, b) if a.dtype.is_floating else tf.truncatediv(a, b)


@op("Pow", layout="any")
def power(x: Tensor, exponent: Tensor) -> Tensor:
    """The result has the dtype of the base."""
    if tf.get_static_value(exponent) is not None and exponent.shape.rank == 0 and tf.get_static_value(exponent) == 2:
        return x * x
    if x.dtype.is_floating:
        return tf.pow(x, tf.cast(exponent, x.dtype))
    wide = tf.int64 if exponent.dtype.is_integer else tf.float64
    return tf.cast(tf.pow(tf.cast(x, wide), tf.cast(exponent, wide)), x.dtype)


@op("Mod", layout="any")
def mod(a: Tensor, b: Tensor, *, fmod: int = 0) -> Tensor:
    """Sign of the divisor, or of the dividend under ``fmod``."""
    return tf.truncatemod(a, b) if fmod else tf.math.floormod(a, b)


@op("BitShift", layout="any")
def bit_shift(x: Tensor, by: Tensor, *, direction: str) -> Tensor:
    return (tf.bitwise.left_shift if direction == "LEFT" else tf.bitwise.right_shift)(x, by)


@op("Max", layout="any")
def maximum(*xs: Tensor) -> Tensor:
    return functools.reduce(tf.maximum, xs)


@op("Min", layout="any")
def minimum(*xs: Tensor) -> Tensor:
    return functools.reduce(tf.minimum, xs)


@op("Sum", layout="any")
def sum_of(*xs: Tensor) -> Tensor:
    return functools.reduce(tf.add, xs)


@op("Mean", layout="any")
def mean_of(*xs: Tensor) -> Tensor:
    return functools.reduce(tf.add, xs) / number(len(xs), xs[0])


@op("Clip", layout="any")
def clip(x: Tensor, low: Any = None, high: Any = None) -> Tensor:
    """min(max(x, low), high): where low > high the result is high."""
    x = x if low is None else tf.maximum(x, low)
    return x if high is None else tf.minimum(x, high)


@op("IsInf", layout="any")
def is_inf(x: Tensor, *, detect_negative: int = 1, detect_positive: int = 1) -> Tensor:
    found = tf.math.is_inf(x)
    if not detect_negative:
        found = tf.logical_and(found, x > 0)
    return found if detect_positive else tf.logical_and(found, x < 0)


@op("Cast", layout="any")
def cast(x: Tensor, *, to: int, saturate: int = 1) -> Tensor:
    return tf.cast(x, onnx_dtype(to))


@op("CastLike")
def cast_like(x: Tensor, like: Tensor, *, saturate: int = 1) -> Tensor:
    return tf.cast(x, like.dtype)


@op("BitCast")
def bit_cast(x: Tensor, *, to: int) -> Tensor:
    return tf.bitcast(x, onnx_dtype(to))


# -- activations ----------------------------------------------------------------------------------------------------
@op("Elu", layout="any")
def elu(x: Tensor, *, alpha: float = 1.0) -> Tensor:
    return tf.nn.elu(x) if alpha == 1 else tf.where(x > 0, x, number(alpha, x) * tf.nn.elu(x))


@op("Celu", layout="any")
def celu(x: Tensor, *, alpha: float = 1.0) -> Tensor:
    a = number(alpha, x)
    return tf.where(x > 0, x, a * tf.nn.elu(x / a))


@op("Selu", layout="any")
def selu(x: Tensor, *, alpha: float = 1.6732631921768188, gamma: float = 1.0507010221481323) -> Tensor:
    return number(gamma, x) * elu(x, alpha=alpha)


@op("Gelu", layout="any")
def gelu(x: Tensor, *, approximate: str = "none") -> Tensor:
    half = number(0.5, x)
    if approximate == "tanh":
        return half * x * (1 + tf.tanh(number(math.sqrt(2 / math.pi), x) * (x + number(0.044715, x) * x * x * x)))
    return half * x * (1 + tf.math.erf(x * number(math.sqrt(0.5), x)))


@op("LeakyRelu", layout="any")
def leaky_relu(x: Tensor, *, alpha: float = 0.01) -> Tensor:
    return tf.where(x < 0, x * number(alpha, x), x)


@op("PRelu", layout="any")
def prelu(x: Tensor, slope: Tensor) -> Tensor:
    return tf.where(x < 0, x * slope, x)


@op("HardSigmoid", layout="any")
def hard_sigmoid(x: Tensor, *, alpha: float = 0.2, beta: float = 0.5) -> Tensor:
    return tf.clip_by_value(x * number(alpha, x) + number(beta, x), number(0, x), number(1, x))


@op("HardSwish", layout="any")
def hard_swish(x: Tensor) -> Tensor:
    return x * hard_sigmoid(x, alpha=1 / 6, beta=0.5)


@op("Mish", layout="any")
def mish(x: Tensor) -> Tensor:
    return x * tf.tanh(tf.nn.softplus(x))


@op("Swish", layout="any")
def swish(x: Tensor, *, alpha: float = 1.0) -> Tensor:
    return x * tf.sigmoid(x if alpha == 1 else number(alpha, x) * x)


@op("ThresholdedRelu", layout="any")
def thresholded_relu(x: Tensor, *, alpha: float = 1.0) -> Tensor:
    return tf.where(x > number(alpha, x), x, number(0, x))


@op("Shrink", layout="any")
def shrink(x: Tensor, *, bias: float = 0.0, lambd: float = 0.5) -> Tensor:
    y = x if x.dtype.is_floating else tf.cast(x, tf.float64)
    zero, shift, edge = number(0, y), number(bias, y), number(lambd, y)
    shrunk = tf.where(y > edge, y - shift, tf.where(y < -edge, y + shift, zero))
    return tf.cast(shrunk, x.dtype)


@op("Softmax", layout="axis")
def softmax(x: Tensor, *, axis: int = -1) -> Tensor:
    return tf.nn.softmax(x, axis)


@op("LogSoftmax", layout="axis")
def log_softmax(x: Tensor, *, axis: int = -1) -> Tensor:
    return tf.nn.log_softmax(x, axis)


@op("Hardmax", layout="axis")
def hardmax(x: Tensor, *, axis: int = -1) -> Tensor:
    return tf.one_hot(tf.argmax(x, axis), x.shape[axis], axis=axis, dtype=x.dtype)


# -- dropout ----------------------------------------------------------------------------------------------------------
@op("Dropout", static=(1, 2), layout="any")
def dropout(
    x: Tensor, ratio: Any = None, training: Any = None, *, seed: int | None = None, outputs: tuple[bool, ...], call: Any
) -> Any:  # fmt: skip
    """Inverted dropout. It follows the executor's mode unless the node has an input ``training_mode``."""
    rate = scalar(ratio, 0.5)
    if not (call.training if training is None else scalar(training)) or rate == 0:
        return x if len(outputs) == 1 else (x, tf.ones_like(x, dtype=tf.bool))
    kept = call.uniform(tf.shape(x), seed) >= rate
    y = tf.where(kept, x * number(1 / (1 - rate) if rate < 1 else 0.0, x), number(0, x))
    return y if len(outputs) == 1 else (y, kept)
