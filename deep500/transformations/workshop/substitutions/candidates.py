"""From terms of one value to candidate rules: pruning in stages, with the number left after every stage.

The stages are those of Jia et al., TASO (SOSP 2019), section 2.2. A candidate's two sides are equal in every world of
the enumeration; nothing is proved yet.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Iterable

from deep500.transformations.workshop.substitutions.enumerate import Enumeration
from deep500.transformations.workshop.substitutions.instances import general
from deep500.transformations.workshop.substitutions.rules import GeneratedRule, canonical
from deep500.transformations.workshop.substitutions.terms import Expression

Pair = tuple[int, int]


class Candidates:
    """Candidate rules of an enumeration.

    Attributes:
        counts: stage -> number left, in the order of the stages.
        rules: single-output rules that differ by more than names, smallest first.
        multiple: rules with two outputs: both parts of a split against two terms without it.

    Example:
        >>> candidates = Candidates(Enumeration(1, seed=0, counts={"x": 2}))
        >>> [str(rule) for rule in candidates.rules]
        ['add(x1, x2) = add(x2, x1)', 'mul(x1, x2) = mul(x2, x1)']
    """

    def __init__(self, terms: Enumeration) -> None:
        self.terms = terms
        pairs = [(group[0], number) for group in terms.groups for number in group[1:]]
        self.counts = {"terms": terms.tried, "distinct": terms.tried - len(pairs), "pairs": len(pairs)}
        self.multiple = self._two_outputs()
        pairs = [pair for pair in pairs if any(self._in_order(self._leaves(number)) for number in pair)]
        self.counts["variables in order"] = len(pairs)
        pairs = [pair for pair in pairs if not self._inner(pair[0]) & self._inner(pair[1])]
        self.counts["no common subgraph"] = len(pairs)
        pairs = [pair for pair in pairs if not self._same_root(pair)]
        self.counts["no common supergraph"] = len(pairs)
        self.rules = self._distinct(GeneratedRule((self.term(b),), (self.term(a),)) for a, b in pairs)
        self.counts["not a renaming"] = len(self.rules)
        self.rules, self.multiple = general(self.rules), general(self.multiple)
        self.counts["not an instance"] = len(self.rules)

    @functools.cache  # noqa: B019 - lives as long as the enumeration it belongs to
    def term(self, number: int) -> Expression:
        """The expression of a number, shared between rules."""
        return self.terms.term(number)

    def _operands(self, number: int) -> list[int]:
        return [int(operand) for operand in (self.terms.left[number], self.terms.right[number]) if operand >= 0]

    @functools.cache  # noqa: B019
    def _leaves(self, number: int) -> tuple[int, ...]:
        if self.terms.call[number] < 0:
            return (number,)
        return tuple(itertools.chain.from_iterable(self._leaves(operand) for operand in self._operands(number)))

    @functools.cache  # noqa: B019
    def _in_order(self, leaves: tuple[int, ...]) -> bool:
        """Return whether the variables of each kind are first used in the order of their numbers."""
        seen: dict[str, int] = {}
        for leaf in dict.fromkeys(leaves):
            variable = self.terms.variables[leaf]
            if variable.number != seen.get(variable.kind, 0) + 1:
                return False
            seen[variable.kind] = variable.number
        return True

    @functools.cache  # noqa: B019
    def _inner(self, number: int) -> frozenset[int]:
        """Numbers of the term's operators that have operands, itself among them."""
        operands = self._operands(number)
        if not operands:
            return frozenset()
        return frozenset({number}).union(*(self._inner(operand) for operand in operands))

    def _same_root(self, pair: Pair) -> bool:
        """Return whether both sides end in one operator with operands of equal value: never, for operands represent."""
        left, right = pair
        if self.terms.call[left] != self.terms.call[right] or self.terms.call[left] < 0:
            return False
        operands = zip(self._operands(left), self._operands(right), strict=True)
        return all(a == b or self.terms.hashes[a] == self.terms.hashes[b] for a, b in operands)

    def _distinct(self, rules: Iterable[GeneratedRule]) -> list[GeneratedRule]:
        by_id = {rule.id: rule for rule in map(canonical, rules)}
        return sorted(by_id.values(), key=lambda rule: (rule.operations, str(rule)))

    def _two_outputs(self) -> list[GeneratedRule]:
        """Rules (l0, l1) = (split 0 of u, split 1 of u) where l0 and l1 are no variables but share one."""
        halves: dict[tuple[int, object], dict[int, tuple[int, int]]] = {}
        for group in self.terms.groups:
            for number in group:
                if not self._is_split(number):
                    continue
                call = self.terms.calls[self.terms.call[number]]
                other = next((term for term in group if term != number and not self._is_split(term)), None)
                if other is not None:
                    parts = halves.setdefault((int(self.terms.left[number]), call.parameters), {})
                    parts[call.output] = (other, number)
        return self._distinct(
            GeneratedRule(tuple(self.term(parts[n][0]) for n in (0, 1)), tuple(self.term(parts[n][1]) for n in (0, 1)))
            for parts in halves.values()
            if len(parts) == 2 and self._merges([parts[n][0] for n in (0, 1)])
        )

    def _is_split(self, number: int) -> bool:
        return bool(self.terms.call[number] >= 0) and self.terms.calls[self.terms.call[number]].op == "split"

    def _merges(self, parts: list[int]) -> bool:
        """Return whether two terms are operators that share an input and have their variables in order."""
        leaves = [self._leaves(part) for part in parts]
        shared = set(leaves[0]) & set(leaves[1])
        return all(map(self._operands, parts)) and bool(shared) and self._in_order(leaves[0] + leaves[1])
