"""Folders of sound files: one sub-folder per class, or LibriSpeech's official layout with its transcripts."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import fields
from pathlib import Path
from typing import Any

from deep500.errors import DataError
from deep500.tasks.alphabet import Alphabet
from deep500.training.data.audio import SUFFIXES, LogMel
from deep500.training.data.files import files_below
from deep500.training.data.text import read_lines
from deep500.training.data.utterances import AudioFiles

SETTINGS = tuple(field.name for field in fields(LogMel))
"""Options of the features."""

LETTERS = Alphabet(" ETAOINSHRDLUMWCFGYPBVKJXQZ'")
"""Of LibriSpeech's transcripts: capital letters, space and apostrophe."""


def audio_folder(train: Path, test: Path, **settings: Any) -> tuple[AudioFiles, AudioFiles]:
    """Two folders with one sub-folder of WAV or FLAC files per class; classes are numbered in alphabetical order.

    Args:
        train, test: the folders, of the same classes.
        settings: of :class:`~deep500.training.data.audio.LogMel`.

    Raises:
        DataError: a folder is absent, a class has no files, or the halves differ in their classes.
    """
    classes = [_classes(folder) for folder in (train, test)]
    if set(classes[0]) != set(classes[1]):
        odd = sorted(set(classes[0]) ^ set(classes[1]))
        raise DataError(
            f"{test}: got other classes than {train}: {', '.join(odd)}; expected the same in both: add them"
        )
    return _half(train, classes[0], settings), _half(test, classes[1], settings)


def _classes(folder: Path) -> dict[str, list[Path]]:
    if not folder.is_dir():
        raise DataError(f"{folder}: got no such folder; expected one with sub-folders of sound files: check the path")
    names = sorted(entry.name for entry in folder.iterdir() if entry.is_dir() and not entry.name.startswith("."))
    files = {name: files_below(folder / name, SUFFIXES) for name in names}
    empty = [name for name, sounds in files.items() if not sounds]
    if empty or not files:
        got = f"class {empty[0]!r} without samples" if empty else "no sub-folders"
        raise DataError(
            f"{folder}: got {got}; expected WAV or FLAC files in one sub-folder per class, as in yes/1.wav: add some, "
            "or remove the sub-folder"
        )
    return files


def _half(folder: Path, files: dict[str, list[Path]], settings: dict[str, Any]) -> AudioFiles:
    labels = [number for number, name in enumerate(files) for _ in files[name]]
    every = [file for sounds in files.values() for file in sounds]
    source = f"audio folder {folder}"
    return AudioFiles(every, labels, LogMel(**settings), name=folder.name, classes=len(files), provenance=source)


def librispeech(folder: Path, parts: Sequence[str], **settings: Any) -> AudioFiles:
    """Parts of LibriSpeech as published: ``PART/SPEAKER/CHAPTER/SPEAKER-CHAPTER-NUMBER.flac`` beside ``*.trans.txt``.

    Args:
        folder: named ``LibriSpeech``, with the parts in it.
        parts: such as ``("train-clean-100",)``.
        settings: of :class:`~deep500.training.data.audio.LogMel`.

    Raises:
        DataError: a part without transcripts, a transcript without its file, or a character that is no capital letter,
            space or apostrophe.
    """
    files: list[Path] = []
    labels = []
    for part in parts:
        before = len(files)
        for listing in sorted((folder / part).glob("*/*/*.trans.txt")):
            for file, text in _transcripts(listing):
                files.append(file)
                labels.append(LETTERS.encode(text, str(listing)))
        if len(files) == before:
            raise DataError(
                f"{folder / part}: got no transcripts SPEAKER/CHAPTER/*.trans.txt; expected those of the part: unpack "
                "the official archive there"
            )
    return AudioFiles(
        files,
        labels,
        LogMel(**settings),
        alphabet=LETTERS,
        name="librispeech",
        multiple=64,
        provenance=f"LibriSpeech {', '.join(parts)}",
    )


def _transcripts(listing: Path) -> Iterator[tuple[Path, str]]:
    for number, line in enumerate(read_lines(listing), 1):
        name, _, text = line.strip().partition(" ")
        file = listing.parent / f"{name}.flac"
        if not name or not text or Path(name).name != name or not file.is_file():
            raise DataError(
                f"{listing}, line {number}: got {line!r}; expected the name of a FLAC file beside it and its "
                "transcript: unpack the official archive again"
            )
        yield file, text
