"""`Builder`: the layers that the zoo's models are made of, each a few ONNX nodes and its seeded parameters.

A layer is named as PyTorch names modules (``layer1.0.conv1``); its node and its output carry that name, its parameters
add ``.weight`` and ``.bias``. Random numbers come from one generator in the order of the calls, so a model's weights
are a function of its arguments and its seed, in every framework.

Initialisations: ``"uniform"`` is PyTorch's default for layers, U(-b, b) with b = 1/sqrt(fan_in), for weight and bias
(that is Kaiming-uniform with a = sqrt(5)); ``"fan_out"`` is Kaiming-normal, N(0, 2/fan_out), bias 0 (He et al. 2015,
arXiv 1502.01852); ``"normalized"`` is the same without a bias, which the normalization that follows would take off; a
number s is N(0, s^2), bias 0.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from deep500.errors import NetworkError
from deep500.networks.drawing import Call, Take, Undrawn, hollow
from deep500.networks.network import Network, Parameter

Init = str | float
Count = int
"""A number of parts that may be 0; every other whole number of a model's options is at least 1."""

Pair = int | tuple[int, int]
"""A size that is the same for height and width, or one of each."""


def _pair(size: Pair) -> tuple[int, int]:
    return size if isinstance(size, tuple) else (size, size)


class Builder:
    """A network in the making; ``shapes`` holds the sample shape (without batch) of every value so far."""

    def __init__(
        self,
        name: str,
        batch: int | str,
        shape: tuple[int, ...],
        seed: int,
        dtype: str = "float32",
        drawing: Call | None = None,
        take: Take | None = None,
    ) -> None:
        self.network, self.drawing, self.take = Network(name), drawing, take
        self.random = np.random.Generator(np.random.PCG64(seed))
        self.network.add_input("input", (batch, *shape), dtype)
        self.shapes: dict[str, tuple[int, ...]] = {"input": shape}

    # -- plumbing ---------------------------------------------------------------------------------------------------
    def node(self, op_type: str, inputs: Sequence[str], name: str, shape: tuple[int, ...], **attributes: Any) -> str:
        """Add a node whose one output bears its name and has this sample shape."""
        self.network.add_node(op_type, inputs, [name], name=name, **attributes)
        self.shapes[name] = shape
        return name

    def parameter(self, name: str, value: np.ndarray, trainable: bool = True) -> str:
        """Add a parameter in float32; one that trains stays hollow where values are drawn later."""
        value = value.astype(np.float32, copy=False)
        if self.drawing is None or not trainable:
            self.network.add_parameter(name, value, trainable)
            return name
        if self.take is not None:
            self.take(name, value)
        later = Parameter(hollow(value.shape, value.dtype), undrawn=Undrawn(*self.drawing, name))
        self.network.put_parameters({name: later})
        return name

    def constant(self, name: str, value: Any) -> str:
        """Name of a non-trainable parameter, made at its first use and then shared."""
        if not self.network.has_value(name):
            self.network.add_parameter(name, np.asarray(value), trainable=False)
        return name

    def uniform(self, shape: Sequence[int], bound: float) -> np.ndarray:
        """Draw U(-bound, bound)."""
        return self.random.uniform(-bound, bound, tuple(shape)).astype(np.float32)

    def normal(self, shape: Sequence[int], deviation: float) -> np.ndarray:
        """Draw N(0, deviation^2)."""
        return np.float32(deviation) * self.random.standard_normal(tuple(shape), dtype=np.float32)

    def weights(self, name: str, shape: tuple[int, ...], init: Init) -> list[str]:
        """Add ``name.weight`` of shape (out, in, *kernel) and, unless normalized, ``name.bias``; returns names."""
        field = math.prod(shape[2:])
        bound = 1 / math.sqrt(shape[1] * field)
        if init == "uniform":
            value = self.uniform(shape, bound)
        else:
            fan_out = init in ("fan_out", "normalized")
            value = self.normal(shape, math.sqrt(2 / (shape[0] * field)) if fan_out else float(init))
        names = [self.parameter(f"{name}.weight", value)]
        if init != "normalized":
            offset = self.uniform(shape[:1], bound) if init == "uniform" else np.zeros(shape[0], np.float32)
            names.append(self.parameter(f"{name}.bias", offset))
        return names

    # -- layers -----------------------------------------------------------------------------------------------------
    def conv(
        self,
        x: str,
        name: str,
        channels: int,
        kernel: Pair,
        stride: int = 1,
        padding: Pair = 0,
        init: Init = "uniform",
        groups: int = 1,
    ) -> str:
        """2-D convolution; kernel and padding are sides of a square or (height, width)."""
        before, *spatial = self.shapes[x]
        if before % groups or channels % groups:
            raise NetworkError(
                f"layer {name!r}: got {before} channels to {channels} in {groups} groups; expected multiples of the "
                "groups: choose other widths"
            )
        shape = (channels, *self.window(name, spatial, kernel, stride, padding))
        names = self.weights(name, (channels, before // groups, *_pair(kernel)), init)
        grouped = {"group": groups} if groups > 1 else {}
        return self.node(
            "Conv",
            [x, *names],
            name,
            shape,
            kernel_shape=list(_pair(kernel)),
            strides=[stride] * 2,
            pads=list(_pair(padding)) * 2,
            **grouped,
        )

    def max_pool(self, x: str, name: str, kernel: int, stride: int | None = None, padding: int = 0) -> str:
        """Square 2-D maximum pooling; the stride is the kernel unless given."""
        return self._pool("MaxPool", x, name, kernel, stride or kernel, padding)

    def average_pool(
        self, x: str, name: str, kernel: int, stride: int = 1, padding: int = 0, count_padding: bool = False
    ) -> str:
        """Square 2-D average pooling, over the pixels of the image alone unless padding counts."""
        counted = {"count_include_pad": 1} if count_padding else {}
        return self._pool("AveragePool", x, name, kernel, stride, padding, **counted)

    def _pool(self, op_type: str, x: str, name: str, kernel: int, stride: int, padding: int, **more: int) -> str:
        channels, *spatial = self.shapes[x]
        shape = (channels, *self.window(name, spatial, kernel, stride, padding))
        return self.node(
            op_type, [x], name, shape, kernel_shape=[kernel] * 2, strides=[stride] * 2, pads=[padding] * 4, **more
        )

    @staticmethod
    def window(name: str, spatial: Sequence[int], kernel: Pair, stride: int, padding: Pair) -> tuple[int, ...]:
        """Spatial size after a sliding window; NetworkError where the image is too small for it."""
        least = [k - 2 * p for k, p in zip(_pair(kernel), _pair(padding), strict=True)]
        if len(spatial) != 2 or any(size < smallest for size, smallest in zip(spatial, least, strict=True)):
            raise NetworkError(
                f"layer {name!r}: got an image of {'x'.join(map(str, spatial)) or 'no size'}; expected at least "
                f"{'x'.join(map(str, least))} here: give a larger shape=(channels, height, width)"
            )
        return tuple((size - smallest) // stride + 1 for size, smallest in zip(spatial, least, strict=True))

    def concat(self, parts: Sequence[str], name: str) -> str:
        """The channels of one part after those of the other."""
        shapes = [self.shapes[part] for part in parts]
        return self.node("Concat", parts, name, (sum(s[0] for s in shapes), *shapes[0][1:]), axis=1)

    def batch_norm(self, x: str, name: str, epsilon: float = 1e-5) -> str:
        """Batch normalization; scale 1, bias 0, running mean 0 and variance 1 at first."""
        size = self.shapes[x][0]
        start = {"weight": 1.0, "bias": 0.0, "running_mean": 0.0, "running_var": 1.0}
        names = [
            self.parameter(f"{name}.{part}", np.full(size, value), trainable=not part.startswith("running"))
            for part, value in start.items()
        ]
        return self.node("BatchNormalization", [x, *names], name, self.shapes[x], epsilon=epsilon, momentum=0.9)

    def layer_norm(self, x: str, name: str, epsilon: float = 1e-5) -> str:
        """Layer normalization over the last axis; scale 1, bias 0 at first."""
        size = self.shapes[x][-1]
        names = [self.parameter(f"{name}.weight", np.ones(size)), self.parameter(f"{name}.bias", np.zeros(size))]
        return self.node("LayerNormalization", [x, *names], name, self.shapes[x], axis=-1, epsilon=epsilon)

    def relu(self, x: str, name: str) -> str:
        """max(x, 0)."""
        return self.node("Relu", [x], name, self.shapes[x])

    def add(self, x: str, y: str, name: str) -> str:
        """x + y, of equal shape."""
        return self.node("Add", [x, y], name, self.shapes[x])

    def dropout(self, x: str, name: str, rate: float) -> str:
        """Dropout in training mode; at rate 0 no node at all."""
        if not 0 <= rate < 1:
            raise NetworkError(f"layer {name!r}: got dropout rate {rate}; expected 0 <= rate < 1: choose such a rate")
        if rate == 0:
            return x
        ratio = self.constant(f"dropout_{rate}", np.float32(rate))
        return self.node("Dropout", [x, ratio], name, self.shapes[x])

    def flatten(self, x: str, name: str = "flatten") -> str:
        """One row per sample; nothing to do for samples that are rows already."""
        shape = self.shapes[x]
        return x if len(shape) == 1 else self.node("Flatten", [x], name, (math.prod(shape),), axis=1)

    def global_average(self, x: str, name: str = "avgpool") -> str:
        """Mean over height and width, one row per sample."""
        channels = self.shapes[x][0]
        return self.flatten(self.node("GlobalAveragePool", [x], name, (channels, 1, 1)))

    def linear(self, x: str, name: str, features: int, init: Init = "uniform", output: str | None = None) -> str:
        """x W^T + b on rows; ``output`` names the result differently from the layer."""
        names = self.weights(name, (features, self.shapes[x][0]), init)
        result = output or name
        self.network.add_node("Gemm", [x, *names], [result], name=name, transB=1)
        self.shapes[result] = (features,)
        return result

    def classify(self, x: str, name: str, classes: int, init: Init = "uniform") -> Network:
        """The last layer: logits named ``output``; returns the finished network."""
        self.network.add_output(self.linear(x, name, classes, init, output="output"))
        return self.network
