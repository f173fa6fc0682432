"""Text: language models, their cache, transduction, tokens and data, against PyTorch, sacrebleu and counts by hand."""

from __future__ import annotations

import math
from collections import Counter

import numpy as np
import pytest

import deep500 as d5
from deep500.errors import DataError, InputError, NetworkError
from deep500.networks import add_loss, create, to_dtype
from deep500.networks.zoo.language import one_token_network
from deep500.results.exhibits import write_exhibits
from deep500.tasks import LanguageModelling, Transduction
from deep500.tasks.language_modelling import generate, open_reader
from deep500.tasks.tokens import Bytes, Characters, PairEncoding, Words
from deep500.tasks.transduction import beam_search, bleu, bleu_counts
from deep500.training.data import load_dataset
from deep500.training.data.sets import text as data_text
from deep500.training.data.sets.text import in_words, unpack_lzw
from deep500.training.data.text import Pairs, Passages, column_of, read_column, read_text, read_wmt
from tests.packages import bible_text, serve

SIZES = dict(width=8, heads=2, layers=2)


@pytest.mark.parametrize(
    ("name", "options", "wanted"),
    [
        ("gru_language_model", dict(width=6, embedding=4, layers=2), 7 * 4 + 18 * (4 + 6 + 2) + 18 * 14 + 7 * 7),
        ("lstm_language_model", dict(width=6, embedding=4), 7 * 4 + 24 * 12 + 7 * 7),
        ("causal_transformer", SIZES, 7 * 8 + 2 * (4 * 64 + 9 * 8 + 2 * 8 * 32 + 32) + 16),
        ("causal_transformer", {**SIZES, "positions": "learned"}, 7 * 8 + 40 + 2 * (256 + 72 + 512 + 32) + 16),
        (
            "encoder_decoder",
            dict(source=9, target_length=4, **SIZES),
            (9 + 7 + 5 + 4) * 8 + 2 * (3 * (256 + 48) + 2 * (512 + 32 + 24)) + 32,
        ),
    ],
)
def test_parameters_are_as_many_as_the_formula_says(name, options, wanted):
    network = create(name, classes=7, shape=(5,), **options)
    assert sum(network.parameters[n].value.size for n in network.trainable()) == wanted


def step_by_step(backend, dtype, positions):
    fw, length = d5.load_backend(backend), 5
    options = dict(classes=7, shape=(length,), positions=positions, **SIZES)
    full = fw.from_model(to_dtype(create("causal_transformer", **options), dtype))
    step = fw.from_model(to_dtype(create("causal_transformer", cache=True, **options), dtype))
    tokens = np.random.default_rng(0).integers(0, 7, (3, length))
    wanted = full.network.to_numpy(full.inference({"input": tokens}, ["output"])["output"])
    past = {f"past.{n}.{w}": np.full((3, 2, length, 4), 9, dtype) for n in range(2) for w in ("key", "value")}
    worst = 0.0
    for place in range(length):
        feed = {"input": tokens[:, place : place + 1], "position": np.array([place]), **past}
        names = ["output", *(name.replace("past", "present") for name in past)]
        got = {n: step.network.to_numpy(v) for n, v in step.inference(feed, names).items()}
        past = {name: got[name.replace("past", "present")] for name in past}
        worst = max(worst, np.abs(got["output"][:, :, 0] - wanted[:, :, place]).max())
    return worst


@pytest.mark.parametrize("positions", ["rotary", "learned"])
@pytest.mark.parametrize(
    ("backend", "package"),
    [
        ("reference", "numpy"),
        ("pytorch", "torch"),
        ("tensorflow", "tensorflow"),
        ("jax", "jax"),
        ("onnxruntime", "onnxruntime"),
    ],
)
def test_cache_says_what_the_full_network_says(backend, package, positions):
    pytest.importorskip(package)
    assert step_by_step(backend, "float32", positions) < 1e-5
    if backend in ("reference", "pytorch"):
        assert step_by_step(backend, "float64", positions) < 1e-12


@pytest.mark.parametrize("name", ["gru_language_model", "lstm_language_model", "causal_transformer"])
def test_no_place_reads_a_later_one(name):
    fw = d5.load_backend("reference")
    executor = fw.from_model(create(name, classes=7, shape=(5,), seed=3))
    tokens = np.zeros((1, 5), np.int64)
    before = executor.inference({"input": tokens}, ["output"])["output"]
    tokens[0, 3] = 4
    after = executor.inference({"input": tokens}, ["output"])["output"]
    assert np.array_equal(before[:, :, :3], after[:, :, :3])
    assert not np.allclose(before[:, :, 3:], after[:, :, 3:], atol=1e-8)


def gradients(backend, network, batch):
    executor = d5.load_backend(backend).from_model(network.copy())
    names = [f"{name}.grad" for name in network.trainable()]
    outputs = dict(executor.inference_and_backprop(batch, "loss"))
    outputs.update(zip(names, executor.network.fetch_tensors(names), strict=True))
    return {name: executor.network.to_numpy(outputs[name]) for name in ["loss", *names]}


@pytest.mark.parametrize("name", ["gru_language_model", "lstm_language_model", "causal_transformer", "encoder_decoder"])
def test_gradients_are_pytorchs(name):
    pytest.importorskip("torch")
    more = dict(source=7, target_length=5) if name == "encoder_decoder" else {}
    wide = {"heads": 2, "layers": 1} if name in ("causal_transformer", "encoder_decoder") else {"embedding": 4}
    network = to_dtype(
        add_loss(create(name, classes=7, shape=(5,), width=8, **wide, **more), ignore_index=-100), "float64"
    )
    rng = np.random.default_rng(1)
    batch = {"input": rng.integers(1, 7, (2, 5)), "label": rng.integers(0, 7, (2, 5))}
    batch["label"][0, 2], batch["input"][1, 4] = -100, 0
    if more:
        batch["decoder_input"] = rng.integers(0, 7, (2, 5))
    one, other = (gradients(backend, network, batch) for backend in ("reference", "pytorch"))
    for key, value in one.items():
        np.testing.assert_allclose(value, other[key], rtol=0, atol=1e-9, err_msg=key)


def test_bits_a_character_are_those_of_a_count_by_hand():
    text = "in the beginning was the word"
    vocabulary = Characters.of(text)
    passages = Passages(text, vocabulary, 8, context=3)
    seen = Counter()
    scores = np.random.default_rng(2).normal(size=(len(passages), vocabulary.size, 8))
    task = LanguageModelling(output="output", vocabulary=vocabulary)
    sums = task.zero()
    for part in (slice(0, 2), slice(2, None)):
        batch = passages[np.arange(len(passages))[part]]
        for name, value in task.judge(batch, {"output": scores[part]}).items():
            sums[name] = sums[name] + value
    bits, start = 0.0, 0
    for item in range(len(passages)):
        for place in range(8):
            where = item * 5 + place + 1
            if where < len(text) and (place >= 3 or item == 0):
                row = scores[item, :, place]
                bits -= math.log2(math.exp(row[vocabulary.symbols.index(text[where])]) / np.exp(row).sum())
                seen[where] += 1
    assert set(seen) == set(range(1, len(text))) and set(seen.values()) == {1} and start == 0
    got = task.measure(sums, None)
    assert got["bits_per_character"] == pytest.approx(bits / (len(text) - 1), abs=1e-9)
    assert got["perplexity"] == pytest.approx(2 ** (bits / (len(text) - 1)), rel=1e-9)


@pytest.mark.parametrize("said", [["a b c d e f", "a b"], ["a b c x y z", "q"], ["a c b d", "b a"], ["x", "y"]])
def test_bleu_is_sacrebleus(said):
    sacrebleu = pytest.importorskip("sacrebleu")
    wanted = ["a b c d e g", "a b"]
    theirs = sacrebleu.corpus_bleu(said, [wanted], tokenize="none").score
    assert bleu(bleu_counts(said, wanted)) == pytest.approx(theirs, abs=1e-9)
    halves = sum(bleu_counts([a], [b]) for a, b in zip(said, wanted, strict=True))
    assert bleu(halves) == pytest.approx(theirs, abs=1e-9)


def test_beam_finds_what_greedy_misses():
    table = {(1,): [0.0, 0.0, 0.6, 0.4], (1, 2): [0.4, 0.0, 0.3, 0.3], (1, 3): [1.0, 0.0, 0.0, 0.0]}

    def step(tokens, place):
        with np.errstate(divide="ignore"):
            return np.log([table.get(tuple(row[: place + 1].tolist()), [1.0, 0, 0, 0]) for row in tokens])

    assert beam_search(step, 2, 3, 1, 0).tolist() == [[2, 0, 0]] * 2  # .6 x .4
    assert beam_search(step, 2, 3, 1, 0, beam=2).tolist() == [[3, 0, 0]] * 2  # .4 x 1
    with pytest.raises(InputError, match="beam=0"):
        beam_search(step, 1, 3, 1, 0, beam=0)


def test_text_is_written():
    executor = d5.load_backend("reference").from_model(create("gru_language_model", classes=7, shape=(5,), width=8))
    begun = np.zeros((2, 5), np.int64)
    one, same = (generate(executor, begun, 6, seed=1) for _ in range(2))
    assert one.shape == (2, 6) and np.array_equal(one, same)
    greedy = generate(executor, begun, 2, temperature=0)
    first = executor.inference({"input": begun}, ["output"])["output"][:, :, -1].argmax(axis=1)
    assert greedy[:, 0].tolist() == first.tolist()


@pytest.mark.parametrize("positions", ["rotary", "learned"])
@pytest.mark.parametrize("name", ["reference", pytest.param("pytorch", marks=pytest.mark.backend("pytorch"))])
def test_the_cache_writes_the_same_text(name, positions, monkeypatch):
    """Greedily and drawn, past the network's length twice, after a beginning that is short, full or too long."""
    network = create("causal_transformer", classes=7, shape=(6,), positions=positions, dropout=0.1, seed=1, **SIZES)
    for weight in network.trainable():  # large ones, so that what was read matters
        network.set_parameter(weight, network.parameters[weight].value * 8)
    executor = d5.load_backend(name).from_model(to_dtype(add_loss(network, ignore_index=-100), "float64"))
    calls, whole = [], type(executor).inference
    monkeypatch.setattr(type(executor), "inference", lambda *a: calls.append(a[1]["input"].shape[1]) or whole(*a))
    for begun in (1, 6, 9):
        tokens = np.random.default_rng(begun).integers(0, 7, (3, begun))
        for temperature in (0, 1):
            slow = generate(executor, tokens, 15, temperature=temperature, seed=2, cache=False)
            assert set(calls) == {6} and not calls.clear()
            quick = generate(executor, tokens, 15, temperature=temperature, seed=2)
            assert set(calls) == {1, 6} and calls.count(6) <= 6 and not calls.clear()  # 6: a beginning, at once
            assert np.array_equal(quick, slow) and (not temperature or len(np.unique(slow)) > 2)


@pytest.mark.parametrize("name", ["reference", pytest.param("pytorch", marks=pytest.mark.backend("pytorch"))])
def test_the_cache_has_the_weights_of_now(name):
    """Before, text of a network that was trained on PyTorch was written with the weights that training began with."""
    backend = d5.load_backend(name)
    network = add_loss(create("causal_transformer", classes=7, shape=(6,), **SIZES), ignore_index=-100)
    executor = backend.from_model(network)
    optimizer = backend.AdamOptimizer(executor, "loss", lr=0.05)
    tokens = np.random.default_rng(0).integers(0, 7, (8, 6))
    for shift in (1, 2):  # the second time networks are compiled already
        for _ in range(3):
            optimizer.step({"input": tokens, "label": (tokens + shift) % 7})
        cached, whole = (open_reader(executor, "output", 6, cache) for cache in (True, False))
        for begun in (3, 4):  # read at once, then one more
            assert np.allclose(cached.scores(tokens[:, :begun]), whole.scores(tokens[:, :begun]), atol=1e-4)


def test_what_is_read_when_the_network_is_full():
    """Three of six: the second token that is written after a full beginning is that of its newest half."""
    executor = d5.load_backend("reference").from_model(create("gru_language_model", classes=7, shape=(6,), seed=3))
    begun = np.random.default_rng(0).integers(0, 7, (40, 6))
    first, second = generate(executor, begun, 2, temperature=0).T
    filled = np.zeros((40, 6), np.int64)
    filled[:, :3] = np.column_stack([begun[:, 4:], first])
    scores = executor.inference({"input": filled}, ["output"])["output"]
    assert second.tolist() == scores[:, :, 2].argmax(axis=1).tolist()
    with pytest.raises(InputError, match="at least one to write"):
        generate(executor, begun[:, :0], 2)


def test_a_changed_network_has_no_second_one():
    network = create("causal_transformer", classes=7, shape=(5,), **SIZES)
    assert one_token_network(add_loss(network.copy())) is not None
    network.remove_node("layers.0.mlp.gelu", reconnect=True)
    assert one_token_network(network) is None


def test_transduction_judges_longer_sources_apart():
    digits, words = Words(list("12"), separator=""), Words(["one", "two"])
    pairs = Pairs([("1", "one"), ("21", "two one")], digits, words, seen=1)
    task, batch = Transduction(output="output", dataset=pairs), pairs[:]
    assert batch["decoder_input"].tolist() == [[1, 2, 0], [1, 3, 2]]
    sums = task.judge(batch, {"decoded": np.array([[2, 0, 3], [3, 3, 0]])})
    got = task.measure(sums, None)
    assert (got["exact_match"], got["exact_match_longer"]) == (100.0, 0.0)


def test_the_gallery_shows_sources_of_every_kind(tmp_path):
    digits, words = Words(list("12"), separator=""), Words(["one", "two"])
    pairs = Pairs([("1", "one"), ("2", "two"), ("21", "two one")] + [("1", "one")] * 9, digits, words, seen=1)
    task = Transduction(output="output", dataset=pairs)
    gallery = task.gallery()
    found = np.array([[2, 0, 3], [2, 0, 0], [3, 2, 0]] + [[2, 0, 0]] * 9)
    both = [gallery.judge(pairs[part], {"decoded": found[part]})["rows"] for part in (slice(0, 2), slice(2, 12))]
    (exhibit,) = gallery.exhibits({"rows": gallery.shrink("rows", np.concatenate(both))})
    assert exhibit["rows"][:2] == [["2", "seen", "two", "one", "no"], ["1", "seen", "one", "one", "yes"]]
    assert exhibit["rows"][-1] == ["21", "longer", "two one", "two one", "yes"]
    assert len(exhibit["rows"]) == 1 + gallery.most + 1  # of the ten that are right, as many as are shown of each kind
    write_exhibits(tmp_path, task.name, 0, [exhibit])
    assert gallery.exhibits(gallery.zero()) == []


def test_vocabularies_give_texts_back():
    text = "Ünder the sun, the sun — ☉"
    pytest.importorskip("tokenizers")
    for vocabulary in (Characters.of(text), Bytes(), PairEncoding(text * 3, 270)):
        tokens = vocabulary.encode(text)
        assert vocabulary.decode(tokens) == text
        assert vocabulary.widths[tokens].sum() == len(text)


def test_numbers_in_words():
    assert in_words(115_021) == "one hundred fifteen thousand twenty one" and in_words(0) == "zero"
    train, test = load_dataset("number_pairs", train=200, test=20, longer=5)
    assert not {pair[0] for pair in train.pairs} & {pair[0] for pair in test.pairs}
    assert sum(len(a) == 6 for a, _ in test.pairs) == 5 and train.seen == 5


def test_lzw_with_growing_codes_and_a_damaged_one():
    codes = np.array([97, 98, 257, 259])  # ab ab aba: the last one is the entry being made
    packed = sum(int(code) << (9 * place) for place, code in enumerate(codes)).to_bytes(5, "little")
    assert unpack_lzw(packed)[:7] == b"abababa"
    with pytest.raises(DataError, match="got code 300"):
        unpack_lzw((300).to_bytes(4, "little"))


def test_the_bible_is_read_out_of_its_package(monkeypatch):
    serve(monkeypatch)
    train, test = load_dataset("kjv", length=100, context=20)
    text = bible_text()
    end = len(text) - round(0.05 * len(text))
    assert [part.vocabulary.decode(part.tokens) for part in (train, test)] == [text[:end], text[end:]]
    monkeypatch.setattr(data_text, "BIBLE_SHA256", "0")
    with pytest.raises(DataError, match="expected 0: fetch the package again"):
        load_dataset("kjv")


def test_bad_input_is_one_line(tmp_path):
    letters = Characters("ab")
    cases = [
        (lambda: Passages("abc", letters, 4), "got 'c' at place 2"),
        (lambda: Passages("", letters, 4), "a text of 0 tokens"),
        (lambda: load_dataset("kjv", root=tmp_path), "bible-kjv-text_4.38_all.deb"),
        (lambda: load_dataset("python_prose", tokens="letters"), "expected one of characters"),
        (lambda: Pairs([("a", "")], Words(["a"]), Words(["b"])), "empty text in pair 0"),
        (lambda: Pairs([("a c", "b")], Words(["a"]), Words(["b"])), "got 'c' in 'a c'"),
        (lambda: Pairs([("a a", "b")], Words(["a"]), Words(["b"]), lengths=(2, 2)), r"expected at most \(2, 2\)"),
        (lambda: read_text(tmp_path / "absent"), "correct path or encoding"),
        (lambda: column_of([{"body": "x"}]), "row 0: got no text as 'text', of body"),
    ]
    for call, message in cases:
        with pytest.raises(DataError, match=message) as caught:
            call()
        assert "\n" not in str(caught.value)
    with pytest.raises(NetworkError, match=r"expected \(length,\)"):
        create("encoder_decoder", shape=(3, 3))
    with pytest.raises(NetworkError, match="rotary"):
        create("causal_transformer", width=6, heads=2)


def test_columns_and_parallel_files(tmp_path):
    arrow, parquet = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    parquet.write_table(arrow.table({"text": ["a", None, "b"], "n": [1, 2, 3]}), tmp_path / "t.parquet")
    assert read_column(tmp_path / "t.parquet") == ["a", "b"]
    for column, got in (("n", "'n' int64"), ("body", "'body' absent")):
        with pytest.raises(DataError, match=got):
            read_column(tmp_path / "t.parquet", column)
    (tmp_path / "bad.parquet").write_bytes(b"no parquet")
    with pytest.raises(DataError, match="expected Parquet or Arrow"):
        read_column(tmp_path / "bad.parquet")
    (tmp_path / "dev.de").write_text("ja\nnein\n")
    (tmp_path / "dev.en").write_text("yes\nno\n")
    assert read_wmt(tmp_path, "dev", "de", "en") == [("ja", "yes"), ("nein", "no")]
    odd = "\u2028 \u2029 \x85 \x0b \x0c \x1c \x1d \x1e \r x"  # crawled sentences hold what other lines end with
    (tmp_path / "odd.de").write_bytes(f"\ufeffeins\r\n{odd}\ndrei\n".encode())
    (tmp_path / "odd.en").write_bytes(b"one\ntwo\nthree")
    assert read_wmt(tmp_path, "odd", "de", "en") == [("eins", "one"), (odd, "two"), ("drei", "three")]
    (tmp_path / "dev.en").write_text("yes\n")
    with pytest.raises(DataError, match="got 2 and 1 lines"):
        read_wmt(tmp_path, "dev", "de", "en")


@pytest.mark.parametrize("recipe", ["kjv_language_model", "number_translation"])
def test_recipes_train_judge_and_show(recipe, tmp_path, monkeypatch):
    """On little data, on the reference backend: every quality is a number, and texts are shown."""
    import importlib.util
    from pathlib import Path

    monkeypatch.chdir(tmp_path)
    path = Path(__file__).resolve().parents[2] / "recipes" / f"{recipe}.py"
    spec = importlib.util.spec_from_file_location(recipe, path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    small = {"epochs": 1, "validation_split": 0.2}
    if recipe == "number_translation":
        small |= {"dataset_kwargs": dict(train=80, test=8, longer=4)}
        small |= {"model_kwargs": {**module.FIXED["model_kwargs"], "width": 16, "layers": 1}}
    else:
        text = "so it goes. " * 60
        make = lambda seed=0: tuple(Passages(text, Characters.of(text), 40, context=c) for c in (0, 8))  # noqa: E731
        small |= {"dataset": make, "model_kwargs": dict(width=8, embedding=4)}
    fw = d5.load_backend("reference")
    mutable = {**module.MUTABLE, "executor": fw.from_model, "executor_kwargs": {}, "optimizer": fw.AdamOptimizer}
    metrics = [(metric, None) for metric, _ in module.METRICS]
    result = d5.run_recipe({**module.FIXED, **small}, {**mutable, "batch_size": 8}, metrics, ["--quiet"])
    assert result
    found = "".join(file.read_text() for file in tmp_path.rglob("*.json"))
    assert f"test_{module.METRICS[0][0].quality}" in found
    assert {"kjv_language_model": "What does it write?"}.get(recipe, "What becomes of a source?") in found
