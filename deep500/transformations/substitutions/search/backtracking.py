"""Cost-based backtracking search (Jia et al., TASO, SOSP 2019, section 5), with many independent moves at once.

States wait in a queue by cost; a state is taken, every match of every rule is tried, and what costs less than ``alpha``
times the best so far joins the queue. With alpha 1 the search only descends; a little more lets it cross small hills.

Moves are single applications and groups of them (`groups`). Two things make the search quick on networks of many equal
layers. Moves that lower the cost are also made one after the other as far as they leave each other's places alone. And
a move is priced by what it changes around its place (`Surroundings`); the graph is made, and priced itself, only when
its turn comes.

Large hills are crossed by looking ahead: what follows from a group (`_ahead`) is made before it is judged. And the
search starts from several forms of the network: with neighbourhoods in their normal forms (`normal_forms`), as it is,
and for some rules with each of their groups made.
"""

from __future__ import annotations

import heapq
import itertools
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from deep500.transformations.substitutions.cost.clock import cpu_seconds
from deep500.transformations.substitutions.cost.model import CostModel, OutOfTime
from deep500.transformations.substitutions.graph.store import StoredGraph, StoreValue
from deep500.transformations.substitutions.operators.specification import ShapeMismatch
from deep500.transformations.substitutions.rules.matching import Match, Matcher
from deep500.transformations.substitutions.search.groups import Group, follow, groups, part_readers
from deep500.transformations.substitutions.search.moves import AppliedRule, apply, place
from deep500.transformations.substitutions.search.normal_forms import NormalForms
from deep500.transformations.substitutions.search.surroundings import Surroundings

Move = Match | Group
WIDTH = 100  # successors of one state that are kept
GROWTH = 2  # a state may have this many times the nodes of the first one
AHEAD = 8  # groups that are made one after the other while looking ahead
FORMS = 4  # rules that are made everywhere, each for a form of its own


@dataclass(frozen=True)
class State:
    """A graph, what it costs, and how it came about; ``fused``: it is written with attention as one operator."""

    graph: StoredGraph
    cost: float
    history: tuple[AppliedRule, ...] = ()
    fused: bool = False


@dataclass
class SearchResult:
    """Result of a search.

    Attributes:
        best: states by cost, the best first.
        first: the state it started from.
        priced: states that were made and priced.
        timed_out: whether the budget ended it.
        seconds: it took.
        refused: neighbourhoods whose normal form costs more than they do.
    """

    best: list[State]
    first: State
    priced: int = 0
    timed_out: bool = False
    seconds: float = 0.0
    refused: list[str] = field(default_factory=list)


@dataclass
class Backtracking:
    """The search.

    Args:
        matcher: finds matches of proved rules.
        cost: prices graphs.
        budget: seconds of CPU time.
        alpha: how much more than the best a state may cost to be looked at again.
        keep: how many states to return.
        patience: states to look at without finding a better one, before it ends; a third of the budget ends it too.
        progress: called with seconds so far, best cost, first cost and what is searched, after every state.
        stop: asked, wherever the budget is, whether to end now.
    """

    matcher: Matcher
    cost: CostModel
    budget: float = 30.0
    alpha: float = 1.05
    keep: int = 4
    patience: int = 12
    progress: Callable[[float, float, float, str], None] | None = None
    stop: Callable[[], bool] | None = None
    _seen: set[tuple[StoreValue, ...]] = field(default_factory=set)
    _queue: list[tuple[float, int, State, Move]] = field(default_factory=list)
    _where: str = ""
    _changes: dict[Any, float] = field(default_factory=dict)

    def run(self, graph: StoredGraph, starts: Sequence[State] = ()) -> SearchResult:
        """Search from a graph, and from states that another search reached from it.

        Nothing that costs more than the graph is ever the best. Without an end by the budget the result depends on
        nothing but the graph, the rules and the prices.

        Raises:
            OutOfTime: the graph itself cannot be priced within the time for measuring.
        """
        self._began = cpu_seconds()
        self._result = result = SearchResult([], State(graph, self.cost.total(graph)))
        result.best = [result.first]
        self._largest = GROWTH * len(graph.nodes())
        try:
            self._search(starts)
        except OutOfTime:
            result.timed_out = True
        result.seconds = cpu_seconds() - self._began
        return result

    def _search(self, starts: Sequence[State]) -> None:
        result, first = self._result, self._result.first
        self._order = itertools.count()  # states have no order, so ties of cost go to the older entry
        self._where = "neighbourhoods"
        whole = None if starts else self._neighbourhoods(first)
        for number, start in enumerate((None, *starts)):
            self._where = f"from form {number}" if number else "from the network"
            self._descend(whole)
            self._descend(first if start is None else self._priced(start.graph, start.history))
        for number, form in enumerate(() if starts else self._forms(first), 1):
            self._where = f"from form {number}"
            self._descend(form)
        self._where = "around the best"
        idle, since = 0, result.seconds
        while self._queue and idle < self.patience:
            cost, _, state, move = heapq.heappop(self._queue)
            limit, best = self.alpha * result.best[0].cost, result.best[0].cost
            if cost >= limit:
                break  # all that is left costs as much
            # Moves are made only when their turn comes: most of the successors of a state never have one.
            successor = self._make(state, move)
            if successor is None or successor.cost >= limit:
                continue
            together = self._look(successor)
            if together is not None:
                self._descend(together)
            idle += 1
            if result.best[0].cost < best:
                idle, since = 0, result.seconds
            elif result.seconds - since > self.budget / 3:
                raise OutOfTime("a third of the search's budget found nothing better")

    def _descend(self, state: State | None) -> None:
        """Make all moves that lower the cost, until there are none; what else could be done in these states waits."""
        while state is not None and state.graph.outputs not in self._seen:
            state = self._look(state)

    def _look(self, state: State) -> State | None:
        """Put what can be done in a state into the queue; the state after all that lowers its cost, if there is any."""
        self._seen.add(state.graph.outputs)
        waiting, together = self._successors(state)
        for price, move in waiting:
            heapq.heappush(self._queue, (price, next(self._order), state, move))
        self._tell()
        return together

    def _tell(self) -> None:
        """Report, and raise OutOfTime where the budget is spent."""
        result = self._result
        result.seconds = cpu_seconds() - self._began
        if self.progress:
            self.progress(result.seconds, result.best[0].cost, result.first.cost, self._where)
        self._in_time()

    def _in_time(self) -> None:
        """Raise OutOfTime where the budget is spent; asked before whatever takes more than a moment."""
        if cpu_seconds() - self._began > self.budget:
            raise OutOfTime("the search's budget is spent")
        if self.stop is not None and self.stop():
            raise OutOfTime("the search was stopped")

    def _matches(self, graph: StoredGraph, **where: Any) -> list[Match]:
        matches = []
        for number, match in enumerate(self.matcher.matches(graph, **where)):
            if number % 64 == 0:
                self._in_time()
            matches.append(match)
        return matches

    def _neighbourhoods(self, state: State) -> State:
        """The state with every neighbourhood in its normal form that costs less so."""
        forms = NormalForms([directed.rule for directed in self.matcher.directed])
        for root in forms.roots(state.graph):
            self._in_time()
            way = list(forms.normalize(state.graph, root))
            if way:
                cost = self.cost.total(way[-1][0])
                if cost < state.cost:
                    state = self._priced(way[-1][0], (*state.history, *(step for _, step in way)))
                    continue
                size, more = len(forms.region(state.graph, root)), cost / state.cost
                self._result.refused.append(
                    f"a neighbourhood of {size} operators: merged, all costs {more:.4g} times as much"
                )
            self._result.refused += forms.apart(state.graph, root)
        return state

    def _forms(self, first: State) -> Iterator[State]:
        """The first state with one rule made wherever it has groups, whatever that costs, for some rules."""
        every = groups(self._matches(first.graph))
        around, gains = Surroundings(first.graph, self.cost), dict[str, float]()
        for group, members in every.items():
            if len(members[0].sites) > 1:
                gains[group.rule] = gains.get(group.rule, 0.0) + _change(around, *members)
        for rule in sorted(gains, key=lambda rule: (gains[rule], rule))[:FORMS]:
            state = first
            for group in every:
                if group.rule == rule:
                    state = [state, *self._along(state, group)][-1]
            if state is not first:
                yield state

    def _successors(self, state: State) -> tuple[list[tuple[float, Move]], State | None]:
        """Moves with what their states would cost, and the state after all moves that lower the cost."""
        around = Surroundings(state.graph, self.cost)
        matches, moves = self._matches(state.graph), list[tuple[float, Move, set[int]]]()
        for match in matches:
            self._in_time()
            moves.append((_change(around, match), match, _region(around, match)))
        for group, members in groups(matches).items():
            self._in_time()
            region = set[int]().union(*(_region(around, match) for match in members))
            if len(members[0].sites) == 1:
                moves.append((_change(around, *members), group, region))
                continue
            # Following a group prices whole graphs. Equal layers have groups of equal changes, so one of them is
            # followed and the others are taken to gain the same; the price is right once a group is made.
            known = [_change(around, match) for match in members]
            look = (group.rule, *sorted(f"{change:.3e}" for change in known))
            if look not in self._changes:
                successor = self._make(state, group)
                self._changes[look] = math.inf if successor is None else successor.cost - state.cost
            moves.append((self._changes[look], group, region))
            if not state.history:
                self._refused(state, members, self._changes[look])
        moves.sort(key=lambda entry: entry[0])
        together = self._together(state, _apart([(move, region) for change, move, region in moves if change < 0]))
        limit = self.alpha * self._result.best[0].cost
        return [(state.cost + gain, move) for gain, move, _ in moves[:WIDTH] if state.cost + gain < limit], together

    def _refused(self, state: State, members: Sequence[Match], change: float) -> None:
        """Note products and convolutions of one value that stay apart, with the price of that."""
        store = state.graph.store
        sites = {site for match in members for site in match.sites}
        kinds, read = {store.node(site).op for site in sites}, {store.node(site).inputs[:1] for site in sites}
        if 0 <= change < math.inf and len(read) == 1 and kinds in ({"matmul"}, {"conv"}):
            what = "products" if "matmul" in kinds else "convolutions"
            more = 1 + change / state.cost
            self._result.refused.append(
                f"{len(sites)} {what} of one value: merged, all costs {more:.4g} times as much or more"
            )

    def _make(self, state: State, move: Move) -> State | None:
        """The state after a move; None if it cannot be made, was there before, or is too large."""
        self._in_time()
        if isinstance(move, Group):
            return self._follow(state, move)
        graph = apply(state.graph, move)
        if graph is None or graph.outputs in self._seen or len(graph.nodes()) > self._largest:
            return None
        return self._priced(graph, (*state.history, AppliedRule(move.rule, place(graph.store, move))))

    def _along(self, state: State, group: Group) -> list[State]:
        """The states on the way that a group leads."""
        way, history = list[State](), state.history
        for graph, step in follow(state.graph, group, self.matcher, self._largest):
            self._in_time()
            history = (*history, step)
            way.append(self._priced(graph, history))
        return way

    def _follow(self, state: State, group: Group) -> State | None:
        """The cheapest state on the way that a group leads, or of those that follow from its last."""
        way = self._along(state, group)
        every = [*way, *self._ahead(state, way[-1])] if way else []
        fresh = [reached for reached in every if reached.graph.outputs not in self._seen]
        return min(fresh, key=lambda reached: reached.cost, default=None)

    def _ahead(self, before: State, state: State) -> Iterator[State]:
        """Follow a group: operators on the parts that it made become operators on wholes, where that pays.

        The products of one matrix are cut from one product, so their biases are added to parts; only when these are
        one as well is it seen what merging the products is worth.
        """
        old, tried = set(before.graph.nodes()), set[Group]()
        while len(tried) < AHEAD:
            around = Surroundings(state.graph, self.cost)
            near = part_readers(state.graph, old)
            every = groups([match for match in self._matches(state.graph, among=near) if len(match.sites) > 1])
            gains = {group: _change(around, *members) for group, members in every.items() if group not in tried}
            if not gains:
                return
            group = min(gains, key=gains.__getitem__)
            tried.add(group)
            way = self._along(state, group)
            if way and way[-1].cost <= state.cost:
                yield from way
                state = way[-1]

    def _priced(self, graph: StoredGraph, history: tuple[AppliedRule, ...]) -> State:
        result = self._result
        result.priced += 1
        priced = State(graph, self.cost.total(graph), history)
        known = [state for state in result.best if state.graph.outputs != graph.outputs]
        if len(known) == len(result.best):
            result.best = sorted([*known, priced], key=lambda state: state.cost)[: self.keep]
        return priced

    def _together(self, state: State, moves: list[Move]) -> State | None:
        """The state after all moves that lower the cost and whose places are still there."""
        reached, nodes = state, set(state.graph.nodes())
        for move in moves:
            places = (move.value,) if isinstance(move, Group) else (*move.sites, *move.bound)
            if all(value.node in nodes for value in places):
                successor = self._make(reached, move)
                if successor is not None and successor.cost < reached.cost:
                    reached, nodes = successor, set(successor.graph.nodes())
        return None if reached is state else reached


def _apart(moves: list[tuple[Move, set[int]]]) -> list[Move]:
    """The best moves that replace different nodes, those behind others first; then the rest.

    A move makes all anew that depends on what it replaces. Made from the back, moves leave each other's places alone.
    """
    chosen, taken, rest = list[tuple[int, Move]](), set[int](), list[Move]()
    for move, region in moves:
        if taken.isdisjoint(region):
            taken |= region
            chosen.append((max(region), move))
        else:
            rest.append(move)
    return [*(move for _, move in sorted(chosen, key=lambda pair: -pair[0])), *rest]


def _region(around: Surroundings, match: Match) -> set[int]:
    """The nodes that a match replaces."""
    return around.inside(match.sites, {value.node for value in match.bound}) | {value.node for value in match.sites}


def _change(around: Surroundings, *matches: Match) -> float:
    """Change of cost by moves made at once, as far as they can be."""
    mapping, bound = dict[StoreValue, StoreValue](), set[StoreValue]()
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
