"""Cost-based backtracking search (Jia et al., TASO, SOSP 2019, section 5), with many independent moves at once.

States wait in a queue by cost; a state is taken, every match of every rule is tried, and what costs less than ``alpha``
times the best so far joins the queue. With alpha 1 the search only descends; a little more lets it cross small hills.
Additionally the moves that lower the cost are applied one after the other as far as they leave each other's places
alone, so that a network of many equal layers takes a few rounds rather than one per layer.
"""

from __future__ import annotations

import heapq
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Protocol

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
        best: states by cost, the best first; the first state of all is among them.
        pops, tried: states taken from the queue, and matches evaluated.
        timed_out: whether the budget ended it.
        seconds: it took.
    """

    best: list[State]
    pops: int = 0
    tried: int = 0
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
        pops: most states to take from the queue; no limit if None.
        progress: is told (best cost, first cost) after every state.
    """

    matcher: Matcher
    cost: Pricing
    budget: float = 30.0
    alpha: float = 1.05
    fixed: Sequence[int] = ()
    keep: int = 4
    pops: int | None = None
    progress: Callable[[float, float], None] | None = None
    _seen: set[tuple[Value, ...]] = field(default_factory=set)

    def run(self, graph: Graph) -> Found:
        """Search from a graph."""
        started = time.perf_counter()
        first = State(graph, self.cost.total(graph))
        found = Found([first])
        largest = GROWTH * len(graph.nodes())
        queue, order = [(first.cost, 0, first)], 1
        self._seen = {graph.outputs}

        def late() -> bool:
            return time.perf_counter() - started > self.budget

        while queue and not (found.timed_out or found.pops == self.pops):
            cost, _, state = heapq.heappop(queue)
            if cost > self.alpha * found.best[0].cost:
                break
            found.pops += 1
            for new in self._successors(state, found, late, largest):
                if new.cost < self.alpha * found.best[0].cost:
                    heapq.heappush(queue, (new.cost, order, new))
                    order += 1
                self._note(found, new)
            found.timed_out = late()
            if self.progress:
                self.progress(found.best[0].cost, first.cost)
        found.seconds = time.perf_counter() - started
        return found

    def _note(self, found: Found, state: State) -> None:
        found.best = sorted([*found.best, state], key=lambda one: one.cost)[: self.keep]

    def _successors(self, state: State, found: Found, late: Callable[[], bool], largest: int) -> list[State]:
        """All states one move away, and the one that all moves lead to which lower the cost and get along."""
        new, better = [], []
        for match in self.matcher.matches(state.graph):
            if late():
                break
            reached = self._reach(state, match, largest)
            if reached is None:
                continue
            found.tried += 1
            if reached.cost < state.cost:
                better.append((reached.cost, match))
            if reached.graph.outputs not in self._seen:
                self._seen.add(reached.graph.outputs)
                new.append(reached)
        better.sort(key=lambda one: one[0])
        together = self._together(state, [match for _, match in better], late, largest)
        if together is not None:
            new.append(together)
        return new

    def _reach(self, state: State, match: Match, largest: int) -> State | None:
        graph = apply(state.graph, match, self.fixed)
        if graph is None:
            return None
        step = Step(match.rule, place(graph.store, match))
        if len(graph.nodes()) > largest:
            return None
        return State(graph, self.cost.total(graph), (*state.history, step))

    def _together(self, state: State, moves: list[Match], late: Callable[[], bool], largest: int) -> State | None:
        reached, applied = state, 0
        nodes = set(state.graph.nodes())
        for match in moves:
            if late():
                break
            if not all(one.node in nodes for one in (*match.sites, *match.bound)):
                continue
            new = self._reach(reached, match, largest)
            if new is not None and new.cost < reached.cost:
                reached, applied = new, applied + 1
                nodes = set(reached.graph.nodes())
        if applied < 2 or reached.graph.outputs in self._seen:
            return None
        self._seen.add(reached.graph.outputs)
        return reached
