"""Costs of collectives on a network: LogGP's latency and gap per byte, and the algorithms that MPI libraries have.

A message of n bytes between two processes takes ``alpha + n beta`` seconds (Alexandrov, Ionescu, Schauser and Scheiman
1995, *LogGP*: ``alpha = L + 2 o``, ``beta = G``), adding up n bytes takes ``n gamma``, every process sends and receives
one message at a time, and messages of different pairs do not disturb each other. On that model Thakur, Rabenseifner and
Gropp 2005, *Optimization of collective communication operations in MPICH* (sections 3 and 4) give the costs below; a
collective costs what the cheapest of its algorithms does, since that is what a tuned library runs.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from deep500.errors import InputError


@dataclass(frozen=True)
class Interconnect:
    """A network between ranks.

    Attributes:
        alpha: seconds per message.
        beta: seconds per byte.
        gamma: seconds per byte of a sum.

    Raises:
        InputError: negative numbers, or all of them 0.

    Example:
        >>> Interconnect.parse("alpha=1e-6, beta=1e-9,gamma=1e-10").send(1000) == 1e-6 + 1000 * 1e-9
        True
    """

    alpha: float
    beta: float
    gamma: float = 0.0

    def __post_init__(self) -> None:
        numbers = (self.alpha, self.beta, self.gamma)
        if min(numbers) < 0 or not max(numbers) > 0 or not all(map(math.isfinite, numbers)):
            raise InputError(
                f"got alpha={self.alpha}, beta={self.beta}, gamma={self.gamma}; expected seconds per message, per byte "
                "and per byte of a sum, none of them negative: such as alpha=2e-6,beta=1e-10,gamma=5e-11"
            )

    @classmethod
    def parse(cls, text: str) -> Interconnect:
        """From ``alpha=..,beta=..,gamma=..``; raises InputError."""
        numbers: dict[str, float] = {}
        for word in text.split(","):
            name, _, number = (part.strip() for part in word.partition("="))
            try:
                numbers[name] = float(number)
            except ValueError:
                numbers[name] = math.nan
        if not {"alpha", "beta"} <= set(numbers) <= {"alpha", "beta", "gamma"} or any(
            map(math.isnan, numbers.values())
        ):
            raise InputError(
                f"got network {text!r}; expected seconds, as in alpha=2e-6,beta=1e-10,gamma=5e-11, or: measured"
            )
        return cls(**numbers)

    def send(self, count: float) -> float:
        """One message of ``count`` bytes."""
        return self.alpha + count * self.beta

    def __str__(self) -> str:
        a, b, c = 1e6 * self.alpha, 1e9 * self.beta, 1e9 * self.gamma
        return f"alpha {a:.3g} us, beta {b:.3g} ns/B, gamma {c:.3g} ns/B"


def all_reduce(net: Interconnect, ranks: int, count: float) -> float:
    """Seconds of an all-reduce of ``count`` bytes, by the cheapest of five algorithms.

    Recursive doubling, Rabenseifner's, a ring, a reduce-scatter with an all-gather, a reduction with a broadcast.

    Example:
        >>> net = Interconnect(alpha=1.0, beta=1.0, gamma=1.0)
        >>> all_reduce(net, 1, 100.0), all_reduce(net, 4, 0.0), all_reduce(net, 4, 400.0)
        (0.0, 2.0, 904.0)
    """
    if ranks == 1:
        return 0.0
    steps, fold = _halvings(net, ranks, count)
    part = (_power(ranks) - 1) / _power(ranks) * count
    doubling = steps * (net.send(count) + count * net.gamma) + fold
    halving = 2 * steps * net.alpha + 2 * part * net.beta + part * net.gamma + fold
    share = (ranks - 1) / ranks * count
    ring = 2 * (ranks - 1) * net.alpha + 2 * share * net.beta + share * net.gamma
    in_parts = reduce_scatter(net, ranks, count) + all_gather(net, ranks, count / ranks)
    to_one = reduce(net, ranks, count) + broadcast(net, ranks, count)
    return min(doubling, halving, ring, in_parts, to_one)


def reduce(net: Interconnect, ranks: int, count: float) -> float:
    """Seconds of a reduction to one rank: a binomial tree, or a reduce-scatter and a gather."""
    if ranks == 1:
        return 0.0
    steps, fold = _halvings(net, ranks, count)
    fold -= net.send(count) if fold else 0.0  # nobody fetches anything
    part, share = (_power(ranks) - 1) / _power(ranks) * count, (ranks - 1) / ranks * count
    tree = _depth(ranks) * (net.send(count) + count * net.gamma)
    halving = 2 * steps * net.alpha + 2 * part * net.beta + part * net.gamma + fold
    in_pairs = (ranks - 1 + _depth(ranks)) * net.alpha + share * (2 * net.beta + net.gamma)
    return min(tree, halving, in_pairs)


def broadcast(net: Interconnect, ranks: int, count: float) -> float:
    """Seconds of a broadcast: a binomial tree, or van de Geijn's scatter and all-gather."""
    if ranks == 1:
        return 0.0
    scatter = _depth(ranks) * net.alpha + (ranks - 1) / ranks * count * net.beta
    return min(_depth(ranks) * net.send(count), scatter + all_gather(net, ranks, count / ranks))


def all_gather(net: Interconnect, ranks: int, count: float) -> float:
    """Seconds until every rank has the ``count`` bytes of all ranks: Bruck's algorithm (1997) or a ring."""
    if ranks == 1:
        return 0.0
    return _depth(ranks) * net.alpha + (ranks - 1) * count * net.beta


def reduce_scatter(net: Interconnect, ranks: int, count: float) -> float:
    """Seconds until every rank has its part of the sum of ``count`` bytes: recursive halving, or in pairs."""
    if ranks == 1:
        return 0.0
    share = (ranks - 1) / ranks * count * (net.beta + net.gamma)
    steps, fold = _halvings(net, ranks, count)
    return min(steps * net.alpha + share + fold, (ranks - 1) * net.alpha + share)


def barrier(net: Interconnect, ranks: int, count: float = 0.0) -> float:
    """Seconds of a dissemination barrier."""
    return _depth(ranks) * net.alpha


def exchange(net: Interconnect, ranks: int, count: float) -> float:
    """Seconds to swap ``count`` bytes with one neighbour, both ways at once."""
    return net.send(count) if ranks > 1 else 0.0


def _power(ranks: int) -> int:
    """The largest power of two that is not larger."""
    return 1 << (ranks.bit_length() - 1)


def _depth(ranks: int) -> int:
    """Steps until a binomial tree has reached all."""
    return (ranks - 1).bit_length()


def _halvings(net: Interconnect, ranks: int, count: float) -> tuple[int, float]:
    """Steps of a recursive algorithm, and what it costs that ranks beyond a power of two bring theirs and fetch it."""
    fold = 0.0 if _power(ranks) == ranks else 2 * net.send(count) + count * net.gamma
    return _power(ranks).bit_length() - 1, fold


COLLECTIVES = {
    "all_reduce": all_reduce,
    "reduce": reduce,
    "broadcast": broadcast,
    "all_gather": all_gather,
    "reduce_scatter": reduce_scatter,
    "barrier": barrier,
    "exchange": exchange,
    "send": exchange,
}
"""Seconds of a call on a number of bytes per rank, by the kinds that a communicator's ``traffic`` counts."""
