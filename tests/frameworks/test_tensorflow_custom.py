"""Custom operators in TensorFlow, beside what ``test_custom.py`` asks of all: sizes not known while it traces."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import deep500 as d5
from deep500.errors import InputError, OperatorError, UnsupportedOperator
from deep500.networks import Network, add_loss, replace_operator
from deep500.operators.failures import find_failure
from tests.frameworks.compiled import PythonMix, mix, pair, softsign, values

pytestmark = pytest.mark.backend("tensorflow")

pytest.importorskip("tensorflow")

import deep500.frameworks.tensorflow as d5fw  # noqa: E402
from deep500.frameworks.tensorflow import custom_native, custom_routes  # noqa: E402
from deep500.frameworks.tensorflow.runtime import tf  # noqa: E402
from tests.frameworks.differentiating import face  # noqa: E402
from tests.frameworks.test_custom import formula, goal, tensors  # noqa: E402

FW = face("tensorflow")


def slopes(function: Callable[..., Any]) -> Callable[..., Any]:
    return lambda *arrays: FW.gradients(goal(FW, function), arrays)


def traced(function: Callable[..., Any]) -> Any:
    """Under tf.function, with sizes that are not known while it traces."""
    unknown = [tf.TensorSpec([None, None], tf.float64)] * 2 + [tf.TensorSpec([None], tf.int64)]
    return tf.function(function, input_signature=unknown, autograph=False)


@pytest.fixture(params=["op_kernel", "numpy_function", "native"])
def function(request: pytest.FixtureRequest) -> Any:
    made = {"op_kernel": mix, "numpy_function": PythonMix, "native": lambda: d5fw.custom_op_from_native(formula(FW))}
    return d5fw.custom_op(made[request.param]())


def test_traced_once_for_all_sizes_it_is_the_formula_with_its_gradients(function: Any) -> None:
    run, gradients = traced(function), traced(slopes(function))
    for rows in (4, 7):
        arrays = tensors(FW, rows)
        want = [*formula(FW)(*arrays)[:2], *slopes(formula(FW))(*arrays)]
        for a, b in zip([*run(*arrays)[:2], *gradients(*arrays)], want, strict=True):
            assert (a is None) == (b is None)
            if b is not None:
                np.testing.assert_allclose(a, b, rtol=1e-12, atol=1e-12)


def test_shapes_are_known_as_far_as_they_can_be(function: Any) -> None:
    outputs = traced(function).get_concrete_function().structured_outputs
    assert [tuple(y.shape) for y in outputs] == [(None, None), (None,), (1,)]
    known = tf.function(function, autograph=False).get_concrete_function(*tensors(FW)).structured_outputs
    assert [tuple(y.shape) for y in known] == [(4, 3), (4,), (1,)]


def test_shapes_that_only_infer_knows() -> None:
    def infer(inputs: list[d5.TensorDescriptor]) -> list[d5.TensorDescriptor]:
        rows, columns = inputs[0].shape
        return [
            d5.tensordesc((rows, columns), "float64"),
            d5.tensordesc((rows + 0,), "float64"),
            d5.tensordesc((1,), "int64"),
        ]

    plain = mix()
    op = type(plain)(plain.spec, plain.input_descriptors, plain.output_descriptors, infer)
    assert op.shape_plan() is None
    function = d5fw.custom_op(op)
    run = traced(function)
    assert [tuple(y.shape) for y in run.get_concrete_function().structured_outputs] == [(None, None), (None,), (1,)]
    for rows in (2, 4, 5):
        arrays = tensors(FW, rows)
        for got in (run(*arrays), function(*arrays)):
            np.testing.assert_allclose(got[1], formula(FW)(*arrays)[1], rtol=1e-14)
    *want, _ = slopes(formula(FW))(*tensors(FW))
    np.testing.assert_allclose(traced(slopes(function))(*tensors(FW))[0], want[0], rtol=1e-12)


def test_any_rank_and_no_elements_are_traced() -> None:
    function = d5fw.custom_op(softsign())
    anything = tf.function(function, input_signature=[tf.TensorSpec(None, tf.float32)], autograph=False)
    for shape in ((), (0, 3), (2, 1, 3)):
        assert anything(tf.ones(shape)).shape == shape


def test_wrong_inputs_are_errors_when_traced_and_when_run() -> None:
    x, w, k = tensors(FW)
    compiled = d5fw.custom_op(mix())
    for trace in (tf.function(compiled, autograph=False), tf.function(compiled)):  # AutoGraph leaves operators alone
        with pytest.raises(InputError, match=r"'mix', input 0: got dtype float32"):
            trace(tf.cast(x, tf.float32), w, k)
    for wrong in ((x, w[:2], k), (x, w, k[:1])):  # found out in the run
        with pytest.raises(tf.errors.InvalidArgumentError, match=r"'mix': got sizes") as caught:
            traced(compiled)(*wrong)
        assert isinstance(find_failure(str(caught.value)), InputError)


def test_failures_inside_traced_functions_are_errors() -> None:
    x, w, k = values()
    x[-1, -1] = 777
    for make, kind in ((mix, OperatorError), (PythonMix, InputError)):
        with pytest.raises(tf.errors.OpError) as caught:
            traced(d5fw.custom_op(make()))(x, w, k)
        assert isinstance(find_failure(str(caught.value)), kind)


def test_second_derivatives_of_enzyme_s_operators_are_traced() -> None:
    arrays = [tf.constant(array[:, 0]) for array in values()[:2]]

    def second(f: Callable[..., Any]) -> Callable[..., Any]:
        return lambda *arrays: FW.second(lambda x, w: tf.reduce_sum(tf.sin(f(x, w))), arrays)

    unknown = [tf.TensorSpec([None], tf.float64)] * 2
    run = tf.function(second(d5fw.custom_op(pair())), input_signature=unknown, autograph=False)
    for a, b in zip(run(*arrays), second(lambda x, w: x**3 * w)(*arrays), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-12)


def test_native_functions_infer_sizes_that_are_not_known() -> None:
    unknown = [d5.tensordesc((None, 3), "float64")] * 2 + [d5.tensordesc((None,), "int64")]
    assert [d.shape for d in d5fw.custom_op_from_native(formula(FW)).infer(unknown)] == [(None, 3), (None,), (1,)]


def test_gradients_of_another_size_are_an_error() -> None:
    x = tf.constant([1.0, 2.0])
    with tf.GradientTape() as tape:
        tape.watch(x)
        y = d5fw.custom_op(softsign())(x)
    with pytest.raises(tf.errors.InvalidArgumentError, match="other sizes"):
        tape.gradient(y, x, output_gradients=tf.ones(1))


def test_a_key_that_nobody_entered_is_an_error() -> None:
    _, module = custom_native._loaded()
    with pytest.raises(tf.errors.UnimplementedError, match="'nobody', which is not loaded"):
        module.deep500_call(args=[tf.ones(2)], key="nobody", phase=0, wanted=0, plan=[-1], Tout=[tf.float32])


def test_xla_is_refused_while_it_is_traced() -> None:
    for function in (d5fw.custom_op(softsign()), d5fw.custom_op(PythonMix())):
        with pytest.raises(UnsupportedOperator, match="jit_compile"):
            tf.function(lambda x, f=function: f(x), jit_compile=True, autograph=False)(tf.ones(3))
    native = d5fw.custom_op(d5fw.custom_op_from_native(tf.tanh))
    np.testing.assert_allclose(tf.function(native, jit_compile=True)(tf.ones(3)), np.tanh(np.ones(3)), rtol=1e-6)


def test_a_python_operator_cannot_write_to_its_inputs() -> None:
    class Rude(d5.CustomPythonOp):
        def __init__(self):
            super().__init__(None, [d5.TensorDescriptor(None, None)])

        def forward(self, inputs):
            inputs[0][:] = 0
            return inputs[0]

    x = tf.ones(3)
    with pytest.raises(InputError, match="read-only"):
        d5fw.custom_op(Rude())(x)
    np.testing.assert_array_equal(x, 1)


def test_unknown_sizes_are_probed_and_what_cannot_be_told_is_an_error() -> None:
    class Shapes(d5.CustomPythonOp):
        def forward(self, inputs):
            rows = len(inputs[0])
            return [np.zeros((rows, 5)), np.zeros((1,) * (rows // 12)), np.zeros(rows**2)]

    known = [d5.tensordesc((None, 2))]
    assert [d.shape for d in custom_routes.infer(Shapes(), known)] == [(None, 5), None, (None,)]
    with pytest.raises(UnsupportedOperator, match="'Shapes': got inputs of unknown size"):
        custom_routes.infer(Shapes(), [d5.TensorDescriptor("float32", None)])


def test_in_a_network_between_convolutions() -> None:
    """The backend computes them with channels last; a custom operator sees ONNX's layout, and gives it."""
    rng = np.random.default_rng(3)
    net = Network("convolutions")
    net.add_input("x", ("N", 2, 6, 6))
    for name, shape in {"w1": (4, 2, 3, 3), "w2": (3, 4, 3, 3), "w3": (12, 3)}.items():
        net.add_parameter(name, rng.normal(size=shape).astype("float32"))
    net.add_node("Conv", ["x", "w1"], "a")
    net.add_node("Softsign", "a", "b", name="act")
    net.add_node("Conv", ["b", "w2"], "c")
    net.add_node("Flatten", "c", "d")
    net.add_node("MatMul", ["d", "w3"], "output")
    net.add_output("output")
    net = add_loss(net)
    custom = replace_operator(net, "Softsign", "TestCompiledSoftsign", domain="deep500")
    executors = [d5fw.from_model(network) for network in (net, custom)]
    for rows in (3, 5):
        batch = {"x": rng.normal(size=(rows, 2, 6, 6)).astype("float32"), "label": rng.integers(0, 3, rows)}
        runs = [executor.inference_and_backprop(batch) for executor in executors]
        np.testing.assert_allclose(runs[1]["loss"], runs[0]["loss"], rtol=1e-5)
        for name in ("w1", "w2", "w3"):
            want, got = (executor.network.fetch_tensors([f"{name}.grad"])[0] for executor in executors)
            np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-5)


def test_a_network_with_it_is_refused_by_xla() -> None:
    net = Network("one")
    net.add_input("x", (3,))
    net.add_node("TestCompiledSoftsign", "x", "y", name="act", domain="deep500")
    net.add_output("y")
    with pytest.raises(UnsupportedOperator, match=r"'act'.*jit_compile"):
        d5fw.from_model(net, jit_compile=True).inference({"x": np.ones(3, "float32")})


def test_keras_trains_with_it() -> None:
    import keras

    rng = np.random.default_rng(0)
    x, y = rng.normal(size=(20, 6)).astype("float32"), rng.integers(0, 3, 20)
    losses = []
    for activation in (tf.nn.softsign, d5fw.custom_op(softsign())):
        keras.utils.set_random_seed(1)
        model = keras.Sequential(
            [keras.Input((6,)), keras.layers.Dense(8), keras.layers.Activation(activation), keras.layers.Dense(3)]
        )
        loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
        model.compile(keras.optimizers.SGD(0.5), loss, jit_compile=False)
        losses.append(model.fit(x, y, batch_size=8, epochs=3, shuffle=False, verbose=0).history["loss"])
    assert losses[0][-1] < losses[0][0]
    np.testing.assert_allclose(losses[1], losses[0], rtol=1e-5)
