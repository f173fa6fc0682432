"""Operators that work element by element, with NumPy's broadcasting: arithmetic, comparison, activations, casts."""

from __future__ import annotations

import functools
from typing import Any

import torch
import torch.nn.functional as F

from deep500.frameworks.pytorch.dtypes import onnx_dtype
from deep500.frameworks.pytorch.operators.table import enter_all, op, scalar
from deep500.networks.execution.patterns import DOMAIN

Tensor = torch.Tensor

# fmt: off
enter_all({
    "Add": torch.add, "Sub": torch.sub, "Mul": torch.mul, "Neg": torch.neg, "Abs": torch.abs, "Sqrt": torch.sqrt,
    "Exp": torch.exp, "Log": torch.log, "Reciprocal": torch.reciprocal, "Sign": torch.sign, "Erf": torch.erf,
    "Floor": torch.floor, "Ceil": torch.ceil, "Round": torch.round,
    "Sin": torch.sin, "Cos": torch.cos, "Tan": torch.tan, "Asin": torch.asin, "Acos": torch.acos, "Atan": torch.atan,
    "Sinh": torch.sinh, "Cosh": torch.cosh, "Tanh": torch.tanh, "Asinh": torch.asinh, "Acosh": torch.acosh,
    "Atanh": torch.atanh, "Sigmoid": torch.sigmoid, "Relu": torch.relu, "Softsign": F.softsign, "Mish": F.mish,
    "HardSwish": F.hardswish,
    "Equal": torch.eq, "Less": torch.lt, "LessOrEqual": torch.le, "Greater": torch.gt, "GreaterOrEqual": torch.ge,
    "And": torch.logical_and, "Or": torch.logical_or, "Xor": torch.logical_xor, "Not": torch.logical_not,
    "BitwiseAnd": torch.bitwise_and, "BitwiseOr": torch.bitwise_or, "BitwiseXor": torch.bitwise_xor,
    "BitwiseNot": torch.bitwise_not, "IsNaN": torch.isnan, "Where": torch.where,
})
# fmt: on


@op("Div")
def div(a: Tensor, b: Tensor) -> Tensor:
    """Whole numbers are divided as in C: towards zero; the least by -1 wraps around to itself, as in NumPy."""
    if a.is_floating_point():
        return torch.div(a, b)
    if a.dtype not in (torch.int32, torch.int64):
        return torch.div(a, b, rounding_mode="trunc")
    turns = b == -1  # such a quotient traps in the processor, which would end the process
    return torch.where(turns, -a, torch.div(a, torch.where(turns, 1, b), rounding_mode="trunc"))


@op("Pow")
def power(x: Tensor, exponent: Tensor) -> Tensor:
    return torch.pow(x, exponent).to(x.dtype)


@op("Mod")
def mod(a: Tensor, b: Tensor, *, fmod: int = 0) -> Tensor:
    return torch.fmod(a, b) if fmod else torch.remainder(a, b)


@op("BitShift")
def bit_shift(x: Tensor, by: Tensor, *, direction: str) -> Tensor:
    return torch.bitwise_left_shift(x, by) if direction == "LEFT" else torch.bitwise_right_shift(x, by)


@op("Max")
def maximum(*xs: Tensor) -> Tensor:
    return functools.reduce(torch.maximum, xs)


@op("Min")
def minimum(*xs: Tensor) -> Tensor:
    return functools.reduce(torch.minimum, xs)


@op("Sum")
def sum_of(*xs: Tensor) -> Tensor:
    return functools.reduce(torch.add, xs)


@op("Mean")
def mean_of(*xs: Tensor) -> Tensor:
    return functools.reduce(torch.add, xs) / len(xs)


@op("Clip", static=(1, 2))
def clip(x: Tensor, low: Any = None, high: Any = None) -> Tensor:
    if low is None and high is None:
        return x
    if any(isinstance(bound, Tensor) and bound.requires_grad for bound in (low, high)):
        # torch's own gradient of clamp leaves out bounds that are equal
        x = x if low is None else torch.maximum(x, torch.as_tensor(low, dtype=x.dtype, device=x.device))
        return x if high is None else torch.minimum(x, torch.as_tensor(high, dtype=x.dtype, device=x.device))
    if isinstance(low, Tensor) != isinstance(high, Tensor):  # torch wants two numbers or two tensors
        low, high = (v if v is None else torch.as_tensor(v, dtype=x.dtype, device=x.device) for v in (low, high))
    return torch.clamp(x, low, high)


@op("IsInf")
def is_inf(x: Tensor, *, detect_negative: int = 1, detect_positive: int = 1) -> Tensor:
    infinite = torch.isinf(x)
    if not detect_negative:
        infinite = infinite & (x > 0)
    return infinite if detect_positive else infinite & (x < 0)


@op("Cast")
def cast(x: Tensor, *, to: int, round_mode: str = "up", saturate: int = 1) -> Tensor:
    return convert(x, onnx_dtype(to), bool(saturate), round_mode)


@op("CastLike")
def cast_like(x: Tensor, like: Tensor, *, round_mode: str = "up", saturate: int = 1) -> Tensor:
    return convert(x, like.dtype, bool(saturate), round_mode)


def convert(x: Tensor, dtype: torch.dtype, saturate: bool = True, round_mode: str = "up") -> Tensor:
    """Change the dtype; what float8 cannot hold becomes its largest value under ``saturate``."""
    if dtype == torch.float8_e8m0fnu:
        return _power_of_two(x.to(torch.float32), saturate, round_mode)
    if dtype.is_floating_point and dtype.itemsize == 1 and saturate:
        limit = torch.finfo(dtype).max
        x = torch.clamp(x.to(torch.float32), -limit, limit)
    elif dtype == torch.float8_e4m3fn:  # torch saturates here, ONNX asks for NaN
        x = torch.where(x.abs() >= 464, torch.nan, x)  # halfway between 448, the largest, and the next
    return x.to(dtype)


def _power_of_two(x: Tensor, saturate: bool, round_mode: str) -> Tensor:
    """float8_e8m0: only the exponent of a float32 is kept, rounded up, down or to nearest; signs are lost."""
    bits = x.contiguous().view(torch.int32)
    exponent, rest = bits >> 23 & 255, bits & 0x7FFFFF
    # ONNX rounds half-way cases to nearest up, but for those below 2^-126
    more = {"up": rest > 0, "down": rest < 0, "nearest": (rest > 0x400000) | (rest == 0x400000) & (exponent > 0)}
    rounded = exponent + more[round_mode].to(torch.int32)
    largest = torch.clamp(rounded, max=254) if saturate else rounded
    return torch.where(exponent == 255, 255, largest).to(torch.uint8).view(torch.float8_e8m0fnu)


@op("BitCast")
def bit_cast(x: Tensor, *, to: int) -> Tensor:
    return x.contiguous().view(onnx_dtype(to))


# -- activations ----------------------------------------------------------------------------------------------------
@op("Elu")
def elu(x: Tensor, *, alpha: float = 1.0) -> Tensor:
    return F.elu(x, alpha)


@op("Celu")
def celu(x: Tensor, *, alpha: float = 1.0) -> Tensor:
    return F.celu(x, alpha)


@op("Selu")
def selu(x: Tensor, *, alpha: float = 1.6732631921768188, gamma: float = 1.0507010221481323) -> Tensor:
    return gamma * F.elu(x, alpha)


@op("Gelu")
def gelu(x: Tensor, *, approximate: str = "none") -> Tensor:
    return F.gelu(x, approximate=approximate)


@op("LeakyRelu")
def leaky_relu(x: Tensor, *, alpha: float = 0.01) -> Tensor:
    return F.leaky_relu(x, alpha)


@op("PRelu")
def prelu(x: Tensor, slope: Tensor) -> Tensor:
    if slope.ndim == 1 < x.ndim and slope.shape[0] not in (1, x.shape[-1]):
        slope = slope.reshape(-1, *[1] * (x.ndim - 2))  # before opset 7 it was per channel, and nothing converts it
    return torch.where(x < 0, x * slope, x)


@op("HardSigmoid")
def hard_sigmoid(x: Tensor, *, alpha: float = 0.2, beta: float = 0.5) -> Tensor:
    return torch.clamp(x * alpha + beta, 0, 1)


@op("Softplus")
def softplus(x: Tensor) -> Tensor:
    return F.softplus(x, threshold=40)  # torch turns linear above 20, which float64 can tell


@op("Swish")
def swish(x: Tensor, *, alpha: float = 1.0) -> Tensor:
    return F.silu(x) if alpha == 1 else x * torch.sigmoid(alpha * x)


@op("ThresholdedRelu")
def thresholded_relu(x: Tensor, *, alpha: float = 1.0) -> Tensor:
    return torch.where(x > alpha, x, torch.zeros((), dtype=x.dtype, device=x.device))


@op("Shrink")
def shrink(x: Tensor, *, bias: float = 0.0, lambd: float = 0.5) -> Tensor:
    zero = torch.zeros((), dtype=x.dtype, device=x.device)
    shrunk = torch.where(x > lambd, x - bias, torch.where(x < -lambd, x + bias, zero))
    return shrunk.to(x.dtype)


@op("Linear", domain=DOMAIN)
def linear(x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """A dense layer that was recognised."""
    return F.linear(x, weight, bias)


@op("Softmax")
def softmax(x: Tensor, *, axis: int = -1) -> Tensor:
    return torch.softmax(x, axis)


@op("GeluGradient", domain=DOMAIN)
def gelu_gradient(dy: Tensor, x: Tensor) -> Tensor:
    """A gradient that a rule wrote as nodes, recognised."""
    return torch.ops.aten.gelu_backward(dy, x)


@op("SoftmaxGradient", domain=DOMAIN)
def softmax_gradient(dy: Tensor, y: Tensor, *, axis: int) -> Tensor:
    """A gradient that a rule wrote as nodes, recognised; of the result."""
    return torch.ops.aten._softmax_backward_data(dy, y, axis, y.dtype)


@op("LogSoftmax")
def log_softmax(x: Tensor, *, axis: int = -1) -> Tensor:
    return torch.log_softmax(x, axis)


@op("Hardmax")
def hardmax(x: Tensor, *, axis: int = -1) -> Tensor:
    return torch.zeros_like(x).scatter(axis, x.argmax(axis, keepdim=True), 1)


# -- randomness: torch's own generator, or one of its own where the node has a seed ------------------------------------
@op("Dropout", static=(1, 2))
def dropout(
    x: Tensor, ratio: Any = None, training: Any = False, *, seed: int | None = None, outputs: tuple[bool, ...] = (True,)
) -> Any:
    """Inverted dropout. ``training`` is the executor's mode unless the node has an input of that name."""
    rate = scalar(ratio, 0.5)
    if not scalar(training) or rate == 0:
        y: Any = x
        mask = torch.ones_like(x, dtype=torch.bool) if len(outputs) > 1 else None
    elif len(outputs) == 1 and seed is None:
        y, mask = F.dropout(x, rate, True), None
    else:
        mask = _uniform(x.shape, x.device, seed) >= rate
        y = x * mask / (1 - rate) if rate < 1 else torch.zeros_like(x)
    return y if len(outputs) == 1 else (y, mask)


def _generator(seed: float | None, device: torch.device) -> torch.Generator | None:
    """A generator that depends on the node's seed, ONNX's float of any bits; None for torch's own."""
    return None if seed is None else torch.Generator(device).manual_seed(hash(float(seed)) & (2**63 - 1))


def _uniform(shape: Any, device: torch.device, seed: float | None) -> Tensor:
    return torch.rand(tuple(shape), device=device, generator=_generator(seed, device))


def _random(kind: str, shape: Any, dtype: torch.dtype, device: Any, seed: Any, low: float, high: float) -> Tensor:
    draw = torch.rand if kind == "uniform" else torch.randn
    device = torch.device(device)
    work = dtype if dtype.itemsize >= 4 else torch.float32
    numbers = draw(tuple(shape), dtype=work, device=device, generator=_generator(seed, device))
    return (low + (high - low) * numbers).to(dtype)


@op("RandomUniform")
def random_uniform(*, shape: Any, dtype: int = 1, low: float = 0.0, high: float = 1.0, seed: Any = None) -> Tensor:
    return _random("uniform", shape, onnx_dtype(dtype), "cpu", seed, low, high)


@op("RandomNormal")
def random_normal(*, shape: Any, dtype: int = 1, mean: float = 0.0, scale: float = 1.0, seed: Any = None) -> Tensor:
    return _random("normal", shape, onnx_dtype(dtype), "cpu", seed, mean, mean + scale)


@op("RandomUniformLike")
def random_uniform_like(
    x: Tensor, *, dtype: Any = None, low: float = 0.0, high: float = 1.0, seed: Any = None
) -> Tensor:
    kind = x.dtype if dtype is None else onnx_dtype(dtype)
    return _random("uniform", x.shape, kind, x.device, seed, low, high)


@op("RandomNormalLike")
def random_normal_like(
    x: Tensor, *, dtype: Any = None, mean: float = 0.0, scale: float = 1.0, seed: Any = None
) -> Tensor:
    kind = x.dtype if dtype is None else onnx_dtype(dtype)
    return _random("normal", x.shape, kind, x.device, seed, mean, mean + scale)


@op("Bernoulli")
def bernoulli(x: Tensor, *, dtype: Any = None, seed: Any = None) -> Tensor:
    kind = x.dtype if dtype is None else onnx_dtype(dtype)
    return (_uniform(x.shape, x.device, seed) < x).to(kind)


@op("Multinomial")
def multinomial(x: Tensor, *, dtype: int = 6, sample_size: int = 1, seed: Any = None) -> Tensor:
    """``x`` holds unnormalised log probabilities, one row per draw."""
    probabilities = torch.softmax(x, -1)
    drawn = torch.multinomial(probabilities, sample_size, replacement=True, generator=_generator(seed, x.device))
    return drawn.to(onnx_dtype(dtype))
