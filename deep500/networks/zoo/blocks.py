"""`Blocks`: pre-norm attention and feed-forward blocks that `causal_transformer` and `encoder_decoder` are made of."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from deep500.errors import NetworkError
from deep500.networks.network import Network
from deep500.networks.zoo.builder import Builder

DEVIATION = 0.02
FAR = -1e9
"""Added to scores of what must not be read."""


def embedding(build: Builder, name: str, rows: int, width: int) -> str:
    """The parameter ``NAME.weight`` (rows, width)."""
    return build.parameter(f"{name}.weight", build.normal((rows, width), DEVIATION))


def scores(build: Builder, x: str, table: str, classes: int) -> Network:
    """The finished network: ``output`` (items, classes, length), products of x with the rows of an embedding."""
    turned = build.node("Transpose", [table], "tied", (), perm=[1, 0])
    steps = build.shapes[x][0]
    x = build.node("MatMul", [x, turned], "scores", (steps, classes))
    build.node("Transpose", [x], "output", (classes, steps), perm=[0, 2, 1])
    build.network.outputs.insert(0, "output")
    return build.network


@dataclass(frozen=True, kw_only=True)
class TransformerSizes:
    """Sizes of a transformer: of its blocks, and how many are in a row."""

    width: int = 128
    heads: int = 4
    layers: int = 2
    hidden: int | None = None
    dropout: float = 0.0


class Blocks:
    """Blocks of one width.

    Args:
        build: the network in the making.
        sizes: of every block; the initialisation of what is added to the stream depends on the number of layers.
    """

    def __init__(self, build: Builder, sizes: TransformerSizes) -> None:
        width, heads, layers = sizes.width, sizes.heads, sizes.layers
        if layers < 1 or heads < 1 or width % heads:
            raise NetworkError(
                f"got {layers} layers, width {width} and {heads} heads; expected at least one layer and a width that "
                f"is a multiple of the heads: choose width={max(heads, 1) * 32}"
            )
        self.build, self.width, self.heads, self.dropout = build, width, heads, sizes.dropout
        self.hidden = sizes.hidden or 4 * width
        self.size = width // heads
        self.added = DEVIATION / math.sqrt(2 * max(layers, 1))
        self.turns: tuple[str, str] | None = None

    def dense(self, x: str, name: str, features: int, deviation: float = DEVIATION) -> str:
        """x W + b on the last axis; the weight is (inputs, features)."""
        build, (*outer, before) = self.build, self.build.shapes[x]
        weight = build.parameter(f"{name}.weight", build.normal((before, features), deviation))
        bias = build.parameter(f"{name}.bias", np.zeros(features))
        return build.add(build.node("MatMul", [x, weight], f"{name}.matmul", (*outer, features)), bias, name)

    def placed(self, x: str, name: str, length: int, at: str | None = None) -> str:
        """x plus learned positions: all, or the one that the input ``at`` says."""
        table = embedding(self.build, name, length, self.width)
        rows = table if at is None else self.build.node("Gather", [table, at], f"{name}.row", (), axis=0)
        return self.build.add(x, rows, f"{name}.added")

    def rotate(self, length: int, at: str | None = None) -> None:
        """From now on queries and keys of :meth:`attention` are rotated by their places."""
        if self.size % 2:
            raise NetworkError(f"got {self.size} numbers a head; expected an even number for rotary positions: widen")
        angles = np.arange(length)[:, None] / 10000 ** (np.arange(0, self.size, 2) / self.size)
        angles = np.concatenate([angles, angles], axis=1)
        names = []
        for name, values in (("cos", np.cos(angles)), ("sin", np.sin(angles))):
            table = self.build.constant(f"rotary.{name}", values.astype(np.float32))
            chosen = table if at is None else self.build.node("Gather", [table, at], f"rotary.{name}.row", (), axis=0)
            names.append(chosen)
        self.turns = (names[0], names[1])

    def causal_bias(self, length: int) -> str:
        """(1, 1, length, length): 0 where a place may be read, else far below."""
        values = np.triu(np.full((length, length), FAR, np.float32), 1)
        return self.build.constant("causal.bias", values[None, None])

    def cached_bias(self, length: int) -> str:
        """(length,): the same for the one place that the input ``position`` says."""
        build = self.build
        later = build.node("Greater", [self._clock(length), "position"], "causal.later", ())
        far, zero = (build.constant(f"causal.{name}", np.float32(v)) for name, v in (("far", FAR), ("zero", 0)))
        return build.node("Where", [later, far, zero], "causal.bias", ())

    def padding_bias(self, tokens: str, name: str) -> str:
        """(items, 1, 1, length): far below where tokens are 0."""
        build = self.build
        over = build.node("Equal", [tokens, build.constant(f"{name}.end", np.int64(0))], f"{name}.over", ())
        far, zero = (build.constant(f"{name}.{what}", np.float32(v)) for what, v in (("far", FAR), ("zero", 0)))
        flat = build.node("Where", [over, far, zero], f"{name}.flat", ())
        return build.node(
            "Unsqueeze", [flat, build.constant(f"{name}.axes", np.array([1, 2], np.int64))], f"{name}.bias", ()
        )

    def _clock(self, length: int) -> str:
        return self.build.constant("clock", np.arange(length))

    def _split(self, x: str, name: str) -> str:
        shape = self.build.constant("heads.split", np.array([0, 0, self.heads, self.size], np.int64))
        x = self.build.node("Reshape", [x, shape], f"{name}.heads", ())
        return self.build.node("Transpose", [x], f"{name}.split", (), perm=[0, 2, 1, 3])

    def _turned(self, x: str, name: str) -> str:
        if self.turns is None:
            return x
        node, halves = self.build.node, [f"{name}.first", f"{name}.second"]
        self.build.network.add_node("Split", [x], halves, name=f"{name}.halves", axis=-1, num_outputs=2)
        crossed = node("Concat", [node("Neg", halves[1:], f"{name}.neg", ()), halves[0]], f"{name}.cross", (), axis=-1)
        even, odd = (
            node("Mul", [value, turn], f"{name}.{part}", ())
            for value, turn, part in zip((x, crossed), self.turns, ("cos", "sin"), strict=True)
        )
        return node("Add", [even, odd], f"{name}.rotated", ())

    def _extend_cache(self, new: str, name: str, batch: Any, length: int) -> str:
        """A past with the new place in it, which is an output."""
        build, past, present = self.build, f"past.{name}", f"present.{name}"
        build.network.add_input(past, (batch, self.heads, length, self.size))
        here = f"cache.here.{name}"
        build.node("Equal", [self._clock(length), "position"], f"{here}.flat", ())
        axes = build.constant("cache.axes", np.array([1], np.int64))
        build.node("Unsqueeze", [f"{here}.flat", axes], here, ())
        build.node("Where", [here, new, past], present, ())
        build.network.add_output(present)
        return present

    def attention(self, x: str, source: str, name: str, bias: str, cache: tuple[int, Any, int] | None = None) -> str:
        """x plus what it reads of ``source`` (itself, or what an encoder made, which is normalized already)."""
        build = self.build
        y = build.layer_norm(x, f"{name}.norm")
        ends = (y, y, y) if source == x else (y, source, source)
        parts = [
            self._split(self.dense(end, f"{name}.{part}", self.width), f"{name}.{part}")
            for end, part in zip(ends, ("query", "key", "value"), strict=True)
        ]
        if source == x:
            parts[:2] = [self._turned(p, f"{name}.{w}") for p, w in zip(parts[:2], ("query", "key"), strict=True)]
        if cache:
            layer, batch, length = cache
            cached = zip(parts[1:], ("key", "value"), strict=True)
            parts[1:] = [self._extend_cache(part, f"{layer}.{what}", batch, length) for part, what in cached]
        query, key, value = parts
        scale = build.constant("heads.scale", np.float32(1 / math.sqrt(self.size)))
        query = build.node("Mul", [query, scale], f"{name}.scaled", ())
        key = build.node("Transpose", [key], f"{name}.key.turned", (), perm=[0, 1, 3, 2])
        y = build.node("Add", [build.node("MatMul", [query, key], f"{name}.scores", ()), bias], f"{name}.biased", ())
        y = build.node("MatMul", [build.node("Softmax", [y], f"{name}.weights", (), axis=-1), value], f"{name}.mix", ())
        y = build.node("Transpose", [y], f"{name}.mixed.turned", (), perm=[0, 2, 1, 3])
        merge = build.constant("heads.merge", np.array([0, 0, self.width], np.int64))
        y = build.node("Reshape", [y, merge], f"{name}.joined", build.shapes[x])
        y = self.dense(y, f"{name}.output", self.width, self.added)
        return build.add(x, build.dropout(y, f"{name}.dropout", self.dropout), f"{name}.add")

    def feed_forward(self, x: str, name: str) -> str:
        """x plus two layers with GELU of it."""
        build = self.build
        y = self.dense(build.layer_norm(x, f"{name}.norm"), f"{name}.wide", self.hidden)
        y = self.dense(
            build.node("Gelu", [y], f"{name}.gelu", build.shapes[y]), f"{name}.narrow", self.width, self.added
        )
        return build.add(x, build.dropout(y, f"{name}.dropout", self.dropout), f"{name}.add")
