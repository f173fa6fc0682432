"""Rules that are instances of more general ones: one skeleton, with variables or sizes that need not be equal.

``mul(x1, x1) = ...`` is an instance of ``mul(x1, x2) = ...`` where the rest agrees, and a rule of kernels is one of
images. A skeleton keeps operators and parameters but neither variables (only their rank) nor sizes.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator

from deep500.transformations.substitutions.operators.specification import operator
from deep500.transformations.workshop.substitutions.rules import GeneratedRule
from deep500.transformations.workshop.substitutions.terms import KINDS, Expression, Variable, term_type


def _walk(term: Expression) -> Iterator[tuple[Hashable, Hashable]]:
    """Pairs (fixed part, free part) in prefix order."""
    if isinstance(term, Variable):
        yield len(KINDS[term.kind]), term
        return
    shaped = operator(term.op).shaped
    fixed = tuple((name, value) for name, value in term.parameters if name not in shaped)
    yield (term.op, fixed, term.output), None
    for name, value in term.parameters:
        if name in shaped:
            # one group is a condition, not a size like others
            yield (name, value == 1 and name == "groups"), value
    if term.op == "concat":  # square operands hide that cuts on two axes need not be equal
        axis = dict(term.parameters)["axis"]
        yield "cut", tuple(shape[axis] for shape in term_type(term.inputs[0]))
    for operand in term.inputs:
        yield from _walk(operand)


def skeleton(rule: GeneratedRule, swapped: bool = False) -> tuple[tuple[Hashable, ...], tuple[Hashable, ...]]:
    """The fixed and the free parts of a rule, its sides exchanged if asked for."""
    sides = (rule.target, rule.source) if swapped else (rule.source, rule.target)
    parts = [pair for side in sides for term in side for pair in _walk(term)]
    return tuple(fixed for fixed, _ in parts), tuple(free for _, free in parts if free is not None)


def general(rules: Iterable[GeneratedRule]) -> list[GeneratedRule]:
    """Leave out every rule that is an instance of another; of two that are instances of each other the first stays.

    Example:
        >>> from deep500.transformations.workshop.substitutions.terms import make
        >>> x, y, w = Variable("x", 1), Variable("x", 2), Variable("w", 1)
        >>> pairs = [(x, x), (x, y), (w, w)]
        >>> [str(rule) for rule in general(GeneratedRule((make("add", a, b),), (make("add", b, a),)) for a, b in pairs)]
        ['add(x1, x2) = add(x2, x1)']
    """
    rules = list(rules)
    buckets: dict[Hashable, list[tuple[tuple[Hashable, ...], int]]] = {}
    order = sorted(range(len(rules)), key=lambda n: -len(set(skeleton(rules[n])[1])))
    chosen = []
    for n in order:
        forms = [skeleton(rules[n], swapped) for swapped in (False, True)]
        if any(_instance(free, other) for fixed, free in forms for other, _ in buckets.get(fixed, ())):
            continue
        buckets.setdefault(forms[0][0], []).append((forms[0][1], n))
        chosen.append(n)
    return [rules[n] for n in sorted(chosen)]


def _instance(free: tuple[Hashable, ...], pattern: tuple[Hashable, ...]) -> bool:
    """Return whether the pattern's parts map to the rule's by a function."""
    return len(set(zip(pattern, free, strict=True))) == len(set(pattern))
