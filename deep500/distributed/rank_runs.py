"""`RankRun`: a rank's network on any backend, cut at its collectives into pieces that are networks of their own."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from deep500.distributed.collectives import COLLECTIVES, run_collective, sum_together
from deep500.distributed.transports.communicator import Communicator
from deep500.networks.custom import every_node
from deep500.networks.execution.executor import GraphExecutor
from deep500.networks.execution.slicing import values_read
from deep500.networks.network import Network
from deep500.networks.node import Node
from deep500.operators.registry import DOMAIN
from deep500.tensors import numpy_dtype


class Phase(NamedTuple):
    """Nodes that need no further communication, and the collectives after them.

    Attributes:
        executor: of these nodes; None if there are none.
        inputs, outputs: values that they take and give.
        meetings: collective nodes, in the order that is every rank's.
        done: values that nobody reads after this phase.
        random: whether random numbers are drawn, in sub-graphs too.
    """

    executor: GraphExecutor | None
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    meetings: tuple[Node, ...]
    done: tuple[str, ...]
    random: bool


def phases(nodes: Sequence[Node], late: Collection[str] = ()) -> list[tuple[list[Node], list[Node]]]:
    """Nodes by how many collectives lie before them at most, each time those that compute and those that communicate.

    Args:
        nodes: in an order in which they may run.
        late: names of those that run as late as their readers allow, so that what they write is held for less long.

    Example:
        >>> work = [Node("Relu", ("x",), ("a",), "a"), Node("AllReduce", ("a",), ("b",), "b", DOMAIN),
        ...         Node("Neg", ("x",), ("c",), "c"), Node("Add", ("b", "c"), ("d",), "d")]
        >>> [([n.name for n in computing], [n.name for n in meeting]) for computing, meeting in phases(work)]
        [(['a', 'c'], ['b']), (['d'], [])]
    """
    level, place, first = dict[str, int](), dict[str, int](), dict[str, int]()
    for node in nodes:
        place[node.name] = max((level.get(value, 0) for value in node.reads), default=0)
        level.update(dict.fromkeys(node.writes, place[node.name] + is_collective(node)))
    for node in reversed(nodes):
        if node.name in late and (readers := [first[value] for value in node.writes if value in first]):
            place[node.name] = min(readers) - is_collective(node)
        first.update({value: min(first.get(value, place[node.name]), place[node.name]) for value in node.reads})
    groups: list[tuple[list[Node], list[Node]]] = [([], []) for _ in range(1 + max(place.values(), default=-1))]
    for node in nodes:
        groups[place[node.name]][is_collective(node)].append(node)
    return groups


def is_collective(node: Node) -> bool:
    """Whether the ranks meet in a node."""
    return node.domain == DOMAIN and node.op_type in COLLECTIVES


class RankRun:
    """Runs the network of one rank; holds no parameter that changes, and nothing of a run after it.

    Args:
        network: of this rank, with collectives as nodes.
        live: parameters that each run is given.
        like: an executor of the backend that runs the pieces.
        comm: all ranks run together.
        late: see :func:`phases`.

    Example:
        >>> from deep500.distributed import Serial
        >>> from deep500.frameworks import reference
        >>> network = Network("rank"); network.add_input("x", (2,))
        >>> network.add_node("AllReduce", ["x"], ["y"], domain="deep500"); network.add_output("y")
        >>> run = RankRun(network, (), reference.from_model(network), Serial())
        >>> run({"x": np.ones(2, "float32")})["y"].tolist()
        [1.0, 1.0]
    """

    def __init__(
        self,
        network: Network,
        live: Collection[str],
        like: GraphExecutor,
        comm: Communicator,
        late: Collection[str] = (),
    ) -> None:
        self.network, self.comm, self.home, self.late = network, comm, like.network, late
        self.phases = self._cut(frozenset(live), like)
        direct = {n for phase in self.phases for node in phase.meetings for n in node.inputs} | {*network.outputs}
        fixed = {n: p.value for n, p in network.parameters.items() if n in direct and n not in live}  # in no piece
        self.fixed = {name: like.network.to_tensor(value) for name, value in fixed.items()}

    def _cut(self, live: frozenset[str], like: GraphExecutor) -> list[Phase]:
        groups = phases(self.network.nodes, self.late)
        later = [set(self.network.outputs)]  # from the back: values read after each phase
        for computing, meeting in reversed(groups):
            later.append(later[-1] | {v for node in (*computing, *meeting) for v in node.reads})
        later.reverse()
        cut, alive = list[Phase](), set[str]()
        for (computing, meeting), after in zip(groups, later[1:], strict=True):
            read = after | {v for node in meeting for v in node.reads}
            outputs = tuple(v for node in computing for v in node.writes if v in read)
            part = self._part(computing, outputs, live) if outputs else None
            inputs = () if part is None else tuple(part.inputs)
            alive |= {*inputs, *outputs, *(v for node in meeting for v in node.writes)}
            done = tuple(v for v in alive if v not in after)
            alive -= set(done)
            random = any(node.is_random for node in every_node(computing))
            executor = None if part is None else like.like(part)
            cut.append(Phase(executor, inputs, outputs, tuple(meeting), done, random))
        return cut

    def _part(self, nodes: Sequence[Node], outputs: Sequence[str], live: frozenset[str]) -> Network:
        """Nodes as a network; what comes from before, and parameters that change, are inputs."""
        part, described = Network(f"{self.network.name}: {nodes[0].name}"), self.network.descriptors()
        written = {value for node in nodes for value in node.writes}
        for name in values_read(nodes, ()):
            if name in written:
                continue
            if self.network.has_parameter(name) and name not in live:
                part.put_parameters({name: self.network.parameter(name)})
            else:
                part.add_input(name, described[name].shape, described[name].dtype or "float32")
        for node in nodes:
            part.insert(node)
        for name in outputs:
            part.add_output(name)
        return part

    def __call__(self, tensors: Mapping[str, Any], seed: int = 0) -> dict[str, Any]:
        """The network's outputs.

        Args:
            tensors: by name: this rank's parts of the inputs, and live parameters.
            seed: of random numbers, the same on every rank.
        """
        values = {**self.fixed, **tensors}
        for number, phase in enumerate(self.phases):
            if phase.executor is not None:
                if phase.random:
                    phase.executor.reseed(seed + number)
                feeds = {name: self._as_declared(values[name], phase.executor, name) for name in phase.inputs}
                values.update(phase.executor.inference(feeds, phase.outputs))
                phase.executor.network.forget_results()
            self._meet(phase.meetings, values)
            for name in phase.done:
                values.pop(name, None)
        return {name: values[name] for name in self.network.outputs}

    def _meet(self, meetings: Sequence[Node], values: dict[str, Any]) -> None:
        """Collectives of one phase; sums of one dtype are one message."""
        sums: dict[np.dtype, list[tuple[Node, np.ndarray]]] = {}
        for node in meetings:
            array = self.home.to_numpy(values[node.inputs[0]])
            if node.op_type == "AllReduce" and node.attributes.get("reduction", "sum") == "sum":
                sums.setdefault(array.dtype, []).append((node, array))
            else:
                values[node.outputs[0]] = run_collective(node.op_type, array, node.attributes, self.comm)
        for terms in sums.values():
            results = sum_together([array for _, array in terms], terms[0][0].attributes, self.comm)
            values.update({node.outputs[0]: result for (node, _), result in zip(terms, results, strict=True)})

    @staticmethod
    def _as_declared(value: Any, executor: GraphExecutor, name: str) -> Any:
        """NumPy kernels keep narrow floats in wider arrays: between pieces they are rounded as their dtype says."""
        if not isinstance(value, np.ndarray):
            return value
        dtype = executor.network.inputs[name].dtype
        return value if dtype is None or "(" in dtype else value.astype(numpy_dtype(dtype), copy=False)
