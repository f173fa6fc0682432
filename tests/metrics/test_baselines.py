"""Baselines of texts: n-grams against the formula written out with dictionaries, xz against its own sizes."""

from __future__ import annotations

import lzma
import math
from collections import Counter
from types import SimpleNamespace

import numpy as np
import pytest

from deep500.errors import InputError
from deep500.metrics import NgramBits, PackedBits
from deep500.metrics.baselines import ngram_bits
from deep500.tasks.tokens import Bytes, Characters
from deep500.training.data import NumpyDataset
from deep500.training.data.samplers import OrderedSampler
from deep500.training.data.split import hold_out
from deep500.training.data.text import Passages

TRAIN, TEST = "abracadabra, abracadabra and a bra" * 3, "a bar and abracad, dad"


def by_hand(train: str, test: str, order: int, classes: int) -> float:
    grams = Counter(train[i : i + n] for n in range(1, order + 1) for i in range(len(train) - n + 1))

    def p(context: str, symbol: str) -> float:
        less = p(context[1:], symbol) if context else 1 / classes
        after = {gram[-1]: count for gram, count in grams.items() if gram[:-1] == context and gram}
        total, kinds = sum(after.values()), len(after)
        return less if not total else (after.get(symbol, 0) + kinds * less) / (total + kinds)

    return sum(-math.log2(p(test[max(0, i - order + 1) : i], symbol)) for i, symbol in enumerate(test)) / len(test)


@pytest.mark.parametrize("order", [1, 2, 4])
def test_ngrams_are_the_formula(order):
    letters = Characters.of(TRAIN)
    got = ngram_bits(letters.encode(TRAIN), letters.encode(TEST), order, letters.size)
    assert got == pytest.approx(by_hand(TRAIN, TEST, order, letters.size), abs=1e-12)


@pytest.mark.parametrize("tokens", ["characters", "bytes"])
def test_both_read_the_texts_of_a_run(tokens):
    """In bits a character, whatever a token is: two bytes of an accent are one."""
    letters = Characters.of(TRAIN) if tokens == "characters" else Bytes()
    changed = str if tokens == "characters" else lambda text: text.replace("d", "é")
    train, test = (Passages(changed(text), letters, 8) for text in (TRAIN, TEST))
    part, held = hold_out(train, 0.4)
    samplers = [OrderedSampler(data, 2) for data in (part, held, test)]
    trainer = SimpleNamespace(
        **dict(zip(("train_sampler", "validation_sampler", "test_sampler"), samplers, strict=True))
    )
    ngrams, packed = NgramBits(2), PackedBits()
    assert ngrams.measure(None) is None and ngrams.reason == "it did not watch a run"
    for metric in (ngrams, packed):
        metric.before_run(SimpleNamespace(epoch=0, trainer=trainer))
    seen = [changed(text).encode().decode("latin-1") if tokens == "bytes" else text for text in (TRAIN, TEST)]
    expected = by_hand(*seen, 2, letters.size) * len(seen[1]) / len(TEST)
    assert ngrams.measure(None) == pytest.approx(expected, abs=1e-12)
    sizes = [len(lzma.compress(changed(text).encode(), preset=9)) for text in (TRAIN + TEST, TRAIN)]
    assert packed.measure(None) == pytest.approx(8 * (sizes[0] - sizes[1]) / len(TEST))
    trainer.train_sampler = OrderedSampler(
        NumpyDataset(np.zeros((4, 2), np.float32), "input", np.zeros(4, np.int64)), 2
    )
    assert ngrams.measure(None) is None and "no texts" in ngrams.reason


def test_orders_that_have_no_meaning_are_refused():
    with pytest.raises(InputError, match="got order 0 of 2 tokens"):
        ngram_bits(np.zeros(3, np.int64), np.zeros(3, np.int64), 0, 2)
