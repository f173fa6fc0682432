"""`parallelize`: a plan for a network on several ranks, by an integer program.

Each node takes one strategy, each input and parameter one sharding. Variables ``x`` say which; ``e`` says that a value
is changed from one sharding to another, once for all who read it so::

    min  sum of node times x + sum of collective times e
    sum over strategies of x = 1                                for every node, input and parameter
    sum over b of f[v, r, a, b] = sum of x that leave v as a    for every value v and reader r
    sum over a of f[v, r, a, b] = sum of x of r that want v as b
    f[v, r, a, b] <= e[v, a, b]                                 a change is made once for all who want it
    bytes of parameters, gradients and optimizer state <= memory

It is Alpa's program (Zheng et al. 2022, arXiv 2201.12023, section 4.2), with changes counted by value, not by edge.
HiGHS solves it (:func:`scipy.optimize.milp`). In large networks nodes that stand alike are one variable.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from deep500.errors import BudgetError, PlanError, nearest
from deep500.networks.hashing import structure_hash
from deep500.networks.network import Network
from deep500.transformations.integer_program import solve
from deep500.transformations.parallel.blocks import alike
from deep500.transformations.parallel.costs import ROUND_NUMBERS, USUAL_COSTS, StepCosts, node_seconds
from deep500.transformations.parallel.dividing import Division, StepGraph
from deep500.transformations.parallel.joint import joint_network
from deep500.transformations.parallel.plan_file import ParallelPlan
from deep500.transformations.parallel.recomputing import Regions, choose_regions, rank_step
from deep500.transformations.parallel.shardings import R, Sharding

if TYPE_CHECKING:
    from scipy.optimize import LinearConstraint

COPIES = 4
"""Arrays of a parameter's size that training holds by default: itself, its gradient and two of Adam's."""

_SECONDS = 60.0
_LARGE = 150  # nodes from which on those that stand alike are one variable
_AROUND = 4
_GAP = 1e-6
_PREFER = 1e-9  # seconds: of equal plans that with fewer changes and more divided work
_ODD_PINS = "got pins that no plan agrees with; expected some between which collectives lead: pin fewer"

Wanted: TypeAlias = Mapping[Sharding, tuple[int, ...]]
"""Variables that leave a value in each sharding, or want it so."""


@dataclass(frozen=True)
class Wishes:
    """Wishes of the caller.

    Attributes:
        memory: bytes of parameters, gradients and optimizer state that a rank may hold; None for no limit.
        pins: strategies by node (``{"fc1": "n"}``) and shardings by input or parameter (``{"fc1.weight": "S0"}``).
        recompute: bytes of values that a rank may hold in a step, or a share (float) of what it would; values of the
            forward pass are computed again for that. None keeps all.
        copies: arrays of a parameter's size that training holds.
        model: of time.
        costs_from: where the model's constants come from, in words; empty for the default ones.
    """

    memory: int | None = None
    pins: Mapping[str, str] = field(default_factory=dict)
    recompute: float | int | None = None
    copies: int = COPIES
    model: StepCosts = USUAL_COSTS
    costs_from: str = ""


def parallelize(
    network: Network,
    ranks: int,
    shapes: Mapping[str, tuple[int, ...]],
    loss: str | None = "loss",
    wishes: Wishes | None = None,
) -> ParallelPlan:
    """Choose how the ranks share the work of a training step, and where they communicate.

    Args:
        network: stays as it is.
        ranks: how many.
        shapes: of all inputs, for the whole batch; plans hold for these sizes.
        loss: the scalar that is differentiated; None plans a forward run in evaluation mode.
        wishes: see :class:`Wishes`.

    Raises:
        PlanError: a pin that names nothing, or a strategy that a node does not have on so many ranks.
        BudgetError: no plan holds as few bytes, or no step with regions that run again; ``smallest`` is the least.

    Example:
        >>> from deep500.networks import add_loss, create
        >>> network = add_loss(create("mlp", shape=(4,), hidden=(8,), classes=3))
        >>> shapes = {"input": (6, 4), "label": (6,)}
        >>> plan = parallelize(network, 2, shapes, wishes=Wishes(pins={"fc1": "n", "fc2": "k"}))
        >>> plan.sources["fc1.weight"], plan.sources["fc2.weight"]
        ('S0', 'S1')
    """
    if ranks < 1:
        raise PlanError(f"got {ranks} ranks; expected at least 1: give a positive number")
    wishes = wishes or Wishes()
    graph = StepGraph(joint_network(network, shapes, loss), ranks)
    chosen = _Program(graph, wishes).solve()
    return described(network, graph, chosen, wishes, loss)


def described(
    network: Network,
    graph: StepGraph,
    chosen: tuple[dict[str, Sharding], dict[str, str]],
    wishes: Wishes,
    loss: str | None,
) -> ParallelPlan:
    """The plan of these choices."""
    sources, strategies = chosen
    division = Division(graph, sources, strategies)
    again, peaks = Regions(), tuple[int, ...]()
    if wishes.recompute is not None and loss is not None:
        again, peaks = choose_regions(rank_step(division.network(0), graph.joint, loss), wishes.recompute)
    return ParallelPlan(
        network=structure_hash(network),
        ranks=graph.ranks,
        loss=loss,
        shapes={name: graph.shapes[name] for name in graph.network.inputs},
        sources={name: str(s) for name, s in sources.items() if s != R and network.has_value(name)},
        constants={name: str(s) for name, s in sources.items() if s != R and not network.has_value(name)},
        strategies={name: s for name, s in strategies.items() if s != "replicate"},
        seconds=plan_seconds(division, wishes.model),
        nbytes=sum(crossing.resharding.nbytes for crossing in division.crossings),
        memory=held_bytes(graph, sources, wishes.copies),
        costs=wishes.model.data(),
        again=again,
        peaks=peaks,
        costs_from=wishes.costs_from or (ROUND_NUMBERS if wishes.model == USUAL_COSTS else "as given"),
    )


def plan_seconds(division: Division, model: StepCosts) -> float:
    """Seconds of a step, by the model."""
    seconds = node_seconds(division.graph, model)
    work = sum(
        seconds[name] / (division.graph.ranks if strategy.work else 1) for name, strategy in division.chosen.items()
    )
    return work + model.start * len(seconds) + sum(model.collective(c.resharding) for c in division.crossings)


def held_bytes(graph: StepGraph, sources: Mapping[str, Sharding], copies: int) -> int:
    """Bytes of parameters that a rank holds, those that train ``copies`` times."""
    return sum(_bytes(graph, name, sources.get(name, R), copies) for name in graph.network.parameters)


def _bytes(graph: StepGraph, name: str, sharding: Sharding, copies: int) -> int:
    if name in graph.joint.constants:
        return 0
    shape = list(graph.shapes[name])
    if sharding.kind == "S":
        shape[sharding.axis] = -(-shape[sharding.axis] // graph.ranks)
    return int(np.prod(shape)) * graph.itemsize(name) * (copies if name in graph.joint.gradients else 1)


class _Program:
    """The integer program of a step."""

    def __init__(self, graph: StepGraph, wishes: Wishes) -> None:
        self.graph, self.wishes = graph, wishes
        self.classes = alike(graph, _AROUND if len(graph.nodes) > _LARGE else None)
        self.seconds = node_seconds(graph, wishes.model)
        self._check_pins()
        self.costs: list[float] = []
        self.weights: list[float] = []
        self.fixed: dict[int, float] = {}
        self.first: dict[str, int] = {}  # class -> its first variable
        self.rows: list[tuple[dict[int, float], float, float]] = []
        self.choices = 0  # variables that choose; those after them are continuous
        self.readers: dict[tuple[str, int], dict[Any, Wanted]] = {}
        self.values: dict[tuple[str, int], dict[str, None]] = {}

    def _check_pins(self) -> None:
        known = [*self.graph.by_name, *self.graph.sources]
        for name in self.wishes.pins:
            if name not in self.graph.by_name and name not in self.graph.shapes:
                raise PlanError(
                    f"got a pin of {name!r}; expected a node, an input or a parameter: {nearest(name, known)}"
                )

    def solve(self) -> tuple[dict[str, Sharding], dict[str, str]]:
        """Shardings of sources and strategies of nodes."""
        graph = self.graph
        if graph.ranks == 1:
            whole = held_bytes(graph, {}, self.wishes.copies)
            if self.wishes.memory is not None and whole > self.wishes.memory:
                raise self._too_much(whole)
            return dict.fromkeys(graph.sources, R), {node.name: "replicate" for node in graph.nodes}
        self._variables()
        self.choices = len(self.costs)
        self._readers()
        self._conversions()
        x = self._minimum()
        sources = {n: self._pick(f"={n}", graph.source_shardings(n), x) for n in graph.sources}
        strategies = {n.name: self._pick(n.name, graph.strategies[n.name], x).name for n in graph.nodes}
        return sources, strategies

    def _pick(self, name: str, options: Any, x: np.ndarray) -> Any:
        first = self.first[self.classes[name]]
        return options[int(np.argmax(x[first : first + len(options)]))]

    # -- columns and rows -------------------------------------------------------------------------------------------
    def _add(self, cost: float, weight: float = 0.0) -> int:
        self.costs.append(cost)
        self.weights.append(weight)
        return len(self.costs) - 1

    def _variables(self) -> None:
        graph, pins = self.graph, self.wishes.pins
        for name in graph.sources:
            options = graph.source_shardings(name)
            sizes = [
                _bytes(graph, name, s, self.wishes.copies) if name in graph.network.parameters else 0 for s in options
            ]
            self._choose(f"={name}", [0.0] * len(options), sizes)
            self._pin(f"={name}", pins.get(name), [str(s) for s in options])
        for node in graph.nodes:
            strategies = graph.strategies[node.name]
            work = self.seconds[node.name] + _PREFER
            costs = [work / graph.ranks if s.work else work for s in strategies]
            self._choose(node.name, costs, [0] * len(costs))
            self._pin(node.name, pins.get(node.name), [s.name for s in strategies])

    def _choose(self, name: str, costs: list[float], sizes: list[int]) -> None:
        """One choice among options; those of a class add up."""
        kind = self.classes[name]
        if kind not in self.first:
            self.first[kind] = len(self.costs)
            columns = [self._add(0.0) for _ in costs]
            self.rows.append((dict.fromkeys(columns, 1.0), 1.0, 1.0))
        for offset, (cost, size) in enumerate(zip(costs, sizes, strict=True)):
            self.costs[self.first[kind] + offset] += cost
            self.weights[self.first[kind] + offset] += size

    def _pin(self, name: str, demanded: str | None, options: list[str]) -> None:
        if demanded is None:
            return
        if demanded not in options:
            raise PlanError(
                f"got a pin of {name.removeprefix('=')!r} to {demanded!r} on {self.graph.ranks} ranks; expected one of "
                f"{', '.join(options)}: choose such an option (an axis must have an element for every rank; what is an "
                "output as it stands, and small constants, are whole)"
            )
        self.fixed[self.first[self.classes[name]] + options.index(demanded)] = 1.0

    def _leaving(self, value: str) -> dict[Sharding, tuple[int, ...]]:
        """Variables that leave a value in each sharding."""
        graph, leaving = self.graph, dict[Sharding, list[int]]()
        node = graph.network.producer(value)
        if node is None:
            options = graph.source_shardings(value)
        else:
            options = [s.outputs[node.outputs.index(value)] for s in graph.strategies[node.name]]
        first = self.first[self.classes[f"={value}" if node is None else node.name]]
        for offset, sharding in enumerate(options):
            leaving.setdefault(sharding, []).append(first + offset)
        return {sharding: tuple(columns) for sharding, columns in leaving.items()}

    def _readers(self) -> None:
        """Who wants each value in which sharding; readers of a class are counted together."""
        graph = self.graph
        for node in graph.nodes:
            first, strategies = self.first[self.classes[node.name]], graph.strategies[node.name]
            for reads in zip(*(strategy.reads(node) for strategy in strategies), strict=True):
                demanded: dict[Sharding, list[int]] = {}
                for offset, (_, sharding) in enumerate(reads):
                    demanded.setdefault(sharding, []).append(first + offset)
                self._read(reads[0][0], {sharding: tuple(columns) for sharding, columns in demanded.items()})
        tied = graph.tied()
        for name in graph.network.outputs:
            self._read(name, self._leaving(tied[name]) if name in tied else {R: ()})

    def _read(self, value: str, demanded: Wanted) -> None:
        place, options = self.place(value), frozenset(demanded.items())
        self.readers.setdefault(place, {})[options] = demanded
        self.values.setdefault(place, {})[value] = None

    def place(self, value: str) -> tuple[str, int]:
        """The class of a value's producer, and which of its outputs it is."""
        node = self.graph.network.producer(value)
        return (self.classes[f"={value}"], 0) if node is None else (self.classes[node.name], node.outputs.index(value))

    def _conversions(self) -> None:
        """Variables of changes, with a row for each sharding that is left or demanded.

        Each reader has a variable for every pair of shardings, which makes the relaxation nearly integral; where there
        are several readers, one variable above theirs says that the value is changed so, and costs.
        """
        for place, readers in self.readers.items():
            values = list(self.values[place])
            leaving = self._leaving(values[0])
            shared: dict[tuple[Sharding, Sharding], int] = {}
            for demanded in readers.values():
                self._flows(values, leaving, demanded, shared, len(readers) > 1)

    def _flows(
        self,
        values: list[str],
        leaving: Wanted,
        demanded: Wanted,
        shared: dict[tuple[Sharding, Sharding], int],
        several: bool,
    ) -> None:
        incoming: dict[Sharding, list[int]] = {after: [] for after in demanded}
        for before, columns in leaving.items():
            flows = []
            for after in demanded:
                cost = self._change(values, before, after)
                if cost is None:
                    continue
                flow = self._add(cost if not several else 0.0)
                flows.append(flow)
                incoming[after].append(flow)
                if several and before != after:
                    if (before, after) not in shared:
                        shared[before, after] = self._add(cost)
                    self.rows.append(({flow: 1.0, shared[before, after]: -1.0}, -np.inf, 0.0))
            self.rows.append(({**dict.fromkeys(flows, 1.0), **dict.fromkeys(columns, -1.0)}, 0.0, 0.0))
        for after, flows in incoming.items():
            columns = demanded[after]
            sum_of = 0.0 if columns else 1.0
            self.rows.append(({**dict.fromkeys(flows, 1.0), **dict.fromkeys(columns, -1.0)}, sum_of, sum_of))

    def _change(self, values: list[str], before: Sharding, after: Sharding) -> float | None:
        """Seconds of a change of all values of a class; None if there is none."""
        total = 0.0
        for value in values:
            resharding = self.graph.conversion(value, before, after)
            if resharding is None:
                return None
            total += self.wishes.model.collective(resharding) + _PREFER * (before != after)
        return total

    # -- the solver -------------------------------------------------------------------------------------------------
    def _minimum(self) -> np.ndarray:
        from scipy.optimize import Bounds, LinearConstraint  # half a second, of which other schemes know nothing

        count, memory = len(self.costs), self.wishes.memory
        costs, weights = np.array(self.costs), np.array(self.weights) / max(memory or 1, 1)
        lower, upper = np.zeros(count), np.ones(count)
        for column, value in self.fixed.items():
            lower[column] = upper[column] = value
        rows = [_matrix(self.rows, count)]
        limit = [] if memory is None else [LinearConstraint(weights[None], -np.inf, 1.0)]
        program: dict[str, Any] = {
            "integrality": (np.arange(count) < self.choices).astype(float),
            "bounds": Bounds(lower, upper),
            "options": {"time_limit": _SECONDS, "mip_rel_gap": _GAP},
        }
        solved = solve(costs / (costs.max() or 1.0), constraints=[*rows, *limit], **program)
        if solved.x is not None:
            return np.asarray(solved.x)
        if solved.status != 2:
            raise PlanError(
                f"got no plan within {_SECONDS:g} s ({solved.message}); expected one: pin some nodes, or use fewer "
                "ranks"
            )
        least = None if memory is None else solve(weights, constraints=rows, **program).x
        if least is None:
            raise PlanError(_ODD_PINS)
        raise self._too_much(int(np.ceil(float(np.array(self.weights) @ np.round(least)))))

    def _too_much(self, smallest: int) -> BudgetError:
        whole = self.graph.without_rule()[:5]
        return BudgetError(
            f"got memory={self.wishes.memory} bytes a rank; expected at least {smallest}, the least that any plan of "
            f"these nodes holds on {self.graph.ranks} ranks (only replicated: {whole}): raise it",
            smallest,
        )


def _matrix(rows: list[tuple[dict[int, float], float, float]], count: int) -> LinearConstraint:
    from scipy.optimize import LinearConstraint
    from scipy.sparse import coo_array

    places = [(i, column, value) for i, (row, _, _) in enumerate(rows) for column, value in row.items() if value]
    i, j, values = zip(*places, strict=True)
    matrix = coo_array((values, (i, j)), shape=(len(rows), count)).tocsr()
    return LinearConstraint(matrix, [low for _, low, _ in rows], [high for _, _, high in rows])
