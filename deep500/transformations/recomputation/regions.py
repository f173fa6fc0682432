"""Candidate regions of a network: where it is cut, how they nest, and what each costs as input of the planners.

The nodes of the forward pass are swept once in order. Between two of them the network can be cut if at most
``crossing`` floating activations are alive there: articulation points, for 1. Stretches in which nothing would be
saved are joined with the next. Where names such as ``layer1.0.conv1`` have scopes, these nest the regions; long runs
without are halved by bytes, so that depth grows with the logarithm of their number.

A value that crosses from one region to a later one counts with the region that writes it: kept, it is part of that
region's tape; recomputed, it is the region's snapshot. So each is counted once. A region that runs again reads its
inputs, which the regions before it hold, and what its impure nodes wrote, which is part of its snapshot.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import count, groupby, pairwise, takewhile

from deep500.errors import PlanError
from deep500.networks.flops import count_flops
from deep500.networks.graph import Graph
from deep500.networks.network import Network
from deep500.networks.node import Node
from deep500.transformations.recomputation.region_tree import Region, locations
from deep500.transformations.recomputation.training_step import (
    TrainingStep,
    impurity,
    live_bytes,
    training_step,
    with_batch,
)

_ACTIVATIONS = frozenset(
    {"Relu", "LeakyRelu", "Elu", "Selu", "Celu", "Gelu", "Sigmoid", "HardSigmoid", "HardSwish", "Tanh", "Softplus"}
    | {"Softsign", "Mish", "Swish", "ThresholdedRelu", "Clip", "Dropout"}
)
_FLAT = 8  # regions beside each other before they are nested by bytes


@dataclass(frozen=True)
class Stretch:
    """Consecutive nodes of the forward pass, and the stretches that it is divided into, if any."""

    name: str
    nodes: tuple[Node, ...]
    parts: tuple[Stretch, ...] = ()


def segment(step: TrainingStep, crossing: int = 1) -> tuple[Stretch, ...]:
    """The outermost stretches of a step's forward pass, in order; together they hold all of its nodes.

    Example:
        >>> from deep500.networks import add_loss, create
        >>> from deep500.transformations.recomputation.training_step import training_step
        >>> step = training_step(add_loss(create("resnet", depth=8)), 2)
        >>> [stretch.name for stretch in segment(step)]
        ['conv1:relu1', 'layer1.0.conv1:layer1.0.relu2', ..., 'avgpool:loss']
    """
    leaves = _join(step, _cut(step, crossing))
    return _named(_nest(step, leaves, 0), {"network", *(leaf.name for leaf in leaves)})


def _named(stretches: Iterable[Stretch], taken: set[str]) -> tuple[Stretch, ...]:
    """The same with a name of its own for every group: a scope may be left and come again."""
    named = []
    for stretch in stretches:
        name = stretch.name
        if stretch.parts:
            name = next(n for n in (f"{name} ({i})" if i > 1 else name for i in count(1)) if n not in taken)
            taken.add(name)
        named.append(replace(stretch, name=name, parts=_named(stretch.parts, taken)))
    return tuple(named)


def live_out(step: TrainingStep, nodes: Sequence[Node]) -> set[str]:
    """Values that these nodes write and other nodes of the forward pass, or the network's outputs, read."""
    inside = {node.name for node in nodes}
    written = {value for node in nodes for value in node.writes}
    read = {value for node in step.forward if node.name not in inside for value in node.reads}
    return written & (read | set(step.network.outputs) | {step.loss})


def _cut(step: TrainingStep, crossing: int) -> list[list[Node]]:
    """Pieces between which at most ``crossing`` floating activations are alive."""
    activations = _activations(step)
    last = {value: i for i, node in enumerate(step.forward) for value in node.reads}
    pieces: list[list[Node]] = [[]]
    alive: set[str] = set()
    for i, node in enumerate(step.forward):
        pieces[-1].append(node)
        alive.update(activations.intersection(node.writes))
        alive = {v for v in alive if last.get(v, -1) > i}
        if len(alive) <= crossing:
            pieces.append([])
    return [piece for piece in pieces if piece]


def _activations(step: TrainingStep) -> set[str]:
    """Floating values of the forward pass that depend on an input."""
    described, moving = step.network.descriptors(), set(step.network.inputs)
    for node in step.forward:
        if moving.intersection(node.reads):
            moving.update(node.writes)
    return {value for value in moving if "float" in (described[value].dtype or "")}


def _join(step: TrainingStep, pieces: list[list[Node]]) -> list[Stretch]:
    """Join a piece with the next while it would hold no less without its tape, the last one with the one before."""
    joined: list[list[Node]] = []
    current: list[Node] = []
    for piece in pieces:
        # An activation behind a convolution would be a region that saves nothing: it ends the one before.
        if not current and joined and _belongs(step, piece, joined[-1]):
            joined[-1].extend(piece)
            continue
        current = [*current, *piece]
        if _saves(step, current):
            joined.append(current)
            current = []
    if current:
        joined = [*joined[:-1], [*(joined[-1] if joined else []), *current]]
    return [Stretch(_leaf_name(nodes), tuple(nodes)) for nodes in joined]


def _belongs(step: TrainingStep, piece: Sequence[Node], before: Sequence[Node]) -> bool:
    """Return whether a piece ends a stretch: no parameters, nothing saved by it alone, and one scope or activations.

    A cut before an activation would let its argument count twice, kept by one stretch and read by the next.
    """
    parameters = step.network.parameters
    reads = any(value in parameters for node in piece for value in node.reads)
    near = scope_of(piece) == scope_of(before[-1:]) or all(node.op_type in _ACTIVATIONS for node in piece)
    return not reads and near and not _saves(step, piece)


def _saves(step: TrainingStep, nodes: Sequence[Node]) -> bool:
    out = live_out(step, nodes)
    return any(
        value in step.recorded and value not in out and step.sizes[value] for node in nodes for value in node.writes
    )


def _leaf_name(nodes: Sequence[Node]) -> str:
    first, last = nodes[0].writes[0], nodes[-1].writes[0]
    return first if len(nodes) == 1 else f"{first}:{last}"


def scope_of(nodes: Sequence[Node]) -> tuple[str, ...]:
    """The components that the names of all their values begin with.

    Example:
        >>> scope_of([Node("Relu", ("x",), ("layer1.0.relu",), "relu")])
        ('layer1', '0')
        >>> scope_of([Node("Conv", ("x",), ("/down.0/down.0.3/Conv_output_0",), "of PyTorch's exporter")])
        ('down', '0', '3')
    """
    together = zip(*(_scopes(node.writes[0]) for node in nodes), strict=False)
    return tuple(parts[0] for parts in takewhile(lambda parts: len(set(parts)) == 1, together))


def _scopes(value: str) -> list[str]:
    """Components of a name but the last; a module of PyTorch's within another bears the other's name, too."""
    components = value.split("/")
    inner = [here.removeprefix(f"{before}.") for before, here in pairwise(["", *components])]
    return [part for part in ".".join(inner).split(".")[:-1] if part]


def _nest(step: TrainingStep, leaves: Sequence[Stretch], depth: int) -> tuple[Stretch, ...]:
    scopes = [scope_of(leaf.nodes) for leaf in leaves]
    keys = [scope[depth] if len(scope) > depth else f"\0{i}" for i, scope in enumerate(scopes)]
    groups = [[leaf for _, leaf in group] for _, group in groupby(zip(keys, leaves, strict=True), lambda pair: pair[0])]
    if len(groups) == 1 and len(leaves) > 1:
        return _nest(step, leaves, depth + 1)
    if len(groups) == len(leaves):
        return _halve(step, leaves)
    return tuple(
        group[0]
        if len(group) == 1
        else _group(".".join(scope_of(group[0].nodes)[: depth + 1]), _nest(step, group, depth + 1))
        for group in groups
    )


def _group(name: str, parts: Sequence[Stretch]) -> Stretch:
    return Stretch(name, tuple(node for part in parts for node in part.nodes), tuple(parts))


def _run_name(parts: Sequence[Stretch]) -> str:
    return f"{parts[0].nodes[0].writes[0]}..{parts[-1].nodes[-1].writes[0]}"


def _halve(step: TrainingStep, leaves: Sequence[Stretch]) -> tuple[Stretch, ...]:
    """Nest a long run without scopes: into halves of about the same bytes."""
    if len(leaves) <= _FLAT:
        return tuple(leaves)
    recorded = step.recorded
    sizes = [sum(step.sizes[v] for node in leaf.nodes for v in node.writes if v in recorded) for leaf in leaves]
    middle = min(range(1, len(leaves)), key=lambda i: abs(sum(sizes[:i]) - sum(sizes[i:])))
    halves = (_halve(step, leaves[:middle]), _halve(step, leaves[middle:]))
    return tuple(half[0] if len(half) == 1 else _group(_run_name(half), half) for half in halves)


@dataclass
class NetworkRegions:
    """The regions of one training step.

    Attributes:
        step: the step, for one batch size.
        root: the tree; bytes are exact, times as ``time_unit`` says.
        nodes: the forward nodes of each region, by its name.
        times: of each node, by the first value that it writes.
        pinned: why what some nodes write is kept wherever they are, by node.
        time_unit: ``"s"``, or ``"FLOP"`` where counted operations stand in for times.
        backend: where times were measured; ``"none"`` where that is not known, or they are counted.
    """

    step: TrainingStep
    root: Region
    nodes: dict[str, tuple[Node, ...]]
    times: Mapping[str, float]
    pinned: dict[str, str] = field(default_factory=dict)
    time_unit: str = "FLOP"
    backend: str = "none"

    def innermost(self) -> list[Region]:
        """The regions that hold no others, in order: together all of the forward pass."""
        return [region for region in self.root.walk() if not region.children]

    def linked(self) -> list[list[Region]]:
        """The innermost regions in groups, in order, each of which reads activations of the one before it alone."""
        leaves, activations = self.innermost(), _activations(self.step)
        last = {value: i for i, leaf in enumerate(leaves) for node in self.nodes[leaf.name] for value in node.reads}
        groups: list[list[Region]] = [[]]
        inside: set[str] = set()
        alive: set[str] = set()
        for i, leaf in enumerate(leaves):
            groups[-1].append(leaf)
            written = activations.intersection(self.values(leaf))
            inside |= written
            alive = {value for value in alive | written if last.get(value, -1) > i}
            if alive <= inside:
                groups.append([])
                inside = set()
        return [group for group in groups if group]

    def values(self, region: Region) -> tuple[str, ...]:
        """Values that the nodes of a region write."""
        return tuple(value for node in self.nodes[region.name] for value in node.writes)

    def __str__(self) -> str:
        """The tree: bytes of tape and snapshot, time of one run, and where else the same region is."""
        places = locations(self.root)
        rows: list[tuple[str, ...]] = [("region", "tape [B]", "snapshot [B]", f"run [{self.time_unit}]", "location")]
        rows += self._rows(self.root, 0, places)
        widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
        lines = [
            "  ".join(_pad(cell, w, i) for i, (cell, w) in enumerate(zip(row, widths, strict=True))).rstrip()
            for row in rows
        ]
        lines += [f"kept, never run again: {name} ({why})" for name, why in self.pinned.items()]
        return "\n".join(lines)

    def check(self, network: Graph, batch: int, backend: str | None = None) -> None:
        """Raise PlanError unless these are the regions of a network at a batch size, measured on a backend.

        Args:
            network, batch: what is to be planned for.
            backend: whose times are meant; None does not ask, and counted operations hold for all.
        """
        expected, step = with_batch(network, batch), self.step.network
        if expected.inputs != step.inputs or set(expected.parameters) - set(step.parameters):
            raise PlanError(
                f"got a profile of network {step.name!r} with inputs {_shapes(step)}; expected {network.name!r} with "
                f"{_shapes(expected)}: profile this network at this batch size"
            )
        if backend is not None and "none" not in (backend, self.backend) and backend != self.backend:
            raise PlanError(
                f"got a profile taken on backend {self.backend!r}; expected one of {backend!r}, for which the plan is "
                "to be made: profile again there"
            )

    def _rows(self, region: Region, depth: int, places: Mapping[str, list[Region]]) -> list[tuple[str, ...]]:
        shared = len(places.get(region.place, ()))
        where = f"{region.place} (shared by {shared})" if shared > 1 else ""
        label = "  " * depth + region.name
        row = (label, f"{region.full_tape:,}", f"{region.snapshot:,}", f"{region.total_time:.6g}", where)
        return [row, *(r for child in region.children for r in self._rows(child, depth + 1, places))]


def _shapes(network: Graph) -> dict[str, str]:
    return {name: str(described) for name, described in network.inputs.items()}


def _pad(cell: str, width: int, column: int) -> str:
    return cell.rjust(width) if column in (1, 2, 3) else cell.ljust(width)


def find_regions(
    network: Network, batch: int, loss: str = "loss", crossing: int = 1, times: Mapping[str, float] | None = None
) -> NetworkRegions:
    """The candidate regions of a network, nested, with their costs.

    Args:
        network: with a loss.
        batch: number of samples; sizes follow from it.
        loss: the scalar that is differentiated.
        crossing: how many activations may cross where regions meet; 2 also cuts beside skip connections.
        times: seconds of each node that runs, by the first value that it writes; without them operations stand in.

    Raises:
        PlanError: unknown sizes, or times that lack nodes.

    Example:
        >>> from deep500.networks import add_loss, create
        >>> regions = find_regions(add_loss(create("resnet", depth=8)), batch=2)
        >>> [region.name for region in regions.root.children][:2], regions.time_unit
        (['conv1:relu1', 'layer1.0.conv1:layer1.0.relu2'], 'FLOP')
    """
    return regions_of(training_step(network, batch, loss), crossing, times)


def regions_of(step: TrainingStep, crossing: int = 1, times: Mapping[str, float] | None = None) -> NetworkRegions:
    """The same of a step that is there."""
    costs = _Costs(step, times)
    stretches = segment(step, crossing)
    children = tuple(costs.region(stretch) for stretch in stretches)
    root = Region("network", (0,) * (len(children) + 1), children, candidate=False)
    nodes = {stretch.name: stretch.nodes for outer in stretches for stretch in _walk(outer)}
    impure = {node.name: why for node in step.forward if (why := impurity(node))}
    return NetworkRegions(step, root, nodes, costs.times, impure, "FLOP" if times is None else "s")


def _walk(stretch: Stretch) -> Iterable[Stretch]:
    yield stretch
    for part in stretch.parts:
        yield from _walk(part)


class _Costs:
    """Costs of regions, from the graph, and from times if there are any."""

    def __init__(self, step: TrainingStep, times: Mapping[str, float] | None) -> None:
        self.step, self.recorded = step, step.recorded
        self.times = count_operations(step) if times is None else _check_times(step, times)
        self.owner = {value: node.name for node in step.forward for value in node.writes}
        self.gradients = self._attribute()
        self.live = dict(zip((n.name for n in step.backward), self._gradient_bytes(), strict=True))
        self.seen: dict[str, str] = {}  # hash of a region -> its static location

    def region(self, stretch: Stretch) -> Region:
        """A stretch and all that is nested in it."""
        children = tuple(self.region(part) for part in stretch.parts)
        out = live_out(self.step, stretch.nodes)
        impure = {v for node in stretch.nodes if impurity(node) for v in node.writes} & self._used(stretch.nodes)
        snapshot = out | impure
        transient = max(live_bytes(stretch.nodes, self.step.sizes, lasting=snapshot))
        tape = 0 if children else self._bytes({v for n in stretch.nodes for v in n.writes} & (self.recorded | out))
        gradients = [] if children else [g for node in stretch.nodes for g in self.gradients.get(node.name, ())]
        return Region(
            stretch.name,
            (tape,) if not children else (0,) * (len(children) + 1),
            children,
            snapshot=self._bytes(snapshot),
            time=0 if children else sum(self.times[node.writes[0]] for node in stretch.nodes),
            backward_time=sum(self.times[node.writes[0]] for node in gradients),
            location=self.seen.setdefault(self._hash(stretch.nodes), stretch.name),
            advance=max(0, transient - self._bytes(snapshot)),
            overhead=max((self.live[node.name] for node in gradients), default=0),
            candidate=any(not impurity(node) for node in stretch.nodes),
        )

    def _used(self, nodes: Sequence[Node]) -> set[str]:
        """Values that the gradient or a node among these reads."""
        return self.recorded | {value for node in nodes for value in node.reads}

    def _bytes(self, values: Iterable[str]) -> int:
        return sum(self.step.sizes[value] for value in values)

    def _attribute(self) -> dict[str, list[Node]]:
        """The backward nodes of each forward node: those that run until the gradient of an earlier one begins."""
        attributed: dict[str, list[Node]] = {}
        order = {node.name: i for i, node in enumerate(self.step.forward)}
        names = {**{name: name for name in order}, **self.owner}
        # A gradient's values are named after the values they belong to; sums and casts in between have no such name
        # and count with what ran before them.
        current = self.step.forward[-1].name
        for node in self.step.backward:
            parts = node.writes[0].removeprefix("grad/").split("/")
            for end in range(len(parts), 0, -1):
                if owner := names.get("/".join(parts[:end])):
                    current = owner
                    break
            attributed.setdefault(current, []).append(node)
        return attributed

    def _gradient_bytes(self) -> list[int]:
        """Bytes of gradients and of what else the backward pass writes, while each of its nodes runs."""
        return live_bytes(self.step.backward, self._gradient_sizes(), lasting=self.step.network.outputs)

    def _gradient_sizes(self) -> dict[str, int]:
        return {v: self.step.sizes[v] for node in self.step.backward for v in node.writes}

    def _hash(self, nodes: Sequence[Node]) -> str:
        """The same for regions of the same operators, attributes, shapes and wiring."""
        described = self.step.network.descriptors()
        known: dict[str, str] = {}
        digest = hashlib.sha256()
        for node in nodes:
            reads = [known.setdefault(v, f"in{len(known)}:{described.get(v)}") if v else "" for v in node.inputs]
            for value in node.writes:
                known[value] = f"out{len(known)}:{described.get(value)}"
            attributes = sorted((key, str(value)) for key, value in node.attributes.items())
            writes = [str(described.get(value)) for value in node.writes]
            digest.update(repr((node.domain, node.op_type, attributes, reads, writes)).encode())
        digest.update(repr(sorted(known[value] for value in live_out(self.step, nodes))).encode())
        return digest.hexdigest()


def count_operations(step: TrainingStep) -> dict[str, float]:
    """Operations, or bytes written where no formula is known: a stand-in for times, whose unit is "FLOP"."""
    counts = count_flops(step.network)
    nodes = (*step.forward, *step.backward)
    written = {node.name: sum(step.sizes[v] for v in node.writes) // 4 for node in nodes}
    return {node.writes[0]: float(max(counts[node.name] or 0, written[node.name])) for node in nodes}


def _check_times(step: TrainingStep, times: Mapping[str, float]) -> Mapping[str, float]:
    missing = [n.writes[0] for n in (*step.forward, *step.backward) if n.writes[0] not in times]
    if missing:
        raise PlanError(f"got no time of {missing[:4]} ({len(missing)} in all); expected every node's: profile again")
    return times
