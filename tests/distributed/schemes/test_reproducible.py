"""The same bits on any number of ranks."""

from __future__ import annotations

import numpy as np
import pytest

from deep500 import registry
from deep500.distributed import Serial, Threads, schemes
from deep500.errors import InputError
from deep500.networks import add_loss, create
from deep500.networks.network import Network
from deep500.training import optimizers
from tests.conftest import load_backend
from tests.distributed.scheme_table import digest, parameters


def normalised() -> Network:
    """A convolution with batch normalization, in float32."""
    rng = np.random.default_rng(1)
    net = Network("normalised")
    net.add_input("input", ("N", 2, 5, 5), "float32")
    net.add_parameter("w", rng.normal(size=(4, 2, 3, 3)).astype("float32"))
    for name, value, trainable in (("s", 1, True), ("b", 0, True), ("m", 0, False), ("v", 1, False)):
        net.add_parameter(name, np.full(4, value, "float32"), trainable=trainable)
    net.add_parameter("w2", rng.normal(size=(36, 3)).astype("float32"))
    net.add_node("Conv", ["input", "w"], ["c"])
    net.add_node("BatchNormalization", ["c", "s", "b", "m", "v"], ["n"])
    net.add_node("Relu", ["n"], ["r"])
    net.add_node("Flatten", ["r"], ["f"])
    net.add_node("MatMul", ["f", "w2"], ["y"])
    net.add_output("y")
    return add_loss(net)


def trained_lenet():
    """Hash of LeNet's parameters after two steps on 48 images."""
    network = add_loss(create("lenet", shape=(1, 32, 32), classes=10))
    executor = registry.load_backend("pytorch").from_model(network, "cpu")
    optimizer = schemes.ReproducibleDecentralized(optimizers.MomentumOptimizer(executor, "loss", lr=0.05), Serial())
    rng = np.random.default_rng(3)
    for _ in range(2):
        optimizer.step({"input": rng.normal(size=(48, 1, 32, 32)).astype("float32"), "label": rng.integers(0, 10, 48)})
    return digest(parameters(optimizer))


def train(comm, backend, size, steps=4, scheme=schemes.ReproducibleDecentralized):
    """Hash of all parameters, running statistics included, and their values."""
    executor = load_backend(backend).from_model(normalised(), "cpu")
    optimizer = scheme(optimizers.MomentumOptimizer(executor, "loss", lr=0.05), comm)
    rng = np.random.default_rng(2)
    for _ in range(steps):
        x, y = rng.normal(size=(size, 2, 5, 5)).astype("float32"), rng.integers(0, 3, size)
        optimizer.step({"input": x[comm.rank :: comm.size], "label": y[comm.rank :: comm.size]})
    return digest(parameters(optimizer)), parameters(optimizer)


@pytest.mark.parametrize("backend", ["reference", "pytorch"])
@pytest.mark.parametrize("size", [24, 29])  # blocks of two samples; blocks of two and three
def test_one_hash_on_every_number_of_ranks(backend, size):
    alone, values = train(Serial(), backend, size)
    start = {name: p.value for name, p in normalised().parameters.items()}
    assert all(np.abs(values[name] - start[name]).max() > 1e-4 for name in ("w", "m", "v", "w2"))
    for ranks in (1, 2, 3, 4, 6):
        hashes = {result[0] for result in Threads(ranks, seed=ranks).run(train, backend, size)}
        assert hashes == {alone}, ranks


def test_the_usual_sums_do_depend_on_ranks():
    """What the scheme is for: if this fails, the test above shows nothing."""
    usual = schemes.ConsistentDecentralized
    assert (
        train(Serial(), "reference", 24, scheme=usual)[0]
        != Threads(3).run(lambda comm: train(comm, "reference", 24, scheme=usual))[0][0]
    )


def test_a_rank_without_samples_takes_part():
    alone = train(Serial(), "reference", 2 * 2)[0]  # 4 blocks of one sample on 6 ranks
    assert {result[0] for result in Threads(6).run(train, "reference", 4)} == {alone}


def test_blocks_are_means_over_samples_as_the_whole_batch_is():
    """Without batch normalization the mean over blocks is that of the batch, but for rounding."""
    results = []
    for reproducible in (False, True):
        executor = registry.load_backend("reference").from_model(add_loss(create("mlp", shape=(4,), classes=3)))
        base = optimizers.GradientDescent(executor, "loss", lr=0.1)
        optimizer = schemes.ReproducibleDecentralized(base, Serial(), blocks=4) if reproducible else base
        rng = np.random.default_rng(5)
        batch = {"input": rng.normal(size=(10, 4)).astype("float32"), "label": rng.integers(0, 3, 10)}
        results.append([optimizer.step(batch), parameters(optimizer)])
    (plain, want), (blocks, got) = results
    for name in plain:
        np.testing.assert_allclose(blocks[name], plain[name], rtol=1e-5, atol=1e-6)
    for name in want:
        np.testing.assert_allclose(got[name], want[name], rtol=1e-5, atol=1e-6)


def test_what_it_refuses():
    def base(network, **options):
        executor = registry.load_backend("reference").from_model(add_loss(network))
        return optimizers.GradientDescent(executor, "loss", **options)

    net = create("mlp", shape=(4,), classes=3)
    with pytest.raises(InputError, match="5 blocks on 2 ranks"):
        Threads(2).run(lambda comm: schemes.ReproducibleDecentralized(base(net.copy()), comm, blocks=5))
    with pytest.raises(InputError, match="divides the batch"):
        schemes.ReproducibleDecentralized(base(net.copy(), accumulate=2), Serial())
    drawn = Network("drawn")
    drawn.add_input("input", ("N", 3), "float32")
    drawn.add_parameter("w", np.ones((3, 2), "float32"))
    drawn.add_node("MatMul", ["input", "w"], ["h"])
    drawn.add_node("Dropout", ["h"], ["y"], name="drop")
    drawn.add_output("y")
    with pytest.raises(InputError, match="'drop' draws"):
        schemes.ReproducibleDecentralized(base(drawn), Serial())


def test_the_number_of_pytorchs_threads_does_not_matter() -> None:
    """Its convolutions and products add up what their threads found; blocks are computed with one."""
    torch = pytest.importorskip("torch")
    before, hashes = torch.get_num_threads(), set()
    try:
        for threads in (1, 2, 3):
            torch.set_num_threads(threads)
            hashes.add(trained_lenet())
            assert torch.get_num_threads() == threads
    finally:
        torch.set_num_threads(before)
    assert len(hashes) == 1
