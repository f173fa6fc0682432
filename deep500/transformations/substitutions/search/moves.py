"""Moves of a search: one rule applied at one place, and histories of them that can be replayed.

A place is named by digests of what is replaced and what the rule's variables stand for, so a history holds for any
store that the same network was imported into, and for the network in another precision.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple, Protocol

from deep500.errors import NetworkError
from deep500.transformations.substitutions.graph.store import Graph, Store, Value
from deep500.transformations.substitutions.operators.specification import ShapeMismatch


class Step(NamedTuple):
    """One rule at one place.

    Attributes:
        rule: the rule's id.
        place: digests of what it replaced and of what its variables stood for.
    """

    rule: str
    place: tuple[str, ...]


class Saturated(NamedTuple):
    """What equality saturation chose.

    Attributes:
        rounds: of all rules.
        limit: most nodes.
        choices: (a class, by its first member; the member that is used), by their places.
    """

    rounds: int
    limit: int
    choices: tuple[tuple[str, str], ...]


class Match(Protocol):
    """Where a rule applies."""

    @property
    def rule(self) -> str:
        """Id of the rule and its direction."""
        ...

    @property
    def sites(self) -> tuple[Value, ...]:
        """The values that would be replaced."""
        ...

    @property
    def bound(self) -> tuple[Value, ...]:
        """The values that the rule's variables stand for, in the order of the variables."""
        ...

    @property
    def shared(self) -> tuple[int, ...]:
        """Positions in ``bound`` of the variables that every output of the rule is made from."""
        ...

    def build(self) -> dict[Value, Value]:
        """Make the other side; old value -> new one. Raises `ShapeMismatch` where that cannot be."""
        ...


class Matcher(Protocol):
    """Finds where rules apply."""

    def matches(self, graph: Graph, only: str | None = None, touched: set[int] | None = None) -> Iterator[Match]:
        """All matches of all rules, of the rule called ``only``, or those that read or replace a ``touched`` node."""
        ...


def place(store: Store, match: Match) -> tuple[str, ...]:
    """What names the place of a match."""
    return tuple(name(store, one) for one in (*match.sites, *match.bound))


def name(store: Store, value: Value) -> str:
    """A name of a value that holds in other stores of the same network."""
    return f"{store.digests[value.node]}.{value.output}"


def apply(graph: Graph, match: Match, fixed: Sequence[int] = ()) -> Graph | None:
    """The graph after a match; None where it cannot be made.

    Args:
        graph: before.
        match: of a rule in it.
        fixed: numbers that stand for symbolic sizes; what would cut such a size in two is not made.
    """
    try:
        new = graph.replace(match.build())
    except ShapeMismatch:
        return None
    if fixed and any(cuts_symbol(graph.store.nodes[one], fixed) for one in set(new.nodes()) - set(graph.nodes())):
        return None
    return new if new.outputs != graph.outputs else None


def cuts_symbol(node: Any, fixed: Sequence[int]) -> bool:
    """Whether a node cuts, or mixes, sizes for which the numbers ``fixed`` stand."""
    if node.constant:
        return False
    if node.op == "split":
        return any(node.shapes[0][node.parameter("axis")] % one == 0 for one in fixed)
    if node.op == "reshape":
        return sum(any(size % one == 0 for one in fixed) for size in node.shapes[0]) > 1
    return False


def replay(graph: Graph, steps: Sequence[Step], matcher: Matcher) -> Graph:
    """The graph after a history.

    Raises:
        NetworkError: a step's place is not there: another network, or other rules.
    """
    for number, step in enumerate(steps):
        for match in matcher.matches(graph, only=step.rule):
            if place(graph.store, match) == step.place:
                found = apply(graph, match)
                break
        else:
            found = None
        if found is None:
            raise NetworkError(
                f"step {number} of {len(steps)}: got no place where rule {step.rule} applies as it did; expected the "
                "network and the rules that the history was made with; optimize anew"
            )
        graph = found
    return graph
