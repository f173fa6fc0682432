"""Plans of divided networks on ranks that are not there: the batch, the network, or both on a mesh, by what wins.

For every number of ranks all grids of ``data x model`` ranks are replayed: on ``model`` ranks the planner's own plan
for a group's share of the batch, by its model of nodes and collectives; around it one all-reduce of a rank's gradients
among ``data`` groups. Constants of nodes are scaled so that the model of one rank takes the step that was measured.
Everything else is modelled.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from deep500.errors import BudgetError, InputError
from deep500.measure.statistics import Interval
from deep500.networks.network import Network
from deep500.progress import stage
from deep500.results.scaling import PREDICTED, WEAK, Scaling, ScalingBase, ScalingPoint
from deep500.scaling.model import Interconnect, all_reduce
from deep500.transformations.parallel.costs import StepCosts
from deep500.transformations.parallel.plan_file import ParallelPlan
from deep500.transformations.parallel.planning import Wishes, parallelize
from deep500.transformations.parallel.shardings import Sharding, local_shape

DATA, MODEL, BOTH = "data", "model", "data x model"
"""Ways to use many ranks: their names on a mesh."""


@dataclass(frozen=True)
class GridReplay:
    """A grid of ranks.

    Attributes:
        data, model: groups that share the batch out, and ranks of a group that share its network out.
        seconds: of a step, modelled.
        splits: what the plan within a group splits: batch, parameters, both or nothing.
    """

    data: int
    model: int
    seconds: float
    splits: str = ""

    @property
    def way(self) -> str:
        """One of :data:`DATA`, :data:`MODEL` and :data:`BOTH`."""
        return DATA if self.model == 1 else MODEL if self.data == 1 else BOTH

    def __str__(self) -> str:
        if self.model == 1:
            return f"data {self.data}"
        grid = f"data {self.data} x model {self.model}" if self.data > 1 else f"model {self.model}"
        return f"{grid} ({self.splits})"


@dataclass
class GridReplays:
    """Plans of one network.

    Args:
        network: with its loss.
        shapes: of its inputs for ``batch`` samples.
        batch: how many those are.
        costs: see :class:`~deep500.transformations.parallel.costs.StepCosts`.
        net: for gradients among groups.
        memory: bytes of parameters, gradients and optimizer state that a rank may hold; None for no limit.

    Example:
        >>> from deep500.networks import add_loss, create
        >>> network = add_loss(create("mlp", shape=(4,), hidden=(8,), classes=3))
        >>> replays = GridReplays(network, {"input": (6, 4), "label": (6,)}, 6, StepCosts(), Interconnect(1.0, 1.0))
        >>> [str(replay) for replay in replays.on(2, 6)]
        ['data 2', 'model 2 (nothing)']
    """

    network: Network
    shapes: Mapping[str, tuple[int, ...]]
    batch: int
    costs: StepCosts
    net: Interconnect
    memory: int | None = None
    plans: dict[tuple[int, int], ParallelPlan] = field(default_factory=dict)

    def on(self, ranks: int, samples: int) -> Iterator[GridReplay]:
        """All grids of ranks for which samples and memory suffice, data parallelism alone first."""
        for model in (n for n in range(1, ranks + 1) if ranks % n == 0):
            data = ranks // model
            if data > samples:
                continue
            try:
                plan = self.plan(-(-samples // data), model)
            except BudgetError:
                continue
            yield GridReplay(
                data, model, plan.seconds + all_reduce(self.net, data, self.gradient_bytes(plan)), splits(plan)
            )

    def plan(self, samples: int, ranks: int) -> ParallelPlan:
        """The plan of a group of ranks; raises BudgetError where none keeps within the memory of a rank."""
        if (samples, ranks) not in self.plans:
            sizes = {name: self._resized(name, shape, samples) for name, shape in self.shapes.items()}
            wishes = Wishes(memory=self.memory, model=self.costs)
            self.plans[samples, ranks] = parallelize(self.network, ranks, sizes, wishes=wishes)
        return self.plans[samples, ranks]

    def _resized(self, name: str, shape: tuple[int, ...], samples: int) -> tuple[int, ...]:
        declared = self.network.inputs[name].shape or ()
        return (samples, *shape[1:]) if declared and isinstance(declared[0], str) else shape

    def gradient_bytes(self, plan: ParallelPlan) -> int:
        """Bytes of gradients on the rank of a group that has the most of them."""
        return sum(
            math.prod(local_shape(p.value.shape, Sharding.parse(plan.sources.get(name, "R")), plan.ranks, 0))
            * p.value.itemsize
            for name, p in self.network.parameters.items()
            if p.trainable
        )


def splits(plan: ParallelPlan) -> str:
    """Name in words the things that a plan splits."""
    words = ["batch"] if any(plan.sources.get(name, "R").startswith("S") for name in plan.shapes) else []
    words += ["parameters"] if any(plan.sources.keys() - plan.shapes.keys()) else []
    return " and ".join(words) or "nothing"


def fitted_costs(
    network: Network, shapes: Mapping[str, tuple[int, ...]], seconds: float, net: Interconnect
) -> StepCosts:
    """Costs with this network between ranks, and with nodes that take a measured step on one of them."""
    default = replace(StepCosts(), latency=net.alpha, byte_time=net.beta, sum_time=net.gamma)
    factor = seconds / parallelize(network, 1, shapes, wishes=Wishes(model=default)).seconds
    scaled = {name: getattr(default, name) * factor for name in ("operation_time", "memory_time", "start")}
    return replace(default, **scaled)


def replayed(
    replays: GridReplays, counts: Sequence[int], mode: str, base: Interval
) -> tuple[Scaling, dict[tuple[str, int], str], list[str]]:
    """The best of every way on every number of ranks, why some are missing, and in words which way wins where.

    Args:
        replays: of the network.
        counts: numbers of ranks.
        mode: ``"weak"`` for as many samples a rank as ``replays.batch``, else so many together.
        base: the measured step of one rank.

    Raises:
        InputError: no plan fits anywhere.
    """
    entries, lacking, best = list[ScalingPoint](), dict[tuple[str, int], str](), dict[int, dict[str, GridReplay]]()
    for ranks in counts:
        stage(f"plans for {ranks} ranks")
        samples = replays.batch * (ranks if mode == WEAK else 1)
        ways = best[ranks] = {}
        for replay in replays.on(ranks, samples):
            ways[replay.way] = min(ways.get(replay.way, replay), replay, key=lambda grid: grid.seconds)
        for way in (DATA, MODEL, BOTH):
            if way in ways:
                seconds = Interval(ways[way].seconds, None, None, 1)
                entries.append(ScalingPoint(ranks, samples, way, seconds, PREDICTED))
            elif way != BOTH or any(ranks % n == 0 for n in range(2, ranks)):
                few = way == DATA and samples < ranks
                lacking[way, ranks] = f"{samples} samples are too few" if few else "a rank would hold too much"
    if not entries:
        raise InputError(
            f"got ranks that may hold {replays.memory} bytes; expected as many as some plan needs: raise --plan-memory"
        )
    entries.sort(key=lambda entry: (DATA, MODEL, BOTH).index(entry.scheme))
    text = f"one process, batch {replays.batch}, its measured steps"
    return (
        Scaling(ScalingBase(text, "parallel-1", replays.batch, base), tuple(entries)),
        lacking,
        list(_winners(best, mode)),
    )


def _winners(best: Mapping[int, Mapping[str, GridReplay]], mode: str) -> Iterator[str]:
    """Lines that say what wins, and from where on something is quicker than data parallelism."""
    wins = []
    for ranks, ways in best.items():
        if not ways:
            continue
        winner = min(ways.values(), key=lambda replay: replay.seconds)
        only = ways.get(DATA)
        beside = "no data parallelism" if only is None else f"data parallelism {_ms(only.seconds)}"
        yield f"{mode}, {ranks:,} ranks: {winner}, {_ms(winner.seconds)}; {beside}; modelled"
        if winner.way != DATA:
            wins.append(ranks)
    several = [ranks for ranks in best if ranks > 1]
    lasting = next((n for i, n in enumerate(several) if all(later in wins for later in several[i:])), None)
    if several:
        where = f"up to {several[-1]:,} ranks nothing" if lasting is None else f"from {lasting:,} ranks on something"
        yield f"{mode}, break-even: {where} is quicker than data parallelism alone; modelled"


def _ms(seconds: float) -> str:
    return f"{1e3 * seconds:.3g} ms"
