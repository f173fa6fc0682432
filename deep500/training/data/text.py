"""Text as data sets: `Passages` of a text for language models, `Pairs` of texts for transduction; and their files."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from deep500.errors import DataError, InputError
from deep500.tasks.tokens import Vocabulary
from deep500.training.data.dataset import Batch, Dataset, Index, as_index

IGNORE = -100
"""Label of a place that is not judged."""


class Passages(Dataset):
    """Passages of one text: ``input`` (items, length) are tokens, ``label`` (items, length) those that come next.

    Every token but the first is wanted exactly once: of each passage the last ``length - context`` places are, what
    stands before them is read only (label -100), and so is what fills the last passage.

    Args:
        text: its characters.
        vocabulary: makes tokens of them.
        length: tokens of a passage.
        context: how many of them are read only; the first passage has none before it, so it is wanted from its start.
        name, provenance, stand_in: see :class:`~deep500.training.data.Dataset`.

    Raises:
        DataError: an empty text, one too short to predict anything, or a character outside the vocabulary.

    Example:
        >>> from deep500.tasks.tokens import Characters
        >>> passages = Passages("abcab", Characters("abc"), 3, context=1)
        >>> passages[:]["input"].tolist(), passages[:]["label"].tolist()
        ([[0, 1, 2], [2, 0, 0]], [[1, 2, 0], [-100, 1, -100]])
    """

    def __init__(
        self,
        text: str,
        vocabulary: Vocabulary,
        length: int = 128,
        *,
        context: int = 0,
        name: str = "text",
        provenance: str = "a text given by the caller",
        stand_in: bool = False,
    ) -> None:
        if not 0 <= context < length:
            raise InputError(f"got length={length}, context={context}; expected 0 <= context < length: correct them")
        self.name, self.provenance, self.stand_in = name, provenance, stand_in
        self.vocabulary, self.length, self.context = vocabulary, length, context
        self.tokens = vocabulary.encode(text, name) if text else np.zeros(0, np.int64)
        if len(self.tokens) < 2:
            raise DataError(f"{name}: got a text of {len(self.tokens)} tokens; expected at least 2: give a longer one")
        self.classes, self.shape = vocabulary.size, (length,)
        self._starts = np.arange(0, max(1, len(self.tokens) - 1 - context), length - context)

    def __len__(self) -> int:
        return len(self._starts)

    def __getitem__(self, index: Index) -> Batch:
        where = as_index(index)
        if isinstance(where, int):
            return {name: value[0] for name, value in self[[where]].items()}
        chosen = self._starts[where]
        places = chosen[:, None] + np.arange(self.length)
        last = len(self.tokens) - 1
        judged = places < last
        judged[:, : self.context] &= (chosen == 0)[:, None]  # the passage before has judged them
        tokens = np.where(places <= last, self.tokens[np.minimum(places, last)], 0)
        tokens[places == last] = 0  # the last token of the text is predicted, never read
        return {
            self.input_name: tokens,
            self.label_name: np.where(judged, self.tokens[np.minimum(places + 1, last)], IGNORE),
        }

    def digest(self) -> str:
        sha = hashlib.sha256(f"{self.length} {self.context} {self.vocabulary.size}".encode())
        sha.update(self.tokens.data)
        return sha.hexdigest()


class Pairs(Dataset):
    """Pairs of texts: ``input`` (items, S) is the source, ``decoder_input`` (items, T) the target after a start,
    ``label`` (items, T) the target and its end; -100 where nothing is wanted, 0 where sources are over.

    Args:
        pairs: (source, target).
        source, target: vocabularies whose class 0 is the end (:class:`~deep500.tasks.tokens.Words`).
        lengths: (S, T) tokens, end included; those of the longest texts if None.
        seen: sources of up to so many tokens count as lengths seen in training; None for all.
        name, provenance, stand_in: see :class:`~deep500.training.data.Dataset`.

    Raises:
        DataError: no pairs, an empty text, a word outside its vocabulary, or a text longer than ``lengths``.
    """

    def __init__(
        self,
        pairs: Sequence[tuple[str, str]],
        source: Any,
        target: Any,
        *,
        lengths: tuple[int, int] | None = None,
        seen: int | None = None,
        name: str = "pairs",
        provenance: str = "pairs given by the caller",
        stand_in: bool = False,
    ) -> None:
        self.name, self.provenance, self.stand_in = name, provenance, stand_in
        self.source, self.target, self.seen, self.pairs = source, target, seen, list(pairs)
        if not self.pairs:
            raise DataError(f"{name}: got no pairs; expected at least one: give some")
        empty = next((place for place, pair in enumerate(self.pairs) if not (pair[0] and pair[1])), None)
        if empty is not None:
            raise DataError(f"{name}: got an empty text in pair {empty}; expected some words: leave the pair out")
        sides = [
            [vocabulary.encode(pair[side], f"{name}, pair {place}") for place, pair in enumerate(self.pairs)]
            for side, vocabulary in enumerate((source, target))
        ]
        longest = [max(map(len, side)) + 1 for side in sides]
        lengths = (longest[0], longest[1]) if lengths is None else lengths
        if longest[0] > lengths[0] or longest[1] > lengths[1]:
            raise DataError(f"{name}: got texts of up to {longest} tokens with their end; expected at most {lengths}")
        self.classes, self.shape = target.size, (lengths[0],)
        self._source = _filled(sides[0], lengths[0], 0)
        self._label = _filled([np.append(tokens, target.end) for tokens in sides[1]], lengths[1], IGNORE)
        self._decoder = _filled([np.append(target.start, tokens) for tokens in sides[1]], lengths[1], 0)

    def __len__(self) -> int:
        return len(self.pairs)

    def __getitem__(self, index: Index) -> Batch:
        where = as_index(index)
        arrays = {self.input_name: self._source, "decoder_input": self._decoder, self.label_name: self._label}
        return {name: np.asarray(array[where]) for name, array in arrays.items()}

    def digest(self) -> str:
        sha = hashlib.sha256()
        for array in (self._source, self._label):
            sha.update(f"{array.shape}".encode() + array.tobytes())
        return sha.hexdigest()


def _filled(rows: Sequence[np.ndarray], size: int, fill: int) -> np.ndarray:
    filled = np.full((len(rows), size), fill, np.int64)
    for line, row in zip(filled, rows, strict=True):
        line[: len(row)] = row
    return filled


def read_text(path: str | Path, encoding: str = "utf-8") -> str:
    """A text file without a byte order mark; DataError if it is absent, empty or not in that encoding."""
    try:
        text = Path(path).read_text(encoding=encoding).removeprefix("\ufeff")
    except (OSError, UnicodeDecodeError) as error:
        raise DataError(f"{path}: got {error}; expected a text in {encoding}: correct path or encoding") from error
    if not text:
        raise DataError(f"{path}: got an empty text; expected some characters: give another file")
    return text


def read_column(path: str | Path, column: str = "text") -> list[str]:
    """A column of texts of a Parquet file, or of an Arrow one (``.arrow``, ``.feather``), by ``pyarrow``.

    Raises:
        DataError: no ``pyarrow`` (extra ``data``), no such file, or another schema.
    """
    try:
        import pyarrow
        from pyarrow import feather, parquet
    except ImportError as error:
        raise DataError("got no package 'pyarrow'; expected it: pip install 'deep500[data]'") from error
    arrow = Path(path).suffix in (".arrow", ".feather")
    try:
        table = feather.read_table(path) if arrow else parquet.read_table(path)
    except (OSError, pyarrow.ArrowInvalid) as error:
        raise DataError(f"{path}: got {' '.join(str(error).split())}; expected Parquet or Arrow: correct it") from error
    kind = table.schema.field(column).type if column in table.column_names else "absent"
    if kind not in (pyarrow.string(), pyarrow.large_string()):
        raise DataError(
            f"{path}: got column {column!r} {kind}, of {', '.join(table.column_names)}; expected strings: name it"
        )
    return [text for text in table.column(column).to_pylist() if text is not None]


def column_of(rows: Iterable[Any], column: str = "text") -> list[str]:
    """A column of texts of a ``datasets.Dataset`` of Hugging Face, or of anything that yields dictionaries.

    Raises:
        DataError: a row without it, or with something else than a text.
    """
    texts = []
    for place, row in enumerate(rows):
        if not isinstance(row.get(column), str):
            raise DataError(f"row {place}: got no text as {column!r}, of {', '.join(row)}; expected one: name a column")
        texts.append(row[column])
    return texts


def read_lines(path: str | Path) -> list[str]:
    """Lines of a text file in UTF-8, which end with a line feed and nothing else: texts hold other separators.

    ``str.splitlines`` also parts at U+2028 or a form feed, which crawled sentences contain. DataError as
    :func:`read_text`.
    """
    try:
        text = Path(path).read_bytes().decode("utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        raise DataError(f"{path}: got {error}; expected a text in utf-8: correct the path or the file") from error
    return [line.removesuffix("\r") for line in text.removesuffix("\n").split("\n")] if text else []


def read_wmt(folder: str | Path, part: str, source: str, target: str) -> list[tuple[str, str]]:
    """Parallel lines of WMT's layout, ``PART.SOURCE`` beside ``PART.TARGET`` such as ``newstest2014.de``.

    Raises:
        DataError: a file is absent, or they differ in their number of lines.
    """
    sides = [read_lines(Path(folder) / f"{part}.{language}") for language in (source, target)]
    if len(sides[0]) != len(sides[1]):
        raise DataError(
            f"{folder}: got {len(sides[0])} and {len(sides[1])} lines of {part}; expected as many: fetch it again"
        )
    return [(a, b) for a, b in zip(*sides, strict=True) if a and b]
