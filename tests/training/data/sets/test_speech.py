"""Speech: packaged recordings, log-mel features against TensorFlow's, folders of sounds, LibriSpeech's layout."""

from __future__ import annotations

import io

import numpy as np
import pytest
from scipy.io import wavfile

from deep500.errors import DataError, InputError
from deep500.training.data import load_dataset
from deep500.training.data.audio import LogMel, read_audio
from deep500.training.data.sets import speech
from tests.packages import MEMBERS, japanese_vowels, serve, spoken_digits

RATE = 16000


def tone(frequency: float, seconds: float = 0.1) -> np.ndarray:
    time = np.arange(round(seconds * RATE)) / RATE
    return (12000 * np.sin(2 * np.pi * frequency * time)).astype(np.int16)


def test_spoken_digits_are_split_by_class_for_good(monkeypatch):
    serve(monkeypatch)
    train, test = load_dataset("spoken_digits")
    assert (len(train), len(test), train.shape, train.classes) == (2400, 600, (40, 13), 10)
    assert np.bincount(test.labels).tolist() == [60] * 10 and train.lengths.max() <= 40
    known = np.concatenate([train[i]["input"][: train.lengths[i]] for i in range(len(train))])
    np.testing.assert_allclose(known.mean(0), 0, atol=1e-3)  # standardized by the training half's frames
    assert load_dataset("spoken_digits", seed=3)[1].digest() == test.digest()
    assert load_dataset("spoken_digits", frames=4)[0].shape == (4, 13)


def test_test_strings_are_of_recordings_that_no_training_string_has(monkeypatch):
    """Every recording of the stand-in starts with its number, which standardizing keeps apart."""
    serve(monkeypatch)
    train, test = load_dataset("connected_digits")
    assert len(train) == 3200 and len(test) == 500 and train.alphabet.decode([1, 10]) == "zero nine"

    def numbers(half, count):
        rows = (half[i]["input"][: half.lengths[i], 12] for i in range(count))
        return {float(v) for row in rows for v in row.round(4)}

    assert not numbers(train, 1500) & numbers(test, 500)
    lengths = train[:]["label_length"]
    assert lengths.min() == 3 and lengths.max() == 7
    other = load_dataset("connected_digits", seed=1)
    assert other[0].digest() != train.digest() and other[1].digest() == test.digest()
    assert train[0:5]["input"].shape[1] % 64 == 0


def test_japanese_vowels_are_divided_as_published(monkeypatch):
    serve(monkeypatch)
    train, test = load_dataset("japanese_vowels")
    assert (len(train), len(test), train.shape, train.classes) == (270, 370, (29, 12), 9)
    np.testing.assert_allclose(train[1]["input"][:3, 0], [1, 2, 3])  # frames, not coefficients, come first


@pytest.mark.parametrize(
    ("read", "contents", "message"),
    [
        (speech.read_spoken_digits, [b"PK"], "spoken_digits: got an archive that cannot be read"),
        (speech.read_spoken_digits, "short", r"got X \(2, 13\)"),
        (speech.read_japanese_vowels, [b"@data\n1,x:1", b""], "a line that cannot be read"),
        (speech.read_japanese_vowels, [b"@data\n1,2:1", b""], "got 1 utterances; expected 270"),
    ],
)
def test_damaged_packages_are_refused(read, contents, message):
    if contents == "short":
        file = io.BytesIO()
        np.savez(file, X=np.zeros((2, 13)), y=np.zeros(3000), lengths=np.ones(3000, int))
        contents = [file.getvalue()]
    with pytest.raises(DataError, match=message):
        read(contents)


def test_stand_ins_are_those_of_the_pinned_files():
    assert {info.members for info in (speech.SPOKEN_DIGITS, speech.CONNECTED_DIGITS)} == {speech._DIGITS_FILE}
    assert set(speech.JAPANESE_VOWELS.members) | set(speech._DIGITS_FILE) <= set(MEMBERS)
    assert len(spoken_digits()) > 1000 and japanese_vowels(270).startswith(b"@")


def test_log_mel_features_are_tensorflows():
    tf = pytest.importorskip("tensorflow")
    signal = np.random.default_rng(0).normal(size=4000) * 0.1
    made = LogMel(bands=40, lowest=60, highest=7600)
    frames = tf.signal.stft(signal, 400, 160, 512, window_fn=lambda n, dtype: tf.signal.hann_window(n, True, dtype))
    filters = tf.signal.linear_to_mel_weight_matrix(40, 257, RATE, 60.0, 7600.0, tf.float64).numpy()
    want = np.log((np.abs(frames.numpy()) ** 2) @ filters + 1e-10)
    got = made(signal)
    assert got.shape == want.shape == (made.frames(4000), 40)
    np.testing.assert_allclose(got, want, rtol=2e-5, atol=2e-5)
    np.testing.assert_allclose(made.filters, filters, atol=1e-6)


def test_wav_and_flac_say_the_same(tmp_path):
    soundfile = pytest.importorskip("soundfile")
    samples = tone(440)
    wavfile.write(tmp_path / "a.wav", RATE, np.stack([samples, samples], axis=1))
    soundfile.write(tmp_path / "a.flac", samples, RATE)
    wav, flac = (read_audio(tmp_path / name, RATE) for name in ("a.wav", "a.flac"))
    np.testing.assert_array_equal(wav, samples / 32768)
    np.testing.assert_array_equal(wav, flac)
    wavfile.write(tmp_path / "b.wav", RATE, (samples // 256 + 128).astype(np.uint8))
    np.testing.assert_array_equal(read_audio(tmp_path / "b.wav", RATE), (samples // 256) / 128)


@pytest.fixture
def folder(tmp_path):
    for half in ("train", "test"):
        for name, frequency in (("low", 300), ("high", 3000)):
            (tmp_path / half / name).mkdir(parents=True)
            for number in range(2):
                wavfile.write(tmp_path / half / name / f"{number}.wav", RATE, tone(frequency, 0.05 + 0.02 * number))
    return tmp_path


def test_a_folder_of_sounds_is_a_data_set(folder):
    train, test = load_dataset(f"audiofolder:{folder}", bands=20)
    assert (len(train), train.classes, train.shape[1], train.lengths.tolist()) == (4, 2, 20, [3, 5, 3, 5])
    batch = train[:]
    assert batch["input"].shape == (4, 5, 20) and batch["label"].tolist() == [0, 0, 1, 1]  # high, low
    assert not batch["input"][0, 3:].any() and train[[0, 2]]["input"].shape == (2, 3, 20)
    assert batch["input"][0, 0].argmax() > batch["input"][2, 0].argmax()
    assert train.digest() == load_dataset(f"audiofolder:{folder}", bands=20)[0].digest() != test.digest()[:1]


def _cut(folder):
    file = folder / "train" / "low" / "1.wav"
    file.write_bytes(file.read_bytes()[:60])


def _text(folder):
    (folder / "train" / "low" / "1.wav").write_text("no sound")


def _empty(folder):
    wavfile.write(folder / "train" / "low" / "1.wav", RATE, np.zeros(0, np.int16))


def _slow(folder):
    wavfile.write(folder / "train" / "low" / "1.wav", 8000, tone(300))


def _without(folder):
    for file in (folder / "train" / "low").iterdir():
        file.unlink()


def _other(folder):
    (folder / "test" / "low").rename(folder / "test" / "lower")


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (_cut, r"1.wav: got a sound file that cannot be read"),
        (_text, r"1.wav: got a sound file that cannot be read"),
        (_empty, r"1.wav: got an utterance that is shorter than one frame of 400 samples"),
        (_slow, r"1.wav: got 8000 samples a second; expected 16000"),
        (_without, r"got class 'low' without samples; expected WAV or FLAC"),
        (_other, r"got other classes than .*: low, lower"),
    ],
)
def test_bad_sounds_are_refused_in_one_line(folder, damage, message):
    damage(folder)
    with pytest.raises(DataError, match=message) as caught:
        load_dataset(f"audiofolder:{folder}")
    assert "\n" not in str(caught.value)


def test_bad_features_are_refused(folder):
    with pytest.raises(InputError, match=r"highest <= rate / 2"):
        load_dataset(f"audiofolder:{folder}", highest=9000)
    with pytest.raises(DataError, match=r"got option 'band'.*bands"):
        load_dataset(f"audiofolder:{folder}", band=3)


@pytest.fixture
def libri(tmp_path):
    soundfile = pytest.importorskip("soundfile")
    for part, speaker in (("train-clean-100", "19"), ("test-clean", "61")):
        chapter = tmp_path / "LibriSpeech" / part / speaker / "198"
        chapter.mkdir(parents=True)
        lines = []
        for number, text in enumerate(("IT'S A CAT", "NO")):
            name = f"{speaker}-198-{number:04d}"
            soundfile.write(chapter / f"{name}.flac", tone(400, 0.3 + 0.1 * number), RATE)
            lines.append(f"{name} {text}")
        (chapter / f"{speaker}-198.trans.txt").write_text("\n".join(lines) + "\n")
    return tmp_path


def test_librispeech_is_read_where_it_lies(libri):
    train, test = load_dataset("librispeech", root=libri)
    assert (len(train), len(test), train.classes, train.shape) == (2, 2, 29, (64, 80))
    batch = train[:]
    said = [train.alphabet.decode(row[:n]) for row, n in zip(batch["label"], batch["label_length"], strict=True)]
    assert said == ["IT'S A CAT", "NO"] and batch["input_length"].tolist() == [28, 38]
    assert load_dataset("librispeech", root=libri, train=("test-clean",), bands=40)[0].shape == (64, 40)


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("19-198-0000 naïve", r"trans.txt: got 'n' at place 0"),
        ("19-198-0009 NO", r"line 1: got '19-198-0009 NO'; expected the name of a FLAC file"),
        ("../19-198-0000 NO", r"line 1: got '../19-198-0000 NO'"),
        ("19-198-0000 " + "A" * 200, r"utterance 0: got a transcript of 200 labels, which need 399 frames"),
    ],
)
def test_bad_transcripts_are_refused(libri, line, message):
    (libri / "LibriSpeech" / "train-clean-100" / "19" / "198" / "19-198.trans.txt").write_text(line, encoding="utf-8")
    with pytest.raises(DataError, match=message):
        load_dataset("librispeech", root=libri)


def test_absent_librispeech_says_where_it_was_looked_for(tmp_path):
    with pytest.raises(DataError, match=r"no data set 'librispeech': no .*LibriSpeech; expected the folder"):
        load_dataset("librispeech", root=tmp_path)
    (tmp_path / "LibriSpeech").mkdir()
    with pytest.raises(DataError, match=r"got no transcripts"):
        load_dataset("librispeech", root=tmp_path)
