"""Z3 on terms of two shape environments: the second prover of generated rules."""

from __future__ import annotations

from typing import Any

from deep500.transformations.substitutions.proofs.solver import LIMIT, Attempt, Solver
from deep500.transformations.substitutions.rules.patterns import parse
from deep500.transformations.workshop.substitutions.encoding import head, pack, sized_axes
from deep500.transformations.workshop.substitutions.saturation import Goal
from deep500.transformations.workshop.substitutions.terms import Expression, Type, Variable, infer, kind_type


class TermSolver(Solver):
    """A `Solver` whose goals are pairs of terms."""

    def prove(self, goal: Goal, limit: int = LIMIT) -> Attempt:
        """Try to prove two terms equal.

        Args:
            goal: the two terms.
            limit: Z3's resource units.

        Raises:
            ShapeMismatch: a term does not fit together.
        """
        facts: list[Any] = []
        known: dict[Expression, tuple[Any, Type]] = {}
        left, right = (self._term(side, facts, known)[0] for side in goal)
        return self.decide(facts, left, right, limit)

    def _term(self, term: Expression, facts: list[Any], known: dict[Expression, tuple[Any, Type]]) -> tuple[Any, Type]:
        """A term in Z3; ``facts`` gains the sizes of the first two axes of it and all its parts."""
        if term in known:
            return known[term]
        if isinstance(term, Variable):
            encoded, type_ = self.z3.Const(f"{term.kind}{term.number}", self.tensor), kind_type(term.kind)
        else:
            inputs = [self._term(operand, facts, known) for operand in term.inputs]
            types = [type_ for _, type_ in inputs]
            type_ = infer(term.op, types, term.parameters)[term.output]
            op, *words = parse(f"({head(term, types)})")
            encoded = self.functions[op](*(self.literal(word) for word in words), *(value for value, _ in inputs))
        for axis in sized_axes(term, type_):
            size = self.functions["size"](encoded, self.z3.IntVal(axis, self.context))
            facts.append(size == self.z3.IntVal(pack(tuple(shape[axis] for shape in type_)), self.context))
        known[term] = (encoded, type_)
        return known[term]
