"""Sizes of a rule's terms as sums of *atoms*: sizes of variables along an axis, and what a split cuts from them.

Two sizes of a generated rule may be equal by accident of its shape environments. Here they are equal only where the
operators require it, so that each may get a name of its own. Of every tensor the first two axes are followed; a size
that is no sum of atoms (channels of a grouped convolution, an image's height) is unknown.
"""

from __future__ import annotations

from collections.abc import Sequence

from deep500.transformations.substitutions.operators.elementwise import ACTIVATIONS
from deep500.transformations.substitutions.rules.patterns import CONSTANTS
from deep500.transformations.workshop.substitutions.encoding import pack
from deep500.transformations.workshop.substitutions.terms import Expression, Term, Type, Variable, infer, kind_type

Sum = tuple[int, ...]  # atoms, in the order in which concatenations put them
Size = Sum | None
AXES = 2
KEEPING = {*ACTIVATIONS, "scale", "shift", "enlarge", "avgpool", "maxpool"}


class SizeInference:
    """Inference over the terms of one rule.

    Attributes:
        leaves: atom -> (leaf, axis); atoms made by a split are absent.
        cuts: concatenation or split -> the size of its first part.
    """

    def __init__(self) -> None:
        self.leaves: dict[int, tuple[Expression, int]] = {}
        self.cuts: dict[Term, Sum] = {}
        self.values: list[int] = []
        self._bound: dict[int, Sum] = {}
        self._sizes: dict[Expression, list[Size]] = {}
        self._types: dict[Expression, Type] = {}

    def atom(self, value: int) -> int:
        """A new atom, of a packed value in the generated rule."""
        self.values.append(value)
        return len(self.values) - 1

    def resolve(self, size: Sum) -> Sum:
        """A size in atoms that are bound to nothing."""
        atoms: list[int] = []
        for atom in size:
            atoms += self.resolve(self._bound[atom]) if atom in self._bound else (atom,)
        return tuple(atoms)

    def total(self, size: Sum) -> int:
        """A size's packed value in the generated rule."""
        return sum(self.values[atom] for atom in size)

    def unify(self, first: Size, second: Size) -> None:
        """Make two sizes equal, as far as atoms can express it."""
        if first is None or second is None:
            return
        left, right = list(self.resolve(first)), list(self.resolve(second))
        for atom in list(left):
            if atom in right:
                left.remove(atom)
                right.remove(atom)
        if len(left) == 1 and right:
            self._bound[left[0]] = tuple(right)
        elif len(right) == 1 and left:
            self._bound[right[0]] = tuple(left)
        elif len(left) == len(right):
            for a, b in zip(left, right, strict=True):
                if self.values[a] == self.values[b]:
                    self.unify((a,), (b,))

    def coincide(self) -> None:
        """Make all atoms one that had one value in the generated rule."""
        first: dict[int, int] = {}
        for atom, value in enumerate(self.values):
            if atom not in self._bound:
                other = first.setdefault(value, atom)
                if other != atom:
                    self._bound[atom] = (other,)

    def sizes(self, term: Expression) -> list[Size]:
        """Sizes of the first two axes."""
        if term not in self._sizes:
            if isinstance(term, Variable) or term.op in CONSTANTS:
                self._sizes[term] = self._leaf(term)
            else:
                inputs = [self.sizes(operand) for operand in term.inputs]
                self._sizes[term] = self._apply(term, inputs)
        return self._sizes[term]

    def type(self, term: Expression) -> Type:
        """Shape in every environment."""
        if term not in self._types:
            if isinstance(term, Variable):
                self._types[term] = kind_type(term.kind)
            else:
                inputs = [self.type(operand) for operand in term.inputs]
                self._types[term] = infer(term.op, inputs, term.parameters)[term.output]
        return self._types[term]

    def _leaf(self, term: Expression) -> list[Size]:
        shapes, own_sizes = self.type(term), []
        for axis in range(min(AXES, len(shapes[0]))):
            atom = self.atom(pack(tuple(shape[axis] for shape in shapes)))
            self.leaves[atom] = (term, axis)
            own_sizes.append((atom,))
        return list(own_sizes)

    def _apply(self, term: Term, inputs: list[list[Size]]) -> list[Size]:
        # Each operator says which sizes it forces to be one. What it does not say stays free, and so becomes a
        # variable of its own in the lifted rule: leaving an equation out here would make a rule too general to prove.
        known, first = dict(term.parameters), inputs[0]
        if term.op in ("add", "mul"):
            for left, right in zip(*inputs, strict=True):
                self.unify(left, right)
        elif term.op in ("bias", "gain"):
            if known["axis"] < len(first):
                self.unify(first[known["axis"]], inputs[1][0])
        elif term.op == "matmul":
            self.unify(first[1], inputs[1][0])
            return [first[0], inputs[1][1]]
        elif term.op == "transpose":
            return [first[axis] if axis < len(first) else None for axis in known["perm"]][:AXES]
        elif term.op == "conv":
            if known["groups"] == 1:
                self.unify(first[1], inputs[1][1])
            return [first[0], inputs[1][0]]
        elif term.op == "merge_groups":
            return [first[0], None]
        elif term.op == "concat":
            return self._concat(term, inputs, known["axis"])
        elif term.op == "split":
            return self._split(term, first, known["axis"])
        elif term.op not in KEEPING:
            return [None] * min(AXES, len(self.type(term)[0]))
        return first

    def _concat(self, term: Term, inputs: Sequence[list[Size]], axis: int) -> list[Size]:
        left, right = inputs
        joined: list[Size] = []
        for n, (first, second) in enumerate(zip(left, right, strict=True)):
            if n != axis:
                self.unify(first, second)
                joined.append(first)
            elif first is None:
                joined.append(None)
            else:
                self.cuts[term] = first
                joined.append(None if second is None else first + second)
        return joined

    def _split(self, term: Term, sizes: list[Size], axis: int) -> list[Size]:
        whole, cut = sizes[axis], pack(dict(term.parameters)["cut"])
        if whole is None:
            atom = self.atom(cut)
            self.cuts[term], part = (atom,), (atom,) if term.output == 0 else None
            return [part if n == axis else size for n, size in enumerate(sizes)]
        halves = self._cut(self.resolve(whole), cut)
        self.cuts[term] = halves[0]
        return [halves[term.output] if n == axis else size for n, size in enumerate(sizes)]

    def _cut(self, whole: Sum, cut: int) -> tuple[Sum, Sum]:
        """Both parts; an atom across the cut is bound to two new ones."""
        for count in range(1, len(whole)):
            if self.total(whole[:count]) == cut:
                return whole[:count], whole[count:]
        across = next(n for n in range(len(whole)) if self.total(whole[: n + 1]) > cut)
        before = self.total(whole[:across])
        parts = self.atom(cut - before), self.atom(self.values[whole[across]] - cut + before)
        self._bound[whole[across]] = parts
        return (*whole[:across], parts[0]), (parts[1], *whole[across + 1 :])
