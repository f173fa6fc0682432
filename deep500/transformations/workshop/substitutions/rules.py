"""Rewrite rules: two lists of expressions, equal output by output, with what is known about them.

One JSON line per rule. A rule's ``id`` is a hash of its canonical form, so it is the same whatever run found it. The
line also holds the hash of the operator specifications: read under others, the file is stale and refused. Fields:

- ``id``; ``source`` and ``target``: one expression per output; ``specification``: the hash.
- ``variables``: kind -> shape of its variables in symbols; equal symbols are equal sizes. A size of an expression,
  ``{"sizes": [..]}``, has one value per shape environment (`terms.SYMBOLS`).
- ``conditions``: what must hold of sizes beyond that; ``seed``: of the enumeration that found the rule.
- ``verdict``, ``prover``: who gave the verdict (``egglog``, ``z3``, ``finite field``), null for unknown.

Proof times differ from run to run, so they are in a file of their own (`write_times`): a rule file depends on nothing
but seed, depth, specifications and axioms, and is the same bytes on every machine.
"""

from __future__ import annotations

import dataclasses
import functools
import hashlib
import json
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from deep500.errors import DataError
from deep500.transformations.substitutions.operators.specification import specification_hash
from deep500.transformations.workshop.substitutions.terms import (
    KINDS,
    Expression,
    Sizes,
    Term,
    Variable,
    operations,
    show,
    substitute,
    variables,
)

VERDICTS = ("proved", "refuted", "unknown")


@dataclass(frozen=True)
class GeneratedRule:
    """Two equal lists of expressions.

    Attributes:
        source, target: expressions, equal output by output.
        verdict: ``"proved"``, ``"refuted"`` or ``"unknown"``.
        prover: what gave the verdict; None before one tried.
        conditions: what must hold of the sizes for the rule to apply.
        seed: of the enumeration that found it; None if it comes from elsewhere.
        seconds: CPU seconds until the verdict (of a batch: its share); no part of the rule or of its file.
    """

    source: tuple[Expression, ...]
    target: tuple[Expression, ...]
    verdict: str = "unknown"
    prover: str | None = None
    conditions: tuple[str, ...] = ()
    seed: int | None = None
    seconds: float | None = dataclasses.field(default=None, compare=False)

    @functools.cached_property
    def id(self) -> str:
        """Hash of the canonical form (16 hex digits)."""
        return hashlib.sha256(str(canonical(self)).encode()).hexdigest()[:16]

    @property
    def operations(self) -> int:
        """Operators on both sides together."""
        return operations(*self.source) + operations(*self.target)

    def __str__(self) -> str:
        return " = ".join(", ".join(map(show, side)) for side in (self.source, self.target))


def canonical(rule: GeneratedRule) -> GeneratedRule:
    """The rule with its variables numbered by first use, sides in the order that prints first; larger side first.

    Example:
        >>> from deep500.transformations.workshop.substitutions.terms import make
        >>> x, y = Variable("x", 3), Variable("x", 1)
        >>> str(canonical(GeneratedRule((make("add", x, y),), (make("add", y, x),))))
        'add(x1, x2) = add(x2, x1)'
    """
    forms = []
    for source, target in ((rule.source, rule.target), (rule.target, rule.source)):
        numbers: dict[str, int] = {}
        mapping: dict[Variable, Expression] = {}
        for variable in variables(*source, *target):
            numbers[variable.kind] = numbers.get(variable.kind, 0) + 1
            mapping[variable] = Variable(variable.kind, numbers[variable.kind])
        sides = [tuple(substitute(term, mapping) for term in side) for side in (source, target)]
        renamed = dataclasses.replace(rule, source=sides[0], target=sides[1])
        forms.append((-operations(*sides[0]), str(renamed), renamed))
    return min(forms, key=lambda form: form[:2])[2]


def _encode(value: Any) -> Any:
    if isinstance(value, Sizes):
        return {"sizes": list(value)}
    if isinstance(value, Variable):
        return {"kind": value.kind, "number": value.number}
    if isinstance(value, Term):
        parameters = {name: _encode(item) for name, item in value.parameters}
        return {"op": value.op, "parameters": parameters, "inputs": _encode(value.inputs), "output": value.output}
    return [_encode(item) for item in value] if isinstance(value, tuple) else value


def _decode_parameter(value: Any) -> Any:
    if isinstance(value, dict):
        return Sizes(value["sizes"])
    return tuple(_decode_parameter(item) for item in value) if isinstance(value, list) else value


def _decode(value: dict[str, Any]) -> Expression:
    if "kind" in value:
        return Variable(value["kind"], value["number"])
    parameters = tuple(sorted((name, _decode_parameter(item)) for name, item in value["parameters"].items()))
    return Term(value["op"], parameters, tuple(_decode(item) for item in value["inputs"]), value["output"])


def to_line(rule: GeneratedRule) -> str:
    """One JSON line without its line feed."""
    kinds = {variable.kind: list(KINDS[variable.kind]) for variable in variables(*rule.source, *rule.target)}
    return json.dumps(
        {
            "id": rule.id,
            "source": _encode(rule.source),
            "target": _encode(rule.target),
            "variables": kinds,
            "verdict": rule.verdict,
            "prover": rule.prover,
            "conditions": list(rule.conditions),
            "seed": rule.seed,
            "specification": specification_hash(),
        },
        sort_keys=True,
    )


def from_line(line: str, where: str = "line") -> GeneratedRule:
    """Read one JSON line.

    Raises:
        DataError: not a rule, an altered rule (its id is another's), or one made under other specifications.
    """
    try:
        fields = json.loads(line)
        sides = [tuple(_decode(item) for item in fields[name]) for name in ("source", "target")]
        rule = GeneratedRule(
            sides[0], sides[1], fields["verdict"], fields["prover"], tuple(fields["conditions"]), fields["seed"]
        )
        identity, specification = fields["id"], fields["specification"]
    except (json.JSONDecodeError, KeyError, TypeError, AttributeError) as problem:
        raise DataError(
            f"{where}: got {line[:60]!r} ({problem!r}); expected a rule in JSON; generate the file anew"
        ) from problem
    if specification != specification_hash():
        raise DataError(
            f"{where}: got operator specification {specification}; expected {specification_hash()}: the rule was made "
            "under other meanings of its operators; generate and prove the rules anew"
        )
    if rule.id != identity or rule.verdict not in VERDICTS:
        raise DataError(
            f"{where}: got id {identity}, verdict {rule.verdict!r}; expected {rule.id}; the line was altered"
        )
    return rule


def write(rules: Iterable[GeneratedRule], path: str | Path) -> None:
    """Write rules, one JSON line each."""
    Path(path).write_text("".join(to_line(rule) + "\n" for rule in rules), encoding="utf-8")


def write_times(rules: Iterable[GeneratedRule], path: str | Path) -> None:
    """Write the proof times that are known as one JSON object: id -> CPU seconds."""
    known = {rule.id: round(rule.seconds, 6) for rule in rules if rule.seconds is not None}
    Path(path).write_text(json.dumps(known, indent=0, sort_keys=True) + "\n", encoding="utf-8")


def read(path: str | Path, proved_only: bool = True) -> list[GeneratedRule]:
    """Read a rule file; by default only what is proved, which is all that may be applied.

    Raises:
        DataError: the file is absent, damaged, foreign or stale; the message names the line.
    """
    path = Path(path)
    if not path.is_file():
        raise DataError(f"got no file {path}; expected a rule file; generate one")
    lines = path.read_text(encoding="utf-8").splitlines()
    rules = [from_line(line, f"{path.name}:{number}") for number, line in enumerate(lines, 1)]
    return [rule for rule in rules if rule.verdict == "proved" or not proved_only]
