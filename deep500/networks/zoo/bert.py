"""`bert` and `attention_block`: encoder layers that normalize after each residual sum, as BERT's do.

Query, key and value come from matrix products of their own, weights stored (inputs, outputs), so that MatMul takes them
as they are. Initialisation: weights N(0, 0.02^2), biases 0, layer normalization (epsilon 1e-12) 1 and 0 (BERT's).
"""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass

import numpy as np

from deep500.errors import NetworkError
from deep500.keywords import takes
from deep500.networks.network import Network
from deep500.networks.zoo.blocks import TransformerSizes
from deep500.networks.zoo.builder import Builder
from deep500.networks.zoo.sequence import attend

DEVIATION = 0.02
EPSILON = 1e-12


def _dense(build: Builder, x: str, name: str, features: int) -> str:
    """x W + b on the last axis."""
    *outer, before = build.shapes[x]
    weight = build.parameter(f"{name}.weight", build.normal((before, features), DEVIATION))
    bias = build.parameter(f"{name}.bias", np.zeros(features))
    return build.add(build.node("MatMul", [x, weight], f"{name}.matmul", (*outer, features)), bias, name)


def _attention(build: Builder, x: str, name: str, heads: int, dropout: float) -> str:
    """Attention, residual sum, layer normalization."""
    parts = [_dense(build, x, f"{name}.{part}", build.shapes[x][-1]) for part in ("query", "key", "value")]
    y = _dense(build, attend(build, parts, name, heads), f"{name}.output", build.shapes[x][-1])
    return _close(build, x, y, name, dropout)


def _close(build: Builder, x: str, y: str, name: str, dropout: float) -> str:
    y = build.dropout(y, f"{name}.dropout", dropout)
    return build.layer_norm(build.add(y, x, f"{name}.add"), f"{name}.norm", EPSILON)


def _feed_forward(build: Builder, x: str, name: str, hidden: int, dropout: float) -> str:
    y = _dense(build, x, f"{name}.intermediate", hidden)
    y = build.node("Gelu", [y], f"{name}.gelu", build.shapes[y])
    return _close(build, x, _dense(build, y, f"{name}.output", build.shapes[x][-1]), name, dropout)


def _first(build: Builder, x: str, name: str) -> str:
    """The vector of the first position."""
    index = build.constant("first.index", np.array(0, np.int64))
    return build.node("Gather", [x, index], name, build.shapes[x][1:], axis=1)


def _embed(build: Builder, vocabulary: int, positions: int, width: int, dropout: float) -> str:
    """Word, position and segment (all in the first) summed and normalized."""
    length = build.shapes["input"][0]
    words = build.parameter("embeddings.word.weight", build.normal((vocabulary, width), DEVIATION))
    places = build.parameter("embeddings.position.weight", build.normal((positions, width), DEVIATION))
    segments = build.parameter("embeddings.segment.weight", build.normal((2, width), DEVIATION))
    x = build.node("Gather", [words, "input"], "embeddings.word", (length, width), axis=0)
    where = build.constant("positions.index", np.arange(length))
    place = build.node("Gather", [places, where], "embeddings.position", (length, width), axis=0)
    first = build.constant("first.index", np.array(0, np.int64))
    segment = build.node("Gather", [segments, first], "embeddings.segment", (width,), axis=0)
    x = build.add(build.add(x, segment, "embeddings.add1"), place, "embeddings.add2")
    return build.dropout(build.layer_norm(x, "embeddings.norm", EPSILON), "embeddings.dropout", dropout)


def _check(width: int, heads: int, layers: int) -> None:
    if layers < 1 or heads < 1 or width % heads:
        raise NetworkError(
            f"got {layers} layers, width {width} and {heads} heads; expected at least one layer and a width that is a "
            f"multiple of the heads: choose width={max(heads, 1) * 64}"
        )


@dataclass(frozen=True)
class Bert(TransformerSizes):
    """The options of :func:`bert`.

    Args:
        layers: encoder layers.
        width: of the hidden state; a multiple of ``heads``. For embedded vectors, theirs.
        heads: attention heads per layer.
        hidden: width inside the feed-forward part; 4 * width if None.
        vocabulary, positions: rows of the embeddings of words and positions; the length is at most ``positions``.
        dropout: rate on embeddings and on both branches (BERT trains with 0.1).
    """

    build: Builder
    classes: int
    _: KW_ONLY
    layers: int = 12
    width: int = 768
    heads: int = 12
    vocabulary: int = 30522
    positions: int = 512


@takes(Bert)
def bert(options: Bert) -> Network:
    """BERT (Devlin et al. 2018, arXiv 1810.04805) with its pooler and a linear classifier on top.

    ``shape=(length,)`` takes int64 tokens; ``shape=(length, width)`` takes embedded vectors, and there is no embedding
    (as in TASO's benchmark; unlike there, attention has its softmax, scale and residual).
    BERT-base, which the options are by default, has 109,482,240 parameters without the classifier (the paper's 110M).
    """
    build, width, heads, positions = options.build, options.width, options.heads, options.positions
    shape = build.shapes["input"]
    if len(shape) not in (1, 2) or (len(shape) == 2 and shape[1] != width) or shape[0] > positions:
        raise NetworkError(
            f"got shape {shape}; expected (length,) or (length, {width}) with a length of at most {positions}: give "
            "shape= of tokens or of vectors as wide as width="
        )
    _check(width, heads, options.layers)
    x = _embed(build, options.vocabulary, positions, width, options.dropout) if len(shape) == 1 else "input"
    for number in range(options.layers):
        x = _attention(build, x, f"layer{number}.attention", heads, options.dropout)
        x = _feed_forward(build, x, f"layer{number}", options.hidden or 4 * width, options.dropout)
    pooled = _dense(build, _first(build, x, "first"), "pooler", width)
    return build.classify(build.node("Tanh", [pooled], "pooled", (width,)), "classifier", options.classes, DEVIATION)


def attention_block(build: Builder, classes: int, *, layers: int = 1, heads: int = 12) -> Network:
    """The attention half of BERT's layers alone, on vectors, and a linear classifier on the first position.

    Every layer has three projections with biases, scaled scores, softmax, the projection of the output, the residual
    sum and layer normalization. ``shape=(length, width)``.

    Args:
        layers: how many in a row.
        heads: attention heads; the width is a multiple.
    """
    shape = build.shapes["input"]
    if len(shape) != 2:
        raise NetworkError(f"got shape {shape}; expected (length, width): give shape= of a sequence of vectors")
    _check(shape[1], heads, layers)
    x = "input"
    for number in range(layers):
        x = _attention(build, x, f"layer{number}.attention", heads, 0.0)
    return build.classify(_first(build, x, "first"), "classifier", classes, DEVIATION)
