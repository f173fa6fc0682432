"""ResNet-20 for CIFAR written by hand in TensorFlow, channels last throughout: the yardstick of our backend."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from deep500.frameworks.tensorflow.runtime import tf

EPSILON, MOMENTUM = 1e-5, 0.1


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
            factor = MOMENTUM if training else 1.0
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
