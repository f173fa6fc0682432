"""Operators that draw numbers, from the run's key; a node with a seed of its own draws the same in every run."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from deep500.frameworks.jax.dtypes import onnx_dtype
from deep500.frameworks.jax.operators.table import Array, DependsOnData, is_known, op, scalar


@op("Dropout")
def dropout(
    x: Array,
    ratio: Array | None = None,
    training: Array | None = None,
    *,
    seed: float | None = None,
    outputs: tuple[bool, ...] = (True,),
    context: Any,
) -> Any:
    """Inverted dropout. It follows the executor's mode unless it has a mode of its own: a true one, or a computed."""
    if not is_known(training):
        raise DependsOnData
    forced = training is not None and bool(np.all(training))
    rate = 0.5 if ratio is None else scalar(ratio, 0.5) if is_known(ratio) else ratio
    if not (forced or (context.training and context.follows)) or (isinstance(rate, float) and rate == 0):
        return x if len(outputs) == 1 else (x, jnp.ones(x.shape, bool))
    passes = jax.random.uniform(context.next_key(seed), x.shape, np.float32) >= rate
    y = jnp.where(passes, x / jnp.asarray(1 - rate, x.dtype), 0)
    return y if len(outputs) == 1 else (y, passes)


def _draw(context: Any, kind: str, shape: Any, dtype: Any, seed: float | None, low: float, high: float) -> Array:
    draw = jax.random.uniform if kind == "uniform" else jax.random.normal
    work = dtype if np.dtype(dtype) in (np.float32, np.float64) else np.float32
    return (low + (high - low) * draw(context.next_key(seed), tuple(shape), work)).astype(dtype)


@op("RandomUniform")
def random_uniform(
    *, shape: Any, dtype: int = 1, low: float = 0.0, high: float = 1.0, seed: float | None = None, context: Any
) -> Array:
    return _draw(context, "uniform", shape, onnx_dtype(dtype), seed, low, high)


@op("RandomNormal")
def random_normal(
    *, shape: Any, dtype: int = 1, mean: float = 0.0, scale: float = 1.0, seed: float | None = None, context: Any
) -> Array:
    return _draw(context, "normal", shape, onnx_dtype(dtype), seed, mean, mean + scale)


@op("RandomUniformLike")
def random_uniform_like(
    x: Array, *, dtype: int | None = None, low: float = 0.0, high: float = 1.0, seed: float | None = None, context: Any
) -> Array:
    return _draw(context, "uniform", x.shape, x.dtype if dtype is None else onnx_dtype(dtype), seed, low, high)


@op("RandomNormalLike")
def random_normal_like(
    x: Array,
    *,
    dtype: int | None = None,
    mean: float = 0.0,
    scale: float = 1.0,
    seed: float | None = None,
    context: Any,
) -> Array:
    return _draw(context, "normal", x.shape, x.dtype if dtype is None else onnx_dtype(dtype), seed, mean, mean + scale)


@op("Bernoulli")
def bernoulli(x: Array, *, dtype: int | None = None, seed: float | None = None, context: Any) -> Array:
    drawn = jax.random.uniform(context.next_key(seed), x.shape, np.float32) < x
    return drawn.astype(x.dtype if dtype is None else onnx_dtype(dtype))


@op("Multinomial")
def multinomial(x: Array, *, dtype: int = 6, sample_size: int = 1, seed: float | None = None, context: Any) -> Array:
    """``x`` holds unnormalised log probabilities, one row per draw."""
    drawn = jax.random.categorical(context.next_key(seed), x, -1, shape=(sample_size, x.shape[0]))
    return drawn.T.astype(onnx_dtype(dtype))
