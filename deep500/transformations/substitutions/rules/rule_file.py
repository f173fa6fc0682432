"""The file of pattern rules: one JSON object a line, and the one that the package ships.

A line holds ``id``, ``left``, ``right``, ``where``, ``origin``, ``verdict``, ``prover`` (see `PatternRule`) and
``specification``, the hash of the operator specifications it was proved under. What is stale, altered, unproved or no
rule is refused: only proved rules are ever applied. The bytes depend on nothing but the rules.
"""

from __future__ import annotations

import functools
import hashlib
import json
import re
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from deep500.errors import DataError, NetworkError
from deep500.reading import at_least, declare, parse, read_bytes, validate
from deep500.transformations.substitutions.operators.specification import specification_hash
from deep500.transformations.substitutions.rules.patterns import canonical

SHIPPED = Path(__file__).with_name("rules.jsonl")
_TEXTS = at_least(1, str)
LINE = declare(
    {
        "id": str,
        "left": _TEXTS,
        "right": _TEXTS,
        "where": [str],
        "origin": str,
        "verdict": str,
        "prover": (str, None),
        "specification": str,
    }
)
"""Format of a line."""

OPERATORS, ORDERS = 40, 10
"""The most operators of a rule, and sums and products among them (the shipped rules have 12 and 6)."""

COMMAND = "python -m deep500.transformations.workshop.substitutions.library"


@dataclass(frozen=True)
class PatternRule:
    """Two lists of patterns, equal output by output.

    Attributes:
        left, right: patterns in the provers' language.
        where: definitions and conditions, as of `Axiom`.
        origin: id of the generated rule that it was lifted from.
        verdict: ``"proved"``, or what `prove` says else.
        prover: who proved it.
    """

    left: tuple[str, ...]
    right: tuple[str, ...]
    where: tuple[str, ...] = ()
    origin: str = ""
    verdict: str = "proved"
    prover: str | None = "egglog"

    @functools.cached_property
    def id(self) -> str:
        """Hash of the patterns and conditions (16 hex digits)."""
        text = repr((self.left, self.right, self.where))
        return hashlib.sha256(text.encode()).hexdigest()[:16]

    @property
    def operators(self) -> set[str]:
        """Names of the operators of both sides."""
        return set(re.findall(r"\((\w+)", f"{self.left} {self.right}"))

    def __str__(self) -> str:
        sides = " = ".join(", ".join(side) for side in (self.left, self.right))
        return f"{sides}{'; ' * bool(self.where)}{', '.join(self.where)}"


def check_size(texts: Iterable[str], where: str) -> None:
    """Raise DataError for a rule that is too large: canonical forms try all orders of sums and products."""
    text = " ".join(texts)
    count, orders = text.count("("), text.count("(add ") + text.count("(mul ")
    if count > OPERATORS or orders > ORDERS:
        raise DataError(
            f"{where}: got {count} operators, {orders} of them sums and products; expected at most {OPERATORS} and "
            f"{ORDERS}: take the rule apart"
        )


def to_line(rule: PatternRule) -> str:
    """One JSON line without its line feed."""
    # fmt: off
    fields: dict[str, Any] = {
        "id": rule.id, "left": list(rule.left), "right": list(rule.right), "where": list(rule.where),
        "origin": rule.origin, "verdict": rule.verdict, "prover": rule.prover, "specification": specification_hash(),
    }
    # fmt: on
    return json.dumps(fields, sort_keys=True)


def from_line(line: str, where: str = "line") -> PatternRule:
    """Read one JSON line.

    Raises:
        DataError: no rule, an altered or unproved one, or one proved under other specifications.
    """
    do = f"write the file of pattern rules anew: {COMMAND}"
    fields = parse(line.encode("utf-8", errors="surrogatepass"), where, error=DataError, do=do)
    validate(fields, LINE, where, error=DataError, do=do)
    left, right, conditions = (tuple(fields[name]) for name in ("left", "right", "where"))
    rule = PatternRule(left, right, conditions, fields["origin"], fields["verdict"], fields["prover"])
    identity, specification = fields["id"], fields["specification"]
    check_size((*left, *right), where)
    try:
        form = canonical(rule.left, rule.right, rule.where)
    except (KeyError, TypeError, ValueError, IndexError, NetworkError, RecursionError) as problem:
        raise DataError(f"{where}: got {line[:60]!r} ({problem!r}); expected a pattern rule; {do}") from problem
    if specification != specification_hash():
        raise DataError(
            f"{where}: got operator specification {specification}; expected {specification_hash()}: the rule was "
            f"proved under other meanings of its operators; write the file anew: {COMMAND}"
        )
    if rule.id != identity or form != (rule.left, rule.right, rule.where):
        raise DataError(
            f"{where}: got id {identity}; expected {rule.id}; the line was altered: write it anew: {COMMAND}"
        )
    if rule.verdict != "proved" or not rule.prover:
        raise DataError(
            f"{where}: got verdict {rule.verdict!r} by {rule.prover!r}; expected a proved rule; only these are applied"
        )
    return rule


def write(rules: Iterable[PatternRule], path: str | Path = SHIPPED) -> None:
    """Write rules, one line each, by id."""
    lines = [to_line(rule) for rule in sorted(rules, key=lambda rule: rule.id)]
    Path(path).write_text("".join(line + "\n" for line in lines), encoding="utf-8")


def read(path: str | Path = SHIPPED) -> list[PatternRule]:
    """Read a file of pattern rules; without ``path`` the one that the package ships.

    Raises:
        DataError: the file is absent, empty, damaged, foreign or stale; the message names the line.

    Example:
        >>> any("merge_groups" in str(rule) for rule in read())
        True
    """
    path = Path(path)
    content = read_bytes(path, links=True, error=DataError, do=f"write a file of pattern rules: {COMMAND} {path}")
    lines = content.decode("utf-8", errors="replace").splitlines()
    if not lines:
        raise DataError(f"got an empty file {path}; expected pattern rules, one a line; write it: {COMMAND} {path}")
    return [from_line(line, f"{path.name}:{number}") for number, line in enumerate(lines, 1)]
