"""A checker of divided networks: the type of every value, in one walk over each rank's network.

It asks neither the plan's crossings nor how networks were written: it reads the ranks' nodes. The type of a value is
the serial value that it stands for, and its sharding. Collectives change the sharding as the algebra says, a node of
the serial network gives types by its strategy's rule, and nothing else may be there. As every rule is proven by itself
(``tests/transformations/parallel/test_rules.py``), networks whose types agree compute what the serial one does.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from deep500.errors import PlanError
from deep500.networks.network import Network
from deep500.networks.node import Node, rename_captures
from deep500.operators.registry import DOMAIN
from deep500.transformations.parallel.dividing import Division, part
from deep500.transformations.parallel.shardings import (
    PARTIAL,
    R,
    Sharding,
    collective_attributes,
    local_shape,
    piece,
    split,
)
from deep500.transformations.parallel.strategies import local_node

Type = tuple[str, Sharding]


def check_division(division: Division, networks: Sequence[Network]) -> None:
    """Raise PlanError unless the ranks' networks compute together what the serial network does.

    Args:
        division: the serial network with the plan's strategies.
        networks: of all ranks, in order.
    """
    if len(networks) != division.graph.ranks:
        raise PlanError(f"got {len(networks)} networks; expected {division.graph.ranks}, one a rank")
    meetings = [_RankCheck(division, network, rank).run() for rank, network in enumerate(networks)]
    for rank, met in enumerate(meetings):
        if met != meetings[0]:
            odd = next((a, b) for a, b in zip([*met, None], [*meetings[0], None], strict=False) if a != b)
            raise PlanError(f"rank {rank}: got collective {odd[0]} where rank 0 has {odd[1]}; expected the same order")


class _RankCheck:
    """The walk over one rank's network."""

    def __init__(self, division: Division, network: Network, rank: int) -> None:
        self.division, self.graph, self.network, self.rank = division, division.graph, network, rank
        self.ranks = self.graph.ranks
        self.types: dict[str, Type] = {}
        self.terms: dict[str, Type] = {}  # values that still lack their weight
        self.weights: dict[str, float] = {}
        self.meetings: list[tuple[str, Type]] = []

    def run(self) -> list[tuple[str, Type]]:
        """Check everything; returns the collectives with what they yield, in order."""
        self._sources()
        for node in self.network.nodes:
            if node.domain == DOMAIN and node.op_type != "":
                self._collective(node)
            elif node.name in self.graph.by_name:
                self._serial(node, self.graph.by_name[node.name])
            else:
                self._between(node)
        for name, sharding in self.division.outputs.items():
            if name not in self.network.outputs:
                raise PlanError(f"rank {self.rank}: got no output {name!r}; expected it: add it")
            self._expect(name, (name, sharding), "the outputs")
        return self.meetings

    def _error(self, node: Node, got: object, expected: object) -> PlanError:
        return PlanError(
            f"rank {self.rank}, node {node.name!r} ({node.op_type}): got {got}; expected {expected}: divide the "
            "network again by the plan"
        )

    def _sources(self) -> None:
        for name in self.graph.sources:
            sharding = self.division.shardings[name]
            self.types[name] = (name, sharding)
            shape = local_shape(self.graph.shapes[name], sharding, self.ranks, self.rank)
            described = self.network.inputs.get(name)
            constant = self.graph.constants.get(name)
            if described is not None:
                got: Any = described.shape
            else:
                value = self.network.parameter(name).value
                got = value.shape
                if constant is not None and not np.array_equal(
                    value, part(constant, sharding, self.ranks, self.rank), equal_nan=value.dtype.kind == "f"
                ):
                    raise PlanError(f"rank {self.rank}: got other values in constant {name!r}; expected its {sharding}")
            if tuple(got) != shape:
                raise PlanError(f"rank {self.rank}: got {name!r} of shape {got}; expected {shape}, its {sharding}")

    def _expect(self, value: str, expected: Type, reader: str) -> None:
        got = self.types.get(value)
        if got != expected:
            shown = "an unknown value" if got is None else f"{got[0]!r} as {got[1]}"
            raise PlanError(
                f"rank {self.rank}: got {shown} in {value!r}, which {reader} reads; expected {expected[0]!r} as "
                f"{expected[1]}: a collective is missing, or there is one too many"
            )

    def _fixed(self, node: Node, index: int) -> np.ndarray:
        name = node.inputs[index]
        if not self.network.has_parameter(name) or self.network.parameter(name).trainable:
            raise self._error(node, f"input {name!r}, which is computed", "a constant")
        return self.network.parameter(name).value

    def _serial(self, node: Node, serial: Node) -> None:
        """A node of the serial network, in the form of its strategy."""
        strategy = self.division.chosen[node.name]
        local, constants, weight = local_node(self.graph.views[node.name], strategy, self.ranks, self.rank)
        same = (node.op_type, node.domain, len(node.reads)) == (local.op_type, local.domain, len(local.reads))
        names = dict(zip(serial.captured, node.captured, strict=False))  # captures of bodies have their own names here
        expected = {key: rename_captures(v, lambda n: names.get(n, n)) for key, v in local.attributes.items()}
        if not same or len(node.inputs) != len(local.inputs) or not _alike(node.attributes, expected):
            raise self._error(node, node, f"{local} with {dict(local.attributes)}")
        for index, (value, demanded, sharding) in enumerate(
            zip(node.inputs, serial.inputs, strategy.inputs, strict=True)
        ):
            if index in constants:
                if not np.array_equal(self._fixed(node, index), constants[index]):
                    raise self._error(node, self._fixed(node, index), constants[index])
            elif demanded:
                self._expect(value, (demanded, sharding), f"node {node.name!r}")
        for value, demanded in zip(node.captured, serial.captured, strict=True):
            self._expect(value, (demanded, R), f"a sub-graph of node {node.name!r}")
        for number, (value, stands_for, sharding) in enumerate(
            zip(node.outputs, serial.outputs, strategy.outputs, strict=True)
        ):
            if value and number == 0 and weight is not None:
                self.terms[value], self.weights[value] = (stands_for, sharding), weight
            elif value:
                self.types[value] = (stands_for, sharding)

    def _between(self, node: Node) -> None:
        """A node that only this rank's network has, without communication: slice, once, or weight."""
        value = node.inputs[0] if node.op_type != "Where" else node.inputs[1]
        if node.op_type == "Mul" and value in self.terms:
            weight = self._fixed(node, 1)
            if weight.shape != () or not np.isclose(float(weight), self.weights[value], rtol=1e-6, atol=0):
                raise self._error(node, f"weight {weight}", self.weights[value])
            self.types[node.outputs[0]] = self.terms[value]
            return
        stands_for, before = self.types.get(value, ("", R))
        if before != R or not stands_for:
            raise self._error(node, f"{value!r} as {before}", "a value that is whole")
        if node.op_type == "Where":
            here, zero = self._fixed(node, 0), self._fixed(node, 2)
            if here.shape != () or bool(here) != (self.rank == 0) or zero.any():
                raise self._error(node, f"{here} and {zero}", f"{self.rank == 0} and zero")
            self.types[node.outputs[0]] = (stands_for, PARTIAL)
        elif node.op_type == "Slice" and len(node.inputs) == 4:
            start, stop, axis = (int(self._fixed(node, index).item()) for index in (1, 2, 3))
            where = piece(self.graph.shapes[stands_for][axis], self.ranks, self.rank)
            if (start, stop) != (where.start, where.stop):
                raise self._error(node, f"{start} to {stop}", f"{where.start} to {where.stop}, this rank's piece")
            self.types[node.outputs[0]] = (stands_for, split(axis))
        else:
            raise self._error(node, "a node that the serial network does not have", "a slice, a Where or a weight")

    def _collective(self, node: Node) -> None:
        stands_for, before = self.types.get(node.inputs[0], ("", R))
        if not stands_for:
            raise self._error(node, f"{node.inputs[0]!r}", "a value of the serial network")
        axis = int(node.attributes.get("axis", -1))
        ends = {"AllReduce": R, "AllGather": R, "ReduceScatter": split(axis), "AllToAll": split(axis)}
        begins = {
            "AllReduce": before.kind == "P",
            "AllGather": before == split(axis),
            "ReduceScatter": before == PARTIAL,
            "AllToAll": before == split(int(node.attributes.get("gather_axis", -1))),
        }
        if node.op_type not in ends or not begins[node.op_type]:
            raise self._error(node, f"{node.inputs[0]!r} as {before}", "what this collective takes")
        after = ends[node.op_type]
        expected = collective_attributes(before, after, self.graph.shapes[stands_for], self.ranks, self.rank)
        if not _alike(node.attributes, expected):
            raise self._error(node, dict(node.attributes), dict(expected))
        self.types[node.outputs[0]] = (stands_for, after)
        self.meetings.append((node.op_type, (stands_for, after)))


def _alike(left: Mapping[str, Any], right: Mapping[str, Any]) -> bool:
    """Whether attributes are equal, tuples and arrays included."""
    return left.keys() == right.keys() and all(np.array_equal(left[name], right[name]) for name in left)
