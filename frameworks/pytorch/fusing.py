"""Rules as a few of PyTorch's functions that multiply and add in one, and write where an operand is not needed again.

`lower` gathers what a `RuleProgram` multiplies by numbers, so that ``b m + (1 - b) g`` is ``scale`` and ``axpy``, and
``y + c (z - y)`` is ``lerp``; what is computed of norms, one number for each parameter (a *row*), stays that short
until it meets a tensor. Results differ from the rule's own by rounding only.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import lru_cache, reduce
from typing import Any, NamedTuple

from deep500.training.optimizers.tracing import RuleProgram


class Coefficient(NamedTuple):
    """A product of the numbers that a step brings: a sign, and places (``~n``) with exponents 1 or -1."""

    sign: int = 1
    factors: tuple[tuple[int, int], ...] = ()

    def value(self, numbers: Sequence[float]) -> float:
        """The product; a division by 0 is infinite, as of tensors."""
        result = float(self.sign)
        for place, exponent in self.factors:
            number = numbers[~place]
            result = result * number if exponent > 0 else result / number if number else result * float("inf")
        return result


ONE = Coefficient()


class Instruction(NamedTuple):
    """A function of values, and the place of its result.

    Attributes:
        name: of a function of tensors; ``"row mul"`` computes on rows as a rule has it.
        out: place of the result.
        operands: places; of rows and of powers numbers and exponents, too.
        coefficient: of ``scale``, ``shift``, ``axpy``, ``lerp``, ``addcmul`` and ``addcdiv``.
        last: places that no later instruction reads.
    """

    name: str
    out: int
    operands: tuple[Any, ...]
    coefficient: Coefficient = ONE
    last: frozenset[int] = frozenset()

    @property
    def plain(self) -> bool:
        """Whether all operands are values, and not numbers or exponents."""
        return all(map(_is_place, self.operands))


@dataclass
class _Product:
    """Numbers, and places that are multiplied, and those by which is divided."""

    coefficient: Coefficient = ONE
    above: list[int] = field(default_factory=list)
    below: list[int] = field(default_factory=list)

    def times(self, other: _Product, exponent: int = 1) -> _Product:
        factors = tuple((place, exponent * power) for place, power in other.coefficient.factors)
        mine = self.coefficient
        coefficient = Coefficient(mine.sign * other.coefficient.sign, mine.factors + factors)
        above, below = (other.above, other.below) if exponent > 0 else (other.below, other.above)
        return _Product(coefficient, [*self.above, *above], [*self.below, *below])


_MINUS = _Product(Coefficient(-1))


class _Shortening:
    """Goes through the steps of a program; a product that is read once waits for its reader."""

    def __init__(self, program: RuleProgram) -> None:
        self.steps, self.instructions = program.steps, list[Instruction]()
        ends = [*(place for _, place in program.writes), program.result, *program.sums]
        read = [operand for _, *operands in self.steps for operand in operands if _is_place(operand)]
        self.uses = Counter([*read, *ends, *ends])  # what remains is never read once
        self.rows, self.next = set[int](), len(self.steps) + 2
        for out, (name, *operands) in enumerate(self.steps, 2):
            places = [operand for operand in operands if _is_place(operand)]
            if name == "norm" or (places and self.rows.issuperset(places)):
                self.rows.add(out)
        self.mixes = {out: mix for out in range(2, self.next) if (mix := self._mix(out))}
        within = {place for *_, inner in self.mixes.values() for place in inner}
        for out, step in enumerate(self.steps, 2):
            if out not in within and not self._waits(out):
                self._step(out, *step)

    def _once(self, place: int, *names: str) -> bool:
        """Whether a value is a tensor, is read once, and comes of one of these operations."""
        return place >= 2 and self.uses[place] == 1 and place not in self.rows and self.steps[place - 2][0] in names

    def _waits(self, place: int) -> bool:
        return self._once(place, "mul", "truediv", "neg")

    def _mix(self, out: int) -> tuple[int, int, int, tuple[int, int]] | None:
        """``x``, ``z`` and ``c`` of ``x + c (z - x)``, and the places between."""
        name, x, *scaled = self.steps[out - 2]
        if name != "add" or x < 0 or x in self.rows or not self._once(scaled[0], "mul"):
            return None
        number, difference = sorted(self.steps[scaled[0] - 2][1:])
        if number >= 0 or not self._once(difference, "sub") or self.steps[difference - 2][2] != x:
            return None
        z = self.steps[difference - 2][1]
        return None if z < 0 or z in self.rows else (x, z, number, (scaled[0], difference))

    def _add(self, name: str, *operands: Any, coefficient: Coefficient = ONE, out: int | None = None) -> int:
        if out is None:
            out, self.next = self.next, self.next + 1
        if name.startswith("row "):
            self.rows.add(out)
        self.instructions.append(Instruction(name, out, operands, coefficient))
        return out

    def _product(self, operand: int) -> _Product:
        if operand < 0:
            return _Product(Coefficient(1, ((operand, 1),)))
        return self._factors(operand) if self._waits(operand) else _Product(ONE, [operand])

    def _factors(self, place: int) -> _Product:
        name, *operands = self.steps[place - 2]
        left, *right = map(self._product, operands)
        return _MINUS.times(left) if name == "neg" else left.times(right[0], 1 if name == "mul" else -1)

    def _short(self, product: _Product, most: int) -> _Product:
        """The same, its rows multiplied in, with at most so many tensors, one of them above."""
        rows = [[place for place in side if place in self.rows] for side in (product.above, product.below)]
        above, below = ([p for p in side if p not in self.rows] for side in (product.above, product.below))
        if not above and below:
            above = [self._add("reciprocal", below.pop(0))]
        if any(rows):
            if rows[0]:
                row = reduce(lambda a, b: self._add("row mul", a, b), rows[0])
                row = reduce(lambda a, b: self._add("row truediv", a, b), rows[1], row)
            else:
                row = self._add("row pow", reduce(lambda a, b: self._add("row mul", a, b), rows[1]), (-1,))
            above = [self._add("rows", above[0], row), *above[1:]] if above else [self._add("spread", row)]
        while len(above) + len(below) > most:
            name, other = ("mul", above.pop(1)) if len(above) > 1 else ("truediv", below.pop(0))
            above[0] = self._add(name, above[0], other)
        return _Product(product.coefficient, above, below)

    def _value(self, product: _Product, out: int | None = None) -> int:
        """Compute a product, into a place of its own if one is given."""
        plain = product.coefficient == ONE
        if not plain and product.above and product.above[0] not in self.rows:
            first = self._add("scale", product.above[0], coefficient=product.coefficient)
            product, plain = _Product(ONE, [first, *product.above[1:]], product.below), True
        short = self._short(product, 1)
        if not plain:
            short.above[0] = self._add("scale", short.above[0], coefficient=product.coefficient)
        if out is not None:
            last = self.instructions[-1] if self.instructions else None
            if last is None or last.out != short.above[0] or last.out <= len(self.steps) + 1:
                return self._add("scale", short.above[0], out=out)
            self.instructions[-1] = last._replace(out=out)
            return out
        return short.above[0]

    def _step(self, out: int, name: str, *operands: Any) -> None:
        if name == "slot":
            self._add(name, *operands, out=out)
        elif out in self.rows and (name != "norm" or operands[0] in self.rows):
            self._add(f"row {name.replace('norm', 'abs')}", *operands, out=out)
        elif out in self.mixes:
            x, z, number, _ = self.mixes[out]
            self._add("lerp", x, self._value(self._product(z)), coefficient=Coefficient(1, ((number, 1),)), out=out)
        elif name in ("mul", "truediv", "neg"):
            self._value(self._factors(out), out)
        elif name in ("add", "sub"):
            left, right = map(self._product, operands)
            self._sum(out, left, _MINUS.times(right) if name == "sub" else right)
        elif name in ("norm", "abs"):
            self._add(name, self._value(self._product(operands[0])), out=out)
        else:
            self._power(out, *operands)

    def _power(self, out: int, base: Any, exponent: Any) -> None:
        functions = {(0.5,): "sqrt", (2,): "square"} if isinstance(exponent, tuple) else {}
        values = [self._value(self._product(o)) if _is_place(o) else o for o in (base, exponent)]
        if exponent in functions:
            self._add(functions[exponent], values[0], out=out)
        else:
            self._add("pow", *(self._add("spread", v) if v in self.rows else v for v in values), out=out)

    def _sum(self, out: int, left: _Product, right: _Product) -> None:
        if not all(part.above or part.below for part in (left, right)):  # one of them is a number
            number, other = sorted((left, right), key=lambda part: len(part.above) + len(part.below))
            self._add("shift", self._value(other), coefficient=number.coefficient, out=out)
            return
        base, more = sorted(
            (left, right), key=lambda part: (len(part.above) + len(part.below), part.coefficient != ONE)
        )
        first, short = self._value(base), self._short(more, 2)
        if first in self.rows:
            first = self._add("spread", first)
        name = "addcdiv" if short.below else "addcmul" if len(short.above) > 1 else "axpy"
        self._add(name, first, *short.above, *short.below, coefficient=short.coefficient, out=out)


def _is_place(operand: Any) -> bool:
    return isinstance(operand, int) and operand >= 0


@lru_cache(256)
def lower(program: RuleProgram) -> tuple[Instruction, ...]:
    """The instructions of a program, whose places are the program's and further ones."""
    ends, lowered = {*(place for _, place in program.writes), program.result, *program.sums}, list[Instruction]()
    for instruction in reversed(_Shortening(program).instructions):
        places = {operand for operand in instruction.operands if _is_place(operand)}
        lowered.append(instruction._replace(last=frozenset(places - ends)))
        ends |= places
    return tuple(lowered[::-1])
