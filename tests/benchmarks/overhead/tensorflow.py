"""TensorFlow: a training step and an inference against the network written by hand, channels last throughout.

The yardstick is one ``tf.function``. It is fed images with channels last, Deep500 in ONNX's layout, so that transposing
them is part of its cost.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

import deep500.frameworks.tensorflow as d5fw
from deep500.frameworks.tensorflow.runtime import tf
from deep500.networks import add_loss, create
from tests.benchmarks.overhead import TENSORFLOW
from tests.benchmarks.turns import Comparison, Work

LR, MOMENTUM = 0.01, 0.9
EPSILON, NEW_SHARE = 1e-5, 0.1  # of the running statistics


class ResNet20:
    """272,474 parameters with 10 classes, kernels [3, 3, inputs, outputs], images [N, 32, 32, 3]."""

    def __init__(self, classes: int = 10) -> None:
        self.rng = np.random.default_rng(0)
        self.trainable: list[Any] = []
        self.layers = [self._convolution(3, 16, 3, 1)]
        self.blocks, inputs = [], 16
        for channels in (16, 32, 64):
            for block in range(3):
                stride = 2 if channels > 16 and block == 0 else 1
                first, second = (
                    self._convolution(inputs, channels, 3, stride),
                    self._convolution(channels, channels, 3, 1),
                )
                shortcut = self._convolution(inputs, channels, 1, stride) if stride != 1 or inputs != channels else None
                self.blocks.append((first, second, shortcut))
                inputs = channels
        self.weight, self.bias = self._variable((64, classes)), self._variable((classes,))

    def _variable(self, shape: tuple[int, ...], trainable: bool = True, value: float | None = None) -> Any:
        start = self.rng.standard_normal(shape) * 0.1 if value is None else np.full(shape, value)
        variable = tf.Variable(start.astype(np.float32), trainable=trainable)
        if trainable:
            self.trainable.append(variable)
        return variable

    def _convolution(self, inputs: int, outputs: int, size: int, stride: int) -> Callable[[Any, bool], Any]:
        kernel = self._variable((size, size, inputs, outputs))
        scale, bias = self._variable((outputs,), True, 1.0), self._variable((outputs,), True, 0.0)
        mean, variance = self._variable((outputs,), False, 0.0), self._variable((outputs,), False, 1.0)
        padding: Any = "SAME" if stride == 1 else [[0, 0], [size // 2] * 2, [size // 2] * 2, [0, 0]]

        def layer(x: Any, training: bool) -> Any:
            y = tf.nn.conv2d(x, kernel, stride, padding)
            factor = NEW_SHARE if training else 1.0
            y, new_mean, new_variance, *_ = tf.raw_ops.FusedBatchNormV3(
                x=y,
                scale=scale,
                offset=bias,
                mean=mean,
                variance=variance,
                epsilon=EPSILON,
                exponential_avg_factor=factor,
                is_training=training,
            )
            if training:
                mean.assign(new_mean)
                variance.assign(new_variance)
            return y

        return layer

    def __call__(self, x: Any, training: bool) -> Any:
        x = tf.nn.relu(self.layers[0](x, training))
        for first, second, shortcut in self.blocks:
            y = second(tf.nn.relu(first(x, training)), training)
            x = tf.nn.relu(y + (x if shortcut is None else shortcut(x, training)))
        return tf.matmul(tf.reduce_mean(x, [1, 2]), self.weight) + self.bias


def training_step(model: ResNet20, lr: float, momentum: float) -> Callable[[Any, Any], Any]:
    """Forward, backward and momentum update in one ``tf.function``; returns loss and scores."""
    velocities = [tf.Variable(tf.zeros_like(v), trainable=False) for v in model.trainable]
    rate, factor = tf.constant(lr), tf.constant(momentum)

    @tf.function(autograph=False, reduce_retracing=True)
    def step(images: Any, labels: Any) -> Any:
        with tf.GradientTape() as tape:
            output = model(images, True)
            loss = tf.reduce_mean(tf.nn.sparse_softmax_cross_entropy_with_logits(labels, output))
        for variable, velocity, gradient in zip(
            model.trainable, velocities, tape.gradient(loss, model.trainable), strict=True
        ):
            tf.raw_ops.ResourceApplyMomentum(
                var=variable.handle, accum=velocity.handle, lr=rate, grad=gradient, momentum=factor
            )
        return loss, output

    return step


def images_of(size: int) -> tuple[np.ndarray, np.ndarray]:
    """One batch of noise, channels first."""
    rng = np.random.default_rng(0)
    return rng.standard_normal((size, 3, 32, 32)).astype(np.float32), rng.integers(0, 10, size)


def native_step(size: int) -> Work:
    """The hand-written step."""
    images, labels = images_of(size)
    step, batch = (
        training_step(ResNet20(), LR, MOMENTUM),
        tf.constant(np.ascontiguousarray(images.transpose(0, 2, 3, 1))),
    )
    answer = tf.constant(labels)
    return lambda: float(step(batch, answer)[0])


def deep500_step(size: int) -> Work:
    """One step through executor and optimizer."""
    images, labels = images_of(size)
    optimizer = d5fw.MomentumOptimizer(d5fw.from_model(add_loss(create("resnet", depth=20))), "loss", LR, MOMENTUM)
    inputs = {"input": tf.constant(images), "label": tf.constant(labels)}
    return lambda: float(optimizer.step(inputs)["loss"])


def native_inference(size: int) -> Work:
    """The hand-written network in evaluation mode."""
    images, _ = images_of(size)
    model, batch = ResNet20(), tf.constant(np.ascontiguousarray(images.transpose(0, 2, 3, 1)))
    function = tf.function(lambda x: model(x, False), autograph=False)
    return lambda: np.asarray(function(batch))


def deep500_inference(size: int) -> Work:
    """The same through the executor."""
    images, _ = images_of(size)
    executor, inputs = d5fw.from_model(create("resnet", depth=20)), {"input": tf.constant(images)}
    return lambda: np.asarray(executor.inference(inputs)["output"])


def version() -> str:
    """The framework, set to use one thread."""
    tf.config.threading.set_intra_op_parallelism_threads(1)
    tf.config.threading.set_inter_op_parallelism_threads(1)
    return f"tensorflow {tf.__version__}"


def comparisons(sizes: Sequence[int]) -> Iterator[Comparison]:
    """A training step, then an inference of one image."""
    for size in sizes:
        yield Comparison(
            f"step, batch {size}", lambda size=size: steps(size), max(1, 16 // size), TENSORFLOW, 1.05, 0.75
        )
    yield Comparison("inference, batch 1", inferences, 16, TENSORFLOW, 1.05, 0.75)


def steps(size: int) -> dict[str, Work]:
    """The ways to make a training step."""
    return {"native": native_step(size), "native again": native_step(size), "deep500": deep500_step(size)}


def inferences() -> dict[str, Work]:
    """The ways to classify one image."""
    return {"native": native_inference(1), "native again": native_inference(1), "deep500": deep500_inference(1)}
