"""Kinds of C++ blocks that generated operators are put together from, read from ``program_blocks.cpp``."""

from __future__ import annotations

import random
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

EACH = "for (std::size_t i = 0; i < n; ++i) "
ONE = (
    *("std::sin({0})", "std::cos({0})", "std::tanh({0})", "std::atan({0})", "std::exp(-{0} * {0})", "std::erf({0})"),
    *("std::sqrt({0} * {0} + {c})", "std::log({0} * {0} + {c})", "{0} / ({0} * {0} + {c})", "{c} * {0}", "(-{0})"),
    *("{c} * {0} * {0}", "std::cbrt({0} * {0} + {c})", "std::exp(std::sin({0}))", "T(1) / ({0} * {0} + {c})"),
    *("std::pow({0} * {0} + {c}, {c})", "std::abs({0})", "d5::sigmoid({0})", "d5::gelu({0})"),
)
TWO = (
    *("({0} + {1})", "({0} - {1})", "({0} * {1})", "std::max({0}, {1})", "std::min({0}, {1})", "({0} + {c} * {1})"),
    *("{0} / ({1} * {1} + {c})", "std::atan2({0}, {1} * {1} + {c})", "std::fma({0}, {1}, {c})", "std::fmax({0}, {1})"),
    *("std::sqrt({0} * {0} + {1} * {1} + {c})", "({0} < {c} ? {1} * {c} : {0})", "({0} > {1} ? {0} : {1})"),
)
MARK = re.compile(r"@(?:(e|n|whole|pick)\(|(at|leaf|c|more|m)\b|(_))|\bEACH ")


@dataclass(frozen=True)
class Kind:
    """A kind of blocks: its ways, each what stands before the program and code.

    Attributes:
        doubtful: it may be refused, so that it is built by itself.
        openmp: it is for programs built with OpenMP.
        limits: of the number ``@m``.
    """

    name: str
    ways: tuple[tuple[str, str], ...]
    members: str
    doubtful: bool
    openmp: bool
    limits: tuple[int, int]


class Draw:
    """Random choices for one block, whose names begin with ``id``."""

    def __init__(self, seed: str, id: str, indexed: bool, weighted: bool) -> None:
        self.rng, self.id, self.indexed, self.weighted = random.Random(seed), id, indexed, weighted

    def block(self, kind: Kind) -> tuple[str, str, str]:
        """Code of one block: before the program, in its members, in its body."""
        self.m = self.rng.randint(*kind.limits)
        before, code = self.rng.choice(kind.ways)
        return self.filled(before), self.filled(kind.members), self.filled(code)

    def filled(self, text: str) -> str:
        """A text with a choice in place of each mark."""
        mark = MARK.search(text)
        if not mark:
            return text
        function, word, name = mark.groups()
        end = _closing(text, mark.end()) if function else mark.end()
        inner = text[mark.end() : end - 1] if function else ""
        made = self._made(function, inner) if function else f"{self.id}_" if name else self._word(word)
        return text[: mark.start()] + made + self.filled(text[end:])

    def _word(self, word: str | None) -> str:
        if word is None:
            return EACH
        if word == "c":
            return self.c
        if word == "m":
            return str(self.m)
        if word == "more":
            return ", w" * self.weighted + ", k" * self.indexed
        return self.at() if word == "at" else self.leaf()

    def _made(self, function: str, inner: str) -> str:
        if function == "pick":
            return self.filled(self.rng.choice([option.strip() for option in _split(f" {inner} ", " | ")]))
        values = [self.filled(value.strip()) for value in _split(inner, ",")]
        if function == "n":
            return str(self.rng.randint(int(values[0]), int(values[1])))
        if function == "whole":
            return f"int((std::tanh({values[0]}) + T(1)) * T({int(values[1]) / 2})) % {values[1]}"
        return self.expression(values)

    @property
    def c(self) -> str:
        """A number of T."""
        return f"T({self.rng.uniform(0.2, 1.4):.2f})"

    def expression(self, values: list[str], depth: int = 2) -> str:
        """An expression of all values."""
        if len(values) > 1:
            first, *rest = self.rng.sample(values, len(values))
            parts = self.expression([first], depth - 1), self.expression(rest, depth - 1)
            return self.rng.choice(TWO).format(*parts, c=self.c)
        if depth < 1 or self.rng.random() < 0.3:
            return values[0]
        return self.rng.choice(ONE).format(self.expression(values, depth - 1), c=self.c)

    def at(self) -> str:
        """Another element's number."""
        options = ["i", "n - 1 - i", "(i + 1) % n", "(i * 3 + 1) % n", "(i ^ 1) % n", "i / 2"]
        return self.rng.choice([*options, *["std::size_t(k[i]) % n"] * (3 * self.indexed)])

    def leaf(self) -> str:
        """An element that is read."""
        return self.rng.choice([*[f"a[{self.at()}]"] * 3, *["w[i]"] * (2 * self.weighted)])


def _closing(text: str, start: int) -> int:
    """The place behind the parenthesis that closes what is open at ``start``."""
    depth = 1
    for at in range(start, len(text)):
        depth += (text[at] == "(") - (text[at] == ")")
        if not depth:
            return at + 1
    raise SyntaxError(text)


def _split(text: str, mark: str) -> list[str]:
    """Pieces between marks outside of parentheses."""
    pieces, depth = [""], 0
    at = 0
    while at < len(text):
        depth += (text[at] in "([{") - (text[at] in ")]}")
        if depth == 0 and text.startswith(mark, at):
            pieces.append("")
            at += len(mark)
            continue
        pieces[-1] += text[at]
        at += 1
    return pieces


def read() -> Iterator[Kind]:
    """The kinds of ``program_blocks.cpp``."""
    text = Path(__file__).with_suffix(".cpp").read_text(encoding="utf-8")
    for part in text.split("\n//// ")[1:]:
        head, _, rest = part.partition("\n")
        name, *flags = re.split(r" \[|\]", head)
        first, *ways = rest.split("//way\n")
        before, _, members = first.partition("//members\n")
        shared = before.removeprefix("//before\n")
        pairs = []
        for way in ways:
            own, _, code = way.removeprefix("//before\n").rpartition("//code\n")
            pairs.append((shared + own, code.strip("\n")))
        limits = re.search(r"m = (\d+) \.\. (\d+)", head)
        known = (int(limits[1]), int(limits[2])) if limits else (2, 4)
        yield Kind(name.strip(), tuple(pairs), members.strip(), "doubtful" in flags, "openmp" in flags, known)


KINDS = {kind.name: kind for kind in read()}
