"""Operators that work element by element, with NumPy's broadcasting: arithmetic, comparison, activations, casts."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from deep500.frameworks.jax.dtypes import is_float, is_integer, onnx_dtype
from deep500.frameworks.jax.operators.table import Array, enter_all, op, xp


def _both(name: str) -> Callable[..., Array]:
    """The function of this name in NumPy and in ``jax.numpy``."""

    def apply(*args: Array) -> Array:
        return getattr(xp(*args), name)(*args)

    return apply


# fmt: off
NAMES = {
    "Add": "add", "Sub": "subtract", "Mul": "multiply", "Neg": "negative", "Abs": "abs", "Sqrt": "sqrt", "Exp": "exp",
    "Log": "log", "Sign": "sign", "Floor": "floor", "Ceil": "ceil", "Round": "rint", "Sin": "sin", "Cos": "cos",
    "Tan": "tan", "Asin": "arcsin", "Acos": "arccos", "Atan": "arctan", "Sinh": "sinh", "Cosh": "cosh", "Tanh": "tanh",
    "Asinh": "arcsinh", "Acosh": "arccosh", "Atanh": "arctanh", "Equal": "equal", "Less": "less",
    "LessOrEqual": "less_equal", "Greater": "greater", "GreaterOrEqual": "greater_equal", "And": "logical_and",
    "Or": "logical_or", "Xor": "logical_xor", "Not": "logical_not", "BitwiseAnd": "bitwise_and",
    "BitwiseOr": "bitwise_or", "BitwiseXor": "bitwise_xor", "BitwiseNot": "bitwise_not", "IsNaN": "isnan",
    "Where": "where",
}
# fmt: on
enter_all({operator: _both(name) for operator, name in NAMES.items()}, host=True)
enter_all({"Sigmoid": jax.nn.sigmoid, "Relu": jax.nn.relu, "Softsign": jax.nn.soft_sign, "Erf": jax.scipy.special.erf})


@op("Div", host=True)
def div(a: Array, b: Array) -> Array:
    """Integers are divided as in C: towards zero."""
    if not is_integer(a):
        return xp(a, b).true_divide(a, b)
    if xp(a, b) is jnp:
        a, b = jnp.broadcast_arrays(a, b)
        return jax.lax.div(a, b)
    quotient, rest = np.divmod(a, b)
    return quotient + ((rest != 0) & (quotient < 0)).astype(a.dtype)


@op("Reciprocal", host=True)
def reciprocal(x: Array) -> Array:
    return np.ones((), x.dtype) / x


@op("Pow", host=True)
def power(x: Array, exponent: Array) -> Array:
    """The result has the dtype of the base; a known whole exponent is a product, whose gradient exists at 0."""
    if isinstance(exponent, np.ndarray) and exponent.ndim == 0 and float(exponent) in (1.0, 2.0, 3.0):
        return functools.reduce(xp(x).multiply, [x] * int(exponent))
    if is_float(x) and exponent.dtype != x.dtype:
        exponent = exponent.astype(x.dtype) if is_float(exponent) or is_integer(exponent) else exponent
    if is_float(x) and isinstance(exponent, np.ndarray) and not exponent.all():  # x^0 is 1, with a slope of 0 at 0, too
        return xp(x).where(exponent == 0, 1, xp(x).power(xp(x).where(exponent == 0, 1, x), exponent)).astype(x.dtype)
    return xp(x, exponent).power(x, exponent).astype(x.dtype)


@op("Mod", host=True)
def mod(a: Array, b: Array, *, fmod: int = 0) -> Array:
    """Sign of the divisor, or of the dividend under ``fmod``."""
    return getattr(xp(a, b), "fmod" if fmod else "mod")(a, b)


@op("BitShift", host=True)
def bit_shift(x: Array, by: Array, *, direction: str) -> Array:
    return getattr(xp(x, by), "left_shift" if direction == "LEFT" else "right_shift")(x, by)


@op("Max", host=True)
def maximum(*xs: Array) -> Array:
    return functools.reduce(xp(*xs).maximum, xs)


@op("Min", host=True)
def minimum(*xs: Array) -> Array:
    return functools.reduce(xp(*xs).minimum, xs)


@op("Sum", host=True)
def sum_of(*xs: Array) -> Array:
    return functools.reduce(xp(*xs).add, xs)


@op("Mean")
def mean_of(*xs: Array) -> Array:
    return functools.reduce(jnp.add, xs) / len(xs)


@op("Clip", host=True)
def clip(x: Array, low: Array | None = None, high: Array | None = None) -> Array:
    """min(max(x, low), high), by choice: at a bound the gradient is that of x."""
    x = x if low is None else xp(x, low).where(x < low, low, x)
    return x if high is None else xp(x, high).where(x > high, high, x)


@op("IsInf", host=True)
def is_inf(x: Array, *, detect_negative: int = 1, detect_positive: int = 1) -> Array:
    return xp(x).isinf(x) & ((x > 0) & bool(detect_positive) | (x < 0) & bool(detect_negative))


# -- dtypes -----------------------------------------------------------------------------------------------------------
@op("Cast", host=True)
def cast(x: Array, *, to: int, saturate: int = 1, round_mode: str = "up") -> Array:
    return convert(x, onnx_dtype(to), bool(saturate))


@op("CastLike", host=True)
def cast_like(x: Array, like: Array, *, saturate: int = 1, round_mode: str = "up") -> Array:
    return convert(x, like.dtype, bool(saturate))


def convert(x: Array, dtype: Any, saturate: bool = True) -> Array:
    """Change the dtype; what float8 cannot hold becomes its largest value under ``saturate``."""
    if str(dtype).startswith("float8"):
        wide = x.astype(np.float32)
        if saturate:
            limit = float(jnp.finfo(dtype).max)
            wide = xp(x).clip(wide, -limit, limit)
        elif str(dtype) == "float8_e4m3fn":
            wide = xp(x).where(abs(wide) >= 464, np.float32(np.nan), wide)  # halfway between 448, the largest, and 480
        return wide.astype(dtype)
    if str(dtype) in ("int4", "uint4"):  # the low bits count, as in the conversion of wider integers
        low = 8 if str(dtype) == "int4" else 0
        return ((x.astype(np.int32) + low) % 16 - low).astype(dtype)
    return x.astype(dtype)


@op("BitCast")
def bit_cast(x: Array, *, to: int) -> Array:
    dtype = onnx_dtype(to)
    if dtype == np.bool_:
        return jax.lax.bitcast_convert_type(x, np.uint8) != 0
    if x.dtype == np.bool_:
        x = x.astype(np.uint8)
    return jax.lax.bitcast_convert_type(x, dtype)


# -- activations ------------------------------------------------------------------------------------------------------
@op("Elu")
def elu(x: Array, *, alpha: float = 1.0) -> Array:
    return jax.nn.elu(x, alpha)


@op("Celu")
def celu(x: Array, *, alpha: float = 1.0) -> Array:
    return jnp.where(x > 0, x, alpha * jnp.expm1(jnp.where(x > 0, 0, x) / alpha))


@op("Selu")
def selu(x: Array, *, alpha: float = 1.6732631921768188, gamma: float = 1.0507010221481323) -> Array:
    return gamma * jax.nn.elu(x, alpha)


@op("Gelu")
def gelu(x: Array, *, approximate: str = "none") -> Array:
    return jax.nn.gelu(x, approximate=approximate == "tanh")


@op("LeakyRelu")
def leaky_relu(x: Array, *, alpha: float = 0.01) -> Array:
    return jnp.where(x < 0, x * alpha, x)


@op("PRelu")
def prelu(x: Array, slope: Array) -> Array:
    """Models of before opset 7 give one slope per channel, which the converter leaves as it is."""
    if slope.ndim == 1 < x.ndim and slope.shape[0] not in (1, x.shape[-1]) and slope.shape[0] == x.shape[1]:
        slope = slope.reshape((-1,) + (1,) * (x.ndim - 2))
    return jnp.where(x < 0, x * slope, x)


@op("HardSigmoid")
def hard_sigmoid(x: Array, *, alpha: float = 0.2, beta: float = 0.5) -> Array:
    return _between(x * alpha + beta, 0, 1)


def _between(x: Array, low: float, high: float) -> Array:
    return jnp.where(x < low, low, jnp.where(x > high, high, x))


@op("HardSwish")
def hard_swish(x: Array) -> Array:
    return x * _between(x * (1 / 6) + 0.5, 0, 1)


@op("Softplus")
def softplus(x: Array) -> Array:
    return jax.nn.softplus(x)


@op("Mish")
def mish(x: Array) -> Array:
    return x * jnp.tanh(jax.nn.softplus(x))


@op("Swish")
def swish(x: Array, *, alpha: float = 1.0) -> Array:
    return x * jax.nn.sigmoid(alpha * x if alpha != 1 else x)


@op("ThresholdedRelu")
def thresholded_relu(x: Array, *, alpha: float = 1.0) -> Array:
    return jnp.where(x > alpha, x, 0)


@op("Shrink")
def shrink(x: Array, *, bias: float = 0.0, lambd: float = 0.5) -> Array:
    return jnp.where(x > lambd, x - bias, jnp.where(x < -lambd, x + bias, 0)).astype(x.dtype)


@op("Softmax")
def softmax(x: Array, *, axis: int = -1) -> Array:
    return jax.nn.softmax(x, axis)


@op("LogSoftmax")
def log_softmax(x: Array, *, axis: int = -1) -> Array:
    return jax.nn.log_softmax(x, axis)


@op("Hardmax")
def hardmax(x: Array, *, axis: int = -1) -> Array:
    return jax.nn.one_hot(jnp.argmax(x, axis), x.shape[axis], dtype=x.dtype, axis=axis)
