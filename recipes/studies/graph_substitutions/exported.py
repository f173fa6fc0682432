"""ConvNeXt, ViT and GPT-2 as exporters of frameworks write them: GELU, scales and masks in pieces, layouts turned.

Linear layers are MatMul and Add on the last axis, GELU is five to eight elementwise operators (opset 17 has none of its
own), attention is products with a scale, a mask and a softmax between, and ConvNeXt turns channels to the back and to
the front again around its linear layers, as PyTorch's exporter does. Layer normalization is one operator: since opset
17 it has its own. Sizes follow the papers; weights are seeded.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from deep500.networks import Network
from deep500.networks.zoo.builder import Builder
from deep500.networks.zoo.sequence import attend

DEVIATION = 0.02


def build(name: str, classes: int, shape: Sequence[int], seed: int = 0, **options: Any) -> Network:
    """One of `MODELS` at batch 1.

    Example:
        >>> build("vit", 10, (3, 16, 16), patch=8, width=16, heads=2, layers=1).outputs
        ['output']
    """
    return MODELS[name](Builder(name, 1, tuple(shape), seed), classes, **options)


def convnext(
    build: Builder,
    classes: int,
    *,
    blocks: tuple[int, ...] = (3, 3, 9, 3),
    widths: tuple[int, ...] = (96, 192, 384, 768),
) -> Network:
    """ConvNeXt (Liu et al. 2022, arXiv 2201.03545); ConvNeXt-T without options."""
    x = build.conv("input", "stem", widths[0], 4, 4)
    x = _norm_channels(build, x, "stem.norm")
    for stage, (count, width) in enumerate(zip(blocks, widths, strict=True)):
        if stage:
            x = build.conv(_norm_channels(build, x, f"down{stage}.norm"), f"down{stage}", width, 2, 2)
        for number in range(count):
            name = f"stage{stage}.{number}"
            y = build.conv(x, f"{name}.depthwise", width, 7, padding=3, groups=width)
            y = build.layer_norm(_last(build, y, f"{name}.back"), f"{name}.norm", 1e-6)
            y = _gelu(build, _dense(build, y, f"{name}.wide", 4 * width), f"{name}.gelu")
            y = _dense(build, y, f"{name}.narrow", width)
            scale = build.parameter(f"{name}.scale", np.full(width, 0.5))
            y = build.node("Mul", [scale, y], f"{name}.scaled", build.shapes[y])
            x = build.add(x, _first(build, y, f"{name}.front"), f"{name}.add")
    return build.classify(build.global_average(x), "head", classes)


def vit(
    build: Builder, classes: int, *, patch: int = 16, width: int = 768, heads: int = 12, layers: int = 12
) -> Network:
    """Vision transformer (Dosovitskiy et al. 2021, arXiv 2010.11929); ViT-B/16 without options."""
    x = build.conv("input", "patches", width, patch, patch)
    length = math.prod(build.shapes[x][1:])
    flat = build.constant("patches.shape", np.array([0, width, -1], np.int64))
    x = build.node("Reshape", [x, flat], "patches.flat", (width, length))
    x = build.node("Transpose", [x], "patches.turned", (length, width), perm=[0, 2, 1])
    token = build.parameter("token", build.normal((1, 1, width), DEVIATION))
    x = build.node("Concat", [token, x], "tokens", (length + 1, width), axis=1)
    place = build.parameter("positions", build.normal((1, length + 1, width), DEVIATION))
    x = build.add(x, place, "placed")
    for number in range(layers):
        x = _layer(build, x, f"layer{number}", heads, joint=False)
    index = build.constant("first.index", np.array(0, np.int64))
    x = build.node("Gather", [build.layer_norm(x, "norm", 1e-6), index], "first", (width,), axis=1)
    return build.classify(x, "head", classes)


def gpt2(build: Builder, classes: int, *, heads: int = 12, layers: int = 12) -> Network:
    """GPT-2 (Radford et al. 2019) on embedded vectors, ``shape=(length, width)``; the logits of all positions.

    As transformers exports it: one product for query, key and value, scores divided by a constant, a mask that a Where
    fills in, GELU by tanh.
    """
    x = "input"
    for number in range(layers):
        x = _layer(build, x, f"h.{number}", heads, joint=True)
    x = _dense(build, build.layer_norm(x, "ln_f"), "lm_head", classes)
    build.network.add_output(x)
    return build.network


def _layer(build: Builder, x: str, name: str, heads: int, joint: bool) -> str:
    """A layer that normalizes before its branches; ``joint``: GPT-2's, with one product for all parts and a mask."""
    width = build.shapes[x][-1]
    y = build.layer_norm(x, f"{name}.norm1", 1e-6)
    mixed = _causal(build, y, name, heads) if joint else _whole(build, y, name, heads)
    x = build.add(_dense(build, mixed, f"{name}.proj", width), x, f"{name}.add1")
    y = _dense(build, build.layer_norm(x, f"{name}.norm2", 1e-6), f"{name}.wide", 4 * width)
    y = (_gelu_tanh if joint else _gelu)(build, y, f"{name}.gelu")
    return build.add(x, _dense(build, y, f"{name}.narrow", width), f"{name}.add2")


def _whole(build: Builder, x: str, name: str, heads: int) -> str:
    parts = [_dense(build, x, f"{name}.{part}", build.shapes[x][-1]) for part in ("query", "key", "value")]
    return attend(build, parts, f"{name}.attention", heads)


def _causal(build: Builder, x: str, name: str, heads: int) -> str:
    length, width = build.shapes[x]
    size = width // heads
    parts = [f"{name}.{part}" for part in ("query", "key", "value")]
    joint = _dense(build, x, f"{name}.qkv", 3 * width)
    sizes = build.constant("parts.sizes", np.array([width] * 3, np.int64))
    build.network.add_node("Split", [joint, sizes], parts, name=f"{name}.split", axis=-1)
    into = build.constant("heads.into", np.array([1, length, heads, size], np.int64))
    back = build.constant("heads.back", np.array([1, length, width], np.int64))
    turned = [
        build.node("Transpose", [build.node("Reshape", [p, into], f"{p}.heads", ())], f"{p}.turned", (), perm=turn)
        for p, turn in zip(parts, ([0, 2, 1, 3], [0, 2, 3, 1], [0, 2, 1, 3]), strict=True)
    ]
    scores = build.node("MatMul", turned[:2], f"{name}.scores", ())
    root = build.constant("heads.root", np.float32(math.sqrt(size)))
    scores = build.node("Div", [scores, root], f"{name}.scaled", ())
    mask = build.constant("mask", np.tril(np.ones((1, 1, length, length), bool)))
    least = build.constant("mask.least", np.float32(np.finfo(np.float32).min))
    scores = build.node("Where", [mask, scores, least], f"{name}.masked", ())
    weights = build.node("Softmax", [scores], f"{name}.weights", (), axis=-1)
    mixed = build.node("MatMul", [weights, turned[2]], f"{name}.mixed", ())
    mixed = build.node("Transpose", [mixed], f"{name}.mixed.turned", (), perm=[0, 2, 1, 3])
    return build.node("Reshape", [mixed, back], f"{name}.mixed.joined", (length, width))


def _dense(build: Builder, x: str, name: str, features: int) -> str:
    *outer, before = build.shapes[x]
    weight = build.parameter(f"{name}.weight", build.normal((before, features), DEVIATION))
    bias = build.parameter(f"{name}.bias", build.normal((features,), DEVIATION))
    product = build.node("MatMul", [x, weight], f"{name}.matmul", (*outer, features))
    return build.node("Add", [bias, product], name, build.shapes[product])


def _gelu(build: Builder, x: str, name: str) -> str:
    """x * (erf(x / sqrt 2) + 1) * 0.5, operator by operator."""
    shape = build.shapes[x]
    root, unit, half = (
        build.constant(f"gelu.{word}", np.float32(value))
        for word, value in (("root", math.sqrt(2)), ("one", 1), ("half", 0.5))
    )
    y = build.node("Erf", [build.node("Div", [x, root], f"{name}.div", shape)], f"{name}.erf", shape)
    y = build.node("Mul", [x, build.node("Add", [y, unit], f"{name}.one", shape)], f"{name}.mul", shape)
    return build.node("Mul", [y, half], name, shape)


def _gelu_tanh(build: Builder, x: str, name: str) -> str:
    """0.5 x (1 + tanh(sqrt(2 / pi) (x + 0.044715 x^3))), as transformers writes its NewGELU."""
    shape = build.shapes[x]
    three, cubic, root, unit, half = (
        build.constant(f"gelu.{word}", np.float32(value))
        for word, value in (
            ("three", 3),
            ("cubic", 0.044715),
            ("tanh", math.sqrt(2 / math.pi)),
            ("one", 1),
            ("half", 0.5),
        )
    )
    y = build.node("Mul", [build.node("Pow", [x, three], f"{name}.pow", shape), cubic], f"{name}.cubic", shape)
    y = build.node("Mul", [build.node("Add", [x, y], f"{name}.sum", shape), root], f"{name}.inner", shape)
    y = build.node("Add", [build.node("Tanh", [y], f"{name}.tanh", shape), unit], f"{name}.one", shape)
    return build.node("Mul", [build.node("Mul", [x, half], f"{name}.half", shape), y], name, shape)


def _last(build: Builder, x: str, name: str) -> str:
    channels, *spatial = build.shapes[x]
    return build.node("Transpose", [x], name, (*spatial, channels), perm=[0, 2, 3, 1])


def _first(build: Builder, x: str, name: str) -> str:
    *spatial, channels = build.shapes[x]
    return build.node("Transpose", [x], name, (channels, *spatial), perm=[0, 3, 1, 2])


def _norm_channels(build: Builder, x: str, name: str) -> str:
    y = build.layer_norm(_last(build, x, f"{name}.back"), name, 1e-6)
    return _first(build, y, f"{name}.front")


MODELS: dict[str, Callable[..., Network]] = {"convnext": convnext, "vit": vit, "gpt2": gpt2}
