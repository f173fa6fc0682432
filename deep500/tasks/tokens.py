"""Vocabularies: from text to class numbers and back, by characters, bytes, words or byte-pair encoding.

Every one has ``size``, ``encode``, ``decode`` and ``widths``: how many characters each token stands for, so that bits a
character mean the same for all of them.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from deep500.errors import DataError, InputError


class Vocabulary:
    """Tokens of a text. Subclasses give :meth:`encode` and :meth:`decode`.

    Attributes:
        size: number of tokens.
        widths: (size,) int64, characters of each token; they add up to the length of a text.
    """

    size: int
    widths: np.ndarray

    def encode(self, text: str, where: str = "text") -> np.ndarray:
        """Class numbers (int64)."""
        raise NotImplementedError

    def decode(self, tokens: Iterable[int]) -> str:
        """The text of class numbers."""
        raise NotImplementedError


class Characters(Vocabulary):
    """One token a character.

    Args:
        symbols: all characters, each once; class numbers are their places.

    Example:
        >>> letters = Characters("abc")
        >>> letters.encode("cab").tolist(), letters.decode([2, 0])
        ([2, 0, 1], 'ca')
    """

    def __init__(self, symbols: str) -> None:
        self.symbols = symbols
        if not symbols or len(set(symbols)) < len(symbols):
            raise InputError(f"got symbols {symbols!r}; expected some, each once: correct them")
        self.size, self.widths = len(symbols), np.ones(len(symbols), np.int64)
        self._numbers = {symbol: number for number, symbol in enumerate(symbols)}

    @classmethod
    def of(cls, text: str) -> Characters:
        """The characters of a text, sorted."""
        return cls("".join(sorted(set(text))))

    def encode(self, text: str, where: str = "text") -> np.ndarray:
        """Class numbers (int64); DataError for a character outside the vocabulary, with its place."""
        try:
            return np.array([self._numbers[symbol] for symbol in text], np.int64)
        except KeyError as error:
            symbol = error.args[0]
            raise DataError(
                f"{where}: got {symbol!r} at place {text.index(symbol)}; expected one of the {self.size} characters of "
                "the vocabulary: leave it out, or make the vocabulary of all texts"
            ) from None

    def decode(self, tokens: Iterable[int]) -> str:
        """The text of class numbers."""
        return "".join(self.symbols[int(token)] for token in tokens)


class Words(Vocabulary):
    """One token a word, for transduction: 0 is the end and what follows it, 1 the start.

    Args:
        words: what stands between spaces, each once; single characters with ``separator=""``.
        separator: what stands between words.

    Example:
        >>> words = Words(["one", "two"])
        >>> words.encode("two one").tolist(), words.decode([3, 2, 0, 3])
        ([3, 2], 'two one')
    """

    end, start = 0, 1

    def __init__(self, words: Sequence[str], separator: str = " ") -> None:
        self.words, self.separator = list(words), separator
        if not self.words or len(set(self.words)) < len(self.words):
            raise InputError(f"got words {self.words}; expected some, each once: correct them")
        self.size = len(self.words) + 2
        self.widths = np.array([0, 0, *(len(word) for word in self.words)], np.int64)
        self._numbers = {word: number for number, word in enumerate(self.words, 2)}

    def encode(self, text: str, where: str = "text") -> np.ndarray:
        """Class numbers (int64) without start and end; DataError for a word outside the vocabulary."""
        parts = text.split(self.separator) if self.separator else list(text)
        unknown = next((part for part in parts if part not in self._numbers), None)
        if unknown is not None:
            raise DataError(
                f"{where}: got {unknown!r} in {text!r}; expected one of {len(self.words)} known: correct the text or "
                "extend the vocabulary"
            )
        return np.array([self._numbers[part] for part in parts], np.int64)

    def decode(self, tokens: Iterable[int]) -> str:
        """The text up to the end."""
        parts = []
        for token in tokens:
            if int(token) == self.end:
                break
            if int(token) != self.start:
                parts.append(self.words[int(token) - 2])
        return self.separator.join(parts)


def _widths(tokens: Iterable[bytes]) -> np.ndarray:
    """Characters that begin in each token: its bytes that do not continue one, in UTF-8."""
    return np.array([sum(byte & 0xC0 != 0x80 for byte in token) for token in tokens], np.int64)


class Bytes(Vocabulary):
    """One token a byte of the text in UTF-8: nothing is outside the vocabulary.

    Example:
        >>> Bytes().encode("aé").tolist(), int(Bytes().widths[[97, 195, 169]].sum())
        ([97, 195, 169], 2)
    """

    def __init__(self) -> None:
        self.size, self.widths = 256, _widths(bytes([number]) for number in range(256))

    def encode(self, text: str, where: str = "text") -> np.ndarray:
        """The bytes (int64)."""
        return np.frombuffer(text.encode("utf-8"), np.uint8).astype(np.int64)

    def decode(self, tokens: Iterable[int]) -> str:
        """The text of bytes; what is no UTF-8 becomes the replacement character."""
        return bytes(int(token) for token in tokens).decode("utf-8", "replace")


class PairEncoding(Vocabulary):
    """Byte-pair encoding on bytes (Sennrich et al. 2016, arXiv 1508.07909), by the package ``tokenizers``.

    Args:
        text: what the pairs are learned on.
        size: number of tokens, at least 256.

    Raises:
        DataError: no package ``tokenizers``; it is in the extra ``data``.
    """

    def __init__(self, text: str, size: int = 512) -> None:
        try:
            from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
        except ImportError as error:
            raise DataError(
                "got no package 'tokenizers'; expected it for byte-pair encoding: pip install 'deep500[data]'"
            ) from error
        if size < 256 or not text:
            raise InputError(f"got size={size} and {len(text)} characters; expected at least 256 tokens, and a text")
        self.tokenizer: Any = Tokenizer(models.BPE())
        self.tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
        self.tokenizer.decoder = decoders.ByteLevel()
        alphabet = pre_tokenizers.ByteLevel.alphabet()
        trainer = trainers.BpeTrainer(vocab_size=size, initial_alphabet=alphabet, show_progress=False)
        self.tokenizer.train_from_iterator([text], trainer)
        self.size = int(self.tokenizer.get_vocab_size())
        printable = [*range(33, 127), *range(161, 173), *range(174, 256)]
        others = [number for number in range(256) if number not in printable]
        table = {chr(number): number for number in printable}
        table.update({chr(256 + place): number for place, number in enumerate(others)})
        names = [str(self.tokenizer.id_to_token(number)) for number in range(self.size)]
        self.widths = _widths(bytes(table[symbol] for symbol in name) for name in names)

    def encode(self, text: str, where: str = "text") -> np.ndarray:
        """Class numbers (int64)."""
        return np.array(self.tokenizer.encode(text).ids, np.int64)

    def decode(self, tokens: Iterable[int]) -> str:
        """The text of class numbers."""
        return str(self.tokenizer.decode([int(token) for token in tokens]))
