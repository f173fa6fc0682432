"""Every gradient rule against central differences in float64, once with all sizes known and once with none."""

from __future__ import annotations

import numpy as np
import onnx
import pytest

from deep500.networks.emit import Emitter
from deep500.networks.gradients.rules import RULES, ZERO
from deep500.networks.losses import gradient_name
from deep500.networks.network import Network
from deep500.registry import load_backend
from tests.differences import slope
from tests.networks.evaluate import evaluate
from tests.networks.gradient_cases import CASES, DIFFERENT, Case
from tests.tolerances import assert_close


def build(case: Case, symbolic: bool) -> tuple[Network, dict[str, np.ndarray], list[str]]:
    """The operator between inputs and a weighted sum of its outputs, the inputs' values, and what to differentiate."""
    net, feeds, wrt, names = Network(case.name), {}, [], []
    for index, value in enumerate(case.inputs):
        name = "" if value is None else f"x{index}"
        names.append(name)
        if value is None:
            continue
        if value.dtype == np.float64 and index not in case.fixed:
            free = tuple(f"{name}_{axis}" for axis in range(value.ndim))
            # a kernel's size is part of the operator: nothing slides over windows of unknown size
            static = not symbolic or (case.op_type in ("Conv", "ConvTranspose") and index == 1)
            net.add_input(name, value.shape if static else free, "float64")
            feeds[name] = value
            wrt.append(name)
        else:
            net.add_parameter(name, value, trainable=False)
    outputs = [f"y{i}" for i in range(case.outputs)]
    net.add_node(case.op_type, names, outputs, **case.attributes)
    emit, rng = Emitter(net), np.random.default_rng(1)
    for output in (outputs[i] for i in case.through):
        net.add_output(output)
    parts = []
    for output, value in zip(net.outputs, evaluate(net, feeds, net.outputs), strict=True):
        weights = emit.constant(rng.normal(size=value.shape))
        parts.append(emit("ReduceSum", emit("Mul", output, weights), keepdims=0))
    emit("Sum", *parts, output="loss")
    net.add_output("loss")
    return net, feeds, wrt


def check_against_differences(net: Network, feeds: dict[str, np.ndarray], wrt: list[str], name: str) -> None:
    """The gradient's components along random directions equal central differences."""
    gradient = net.with_gradient("loss", wrt)
    mistyped = any(node.op_type == "GroupNormalization" for node in net.nodes)  # onnx takes its float64 for float32
    onnx.checker.check_model(gradient.to_onnx(), full_check=not mistyped)
    gradients = dict(zip(wrt, evaluate(gradient, feeds, [f"{w}.grad" for w in wrt]), strict=True))
    rng, moved = np.random.default_rng(2), False
    for target in wrt:
        assert gradients[target].shape == feeds[target].shape
        for _ in range(2):
            direction = rng.normal(size=feeds[target].shape)
            want = slope(lambda x, t=target: evaluate(net, {**feeds, t: x}, ["loss"])[0], feeds[target], direction)
            got = np.sum(gradients[target] * direction)
            assert_close(got, np.asarray(want), "finite_difference", f"{name} with respect to {target}")
            moved = moved or abs(want) > 1e-3
    assert moved, f"{name}: the loss does not depend on {wrt}, so nothing was tested"


def _compared_elsewhere(case: Case) -> bool:
    """Without sizes below, and with all sizes by the sharper answer of PyTorch in test_gradient_frameworks.py."""
    return case.symbolic and case.name not in DIFFERENT


@pytest.mark.parametrize(
    "case", [pytest.param(c, id=c.name, marks=[pytest.mark.long] if _compared_elsewhere(c) else []) for c in CASES]
)
def test_rule_matches_finite_differences(case: Case) -> None:
    check_against_differences(*build(case, symbolic=False), case.name)


@pytest.mark.parametrize("case", [c for c in CASES if c.symbolic], ids=lambda c: c.name)
def test_rule_needs_no_sizes(case: Case) -> None:
    net, feeds, wrt = build(case, symbolic=True)
    check_against_differences(net, feeds, wrt, case.name)


def test_every_rule_has_a_row() -> None:
    tested = {c.op_type for c in CASES}
    with_bodies = {"If", "Loop", "Scan"}  # tests/networks/gradients/rules/test_control.py
    assert {op for domain, op in RULES if not domain} == tested | with_bodies


def test_no_operator_is_both_zero_and_ruled() -> None:
    assert not set(ZERO) & {op for domain, op in RULES if not domain}


def test_scales_that_are_put_together_from_constants_are_known() -> None:
    """PyTorch's exporter writes ``interpolate(scale_factor=2)`` so; PyTorch differentiates it by itself."""
    torch = pytest.importorskip("torch")
    net = Network("twice")
    net.add_input("x", (1, 2, 3, 4), "float64")
    net.add_parameter("w", np.random.default_rng(0).standard_normal((1, 2, 3, 4)))
    for name in ("ones", "twos"):
        net.add_parameter(name, np.full(2, 1.0 + (name == "twos"), "float32"), trainable=False)
    net.add_node("Mul", ["x", "w"], ["y"])
    net.add_node("Concat", ["ones", "twos"], ["scales"], axis=0)
    net.add_node(
        "Resize",
        ["y", "", "scales"],
        ["z"],
        mode="nearest",
        coordinate_transformation_mode="asymmetric",
        nearest_mode="floor",
    )
    net.add_node("Mul", ["z", "z"], ["square"])
    net.add_node("ReduceMean", ["square"], ["loss"], keepdims=0)
    net.add_output("loss")
    x, w = np.random.default_rng(1).standard_normal((1, 2, 3, 4)), net.parameters["w"].value
    executor = load_backend("reference").from_model(net)
    executor.inference_and_backprop({"x": x})
    (got,) = executor.network.fetch_tensors([gradient_name("w")])
    leaf = torch.tensor(w, requires_grad=True)
    large = torch.nn.functional.interpolate(torch.tensor(x) * leaf, scale_factor=2.0, mode="nearest")
    (large * large).mean().backward()
    np.testing.assert_allclose(got, leaf.grad.numpy(), rtol=1e-12)
