"""Which arrays of a file are one parameter: by notes of PyTorch's exporter, names of its older one, and values."""

from __future__ import annotations

import warnings

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper, parser

from deep500.frameworks import reference
from deep500.networks import Network
from deep500.networks.onnx.load import DoubtfulParametersWarning, LeftOutParametersWarning
from deep500.networks.onnx.tying import GIVEN, KIND, SIGNATURE, tie_transposes

RNG = np.random.default_rng(0)
W, B = RNG.normal(size=(3, 3)).astype("float32"), RNG.normal(size=3).astype("float32")
TWO = "h = Gemm(x, w, b) y = Gemm(h, w, b)"


def file(text: str, **arrays: np.ndarray) -> onnx.ModelProto:
    proto = parser.parse_model(
        f'<ir_version: 10, opset_import: ["" : 20]> agraph (float[N,3] x) => (float[N,3] y) {{ {text} }}'
    )
    proto.graph.initializer.extend(numpy_helper.from_array(np.asarray(a), n) for n, a in arrays.items())
    return proto


def noted(proto: onnx.ModelProto, parameters: list[str], given: list[str], kinds: dict[str, str]) -> onnx.ModelProto:
    """The file as PyTorch's exporter writes it: all parameters, what each node was given, and kinds of arrays."""
    lines = [f"p_{name.replace('.', '_')}: PARAMETER target='{name}'" for name in parameters]
    proto.graph.metadata_props.add(key=SIGNATURE, value="\n# inputs\n" + "\n".join(lines) + "\nx: USER_INPUT\n")
    for node, names in zip(proto.graph.node, given, strict=True):
        args = ", ".join(f"%p_{name.replace('.', '_')}" for name in names.split())
        node.metadata_props.add(key=GIVEN, value=f"%{node.output[0]} : call_function[target=f](args = (%x, {args}))")
    for name, kind in kinds.items():
        proto.graph.value_info.add(name=name).metadata_props.add(key=KIND, value=kind)
    return proto


def read(proto: onnx.ModelProto) -> tuple[Network, list[type[Warning]]]:
    with warnings.catch_warnings(record=True) as notes:
        warnings.simplefilter("always")
        network = Network.from_onnx(proto)
    return network, [note.category for note in notes]


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        (["a.w a.b", "a.w a.b"], {"w": 2, "b": 2}),
        (["a.w a.b", "c.w c.b"], {"w": 1, "b": 1, "c.w": 1, "c.b": 1}),
        (["a.w a.b", "a.w c.b"], {"w": 2, "b": 2}),  # one of them is shared: which, nothing tells
    ],
)
def test_nodes_that_were_given_other_parameters_get_them(given: list[str], expected: dict[str, int]) -> None:
    for arrays in ({"w": W, "b": B}, {"w": np.ones((3, 3), "float32"), "b": np.zeros(3, "float32")}):
        proto = noted(file(TWO, **arrays), ["a.w", "a.b", "c.w", "c.b"], given, dict.fromkeys(arrays, "PARAMETER"))
        network, notes = read(proto)
        assert {name: len(network.consumers(name)) for name in network.trainable()} == expected and not notes
        values = [network.parameter(name).value for name in expected]
        assert not any(np.shares_memory(a, b) for n, a in enumerate(values) for b in values[:n])


def test_kinds_are_believed() -> None:
    """A buffer of any values stays fixed, a parameter of a table's trains, and there is nothing to warn of."""
    text = "a = Mul(x, v) b = Add(a, table) y = MatMul(b, w)"
    arrays = {"v": B, "table": np.linspace(0, 1, 3, dtype="float32"), "w": W}
    kinds = {"v": "BUFFER", "table": "PARAMETER", "w": "PARAMETER"}
    network, notes = read(noted(file(text, **arrays), ["table", "w"], ["", "table", "w"], kinds))
    assert network.trainable() == ["table", "w"] and not notes


def test_what_the_exporter_computed_is_doubtful() -> None:
    """As the first step of a recurrent layer from zeros: it would train apart from the parameters it is made of."""
    proto = noted(file("a = Add(x, folded) y = MatMul(a, val_0)", folded=B, val_0=W), ["a.w"], ["", "a.w"], {})
    network, notes = read(proto)
    assert network.trainable() == ["val_0"] and "given no parameter" in network.parameter("folded").doubt
    assert notes == [DoubtfulParametersWarning]


@pytest.mark.parametrize("bias", [B, None], ids=["bias", "bias dropped"])
def test_a_weight_that_the_exporter_computed_is_doubtful_beside_a_bias(bias: np.ndarray | None) -> None:
    """As of weight normalization: its length and direction are not in the file, and no bias is a matrix."""
    arrays = {"w": W} | ({} if bias is None else {"bias": bias})
    text = "y = MatMul(x, w)" if bias is None else "y = Gemm(x, w, bias)"
    proto = noted(file(text, **arrays), ["g", "v", "bias"], ["bias"], dict.fromkeys({*arrays} - {"w"}, "PARAMETER"))
    network, notes = read(proto)
    assert network.trainable() == [name for name in arrays if name != "w"]
    assert set(notes) == {DoubtfulParametersWarning} | ({LeftOutParametersWarning} if bias is None else set())


def test_slopes_of_one_number_train_apart() -> None:
    """The exporter stores the slopes of two layers once, reshaped and without a name, as they are equal at first."""
    proto = noted(
        file("h = PRelu(x, val_1) y = PRelu(h, val_1)", val_1=np.full((1, 1), 0.25, "float32")),
        ["a.weight", "b.weight"],
        ["a.weight", "b.weight"],
        {},
    )
    network, notes = read(proto)
    assert [network.consumers(name)[0].op_type for name in network.trainable()] == ["PRelu"] * 2 and not notes


def test_a_bias_that_the_exporter_dropped_is_named() -> None:
    proto = noted(file("y = MatMul(x, w)", w=W), ["a.w", "a.bias"], ["a.w a.bias"], {"w": "PARAMETER"})
    with pytest.warns(LeftOutParametersWarning, match=r"got no array for 'a\.bias'; expected all parameters"):
        Network.from_onnx(proto)


def test_parameters_that_the_exporter_joined_are_not_missed() -> None:
    """A recurrent layer is given four, and its node reads three, of which one holds both biases."""
    names = ["r.weight_ih", "r.weight_hh", "r.bias_ih", "r.bias_hh"]
    proto = noted(
        file("h = MatMul(x, w) i = MatMul(h, v) y = Add(i, b)", w=W, v=W + 1, b=B), names, [" ".join(names)] * 3, {}
    )
    for node in proto.graph.node[1:]:  # all three are of one operation
        node.metadata_props[-1].value = proto.graph.node[0].metadata_props[-1].value
    assert read(proto)[1] == []


@pytest.mark.parametrize("copies", [False, True])
def test_names_of_the_older_exporter_tell_copies(copies: bool) -> None:
    """With a name it is a parameter; without, it is a copy where others are, else the same weight."""
    arrays = {"onnx::1": W, **({"a.weight": W.T @ W} if copies else {})}
    nodes = [helper.make_node("Identity", ["onnx::1"], ["onnx::2"])]
    nodes += [helper.make_node("Identity", ["a.weight"], ["b.weight"])] * copies
    read_in_turn = ["onnx::1", "onnx::2", *(["a.weight", "b.weight"] if copies else [])]
    values = ["x", *(f"h{n}" for n in range(len(read_in_turn) - 1)), "y"]
    nodes += [
        helper.make_node("MatMul", [a, w], [b]) for a, b, w in zip(values[:-1], values[1:], read_in_turn, strict=True)
    ]
    proto = file("y = Identity(x)", **arrays)
    del proto.graph.node[:]
    proto.graph.node.extend(nodes)
    proto.producer_name = "pytorch"
    network, notes = read(proto)
    assert sorted(network.trainable()) == sorted(read_in_turn if copies else ["onnx::1"]) and not notes


def test_equal_buffers_are_no_sign_of_copies() -> None:
    """The older exporter merges masks too, and names them both; the weight beside them stays tied."""
    proto = file(
        "g2 = Identity(g) q = Identity(p) a = Add(x, g) h = MatMul(a, p) i = MatMul(h, q) y = Add(i, g2)",
        g=np.array([0, 0, -1e9], "float32"),
        p=W,
    )
    for node in proto.graph.node:
        for names in (node.input, node.output):
            names[:] = [{"p": "onnx::1", "q": "onnx::2"}.get(name, name) for name in names]
    proto.graph.initializer[1].name = "onnx::1"
    proto.producer_name = "pytorch"
    assert read(proto)[0].trainable() == ["onnx::1"]


def test_a_weight_that_is_stored_transposed_is_tied() -> None:
    """An embedding and a last layer: both exporters fold the transposition."""
    network, _ = read(file("h = MatMul(x, val_0) y = MatMul(h, v)", v=W, val_0=np.ascontiguousarray(W.T)))
    assert network.trainable() == ["v"]
    assert [n.op_type for n in network.nodes] == ["Transpose", "MatMul", "MatMul"]
    x = np.ones((2, 3), "float32")
    np.testing.assert_allclose(reference.from_model(network).inference({"x": x})["y"], x @ W.T @ W, rtol=1e-6)


@pytest.mark.parametrize("other", [W, W[:2], W.T.astype("float64"), np.eye(3, dtype="float32"), W.T + 1])
def test_what_is_no_transpose_is_not_tied(other: np.ndarray) -> None:
    """Symmetric matrices are equal to their transposes: they may be layers of their own that began alike."""
    first = other if np.array_equal(other, other.T) else W
    assert tie_transposes(onnx.GraphProto(), {"a": first, "b": other}, ["a", "b"]) == set()
