"""Attention at inference in ONNX Runtime: separate nodes beside fused operators, grouped, with rotary and a cache.

python -m tests.benchmarks.fused_attention

One layer's attention with its four products, as exporters write a decoder: rotary positions, a cache of keys and values
that is read and returned, fewer heads of keys than of queries. The same with `RotaryEmbedding` and
`GroupQueryAttention` of ONNX Runtime and with ONNX's `Attention` in place of what they stand for, and what
`deep500 optimize` writes of the first (`graph.attention`). All answers must agree; bare sessions with all
optimizations run in turns by the processor's time, three of each, one thread.
"""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from deep500.measure.statistics import Interval, median_interval
from deep500.networks import Network
from deep500.transformations.substitutions.graph.attention import fused
from recipes.studies.graph_substitutions.networks import cell
from recipes.studies.graph_substitutions.timing import in_turns
from tests.benchmarks.exported.check import distance
from tests.benchmarks.filling import say_ratio
from tests.benchmarks.held_out import Sessions

FIGURES = {"separate nodes / fused operators, time of one layer's attention": "no bar"}
(FIGURE,) = FIGURES
TOLERANCE = 1e-4


@dataclass(frozen=True)
class Layer:
    """Sizes of an attention: new words, words in the cache (None: no cache and no rotary positions, as in an encoder),
    heads, heads of keys and values, size of a head."""

    new: int
    past: int | None
    heads: int
    groups: int
    size: int

    @property
    def widths(self) -> tuple[int, int]:
        return self.heads * self.size, self.groups * self.size

    @property
    def total(self) -> int:
        return (self.past or 0) + self.new


LAYERS = {
    f"{what}, {heads} heads of {size}, {groups} of keys": Layer(*words, heads, groups, size)
    for what, words in (("1 word behind 64", (1, 64)), ("32 words", (32, 0)))
    for heads, groups, size in ((4, 2, 16), (4, 2, 64), (8, 8, 32), (12, 4, 64))
} | {
    f"an encoder, {words} words, {heads} heads of {size}": Layer(words, None, heads, heads, size)
    for words, heads, size in ((16, 4, 16), (32, 4, 64), (32, 12, 64), (197, 3, 64))
}


class Builder:
    """Nodes and arrays of one file."""

    def __init__(self, layer: Layer) -> None:
        self.layer, self.nodes, self.arrays = layer, list[Any](), dict[str, np.ndarray]()
        angles = np.arange(layer.total)[:, None] / 1e4 ** (np.arange(layer.size // 2) / (layer.size // 2))
        self.cos, self.sin = np.cos(angles).astype("float32"), np.sin(angles).astype("float32")

    def array(self, name: str, value: Any) -> str:
        self.arrays[name] = np.asarray(value)
        return name

    def node(self, op: str, inputs: list[str], output: str, *more: str, **attributes: Any) -> str:
        self.nodes.append(helper.make_node(op, inputs, [output, *more], name=f"{output}/{op}", **attributes))
        return output

    def heads(self, x: str, count: int) -> str:
        """(1, words, width) -> (1, heads, words, size)."""
        shape = self.array(f"{x}.shape", [1, self.layer.new, count, self.layer.size])
        return self.node("Transpose", [self.node("Reshape", [x, shape], f"{x}.parts")], f"{x}.heads", perm=[0, 2, 1, 3])

    def rotated(self, x: str) -> str:
        """Rotary positions in separate nodes, as transformers writes them; sines are constants."""
        half, past = self.layer.size // 2, self.layer.past or 0
        cos, sin = (
            self.array(f"{name}.rows", np.concatenate([table, table], 1)[past:])
            for name, table in (("cos", self.cos), ("sin", self.sin))
        )
        ends = [self.array(f"{name}.end", [n]) for name, n in (("zero", 0), ("half", half), ("whole", 2 * half))]
        axis = self.array("axis", [3])
        first = self.node("Slice", [x, ends[0], ends[1], axis], f"{x}.first")
        second = self.node("Slice", [x, ends[1], ends[2], axis], f"{x}.second")
        turned = self.node("Concat", [self.node("Neg", [second], f"{x}.minus"), first], f"{x}.turned", axis=3)
        parts = self.node("Mul", [x, cos], f"{x}.cos"), self.node("Mul", [turned, sin], f"{x}.sin")
        return self.node("Add", list(parts), f"{x}.rotated")

    def rotary(self, x: str) -> str:
        """The same as one operator."""
        tables = [self.array("cos.table", self.cos), self.array("sin.table", self.sin)]
        places = self.array("places", np.arange(self.layer.past or 0, self.layer.total)[None])
        return self.node("RotaryEmbedding", [x, places, *tables], f"{x}.rotated", domain="com.microsoft")

    def repeated(self, x: str) -> str:
        """Keys or values for every head of the queries."""
        layer = self.layer
        if layer.heads == layer.groups:
            return x
        total, times = layer.total, layer.heads // layer.groups
        wide = self.node("Unsqueeze", [x, self.array("axes", [2])], f"{x}.wide")
        wide = self.node("Expand", [wide, self.array("each", [1, layer.groups, times, total, layer.size])], f"{x}.each")
        return self.node("Reshape", [wide, self.array("every", [1, layer.heads, total, layer.size])], f"{x}.every")

    def separate(self, q: str, k: str, v: str) -> str:
        """Scores, a mask where there is one, softmax, and what it weighs."""
        layer = self.layer
        k, v = self.repeated(k), self.repeated(v)
        scores = self.node("MatMul", [q, self.node("Transpose", [k], "k.turned", perm=[0, 1, 3, 2])], "scores")
        scores = self.node("Mul", [scores, self.array("scale", np.float32(layer.size**-0.5))], "scaled")
        if layer.new > 1:
            seen = np.tri(layer.new, layer.total, layer.past) if layer.past is not None else np.ones((layer.new,) * 2)
            mask = np.where(seen, 0, -1e9).astype("float32")
            scores = self.node("Add", [scores, self.array("mask", mask)], "masked")
        return self.joined(self.node("MatMul", [self.node("Softmax", [scores], "weights", axis=-1), v], "mixed"))

    def joined(self, mixed: str) -> str:
        """Heads side by side."""
        mixed = self.node("Transpose", [mixed], "mixed.turned", perm=[0, 2, 1, 3])
        sizes = self.array("joined.shape", [1, self.layer.new, self.layer.widths[0]])
        return self.node("Reshape", [mixed, sizes], "joined")


def build(layer: Layer, kind: str) -> onnx.ModelProto:
    """A file: ``kind`` is separate, rotary, attention or grouped."""
    rng, b, (width, narrow) = np.random.default_rng(0), Builder(layer), layer.widths
    sides = {"q": width, "k": narrow, "v": narrow}
    for name, size in sides.items():
        weight = b.array(f"w{name}", (rng.normal(size=(width, size)) / width**0.5).astype("float32"))
        b.node("MatMul", ["x", weight], name)
    weight = b.array("wo", (rng.normal(size=(width, width)) / width**0.5).astype("float32"))
    own = {"domain": "com.microsoft"}
    if kind == "grouped":
        total = layer.total
        ends = [b.array("last", np.array([total - 1], "int32")), b.array("total", np.array(total, "int32"))]
        tables = [b.array("cos.table", b.cos), b.array("sin.table", b.sin)]
        inputs = ["q", "k", "v", "past_k", "past_v", *ends, *tables]
        counts = {"num_heads": layer.heads, "kv_num_heads": layer.groups}
        b.node("GroupQueryAttention", inputs, "joined", "new_k", "new_v", do_rotary=1, **counts, **own)
    else:
        rotate = b.rotated if kind == "separate" else b.rotary
        q, k, v = (
            b.heads(name, count) for name, count in (("q", layer.heads), ("k", layer.groups), ("v", layer.groups))
        )
        if layer.past is not None:
            q, k = rotate(q), rotate(k)
        if kind == "attention" and layer.past is None:
            b.joined(b.node("Attention", [q, k, v], "mixed"))
        elif kind == "attention":
            b.node(
                "Attention", [q, k, v, "", "past_k", "past_v"], "mixed", "new_k", "new_v", is_causal=int(layer.new > 1)
            )
            b.joined("mixed")
        elif layer.past is None:
            b.separate(q, k, v)
        else:
            b.node("Concat", ["past_k", k], "new_k", axis=2)
            b.node("Concat", ["past_v", v], "new_v", axis=2)
            b.separate(q, "new_k", "new_v")
    b.node("MatMul", ["joined", weight], "y")
    return _model(layer, b)


def _model(layer: Layer, b: Builder) -> onnx.ModelProto:
    def info(name: str, *shape: int) -> onnx.ValueInfoProto:
        return helper.make_tensor_value_info(name, TensorProto.FLOAT, shape)

    sides = "kv" if layer.past is not None else ""
    inputs = [info("x", 1, layer.new, layer.widths[0])]
    inputs += [info(f"past_{side}", 1, layer.groups, layer.past or 0, layer.size) for side in sides]
    outputs = [info("y", 1, layer.new, layer.widths[0])]
    outputs += [info(f"new_{side}", 1, layer.groups, layer.total, layer.size) for side in sides]
    arrays = [numpy_helper.from_array(array, name) for name, array in b.arrays.items()]
    opsets = [helper.make_opsetid("", 23), helper.make_opsetid("com.microsoft", 1)]
    graph = helper.make_graph(b.nodes, "attention", inputs, outputs, arrays)
    return helper.make_model(graph, opset_imports=opsets, ir_version=11)


KINDS = ("separate", "rotary", "attention", "grouped", "ours")


def measure(name: str, folder: Path, seconds: float) -> dict[str, Interval]:
    """Print a line: time of the separate nodes, and that over each of the others, which is returned."""
    layer, rng = LAYERS[name], np.random.default_rng(1)
    shapes = {"x": (1, layer.new, layer.widths[0])}
    if layer.past is not None:
        shapes |= {f"past_{side}": (1, layer.groups, layer.past, layer.size) for side in "kv"}
    kinds = KINDS if layer.past is not None else ("separate", "attention", "ours")
    feeds = {key: rng.normal(size=shape).astype("float32") for key, shape in shapes.items()}
    runs: dict[str, Sessions] = {}
    for kind in kinds:
        path = folder / f"{kind}.onnx"
        if kind == "ours":
            fused(Network.from_onnx(folder / "separate.onnx")).to_onnx(path)
        else:
            onnx.save(build(layer, kind), path)
        runs[kind] = Sessions(path, feeds)
    expected = runs["separate"]()
    wrong = {kind: max(map(distance, run(), expected)) for kind, run in runs.items()}
    if any(not error <= TOLERANCE for error in wrong.values()):
        raise SystemExit(f"{name}: answers differ: {wrong}")
    samples: Mapping[str, np.ndarray] = in_turns(runs, seconds, "cpu", 0, 200).samples
    gains = {f"{kind}, {name}": median_interval(samples["separate"] / samples[kind]) for kind in kinds[1:]}
    shown = (gains.get(f"{kind}, {name}") for kind in KINDS[1:])
    cells = " ".join(f"{cell(gain) if gain else '-':>20}" for gain in shown)
    print(f"{name:44} {1e6 * float(np.median(samples['separate'])):7.0f} {cells}", flush=True)
    return gains


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=4.0, help="of timing for each line, about")
    options = parser.parse_args()
    print(f"{'separate nodes / this':44} {'us':>7} {' '.join(f'{kind:>20}' for kind in KINDS[1:])}")
    gains: dict[str, Interval] = {}
    with TemporaryDirectory() as folder:
        for name in LAYERS:
            gains |= measure(name, Path(folder), options.seconds)
    say_ratio(FIGURE, gains)


if __name__ == "__main__":
    main()
