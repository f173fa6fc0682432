"""Moves of a search: one rule applied at one place, and histories of them that can be replayed.

A place is named by digests of what is replaced and what the rule's variables stand for, so a history holds for any
store that the same network was imported into, and for the network in another precision.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from deep500.errors import NetworkError
from deep500.transformations.substitutions.graph.sizes import can_be_asked, is_open
from deep500.transformations.substitutions.graph.store import Store, StoredGraph, StoreNode, StoreValue
from deep500.transformations.substitutions.operators.specification import ShapeMismatch
from deep500.transformations.substitutions.rules.matching import Match, Matcher
from deep500.transformations.substitutions.rules.patterns import CONSTANTS

Moved = dict[StoreValue, StoreValue] | None


class AppliedRule(NamedTuple):
    """One rule at one place.

    Attributes:
        rule: the rule's id.
        place: digests of what it replaced and of what its variables stood for.
    """

    rule: str
    place: tuple[str, ...]


def place(store: Store, match: Match) -> tuple[str, ...]:
    """Name of the place of a match."""
    return tuple(name(store, value) for value in (*match.sites, *match.bound))


def name(store: Store, value: StoreValue) -> str:
    """A name of a value that holds in other stores of the same network."""
    return f"{store.digests[value.node]}.{value.output}"


def apply(graph: StoredGraph, match: Match, moved: Moved = None) -> StoredGraph | None:
    """The graph after a match; None where it cannot be made: what would need a number for an open size is not.

    Args:
        graph: before.
        match: of a rule in it.
        moved: receives which new values stand for which old ones.
    """
    try:
        new = graph.replace(match.build(), moved)
    except ShapeMismatch:
        return None
    store = graph.store
    if store.open and any(needs_number(store.nodes[number]) for number in set(new.nodes()) - set(graph.nodes())):
        return None
    return new if new.outputs != graph.outputs else None


def needs_number(node: StoreNode) -> bool:
    """Whether a file could write a node only with a number for a size that is known at run time."""
    if node.op in CONSTANTS:
        return any(map(is_open, node.parameter("shape")))
    if node.op == "split":
        return any(is_open(shape[node.parameter("axis")]) for shape in node.shapes)
    return node.op == "reshape" and not can_be_asked(node.shapes[0])


def replay(graph: StoredGraph, steps: Sequence[AppliedRule], matcher: Matcher, became: Moved = None) -> StoredGraph:
    """The graph after a history; ``became``, of values of the graph, receives what they are then.

    Raises:
        NetworkError: a step's place does not exist: another network, or other rules.
    """
    for number, step in enumerate(steps):
        named = {word.partition(".")[0] for word in step.place}
        among = [node for node in graph.nodes() if graph.store.digests[node] in named]
        moved = dict[StoreValue, StoreValue]()
        for match in matcher.matches(graph, step.rule, among):
            if place(graph.store, match) == step.place:
                reached = apply(graph, match, moved=moved)
                break
        else:
            reached = None
        if reached is None:
            raise NetworkError(
                f"step {number} of {len(steps)}: got no place where rule {step.rule} applies as it did; expected the "
                "network and the rules that the history was made with; optimize anew"
            )
        graph = reached
        for value in became or ():
            became[value] = moved.get(became[value], became[value])  # type: ignore[index]
    return graph
