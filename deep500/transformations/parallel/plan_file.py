"""Parallel plans as files, as tables, and as networks of the ranks.

A plan is choices alone: a sharding of every input and parameter, a strategy of every node of the step. What they make
of a network is derived (:class:`~deep500.transformations.parallel.dividing.Division`) and checked
(:func:`~deep500.transformations.parallel.checking.check_division`) each time, so one file serves every backend. It
holds for one structure of a network and the sizes of one batch, and is refused for others.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Any, NamedTuple

from deep500.errors import PlanError
from deep500.networks.hashing import structure_hash
from deep500.networks.network import Network
from deep500.reading import LARGEST, check_hash, declare, number, read_json, validate, with_hash, word
from deep500.transformations.parallel.checking import check_division
from deep500.transformations.parallel.costs import StepCosts
from deep500.transformations.parallel.dividing import Crossing, Division, StepGraph
from deep500.transformations.parallel.joint import joint_network
from deep500.transformations.parallel.shardings import Sharding

FORMAT = "deep500-parallel-plan"
VERSION = 1
AGAIN = "name a plan file, or plan again with parallelize"

_HEAD = declare({"format": word(FORMAT), "version": number(VERSION, VERSION, whole=True)})
_COUNT = number(0, LARGEST, whole=True)
_PLAN = declare(
    {
        "network": str,
        "ranks": number(1, 65536, whole=True),
        "loss": (str, None),
        "shapes": {str: [_COUNT]},
        "sources": {str: str},
        "constants": {str: str},
        "strategies": {str: str},
        "seconds": number(0, 1e300),
        "nbytes": _COUNT,
        "memory": _COUNT,
        "again?": [[str]],
        "peaks?": [_COUNT],
        "costs?": {str: number(0, 1e300)},
        "costs_from?": str,
        "hash": str,
    }
)
"""Format of a plan file; :class:`ParallelPlan` says what it means."""


class PlanRow(NamedTuple):
    """A node in :meth:`ParallelPlan.explain`.

    Attributes:
        node, operator, strategy: its name, its type, and how it is divided.
        shardings: of its outputs.
        collectives: what is done to values that it reads, each as ``value: AllReduce P -> R, 128 bytes``.
        why: reasons of these, or of the sharding.
        nbytes: that each rank hands to the communicator for these.
    """

    node: str
    operator: str
    strategy: str
    shardings: str
    collectives: str
    why: str
    nbytes: int = 0


PIPELINE = (
    "not considered: ranks of a plan run the same nodes, in step, and costs add up by node; for stages of layers with "
    "parts of the batch on their way use scheme=Pipeline, or a mesh of data and pipeline, in the plan's place"
)
_TEXTS = 6  # fields of a row that are columns of a table of text


@dataclass(frozen=True)
class ParallelPlan:
    """Choices for one network, number of ranks and batch.

    Attributes:
        network: its :func:`~deep500.networks.hashing.structure_hash`.
        ranks: how many.
        loss: the scalar that is differentiated; None for a forward run in evaluation mode.
        shapes: of the inputs, for the whole batch.
        sources: sharding of inputs and parameters; what is absent is whole on every rank.
        constants: the same of constants of the step.
        strategies: of nodes; what is absent is replicated.
        seconds: of a step, by the model of costs.
        nbytes: bytes that each rank hands to the communicator in a step.
        memory: bytes of parameters, gradients and optimizer state that a rank holds.
        again: regions of the forward pass that every rank computes again, each as the values that its nodes write.
        peaks: bytes of values that the first rank holds in a step with them and without; empty where none was asked.
        costs: constants of that model, see :class:`~deep500.transformations.parallel.costs.StepCosts`.
        costs_from: where they come from, in words; empty in files from before this was written down.
    """

    network: str
    ranks: int
    loss: str | None
    shapes: Mapping[str, tuple[int, ...]]
    sources: Mapping[str, str]
    constants: Mapping[str, str]
    strategies: Mapping[str, str]
    seconds: float
    nbytes: int
    memory: int
    again: Sequence[Sequence[str]] = ()
    peaks: Sequence[int] = ()
    costs: Mapping[str, float] = field(default_factory=dict)
    costs_from: str = ""

    def about(self) -> str:
        """The plan in a sentence: what it sends, holds and takes, and by which costs of messages it was chosen."""
        costs = f"{StepCosts(**self.costs)} ({self.costs_from})" if self.costs else "unknown costs"
        again = f"; {len(self.again)} regions run again, {self.peaks[0]} of {self.peaks[1]} bytes" if self.peaks else ""
        return (
            f"{len(self.strategies)} nodes of a step divided among {self.ranks} ranks, {self.nbytes} bytes sent by "
            f"each, {self.memory} of parameters, gradients and state held; modelled {1e3 * self.seconds:.3g} ms, from "
            f"{costs}{again}"
        )

    def data(self) -> dict[str, Any]:
        """The plan as :func:`json.dumps` takes it and :func:`parallel_plan_from` reads it."""
        fields = {**asdict(self), "shapes": {name: list(shape) for name, shape in self.shapes.items()}}
        data = {"format": FORMAT, "version": VERSION, **fields}
        return with_hash(data)

    def save(self, path: str | os.PathLike[str]) -> Path:
        """Write it as JSON; returns the path."""
        target = Path(path)
        target.write_text(json.dumps(self.data(), indent=1) + "\n")
        return target

    def division(self, network: Network) -> Division:
        """The plan's choices for the step of this network.

        Raises:
            PlanError: it was made for another network, or its choices are none of such a network's, as in a file that
                was edited.
        """
        got = structure_hash(network)
        if got != self.network:
            raise PlanError(
                f"got network {network.name!r} with structure {got[:12]}; expected {self.network[:12]}, for which the "
                "plan was made: plan again for this network"
            )
        graph = StepGraph(joint_network(network, self.shapes, self.loss), self.ranks)
        sources = {name: Sharding.parse(text) for name, text in {**self.sources, **self.constants}.items()}
        if odd := sorted({*sources, *self.strategies} - {*graph.sources, *graph.by_name}):
            raise PlanError(f"got a plan of {odd[:3]}; expected nodes, inputs and parameters of the step: plan again")
        return Division(graph, sources, self.strategies)

    def networks(self, network: Network) -> list[Network]:
        """One plain network a rank, checked; collectives are nodes of domain ``deep500``.

        Raises:
            PlanError: as :meth:`division`.
        """
        division = self.division(network)
        networks = [division.network(rank) for rank in range(self.ranks)]
        check_division(division, networks)
        return networks

    def explain(self, network: Network) -> list[PlanRow]:
        """Where every node runs and what is communicated before it, and why; print it with :func:`as_table`.

        The last row says why no stages of a pipeline are among the strategies.
        """
        division = self.division(network)
        crossings: dict[str, list[Crossing]] = {}
        for crossing in division.crossings:
            crossings.setdefault(crossing.readers[0], []).append(crossing)
        rows = []
        for node in division.graph.nodes:
            strategy = division.chosen[node.name]
            met = crossings.get(node.name, [])
            shardings = ", ".join(str(s) for s in strategy.outputs)
            rows.append(
                PlanRow(
                    node.name,
                    node.op_type,
                    strategy.name,
                    shardings,
                    "; ".join(map(_shown, met)),
                    "; ".join(_reason(division, crossing) for crossing in met) or _choice(division, node.name),
                    sum(crossing.resharding.nbytes for crossing in met),
                )
            )
        last = crossings.get("output", [])
        if last:
            why = "; ".join(_reason(division, crossing) for crossing in last)
            sent = sum(crossing.resharding.nbytes for crossing in last)
            rows.append(PlanRow("output", "", "", "", "; ".join(map(_shown, last)), why, sent))
        if self.ranks > 1:
            rows.append(PlanRow("pipeline", "", "", "", "", PIPELINE))
        return rows


def _shown(crossing: Crossing) -> str:
    collective, sent = crossing.resharding.collective, crossing.resharding.nbytes
    return f"{crossing.value}: {collective} {crossing.before} -> {crossing.after}, {sent} bytes"


def _reason(division: Division, crossing: Crossing) -> str:
    producer = division.graph.network.producer(crossing.value)
    leaves = "it lies" if producer is None else f"{producer.name} ({division.chosen[producer.name].name}) leaves it"
    readers = ", ".join(crossing.readers[:3]) + (", ..." if len(crossing.readers) > 3 else "")
    return f"{leaves} as {crossing.before}, {readers} read it as {crossing.after}"


def _choice(division: Division, name: str) -> str:
    if len(division.graph.strategies[name]) == 1 and division.graph.ranks > 1:
        return "replicated: no rule divides it on so many ranks"
    strategy = division.chosen[name]
    return "each rank does its part" if strategy.work else "every rank does all of it"


def as_table(rows: list[PlanRow]) -> str:
    """Rows of a plan in columns.

    Example:
        >>> print(as_table([PlanRow("fc", "MatMul", "k", "P", "", "each rank does its part")]))
        node  operator  strategy  shardings  collectives  why
        fc    MatMul    k         P                       each rank does its part
    """
    lines = [PlanRow._fields[:_TEXTS], *(tuple(map(str, row[:_TEXTS])) for row in rows)]
    widths = [max(len(line[i]) for line in lines) for i in range(_TEXTS)]
    return "\n".join("  ".join(f"{text:{n}}" for text, n in zip(line, widths, strict=True)).rstrip() for line in lines)


def load_parallel_plan(path: str | os.PathLike[str]) -> ParallelPlan:
    """Read a plan file.

    Raises:
        PlanError: it cannot be read, is no plan, lacks something, or was changed after it was written.
    """
    return parallel_plan_from(read_json(path, _HEAD, links=True, error=PlanError, do=AGAIN), path)


def parallel_plan_from(data: Any, path: str | os.PathLike[str]) -> ParallelPlan:
    """The plan whose :meth:`ParallelPlan.data` this is; ``path`` says where it comes from.

    Raises:
        PlanError: it is no plan, lacks something, or is not what was written.
    """
    validate(data, _HEAD, path, error=PlanError, do=AGAIN)
    validate(data, _PLAN, path, error=PlanError, do=AGAIN)
    check_hash(data, path, error=PlanError, do=AGAIN)
    shapes = {name: tuple(shape) for name, shape in data["shapes"].items()}
    known = {name: data[name] for name in ParallelPlan.__annotations__ if name in data}
    if odd := sorted(set(known.get("costs", ())) - {constant.name for constant in fields(StepCosts)}):
        raise PlanError(f"{path}: got costs {odd}; expected those of StepCosts; {AGAIN}")
    again, peaks = tuple(map(tuple, known.get("again", ()))), tuple(known.get("peaks", ()))
    return ParallelPlan(**{**known, "shapes": shapes, "again": again, "peaks": peaks})
