"""Rules of convolution and pooling: samples, channels and groups; the space is whole, as windows reach over borders."""

from __future__ import annotations

from deep500.transformations.parallel.rules.registry import sharding_rule
from deep500.transformations.parallel.strategies import Factors, SizedNode


def _linear(view: SizedNode) -> list[frozenset[int]]:
    """In data, and in weights, each with the bias if there is one."""
    bias = {2} if view.present(2) else set()
    return [frozenset({0} | bias), frozenset({1} | bias)]


def _bias(view: SizedNode, label: str) -> list[list[str | None]]:
    return [[label] if shape else [] for shape in view.inputs[2:]]


def _convolution(view: SizedNode, weights: list[str]) -> Factors:
    """Samples n; output channels m; input channels c, over which is summed, with the bias once; or groups."""
    space: list[None] = [None] * (len(view.inputs[0]) - 2)
    groups = view.attribute("group", 1)
    if groups > 1:
        return Factors(
            [["n", "g", *space], ["g", None, *space], *_bias(view, "g")],
            [["n", "g", *space]],
            extents={"g": groups},
            divided={"g": "group"},
            linear=_linear(view),
        )
    return Factors(
        [["n", "c", *space], [*weights, *space], *_bias(view, "m")],
        [["n", "m", *space]],
        {"c": "sum"},
        once=frozenset({2}),
        linear=_linear(view),
    )


@sharding_rule("Conv")
def convolution(view: SizedNode) -> Factors:
    """Weights are (output channels, input channels, space)."""
    return _convolution(view, ["m", "c"])


@sharding_rule("ConvTranspose")
def transposed_convolution(view: SizedNode) -> Factors:
    """Weights are (input channels, output channels, space)."""
    return _convolution(view, ["c", "m"])


@sharding_rule("MaxPool")
def max_pooling(view: SizedNode) -> Factors:
    """Samples and channels; with indices, which count through the whole tensor, equal pieces of the samples."""
    space: list[None] = [None] * (len(view.inputs[0]) - 2)
    if len(view.outputs) == 1:
        return Factors([["n", "c", *space]], [["n", "c", *space]])
    return Factors([["n", None, *space]], [["n", None, *space]] * 2, local=frozenset({1}))


@sharding_rule("AveragePool", "LpPool", "GlobalAveragePool", "GlobalMaxPool")
def pooling(view: SizedNode) -> Factors:
    """Samples and channels."""
    labels = ["n", "c", *[None] * (len(view.inputs[0]) - 2)]
    linear = [frozenset({0})] if "Average" in view.node.op_type else []
    return Factors([labels], [labels], linear=linear)


@sharding_rule("DepthToSpace", "SpaceToDepth")
def depth_and_space(view: SizedNode) -> Factors:
    """Samples."""
    labels = ["n", None, None, None]
    return Factors([labels], [labels], linear=[frozenset({0})])
