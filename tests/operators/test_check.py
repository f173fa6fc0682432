"""`check_op_forward` and `check_op_gradient`: what is wrong is caught, what is right is not suspected."""

from __future__ import annotations

import numpy as np
import pytest

import deep500 as d5
from deep500.errors import InputError, UnsupportedOperator
from deep500.operators.differences import epsilon
from tests.operators.gradient_table import CASES, Backward, Case, Given, mutants

RNG = np.random.default_rng(0)
MIXES = [("float64", False), ("float64", True), ("float32", False), ("float32", True)]


def is_wrong(case: Case, backward: Backward, dtype: str, large: bool) -> bool:
    """Whether a mutant gives another gradient, by more than rounding."""
    inputs = case.inputs(dtype, 0, large)
    outputs = case.operator(dtype).run(inputs)
    random = np.random.default_rng(1)
    grads = [random.normal(size=y.shape).astype(dtype) for y in outputs]
    pairs = zip(*(case.operator(dtype, b).run_backward(grads, inputs, outputs) for b in (backward, None)), strict=True)
    return any(not np.allclose(got, want, rtol=1e-3, atol=1e-3 * np.abs(want).max()) for got, want in pairs)


@pytest.mark.parametrize(("dtype", "large"), MIXES)
def test_wrong_gradients_are_caught(dtype: str, large: bool) -> None:
    missed, seeded = [], 0
    for case in CASES:
        for name, backward in mutants(case):
            if is_wrong(case, backward, dtype, large):
                seeded += 1
                result = d5.check_op_gradient(case.operator(dtype, backward), case.inputs(dtype, 0, large), seed=3)
                assert result.method == ("directional" if large else "full Jacobian")
                if result.ok or result.worst.excess <= 1:
                    missed.append(name)
    assert seeded >= 250
    assert len(missed) <= 0.01 * seeded, missed


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_right_gradients_are_not_suspected(case: Case) -> None:
    for dtype, large in MIXES:
        for seed in range(2 if large else 5):
            result = d5.check_op_gradient(case.operator(dtype), case.inputs(dtype, seed, large), seed=seed)
            assert result.ok, f"seed {seed}: {result}"


@pytest.mark.parametrize("dtype", ["float16", "float32"])
def test_no_false_alarm_in_low_precision_over_many_seeds(dtype: str) -> None:
    """Backwards are computed in the low precision too; float16 makes most differences noise."""
    suspected = []
    for case in (c for c in CASES if c.name in ("softmax", "rmsnorm", "attention", "relu", "swish")):
        for seed in range(40):
            result = d5.check_op_gradient(case.operator(dtype), case.inputs(dtype, seed), seed=seed)
            if result.worst.excess > 1:
                suspected.append(f"{case.name}, seed {seed}: {result}")
    assert not suspected, "\n".join(suspected)


def check_square(gradient, inputs, **options):
    """`check_op_gradient` of x squared with some gradient."""
    return d5.check_op_gradient(Given(lambda x: [x * x], gradient, [str(inputs[0].dtype)]), inputs, **options)


def test_the_wrong_element_of_a_large_input_is_named() -> None:
    x = np.random.default_rng(0).normal(size=(100, 100)).astype(np.float32)

    def wrong(g, i, o):
        gradient = 2 * g[0] * i[0]
        gradient[31, 7] = 0
        return [gradient]

    result = check_square(wrong, [x])
    assert not result.ok and result.method == "directional"
    assert (result.worst.input, result.worst.index, result.worst.got) == (0, (31, 7), 0.0)
    assert "gradient of a weighted sum of the outputs by input 0[31, 7]: got 0, expected" in str(result)


def test_cost_of_directions_does_not_depend_on_sizes() -> None:
    calls = []
    for size in (1_000, 100_000):
        counts = [0]

        def forward(x, counts=counts):
            counts[0] += 1
            return [x * x]

        op = Given(forward, lambda g, i, o: [2 * g[0] * i[0]], ["float64"])
        assert d5.check_op_gradient(op, [np.random.default_rng(0).normal(size=size)])
        calls.append(counts[0])
    assert calls[0] == calls[1] < 60


def test_kinks_at_the_point_accept_any_slope_between_and_no_other() -> None:
    x = np.array([0.0, 1.0, -2.0, 3.0])

    def relu(slope):
        return lambda g, i, o: [g[0] * np.where(i[0] > 0, 1.0, np.where(i[0] == 0, slope, 0.0))]

    for slope in (0.0, 0.5, 1.0):
        assert d5.check_op_gradient(Given(lambda x: [np.maximum(x, 0)], relu(slope), ["float64"]), [x])
    assert not d5.check_op_gradient(Given(lambda x: [np.maximum(x, 0)], relu(3.0), ["float64"]), [x])


def test_what_cannot_be_judged_is_not_ok() -> None:
    x = np.random.default_rng(0).normal(size=5).astype(np.float32)
    noisy = Given(lambda x: [x + np.float32(1e7)], lambda g, i, o: [g[0]], ["float32"])
    result = d5.check_op_gradient(noisy, [x])
    assert not result.ok and result.worst.excess <= 1
    assert "too noisy" in result.problems[0]


def test_noise_inside_forward_is_noticed() -> None:
    """Values of size one that lost their digits on the way: no dtype tells that."""
    op = Given(lambda x: [(x + np.float32(1e4)) - np.float32(1e4)], lambda g, i, o: [g[0]], ["float32"])
    result = d5.check_op_gradient(op, [np.random.default_rng(0).normal(size=20).astype(np.float32)])
    assert result.worst.excess <= 1 and result.noise > 1e-2 and not result.ok


class Cube(d5.CustomPythonOp):
    """An operator for any dtype."""

    def forward(self, inputs):
        return inputs[0] ** 3

    def backward(self, grads, fwd_inputs, fwd_outputs):
        return 3 * grads[0] * fwd_inputs[0] ** 2


def test_precision() -> None:
    x = [np.linspace(0.5, 1.5, 7, dtype=np.float32)]
    assert "converted to float64" in d5.check_op_gradient(Cube(), x).condition
    assert d5.check_op_gradient(Cube(), x).noise < 1e-9
    given = d5.check_op_gradient(Cube(), x, precision="given")
    assert given.ok and given.dtype == "float32" and given.noise > 1e-8

    class Narrow(Cube):
        def forward(self, inputs):
            return np.float32(inputs[0]) ** 3

    assert "computes in less" in d5.check_op_gradient(Narrow(), x).condition

    class Picky(Cube):
        def forward(self, inputs):
            if inputs[0].dtype != np.float32:
                raise TypeError("float32 only")
            return inputs[0] ** 3

    result = d5.check_op_gradient(Picky(), x)
    assert result.ok and "refuses (TypeError: float32 only)" in result.condition


def test_integers_are_skipped_and_inputs_can_be_chosen() -> None:
    def forward(x, w, n):
        return [x * w * n, n + 1]

    def backward(g, i, o):
        return [g[0] * i[1] * i[2], None, None]  # none by w

    class Op(d5.CustomPythonOp):
        def forward(self, inputs):
            return forward(*inputs)

        def backward(self, grads, fwd_inputs, fwd_outputs):
            return backward(grads, fwd_inputs, fwd_outputs)

    inputs = [np.array([1.0, 2.0]), np.array([3.0, 4.0]), np.array([2, 5])]
    assert d5.check_op_gradient(Op(), inputs, [0])
    result = d5.check_op_gradient(Op(), inputs)
    assert not result and result.worst.input == 1 and result.worst.got == 0
    with pytest.raises(InputError, match=r"got grad_inputs with \[2\]; expected some of the floating-point inputs"):
        d5.check_op_gradient(Op(), inputs, [2])
    with pytest.raises(InputError, match="no floating-point input"):
        d5.check_op_gradient(Op(), [x.astype(int) for x in inputs])


def test_bad_manners_are_problems() -> None:
    class Greedy(Cube):
        def backward(self, grads, fwd_inputs, fwd_outputs):
            gradients = super().backward(grads, fwd_inputs, fwd_outputs)
            fwd_inputs[0][0] = 7
            return gradients

    with pytest.raises(InputError, match="got a write into an array of backward"):
        d5.check_op_gradient(Greedy(), [np.array([1.0, 2.0])])

    class Random(Cube):
        def forward(self, inputs):
            return inputs[0] ** 3 + RNG.normal()

    assert "other values when called again" in str(d5.check_op_gradient(Random(), [np.array([1.0, 2.0])]))
    result = d5.check_op_gradient(Cube(), [np.array([1.0, np.inf])])
    assert not result and "not finite" in str(result)


def test_what_cannot_be_checked_is_an_error() -> None:
    class Forward(d5.CustomPythonOp):
        def forward(self, inputs):
            return inputs[0]

    with pytest.raises(UnsupportedOperator, match="got no backward to check"):
        d5.check_op_gradient(Forward(), [np.ones(2)])
    with pytest.raises(InputError, match="got method 'fast'"):
        d5.check_op_gradient(Cube(), [np.ones(2)], method="fast")


def test_forward_compares_values_shapes_and_manners() -> None:
    x = np.random.default_rng(0).normal(size=(3, 4)).astype(np.float32)
    result = d5.check_op_forward(Cube(), [x], lambda x: x * x * x)
    assert result and "forward of Cube: ok (comparison, float32, 12 numbers)" in str(result)
    wrong = x**3
    wrong[1, 2] += 0.1
    result = d5.check_op_forward(Cube(), [x], wrong)
    assert not result and result.worst.output_index == (1, 2) and "worst: output 0[1, 2]: got" in str(result)
    wrong[1, 2] = np.nan
    assert d5.check_op_forward(Cube(), [x], wrong).worst.excess == np.inf
    with pytest.raises(InputError, match="expected those of the reference"):
        d5.check_op_forward(Cube(), [x], x[0])

    class Declared(Cube):
        def infer(self, inputs):
            return [d5.tensordesc((3, 5))]

    assert "infer announces" in d5.check_op_forward(Declared(), [x], x**3).problems[0]
    counts = Given(lambda x: [x + 1], lambda g, i, o: [g[0]], ["int64"])
    assert d5.check_op_forward(counts, [np.arange(3)], [np.arange(1, 4)])
    assert not d5.check_op_forward(counts, [np.arange(3)], [np.arange(2, 5)])


def test_old_names_remain_and_are_not_collected() -> None:
    assert d5.test_op_gradient is d5.check_op_gradient and d5.test_op_forward is d5.check_op_forward
    assert not d5.test_op_gradient.__test__ and not d5.test_op_forward.__test__


def test_epsilon_of_every_floating_dtype() -> None:
    import onnx

    bfloat16 = onnx.helper.tensor_dtype_to_np_dtype(onnx.TensorProto.BFLOAT16)
    assert [epsilon(d) for d in ("float64", "float32", "float16", bfloat16)] == [2.0**-52, 2.0**-23, 2.0**-10, 2.0**-7]


@pytest.mark.backend("pytorch")
def test_a_frameworks_own_function_can_be_checked_and_timed() -> None:
    import torch

    from deep500.frameworks.pytorch import custom_op_from_native

    op = custom_op_from_native(torch.nn.Linear(4, 3), [d5.tensordesc((5, 4))], [d5.tensordesc((5, 3))])
    x = np.random.default_rng(0).normal(size=(5, 4)).astype(np.float32)
    assert d5.check_op_gradient(op, [x])
    assert d5.measure_op(op, [x], samples=6).backward.median > 0
