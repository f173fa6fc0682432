"""All combinations of sizes and parameters, from small sets, for which a pattern of an axiom fits together.

Sizes come from one set, kernel sizes from another (Jia et al., TASO: sizes 1 to 4, kernels of 1 and 3). Choices are
joined bottom-up by shape, as relations are: a table of all choices of all variables would have billions of rows.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from deep500.transformations.substitutions.operators.arithmetic import Array
from deep500.transformations.substitutions.operators.elementwise import ACTIVATIONS
from deep500.transformations.substitutions.operators.specification import Shape, ShapeMismatch, operator
from deep500.transformations.substitutions.proofs.validation import RANKED, operand_ranks, walk
from deep500.transformations.substitutions.rules.patterns import CONSTANTS, Pattern, arguments, literal

Columns = dict[str, Array]  # variable or constant's shape: index into its domain; derived parameter: its value
Tables = dict[Shape, Columns]  # of one pattern: its shape -> all choices that give it

STRIDES = ((1, 1), (2, 1))
PADS = ((0, 0, 0, 0), (1, 1, 1, 1), (0, 1, 1, 2))
DILATIONS = ((1, 1), (2, 2))


@dataclass(frozen=True)
class Space:
    """Sizes that are combined.

    Attributes:
        sizes: of axes, and numbers of groups.
        kernels: heights and widths of kernels.
    """

    sizes: tuple[int, ...] = (1, 2, 3, 4)
    kernels: tuple[int, ...] = (1, 3)

    def parameter(self, kind: str, rank: int) -> Sequence[Any]:
        """Values of a parameter that no shape determines.

        Raises:
            ShapeMismatch: parameters of this kind cannot be enumerated.
        """
        windows = tuple(itertools.product(self.kernels, repeat=2))
        # fmt: off
        known: dict[str, Sequence[Any]] = {
            "kernel": windows, "source": windows, "target": windows, "groups": self.sizes, "factor": self.sizes,
            "strides": STRIDES, "pads": PADS, "dilations": DILATIONS, "axis": range(rank), "output": (0, 1),
            "function": tuple(ACTIVATIONS), "count_padding": (False, True), "cut": self.sizes,
            "perm": tuple(itertools.permutations(range(rank))),
        }
        # fmt: on
        if kind not in known:
            raise ShapeMismatch(f"got a free parameter {kind!r}; expected one of {sorted(known)}; name its values here")
        return known[kind]

    def shapes(self, rank: int, tail: Shape | None) -> list[Shape]:
        """Shapes of a variable; ``tail``: height and width of a kernel."""
        axes = [self.sizes] * rank if tail is None else [*[self.sizes] * (rank - len(tail)), *((n,) for n in tail)]
        return list(itertools.product(*axes))

    def constants(self, op: str, rank: int) -> list[Shape]:
        """Shapes of a constant."""
        if op == "ones":
            return self.shapes(rank, None)
        if op == "identity":
            return [(n, n) for n in self.sizes]
        windows = itertools.product(self.kernels, repeat=2)
        pairs = [(o, i) for o, i in itertools.product(self.sizes, repeat=2) if o % i == 0]
        chosen = [(o, i, *window) for window in windows for o, i in pairs]
        return [shape for shape in chosen if op == "identity_kernel" or shape[1] == 1]


def ranks(first: Pattern, second: Pattern) -> tuple[int, ...]:
    """Ranks for which an axiom is meant: one if an operator of either side says so."""
    known = {RANKED[op] for side in (first, second) for op in _operators(side) if op in RANKED}
    return (min(known),) if known else (2, 4)


def _operators(pattern: Pattern) -> Iterator[str]:
    if isinstance(pattern, list):
        yield pattern[0]
        for part in pattern[1:]:
            yield from _operators(part)


def configurations(first: Pattern, space: Space, rank: int) -> Iterator[dict[str, Any]]:
    """All values of the parameters that the pattern's shapes do not determine."""
    free: dict[str, str] = {}
    for op, kind, word in walk(first):
        if literal(word, kind) is None and op not in CONSTANTS and (kind != "cut" or word in _cuts(first)):
            free.setdefault(word, kind)
    for values in itertools.product(*(space.parameter(kind, rank) for kind in free.values())):
        yield dict(zip(free, values, strict=True))


def _cuts(pattern: Pattern) -> set[str]:
    """Cuts of splits that no concatenation below determines."""
    if isinstance(pattern, str):
        return set()
    inner = set().union(*(_cuts(part) for part in pattern[1:]))
    below = {word for op, kind, word in walk(pattern) if op == "concat" and kind == "cut"}
    return inner | ({pattern[3]} - below if pattern[0] == "split" else set())


class Legal:
    """The choices for which a pattern fits together, under one configuration.

    Args:
        space: sizes that are combined.
        rank: of tensors that no operator ranks.
        known: values of parameters.

    Attributes:
        domains: variable or constant's shape -> its shapes; columns hold indices into them.

    Example:
        >>> tables = Legal(Space((2, 3)), 2, {}).tables(["matmul", "x", "y"])
        >>> sorted((shape, len(columns["x"])) for shape, columns in tables.items())
        [((2, 2), 2), ((2, 3), 2), ((3, 2), 2), ((3, 3), 2)]
    """

    def __init__(self, space: Space, rank: int, known: Mapping[str, Any]) -> None:
        self.space, self.rank, self.known = space, rank, known
        self.domains: dict[str, list[Shape]] = {}

    def tables(self, pattern: Pattern) -> Tables:
        """All choices, by the pattern's shape."""
        return self._tables(pattern, self.rank, None)

    def _leaf(self, name: str, shapes: list[Shape]) -> Tables:
        domain = self.domains.setdefault(name, shapes)
        return {shape: {name: np.array([n])} for n, shape in enumerate(domain)}

    def _tables(self, pattern: Pattern, rank: int, tail: Shape | None) -> Tables:
        if isinstance(pattern, str):
            return self._leaf(pattern, self.space.shapes(rank, tail))
        names, words, inputs = arguments(pattern)
        if pattern[0] in CONSTANTS:
            return self._leaf(words[0], self.space.constants(pattern[0], rank))
        known = {name: self._value(word, name) for name, word in zip(names, words, strict=True)}
        ranks = operand_ranks(pattern[0], known, rank, tail)
        parts = [self._tables(operand, *want) for operand, want in zip(inputs, ranks, strict=True)]
        cut = words[1] if pattern[0] == "concat" else None
        missing = {
            name: word for name, word in zip(names, words, strict=True) if known[name] is None and word is not cut
        }
        rows_by_shape: dict[Shape, list[Columns]] = {}
        for shapes, sides, whole in self._fitting(pattern[0], parts, known, missing):
            rows = join(sides)
            if cut:
                rows = bind(rows, cut, shapes[0][whole["axis"]], self.known)
            if len(next(iter(rows.values()))):
                shape = infer(pattern[0], shapes, whole)
                rows_by_shape.setdefault(shape, []).append(rows)  # type: ignore[arg-type]
        return {shape: _stack(several) for shape, several in rows_by_shape.items()}

    def _fitting(
        self, op: str, parts: list[Tables], known: Mapping[str, Any], missing: Mapping[str, str]
    ) -> Iterator[tuple[list[Shape], list[Columns], Mapping[str, Any]]]:
        """Operands' shapes and rows, and parameters, for which the operator has a shape."""
        if len(parts) == 2:
            key = tuple(sorted(known.items()))
            rights = frozenset(parts[1])
            for left, columns in parts[0].items():
                for right in _partners(op, key, left, rights):
                    yield [left, right], [columns, parts[1][right]], known
            return
        for chosen in itertools.product(*(part.items() for part in parts)):
            shapes = [shape for shape, _ in chosen]
            for values, rows in _by_value([columns for _, columns in chosen], missing):
                whole = {**known, **values}
                if infer(op, shapes, whole) is not None:
                    yield shapes, rows, whole

    def _value(self, word: str, name: str) -> Any:
        value = literal(word, name)
        return self.known.get(word) if value is None else value


specification = functools.cache(operator)  # looked up millions of times


def infer(op: str, shapes: Sequence[Shape], known: Mapping[str, Any]) -> Shape | None:
    """Shape of a pattern's operator; None where it does not fit together."""
    if op == "unary":
        return shapes[0]
    spec = specification(op)
    parameters = {name: value for name, value in known.items() if name in spec.parameters}
    try:
        return spec.infer(shapes, parameters)[known.get("output", 0)]
    except ShapeMismatch:
        return None


@functools.lru_cache(maxsize=1 << 18)
def _partners(op: str, known: tuple[tuple[str, Any], ...], left: Shape, rights: frozenset[Shape]) -> list[Shape]:
    """Second operands that fit a first one: the same few sets of shapes meet under hundreds of configurations."""
    return [right for right in sorted(rights) if infer(op, [left, right], dict(known)) is not None]


def join(sides: Sequence[Columns]) -> Columns:
    """Rows of all sides that agree where two have a column of one name."""
    joined = sides[0]
    for side in sides[1:]:
        shared = joined.keys() & side.keys()
        left, right = (len(next(iter(table.values()))) for table in (joined, side))
        keep = np.ones((left, right), bool)
        for name in shared:
            keep &= joined[name][:, None] == side[name]
        first, second = np.nonzero(keep)
        joined = {
            **{name: column[first] for name, column in joined.items()},
            **{name: column[second] for name, column in side.items()},
        }
    return joined


def bind(columns: Columns, name: str, value: Any, known: Mapping[str, Any]) -> Columns:
    """Rows where a parameter is ``value`` (a number, or one per row); it becomes a column if nothing names it yet."""
    count = len(next(iter(columns.values())))
    value = np.broadcast_to(np.asarray(value), (count,))
    present = columns.get(name, known.get(name))
    if present is None:
        return {**columns, name: value}
    keep = np.broadcast_to(present == value, (count,))
    return {key: column[keep] for key, column in columns.items()}


def _by_value(sides: list[Columns], missing: Mapping[str, str]) -> Iterator[tuple[dict[str, Any], list[Columns]]]:
    """Rows by the values of parameters that columns of an only operand hold: a split's cut, of a concatenation."""
    if not missing:
        yield {}, sides
        return
    ((name, word),), (columns,) = missing.items(), sides
    for value in np.unique(columns[word]):
        keep = columns[word] == value
        yield {name: int(value)}, [{key: column[keep] for key, column in columns.items()}]


def _stack(several: list[Columns]) -> Columns:
    return {name: np.concatenate([table[name] for table in several]) for name in several[0]}
