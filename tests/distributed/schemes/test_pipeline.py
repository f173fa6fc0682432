"""Pipelines: serial training by stages on different ranks, whatever the number of ranks and micro-batches."""

from __future__ import annotations

import math
import warnings
from typing import Any

import numpy as np
import pytest

import deep500 as d5
from deep500.distributed import Threads
from deep500.distributed.schemes import Pipeline, ShardedParameters
from deep500.distributed.schemes.pipeline import bubble
from deep500.errors import AccumulationWarning, InputError
from deep500.networks import Network, add_loss
from deep500.networks.emit import Emitter
from deep500.scaling.pretend import Pretend
from deep500.training import optimizers
from deep500.training.averaging import WeightAverage
from deep500.training.clipping import ClipGradientNorm
from tests.conftest import load_backend
from tests.distributed.pipeline_cases import digest_of_pipeline
from tests.distributed.scheme_table import batches, digest, make_base, parameters, serial
from tests.distributed.schemes.test_parameters import apart, batch_for, normalised, tied

BACKENDS = pytest.mark.parametrize("backend", ["reference", "pytorch"])
SIZES = [4, 3]


def skipping(dropout: bool = False) -> Network:
    """Four layers, of which values skip one: two activations cross there."""
    rng = np.random.default_rng(8)
    net = Network("skipping")
    net.add_input("input", ("N", 6), "float64")
    x = "input"
    for layer in range(4):
        net.add_parameter(f"w{layer}", rng.normal(size=(6, 6)) / 2)
        net.add_node("MatMul", [x, f"w{layer}"], [f"p{layer}"])
        net.add_node("Tanh", [f"p{layer}"], [f"h{layer}"])
        x = f"h{layer}"
        if dropout:
            x = Emitter(net, "")("Dropout", x, output=f"d{layer}")
    net.add_node("Add", ["h1", x], ["y"])
    net.add_output("y")
    return add_loss(net)


def train(comm: Any, base: Any, given: Any, micro_batches: int | None = 3) -> Any:
    """Rank 0 gets the batches: parameters, last outputs, the optimizer."""
    optimizer = Pipeline(base, comm, micro_batches)
    outputs: dict[str, Any] = {}
    for batch in given:
        mine = batch if comm.rank == 0 else {name: value[:0] for name, value in batch.items()}
        outputs = optimizer.step(mine)
    return parameters(optimizer), outputs, optimizer


def both(make: Any, backend: str, ranks: int, pieces: int, steps: int = 3) -> Any:
    """What ranks end with, and one process that accumulates as many pieces."""
    module = load_backend(backend)
    given = [batch_for(make(), 7, step) for step in range(steps)]

    def base(**options: Any) -> Any:
        return optimizers.MomentumOptimizer(module.from_model(make(), "cpu"), "loss", lr=0.1, **options)

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", AccumulationWarning)
        alone = base(accumulate=pieces)
    for batch in given:
        outputs = alone.step(batch)
    found = Threads(ranks).run(lambda comm: train(comm, base(), given, pieces)[:2])
    return found, parameters(alone), {n: np.asarray(alone.network.to_numpy(v)) for n, v in outputs.items()}


@BACKENDS
@pytest.mark.parametrize("ranks", [1, 2, 3])
def test_a_pipeline_is_serial_training(ranks: int, backend: str) -> None:
    load_backend(backend)
    want = serial(SIZES, backend)
    outcomes = Threads(ranks).run(lambda comm: train(comm, make_base(backend, comm.rank), batches(SIZES)))
    for found, outputs, optimizer in outcomes:
        assert apart(found, want) < 1e-12
        assert bool(outputs) == (optimizer.comm.rank == 0)
        if ranks > 1:
            assert optimizer.most_under_way == ranks - optimizer.comm.rank
    assert apart(want, parameters(make_base(backend))) > 1e-3


@BACKENDS
@pytest.mark.parametrize(("ranks", "pieces"), [(2, 5), (3, 2), (4, 1), (4, 20)])
def test_values_may_skip_stages_and_micro_batches_be_few_or_many(ranks: int, pieces: int, backend: str) -> None:
    found, want, outputs = both(skipping, backend, ranks, pieces)
    assert all(apart(parameters, want) < 1e-12 for parameters, _ in found)
    (first, *others) = (given for _, given in found)
    assert not any(others) and first.keys() == outputs.keys()
    assert all(np.abs(np.asarray(first[name]) - outputs[name]).max() < 1e-12 for name in outputs)


@BACKENDS
def test_batch_normalization_is_that_of_accumulated_pieces(backend: str) -> None:
    """Running statistics included."""
    found, want, _ = both(normalised, backend, 2, 3)
    assert all(apart(parameters, want) < 1e-12 for parameters, _ in found)
    assert apart(want, both(normalised, backend, 1, 1)[1]) > 1e-3, "whole batches are another run"


@BACKENDS
@pytest.mark.parametrize("kind", [Pipeline, ShardedParameters])
def test_an_average_of_weights_is_that_of_one_process(kind: Any, backend: str) -> None:
    """Each rank averages what it holds; an average goes through a state, and weights are as if none had been."""
    alone = make_base(backend)
    want = WeightAverage(alone.executor, 0.6)
    for batch in batches(SIZES):
        alone.step(batch)
        want.update()
    weights = parameters(alone)
    want.apply()

    def work(comm: Any) -> Any:
        scheme = kind(make_base(backend, comm.rank), comm)
        average = WeightAverage(scheme.executor, 0.6, scheme)
        for number, batch in enumerate(batches(SIZES)):
            if number == 1:
                state = average.state()
                average = WeightAverage(scheme.executor, 0.6, scheme)
                average.load_state(state)
            begin = 0 if kind is Pipeline else comm.rank
            step = 1 if kind is Pipeline else comm.size
            mine = slice(0, 0) if kind is Pipeline and comm.rank else slice(begin, None, step)
            scheme.step({name: value[mine] for name, value in batch.items()})
            average.update(scheme.judged_tensors)
        with scheme.evaluation(), average.evaluation():
            judged = dict(zip(scheme.network.parameters, map(np.array, scheme.all_arrays()), strict=True))
        return judged, parameters(scheme), sum(math.prod(tensor.shape) for tensor in average._averages.values())

    ranks = Threads(2).run(work)
    assert all(apart(judged, parameters(alone)) < 1e-12 and apart(after, weights) < 1e-12 for judged, after, _ in ranks)
    assert sum(count for _, _, count in ranks) == sum(array.size for array in weights.values())
    assert apart(weights, parameters(alone)) > 1e-4


def test_dropout_draws_the_same_in_every_run() -> None:
    def run(seed: int) -> str:
        def work(comm: Any) -> str:
            executor = load_backend("reference").from_model(skipping(dropout=True))
            executor.reseed(1)
            optimizer = Pipeline(optimizers.GradientDescent(executor), comm, 3)
            executor.reseed(seed)
            batch = batch_for(skipping(), 7, 0)
            optimizer.step(batch if comm.rank == 0 else {name: value[:0] for name, value in batch.items()})
            return digest(parameters(optimizer))

        return Threads(2).run(work)[0]

    assert run(1) == run(1) != run(2)


@BACKENDS
def test_micro_batches_count_by_what_the_loss_is_a_mean_over(backend: str) -> None:
    """Labels that are ignored do not count; one micro-batch has no other."""
    module = load_backend(backend)
    batch = batch_for(skipping(), 6, 0) | {"label": np.array([1, -1, 0, 2, -1, -1])}

    def base() -> Any:
        net = skipping()
        net.remove_output("loss")
        net.remove_node(net.producer("loss").name)
        net.add_node("SoftmaxCrossEntropyLoss", ["y", "label"], ["loss"], reduction="mean", ignore_index=-1)
        net.add_output("loss")
        return optimizers.GradientDescent(module.from_model(net, "cpu"), lr=0.1)

    def work(comm: Any) -> Any:
        optimizer = Pipeline(base(), comm, 3)
        mine = batch if comm.rank == 0 else {name: value[:0] for name, value in batch.items()}
        outputs = optimizer.step(mine)
        return parameters(optimizer), float(outputs["loss"]) if outputs else None

    alone = base()
    loss = float(alone.step(batch)["loss"])
    with np.errstate(invalid="ignore"):
        outcomes = Threads(2).run(work)
    assert abs(outcomes[0][1] - loss) < 1e-12
    assert all(apart(found, parameters(alone)) < 1e-12 for found, _ in outcomes)


def test_clipping_and_rules_of_whole_tensors() -> None:
    options = {"kind": "AdamWOptimizer", "gradient_transform": ClipGradientNorm(0.05), "no_decay": "norms_and_biases"}
    want = serial(SIZES, "reference", **options)
    found = Threads(3).run(lambda comm: train(comm, make_base("reference", comm.rank, **options), batches(SIZES))[0])
    assert max(apart(parameters, want) for parameters in found) < 1e-10
    halved = {"kind": "AcceleGradOptimizer", "gradient_modifier": lambda name, parameter, gradient: gradient * 0.5}
    want = serial(SIZES, "reference", **halved)
    found = Threads(2).run(lambda comm: train(comm, make_base("reference", comm.rank, **halved), batches(SIZES))[0])
    assert max(apart(parameters, want) for parameters in found) < 1e-12


@BACKENDS
def test_a_rank_holds_its_stage(backend: str) -> None:
    load_backend(backend)

    def work(comm: Any) -> Any:
        _, _, optimizer = train(comm, make_base(backend, kind="AdamOptimizer"), batches(SIZES))
        network = optimizer.network
        held = [n for n in network.get_params() if not np.isnan(np.asarray(network.fetch_tensors([n])[0])).any()]
        with optimizer.evaluation():
            loss = float(optimizer.executor.inference(batches([4])[0])["loss"])
        slots = {name for tensors in optimizer.base_optimizer.state.values() for name in tensors}
        return held, list(optimizer.stages[comm.rank].parameters), sorted(slots), loss

    outcomes = Threads(3).run(work)
    for held, stage, slots, loss in outcomes:
        assert held == stage and slots == sorted(stage) and loss == outcomes[0][3] and np.isfinite(loss)
    assert sum(len(held) for held, *_ in outcomes) == 6


@BACKENDS
def test_a_state_loads_on_another_number_of_ranks(backend: str) -> None:
    load_backend(backend)
    options = {"kind": "AdamOptimizer", "lr": 0.01}

    def begin(comm: Any) -> Any:
        weights, _, optimizer = train(comm, make_base(backend, **options), batches(SIZES)[:3])
        return weights, optimizer.state_dict()

    weights, state = Threads(3).run(begin)[1]

    def go_on(comm: Any) -> Any:
        optimizer = Pipeline(make_base(backend, 9, **options), comm, 3)
        optimizer.network.load_state(weights)
        optimizer.load_state_dict(state)
        for batch in batches(SIZES)[3:]:
            optimizer.step(batch if comm.rank == 0 else {name: value[:0] for name, value in batch.items()})
        assert optimizer.steps == 6 and optimizer.state_dict().keys() == state.keys()
        return parameters(optimizer)

    want = serial(SIZES, backend, **options)
    for ranks in (1, 2):
        assert max(apart(found, want) for found in Threads(ranks).run(go_on)) < 1e-12


@BACKENDS
def test_running_statistics_load_where_their_stage_is(backend: str) -> None:
    module = load_backend(backend)

    def work(comm: Any) -> Any:
        def make() -> Any:
            return optimizers.GradientDescent(module.from_model(normalised(), "cpu"), "loss", lr=0.1)

        state = train(comm, make(), [batch_for(normalised(), 4, 0)])[2].network.state()
        other = Pipeline(make(), comm, 3)
        other.network.load_state(state)
        return digest(state), digest(other.network.state()), digest(Pipeline(make(), comm, 3).network.state())

    for trained, loaded, fresh in Threads(2).run(work):
        assert trained == loaded != fresh


def test_the_bubble_of_a_schedule() -> None:
    """Counted on the schedule itself: every rank works 2 M of the 2 (M + P - 1) turns."""
    for ranks, pieces in ((2, 3), (4, 4), (3, 9)):
        done: dict[tuple[str, int, int], int] = {}
        orders = [order(rank, ranks, pieces) for rank in range(ranks)]
        clocks = [0] * ranks
        while any(orders):
            for rank, left in enumerate(orders):
                if not left:
                    continue
                kind, number = left[0]
                before = (kind, rank + (1 if kind == "back" else -1), number)
                if 0 <= before[1] < ranks and before not in done:
                    continue
                clocks[rank] = done[kind, rank, number] = max(clocks[rank], done.get(before, 0)) + 1
                left.pop(0)
        turns = max(clocks)
        assert 1 - 2 * pieces / turns == pytest.approx(bubble(ranks, pieces))


def order(rank: int, ranks: int, count: int) -> list[tuple[str, int]]:
    """In which order a rank runs micro-batches, as its methods are called."""
    calls: list[tuple[str, int]] = []
    scheme = object.__new__(Pipeline)
    scheme.comm = Pretend(ranks)
    scheme.comm.rank = rank
    scheme._go_forward = lambda state, number: calls.append(("forward", number))  # type: ignore[method-assign]
    scheme._go_back = lambda state, number: calls.append(("back", number))  # type: ignore[method-assign]
    scheme._meet = scheme._meet_next = lambda state, send=None, receive=None: None  # type: ignore[method-assign]
    scheme._schedule(type("State", (), {"counts": [[1, 1]] * count})())  # type: ignore[arg-type]
    return calls


def refused(make: Any, ranks: int = 2, inputs: Any = None) -> str:
    def work(comm: Any) -> None:
        optimizer = Pipeline(make(), comm)
        if inputs is not None:
            optimizer.step(inputs)

    with pytest.raises(InputError) as caught:
        Threads(ranks).run(work)
    return str(caught.value)


def test_what_a_pipeline_cannot_do_is_refused() -> None:
    assert "can be cut in 3 stages" in refused(lambda: make_base("reference"), ranks=5)
    assert "'w', which stages 0 and 1 of a Pipeline read" in refused(
        lambda: optimizers.GradientDescent(load_backend("reference").from_model(tied()))
    )
    assert "got accumulate" in refused(lambda: make_base("reference", accumulate=2))
    assert "other than ClipGradientNorm" in refused(lambda: make_base("reference", gradient_transform=lambda n, g: g))
    assert "samples on rank 1 of a Pipeline" in refused(lambda: make_base("reference"), inputs=batches([2])[0])
    with pytest.raises(InputError, match="got imagined ranks for Pipeline"):
        Pipeline(make_base("reference"), Pretend(4))
    with pytest.raises(InputError, match="got micro_batches 0"):
        Pipeline(make_base("reference"), Pretend(4), 0)


def test_a_checkpointing_plan_is_refused() -> None:
    def make() -> Any:
        base = make_base("reference")
        base.executor.set_checkpointing(d5.plan_checkpointing(base.network, 1.0, batch=2))
        return base

    assert "got a checkpointing plan with Pipeline" in refused(make, inputs={})


@pytest.mark.backend("pytorch")
def test_native_optimizer_is_refused() -> None:
    assert "for Pipeline, which updates all parameters at once" in refused(lambda: make_base("pytorch native"))


@pytest.mark.mpi
@pytest.mark.parametrize("ranks", [2, 3, 4])
def test_pipelines_of_processes(ranks: int, on_ranks: Any) -> None:
    """Messages larger than MPI hands over at once: nobody waits for a rank that waits for it; the bits of threads."""
    results = on_ranks(digest_of_pipeline, ranks)
    want = Threads(ranks).run(digest_of_pipeline)
    assert results == want and len({found for found, _ in results}) == 1
    assert min(payload for _, payload in results) / 6 > 100_000
