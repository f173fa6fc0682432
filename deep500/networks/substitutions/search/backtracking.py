"""Cost-based backtracking search (Jia et al., TASO, SOSP 2019, section 5), with many independent moves at once.

States wait in a queue by cost; a state is taken, every match of every rule is tried, and what costs less than ``alpha``
times the best so far joins the queue. With alpha 1 the search only descends; a little more lets it cross small hills.

Moves are single applications and groups of them (`groups`). Two things make the search quick on networks of many equal
layers. Moves that lower the cost are also made one after the other as far as they leave each other's places alone. And
a move whose surroundings look like those of one that was priced before is taken to change the cost by as much; it is
made, and priced itself, only when its turn comes.
"""

from __future__ import annotations

import heapq
import itertools
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from deep500.networks.substitutions.graph.store import Graph, Value
from deep500.networks.substitutions.search.groups import Group, follow, groups
from deep500.networks.substitutions.search.moves import Match, Matcher, Saturated, Step, apply, place

Move = Match | Group
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
    saturated: Saturated | None = None


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
        queue: list[tuple[float, int, State, Move | None]] = [(first.cost, next(order), first, None)]

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
    ) -> list[tuple[float, State, Move | None]]:
        """States to come: (price, state, move that is still to be made in it)."""
        users = state.graph.users()
        moves: list[tuple[Any, Move]] = []
        matches = list(itertools.takewhile(lambda _: not late(), self.matcher.matches(state.graph)))
        looks = [surroundings(state.graph, match, users) for match in matches]
        moves += [(look, match) for look, match in zip(looks, matches, strict=True)]
        known = {id(match): look for match, look in zip(matches, looks, strict=True)}
        for group, members in groups(matches).items():
            moves.append((("group", *sorted(map(repr, (known[id(one)] for one in members)))), group))
        new, better = [], []
        for look, move in moves:
            if look not in self._changes:
                if late():
                    break
                made = self._make(state, move, largest, found)
                self._changes[look] = float("inf") if made is None else made.cost - state.cost
            price = state.cost + self._changes[look]
            if price < state.cost:
                better.append((price, move))
            if price < self.alpha * found.best[0].cost:
                new.append((price, state, move))
        better.sort(key=lambda one: one[0])
        together = self._together(state, [move for _, move in better], late, largest, found)
        return [*new, *([(together.cost, together, None)] if together else [])]

    def _make(self, state: State, move: Move, largest: int, found: Found) -> State | None:
        """The state after a move; None if it cannot be made, was there before, or is too large."""
        if isinstance(move, Group):
            return self._follow(state, move, largest, found)
        graph = apply(state.graph, move, self.fixed)
        if graph is None or graph.outputs in self._seen or len(graph.nodes()) > largest:
            return None
        return self._priced(graph, (*state.history, Step(move.rule, place(graph.store, move))), found)

    def _follow(self, state: State, group: Group, largest: int, found: Found) -> State | None:
        """The cheapest state on the way that a group leads."""
        best, history = None, state.history
        for graph, step in follow(state.graph, group, self.matcher, self.fixed, largest):
            history = (*history, step)
            if graph.outputs not in self._seen:
                made = self._priced(graph, history, found)
                best = made if best is None or made.cost < best.cost else best
        return best

    def _priced(self, graph: Graph, history: tuple[Step, ...], found: Found) -> State:
        found.priced += 1
        made = State(graph, self.cost.total(graph), history)
        found.best = sorted([*found.best, made], key=lambda one: one.cost)[: self.keep]
        return made

    def _together(
        self, state: State, moves: list[Move], late: Callable[[], bool], largest: int, found: Found
    ) -> State | None:
        """The state after all moves that lower the cost and whose places are still there."""
        reached, nodes = state, set(state.graph.nodes())
        for move in moves:
            if late():
                break
            places = (move.value,) if isinstance(move, Group) else (*move.sites, *move.bound)
            if all(one.node in nodes for one in places):
                made = self._make(reached, move, largest, found)
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
