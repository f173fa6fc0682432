"""Custom operators as functions of tensors: as an operator of TensorFlow's, by numpy_function, and TensorFlow's own."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import deep500 as d5
from deep500.errors import InputError, OperatorError, UnsupportedOperator
from deep500.networks import Network, add_loss, replace_operator
from deep500.operators import GradientOp
from deep500.operators.failures import find_failure
from tests.frameworks.compiled import PythonMix, mix, pair, softsign, values

pytestmark = pytest.mark.backend("tensorflow")

pytest.importorskip("tensorflow")

import deep500.frameworks.tensorflow as d5fw  # noqa: E402
from deep500.frameworks.tensorflow import custom_native, custom_routes  # noqa: E402
from deep500.frameworks.tensorflow.runtime import tf  # noqa: E402


def formula(x: Any, w: Any, k: Any) -> list[Any]:
    return [x**3 * w + tf.cast(k, x.dtype)[:, None], tf.reduce_sum(x * w, 1), tf.zeros(1, tf.int64)]


def slopes(function: Callable[..., Any]) -> Callable[..., Any]:
    def slopes(x: Any, w: Any, k: Any) -> Any:
        with tf.GradientTape() as tape:
            tape.watch([x, w])
            y, z, _ = function(x, w, k)
            goal = tf.reduce_sum(tf.sin(y)) + tf.reduce_sum(z**2)
        return tape.gradient(goal, [x, w, k])

    return slopes


def tensors(*size: int) -> list[Any]:
    return [tf.constant(array) for array in values(*size)]


def traced(function: Callable[..., Any]) -> Any:
    """Under tf.function, with sizes that are not known while it traces."""
    unknown = [tf.TensorSpec([None, None], tf.float64)] * 2 + [tf.TensorSpec([None], tf.int64)]
    return tf.function(function, input_signature=unknown, autograph=False)


MADE = {"op_kernel": mix, "numpy_function": PythonMix, "native": lambda: d5fw.custom_op_from_native(formula)}


@pytest.fixture(params=MADE)
def function(request: pytest.FixtureRequest) -> Any:
    made = d5fw.custom_op(MADE[request.param]())
    assert made.implementation == request.param
    return made


def test_equals_the_formula(function: Any) -> None:
    known, unknown = tf.function(function, autograph=False), traced(function)
    for rows in (4, 7):
        arrays = tensors(rows)
        for run in (function, known, unknown):
            for got, want in zip(run(*arrays)[:2], formula(*arrays), strict=False):
                assert got.dtype == want.dtype
                np.testing.assert_allclose(got, want, rtol=1e-14)


def test_shapes_are_known_as_far_as_they_can_be(function: Any) -> None:
    outputs = traced(function).get_concrete_function().structured_outputs
    assert [tuple(y.shape) for y in outputs] == [(None, None), (None,), (1,)]
    known = tf.function(function, autograph=False).get_concrete_function(*tensors()).structured_outputs
    assert [tuple(y.shape) for y in known] == [(4, 3), (4,), (1,)]


def test_gradients_equal_the_formula_s(function: Any) -> None:
    arrays = tensors()
    *want, _ = slopes(formula)(*arrays)
    for run in (slopes(function), tf.function(slopes(function), autograph=False), traced(slopes(function))):
        *got, of_integers = run(*arrays)
        assert of_integers is None
        for a, b in zip(got, want, strict=True):
            np.testing.assert_allclose(a, b, rtol=1e-12, atol=1e-12)


def test_compiled_operators_run_on_tensorflow_s_own_memory() -> None:
    x, w, k = tensors(64, 64)
    place = np.asarray(memoryview(x)).ctypes.data
    for run in (d5fw.custom_op(mix()), tf.function(d5fw.custom_op(mix()), autograph=False)):
        assert int(run(x, w, k)[2][0]) == place


@pytest.mark.parametrize("dtype", ["float32", "float64", "bfloat16"])
def test_dtypes(dtype: str) -> None:
    x = tf.Variable(tf.cast(np.linspace(-3, 3, 16), dtype))
    answers = []
    for function in (tf.nn.softsign, d5fw.custom_op(softsign(dtype))):
        with tf.GradientTape() as tape:
            y = function(x)
        answers.append((y, tape.gradient(y, x)))
    for want, got in zip(*answers, strict=True):
        assert got.dtype == dtype
        rtol = 1e-6 if dtype != "bfloat16" else 0.02
        np.testing.assert_allclose(tf.cast(got, tf.float64), tf.cast(want, tf.float64), rtol=rtol)


def test_other_ranks_and_no_elements() -> None:
    function = d5fw.custom_op(softsign())
    anything = tf.function(function, input_signature=[tf.TensorSpec(None, tf.float32)], autograph=False)
    for shape in ((), (0, 3), (2, 1, 3)):
        for run in (function, anything):
            assert run(tf.ones(shape)).shape == shape


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
        arrays = tensors(rows)
        for got in (run(*arrays), function(*arrays)):
            np.testing.assert_allclose(got[1], formula(*arrays)[1], rtol=1e-14)
    *want, _ = slopes(formula)(*tensors())
    np.testing.assert_allclose(traced(slopes(function))(*tensors())[0], want[0], rtol=1e-12)


@pytest.mark.parametrize("make", [mix, PythonMix])
def test_a_gradient_node_s_operator(make: Callable[[], d5.CustomOp]) -> None:
    arrays = tensors()
    outputs = formula(*arrays)
    grads = [tf.cos(outputs[0]), 2 * outputs[1], outputs[2]]
    *want, _ = slopes(formula)(*arrays)
    operator = d5fw.custom_op(GradientOp(make(), 3))
    assert operator.implementation == d5fw.custom_op(make()).implementation
    *got, of_integers = operator(*grads, *arrays, *outputs)
    for a, b in zip(got, want, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-12)
    np.testing.assert_array_equal(of_integers, 0)
    with pytest.raises(InputError):
        operator(grads[0][:, :2], *grads[1:], *arrays, *outputs)


def test_wrong_inputs_are_errors_and_no_crash() -> None:
    x, w, k = tensors()
    compiled, python = d5fw.custom_op(mix()), d5fw.custom_op(PythonMix())
    for function in (compiled, python):
        for wrong in ((x, w[:2], k), (x, w)):
            with pytest.raises(InputError):
                function(*wrong)
    with pytest.raises(InputError, match=r"'mix', input 0: got dtype float32"):
        compiled(tf.cast(x, tf.float32), w, k)
    with pytest.raises(InputError, match=r"'mix', input 0: got dtype float32"):
        tf.function(compiled, autograph=False)(tf.cast(x, tf.float32), w, k)
    with pytest.raises(InputError, match=r"'mix', input 0: got dtype float32"):  # AutoGraph leaves operators alone
        tf.function(compiled)(tf.cast(x, tf.float32), w, k)
    for wrong in ((x, w[:2], k), (x, w, k[:1])):  # found out in the run
        with pytest.raises(tf.errors.InvalidArgumentError, match=r"'mix': got sizes") as caught:
            traced(compiled)(*wrong)
        assert isinstance(find_failure(str(caught.value)), InputError)
    with pytest.raises(InputError, match="expected a CustomOp"):
        d5fw.custom_op(formula)


def test_gradients_of_another_size_are_an_error() -> None:
    x = tf.constant([1.0, 2.0])
    with tf.GradientTape() as tape:
        tape.watch(x)
        y = d5fw.custom_op(softsign())(x)
    with pytest.raises(tf.errors.InvalidArgumentError, match="other sizes"):
        tape.gradient(y, x, output_gradients=tf.ones(1))


def test_failures_of_the_code_are_errors() -> None:
    x, w, k = values()
    x[-1, -1] = 777
    with pytest.raises(OperatorError, match=r"'mix'.*status 3"):
        d5fw.custom_op(mix())(x, w, k)
    with pytest.raises(InputError, match=r"'PythonMix': got ZeroDivisionError \(777\)"):
        d5fw.custom_op(PythonMix())(x, w, k)
    with pytest.raises(OperatorError, match="thirteen rows"):
        d5fw.custom_op(mix())(*values(13))
    for make, kind in ((mix, OperatorError), (PythonMix, InputError)):
        with pytest.raises(tf.errors.OpError) as caught:
            traced(d5fw.custom_op(make()))(x, w, k)
        assert isinstance(find_failure(str(caught.value)), kind)


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


def test_no_gradient_and_no_second_derivative_are_errors() -> None:
    class Opaque(d5.CustomPythonOp):
        def forward(self, inputs):
            return inputs[0] * 1

    x = tf.ones((3, 1), tf.float64)
    with pytest.raises(UnsupportedOperator, match=r"'Opaque'.*its gradient"), tf.GradientTape() as tape:
        tape.watch(x)
        tape.gradient(d5fw.custom_op(Opaque())(x), x)
    for run in (
        d5fw.custom_op(softsign("float64")),
        lambda x: d5fw.custom_op(PythonMix())(x, x, tf.zeros(3, tf.int64))[0],
    ):
        with tf.GradientTape() as outer:
            outer.watch(x)
            with tf.GradientTape() as inner:
                inner.watch(x)
                y = run(x)
            slope = inner.gradient(y, x)
        with pytest.raises(UnsupportedOperator, match="second derivative"):
            outer.gradient(slope, x)


def test_second_derivatives_of_enzyme_s_operators() -> None:
    x, w = (tf.constant(array[:, 0]) for array in values()[:2])

    def hessian(f: Callable[..., Any]) -> Callable[..., Any]:
        def hessian(x: Any, w: Any) -> Any:
            with tf.GradientTape() as outer:
                outer.watch([x, w])
                with tf.GradientTape() as inner:
                    inner.watch([x, w])
                    goal = tf.reduce_sum(tf.sin(f(x, w)))
                both = inner.gradient(goal, [x, w])
                end = tf.reduce_sum(tf.cos(both[0]) + both[1] ** 2)
            return outer.gradient(end, [x, w])

        return hessian

    want = hessian(lambda x, w: x**3 * w)(x, w)
    made = hessian(d5fw.custom_op(pair()))
    unknown = [tf.TensorSpec([None], tf.float64)] * 2
    for run in (made, tf.function(made, input_signature=unknown, autograph=False)):
        for a, b in zip(run(x, w), want, strict=True):
            np.testing.assert_allclose(a, b, rtol=1e-12)


def test_isolated_operators_take_numpy_function() -> None:
    function = d5fw.custom_op(mix(isolate=True))
    assert function.implementation == "numpy_function"
    np.testing.assert_allclose(function(*values())[1], formula(*tensors())[1], rtol=1e-14)


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


def test_native_functions_are_operators_for_everybody() -> None:
    op = d5fw.custom_op_from_native(formula)
    x, w, k = values()
    unknown = [d5.tensordesc((None, 3), "float64")] * 2 + [d5.tensordesc((None,), "int64")]
    assert [d.shape for d in op.infer(unknown)] == [(None, 3), (None,), (1,)]
    outputs = op.run([x, w, k])
    np.testing.assert_allclose(outputs[0], PythonMix()(x, w, k)[0], rtol=1e-14)
    grads = [np.cos(outputs[0]), outputs[1], outputs[2]]
    got, want = (operator.run_backward(grads, [x, w, k], outputs) for operator in (op, PythonMix()))
    for a, b in zip(got, want, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-12)


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


def test_a_failure_in_a_network_is_ours() -> None:
    net = Network("mixed")
    for name, shape, dtype in (("x", ("N", 3), "float64"), ("w", ("N", 3), "float64"), ("k", ("N",), "int64")):
        net.add_input(name, shape, dtype)
    net.add_node("TestCompiledMix", ["x", "w", "k"], ["y", "z"], name="mixed", domain="deep500")
    net.add_output("z")
    executor = d5fw.from_model(net)
    x, w, k = values()
    np.testing.assert_allclose(executor.inference({"x": x, "w": w, "k": k})["z"], (x * w).sum(1), rtol=1e-14)
    x[1, 1] = 777
    with pytest.raises(OperatorError, match="status 3"):
        executor.inference({"x": x, "w": w, "k": k})


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
