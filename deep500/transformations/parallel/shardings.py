"""How a tensor lies on several ranks, and the change from one way to another: the algebra of parallel plans.

There is one axis of ranks. On it every value of the serial network has one :class:`Sharding`:

* ``R``: replicated, each rank has the whole;
* ``S0``, ``S1``, ...: split along an axis, each rank has a piece (:func:`pieces`);
* ``P``, ``Pmax``, ``Pmin``: partial, each rank has a term, and the value is their sum (maximum, minimum);
* ``L0``: split along axis 0, and the numbers in it, positions in a flattened tensor, count from the rank's own piece.

:func:`conversion` says which collective leads from one to another, and what it costs. Names follow GSPMD (Xu et al.
2021, arXiv 2105.04663) and PyTorch's DTensor.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from deep500.errors import PlanError

REDUCTIONS = ("sum", "max", "min")
"""Ways in which the terms of partial values are combined."""

_TEXT = re.compile(r"R|S(\d+)|L(\d+)|P(max|min)?")


class Sharding(NamedTuple):
    """How a tensor lies on the ranks.

    Attributes:
        kind: ``"R"``, ``"S"``, ``"P"`` or ``"L"``, see the top of this file.
        axis: of the split; 0 without one.
        reduction: of partial values; ``""`` for others.

    Example:
        >>> str(Sharding("S", 1)), Sharding.parse("Pmax")
        ('S1', Sharding(kind='P', axis=0, reduction='max'))
    """

    kind: str
    axis: int = 0
    reduction: str = ""

    def __str__(self) -> str:
        if self.kind in "SL":
            return f"{self.kind}{self.axis}"
        return self.kind + ("" if self.reduction in ("", "sum") else self.reduction)

    @classmethod
    def parse(cls, text: str) -> Sharding:
        """The sharding that is written so; raises PlanError for anything else."""
        match = _TEXT.fullmatch(text)
        if match is None:
            raise PlanError(f"got sharding {text!r}; expected R, S0, S1, ..., P, Pmax, Pmin or L0: correct it")
        if text[0] in "SL":
            return cls(text[0], int(match[1] or match[2]))
        return cls(text[0], 0, (match[3] or "sum") if text[0] == "P" else "")


R = Sharding("R")
"""Replicated."""
PARTIAL = Sharding("P", 0, "sum")
"""Terms of a sum."""
LOCAL = Sharding("L", 0)
"""Positions that count from each rank's own piece."""


def split(axis: int) -> Sharding:
    """Split along an axis."""
    return Sharding("S", axis)


def pieces(size: int, ranks: int) -> tuple[int, ...]:
    """Sizes of the ranks' pieces of an axis: they differ by one at most, the larger ones first.

    Example:
        >>> pieces(7, 3), pieces(4, 2)
        ((3, 2, 2), (2, 2))
    """
    least, more = divmod(size, ranks)
    return tuple(least + (rank < more) for rank in range(ranks))


def piece(size: int, ranks: int, rank: int) -> slice:
    """The part of an axis that a rank has.

    Example:
        >>> piece(7, 3, 1)
        slice(3, 5, None)
    """
    sizes = pieces(size, ranks)
    return slice(sum(sizes[:rank]), sum(sizes[: rank + 1]))


def local_shape(shape: Sequence[int], sharding: Sharding, ranks: int, rank: int) -> tuple[int, ...]:
    """Shape of a rank's part of a tensor.

    Example:
        >>> local_shape((4, 5), split(1), 2, 0)
        (4, 3)
    """
    if sharding.kind not in "SL":
        return tuple(shape)
    return tuple(pieces(n, ranks)[rank] if axis == sharding.axis else n for axis, n in enumerate(shape))


class Resharding(NamedTuple):
    """A change of sharding.

    Attributes:
        collective: type of its node of domain ``deep500``; ``"Slice"`` or ``"Once"`` (zero on all ranks but the first)
            where nothing is sent, ``""`` where nothing is done.
        nbytes: bytes that each rank hands to the communicator.
        messages, volume, summed: the time is ``messages * latency + volume * seconds per byte`` and seconds of adding
            up ``summed`` bytes, by recursive halving and doubling (Thakur et al. 2005, doi 10.1177/1094342005051521).
    """

    collective: str
    nbytes: int
    messages: float
    volume: float
    summed: float = 0.0


NOTHING = Resharding("", 0, 0.0, 0.0)
"""No change."""


def conversion(before: Sharding, after: Sharding, shape: Sequence[int], itemsize: int, ranks: int) -> Resharding | None:
    """The collective between two shardings of a tensor; None if there is none.

    Args:
        before: as its producer leaves it.
        after: as a consumer wants it.
        shape: of the whole tensor.
        itemsize: bytes of an element.
        ranks: how many.

    Example:
        >>> conversion(PARTIAL, R, (4, 4), 8, 2)
        Resharding(collective='AllReduce', nbytes=128, messages=2, volume=128.0, summed=64.0)
        >>> conversion(R, split(0), (4, 4), 8, 2).collective, conversion(R, Sharding("P", 0, "max"), (4,), 8, 2)
        ('Slice', None)
    """
    whole = math.prod(shape) * itemsize
    p, share, rounds = ranks, (ranks - 1) / ranks, (ranks - 1).bit_length()
    largest = [math.prod(shape) // max(n, 1) * -(-n // p) * itemsize for n in shape]  # bytes of a piece, filled up
    if before == after:
        return NOTHING
    if before == R:
        if after.kind == "S":
            return Resharding("Slice", 0, 0.0, 0.0)
        return Resharding("Once", 0, 0.0, 0.0) if after == PARTIAL else None
    if before.kind == "P" and after == R:
        if before == PARTIAL:
            return Resharding("AllReduce", whole, 2 * rounds, 2 * whole * share, whole * share)
        return Resharding("AllReduce", whole, rounds, p * whole * share)  # gathered and combined
    if before == PARTIAL and after.kind == "S":
        return Resharding("ReduceScatter", largest[after.axis] * p, rounds, whole * share, whole * share)
    if before.kind == "S" and after == R:
        return Resharding("AllGather", largest[before.axis], rounds, whole * share)
    if before.kind == "S" and after.kind == "S":
        sent = math.prod(shape) * itemsize / p * share
        return Resharding("AllToAll", round(sent), p - 1, sent)
    return None


def collective_attributes(
    before: Sharding, after: Sharding, shape: Sequence[int], ranks: int, rank: int
) -> Mapping[str, Any]:
    """Attributes of the collective between two shardings, on one rank.

    Example:
        >>> dict(collective_attributes(PARTIAL, split(0), (5, 2), 2, 1))
        {'axis': 0, 'sizes': (3, 2), 'rank': 1, 'reduction': 'sum', 'group': 'ranks'}
    """
    group = {"group": "ranks"}
    if before.kind == "P" and after == R:
        return {"reduction": before.reduction, **group}
    cut = {} if after == R else {"axis": after.axis, "sizes": pieces(shape[after.axis], ranks), "rank": rank}
    if before.kind == "P":
        return {**cut, "reduction": before.reduction, **group}
    if after == R:
        return {"axis": before.axis, "sizes": pieces(shape[before.axis], ranks), **group}
    return {**cut, "gather_axis": before.axis, "gather_sizes": pieces(shape[before.axis], ranks), **group}
