"""Candidate regions of a network as a tree with what each costs: the input of the planners.

A value that crosses from one region to a later one counts with the region that writes it: kept, it is part of that
region's tape; checkpointed, it is the region's snapshot. So each is counted once. A region that runs again reads its
inputs, which the regions before it hold, and what its impure nodes wrote, which is part of its snapshot.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from deep500.errors import PlanError
from deep500.networks.flops import count_flops
from deep500.networks.network import Network
from deep500.networks.node import Node
from deep500.transformations.recomputation.liveness import live_bytes, with_batch
from deep500.transformations.recomputation.purity import impurity
from deep500.transformations.recomputation.segmenter import Stretch, live_out, segment
from deep500.transformations.recomputation.step import Step, training_step
from deep500.transformations.recomputation.tree import Region, locations


@dataclass
class NetworkRegions:
    """The regions of one training step.

    Attributes:
        step: the step, for one batch size.
        root: the tree; bytes are exact, times as ``time_unit`` says.
        nodes: the forward nodes of each region, by its name.
        times: of each node, by the first value that it writes.
        kept: why what some nodes write is kept wherever they are, by node.
        time_unit: ``"s"``, or ``"FLOP"`` where counted operations stand in for times.
        backend: where times were measured; ``"none"`` where that is not known, or they are counted.
    """

    step: Step
    root: Region
    nodes: dict[str, tuple[Node, ...]]
    times: Mapping[str, float]
    kept: dict[str, str] = field(default_factory=dict)
    time_unit: str = "FLOP"
    backend: str = "none"

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
        lines += [f"kept, never run again: {name} ({why})" for name, why in self.kept.items()]
        return "\n".join(lines)

    def check(self, network: Network, batch: int, backend: str | None = None) -> None:
        """Raise PlanError unless these are the regions of a network at a batch size, measured on a backend.

        Args:
            network, batch: what is to be planned for.
            backend: whose times are meant; None does not ask, and counted operations hold for all.
        """
        own, step = with_batch(network, batch), self.step.network
        if own.inputs != step.inputs or set(own.parameters) - set(step.parameters):
            raise PlanError(
                f"got a profile of network {step.name!r} with inputs {_shapes(step)}; expected {network.name!r} with "
                f"{_shapes(own)}: profile this network at this batch size"
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


def _shapes(network: Network) -> dict[str, str]:
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
        >>> found = find_regions(add_loss(create("resnet", depth=8)), batch=2)
        >>> [region.name for region in found.root.children][:2], found.time_unit
        (['conv1:relu1', 'layer1.0.conv1:layer1.0.relu2'], 'FLOP')
    """
    step = training_step(network, batch, loss)
    costs = _Costs(step, times)
    stretches = segment(step, crossing)
    children = tuple(costs.region(stretch) for stretch in stretches)
    root = Region("network", (0,) * (len(children) + 1), children, candidate=False)
    nodes = {stretch.name: stretch.nodes for outer in stretches for stretch in _walk(outer)}
    kept = {node.name: why for node in step.forward if (why := impurity(node))}
    return NetworkRegions(step, root, nodes, costs.times, kept, "FLOP" if times is None else "s")


def _walk(stretch: Stretch) -> Iterable[Stretch]:
    yield stretch
    for part in stretch.parts:
        yield from _walk(part)


class _Costs:
    """What regions cost, from the graph, and from times if there are any."""

    def __init__(self, step: Step, times: Mapping[str, float] | None) -> None:
        self.step, self.kept = step, step.kept
        self.times = _operations(step) if times is None else _check_times(step, times)
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
        transient = max(live_bytes(stretch.nodes, self.step.sizes, kept=snapshot))
        tape = 0 if children else self._bytes({v for n in stretch.nodes for v in n.writes} & (self.kept | out))
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
        return self.kept | {value for node in nodes for value in node.reads}

    def _bytes(self, values: Iterable[str]) -> int:
        return sum(self.step.sizes[value] for value in values)

    def _attribute(self) -> dict[str, list[Node]]:
        """The backward nodes of each forward node: those that run until the gradient of an earlier one begins."""
        found: dict[str, list[Node]] = {}
        order = {node.name: i for i, node in enumerate(self.step.forward)}
        names = {**{name: name for name in order}, **self.owner}
        current = self.step.forward[-1].name
        for node in self.step.backward:
            parts = node.writes[0].removeprefix("grad/").split("/")
            for end in range(len(parts), 0, -1):
                if owner := names.get("/".join(parts[:end])):
                    current = owner
                    break
            found.setdefault(current, []).append(node)
        return found

    def _gradient_bytes(self) -> list[int]:
        """Bytes of gradients and of what else the backward pass writes, while each of its nodes runs."""
        return live_bytes(self.step.backward, self._gradient_sizes(), kept=self.step.network.outputs)

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


def _operations(step: Step) -> dict[str, float]:
    """Operations, or bytes written where no formula is known: a stand-in for times, whose unit is "FLOP"."""
    counts = count_flops(step.network)
    nodes = (*step.forward, *step.backward)
    written = {node.name: sum(step.sizes[v] for v in node.writes) // 4 for node in nodes}
    return {node.writes[0]: float(max(counts[node.name] or 0, written[node.name])) for node in nodes}


def _check_times(step: Step, times: Mapping[str, float]) -> Mapping[str, float]:
    missing = [n.writes[0] for n in (*step.forward, *step.backward) if n.writes[0] not in times]
    if missing:
        raise PlanError(f"got no time of {missing[:4]} ({len(missing)} in all); expected every node's: profile again")
    return times
