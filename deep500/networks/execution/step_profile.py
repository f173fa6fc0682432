"""Kernels of a profiled step, and which node of the network each kernel belongs to.

A backend hands back kernels as its framework's own profiler saw them. What runs is seldom the user's network itself: a
training step is a network of gradients, optimizers of graphs rewrite it, compilers fuse. So kernels are brought back to
nodes here, for all backends by the same rules: by the values that they write, else by the names that gradient rules and
expansions give, else by what they read.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from deep500.networks.node import Node

FORWARD, BACKWARD = "forward", "backward"
_GRADIENT = "grad/"


class KernelPlace(NamedTuple):
    """Where a kernel belongs: a node of the network, and ``"forward"`` or ``"backward"``."""

    node: str
    phase: str


@dataclass(frozen=True)
class Kernel:
    """One kernel of a step.

    Attributes:
        name: the framework's own.
        start: seconds since the step began.
        seconds: how long it ran.
        place: None where it belongs to no node.
        holds: further nodes that it computes, where the framework says so.
        memory: bytes that it reserved for results; None where that is not counted.
        lane: number of a row of kernels that do not overlap, such as those of a thread.
    """

    name: str
    start: float
    seconds: float
    place: KernelPlace | None = None
    holds: tuple[str, ...] = ()
    memory: int | None = None
    lane: int = 0


@dataclass(frozen=True)
class ProfiledStep:
    """One step under the profiler.

    Attributes:
        seconds: of the executor's whole call.
        inside: seconds of it in the framework's own calls; the rest is Deep500's. None where both are the same code.
        kernels: in the order of their start; those of one lane do not overlap.
    """

    seconds: float
    inside: float | None
    kernels: tuple[Kernel, ...] = field(repr=False)


def run_step(executor: Any, inputs: Mapping[str, Any], loss: str | None) -> None:
    """Run what is profiled: a training step, or without a loss forward in evaluation mode."""
    executor.inference(inputs) if loss is None else executor.inference_and_backprop(inputs, loss)


class Places:
    """Finds the node that a kernel belongs to.

    Args:
        nodes: of the network.

    Example:
        >>> places = Places([Node("Relu", ("x",), ("y",), "relu"), Node("Exp", ("y",), ("z",), "exp")])
        >>> places.find("fused", ["x"], ["z"])
        KernelPlace(node='exp', phase='forward')
        >>> places.find("", ["dz"], ["grad/relu/Mul"])
        KernelPlace(node='relu', phase='backward')
    """

    def __init__(self, nodes: Iterable[Node]) -> None:
        self.values: dict[str, KernelPlace] = {}
        self.names: dict[str, KernelPlace] = {}
        for node in nodes:
            self.names[node.name] = KernelPlace(node.name, FORWARD)
            self.values.update(dict.fromkeys(node.writes, self.names[node.name]))

    def learn(self, nodes: Iterable[tuple[str, Sequence[str], Sequence[str]]]) -> list[KernelPlace | None]:
        """Places of what will run, in its order: (name, values read, values written); later calls know them by name.

        What nothing places yet, since it only reads the network's inputs, belongs to the first that reads it.
        """
        located, waiting = list[KernelPlace | None](), dict[str, list[int]]()
        rows = list(nodes)
        for number, (name, reads, writes) in enumerate(rows):
            place = self.find(name, reads, writes)
            located.append(place)
            if place is None:
                for value in writes:
                    waiting.setdefault(value, []).append(number)
                continue
            self._keep(place, name, writes)
            for earlier in {number for value in reads for number in waiting.pop(value, ())}:
                located[earlier] = place
                self._keep(place, rows[earlier][0], rows[earlier][2])
        return located

    def _keep(self, place: KernelPlace, name: str, writes: Sequence[str]) -> None:
        self.names.setdefault(name, place)
        for value in writes:
            self.values.setdefault(value, place)

    def find(self, name: str, reads: Sequence[str], writes: Sequence[str]) -> KernelPlace | None:
        """The place of a kernel; None if neither its names nor what it reads say one."""
        for value in writes:
            if value in self.values:
                return self.values[value]
        backward = any(text.startswith(_GRADIENT) for text in (*writes, name))
        for text in (*writes, name):
            place = self._named(text.removeprefix(_GRADIENT))
            if place is not None:
                return KernelPlace(place.node, BACKWARD) if backward else place
        place = next((self.values[value] for value in reversed(reads) if value in self.values), None)
        return KernelPlace(place.node, BACKWARD) if place is not None and backward else place

    def _named(self, text: str) -> KernelPlace | None:
        """The place whose name, or whose value's, stands before a slash."""
        while "/" in text:
            text = text.rpartition("/")[0]
            if text in self.names or text in self.values:
                return self.names.get(text) or self.values[text]
        return None


def held_by(nodes: Sequence[Node], kernels: Iterable[Kernel]) -> dict[str, str]:
    """Nodes without a kernel of their own, and the node whose kernel computes them.

    That is what the framework says; else, since a kernel computes what others no longer do, the first node with a
    kernel that reads their values, directly or through such nodes. Nodes that nothing reads are left out.

    Example:
        >>> nodes = [Node("Conv", ("x", "w"), ("c",), "conv"), Node("Relu", ("c",), ("r",), "relu")]
        >>> held_by(nodes, [Kernel("fused", 0.0, 1.0, KernelPlace("relu", FORWARD))])
        {'conv': 'relu'}
    """
    present = {kernel.place.node for kernel in kernels if kernel.place is not None}
    stated = {name: kernel.place.node for kernel in kernels for name in kernel.holds if kernel.place is not None}
    readers: dict[str, list[str]] = {}
    for node in nodes:
        for value in node.reads:
            readers.setdefault(value, []).append(node.name)
    holder: dict[str, str] = {}
    for node in reversed(nodes):
        if node.name in present:
            continue
        following = [name for value in node.writes for name in readers.get(value, ())]
        near = next(
            (name if name in present else holder[name] for name in following if name in present or name in holder), ""
        )
        chosen = stated.get(node.name, near)
        if chosen:
            holder[node.name] = chosen
    return {node.name: holder[node.name] for node in nodes if node.name in holder}
