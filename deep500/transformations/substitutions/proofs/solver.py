"""Z3 as a second prover: the axioms as quantified equalities over one uninterpreted sort, one solver per goal.

De Moura and Bjorner, Z3 (TACAS 2008). Optional: ``pip install 'deep500[substitutions]'``. Axioms are the text that
egglog reads (`axioms`, and what `saturation.LANGUAGE` says of sizes), so neither prover has axioms of its own.

A quantifier is instantiated where one of its sides matches a term at hand (a *trigger*), both ways, and nowhere else:
the sort holds tensors of every shape, and an axiom such as ``x @ identity = x`` is meant where it is well typed. So
the search by models is off. Z3 proves here; it never refutes: no proof within the limit is no verdict.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from deep500.errors import MissingEngine
from deep500.transformations.substitutions.proofs.axioms import Axiom, axioms
from deep500.transformations.substitutions.proofs.saturation import LANGUAGE
from deep500.transformations.substitutions.rules.patterns import Pattern, parse, show

LIMIT = 4_000_000  # Z3's resource units, so that a verdict is the same on every machine


@dataclass(frozen=True)
class Attempt:
    """Outcome of one attempt to prove a goal.

    Attributes:
        proved: whether Z3 found a proof.
        seconds: CPU seconds it took.
        reason: why there is no proof; empty if there is one.
    """

    proved: bool
    seconds: float
    reason: str = ""


def engine() -> Any:
    """The Z3 module.

    Raises:
        MissingEngine: Z3 is not installed.
    """
    try:
        import z3  # type: ignore[import-untyped, import-not-found, unused-ignore]
    except ImportError as problem:
        raise MissingEngine(
            "got no z3; expected it as second prover; run: pip install 'deep500[substitutions]'"
        ) from problem
    return z3


class Solver:
    """The axioms in Z3, and proofs from them.

    Args:
        by: the axioms to prove from; all of them without it.

    Raises:
        MissingEngine: Z3 is not installed.
    """

    def __init__(self, by: Iterable[Axiom] | None = None) -> None:
        self.z3 = engine()
        self.context = self.z3.Context()
        self.tensor = self.z3.DeclareSort("T", self.context)
        self.integer = self.z3.IntSort(self.context)
        self.functions: dict[str, Any] = {}
        self.words: dict[str, int] = {}
        self._declare("size", ["T", "i64"], self.integer)
        rules = parse(f"({LANGUAGE})")
        for constructor in next(rule for rule in rules if rule[0] == "datatype")[2:]:
            self._declare(constructor[0], constructor[1:], self.tensor)
        self.axioms = [self._size_rule(rule) for rule in rules if rule[0] == "rule" and rule[-1] == "sizes"]
        for axiom in axioms() if by is None else by:
            self.axioms += self.quantified(axiom)

    def _declare(self, name: str, arguments: Sequence[str], result: Any) -> None:
        sorts = [self.tensor if sort == "T" else self.integer for sort in arguments]
        self.functions[name] = self.z3.Function(name, *sorts, result)

    def literal(self, word: str) -> Any | None:
        """A number, or a word as a number of its own; None for a name."""
        if word.startswith('"'):
            return self.z3.IntVal(-1 - self.words.setdefault(word, len(self.words)), self.context)
        return self.z3.IntVal(int(word), self.context) if word.lstrip("-").isdigit() else None

    def expression(self, pattern: Pattern, names: dict[str, Any], tensor: bool = True) -> Any:
        """A pattern in Z3; ``names`` gains a variable for every name it lacks."""
        if isinstance(pattern, str):
            literal = self.literal(pattern)
            if literal is not None:
                return literal
            if pattern not in names:
                names[pattern] = self.z3.Const(pattern, self.tensor if tensor else self.integer)
            return names[pattern]
        op, *inputs = pattern
        if op in "+*":
            values = [self.expression(operand, names, False) for operand in inputs]
            return self.z3.Product(*values) if op == "*" else self.z3.Sum(*values)
        function = self.functions[op]
        sorts = [function.domain(n) == self.tensor for n in range(function.arity())]
        return function(*(self.expression(operand, names, sort) for operand, sort in zip(inputs, sorts, strict=True)))

    def _size_rule(self, rule: Pattern) -> Any:
        """``(rule ((= e pattern) (= n (size x a)) ..) ((set (size e b) value)) ..)`` as an equation of sizes."""
        _, facts, ((_, (_, name, axis), value), *_), *_ = rule
        names: dict[str, Any] = {}
        conditions = []
        for comparison, left, right in facts:
            if comparison == "!=":
                conditions.append(self.expression(left, names, False) != self.expression(right, names, False))
            else:
                names[left] = self.expression(right, names)
        defined = self.functions["size"](names[name], self.expression(axis, names, False))
        body = defined == self.expression(value, names, False)
        if conditions:
            body = self.z3.Implies(self.z3.And(*conditions), body)
        free = [constant for constant in names.values() if self.z3.is_const(constant) and constant.decl().arity() == 0]
        return self.z3.ForAll(free, body, patterns=[defined])

    def quantified(self, axiom: Axiom) -> list[Any]:
        """The axiom as quantified equations, one per side that names what the other needs; that side is the trigger.

        Where a side is a variable, what must be present triggers instead.
        """
        left, right = parse(axiom.left), parse(axiom.right)
        both = [self._direction(left, right, axiom.where), self._direction(right, left, axiom.where, axiom.present)]
        return [equation for equation in both if equation is not None]

    def _direction(self, left: Pattern, right: Pattern, where: Sequence[str], present: str = "") -> Any | None:
        if isinstance(left, str) and not present:  # a variable triggers nowhere
            return None
        names: dict[str, Any] = {}
        triggers = [self.expression(side, names) for side in [left] * (not isinstance(left, str))]
        triggers += [self.expression(parse(present), names)] if present else []
        source = self.expression(left, names)
        bound = list(names.values())
        conditions = self._conditions(where, names)
        known = set(names)
        equation = source == self.expression(right, names)
        if set(names) != known:
            return None
        body = self.z3.Implies(self.z3.And(*conditions), equation) if conditions else equation
        return self.z3.ForAll(bound, body, patterns=[self.z3.MultiPattern(*triggers)])

    def _conditions(self, where: Sequence[str], names: dict[str, Any]) -> list[Any]:
        """Conditions on names that are known; ``names`` gains the others that are defined."""
        conditions = []
        for name, body in ((part.strip() for part in line.split("=", 1)) for line in where):
            if not set(_words(body)) <= set(names):
                continue
            value = self.expression(parse(f"({body})" if body.startswith("size") else body), names, False)
            if name in names:
                conditions.append(names[name] == value)
            else:
                names[name] = value
        return conditions

    def prove_axiom(self, axiom: Axiom, limit: int = LIMIT) -> Attempt:
        """Try to prove an axiom from those that this solver holds, for arbitrary terms and sizes that meet its
        conditions: cuts are the sizes that its concatenations show. Of matrices the double transposes are at hand:
        proofs go through them, and no trigger makes them.
        """
        names: dict[str, Any] = {}
        left, right = (self.expression(parse(side), names) for side in (axiom.left, axiom.right))
        cuts = {line for side in (axiom.left, axiom.right) for line in cut_sizes(parse(side))}
        facts = self._conditions([*sorted(cuts), *axiom.where], names)
        if "(matmul " in axiom.left or "(transpose " in axiom.left:
            seen = self.z3.Function("seen", self.tensor, self.z3.BoolSort(self.context))
            swap, twice = self.literal('"1,0"'), self.functions["transpose"]
            facts += [seen(twice(swap, twice(swap, tensor))) for tensor in self._parts([left, right])]
        return self.decide(facts, left, right, limit)

    def _parts(self, terms: Iterable[Any]) -> list[Any]:
        """Tensors that terms are made of, themselves among them."""
        tensors = {term for term in terms if term.sort() == self.tensor}
        inner = [child for term in tensors for child in term.children()]
        return [*tensors, *(self._parts(inner) if inner else [])]

    def decide(self, facts: list[Any], left: Any, right: Any, limit: int) -> Attempt:
        solver, negated = self._solver(limit), self.z3.Bool("negated", self.context)
        solver.add(*self.axioms, *facts, self.z3.Implies(negated, left != right))
        start = time.process_time()
        answer = solver.check(negated)
        seconds = time.process_time() - start
        if answer == self.z3.unsat:
            # Without the goal in the core the axioms contradict each other on its terms, and nothing is proved.
            return Attempt(True, seconds) if solver.unsat_core() else Attempt(False, seconds, "contradiction")
        return Attempt(False, seconds, solver.reason_unknown())

    def _solver(self, limit: int) -> Any:
        solver = self.z3.SimpleSolver(ctx=self.context)
        solver.set("auto_config", False)
        solver.set("mbqi", False)
        solver.set("rlimit", limit)
        return solver


def cut_sizes(pattern: Pattern) -> list[str]:
    """Definitions of where concatenations of a pattern are cut.

    Example:
        >>> cut_sizes(parse("(concat 1 p (concat 1 q x y) z)"))
        ['p = size (concat 1 q x y) 1', 'q = size x 1']
    """
    if isinstance(pattern, str):
        return []
    cut = [f"{pattern[2]} = size {show(pattern[3])} {pattern[1]}"] if pattern[0] == "concat" else []
    return cut + [line for operand in pattern[1:] for line in cut_sizes(operand)]


def _words(body: str) -> list[str]:
    """Names in a definition."""
    return [word for word in body.replace("(", " ").replace(")", " ").split() if word.isidentifier() and word != "size"]
