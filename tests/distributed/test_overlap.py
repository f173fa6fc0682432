"""Gradients that travel during the backward pass: the same bits, the same order on every rank, and really earlier."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from deep500.distributed import Serial, Threads, schemes
from deep500.distributed.buckets import GradientMean
from deep500.distributed.schemes import ConsistentDecentralized
from deep500.errors import InputError
from deep500.networks import Network, add_loss
from deep500.networks.execution.capabilities import watch_gradients
from tests.conftest import load_backend
from tests.distributed import overlap_cases, ranks, torchrun

pytestmark = pytest.mark.slow

STARTS = ["start 40", "start 91", "start 11", "start 61"]  # b2 w2, w1, b1, b0 w0 backwards, one element more each


def check(results: list[list[dict[str, Any]]]) -> None:
    """``results[rank]`` is what :func:`overlap_cases.both` returned there."""
    for with_overlap, without in results:
        assert with_overlap["hash"] == without["hash"] == results[0][0]["hash"]
        assert all(moved == (name != "chooser") for name, moved in with_overlap["moved"].items())
        assert with_overlap["payload"] == without["payload"] == 4 * 4 * (39 + 90 + 10 + 60)  # steps, bytes
        assert with_overlap["seen"] == [*STARTS, "backward", "step"] * 4
        assert without["seen"] == ["backward", *STARTS, "step"] * 4


@pytest.mark.backend("pytorch")
@pytest.mark.parametrize("optimizer", ["MomentumOptimizer", "AdamOptimizer"])
def test_overlap_changes_no_bit(optimizer: str) -> None:
    load_backend("pytorch")
    check(Threads(3).run(lambda comm: overlap_cases.both(comm, "pytorch", optimizer)))


@pytest.mark.mpi
@pytest.mark.backend("pytorch")
@pytest.mark.parametrize("size", [2, 3])
def test_overlap_changes_no_bit_over_mpi(size: int, on_ranks: Callable[..., list[Any]]) -> None:
    load_backend("pytorch")
    check(on_ranks(overlap_cases.both, size, backend="pytorch", optimizer="MomentumOptimizer"))


@pytest.mark.backend("pytorch")
@pytest.mark.parametrize("size", [2, 3])
def test_overlap_changes_no_bit_over_torch_distributed(size: int, tmp_path: Path) -> None:
    load_backend("pytorch")
    file, arguments = tmp_path / "results.json", {"backend": "pytorch", "optimizer": "MomentumOptimizer"}
    code, output = torchrun.launch(ranks.name_of(overlap_cases.both), size, file, arguments)
    assert code == 0, output
    check(json.loads(file.read_text(encoding="utf-8")))


def test_a_backend_that_cannot_tell_exchanges_at_the_end(backend_name: str) -> None:
    load_backend(backend_name)
    results = Threads(2).run(lambda comm: overlap_cases.both(comm, backend_name, "MomentumOptimizer"))
    assert len({result["hash"] for rank in results for result in rank}) == 1
    for rank in results:
        for result in rank:
            assert [call for call in result["seen"] if call.startswith("start")] == STARTS * 4


@pytest.mark.backend("pytorch")
def test_a_parameter_without_gradient_holds_up_nobody_and_counts_as_0() -> None:
    load_backend("pytorch")

    def work(comm: Any) -> list[dict[str, Any]]:
        return [
            overlap_cases.train(comm, "pytorch", "MomentumOptimizer", overlap, native=True) for overlap in (True, False)
        ]

    results = Threads(2).run(work)
    assert len({result["hash"] for rank in results for result in rank}) == 1
    assert results[0][0]["moved"] == {
        "first.weight": True,
        "first.bias": True,
        "unused.weight": False,
        "unused.bias": False,
        "last.weight": True,
        "last.bias": True,
    }
    assert results[0][0]["seen"][:3] == ["start 9", "start 49", "backward"]  # the last layer's before, the others after


@pytest.mark.backend("pytorch")
def test_one_rank_watches_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    module = load_backend("pytorch")
    base = module.MomentumOptimizer(module.from_model(overlap_cases.network(), "cpu"), "loss", lr=0.05)
    monkeypatch.setattr(base.executor, "watch_gradients", lambda callback: pytest.fail("one rank asked for gradients"))
    before = base.network.state()["w0"]
    ConsistentDecentralized(base, Serial()).step({"input": np.ones((2, 6), np.float32), "label": np.array([0, 2])})
    assert (base.network.state()["w0"] != before).any() and base.exchange is base


@pytest.mark.backend("pytorch")
def test_the_watcher_gets_every_gradient_once_also_after_an_edit() -> None:
    module = load_backend("pytorch")
    executor = module.from_model(overlap_cases.network(), "cpu")
    seen: dict[str, list[np.ndarray]] = {}
    to_numpy = executor.network.to_numpy
    executor.watch_gradients(lambda name, gradient: seen.setdefault(name, []).append(to_numpy(gradient).copy()))
    inputs = {"input": np.ones((2, 6), np.float32), "label": np.array([0, 2])}
    for edited in (False, True):
        if edited:
            executor.network.add_parameter("slope", np.full(9, 0.5, np.float32))
            tanh = next(node.name for node in executor.network.nodes if node.op_type == "Tanh")
            executor.network.replace(tanh, "PRelu", ["y1", "slope"])
        seen.clear()
        executor.inference_and_backprop(inputs)
        pairs = executor.network.gradient("loss")
        assert sorted(seen) == sorted(name for name, _ in pairs) and len(pairs) == 6 + edited
        for name, gradient in pairs:
            (got,) = seen[name]
            np.testing.assert_array_equal(got, to_numpy(executor.network.fetch_tensors([gradient])[0]))
    executor.watch_gradients(None)
    seen.clear()
    executor.inference_and_backprop(inputs)
    assert not seen


@pytest.mark.backend("pytorch")
def test_runs_outside_a_step_send_nothing_also_after_a_failed_step() -> None:
    module = load_backend("pytorch")

    def work(comm: Any) -> list[int]:
        base = module.MomentumOptimizer(module.from_model(overlap_cases.network(), "cpu"))
        scheme = ConsistentDecentralized(base, comm)
        good = {"input": np.ones((2, 6), np.float32), "label": np.array([0, 2])}
        sent = []
        scheme.step(good)
        sent.append(comm.traffic.messages)
        with pytest.raises(InputError, match="label or index 7"):
            scheme.step({**good, "label": np.array([0, 7])})
        for _ in range(2):
            scheme.executor.inference_and_backprop(good)
        sent.append(comm.traffic.messages)
        scheme.step(good)
        return [*sent, comm.traffic.messages]

    (first, second, third), other = Threads(2).run(work)
    assert first == second == third - 1 and other == [first, second, third]


@pytest.mark.backend("pytorch")
@pytest.mark.parametrize("scheme", ["ConsistentDecentralized", "InconsistentParameterServer"])
def test_a_rank_without_samples_takes_tensors_of_the_framework_too(scheme: str) -> None:
    module = load_backend("pytorch")
    torch = pytest.importorskip("torch")

    def work(comm: Any) -> bool:
        net = Network("normalised")
        net.add_input("input", ("N", 3, 1, 1))
        for name, value in (("scale", np.ones(3)), ("shift", np.zeros(3)), ("mean", np.zeros(3)), ("var", np.ones(3))):
            net.add_parameter(name, value.astype(np.float32), trainable=name in ("scale", "shift"))
        net.add_node("BatchNormalization", ["input", "scale", "shift", "mean", "var"], ["normal"])
        net.add_node("Flatten", ["normal"], ["y"])
        net.add_output("y")
        base = module.MomentumOptimizer(module.from_model(add_loss(net), "cpu"), "loss", lr=0.1)
        samples = 4 * comm.rank
        images = torch.randn(samples, 3, 1, 1, generator=torch.Generator().manual_seed(comm.rank))
        labels = torch.arange(samples) % 3
        getattr(schemes, scheme)(base, comm).step({"input": images, "label": labels})
        return bool((base.network.state()["shift"] != 0).any())

    # On a parameter server the workers hear of an update when they ask for the next parameters.
    assert Threads(2).run(work) == [True, scheme == "ConsistentDecentralized"]


def test_the_reference_cannot_tell() -> None:
    executor = load_backend("reference").from_model(overlap_cases.network())
    assert watch_gradients(executor, lambda name, gradient: None) is False


def test_two_gradients_in_one_step_are_refused() -> None:
    mean = GradientMean(Serial(), [(2,)], [np.dtype("float32")])
    mean.begin(1.0)
    mean.put(0, np.ones(2, np.float32))
    with pytest.raises(InputError, match=r"got two gradients of parameter 0 in one step.*overlap=False"):
        mean.put(0, np.ones(2, np.float32))
    assert mean.active and mean.finish([None])[0].tolist() == [1.0, 1.0] and not mean.active
