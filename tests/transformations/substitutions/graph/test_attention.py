"""Attention and rotary positions in separate nodes become one operator each, by the bodies that ONNX gives these."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

from deep500.networks import Network
from deep500.transformations.substitutions import NotEquivalent, optimize, optimize_network, replay_history
from deep500.transformations.substitutions.delivery import KEY, Source, deliver
from deep500.transformations.substitutions.equivalence import check_equivalent, difference, in_float64
from deep500.transformations.substitutions.graph import attention
from deep500.transformations.substitutions.graph.attention import bodies, fused
from deep500.transformations.substitutions.graph.importing import import_network
from deep500.transformations.substitutions.graph.writing import export_network
from deep500.transformations.substitutions.weights import weight_places

WORDS, HEADS, SIZE = 3, 4, 6
CAUSAL = np.where(np.tri(WORDS), 0, -np.inf).astype("float32")


class Decoder:
    """Attention with its products, as exporters write it."""

    def __init__(
        self, groups: int = HEADS, mask: Any = None, rotate: bool = False, scaled: str = "scores", batch: Any = 2
    ) -> None:
        self.network, first = Network("decoder"), 0 if isinstance(batch, str) else batch
        rng, net = np.random.default_rng(0), self.network
        net.add_input("x", (batch, WORDS, 8))
        net.add_parameter("scale", np.float32(SIZE**-0.5), trainable=False)
        sides = {}
        for side, heads in (("q", HEADS), ("k", groups), ("v", groups)):
            net.add_parameter(f"w{side}", rng.normal(size=(8, heads * SIZE)).astype("float32"))
            whole = self.node("Reshape", [self.node("MatMul", ["x", f"w{side}"]), self.ints(first, WORDS, heads, SIZE)])
            sides[side] = self.node("Transpose", [whole], perm=[0, 2, 1, 3])
            sides[side] = self.rotated(sides[side]) if rotate and side != "v" else sides[side]
        keys, values = (sides[side] if groups == HEADS else self.repeated(sides[side], groups) for side in "kv")
        keys = self.node("Transpose", [keys], perm=[0, 1, 3, 2])
        query = self.node("Mul", [sides["q"], "scale"]) if scaled == "query" else sides["q"]
        scores = self.node("MatMul", [query, keys])
        scores = self.node("Mul", [scores, "scale"]) if scaled == "scores" else scores
        if isinstance(mask, str):
            net.add_input(mask, (2, 1, WORDS, WORDS))
        elif mask is not None:
            net.add_parameter("mask", mask, trainable=False)
        scores = scores if mask is None else self.node("Add", [scores, "mask"])
        self.weights = self.node("Softmax", [scores], axis=-1)
        mixed = self.node("Transpose", [self.node("MatMul", [self.weights, values])], perm=[0, 2, 1, 3])
        net.add_node("Reshape", [mixed, self.ints(first, WORDS, HEADS * SIZE)], ["y"])
        net.add_output("y")

    def node(self, op_type: str, inputs: Sequence[str], **attributes: Any) -> str:
        name = f"v{len(self.network.nodes)}"
        self.network.add_node(op_type, list(inputs), [name], **attributes)
        return name

    def ints(self, *numbers: int) -> str:
        name = f"c{len(self.network.parameters)}"
        self.network.add_parameter(name, np.array(numbers), trainable=False)
        return name

    def repeated(self, value: str, groups: int) -> str:
        wide = self.node("Unsqueeze", [value, self.ints(2)])
        wide = self.node("Expand", [wide, self.ints(2, groups, HEADS // groups, WORDS, SIZE)])
        return self.node("Reshape", [wide, self.ints(2, HEADS, WORDS, SIZE)])

    def rotated(self, value: str, begins: Sequence[int] = (0, SIZE // 2), step: int = 1, same: bool = True) -> str:
        angles = np.arange(WORDS)[:, None] / 10.0 ** np.arange(SIZE // 2)
        angles = np.concatenate([angles, angles if same else 2 * angles], 1)
        for name, function in (("cos", np.cos), ("sin", np.sin)):
            if name not in self.network.parameters:
                self.network.add_parameter(name, function(angles).astype("float32"), trainable=False)
        ends = [begin + step * SIZE // 2 for begin in begins]
        first, second = (
            self.node("Slice", [value, self.ints(b), self.ints(e), self.ints(3), self.ints(step)])
            for b, e in zip(begins, ends, strict=True)
        )
        turned = self.node("Concat", [self.node("Neg", [second]), first], axis=3)
        return self.node("Add", [self.node("Mul", [value, "cos"]), self.node("Mul", [turned, "sin"])])


WHOLE = {"MatMul": 3, "Attention": 1}
FORMS = {
    "plain": ({}, WHOLE),
    "scale before": ({"scaled": "query"}, WHOLE),
    "no scale": ({"scaled": "nowhere"}, WHOLE),
    "causal": ({"mask": CAUSAL}, WHOLE),
    "a mask": ({"mask": np.arange(9, dtype="float32").reshape(3, 3)}, WHOLE),
    "a mask that is read": ({"mask": "mask"}, WHOLE),
    "fewer keys": ({"groups": 2}, WHOLE),
    "one key": ({"groups": 1, "mask": CAUSAL}, WHOLE),
    "any batch": ({"batch": "N"}, WHOLE),
    "rotary": ({"rotate": True, "groups": 2}, {**WHOLE, "RotaryEmbedding": 2, "Reshape": 4, "Transpose": 4}),
}


@pytest.mark.parametrize("form", FORMS)
def test_what_exporters_write_is_one_operator(form: str) -> None:
    options, expected = FORMS[form]
    network = Decoder(**options).network
    imported = import_network(network)
    for given in (network, export_network(imported, imported.graph)):
        whole = fused(given)
        count = Counter(node.op_type for node in whole.nodes)
        assert count == expected
        assert difference(network, whole, {"N": 3}, 0) < 1e-6
        wide = in_float64(given)
        assert "Softmax" in {node.op_type for node in bodies(wide).nodes}, "ONNX's bodies"
        assert difference(wide, bodies(wide), {"N": 3}, 0) < 1e-14
        assert whole == fused(given), "the same every time"


@pytest.mark.backend("onnxruntime")
@pytest.mark.parametrize("form", FORMS)
def test_kernels_compute_the_same(form: str) -> None:
    network = Decoder(**FORMS[form][0]).network
    assert difference(network, fused(network), {"N": 3}, 0, "onnxruntime") < 1e-6


def rotary(**options: Any) -> Network:
    decoder = Decoder()
    decoder.network.add_input("z", (2, HEADS, WORDS, SIZE))
    decoder.network.add_output(decoder.rotated("z", **options))
    return decoder.network


@pytest.mark.parametrize(
    "options", [{"same": False}, {"begins": (SIZE // 2, 0)}, {"begins": (0, 1), "step": 2}, {"begins": (0, 0)}], ids=str
)
def test_what_is_not_rotary_stays(options: dict[str, Any]) -> None:
    assert "RotaryEmbedding" in {node.op_type for node in fused(rotary()).nodes}
    assert "RotaryEmbedding" not in {node.op_type for node in fused(rotary(**options)).nodes}


def test_heads_repeated_in_another_order_are_not_left_out() -> None:
    decoder = Decoder(groups=2)
    expand = next(node for node in decoder.network.nodes if node.op_type == "Expand")
    (wide,) = (node for node in decoder.network.nodes if node.outputs[0] == expand.inputs[0])
    decoder.network.set_parameter(wide.inputs[1], np.array([1]))  # all heads, and all again
    decoder.network.set_parameter(expand.inputs[1], np.array([2, 2, 2, WORDS, SIZE]))
    whole = fused(decoder.network)
    assert "Expand" in {node.op_type for node in whole.nodes}
    assert difference(decoder.network, whole, {}, 0) < 1e-6


def test_a_matrix_made_of_heads_side_by_side_stays_one() -> None:
    network = Decoder().network
    last = network.nodes[-1]
    network.set_parameter(last.inputs[1], np.array([2 * WORDS, -1]))
    assert Counter(node.op_type for node in fused(network).nodes) == {**WHOLE, "Reshape": 1}
    assert difference(network, fused(network), {}, 0) < 1e-6


@pytest.mark.parametrize("elsewhere", [False, True])
def test_sizes_that_are_asked_of_the_result_go_with_it(elsewhere: bool) -> None:
    """What a target is made of goes; what is read elsewhere too keeps the heads apart."""
    decoder = Decoder(batch="N")
    network, last = decoder.network, decoder.network.nodes[-1]
    mixed = network.nodes[-2].inputs[0]
    words = [decoder.node("Gather", [decoder.node("Shape", [mixed]), decoder.ints(axis)]) for axis in (0, 2)]
    network.replace(last.name, "Reshape", [last.inputs[0], decoder.node("Concat", [*words, decoder.ints(-1)], axis=0)])
    network.add_output(words[0]) if elsewhere else None
    whole = fused(network)
    assert (Counter(node.op_type for node in whole.nodes) == WHOLE) == (not elsewhere)
    assert difference(network, whole, {"N": 3}, 0) < 1e-6


def test_sizes_without_names_may_have_changed_places() -> None:
    network = Decoder(batch="N").network
    network.set_input("x", (None, None, 8))
    for node in network.nodes:
        if node.op_type == "Reshape" and node.inputs[0] != network.nodes[-1].inputs[0]:
            _, words, heads, size = network.parameters[node.inputs[1]].value
            network.set_parameter(node.inputs[1], np.array([-1, words, heads, size]))
    assert "Reshape" in {node.op_type for node in fused(network).nodes}


def test_weights_that_are_read_elsewhere_keep_the_nodes() -> None:
    decoder = Decoder()
    decoder.network.add_output(decoder.weights)
    assert fused(decoder.network) is decoder.network


def test_the_check_refuses_another_scale(monkeypatch: pytest.MonkeyPatch) -> None:
    network, right = Decoder().network, attention.attention
    imported = import_network(network)
    written = export_network(imported, imported.graph)
    assert check_equivalent(imported, imported.graph, fused(written), kernels="reference").outputs is not None

    def wrong(graph: Any, root: Any) -> Any:
        match = right(graph, root)
        if match is not None:
            (*extra, last) = match.nodes
            attributes = {**last.attributes, "scale": last.attributes["scale"] * (1 + 1e-8)}
            match.nodes = [*extra, attention.replace(last, attributes=attributes)]
        return match

    monkeypatch.setattr(attention, "attention", wrong)
    with pytest.raises(NotEquivalent):  # in float64 only: float32 would not tell
        check_equivalent(imported, imported.graph, fused(written), kernels="reference")


@pytest.mark.backend("onnxruntime")
def test_the_optimizer_takes_it_where_it_is_faster(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    pytest.importorskip("onnxruntime")
    offered = dict[str, list[str]]()

    def fastest(original: Any, candidates: dict[str, Network], *_: Any) -> Any:
        offered.update({name: [node.op_type for node in net.nodes] for name, net in candidates.items()})
        return None, [name for name in candidates if "Attention" in offered[name]]

    monkeypatch.setattr(optimize, "fastest", fastest)
    network = Decoder(groups=2, rotate=True).network
    file, out = tmp_path / "in.onnx", tmp_path / "out.onnx"
    network.to_onnx(file, opset=18)
    network = Network.from_onnx(file)
    found = optimize_network(network, "onnxruntime", budget=20)
    assert found.history.fused and "Attention" in {node.op_type for node in found.network.nodes}
    assert any("Softmax" in types for types in offered.values()), "separate nodes are candidates too"
    assert replay_history(network, found.history) == found.network
    assert weight_places(network, found.history).keys() == network.parameters.keys()
    words = deliver(found.network, found.history, Source.read(file, network), out)
    again = Network.from_onnx(out)
    assert "written anew" in words and "Attention" in {node.op_type for node in again.nodes}
    assert json.loads({p.key: p.value for p in onnx.load(out).metadata_props}[KEY])["fused"]
    assert "one operator" in str(found)
    assert not optimize_network(network, "reference", budget=5, measure=False).history.fused
