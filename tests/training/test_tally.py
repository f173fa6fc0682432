"""Loss and accuracy of batches against scikit-learn."""

from __future__ import annotations

import numpy as np
import pytest

from deep500.errors import TrainingError
from deep500.training.tally import Tally, batch_length


def make_tally(output="y"):
    return Tally(np.asarray, output, "loss", "label", "training, epoch 3")


@pytest.mark.parametrize("places", [(), (5,), (2, 3)])
def test_accuracy_is_scikit_learns(places):
    from sklearn.metrics import accuracy_score

    rng, tally, guesses, truths = np.random.default_rng(1), make_tally(), [], []
    for step, size in enumerate((4, 4, 3)):
        scores, labels = rng.normal(size=(size, 6, *places)), rng.integers(0, 6, (size, *places))
        tally.add(step, {"x": scores, "label": labels}, {"y": scores, "loss": np.float64(step)})
        guesses.append(scores.argmax(axis=1).ravel())
        truths.append(labels.ravel())
    want = 100 * accuracy_score(np.concatenate(truths), np.concatenate(guesses))
    assert tally.accuracy() == pytest.approx(want) and 0 < want < 100
    assert tally.loss() == pytest.approx((0 * 4 + 1 * 4 + 2 * 3) / 11) and tally.samples == 11


@pytest.mark.parametrize(
    "labels",
    [np.zeros((4, 6)), np.zeros(4), np.zeros((4, 1), np.int64), np.array(0)],
    ids=lambda a: f"{a.dtype}{a.shape}",
)
def test_where_accuracy_has_no_meaning_it_is_none(labels):
    tally = make_tally()
    tally.add(0, {"label": labels}, {"y": np.zeros((4, 6)), "loss": np.float32(1.0)})
    assert tally.accuracy() is None and tally.loss() == 1.0


def test_nothing_is_none():
    tally = make_tally()
    assert (tally.loss(), tally.accuracy(), tally.samples) == (None, None, 0)
    tally.add(0, {"x": np.zeros((4, 2))}, {})
    assert (tally.loss(), tally.accuracy(), tally.samples) == (None, None, 4)


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_the_first_bad_step_is_named(bad):
    tally = make_tally(None)
    for step, loss in enumerate([1.0, bad, np.nan]):
        tally.add(step + 40, {"label": np.zeros(2)}, {"loss": np.float32(loss)})
    with pytest.raises(TrainingError, match=r"training, epoch 3, step 41: got loss -?(nan|inf)"):
        tally.loss()


def test_batch_length():
    assert batch_length({"label": np.zeros(7), "x": np.zeros((3, 2))}, "label") == 7
    assert batch_length({"rate": np.array(1.0), "x": np.zeros((3, 2))}, "label") == 3
    assert batch_length({}, "label") == 1
