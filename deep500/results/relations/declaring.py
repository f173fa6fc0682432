"""Relations between the facts of a run's folder, each declared once: the facts, and what must hold between them.

A relation is a generator of findings under :func:`relates`, which names the facts as ``file:path`` (``*`` for every
entry). It computes one side from the other and says in words where they differ. ``deep500 verify`` tries all of them,
the tests break each of their facts, and :func:`unrelated` says which leaves of a folder none of them speaks of.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from deep500.errors import ResultsError
from deep500.results.record import FORMAT, SEEDS
from deep500.results.rules.view import RunView

Predicate = Callable[[RunView], Iterable[str]]


@dataclass(frozen=True)
class Relation:
    """Facts of a folder that must agree, and the finding where they do not.

    Attributes:
        about: the facts in words, as ``verify`` names the check.
        facts: paths of the facts, ``file:path.within.it``.
        broken: yields what does not hold, in words.
        always: unfinished and failed runs, too.
    """

    about: str
    facts: tuple[str, ...]
    broken: Predicate
    always: bool = False


RELATIONS: list[Relation] = []
"""All relations, in the order in which they are tried."""


def relates(about: str, *facts: str, always: bool = False) -> Callable[[Predicate], Predicate]:
    """Declare a generator of findings as a relation; its arguments are the fields of :class:`Relation`."""

    def declared(predicate: Predicate) -> Predicate:
        RELATIONS.append(Relation(about, facts, predicate, always))
        return predicate

    return declared


def is_older(run: RunView) -> bool:
    """Whether a folder says that it is of a format that had fewer facts than today's."""
    return int(run.manifest.get("format", 1)) < FORMAT


def findings(run: RunView) -> list[str]:
    """Everything between the facts of a recipe's run that does not hold, in words.

    A fact that is not there, or of another kind, is a finding too: whoever breaks a relation could else delete it. A
    folder of an older format may lack facts: such relations are not judged, and :func:`unjudged` names them.
    """
    return _tried(run)[0]


def unjudged(run: RunView) -> list[str]:
    """Relations between facts that a folder of an older format does not have."""
    return _tried(run)[1] if is_older(run) else []


def _tried(run: RunView) -> tuple[list[str], list[str]]:
    problems, lacking = [], []
    for relation in RELATIONS if run.is_of_recipe else ():
        if not (relation.always or (run.is_finished and run.has(SEEDS))):  # without its seeds rule R2 asks for them
            continue
        try:
            problems += list(relation.broken(run))
        except ResultsError as error:
            problems.append(str(error))
        except (KeyError, TypeError, ValueError, IndexError, AttributeError, ArithmeticError) as error:
            what = f"{type(error).__name__}: {str(error)[:80]}"
            if isinstance(error, KeyError) and is_older(run):
                lacking.append(relation.about)
            else:
                problems.append(f"{relation.about}: cannot be held against each other ({what})")
    return list(dict.fromkeys(problems)), lacking


def differs(got: float | None, expected: float | None, relative: float = 1e-9, absolute: float = 0.0) -> bool:
    """Whether two figures are not the same but for rounding, or one of them is missing.

    Example:
        >>> differs(1.0, 1.0 + 1e-12), differs(1.0, 1.1), differs(None, 1.0), differs(None, None)
        (False, True, True, False)
    """
    if got is None or expected is None:
        return got is not expected
    return not (math.isclose(got, expected, rel_tol=relative, abs_tol=absolute) or got == expected != got)


def leaves(value: Any, path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Any]]:
    """The numbers, words and nothings of a JSON value, each with the names that lead to it.

    Example:
        >>> list(leaves({"a": [1, {"b": None}]}))
        [(('a', '0'), 1), (('a', '1', 'b'), None)]
    """
    if isinstance(value, (dict, list)):
        for name, item in value.items() if isinstance(value, dict) else enumerate(value):
            yield from leaves(item, (*path, str(name)))
    else:
        yield path, value


def matches(pattern: str, path: tuple[str, ...]) -> bool:
    """Whether a fact's path, after its file's name, leads to a leaf or to something that holds it.

    Example:
        >>> matches("load.*", ("load", "own")), matches("load.own", ("load", "busy")), matches("", ("any",))
        (True, False, True)
    """
    parts = pattern.split(".") if pattern else []
    return len(parts) <= len(path) and all(p in ("*", name) for p, name in zip(parts, path, strict=False))


def short(value: Any) -> str:
    """A value in a finding: figures to six digits, words as JSON, not too long."""
    text = f"{value:.6g}" if isinstance(value, float) else json.dumps(value, default=str)
    return text if len(text) <= 70 else f"{text[:67]}..."
