"""Models of Keras, functions and SavedModels of TensorFlow as networks: TensorFlow's own outputs and gradients."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

tf = pytest.importorskip("tensorflow")
pytest.importorskip("tf2onnx", reason="needs deep500[import-tensorflow]")

import keras  # noqa: E402

from deep500.errors import InputError, NetworkError  # noqa: E402
from deep500.frameworks import reference  # noqa: E402
from deep500.networks import Network, add_loss, as_network  # noqa: E402
from deep500.networks.objects import fingerprint, seeded  # noqa: E402
from tests.tolerances import assert_close  # noqa: E402

layers = keras.layers
pytestmark = [pytest.mark.backend("tensorflow"), pytest.mark.filterwarnings("default")]


def convolutional(drop: float = 0.0) -> Any:
    return keras.Sequential(
        [
            keras.Input((6, 6, 3)),
            layers.Conv2D(4, 3, padding="same"),
            layers.BatchNormalization(momentum=0.9),
            layers.ReLU(),
            layers.GlobalAveragePooling2D(),
            layers.Dropout(drop),
            layers.Dense(5),
            layers.BatchNormalization(scale=False),
        ]
    )


def attention() -> Any:
    given = keras.Input((5, 8))
    attended = layers.MultiHeadAttention(2, 4)(given, given)
    hidden = layers.LayerNormalization()(given + attended)
    return keras.Model(given, layers.Dense(3, activation="gelu")(layers.GlobalAveragePooling1D()(hidden)))


def two_inputs() -> Any:
    left, right = keras.Input((4,), name="left"), keras.Input((5,), name="right")
    return keras.Model([left, right], layers.Dense(3)(layers.Concatenate()([layers.Dense(4, "tanh")(left), right])))


def recurrent() -> Any:
    return keras.Sequential([keras.Input((6,), dtype="int32"), layers.Embedding(20, 6), layers.LSTM(5, unroll=True)])


def real(*shape: int) -> np.ndarray:
    return np.random.default_rng(len(shape)).standard_normal(shape).astype("float32")


CASES: dict[str, tuple[Any, tuple[np.ndarray, ...]]] = {
    "convolutional": (convolutional, (real(4, 6, 6, 3),)),
    "attention": (attention, (real(4, 5, 8),)),
    "two inputs": (two_inputs, (real(4, 4), real(4, 5))),
    "recurrent": (recurrent, (np.arange(24, dtype="int32").reshape(4, 6) % 20,)),
}


def hold_to(
    network: Network, call: Any, variables: dict[str, Any], arrays: tuple[np.ndarray, ...], training: bool
) -> None:
    """Compare outputs in evaluation, and gradients in training where there is a mode."""
    inputs, (output,) = dict(zip(network.inputs, arrays, strict=True)), network.outputs
    executor = reference.from_model(add_loss(network, "mean_squared_error"))
    want = call(arrays, False)
    assert_close(executor.inference(inputs, [output])[output], want.numpy(), "forward")
    label = real(*want.shape)
    with tf.GradientTape() as tape:
        loss = tf.reduce_mean((call(arrays, training) - label) ** 2)
    wanted = dict(zip(variables, tape.gradient(loss, list(variables.values())), strict=True))
    executor.inference_and_backprop({**inputs, "label": label}, "loss")
    for parameter, gradient in executor.network.gradient("loss"):
        want = tf.convert_to_tensor(wanted.pop(parameter)).numpy()
        assert_close(executor.network.fetch_tensors([gradient])[0], want, "gradient", parameter)
    assert not wanted


@pytest.mark.parametrize("name", CASES)
def test_outputs_and_gradients_are_keras_s(name: str) -> None:
    make, arrays = CASES[name]
    with seeded(1):
        model = make()
    before = fingerprint(model)
    network = as_network(model)  # the model declares the shapes of its inputs
    assert fingerprint(model) == before
    assert all(described.shape[0] == "N" for described in network.inputs.values())  # type: ignore[index]
    assert set(network.trainable()) == {variable.path for variable in model.trainable_variables}

    def call(given: tuple[np.ndarray, ...], training: bool) -> Any:
        return model(given[0] if len(given) == 1 else list(given), training=training)

    hold_to(network, call, {v.path: v.value for v in model.trainable_variables}, arrays, True)


def test_dropout_and_normalization_follow_the_mode() -> None:
    with seeded(0):
        network = as_network(convolutional(0.25))
    kinds = {node.op_type: node for node in network.nodes}
    assert kinds["Dropout"].inputs[1:] and len(kinds["Dropout"].inputs) == 2
    assert network.parameters[kinds["Dropout"].inputs[1]].value == np.float32(0.25)
    momenta = [n.attributes["momentum"] for n in network.nodes if n.op_type == "BatchNormalization"]
    np.testing.assert_allclose(momenta, [0.9, 0.99], rtol=1e-6)


def test_drop_connect_leaves_whole_samples_out(backend: Any) -> None:
    x = keras.Input((3, 2))
    with seeded(0):
        model = keras.Model(x, keras.layers.Dropout(0.25, noise_shape=(None, 1, 1))(keras.layers.Dense(2)(x)))
        network = as_network(model, np.ones((2, 3, 2), "float32"))
    batch = np.random.default_rng(0).normal(size=(64, 3, 2)).astype("float32")
    plain = np.asarray(model(batch))
    network.add_node("ReduceSum", "output", "loss", keepdims=0)
    network.add_output("loss")
    executor = backend.from_model(network, "cpu")
    got = executor.network.to_numpy(executor.inference({"input": batch})["output"])
    np.testing.assert_allclose(got, plain, 1e-5, 1e-6)
    results = executor.inference_and_backprop({"input": batch}, "loss")
    ratio = executor.network.to_numpy(results["output"]) / plain
    dropped = np.isclose(ratio, 0)
    assert np.allclose(ratio[~dropped], 4 / 3, 1e-2) and 0 < dropped[:, 0, 0].sum() < 32
    assert (dropped == dropped[:, :1, :1]).all()  # a whole sample or nothing of it


def test_grouped_convolutions_are_convolutions() -> None:
    """Keras has them as functions for XLA, since TensorFlow's kernels on CPUs lack their gradient."""
    with seeded(0):
        model = keras.Sequential([keras.Input((6, 6, 4)), keras.layers.Conv2D(8, 3, groups=2)])
        network = as_network(model, np.random.default_rng(0).normal(size=(2, 6, 6, 4)).astype("float32"))
    groups = [node.attribute("group") for node in network.nodes if node.op_type == "Conv"]
    assert groups in ([2], [1, 1])


def test_a_function_keeps_its_variables() -> None:
    w, b = tf.Variable(real(4, 3), name="w"), tf.Variable(np.zeros(3, "float32"), name="b")
    fixed = tf.Variable(np.ones(3, "float32"), trainable=False, name="fixed")

    @tf.function
    def function(x: Any) -> Any:
        return tf.nn.relu(x @ w + b) * fixed

    network = as_network(function, real(2, 4))
    assert set(network.trainable()) == {"w", "b"} and "fixed" in network.parameters
    hold_to(network, lambda given, _: function(given[0]), {"w": w, "b": b}, (real(4, 4),), False)


def test_a_saved_model_is_a_folder(tmp_path: Path) -> None:
    with seeded(1):
        model = convolutional()
    model.export(tmp_path / "saved", verbose=False)
    for given in (tmp_path / "saved", tf.saved_model.load(str(tmp_path / "saved"))):
        network = as_network(given)
        assert set(network.trainable()) == {variable.path for variable in model.trainable_variables}
        got = reference.from_model(network).inference({next(iter(network.inputs)): real(4, 6, 6, 3)})
        assert_close(got["output"], model(real(4, 6, 6, 3), training=False).numpy(), "forward")


@pytest.mark.parametrize(
    ("make", "example", "kind", "message"),
    [
        (lambda: layers.Dense(3), None, InputError, "got Dense without example inputs; expected arrays"),
        (
            lambda: keras.Sequential([keras.Input((4,)), layers.GaussianNoise(0.1)]),
            None,
            NetworkError,
            r"GaussianNoise\) with stddev=0.1, which draws in training as no ONNX operator does; expected Dropout",
        ),
        (
            lambda: keras.Sequential([keras.Input((4,)), layers.Dense(3, kernel_regularizer="l2", name="heavy")]),
            None,
            NetworkError,
            "got a regularizer or add_loss in 'heavy', whose terms Keras adds to the loss; expected a model without",
        ),
        (
            lambda: keras.Sequential([keras.Input((4,)), layers.ActivityRegularization(0.1, name="activity")]),
            None,
            NetworkError,
            "got a regularizer or add_loss in 'activity'",
        ),
        (
            lambda: keras.Sequential([keras.Input((4,)), layers.Dense(3, kernel_constraint="non_neg")]),
            None,
            NetworkError,
            "got NonNeg for '.*kernel', which Keras' own optimizers apply after a step; expected no constraint",
        ),
        (lambda: tf.function(tf.sparse.to_dense), real(2, 3), NetworkError, "expected a model that runs"),
        (
            lambda: tf.function(tf.math.bessel_i0),
            real(2, 3),
            NetworkError,
            "got TensorFlow operators that tf2onnx does not convert: BesselI0; expected others",
        ),
        (lambda: tf.ones(3), real(2, 3), InputError, "as a model; expected a tf.function"),
    ],
)
def test_what_cannot_be_converted_is_one_error(make: Any, example: Any, kind: type, message: str) -> None:
    with pytest.raises(kind, match=message):
        as_network(make(), example)


def test_weights_are_made_from_the_seed() -> None:
    def made(seed: int) -> str | None:
        with seeded(seed):
            return fingerprint(keras.Sequential([keras.Input((4,)), layers.Dense(3, name="dense")], name="one"))

    assert made(1) == made(1) != made(2)
