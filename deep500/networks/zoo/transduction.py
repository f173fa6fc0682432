"""`encoder_decoder`: a transformer that reads one sequence of tokens and writes another."""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass

from deep500.keywords import takes
from deep500.networks.network import Network
from deep500.networks.zoo.blocks import Blocks, TransformerSizes, embedding, scores
from deep500.networks.zoo.builder import Builder
from deep500.networks.zoo.language import length_of


@dataclass(frozen=True)
class EncoderDecoder(TransformerSizes):
    """The options of :func:`encoder_decoder`.

    Args:
        source: size of the source's vocabulary; ``classes`` is the target's.
        target_length: tokens of a target.
        width, heads, layers, hidden, dropout: as in ``causal_transformer``, of encoder and decoder each.
    """

    build: Builder
    classes: int
    _: KW_ONLY
    source: int = 12
    target_length: int = 12
    width: int = 64


@takes(EncoderDecoder)
def encoder_decoder(options: EncoderDecoder) -> Network:
    """Pre-norm encoder and decoder (Vaswani et al. 2017, arXiv 1706.03762), learned positions, tied target embedding.

    Inputs ``input`` (items, length) and ``decoder_input`` (items, target_length), int64: the target after a start.
    Where ``input`` is 0 it is over and not read. Scores ``output`` are (items, classes, target_length).

    Parameters, with a = 4 * width^2 + 6 * width for attention and f = 2 * width * hidden + hidden + 3 * width:
    (source + classes + length + target_length) * width + layers * (3 * a + 2 * f) + 4 * width.
    """
    build, classes, width, target_length = options.build, options.classes, options.width, options.target_length
    length = length_of(build)
    batch = (build.network.inputs["input"].shape or ("N",))[0]
    build.network.add_input("decoder_input", (batch, target_length), "int64")
    blocks = Blocks(build, options)
    over = blocks.padding_bias("input", "source.padding")
    read = embedding(build, "encoder.embedding", options.source, width)
    x = build.node("Gather", [read, "input"], "encoder.embedding", (length, width), axis=0)
    x = blocks.placed(x, "encoder.position", length)
    for layer in range(options.layers):
        x = blocks.attention(x, x, f"encoder.{layer}.attention", over)
        x = blocks.feed_forward(x, f"encoder.{layer}.mlp")
    memory = build.layer_norm(x, "encoder.norm")
    table = embedding(build, "decoder.embedding", classes, width)
    y = build.node("Gather", [table, "decoder_input"], "decoder.embedding", (target_length, width), axis=0)
    y = blocks.placed(y, "decoder.position", target_length)
    causal = blocks.causal_bias(target_length)
    for layer in range(options.layers):
        y = blocks.attention(y, y, f"decoder.{layer}.attention", causal)
        y = blocks.attention(y, memory, f"decoder.{layer}.cross", over)
        y = blocks.feed_forward(y, f"decoder.{layer}.mlp")
    return scores(build, build.layer_norm(y, "decoder.norm"), table, classes)
