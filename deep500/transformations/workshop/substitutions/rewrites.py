"""Rules as rewrites of equality saturation: variables and sizes of a rule become pattern variables."""

from __future__ import annotations

from collections.abc import Iterable

from deep500.transformations.substitutions.operators.specification import operator
from deep500.transformations.substitutions.proofs.saturation import direction
from deep500.transformations.substitutions.rules.patterns import PACKED
from deep500.transformations.workshop.substitutions.encoding import head, pack
from deep500.transformations.workshop.substitutions.rules import GeneratedRule
from deep500.transformations.workshop.substitutions.terms import Expression, Type, Variable, infer, kind_type, variables

ONE = pack(1)


class _Pattern:
    """Writes terms of one rule as patterns; equal sizes get one name."""

    def __init__(self) -> None:
        self.names: dict[int, str] = {}
        self.shapes: dict[str, str] = {}

    def size(self, packed: int) -> str:
        return self.names.setdefault(packed, f"p{len(self.names)}")

    def write(self, term: Expression) -> tuple[str, Type]:
        if isinstance(term, Variable):
            return f"{term.kind}{term.number}", kind_type(term.kind)
        inputs = [self.write(operand) for operand in term.inputs]
        types = [pair[1] for pair in inputs]
        type_ = infer(term.op, types, term.parameters)[term.output]
        return f"({' '.join([*self._head(term, types), *(pair[0] for pair in inputs)])})", type_

    def _head(self, term: Expression, types: list[Type]) -> list[str]:
        words = head(term, types).split(" ")  # type: ignore[arg-type]
        names = operator(term.op).parameters  # type: ignore[union-attr]
        if words[0] == "unary":
            return words
        if words[0] == "split":
            names = ("output", *names)
        if words[0] == "concat":
            names = (*names, "cut")
        for position, name in enumerate(names, 1):
            if name in PACKED and (name == "cut" or int(words[position]) != ONE):
                words[position] = self.size(int(words[position]))
            elif name == "shape" and not types:  # a constant's shape follows from its use
                words[position] = self.shapes.setdefault(words[position], f"q{len(self.shapes)}")
        return words

    def definitions(self, terms: tuple[Expression, ...]) -> list[str]:
        """For every size one definition by a variable's axis, and by sums of two other sizes."""
        bodies: dict[int, str] = {}
        for variable in variables(*terms):
            for axis in range(min(2, len(kind_type(variable.kind)[0]))):
                packed = pack(tuple(shape[axis] for shape in kind_type(variable.kind)))
                bodies.setdefault(packed, f"size {variable.kind}{variable.number} {axis}")
        lines = [f"{self.names[packed]} = {body}" for packed, body in bodies.items() if packed in self.names]
        for total, name in self.names.items():
            for first, second in ((a, total - a) for a in self.names):
                if second in self.names:
                    lines.append(f"{name} = (+ {self.names[first]} {self.names[second]})")
        return lines


def rule_rewrites(rules: Iterable[GeneratedRule]) -> list[str]:
    """Rewrites of every output of every rule, both ways as far as one side names what the other needs.

    Example:
        >>> from deep500.transformations.workshop.substitutions.terms import make
        >>> x = Variable("x", 1)
        >>> twice = make("transpose", make("transpose", x, perm=(1, 0)), perm=(1, 0))
        >>> rule_rewrites([GeneratedRule((twice,), (x,))])
        ['(rule ((= result (transpose "1,0" (transpose "1,0" x1)))) ((union result x1)))']
    """
    texts: dict[str, None] = {}
    for rule in rules:
        for source, target in zip(rule.source, rule.target, strict=True):
            pattern = _Pattern()
            left, right = pattern.write(source)[0], pattern.write(target)[0]
            where = pattern.definitions((source, target))
            for rewrite in (direction(left, right, where, True), direction(right, left, where, True)):
                if rewrite:
                    texts[rewrite] = None
    return list(texts)
