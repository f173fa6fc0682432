"""Two sets of weights: training goes on from one, and validations, checkpoints, averages and files have the other."""

from __future__ import annotations

import gc
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from deep500.distributed import Threads
from deep500.distributed.schemes import ConsistentDecentralized, ReproducibleDecentralized, ShardedOptimizer
from deep500.errors import InputError
from deep500.networks import Network, add_loss
from deep500.training import optimizers as d5
from deep500.training.data import NumpyDataset
from deep500.training.data.prefetch import Prefetch
from deep500.training.data.samplers import OrderedSampler, ShuffleSampler
from deep500.training.listeners import JudgeEvery
from deep500.training.trainer import CALIBRATION, Trainer
from tests.conftest import load_backend
from tests.tasks.test_kinds_on_ranks import scenes
from tests.tolerances import assert_close

RNG = np.random.default_rng(0)
DATA = NumpyDataset(RNG.normal(size=(48, 3, 6, 6)).astype("float32"), labels=RNG.integers(0, 3, 48))


def network(normalizes: bool = True) -> Network:
    net = Network("normalized")
    net.add_input("input", ("N", 3, 6, 6))
    for name, shape in {"kernel": (4, 3, 3, 3), "head": (4 * 16, 3)}.items():
        net.add_parameter(name, np.random.default_rng(1).normal(size=shape).astype("float32") / 4)
    net.add_node("Conv", ["input", "kernel"], ["a"], name="conv")
    if normalizes:
        for name, value, trains in (("scale", 1, True), ("shift", 0, True), ("mean", 0, False), ("var", 1, False)):
            net.add_parameter(name, np.full(4, value, "float32"), trainable=trains)
        net.add_node("BatchNormalization", ["a", "scale", "shift", "mean", "var"], ["b"], name="bn", momentum=0.8)
    net.add_node("Relu", ["b" if normalizes else "a"], ["c"])
    net.add_node("Flatten", ["c"], ["d"])
    net.add_node("MatMul", ["d", "head"], ["output"])
    net.add_output("output")
    return add_loss(net)


def trainer_of(backend: str = "reference", normalizes: bool = True, scheme: Any = None, **options: Any) -> Trainer:
    executor = load_backend(backend).from_model(network(normalizes), "cpu")
    optimizer: Any = d5.ScheduleFreeAdamWOptimizer(executor, lr=0.05, warmup_steps=4)
    optimizer = optimizer if scheme is None else scheme(optimizer)
    return Trainer(ShuffleSampler(DATA, 8), OrderedSampler(DATA, 12), executor, optimizer, **options)


def copies(network: Any) -> dict[str, np.ndarray]:
    return {name: np.array(array) for name, array in network.state().items()}


def test_everything_after_an_epoch_has_the_weights_of_evaluation(tmp_path: Path) -> None:
    trainer = trainer_of(normalizes=False, ema=0.5)
    executor, optimizer, trained, judged = trainer.executor, trainer.optimizer, [], []
    update = trainer.average.update

    def watch(fetch: Any) -> None:
        trained.append(copies(executor.network))
        with optimizer.evaluation():
            judged.append(copies(executor.network))
        for name, array in copies(executor.network).items():
            np.testing.assert_array_equal(array, trained[-1][name])  # given back, bit by bit
        update(fetch)

    trainer.average.update = watch
    statistics = trainer.run(2, [])
    y, x = trained[-1], judged[-1]
    z = optimizer.state_dict()
    for name, array in x.items():
        assert np.abs(array - y[name]).max() > 1e-3
        assert_close(array, y[name] / 0.9 + (1 - 1 / 0.9) * z[f"z/{name}"], "training", name)
        np.testing.assert_array_equal(executor.network.state()[name], array)
        np.testing.assert_array_equal(trainer.state()["arrays"][f"network/{name}"], array)
        np.testing.assert_array_equal(z[f"y/{name}"], y[name])
    executor.network.to_onnx(tmp_path / "net.onnx")
    exported = Network.from_onnx(tmp_path / "net.onnx")
    np.testing.assert_array_equal(exported.parameters["head"].value, x["head"])
    mean = judged[0]["head"]
    for weights in judged[1:]:
        mean = 0.5 * mean + 0.5 * weights["head"]
    assert_close(trainer.state()["arrays"]["ema/weight/head"], mean, "training")
    plain = trainer_of(normalizes=False)
    losses = plain.run(2, []).column("test_loss")
    fresh = load_backend("reference").from_model(network(False))
    fresh.network.load_state(x)
    scores = [float(fresh.inference(batch)["loss"]) for batch in OrderedSampler(DATA, 12)]
    assert losses[-1] == pytest.approx(np.mean(scores), rel=1e-6) != statistics.epochs[-1].test_loss


@pytest.mark.parametrize("backend", ["reference", "pytorch", "tensorflow", "jax"])
def test_a_run_goes_on_bit_for_bit(backend: str) -> None:
    """Through a checkpoint, with checks within epochs, and in a second call of the same trainer."""
    if backend != "reference":
        load_backend(backend)
    straight, first, again = (trainer_of(backend) for _ in range(3))
    straight.run(3, [JudgeEvery(4)])
    first.run(2, [JudgeEvery(4)])
    again.load_state(first.state())
    again.run(3, [JudgeEvery(4)])
    first.run(3, [JudgeEvery(4)])
    for other in (again, first):
        for name, array in straight.state()["arrays"].items():
            np.testing.assert_array_equal(other.state()["arrays"][name], array, err_msg=name)
        assert other.statistics.column("test_loss") == straight.statistics.column("test_loss")


@pytest.mark.parametrize("scheme", [None, ConsistentDecentralized])
def test_the_network_stays_the_judged_one_when_the_trainer_is_gone(scheme: Any) -> None:
    """A function trains and returns the executor, or its network: the rest is collected."""
    trainer = trainer_of(scheme=scheme)
    trainer.run(1, [])
    shown, executor, context = copies(trainer.executor.network), trainer.executor, trainer._shown
    with context.pop_all() as same:  # left, the network is the trained one again
        pass
    assert same is not context and any((a != shown[n]).any() for n, a in copies(executor.network).items())
    trainer._shown = None
    trainer._show()
    expected = copies(executor.network)
    trainer._shown = context = None
    gc.collect()
    for name, array in copies(executor.network).items():
        np.testing.assert_array_equal(array, expected[name])


def test_running_statistics_are_those_of_the_judged_weights() -> None:
    """Equal to passing the epoch's first batches through a network with these weights, by hand."""
    trainer = trainer_of()
    before: list[dict[str, np.ndarray]] = []
    shows = trainer._show

    def show() -> None:
        before.append(copies(trainer.executor.network))
        shows()

    trainer._show = show
    trainer.run(1, [])
    judged = copies(trainer.executor.network)
    assert len(trainer.train_sampler) < CALIBRATION
    mean, var = before[0]["mean"], before[0]["var"]
    reference = load_backend("reference").from_model(network())
    reference.network.load_state({**judged, "mean": mean, "var": var})
    for number in range(len(trainer.train_sampler)):
        reference.inference_and_backprop(trainer.train_sampler.batch(0, number), "loss")
    for name in ("mean", "var"):
        assert_close(judged[name], reference.network.state()[name], "forward", name)
        assert np.abs(judged[name] - before[0][name]).max() > 1e-3
    plain = trainer_of()
    plain._calibrates = False
    assert plain.run(1, []).column("test_loss") != trainer.statistics.column("test_loss")
    assert plain.statistics.column("train_loss") == trainer.statistics.column("train_loss")


def test_running_statistics_of_a_task_with_targets() -> None:
    """Detection computes what its loss reads from each batch, also from those that are passed to calibrate."""
    task, network, _, train, test = scenes()
    executor = load_backend("reference").from_model(task.add_loss(network))
    trainer = Trainer(Prefetch(train), test, executor, d5.ScheduleFreeAdamWOptimizer(executor, lr=1e-3), task=task)
    before: list[dict[str, np.ndarray]] = []
    shows = trainer._show
    trainer._show = lambda: (before.append(copies(executor.network)), shows())
    trainer.run(1, [])
    judged = copies(executor.network)
    names = [name for n in executor.network.nodes if n.op_type == "BatchNormalization" for name in n.inputs[3:5]]
    by_hand = load_backend("reference").from_model(task.add_loss(scenes()[1]))
    by_hand.network.load_state({**judged, **{name: before[0][name] for name in names}})
    for number in range(len(train)):
        by_hand.inference_and_backprop(task.targets(train.batch(0, number)), task.loss)
    for name in names:
        assert_close(judged[name], by_hand.network.state()[name], "forward", name)
    assert names and any(np.abs(judged[name] - before[0][name]).max() > 1e-3 for name in names)


def ranks(comm: Any, kind: Any) -> list[Any]:
    trainer = trainer_of(normalizes=False, scheme=lambda base: kind(base, comm))
    trainer.train_sampler = trainer.train_sampler.shard(comm.rank, comm.size, 8 // comm.size)
    trainer.run(2, [])
    judged = copies(trainer.executor.network)
    trainer.run(3, [])
    return [judged, copies(trainer.executor.network), trainer.statistics.column("test_loss")]


@pytest.mark.parametrize("kind", [ConsistentDecentralized, ShardedOptimizer])
def test_ranks_judge_as_one_process_does(kind: Any) -> None:
    (first, *rest), (second, *_) = Threads(2).run(ranks, kind)
    for name, array in first.items():
        np.testing.assert_array_equal(second[name], array)
    one = Threads(1).run(ranks, kind)[0]
    for name, array in first.items():
        assert_close(array, one[0][name], "training", name)
    np.testing.assert_allclose(rest[1], one[2], rtol=1e-3)


def test_what_cannot_be_calibrated_is_refused() -> None:
    with pytest.raises(InputError, match="BatchNormalization"):
        trainer_of(scheme=lambda base: ReproducibleDecentralized(base, blocks=4))
    with pytest.raises(InputError, match="> 0"):
        d5.ScheduleFreeSGDOptimizer(load_backend("reference").from_model(network()), momentum=0.0)
    with pytest.raises(InputError, match="for all parameters"):
        d5.ScheduleFreeSGDOptimizer(
            load_backend("reference").from_model(network()), groups=[{"parameters": "head", "r": 1.0}]
        )
