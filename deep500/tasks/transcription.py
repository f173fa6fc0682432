"""Transcription: what is said in a sequence of frames, by connectionist temporal classification."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import KW_ONLY, InitVar, dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from deep500.errors import InputError
from deep500.tasks.alphabet import BLANK, Alphabet
from deep500.tasks.decoding import alignment, edit_count, greedy, prefix_beam
from deep500.tasks.gallery import Exhibit, Gallery
from deep500.tasks.task import Quality, Sums, Task

if TYPE_CHECKING:
    from deep500.networks.network import Network

DECODERS = ("greedy", "beam")
WIDEST = 120
"""Labels of a transcript that a gallery keeps."""


@dataclass(eq=False, repr=False)
class Transcription(Task):
    """Labels in the order in which they are heard, without saying when.

    A batch holds ``label`` (items, S) class numbers, ``label_length`` and ``input_length`` (items,), all int64; the
    output is scores (items, frames, classes), where class 0 is the blank. The loss is CTC. A network that has fewer
    frames than its input gives their number as an output ``output_length`` (items,).

    Qualities: ``word_error_rate``, the fewest substitutions, omissions and insertions over all utterances together /
    words said, in percent (it may exceed 100); and the percentage of utterances without an error. Words are what stands
    between spaces where symbols are characters, else the symbols.

    Args:
        label, output, loss: see :class:`~deep500.tasks.task.Task`.
        alphabet: what the classes stand for; that of ``dataset`` if None.
        dataset: has an attribute ``alphabet``.
        decoder: ``"greedy"``, or ``"beam"`` for prefix search, which judges training greedily nevertheless.
        beam: prefixes that the search keeps.
        zero_infinity: utterances whose transcript does not fit their frames count 0 in the loss, instead of infinity.
        compiled: take the operator in C++ for the loss, which needs a compiler, instead of ONNX nodes.

    Example:
        >>> task = Transcription(output="scores", alphabet=Alphabet(["one", "two"]))
        >>> batch = {"label": np.array([[2, 1]]), "label_length": np.array([2]), "input_length": np.array([3])}
        >>> scores = {"scores": np.eye(3)[[[2, 0, 2]]]}
        >>> task.decode(batch, scores), task.measure(task.judge(batch, scores), None)["word_error_rate"]
        (['two two'], 50.0)
    """

    name, sample = "transcription", "utterance"
    qualities = (Quality("word_error_rate", "%", "lower"), Quality("utterances_right", "%"))
    judges_training = False

    label: str = "label"
    output: str | None = None
    loss: str = "loss"
    _: KW_ONLY
    alphabet: Alphabet = None  # type: ignore[assignment]  # that of the data, once it is made
    dataset: InitVar[Any] = None
    decoder: str = "greedy"
    beam: int = 8
    zero_infinity: bool = False
    compiled: bool = False

    def __post_init__(self, dataset: Any) -> None:
        self.alphabet = getattr(dataset, "alphabet", None) if self.alphabet is None else self.alphabet
        if self.alphabet is None:
            raise InputError(
                "task 'transcription': got no alphabet; expected one, or data with one: pass alphabet=Alphabet('abc')"
            )
        if self.decoder not in DECODERS or self.beam < 1:
            raise InputError(
                f"got decoder {self.decoder!r}, beam {self.beam}; expected one of {DECODERS} and a beam of at least 1: "
                "correct it"
            )
        self.input_length, self.label_length, self.output_length = "input_length", "label_length", "output_length"
        self._lengths: str | None = None

    def bind(self, outputs: Sequence[str]) -> None:
        """See :meth:`~deep500.tasks.task.Task.bind`; a network may say how many frames it has."""
        super().bind([name for name in outputs if name != self.output_length])
        self._lengths = self.output_length if self.output_length in outputs else None

    def add_loss(self, network: Network) -> Network:
        """The network with the CTC loss of its scores."""
        from deep500.networks import add_loss

        lengths = self.output_length if network.has_value(self.output_length) else self.input_length
        return add_loss(
            network,
            "ctc",
            self.output,
            self.label,
            self.loss,
            blank=BLANK,
            zero_infinity=self.zero_infinity,
            compiled=self.compiled,
            input_length=lengths,
            label_length=self.label_length,
        )

    def judged_inputs(self) -> tuple[str, ...]:
        """Transcripts, and both lengths."""
        return (self.label, self.label_length, self.input_length)

    def judged_outputs(self) -> tuple[str, ...]:
        """The scores, and how many of their frames count where the network says so."""
        return tuple(name for name in (self.output, self._lengths) if name)

    def zero(self) -> dict[str, np.ndarray]:
        """No word heard."""
        return {name: np.zeros(()) for name in ("edits", "words", "right", "utterances")}

    def judge(self, batch: Mapping[str, np.ndarray], outputs: Mapping[str, np.ndarray]) -> Mapping[str, Any]:
        """Edits and words of a batch, and the utterances without edits."""
        spoken = [self.split(self.alphabet.decode(labels)) for labels in self.transcripts(batch)]
        heard = [self.split(text) for text in self.decode(batch, outputs)]
        edits = [edit_count(a, b) for a, b in zip(spoken, heard, strict=True)]
        words = sum(map(len, spoken))
        return {"edits": sum(edits), "words": words, "right": edits.count(0), "utterances": len(edits)}

    def measure(self, sums: Sums, loss: float | None) -> dict[str, float | None]:
        """Both percentages; None where nothing was said."""
        edits, words, right, utterances = (float(sums[name]) for name in ("edits", "words", "right", "utterances"))
        return {
            "word_error_rate": 100.0 * edits / words if words else None,
            "utterances_right": 100.0 * right / utterances if utterances else None,
        }

    def transcripts(self, batch: Mapping[str, np.ndarray]) -> list[np.ndarray]:
        """Class numbers of what is said, without padding."""
        return [row[: int(n)] for row, n in zip(batch[self.label], batch[self.label_length], strict=True)]

    def split(self, text: str) -> list[str]:
        """The words of a text."""
        return text.split()

    def labels(self, batch: Mapping[str, np.ndarray], outputs: Mapping[str, np.ndarray]) -> list[list[int]]:
        """Class numbers of what is heard."""
        assert self.output is not None
        scores, lengths = outputs[self.output], batch[self.input_length]
        if self._lengths and self._lengths in outputs:
            lengths = outputs[self._lengths]
        if self.decoder == "greedy":
            return greedy(scores, lengths, BLANK)
        top = scores.max(axis=2, keepdims=True)
        log_p = scores - top - np.log(np.exp(scores - top).sum(axis=2, keepdims=True))
        decoded = (prefix_beam(rows, int(n), self.beam, BLANK) for rows, n in zip(log_p, lengths, strict=True))
        return [labels for labels, _ in decoded]

    def decode(self, batch: Mapping[str, np.ndarray], outputs: Mapping[str, np.ndarray]) -> list[Any]:
        """The text of every utterance."""
        return [self.alphabet.decode(labels) for labels in self.labels(batch, outputs)]

    def gallery(self) -> Transcripts:
        """Transcripts beside what was said."""
        return Transcripts(self)


class Transcripts(Gallery):
    """Spoken and heard words, aligned: the worst utterances, the first ones, and kinds of errors."""

    most = 10

    def __init__(self, task: Transcription) -> None:
        super().__init__(task)
        self.transcription = task

    def zero(self) -> dict[str, np.ndarray]:
        """No utterance."""
        kinds = ("right", "substituted", "left out", "inserted")
        return {"rows": np.zeros((0, 2 * WIDEST + 1)), **{kind: np.zeros(()) for kind in kinds}}

    def judge(self, batch: Mapping[str, np.ndarray], outputs: Mapping[str, np.ndarray]) -> Mapping[str, Any]:
        """Counts of edits, and the class numbers of the worst utterances of a batch and of its first one."""
        task = self.transcription
        spoken, heard = task.transcripts(batch), task.labels(batch, outputs)
        rows, added = [], dict.fromkeys(("right", "substituted", "left out", "inserted"), 0)
        for a, b in zip(spoken, heard, strict=True):
            edits = alignment(*(task.split(task.alphabet.decode(labels)) for labels in (a, b)))
            for kind, _, _ in edits:
                added[kind] += 1
            row = np.zeros(2 * WIDEST + 1)
            row[0] = sum(kind != "right" for kind, _, _ in edits)
            row[1 : 1 + min(len(a), WIDEST)] = a[:WIDEST]
            row[1 + WIDEST : 1 + WIDEST + min(len(b), WIDEST)] = b[:WIDEST]
            rows.append(row)
        worst = sorted(range(1, len(rows)), key=lambda i: -rows[i][0])[: self.most]
        erring = [i for i in worst if rows[i][0]]
        return {"rows": np.array([rows[i] for i in (0, *erring)]) if rows else np.zeros((0, 2 * WIDEST + 1)), **added}

    def exhibits(self, sums: Sums) -> list[Exhibit]:
        """A table of transcripts, the worst first, and one of edits."""
        rows = sums["rows"]
        order = sorted(range(len(rows)), key=lambda i: (-rows[i][0], tuple(rows[i])))
        shown = order[: self.most] + order[self.most :][-3:]
        # fmt: off
        return [
            {
                "kind": "table", "title": "What is heard?",
                "caption": "[said > heard] is a substitution, [said > ] is left out, [ > heard] is inserted. The worst "
                "utterances come first, then others.",
                "columns": ["errors", "said", "heard, aligned"], "rows": [self._row(rows[i]) for i in shown],
            },
            {
                "kind": "table", "title": "Which errors are made?", "columns": ["what", "words"],
                "rows": [[kind, int(sums[kind])] for kind in ("right", "substituted", "left out", "inserted")],
            },
        ]
        # fmt: on

    def _row(self, row: np.ndarray) -> list[Any]:
        texts = [self.transcription.alphabet.decode(part[part > 0]) for part in np.split(row[1:], 2)]
        edits = alignment(*(self.transcription.split(text) for text in texts))
        words = [a if kind == "right" else f"[{a} > {b}]" for kind, a, b in edits]
        return [int(row[0]), texts[0], " ".join(words)]
