"""From frame-wise class probabilities to labels, and from two texts to the edits between them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import numpy as np

Edit = tuple[Literal["right", "substituted", "left out", "inserted"], str, str]
"""Kind of edit, the word that was said, the word that was heard; an empty one where there is none."""


def greedy(scores: np.ndarray, lengths: np.ndarray, blank: int = 0) -> list[list[int]]:
    """The most probable class of every frame, repetitions joined, blanks left out.

    Args:
        scores: (items, frames, classes), log-probabilities or anything in the same order.
        lengths: (items,), frames that count.
        blank: the class that is no label.

    Example:
        >>> frames = np.eye(3)[[1, 1, 0, 1, 2, 2]]
        >>> greedy(frames[None], np.array([6]))
        [[1, 1, 2]]
    """
    best = scores.argmax(axis=2)
    emitted = best != blank
    emitted[:, 1:] &= best[:, 1:] != best[:, :-1]
    emitted &= np.arange(best.shape[1]) < np.asarray(lengths)[:, None]
    return [row[mask].tolist() for row, mask in zip(best, emitted, strict=True)]


def prefix_beam(log_p: np.ndarray, length: int, beam: int = 8, blank: int = 0) -> tuple[list[int], float]:
    """The labels with the largest probability over all their alignments, searched among ``beam`` prefixes.

    Prefix search of Graves et al. 2006, section 3.2, frame by frame (Hannun et al. 2014, arXiv 1408.2873, algorithm 1,
    without a language model). With a beam that holds every prefix the answer is exact.

    Args:
        log_p: (frames, classes), log-probabilities of one item.
        length: frames that count.
        beam: prefixes that are kept after each frame.
        blank: the class that is no label.

    Returns:
        the labels and the log of their probability (a lower bound of it, where prefixes were dropped).

    Example:
        >>> log_p = np.log([[0.6, 0.4], [0.6, 0.4]])  # greedy says nothing: .36; label 1 has .64
        >>> labels, value = prefix_beam(log_p, 2)
        >>> labels, round(float(np.exp(value)), 2)
        ([1], 0.64)
    """
    prefixes: dict[tuple[int, ...], tuple[float, float]] = {
        (): (0.0, -np.inf)
    }  # prefix: log p ending in a blank, in a label
    for frame in np.asarray(log_p, np.float64)[:length]:
        extended: dict[tuple[int, ...], list[float]] = {}
        for prefix, (in_blank, in_label) in prefixes.items():
            either = np.logaddexp(in_blank, in_label)
            same = extended.setdefault(prefix, [-np.inf, -np.inf])
            same[0] = np.logaddexp(same[0], either + frame[blank])
            if prefix:
                same[1] = np.logaddexp(same[1], in_label + frame[prefix[-1]])
            for label in range(len(frame)):
                if label == blank:
                    continue
                before = in_blank if prefix and prefix[-1] == label else either
                longer = extended.setdefault((*prefix, label), [-np.inf, -np.inf])
                longer[1] = np.logaddexp(longer[1], before + frame[label])
        best = sorted(extended, key=lambda p: -np.logaddexp(extended[p][0], extended[p][1]))[:beam]
        prefixes = {prefix: (extended[prefix][0], extended[prefix][1]) for prefix in best}
    top = max(prefixes, key=lambda p: np.logaddexp(prefixes[p][0], prefixes[p][1]))
    return list(top), float(np.logaddexp(*prefixes[top]))


def alignment(spoken: Sequence[str], heard: Sequence[str]) -> list[Edit]:
    """The fewest substitutions, omissions and insertions that make one of the other (Levenshtein 1966), in order.

    Example:
        >>> alignment("one two three".split(), "one too three four".split())[1:4:2]
        [('substituted', 'two', 'too'), ('inserted', '', 'four')]
    """
    rows, columns = len(spoken), len(heard)
    cost = np.zeros((rows + 1, columns + 1), np.int64)
    cost[:, 0], cost[0] = np.arange(rows + 1), np.arange(columns + 1)
    for i in range(1, rows + 1):
        for j in range(1, columns + 1):
            swap = cost[i - 1, j - 1] + (spoken[i - 1] != heard[j - 1])
            cost[i, j] = min(swap, cost[i - 1, j] + 1, cost[i, j - 1] + 1)
    edits: list[Edit] = []
    i, j = rows, columns
    while i or j:
        if i and j and cost[i, j] == cost[i - 1, j - 1] + (spoken[i - 1] != heard[j - 1]):
            i, j = i - 1, j - 1
            edits.append(("right" if spoken[i] == heard[j] else "substituted", spoken[i], heard[j]))
        elif i and cost[i, j] == cost[i - 1, j] + 1:
            i -= 1
            edits.append(("left out", spoken[i], ""))
        else:
            j -= 1
            edits.append(("inserted", "", heard[j]))
    return edits[::-1]


def edit_count(spoken: Sequence[str], heard: Sequence[str]) -> int:
    """The fewest edits, see :func:`alignment`.

    Example:
        >>> edit_count("kitten", "sitting")
        3
    """
    row = list(range(len(heard) + 1))
    for i, word in enumerate(spoken, 1):
        corner, row[0] = row[0], i
        for j, other in enumerate(heard, 1):
            corner, row[j] = row[j], min(corner + (word != other), row[j] + 1, row[j - 1] + 1)
    return row[-1]
