"""Prefetching changes nothing but the time: same batches, same state, errors and threads end where they should."""

import threading
import traceback

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from deep500.errors import InputError
from deep500.training.data import NumpyDataset
from deep500.training.data.augmentation import Crop, Flip
from deep500.training.data.prefetch import Prefetch
from deep500.training.data.samplers import ShuffleSampler


def sampler(n=40, batch=4, transformations=()):
    rng = np.random.default_rng(0)
    images = rng.integers(0, 256, (n, 3, 8, 8), dtype=np.uint8)
    data = NumpyDataset(images, "input", np.arange(n), scale=255)
    return ShuffleSampler(data, batch, 5, transformations=[Crop(8, 2), Flip(), *transformations])


def threads():
    return [thread.name for thread in threading.enumerate() if thread.name.startswith("deep500-prefetch")]


@given(depth=st.integers(1, 20), workers=st.integers(1, 4), epoch=st.integers(0, 3))
def test_batches_are_bit_identical_and_in_order(depth, workers, epoch):
    plain, ahead = sampler(), Prefetch(sampler(), depth, workers)
    plain.set_epoch(epoch)
    ahead.set_epoch(epoch)
    got = list(ahead)
    assert len(got) == len(plain) == len(ahead) == 10
    for batch, expected in zip(got, plain, strict=True):
        np.testing.assert_array_equal(batch["input"], expected["input"])
        np.testing.assert_array_equal(batch["label"], expected["label"])
    assert not threads()


def test_state_is_the_consumers_and_resuming_is_exact():
    plain = list(sampler())
    ahead = Prefetch(sampler(), depth=8)
    batches = iter(ahead)
    for _ in range(3):
        next(batches)
    state = ahead.state()
    assert state["position"] == 3 and ahead.epoch == 0
    batches.close()
    again = Prefetch(sampler(), workers=2)
    again.resume(state)
    rest = list(again)
    assert len(rest) == 7
    for batch, expected in zip(rest, plain[3:], strict=True):
        np.testing.assert_array_equal(batch["input"], expected["input"])


def test_it_works_ahead_but_not_further_than_depth():
    made, enough = [], threading.Event()

    def note(batch, rng):
        made.append(len(made))
        if len(made) == 4:
            enough.set()
        return batch

    batches = iter(Prefetch(sampler(transformations=[note]), depth=3))
    next(batches)
    assert enough.wait(10), "the batches after the one handed out were not made"
    batches.close()
    assert len(made) == 4  # the one handed out and three ahead


def test_an_error_comes_with_its_batch_and_traceback():
    def fails_at_third(batch, rng):
        if batch["label"][0] == third:
            raise ZeroDivisionError("spoilt")
        return batch

    third = list(sampler())[2]["label"][0]
    ahead = Prefetch(sampler(transformations=[fails_at_third]), depth=5, workers=2)
    got = []
    with pytest.raises(ZeroDivisionError, match="spoilt") as caught:
        for batch in ahead:
            got.append(batch)
    assert len(got) == 2 and ahead.state()["position"] == 2
    assert "fails_at_third" in "".join(traceback.format_tb(caught.value.__traceback__))
    assert not threads()


@pytest.mark.parametrize("interrupt", [KeyboardInterrupt, RuntimeError])
def test_threads_end_with_the_consumer(interrupt):
    def consume():
        for _ in Prefetch(sampler(), workers=3):
            assert threads()
            raise interrupt

    with pytest.raises(interrupt):
        consume()
    for _ in Prefetch(sampler()):
        break
    assert not threads()


def test_it_behaves_as_the_sampler():
    ahead = Prefetch(sampler())
    assert (ahead.batch_size, ahead.seed, len(ahead.dataset)) == (4, 5, 40)
    shards = [list(ahead.shard(rank, 2, 2)) for rank in range(2)]
    labels = np.concatenate([batch["label"] for shard in shards for batch in shard])
    assert sorted(labels.tolist()) == list(range(40))
    ahead.add_transformation(lambda batch, rng: {**batch, "input": batch["input"] * 0})
    assert not any(batch["input"].any() for batch in ahead)


@pytest.mark.parametrize("wrong", [{"depth": 0}, {"workers": 0}])
def test_bad_input(wrong):
    with pytest.raises(InputError, match=r"got (depth|workers) 0; expected"):
        Prefetch(sampler(), **wrong)
