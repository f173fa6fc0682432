"""To add a gradient rule is to write one file: CONTRIBUTING.md, "Adding things", as it is done."""

from __future__ import annotations

import runpy
from pathlib import Path

import numpy as np
import pytest

import deep500.frameworks.reference as d5ref
from deep500.errors import UnsupportedOperator
from deep500.networks import Network, gradient_name
from deep500.networks.gradients.rules import RULES
from tests.tolerances import assert_close

RULE = """\
'''The gradient of Erf: 2 / sqrt(pi) exp(-x^2).'''
import math
from deep500.networks.gradients.rules import gradient_rule


@gradient_rule("Erf")
def erf(g):
    x = g.input(0)
    return [g.grad() * g("Exp", -(x * x)) * (2 / math.sqrt(math.pi))]
"""


def network() -> Network:
    """loss = mean(erf(w))."""
    net = Network("error function")
    net.add_parameter("w", np.linspace(-2, 2, 9))
    net.add_node("Erf", "w", "y")
    net.add_node("ReduceMean", "y", "loss", keepdims=0)
    net.add_output("loss")
    return net


def test_a_file_with_a_rule_is_enough(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(RULES, ("", "Erf"))
    with pytest.raises(UnsupportedOperator, match="Erf"):
        network().with_gradient()
    (tmp_path / "erf_rule.py").write_text(RULE, encoding="utf-8")
    runpy.run_path(str(tmp_path / "erf_rule.py"))
    executor = d5ref.from_model(network())
    executor.inference_and_backprop({})
    (gradient,) = executor.network.fetch_tensors([gradient_name("w")])
    x = np.linspace(-2, 2, 9)
    assert_close(gradient, 2 / np.sqrt(np.pi) * np.exp(-x * x) / 9, "gradient")
