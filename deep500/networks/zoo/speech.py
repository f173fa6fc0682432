"""`conv1d`, `conv1d_ctc` and `bigru`: samples are sequences of (frames, features), of which the first ``length`` count.

With ``lengths=True`` a network has a second input ``input_length`` (items,) int64, and what stands behind an item's end
is not read: convolutions see zeros there, as they do behind the edge. (In training, batch normalization's statistics
are of padding too, so batches of similar lengths are better.) Without, all frames count.
"""

from __future__ import annotations

import math
from dataclasses import KW_ONLY, dataclass

import numpy as np

from deep500.errors import NetworkError
from deep500.keywords import takes
from deep500.networks.network import Network
from deep500.networks.zoo.builder import Builder

LENGTH, OUTPUT_LENGTH = "input_length", "output_length"


class _Frames:
    """Values of (channels, frames), and which of their frames count."""

    def __init__(self, build: Builder, lengths: bool, free: bool = False) -> None:
        shape = build.shapes["input"]
        if len(shape) != 2:
            raise NetworkError(f"got shape {shape}; expected (frames, features): give shape= of a sequence of vectors")
        self.build, self.network = build, build.network
        batch = (build.network.inputs["input"].shape or ("N",))[0]
        if free:  # batches differ in the number of frames
            self.network.remove_input("input")
            self.network.add_input("input", (batch, "T", shape[1]))
        self.length = ""
        if lengths:
            self.network.add_input(LENGTH, (batch,), "int64")
            self.length = LENGTH
        self.mask = ""

    def start(self) -> str:
        """The input as (features, frames), nothing behind its end."""
        frames, features = self.build.shapes["input"]
        x = self.build.node("Transpose", ["input"], "channels_first", (features, frames), perm=[0, 2, 1])
        return self.masked(x, "input.masked", fresh=True)

    def masked(self, x: str, name: str, fresh: bool = False) -> str:
        """Zeros behind the end; ``fresh`` makes the mask for this number of frames."""
        if not self.length:
            return x
        build, shape = self.build, self.build.shapes[x]
        if fresh:
            zero, unit = (build.constant(f"frames.{n}", np.int64(n)) for n in (0, 1))
            two = build.constant("frames.axis", np.int64(2))
            size = build.node("Gather", [build.node("Shape", [x], f"{name}.shape", ()), two], f"{name}.frames", ())
            clock = build.node("Range", [zero, size, unit], f"{name}.clock", ())
            axes = build.constant("frames.axes", np.array([1, 2], np.int64))
            column = build.node("Unsqueeze", [self.length, axes], f"{name}.length", ())
            counted = build.node("Less", [clock, column], f"{name}.counted", ())
            self.mask = build.node("Cast", [counted], f"{name}.mask", (1, shape[1]), to=1)
        return build.node("Mul", [x, self.mask], name, shape)

    def conv(self, x: str, name: str, channels: int, kernel: int, stride: int = 1, norm: bool = False) -> str:
        """Convolution over frames with zeros at both edges, ReLU, and nothing behind the end."""
        build, (before, frames) = self.build, self.build.shapes[x]
        if kernel % 2 == 0:
            raise NetworkError(f"layer {name!r}: got kernel {kernel}; expected an odd one, which has a middle: add 1")
        names = build.weights(name, (channels, before, kernel), "fan_out")
        shape = (channels, (frames - 1) // stride + 1)
        edges = [kernel // 2, kernel // 2]
        y = build.node("Conv", [x, *names], name, shape, kernel_shape=[kernel], strides=[stride], pads=edges)
        if norm:
            y = build.batch_norm(y, f"{name}.norm")
        y = build.relu(y, f"{name}.relu")
        if stride > 1 and self.length:
            more, by = (build.constant(f"{name}.{n}", np.int64(n)) for n in (stride - 1, stride))
            more = build.node("Add", [self.length, more], f"{name}.more", ())
            self.length = build.node("Div", [more, by], OUTPUT_LENGTH, ())
            self.network.add_output(OUTPUT_LENGTH)
        return self.masked(y, f"{name}.masked", fresh=stride > 1)

    def mean(self, x: str, name: str) -> str:
        """Mean over the frames that count."""
        build, channels = self.build, self.build.shapes[x][0]
        axis = build.constant("frames.last", np.array([2], np.int64))
        if not self.length:
            return build.node("ReduceMean", [x, axis], name, (channels,), keepdims=0)
        total = build.node("ReduceSum", [x, axis], f"{name}.total", (channels,), keepdims=0)
        count = build.node("ReduceSum", [self.mask, axis], f"{name}.count", (1,), keepdims=0)
        return build.node("Div", [total, count], name, (channels,))


def conv1d(
    build: Builder, classes: int, *, width: int = 64, layers: int = 3, kernel: int = 5, lengths: bool = False
) -> Network:
    """Convolutions over frames with ReLU, mean over the frames, fc: classifies ``shape=(frames, features)``.

    Parameters: features * width * kernel + (layers - 1) * width^2 * kernel + layers * width + (width + 1) * classes.

    Args:
        width: channels of every layer.
        layers: convolutions.
        kernel: frames that a convolution sees, odd.
        lengths: a second input says how many frames of each item count.

    Initialisation: Kaiming-normal, biases 0; fc PyTorch's.
    """
    frames = _Frames(build, lengths)
    x = frames.start()
    for layer in range(layers):
        x = frames.conv(x, f"conv{layer + 1}", width, kernel)
    return build.classify(frames.mean(x, "mean"), "fc", classes)


@dataclass(frozen=True)
class AcousticModel:
    """The options of :func:`conv1d_ctc`.

    Args:
        width: channels of every layer.
        layers: convolutions.
        kernel: frames that a convolution sees, odd.
        dropout: rate before every convolution but the first, and before the linear layer.
        norm: batch normalization after every convolution.
        stride: of the first convolution; with ``lengths``, an output ``output_length`` says how many frames remain.
        lengths: a second input says how many frames of each item count.
    """

    build: Builder
    classes: int
    _: KW_ONLY
    width: int = 64
    layers: int = 4
    kernel: int = 7
    stride: int = 1
    dropout: float = 0.0
    norm: bool = True
    lengths: bool = False


@takes(AcousticModel)
def conv1d_ctc(options: AcousticModel) -> Network:
    """Acoustic model: scores (frames, classes) for CTC from (frames, features), as many frames as a batch has.

    A convolution, then ``layers - 1`` residual ones (x + relu(norm(conv(x)))), then a linear layer for every frame.
    Parameters: features * width * kernel + (layers - 1) * width^2 * kernel + layers * width + (width + 1) * classes,
    and 2 * layers * width of batch normalization.

    Initialisation: Kaiming-normal, biases 0; fc PyTorch's.
    """
    build, width, kernel, layers, norm = options.build, options.width, options.kernel, options.layers, options.norm
    frames, classes = _Frames(build, options.lengths, free=True), options.classes
    x = frames.conv(frames.start(), "conv1", width, kernel, options.stride, norm)
    for layer in range(1, layers):
        y = build.dropout(x, f"dropout{layer}", options.dropout)
        x = build.add(x, frames.conv(y, f"conv{layer + 1}", width, kernel, norm=norm), f"add{layer + 1}")
    x = build.dropout(x, f"dropout{layers}", options.dropout)
    names = build.weights("fc", (classes, width, 1), "uniform")
    x = build.node("Conv", [x, *names], "fc", (classes, build.shapes[x][1]), kernel_shape=[1])
    build.node("Transpose", [x], "output", (build.shapes[x][1], classes), perm=[0, 2, 1])
    build.network.add_output("output")
    build.network.outputs.sort(key=lambda name: name != "output")  # the scores are the first output
    return build.network


def bigru(build: Builder, classes: int, *, width: int = 64, lengths: bool = False) -> Network:
    """One bidirectional ONNX GRU over ``shape=(frames, features)``, then fc on both last hidden states.

    Gate order is ONNX's, z r h (PyTorch's is r z n); the reset gate acts after the product, as in PyTorch
    (``linear_before_reset=1``). Parameters: 2 * (3 * width * (features + width) + 6 * width) + (2 * width + 1) *
    classes.

    Args:
        width: of the hidden state of one direction.
        lengths: a second input, the node's ``sequence_lens``, says how many frames of each item count.

    Initialisation: U(-1/sqrt(width), 1/sqrt(width)), PyTorch's default of ``nn.GRU``.
    """
    lens = _Frames(build, lengths).length
    frames, features = build.shapes["input"]
    bound = 1 / math.sqrt(width)
    shapes = {"weight_ih": (2, 3 * width, features), "weight_hh": (2, 3 * width, width), "bias": (2, 6 * width)}
    names = [build.parameter(f"gru.{name}", build.uniform(shape, bound)) for name, shape in shapes.items()]
    x = build.node("Transpose", ["input"], "time_first", (frames, features), perm=[1, 0, 2])
    if lens:
        names.append(build.node("Cast", [lens], "sequence_lens", (), to=6))
    build.network.add_node(
        "GRU",
        [x, *names],
        ["gru.states", "gru.last"],
        name="gru",
        hidden_size=width,
        direction="bidirectional",
        linear_before_reset=1,
    )
    turned = build.node("Transpose", ["gru.last"], "last.items_first", (2, width), perm=[1, 0, 2])
    return build.classify(build.flatten(turned, "last"), "fc", classes)
