"""The meaning of a transcription's classes: from text to class numbers and back."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from deep500.errors import DataError, InputError, nearest

BLANK = 0
"""The class of CTC's blank; symbols have the classes after it."""


class Alphabet:
    """Symbols that are classes 1, 2, ...; class 0 is CTC's blank.

    Args:
        symbols: single characters (a string will do), or whole words.

    Attributes:
        words: whether symbols are words, which stand apart in texts.

    Raises:
        InputError: a symbol twice, an empty one, or words among single characters.

    Example:
        >>> letters = Alphabet("ab ")
        >>> letters.encode("a b").tolist(), letters.decode([2, 1, 1])
        ([1, 3, 2], 'baa')
        >>> Alphabet(["one", "two"]).decode([2, 1])
        'two one'
    """

    def __init__(self, symbols: Sequence[str]) -> None:
        self.symbols = list(symbols)
        self.words = any(len(symbol) > 1 for symbol in self.symbols)
        bad = not self.symbols or not all(self.symbols) or len(set(self.symbols)) < len(self.symbols)
        if bad or (self.words and any(mark.isspace() for symbol in self.symbols for mark in symbol)):
            raise InputError(
                f"got symbols {self.symbols}; expected some, each once, characters or words: correct the alphabet"
            )
        self._number = {symbol: number for number, symbol in enumerate(self.symbols, 1)}

    @property
    def classes(self) -> int:
        """Number of classes, the blank's included."""
        return len(self.symbols) + 1

    def encode(self, text: str, where: str = "transcript") -> np.ndarray:
        """Class numbers (int64); ``where`` names the text in the error.

        Raises:
            DataError: a symbol that is not in the alphabet.
        """
        parts = text.split() if self.words else list(text)
        for place, part in enumerate(parts):
            if part not in self._number:
                raise DataError(
                    f"{where}: got {part!r} at place {place} of {text!r}; expected symbols of the alphabet "
                    f"({''.join(self.symbols) if not self.words else ' '.join(self.symbols)}): "
                    f"{nearest(part, self.symbols)} Correct the text or extend the alphabet"
                )
        return np.array([self._number[part] for part in parts], np.int64)

    def decode(self, classes: Sequence[int] | np.ndarray) -> str:
        """The text of class numbers that hold no blank."""
        return (" " if self.words else "").join(self.symbols[int(number) - 1] for number in classes)
