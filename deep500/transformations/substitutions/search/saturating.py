"""Search by equality saturation: all rules everywhere, then the cheapest of all graphs found, exactly.

Yang et al., Equality Saturation for Tensor Graph Superoptimization (MLSys 2021). Values that a rule makes equal form
classes (`Classes`); patterns match any member of a class; rules of two outputs are joined by the values they share.
What grows is bounded by a number of nodes, by rounds and by the budget. `extract` chooses the graph. Prices are those
of nodes; the states returned are priced as what would be written.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from deep500.errors import NetworkError
from deep500.transformations.substitutions.graph.store import INPUT, OPAQUE, Graph, StoreNode, Value
from deep500.transformations.substitutions.graph.units import Unit
from deep500.transformations.substitutions.operators.specification import ShapeMismatch
from deep500.transformations.substitutions.rules.conditions import Bindings
from deep500.transformations.substitutions.rules.matching import (
    CompiledPattern,
    Kinds,
    Match,
    Matcher,
    holds,
    joined,
    with_conditions,
)
from deep500.transformations.substitutions.search.backtracking import SearchResult, State
from deep500.transformations.substitutions.search.classes import Classes
from deep500.transformations.substitutions.search.extraction import build, extract
from deep500.transformations.substitutions.search.moves import Saturated, cuts_symbol, name

ROUNDS = 3
LIMIT = 4000  # nodes: what the solver of the extraction masters in seconds


class Saturation:
    """The search.

    Args:
        matcher: proved rules.
        cost: prices units, as `Cost` does.
        budget: seconds, of which the extraction may take half.
        rounds: of all rules; values in the middle of rewrites meet further rules in the next round.
        limit: stop growing at so many nodes.
        fixed: numbers that stand for symbolic sizes.
        progress: is told (seconds so far, best cost, first cost) after every round.
    """

    def __init__(
        self,
        matcher: Matcher,
        cost: Any,
        budget: float = 30.0,
        rounds: int = ROUNDS,
        limit: int = LIMIT,
        fixed: Sequence[int] = (),
        progress: Callable[[float, float, float], None] | None = None,
    ) -> None:
        self.matcher, self.cost, self.budget = matcher, cost, budget
        self.rounds, self.limit, self.fixed, self.progress = rounds, limit, tuple(fixed), progress

    def run(self, graph: Graph) -> SearchResult:
        """Search from a graph."""
        started = time.perf_counter()
        first = State(graph, self.cost.total(graph))
        found = SearchResult([first], first)

        def late() -> bool:
            found.seconds = time.perf_counter() - started
            return found.seconds > self.budget / 2

        grown = _Growth(graph, self.matcher, self.fixed)
        applied = 0
        for _ in range(self.rounds):
            before, found.pops = applied, found.pops + 1
            for _ in grown.round(self.limit):
                applied += 1
                if late():
                    found.timed_out = True
                    break
            if self.progress:
                self.progress(found.seconds, first.cost, first.cost)
            if applied == before or found.timed_out:
                break
        grown.classes.close()
        self._extract(grown, applied, found, started)
        return found

    def _extract(self, grown: _Growth, applied: int, found: SearchResult, started: float) -> None:
        graph, classes = grown.graph, grown.classes
        left = max(self.budget - (time.perf_counter() - started), 1.0)
        try:
            selection = extract(classes, list(graph.outputs), lambda n: self._price(graph, classes, n), left)
        except NetworkError:
            found.timed_out, found.seconds = True, time.perf_counter() - started
            return  # the solver found nothing in time: the first state stays the best
        best = build(classes, graph.outputs, selection.choice)
        changed = ((root, member) for root, member in selection.choice.items() if root != member)
        choices = tuple((name(graph.store, root), name(graph.store, member)) for root, member in changed)
        state = State(best, self.cost.total(best), (), Saturated(self.rounds, applied, choices))
        found.priced, found.timed_out = found.priced + 1, found.timed_out or selection.gap > 0
        found.best = sorted([state, found.first], key=lambda one: one.cost)
        found.seconds = time.perf_counter() - started

    def _price(self, graph: Graph, classes: Classes, number: int) -> float:
        """A node's price: of its unit alone, or of what it adds to the one that it would be written with."""
        node = graph.store.nodes[number]
        if node.constant or node.op in (INPUT, OPAQUE):
            return 0.0
        before = {graph.store.node(one).op for one in classes.members(node.inputs[0])}
        if node.op == "bias" and node.parameter("axis") == 1 and before & {"conv", "matmul"}:
            return 0.0  # it is written into the product before it
        if node.op == "transpose" and len(node.shapes[0]) == 2:
            return 0.0  # products take it in
        outputs = tuple(Value(number, output) for output in range(len(node.shapes)))
        return float(self.cost.unit(graph, _alone(node, number, outputs)))

    @staticmethod
    def repeat(graph: Graph, matcher: Matcher, saturated: Saturated, fixed: Sequence[int] = ()) -> Graph:
        """The graph that a saturation chose, found again without prices.

        Raises:
            NetworkError: a class or member is not there: another network, or other rules.
        """
        grown, applied = _Growth(graph, matcher, tuple(fixed)), 0
        for _ in range(saturated.rounds):
            for _ in grown.round(LIMIT):
                applied += 1
                if applied == saturated.limit:
                    break
            if applied == saturated.limit:
                break
        classes = grown.classes
        classes.close()
        known = {
            name(graph.store, Value(n, o)): Value(n, o)
            for n in sorted(classes.nodes)
            for o in range(len(graph.store.nodes[n].shapes))
        }
        choice = {root: root for root in classes.roots()}
        try:
            choice.update({classes.find(known[root]): known[member] for root, member in saturated.choices})
        except KeyError as problem:
            raise NetworkError(
                f"got no value {problem} after {applied} applications; expected the network and the rules that the "
                "history was made with; optimize anew"
            ) from problem
        return build(classes, graph.outputs, choice)


def _alone(node: StoreNode, number: int, outputs: tuple[Value, ...]) -> Unit:
    settings = node.parameters
    if node.op == "split":
        shapes = [shape[node.parameter("axis")] for shape in node.shapes]
        settings = (("axis", node.parameter("axis")), ("sizes", tuple(shapes)))
    return Unit(node.op, (number,), node.inputs, outputs, settings)


class _Growth:
    """A graph's classes, growing."""

    def __init__(self, graph: Graph, matcher: Matcher, fixed: tuple[int, ...]) -> None:
        self.graph, self.matcher, self.fixed = graph, matcher, fixed
        self.classes = Classes(graph.store, list(graph.outputs))
        self.kinds = Kinds(graph.store)

    def round(self, limit: int) -> Iterator[None]:
        """Apply all rules once wherever they match now; yields after every application that was possible."""
        self.classes.close()
        store = self.graph.store
        for match in list(self._matches()):
            if len(self.classes.nodes) >= limit:
                return
            try:
                made = match.build()
            except ShapeMismatch:
                continue
            new_nodes = set(store.reachable(made.values())) - self.classes.nodes if self.fixed else set()
            if any(cuts_symbol(store.nodes[one], self.fixed) for one in new_nodes):
                continue
            for old, new in made.items():
                self.classes.include([new])
                self.classes.union(old, new)
            yield

    def _matches(self) -> Iterator[Match]:
        pairs: dict[int, tuple[list[Any], list[Any]]] = {}
        roots: dict[str, list[tuple[int, int, CompiledPattern]]] = {}
        for position, way in enumerate(self.matcher.directed):
            for output, programs in enumerate(way.sources):
                for program in programs:
                    roots.setdefault(str(program.key[0]), []).append((position, output, program))
        for number in sorted(self.classes.nodes):
            if not self.graph.store.nodes[number].dtypes[0].startswith("float"):
                continue
            for op in self.kinds.of(number)[1:]:
                for position, output, program in roots.get(str(op), ()):
                    yield from self._of(number, position, output, program, pairs)
        for position, sides in pairs.items():
            yield from joined(self.matcher.directed[position], self.graph.store, sides, None)

    def _of(
        self,
        number: int,
        position: int,
        output: int,
        program: CompiledPattern,
        pairs: dict[int, tuple[list[Any], list[Any]]],
    ) -> Iterator[Match]:
        way, root = self.matcher.directed[position], Value(number, program.checks[0].output)
        for found in self._run(program, [root] * program.registers, {}, 0):
            if len(way.sources) == 2:
                pairs.setdefault(position, ([], []))[output].append((root, found))
            else:
                yield from with_conditions(way, self.graph.store, (root,), found, None)

    def _run(self, program: CompiledPattern, registers: list[Value], found: Bindings, line: int) -> Iterator[Bindings]:
        """Bindings under which the rest of a program holds, each register being any member of its class."""
        if line == len(program.checks):
            yield dict(found)
            return
        check = program.checks[line]
        value = registers[check.register]
        for member in self.classes.members(value) if line else [value]:
            bound, further = dict(found), list(registers)
            if holds(check, self.graph.store, self.kinds, member, bound, further, self.classes.find):
                yield from self._run(program, further, bound, line + 1)
