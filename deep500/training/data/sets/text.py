"""Texts: the King James Bible as Debian ships it, the standard library's own prose, and numbers in words."""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from importlib import util
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np

from deep500.errors import DataError
from deep500.tasks.tokens import Bytes, Characters, PairEncoding, Vocabulary, Words
from deep500.training.data.catalog import BuiltIn, DatasetInfo, Pair, Search, register_dataset
from deep500.training.data.debian import DebianPackage, read_package
from deep500.training.data.text import Pairs, Passages

BIBLE = DebianPackage("bible-kjv-text", "4.38", "d61b6aad4c51ba9e2800b825325fa6a09e99a0d02a9bb6dc4724fcc4995a1b7a")
BIBLE_SHA256 = "6f74f5589333c56c263963e6347dba662bae2d96861302e690aaae0b4a855eda"
"""Of the text as the package's own program prints it from the first verse to the last."""

BIBLE_SYMBOLS = "\n !'(),-.0123456789:;?ABCDEFGHIJKLMNOPQRSTUVWYZabcdefghijklmnopqrstuvwxyz"

PROSE_SHA256 = {"abaa56a64551d8eead1b19cbae3c6db443f99f0cab81df07bed3cb75c0db9346": "3.11.7"}
"""Digests of ``pydoc_data/topics.py`` that figures were taken on, and whose Python they are."""

_BOOKS = (
    "Genesis,Exodus,Leviticus,Numbers,Deuteronomy,Joshua,Judges,Ruth,1 Samuel,2 Samuel,1 Kings,2 Kings,1 Chronicles,"
    "2 Chronicles,Ezra,Nehemiah,Esther,Job,Psalms,Proverbs,Ecclesiastes,Song of Solomon,Isaiah,Jeremiah,Lamentations,"
    "Ezekiel,Daniel,Hosea,Joel,Amos,Obadiah,Jonah,Micah,Nahum,Habakkuk,Zephaniah,Haggai,Zechariah,Malachi,Matthew,"
    "Mark,Luke,John,Acts,Romans,1 Corinthians,2 Corinthians,Galatians,Ephesians,Philippians,Colossians,"
    "1 Thessalonians,2 Thessalonians,1 Timothy,2 Timothy,Titus,Philemon,Hebrews,James,1 Peter,2 Peter,1 John,2 John,"
    "3 John,Jude,Revelation"
).split(",")


def unpack_lzw(data: bytes, most_bits: int = 16) -> bytes:
    """Unpack what ``compress`` packed in block mode (Welch 1984), without its three bytes of header.

    Codes are 9 bits wide at first; code 256 forgets the table. Codes come in groups of eight of one width, so where the
    width changes the rest of a group is skipped.
    """
    table = [bytes([number]) for number in range(256)] + [b""]
    out: list[bytes] = []
    bits, place, start, before = 9, 0, 0, b""
    while place + bits <= 8 * len(data):
        byte = place >> 3
        code = (int.from_bytes(data[byte : byte + 4], "little") >> (place & 7)) & ((1 << bits) - 1)
        place += bits
        forget = code == 256
        if not forget:
            if code > len(table) or (code == len(table) and not before):
                raise DataError(f"got code {code} at bit {place}; expected at most {len(table)}: fetch the file again")
            # a code may name the entry that it completes itself
            entry = table[code] if code < len(table) else before + before[:1]
            if before and len(table) < 1 << most_bits:
                table.append(before + entry[:1])
            out.append(entry)
            before = entry
        if forget or (len(table) >= 1 << bits and bits < most_bits):
            group = 8 * bits
            place = start = start + -(-(place - start) // group) * group
            bits = 9 if forget else bits + 1
        if forget:
            del table[257:]
            before = b""
    return b"".join(out)


def bible_text(packed: bytes) -> str:
    """The text of ``bible.data``: 68 windows of 64 kB, each packed by itself, verses as ``Ge1:1 In the beginning ...``.

    Chapters get a heading and verses their numbers, as the package's program prints them.
    """
    try:
        windows = struct.unpack_from(">I", packed, 0x58)[0]
        offsets = struct.unpack_from(f">{windows + 1}I", packed, 0x5C)
    except struct.error as error:
        raise DataError(f"kjv: got {error}; expected bible.data: fetch the package again") from error
    raw = b"".join(unpack_lzw(packed[a:b]) for a, b in pairwise(offsets)).decode("latin-1")
    text = "".join(_verses(raw.splitlines()[1:]))
    digest = hashlib.sha256(text.encode()).hexdigest()
    if digest != BIBLE_SHA256:
        raise DataError(f"kjv: got a text of SHA-256 {digest}; expected {BIBLE_SHA256}: fetch the package again")
    return text


def _verses(lines: list[str]) -> Iterator[str]:
    books: list[str] = []
    chapter = ("", "")
    for line in lines:
        reference, _, verse = line.partition(" ")
        head, _, number = reference.partition(":")
        book = head.rstrip("0123456789")
        if book not in books:
            books.append(book)
        if (book, head) != chapter:
            chapter = (book, head)
            yield f"\n{_BOOKS[min(len(books), len(_BOOKS)) - 1]} {head[len(book) :]}\n\n"
        yield f"  {number} {verse}\n"


def divided(
    text: str, symbols: str, name: str, provenance: str, length: int, context: int, tokens: str, share: float = 0.05
) -> tuple[Passages, Passages]:
    """All but the last share of a text to train on, the last share to test on; ``context`` is that of the test."""
    end = len(text) - round(share * len(text))
    vocabularies = {"characters": lambda: Characters(symbols), "bytes": Bytes, "bpe": lambda: PairEncoding(text[:end])}
    if tokens not in vocabularies:
        raise DataError(f"{name}: got tokens={tokens!r}; expected one of {', '.join(vocabularies)}: choose one")
    vocabulary: Vocabulary = vocabularies[tokens]()
    train = Passages(text[:end], vocabulary, length, name=name, provenance=provenance)
    return train, Passages(text[end:], vocabulary, length, context=context, name=name, provenance=provenance)


@dataclass(frozen=True)
class Bible(DatasetInfo):
    """The King James Bible out of Debian's package."""

    @property
    def options(self) -> tuple[str, ...]:
        return ("length", "context", "tokens")

    def load(self, search: Search, seed: int, **options: Any) -> Pair:
        """From the package in the folders searched, fetched if asked for; DataError if there is none."""
        file = BIBLE.stored([root / "debian" for root in search.roots], search.download)
        text = bible_text(read_package(file, "./usr/lib/bible.data"))
        chosen = {"length": 128, "context": 64, "tokens": "characters", **options}
        return divided(text, BIBLE_SYMBOLS, "kjv", f"Debian's {BIBLE.file}", **chosen)


def make_prose(seed: int = 0, length: int = 128, context: int = 64, tokens: str = "characters") -> Pair:
    """The texts of ``help()``; they differ between versions of Python, so the provenance says the digest."""
    spec = util.find_spec("pydoc_data.topics")
    if spec is None or spec.origin is None or not spec.origin.endswith(".py"):
        raise DataError("python_prose: got no pydoc_data/topics.py in this Python; expected it: use another text")
    content = Path(spec.origin).read_bytes()
    digest = hashlib.sha256(content).hexdigest()
    from pydoc_data.topics import topics

    text = "\n".join(topics[name] for name in sorted(topics))
    which = f"of Python {PROSE_SHA256[digest]}" if digest in PROSE_SHA256 else "not one that figures were taken on"
    symbols = "".join(sorted(set(text)))
    provenance = f"pydoc_data/topics.py, SHA-256 {digest}, {which}"
    return divided(text, symbols, "python_prose", provenance, length, context, tokens)


_ONES = "zero one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen sixteen".split()
_ONES += "seventeen eighteen nineteen".split()
_TENS = "twenty thirty forty fifty sixty seventy eighty ninety".split()


def in_words(number: int) -> str:
    """English words of 0 to 999,999.

    Example:
        >>> in_words(40_312)
        'forty thousand three hundred twelve'
    """
    if not 0 <= number < 10**6:
        raise DataError(f"got number {number}; expected 0 to 999,999: choose another")
    if number >= 1000:
        return f"{in_words(number // 1000)} thousand" + (f" {in_words(number % 1000)}" if number % 1000 else "")
    if number >= 100:
        return f"{_ONES[number // 100]} hundred" + (f" {in_words(number % 100)}" if number % 100 else "")
    if number >= 20:
        return _TENS[number // 10 - 2] + (f" {_ONES[number % 10]}" if number % 10 else "")
    return _ONES[number]


def make_numbers(seed: int = 0, back: bool = False, train: int = 20000, test: int = 500, longer: int = 200) -> Pair:
    """Numbers of 1 to 5 digits and their words; ``back`` makes digits of words.

    The test numbers are in no training pair; ``longer`` of them have 6 digits, which no training number has. The split
    is always the same; the seed draws the training numbers.
    """
    if not 0 < train <= 90000 or not 0 < test <= 5000 or longer < 0:
        raise DataError(f"got train={train}, test={test}, longer={longer}; expected up to 90,000 and 5,000 numbers")
    fixed = np.random.default_rng(7)
    order = fixed.permutation(100_000)
    known = np.random.default_rng([seed, 1]).permutation(order[5000:])[:train]
    lengthy = fixed.choice(np.arange(100_000, 1_000_000), longer, replace=False)
    digits, words = Words(list("0123456789"), separator=""), Words([*_ONES, *_TENS, "hundred", "thousand"])
    sides = (words, digits) if back else (digits, words)

    def pairs(numbers: np.ndarray) -> list[tuple[str, str]]:
        parts = [(str(number), in_words(int(number))) for number in numbers]
        return [(b, a) for a, b in parts] if back else parts

    lengths = (12, 7) if back else (7, 12)
    about = "numbers in English words, generated"
    seen = max(len(sides[0].encode(source)) for source, _ in pairs(known))
    parts = [
        Pairs(pairs(numbers), *sides, lengths=lengths, seen=seen, name="number_pairs", provenance=about)
        for numbers in (known, np.concatenate([order[:test], lengthy]))
    ]
    return parts[0], parts[1]


KJV = register_dataset(
    Bible(
        "kjv",
        len(BIBLE_SYMBOLS),
        (128,),
        (31901, 3357),
        "the King James Bible, 4,298,239 characters in passages",
        licence="public domain (in the United Kingdom the Crown's), from Debian's package bible-kjv-text",
    )
)
PROSE = register_dataset(
    BuiltIn(
        "python_prose",
        103,
        (128,),
        (3452, 363),
        "the texts of Python's help(), passages",
        licence="PSF License Agreement, Python Software Foundation",
        make=make_prose,
    )
)
NUMBERS = register_dataset(
    BuiltIn(
        "number_pairs",
        32,
        (7,),
        (20000, 700),
        "numbers of 1 to 6 digits and their words",
        licence="generated, as Deep500",
        make=make_numbers,
    )
)
