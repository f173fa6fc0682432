"""Speech: sequences of frames of features, each with a class or with a transcript, in memory or in sound files."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from deep500.errors import DataError
from deep500.tasks.alphabet import Alphabet
from deep500.training.data.audio import LogMel, read_audio, sound_length
from deep500.training.data.dataset import Batch
from deep500.training.data.sequences import SequenceDataset, zero_padded


class Utterances(SequenceDataset):
    """Utterances (frames, features) float32 in memory: :class:`SequenceDataset` that knows what speech may not be.

    Args:
        sequences: of frames.
        labels: a class for each, or an array of classes for each: a transcript, in which class 0, CTC's blank, is not.
        alphabet: what the classes of transcripts stand for; tasks ask for it.
        options: of :class:`SequenceDataset`.

    Raises:
        DataError: an utterance without frames, or with values that are not finite; a class without samples; a
            transcript with a blank, or that is longer than its frames.

    Example:
        >>> words = Utterances([np.ones((4, 2))], [[1, 2]], alphabet=Alphabet("ab"))
        >>> words[0:1]["label"].tolist(), words[0:1]["input_length"].tolist(), words.alphabet.decode([1, 2])
        ([[1, 2]], [4], 'ab')
    """

    def __init__(
        self,
        sequences: Sequence[np.ndarray],
        labels: Sequence[Any] | np.ndarray,
        *,
        alphabet: Alphabet | None = None,
        **options: Any,
    ) -> None:
        self.alphabet = alphabet
        if alphabet is not None:
            options.setdefault("classes", alphabet.classes)
        arrays = [np.asarray(sequence, np.float32) for sequence in sequences]
        for i, sequence in enumerate(arrays):
            check_frames(sequence, f"{options.get('name', 'sequences')}: utterance {i}")
        super().__init__(arrays, labels, **options)
        self._check_labels()

    def _check_labels(self) -> None:
        labels = self.labels
        if labels is not None:
            absent = sorted(set(range(self.classes or 0)) - set(labels.tolist()))
            if absent:
                raise DataError(
                    f"{self.name}: got no sample of class {', '.join(map(str, absent))}; expected some of each of "
                    f"{self.classes} classes: add samples, or number the classes without gaps"
                )
            return
        assert self._labels is not None and self.label_lengths is not None and self._label_starts is not None
        for i, (begin, count) in enumerate(zip(self._label_starts, self.label_lengths, strict=True)):
            check_transcript(self._labels[begin : begin + count], int(self.lengths[i]), f"{self.name}: utterance {i}")


def check_frames(sequence: np.ndarray, where: str) -> None:
    """Raise DataError unless it is (frames, features), not empty and finite."""
    if sequence.ndim != 2 or not len(sequence):
        raise DataError(
            f"{where}: got an array of shape {sequence.shape}; expected (frames, features) and at least one frame: "
            "remove the utterance, or look why it is empty"
        )
    if not np.isfinite(sequence).all():
        raise DataError(f"{where}: got values that are not finite; expected numbers: remove the utterance")


def check_transcript(labels: np.ndarray, frames: int, where: str) -> None:
    """Raise DataError for a blank among the labels, or labels that do not fit the frames."""
    if not labels.all():
        raise DataError(
            f"{where}: got class 0 at place {int(np.flatnonzero(labels == 0)[0])} of its transcript, which is the "
            "blank; expected classes from 1: use an Alphabet"
        )
    needed = len(labels) + int(np.count_nonzero(labels[1:] == labels[:-1]))
    if needed > frames:
        raise DataError(
            f"{where}: got a transcript of {len(labels)} labels, which need {needed} frames with a blank between equal "
            f"ones, for {frames} frames; expected no more than there are: correct the transcript, or remove the "
            "utterance"
        )


class AudioFiles(Utterances):
    """Sound files that are read when a batch asks for them, as log-mel features.

    Args:
        files: WAV or FLAC, all of one rate; several channels are averaged.
        labels: a class for each, or an array of classes for each.
        features: makes frames of a signal.
        alphabet, options: see :class:`Utterances`. Batches are padded to their own longest file unless ``pad`` says
            otherwise.

    Raises:
        DataError: no files, one that cannot be read, is shorter than a frame, or has another rate, and what
            :class:`Utterances` says of labels.
    """

    def __init__(
        self,
        files: Sequence[str | Path],
        labels: Sequence[Any] | np.ndarray,
        features: LogMel | None = None,
        *,
        alphabet: Alphabet | None = None,
        **options: Any,
    ) -> None:
        options = {"name": "audio", "pad": "batch", "provenance": "files given by the caller", **options}
        self.files, self.features, self.alphabet = [Path(file) for file in files], features or LogMel(), alphabet
        if not self.files:
            raise DataError(f"{options['name']}: got no files; expected at least one: check the folder")
        if alphabet is not None and options.get("classes") is None:
            options["classes"] = alphabet.classes
        lengths = [self.features.frames(sound_length(file, self.features.rate)) for file in self.files]
        empty = next((file for file, length in zip(self.files, lengths, strict=True) if length < 1), None)
        if empty is not None:
            raise DataError(
                f"{empty}: got an utterance that is shorter than one frame of {self.features.window} samples; expected "
                "at least one: remove it"
            )
        unread = np.broadcast_to(np.float32(0), (sum(lengths), self.features.bands))  # takes no memory
        SequenceDataset.__init__(self, unread, labels, lengths=np.array(lengths), **options)
        self._check_labels()

    def _padded(self, name: str, flat: np.ndarray, starts: Any, lengths: Any, chosen: np.ndarray) -> Batch:
        if name != self.input_name:
            return super()._padded(name, flat, starts, lengths, chosen)
        counts = self.lengths[chosen]
        longest = int(self.lengths.max() if self.pad == "longest" or not len(chosen) else counts.max())
        longest = -(-longest // self.multiple) * self.multiple
        parts = [self.features(read_audio(self.files[item], self.features.rate)) for item in chosen]
        return {name: zero_padded(parts, longest, self.shape[1:], np.float32), f"{name}_length": counts}

    def digest(self) -> str:
        """SHA-256 of the files' contents, the labels and the settings of the features."""
        sha = hashlib.sha256(repr(self.features).encode())
        for file in self.files:
            sha.update(hashlib.sha256(file.read_bytes()).digest())
        for array in (self._labels, self.label_lengths):
            if array is not None:
                sha.update(np.ascontiguousarray(array).data)
        return sha.hexdigest()
