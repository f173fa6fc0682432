"""Rules as people write them: a text of one rule a line, in the pattern language.

    # two products of one matrix
    factored: (add (matmul x y) (matmul x z)) = (matmul x (add y z))
    columns: (matmul x y), (matmul x z) = (split 0 1 p (matmul x (concat 1 p y z))), (split 1 1 p (matmul x
        (concat 1 p y z)))
    summed: (add (matmul x y) (matmul z w)) = (matmul (concat 1 p x z) (concat 0 p y w)); p = size x 1

A name and a colon may stand before a rule; a line that begins with a space goes on with the one before; ``#`` begins a
comment. Left of ``=`` stands one pattern per output, right of it what each is equal to, and behind ``;`` what must
hold of sizes: ``p = size x 1``, ``p = (+ a b)``, ``g = (* h u)``, ``p = 3``. Activations are written by their names,
``(relu x)``, or ``(unary f x)`` for any. Sizes are plain numbers here; in rule files they are packed
(`patterns.BITS`).
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

from deep500.errors import DataError, NetworkError
from deep500.reading import read_bytes
from deep500.transformations.substitutions.operators.elementwise import ACTIVATIONS
from deep500.transformations.substitutions.operators.specification import operator
from deep500.transformations.substitutions.rules.building import determined
from deep500.transformations.substitutions.rules.patterns import (
    BITS,
    CONSTANTS,
    PACKED,
    Pattern,
    arguments,
    canonical_way,
    literal,
    parse,
    show,
    words,
)
from deep500.transformations.substitutions.rules.rule_file import PatternRule, check_size

ONE = (1 << BITS) + 1  # a size 1, packed
NAMED = re.compile(r"([\w.-]+)\s*:\s+")
CONDITION = re.compile(r"(\w+)\s*=\s*(size\s+.+|\(\s*[+*]\s+\w+\s+\w+\s*\)|\d+)$")


@dataclass(frozen=True)
class WrittenRule:
    """A rule as someone wrote it.

    Attributes:
        name: as given, or the rule's id.
        rule: in canonical form; its verdict is ``"unknown"``.
        reverse: whether what was written left is the canonical form's right.
        where: file and line, for messages.
    """

    name: str
    rule: PatternRule
    reverse: bool = False
    where: str = "rule"


def read_text(path: str | Path) -> list[WrittenRule]:
    """Read a text file of rules; none of them is proved by that.

    Raises:
        DataError: the file is absent, empty, or a line is no rule; the message names file and line.
    """
    path = Path(path)
    do = "write one rule a line: left = right; conditions"
    content = read_bytes(path, links=True, error=DataError, do=do).decode("utf-8", errors="replace")
    lines: list[tuple[int, str]] = []
    for number, raw in enumerate(content.splitlines(), 1):
        line = raw.split("#", 1)[0].rstrip()
        if line[:1].isspace() and line.strip() and lines:
            lines[-1] = lines[-1][0], f"{lines[-1][1]} {line.strip()}"
        elif line.strip():
            lines.append((number, line))
    if not lines:
        raise DataError(f"got no rule in {path}; expected one a line; {do}")
    return [from_text(line, f"{path.name}:{number}") for number, line in lines]


def from_text(text: str, where: str = "rule") -> WrittenRule:
    """Parse one rule.

    Args:
        text: ``name: left = right; conditions``; the name may be missing.
        where: for messages.

    Raises:
        DataError: no rule: brackets, operators, operands, or names that no side gives.

    Example:
        >>> written = from_text("mine: (add (matmul a b) (matmul a c)) = (matmul a (add b c))")
        >>> written.name, str(written.rule)
        ('mine', '(add (matmul x1 x2) (matmul x1 x3)) = (matmul x1 (add x2 x3))')
    """
    try:
        return _from_text(text, where)
    except DataError:
        raise
    except (NetworkError, LookupError, TypeError, ValueError, RecursionError) as error:
        raise DataError(f"{where}: got {text[:60]!r} ({error!r}); expected left = right; conditions") from error


def _from_text(text: str, where: str) -> WrittenRule:
    named = NAMED.match(text.strip())
    body = text.strip()[named.end() :] if named else text.strip()
    both, *conditions = _split(body, ";", where)
    sides = _split(both, "=", where)
    if len(sides) != 2 or len(conditions) > 1:
        raise DataError(f"{where}: got {body!r}; expected left = right; conditions, with one ';' at most")
    left, right = ([_pattern(part, where) for part in _split(side, ",", where)] for side in sides)
    if len(left) != len(right) or len(left) > 2:
        raise DataError(f"{where}: got {len(left)} patterns left and {len(right)} right; expected as many, 1 or 2")
    factors = {word for side in (*left, *right) for word, kind in words(side) if kind == "factor"}
    lines = [_condition(part, factors, where) for part in _split(conditions[0], ",", where)] if conditions else []
    return written(left, right, lines, named[1] if named else "", where)


def written(left: list[Pattern], right: list[Pattern], lines: list[str], name: str, where: str) -> WrittenRule:
    """A rule from parsed patterns, in canonical form.

    Raises:
        DataError: it is too large, both sides are one, a name is of two kinds, or neither side gives what the other
            needs.
    """
    kinds: dict[str, bool] = {}
    for word, kind in (pair for pattern in (*left, *right) for pair in words(pattern)):
        named = kind is None or literal(word, kind) is None
        if named and kinds.setdefault(word, kind is None) != (kind is None):
            raise DataError(
                f"{where}: got {word!r} as a tensor and as a parameter; expected a name of its own for each"
            )
    texts = [tuple(map(show, side)) for side in (left, right)]
    check_size([text for side in texts for text in side], where)
    if texts[0] == texts[1]:
        raise DataError(f"{where}: got two equal sides; expected a rule that changes something")
    if not any(determined(*pair, lines) is not None for pair in ((left, right), (right, left))):
        raise DataError(
            f"{where}: got {', '.join(texts[0])} = {', '.join(texts[1])}; expected a side that names all that the "
            "other needs; say what the rest is behind ';': p = size x 1"
        )
    form = canonical_way(texts[0], texts[1], tuple(lines))
    rule = PatternRule(*form[:3], "", "unknown", None)
    return WrittenRule(name or rule.id, rule, form[3], where)


def to_text(rule: PatternRule) -> str:
    """A rule as it may stand in a text file.

    Example:
        >>> to_text(from_text("(conv k s d e 1 (gain 1 x b) y) = (conv k s d e 1 x (gain 1 y b))").rule)
        '(conv k1 s1 d1 e1 1 (gain 1 x1 x2) x3) = (conv k1 s1 d1 e1 1 x1 (gain 1 x3 x2))'
    """
    sides = [", ".join(show(_plain(parse(text))) for text in side) for side in (rule.left, rule.right)]
    lines = [re.sub(r"\b\d+\b", lambda number: str(_unpacked(number[0])), line) for line in rule.where]
    return " = ".join(sides) + ("; " + ", ".join(lines)) * bool(lines)


def _unpacked(word: str) -> str:
    number = int(word)
    return str(number // ONE) if number and number % ONE == 0 else word


def _plain(pattern: Pattern) -> Pattern:
    if isinstance(pattern, str):
        return pattern
    names, parameters, inputs = arguments(pattern)
    known = [
        _unpacked(word) if name in PACKED and word.isdigit() else word
        for name, word in zip(names, parameters, strict=True)
    ]
    operands = [_plain(operand) for operand in inputs]
    if pattern[0] == "unary" and known[0].startswith('"'):
        return [known[0].strip('"'), *operands]
    return [pattern[0], *known, *operands]


def _split(text: str, sign: str, where: str) -> list[str]:
    """Parts between signs that stand outside of brackets and quotation marks."""
    parts, depth, quoted = [""], 0, False
    for letter in text:
        quoted ^= letter == '"'
        depth += (letter == "(") - (letter == ")") if not quoted else 0
        if depth < 0:
            break
        if letter == sign and not depth and not quoted:
            parts.append("")
        else:
            parts[-1] += letter
    if depth or quoted:
        raise DataError(
            f"{where}: got {text.strip()!r}; expected as many brackets and quotation marks closed as opened"
        )
    return [part.strip() for part in parts]


def _pattern(text: str, where: str) -> Pattern:
    if not re.fullmatch(r"\w+|\(.*\)", text):
        raise DataError(f"{where}: got {text!r}; expected one pattern, (operator parameters operands), or a name")
    return _checked(parse(text), where)


def _checked(pattern: Pattern, where: str) -> Pattern:
    """A pattern with known operators, all their words, activations as one family, and sizes packed."""
    if isinstance(pattern, str):
        if not re.fullmatch(r"[A-Za-z_]\w*", pattern):
            raise DataError(f"{where}: got {pattern!r} as a tensor; expected a name")
        return pattern
    if not pattern or not isinstance(pattern[0], str):
        raise DataError(f"{where}: got {show(pattern)!r}; expected an operator behind each bracket")
    if pattern[0] in ACTIVATIONS:
        pattern = ["unary", f'"{pattern[0]}"', *pattern[1:]]
    try:
        names, parameters, inputs = arguments(pattern)
        arity = 1 if pattern[0] == "unary" else operator(pattern[0]).arity
    except NetworkError as error:
        raise DataError(f"{where}: {error}") from error
    if len(parameters) != len(names) or len(inputs) != arity or not all(isinstance(word, str) for word in parameters):
        operands = arity * ["operand"]
        raise DataError(f"{where}: got {show(pattern)!r}; expected ({' '.join([pattern[0], *names, *operands])})")
    known = [_packed(word) if name in PACKED else word for name, word in zip(names, parameters, strict=True)]
    try:
        for word, name in zip(known, names, strict=True):
            literal(word, name)
    except ValueError as error:
        raise DataError(
            f"{where}: got {show(pattern)!r} ({error}); expected numbers between quotation marks"
        ) from error
    if pattern[0] == "unary" and parameters[0].startswith('"') and parameters[0].strip('"') not in ACTIVATIONS:
        raise DataError(f"{where}: got activation {parameters[0]}; expected one of {', '.join(ACTIVATIONS)}")
    if pattern[0] in CONSTANTS and parameters[0].startswith('"'):
        raise DataError(f"{where}: got {show(pattern)!r}; expected a name for the shape of a constant")
    return [pattern[0], *known, *(_checked(operand, where) for operand in inputs)]


def _packed(word: str) -> str:
    return str(int(word) * ONE) if word.isdigit() and int(word) < 1 << BITS else word


def _condition(text: str, factors: set[str], where: str) -> str:
    condition = CONDITION.match(text)
    if not condition:
        raise DataError(f"{where}: got condition {text!r}; expected p = size x 1, p = (+ a b), g = (* h u), or p = 3")
    name, body = condition[1], condition[2]
    if body.isdigit():
        return f"{name} = {_packed(body)}"
    if body.startswith("size"):
        parts = parse(f"({body})")
        if len(parts) != 3 or not isinstance(parts[2], str):
            raise DataError(f"{where}: got condition {text!r}; expected p = size x 1: a tensor and an axis")
        return f"{name} = size {show(parts[1])} {parts[2]}"
    sign, *operands = parse(body)
    # A factor is a plain number, so that what it multiplies stays a packed size.
    sized = sign == "+" or any(word in factors for word in operands)
    return f"{name} = ({sign} {' '.join(_packed(word) if sized else word for word in operands)})"
