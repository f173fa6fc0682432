"""`transformer` (encoder classifier) and `lstm`: samples are sequences of (length,) tokens or (length, features)."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import onnx

from deep500.errors import NetworkError
from deep500.networks.network import Network
from deep500.networks.zoo.builder import Builder


def _dense(build: Builder, x: str, name: str, features: int, bound: float, separator: str = ".") -> str:
    """x W^T + b on the last axis; weight U(-bound, bound), bias 0."""
    before = build.shapes[x]
    weight = build.parameter(f"{name}{separator}weight", build.uniform((features, before[-1]), bound))
    bias = build.parameter(f"{name}{separator}bias", np.zeros(features))
    node = f"{name}_proj" if separator == "_" else name
    turned = build.node("Transpose", [weight], f"{node}.transpose", (), perm=[1, 0])
    shape = (*before[:-1], features)
    return build.add(build.node("MatMul", [x, turned], f"{node}.matmul", shape), bias, node)


def _glorot(inputs: int, outputs: int) -> float:
    return math.sqrt(6 / (inputs + outputs))


def attend(build: Builder, parts: Sequence[str], name: str, heads: int) -> str:
    """Softmax(Q K^T / sqrt(width per head)) V for each head (Vaswani et al. 2017, arXiv 1706.03762).

    ``parts`` are query, key and value, of (length, width) each.
    """
    length, width = build.shapes[parts[0]]
    size = width // heads
    split = build.constant("heads.split", np.array([0, 0, heads, size], np.int64))
    merge = build.constant("heads.merge", np.array([0, 0, width], np.int64))
    turns = [0, 2, 1, 3], [0, 2, 3, 1], [0, 2, 1, 3]
    query, key, value = (
        build.node("Transpose", [build.node("Reshape", [p, split], f"{p}.heads", ())], f"{p}.turned", (), perm=turn)
        for p, turn in zip(parts, turns, strict=True)
    )
    scale = build.constant("heads.scale", np.float32(1 / math.sqrt(size)))
    query = build.node("Mul", [query, scale], f"{name}.query.scaled", ())
    scores = build.node("MatMul", [query, key], f"{name}.scores", ())
    weights = build.node("Softmax", [scores], f"{name}.weights", (), axis=-1)
    mixed = build.node("MatMul", [weights, value], f"{name}.mixed", ())
    turned = build.node("Transpose", [mixed], f"{name}.mixed.turned", (), perm=[0, 2, 1, 3])
    return build.node("Reshape", [turned, merge], f"{name}.mixed.joined", (length, width))


def _attention(build: Builder, x: str, name: str, heads: int) -> str:
    length, width = build.shapes[x]
    joint = _dense(build, x, f"{name}.in_proj", 3 * width, _glorot(width, 3 * width), separator="_")
    parts = [f"{name}.{part}" for part in ("query", "key", "value")]
    build.network.add_node("Split", [joint], parts, name=f"{name}.split", axis=-1, num_outputs=3)
    build.shapes.update(dict.fromkeys(parts, (length, width)))
    return _dense(build, attend(build, parts, name, heads), f"{name}.out_proj", width, 1 / math.sqrt(width))


def _encoder_layer(build: Builder, x: str, name: str, heads: int, hidden: int, dropout: float) -> str:
    width = build.shapes[x][-1]
    y = _attention(build, build.layer_norm(x, f"{name}.norm1"), f"{name}.self_attn", heads)
    x = build.add(x, build.dropout(y, f"{name}.dropout1", dropout), f"{name}.add1")
    y = build.layer_norm(x, f"{name}.norm2")
    y = _dense(build, y, f"{name}.linear1", hidden, 1 / math.sqrt(width))
    y = build.node("Gelu", [y], f"{name}.gelu", build.shapes[y])
    y = build.dropout(y, f"{name}.dropout", dropout)
    y = _dense(build, y, f"{name}.linear2", width, 1 / math.sqrt(hidden))
    return build.add(x, build.dropout(y, f"{name}.dropout2", dropout), f"{name}.add2")


def transformer(
    build: Builder,
    classes: int,
    *,
    vocabulary: int = 1000,
    width: int = 64,
    heads: int = 4,
    layers: int = 2,
    hidden: int | None = None,
    dropout: float = 0.0,
) -> Network:
    """Encoder classifier: embedding and learned positions, pre-LN encoder layers with GELU, mean over the sequence, fc.

    ``shape=(length,)`` takes int64 tokens, ``shape=(length, features)`` floats, which a linear layer embeds. Parameters
    are named as those of ``nn.TransformerEncoderLayer(norm_first=True, activation="gelu")``.

    Args:
        vocabulary: number of tokens (unused for floats).
        width: of the embedding; a multiple of ``heads``.
        heads: attention heads per layer.
        layers: encoder layers.
        hidden: width inside the feed-forward part; 4 * width if None.
        dropout: rate on both branches and inside the feed-forward part.

    Initialisation: embedding and positions N(0, 0.02^2) (GPT-2's), attention's input projection Xavier-uniform, other
    linear weights U(-1/sqrt(fan_in), 1/sqrt(fan_in)) (PyTorch's), biases 0.
    """
    shape = build.shapes["input"]
    if len(shape) not in (1, 2):
        raise NetworkError(f"got shape {shape}; expected (length,) or (length, features): give shape= of a sequence")
    if width % heads:
        raise NetworkError(f"got width {width} and {heads} heads; expected a multiple: choose width={heads * 16}")
    if len(shape) == 1:
        table = build.parameter("embedding.weight", build.normal((vocabulary, width), 0.02))
        x = build.node("Gather", [table, "input"], "embedding", (*shape, width), axis=0)
    else:
        x = _dense(build, "input", "embedding", width, 1 / math.sqrt(shape[1]))
    position = build.parameter("position.weight", build.normal((shape[0], width), 0.02))
    x = build.add(x, position, "position")
    for layer in range(layers):
        x = _encoder_layer(build, x, f"layers.{layer}", heads, hidden or 4 * width, dropout)
    x = build.layer_norm(x, "norm")
    axis = build.constant("sequence.axis", np.array([1], np.int64))
    x = build.node("ReduceMean", [x, axis], "mean", (width,), keepdims=0)
    return build.classify(x, "fc", classes)


def lstm(build: Builder, classes: int, *, width: int = 64, forget_bias: float = 1.0, lengths: bool = False) -> Network:
    """One ONNX LSTM over ``shape=(length, features)``, then fc on the last hidden state.

    Gate order is ONNX's, i o f c (PyTorch's is i f c o); ``lstm.weight_ih`` and ``lstm.weight_hh`` are
    [1, 4*width, ...], ``lstm.bias`` is [1, 8*width]: first the input's, then the recurrent one.

    Args:
        width: of the hidden state.
        forget_bias: start of the forget gate's input bias (Jozefowicz et al. 2015 advise 1; PyTorch has about 0). Its
            recurrent bias starts at 0.
        lengths: whether an input ``input_length`` [batch] says how long each sequence is; what is past it is not read.

    Initialisation: everything else U(-1/sqrt(width), 1/sqrt(width)), PyTorch's default of ``nn.LSTM``.
    """
    shape = build.shapes["input"]
    if len(shape) != 2:
        raise NetworkError(f"got shape {shape}; expected (length, features): give shape= of a sequence of vectors")
    length, features = shape
    bound = 1 / math.sqrt(width)
    names = [
        build.parameter("lstm.weight_ih", build.uniform((1, 4 * width, features), bound)),
        build.parameter("lstm.weight_hh", build.uniform((1, 4 * width, width), bound)),
    ]
    bias = build.uniform((1, 2, 4, width), bound)
    bias[0, :, 2] = [[forget_bias], [0.0]]
    names.append(build.parameter("lstm.bias", bias.reshape(1, -1)))
    x = build.node("Transpose", ["input"], "time_first", (length, features), perm=[1, 0, 2])
    if lengths:
        batch = (build.network.inputs["input"].shape or ("N",))[0]
        build.network.add_input("input_length", (batch,), "int64")
        build.network.add_node("Cast", ["input_length"], ["lengths"], name="lengths", to=onnx.TensorProto.INT32)
        names.append("lengths")
    build.network.add_node("LSTM", [x, *names], ["lstm.states", "lstm.last"], name="lstm", hidden_size=width)
    axis = build.constant("direction.axis", np.array([0], np.int64))
    return build.classify(build.node("Squeeze", ["lstm.last", axis], "last", (width,)), "fc", classes)
