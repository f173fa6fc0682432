"""Operators that work element by element, with NumPy's broadcasting: arithmetic, comparison, activations, casts."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from typing import Any

from deep500.frameworks.tensorflow.dtypes import onnx_dtype
from deep500.frameworks.tensorflow.operators.table import enter_all, number, op, scalar
from deep500.frameworks.tensorflow.runtime import tf

Tensor = Any

enter_all(
    {
        "Add": tf.add,
        "Sub": tf.subtract,
        "Mul": tf.multiply,
        "Neg": tf.negative,
        "Abs": tf.abs,
        "Sqrt": tf.sqrt,
        "Exp": tf.exp,
        "Log": tf.math.log,
        "Reciprocal": tf.math.reciprocal,
        "Sign": tf.sign,
        "Erf": tf.math.erf,
        "Sin": tf.sin,
        "Cos": tf.cos,
        "Tan": tf.tan,
        "Asin": tf.asin,
        "Acos": tf.acos,
        "Atan": tf.atan,
        "Sinh": tf.sinh,
        "Cosh": tf.cosh,
        "Tanh": tf.tanh,
        "Asinh": tf.asinh,
        "Acosh": tf.acosh,
        "Atanh": tf.atanh,
        "Floor": tf.floor,
        "Ceil": tf.math.ceil,
        "Round": tf.round,
        "Sigmoid": tf.sigmoid,
        "Relu": tf.nn.relu,
        "Softsign": tf.nn.softsign,
        "Softplus": tf.nn.softplus,
        "Equal": tf.equal,
        "Less": tf.less,
        "LessOrEqual": tf.less_equal,
        "Greater": tf.greater,
        "GreaterOrEqual": tf.greater_equal,
        "And": tf.logical_and,
        "Or": tf.logical_or,
        "Xor": tf.math.logical_xor,
        "Not": tf.logical_not,
        "BitwiseAnd": tf.bitwise.bitwise_and,
        "BitwiseOr": tf.bitwise.bitwise_or,
        "BitwiseXor": tf.bitwise.bitwise_xor,
        "BitwiseNot": tf.bitwise.invert,
        "IsNaN": tf.math.is_nan,
        "Where": tf.where,
    },
    layout="any",
)


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
        known, exponent = tf.get_static_value(exponent), tf.cast(exponent, x.dtype)
        if known is None or known.all():
            return tf.pow(x, exponent)
        zero = tf.equal(exponent, 0)  # x^0 is 1, with a slope of 0 at 0, too
        return tf.where(zero, tf.ones_like(x), tf.pow(tf.where(zero, tf.ones_like(x), x), exponent))
    wide = tf.int64 if exponent.dtype.is_integer else tf.float64
    return tf.cast(tf.pow(tf.cast(x, wide), tf.cast(exponent, wide)), x.dtype)


@op("Mod", layout="any")
def mod(a: Tensor, b: Tensor, *, fmod: int = 0) -> Tensor:
    """Sign of the divisor, or of the dividend under ``fmod``."""
    if a.dtype in (tf.float16, tf.bfloat16):
        return tf.cast(mod(tf.cast(a, tf.float32), tf.cast(b, tf.float32), fmod=fmod), a.dtype)
    if fmod and a.dtype in (tf.int8, tf.int16):  # no kernel
        return tf.cast(tf.truncatemod(tf.cast(a, tf.int32), tf.cast(b, tf.int32)), a.dtype)
    if fmod and a.dtype.is_floating:
        shape = tf.broadcast_dynamic_shape(tf.shape(a), tf.shape(b))
        return _remainder(tf.broadcast_to(a, shape), tf.broadcast_to(b, shape))
    return tf.truncatemod(a, b) if fmod else tf.math.floormod(a, b)


@tf.custom_gradient
def _remainder(a: Tensor, b: Tensor) -> Any:
    """TensorFlow has no gradient of ``truncatemod``: of a - b trunc(a / b), it is 1 and -trunc(a / b)."""
    whole = (a - tf.truncatemod(a, b)) / b
    return tf.truncatemod(a, b), lambda dy: (dy, -dy * tf.round(whole))


@op("BitShift", layout="any")
def bit_shift(x: Tensor, by: Tensor, *, direction: str) -> Tensor:
    """By the width or more, or by a negative number, nothing stays but the sign."""
    beyond = tf.logical_or(by < 0, by >= x.dtype.size * 8)
    by = tf.where(beyond, tf.zeros_like(by), by)
    gone = tf.zeros_like(x)
    if direction == "LEFT":
        return tf.where(beyond, gone, tf.bitwise.left_shift(x, by))
    if not x.dtype.is_unsigned:
        gone = tf.where(x < 0, gone - 1, gone)
    return tf.where(beyond, gone, tf.bitwise.right_shift(x, by))


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
    infinite = tf.math.is_inf(x)
    if not detect_negative:
        infinite = tf.logical_and(infinite, x > 0)
    return infinite if detect_positive else tf.logical_and(infinite, x < 0)


@op("Cast", layout="any")
def cast(x: Tensor, *, to: int, saturate: int = 1) -> Tensor:
    return convert(x, onnx_dtype(to), bool(saturate))


@op("CastLike")
def cast_like(x: Tensor, like: Tensor, *, saturate: int = 1) -> Tensor:
    return convert(x, like.dtype, bool(saturate))


_NARROW = {"float8_e4m3fn": 448.0, "float8_e5m2": 57344.0}
_WHOLE = {"int4": tf.int8, "uint4": tf.uint8}  # the only dtypes that these are cast to and from


def convert(x: Tensor, dtype: Any, saturate: bool = True) -> Tensor:
    """Change the dtype; what float8 cannot hold becomes its largest value under ``saturate``."""
    if x.dtype == dtype:
        return x
    x = tf.cast(x, _WHOLE[x.dtype.name]) if x.dtype.name in _WHOLE else x
    if dtype.name in _NARROW:
        x = tf.cast(x, tf.float32)
        if saturate:
            limit = number(_NARROW[dtype.name], x)
            x = tf.where(tf.math.is_nan(x), x, tf.clip_by_value(x, -limit, limit))
    elif dtype.name in _WHOLE:
        x = tf.cast(tf.cast(x, tf.int32), _WHOLE[dtype.name])
    return tf.cast(x, dtype)


@op("BitCast")
def bit_cast(x: Tensor, *, to: int) -> Tensor:
    dtype = onnx_dtype(to)
    x = tf.cast(x, tf.uint8) if x.dtype == tf.bool else x
    return tf.cast(x, tf.bool) if dtype == tf.bool else tf.bitcast(x, dtype)


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
    n, r = slope.shape.num_elements(), x.shape.rank  # before opset 7 it was per channel, and nothing converts it
    if slope.shape.rank == 1 and r > 2 and n not in (1, x.shape[-1]):
        slope = tf.reshape(slope, [-1, *[1] * (r - 2)])
    elif slope.shape.rank == r > 2 and slope.shape[-2] == n == x.shape[-1] and n not in (1, x.shape[-2]):
        slope = tf.reshape(slope, [n])  # the same where channels come last
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


def _in_single(function: Callable[[Tensor], Tensor], x: Tensor) -> Tensor:
    """Sums of half precision are taken in single."""
    return tf.cast(function(tf.cast(x, tf.float32)), x.dtype) if x.dtype in (tf.float16, tf.bfloat16) else function(x)


@op("Softmax", layout="axis")
def softmax(x: Tensor, *, axis: int = -1) -> Tensor:
    if x.dtype not in (tf.float16, tf.bfloat16):
        return tf.nn.softmax(x, axis)
    exponential = tf.exp(x - tf.stop_gradient(tf.reduce_max(x, axis, keepdims=True)))
    return exponential / _in_single(lambda y: tf.reduce_sum(y, axis, keepdims=True), exponential)


@op("LogSoftmax", layout="axis")
def log_softmax(x: Tensor, *, axis: int = -1) -> Tensor:
    return _in_single(lambda y: tf.nn.log_softmax(y, axis), x)


@op("Hardmax", layout="axis")
def hardmax(x: Tensor, *, axis: int = -1) -> Tensor:
    return tf.one_hot(tf.argmax(x, axis), x.shape[axis], axis=axis, dtype=x.dtype)


# -- dropout ----------------------------------------------------------------------------------------------------------
@op("Dropout", static=(1, 2), layout="any")
def dropout(
    x: Tensor,
    ratio: Any = None,
    training: Any = None,
    *,
    seed: int | None = None,
    outputs: tuple[bool, ...],
    context: Any,
) -> Any:
    """Inverted dropout. It follows the executor's mode unless the node has an input ``training_mode``."""
    rate = scalar(ratio, 0.5)
    if not (context.training if training is None else scalar(training)) or rate == 0:
        return x if len(outputs) == 1 else (x, tf.ones_like(x, dtype=tf.bool))
    passes = context.uniform(tf.shape(x), seed) >= rate
    y = tf.where(passes, x * number(1 / (1 - rate) if rate < 1 else 0.0, x), number(0, x))
    return y if len(outputs) == 1 else (y, passes)
