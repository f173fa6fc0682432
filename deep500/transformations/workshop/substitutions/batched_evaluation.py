"""Values of an axiom's patterns for many combinations of sizes at once.

Combinations in which a pattern's own variables have the same shapes share its value, and operands of equal shapes are
stacked along the batch axis that every evaluator has.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from deep500.transformations.substitutions.operators.arithmetic import Array
from deep500.transformations.substitutions.operators.specification import Shape
from deep500.transformations.substitutions.proofs.prime_fields import Prime
from deep500.transformations.substitutions.rules.patterns import CONSTANTS, Pattern, arguments, literal
from deep500.transformations.workshop.substitutions.combinations import Columns, Legal, infer, specification

Part = tuple[Array, Array]  # rows, and their values, all of one shape


def count_rows(columns: Columns) -> int:
    """Number of rows of a table."""
    return len(next(iter(columns.values()))) if columns else 0


def groups(labels: Array) -> Iterator[tuple[tuple[int, ...], Array]]:
    """Every column that occurs, and where."""
    key = np.zeros(labels.shape[1], np.int64)
    for row in labels:
        key = key * (int(row.max(initial=0)) + 1) + row
    order = np.argsort(key, kind="stable")
    for part in np.split(order, np.flatnonzero(np.diff(key[order])) + 1):
        if len(part):
            yield tuple(labels[:, part[0]].tolist()), part


class Values:
    """Values of patterns for many combinations at once.

    Args:
        numbers: the field.
        seed: of the residues; a variable has the same in all combinations that give it one shape.
        legal: shapes that columns stand for, and parameters that are the same in all rows.
    """

    def __init__(self, numbers: Prime, seed: int, legal: Legal) -> None:
        self.numbers, self.seed, self.legal = numbers, seed, legal

    def parts(self, pattern: Pattern, columns: Columns) -> list[Part]:
        """Rows and values, by shape; rows for which the pattern does not fit together are in none.

        A pattern is evaluated once for all rows in which its own variables have the same shapes.
        """
        mine = [name for name in sorted(_names(pattern)) if name in columns]
        if not mine:
            shared = self._apply(pattern, {"": np.zeros(1, np.int64)})
            return [(np.arange(count_rows(columns)), np.repeat(value, count_rows(columns), 0)) for _, value in shared]
        key = np.zeros(count_rows(columns), np.int64)
        for name in mine:
            key = key * (int(columns[name].max()) + 1) + columns[name]
        _, first, back = np.unique(key, return_index=True, return_inverse=True)
        by_shape = []
        for rows, values in self._apply(pattern, {name: columns[name][first] for name in mine}):
            position = np.full(len(first), -1)
            position[rows] = np.arange(len(rows))
            selected = position[back]
            by_shape.append((np.flatnonzero(selected >= 0), values[selected[selected >= 0]]))
        return by_shape

    def _apply(self, pattern: Pattern, columns: Columns) -> list[Part]:
        if isinstance(pattern, str):
            return [
                (rows, self._variable(pattern, shape, len(rows))) for shape, rows in self._by_shape(pattern, columns)
            ]
        names, words, inputs = arguments(pattern)
        if pattern[0] in CONSTANTS:
            shaped = [(rows, shape) for shape, rows in self._by_shape(words[0], columns)]
            fits = [(rows, shape) for rows, shape in shaped if infer(pattern[0], (), {"shape": shape}) is not None]
            return [(rows, self._operate(pattern[0], [], {"shape": shape}, len(rows))) for rows, shape in fits]
        operands = [self.parts(operand, columns) for operand in inputs]
        values = {name: self._parameter(word, name, columns) for name, word in zip(names, words, strict=True)}
        return self._operations(pattern[0], operands, values, count_rows(columns))

    def _by_shape(self, name: str, columns: Columns) -> list[tuple[Shape, Array]]:
        domain = self.legal.domains[name]
        return [(domain[code], rows) for (code,), rows in groups(columns[name][None])]

    def _variable(self, name: str, shape: Shape, count: int) -> Array:
        generator = np.random.default_rng([self.seed, zlib.crc32(name.encode()), *shape])
        value = generator.integers(0, self.numbers.prime, (1, *shape)).astype(np.float64)
        return np.broadcast_to(value, (count, *shape))

    def _parameter(self, word: str, name: str, columns: Columns) -> Any:
        value = literal(word, name)
        return columns.get(word, self.legal.known.get(word)) if value is None else value

    def _operations(self, op: str, operands: list[list[Part]], values: Mapping[str, Any], count: int) -> list[Part]:
        """Apply an operator to the rows of every choice of shapes and parameters."""
        varying = {name: value for name, value in values.items() if isinstance(value, np.ndarray)}
        labels = np.zeros((len(operands) + len(varying), count), np.int64) - 1
        places = np.zeros((len(operands), count), np.int64)
        for n, parts in enumerate(operands):
            for label, (rows, _) in enumerate(parts):
                labels[n, rows], places[n, rows] = label, np.arange(len(rows))
        for n, value in enumerate(varying.values(), len(operands)):
            labels[n] = value
        whole = np.flatnonzero((labels >= 0).all(0))
        results = []
        for chosen, part in groups(labels[:, whole]):
            rows = whole[part]
            arrays = [
                parts[label][1][place[rows]] for parts, label, place in zip(operands, chosen, places, strict=False)
            ]
            known = {**values, **dict(zip(varying, chosen[len(operands) :], strict=True))}
            shapes = [array.shape[1:] for array in arrays]
            fits = infer(op, shapes, known) is not None and (op != "concat" or shapes[0][known["axis"]] == known["cut"])
            if fits:
                results.append((rows, self._operate(op, arrays, known, len(rows))))
        return results

    def _operate(self, op: str, arrays: list[Array], known: Mapping[str, Any], count: int) -> Array:
        name = known["function"] if op == "unary" else op
        spec = specification(name)
        parameters = {parameter: value for parameter, value in known.items() if parameter in spec.parameters}
        value = spec.evaluate(self.numbers, arrays, parameters)[known.get("output", 0)]
        return np.broadcast_to(value, (count, *value.shape[1:]))


def _names(pattern: Pattern) -> set[str]:
    """Words of a pattern that may be columns."""
    return {pattern} if isinstance(pattern, str) else set().union(*(_names(word) for word in pattern[1:]))
