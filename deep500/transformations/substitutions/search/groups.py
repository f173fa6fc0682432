"""One rule at all places that share a value, as one move: many products of one input become one product.

Merging two of eight products may cost more than it saves (the result must be split again) while merging all eight pays:
a search that looks at single applications would have to cross that hill. A group is followed step by step, each step an
ordinary move of the history. Products whose readers do alike are merged first, so that what reads them can be merged.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from deep500.transformations.substitutions.graph.store import Graph, Value
from deep500.transformations.substitutions.rules.matching import Match, Matcher
from deep500.transformations.substitutions.search.moves import AppliedRule, apply, place

MOST = 64  # applications of one group


class Group(NamedTuple):
    """A rule and the value that one of its variables stands for.

    Attributes:
        rule: the rule's id and direction.
        position: which of the rule's variables.
        value: what it stands for.
    """

    rule: str
    position: int
    value: Value

    def holds(self, match: Match) -> bool:
        """Whether a match is one of the group."""
        return match.rule == self.rule and match.bound[self.position] == self.value


def groups(matches: Sequence[Match]) -> dict[Group, list[Match]]:
    """Groups of two or more matches; of groups with the same matches the first."""
    by_value: dict[Group, list[Match]] = {}
    for match in matches:
        for position in match.shared:
            value = match.bound[position]
            by_value.setdefault(Group(match.rule, position, value), []).append(match)
    known: set[tuple[str, tuple[tuple[Value, ...], ...]]] = set()
    chosen = {}
    for group, members in by_value.items():
        sites = tuple(match.sites for match in members)
        if len(members) > 1 and (group.rule, sites) not in known:
            known.add((group.rule, sites))
            chosen[group] = members
    return chosen


def follow(
    graph: Graph, group: Group, matcher: Matcher, fixed: Sequence[int], largest: int
) -> Iterator[tuple[Graph, AppliedRule]]:
    """Apply the rule of a group wherever its value is bound, until nowhere; every graph on the way."""
    seen = {graph.outputs}
    for _ in range(MOST):
        members = [match for match in matcher.matches(graph, only=group.rule) if group.holds(match)]
        for match in _in_order(graph, members):
            new = apply(graph, match, fixed)
            if new is not None and new.outputs not in seen and len(new.nodes()) <= largest:
                break
        else:
            return
        step = AppliedRule(match.rule, place(graph.store, match))
        graph = new
        seen.add(graph.outputs)
        yield graph, step


def _in_order(graph: Graph, matches: list[Match]) -> list[Match]:
    """First pairs whose readers do alike, as far as one looks, the smaller ones first, so that like grows with like."""
    if not matches or len(matches[0].sites) < 2:
        return matches
    users, known = graph.users(), dict[tuple[Value, int], frozenset[Any]]()

    def labels(match: Match, depth: int) -> set[frozenset[Any]]:
        return {known.setdefault((value, depth), label(graph, value, users, depth)) for value in match.sites}

    def rank(match: Match) -> tuple[int, int]:
        alike = sum(len(labels(match, depth)) == 1 for depth in (1, 2, 3))
        return -alike, sum(math.prod(graph.store.shape(value)) for value in match.sites)

    return sorted(matches, key=rank)


def label(graph: Graph, value: Value, users: dict[Value, list[int]], depth: int = 3) -> frozenset[Any]:
    """What is done with a value: operators of its readers and theirs, splits looked through.

    Example:
        >>> from deep500.transformations.substitutions.graph.store import Store
        >>> store = Store()
        >>> x = store.input("x", (2, 4), "float32")
        >>> graph = Graph(store, (store.add("relu", x)[0], store.add("tanh", x)[0]))
        >>> sorted(entry[0] for entry in label(graph, x, graph.users()))
        ['relu', 'tanh']
    """
    labels: set[Any] = set()
    for number in users.get(value, ()):
        if number < 0 or depth == 0:
            labels.add(("", frozenset()))
            continue
        node = graph.store.nodes[number]
        outputs = [Value(number, output) for output in range(len(node.shapes))]
        if node.op == "split":
            for made in outputs:
                labels |= label(graph, made, users, depth)
        else:
            inner: frozenset[Any] = frozenset().union(*(label(graph, made, users, depth - 1) for made in outputs))
            labels.add((node.op, inner))
    return frozenset(labels)
