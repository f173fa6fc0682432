"""A task of each kind, of items of different lengths too, says the same on one rank and on two, loss and qualities."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import deep500 as d5
from deep500.distributed import Threads, schemes
from deep500.distributed.sampler import DistributedSampler
from deep500.networks import create, to_dtype
from deep500.tasks import (
    Alphabet,
    Classification,
    Detection,
    LanguageModelling,
    ProximalPolicyOptimization,
    Transcription,
    Transduction,
)
from deep500.tasks.tokens import Characters, Words
from deep500.training.data import PackedSampler, Utterances, load_dataset
from deep500.training.data.episodes import episodes
from deep500.training.data.text import Pairs, Passages


def speech():
    """Frames of one size and one label each: classification."""
    rng = np.random.default_rng(0)
    labels = rng.integers(0, 3, 13)
    frames = [np.eye(3)[[label] * n] + rng.normal(size=(n, 3)) for label, n in zip(labels, range(4, 17), strict=True)]
    data = Utterances(frames, labels, classes=3)
    network = create("conv1d", classes=3, shape=data.shape, width=4, lengths=True)
    return Classification(classes=3), network, data, d5.BucketSampler(data, 4, 1, num_buckets=2), PackedSampler(data, 4)


def transcripts():
    """CTC of strings, whose batches are as long as their longest one."""
    rng, words = np.random.default_rng(1), Alphabet(["yes", "no"])
    labels = [rng.integers(1, 3, rng.integers(1, 5)) for _ in range(13)]
    frames = [np.repeat(np.eye(3)[row], 4, axis=0) + rng.normal(size=(4 * len(row), 3)) for row in labels]
    data = Utterances(frames, labels, alphabet=words, pad="batch")
    network = create("conv1d_ctc", classes=3, shape=data.shape, width=6, layers=2, stride=2, norm=False, lengths=True)
    return (
        Transcription(dataset=data),
        network,
        data,
        d5.BucketSampler(data, 4, 1, num_buckets=2),
        PackedSampler(data, 4),
    )


def prose():
    """Passages, of which the last one ends in places that are not judged."""
    text = "a rank has a share of a batch, and no batch is its own. " * 2
    data = Passages(text, Characters.of(text), 8)
    network = create("gru_language_model", classes=data.classes, shape=data.shape, width=6, embedding=4)
    return LanguageModelling(dataset=data), network, data, d5.ShuffleSampler(data, 4, 1), d5.OrderedSampler(data, 4)


def pairs():
    """Words backwards; each rank searches for its own share."""
    rng = np.random.default_rng(2)
    texts = ["".join(rng.choice(list("abc"), rng.integers(1, 5))) for _ in range(13)]
    letters = Words("abc", separator="")
    data = Pairs([(text, text[::-1]) for text in texts], letters, letters, seen=4)
    sizes = dict(source=letters.size, target_length=5, width=8, heads=2, layers=1)
    network = create("encoder_decoder", classes=data.classes, shape=data.shape, **sizes)
    return Transduction(dataset=data), network, data, d5.ShuffleSampler(data, 4, 1), d5.OrderedSampler(data, 4)


def scenes():
    """Pictures with different numbers of boxes."""
    data = load_dataset("digit_scenes", train=9, test=1)[0]
    network = create("ssd", classes=10, shape=(1, 64, 64), stride=8, width=4, anchors=1)
    task = Detection((64, 64), 10, 8, [[13.0]], [1.45], least_score=0.0)
    return task, network, data, d5.ShuffleSampler(data, 4, 1), d5.OrderedSampler(data, 4)


def acting():
    """Greedy episodes, one for each seed."""
    pytest.importorskip("gymnasium")
    data = episodes("CartPole-v1", samples=16, judged=7)[1]
    task = ProximalPolicyOptimization(data, environments=2, horizon=8)
    network = create("actor_critic", classes=2, shape=data.shape, hidden=(8,))
    return task, network, data, d5.ShuffleSampler(data, 4, 1), d5.OrderedSampler(data, 4)


class Widen:
    """Numbers of a batch in the type of the network."""

    random = False

    def __init__(self, dtype: str) -> None:
        self.dtype = dtype

    def __call__(self, batch: Any, rng: Any) -> Any:
        return {name: value.astype(self.dtype) if value.dtype.kind == "f" else value for name, value in batch.items()}


def work(comm: Any, make: Any, backend: str, epochs: int) -> dict[str, Any]:
    """Qualities and loss on all ranks together: after training, or as the network is made."""
    module = d5.load_backend(backend)
    task, network, _, train, test = make()
    wide = "float64" if epochs else "float32"
    executor = module.from_model(to_dtype(task.add_loss(network), wide))
    for sampler in (train, test):
        sampler.add_transformation(Widen(wide))
    optimizer = schemes.ConsistentDecentralized(module.MomentumOptimizer(executor, lr=0.1), comm)
    train, test = (DistributedSampler(sampler, comm.rank, comm.size) for sampler in (train, test))
    trainer = d5.Trainer(train, test, executor, optimizer, task=task)
    if epochs:
        trainer.run(epochs, [])
    tally = trainer.evaluate(test, "test")
    sums = {name: np.sort(np.ravel(value)) for name, value in tally.sums.items()}  # rows come in any order
    return {"loss": tally.loss(), "samples": tally.samples, **tally.qualities(), **sums}


@pytest.mark.parametrize("backend", ["reference", pytest.param("pytorch", marks=pytest.mark.backend("pytorch"))])
@pytest.mark.parametrize(
    ("make", "epochs", "counted"),
    # batch normalization sees a rank's share, and PPO acts on each rank: their networks are judged as they are made
    [
        (speech, 2, "correct"),
        (transcripts, 2, "edits"),
        (prose, 2, "nats"),
        (pairs, 2, "bleu"),
        (scenes, 0, "detections"),
        (acting, 0, "returns"),
    ],
    ids=lambda value: getattr(value, "__name__", str(value)),
)
def test_ranks_judge_as_one_does(make, epochs, counted, backend):
    (alone,) = Threads(1).run(work, make, backend, epochs)
    assert alone["samples"] > 4 and alone[counted].any()
    for together in Threads(2, 3).run(work, make, backend, epochs):
        for name, value in alone.items():
            assert value is None or together[name] == pytest.approx(value, rel=1e-9 if epochs else 1e-5), name


def test_halves_of_a_batch_of_scenes_weigh_by_the_anchors_that_their_losses_are_means_over() -> None:
    """The weighted mean of the losses of two halves is that of the whole; weighted by pictures it is not."""
    task, network, _, train, _ = scenes()
    executor = d5.load_backend("reference").from_model(task.add_loss(network))
    (batch,) = list(task.batches([next(iter(train))], executor))
    size = task.count(batch)
    halves = [{n: v[part] for n, v in batch.items()} for part in (slice(0, size // 2), slice(size // 2, None))]
    names = [name for name in executor.network.inputs]

    def loss(part: Any) -> float:
        return float(executor.inference({name: part[name] for name in names}, ["loss"])["loss"])

    weights = [task.weight(part) for part in halves]
    assert weights[0] != weights[1] and sum(weights) == task.weight(batch)
    assert np.average([loss(part) for part in halves], weights=weights) == pytest.approx(loss(batch), rel=1e-5)
    counts = [task.count(part) for part in halves]
    assert np.average([loss(part) for part in halves], weights=counts) != pytest.approx(loss(batch), rel=1e-4)
