"""One rule at all places that share a value, as one move: many products of one input become one product.

Merging two of eight products may cost more than it saves (the result must be split again) while merging all eight pays:
a search that looks at single applications would have to cross that hill. A group is followed step by step, each step an
ordinary move of the history. Parts of one tensor count as one value, so that what works on each of many parts becomes
one operator on the whole. In which order values are merged decides what can be merged after them: see `_in_order`.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator, Sequence
from typing import Any, NamedTuple

from deep500.transformations.substitutions.graph.store import Store, StoredGraph, StoreValue, parts
from deep500.transformations.substitutions.operators.specification import ShapeMismatch
from deep500.transformations.substitutions.rules.matching import Match, Matcher
from deep500.transformations.substitutions.search.moves import AppliedRule, apply, place

MOST = 64  # applications of one group
Users = dict[StoreValue, list[int]]


class Group(NamedTuple):
    """A rule and the value that one of its variables stands for, or is a part of.

    Attributes:
        rule: the rule's id and direction.
        position: which of the rule's variables.
        value: what it stands for; where that is a part of a tensor, the whole.
    """

    rule: str
    position: int
    value: StoreValue

    def holds(self, match: Match) -> bool:
        """Return whether a match is one of the group."""
        return match.rule == self.rule and whole(match.store, match.bound[self.position]) == self.value


def whole(store: Store, value: StoreValue) -> StoreValue:
    """The tensor that a value is a part of: splits are followed down to what they cut.

    Example:
        >>> store = Store()
        >>> x = store.input("x", (2, 6), "float32")
        >>> _, rest = store.add("split", x, axis=1, cut=2)
        >>> whole(store, store.add("split", rest, axis=1, cut=1)[0]) == x
        True
    """
    while store.node(value).op == "split":
        value = store.node(value).inputs[0]
    return value


def part_readers(graph: StoredGraph, old: Collection[int]) -> list[int]:
    """Nodes that read parts of tensors and are not among old ones."""
    store, readers = graph.store, []
    for number in graph.nodes():
        node = store.nodes[number]
        if number not in old and node.op != "split" and any(store.node(read).op == "split" for read in node.inputs):
            readers.append(number)
    return readers


def groups(matches: Sequence[Match]) -> dict[Group, list[Match]]:
    """Groups of two or more matches; of groups with the same matches the first."""
    by_value: dict[Group, list[Match]] = {}
    for match in matches:
        for position in match.shared:
            value = whole(match.store, match.bound[position])
            by_value.setdefault(Group(match.rule, position, value), []).append(match)
    known: set[tuple[str, tuple[tuple[StoreValue, ...], ...]]] = set()
    chosen = {}
    for group, members in by_value.items():
        sites = tuple(match.sites for match in members)
        if len(members) > 1 and (group.rule, sites) not in known:
            known.add((group.rule, sites))
            chosen[group] = members
    return chosen


def follow(
    graph: StoredGraph, group: Group, matcher: Matcher, largest: int
) -> Iterator[tuple[StoredGraph, AppliedRule]]:
    """Apply the rule of a group wherever its value is bound, until nowhere; every graph on the way."""
    seen = {graph.outputs}
    for _ in range(MOST):
        members = [match for match in matcher.matches(graph, only=group.rule) if group.holds(match)]
        for match in _in_order(graph, members, group.value):
            new = apply(graph, match)
            if new is not None and new.outputs not in seen and len(new.nodes()) <= largest:
                break
        else:
            return
        step = AppliedRule(match.rule, place(graph.store, match))
        graph = new
        seen.add(graph.outputs)
        yield graph, step


def _in_order(graph: StoredGraph, matches: list[Match], shared: StoreValue) -> list[Match]:
    """First pairs whose readers do alike, as far as one looks, the smaller ones first, so that like grows with like.

    Both orders of a pair are among the matches. Where readers join what is merged with parts of a tensor, its order is
    taken, so that the sums of parts can become a sum of wholes; else that of what differs between the operands, which
    is the same wherever the same operands meet: for many products by the same weights these make one tensor.
    """
    if not matches or len(matches[0].sites) < 2:
        return matches
    users, known = graph.users(), dict[tuple[StoreValue, int], frozenset[Any]]()
    axis, sites = _cut_axis(matches), dict.fromkeys(value for match in matches for value in match.sites)
    places = {value: _place(graph, value, shared, users, axis) for value in sites}

    def labels(match: Match, depth: int) -> set[frozenset[Any]]:
        return {known.setdefault((value, depth), label(graph, value, users, depth)) for value in match.sites}

    def rank(match: Match) -> tuple[Any, ...]:
        alike = sum(len(labels(match, depth)) == 1 for depth in (1, 2, 3))
        first, second = (places[value] for value in match.sites)
        size = sum(math.prod(graph.store.shape(value)) for value in match.sites)
        return -alike, size, first > second, first, second

    return sorted(matches, key=rank)


def _cut_axis(matches: Sequence[Match]) -> int:
    """The axis along which the results of a rule are cut from one; -1 if they are not."""
    for match in matches:
        try:
            result = match.build()[match.sites[0]]
        except ShapeMismatch:
            continue
        node = match.store.node(result)
        return int(node.parameter("axis")) if node.op == "split" else -1
    return -1


Place = tuple[int, tuple[str, ...], int]


def _place(graph: StoredGraph, value: StoreValue, shared: StoreValue, users: Users, axis: int) -> Place:
    """Place of the parts that a value's readers join it with, else the constants that make it and these."""
    store, leaf = graph.store, next(_leaves(graph, value, users))
    path = [value]
    for number in users.get(leaf, ()):
        if number >= 0 and store.nodes[number].op == "concat" and store.nodes[number].parameter("axis") == axis:
            return _in_concatenation(graph, leaf, number, users)
        for read in store.nodes[number].inputs if number >= 0 else ():
            origin, offset = _origin(store, read, axis)
            if read != leaf and offset is not None:
                return 0, (store.digests[origin.node],), offset
            if read != leaf:
                path.append(origin)
    # The summands of a sum have one order, so that it does not matter which of them are merged first.
    operands = [_first(store, read) for origin in path for read in store.node(origin).inputs if read != shared]
    constants = sorted(store.digests[read.node] for read in operands if store.node(read).constant)
    return 1, tuple(constants or [store.digests[read.node] for read in operands[:1]]), value.output


def _in_concatenation(graph: StoredGraph, part: StoreValue, number: int, users: Users) -> Place:
    """Place of a part in a concatenation, or in the one that this is a part of."""
    store, axis = graph.store, graph.store.nodes[number].parameter("axis")
    larger: int | None = number
    while larger is not None:
        number, readers = larger, users.get(StoreValue(larger), ())
        joining = (n for n in readers if n >= 0 and store.nodes[n].op == "concat")
        larger = next((n for n in joining if store.nodes[n].parameter("axis") == axis), None)
    every = parts(store, StoreValue(number), axis)
    before = every[: every.index(part)] if part in every else every
    return 0, (store.digests[number],), sum(store.shape(value)[axis] for value in before)


def _first(store: Store, value: StoreValue) -> StoreValue:
    """The first part of what a concatenation joins."""
    while store.node(value).op == "concat":
        value = store.node(value).inputs[0]
    return value


def _origin(store: Store, value: StoreValue, axis: int) -> tuple[StoreValue, int | None]:
    """The tensor that a part was cut from, and its begin there along an axis; None if it was not cut along that."""
    offset = None
    while store.node(value).op == "split":
        node = store.node(value)
        if node.parameter("axis") == axis:
            offset = (offset or 0) + value.output * node.parameter("cut")
        value = node.inputs[0]
    return value, offset


def _leaves(graph: StoredGraph, value: StoreValue, users: Users) -> Iterator[StoreValue]:
    """The parts that a value is cut into, in order; itself if it is not cut."""
    cuts = [n for n in users.get(value, ()) if n >= 0 and graph.store.nodes[n].op == "split"]
    if not cuts:
        yield value
    for number in cuts:
        for output in (0, 1):
            yield from _leaves(graph, StoreValue(number, output), users)


def label(graph: StoredGraph, value: StoreValue, users: Users, depth: int = 3) -> frozenset[Any]:
    """Label of a value's use: operators of its readers and theirs, splits looked through.

    Example:
        >>> from deep500.transformations.substitutions.graph.store import Store
        >>> store = Store()
        >>> x = store.input("x", (2, 4), "float32")
        >>> graph = StoredGraph(store, (store.add("relu", x)[0], store.add("tanh", x)[0]))
        >>> sorted(entry[0] for entry in label(graph, x, graph.users()))
        ['relu', 'tanh']
    """
    labels: set[Any] = set()
    for number in users.get(value, ()):
        if number < 0 or depth == 0:
            labels.add(("", frozenset()))
            continue
        node = graph.store.nodes[number]
        outputs = [StoreValue(number, output) for output in range(len(node.shapes))]
        if node.op == "split":
            for result in outputs:
                labels |= label(graph, result, users, depth)
        else:
            inner: frozenset[Any] = frozenset().union(*(label(graph, result, users, depth - 1) for result in outputs))
            labels.add((node.op, inner))
    return frozenset(labels)
