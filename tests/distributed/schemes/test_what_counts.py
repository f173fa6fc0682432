"""Labels that do not count, weights of classes and masks: every scheme that is serial training is it with them, too."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import nullcontext
from functools import partial
from typing import Any

import numpy as np
import pytest

from deep500.distributed import Communicator, Threads, schemes
from deep500.distributed.schemes.mesh import SchemeMesh
from deep500.errors import InputError
from deep500.networks import add_loss, create, to_dtype
from deep500.networks.network import Network
from deep500.training import optimizers
from tests.conftest import load_backend
from tests.distributed.scheme_table import parameters

STEPS, SAMPLES, IGNORED = 5, 12, 2
CLASSES = np.array([1.0, 0.5, 9.0, 0.0])


def network(kind: str, reduction: str = "mean") -> Network:
    plain = to_dtype(create("mlp", shape=(6,), hidden=(5,), classes=4), "float64")
    if kind != "classes":
        options = {"labels": {}, "mask": {"mask": "mask", "label_smoothing": 0.1}}[kind]
        return add_loss(plain, ignore_index=IGNORED, **options)
    plain.add_input("label", ("N",), "int64")
    plain.add_parameter("classes", CLASSES, trainable=False)
    inputs = ["output", "label", "classes"]
    plain.add_node("SoftmaxCrossEntropyLoss", inputs, ["loss"], reduction=reduction, ignore_index=IGNORED)
    plain.add_output("loss")
    return plain


def batch(kind: str, step: int, ranks: int) -> dict[str, np.ndarray]:
    """In step 1 nothing counts on rank 0, in step 2 nowhere (a mask would make that NaN everywhere)."""
    rng = np.random.default_rng(step)
    given = {"input": rng.normal(size=(SAMPLES, 6)), "label": rng.integers(0, 4, SAMPLES)}
    if kind == "mask":
        given["mask"] = rng.random(SAMPLES)
    if step == 1:
        given["mask" if kind == "mask" else "label"][0::ranks] = 0 if kind == "mask" else IGNORED
    if step == 2 and kind != "mask":
        given["label"][:] = IGNORED
    return given


def train(kind: str, make: Callable[..., Any] | None, comm: Communicator, ranks: int, **options: Any) -> Any:
    """Losses of the steps and parameters, of a process or a rank; ``ranks`` are those between which a batch is cut."""
    executor = load_backend("reference").from_model(network(kind))
    base = optimizers.MomentumOptimizer(executor, lr=0.1, momentum=0.9, **options)
    trained = base if make is None else make(base, comm)
    losses = []
    for step in range(STEPS):
        mine = slice(comm.rank, None, ranks) if make is not None else slice(None)
        if isinstance(trained, schemes.Pipeline):
            mine = slice(None) if comm.rank == 0 else slice(0, 0)
        with np.errstate(invalid="ignore", divide="ignore"):
            outputs = trained.step({name: array[mine] for name, array in batch(kind, step, ranks).items()})
        losses.append(float(outputs["loss"]) if "loss" in outputs else None)
    with nullcontext() if make is None else trained.evaluation():
        return losses, parameters(trained)


SERIAL: Mapping[str, Callable[..., Any]] = {
    "ConsistentDecentralized": schemes.ConsistentDecentralized,
    "ConsistentParameterServer": schemes.ConsistentParameterServer,
    "ShardedOptimizer": schemes.ShardedOptimizer,
    "ShardedParameters": schemes.ShardedParameters,
    "ReproducibleDecentralized": partial(schemes.ReproducibleDecentralized, blocks=6),
    "SparseAllreduce": schemes.SparseAllreduce,
    "TopK": partial(schemes.TopK, ratio=1),
    "DividedNetwork": schemes.DividedNetwork,
    "Pipeline": partial(schemes.Pipeline, micro_batches=6),
    "mesh": SchemeMesh({"data": 2, "shard": 2}),
}


@pytest.mark.parametrize("kind", ["labels", "classes", "mask"])
@pytest.mark.parametrize("name", SERIAL)
def test_ranks_are_one_process(name: str, kind: str) -> None:
    ranks = 4 if name == "mesh" else 2
    _, want = train(kind, None, Threads(1).run(lambda comm: comm)[0], ranks)
    for _, found in Threads(ranks).run(lambda comm: train(kind, SERIAL[name], comm, ranks)):
        for parameter, array in want.items():
            np.testing.assert_allclose(found[parameter], array, rtol=1e-11, atol=1e-13, err_msg=parameter)


@pytest.mark.parametrize("name", ["ConsistentDecentralized", "ShardedParameters"])
def test_ranks_with_pieces_are_one_process(name: str) -> None:
    _, want = train("labels", None, Threads(1).run(lambda comm: comm)[0], 3)
    for _, found in Threads(3).run(lambda comm: train("labels", SERIAL[name], comm, 3, accumulate=3)):
        for parameter, array in want.items():
            np.testing.assert_allclose(found[parameter], array, rtol=1e-11, atol=1e-13, err_msg=parameter)


def test_a_pipeline_says_the_loss_of_the_batch() -> None:
    (want, _), ((found, _), _) = (
        train("labels", None, Threads(1).run(lambda comm: comm)[0], 2),
        Threads(2).run(lambda comm: train("labels", SERIAL["Pipeline"], comm, 2)),
    )
    np.testing.assert_allclose(found, want, rtol=1e-12)  # NaN where nothing counts


@pytest.mark.parametrize("make", [schemes.ModelAverage, partial(schemes.LocalSGD, every=1)])
def test_parameters_are_averaged_by_what_counts(make: Any) -> None:
    """Serial training for a rule without a memory; where nothing counts, parameters stay what they are."""

    def work(comm: Communicator, scheme: Any, ranks: int = 2) -> Any:
        executor = load_backend("reference").from_model(network("classes"))
        base = optimizers.GradientDescent(executor, lr=0.1)
        trained = base if scheme is None else scheme(base, comm)
        for step in range(STEPS):
            mine = slice(None) if scheme is None else slice(comm.rank, None, ranks)
            with np.errstate(invalid="ignore", divide="ignore"):
                trained.step({name: array[mine] for name, array in batch("classes", step, ranks).items()})
        return parameters(trained)

    (want,) = Threads(1).run(lambda comm: work(comm, None))
    for found in Threads(2).run(lambda comm: work(comm, make)):
        for parameter, array in want.items():
            np.testing.assert_allclose(found[parameter], array, rtol=1e-12, atol=1e-14, err_msg=parameter)


def test_what_counts_costs_no_message_more() -> None:

    def work(comm: Communicator, options: dict[str, int]) -> Any:
        net = add_loss(to_dtype(create("mlp", shape=(6,), hidden=(5,), classes=4), "float64"), **options)
        base = optimizers.GradientDescent(load_backend("reference").from_model(net), lr=0.1)
        scheme = schemes.ConsistentDecentralized(base, comm)
        comm.traffic.reset()
        scheme.step({name: array[comm.rank :: 2] for name, array in batch("labels", 0, 2).items()})
        return {kind: (c.calls, c.payload_bytes, c.control_bytes) for kind, c in comm.traffic.kinds.items()}

    plain, counted = (Threads(2).run(lambda comm, o=o: work(comm, o)) for o in ({}, {"ignore_index": IGNORED}))
    assert plain == counted


def test_what_is_no_mean_is_refused_on_several_ranks() -> None:
    def work(comm: Communicator, make: Any) -> Any:
        executor = load_backend("reference").from_model(network("classes", "sum"))
        make(optimizers.GradientDescent(executor, lr=0.1), comm)

    for make in (schemes.ConsistentDecentralized, schemes.LocalSGD, schemes.Pipeline):
        Threads(1).run(work, make)
        with pytest.raises(InputError, match=f"got {make.__name__} on 2 ranks with the loss 'loss', which is a sum;"):
            Threads(2).run(work, make)
    Threads(2).run(work, schemes.DividedNetwork)  # whose loss is that of the whole batch


def test_a_log_of_gradients_counts_whole_samples() -> None:
    def work(comm: Communicator, make: Any) -> Any:
        executor = load_backend("reference").from_model(network("classes"))
        make(optimizers.GradientDescent(executor, lr=0.1), comm)

    with pytest.raises(InputError, match="divides by a sum of weights, with StaleSynchronous"):
        Threads(3).run(work, schemes.StaleSynchronous)
    for ranks, make in ((2, schemes.StaleSynchronous), (3, schemes.InconsistentParameterServer)):
        Threads(ranks).run(work, make)
