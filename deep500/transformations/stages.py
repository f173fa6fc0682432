"""Networks in stages, one after the other, each with the parameters that it reads and a gradient of its own.

What trains a network that no process holds whole: the parameters of a stage are inputs of it, so who runs a stage
brings them and lets them go. A stage's backward pass runs its forward pass again (recomputation by stages, as in GPipe,
Huang et al. 2019, arXiv 1811.06965, section 2.3): between the two only values that cross from stage to stage are held.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from deep500.errors import InputError
from deep500.networks.execution.modes import training_network
from deep500.networks.flops import count_flops
from deep500.networks.gradients.autodiff import gradient_names, pull_back
from deep500.networks.losses import find_loss
from deep500.networks.network import Network
from deep500.networks.node import Node
from deep500.tensors import TensorDescriptor

MOST_CROSSING = 4
"""Most activations that may cross where a network is cut, if cuts with fewer are too few."""

SEED = "seed/"
"""Before the name of a value: the input of a stage that is the loss's gradient with respect to that value."""


@dataclass(frozen=True)
class TrainingStage:
    """A part of a network in training mode, with its gradient.

    Attributes:
        name: of its first value.
        network: inputs are what crosses into the stage, its parameters and running statistics, and a seed for each
            value with a gradient that it hands on; outputs are all that follows here.
        parameters: names of the trainable parameters among the inputs.
        receives, hands_on: values that come from earlier stages or go to later ones, in order.
        outputs: outputs of the whole network that are computed here, the loss among them.
        statistics: for each running statistic, an input, the value that replaces it.
        gradients: for each parameter, and each value that came with a gradient, the value that is its gradient.
        inputs: inputs of the whole network that the stage reads.
        random: whether it draws random numbers.
        work: operations of its forward pass for one sample, a measure to balance stages by.
    """

    name: str
    network: Network
    parameters: tuple[str, ...]
    receives: tuple[str, ...]
    hands_on: tuple[str, ...]
    outputs: tuple[str, ...]
    statistics: Mapping[str, str]
    gradients: Mapping[str, str]
    inputs: tuple[str, ...]
    random: bool
    work: float


def stages(network: Network, loss: str = "loss", count: int | None = None, crossing: int = 1) -> list[TrainingStage]:
    """A network in stages.

    The network is cut where at most ``crossing`` activations are alive; where that leaves too few stages, up to 4 may
    cross. Without ``count`` there are as many stages as there are
    between such cuts with a matrix of their own: a layer or block each.
    With it neighbours are joined so that the largest has as little work (operations) as possible.

    Args:
        network: stays as it is.
        loss: the scalar that is differentiated; outputs behind it are computed with it.
        count: how many stages; None: as many as possible.
        crossing: how many activations may cross a cut, at least.

    Raises:
        InputError: the network cannot be cut in so many stages, or random numbers of one stage are drawn in another.
        UnsupportedOperator: a gradient has no rule.

    Example:
        >>> from deep500.networks import add_loss, create
        >>> network = add_loss(create("lenet"))
        >>> [(stage.name, stage.parameters) for stage in stages(network)][:2]  # doctest: +NORMALIZE_WHITESPACE
        [('conv1', ('conv1.weight', 'conv1.bias')), ('conv2', ('conv2.weight', 'conv2.bias'))]
        >>> [(stage.receives, stage.hands_on) for stage in stages(network, count=2)]
        [((), ('pool1',)), (('pool1',), ())]
    """
    find_loss(network, loss)
    cutter = _Cutter(network, loss)
    return cutter.stages(_pieces(cutter, count, crossing))


def layers(network: Network, loss: str = "loss", crossing: int = 1, count: int | None = None) -> dict[str, int]:
    """For each node that depends on the network's inputs, by its name, the stage of :func:`stages` that it is in; for
    backends that differentiate by themselves, which need no gradient of a stage.

    Example:
        >>> from deep500.networks import add_loss, create
        >>> numbers = layers(add_loss(create("lenet")))
        >>> numbers["conv1"], numbers["conv2"], max(numbers.values())
        (0, 1, 4)
    """
    find_loss(network, loss)
    pieces = _pieces(_Cutter(network, loss), count, crossing)
    return {node.name: number for number, piece in enumerate(pieces) for node in piece}


def _pieces(cutter: _Cutter, count: int | None, crossing: int) -> list[list[Node]]:
    """Pieces between cuts that as few activations cross as leave ``count`` or more, which are joined; None: two."""
    for allowed in range(crossing, max(MOST_CROSSING, crossing) + 1):
        pieces = cutter.pieces(allowed)
        if len(pieces) >= (2 if count is None else count):
            break
    if count is None:
        return pieces
    if len(pieces) < count:
        raise InputError(
            f"got a network that can be cut in {len(pieces)} stages with parameters (at most {allowed} activations "
            f"crossing); expected {count}: use fewer stages (ranks), or a network in which fewer values skip layers"
        )
    return balanced(pieces, [cutter.work(piece) for piece in pieces], count)


def balanced(pieces: Sequence[list[Node]], weights: Sequence[float], count: int) -> list[list[Node]]:
    """Neighbours joined to ``count`` pieces whose largest weight is as small as possible (dynamic programme).

    Example:
        >>> balanced([["a"], ["b"], ["c"], ["d"]], [1, 1, 1, 3], 2)
        [['a', 'b', 'c'], ['d']]
    """
    ends = np.concatenate([[0.0], np.cumsum(weights)])
    n = len(pieces)
    least = [[np.inf] * (n + 1) for _ in range(count + 1)]
    begin = [[0] * (n + 1) for _ in range(count + 1)]
    least[0][0] = 0.0
    for k in range(1, count + 1):
        for last in range(k, n + 1):
            for first in range(k - 1, last):
                most = max(least[k - 1][first], ends[last] - ends[first])
                if most < least[k][last]:
                    least[k][last], begin[k][last] = most, first
    bounds = [n]
    for k in range(count, 0, -1):
        bounds.append(begin[k][bounds[-1]])
    bounds.reverse()
    return [[node for piece in pieces[a:b] for node in piece] for a, b in pairwise(bounds)]


class _Cutter:
    """Divides the nodes that depend on the network's inputs; all others are computed wherever they are read."""

    def __init__(self, network: Network, loss: str) -> None:
        self.network, self.loss = network, loss
        self.described = network.descriptors()
        self.trained = {name for name, _ in gradient_names(network, loss)}
        moving, learning = set(network.inputs), set(self.trained)
        self.nodes: list[Node] = []
        for node in network.nodes:
            if moving.intersection(node.reads) or self.trained.intersection(node.reads) or node.is_random:
                moving.update(node.writes)
                self.nodes.append(node)
            if learning.intersection(node.reads):
                learning.update(node.writes)
        self.moving, self.learning = moving, learning  # values that depend on inputs; on trained parameters
        self.flops = count_flops(network, 1)

    def floating(self, value: str) -> bool:
        """Return whether a value can have a gradient."""
        return "float" in (self.described.get(value, TensorDescriptor()).dtype or "")

    def work(self, nodes: Iterable[Node]) -> float:
        """Operations of a sample's forward pass, at least one a node."""
        return float(sum(max(self.flops.get(node.name) or 1, 1) for node in nodes))

    def pieces(self, crossing: int) -> list[list[Node]]:
        """Nodes in pieces between which few activations are alive; each reads a matrix that none before it reads."""
        last = {value: i for i, node in enumerate(self.nodes) for value in node.reads}
        pieces: list[list[Node]] = []
        current: list[Node] = []
        alive: set[str] = set()
        seen: set[str] = set()
        for i, node in enumerate(self.nodes):
            current.append(node)
            alive.update(value for value in node.writes if self.floating(value))
            alive = {value for value in alive if last.get(value, -1) > i}
            if len(alive) <= crossing:
                new = {value for n in current for value in n.reads if value in self.trained} - seen
                if any(self.network.parameters[name].value.ndim > 1 for name in new) or not pieces:
                    pieces.append(current)
                else:  # an activation, a bias or a normalisation behind its layer
                    pieces[-1].extend(current)
                seen |= new
                current = []
        if current:
            pieces = [*pieces[:-1], [*(pieces[-1] if pieces else []), *current]]
        while len(pieces) > 1 and not self.trained.intersection(v for node in pieces[0] for v in node.reads):
            pieces[:2] = [[*pieces[0], *pieces[1]]]  # what only prepares the inputs
        return pieces

    def stages(self, pieces: Sequence[list[Node]]) -> list[TrainingStage]:
        """The stages of these pieces."""
        homes = {value: number for number, piece in enumerate(pieces) for node in piece for value in node.writes}
        read: dict[str, set[int]] = {}
        for number, piece in enumerate(pieces):
            for value in self._sources(piece, homes):
                if homes.get(value, number) != number:
                    read.setdefault(value, set()).add(number)
        stages = []
        for number, piece in enumerate(pieces):
            receives = [value for value, readers in read.items() if number in readers]
            hands_on = [value for value in read if homes[value] == number]
            outputs = [n for n in dict.fromkeys([*self.network.outputs, self.loss]) if homes.get(n) == number]
            stages.append(self._stage(piece, receives, hands_on, outputs))
        return stages

    def _sources(self, piece: Sequence[Node], homes: Mapping[str, int]) -> list[str]:
        """Values that a piece reads, with what the unmoving nodes that it needs read."""
        written = {value for node in piece for value in node.writes}
        return [v for node in self._closure(piece, homes) for v in node.reads if v not in written]

    def _closure(self, piece: Sequence[Node], homes: Mapping[str, int]) -> list[Node]:
        """A piece and the nodes of no piece that it needs, in order."""
        chosen, open_values = {node.name for node in piece}, {v for node in piece for v in node.reads}
        for node in reversed(self.network.nodes):
            if node.name not in chosen and open_values.intersection(node.writes) and homes.get(node.writes[0]) is None:
                chosen.add(node.name)
                open_values.update(node.reads)
        return [node for node in self.network.nodes if node.name in chosen]

    def _stage(self, piece: list[Node], receives: list[str], hands_on: list[str], outputs: list[str]) -> TrainingStage:
        homes = dict.fromkeys(self.moving, -1)
        nodes = self._closure(piece, homes)
        part, inputs, parameters = self._part(nodes, receives)
        for name in dict.fromkeys([*hands_on, *outputs]):
            part.add_output(name)
        train, updates = training_network(part)
        for name in updates:  # inputs, like all that changes: a backend may compile what a parameter holds
            train.parameter_to_input(name)
        seeded = [v for v in dict.fromkeys([*hands_on, *outputs]) if v in self.learning and self.floating(v)]
        seeded = [v for v in seeded if v == self.loss or v in hands_on]
        described = train.descriptors()
        for value in seeded:
            train.add_input(SEED + value, described[value].shape, described[value].dtype or "float32")
        targets = [*parameters, *(v for v in receives if v in self.learning and self.floating(v))]
        totals = pull_back(train, {v: SEED + v for v in seeded}, targets) if targets else []
        for total in dict.fromkeys(totals):
            if total not in train.outputs:
                train.add_output(total)
        return TrainingStage(
            piece[0].writes[0],
            train,
            tuple(parameters),
            tuple(receives),
            tuple(hands_on),
            tuple(outputs),
            updates,
            dict(zip(targets, totals, strict=True)),
            tuple(inputs),
            any(n.is_random for n in nodes),
            self.work(piece),
        )

    def _part(self, nodes: Sequence[Node], receives: Collection[str]) -> tuple[Network, list[str], list[str]]:
        """Nodes as a network whose inputs are what they read of the network's, what crosses, and their parameters."""
        network, part = self.network, Network(f"{self.network.name}: {nodes[0].name}")
        written = {value for node in nodes for value in node.writes}
        inputs, parameters = [], []
        for name in dict.fromkeys(value for node in nodes for value in node.reads if value not in written):
            described = self.described.get(name, TensorDescriptor())
            if name in self.trained:
                part.add_input(name, network.parameters[name].value.shape, described.dtype or "float32")
                parameters.append(name)
            elif name in network.parameters:
                part.add_parameter(name, network.parameters[name].value, trainable=False, copy=False)
            else:
                part.add_input(name, described.shape, described.dtype or "float32")
                if name not in receives:
                    inputs.append(name)
        for node in nodes:
            part.add_node(node.op_type, node.inputs, node.outputs, node.name, node.domain, **node.attributes)
        part.declare({value: self.described[value] for value in written if value in self.described})  # what a file says
        return part, inputs, parameters
