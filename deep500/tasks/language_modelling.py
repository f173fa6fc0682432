"""Language modelling: what comes next, judged in bits a character."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

import numpy as np

from deep500.errors import InputError
from deep500.tasks.gallery import Exhibit, Gallery
from deep500.tasks.task import Quality, Sums, Task
from deep500.tasks.tokens import Vocabulary

if TYPE_CHECKING:
    from deep500.networks.network import Network

IGNORE = -100
"""Labels that are not judged."""

SAMPLES = "samples"
"""Name under which :meth:`LanguageModelling.predict` gives texts that the network writes on."""

WRITTEN, BEFORE = 160, 32
"""Tokens of a sample of text, and those before it that are shown."""


def surprises(scores: np.ndarray, labels: np.ndarray) -> np.ndarray:
    """-log softmax(scores)[label] in float64 of every label that counts; scores (items, classes, length)."""
    values = np.moveaxis(scores, 1, -1)[labels != IGNORE].astype(np.float64)
    top = values.max(axis=1, keepdims=True)
    total = top[:, 0] + np.log(np.exp(values - top).sum(axis=1))
    return total - values[np.arange(len(values)), labels[labels != IGNORE]]


def generate(
    executor: Any,
    tokens: np.ndarray,
    count: int,
    output: str = "output",
    temperature: float = 1.0,
    seed: int = 0,
    cache: bool = True,
) -> np.ndarray:
    """Tokens that a language model writes on.

    The network reads all there is while that fits. Where it is full, the newest half stays, and more is written until
    it is full again.

    Args:
        executor: of a network that maps ``input`` (items, length) to scores (items, classes, length), of which place t
            reads no later one.
        tokens: (items, begun) int64, what is there already; of more than ``length`` the newest are read.
        count: tokens to write.
        output: name of the scores.
        temperature: divides the scores; 0 takes the highest one.
        seed: of what is drawn.
        cache: a ``causal_transformer`` reads one token at a time, with the keys and values of those before it
            (:func:`~deep500.networks.zoo.language.one_token_network`), instead of all of them for each. Scores
            are the same but for rounding.

    Returns:
        (items, count) int64.
    """
    if count < 1 or not 0 <= temperature < np.inf or tokens.ndim != 2 or not tokens.shape[1]:
        raise InputError(
            f"got count={count}, temperature={temperature}, tokens {tokens.shape}; expected at least one to write, a "
            "finite temperature of at least 0, and tokens (items, begun) to begin with"
        )
    rng, begun = np.random.default_rng(seed), tokens.shape[1]
    length = (executor.network.inputs["input"].shape or (None, None))[1]
    length = length if isinstance(length, int) else begun + count
    reader = open_reader(executor, output, length, cache)
    written, first = tokens, max(begun - length, 0)
    for place in range(begun, begun + count):
        if place - first > length:
            first = place - length // 2 if length > 1 else place - 1
            reader.forget()
        last = reader.scores(written[:, first:]).astype(np.float64)
        drawn = last if not temperature else last / temperature + rng.gumbel(size=last.shape)
        written = np.concatenate([written, drawn.argmax(axis=1)[:, None]], axis=1)
    return written[:, begun:]


def open_reader(executor: Any, output: str, length: int, cache: bool = True) -> _Cached | _Whole:
    """A reader of a language model: ``scores(tokens)`` of what comes next, which keeps what it has read until
    ``forget()`` where there is a cache.

    Args:
        executor, output, cache: see :func:`generate`.
        length: tokens that the network reads at most.
    """
    return (_Cached.prepared(executor, output, length) if cache else None) or _Whole(executor, output, length)


class _Whole:
    """Scores of what comes next, (items, classes), by reading everything; zeros fill up what is not written yet."""

    def __init__(self, executor: Any, output: str, length: int) -> None:
        self.executor, self.output, self.length = executor, output, length

    def scores(self, tokens: np.ndarray) -> np.ndarray:
        filled = np.zeros((len(tokens), self.length), np.int64)
        filled[:, : tokens.shape[1]] = tokens
        scores = self.executor.inference({"input": filled}, [self.output])[self.output]
        last: np.ndarray = self.executor.network.to_numpy(scores)[:, :, tokens.shape[1] - 1]
        return last

    def forget(self) -> None:
        """Nothing is kept."""


_SECOND: WeakKeyDictionary[Any, tuple[Any, Any, Any]] = WeakKeyDictionary()
"""Of executors: the inputs of their second network, its executor, and that of :func:`prefill_network`."""


class _Cached:
    """The same by two networks: one reads the beginning at once, one a token at a time; what they have read, keys and
    values, stays in the framework's tensors."""

    def __init__(self, executor: Any, prefill: Any, network: Network, output: str) -> None:
        self.executor, self.prefill, self.output, self.read = executor, prefill, output, 0
        self.empty = {n: d for n, d in network.inputs.items() if n.startswith("past.")}
        self.past: dict[str, Any] = {}

    @classmethod
    def prepared(cls, executor: Any, output: str, length: int) -> _Cached | None:
        """None where the executor's network has no such second one."""
        from deep500.networks.zoo.language import one_token_network, prefill_network

        executor.network.sync()  # the weights of now, not those that training began with
        network = one_token_network(executor.network) if output == "output" else None
        if network is None:
            return None
        shapes = {name: (d.shape, d.dtype) for name, d in network.inputs.items()}
        known = _SECOND.get(executor)
        if known is None or known[0] != shapes:
            both = executor.like(network), executor.like(prefill_network(executor.network))
            known = _SECOND[executor] = shapes, *both
        else:  # compiled already
            for name in network.trainable():
                for other in known[1:]:
                    other.network.feed_tensor(name, network.parameters[name].value)
        return cls(*known[1:], network, output)

    def scores(self, tokens: np.ndarray) -> np.ndarray:
        if not self.past:
            return self._begin(tokens)
        names = {name: name.replace("past", "present", 1) for name in self.past}
        for place in range(self.read, tokens.shape[1]):
            here = {"input": np.ascontiguousarray(tokens[:, place : place + 1]), "position": np.array([place])}
            outputs = self.executor.inference({**here, **self.past}, [self.output, *names.values()])
            self.past = {past: outputs[present] for past, present in names.items()}
        self.read = tokens.shape[1]
        last: np.ndarray = self.executor.network.to_numpy(outputs[self.output])[:, :, 0]
        return last

    def _begin(self, tokens: np.ndarray) -> np.ndarray:
        """Read the beginning at once; places after it are filled up with zeros, and not read later."""
        shape: Any = next(iter(self.empty.values())).shape
        filled = np.zeros((len(tokens), shape[2]), np.int64)
        filled[:, : tokens.shape[1]] = tokens
        names = {name: name.replace("past", "present", 1) for name in self.empty}
        outputs = self.prefill.inference({"input": filled}, [self.output, *names.values()])
        self.past = {past: outputs[present] for past, present in names.items()}
        self.read = tokens.shape[1]
        last: np.ndarray = self.prefill.network.to_numpy(outputs[self.output])[:, :, self.read - 1]
        return last

    def forget(self) -> None:
        """Begin anew with the next tokens."""
        self.past = {}


class LanguageModelling(Task):
    """The next token at every place of a text.

    A batch holds tokens as ``input`` and what comes next as the label, (items, length) int64; places with label
    -100 are read, not judged. The output is scores (items, classes, length). The loss is the mean cross entropy of the
    labels that count, in nats a token.

    Qualities: ``bits_per_character``, the sum of -log2 p over all labels that count / the characters that these stand
    for, of all batches together; ``perplexity``, e^(mean -ln p a token).

    Args:
        label, output, loss: see :class:`~deep500.tasks.task.Task`.
        vocabulary: what the classes stand for; that of ``dataset`` if None.
        dataset: has an attribute ``vocabulary``.

    Example:
        >>> from deep500.tasks.tokens import Characters
        >>> task = LanguageModelling(output="scores", vocabulary=Characters("ab"))
        >>> sums = task.judge({"label": np.array([[0, 1, -100]])}, {"scores": np.zeros((1, 2, 3))})
        >>> task.measure(sums, None)
        {'bits_per_character': 1.0, 'perplexity': 2.0}
    """

    name, sample = "language_modelling", "token"
    qualities = (Quality("bits_per_character", "bits", "lower"), Quality("perplexity", direction="lower"))
    judges_training = False

    def __init__(
        self,
        label: str = "label",
        output: str | None = None,
        loss: str = "loss",
        *,
        vocabulary: Vocabulary | None = None,
        dataset: Any = None,
    ) -> None:
        super().__init__(label, output, loss)
        vocabulary = getattr(dataset, "vocabulary", None) if vocabulary is None else vocabulary
        if vocabulary is None:
            raise InputError(f"task {self.name!r}: got no vocabulary; expected one, or data with one: pass vocabulary=")
        self.vocabulary: Vocabulary = vocabulary

    def open_reader(self, executor: Any, length: int) -> Any:
        """The :func:`open_reader` of this task's scores."""
        return open_reader(executor, self.output or "output", length)

    def count(self, batch: Mapping[str, Any]) -> int:
        """Labels that count."""
        return int(np.count_nonzero(np.asarray(batch[self.label]) != IGNORE))

    def add_loss(self, network: Network) -> Network:
        """The network with the cross entropy of the labels that count."""
        from deep500.networks import add_loss

        return add_loss(network, "cross_entropy", self.output, self.label, self.loss, ignore_index=IGNORE)

    def zero(self) -> dict[str, np.ndarray]:
        """No token seen."""
        return {name: np.zeros(()) for name in ("nats", "tokens", "characters")}

    def judge(self, batch: Mapping[str, np.ndarray], outputs: Mapping[str, np.ndarray]) -> Mapping[str, Any]:
        """Nats of a batch, its tokens and their characters."""
        assert self.output is not None
        labels = batch[self.label]
        judged = labels[labels != IGNORE]
        nats = surprises(outputs[self.output], labels).sum()
        return {"nats": nats, "tokens": judged.size, "characters": self.vocabulary.widths[judged].sum()}

    def measure(self, sums: Sums, loss: float | None) -> dict[str, float | None]:
        """Both qualities; None where nothing was judged."""
        nats, tokens, characters = (float(sums[name]) for name in ("nats", "tokens", "characters"))
        return {
            "bits_per_character": nats / math.log(2) / characters if characters else None,
            "perplexity": math.exp(min(nats / tokens, 700.0)) if tokens else None,
        }

    def predict(self, executor: Any, batch: Mapping[str, Any], names: Sequence[str]) -> Mapping[str, Any]:
        """Scores of a batch; and ``samples``, if wanted: what the network writes after two of the items,
        where the first one is the first of a text (it has no context before it)."""
        outputs = dict(executor.inference(batch, [name for name in names if name != SAMPLES]))
        if SAMPLES in names and (np.asarray(batch[self.label])[0, 0] != IGNORE):  # the first passage of a text
            begun = np.asarray(batch["input"])[:2]
            outputs[SAMPLES] = generate(executor, begun, WRITTEN, self.output or "output")
        return outputs

    def infers_once(self, names: Sequence[str]) -> bool:
        """Unless it writes."""
        return type(self).predict is LanguageModelling.predict and SAMPLES not in names

    def gallery(self) -> Texts:
        """Texts that the network writes."""
        return Texts(self)

    def decode(self, batch: Mapping[str, np.ndarray], outputs: Mapping[str, np.ndarray]) -> list[Any]:
        """The likeliest next token at every place, as a text."""
        assert self.output is not None
        return [self.vocabulary.decode(row) for row in outputs[self.output].argmax(axis=1)]


class Texts(Gallery):
    """Texts that the network writes on, after ends of passages of the data."""

    most = 6

    def __init__(self, task: LanguageModelling) -> None:
        super().__init__(task)
        self.vocabulary = task.vocabulary

    def judged_inputs(self) -> tuple[str, ...]:
        """The passages."""
        return ("input",)

    def judged_outputs(self) -> tuple[str, ...]:
        """Continuations of them; only of the batch with the first passage, because writing takes long."""
        return (SAMPLES,)

    def zero(self) -> dict[str, np.ndarray]:
        """No text."""
        return {"rows": np.zeros((0, WRITTEN + BEFORE))}

    def judge(self, batch: Mapping[str, np.ndarray], outputs: Mapping[str, np.ndarray]) -> Mapping[str, Any]:
        """Both texts of a batch."""
        written = outputs.get(SAMPLES)
        if written is None or batch["input"].shape[1] < BEFORE:
            return {}
        return {"rows": np.concatenate([batch["input"][: len(written), -BEFORE:], written], axis=1)}

    def exhibits(self, sums: Sums) -> list[Exhibit]:
        """A table of them."""
        texts = [
            [self.vocabulary.decode(row[:BEFORE].astype(int)), self.vocabulary.decode(row[BEFORE:].astype(int))]
            for row in sums["rows"][: self.most]
        ]
        caption = "Drawn at temperature 1 after the passage on the left."
        return (
            [
                {
                    "kind": "table",
                    "title": "What does it write?",
                    "caption": caption,
                    "columns": ["after", "written"],
                    "rows": texts,
                }
            ]
            if texts
            else []
        )
