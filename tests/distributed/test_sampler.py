"""Shares of batches: disjoint, covering, and of the same batches for every number of ranks."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from deep500.distributed.sampler import DistributedSampler
from deep500.errors import InputError
from deep500.training.data import NumpyDataset
from deep500.training.data.augmentation import Crop, Normalize
from deep500.training.data.prefetch import Prefetch
from deep500.training.data.samplers import OrderedSampler, ShuffleSampler


@given(
    samples=st.integers(1, 40),
    ranks=st.integers(1, 6),
    batch=st.integers(1, 12),
    seed=st.integers(0, 99),
    epoch=st.integers(0, 3),
    drop=st.booleans(),
)
@settings(max_examples=80, deadline=None)
def test_shares_cover_every_batch_once(samples, ranks, batch, seed, epoch, drop):
    batch = min(max(batch, ranks), samples)
    if batch < ranks:
        return
    whole = ShuffleSampler(NumpyDataset(np.arange(samples)), batch, seed=seed, drop_last_batch=drop)
    shares = [DistributedSampler(whole, rank, ranks) for rank in range(ranks)]
    whole.set_epoch(epoch)
    expected = [full["input"].tolist() for full in whole]
    for number, values in enumerate(expected):
        parts = [share.batch(epoch, number)["input"].tolist() for share in shares]
        assert sorted(x for part in parts for x in part) == sorted(values)
        assert max(map(len, parts)) - min(map(len, parts)) <= 1
        assert [positions.size for positions in (share.batches(epoch)[number] for share in shares)] == list(
            map(len, parts)
        )
    assert all(len(share) == len(expected) for share in shares)


def images(n):
    return NumpyDataset(np.random.default_rng(0).random((n, 1, 8, 8)).astype(np.float32), "input", np.arange(n) % 3)


@pytest.mark.parametrize("ranks", [1, 2, 3, 4])
@pytest.mark.parametrize("transformations", [[Crop(8, padding=2)], [Normalize(0.5, 0.25)], []])
def test_a_sample_is_augmented_alike_on_every_number_of_ranks(ranks, transformations):
    whole = ShuffleSampler(images(22), 8, seed=3, drop_last_batch=False, transformations=transformations)
    expected = list(whole)
    for rank in range(ranks):
        for mine, all_of_it in zip(Prefetch(DistributedSampler(whole, rank, ranks)), expected, strict=True):
            assert np.array_equal(mine["input"], all_of_it["input"][rank::ranks])
            assert np.array_equal(mine["label"], all_of_it["label"][rank::ranks])


def test_only_the_share_is_made_where_nothing_is_random():
    seen = []
    watch = Normalize(0.0, 1.0)
    watch_apply = watch.apply
    watch.apply = lambda images, rng: (seen.append(len(images)), watch_apply(images, rng))[1]  # type: ignore[method-assign]
    share = DistributedSampler(OrderedSampler(images(8), 4, transformations=[watch]), 0, 2)
    assert len(list(share)) == 2 and seen == [2, 2]


def test_a_rank_that_only_serves_gets_empty_batches():
    share = DistributedSampler(OrderedSampler(images(8), 4), None, 3)
    assert [batch["input"].shape for batch in share] == [(0, 1, 8, 8)] * 2


def test_a_share_goes_on_where_it_was():
    whole = ShuffleSampler(images(20), 5, seed=1)
    share = DistributedSampler(whole, 1, 2)
    walk = iter(share)
    next(walk)
    state = share.state()
    rest = [batch["label"].tolist() for batch in walk]
    again = DistributedSampler(ShuffleSampler(images(20), 5, seed=1), 1, 2)
    again.resume(state)
    assert [batch["label"].tolist() for batch in again] == rest and len(rest) == 3


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (lambda: DistributedSampler(OrderedSampler(images(8), 2), 0, 3), "got batches of 2 for 3 ranks"),
        (lambda: DistributedSampler(OrderedSampler(images(8), 4), 3, 3), "got rank 3 of 3"),
    ],
)
def test_impossible_shares_are_refused(make, said):
    with pytest.raises(InputError, match=said):
        make()


class Doubled(OrderedSampler):
    """A sampler whose batches are not what the data set holds."""

    def batch(self, epoch, number):
        return {name: 2 * value for name, value in super().batch(epoch, number).items()}


@pytest.mark.parametrize("ranks", [1, 2, 3])
def test_a_samplers_own_batch_is_what_ranks_train_on(ranks):
    whole = Doubled(NumpyDataset(np.arange(12)), 6)
    for number in range(2):
        parts = [DistributedSampler(whole, rank, ranks).batch(0, number)["input"] for rank in range(ranks)]
        assert sorted(np.concatenate(parts)) == [2 * x for x in range(6 * number, 6 * number + 6)]
