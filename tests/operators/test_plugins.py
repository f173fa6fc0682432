"""The operators that come with Deep500: values against formulas, gradients against differences and PyTorch's, in every
backend."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest

import deep500 as d5
from deep500.networks import Network
from deep500.operators import find_operator, operator_names
from tests.tolerances import as_numpy, assert_close

pytestmark = pytest.mark.slow

RNG = np.random.default_rng(4)


def gelu(x):
    return x * (1 + np.tanh(np.sqrt(2 / np.pi) * (x + 0.044715 * x**3))) / 2


def mish(x):
    return x * np.tanh(np.log1p(np.exp(x)))


def rmsnorm(x, weight):
    return x / np.sqrt((x**2).mean(-1, keepdims=True) + 1e-5) * weight


def attention(q, k, v, causal=False):
    scores = np.einsum("nhle,nhse->nhls", q, k) / np.sqrt(q.shape[-1])
    if causal:
        scores = np.where(np.tri(*scores.shape[-2:], dtype=bool), scores, -np.inf)
    weights = np.exp(scores - scores.max(-1, keepdims=True))
    return np.einsum("nhls,nhsv->nhlv", weights / weights.sum(-1, keepdims=True), v)


def softplus_conv(x, w, b, pad=0, stride=1):
    x = np.pad(x, [(0, 0), (0, 0), (pad, pad), (pad, pad)])
    windows = np.lib.stride_tricks.sliding_window_view(x, w.shape[2:], (2, 3))[:, :, ::stride, ::stride]
    return np.logaddexp(0, np.einsum("nchwij,mcij->nmhw", windows, w) + b[:, None, None])


def torch_formula(name: str, attributes: Mapping[str, Any]) -> Callable[..., Any]:
    """PyTorch's own operator."""
    import torch.nn.functional as F

    return {
        "IPow": lambda x: x ** attributes["exponent"],
        "IPowCPP": lambda x: x ** attributes["exponent"],
        "Gelu": lambda x: F.gelu(x, approximate="tanh"),
        "Mish": F.mish,
        "RMSNorm": lambda x, w: F.rms_norm(x, w.shape, w, 1e-5),
        "ScaledDotProduct": lambda q, k, v: F.scaled_dot_product_attention(q, k, v, is_causal="causal" in attributes),
        "SoftplusConv": lambda x, w, b: F.softplus(F.conv2d(x, w, b, attributes.get("stride", 1), attributes["pad"])),
    }[name]


@dataclass(frozen=True)
class Case:
    """An operator, attributes, shapes of its inputs, and its formula in NumPy."""

    name: str
    dtype: str
    shapes: tuple[tuple[int, ...], ...]
    formula: Callable[..., np.ndarray]
    attributes: dict[str, Any] = field(default_factory=dict)

    def inputs(self) -> list[np.ndarray]:
        random = np.random.default_rng(1)
        return [random.normal(size=shape).astype(self.dtype) for shape in self.shapes]

    def operator(self) -> d5.CustomOp:
        return find_operator(self.name, self.attributes, [d5.tensordesc(s, self.dtype) for s in self.shapes])

    def __str__(self) -> str:
        return f"{self.name}-{self.dtype}"


HEADS = ((1, 2, 3, 9), (1, 2, 4, 9), (1, 2, 4, 5))
IMAGES = ((2, 2, 5, 6), (3, 2, 3, 2), (3,))
CASES = [  # the second dtype has other attributes, which costs no further build
    Case("IPow", "float64", ((3, 4),), lambda x: x * x * x, {"exponent": 3}),
    Case("IPowCPP", "float64", ((3, 4),), lambda x: x * x * x, {"exponent": 3}),
    Case("IPowCPP", "float32", ((3, 4),), lambda x: x, {"exponent": 1}),
    Case("Gelu", "float64", ((3, 4, 2),), gelu),
    Case("Gelu", "float32", ((13,),), gelu),
    Case("Mish", "float64", ((3, 4, 2),), mish),
    Case("Mish", "float32", ((13,),), mish),
    Case("RMSNorm", "float64", ((2, 3, 19), (19,)), rmsnorm),
    Case("RMSNorm", "float32", ((5, 7), (7,)), rmsnorm),
    Case("ScaledDotProduct", "float64", HEADS, attention),
    Case("ScaledDotProduct", "float32", HEADS, lambda q, k, v: attention(q, k, v, True), {"causal": 1}),
    Case("SoftplusConv", "float64", IMAGES, lambda *a: softplus_conv(*a, 1, 2), {"pad": 1, "stride": 2}),
    Case("SoftplusConv", "float32", IMAGES, softplus_conv, {"pad": 0}),
]


@pytest.mark.parametrize("case", CASES, ids=str)
def test_forward_is_the_formula(case: Case) -> None:
    result = d5.check_op_forward(case.operator(), case.inputs(), case.formula)
    assert result, result


@pytest.mark.parametrize("case", CASES, ids=str)
def test_gradient_agrees_with_differences(case: Case) -> None:
    result = d5.check_op_gradient(case.operator(), case.inputs(), precision="given")
    assert result and result.dtype == case.dtype, result


@pytest.mark.backend("pytorch")
@pytest.mark.parametrize("case", CASES, ids=str)
def test_gradient_is_that_of_pytorch(case: Case) -> None:
    import torch

    op, inputs = case.operator(), case.inputs()
    tensors = [torch.tensor(x, requires_grad=True) for x in inputs]
    want = torch_formula(case.name, case.attributes)(*tensors)
    outputs = op.run(inputs)
    assert_close(outputs[0], want, "forward")
    grad = RNG.normal(size=want.shape).astype(case.dtype)
    want.backward(torch.tensor(grad))
    for got, tensor in zip(op.run_backward([grad], inputs, outputs), tensors, strict=True):
        assert_close(got, tensor.grad, "gradient")


def network(cases: Sequence[Case]) -> Network:
    """One node per operator, all inputs parameters, the loss a weighted sum of all outputs."""
    net = Network("plugins")
    net.add_input("factor", (1,), "float64")
    parts = []
    for number, case in enumerate(cases):
        names = [f"p{number}_{i}" for i in range(len(case.shapes))]
        for name, value in zip(names, case.inputs(), strict=True):
            net.add_parameter(name, value)
        net.add_node(case.name, names, f"y{number}", name=f"node{number}", domain="deep500", **case.attributes)
        net.add_node("Mul", [f"y{number}", "factor"], f"z{number}")
        net.add_node("ReduceSum", [f"z{number}"], f"s{number}", keepdims=0)
        parts.append(f"s{number}")
        net.add_output(f"y{number}")
    net.add_node("Sum", parts, "loss")
    net.add_output("loss")
    return net


def test_as_nodes_in_every_backend(backend: ModuleType) -> None:
    """Against the operators themselves, which the tests above hold to formulas."""
    cases = [case for case in CASES if case.dtype == "float64"]
    executor = backend.from_model(network(cases))
    got = executor.inference_and_backprop({"factor": np.array([0.5])}, "loss")
    gradients = {name: as_numpy(g) for name, g in _gradients(executor).items()}
    for number, case in enumerate(cases):
        op, inputs = case.operator(), case.inputs()
        outputs = op.run(inputs)
        assert_close(as_numpy(got[f"y{number}"]), outputs[0], err_msg=str(case))
        wanted = op.run_backward([np.full_like(outputs[0], 0.5)], inputs, outputs)
        for i, want in enumerate(wanted):
            assert_close(gradients[f"p{number}_{i}"], want, "gradient", str(case))


def _gradients(executor: Any) -> dict[str, Any]:
    return {str(name): executor.network.fetch_tensors([g])[0] for name, g in executor.network.gradient("loss")}


@pytest.mark.long
def test_fast_maths_holds_where_exponentials_overflow() -> None:
    x = np.concatenate([[-1000, -100, -11, 0, 11, 100, 1000], np.linspace(-6, 6, 57)]).astype(np.float32)
    for name, formula in (("Gelu", gelu), ("Mish", lambda x: x * np.tanh(np.logaddexp(0, x)))):
        fast = find_operator(name, {"fast_math": 1}, [d5.tensordesc(x.shape)])
        strict = find_operator(name, {}, [d5.tensordesc(x.shape)])
        y = strict.run([x])
        assert_close(fast.run([x])[0], formula(x.astype(np.float64)), dtype="float32")
        got, want = (op.run_backward([np.ones_like(x)], [x], y)[0] for op in (fast, strict))
        assert np.isfinite(want).all()
        assert_close(got, want, "gradient")


@pytest.mark.parametrize(
    ("name", "attributes", "shapes", "said"),
    [
        ("IPow", {"exponent": 0}, [(3,)], "got exponent 0; expected a whole number of at least 1"),
        ("SoftplusConv", {"stride": 0}, IMAGES, "got pad 0, stride 0"),
        ("SoftplusConv", {"pad": 0}, [(1, 1, 2, 2), (1, 1, 3, 3), (1,)], "got size 2 with pad 0 and a filter of 3"),
        ("RMSNorm", {}, [(2, 3), (4,)], "got float32[4]; expected float32[D] with {"),
        ("ScaledDotProduct", {}, [(1, 1, 2, 3), (1, 1, 2, 4), (1, 1, 2, 4)], "expected float32[N"),
        ("Mish", {"speed": 1}, [(3,)], "got attributes {'speed': 1}; expected those of"),
    ],
)
def test_wrong_use_is_an_error_before_anything_runs(name: str, attributes: dict, shapes: list, said: str) -> None:
    """Where nothing needs to be compiled for it, nothing is."""
    described = [d5.tensordesc(shape) for shape in shapes]
    with pytest.raises(d5.errors.InputError) as caught:
        find_operator(name, attributes, described).infer(described)
    assert said in str(caught.value)


def test_finding_plugins_compiles_nothing(tmp_path: Path) -> None:
    code = "from deep500.operators import operator_names; print(*operator_names())"
    done = subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, "DEEP500_CACHE": str(tmp_path / "cache")},
        capture_output=True,
        text=True,
        check=True,
    )
    assert {case.name for case in CASES} <= set(done.stdout.split())
    assert not (tmp_path / "cache").exists()


def test_every_plugin_is_tested_and_says_what_it_is() -> None:
    folders = {path.parent.name for path in (Path(d5.__file__).parent / "custom_ops").glob("*/__init__.py")}
    names = "collectives ctc_loss gelu ipow macro_f1 mish rmsnorm scaled_dot_product softplus_conv"
    assert folders == set(names.split())
    assert {case.name for case in CASES} <= set(operator_names())
