"""Custom operators as functions of JAX arrays: by XLA's custom call, by a callback, and JAX's own functions."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest

import deep500 as d5
from deep500.errors import InputError, OperatorError, UnsupportedOperator
from deep500.networks import Network, add_loss, replace_operator
from deep500.operators import GradientOp
from deep500.operators.failures import find_failure
from tests.frameworks.compiled import PythonMix, mix, pair, softsign, values

pytestmark = pytest.mark.backend("jax")

jax = pytest.importorskip("jax")

import jax.numpy as jnp  # noqa: E402

import deep500.frameworks.jax as d5fw  # noqa: E402
from deep500.frameworks.jax.dtypes import enable_x64  # noqa: E402
from tests.conftest import HANG  # noqa: E402

ROOT = Path(__file__).resolve().parents[2]


def formula(x: Any, w: Any, k: Any) -> tuple[Any, Any, Any]:
    return x**3 * w + k[:, None], (x * w).sum(1), jnp.zeros(1, "int64")


def goal(function: Callable[..., Any]) -> Callable[..., Any]:
    def goal(x: Any, w: Any, k: Any) -> Any:
        y, z, _ = function(x, w, k)
        return jnp.sum(jnp.sin(y)) + jnp.sum(z**2)

    return goal


MADE = {"xla_ffi": mix, "pure_callback": PythonMix, "native": lambda: d5fw.custom_op_from_native(formula)}


@pytest.fixture(params=MADE)
def function(request: pytest.FixtureRequest) -> Any:
    made = d5fw.custom_op(MADE[request.param]())
    assert made.implementation == request.param
    return made


def test_equals_the_formula(function: Any) -> None:
    arrays = values()
    for run in (function, jax.jit(function), jax.jit(lambda x, w, k: tuple(function(x, w, k)))):
        for got, want in zip(run(*arrays)[:2], formula(*arrays), strict=False):
            assert got.dtype == want.dtype
            np.testing.assert_allclose(got, want, rtol=1e-14)


def test_gradients_equal_the_formula_s(function: Any) -> None:
    arrays = values()
    want = jax.grad(goal(formula), (0, 1))(*arrays)
    for run in (jax.grad(goal(function), (0, 1)), jax.jit(jax.grad(goal(function), (0, 1)))):
        for got, expected in zip(run(*arrays), want, strict=True):
            np.testing.assert_allclose(got, expected, rtol=1e-12, atol=1e-12)
    np.testing.assert_allclose(jax.grad(goal(function), 1)(*arrays), want[1], rtol=1e-12)  # only one is wanted
    _, _, of_integers = jax.grad(goal(function), (0, 1, 2), allow_int=True)(*arrays)
    assert of_integers.dtype == jax.dtypes.float0


def test_vmap_calls_it_for_each(function: Any) -> None:
    many = [np.stack(pair) for pair in zip(*(values() for _ in range(2)), strict=True)]
    many[0][1] *= 2
    got = jax.vmap(function)(*many)
    want = jax.vmap(formula)(*many)
    np.testing.assert_allclose(got[0], want[0], rtol=1e-14)
    slopes = jax.vmap(jax.grad(goal(function)))(*many)
    np.testing.assert_allclose(slopes, jax.vmap(jax.grad(goal(formula)))(*many), rtol=1e-12)
    only = jax.vmap(function, in_axes=(0, None, None))(many[0], many[1][0], many[2][0])
    np.testing.assert_allclose(only[0], want[0], rtol=1e-14)


def test_compiled_operators_run_on_xla_s_own_memory() -> None:
    x, w, k = map(jnp.asarray, values(64, 64))
    for run in (d5fw.custom_op(mix()), jax.jit(d5fw.custom_op(mix()))):
        assert int(run(x, w, k)[2][0]) == x.unsafe_buffer_pointer()


@pytest.mark.parametrize("dtype", ["float32", "float64", "bfloat16"])
def test_dtypes(dtype: str) -> None:
    x = jnp.asarray(np.linspace(-3, 3, 16)).astype(dtype)
    function = d5fw.custom_op(softsign(dtype))
    want, got = (
        jax.value_and_grad(lambda x, f=f: f(x).astype("float32").sum())(x) for f in (jax.nn.soft_sign, function)
    )
    assert got[1].dtype == dtype
    for a, b in zip(got, want, strict=True):
        np.testing.assert_allclose(a.astype("float64"), b.astype("float64"), rtol=1e-6 if dtype != "bfloat16" else 0.02)


def test_other_ranks_and_no_elements() -> None:
    function = d5fw.custom_op(softsign())
    for shape in ((), (0, 3), (2, 1, 3)):
        assert function(jnp.ones(shape, "float32")).shape == shape


@pytest.mark.parametrize("make", [mix, PythonMix])
def test_a_gradient_node_s_operator(make: Callable[[], d5.CustomOp]) -> None:
    arrays = [*map(jnp.asarray, values())]
    outputs = formula(*arrays)
    grads = [jnp.cos(outputs[0]), 2 * outputs[1], outputs[2]]
    want = jax.grad(goal(formula), (0, 1))(*arrays)
    operator = d5fw.custom_op(GradientOp(make(), 3))
    assert operator.implementation == d5fw.custom_op(make()).implementation
    *got, of_integers = operator(*grads, *arrays, *outputs)
    for a, b in zip(got, want, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-12)
    np.testing.assert_array_equal(of_integers, 0)
    with pytest.raises(InputError):
        operator(grads[0][:, :2], *grads[1:], *arrays, *outputs)


def test_wrong_inputs_are_refused_before_they_run() -> None:
    x, w, k = values()
    for make in (mix, PythonMix):
        function = d5fw.custom_op(make())
        for wrong in ((x, w[:2], k), (x, w), ([1.0, "a"], w, k)):
            with pytest.raises((InputError, TypeError)):
                function(*wrong)
    function = d5fw.custom_op(mix())
    with pytest.raises(InputError, match=r"'mix', input 0: got dtype float32"):
        jax.jit(function)(x.astype("float32"), w, k)
    with pytest.raises(InputError, match="expected a CustomOp"):
        d5fw.custom_op(formula)


@pytest.mark.parametrize("rows", [4, 400_000])  # XLA runs the larger one in a thread of its own
def test_failures_of_the_code_are_errors(rows: int) -> None:
    x, w, k = values(rows)
    x[-1, -1] = 777
    with pytest.raises(OperatorError, match=r"'mix'.*status 3"):
        d5fw.custom_op(mix())(x, w, k)
    with pytest.raises(InputError, match=r"'PythonMix': got ZeroDivisionError \(777\)"):
        d5fw.custom_op(PythonMix())(x, w, k)
    with pytest.raises((jax.errors.JaxRuntimeError, ValueError), match=r"'mix'.*status 3") as caught:  # JAX's
        jax.block_until_ready(jax.jit(d5fw.custom_op(mix()))(x, w, k))
    assert isinstance(find_failure(str(caught.value)), OperatorError)


def test_what_an_operator_has_against_its_shapes_is_said_while_jax_traces() -> None:
    with pytest.raises(OperatorError, match="thirteen rows"):
        jax.eval_shape(d5fw.custom_op(mix()), *values(13))


def test_a_key_that_nobody_entered_is_an_error() -> None:
    d5fw.custom_op(mix())  # loads the bridge
    call = jax.ffi.ffi_call("deep500_call", jax.ShapeDtypeStruct((2,), "float64"))
    with pytest.raises((jax.errors.JaxRuntimeError, ValueError), match="'nobody', which is not loaded") as caught:
        jax.block_until_ready(call(jnp.ones(2), key="nobody", phase=np.int64(0), wanted=np.int64(0)))
    assert isinstance(find_failure(str(caught.value)), UnsupportedOperator)


def test_no_gradient_and_no_second_derivative_are_errors() -> None:
    class Opaque(d5.CustomPythonOp):
        def forward(self, inputs):
            return inputs[0] * 1

    x = jnp.ones(3)
    with pytest.raises(UnsupportedOperator, match=r"'Opaque'.*its gradient"):
        jax.grad(lambda x: d5fw.custom_op(Opaque())(x).sum())(x)
    compiled, python = d5fw.custom_op(softsign("float64")), d5fw.custom_op(PythonMix())
    for run in (compiled, lambda x: python(x, x, jnp.zeros(3, "int64"))[0]):
        with pytest.raises(UnsupportedOperator, match="second derivative"):
            jax.jacrev(jax.grad(lambda x, run=run: run(x).sum()))(jnp.ones((3, 1)))


def test_second_derivatives_of_enzyme_s_operators() -> None:
    function = d5fw.custom_op(pair())
    x, w = (jnp.asarray(array[:, 0]) for array in values()[:2])

    def goal(f: Callable[..., Any]) -> Callable[..., Any]:
        return lambda x, w: jnp.sum(jnp.sin(f(x, w)))

    want, got = (
        jax.jit(jax.jacrev(jax.grad(goal(f), (0, 1)), (0, 1)))(x, w) for f in (lambda x, w: x**3 * w, function)
    )
    for a, b in zip(jax.tree.leaves(got), jax.tree.leaves(want), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-12, atol=1e-12)
    one_only = jax.jacrev(jax.grad(goal(function)))(x, w)
    np.testing.assert_allclose(one_only, want[0][0], rtol=1e-12, atol=1e-12)


def test_forward_mode_and_hessians_of_enzyme_s_operators() -> None:
    x, w = (jnp.asarray(array[:, 0]) for array in values()[:2])
    v, u = x[::-1], w[::-1]

    def formula(x: Any, w: Any) -> Any:
        return jnp.sin(x**3 * w)

    for operator in (pair(), Product()):
        function = d5fw.custom_op(operator)

        def own(x: Any, w: Any, function: Any = function) -> Any:
            outputs = function(x, w)
            return jnp.sin(outputs[0] if isinstance(outputs, tuple) else outputs)

        for transform in (
            lambda f: jax.jvp(f, (x, w), (v, u)),
            lambda f: jax.jit(jax.jacfwd(f))(x, w),
            lambda f: jax.hessian(lambda *a: f(*a).sum(), (0, 1))(x, w),
            lambda f: jax.jit(jax.hessian(lambda x: f(x, w).sum()))(x),
            lambda f: jax.vmap(lambda x: jax.jvp(f, (x, w), (v, u))[1])(jnp.stack([x, v])),
            lambda f: jax.grad(lambda w: jax.checkpoint(f)(x, w).sum())(w),
        ):
            for got, want in zip(jax.tree.leaves(transform(own)), jax.tree.leaves(transform(formula)), strict=True):
                np.testing.assert_allclose(got, want, rtol=1e-12, atol=1e-12)
        with pytest.raises(UnsupportedOperator, match="at most forward mode over reverse mode"):
            jax.jacfwd(jax.jacfwd(own))(x, w)


class Product(d5.CustomPythonOp):
    """x^3 w and x rounded, with all derivatives that operators have whose gradient Enzyme made."""

    signature: ClassVar = {"jvp": True, "hvp": True}

    def forward(self, inputs):
        return [inputs[0] ** 3 * inputs[1], np.rint(inputs[0]).astype("int64")]

    def backward(self, grads, fwd_inputs, fwd_outputs):
        x, w = fwd_inputs
        return [3 * x**2 * w * grads[0], x**3 * grads[0]]

    def jvp(self, inputs, tangents):
        (x, w), (v, u) = inputs, tangents
        return self.forward(inputs), [3 * x**2 * w * v + x**3 * u, np.zeros(x.shape, "int64")]

    def hvp(self, grads, inputs, tangents):
        (x, w), (v, u) = inputs, tangents
        return [grads[0] * (6 * x * w * v + 3 * x**2 * u), grads[0] * 3 * x**2 * v]


def test_no_forward_mode_is_an_error() -> None:
    function = d5fw.custom_op(softsign("float64"))
    with pytest.raises(UnsupportedOperator, match=r"tangents of forward mode.*gradient='enzyme'"):
        jax.jvp(function, (jnp.ones(3),), (jnp.ones(3),))


def test_isolated_operators_take_the_callback() -> None:
    function = d5fw.custom_op(mix(isolate=True))
    assert function.implementation == "pure_callback"
    arrays = values()
    np.testing.assert_allclose(jax.jit(function)(*arrays)[1], formula(*arrays)[1], rtol=1e-14)


def test_outputs_that_are_not_as_inferred_are_refused() -> None:
    class Fickle(d5.CustomPythonOp):
        def forward(self, inputs):
            return inputs[0] if (inputs[0] == 1).all() else inputs[0].astype("float32")

    with pytest.raises(InputError, match="'Fickle': got an output float32"):
        d5fw.custom_op(Fickle())(jnp.zeros(3))


def test_native_functions_are_operators_for_everybody() -> None:
    op = d5fw.custom_op_from_native(formula)
    x, w, k = values()
    assert op.infer([d5.tensordesc((4, 3), "float64")] * 2 + [d5.tensordesc((4,), "int64")])[1:] == [
        d5.tensordesc((4,), "float64"),
        d5.tensordesc((1,), "int64"),
    ]
    outputs = op.run([x, w, k])
    np.testing.assert_allclose(outputs[0], PythonMix()(x, w, k)[0], rtol=1e-14)
    grads = [np.cos(outputs[0]), outputs[1], outputs[2]]
    got, want = (operator.run_backward(grads, [x, w, k], outputs) for operator in (op, PythonMix()))
    for a, b in zip(got, want, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-12)


def test_a_network_trains_as_with_the_native_operator() -> None:
    rng = np.random.default_rng(5)
    net = Network("two layers")
    net.add_input("x", ("N", 6))
    for name, shape in {"w1": (6, 8), "w2": (8, 3)}.items():
        net.add_parameter(name, rng.normal(size=shape).astype("float32"))
    net.add_node("MatMul", ["x", "w1"], "a")
    net.add_node("Softsign", "a", "b", name="act")
    net.add_node("MatMul", ["b", "w2"], "output")
    net.add_output("output")
    net = add_loss(net)
    custom = replace_operator(net, "Softsign", "TestCompiledSoftsign", domain="deep500")
    optimizers = [
        d5fw.MomentumOptimizer(d5fw.from_model(network), "loss", lr=0.5, momentum=0.9) for network in (net, custom)
    ]
    for rows in (7, 7, 5):
        batch = {"x": rng.normal(size=(rows, 6)).astype("float32"), "label": rng.integers(0, 3, rows)}
        want, got = (optimizer.step(batch)["loss"] for optimizer in optimizers)
        np.testing.assert_allclose(got, want, rtol=1e-5)
    for name, old in ((n, p.value) for n, p in net.parameters.items()):
        want, got = (optimizer.executor.network.fetch_tensors([name])[0] for optimizer in optimizers)
        np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-6)
        assert not np.allclose(want, old)


def test_a_failure_in_a_network_is_ours() -> None:
    net = Network("mixed")
    for name, shape, dtype in (("x", ("N", 3), "float64"), ("w", ("N", 3), "float64"), ("k", ("N",), "int64")):
        net.add_input(name, shape, dtype)
    net.add_node("TestCompiledMix", ["x", "w", "k"], ["y", "z"], name="mixed", domain="deep500")
    net.add_output("z")
    executor = d5fw.from_model(net)
    x, w, k = values()
    np.testing.assert_allclose(executor.inference({"x": x, "w": w, "k": k})["z"], formula(x, w, k)[1], rtol=1e-14)
    x[1, 1] = 777
    with pytest.raises(OperatorError, match="status 3"):
        executor.inference({"x": x, "w": w, "k": k})


def test_without_64_bits() -> None:
    x = np.linspace(-1, 1, 5, dtype="float32")
    with enable_x64(False):
        function = d5fw.custom_op(softsign())
        np.testing.assert_allclose(jax.grad(lambda x: function(x).sum())(x), (1 + abs(x)) ** -2.0, rtol=1e-6)


SCRIPT = """
import sys
import jax, numpy as np
hits = []
jax.monitoring.register_event_listener(lambda name, **_: hits.append(name) if name.endswith("cache_hits") else None)
import deep500.frameworks.jax as d5fw
from tests.frameworks.compiled import mix, values
_ballast = bytearray(int(sys.argv[1]))
run = jax.jit(lambda *a: d5fw.custom_op(mix())(*a))
x, w, k = values()
np.testing.assert_allclose(run(x, w, k)[0], x**3 * w + k[:, None], rtol=1e-14)
print(len(hits))
"""


def test_compiled_programs_on_disk_are_good_in_the_next_process(tmp_path: Path) -> None:
    settings = {"JAX_COMPILATION_CACHE_DIR": str(tmp_path), "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0"}
    hits = []
    for ballast in ("1", "50000000"):
        done = subprocess.run(
            [sys.executable, "-c", SCRIPT, ballast],
            capture_output=True,
            text=True,
            env={**os.environ, **settings},
            cwd=ROOT,
            timeout=HANG,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        hits.append(int(done.stdout))
    assert hits[0] == 0 < hits[1]
