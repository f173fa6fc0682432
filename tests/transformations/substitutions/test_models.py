"""Equivalence on other people's models: ONNX's light models and test cases, and every network of the zoo."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import onnx.backend.test
import pytest

from deep500.compare.conformance.suite import Suite
from deep500.networks import Network, create
from deep500.networks.dtype import to_dtype
from deep500.networks.execution.inputs import make_inputs
from deep500.registry import load_backend
from deep500.transformations.substitutions.equivalence import relative_error
from deep500.transformations.substitutions.graph.importing import FORMS, import_network
from deep500.transformations.substitutions.graph.writing import export_network
from tests.conformance import ledger
from tests.networks.test_zoo import SMALL
from tests.transformations.substitutions.samples import assert_same, optimized

LONG = bool(os.environ.get("DEEP500_TEST_LONG"))
LIGHT = Path(onnx.backend.test.__file__).parent / "data" / "light"
MODELS = sorted(path.stem.removeprefix("light_") for path in LIGHT.glob("*.onnx"))
HEAVY = [("resnet50", {"shape": (3, 32, 32)}), ("inception_v3", {"shape": (3, 75, 75)}), ("vgg16", {})]
"""Only written back, unless DEEP500_TEST_LONG is set: smaller networks of the same kinds are optimized too."""
QUICK = ("squeezenet", "shufflenet")
SLOW = {"vgg19": "its float64 twin takes half a minute", "bvlc_alexnet": "seconds", "zfnet512": "seconds"}


def light(name: str) -> Network:
    """A light model in float64 without its Softmax, and with random weights instead of those of the file.

    There every weight is one number, which hides most mistakes, and probabilities that are 0 or 1 hide others.
    """
    network, rng = Network.from_onnx(LIGHT / f"light_{name}.onnx"), np.random.default_rng(0)
    described = network.descriptors()
    for node in network.nodes:
        if node.op_type == "ConstantOfShape":
            shape = described[node.outputs[0]].shape
            assert shape is not None
            fan_in = int(np.prod(shape[1:])) if len(shape) > 1 else 1  # type: ignore[arg-type]
            values = rng.normal(size=shape) * np.sqrt(2 / fan_in) if fan_in > 1 else rng.uniform(0.5, 1.5, shape)
            network.add_parameter(f"{node.outputs[0]}.random", values.astype("float32"))
            network.replace_value(node.outputs[0], f"{node.outputs[0]}.random")
            network.remove_node(node.name)
    last = next(node for node in network.nodes if network.outputs[0] in node.outputs)
    if last.op_type == "Softmax":
        network.remove_output(last.outputs[0])
        network.remove_node(last.name)
        network.add_output(last.inputs[0])
    return to_dtype(network, "float64")


def exported(network: Network, training: bool = False) -> Network:
    """Into the rule language and out of it again, with nothing rewritten."""
    result = import_network(network, training)
    return export_network(result, result.graph)


# -- the zoo ----------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize(("name", "options"), SMALL, ids=[f"{name} {options}" for name, options in SMALL])
def test_the_zoo_stays_equivalent(name: str, options: dict[str, Any]) -> None:
    network = create(name, **options)
    if (name, options) in HEAVY and not LONG:
        assert_same(network, exported(network), 1e-4, N=3)
        return
    double = to_dtype(network, "float64")
    assert_same(double, exported(double), 1e-12, N=3)
    assert_same(double, exported(double, training=True), 1e-12, N=3)
    result = optimized(network, budget=1.0)
    assert (result.equivalence is None) == (result.chosen is None)
    assert_same(network, result.network, 1e-4, N=3)


@pytest.mark.parametrize("addend", [None, (), (1,), (4,), (1, 4), (4, 1), (4, 4)], ids=str)
@pytest.mark.parametrize(("first", "second"), [(0, 0), (0, 1), (1, 0), (1, 1)])
def test_products_of_square_matrices(first: int, second: int, addend: tuple[int, ...] | None) -> None:
    """Where shapes fit either way only values tell which side was transposed, and along which axis was added."""
    network, rng = Network("square"), np.random.default_rng(2)
    network.add_input("x", (4, 4), "float64")
    network.add_parameter("w", rng.normal(size=(4, 4)))
    if addend is not None:
        network.add_parameter("c", rng.normal(size=addend))
    inputs = ["x", "w", *(["c"] * (addend is not None))]
    network.add_node("Gemm", inputs, ["y"], transA=first, transB=second)
    network.add_output("y")
    assert_same(network, exported(network), 1e-14)
    assert_same(network, optimized(network).network, 1e-14)


# -- light models -----------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("name", MODELS)
def test_light_models_stay_equivalent(name: str) -> None:
    if name in SLOW and not LONG:
        pytest.skip(f"{SLOW[name]}: set DEEP500_TEST_LONG=1 to have it")
    network = light(name)
    (output,) = network.outputs
    inputs, backend = make_inputs(network, None, 0), load_backend("reference")
    want = backend.from_model(network).inference(inputs)[output]
    assert np.std(want) > 1e-3 and len(np.unique(want)) > 500
    networks = [exported(network), exported(network, training=True)]
    if LONG or name in QUICK:
        result = optimized(network, budget=30.0 if LONG else 1.0)
        assert result.chosen is None or result.equivalence is not None
        networks.append(result.network)
    for variant in networks:
        assert variant.inputs == network.inputs
        assert relative_error(backend.from_model(variant).inference(inputs)[output], want) <= 1e-10


# -- ONNX's own test cases --------------------------------------------------------------------------------------------
@pytest.fixture(scope="module")
def suite() -> Suite:
    return Suite()


def judged(suite: Suite, rewrite: Callable[[Network], Network], cases: list[str]) -> list[str]:
    """Cases that no longer pass on the reference backend when a network is rewritten before it runs."""
    seen = [0]

    def from_model(network: Network, device: str) -> Any:
        seen[0] += 1
        return load_backend("reference").from_model(rewrite(network), device=device)

    suite.module = SimpleNamespace(from_model=from_model)  # type: ignore[assignment]
    outcomes = [suite.judge(case) for case in cases]
    assert seen[0] >= len(cases) > 0
    return [
        f"{outcome.case}: {outcome.verdict} {outcome.message}" for outcome in outcomes if outcome.verdict != "passed"
    ]


def spoken(suite: Suite, case: str) -> bool:
    """Whether a case has an operator that the rule language may describe; the others stay as they are."""
    return suite.operators[case] in FORMS or suite.groups[case] not in ("node", "expanded", "ml", "preview")


@pytest.mark.long
def test_cases_of_the_suite_pass_when_written_back(suite: Suite) -> None:
    failing = ledger.failing("reference")
    cases = sorted(case for case in suite.cases if case not in failing and (LONG or spoken(suite, case)))
    assert len(cases) > 200
    assert judged(suite, exported, cases) == []


@pytest.mark.slow
def test_models_of_the_suite_pass_when_optimized(suite: Suite) -> None:
    failing = ledger.failing("reference")
    groups = ("simple", "pytorch-converted", "pytorch-operator")
    cases = sorted(case for case in suite.cases if case not in failing and suite.groups[case] in groups)
    assert len(cases) > 100

    def rewrite(network: Network) -> Network:
        return optimized(network, budget=2.0).network if len(network.nodes) > 1 else exported(network)

    assert judged(suite, rewrite, cases) == []


def test_a_mistake_would_be_noticed(suite: Suite) -> None:
    def wrong(network: Network) -> Network:
        for node in network.nodes:
            if node.op_type == "Concat":
                network.replace(node.name, "Concat", list(node.inputs)[::-1], axis=node.attribute("axis"))
        return exported(network)

    assert judged(suite, wrong, ["test_concat_2d_axis_0"])
