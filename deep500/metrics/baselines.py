"""Baselines of a text without a network: bits a character of n-grams and of a packer, to stand beside a model's."""

from __future__ import annotations

import lzma
import math
from typing import Any

import numpy as np

from deep500.errors import InputError
from deep500.metrics.base import ProbingMetric


def ngram_bits(train: np.ndarray, test: np.ndarray, order: int, classes: int) -> float:
    """Bits a token of interpolated n-grams (Witten and Bell 1991), counted on one text and judged on another.

    p(c | h) = (count(h, c) + kinds(h) p(c | h')) / (count(h) + kinds(h)), where h' is h without its first token, and
    kinds(h) is how many different tokens follow h; below p without a context is 1 / classes.

    Args:
        train, test: tokens (int64), from 0 to classes - 1.
        order: n; n - 1 tokens of context. ``classes ** order`` has to fit 63 bits.
        classes: how many tokens there are.

    Example:
        >>> text = np.array([0, 1, 0, 1, 0, 1])
        >>> round(ngram_bits(text, np.array([0, 1]), 2, 2), 6)
        0.596323
    """
    if order < 1 or order * math.log2(classes) >= 63:
        raise InputError(f"got order {order} of {classes} tokens; expected one from 1, whose n-grams fit 63 bits")
    p = np.full(len(test), 1 / classes)
    for n in range(1, order + 1):
        grams, counts = np.unique(_codes(train, n, classes), return_counts=True)
        contexts, first, kinds = np.unique(grams // classes, return_index=True, return_counts=True)
        totals = np.add.reduceat(counts, first)
        codes = _codes(test, n, classes)
        places, known = _find(grams, codes), _find(contexts, codes // classes)
        count = np.where(places < 0, 0, counts[places])
        total, kind = (np.where(known < 0, 0, values[known]) for values in (totals, kinds))
        after = p[n - 1 :]
        p[n - 1 :] = np.where(known < 0, after, (count + kind * after) / np.maximum(total + kind, 1))
    return float(-np.log2(p).mean())


def _codes(tokens: np.ndarray, n: int, classes: int) -> np.ndarray:
    """A number for every n tokens in a row."""
    codes = np.zeros(len(tokens) - n + 1, np.int64)
    for place in range(n):
        codes = codes * classes + tokens[place : len(tokens) - n + 1 + place]
    return codes


def _find(known: np.ndarray, codes: np.ndarray) -> np.ndarray:
    """Return the place of each number among sorted ones, -1 where it is not among them."""
    place = np.minimum(np.searchsorted(known, codes), len(known) - 1)
    return np.where(known[place] == codes, place, -1)


def packed_bits(train: str, test: str) -> float:
    """Bits a character that ``xz`` takes for one text behind another: what both take less what the first one takes."""
    both, first = (len(lzma.compress(text.encode(), preset=9)) for text in (train + test, train))
    return 8 * (both - first) / len(test)


class _OfText(ProbingMetric):
    """A figure of the training text and of the text that is judged."""

    unit, direction, kind = "bits", "lower", "quality"

    def texts(self) -> tuple[Any, Any] | None:
        """The data sets that hold both texts whole; None, and a reason, where there are none."""
        if not self.ready():
            return None
        trainer = self.run.trainer
        judged = trainer.validation_sampler if trainer.test_sampler is None else trainer.test_sampler
        datasets = []
        for sampler in (trainer.train_sampler, judged):
            dataset: Any = getattr(sampler, "dataset", None)
            while hasattr(dataset, "dataset"):  # a part of it
                dataset = dataset.dataset
            if not hasattr(dataset, "tokens") or not hasattr(dataset, "vocabulary"):
                self.reason = "the data are no texts with a vocabulary"
                return None
            datasets.append(dataset)
        return datasets[0], datasets[1]


class NgramBits(_OfText):
    """Bits a character of n-grams with Witten-Bell's interpolation on the run's texts: what counting alone comes to.

    It is counted on the whole training text, what is held out for validation included, and judged on the test text.

    Args:
        order: n.
    """

    def __init__(self, order: int = 4) -> None:
        self.order, self.name = order, f"ngram_bits_{order}"

    def measure(self, statistics: Any) -> float | None:
        """Bits a character."""
        texts = self.texts()
        if texts is None:
            return None
        (train, test), vocabulary = (part.tokens for part in texts), texts[0].vocabulary
        bits = ngram_bits(train, test, self.order, vocabulary.size)
        return bits * len(test) / float(vocabulary.widths[test].sum())


class PackedBits(_OfText):
    """Bits a character that ``xz`` takes for the test text behind the training text."""

    name = "packed_bits"

    def measure(self, statistics: Any) -> float | None:
        """Bits a character."""
        texts = self.texts()
        if texts is None:
            return None
        train, test = (part.vocabulary.decode(part.tokens) for part in texts)
        return packed_bits(train, test)
