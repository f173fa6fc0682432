"""Candidate regions of a network: cut where one activation crosses, nested by the scopes of names or by bytes.

The nodes of the forward pass are swept once in order. Between two of them the network can be cut if at most
``crossing`` floating activations are alive there: articulation points, for 1. Stretches in which nothing would be
saved are joined with the next. Where names such as ``layer1.0.conv1`` have scopes, these nest the regions; long runs
without are halved by bytes, so that depth grows with the logarithm of their number.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby

from deep500.networks.node import Node
from deep500.transformations.recomputation.step import Step

_FLAT = 8  # regions beside each other before they are nested by bytes


@dataclass(frozen=True)
class Stretch:
    """Consecutive nodes of the forward pass, and the stretches that it is divided into, if any."""

    name: str
    nodes: tuple[Node, ...]
    parts: tuple[Stretch, ...] = ()


def segment(step: Step, crossing: int = 1) -> tuple[Stretch, ...]:
    """The outermost stretches of a step's forward pass, in order; together they hold all of its nodes.

    Example:
        >>> from deep500.networks import add_loss, create
        >>> from deep500.transformations.recomputation.step import training_step
        >>> step = training_step(add_loss(create("resnet", depth=8)), 2)
        >>> [stretch.name for stretch in segment(step)]
        ['conv1:relu1', 'layer1.0.conv1:layer1.0.relu2', ..., 'avgpool:loss']
    """
    leaves = _join(step, _cut(step, crossing))
    return _nest(step, leaves, 0)


def live_out(step: Step, nodes: Sequence[Node]) -> set[str]:
    """Values that these nodes write and other nodes of the forward pass, or the network's outputs, read."""
    inside = {node.name for node in nodes}
    written = {value for node in nodes for value in node.writes}
    read = {value for node in step.forward if node.name not in inside for value in node.reads}
    return written & (read | set(step.network.outputs) | {step.loss})


def _cut(step: Step, crossing: int) -> list[list[Node]]:
    """Pieces between which at most so many floating activations are alive."""
    described = step.network.descriptors()
    moving = set(step.network.inputs)  # what depends on an input
    last: dict[str, int] = {}
    for i, node in enumerate(step.forward):
        if moving.intersection(node.reads):
            moving.update(node.writes)
        last.update(dict.fromkeys(node.reads, i))
    pieces: list[list[Node]] = [[]]
    alive: set[str] = set()
    for i, node in enumerate(step.forward):
        pieces[-1].append(node)
        alive.update(v for v in node.writes if v in moving and "float" in (described[v].dtype or ""))
        alive = {v for v in alive if last.get(v, -1) > i}
        if len(alive) <= crossing:
            pieces.append([])
    return [piece for piece in pieces if piece]


def _join(step: Step, pieces: list[list[Node]]) -> list[Stretch]:
    """Join a piece with the next while it would hold no less without its tape, the last one with the one before."""
    joined: list[list[Node]] = []
    current: list[Node] = []
    for piece in pieces:
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


def _belongs(step: Step, piece: Sequence[Node], before: Sequence[Node]) -> bool:
    """Whether a piece such as an activation ends a stretch: same scope, no parameters, nothing saved by it alone."""
    parameters = step.network.parameters
    reads = any(value in parameters for node in piece for value in node.reads)
    return not reads and _scope_of(piece) == _scope_of(before[-1:]) and not _saves(step, piece)


def _saves(step: Step, nodes: Sequence[Node]) -> bool:
    out = live_out(step, nodes)
    return any(value in step.kept and value not in out and step.sizes[value] for node in nodes for value in node.writes)


def _leaf_name(nodes: Sequence[Node]) -> str:
    first, last = nodes[0].writes[0], nodes[-1].writes[0]
    return first if len(nodes) == 1 else f"{first}:{last}"


def _scope_of(nodes: Sequence[Node]) -> tuple[str, ...]:
    """The components that the names of all their values begin with."""
    names = [re.split(r"[./]", node.writes[0])[:-1] for node in nodes]
    shared = []
    for parts in zip(*names, strict=False):
        if len(set(parts)) > 1:
            break
        shared.append(parts[0])
    return tuple(shared)


def _nest(step: Step, leaves: Sequence[Stretch], depth: int) -> tuple[Stretch, ...]:
    scopes = [_scope_of(leaf.nodes) for leaf in leaves]
    keys = [scope[depth] if len(scope) > depth else f"\0{i}" for i, scope in enumerate(scopes)]
    groups = [[leaf for _, leaf in group] for _, group in groupby(zip(keys, leaves, strict=True), lambda pair: pair[0])]
    if len(groups) == 1 and len(leaves) > 1:
        return _nest(step, leaves, depth + 1)
    if len(groups) == len(leaves):
        return _halve(step, leaves)
    return tuple(
        group[0]
        if len(group) == 1
        else _group(".".join(_scope_of(group[0].nodes)[: depth + 1]), _nest(step, group, depth + 1))
        for group in groups
    )


def _group(name: str, parts: Sequence[Stretch]) -> Stretch:
    return Stretch(name, tuple(node for part in parts for node in part.nodes), tuple(parts))


def _run_name(parts: Sequence[Stretch]) -> str:
    return f"{parts[0].nodes[0].writes[0]}..{parts[-1].nodes[-1].writes[0]}"


def _halve(step: Step, leaves: Sequence[Stretch]) -> tuple[Stretch, ...]:
    """Nest a long run without scopes: into halves of about the same bytes."""
    if len(leaves) <= _FLAT:
        return tuple(leaves)
    kept = step.kept
    sizes = [sum(step.sizes[v] for node in leaf.nodes for v in node.writes if v in kept) for leaf in leaves]
    middle = min(range(1, len(leaves)), key=lambda i: abs(sum(sizes[:i]) - sum(sizes[i:])))
    halves = (_halve(step, leaves[:middle]), _halve(step, leaves[middle:]))
    return tuple(half[0] if len(half) == 1 else _group(_run_name(half), half) for half in halves)
