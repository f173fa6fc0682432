"""Sequence transduction: one sequence of tokens from another, judged by exact matches and BLEU."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from deep500.errors import InputError
from deep500.tasks.gallery import Exhibit, Gallery
from deep500.tasks.language_modelling import IGNORE
from deep500.tasks.task import Quality, Sums, Task

if TYPE_CHECKING:
    from deep500.networks.network import Network

DECODED = "decoded"
"""Name under which :meth:`Transduction.predict` gives the tokens that it found."""

ORDERS = 4
"""Longest n-grams of BLEU."""

WIDEST = 48
"""Tokens of a text that a gallery keeps."""

Step = Callable[[np.ndarray, int], np.ndarray]
"""From tokens so far (rows, T), and a place, to log-probabilities (rows, classes) of what comes after it."""


def beam_search(step: Step, items: int, longest: int, start: int, end: int, beam: int = 1) -> np.ndarray:
    """The likeliest sequences found, (items, longest) tokens, ``end`` after their end; ``beam=1`` is greedy search.

    A sequence's worth is the sum of its log-probabilities, which is not normalized by its length; one that is over
    stays as it is. ``step`` gets (items * beam, longest) tokens, of which those up to the place count.
    """
    if beam < 1:
        raise InputError(f"got beam={beam}; expected at least 1: correct it")
    tokens = np.full((items, beam, longest + 1), end, np.int64)
    tokens[:, :, 0] = start
    worth = np.full((items, beam), -np.inf)
    worth[:, 0] = 0.0  # all beams begin alike: only one counts, or each would choose the same first token
    over = np.zeros((items, beam), bool)
    rows = np.arange(items)[:, None]
    for place in range(longest):
        log_p = step(tokens[:, :, :-1].reshape(items * beam, longest), place).reshape(items, beam, -1)
        classes = log_p.shape[2]
        stay = np.full(classes, -np.inf)
        stay[end] = 0.0  # a sequence that is over goes on with `end`, at no cost
        totals = (worth[:, :, None] + np.where(over[:, :, None], stay, log_p)).reshape(items, -1)
        best = np.argsort(-totals, axis=1, kind="stable")[:, :beam]
        parent, token = best // classes, best % classes
        worth = totals[rows, best]
        tokens, over = tokens[rows, parent], over[rows, parent]
        tokens[:, :, place + 1] = token
        over |= token == end
        if over.all():
            break
    return tokens[:, 0, 1:]


def bleu_counts(translations: Sequence[str], references: Sequence[str]) -> np.ndarray:
    """Return BLEU's sums over words between spaces: matching n-grams, all n-grams (n = 1 to 4), both lengths."""
    counts = np.zeros(2 * ORDERS + 2)
    for a, b in zip(translations, references, strict=True):
        first, second = a.split(), b.split()
        counts[-2:] += len(first), len(second)
        for n in range(1, ORDERS + 1):
            grams = [Counter(tuple(w[i : i + n]) for i in range(len(w) - n + 1)) for w in (first, second)]
            counts[n - 1] += (grams[0] & grams[1]).total()
            counts[ORDERS + n - 1] += grams[0].total()
    return counts


def bleu(counts: np.ndarray) -> float:
    """BLEU in percent (Papineni et al. 2002) as sacrebleu 2's: one reference, ``tokenize="none"``, smoothing ``exp``.

    Example:
        >>> round(bleu(bleu_counts(["a b c d e"], ["a b c d f"])), 6)
        66.87403
    """
    matches, totals, (length, reference_length) = counts[:ORDERS], counts[ORDERS : 2 * ORDERS], counts[-2:]
    if not length or not matches.any():
        return 0.0
    logs, smooth = [], 1.0
    for right, total in zip(matches, totals, strict=True):
        if not total:
            return 0.0
        if not right:
            smooth *= 2
        logs.append(math.log(right / total if right else 1 / (smooth * total)))
    short = min(0.0, 1 - reference_length / length)
    return float(100 * math.exp(short + sum(logs) / ORDERS))


class Transduction(Task):
    """A target of a source, token by token.

    A batch holds ``input`` (items, S), ``decoder_input`` (items, T) and the label (items, T), as
    :class:`deep500.training.data.text.Pairs` gives them; scores are (items, classes, T). The loss is the mean cross
    entropy of the tokens wanted. Judged is what is found by search, which never sees the target.

    Qualities: ``exact_match``, percentage of items found token for token, of lengths seen in training;
    ``exact_match_longer``, of longer sources; ``bleu`` over the items of both.

    Args:
        label, output, loss: see :class:`~deep500.tasks.task.Task`.
        dataset: has ``source`` and ``target``, vocabularies, and ``seen``, the longest source in training.
        target, seen: instead of the data set's.
        beam: sequences that the search keeps; 1 is greedy.
    """

    name, sample = "transduction", "token"
    qualities = (Quality("exact_match", "%"), Quality("exact_match_longer", "%"), Quality("bleu"))
    judges_training = False

    def __init__(
        self,
        label: str = "label",
        output: str | None = None,
        loss: str = "loss",
        *,
        dataset: Any = None,
        target: Any = None,
        seen: int | None = None,
        beam: int = 1,
    ) -> None:
        super().__init__(label, output, loss)
        self.target: Any = getattr(dataset, "target", None) if target is None else target
        self.source: Any = getattr(dataset, "source", None)
        self.seen = getattr(dataset, "seen", None) if seen is None else seen
        if self.target is None or beam < 1:
            raise InputError(
                f"task {self.name!r}: got target {self.target}, beam {beam}; expected a vocabulary, or data with one, "
                "and a beam of at least 1: pass target=Words(...)"
            )
        self.beam = beam

    def count(self, batch: Mapping[str, Any]) -> int:
        """Tokens wanted."""
        return int(np.count_nonzero(np.asarray(batch[self.label]) != IGNORE))

    def add_loss(self, network: Network) -> Network:
        """The network with the cross entropy of the tokens wanted."""
        from deep500.networks import add_loss

        return add_loss(network, "cross_entropy", self.output, self.label, self.loss, ignore_index=IGNORE)

    def judged_inputs(self) -> tuple[str, ...]:
        """Targets, and sources for their lengths."""
        return (self.label, "input")

    def judged_outputs(self) -> tuple[str, ...]:
        """The name of the search's results."""
        return (DECODED,)

    def predict(self, executor: Any, batch: Mapping[str, Any], names: Sequence[str]) -> Mapping[str, Any]:
        """The loss, and ``decoded`` (items, T): what greedy or beam search finds from the source alone."""
        known = [name for name in names if name != DECODED]
        outputs = dict(executor.inference(batch, known)) if known else {}
        if DECODED in names:
            outputs[DECODED] = self.search(executor, np.asarray(batch["input"]), np.asarray(batch[self.label]).shape[1])
        return outputs

    def search(self, executor: Any, source: np.ndarray, longest: int) -> np.ndarray:
        """Targets (items, longest) of sources (items, S)."""
        repeated = np.repeat(source, self.beam, axis=0)
        assert self.output is not None
        output = self.output

        def step(tokens: np.ndarray, place: int) -> np.ndarray:
            outputs = executor.inference({"input": repeated, "decoder_input": tokens}, [output])[output]
            scores = executor.network.to_numpy(outputs)[:, :, place].astype(np.float64)
            scores = scores - scores.max(axis=1, keepdims=True)
            return scores - np.log(np.exp(scores).sum(axis=1, keepdims=True))

        return beam_search(step, len(source), longest, self.target.start, self.target.end, self.beam)

    def zero(self) -> dict[str, np.ndarray]:
        """No item seen."""
        names = ("right", "items", "longer_right", "longer")
        return {**{name: np.zeros(()) for name in names}, "bleu": np.zeros(2 * ORDERS + 2)}

    def judge(self, batch: Mapping[str, np.ndarray], outputs: Mapping[str, np.ndarray]) -> Mapping[str, Any]:
        """Matches of both kinds of lengths, and counts of n-grams."""
        references, decoded = self.reference_texts(batch), self.decode(batch, outputs)
        right = np.array([a == b for a, b in zip(decoded, references, strict=True)], bool)
        sizes = np.count_nonzero(batch["input"], axis=1)
        longer = np.zeros(len(sizes), bool) if self.seen is None else sizes > self.seen
        counts = {"right": right & ~longer, "items": ~longer, "longer_right": right & longer, "longer": longer}
        return {
            **{name: np.count_nonzero(mask) for name, mask in counts.items()},
            "bleu": bleu_counts(decoded, references),
        }

    def measure(self, sums: Sums, loss: float | None) -> dict[str, float | None]:
        """Percentages, None where there are no such items, and BLEU."""
        right, items, longer_right, longer = (float(sums[n]) for n in ("right", "items", "longer_right", "longer"))
        return {
            "exact_match": 100 * right / items if items else None,
            "exact_match_longer": 100 * longer_right / longer if longer else None,
            "bleu": bleu(sums["bleu"]) if items + longer else None,
        }

    def reference_texts(self, batch: Mapping[str, np.ndarray]) -> list[str]:
        """The targets as texts."""
        return [self.target.decode(row[row != IGNORE]) for row in batch[self.label]]

    def decode(self, batch: Mapping[str, np.ndarray], outputs: Mapping[str, np.ndarray]) -> list[Any]:
        """Return the decoded tokens as texts."""
        return [self.target.decode(row) for row in outputs[DECODED]]

    def gallery(self) -> Pairings:
        """Sources with what was wanted and what was found."""
        return Pairings(self)


class Pairings(Gallery):
    """Sources with their results: some that go wrong, of lengths seen and of longer ones, and some that do not.

    A row holds whether it is right, whether it is longer than those seen, and the tokens of source, target and what was
    found, :data:`WIDEST` each and -1 behind their ends.
    """

    most = 5

    def __init__(self, task: Transduction) -> None:
        super().__init__(task)
        self.transduction = task

    def zero(self) -> dict[str, np.ndarray]:
        """No item."""
        return {"rows": np.zeros((0, 2 + 3 * WIDEST))}

    def judge(self, batch: Mapping[str, np.ndarray], outputs: Mapping[str, np.ndarray]) -> Mapping[str, Any]:
        """Some items of a batch of each kind."""
        task = self.transduction
        decoded, references = task.decode(batch, outputs), task.reference_texts(batch)
        rows = np.full((len(decoded), 2 + 3 * WIDEST), -1.0)
        rows[:, 0] = [a == b for a, b in zip(decoded, references, strict=True)]
        rows[:, 1] = task.seen is not None and np.count_nonzero(batch["input"], axis=1) > task.seen
        for part, tokens in enumerate((batch["input"], batch[task.label], outputs[DECODED])):
            start, width = 2 + part * WIDEST, min(WIDEST, tokens.shape[1])
            rows[:, start : start + width] = np.where(tokens == IGNORE, -1, tokens)[:, :width]
        return {"rows": self._some(rows)}

    def shrink(self, name: str, rows: np.ndarray) -> np.ndarray:
        """Some of each kind."""
        return self._some(rows)

    def _some(self, rows: np.ndarray) -> np.ndarray:
        kinds = [(rows[:, 0] == right) & (rows[:, 1] == longer) for longer in (0, 1) for right in (0, 1)]
        return np.concatenate([rows[kind][: self.most] for kind in kinds])

    def exhibits(self, sums: Sums) -> list[Exhibit]:
        """A table of them."""
        texts = [self._row(row) for row in self._some(sums["rows"])]
        caption = f"At most {self.most} of each kind; longer: than any source in training."
        columns = ["source", "length", "wanted", "found", "right"]
        table = {"kind": "table", "title": "What becomes of a source?", "caption": caption, "columns": columns}
        return [{**table, "rows": texts}] if texts else []

    def _row(self, row: np.ndarray) -> list[Any]:
        task = self.transduction
        source, *targets = (part[part >= 0].astype(int) for part in np.split(row[2:], 3))
        text = task.source.decode(source[source > 0]) if task.source else " ".join(map(str, source))
        reference, decoded = (task.target.decode(tokens) for tokens in targets)
        return [text, "longer" if row[1] else "seen", reference, decoded, "yes" if row[0] else "no"]
