"""Enumeration of all small expressions, distinguished by fingerprints in finite fields.

Terms are built bottom-up: level 0 holds the variables, level n all operators on terms whose levels sum to n - 1
(observational equivalence: of terms with one value, only the first is built upon). Operands of one type are evaluated
together in NumPy. A *world* is a shape environment with a prime and a seed. Lower levels are distinguished in all
worlds; the last level in the first world, and in all others wherever two terms agree in it. Two different polynomials
of degree d agree at a random point with probability at most d / prime in each world (Schwartz-Zippel).
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from deep500.transformations.substitutions.operators.arithmetic import Array
from deep500.transformations.substitutions.operators.specification import operator
from deep500.transformations.substitutions.proofs.prime_fields import PRIMES, Prime
from deep500.transformations.workshop.substitutions.menu import CORE, Menu, OperatorCall
from deep500.transformations.workshop.substitutions.terms import (
    ENVIRONMENTS,
    Expression,
    Term,
    Type,
    Variable,
    kind_type,
    parameters_at,
)

COUNTS = {"x": 3, "w": 3, "i": 3, "a": 3, "d": 3, "e": 3, "g": 1, "s": 1}  # variables of each kind
CHUNK = 2_000_000  # elements evaluated at a time: bounds the memory of the last level


@dataclass
class Block:
    """Terms of one level and type: their numbers, and their values in every world, kept as float32: residues below
    2**24 are exact in it, and they are most of the memory.
    """

    type: Type
    numbers: Array
    values: list[Array]


@dataclass
class Batch:
    """Terms proposed by one call on pairs of operands: operands' numbers (-1: none) and fingerprints per world."""

    call: OperatorCall
    left: Array
    right: Array
    hashes: Array  # (worlds evaluated, terms)
    values: list[Array] = field(default_factory=list)


class Enumeration:
    """All terms of up to ``depth`` operators.

    Args:
        depth: greatest number of operators, counted as in a tree; 1 to 4.
        seed: of the random values; the same seed gives the same terms and fingerprints.
        counts: variables of each kind (keys of `terms.KINDS`); fewer make a smaller language.
        menu: operators and constants.

    Attributes:
        tried: terms evaluated, including variables.
        call, left, right: per term: index into ``calls`` (-1: a variable) and numbers of its operands (-1: none).
        hashes: per term: fingerprint in all worlds (last level: 0 where no other term agrees in the first world).
        groups: lists of numbers of terms that agree in all worlds, each in order of size.

    Example:
        >>> terms = Enumeration(1, seed=0, counts={"x": 2})
        >>> from deep500.transformations.workshop.substitutions.terms import show
        >>> [[show(terms.term(number)) for number in group] for group in terms.groups]
        [['add(x1, x2)', 'add(x2, x1)'], ['mul(x1, x2)', 'mul(x2, x1)']]
    """

    def __init__(self, depth: int, seed: int = 0, counts: dict[str, int] | None = None, menu: Menu = CORE) -> None:
        self.worlds = [(environment, prime) for environment in range(ENVIRONMENTS) for prime in PRIMES]
        self.fields = [Prime(prime) for _, prime in self.worlds]
        self.random = np.random.default_rng(seed)
        self.depth, self.menu, self.calls, self.levels = depth, menu, [], [[]]
        self._calls: dict[OperatorCall, int] = {}
        self._types: dict[Type, int] = {}
        self._weights = self.random.integers(1, 2**63, 1 << 14, dtype=np.uint64) * np.uint64(2) + np.uint64(1)
        self.variables: list[Variable] = []
        self.call, self.left, self.right = (np.zeros(0, np.int32) for _ in range(3))
        self.hashes = np.zeros(0, np.uint64)
        self._where: list[tuple[Block, int]] = []
        self._add_variables(COUNTS if counts is None else counts)
        for level in range(1, depth + 1):
            self._grow(level)
        self.tried = len(self.call)
        self.groups = self._group()

    calls: list[OperatorCall]
    levels: list[list[Block]]

    def _add_variables(self, counts: dict[str, int]) -> None:
        for kind, count in counts.items():
            type_ = kind_type(kind)
            values = [
                self.random.integers(0, prime, (count, *type_[environment])).astype(np.float64)
                for environment, prime in self.worlds
            ]
            start = len(self.variables)
            self.variables += [Variable(kind, number) for number in range(1, count + 1)]
            block = Block(type_, np.arange(start, start + count), values)
            self.levels[0].append(block)
            self._where += [(block, position) for position in range(count)]
            hashes = self._combine(np.stack([self._hash(value, type_) for value in values]))
            self._append(-1, np.full(count, -1), np.full(count, -1), hashes)

    def _append(self, call: int, left: Array, right: Array, hashes: Array) -> None:
        self.call = np.concatenate([self.call, np.full(len(left), call, np.int32)])
        self.left = np.concatenate([self.left, left.astype(np.int32)])
        self.right = np.concatenate([self.right, right.astype(np.int32)])
        self.hashes = np.concatenate([self.hashes, hashes])

    def _hash(self, values: Array, type_: Type) -> Array:
        flat = values.reshape(len(values), -1).astype(np.int64).view(np.uint64)
        number = self._types.setdefault(type_, len(self._types) + 1)
        hashed: Array = (flat @ self._weights[: flat.shape[1]]) ^ (self._weights[-1:] * np.uint64(number))
        return hashed

    def _combine(self, hashes: Array) -> Array:
        """One fingerprint out of those of all worlds."""
        combined = np.zeros(hashes.shape[1], np.uint64)
        for row in hashes:
            combined = (combined ^ (combined >> np.uint64(29))) * self._weights[-2] + row
        return combined

    def _evaluate(self, call: OperatorCall, world: int, operands: list[Array]) -> Array:
        parameters = parameters_at(call.parameters, self.worlds[world][0])
        return operator(call.op).evaluate(self.fields[world], operands, parameters)[call.output]

    def _proposals(self, level: int) -> list[tuple[OperatorCall, list[Block], Array, Array]]:
        """(call, operand blocks, positions in the first, positions in the second) for all terms of a level."""
        proposals: list[tuple[OperatorCall, list[Block], Array, Array]] = []
        none = np.zeros(0, np.int64)
        if level == 1:
            proposals += [(call, [], none, none) for call in self.menu.leaves()]
        for block in self.levels[level - 1]:
            proposals += [(call, [block], np.arange(len(block.numbers)), none) for call in self.menu.unary(block.type)]
        for below in range(level):
            for left in self.levels[below]:
                for right in self.levels[level - 1 - below]:
                    for call in self.menu.binary(left.type, right.type):
                        first, second = np.indices((len(left.numbers), len(right.numbers))).reshape(2, -1)
                        if operator(call.op).commutative and level > 1:  # level 1 shows that the order is free
                            keep = left.numbers[first] <= right.numbers[second]
                            first, second = first[keep], second[keep]
                        if len(first):
                            proposals.append((call, [left, right], first, second))
        return proposals

    def _run(self, call: OperatorCall, blocks: list[Block], first: Array, second: Array, last: bool) -> Batch:
        worlds = range(1 if last else len(self.worlds))
        picks = [first, second][: len(blocks)]
        length = max(int(np.prod(shape)) for shape in call.type) * (9 if call.op in ("conv", "maxpool") else 1)
        step = max(1, CHUNK // max(1, length))
        hashes, values = [], []
        for world in worlds:
            if not blocks:
                parts = [self._evaluate(call, world, [])]
            else:
                spans = range(0, len(first), step)
                operands = (
                    [
                        block.values[world][pick[s : s + step]].astype(np.float64)
                        for block, pick in zip(blocks, picks, strict=True)
                    ]
                    for s in spans
                )
                parts = [self._evaluate(call, world, chunk) for chunk in operands] if not last else []
                if last:
                    hashes.append(
                        np.concatenate(
                            [self._hash(self._evaluate(call, world, chunk), call.type) for chunk in operands]
                        )
                    )
            if parts:
                whole = np.concatenate(parts)
                hashes.append(self._hash(whole, call.type))
                values.append(whole)
        numbers = [block.numbers[pick] for block, pick in zip(blocks, picks, strict=True)]
        absent = np.full(len(hashes[0]), -1)
        left, right = [*numbers, absent, absent][:2]
        return Batch(call, left, right, np.stack(hashes), values)

    def _grow(self, level: int) -> None:
        last = level == self.depth
        batches = [self._run(*proposal, last) for proposal in self._proposals(level)]
        start = len(self.call)
        index = [self._calls.setdefault(batch.call, len(self._calls)) for batch in batches]
        self.calls = list(self._calls)
        sizes = [len(batch.left) for batch in batches]
        self.call = np.concatenate([self.call, np.repeat(np.array(index, np.int32), sizes)])
        self.left = np.concatenate([self.left, *(batch.left.astype(np.int32) for batch in batches)])
        self.right = np.concatenate([self.right, *(batch.right.astype(np.int32) for batch in batches)])
        if last:
            self._finish(start, np.concatenate([batch.hashes[0] for batch in batches]))
            return
        self.hashes = np.concatenate([self.hashes, *(self._combine(batch.hashes) for batch in batches)])
        fresh = np.zeros(len(self.hashes), bool)
        fresh[np.unique(self.hashes, return_index=True)[1]] = True
        self._keep(batches, sizes, start, fresh)

    def _keep(self, batches: list[Batch], sizes: list[int], start: int, fresh: Array) -> None:
        """Make blocks of the level's new terms; terms of one type lie in one block."""
        by_type: dict[Type, list[tuple[Array, list[Array]]]] = {}
        for batch, size in zip(batches, sizes, strict=True):
            keep = fresh[start : start + size]
            if keep.any():
                part = (np.flatnonzero(keep) + start, [array[keep] for array in batch.values])
                by_type.setdefault(batch.call.type, []).append(part)
            start += size
        self._where += [(None, 0)] * (len(self.call) - len(self._where))  # type: ignore[list-item]
        self.levels.append([])
        for type_, parts in by_type.items():
            numbers = np.concatenate([part[0] for part in parts])
            values = [
                np.concatenate([part[1][w] for part in parts]).astype(np.float32) for w in range(len(self.worlds))
            ]
            block = Block(type_, numbers, values)
            self.levels[-1].append(block)
            for position, number in enumerate(numbers):
                self._where[number] = (block, position)

    def _finish(self, start: int, first: Array) -> None:
        """Evaluate, in all worlds, the terms of the last level that share their first fingerprint with another."""
        below = [(block.numbers, self._hash(block.values[0], block.type)) for level in self.levels for block in level]
        known = np.concatenate([hashes for _, hashes in below])
        _, inverse, count = np.unique(np.concatenate([known, first]), return_inverse=True, return_counts=True)
        shared = np.flatnonzero(count[inverse[len(known) :]] > 1) + start
        self.hashes = np.concatenate([self.hashes, np.zeros(len(first), np.uint64)])
        order = shared[np.argsort(self.call[shared], kind="stable")]
        bounds = np.flatnonzero(np.diff(self.call[order])) + 1
        for numbers in np.split(order, bounds):
            if len(numbers):
                self.hashes[numbers] = self._combine(self._full(numbers))

    def _full(self, numbers: Array) -> Array:
        """Fingerprints in all worlds of terms made by one call on terms of lower levels."""
        call = self.calls[self.call[numbers[0]]]
        by_blocks: dict[tuple[int, int], list[int]] = {}
        for position, number in enumerate(numbers):
            operands = [operand for operand in (self.left[number], self.right[number]) if operand >= 0]
            key = tuple(id(self._where[operand][0]) for operand in operands)
            by_blocks.setdefault(key, []).append(position)  # type: ignore[arg-type]
        hashes = np.zeros((len(self.worlds), len(numbers)), np.uint64)
        for positions in by_blocks.values():
            chosen = numbers[positions]
            sides = [side[chosen] for side in (self.left, self.right) if side[chosen[0]] >= 0]
            blocks = [self._where[side[0]][0] for side in sides]
            picks = [np.array([self._where[operand][1] for operand in side]) for side in sides]
            for world in range(len(self.worlds)):
                operands = [
                    block.values[world][pick].astype(np.float64) for block, pick in zip(blocks, picks, strict=True)
                ]
                values = self._evaluate(call, world, operands)
                hashes[world, positions] = self._hash(values, call.type)
        return hashes

    def _group(self) -> list[list[int]]:
        numbers = np.flatnonzero(self.hashes)
        order = numbers[np.argsort(self.hashes[numbers], kind="stable")]
        bounds = np.flatnonzero(np.diff(self.hashes[order])) + 1
        groups = [part.tolist() for part in np.split(order, bounds) if len(part) > 1]
        return sorted(groups)

    def term(self, number: int) -> Expression:
        """The expression of a term's number."""
        if self.call[number] < 0:
            return self.variables[number]
        call = self.calls[self.call[number]]
        operands = [int(operand) for operand in (self.left[number], self.right[number]) if operand >= 0]
        return Term(call.op, call.parameters, tuple(self.term(operand) for operand in operands), call.output)
