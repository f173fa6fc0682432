"""What cuts or changes gradients in models of Keras and TensorFlow: carried as the tape has it, or refused by name."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

tf = pytest.importorskip("tensorflow")
pytest.importorskip("tf2onnx", reason="needs deep500[import-tensorflow]")

import keras  # noqa: E402

from deep500.errors import NetworkError  # noqa: E402
from deep500.networks import as_network  # noqa: E402
from deep500.networks.objects import seeded  # noqa: E402
from deep500.registry import load_importer  # noqa: E402
from tests.frameworks.gradients import hold_page, hold_to  # noqa: E402

pytestmark = [pytest.mark.backend("tensorflow"), pytest.mark.filterwarnings("default")]
CARRIED = "carried"


class Halves(keras.layers.Layer):
    """Two dense layers whose results ``join`` puts together."""

    def __init__(self, join: Any) -> None:
        super().__init__()
        self.first, self.second, self.join = keras.layers.Dense(4), keras.layers.Dense(4, "tanh"), join

    def call(self, x: Any) -> Any:
        return self.join(self.first(x), self.second(x))


class Writer(keras.layers.Layer):
    """A layer that keeps a moving center of what it saw."""

    def build(self, shape: Any) -> None:
        self.center = self.add_weight(name="center", shape=(shape[-1],), trainable=False)

    def call(self, x: Any, training: bool = False) -> Any:
        if training:
            self.center.assign(0.9 * self.center + 0.1 * tf.reduce_mean(x, axis=0))
        return x - self.center


@tf.custom_gradient
def reversal(x: Any) -> Any:
    return tf.identity(x), lambda gradient: -gradient


@keras.ops.custom_gradient
def doubled(x: Any) -> Any:
    def grad(*args: Any, upstream: Any = None) -> Any:
        return 2 * (args[0] if upstream is None else upstream)

    return keras.ops.sin(x), grad


@tf.recompute_grad
def recomputed(x: Any) -> Any:
    return tf.tanh(x) * x


def joined(join: Any) -> Any:
    def make() -> Any:
        return keras.Sequential([keras.Input((5,)), Halves(join), keras.layers.Dense(3)])

    return make


def through(layer: Any) -> Any:
    def make() -> Any:
        return keras.Sequential([keras.Input((5,)), keras.layers.Dense(4), layer(), keras.layers.Dense(3)])

    return make


def dropped(x: Any, y: Any) -> Any:
    return x * keras.ops.stop_gradient(keras.ops.softmax(y)) + keras.ops.silu(y)


PROBES: dict[str, dict[str, tuple[Any, str]]] = {
    "`keras.ops.stop_gradient`, `tf.stop_gradient`": {
        "keras": (joined(lambda x, y: x * keras.ops.stop_gradient(y)), CARRIED),
        "tensorflow": (joined(lambda x, y: x + tf.stop_gradient(x * y) * y), CARRIED),
        "straight-through": (joined(lambda x, y: y + tf.stop_gradient(tf.round(4 * x) - y) + x), CARRIED),
        "target": (joined(lambda x, y: (x - tf.stop_gradient(y)) ** 2 + (y - tf.stop_gradient(x)) ** 2 / 4), CARRIED),
        "with a gradient of Keras's own": (joined(dropped), CARRIED),
    },
    "`tf.recompute_grad`": {"recomputed": (joined(lambda x, y: recomputed(x) + y), CARRIED)},
    "`tf.custom_gradient`, `keras.ops.custom_gradient` of your own": {
        "reversal": (joined(lambda x, y: reversal(x) + y), r"reversal.*test_tensorflow_gradients\.py:\d+ .*stop_grad"),
        "inside": (joined(lambda x, y: tf.function(reversal)(x) + y), r"reversal.*test_tensorflow_gradients\.py:\d+"),
        "keras": (joined(lambda x, y: doubled(x) + y), r"doubled.*test_tensorflow_gradients\.py:\d+"),
    },
    "variables that a model writes when it runs, other than `BatchNormalization`'s": {
        "center": (through(Writer), "writes '.*center' when it runs in training.*from_native"),
        "spectral": (
            through(lambda: keras.layers.SpectralNormalization(keras.layers.Dense(4))),
            "writes '.*spectral_normalization.*' when it runs",
        ),
    },
}
ROWS = [(f"{row}: {name}", *values) for row, probes in PROBES.items() for name, values in probes.items()]


@pytest.fixture(autouse=True)
def float64() -> Any:
    """Let Keras make weights of float64."""
    before = keras.config.floatx(), keras.config.dtype_policy()  # of inputs, and of layers
    keras.config.set_floatx("float64")
    keras.config.set_dtype_policy("float64")
    yield
    keras.config.set_floatx(before[0])
    keras.config.set_dtype_policy(before[1])


def check(make: Any, backend: Any) -> None:
    """Raise AssertionError unless every parameter's gradient is that of TensorFlow's tape."""
    with seeded(1):
        model = make()
    generator = np.random.default_rng(3)
    network = as_network(model, generator.standard_normal((2, 5)))
    x, cotangent = generator.standard_normal((4, 5)), generator.standard_normal((4, 3))
    with tf.GradientTape() as tape:
        loss = tf.reduce_sum(model(x, training=True) * cotangent)
    gradients = tape.gradient(loss, model.trainable_weights)
    want = {v.path: gradient for v, gradient in zip(model.trainable_variables, gradients, strict=True)}
    hold_to(network, [backend], [x], [cotangent], want)


@pytest.mark.parametrize(("name", "make", "error"), ROWS, ids=[row[0] for row in ROWS])
def test_gradients_are_the_tape_s_or_an_error_names_why(backend: Any, name: str, make: Any, error: str) -> None:
    if error == CARRIED:
        check(make, backend)
        return
    with pytest.raises(NetworkError, match=error):
        as_network(make(), np.ones((2, 5)))


def test_a_function_s_gradients_stop_where_its_own_do() -> None:
    w, v = (tf.Variable(np.random.default_rng(n).standard_normal((5, 3)), name=f"w{n}") for n in (1, 2))
    network = as_network(tf.function(lambda x: (x @ w) * tf.stop_gradient(x @ v)), np.ones((1, 5)))
    assert [node.op_type for node in network.nodes].count("StopGradient") == 1
    with pytest.raises(NetworkError, match=r"got a gradient of its own, reversal.*tf\.stop_gradient"):
        as_network(tf.function(lambda x: reversal(x @ w)), np.ones((1, 5)))


def test_gradients_stop_in_branches_and_what_is_not_converted_is_named_there() -> None:
    w = tf.Variable(np.random.default_rng(0).standard_normal((5, 3)), name="w")

    def branches(some: Any) -> Any:
        def function(x: Any) -> Any:
            h = x @ w
            return tf.cond(tf.shape(x)[0] > 1, lambda: some(h), lambda: tf.stop_gradient(h) - h)

        return tf.function(function)

    network = as_network(branches(lambda h: h * tf.stop_gradient(h)), np.ones((2, 5)))
    (branch,) = [node for node in network.nodes if node.op_type == "If"]
    kinds = [(node.op_type, node.domain) for graph in branch.graphs for node in graph.node]
    assert kinds.count(("StopGradient", "deep500")) == 2
    with pytest.raises(NetworkError, match="operators that tf2onnx does not convert: Lu;"):
        as_network(
            branches(lambda h: tf.linalg.lu(tf.matmul(h, h, transpose_a=True) + tf.eye(3, dtype=h.dtype))[0]),
            np.ones((2, 5)),
        )


def test_what_a_converter_drops_is_found_when_gradients_are_compared(monkeypatch: pytest.MonkeyPatch) -> None:
    importing = load_importer("tensorflow")
    monkeypatch.delitem(importing._HANDLERS, "StopGradient")
    make, _ = PROBES["`keras.ops.stop_gradient`, `tf.stop_gradient`"]["keras"]
    with pytest.raises(NetworkError, match=r"whose gradient of parameter '.*' is up to"):
        as_network(make(), np.ones((2, 5)))


def test_a_model_is_left_as_it_was() -> None:
    keras.config.set_floatx("float32")
    keras.config.set_dtype_policy("float32")
    with seeded(0):
        model = keras.Sequential(
            [keras.Input((5,)), keras.layers.Dense(4), keras.layers.BatchNormalization(), keras.layers.Dropout(0.5)]
        )
    before = [np.copy(tf.convert_to_tensor(variable)) for variable in model.variables]
    as_network(model)
    assert model.layers[-1].rate == 0.5
    for array, variable in zip(before, model.variables, strict=True):
        np.testing.assert_array_equal(array, tf.convert_to_tensor(variable))


def test_the_page_lists_every_row_with_what_happens() -> None:
    hold_page(PROBES, [CARRIED])
