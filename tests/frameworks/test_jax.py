"""The JAX backend beyond the contract of all executors: gradients, 64-bit numbers, shapes, keys, native functions."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from deep500.errors import InputError, NetworkError, UnsupportedOperator
from deep500.networks import Network, add_loss, create
from deep500.training.optimizers import MomentumOptimizer
from tests.frameworks.test_executor_contract import batch, small
from tests.tolerances import assert_close

pytestmark = pytest.mark.backend("jax")

jax = pytest.importorskip("jax")

import jax.numpy as jnp  # noqa: E402

import deep500.frameworks.jax as d5fw  # noqa: E402


# -- 64-bit numbers ---------------------------------------------------------------------------------------------------
def test_float32_networks_stay_float32_and_int64_is_not_narrowed() -> None:
    executor = d5fw.from_model(small("float32"))
    outputs = executor.inference_and_backprop(batch(dtype="float32"))
    tensors = [*outputs.values(), *executor.tensors.values(), *executor.gradients.values()]
    assert {str(t.dtype) for t in tensors} == {"float32"}
    net = Network()
    net.add_input("x", ("N",), "int64")
    net.add_node("Add", ["x", "x"], "y")
    net.add_output("y")
    wide = np.array([2**40, -(2**35)])
    np.testing.assert_array_equal(d5fw.from_model(net).inference({"x": wide})["y"], 2 * wide)


def test_no_64_bit_arithmetic_in_a_float32_training_step() -> None:
    executor = d5fw.from_model(add_loss(create("lenet")))
    feeds = {"input": np.zeros((2, 1, 28, 28), np.float32), "label": np.zeros(2, np.int64)}
    feeds["input"] = np.zeros((2, *[int(d) for d in executor.network.inputs["input"].shape[1:]]), np.float32)
    f = executor.function(training=True)
    text = str(jax.make_jaxpr(lambda p, x: f(p, {}, x, jax.random.key(0)))(executor.tensors, feeds))
    assert "f32" in text and "f64" not in text


# -- shapes -----------------------------------------------------------------------------------------------------------
def shaped(op_type: str, second: str = "sizes", dtype: str = "float32", **attributes: Any) -> Network:
    net = Network(op_type)
    net.add_input("x", (None, None), dtype)
    net.add_input(second, (None,), "int64")
    net.add_node("Mul", [second, second], "squared")
    net.add_node(op_type, ["x", "squared"], "y", name="shaper", **attributes)
    net.add_output("y")
    return net


def test_small_inputs_that_decide_about_shapes_are_constants_of_a_function_of_their_own() -> None:
    executor, x = d5fw.from_model(shaped("Reshape")), np.arange(36, dtype=np.float32).reshape(6, 6)
    for sizes in ([1, 6], [6, 1], [2, 3], [1, 6]):
        got = executor.inference({"x": x, "sizes": np.array(sizes)}) if np.prod(sizes) ** 2 == 36 else None
        assert got is not None and got["y"].shape == tuple(n * n for n in sizes)
        np.testing.assert_array_equal(np.ravel(got["y"]), np.ravel(x))
    (compiled,) = executor._compiled.values()
    assert compiled.deciding == {"sizes"} and len(compiled.variants) == 3


def test_shapes_computed_from_shapes_are_known() -> None:
    net = Network()
    net.add_input("x", ("N", 3, "M"))
    net.add_node("Shape", "x", "shape")
    net.add_parameter("zero", np.array([0]), trainable=False)
    net.add_parameter("rest", np.array([-1]), trainable=False)
    net.add_node("Gather", ["shape", "zero"], "n")
    net.add_node("Concat", ["n", "rest"], "wanted", axis=0)
    net.add_node("Reshape", ["x", "wanted"], "y")
    net.add_output("y")
    executor = d5fw.from_model(net)
    for n, m in ((2, 4), (5, 1)):
        assert executor.inference({"x": np.zeros((n, 3, m), np.float32)})["y"].shape == (n, 3 * m)


def test_shapes_that_depend_on_large_data_are_refused_by_the_nodes_name() -> None:
    net = Network()
    net.add_input("x", ("N",))
    net.add_node("NonZero", "x", "y", name="find")
    net.add_output("y")
    executor = d5fw.from_model(net)
    np.testing.assert_array_equal(executor.inference({"x": np.array([0, 2, 3], np.float32)})["y"], [[1, 2]])
    with pytest.raises(UnsupportedOperator, match=r"'find' \(NonZero\).*depends on data"):
        executor.inference({"x": np.ones(5000, np.float32)})


def test_feeding_a_constant_compiles_again() -> None:
    net = Network()
    net.add_input("x", (6,))
    net.add_parameter("sizes", np.array([2, 3]), trainable=False)
    net.add_parameter("factor", np.array(2, np.float32), trainable=False)
    net.add_node("Reshape", ["x", "sizes"], "r")
    net.add_node("Mul", ["r", "factor"], "y")
    net.add_output("y")
    executor, x = d5fw.from_model(net), np.arange(6, dtype=np.float32)
    assert executor.inference({"x": x})["y"].shape == (2, 3)
    executor.network.feed_tensor("sizes", np.array([3, 2]))
    for factor in (3, 4):
        executor.network.feed_tensor("factor", np.array(factor, np.float32))
        compiled = executor.compiled(("y",), None)
        np.testing.assert_array_equal(executor.inference({"x": x})["y"], factor * x.reshape(3, 2))
    assert "factor" not in compiled.constants  # from the first time on it is an argument


# -- memory, keys, functions ------------------------------------------------------------------------------------------
def test_inputs_may_be_overwritten_while_jax_still_computes() -> None:
    net = Network()
    net.add_input("x", (512, 512))
    net.add_node("MatMul", ["x", "x"], "y")
    net.add_node("MatMul", ["y", "x"], "z")
    net.add_output("z")
    executor, x = d5fw.from_model(net), np.ones((512, 512), np.float32)
    got = executor.inference({"x": x})["z"]
    x[:] = 7
    np.testing.assert_array_equal(got, np.full((512, 512), 512.0**2, np.float32))


def test_fetched_parameters_outlive_training_steps() -> None:
    executor = d5fw.from_model(small())
    optimizer = d5fw.AdamOptimizer(executor)
    (before,) = executor.network.fetch_tensors(["conv.weight"])
    for seed in range(3):
        optimizer.step(batch(seed=seed))
    assert_close(before, small().parameters["conv.weight"].value, "exact")
    assert not np.allclose(before, executor.network.fetch_tensors(["conv.weight"])[0])


def test_the_pure_function_is_jaxs_to_transform() -> None:
    executor, feeds = d5fw.from_model(small()), batch()
    f, key = executor.function(["loss"], training=True), jax.random.key(0)
    trained = {n: executor.tensors[n] for n in executor.network.get_params()}
    state = {n: t for n, t in executor.tensors.items() if n not in trained}
    gradient = jax.grad(lambda p: f(p, state, feeds, key)[0]["loss"])(trained)
    new = f(trained, state, feeds, key)[1]
    executor.inference_and_backprop(feeds)
    for name in trained:
        assert_close(gradient[name], executor.network.fetch_tensors([f"{name}.grad"])[0], "gradient", name)
    assert set(new) == {"bn.running_mean", "bn.running_var"}
    for name, value in new.items():
        assert_close(value, executor.tensors[name])


def test_equal_seeds_give_equal_training() -> None:
    def train(seed: int) -> np.ndarray:
        executor = d5fw.from_model(small(rate=0.5), seed=seed)
        optimizer = MomentumOptimizer(executor)
        return np.array([float(optimizer.step(batch(seed=i))["loss"]) for i in range(4)])

    np.testing.assert_array_equal(train(1), train(1))
    assert not np.allclose(train(1), train(2))


# -- functions of the user's own --------------------------------------------------------------------------------------
def dense(p: Any, x: Any, training: bool = False, key: Any = None) -> Any:
    hidden = jnp.tanh(x @ p["first"]["w"] + p["first"]["b"])
    noise = jax.random.normal(key, hidden.shape, hidden.dtype) if training else 0
    return (hidden + 0.1 * noise) @ p["second"] + jnp.zeros(3)  # zeros of the user's own default dtype


def quiet(p: Any, x: Any) -> Any:
    return dense(p, x)


def dense_tree(dtype: str = "float32") -> Any:
    rng = np.random.default_rng(0)
    shapes = {"first": {"w": (4, 8), "b": (8,)}, "second": (8, 3)}
    return jax.tree.map(lambda s: rng.normal(size=s).astype(dtype), shapes, is_leaf=lambda s: isinstance(s, tuple))


def test_a_native_function_trains_and_stays_in_its_width() -> None:
    executor = d5fw.from_native(dense, dense_tree(), np.zeros((1, 4), np.float32))
    assert executor.network.get_params() == ["first/b", "first/w", "second"]
    feeds = {"input": np.eye(4, dtype=np.float32)[:3], "label": np.arange(3)}
    assert executor.inference(feeds)["output"].dtype == np.float32
    optimizer = d5fw.MomentumOptimizer(executor, "loss", 0.1)
    losses = [float(optimizer.step(feeds)["loss"]) for _ in range(40)]
    assert losses[-1] < 0.3 * losses[0] and executor.parameters["first"]["w"].shape == (4, 8)
    with pytest.raises(InputError, match="'input': got shape"):
        executor.inference({"input": np.zeros((2, 5), np.float32)}, ["output"])
    with pytest.raises(NetworkError, match="native function"):
        executor.network.add_node("Relu", "output", "more")


def test_a_native_functions_gradient_is_jaxs() -> None:
    tree = dense_tree("float64")
    executor = d5fw.from_native(quiet, tree, np.zeros((1, 4)), loss=lambda y, t: ((y - t) ** 2).sum())
    feeds = {"input": np.ones((2, 4)), "label": np.zeros((2, 3))}
    executor.inference_and_backprop(feeds)
    want = jax.grad(lambda p: (dense(p, feeds["input"]) ** 2).sum())(tree)
    assert_close(executor.network.fetch_tensors(["first/w.grad"])[0], want["first"]["w"], "gradient")
    assert np.abs(want["first"]["w"]).max() > 1e-3


def test_a_native_loss_that_is_no_number_is_named() -> None:
    executor = d5fw.from_native(dense, dense_tree(), np.zeros((1, 4), np.float32), loss=lambda y, t: (y - t) ** 2)
    batch = {"input": np.zeros((2, 4), np.float32), "label": np.zeros((2, 3), np.float32)}
    with pytest.raises(InputError, match=r"got a loss of shape \(2, 3\); expected one number: take its mean"):
        executor.inference_and_backprop(batch, "loss")


def test_what_must_be_known_of_weights_is_refused_when_the_model_is_built() -> None:
    """No run could compute it: XLA wants the number of what is not zero, and weights change in every step."""
    net = Network()
    net.add_input("x", ("N", 3))
    net.add_parameter("w", np.ones((3, 2), np.float32))
    net.add_node("MatMul", ["x", "w"], ["h"])
    net.add_node("Relu", ["h"], ["r"])
    net.add_node("NonZero", ["r"], ["where"], name="find")
    net.add_output("where")
    with pytest.raises(UnsupportedOperator, match=r"node 'find' \(NonZero\): got 'r', which depends on data"):
        d5fw.from_model(net)
    net.set_parameter("w", np.ones((3, 2), np.float32), trainable=False)  # then inputs decide, one function for each
    got = d5fw.from_model(net).inference({"x": np.array([[0, 0, 0], [1, 0, 0]], np.float32)})
    assert_close(got["where"], np.array([[1, 1], [0, 1]]))


def test_shapes_of_weights_are_known_when_the_model_is_built() -> None:
    net = Network()
    net.add_input("x", (6,))
    net.add_parameter("w", np.ones((3, 2), np.float32))
    net.add_node("Neg", ["w"], ["m"])
    net.add_node("Shape", ["m"], ["shape"])
    net.add_node("Reshape", ["x", "shape"], ["y"])
    net.add_output("y")
    assert d5fw.from_model(net).inference({"x": np.ones(6, np.float32)})["y"].shape == (3, 2)
