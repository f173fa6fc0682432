"""Custom operators in JAX, beside what ``test_custom.py`` asks of all frameworks: XLA's threads, vmap, forward mode."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import deep500 as d5
from deep500.errors import InputError, OperatorError, UnsupportedOperator
from deep500.operators.failures import find_failure
from tests.frameworks.compiled import Product, PythonMix, mix, pair, softsign, values

pytestmark = pytest.mark.backend("jax")

jax = pytest.importorskip("jax")

import jax.numpy as jnp  # noqa: E402

import deep500.frameworks.jax as d5fw  # noqa: E402
from deep500.frameworks.jax.dtypes import enable_x64  # noqa: E402
from tests.conftest import HANG  # noqa: E402
from tests.frameworks.differentiating import face  # noqa: E402
from tests.frameworks.test_custom import formula, goal  # noqa: E402

ROOT = Path(__file__).resolve().parents[2]
FW = face("jax")


def slope(function: Callable[..., Any]) -> Callable[..., Any]:
    return jax.grad(goal(FW, function))


@pytest.mark.parametrize("make", [mix, PythonMix, lambda: d5fw.custom_op_from_native(formula(FW))], ids=FW.routes)
def test_vmap_calls_it_for_each(make: Callable[[], d5.CustomOp]) -> None:
    function, plain = d5fw.custom_op(make()), formula(FW)
    many = [np.stack(pair) for pair in zip(*(values() for _ in range(2)), strict=True)]
    many[0][1] *= 2
    got = jax.vmap(function)(*many)
    want = jax.vmap(plain)(*many)
    np.testing.assert_allclose(got[0], want[0], rtol=1e-14)
    np.testing.assert_allclose(jax.vmap(slope(function))(*many), jax.vmap(slope(plain))(*many), rtol=1e-12)
    only = jax.vmap(function, in_axes=(0, None, None))(many[0], many[1][0], many[2][0])
    np.testing.assert_allclose(only[0], want[0], rtol=1e-14)


def test_whole_numbers_have_gradients_of_no_type() -> None:
    for make in (mix, PythonMix):
        gradient = jax.grad(goal(FW, d5fw.custom_op(make())), (0, 1, 2), allow_int=True)(*values())[2]
        assert gradient.dtype == jax.dtypes.float0


@pytest.mark.parametrize("rows", [4, 400_000])  # XLA runs the larger one in a thread of its own
def test_failures_inside_compiled_programs_are_errors(rows: int) -> None:
    x, w, k = values(rows)
    x[-1, -1] = 777
    with pytest.raises((jax.errors.JaxRuntimeError, ValueError), match=r"'mix'.*status 3") as caught:  # JAX's
        jax.block_until_ready(jax.jit(d5fw.custom_op(mix()))(x, w, k))
    assert isinstance(find_failure(str(caught.value)), OperatorError)


def test_wrong_inputs_are_refused_while_jax_traces() -> None:
    x, w, k = values()
    with pytest.raises(InputError, match=r"'mix', input 0: got dtype float32"):
        jax.jit(d5fw.custom_op(mix()))(x.astype("float32"), w, k)
    for make in (mix, PythonMix):
        with pytest.raises((InputError, TypeError)):
            d5fw.custom_op(make())([1.0, "a"], w, k)


def test_what_an_operator_has_against_its_shapes_is_said_while_jax_traces() -> None:
    with pytest.raises(OperatorError, match="thirteen rows"):
        jax.eval_shape(d5fw.custom_op(mix()), *values(13))


def test_a_key_that_nobody_entered_is_an_error() -> None:
    d5fw.custom_op(mix())  # loads the bridge
    call = jax.ffi.ffi_call("deep500_call", jax.ShapeDtypeStruct((2,), "float64"))
    with pytest.raises((jax.errors.JaxRuntimeError, ValueError), match="'nobody', which is not loaded") as caught:
        jax.block_until_ready(call(jnp.ones(2), key="nobody", phase=np.int64(0), wanted=np.int64(0)))
    assert isinstance(find_failure(str(caught.value)), UnsupportedOperator)


@pytest.mark.slow
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


def test_no_forward_mode_is_an_error() -> None:
    function = d5fw.custom_op(softsign("float64"))
    with pytest.raises(UnsupportedOperator, match=r"tangents of forward mode.*gradient='enzyme'"):
        jax.jvp(function, (jnp.ones(3),), (jnp.ones(3),))


def test_outputs_that_are_not_as_inferred_are_refused() -> None:
    class Fickle(d5.CustomPythonOp):
        def forward(self, inputs):
            return inputs[0] if (inputs[0] == 1).all() else inputs[0].astype("float32")

    with pytest.raises(InputError, match="'Fickle': got an output float32"):
        d5fw.custom_op(Fickle())(jnp.zeros(3))


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
