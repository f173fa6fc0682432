"""Sharded parameters: the updates of whole training, from parts of parameters, gradients and state."""

from __future__ import annotations

import gc
import weakref
from typing import Any

import numpy as np
import pytest

import deep500 as d5
from deep500.distributed import Serial, Threads
from deep500.distributed.sampler import DistributedSampler
from deep500.distributed.schemes import ConsistentDecentralized, Pipeline, ShardedParameters
from deep500.distributed.stage_runs import StageRun
from deep500.errors import InputError, UnsupportedOperator
from deep500.networks import Network, add_loss, create
from deep500.results.checkpoint import list_checkpoints, load_checkpoint, save_checkpoint
from deep500.training import optimizers
from deep500.training.clipping import ClipGradientNorm
from deep500.transformations.mixed_precision import mixed_precision
from deep500.transformations.stages import stages
from tests.conftest import load_backend
from tests.distributed.memory_cases import held_and_peak
from tests.distributed.scheme_table import batches, make_base, parameters, serial
from tests.distributed.scheme_table import network as perceptron

BACKENDS = pytest.mark.parametrize("backend", ["reference", "pytorch"])


def tied() -> Network:
    """A matrix that two stages read, with an activation that skips one of them."""
    rng = np.random.default_rng(5)
    net = Network("tied")
    net.add_input("input", ("N", 6), "float64")
    for name, shape in {"w": (6, 6), "v": (6, 6), "u": (6, 3)}.items():
        net.add_parameter(name, rng.normal(size=shape) / 2)
    net.add_node("MatMul", ["input", "w"], ["a"])
    net.add_node("Tanh", ["a"], ["b"])
    net.add_node("MatMul", ["b", "v"], ["c"])
    net.add_node("Add", ["c", "b"], ["d"])
    net.add_node("MatMul", ["d", "w"], ["e"])
    net.add_node("Tanh", ["e"], ["f"])
    net.add_node("MatMul", ["f", "u"], ["y"])
    net.add_output("y")
    return add_loss(net)


def normalised() -> Network:
    """Convolutions and batch normalization, a residual block."""
    rng = np.random.default_rng(6)
    net = Network("normalised")
    net.add_input("input", ("N", 2, 5, 5), "float64")
    for name, shape in {"c1": (4, 2, 3, 3), "c2": (4, 4, 3, 3), "fc": (4, 3)}.items():
        net.add_parameter(name, rng.normal(size=shape) / 3)
    x = "input"
    for layer in (1, 2):
        for name, value in {"scale": 1, "bias": 0, "mean": 0, "var": 1}.items():
            net.add_parameter(f"{name}{layer}", np.full(4, float(value)), trainable=name in ("scale", "bias"))
        net.add_node("Conv", [x, f"c{layer}"], [f"y{layer}"], pads=(1, 1, 1, 1))
        statistics = [f"{name}{layer}" for name in ("scale", "bias", "mean", "var")]
        net.add_node("BatchNormalization", [f"y{layer}", *statistics], [f"n{layer}"])
        net.add_node("Relu", [f"n{layer}"], [f"r{layer}"])
        x = f"r{layer}"
    net.add_node("Add", ["r1", "r2"], ["sum"])
    net.add_node("GlobalAveragePool", ["sum"], ["pooled"])
    net.add_node("Flatten", ["pooled"], ["flat"])
    net.add_node("MatMul", ["flat", "fc"], ["y"])
    net.add_output("y")
    return add_loss(net)


def batch_for(net: Network, size: int, seed: int) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(seed)
    shape = [size, *net.inputs["input"].shape[1:]]
    return {"input": rng.normal(size=shape), "label": rng.integers(0, 3, size)}


def train(comm: Any, scheme: Any, make: Any, backend: str, kind: str = "AdamOptimizer", **options: Any) -> Any:
    """Four steps on this rank's samples: the parameters, the losses, and the optimizer."""
    network = make()
    executor = load_backend(backend).from_model(network, "cpu")
    optimizer = scheme(getattr(optimizers, kind)(executor, "loss", lr=0.01, **options), comm)
    losses = []
    for step in range(4):
        batch = batch_for(network, 3 * comm.size + 1, step)
        share = {name: value[comm.rank :: comm.size] for name, value in batch.items()}
        losses.append(float(optimizer.step(share)["loss"]))
    return parameters(optimizer), losses, optimizer


def apart(one: dict[str, np.ndarray], other: dict[str, np.ndarray]) -> float:
    assert one.keys() == other.keys()
    return max(float(np.abs(one[name] - other[name]).max()) for name in one)


@BACKENDS
@pytest.mark.parametrize("ranks", [2, 3, 4])
@pytest.mark.parametrize("make", [tied, normalised])
def test_equals_the_scheme_that_keeps_all(make: Any, ranks: int, backend: str) -> None:
    """Losses, parameters and running statistics; tied matrices get the gradients of both their places."""
    load_backend(backend)
    sharded, whole = (
        Threads(ranks).run(lambda comm, kind=kind: train(comm, kind, make, backend, "MomentumOptimizer")[:2])
        for kind in (ShardedParameters, ConsistentDecentralized)
    )
    for (mine, losses), (theirs, expected) in zip(sharded, whole, strict=True):
        assert apart(mine, theirs) < 1e-12
        assert np.abs(np.subtract(losses, expected)).max() < 1e-12
    assert apart(sharded[0][0], {name: np.array(p.value) for name, p in make().parameters.items()}) > 1e-3


@pytest.mark.parametrize(
    "options",
    [
        {"kind": "AdamWOptimizer", "no_decay": "norms_and_biases", "weight_decay": 0.3},
        {"kind": "RMSPropOptimizer", "centered": True, "momentum": 0.5},
        {"kind": "AdaGradOptimizer"},
        {"kind": "GradientDescent", "gradient_transform": ClipGradientNorm(0.1)},
    ],
    ids=lambda options: options["kind"],
)
def test_every_elementwise_rule_trains_as_in_one_process(options: dict[str, Any]) -> None:
    sizes = [2, 3, 4]
    want = serial(sizes, "reference", **options)

    def work(comm: Any) -> Any:
        optimizer = ShardedParameters(make_base("reference", comm.rank, **options), comm)
        for batch in batches(sizes, rank=comm.rank):
            optimizer.step(batch)
        return parameters(optimizer)

    assert max(apart(got, want) for got in Threads(3).run(work)) < 1e-10  # quotients of small numbers


@BACKENDS
@pytest.mark.parametrize("ranks", [2, 3, 4])
def test_a_rank_holds_its_part(ranks: int, backend: str) -> None:
    """1/P of parameters, gradients and state, up to an element a stage; the network's own arrays are gone."""
    load_backend(backend)
    elements = sum(p.value.size for p in perceptron().parameters.values())

    def work(comm: Any) -> Any:
        network = perceptron()
        network.add_parameter("unread", np.ones(3), trainable=False)
        executor = load_backend(backend).from_model(network, "cpu")
        alive = [weakref.ref(executor.network.parameters[name].value) for name in ("w1", "b2")]
        optimizer = ShardedParameters(optimizers.AdamOptimizer(executor), comm)
        optimizer.step(batches([2] * comm.size, 1, comm.rank)[0])
        del network
        gc.collect()
        tensor = executor.network.fetch_tensors(["w1"])[0]
        storage = tensor.untyped_storage().nbytes() if backend == "pytorch" else tensor.base.nbytes
        return optimizer.held(), [ref() is None for ref in alive], storage, float(tensor[0, 0]), len(optimizer.stages)

    for held, gone, storage, read, count in Threads(ranks).run(work):
        assert count == 3 and all(gone) and storage == 8 and np.isnan(read)
        part = held["parameters"] // 8
        assert elements / ranks <= part < elements / ranks + count
        assert held["gradients"] == held["parameters"] and held["largest stage"] < 8 * elements * 0.6
    states = [held["state"] for held, *_ in Threads(ranks).run(work)]
    assert sum(states) == 2 * 8 * elements and max(states) <= 2 * 8 * (elements / ranks + count)


@BACKENDS
def test_a_state_loads_on_another_number_of_ranks(backend: str) -> None:
    load_backend(backend)
    sizes = [1, 2, 3]

    def steps(optimizer: Any, comm: Any, first: int, last: int) -> Any:
        end = np.cumsum([0, *(sizes if comm.size == 3 else [6 - comm.size + 1] + [1] * (comm.size - 1))])
        for batch in batches(sizes)[first:last]:
            share = slice(end[comm.rank], end[comm.rank + 1])
            optimizer.step({name: value[share] for name, value in batch.items()})
        return parameters(optimizer), optimizer.state_dict()

    def begin(comm: Any) -> Any:
        return steps(ShardedParameters(make_base(backend, kind="AdamOptimizer", lr=0.01), comm), comm, 0, 3)

    def go_on(comm: Any, weights: Any, state: Any) -> Any:
        optimizer = ShardedParameters(make_base(backend, 9, kind="AdamOptimizer", lr=0.01), comm)
        optimizer.network.load_state(weights)
        optimizer.load_state_dict(state)
        assert optimizer.steps == 3
        return steps(optimizer, comm, 3, 6)

    weights, state = Threads(3).run(begin)[2]
    want = serial(sizes, backend, kind="AdamOptimizer", lr=0.01)
    for ranks in (1, 2, 4):
        outcomes = Threads(ranks).run(lambda comm: go_on(comm, weights, state))
        assert apart(outcomes[-1][0], want) < 1e-12
        assert outcomes[0][1].keys() == state.keys()


def trained(comm: Any, scheme: Any, epochs: int, state: Any = None) -> Any:
    """A trainer's state after so many epochs in all, validated after each; the loss of the last validation."""
    rng = np.random.default_rng(4)
    data = d5.NumpyDataset(rng.normal(size=(30, 12)), "input", rng.integers(0, 4, 30))
    network = perceptron()
    network.add_output("y3")
    optimizer = scheme(optimizers.AdamOptimizer(load_backend("reference").from_model(network), lr=0.01), comm)
    computing = list(scheme.computing_ranks(comm.size))
    position = computing.index(comm.rank) if comm.rank in computing else None
    train = DistributedSampler(d5.ShuffleSampler(data, 8, seed=2), position, len(computing))
    test = DistributedSampler(d5.OrderedSampler(data, 8), comm.rank, comm.size)
    trainer = d5.Trainer(train, test, optimizer.executor, optimizer)
    if state is not None:
        trainer.load_state(state)
    statistics = trainer.run(epochs, events=[])
    return trainer.state(), statistics.epochs[-1].test_loss


@pytest.mark.parametrize("scheme", [ShardedParameters, Pipeline])
def test_a_checkpoint_loads_on_another_number_of_ranks(scheme: Any, tmp_path: Any) -> None:
    """The file of any rank; a trainer on two ranks goes on where three have stopped."""
    state, _ = Threads(3).run(lambda comm: trained(comm, scheme, 1))[1]
    save_checkpoint(tmp_path, 1, state)
    (path,) = list_checkpoints(tmp_path)
    want, loss = trained(Serial(), ConsistentDecentralized, 3)
    for found, own_loss in Threads(2).run(lambda comm: trained(comm, scheme, 3, load_checkpoint(path))):
        assert found["values"]["epoch"] == 3 and found["values"]["step"] == want["values"]["step"]
        names = [name for name in want["arrays"] if name.startswith("network/")]
        assert max(np.abs(found["arrays"][name] - want["arrays"][name]).max() for name in names) < 1e-10
        assert abs(own_loss - loss) < 1e-10


@BACKENDS
@pytest.mark.parametrize("scheme", [ShardedParameters, Pipeline])
def test_mixed_precision_crosses_stages_in_its_own_dtype(scheme: Any, backend: str) -> None:
    """In bf16, of 8 bits: near the run in one process, and far from where it began."""
    module = load_backend(backend)

    def base() -> Any:
        made = mixed_precision(add_loss(create("mlp", shape=(8,), hidden=(16, 16), classes=3)), "bf16")
        return optimizers.GradientDescent(module.from_model(made, "cpu"), lr=0.5)

    rng = np.random.default_rng(1)
    given = [{"input": rng.normal(size=(8, 8)).astype("float32"), "label": rng.integers(0, 3, 8)} for _ in range(4)]

    def work(comm: Any) -> Any:
        optimizer = scheme(base(), comm)
        for batch in given:
            mine = slice(comm.rank, None, 2) if scheme is ShardedParameters else slice(0, 8 * (comm.rank == 0))
            optimizer.step({name: value[mine] for name, value in batch.items()})
        return parameters(optimizer)

    alone = base()
    begin = parameters(alone)
    for batch in given:
        alone.step(batch)
    moved = apart(begin, parameters(alone))
    assert all(apart(found, parameters(alone)) < 0.05 * moved for found in Threads(2).run(work))


@BACKENDS
def test_a_stage_draws_the_same_forward_and_backward(backend: str) -> None:
    net = Network("drop")
    net.add_input("input", ("N", 50), "float64")
    net.add_parameter("w", np.eye(50))
    net.add_node("MatMul", ["input", "w"], ["h"])
    net.add_node("Dropout", ["h"], ["y"])
    net.add_node("ReduceMean", ["y"], ["loss"], keepdims=0)
    net.add_output("y")
    net.add_output("loss")
    (stage,) = stages(net)
    run = StageRun(stage, load_backend(backend).from_model(net, "cpu"))
    given = {"input": np.ones((4, 50)), "w": np.eye(50)}
    forward, other = (np.asarray(run.forward(given, seed)["y"]) for seed in (3, 4))
    gradients, outputs = run.backward(given, {"loss": np.ones(())}, 3, first=True)
    assert stage.random and (np.asarray(outputs["y"]) == forward).all() and (forward != other).any()
    kept = (forward != 0).sum(0) * 2 / forward.size
    assert np.abs(np.asarray(gradients["w"]) - kept).max() < 1e-12


def test_validation_and_states_see_whole_parameters() -> None:
    def work(comm: Any) -> Any:
        optimizer = ShardedParameters(make_base("reference"), comm)
        batch = batches([4])[0]
        with optimizer.evaluation():
            within = float(optimizer.executor.inference(batch)["loss"])
        return within, float(optimizer.executor.inference(batch)["loss"])

    expected = float(make_base("reference").executor.inference(batches([4])[0])["loss"])
    for within, outside in Threads(3).run(work):
        assert within == expected and np.isnan(outside)


def refused(make: Any) -> str:
    with pytest.raises(InputError) as caught:
        Threads(2).run(lambda comm: ShardedParameters(make(), comm))
    return str(caught.value)


def test_what_does_not_go_with_parts_is_refused() -> None:
    class Own(optimizers.MomentumOptimizer):
        """Says nothing of itself."""

    assert "Own for ShardedParameters" in refused(lambda: Own(make_base("reference").executor))
    assert "AcceleGradOptimizer" in refused(lambda: make_base("reference", kind="AcceleGradOptimizer"))
    assert "got a gradient_modifier" in refused(lambda: make_base("reference", gradient_modifier=lambda n, p, g: g))
    assert "other than ClipGradientNorm" in refused(lambda: make_base("reference", gradient_transform=lambda n, g: g))

    def half() -> Any:
        network = Network("half")
        network.add_input("input", ("N", 2), "float16")
        network.add_parameter("w", np.ones((2, 2), "float16"))
        network.add_node("MatMul", ["input", "w"], ["y"])
        network.add_node("ReduceMean", ["y"], ["loss"], keepdims=0)
        network.add_output("loss")
        return optimizers.GradientDescent(load_backend("reference").from_model(network))

    assert "in float16 for ShardedParameters; expected float32 or float64" in refused(half)


@pytest.mark.filterwarnings("ignore::deep500.training.accumulation.AccumulationWarning")
@pytest.mark.parametrize("make", [tied, normalised])
def test_a_batch_in_pieces_is_that_of_the_scheme_that_keeps_all(make: Any) -> None:
    """Running statistics, which see a piece at a time, included; losses are those of the whole batch."""
    found, want = (
        Threads(3).run(lambda comm, kind=kind: train(comm, kind, make, "reference", accumulate=2)[:2])
        for kind in (ShardedParameters, ConsistentDecentralized)
    )
    for (mine, losses), (theirs, expected) in zip(found, want, strict=True):
        assert apart(mine, theirs) < 1e-12 and np.abs(np.subtract(losses, expected)).max() < 1e-12
    if make is normalised:
        whole = Threads(3).run(lambda comm: train(comm, ShardedParameters, make, "reference")[0])
        assert apart(found[0][0], whole[0]) > 1e-4, "statistics are those of whole shares"


def test_a_checkpointing_plan_is_refused() -> None:
    def planned(comm: Any) -> None:
        optimizer = ShardedParameters(make_base("reference"), comm)
        optimizer.executor.set_checkpointing(d5.plan_checkpointing(perceptron(), 1.0, batch=2))
        optimizer.step(batches([2, 2], 1, comm.rank)[0])

    with pytest.raises(InputError, match="got a checkpointing plan with ShardedParameters"):
        Threads(2).run(planned)


@pytest.mark.backend("jax")
def test_a_backend_that_cannot_let_go_is_refused() -> None:
    base = make_base("jax")
    with pytest.raises(UnsupportedOperator, match="to let go of parameter 'w1', whose backend cannot"):
        Threads(2).run(lambda comm: ShardedParameters(base if comm.rank == 0 else make_base("jax"), comm))


@pytest.mark.long
@pytest.mark.mpi
def test_memory_of_processes_is_that_of_parts(on_ranks: Any) -> None:
    """In units of the parameters: three thirds (with Adam's two moments), and two stages' worth more at most."""
    shape = {"width": 256, "layers": 8}
    for rank in on_ranks(held_and_peak, 3, scheme="ShardedParameters", backend="reference", **shape):
        assert 1 < rank["held"] / rank["parameters"] < 1.2
        assert 1.3 < rank["peak"] / rank["parameters"] < 2
