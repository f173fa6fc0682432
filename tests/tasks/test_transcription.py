"""Transcription: decoders against all alignments, errors against jiwer, what is refused, and the report's tables."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

import deep500 as d5
from deep500.errors import DataError, InputError
from deep500.networks import create
from deep500.tasks import Alphabet, Transcription
from deep500.tasks.decoding import alignment, edit_count, greedy, prefix_beam
from deep500.training.data import Utterances
from deep500.training.tally import Tally

WORDS = Alphabet(["one", "two", "three"])


def texts(count: int, seed: int = 1) -> list[str]:
    rng = np.random.default_rng(seed)
    return [WORDS.decode(rng.integers(1, 4, rng.integers(1, 7))) for _ in range(count)]


def scores_of(text: str, frames: int) -> np.ndarray:
    """Scores whose greedy transcript is the text: each word, then a blank."""
    said = [label for word in WORDS.encode(text) for label in (int(word), 0)] if text else []
    return np.eye(4)[(said + [0] * frames)[:frames]]


def test_word_error_rate_is_jiwers():
    """Over batches of different sizes together, and over two processes."""
    jiwer = pytest.importorskip("jiwer")
    said, heard = texts(11), [*texts(10, 2), ""]
    rows = [WORDS.encode(text) for text in said]
    label = np.zeros((11, 7), np.int64)
    for target, row in zip(label, rows, strict=True):
        target[: len(row)] = row
    batch = {"label": label, "label_length": np.array([len(r) for r in rows]), "input_length": np.full(11, 14)}
    scores = np.stack([scores_of(text, 14) for text in heard])
    tallies = []
    for parts in (((0, 4), (4, 5), (5, 11)), ((0, 4),), ((4, 11),)):
        task = Transcription(alphabet=WORDS)
        task.bind(["scores", "loss"])
        tally = Tally(np.asarray, None, "loss", "label", "test", task)
        for a, b in parts:
            tally.add(
                0, {name: value[a:b] for name, value in batch.items()}, {"scores": scores[a:b], "loss": np.ones(())}
            )
        tallies.append(tally)
    got = tallies[0].qualities()
    assert got["word_error_rate"] == pytest.approx(100 * jiwer.wer(said, heard), abs=1e-9)
    assert got["utterances_right"] == pytest.approx(100 * np.mean([a == b for a, b in zip(said, heard, strict=True)]))
    state = [tally.sums for tally in tallies[1:] if tally.flush() is None]
    together = {name: state[0][name] + state[1][name] for name in state[0]}
    assert tallies[0].judge.measure(together, None) == got


def test_edits_are_jiwers():
    jiwer = pytest.importorskip("jiwer")
    for said, heard in zip(texts(40, 3), texts(40, 4), strict=True):
        edits = alignment(said.split(), heard.split())
        theirs = jiwer.process_words(said, heard)
        wrong = sum(kind != "right" for kind, _, _ in edits)
        assert (
            wrong
            == edit_count(said.split(), heard.split())
            == theirs.substitutions + theirs.deletions + theirs.insertions
        )
        assert [a for _, a, _ in edits if a] == said.split() and [b for _, _, b in edits if b] == heard.split()


@pytest.mark.parametrize("seed", range(4))
def test_beam_search_finds_the_most_probable_labels(seed):
    """Against every alignment; greedy is not always right, and its labels are less probable."""
    rng = np.random.default_rng(seed)
    log_p = np.log(rng.dirichlet(np.ones(3), size=6))
    exact: dict[tuple[int, ...], float] = {}
    for path in itertools.product(range(3), repeat=5):
        labels = tuple(a for a, b in zip(path, (None, *path), strict=False) if a != b and a)
        exact[labels] = exact.get(labels, 0.0) + np.exp(sum(log_p[t, a] for t, a in enumerate(path)))
    best = max(exact, key=exact.__getitem__)
    labels, value = prefix_beam(log_p, 5, beam=1000)
    assert tuple(labels) == best and np.exp(value) == pytest.approx(exact[best], rel=1e-12)
    narrow, bound = prefix_beam(log_p, 5, beam=2)
    assert np.exp(bound) <= exact[tuple(narrow)] * (1 + 1e-12)
    quick = tuple(greedy(log_p[None], np.array([5]))[0])
    assert exact[quick] <= exact[best]


def test_the_network_may_have_fewer_frames_than_its_input():
    task = Transcription(alphabet=WORDS, decoder="beam")
    network = task.add_loss(create("conv1d_ctc", classes=4, shape=(9, 2), width=4, layers=2, stride=2, lengths=True))
    task.bind(network.outputs)
    assert task.output == "output" and task.judged_outputs() == ("output", "output_length")
    executor = d5.load_backend("reference").from_model(network)
    batch = Utterances([np.ones((9, 2)), np.ones((4, 2))], [[1, 2], [3]], alphabet=WORDS, pad="batch")[:]
    outputs = executor.inference(batch)
    assert outputs["output"].shape == (2, 5, 4) and outputs["output_length"].tolist() == [5, 2]
    assert len(task.decode(batch, outputs)) == 2 and set(task.judge(batch, outputs)) == set(task.zero())


def test_the_gallery_shows_the_worst_and_counts_the_errors():
    task = Transcription(output="scores", alphabet=WORDS)
    label = np.array([[1, 2, 3], [1, 1, 0]])
    batch = {"label": label, "label_length": np.array([3, 2]), "input_length": np.array([8, 8])}
    outputs = {"scores": np.stack([scores_of("one two three", 8), scores_of("two one one", 8)])}
    gallery = task.gallery()
    sums = {name: gallery.zero()[name] for name in gallery.zero()}
    for name, value in gallery.judge(batch, outputs).items():
        sums[name] = np.concatenate([sums[name], value]) if np.ndim(value) else sums[name] + value
    transcripts, errors = gallery.exhibits(sums)
    assert transcripts["rows"][0] == [1, "one one", "[ > two] one one"]
    assert transcripts["rows"][1] == [0, "one two three", "one two three"]
    assert errors["rows"] == [["right", 5], ["substituted", 0], ["left out", 0], ["inserted", 1]]


@pytest.mark.long
def test_it_trains_in_every_backend(backend):
    """Nodes and all: the loss of a few strings falls, and what is said is heard in the end."""
    rng = np.random.default_rng(0)
    frames = {1: np.array([2.0, 0, 0]), 2: np.array([0, 2.0, 0]), 3: np.array([0, 0, 2.0])}
    labels = [rng.integers(1, 4, rng.integers(1, 4)) for _ in range(12)]
    said = [np.repeat([frames[int(n)] for n in row], 3, axis=0) for row in labels]
    data = Utterances(said, labels, alphabet=WORDS)
    task = Transcription(dataset=data)
    model = create("conv1d_ctc", classes=4, shape=(9, 3), width=16, layers=2, kernel=5, norm=False, lengths=True)
    executor = backend.from_model(task.add_loss(model))
    optimizer = backend.AdamOptimizer(executor, "loss", lr=0.02)
    batch = data[:]
    first = None
    for _ in range(40):
        loss = float(executor.network.to_numpy(optimizer.step(batch)["loss"]))
        first = loss if first is None else first
    task.bind(executor.network.outputs)
    outputs = {"output": executor.network.to_numpy(executor.inference(batch)["output"])}
    assert loss < 0.2 * first
    assert task.measure(task.judge(batch, outputs), None)["word_error_rate"] < 20


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: WORDS.encode("one tow", "line 3"), r"line 3: got 'tow' at place 1 of 'one tow'.*two"),
        (lambda: Alphabet("abc").encode("a-b"), r"got '-' at place 1"),
        (
            lambda: Utterances([np.ones((2, 3)), np.ones((0, 3))], [0, 1]),
            r"utterance 1: got an array of shape \(0, 3\)",
        ),
        (
            lambda: Utterances([np.ones((2, 3)), np.full((2, 3), np.nan)], [0, 1]),
            r"utterance 1: got values that are not",
        ),
        (lambda: Utterances([np.ones((2, 3))] * 2, [0, 2]), r"got no sample of class 1; expected some of each of 3"),
        (
            lambda: Utterances([np.ones((3, 2))], [[1, 1, 2]]),
            r"utterance 0: got a transcript of 3 labels, which need 4",
        ),
        (lambda: Utterances([np.ones((3, 2))], [[1, 0]]), r"got class 0 at place 1 of its transcript"),
    ],
)
def test_bad_data_are_refused_in_one_line(make, message):
    with pytest.raises(DataError, match=message) as caught:
        make()
    assert "\n" not in str(caught.value) and "expected" in str(caught.value)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (Transcription, "got no alphabet"),
        (lambda: Transcription(alphabet=WORDS, decoder="best"), "got decoder 'best'"),
        (lambda: Alphabet(["one", "one"]), "each once"),
        (lambda: Alphabet(""), "expected some"),
        (lambda: Alphabet(["one two", "three"]), "characters or words"),
    ],
)
def test_bad_settings_are_refused(make, message):
    with pytest.raises(InputError, match=message):
        make()
