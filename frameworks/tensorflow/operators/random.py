"""Random numbers: the executor's generator, or one of its own where the node has a seed."""

from __future__ import annotations

from typing import Any

from deep500.frameworks.tensorflow.dtypes import onnx_dtype
from deep500.frameworks.tensorflow.operators.table import number, op
from deep500.frameworks.tensorflow.runtime import tf

Tensor = Any


def _drawn(draw: Any, shape: Any, dtype: Any, seed: Any, low: float, high: float) -> Tensor:
    work = dtype if dtype in (tf.float32, tf.float64) else tf.float32
    numbers = draw(shape, seed, work)
    return tf.cast(number(low, numbers) + number(high - low, numbers) * numbers, dtype)


@op("RandomUniform")
def random_uniform(
    *, shape: Any, dtype: int = 1, low: float = 0.0, high: float = 1.0, seed: Any = None, context: Any
) -> Tensor:
    return _drawn(context.uniform, shape, onnx_dtype(dtype), seed, low, high)


@op("RandomNormal")
def random_normal(
    *, shape: Any, dtype: int = 1, mean: float = 0.0, scale: float = 1.0, seed: Any = None, context: Any
) -> Tensor:
    return _drawn(context.normal, shape, onnx_dtype(dtype), seed, mean, mean + scale)


@op("RandomUniformLike")
def random_uniform_like(
    x: Tensor, *, dtype: Any = None, low: float = 0.0, high: float = 1.0, seed: Any = None, context: Any
) -> Tensor:
    return _drawn(context.uniform, tf.shape(x), x.dtype if dtype is None else onnx_dtype(dtype), seed, low, high)


@op("RandomNormalLike")
def random_normal_like(
    x: Tensor, *, dtype: Any = None, mean: float = 0.0, scale: float = 1.0, seed: Any = None, context: Any
) -> Tensor:
    return _drawn(
        context.normal, tf.shape(x), x.dtype if dtype is None else onnx_dtype(dtype), seed, mean, mean + scale
    )


@op("Bernoulli")
def bernoulli(x: Tensor, *, dtype: Any = None, seed: Any = None, context: Any) -> Tensor:
    drawn = context.uniform(tf.shape(x), seed) < tf.cast(x, tf.float32)
    return tf.cast(drawn, x.dtype if dtype is None else onnx_dtype(dtype))


@op("Multinomial")
def multinomial(x: Tensor, *, dtype: int = 6, sample_size: int = 1, seed: Any = None, context: Any) -> Tensor:
    """``x`` holds unnormalised log probabilities, one row per draw; the largest of log p + Gumbel noise is drawn."""
    scores = tf.expand_dims(tf.cast(x, tf.float32), 1)
    shape = tf.concat([tf.shape(x)[:1], [sample_size], tf.shape(x)[1:]], 0)
    noise = -tf.math.log(-tf.math.log(tf.maximum(context.uniform(shape, seed), 1e-38)))
    return tf.argmax(scores + noise, -1, onnx_dtype(dtype))
