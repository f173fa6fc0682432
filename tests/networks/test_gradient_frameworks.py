"""The emitted gradient of each rule against PyTorch's autograd in float64."""

from __future__ import annotations

import numpy as np
import pytest

from deep500.networks import Network
from tests.conftest import load_backend
from tests.networks.evaluate import evaluate
from tests.networks.gradient_cases import CASES, DIFFERENT, Case
from tests.networks.test_gradient_rules import build
from tests.tolerances import as_numpy, assert_close


@pytest.fixture(scope="module")
def pytorch():
    return load_backend("pytorch")


def with_parameters(net: Network, feeds: dict[str, np.ndarray], names: list[str]) -> Network:
    """The network with some of its inputs turned into trainable parameters, which executors differentiate."""
    copy = Network(net.name)
    for name, described in net.inputs.items():
        if name in names:
            copy.add_parameter(name, feeds[name])
        else:
            copy.add_input(name, described.shape, described.dtype or "float64")
    for name, parameter in net.parameters.items():
        copy.add_parameter(name, parameter.value, parameter.trainable)
    for node in net.nodes:
        copy.add_node(node.op_type, node.inputs, node.outputs, node.name, node.domain, **node.attributes)
    for name in net.outputs:
        copy.add_output(name)
    return copy


@pytest.mark.parametrize("case", [c for c in CASES if c.name not in DIFFERENT], ids=lambda c: c.name)
def test_rule_matches_autograd(case: Case, pytorch) -> None:
    net, feeds, wrt = build(case, symbolic=False)
    executor = pytorch.Executor(with_parameters(net, feeds, wrt))
    executor.inference_and_backprop({}, "loss")
    gradients = [f"{name}.grad" for name in wrt]
    got = evaluate(net.with_gradient("loss", wrt), feeds, gradients)
    for name, ours, theirs in zip(wrt, got, executor.network.fetch_tensors(gradients), strict=True):
        assert_close(ours, as_numpy(theirs), "gradient", f"{case.name} with respect to {name}")
