"""Sizes that are known at run time only: numbers that remember which size they stand for.

Everything computes with a number, as shapes and prices need one. But a size equals another only where both are the same
polynomial in the inputs' symbolic sizes, in quotients of such (windows with strides) and in sizes of which nothing is
known (a cut whose end may lie beyond the tensor). So nothing is taken to be the same, or written as a number, because
two sizes happen to agree for the numbers that were tried.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

Monomial = tuple[Any, ...]
"""Factors, in order: a string is an input's symbolic size, a tuple a quotient or a size of its own."""
Terms = Mapping[Monomial, int]
"""Monomial -> its coefficient; the empty one is the constant."""


class Size(int):
    """A number that stands for a size.

    Example:
        >>> n, h = symbol("N", 5), symbol("H", 7)
        >>> n * h + n == n * (1 + h), n == 5, n + 5 == 2 * n, n - n + 3 == 3
        (True, False, False, True)
        >>> (h - 2) // 2 + 1 == h // 2, (h - 1) // 2 + 1 == h // 2, int((h - 1) // 2 + 1)
        (True, False, 4)
    """

    terms: Terms

    @property
    def symbol(self) -> str | None:
        """The symbolic size that it is, by itself; None where it is another one."""
        ((factors, count), *more) = self.terms.items()
        return factors[0] if not more and count == 1 == len(factors) and isinstance(factors[0], str) else None

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Size) and self.terms == other.terms

    def __ne__(self, other: object) -> bool:
        return not self == other

    __hash__ = int.__hash__

    def __add__(self, other: Any) -> Any:
        return _sum(self, other, 1) if isinstance(other, int) else NotImplemented

    def __sub__(self, other: Any) -> Any:
        return _sum(self, other, -1) if isinstance(other, int) else NotImplemented

    def __mul__(self, other: Any) -> Any:
        if not isinstance(other, int):
            return NotImplemented
        terms = dict[Monomial, int]()
        for a, m in self.terms.items():
            for b, n in _terms(other).items():
                factors = tuple(sorted((*a, *b), key=repr))
                terms[factors] = terms.get(factors, 0) + m * n
        return _size(int(self) * int(other), terms)

    def __floordiv__(self, other: Any) -> Any:
        if not isinstance(other, int):
            return NotImplemented
        exact = quotient(self, other)
        return _floor(self, other) if exact is None else exact

    def __mod__(self, other: Any) -> Any:
        return self - self // other * other if isinstance(other, int) else NotImplemented

    def __neg__(self) -> Any:
        return self * -1

    def __radd__(self, other: Any) -> Any:
        return self + other

    def __rsub__(self, other: Any) -> Any:
        return self * -1 + other

    def __rmul__(self, other: Any) -> Any:
        return self * other

    def __rfloordiv__(self, other: Any) -> Any:
        return _floor(other, self) if isinstance(other, int) else NotImplemented

    def __rmod__(self, other: Any) -> Any:
        return other - other // self * self if isinstance(other, int) else NotImplemented


def symbol(name: str, number: int) -> Size:
    """A symbolic size of the inputs, and the number that stands for it."""
    return _with_terms(number, {(name,): 1})


def unknown(number: int, *place: Any) -> Size:
    """A size of which only its place is known: it equals itself and nothing else."""
    return _atom(number, "?", *place)


def quotient(whole: int, part: int) -> int | None:
    """How often one size goes into another whatever numbers stand for them; None where that has a remainder.

    Example:
        >>> n, h = symbol("N", 5), symbol("H", 7)
        >>> quotient(6 * n * h, 2 * n) == 3 * h, quotient(n * h, 35), quotient(n, 2)
        (True, None, None)
    """
    terms = _terms(part)
    if len(terms) != 1 or not part:
        return None
    ((factors, count),) = terms.items()
    left = dict[Monomial, int]()
    for monomial, times in _terms(whole).items():
        rest = list(monomial)
        for factor in factors:
            if factor not in rest:
                return None
            rest.remove(factor)
        if times % count:
            return None
        left[tuple(rest)] = times // count
    return _size(int(whole) // int(part), left)


def reshaped(op_type: str, whole: Sequence[int], places: Sequence[int]) -> tuple[int, ...]:
    """The shape that ONNX's `Flatten`, `Squeeze`, `Unsqueeze` or `Reshape` makes of another; -1 where it is open which.

    Example:
        >>> n, h = symbol("N", 5), symbol("H", 7)
        >>> reshaped("Reshape", (n, 4, h), (0, -1)) == (n, 4 * h), reshaped("Unsqueeze", (n, h), (1,)) == (n, 1, h)
        (True, True)
    """
    if op_type == "Flatten":
        return total(whole[: places[0]]), total(whole[places[0] :])
    if op_type == "Squeeze":
        gone = {place % len(whole) for place in places} or {axis for axis, size in enumerate(whole) if size == 1}
        return tuple(size for axis, size in enumerate(whole) if axis not in gone)
    if op_type == "Unsqueeze":
        rank, rest = len(whole) + len(places), iter(whole)
        new = {place % rank for place in places}
        return tuple(1 if axis in new else next(rest) for axis in range(rank))
    sizes = [whole[axis] if size == 0 else size for axis, size in enumerate(places)]
    left = quotient(total(whole), total(size for size in sizes if size != -1))
    return tuple(size if size != -1 or left is None else left for size in sizes)


def ones_between(before: Sequence[int], after: Sequence[int]) -> tuple[str, list[int]] | None:
    """The operator, and its axes, that makes one shape of another by axes of one element alone; None where none does.

    Example:
        >>> n, h = symbol("N", 5), symbol("H", 7)
        >>> ones_between((n, h), (1, n, 1, h)), ones_between((n, 1, h), (n, h)), ones_between((n, h), (h, n))
        (('Unsqueeze', [0, 2]), ('Squeeze', [1]), None)
    """
    for op_type, few, many in (("Unsqueeze", before, after), ("Squeeze", after, before)):
        rest, axes = list(few), list[int]()
        for axis, size in enumerate(many):
            if rest and rest[0] == size:
                rest.pop(0)
            elif size == 1:
                axes.append(axis)
            else:
                break
        else:
            if axes and not rest:
                return op_type, axes
    return None


def total(sizes: Iterable[int]) -> int:
    """The product of sizes; NumPy's would forget what they stand for."""
    return math.prod(sizes)


def numbers(shape: Iterable[int]) -> tuple[int, ...]:
    """A shape as plain numbers."""
    return tuple(map(int, shape))


def is_open(size: object) -> bool:
    """Whether a size is known at run time only."""
    return isinstance(size, Size)


def can_be_read(size: object) -> bool:
    """Whether a file can say a size: as a number, or as one of an input's."""
    return not isinstance(size, Size) or size.symbol is not None


def can_be_asked(shape: Iterable[int]) -> bool:
    """Whether a file can ask for a shape: one size at most follows from the others."""
    return sum(not can_be_read(size) for size in shape) < 2


def _terms(size: int) -> Terms:
    return size.terms if isinstance(size, Size) else {(): int(size)}


def _key(terms: Terms) -> tuple[Any, ...]:
    return tuple(sorted(terms.items(), key=repr))


def _with_terms(number: int, terms: Terms) -> Size:
    size = Size(number)
    size.terms = terms
    return size


def _atom(number: int, *words: Any) -> Size:
    return _with_terms(number, {(words,): 1})


def _size(number: int, terms: Terms) -> int:
    """A size, or a plain number where nothing is open."""
    left = {factors: count for factors, count in terms.items() if count}
    return _with_terms(number, left) if any(left) else int(number)


def _sum(left: int, right: int, sign: int) -> int:
    terms = dict(_terms(left))
    for factors, count in _terms(right).items():
        terms[factors] = terms.get(factors, 0) + sign * count
    return _size(int(left) + sign * int(right), terms)


def _floor(size: int, divisor: int) -> int:
    """A rounded quotient: what divides leaves it, so that the same sizes of windows are the same."""
    if not isinstance(size, Size) or isinstance(divisor, Size) or divisor < 1:
        return _atom(int(size) // int(divisor), "//", _key(_terms(size)), _key(_terms(divisor)))
    # What divides leaves it: k of the constant as k // divisor, and all of what is a multiple.
    outside = {factors: n // divisor for factors, n in size.terms.items() if not factors or n % divisor == 0}
    inside = {factors: n - divisor * outside.get(factors, 0) for factors, n in size.terms.items()}
    shared = math.gcd(divisor, *(n for factors, n in inside.items() if factors))
    rest = {factors: n // shared for factors, n in inside.items() if n // shared}
    if any(rest):
        factors = (("//", _key(rest), divisor // shared),)
        outside[factors] = outside.get(factors, 0) + 1
    return _size(int(size) // divisor, outside)
