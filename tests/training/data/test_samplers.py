"""Samplers: the order depends on seed and epoch only, shards cover, resuming is exact, drawing ends."""

import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from deep500.errors import DataError, InputError
from deep500.training.data import NumpyDataset
from deep500.training.data.samplers import BucketSampler, ChoiceSampler, OrderedSampler, ShuffleSampler

SEEDS = st.integers(0, 2**40)


def data(n):
    return NumpyDataset(np.arange(n, dtype=np.int64), "input", np.arange(n) % 3, classes=3)


def values(batches):
    return [batch["input"].tolist() for batch in batches]


def noise(batch, rng):
    return {**batch, "noise": rng.random(len(batch["input"]))}


def buckets(dataset, batch_size, seed=0, **kw):
    return BucketSampler(dataset, batch_size, seed, seq_lengths=np.arange(len(dataset)) % 7, num_buckets=3, **kw)


SAMPLERS = [OrderedSampler, ShuffleSampler, ChoiceSampler, buckets]


@given(n=st.integers(1, 200), seed=SEEDS, epoch=st.integers(0, 1000), share=st.floats(0.001, 1))
@pytest.mark.parametrize("kind", [OrderedSampler, ShuffleSampler, buckets])
def test_every_epoch_is_a_permutation_in_batches(kind, n, seed, epoch, share):
    batch_size = max(1, int(share * n))
    sampler = kind(data(n), batch_size, seed, drop_last_batch=False)
    sampler.set_epoch(epoch)
    got = values(sampler)
    assert sorted(x for batch in got for x in batch) == list(range(n))
    assert len(got) == len(sampler) and all(0 < len(batch) <= batch_size for batch in got)
    if kind is not buckets:
        assert [len(batch) for batch in got[:-1]] == [batch_size] * (len(got) - 1)


def test_batches_of_320_samples_have_no_empty_one():
    """Defect 1 of the original: 64, 64, 64, 64, 64 and then 0 samples."""
    assert [len(b) for b in values(OrderedSampler(data(320), 64))] == [64] * 5
    assert [len(b) for b in values(OrderedSampler(data(130), 64))] == [64, 64, 2]
    assert [len(b) for b in values(ShuffleSampler(data(130), 64))] == [64, 64]


@given(n=st.integers(1, 150), ranks=st.integers(1, 9), seed=SEEDS, epoch=st.integers(0, 9), local=st.integers(1, 20))
@pytest.mark.parametrize("kind", [OrderedSampler, ShuffleSampler, buckets])
def test_shards_are_a_disjoint_cover(kind, n, ranks, seed, epoch, local):
    whole = kind(data(n), 1, seed, drop_last_batch=False)
    if n // ranks < local:
        with pytest.raises(InputError, match="expected at most"):
            whole.shard(0, ranks, local)
        return
    try:
        shards = [whole.shard(rank, ranks, local) for rank in range(ranks)]
    except InputError as error:  # buckets may be too small to give every rank something
        assert kind is buckets and "without a single" in str(error)
        return
    for shard in shards:
        shard.set_epoch(epoch)
    seen = [x for shard in shards for batch in values(shard) for x in batch]
    assert sorted(seen) == list(range(n))
    assert max(map(len, shards)) - min(map(len, shards)) <= (3 if kind is buckets else 1)


@given(n=st.integers(1, 150), ranks=st.integers(1, 9), seed=SEEDS, local=st.integers(1, 20))
def test_full_shards_have_equally_many_batches_and_equal_the_global_batch(n, ranks, seed, local):
    """With drop_last_batch no rank waits for another, and P ranks see what one rank with batch P*b sees."""
    if n // ranks < local:
        return
    whole = ShuffleSampler(data(n), ranks * local, seed)
    shards = [values(whole.shard(rank, ranks, local)) for rank in range(ranks)]
    want = values(whole)
    assert [len(shard) for shard in shards] == [len(want)] * ranks
    for number, batch in enumerate(want):
        assert sorted(x for shard in shards for x in shard[number]) == sorted(batch)


def test_two_ranks_draw_every_sample_once():
    """Defect 1 of the original: 239 unique of 320 samples on 2 ranks."""
    whole = ShuffleSampler(data(320), 32, seed=3)
    drawn = [x for rank in range(2) for batch in values(whole.shard(rank, 2)) for x in batch]
    assert len(drawn) == len(set(drawn)) == 320


@given(
    n=st.integers(1, 60),
    seed=SEEDS,
    epochs=st.integers(1, 3),
    stop=st.integers(0, 100),
    batch=st.integers(1, 9),
    kind=st.sampled_from(SAMPLERS),
)
def test_resuming_equals_never_having_stopped(n, seed, epochs, stop, batch, kind):
    make = lambda: kind(data(n), min(batch, n), seed, drop_last_batch=False, transformations=[noise])  # noqa: E731
    reference, states = [], []
    sampler = make()
    for epoch in range(epochs):
        sampler.set_epoch(epoch)
        for arrays in sampler:
            reference.append((arrays["input"].tolist(), arrays["noise"].tolist()))
            states.append(json.dumps(sampler.state()))
    stop %= len(reference)
    resumed = make()
    resumed.seed = seed + 1  # must come from the state
    resumed.resume(json.loads(states[stop]))
    got = []
    for epoch in range(resumed.epoch, epochs):
        resumed.set_epoch(epoch)
        got += [(batch["input"].tolist(), batch["noise"].tolist()) for batch in resumed]
    assert got == reference[stop + 1 :]


def test_iterating_again_starts_at_the_beginning():
    sampler = ShuffleSampler(data(10), 2)
    first = next(iter(sampler))["input"].tolist()
    assert sampler.state()["position"] == 1
    assert values(sampler)[0] == first and len(values(sampler)) == 5
    sampler.resume({**sampler.state(), "position": 3})
    assert len(values(sampler)) == 2
    assert len(values(sampler)) == 5


def test_order_depends_on_seed_and_epoch_only():
    """Defect 10 of the original: the order depended on how often the sampler had been reset."""
    sampler, other = ShuffleSampler(data(50), 5, seed=4), ShuffleSampler(data(50), 5, seed=4)
    for epoch in range(3):
        sampler.set_epoch(epoch)
        values(sampler)
    sampler.set_epoch(7)
    other.set_epoch(7)
    assert values(sampler) == values(other)
    other.set_epoch(8)
    assert values(sampler) != values(other)
    assert values(sampler) != values(ShuffleSampler(data(50), 5, seed=5))
    np.testing.assert_array_equal(sampler.order(2), ShuffleSampler(data(50), 50, seed=4).order(2))


def test_epochs_do_not_repeat_the_stream_of_another_seed():
    """(seed 0, epoch 1) and (seed 1, epoch 0) and (0, 0) are three streams."""
    sampler = {seed: ShuffleSampler(data(40), 5, seed) for seed in (0, 1)}
    orders = [tuple(sampler[s].order(e)) for s in (0, 1) for e in (0, 1, 2)]
    assert len(set(orders)) == len(orders)


def test_transformations_are_drawn_anew_per_batch_epoch_and_rank():
    sampler = OrderedSampler(data(6), 3, transformations=[noise])
    sampler.add_transformation(lambda batch, rng: {**batch, "twice": 2 * batch["noise"]})
    first, second = (batch["noise"].tolist() for batch in sampler)
    assert first != second
    assert next(iter(sampler))["noise"].tolist() == first
    assert next(iter(sampler))["twice"].tolist() == [2 * x for x in first]
    sampler.set_epoch(1)
    assert next(iter(sampler))["noise"].tolist() != first
    sampler.set_epoch(0)
    assert next(iter(sampler.shard(1, 2)))["noise"].tolist() != first


def test_choice_draws_by_distribution():
    weights = np.array([0, 1, 3, 0], dtype=float)
    sampler = ChoiceSampler(data(4), 4, seed=1, num_batches=1000, distribution=weights)
    drawn = np.bincount(np.concatenate(values(sampler)), minlength=4) / 4000
    np.testing.assert_allclose(drawn, weights / 4, atol=4 * np.sqrt(0.25 * 0.75 / 4000))  # four standard errors
    assert len(sampler) == 1000


@given(n=st.integers(1, 50), batch=st.integers(1, 10), count=st.none() | st.integers(1, 12), seed=SEEDS)
def test_choice_without_replacement_ends_and_never_repeats(n, batch, count, seed):
    """Defect 10 of the original: it looped until out of memory."""
    batch = min(batch, n)
    make = lambda: ChoiceSampler(data(n), batch, seed, False, replacement=False, num_batches=count)  # noqa: E731
    if count is not None and count * batch > n:
        with pytest.raises(InputError, match="without replacement"):
            make()
        return
    drawn = [x for part in values(make()) for x in part]
    assert len(drawn) == len(set(drawn)) == (n if count is None else count * batch)


def test_choice_without_replacement_heeds_zero_weights():
    sampler = ChoiceSampler(data(10), 2, replacement=False, distribution=np.arange(10) % 2)
    drawn = [x for batch in values(sampler) for x in batch]
    assert len(set(drawn)) == len(drawn) == 4 and set(drawn) < {1, 3, 5, 7, 9}  # two full batches of five samples
    with pytest.raises(InputError, match="at most 5"):
        ChoiceSampler(data(10), 2, replacement=False, num_batches=3, distribution=np.arange(10) % 2)


def test_buckets_hold_similar_lengths():
    rng = np.random.default_rng(0)
    lengths = rng.integers(1, 101, 300)
    sampler = BucketSampler(data(300), 8, seed=2, seq_lengths=lengths, num_buckets=10, drop_last_batch=False)
    spans = [np.ptp(lengths[batch["input"]]) for batch in sampler]
    assert max(spans) <= 10
    starts = [lengths[batch["input"]].min() for batch in sampler]
    assert starts != sorted(starts)  # buckets are mixed
    short = BucketSampler(data(300), 8, seq_lengths=lengths, num_buckets=10, max_length=50, drop_last_batch=False)
    seen = [x for batch in values(short) for x in batch]
    assert sorted(seen) == np.flatnonzero(lengths <= 50).tolist()


BAD = [
    (lambda: ShuffleSampler(data(10), 0), "got batch_size 0; expected"),
    (lambda: ShuffleSampler(data(10), 11), "got batch_size 11; expected at most 10"),
    (lambda: ShuffleSampler(data(10), 2.5), "got batch_size 2.5; expected an integer"),
    (lambda: ShuffleSampler(data(10), 2, seed=-1), "got seed -1"),
    (lambda: ShuffleSampler(data(10), 2, seed=None), "got seed None"),
    (lambda: ShuffleSampler(data(10), 2).set_epoch(-1), "got epoch -1"),
    (lambda: ShuffleSampler(data(10), 6).shard(0, 2), "expected at most 5.*on each of 2 ranks"),
    (lambda: ShuffleSampler(data(10), 2).shard(2, 2), "got rank 2 of 2; expected 0 to 1"),
    (lambda: ShuffleSampler(data(10), 2).shard(0, 2).shard(0, 2), "got a shard"),
    (lambda: ChoiceSampler(data(10), 9, num_batches=1).shard(0, 2, 5), "without a single full batch"),
    (lambda: ChoiceSampler(data(3), 1, distribution=[1, 2]), "expected 3 non-negative weights"),
    (lambda: ChoiceSampler(data(2), 1, distribution=[-1, 2]), "expected 2 non-negative weights"),
    (lambda: ChoiceSampler(data(3), 2, replacement=False, distribution=[0, 1, 0]), "expected at most 1"),
    (lambda: BucketSampler(data(3), 1, seq_lengths=[1, 2]), "got lengths of shape"),
    (lambda: BucketSampler(data(3), 1, seq_lengths=[5, 6, 7], max_length=4), "got no sample of length"),
    (lambda: BucketSampler(data(4), 4, seq_lengths=[1, 9, 5, 3]), "got no bucket with 4 samples"),
    (lambda: ShuffleSampler(data(10), 2).resume({"epoch": 0}), "state without 'position'"),
    (lambda: ShuffleSampler(data(10), 2).resume(ShuffleSampler(data(10), 3).state()), "batch_size 3; expected 2"),
    (lambda: ShuffleSampler(data(10), 2).resume(ShuffleSampler(data(9), 2).state()), "samples 9; expected 10"),
]


@pytest.mark.parametrize(("make", "message"), BAD, ids=[message for _, message in BAD])
def test_bad_input_says_got_and_expected(make, message):
    with pytest.raises((InputError, DataError), match=message):
        make()
