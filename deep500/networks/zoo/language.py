"""Language models: `gru_language_model`, `lstm_language_model`, `causal_transformer`.

Samples are ``shape=(length,)`` tokens; the scores ``output`` are (items, classes, length), where place t says what
comes after token t and reads no later one. ``classes`` is the size of the vocabulary.
"""

from __future__ import annotations

import math
from dataclasses import KW_ONLY, dataclass
from typing import Any

import numpy as np

from deep500.errors import NetworkError
from deep500.keywords import takes
from deep500.networks.dtype import to_dtype
from deep500.networks.network import Network
from deep500.networks.zoo.blocks import Blocks, TransformerSizes, embedding, scores
from deep500.networks.zoo.builder import Builder


def length_of(build: Builder) -> int:
    """The number of tokens of a sample; NetworkError for other samples."""
    shape = build.shapes["input"]
    if len(shape) != 1:
        raise NetworkError(f"got shape {shape}; expected (length,): give shape= of a sequence of tokens")
    return shape[0]


def _recurrent(
    build: Builder, classes: int, kind: str, gates: int, width: int, size: int, layers: int, dropout: float
) -> Network:
    length = length_of(build)
    table = embedding(build, "embedding", classes, size)
    time_first = build.node("Transpose", ["input"], "time_first", (), perm=[1, 0])
    x = build.node("Gather", [table, time_first], "embedding", (length, size), axis=0)
    bound = 1 / math.sqrt(width)
    axis = build.constant("direction.axis", np.array([1], np.int64))
    for layer in range(layers):
        before, name = build.shapes[x][-1], f"{kind.lower()}.{layer}"
        x = build.dropout(x, f"{name}.dropout", dropout)
        names = [
            build.parameter(f"{name}.weight_ih", build.uniform((1, gates * width, before), bound)),
            build.parameter(f"{name}.weight_hh", build.uniform((1, gates * width, width), bound)),
            build.parameter(f"{name}.bias", build.uniform((1, 2 * gates * width), bound)),
        ]
        more: dict[str, Any] = {"linear_before_reset": 1} if kind == "GRU" else {}
        build.network.add_node(kind, [x, *names], [f"{name}.states"], name=name, hidden_size=width, **more)
        x = build.node("Squeeze", [f"{name}.states", axis], f"{name}.hidden", (length, width))
    x = build.dropout(x, "fc.dropout", dropout)
    weight = build.parameter("fc.weight", build.uniform((width, classes), bound))
    x = build.node("MatMul", [x, weight], "fc.matmul", (length, classes))
    x = build.add(x, build.parameter("fc.bias", np.zeros(classes)), "fc")
    build.node("Transpose", [x], "output", (classes, length), perm=[1, 2, 0])
    build.network.add_output("output")
    return build.network


def gru_language_model(
    build: Builder, classes: int, *, width: int = 256, embedding: int = 64, layers: int = 1, dropout: float = 0.0
) -> Network:
    """Embedding, GRU layers (``linear_before_reset=1``, PyTorch's), and a linear layer for every token.

    Parameters: classes * embedding + sum over layers of 3 * width * (inputs + width + 2) + (width + 1) * classes, where
    inputs is ``embedding`` for the first layer and ``width`` for others.

    Args:
        width: of the hidden states.
        embedding: width of the embedding.
        layers: how many GRUs.
        dropout: rate before every layer and before the linear one.

    Initialisation: embedding N(0, 0.02^2), biases of the linear layer 0, all else U(-1/sqrt(width), 1/sqrt(width)).
    """
    return _recurrent(build, classes, "GRU", 3, width, embedding, layers, dropout)


def lstm_language_model(
    build: Builder, classes: int, *, width: int = 256, embedding: int = 64, layers: int = 1, dropout: float = 0.0
) -> Network:
    """Build what :func:`gru_language_model` builds, of LSTMs: 4 * width * (inputs + width + 2) parameters each."""
    return _recurrent(build, classes, "LSTM", 4, width, embedding, layers, dropout)


@dataclass(frozen=True)
class CausalTransformer(TransformerSizes):
    """The options of :func:`causal_transformer`.

    Args:
        width: a multiple of ``heads``; with rotary positions width / heads is even.
        heads, layers: attention heads of a layer, layers.
        hidden: width inside the feed-forward part; 4 * width if None.
        positions: ``"rotary"`` (Su et al. 2021, arXiv 2104.09864) or ``"learned"``.
        dropout: rate on the embedding and both branches.
        cache: build the second network, which reads one token at a time.
    """

    build: Builder
    classes: int
    _: KW_ONLY
    positions: str = "rotary"
    cache: bool = False


@takes(CausalTransformer)
def causal_transformer(options: CausalTransformer) -> Network:
    """Pre-norm decoder (GELU) whose scores are products with its own embedding (tied), as in GPT-2.

    Parameters: classes * width + (length * width if positions are learned) + layers * (4 * width^2 + 9 * width +
    2 * width * hidden + hidden) + 2 * width.

    With ``cache=True`` the same arguments give the *second network*, which has the same parameters and reads one token
    at a time: inputs ``input`` (items, 1), ``position`` (1,) and for each layer ``past.L.key`` and ``past.L.value``
    (items, heads, length, width / heads), zeros at first; outputs ``output`` (items, classes, 1), ``present.L.key``
    and ``present.L.value`` for the next token. What stands at ``position`` of a past is replaced, what stands after it
    is not read.

    Initialisation: N(0, 0.02^2), of what is added to the stream N(0, 0.02^2 / (2 layers)) (GPT-2's), biases 0.
    """
    build, classes, width, cache, positions = (
        options.build,
        options.classes,
        options.width,
        options.cache,
        options.positions,
    )
    length = length_of(build)
    blocks = Blocks(build, options)
    if positions not in ("rotary", "learned"):
        raise NetworkError(f"got positions={positions!r}; expected 'rotary' or 'learned': choose one")
    batch = (build.network.inputs["input"].shape or ("N",))[0]
    if cache:
        build.network.remove_input("input")
        build.network.add_input("input", (batch, 1), "int64")
        build.network.add_input("position", (1,), "int64")
    table = embedding(build, "embedding", classes, width)
    steps = 1 if cache else length
    x = build.node("Gather", [table, "input"], "embedding", (steps, width), axis=0)
    if positions == "learned":
        x = blocks.placed(x, "position", length, "position" if cache else None)
    else:
        blocks.rotate(length, "position" if cache else None)
    x = build.dropout(x, "embedding.dropout", options.dropout)
    bias = blocks.cached_bias(length) if cache else blocks.causal_bias(length)
    for layer in range(options.layers):
        x = blocks.attention(x, x, f"layers.{layer}.attention", bias, (layer, batch, length) if cache else None)
        x = blocks.feed_forward(x, f"layers.{layer}.mlp")
    return scores(build, build.layer_norm(x, "norm"), table, classes)


def one_token_network(network: Network) -> Network | None:
    """The second network (``cache=True``) of a ``causal_transformer``, with its weights; None if it is not one.

    A loss and other outputs may have been added; a network whose nodes were changed is no longer recognised.

    Example:
        >>> from deep500.networks import create
        >>> sizes = dict(classes=7, shape=(5,), width=8, heads=2, positions="learned")
        >>> sorted(one_token_network(create("causal_transformer", **sizes)).inputs)[:3]
        ['input', 'past.0.key', 'past.0.value']
        >>> one_token_network(create("gru_language_model", classes=7, shape=(5,))) is None
        True
    """
    parameters = network.parameters
    shape = network.inputs["input"].shape if "input" in network.inputs else None
    known = {"embedding.weight", "heads.split", "layers.0.mlp.wide.weight"} <= parameters.keys()
    if not known or shape is None or len(shape) != 2 or not isinstance(shape[1], int):
        return None
    classes, width = parameters["embedding.weight"].value.shape
    options = {
        "width": width,
        "heads": int(parameters["heads.split"].value[2]),
        "layers": sum(name.endswith(".mlp.wide.weight") for name in parameters),
        "hidden": parameters["layers.0.mlp.wide.weight"].value.shape[1],
        "positions": "learned" if "position.weight" in parameters else "rotary",
    }
    full, step = (_transformer(shape, classes, cache=cache, **options) for cache in (False, True))
    nodes = [(node.name, node.op_type) for node in network.nodes if node.op_type != "Dropout"]
    expected = [(node.name, node.op_type) for node in full.nodes]
    shapes = {name: parameters[name].value.shape for name in full.trainable() if name in parameters}
    dtype = str(parameters["embedding.weight"].value.dtype)
    if nodes[: len(expected)] != expected or shapes != {n: full.parameters[n].value.shape for n in full.trainable()}:
        return None
    for name in step.trainable():
        step.set_parameter(name, parameters[name].value.astype(np.float32))
    if dtype != "float32":
        step = to_dtype(step, dtype)
        for name in step.trainable():
            step.set_parameter(name, parameters[name].value)
    return step


def prefill_network(network: Network) -> Network:
    """A ``causal_transformer`` whose further outputs ``present.L.key`` and ``present.L.value`` are what its second
    network takes as its past: the beginning of a text is read at once.

    Example:
        >>> from deep500.networks import create
        >>> sizes = dict(classes=7, shape=(5,), width=8, heads=2)
        >>> prefill_network(create("causal_transformer", **sizes)).outputs[:3]
        ['output', 'present.0.key', 'present.0.value']
    """
    copy = Network(network.name)
    copy.take_over(network.copy())
    for output in copy.outputs[:]:
        if output != "output":
            copy.remove_output(output)
    layer = 0
    while copy.has_value(f"layers.{layer}.attention.value.split"):
        start = f"layers.{layer}.attention"
        key = f"{start}.key.rotated" if copy.has_value(f"{start}.key.rotated") else f"{start}.key.split"
        for what, value in (("key", key), ("value", f"{start}.value.split")):
            copy.add_node("Identity", [value], [f"present.{layer}.{what}"])
            copy.add_output(f"present.{layer}.{what}")
        layer += 1
    return copy


def _transformer(shape: tuple[Any, ...], classes: int, **options: Any) -> Network:
    return causal_transformer(Builder("causal_transformer", shape[0], (shape[1],), 0, "int64"), classes, **options)
