"""Cost-based backtracking search (Jia et al., TASO, SOSP 2019, section 5), with many independent moves at once.

States wait in a queue by cost; a state is taken, every match of every rule is tried, and what costs less than ``alpha``
times the best so far joins the queue. With alpha 1 the search only descends; a little more lets it cross small hills.

Two things make it quick on networks of many equal layers. Moves that lower the cost are also applied one after the
other as far as they leave each other's places alone. And a move whose surroundings look like those of one that was
priced before is taken to change the cost by as much; it is made, and priced itself, only when its turn comes.
"""

from __future__ import annotations

import heapq
import itertools
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from deep500.networks.substitutions.graph.store import Graph, Value
from deep500.networks.substitutions.search.moves import Match, Matcher, Step, apply, place

GROWTH = 2  # a state may have this many times the nodes of the first one


class Pricing(Protocol):
    """What a search asks a cost model."""

    def total(self, graph: Graph) -> float:
        """Seconds of a graph."""
        ...


@dataclass(frozen=True)
class State:
    """A graph, what it costs, and how it came about."""

    graph: Graph
    cost: float
    history: tuple[Step, ...] = ()


@dataclass
class Found:
    """What a search found.

    Attributes:
        best: states by cost, the best first.
        first: the state it started from.
        pops, priced: states whose moves were looked at, and states that were made and priced.
        timed_out: whether the budget ended it.
        seconds: it took.
    """

    best: list[State]
    first: State
    pops: int = 0
    priced: int = 0
    timed_out: bool = False
    seconds: float = 0.0


@dataclass
class Backtracking:
    """The search.

    Args:
        matcher: finds matches of proved rules.
        cost: prices graphs.
        budget: seconds.
        alpha: how much more than the best a state may cost to be looked at again.
        fixed: numbers that stand for symbolic sizes.
        keep: how many states to return.
        patience: states to look at without finding a better one, before it ends.
        progress: is told (seconds so far, best cost, first cost) after every state.
    """

    matcher: Matcher
    cost: Pricing
    budget: float = 30.0
    alpha: float = 1.05
    fixed: Sequence[int] = ()
    keep: int = 4
    patience: int = 50
    progress: Callable[[float, float, float], None] | None = None
    _seen: set[tuple[Value, ...]] = field(default_factory=set)
    _changes: dict[Any, float] = field(default_factory=dict)

    def run(self, graph: Graph) -> Found:
        """Search from a graph."""
        started = time.perf_counter()
        first = State(graph, self.cost.total(graph))
        found, largest = Found([first], first), GROWTH * len(graph.nodes())
        order, idle = itertools.count(), 0
        queue: list[tuple[float, int, State, Match | None]] = [(first.cost, next(order), first, None)]

        def late() -> bool:
            found.seconds = time.perf_counter() - started
            return found.seconds > self.budget

        while queue and idle < self.patience and not found.timed_out:
            cost, _, state, move = heapq.heappop(queue)
            limit = self.alpha * found.best[0].cost
            if cost >= limit and state is not first:
                break
            if move is not None:
                made = self._make(state, move, largest, found)
                if made is None or made.cost >= limit:
                    continue
                state = made
            self._seen.add(state.graph.outputs)
            found.pops, idle, best = found.pops + 1, idle + 1, found.best[0].cost
            for price, after, waiting in self._successors(state, found, late, largest):
                heapq.heappush(queue, (price, next(order), after, waiting))
            found.timed_out = late()
            idle = 0 if found.best[0].cost < best else idle
            if self.progress:
                self.progress(found.seconds, found.best[0].cost, first.cost)
        late()
        return found

    def _successors(
        self, state: State, found: Found, late: Callable[[], bool], largest: int
    ) -> list[tuple[float, State, Match | None]]:
        """States to come: (price, state, move that is still to be made in it)."""
        users, new, better = state.graph.users(), [], []
        for match in self.matcher.matches(state.graph):
            if late():
                break
            looks = surroundings(state.graph, match, users)
            if looks not in self._changes:
                made = self._make(state, match, largest, found)
                self._changes[looks] = float("inf") if made is None else made.cost - state.cost
            price = state.cost + self._changes[looks]
            if price < state.cost:
                better.append((price, match))
            if price < self.alpha * found.best[0].cost:
                new.append((price, state, match))
        better.sort(key=lambda one: one[0])
        together = self._together(state, [match for _, match in better], late, largest, found)
        return [*new, *([(together.cost, together, None)] if together else [])]

    def _make(self, state: State, match: Match, largest: int, found: Found) -> State | None:
        """The state after a move; None if it cannot be made, was there before, or is too large."""
        graph = apply(state.graph, match, self.fixed)
        if graph is None or graph.outputs in self._seen or len(graph.nodes()) > largest:
            return None
        found.priced += 1
        made = State(graph, self.cost.total(graph), (*state.history, Step(match.rule, place(graph.store, match))))
        found.best = sorted([*found.best, made], key=lambda one: one.cost)[: self.keep]
        return made

    def _together(
        self, state: State, moves: list[Match], late: Callable[[], bool], largest: int, found: Found
    ) -> State | None:
        """The state after all moves that lower the cost and whose places are still there."""
        reached, nodes = state, set(state.graph.nodes())
        for match in moves:
            if late():
                break
            if all(one.node in nodes for one in (*match.sites, *match.bound)):
                made = self._make(reached, match, largest, found)
                if made is not None and made.cost < reached.cost:
                    reached, nodes = made, set(made.graph.nodes())
        return None if reached is state else reached


def surroundings(graph: Graph, match: Match, users: dict[Value, list[int]]) -> Any:
    """What the change of cost by a move depends on: what it replaces and reads, and who else reads that."""
    store = graph.store

    def look(value: Value, depth: int) -> Any:
        node = store.node(value)
        readers = tuple(
            sorted((store.nodes[n].op, store.nodes[n].parameters) if n >= 0 else ("", ()) for n in users.get(value, ()))
        )
        inner = tuple(look(one, depth - 1) for one in node.inputs) if depth and not node.constant else len(node.inputs)
        return (
            node.op,
            node.parameters if node.inputs else (),
            node.shapes,
            node.constant,
            value.output,
            readers,
            inner,
        )

    values = (*match.sites, *match.bound)
    equal = tuple(values.index(one) for one in values)
    return match.rule, equal, tuple(look(one, 2) for one in match.sites), tuple(look(one, 0) for one in match.bound)
