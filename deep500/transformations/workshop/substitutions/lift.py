"""Lifting: from a rule that holds in two shape environments to the most general pattern rule that the axioms prove.

Whatever may differ in a network becomes a name: an activation, a window, strides, pads, groups, an axis, a cut. With
all names the rule may be false, or not follow from the axioms: then as many literals stay as it takes. For the prover a
name is an opaque constant, and the only sizes it knows are those that the rule's ``where`` lines state: they are what
the rule's user checks, so a proof holds for every network that meets them.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Sequence
from typing import Any, NamedTuple

from deep500.transformations.substitutions.operators.specification import operator
from deep500.transformations.substitutions.proofs.pattern_proofs import proved, ways_determined
from deep500.transformations.substitutions.rules.patterns import CONSTANTS, LETTERS, canonical
from deep500.transformations.substitutions.rules.rule_file import PatternRule
from deep500.transformations.workshop.substitutions.encoding import head, pack
from deep500.transformations.workshop.substitutions.inference import SizeInference, Sum
from deep500.transformations.workshop.substitutions.rules import Rule
from deep500.transformations.workshop.substitutions.terms import KINDS, Expression, Term, Variable

POOLS = ("avgpool", "maxpool")
PLAIN = frozenset(pack(n) for n in range(100))  # sizes that are the same in all environments


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
        self.rule, self.coarse, self.sizes = rule, coarse, SizeInference()
        for pair in zip(rule.source, rule.target, strict=True):
            for first, second in zip(*(self.sizes.sizes(side) for side in pair), strict=True):
                self.sizes.unify(first, second)
        if coarse:
            self.sizes.coincide()
        self._leaves: dict[Expression, str] = {}
        self._unknown: dict[int, int] = {}
        slots_seen: dict[Slot, None] = {}
        for term in (*rule.source, *rule.target):
            self._collect(term, slots_seen)
        self.needed = [slot for slot in slots_seen if slot.parameter == "groups" and int(slot.word) not in PLAIN]
        axes = [slot for slot in slots_seen if slot.parameter == "axis"]
        self.slots = [slot for slot in slots_seen if slot.parameter != "axis" or len(axes) == 1]

    # -- what may be named ------------------------------------------------------------------------------------------
    def _words(self, term: Term) -> list[tuple[str, str]]:
        """(parameter, word) in the provers' order."""
        texts = head(term, [self.sizes.type(operand) for operand in term.inputs]).split(" ")[1:]
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

    def _collect(self, term: Expression, slots: dict[Slot, None]) -> None:
        if isinstance(term, Term):
            for name, word in self._words(term):
                slot = self._slot(term, name, word)
                if slot:
                    slots.setdefault(slot)
            for operand in term.inputs:
                self._collect(operand, slots)

    # -- writing ----------------------------------------------------------------------------------------------------
    def write(self, chosen: Collection[Slot]) -> PatternRule:
        """The rule with names for the ``chosen`` literals, and for all cuts."""
        writer = _RuleWriter(self, frozenset(chosen))
        left, right = (tuple(map(writer.write, side)) for side in (self.rule.source, self.rule.target))
        return PatternRule(*canonical(left, right, tuple(writer.where())), self.rule.id, "unknown", None)


class _RuleWriter:
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
        texts += [self.write(operand) for operand in term.inputs]
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
        return [*lines, *(line for lines_of_sum in sums for line in lines_of_sum), *self._relations()]

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
            products = [
                f"{name} = (* {self.groups[value // factor]} {word})"
                for factor, word in factors.items()
                if value % factor == 0 and value // factor in self.groups and factor > 1
            ]
            sums = [
                f"{name} = (+ {word} {known[value - first]})"
                for first, word in known.items()
                if value - first in known and first <= value - first and not factors
            ]
            lines += products or sums[:1]
        return lines


class Lifted(NamedTuple):
    """Result of lifting rules.

    Attributes:
        rules: proved pattern rules, each once, in the order of the generated rules.
        failed: generated rules of which no form is proved.
    """

    rules: list[PatternRule]
    failed: list[Rule]


def lift(rules: Sequence[Rule]) -> Lifted:
    """The most general proved form of every rule.

    All literals become names where that is proved. Else names are given one after the other, as far as it stays
    proved, starting from none; and sizes get different names only if that is proved. Last, needless conditions go.

    Raises:
        MissingEngine: egglog is not installed.
    """
    # All rules go through each stage together: starting an e-graph with the axioms costs more than most proofs.
    forms: dict[int, Form] = {n: Form(rule) for n, rule in enumerate(rules)}
    chosen: dict[int, list[Slot]] = {}
    _accept(forms, {n: list(form.slots) for n, form in forms.items()}, chosen)
    _accept(forms, {n: forms[n].needed for n in forms if n not in chosen}, chosen)
    for coarse in (1, 2):
        forms.update({n: Form(rules[n], coarse) for n in forms if n not in chosen})
        _accept(forms, {n: forms[n].needed for n in forms if n not in chosen}, chosen)
    for position in range(max((len(form.slots) for form in forms.values()), default=0)):
        trials = {
            n: [*slots, forms[n].slots[position]]
            for n, slots in chosen.items()
            if position < len(forms[n].slots) and forms[n].slots[position] not in slots
        }
        _accept(forms, trials, chosen)
    patterns = _without_needless({n: forms[n].write(slots) for n, slots in sorted(chosen.items())})
    unique = {rule.id: rule for rule in reversed(patterns) if rule.left != rule.right}
    return Lifted(list(unique.values())[::-1], [rules[n] for n in forms if n not in chosen])


def _accept(forms: dict[int, Form], trials: dict[int, list[Slot]], chosen: dict[int, list[Slot]]) -> None:
    """Take over the choices that are proved."""
    written = [forms[n].write(slots) for n, slots in trials.items()]
    for (n, slots), ok in zip(trials.items(), proved(written), strict=True):
        if ok:
            chosen[n] = slots


def _without_needless(rules: dict[int, PatternRule]) -> list[PatternRule]:
    """The rules without conditions whose absence neither breaks the proof nor takes a direction away."""
    remaining = dict(rules)
    for position in range(max((len(rule.where) for rule in rules.values()), default=0)):
        tried = {}
        for n, rule in remaining.items():
            if position < len(rules[n].where) and (line := rules[n].where[position]) in rule.where:
                fewer = dataclasses.replace(
                    rule, where=tuple(remaining for remaining in rule.where if remaining != line)
                )
                if ways_determined(fewer) == ways_determined(rule):
                    tried[n] = fewer
        for n, ok in zip(tried, proved(list(tried.values())), strict=True):
            if ok:
                remaining[n] = tried[n]
    return [
        PatternRule(*canonical(rule.left, rule.right, rule.where), rule.origin, "proved", "egglog")
        for rule in remaining.values()
    ]
