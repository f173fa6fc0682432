"""Which arrays of a file train: weights, all of them, and no table, mask or setting."""

from __future__ import annotations

import warnings

import numpy as np
import onnx
import pytest
from onnx import numpy_helper, parser

from deep500.errors import InputError
from deep500.networks import Network, add_loss
from deep500.networks.onnx.load import DoubtfulParametersWarning
from deep500.networks.onnx.trainable import judge
from tests.conftest import load_backend
from tests.tolerances import assert_close

RNG = np.random.default_rng(0)
POSITIONS = np.arange(16)[:, None] / 10_000 ** (np.arange(4) / 4)


def weights(*shape: int) -> np.ndarray:
    return RNG.normal(size=shape).astype(np.float32)


def file(text: str, **arrays: np.ndarray) -> onnx.ModelProto:
    """A model in ONNX's text format, with arrays whose names stand in it with ``_`` for ``.``."""
    proto = parser.parse_model(f'<ir_version: 8, opset_import: ["" : 20]> agraph {text}')
    proto.graph.initializer.extend(numpy_helper.from_array(np.asarray(a), n) for n, a in arrays.items())
    return proto


def read(proto: onnx.ModelProto, **options: object) -> Network:
    """The network, without its warning."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DoubtfulParametersWarning)
        return Network.from_onnx(proto, **options)


@pytest.mark.parametrize("asks", ["Shape(w)", "Size(w)"])
def test_who_asks_for_the_shape_of_a_weight_does_not_freeze_it(asks: str) -> None:
    text = f"(float[N,3,8,8] x) => (float[N,4,8,8] y, int64[M] s) {{ y = Conv<pads=[1,1,1,1]>(x, w, b) s = {asks} }}"
    network = Network.from_onnx(file(text, w=weights(4, 3, 3, 3), b=weights(4)))
    assert network.trainable() == ["w", "b"]


def test_an_array_of_which_only_the_shape_matters_is_no_weight() -> None:
    network = Network.from_onnx(
        file("(float[N] x) => (float[N] y, int64[1] s) { y = Relu(x) s = Shape(w) }", w=weights(3))
    )
    assert network.trainable() == [] and not network.parameters["w"].doubt


@pytest.mark.parametrize(
    ("name", "trains", "doubt"),
    [
        ("logit_scale", True, ""),
        ("val_12", False, ""),
        ("onnx__Mul_7", False, "a single number"),
        ("eps", False, "a single number"),
    ],
)
def test_single_numbers_train_if_their_name_says_so(name: str, trains: bool, doubt: str) -> None:
    text = f"(float[N,2] x) => (float[N,2] y) {{ e = Exp({name}) y = Mul(x, e) }}"
    network = read(file(text, **{name: np.float32(2.6)}))
    assert (name in network.trainable()) == trains
    assert network.parameters[name].doubt.startswith(doubt) and bool(network.parameters[name].doubt) == bool(doubt)


def test_frequencies_of_rotary_embeddings_are_no_weights() -> None:
    text = """(int64[N] position, float[N,8] x) => (float[N,8] y) {
        p = Cast<to=1>(position) column = Unsqueeze(p, axis) row = Unsqueeze(inv_freq, zero)
        angle = MatMul(column, row) both = Concat<axis=1>(angle, angle) c = Cos(both) s = Sin(both)
        a = Mul(x, c) h = MatMul(x, w) b = Mul(h, s) y = Add(a, b) }"""
    arrays = {"inv_freq": weights(4), "axis": np.array([1]), "zero": np.array([0]), "w": weights(8, 8)}
    with pytest.warns(DoubtfulParametersWarning, match=r"1 arrays train, 3 do not.*'inv_freq' \(frequencies") as seen:
        network = Network.from_onnx(file(text, **arrays))
    assert len(seen) == 1 and network.trainable() == ["w"]
    assert "fixed, may be a weight: inv_freq: frequencies" in str(network)


def test_weights_before_a_sine_activation_train() -> None:
    text = "(float[N,2] x) => (float[N,1] y) { h = MatMul(x, w) a = Add(h, b) s = Sin(a) y = MatMul(s, v) }"
    network = Network.from_onnx(file(text, w=weights(2, 4), b=weights(4), v=weights(4, 1)))
    assert network.trainable() == ["w", "b", "v"]


@pytest.mark.parametrize(
    "table",
    [
        np.concatenate([np.sin(POSITIONS), np.cos(POSITIONS)], 1),
        np.stack([np.sin(POSITIONS), np.cos(POSITIONS)], 2).reshape(16, 8),
        np.concatenate([np.sin(POSITIONS).repeat(2, 1), np.cos(POSITIONS).repeat(2, 1)], 1)[None].astype("float16"),
    ],
    ids=["halves", "alternating", "repeated, half precision"],
)
def test_tables_of_sines_are_no_weights(table: np.ndarray) -> None:
    learned = weights(*table.shape).astype(table.dtype)
    proto = file(
        "(float[N] x) => (float[M] y) { a = Mul(table, learned) y = Cast<to=1>(a) }", table=table, learned=learned
    )
    network = read(proto)
    assert network.trainable() == ["learned"] and "sines" in network.parameters["table"].doubt


def test_two_tables_of_cosines_and_sines_are_no_weights() -> None:
    text = "(float[16,4] x) => (float[16,4] y) { a = Mul(x, cos) b = Mul(x, sin) c = Add(a, b) y = Mul(c, w) }"
    tables = {"cos": np.cos(POSITIONS).astype("float32"), "sin": np.sin(POSITIONS).astype("float32")}
    assert read(file(text, **tables, w=weights(16, 4))).trainable() == ["w"]


def test_a_grid_of_coordinates_is_no_weight_and_a_learned_query_is_one() -> None:
    grid = np.stack(np.meshgrid(np.arange(-3, 4), np.arange(-3, 4)), -1).reshape(1, 49, 2) / 3
    body = "t = Transpose(w) y = MatMul(table, t) z = MatMul(query, t)"
    text = f"(float[N] x) => (float[1,49,4] y, float[1,49,4] z) {{ {body} }}"
    network = read(file(text, table=grid.astype("float32"), query=weights(1, 49, 2), w=weights(4, 2)))
    assert network.trainable() == ["query", "w"] and "computed table" in network.parameters["table"].doubt


@pytest.mark.parametrize("value", [-np.inf, np.finfo(np.float32).min, -65504])
def test_a_mask_is_no_weight(value: float) -> None:
    mask = np.triu(np.full((4, 4), value, np.float32), 1)
    network = read(
        file("(float[4,4] x) => (float[4,4] y) { a = Add(x, mask) y = Mul(a, w) }", mask=mask, w=weights(4, 4))
    )
    assert network.trainable() == ["w"] and "mask" in network.parameters["mask"].doubt


def test_initial_values_that_repeat_are_weights() -> None:
    text = "(float[N,64] x) => (float[N,64] y) { a = MatMul(x, w) n = Mul(a, gain) y = Add(n, shift) }"
    coarse = RNG.integers(-8, 8, (64, 64)).astype(np.float32)  # as of a quantised checkpoint
    network = Network.from_onnx(file(text, w=coarse, gain=np.ones(64, "float32"), shift=np.zeros(64, "float32")))
    assert network.trainable() == ["w", "gain", "shift"]


# -- what users say ---------------------------------------------------------------------------------------------------
AFFINE = "(float[N,2] x) => (float[N,3] y) { h = MatMul(x, head.weight) y = Add(h, head.bias) }"


def affine() -> onnx.ModelProto:
    proto = file(AFFINE.replace("head.", "head_"), head_weight=weights(2, 3), head_bias=weights(3))
    for value in (*proto.graph.initializer, *(node for node in proto.graph.node)):
        if isinstance(value, onnx.TensorProto):
            value.name = value.name.replace("_", ".")
        else:
            value.input[:] = [n.replace("_", ".") for n in value.input]
    return proto


@pytest.mark.parametrize(
    ("choice", "expected"),
    [
        ("*.bias", ["head.bias"]),
        (["head.weight"], ["head.weight"]),
        (("head.*",), ["head.weight", "head.bias"]),
        (lambda name, array: array.ndim == 1, ["head.bias"]),
        ((), []),
    ],
)
def test_users_choose(choice: object, expected: list[str]) -> None:
    assert Network.from_onnx(affine(), trainable=choice).trainable() == expected  # type: ignore[arg-type]


def test_a_doubtful_array_trains_if_it_is_chosen_and_the_choice_is_kept_in_the_file() -> None:
    proto = file("(float[N,2] x) => (float[N,2] y) { y = Mul(x, eps) }", eps=np.float32(2))
    network = Network.from_onnx(proto, trainable="eps")
    assert network.trainable() == ["eps"] and not network.parameters["eps"].doubt
    assert Network.from_onnx(network.to_onnx()).trainable() == ["eps"]
    assert Network.from_onnx(network.to_onnx(), trainable=[]).trainable() == []


def test_a_name_that_is_not_there_is_named() -> None:
    with pytest.raises(InputError, match=r"got 'head.wieght', which fits no floating array .*head.weight"):
        Network.from_onnx(affine(), trainable=["head.wieght"])


def test_a_decision_takes_the_doubt_away() -> None:
    network = read(file("(float[N,2] x) => (float[N,2] y) { y = Mul(x, eps) }", eps=np.float32(2)))
    assert network.copy().parameters["eps"].doubt
    network.set_parameter("eps", np.float32(3))
    assert network.parameters["eps"].doubt
    network.set_parameter("eps", np.float32(3), trainable=True)
    assert not network.parameters["eps"].doubt and network.trainable() == ["eps"]


def test_a_weight_in_a_constant_node_is_doubtful_and_an_operand_is_not() -> None:
    graph = parser.parse_graph("g (float[N,2] x) => (float[N,3] y) { h = MatMul(x, w) y = Add(h, b) }")
    judged = judge(graph, {"w": weights(2, 3), "b": weights(3)}, {"w", "b"})
    assert judged.trainable == set() and set(judged.doubtful) == {"w"}


# -- arrays that code filled -----------------------------------------------------------------------------------------
FILLED = {
    "a group normalization taken apart": (
        "InstanceNormalization(x, val_1, val_2)",
        {"val_1": np.ones(3, np.float32), "val_2": np.zeros(3, np.float32)},
        "",
    ),
    "a mask of scores": (
        "Softmax(s)",
        {"attn_mask": np.where(np.eye(8) > 0, 0, -100).astype(np.float32)[None]},
        "repeat",
    ),
    "a mask of zeros": ("Softmax(s)", {"where": np.zeros((1, 8, 8), np.float32)}, "the same to all scores"),
    "the identity": ("Mul(x, clone)", {"clone": np.eye(8, dtype=np.float32)}, "the identity"),
    "coordinates": ("Mul(x, view)", {"view": np.tile(np.linspace(-1, 1, 8, dtype=np.float32), (16, 1))}, "repeat"),
}


@pytest.mark.parametrize("kind", FILLED)
def test_what_code_filled_stays_fixed(kind: str) -> None:
    text, arrays, reason = FILLED[kind]
    (name, *_) = arrays
    before = f"s = Add(x, {name})" if "(s)" in text else ""
    graph = parser.parse_graph(f"g (float[2,3,8,8] x) => (float[2,3,8,8] y) {{ {before} y = {text} }}")
    judged = judge(graph, arrays, set())
    assert not judged.trainable
    assert all(reason in judged.doubtful[n] for n in arrays) if reason else not judged.doubtful
    renamed = {f"layer.{n}.weight": array for n, array in arrays.items()}  # a name that says what it is decides
    for node in graph.node:
        node.input[:] = [f"layer.{n}.weight" if n in arrays else n for n in node.input]
    assert judge(graph, renamed, set()).trainable == renamed.keys()


def test_a_table_that_was_trained_trains_whatever_its_name() -> None:
    table = np.random.default_rng(0).standard_normal((16, 8)).astype(np.float32)
    graph = parser.parse_graph("g (float[2,16,8] x) => (float[2,16,8] y) { y = Add(x, pos_embed) }")
    assert judge(graph, {"pos_embed": table}, set()).trainable == {"pos_embed"}
    assert judge(graph, {"pos_embed": np.zeros_like(table)}, set()).trainable == {"pos_embed"}, "not trained yet"


@pytest.mark.parametrize(
    ("text", "doubtful"),
    [
        ("c = Sub(x, u) d = Div(c, v)", {"u", "v"}),
        ("k = Transpose<perm=[0,1]>(x) c = Sub(k, u) d = Mul(c, v)", {"u", "v"}),
        ("c = Div(x, u) d = Add(c, v)", {"u"}),
        ("c = Mul(x, u) d = Add(c, v)", set()),  # positions may be learned, and so may gains
        ("c = MatMul(x, w) e = Sub(c, u) d = Div(e, v)", set()),
        ("c = Sub(u, x) d = Sub(c, v)", set()),
    ],
)
def test_what_normalises_an_input_as_it_comes_is_no_weight(text: str, doubtful: set[str]) -> None:
    """Buffers of means and deviations: an exporter does not tell them from weights."""
    arrays = {"u": weights(3), "v": weights(3), "w": weights(3, 3)}
    network = read(file(f"(float[N,3] x) => (float[N,3] y) {{ {text} y = MatMul(d, w) }}", **arrays))
    assert set(network.trainable()) == arrays.keys() - doubtful
    assert {n for n, p in network.parameters.items() if "an input" in p.doubt} == doubtful


def test_evenly_spaced_values_are_no_weights() -> None:
    arrays = {
        "positions": np.linspace(0, 1, 9, dtype="float32"),
        "bias": np.arange(9, dtype="float32"),
        "w": weights(9, 9),
    }
    text = "(float[N,9] x) => (float[N,9] y) { a = MatMul(x, w) b = Add(a, positions) y = Add(b, bias) }"
    assert read(file(text, **arrays)).trainable() == ["bias", "w"]


def test_weights_within_branches_and_loops_train(backend_name: str) -> None:
    """Each branch has one of the same name, the loop one more."""
    framework = load_backend(backend_name)
    text = """(float[N,2] x, bool go) => (float[N,2] y) {
        h = If (go) <then_branch = t () => (float[N,2] a) <float[2,2] w = {1, 2, 3, 4}> { a = MatMul(x, w) },
                     else_branch = e () => (float[N,2] b) <float[2,2] w = {5, 6, 7, 8}> { b = MatMul(x, w) }>
        y = Loop (three, always, h) <body = l (int64 i, bool c, float[N,2] s) => (bool d, float[N,2] r)
            <float[2] g = {0.5, 2}> { d = Identity(c) r = Mul(s, g) }> }"""
    proto = file(text, three=np.array(3, np.int64), always=np.array(True))
    network = Network.from_onnx(proto)
    assert set(network.trainable()) == {"w_1", "w_2", "g"}
    add_loss(network, "mean_squared_error", output="y")
    executor = framework.from_model(network, "cpu")
    x, label = np.array([[1, 2]], "float32"), np.array([[3, -1]], "float32")
    names = ["w_1", "w_2", "g"]
    for go, branch in ((True, 0), (False, 1)):
        executor.inference_and_backprop({"x": x, "label": label, "go": np.array(go)}, "loss")
        gradients = dict(executor.network.gradient("loss"))
        got = [np.array(executor.network.to_numpy(executor.network.fetch_tensors([gradients[n]])[0])) for n in names]
        w, g = network.parameter(names[branch]).value, np.array([0.5, 2])
        error = (x @ w * g**3 - label) * 2 / 2
        want = [np.zeros((2, 2)), np.zeros((2, 2)), (error * (x @ w) * 3 * g**2)[0]]
        want[branch] = x.T @ (error * g**3)
        for a, b in zip(got, want, strict=True):
            assert_close(a, b)
