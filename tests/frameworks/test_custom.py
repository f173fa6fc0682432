"""Custom operators as functions of a framework's tensors: compiled, in Python, and the framework's own functions.

What only one framework has (torch.library, jax.vmap, sizes that TensorFlow does not know) is tested beside this, in
``test_<framework>_custom.py``; custom operators as nodes, in ``test_custom_operators.py``.
"""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import deep500 as d5
from deep500.errors import InputError, NetworkError, OperatorError, UnsupportedOperator
from deep500.operators import GradientOp
from tests.frameworks.compiled import PythonMix, mix, pair, softsign, values
from tests.frameworks.differentiating import face

ROUTES = ("compiled", "python", "native")


@pytest.fixture(params=["pytorch", "tensorflow", "jax"])
def fw(request: pytest.FixtureRequest) -> SimpleNamespace:
    return face(request.param)


def formula(fw: SimpleNamespace) -> Callable[..., Any]:
    """What mix computes, in the framework's own functions; but for the address."""

    def formula(x: Any, w: Any, k: Any) -> tuple[Any, ...]:
        return x**3 * w + fw.cast(k, "float64")[:, None], fw.rows(x * w), fw.tensor(np.zeros(1, "int64"))

    return formula


def goal(fw: SimpleNamespace, function: Callable[..., Any]) -> Callable[..., Any]:
    def goal(x: Any, w: Any, k: Any) -> Any:
        y, z, _ = function(x, w, k)
        return fw.total(fw.sin(y)) + fw.total(z**2)

    return goal


def tensors(fw: SimpleNamespace, *size: int) -> list[Any]:
    return [fw.tensor(array) for array in values(*size)]


@pytest.fixture(params=ROUTES)
def function(request: pytest.FixtureRequest, fw: SimpleNamespace) -> Any:
    make = {"compiled": mix, "python": PythonMix, "native": lambda: fw.d5fw.custom_op_from_native(formula(fw))}
    function = fw.d5fw.custom_op(make[request.param]())
    assert function.implementation == dict(zip(ROUTES, fw.routes, strict=True))[request.param]
    return function


def test_equals_the_formula(fw: SimpleNamespace, function: Any) -> None:
    for rows in (4, 7):
        arrays = tensors(fw, rows)
        for run in (function, fw.compiled(lambda x, w, k: tuple(function(x, w, k)))):
            for got, want in zip(run(*arrays)[:2], formula(fw)(*arrays), strict=False):
                assert got.dtype == want.dtype
                np.testing.assert_allclose(got, want, rtol=1e-14)


def test_gradients_equal_the_formula_s(fw: SimpleNamespace, function: Any) -> None:
    arrays = tensors(fw)
    want = fw.gradients(goal(fw, formula(fw)), arrays)
    for run in (goal(fw, function), fw.compiled(goal(fw, function))):
        got = fw.gradients(run, arrays)
        assert got[2] is None, "a gradient of whole numbers"
        for a, b in zip(got[:2], want, strict=False):
            np.testing.assert_allclose(a, b, rtol=1e-12, atol=1e-12)
    x, w, k = arrays
    only = fw.gradients(lambda w: goal(fw, function)(x, w, k), [w])
    np.testing.assert_allclose(only[0], want[1], rtol=1e-12)


def test_compiled_operators_run_on_the_framework_s_own_memory(fw: SimpleNamespace) -> None:
    x, w, k = tensors(fw, 64, 64)
    function = fw.d5fw.custom_op(mix())
    for run in (function, fw.compiled(lambda *a: tuple(function(*a)))):
        assert int(run(x, w, k)[2][0]) == fw.place(x)


@pytest.mark.parametrize("dtype", ["float32", "float64", "bfloat16"])
def test_dtypes(fw: SimpleNamespace, dtype: str) -> None:
    x = fw.cast(fw.tensor(np.linspace(-3, 3, 16)), dtype)
    answers = []
    for function in (fw.softsign, fw.d5fw.custom_op(softsign(dtype))):
        answers.append((function(x), *fw.gradients(lambda x, f=function: fw.total(fw.cast(f(x), "float32")), [x])))
    for want, got in zip(*answers, strict=True):
        assert got.dtype == x.dtype
        rtol = 1e-6 if dtype != "bfloat16" else 0.02
        np.testing.assert_allclose(fw.cast(got, "float64"), fw.cast(want, "float64"), rtol=rtol)


def test_other_ranks_and_no_elements(fw: SimpleNamespace) -> None:
    function = fw.d5fw.custom_op(softsign())
    for shape in ((), (0, 3), (2, 1, 3)):
        assert function(fw.tensor(np.ones(shape, "float32"))).shape == shape


@pytest.mark.parametrize("make", [mix, PythonMix])
def test_a_gradient_node_s_operator(fw: SimpleNamespace, make: Callable[[], d5.CustomOp]) -> None:
    arrays = tensors(fw)
    outputs = formula(fw)(*arrays)
    grads = [fw.sin(outputs[0] + np.pi / 2), 2 * outputs[1], outputs[2]]
    want = fw.gradients(goal(fw, formula(fw)), arrays)
    operator = fw.d5fw.custom_op(GradientOp(make(), 3))
    route = fw.routes[1] if fw.name == "pytorch" else fw.d5fw.custom_op(make()).implementation
    assert operator.implementation == route  # torch.library has all of them
    *got, of_integers = operator(*grads, *arrays, *outputs)
    for a, b in zip(got, want, strict=False):
        np.testing.assert_allclose(a, b, rtol=1e-12)
    np.testing.assert_array_equal(of_integers, 0)
    with pytest.raises((InputError, NetworkError)):
        operator(grads[0][:, :2], *grads[1:], *arrays, *outputs)


def test_wrong_inputs_are_refused_before_they_run(fw: SimpleNamespace) -> None:
    x, w, k = tensors(fw)
    for make in (mix, PythonMix):
        function = fw.d5fw.custom_op(make())
        for wrong in ((x, w[:2], k), (x, w)):
            with pytest.raises(InputError):
                function(*wrong)
    with pytest.raises(InputError, match=r"'mix', input 0: got dtype float32"):
        fw.d5fw.custom_op(mix())(fw.cast(x, "float32"), w, k)
    with pytest.raises(InputError, match="expected a CustomOp"):
        fw.d5fw.custom_op(formula(fw))


def test_failures_of_the_code_are_errors(fw: SimpleNamespace) -> None:
    x, w, k = values()
    x[-1, -1] = 777
    broken = [fw.tensor(array) for array in (x, w, k)]
    with pytest.raises(OperatorError, match=r"'mix'.*status 3"):
        fw.d5fw.custom_op(mix())(*broken)
    with pytest.raises((InputError, NetworkError), match=r"'PythonMix': got ZeroDivisionError \(777\)"):
        fw.d5fw.custom_op(PythonMix())(*broken)
    with pytest.raises(OperatorError, match="thirteen rows"):
        fw.d5fw.custom_op(mix())(*tensors(fw, 13))


def test_no_gradient_and_no_second_derivative_are_errors(fw: SimpleNamespace) -> None:
    class Opaque(d5.CustomPythonOp):
        def forward(self, inputs):
            return inputs[0] * 1

    x, k = fw.tensor(np.ones((3, 1))), fw.tensor(np.zeros(3, "int64"))
    with pytest.raises(UnsupportedOperator, match=r"'Opaque'.*(its gradient|has a backward)"):
        fw.gradients(lambda x: fw.total(fw.d5fw.custom_op(Opaque())(x)), [x])
    compiled, python = fw.d5fw.custom_op(softsign("float64")), fw.d5fw.custom_op(PythonMix())
    for run in (compiled, lambda x: python(x, x, k)[0]):
        with pytest.raises(UnsupportedOperator, match=r"second derivative|gradient of its gradient"):
            fw.second(lambda x, run=run: fw.total(run(x)), [x])


def test_second_derivatives_of_enzyme_s_operators(fw: SimpleNamespace) -> None:
    function = fw.d5fw.custom_op(pair())
    arrays = [fw.tensor(array[:, 0].copy()) for array in values()[:2]]
    want, got = (
        fw.second(lambda x, w, f=f: fw.total(fw.sin(f(x, w))), arrays) for f in (lambda x, w: x**3 * w, function)
    )
    for a, b in zip(got, want, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-12, atol=1e-12)


def test_isolated_operators_take_the_route_of_python(fw: SimpleNamespace) -> None:
    function = fw.d5fw.custom_op(mix(isolate=True))
    assert function.implementation == fw.routes[1]
    np.testing.assert_allclose(function(*tensors(fw))[1], formula(fw)(*tensors(fw))[1], rtol=1e-14)


def test_native_functions_are_operators_for_everybody(fw: SimpleNamespace) -> None:
    op = fw.d5fw.custom_op_from_native(formula(fw))
    x, w, k = values()
    known = [d5.tensordesc((4, 3), "float64")] * 2 + [d5.tensordesc((4,), "int64")]
    assert [str(descriptor) for descriptor in op.infer(known)] == ["float64[4x3]", "float64[4]", "int64[1]"]
    outputs = op.run([x, w, k])
    np.testing.assert_allclose(outputs[0], PythonMix()(x, w, k)[0], rtol=1e-14)
    grads = [np.cos(outputs[0]), outputs[1], outputs[2]]
    got, want = (operator.run_backward(grads, [x, w, k], outputs) for operator in (op, PythonMix()))
    for a, b in zip(got, want, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-12)
