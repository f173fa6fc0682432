"""The gate on unbroken backends: no false alarm, no vacuous agreement, and what it says when it cannot compare."""

from __future__ import annotations

import os

import numpy as np
import pytest

from deep500.compare.checks import largest, relative
from deep500.compare.gate import check_equivalence
from deep500.compare.subject import Candidate
from deep500.errors import InputError, UnsupportedOperator
from deep500.networks import add_loss, create, replace_operator
from deep500.tensors import digest
from tests.compare.networks import batches, candidate, probe
from tests.networks import custom_operators  # noqa: F401 - registers them

OPTIMIZERS = [
    ("GradientDescent", {"lr": 0.1}),
    ("MomentumOptimizer", {"lr": 0.1, "momentum": 0.9, "weight_decay": 0.01, "nesterov": True}),
    ("AdamOptimizer", {"lr": 0.01}),
    ("RMSPropOptimizer", {"lr": 0.01}),
    ("AdaGradOptimizer", {"lr": 0.01}),
]


@pytest.fixture
def others(backend_name):
    """What is compared with the reference; slow starters only where the environment names them."""
    if backend_name not in ("reference", "pytorch") and not os.environ.get("DEEP500_TEST_BACKENDS"):
        pytest.skip(f"name backend {backend_name!r} in DEEP500_TEST_BACKENDS to put it through the gate")
    return backend_name


def rival(name: str, *args, **options) -> Candidate:
    """A candidate beside the reference; the reference itself under another name."""
    made = candidate(name, *args, **options)
    return Candidate("twin", made.build, made.optimizer) if name == "reference" else made


@pytest.mark.parametrize(("optimizer", "options"), OPTIMIZERS, ids=[name for name, _ in OPTIMIZERS])
@pytest.mark.slow
def test_no_false_alarm(others, optimizer, options):
    pair = [candidate("reference", optimizer, **options), rival(others, optimizer, **options)]
    result = check_equivalence(probe(), batches(), pair)
    assert result and result.judge == "reference", [str(check) for check in result.checks if not check.passed]
    made = [check.name for check in result.checks if check.framework == pair[1].name]
    assert {"weights", "evaluation forward", "training forward", "running statistics", "gradients"} <= {*made}
    assert "optimizer" in made and len(result.curves["reference"]["loss"]) == 3


def test_dropout_is_compared_by_its_statistics(others):
    pair = [rival(others), candidate("reference")]
    result = check_equivalence(probe(dropout=True), batches(), pair)
    assert result, [str(check) for check in result.checks if not check.passed]
    assert [check.framework for check in result.checks if check.name == "dropout"] == [pair[0].name, "reference"]


def test_vacuous_agreement_is_no_agreement():
    network = create("mlp", shape=(4,), classes=3)
    for name in network.trainable():
        network.set_parameter(name, np.zeros_like(network.parameters[name].value))
    add_loss(network, "mean_squared_error")
    data = [{"input": np.ones((4, 4), "float32"), "label": np.zeros((4, 3), "float32")}]
    result = check_equivalence(network, data, [candidate("reference"), rival("reference")])
    assert not result and "vacuous" in result.first("reference").where


def test_without_float64_it_compares_in_float32_and_says_so():
    def build(network):
        if any(value.dtype == "float64" for value in network.inputs.values()):
            raise UnsupportedOperator("got Conv in float64; expected float32")
        return candidate("reference").build(network)

    single = Candidate("single", build, candidate("reference").optimizer)
    result = check_equivalence(probe(), batches(), [candidate("reference"), single])
    assert result and "single: compared in float32" in result.notes[0]
    forward = next(c for c in result.checks if (c.framework, c.name) == ("single", "evaluation forward"))
    assert forward.tolerance == 1e-5 and 0 < forward.difference < 1e-5


def test_what_rounds_to_tf32_is_judged_by_what_tf32_can():
    """Ten bits of fraction: an executor that rounds its inputs so passes only where it says that it does."""

    def build(declared):
        def made(network):
            if any(value.dtype == "float64" for value in network.inputs.values()):
                raise UnsupportedOperator("got Conv in float64; expected float32")
            executor = candidate("reference").build(network)
            executor.precision = declared
            return _rounding(executor)

        return made

    for declared, passes in (("tf32", True), ("ieee", False)):
        other = Candidate("card", build(declared), candidate("reference").optimizer)
        result = check_equivalence(probe(), batches(), [candidate("reference"), other])
        assert bool(result) is passes, result.checks
    assert 1e-5 < result.first("card").difference < 1e-2


def _rounding(executor):
    """The executor, whose inputs lose all but ten bits of their fractions."""
    for name in ("inference", "inference_and_backprop"):
        plain = getattr(executor, name)

        def run(inputs, *rest, plain=plain):
            def rounded(x):
                return (x.view("uint32") & np.uint32(0xFFFFE000)).view("float32") if x.dtype == "float32" else x

            return plain({key: rounded(np.ascontiguousarray(x)) for key, x in inputs.items()}, *rest)

        setattr(executor, name, run)
    return executor


def test_needs_two_frameworks_and_a_batch():
    for ones, data in (([candidate("reference")], batches(1)), ([candidate("reference")] * 2, [])):
        with pytest.raises(InputError, match="at least two and one"):
            check_equivalence(probe(), data, ones)


RELATIVE = [
    ([1.0, 2.0], [1.0, 4.0], 0.5),
    ([1.0], [1.0, 1.0], float("inf")),
    ([np.nan], [1.0], float("inf")),
    ([np.nan, 1.0], [np.nan, 1.0], 0.0),
    ([np.inf, 1.0], [-np.inf, 1.0], float("inf")),
    ([1, 2], [1, 3], 1.0),
    ([], [], 0.0),
    ([1e-20], [0.0], 1e-20),
]


@pytest.mark.parametrize(("got", "want", "difference"), RELATIVE)
def test_relative(got, want, difference):
    assert relative(np.array(got), np.array(want)) == difference


def test_digest_sees_name_dtype_shape_and_value():
    base = {"a": np.arange(4.0)}
    others = [{"b": np.arange(4.0)}, {"a": np.arange(4)}, {"a": np.arange(4.0).reshape(2, 2)}, {"a": np.ones(4)}]
    assert len({digest(arrays) for arrays in [base, *others]}) == 5
    assert digest({"a": np.arange(8.0)[::2]}) == digest({"a": np.array([0.0, 2, 4, 6])})
    assert largest({"a": np.array([1, 9]), "b": np.array([-2.0, np.inf])}) == 2.0


def test_a_custom_operator_without_float64_is_compared_in_float32():
    network = replace_operator(probe(), "Relu", "TestSingleRelu", domain="deep500")
    result = check_equivalence(network, batches(), [candidate("reference"), rival("reference")])
    assert result, [str(check) for check in result.checks if not check.passed]
    assert len(result.notes) == 1 and "compared in float32" in result.notes[0] and "'SingleRelu'" in result.notes[0]
    tolerances = {check.name: check.tolerance for check in result.checks if check.tolerance}
    assert tolerances["training forward"] == 1e-4
