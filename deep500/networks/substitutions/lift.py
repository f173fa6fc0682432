"""Lifting: from a rule that holds in two shape environments to the most general pattern rule that the axioms prove.

Whatever may differ in a network becomes a name: an activation, a window, strides, pads, groups, an axis, a cut. With
all names the rule may be false, or not follow from the axioms: then as many literals stay as it takes. For the prover a
name is an opaque constant, and the only sizes it knows are those that the rule's ``where`` lines state: they are what
the rule's user checks, so a proof holds for every network that meets them.
"""

from __future__ import annotations

import dataclasses
import random
from collections.abc import Collection, Sequence
from typing import Any, NamedTuple

from deep500.networks.substitutions.axioms import Axiom, axioms
from deep500.networks.substitutions.encoding import CONSTANTS, PACKED, head, pack
from deep500.networks.substitutions.pattern_rules import LETTERS, PatternRule, canonical, flips, show, words
from deep500.networks.substitutions.rules import Rule
from deep500.networks.substitutions.saturation import rewrites, saturate_loaded
from deep500.networks.substitutions.specification import operator
from deep500.networks.substitutions.symbolic import Sum, Symbolic
from deep500.networks.substitutions.targets import determined
from deep500.networks.substitutions.terms import KINDS, Expression, Term, Variable
from deep500.networks.substitutions.validate import Pattern, arguments, parse
from deep500.networks.substitutions.validate import literal as meaning

POOLS = ("avgpool", "maxpool")
STEP = 8  # rules kept between two looks at what they do
PLAIN = frozenset(pack(n) for n in range(100))  # sizes that are the same in all environments
STAGES = ((1000, 2), (1000, 4))  # (rules per e-graph, iterations), as `prove.STAGES`


class Slot(NamedTuple):
    """A literal that may become a name: where it stands, and as the provers write it."""

    family: str
    parameter: str
    word: str


class Form:
    """One rule, ready to be written with any choice of names.

    Args:
        rule: a generated rule.
        coarse: take sizes for equal that were equal in both environments, and not only those that must be; with 2,
            numbers of groups among them.

    Attributes:
        slots: literals that may become names.
        needed: those that must, because they differ from environment to environment.
    """

    def __init__(self, rule: Rule, coarse: int = 0) -> None:
        self.rule, self.coarse, self.sizes = rule, coarse, Symbolic()
        for pair in zip(rule.source, rule.target, strict=True):
            for first, second in zip(*(self.sizes.sizes(one) for one in pair), strict=True):
                self.sizes.unify(first, second)
        if coarse:
            self.sizes.coincide()
        self._leaves: dict[Expression, str] = {}
        self._unknown: dict[int, int] = {}
        found: dict[Slot, None] = {}
        for term in (*rule.source, *rule.target):
            self._collect(term, found)
        self.needed = [slot for slot in found if slot.parameter == "groups" and int(slot.word) not in PLAIN]
        axes = [slot for slot in found if slot.parameter == "axis"]
        self.slots = [slot for slot in found if slot.parameter != "axis" or len(axes) == 1]

    # -- what may be named ------------------------------------------------------------------------------------------
    def _words(self, term: Term) -> list[tuple[str, str]]:
        """(parameter, word) in the provers' order."""
        texts = head(term, [self.sizes.type(one) for one in term.inputs]).split(" ")[1:]
        names = ["function"] if not operator(term.op).parameters and texts else list(operator(term.op).parameters)
        names = ["output"] * (term.op == "split") + names + ["cut"] * (term.op == "concat")
        return list(zip(names, texts, strict=True))

    def _slot(self, term: Term, name: str, word: str) -> Slot | None:
        if term.op in CONSTANTS or name in ("output", "cut"):
            return None
        if name == "axis" and len(self.sizes.type(term.inputs[0])[0]) < 2:
            return None  # a vector has only one
        family = "pool" if term.op in POOLS else "conv" if term.op == "conv" else ""
        return Slot(family, name, word)

    def _collect(self, term: Expression, found: dict[Slot, None]) -> None:
        if isinstance(term, Term):
            for name, word in self._words(term):
                slot = self._slot(term, name, word)
                if slot:
                    found.setdefault(slot)
            for one in term.inputs:
                self._collect(one, found)

    # -- writing ----------------------------------------------------------------------------------------------------
    def write(self, chosen: Collection[Slot]) -> PatternRule:
        """The rule with names for the ``chosen`` literals, and for all cuts."""
        writer = _Writer(self, frozenset(chosen))
        left, right = (tuple(map(writer.write, side)) for side in (self.rule.source, self.rule.target))
        return PatternRule(*canonical(left, right, tuple(writer.where())), self.rule.id, "unknown", None)


class _Writer:
    def __init__(self, form: Form, chosen: frozenset[Slot]) -> None:
        self.form, self.chosen, self.sizes = form, chosen, form.sizes
        self.names: dict[Any, str] = {}
        self.cuts: dict[Sum, str] = {}
        self.groups: dict[int, str] = {}
        self.leaves: dict[Expression, str] = {}
        self.axis: int | None = next((int(slot.word) for slot in chosen if slot.parameter == "axis"), None)

    def _name(self, key: Any, letter: str) -> str:
        taken = sum(name[0] == letter for name in self.names.values())
        return self.names.setdefault(key, f"{letter}{taken + 1}")

    def cut(self, size: Sum) -> str:
        """The name of a size."""
        if len(size) == 1 and self.form.coarse == 2:
            value = self.sizes.values[size[0]]
            if value in self.groups:
                return self.groups[value]
        return self.cuts.setdefault(size, self._name(size, "p"))

    def write(self, term: Expression) -> str:
        if isinstance(term, Variable):
            return self._leaf(term, self._name(term, "x"))
        texts = [term.op if operator(term.op).parameters or term.op in CONSTANTS or not self._unary(term) else "unary"]
        for name, word in self.form._words(term):
            texts.append(self._word(term, name, word))
        texts += [self.write(one) for one in term.inputs]
        text = f"({' '.join(texts)})"
        return self._leaf(term, text) if term.op in CONSTANTS else text

    def _unary(self, term: Term) -> bool:
        return [name for name, _ in self.form._words(term)] == ["function"]

    def _leaf(self, term: Expression, text: str) -> str:
        self.leaves[term] = text
        return text

    def _word(self, term: Term, name: str, word: str) -> str:
        if name == "cut":
            size = self.sizes.cuts.get(term)
            if size is None:
                size = (self.form._unknown.setdefault(int(word), self.sizes.atom(int(word))),)
            return self.cut(self.sizes.resolve(size))
        if term.op in CONSTANTS:
            return self._name((name, word), LETTERS[name])
        slot = self.form._slot(term, name, word)
        if slot is None or slot not in self.chosen:
            return word
        if name == "groups":
            return self.groups.setdefault(int(word), self._name(slot, "g"))
        return self._name(slot, LETTERS[name])

    # -- conditions -------------------------------------------------------------------------------------------------
    def where(self) -> list[str]:
        """Sizes of leaves by name, sums of names, and relations of groups."""
        sums, lines = [], []
        for size in list(self.cuts):
            if len(size) > 1:
                sums.append(self._sum(size))
        members: dict[Sum, list[str]] = {}
        for atom, (leaf, axis) in self.sizes.leaves.items():
            if leaf in self.leaves:
                word = self._axis(leaf, axis)
                if word is not None:
                    members.setdefault(self.sizes.resolve((atom,)), []).append(f"size {self.leaves[leaf]} {word}")
        for size, bodies in members.items():
            if size in self.cuts or (len(size) == 1 and (len(bodies) > 1 or self.form.coarse)):
                lines += [f"{self.cut(size)} = {body}" for body in bodies]
                if self.form.coarse and self.sizes.total(size) == pack(1):
                    lines.append(f"{self.cut(size)} = {pack(1)}")
        return [*lines, *(line for one in sums for line in one), *self._relations()]

    def _axis(self, leaf: Expression, axis: int) -> str | None:
        rank = len(KINDS[leaf.kind]) if isinstance(leaf, Variable) else 4
        if self.axis is None or rank < 2:
            return str(axis)
        return (
            next(name for slot, name in self.names.items() if isinstance(slot, Slot) and slot.parameter == "axis")
            if axis == self.axis
            else None
        )

    def _sum(self, size: Sum) -> list[str]:
        lines = []
        for count in range(2, len(size) + 1):
            total, before, last = (
                self.cut(part) for part in (size[:count], size[: count - 1], size[count - 1 : count])
            )
            lines.append(f"{total} = (+ {before} {last})")
        return lines

    def _relations(self) -> list[str]:
        known = {**{pack(1): str(pack(1))}, **self.groups}
        factors = {int(slot.word): self._name(slot, "u") for slot in self.chosen if slot.parameter == "factor"}
        lines = []
        for value, name in self.groups.items():
            for first, word in known.items():
                second = known.get(value - first)
                if second is not None and first <= value - first and value > pack(1):
                    lines.append(f"{name} = (+ {word} {second})")
                    break
            for factor, word in factors.items():
                if value % factor == 0 and value // factor in known and factor > 1:
                    lines.append(f"{name} = (* {known[value // factor]} {word})")
        return lines


# -- proof ----------------------------------------------------------------------------------------------------------
class _Ground:
    """A pattern rule's names as constants that nothing else is equal to."""

    def __init__(self, number: int, rule: PatternRule) -> None:
        self.number, self.rule = number, rule
        self.random = random.Random(rule.id)
        self.values: dict[str, int] = {}

    def load(self) -> list[str]:
        """egglog rules that load its goals; numbered from ``number``."""
        facts = []
        for line in self.rule.where[::-1]:
            name, body = (part.strip() for part in line.split("=", 1))
            if body.startswith("("):
                sign, *terms = parse(body)
                first, second = (self.integer(one) for one in terms)
                if self.values.setdefault(name, first + second if sign == "+" else first * second) != (
                    first + second if sign == "+" else first * second
                ):
                    return []
            elif not body.startswith("size") and self.values.setdefault(name, int(body)) != int(body):
                return []
        for line in self.rule.where:
            name, body = (part.strip() for part in line.split("=", 1))
            if body.startswith("size"):
                _, term, axis = parse(f"({body})")
                facts.append(f"(set (size {self.text(term)} {self.integer(axis)}) {self.integer(name)})")
        pairs = zip(self.rule.left, self.rule.right, strict=True)
        return [
            f"(rule () ({' '.join(facts)} (goal {self.number + n} {self.text(parse(a))} {self.text(parse(b))})) "
            ":ruleset load)"
            for n, (a, b) in enumerate(pairs)
        ]

    def integer(self, word: str) -> int:
        if word.lstrip("-").isdigit():
            return int(word)
        return self.values.setdefault(word, self.random.randrange(1 << 28))

    def text(self, pattern: Pattern) -> str:
        if isinstance(pattern, str):
            return f'(V "{self.number}:{pattern}")'
        names, given, inputs = arguments(pattern)
        texts = [self._parameter(name, word) for name, word in zip(names, given, strict=True)]
        return f"({' '.join([pattern[0], *texts, *map(self.text, inputs)])})"

    def _parameter(self, name: str, word: str) -> str:
        if meaning(word, name) is not None:
            return word
        if name in (*PACKED, "axis", "factor", "output"):
            return str(self.integer(word))
        return f'"{self.number}:{word}"'


def proved(
    rules: Sequence[PatternRule], stages: Sequence[tuple[int, int]] = STAGES, by: Sequence[str] | None = None
) -> list[bool]:
    """For every pattern rule, whether the axioms prove it with nothing known but its ``where`` lines.

    Args:
        rules: what is to be proved.
        stages: (rules per e-graph, iterations) for what the stage before leaves open.
        by: egglog rules to prove from instead of the axioms.

    Raises:
        MissingEngine: egglog is not installed.

    Example:
        >>> proved([PatternRule(("(unary f (transpose t x))",), ("(transpose t (unary f x))",))])  # doctest: +SKIP
        [True]
    """
    by, left = rewrites(axioms()) if by is None else by, list(range(len(rules)))
    for batch, iterations in stages:
        still = []
        for first in range(0, len(left), batch):
            part = left[first : first + batch]
            loads: list[str] = []
            owners: list[int] = []
            for n in part:
                more = _Ground(len(loads), rules[n]).load()
                loads += more
                owners += [n] * len(more)
            proofs = saturate_loaded(loads, by, iterations)
            open_ = {n for n, iteration in zip(owners, proofs, strict=True) if iteration is None}
            still += [n for n in part if n in open_ or n not in owners]
        left = still
    return [n not in set(left) for n in range(len(rules))]


class Lifted(NamedTuple):
    """What lifting gave.

    Attributes:
        rules: proved pattern rules, each once, in the order of the generated rules.
        failed: generated rules of which no form is proved.
    """

    rules: list[PatternRule]
    failed: list[Rule]


def lift(rules: Sequence[Rule]) -> Lifted:
    """The most general proved form of every rule.

    All literals become names where that is proved. Else names are given one after the other, as far as it stays
    proved, starting from none; and sizes are told apart only if that is proved. Last, conditions go that nothing needs.

    Raises:
        MissingEngine: egglog is not installed.
    """
    forms: dict[int, Form] = {n: Form(rule) for n, rule in enumerate(rules)}
    chosen: dict[int, list[Slot]] = {}
    _accept(forms, {n: list(form.slots) for n, form in forms.items()}, chosen)
    _accept(forms, {n: forms[n].needed for n in forms if n not in chosen}, chosen)
    for coarse in (1, 2):
        forms.update({n: Form(rules[n], coarse) for n in forms if n not in chosen})
        _accept(forms, {n: forms[n].needed for n in forms if n not in chosen}, chosen)
    for position in range(max((len(form.slots) for form in forms.values()), default=0)):
        wanted = {
            n: [*slots, forms[n].slots[position]]
            for n, slots in chosen.items()
            if position < len(forms[n].slots) and forms[n].slots[position] not in slots
        }
        _accept(forms, wanted, chosen)
    found = _without_needless({n: forms[n].write(slots) for n, slots in sorted(chosen.items())})
    unique = {rule.id: rule for rule in reversed(found) if rule.left != rule.right}
    return Lifted(list(unique.values())[::-1], [rules[n] for n in forms if n not in chosen])


def _accept(forms: dict[int, Form], wanted: dict[int, list[Slot]], chosen: dict[int, list[Slot]]) -> None:
    """Take over the choices that are proved."""
    written = [forms[n].write(slots) for n, slots in wanted.items()]
    for (n, slots), ok in zip(wanted.items(), proved(written), strict=True):
        if ok:
            chosen[n] = slots


def _without_needless(rules: dict[int, PatternRule]) -> list[PatternRule]:
    """The rules without conditions whose absence neither breaks the proof nor takes a direction away."""
    kept = dict(rules)
    for position in range(max((len(rule.where) for rule in rules.values()), default=0)):
        tried = {}
        for n, rule in kept.items():
            if position < len(rules[n].where) and (line := rules[n].where[position]) in rule.where:
                fewer = dataclasses.replace(rule, where=tuple(one for one in rule.where if one != line))
                if _ways(fewer) == _ways(rule):
                    tried[n] = fewer
        for n, ok in zip(tried, proved(list(tried.values())), strict=True):
            if ok:
                kept[n] = tried[n]
    return [
        PatternRule(*canonical(rule.left, rule.right, rule.where), rule.origin, "proved", "egglog")
        for rule in kept.values()
    ]


def _ways(rule: PatternRule) -> list[bool]:
    """Whether each side determines the other."""
    left, right = ([parse(text) for text in side] for side in (rule.left, rule.right))
    return [determined(left, right, rule.where) is not None, determined(right, left, rule.where) is not None]


def independent(rules: Sequence[PatternRule]) -> list[PatternRule]:
    """Leave out what one application of a kept rule does as well, the most general first.

    Of rules of two outputs, which only rules of two outputs can apply, all stay but those whose outputs are one value.

    Raises:
        MissingEngine: egglog is not installed.
    """
    double = [rule for rule in rules if len(rule.left) == 2 and len(set(rule.left)) == len(set(rule.right)) == 2]
    kept: list[PatternRule] = []
    for two_way in (True, False):  # what applies both ways is not replaced by what applies one way
        single = [rule for rule in rules if len(rule.left) == 1 and all(_ways(rule)) == two_way]
        left = sorted(single, key=lambda rule: (_operators(rule), -_variables(rule), rule.id))
        while left:
            by = list(dict.fromkeys(rewrites(axiom for rule in kept for axiom in _orders(rule))))
            known = proved(left, ((1000, 1),), by)
            left = [rule for rule, follows in zip(left, known, strict=True) if not follows]
            kept += left[:STEP]
            left = left[STEP:]
    return [*kept, *double]


def _operators(rule: PatternRule) -> int:
    return sum(text.count("(") for text in (*rule.left, *rule.right))


def _variables(rule: PatternRule) -> int:
    """Names of tensors and parameters: the more, the more general."""
    return len({word for text in (*rule.left, *rule.right) for word, _ in words(parse(text)) if word[0].isalpha()})


def _orders(rule: PatternRule) -> list[Axiom]:
    """The rule with the operands of its sums and products in all orders."""
    sides = [[show(one) for one in flips(parse(text))] for text in (rule.left[0], rule.right[0])]
    return [Axiom(rule.id, left, right, rule.where) for left in sides[0] for right in sides[1]]
