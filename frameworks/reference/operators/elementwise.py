"""Operators that work element by element, and those that draw random numbers."""

from __future__ import annotations

import functools
import math
from typing import Any

import numpy as np

from deep500.errors import InputError
from deep500.frameworks.reference.operators.table import Random, enter_all, op
from deep500.networks.node import Node
from deep500.tensors import dtype_from_onnx, numpy_dtype

Array = np.ndarray

# fmt: off
enter_all({
    "Add": np.add, "Sub": np.subtract, "Mul": np.multiply, "Neg": np.negative, "Abs": np.abs, "Sqrt": np.sqrt,
    "Exp": np.exp, "Log": np.log, "Sign": np.sign, "Floor": np.floor, "Ceil": np.ceil, "Round": np.rint,
    "Sin": np.sin, "Cos": np.cos, "Tan": np.tan, "Asin": np.arcsin, "Acos": np.arccos, "Atan": np.arctan,
    "Sinh": np.sinh, "Cosh": np.cosh, "Tanh": np.tanh, "Asinh": np.arcsinh, "Acosh": np.arccosh, "Atanh": np.arctanh,
    "Equal": np.equal, "Less": np.less, "LessOrEqual": np.less_equal, "Greater": np.greater,
    "GreaterOrEqual": np.greater_equal, "And": np.logical_and, "Or": np.logical_or, "Xor": np.logical_xor,
    "Not": np.logical_not, "BitwiseAnd": np.bitwise_and, "BitwiseOr": np.bitwise_or, "BitwiseXor": np.bitwise_xor,
    "BitwiseNot": np.bitwise_not, "IsNaN": np.isnan,
})
# fmt: on


# -- arithmetic -------------------------------------------------------------------------------------------------------
@op("Div")
def div(a: Array, b: Array) -> Array:
    """Integers are divided as in C: towards zero."""
    if a.dtype.kind not in "iu":
        return a / b
    _check_divisor(b)
    quotient, rest = np.divmod(a, b)
    return quotient + ((rest != 0) & (quotient < 0)).astype(a.dtype)


def _check_divisor(b: Array) -> None:
    if not b.all():
        raise InputError("got a whole number to divide by 0; expected another divisor: check the data")


@op("Pow")
def power(x: Array, exponent: Array) -> Array:
    """The result has the dtype of the base."""
    if exponent.ndim == 0 and exponent == 2:
        return x * x
    return np.power(x, exponent).astype(x.dtype, copy=False)


@op("Mod")
def mod(a: Array, b: Array, *, fmod: int = 0) -> Array:
    """Sign of the divisor, or of the dividend under ``fmod``."""
    if a.dtype.kind in "iu":
        _check_divisor(b)
    return np.fmod(a, b) if fmod else np.mod(a, b)


@op("Reciprocal")
def reciprocal(x: Array) -> Array:
    """1 / x."""
    return x.dtype.type(1) / x


@op("Max")
def maximum(*xs: Array) -> Array:
    """Largest of all, with broadcasting."""
    return functools.reduce(np.maximum, xs)


@op("Min")
def minimum(*xs: Array) -> Array:
    """Smallest of all, with broadcasting."""
    return functools.reduce(np.minimum, xs)


@op("Sum")
def sum_of(*xs: Array) -> Array:
    """Sum of all, with broadcasting."""
    return functools.reduce(np.add, xs)


@op("Mean")
def mean_of(*xs: Array) -> Array:
    """Mean of all, with broadcasting."""
    return sum_of(*xs) / xs[0].dtype.type(len(xs))


@op("Clip")
def clip(x: Array, low: Array | None = None, high: Array | None = None) -> Array:
    """min(max(x, low), high): where low > high the result is high."""
    x = x if low is None else np.maximum(x, low)
    return x if high is None else np.minimum(x, high)


_BITS = {4: np.int32, 8: np.int64}


@op("Where")
def where(condition: Array, x: Array, y: Array) -> Array:
    """x where the condition holds, else y."""
    bits = _BITS.get(x.dtype.itemsize)
    if bits is None or x.dtype.kind != "f" or x.dtype != y.dtype:
        return np.where(condition, x, y)
    # np.where branches at every element, which on the gradient of Relu costs thirty times what selecting bits does
    mask = -condition.astype(bits)
    chosen = x.view(bits) & mask
    if y.ndim or y.view(bits):
        chosen = chosen | (y.view(bits) & ~mask)
    return np.asarray(chosen).view(x.dtype)


@op("IsInf")
def is_inf(x: Array, *, detect_negative: int = 1, detect_positive: int = 1) -> Array:
    """Infinities of the wanted signs."""
    return np.isinf(x) & ((x > 0) & bool(detect_positive) | (x < 0) & bool(detect_negative))


_PLAIN = {"bool", "float16", "float32", "float64", *(f"{u}int{n}" for u in ("", "u") for n in (8, 16, 32, 64))}


@op("Cast", when=lambda node: dtype_from_onnx(node.attributes["to"]) in _PLAIN)
def cast(x: Array, *, to: int, **rare: Any) -> Array:
    """Change the dtype (strings, bfloat16 and narrower ones are the fallback's)."""
    return x.astype(numpy_dtype(str(dtype_from_onnx(to))))


# -- activations ------------------------------------------------------------------------------------------------------
@op("Relu")
def relu(x: Array) -> Array:
    """max(x, 0)."""
    return np.maximum(x, x.dtype.type(0))


@op("Sigmoid")
def sigmoid(x: Array) -> Array:
    """1 / (1 + exp(-x)), by tanh: no overflow."""
    half = x.dtype.type(0.5)
    return half * np.tanh(half * x) + half


@op("LeakyRelu")
def leaky_relu(x: Array, *, alpha: float = 0.01) -> Array:
    """x, or alpha x where x < 0."""
    return np.where(x < 0, x * x.dtype.type(alpha), x)


@op("HardSwish")
def hard_swish(x: Array) -> Array:
    """x max(0, min(1, x/6 + 1/2)), Howard et al. 2019, arXiv 1905.02244; the schema's body rounds 1/6 to float32."""
    return x * np.clip(x * x.dtype.type(1 / 6) + x.dtype.type(0.5), 0, 1).astype(x.dtype)


@op("Elu")
def elu(x: Array, *, alpha: float = 1.0) -> Array:
    """x, or alpha (exp(x) - 1) where x < 0."""
    return np.where(x < 0, x.dtype.type(alpha) * np.expm1(np.minimum(x, x.dtype.type(0))), x)


@op("Softsign")
def softsign(x: Array) -> Array:
    """x / (1 + |x|)."""
    return x / (1 + np.abs(x))


@op("Softplus")
def softplus(x: Array) -> Array:
    """log(1 + exp(x))."""
    return np.logaddexp(x, x.dtype.type(0))


@op("Erf")
def erf(x: Array) -> Array:
    """The error function."""
    from scipy.special import erf as function

    return function(x).astype(x.dtype, copy=False)


@op("Gelu")
def gelu(x: Array, *, approximate: str = "none") -> Array:
    """x Phi(x) (Hendrycks & Gimpel 2016, arXiv 1606.08415), with erf or its approximation by tanh."""
    if approximate == "tanh":
        inner = math.sqrt(2 / math.pi) * (x + 0.044715 * x * x * x)
        return (0.5 * x * (1 + np.tanh(inner))).astype(x.dtype, copy=False)
    return (0.5 * x * (1 + erf(x * x.dtype.type(math.sqrt(0.5))))).astype(x.dtype, copy=False)


@op("Softmax")
def softmax(x: Array, *, axis: int = -1) -> Array:
    """exp(x) / sum exp(x) along one axis, shifted by the maximum."""
    exponential = np.exp(x - (x.max(axis=axis, keepdims=True) if x.size else 0))
    exponential /= exponential.sum(axis=axis, keepdims=True)
    return exponential


@op("LogSoftmax")
def log_softmax(x: Array, *, axis: int = -1) -> Array:
    """x - log sum exp(x) along one axis, shifted by the maximum."""
    shifted = x - x.max(axis=axis, keepdims=True, initial=-np.inf)
    return shifted - np.log(np.exp(shifted).sum(axis=axis, keepdims=True))


# -- random -----------------------------------------------------------------------------------------------------------
def _generator(random: Random, seed: float | None) -> np.random.Generator:
    """The executor's generator, or one of the node's own if it asks for a seed: then every run draws the same."""
    return random.generator if seed is None else np.random.Generator(np.random.PCG64(abs(int(seed))))


@op("Dropout", when=lambda node: "seed" not in node.attributes)
def dropout(
    x: Array, ratio: Array | None = None, training_mode: Array | None = None, *, outputs: int, random: Random
) -> Any:
    """Inverted dropout (Srivastava et al. 2014): in training keep with probability 1 - ratio and divide by it."""
    rate = 0.5 if ratio is None else float(ratio)
    if training_mode is None or not training_mode or rate == 0:
        return (x, np.ones(x.shape, bool))[:outputs]
    passes = random.generator.random(x.shape, dtype=np.float32) >= rate
    return (np.where(passes, x * x.dtype.type(1 / (1 - rate)), x.dtype.type(0)), passes)[:outputs]


def _drawn(values: Array, dtype: int | None, like: Array | None) -> Array:
    return values.astype(
        like.dtype if dtype is None and like is not None else numpy_dtype(str(dtype_from_onnx(dtype or 1)))
    )


@op("RandomNormal")
def random_normal(
    *,
    shape: Any,
    random: Random,
    dtype: int | None = 1,
    mean: float = 0.0,
    scale: float = 1.0,
    seed: float | None = None,
    like: Array | None = None,
) -> Array:
    """N(mean, scale^2)."""
    return _drawn(_generator(random, seed).normal(mean, scale, shape), dtype, like)


@op("RandomUniform")
def random_uniform(
    *,
    shape: Any,
    random: Random,
    dtype: int | None = 1,
    low: float = 0.0,
    high: float = 1.0,
    seed: float | None = None,
    like: Array | None = None,
) -> Array:
    """U(low, high)."""
    return _drawn(_generator(random, seed).uniform(low, high, shape), dtype, like)


@op("RandomNormalLike")
def random_normal_like(x: Array, *, random: Random, dtype: int | None = None, **options: Any) -> Array:
    """N(mean, scale^2) of the shape of the input."""
    return random_normal(shape=x.shape, random=random, dtype=dtype, like=x, **options)


@op("RandomUniformLike")
def random_uniform_like(x: Array, *, random: Random, dtype: int | None = None, **options: Any) -> Array:
    """U(low, high) of the shape of the input."""
    return random_uniform(shape=x.shape, random=random, dtype=dtype, like=x, **options)


def _no_seed(node: Node) -> bool:
    return "seed" not in node.attributes


@op("Bernoulli", when=_no_seed)
def bernoulli(x: Array, *, random: Random, dtype: int | None = None) -> Array:
    """1 with probability x, else 0."""
    return _drawn(random.generator.random(x.shape) < x, dtype, x)
