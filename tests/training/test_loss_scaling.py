"""Loss scaling against PyTorch's GradScaler: same scales, same steps left out."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from deep500.distributed import Threads
from deep500.distributed.optimizer import DistributedOptimizer
from deep500.distributed.schemes import (
    ConsistentDecentralized,
    ConsistentParameterServer,
    LocalSGD,
    ModelAverage,
    ShardedOptimizer,
)
from deep500.errors import InputError
from deep500.training import optimizers as d5
from deep500.training.clipping import ClipGradientNorm
from deep500.training.loss_scaling import SCALE, LossScaling
from deep500.transformations.mixed_precision import mixed_precision
from tests.conftest import load_backend
from tests.tolerances import as_numpy
from tests.training.linear import FakeExecutor, linear_network, regression_batches

torch = pytest.importorskip("torch")


@pytest.mark.parametrize("interval", [1, 3])
def test_the_scale_is_torchs(interval: int) -> None:
    """GradScaler on the processor, told of overflows by gradients that overflow."""
    rng = np.random.default_rng(interval)
    scaling = LossScaling(2.0**10, growth_interval=interval)
    theirs = torch.amp.GradScaler("cpu", init_scale=2.0**10, growth_interval=interval)
    weight = torch.nn.Parameter(torch.ones(()))
    optimizer = torch.optim.SGD([weight], lr=0.0)
    for finite in rng.random(40) > 0.3:
        optimizer.zero_grad()
        theirs.scale(weight * (1.0 if finite else float("inf"))).backward()
        theirs.step(optimizer)
        theirs.update()
        scaling.note(bool(finite))
        assert scaling.scale == theirs.get_scale()
        assert scaling.good == theirs._get_growth_tracker()
    assert scaling.skipped > 0


def low(dtype: str = "f16") -> Any:
    return mixed_precision(linear_network(dtype="float32"), dtype)


def trained(backend: str, init_scale: float, accumulate: int = 1, **options: Any) -> tuple[Any, list[dict[str, Any]]]:
    module = load_backend(backend)
    executor = module.from_model(low(), "cpu")
    scaling = LossScaling(init_scale, growth_interval=4)
    optimizer = module.AdamOptimizer(executor, lr=0.1, loss_scaling=scaling, accumulate=accumulate, **options)
    states = [{name: np.array(as_numpy(v)) for name, v in executor.network.state().items()}]
    for batch in regression_batches(5, dtype="float32"):
        optimizer.step(batch)
        states.append({name: np.array(as_numpy(v)) for name, v in executor.network.state().items()})
    return optimizer, states


@pytest.mark.parametrize("accumulate", [1, 3])
def test_steps_that_overflow_are_left_out(backend_name: str, accumulate: int) -> None:
    """float16 holds up to 65504: a scale of 2^24 overflows whatever the gradients, where float16 is computed in."""
    optimizer, states = trained(backend_name, 2.0**24, accumulate)
    scaling = optimizer.loss_scaling
    if backend_name == "onnxruntime" and not scaling.skipped:
        pytest.skip("ONNX Runtime computes float16 in float32 on processors: nothing overflows")
    assert scaling.skipped and scaling.scale == 2.0 ** (24 - scaling.skipped)
    assert optimizer.steps == 5 - scaling.skipped
    for number in range(scaling.skipped):
        for name, value in states[number].items():
            np.testing.assert_array_equal(value, states[number + 1][name])


def test_a_scale_that_is_a_power_of_two_changes_nothing(backend_name: str) -> None:
    """As long as nothing overflows or vanishes; clipping sees the gradients without it."""
    clip = {"gradient_transform": ClipGradientNorm(0.01)}
    first, states = trained(backend_name, 1.0, **clip)
    second, others = trained(backend_name, 64.0, **clip)
    assert first.loss_scaling.skipped == second.loss_scaling.skipped == 0
    assert first.loss_scaling.scale == 2.0  # four good steps
    for name, value in states[-1].items():
        np.testing.assert_allclose(others[-1][name], value, rtol=1e-3, atol=1e-5)
        assert not np.array_equal(value, states[0][name])


def test_the_state_goes_on() -> None:
    first, second = LossScaling(4.0, growth_interval=2), LossScaling(8.0, growth_interval=2)
    for finite in (False, True):
        first.note(finite)
    second.load_state(first.state())
    second.note(True)
    assert (second.scale, second.good, second.skipped) == (4.0, 0, 1)


def test_who_does_not_scale_is_told() -> None:
    with pytest.raises(InputError, match="not in float16"):
        d5.GradientDescent(FakeExecutor(linear_network()), loss_scaling=LossScaling())
    for wrong in ({"init_scale": 0}, {"growth_factor": 1}, {"backoff_factor": 1}, {"growth_interval": 0}):
        with pytest.raises(InputError, match=next(iter(wrong))):
            LossScaling(**wrong)
    executor = load_backend("reference").from_model(low())
    assert SCALE in executor.network.inputs and d5.GradientDescent(executor).loss_scaling is not None

    def distribute(comm: Any) -> None:
        one = load_backend("reference").from_model(low())
        LocalSGD(d5.GradientDescent(one), comm)

    with pytest.raises(InputError, match="ConsistentDecentralized: use that"):
        Threads(2).run(distribute)


AGREEING = [ConsistentDecentralized, ConsistentParameterServer, ModelAverage, ShardedOptimizer]


@pytest.mark.parametrize("ranks", [2, 3])
@pytest.mark.parametrize("scheme", AGREEING, ids=lambda scheme: scheme.__name__)
def test_ranks_leave_out_the_same_steps(scheme: type[DistributedOptimizer], ranks: int) -> None:
    """Samples of one rank overflow in the second step: all leave it out, and the rest is the serial run's."""
    rng = np.random.default_rng(0)
    steps = [
        {"input": rng.normal(size=(12, 4)).astype("float32"), "label": rng.normal(size=(12, 3)).astype("float32")}
        for _ in range(4)
    ]
    steps[1]["input"][-1] = 6e4  # of the last rank's share

    def train(comm: Any) -> tuple[LossScaling, dict[str, np.ndarray]]:
        executor = load_backend("reference").from_model(low())
        optimizer = d5.GradientDescent(executor, lr=0.1, loss_scaling=LossScaling(4.0, growth_interval=2))
        distributed = scheme(optimizer, comm) if comm is not None else optimizer
        each, rank = (12, 0) if comm is None else (12 // comm.size, comm.rank)
        for feeds in steps:
            distributed.step({name: array[each * rank : each * (rank + 1)] for name, array in feeds.items()})
        return optimizer.loss_scaling, executor.network.state()  # type: ignore[return-value]

    scaling, want = train(None)
    assert scaling.skipped == 1
    for seen, got in Threads(ranks).run(train):
        assert seen.state() == scaling.state()
        for name, value in want.items():
            np.testing.assert_allclose(got[name], value, rtol=2e-3, atol=2e-4)
