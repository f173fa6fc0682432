"""`optimize_network`: the same outputs, gradients, names and bytes; histories; training; every backend."""

from __future__ import annotations

import os
import sqlite3
import subprocess
import sys
from functools import partial
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np
import onnx
import pytest

import deep500 as d5
from deep500.measure.comparison import Comparison
from deep500.measure.pairs import compare_functions
from deep500.measure.statistics import Interval, median_interval, paired_ratio
from deep500.networks import Network, add_loss, create
from deep500.networks.dtype import to_dtype
from deep500.networks.execution.executor import GraphExecutor
from deep500.networks.execution.inputs import make_inputs
from deep500.networks.losses import gradient_name
from deep500.transformations.substitutions import History, Optimized, choosing, deadline, equivalence, optimize
from deep500.transformations.substitutions.choosing import ORIGINAL
from deep500.transformations.substitutions.cost import (
    Analytic,
    Remeasured,
    deployment,
    deployments,
    measured,
    ranking,
    timing,
)
from deep500.transformations.substitutions.cost.database import Database
from deep500.transformations.substitutions.equivalence import TOLERANCE, relative_error
from deep500.transformations.substitutions.search import backtracking
from tests.conftest import HANG, load_backend
from tests.transformations.substitutions.samples import assert_same, branches, images, optimized, run, saved


def trained(batch: int | str = 8) -> Network:
    """Branches with a loss."""
    return add_loss(branches(batch), "mean_squared_error", label="target")


SUBJECTS: dict[str, tuple[Network, dict[str, Any]]] = {
    "branches": (branches(), {}),
    "images": (images(), {}),
    "images of any batch": (images("N"), {}),
    "nasrnn": (create("nasrnn", 1, shape=(1, 6), hidden=6), {}),
    "branches, trained": (trained(), {"training": True}),
    "branches of any batch, trained": (trained("N"), {"training": True}),
}


@pytest.fixture(scope="module")
def results() -> dict[str, Optimized]:
    return {name: optimized(network, **options) for name, (network, options) in SUBJECTS.items()}


@pytest.fixture(params=list(SUBJECTS))
def subject(request: pytest.FixtureRequest) -> str:
    return request.param


# -- equal ------------------------------------------------------------------------------------------------------------
def test_outputs_are_those_of_the_original(subject: str, results: dict[str, Optimized]) -> None:
    network, result = SUBJECTS[subject][0], results[subject]
    assert result.chosen and len(result.network.nodes) < len(network.nodes), "nothing was rewritten, nothing is tested"
    onnx.checker.check_model(result.network.to_onnx(), full_check=True)
    sizes: list[dict[str, int]] = [{"N": 1}, {"N": 6}, {"N": 17}] if "any batch" in subject else [{}]
    for interval in sizes:
        assert_same(network, result.network, 1e-5, **interval)
    assert result.equivalence is not None and result.equivalence.outputs <= TOLERANCE == 1e-10


def test_the_check_agrees_with_one_made_here_in_float64(subject: str) -> None:
    network, options = SUBJECTS[subject]
    double = to_dtype(network, "float64")
    result = optimized(double, **options)
    assert result.chosen
    assert_same(double, result.network, 1e-10, **({"N": 3} if "any batch" in subject else {}))


def test_names_of_inputs_outputs_and_parameters_stay(subject: str, results: dict[str, Optimized]) -> None:
    network, result = SUBJECTS[subject][0], results[subject].network
    assert result.inputs == network.inputs and result.outputs == network.outputs
    kept = {name for name in result.parameters if name in network.parameters}
    for name in kept:
        np.testing.assert_array_equal(result.parameters[name].value, network.parameters[name].value)
    if "trained" in subject:
        assert result.trainable() == network.trainable()


def test_the_original_is_left_alone() -> None:
    network = branches()
    before = saved(network)
    result = optimized(network)
    assert saved(network) == before and result.original is network and result.network is not network
    result.network.set_parameter(result.network.trainable()[0], np.zeros((16, 48), "float32"))
    assert saved(network) == before, "the two share no weights"
    unchanged = optimized(network, budget=0)
    unchanged.network.set_parameter("w0", np.zeros((16, 16), "float32"))
    assert saved(network) == before


@pytest.mark.parametrize("backend", ["reference", "pytorch"])
def test_training_what_stayed_leaves_the_original_alone(backend: str) -> None:
    """Both hold the same arrays, which are exchanged when they are trained."""
    network, fw = trained(), load_backend(backend)
    before, stayed = saved(network), optimized(network, budget=0).network
    optimizer = fw.GradientDescent(fw.from_model(stayed), "loss", 0.1)
    optimizer.step(make_inputs(network, None))
    after = optimizer.executor.network.fetch_tensors(["w0"])[0]
    assert not np.array_equal(after, network.parameters["w0"].value) and saved(network) == before


# -- the same bytes ---------------------------------------------------------------------------------------------------
def test_two_runs_and_a_replay_give_the_same_bytes(subject: str, results: dict[str, Optimized], tmp_path: Path) -> None:
    network, options = SUBJECTS[subject]
    result = results[subject]
    again = optimized(network.copy(), **options)
    assert saved(again.network) == saved(result.network) and again.history == result.history
    result.history.save(tmp_path / "history.json")
    loaded = History.load(tmp_path / "history.json")
    assert loaded == result.history
    assert saved(d5.replay_history(network, loaded)) == saved(result.network)


@pytest.mark.parametrize("options", [{"budget": 0}, {"budget": 1e-9}], ids=["budget 0", "no time"])
def test_what_stayed_replays_to_itself(options: dict[str, Any], tmp_path: Path) -> None:
    network = add_loss(create("mlp", shape=(4,), hidden=(3,)))
    result = optimized(network, training=True, **options)
    assert result.chosen is None and saved(result.network) == saved(network)
    result.history.save(tmp_path / "history.json")
    again = d5.replay_history(network, History.load(tmp_path / "history.json"))
    assert again is not network and saved(again) == saved(network)


def test_a_history_holds_for_other_weights() -> None:
    network, other = branches(), branches()
    for name in network.trainable():
        other.set_parameter(name, 2 * other.parameters[name].value)
    replayed = d5.replay_history(other, optimized(network).history)
    assert_same(other, replayed, 1e-6)
    assert relative_error(run(replayed)["y"], run(network)["y"]) > 0.5


def test_the_process_does_not_matter(tmp_path: Path) -> None:
    """Neither the seed of hashes nor what was searched before changes a byte."""
    program = (
        "import hashlib; from tests.transformations.substitutions.samples import *;"
        "print(hashlib.sha256(saved(optimized(images('N')).network)).hexdigest())"
    )
    result = {
        subprocess.run(
            [sys.executable, "-c", program],
            check=True,
            capture_output=True,
            text=True,
            timeout=HANG,
            env={**os.environ, "PYTHONHASHSEED": seed},
        ).stdout
        for seed in ("1", "2")
    }
    assert len(result) == 1


# -- training ---------------------------------------------------------------------------------------------------------
def steps(module: ModuleType, network: Network, count: int = 6) -> tuple[list[float], dict[str, np.ndarray]]:
    """Losses and weights of a few steps of gradient descent."""
    executor = module.from_model(network)
    optimizer = module.GradientDescent(executor, lr=0.05)
    losses = [
        float(np.asarray(executor.network.to_numpy(optimizer.step(make_inputs(network, 8, n))["loss"])))
        for n in range(count)
    ]
    state = executor.network.state()
    return losses, {name: np.asarray(state[name]) for name in network.trainable()}


@pytest.mark.parametrize("backend", ["reference", "pytorch"])
def test_training_goes_as_the_originals(backend: str, results: dict[str, Optimized]) -> None:
    module = load_backend(backend)
    result = results["branches of any batch, trained"]
    want, got = (steps(module, to_dtype(network, "float64")) for network in (result.original, result.network))
    np.testing.assert_allclose(got[0], want[0], rtol=1e-10)
    assert want[0][-1] < want[0][0] and got[1].keys() == want[1].keys()
    for name, weights in want[1].items():
        np.testing.assert_allclose(got[1][name], weights, rtol=1e-9, atol=1e-12, err_msg=name)
        assert np.abs(weights - result.original.parameters[name].value).max() > 1e-6, name


def test_gradients_are_those_of_the_original(results: dict[str, Optimized]) -> None:
    result = results["branches, trained"]
    assert result.equivalence is not None and result.equivalence.gradients is not None
    assert result.equivalence.gradients <= 1e-10
    values = []
    for network in (result.original, result.network):
        executor = load_backend("reference").from_model(to_dtype(network, "float64"))
        executor.inference_and_backprop(make_inputs(to_dtype(network, "float64"), None, 5), "loss")
        values.append(executor.network.fetch_tensors([gradient_name(interval) for interval in network.trainable()]))
    assert len(values[0]) == 3
    for want, got in zip(*values, strict=True):
        assert np.abs(want).max() > 0 and relative_error(got, want) <= 1e-10


def test_for_inference_normalization_is_folded_and_for_training_it_stays() -> None:
    network = create("resnet", 1, depth=8, shape=(3, 8, 8))
    kept = optimized(add_loss(network.copy()), training=True, budget=60)
    folded = optimized(network, budget=60)
    counts = [sum(node.op_type == "BatchNormalization" for node in result.network.nodes) for result in (folded, kept)]
    assert counts[0] < counts[1] == sum(node.op_type == "BatchNormalization" for node in network.nodes)


# -- backends ---------------------------------------------------------------------------------------------------------
@pytest.mark.slow
def test_every_backend_runs_what_was_optimized(backend_name: str, results: dict[str, Optimized]) -> None:
    for name in ("branches", "images", "nasrnn"):
        assert_same(SUBJECTS[name][0], results[name].network, 1e-5, backend_name)


class NodeClock:
    """A clock that goes on only where a network runs, 0.1 ms for each of its nodes: fewer nodes are surely faster."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.ns = 0
        run = timing._run

        def counted(executor: GraphExecutor, tensors: dict[str, Any]) -> None:
            run(executor, tensors)
            self.ns += 100_000 * len(executor.network.nodes)

        now = SimpleNamespace(
            perf_counter=lambda: self.ns / 1e9, perf_counter_ns=lambda: self.ns, process_time_ns=lambda: self.ns
        )
        monkeypatch.setattr(timing, "_run", counted)
        for module in (deployments, ranking, timing):
            monkeypatch.setattr(module, "time", now)
        for module in (backtracking, choosing, deadline, equivalence, measured, optimize, ranking):
            monkeypatch.setattr(module, "cpu_seconds", now.perf_counter)
        for module in (measured, timing):
            timed = partial(compare_functions, clock=now.perf_counter_ns)
            monkeypatch.setattr(module, "compare_functions", timed)


def test_measured_and_timed_beside_the_original(
    backend_name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock, database = NodeClock(monkeypatch), tmp_path / "costs.sqlite"
    network = branches(2, 2, 8)
    result = d5.optimize_network(network, backend_name, budget=60.0, database=database)
    assert result.backend == backend_name and clock.ns > 0
    assert database.is_file() != deployment(backend_name).compiles, "operators of what is compiled have no prices"
    assert result.measured is not None and result.measured.first == ORIGINAL and result.measured.rounds > 0
    assert result.before is not None and result.after is not None and result.before >= 0
    assert result.measured.seconds[ORIGINAL].median == pytest.approx(1e-4 * len(network.nodes))
    assert result.chosen is not None and len(result.network.nodes) < len(network.nodes)
    ratio = result.measured[result.chosen].ratio
    assert ratio.median == result.ratio == pytest.approx(len(result.network.nodes) / len(network.nodes))
    assert ratio.high is not None and ratio.median <= ratio.high < 1
    assert f"measured: {result.measured[result.chosen]}" in str(result)
    assert_same(network, result.network, 1e-5, backend_name)
    assert saved(d5.replay_history(network, result.history)) == saved(result.network)


def test_a_candidate_that_is_slower_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """Prices say that merging pays; the clock says that it does not."""
    rng = np.random.default_rng(0)

    def slower(networks: dict[str, Network], *_: Any, **__: Any) -> Remeasured:
        taken = {name: 1.0 + 0.5 * (name != ORIGINAL) + rng.normal(0, 1e-3, 40) for name in networks}
        seconds = {name: median_interval(seconds_taken) for name, seconds_taken in taken.items()}
        ratios = {
            name: paired_ratio(seconds_taken, taken[ORIGINAL])
            for name, seconds_taken in taken.items()
            if name != ORIGINAL
        }
        compared = tuple(Comparison(name, ORIGINAL, ratio, 1e-6, "slower") for name, ratio in ratios.items())
        return Remeasured(seconds, compared, Interval(1.0, 0.999, 1.001, 40), 40)

    monkeypatch.setattr(optimize, "Measured", lambda backend, *_, **__: Analytic(backend))
    monkeypatch.setattr(optimize, "remeasure", slower)
    network = branches()
    assert optimized(network).chosen, "by price alone it is taken"
    result = d5.optimize_network(network)
    assert result.measured is not None and len(result.measured.seconds) > 1
    assert result.chosen is None and result.ratio == 1.0 and result.after == result.before
    assert saved(result.network) == saved(network) and "nothing faster was found" in str(result)


def test_prices_of_another_machine_are_not_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    NodeClock(monkeypatch)
    path = tmp_path / "costs.sqlite"
    d5.optimize_network(branches(2, 2, 8), budget=60.0, database=path)
    with sqlite3.connect(path) as connection:
        connection.execute("UPDATE costs SET machine = 'another', seconds = 1000.0")
    connection.close()
    result = d5.optimize_network(branches(2, 2, 8), budget=60.0, database=path)
    assert result.before is not None and result.before < 100
    with sqlite3.connect(path) as connection:
        machines = dict(connection.execute("SELECT machine, count(*) FROM costs GROUP BY machine"))
    connection.close()
    assert len(machines) == 2 and Database(path)


def sized(kind: str, pad: str, stride: int) -> Network:
    """A node whose attributes follow from a size known at run time only, before a scale that merges with it."""
    rng = np.random.default_rng(0)
    network = Network("sized")
    network.add_input("x", ("N", 2, "H", 9), "float32")
    network.add_parameter("scale", rng.normal(size=(1 if kind == "Split" else 2, 1, 1)).astype("float32"))
    if kind == "Conv":
        network.add_parameter("w", rng.normal(size=(2, 2, 3, 3)).astype("float32"))
        network.add_node("Conv", ["x", "w"], "q", auto_pad=pad, strides=(stride, stride))
    elif kind == "Split":
        network.add_node("Split", "x", ["q", "rest"], axis=2, num_outputs=2)
    else:
        network.add_node(kind, "x", "q", auto_pad=pad, strides=(stride, stride), kernel_shape=(3, 3))
    network.add_node("Mul", ["q", "scale"], "y")
    network.add_output("y")
    return network


@pytest.mark.parametrize("pad", ["SAME_UPPER", "SAME_LOWER"])
@pytest.mark.parametrize("stride", [1, 2, 3, 4])
@pytest.mark.parametrize("kind", ["Conv", "MaxPool", "AveragePool", "Split"])
def test_a_rewritten_network_is_the_same_at_every_size(kind: str, stride: int, pad: str) -> None:
    """Pads go by the size modulo the stride: two sizes that a check tries may agree where others do not."""
    network = sized(kind, pad, stride)
    rewritten = d5.optimize_network(network, measure=False, budget=2).network
    before, after = (load_backend("reference").from_model(one) for one in (network, rewritten))
    for size in range(5, 18):
        x = np.random.default_rng(size).normal(size=(1, 2, size, 9)).astype("float32")
        want, got = (executor.inference({"x": x})["y"] for executor in (before, after))
        np.testing.assert_allclose(got, want, atol=1e-4, err_msg=str(size))
