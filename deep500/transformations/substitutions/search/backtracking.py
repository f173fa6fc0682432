"""Cost-based backtracking search (Jia et al., TASO, SOSP 2019, section 5), with many independent moves at once.

States wait in a queue by cost; a state is taken, every match of every rule is tried, and what costs less than ``alpha``
times the best so far joins the queue. With alpha 1 the search only descends; a little more lets it cross small hills.

Moves are single applications and groups of them (`groups`). Two things make the search quick on networks of many equal
layers. Moves that lower the cost are also made one after the other as far as they leave each other's places alone. And
a move is priced by what it changes around its place (`Surroundings`); the graph is made, and priced itself, only when
its turn comes.
"""

from __future__ import annotations

import heapq
import itertools
import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from deep500.transformations.substitutions.cost.model import Cost, OutOfTime
from deep500.transformations.substitutions.graph.store import Graph, Value
from deep500.transformations.substitutions.operators.specification import ShapeMismatch
from deep500.transformations.substitutions.rules.matching import Match, Matcher
from deep500.transformations.substitutions.search.groups import Group, follow, groups
from deep500.transformations.substitutions.search.moves import AppliedRule, apply, place
from deep500.transformations.substitutions.search.surroundings import Surroundings

Move = Match | Group
WIDTH = 100  # successors of one state that are kept
GROWTH = 2  # a state may have this many times the nodes of the first one


@dataclass(frozen=True)
class State:
    """A graph, what it costs, and how it came about."""

    graph: Graph
    cost: float
    history: tuple[AppliedRule, ...] = ()


@dataclass
class SearchResult:
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
        patience: states to look at without finding a better one, before it ends; a third of the budget ends it too.
        progress: called with (seconds so far, best cost, first cost) after every state.
    """

    matcher: Matcher
    cost: Cost
    budget: float = 30.0
    alpha: float = 1.05
    fixed: Sequence[int] = ()
    keep: int = 4
    patience: int = 30
    progress: Callable[[float, float, float], None] | None = None
    _seen: set[tuple[Value, ...]] = field(default_factory=set)
    _changes: dict[Any, float] = field(default_factory=dict)

    def run(self, graph: Graph, starts: Sequence[State] = ()) -> SearchResult:
        """Search from a graph, and from states that another search reached from it.

        Raises:
            OutOfTime: the graph itself cannot be priced within the time for measuring.
        """
        started = time.perf_counter()
        first = State(graph, self.cost.total(graph))
        result, largest = SearchResult([first], first), GROWTH * len(graph.nodes())
        order, idle, since = itertools.count(), 0, 0.0
        # States have no order, so ties of cost go to the older entry: the same search on every machine.
        queue: list[tuple[float, int, State, Move | None]] = [(first.cost, next(order), first, None)]
        for start in starts:
            try:
                state = self._priced(start.graph, start.history, result)
            except OutOfTime:
                result.timed_out = True
                continue
            heapq.heappush(queue, (state.cost, next(order), state, None))

        def late() -> bool:
            result.seconds = time.perf_counter() - started
            return result.seconds > self.budget

        while queue and idle < self.patience and not result.timed_out:
            cost, _, state, move = heapq.heappop(queue)
            limit = self.alpha * result.best[0].cost
            if cost >= limit and state is not first:
                break  # all that is left costs as much; the first state's moves are tried even if a start is far better
            # Moves are made only when their turn comes: most of the successors of a state never have one.
            if move is not None:
                try:
                    made = self._make(state, move, largest, result)
                except OutOfTime:
                    result.timed_out = True
                    break
                if made is None or made.cost >= limit:
                    continue
                state = made
            self._seen.add(state.graph.outputs)
            result.pops, idle, best = result.pops + 1, idle + 1, result.best[0].cost
            try:
                for price, after, waiting in self._successors(state, result, late, largest):
                    heapq.heappush(queue, (price, next(order), after, waiting))
            except OutOfTime:
                result.timed_out = True
            result.timed_out = result.timed_out or late()
            if result.best[0].cost < best:
                idle, since = 0, result.seconds
            elif result.seconds - since > self.budget / 3:
                break
            if self.progress:
                self.progress(result.seconds, result.best[0].cost, first.cost)
        late()
        return result

    def _successors(
        self, state: State, result: SearchResult, late: Callable[[], bool], largest: int
    ) -> list[tuple[float, State, Move | None]]:
        """States to come: (price, state, move that is still to be made in it)."""
        around = Surroundings(state.graph, self.cost)
        matches = list(itertools.takewhile(lambda _: not late(), self.matcher.matches(state.graph)))
        changes = [_change(around, match) for match in itertools.takewhile(lambda _: not late(), matches)]
        moves: list[tuple[float, Move]] = list(zip(changes, matches, strict=False))
        for group, members in groups(matches).items():
            if late():
                break
            if len(members[0].sites) == 1:
                moves.append((_change(around, *members), group))
                continue
            # Following a group prices whole graphs. Equal layers have groups of equal changes, so one of them is
            # followed and the others are taken to gain the same; the price is right once a group is made.
            known = [_change(around, match) for match in members]
            look = (group.rule, *sorted(f"{change:.3e}" for change in known))
            if look not in self._changes:
                made = self._make(state, group, largest, result)
                self._changes[look] = math.inf if made is None else made.cost - state.cost
            moves.append((self._changes[look], group))
        moves.sort(key=lambda pair: pair[0])
        better = [move for change, move in moves if change < 0]
        limit = self.alpha * result.best[0].cost
        new: list[tuple[float, State, Move | None]] = [
            (state.cost + change, state, move) for change, move in moves[:WIDTH] if state.cost + change < limit
        ]
        together = self._together(state, better, late, largest, result)
        return [*new, *([(together.cost, together, None)] if together else [])]

    def _make(self, state: State, move: Move, largest: int, result: SearchResult) -> State | None:
        """The state after a move; None if it cannot be made, was there before, or is too large."""
        if isinstance(move, Group):
            return self._follow(state, move, largest, result)
        graph = apply(state.graph, move, self.fixed)
        if graph is None or graph.outputs in self._seen or len(graph.nodes()) > largest:
            return None
        return self._priced(graph, (*state.history, AppliedRule(move.rule, place(graph.store, move))), result)

    def _follow(self, state: State, group: Group, largest: int, result: SearchResult) -> State | None:
        """The cheapest state on the way that a group leads."""
        best, history = None, state.history
        for graph, step in follow(state.graph, group, self.matcher, self.fixed, largest):
            history = (*history, step)
            if graph.outputs not in self._seen:
                made = self._priced(graph, history, result)
                best = made if best is None or made.cost < best.cost else best
        return best

    def _priced(self, graph: Graph, history: tuple[AppliedRule, ...], result: SearchResult) -> State:
        result.priced += 1
        made = State(graph, self.cost.total(graph), history)
        result.best = sorted([*result.best, made], key=lambda state: state.cost)[: self.keep]
        return made

    def _together(
        self, state: State, moves: list[Move], late: Callable[[], bool], largest: int, result: SearchResult
    ) -> State | None:
        """The state after all moves that lower the cost and whose places are still there."""
        reached, nodes = state, set(state.graph.nodes())
        for move in moves:
            if late():
                break
            places = (move.value,) if isinstance(move, Group) else (*move.sites, *move.bound)
            if all(value.node in nodes for value in places):
                made = self._make(reached, move, largest, result)
                if made is not None and made.cost < reached.cost:
                    reached, nodes = made, set(made.graph.nodes())
        return None if reached is state else reached


def _change(around: Surroundings, *matches: Match) -> float:
    """What moves change that are made at once, as far as they can be."""
    mapping, bound = dict[Value, Value](), set[Value]()
    for match in matches:
        try:
            mapping.update((old, new) for old, new in match.build().items() if old != new)
        except ShapeMismatch:
            continue
        bound.update(match.bound)
    try:
        return around.change(mapping, bound - mapping.keys()) if mapping else math.inf
    except ShapeMismatch:
        return math.inf
