"""Checkpointing plans by a tape of our own: memory is what the plan's model says, to the byte.

The forward pass keeps a list of what to reverse: stretches that were recorded, each with a graph of gradients of its
own, and regions, each with what it read. The backward pass takes entries off its end; a region is run again under a
tape of its own. Unlike ``torch.utils.checkpoint`` nothing is hooked into the saving of tensors, which costs less time;
gradients are the same bits, since every stretch is differentiated by PyTorch.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import torch

from deep500.frameworks.pytorch.compiler import NetworkModule
from deep500.frameworks.pytorch.operators.normalization import running_again
from deep500.frameworks.pytorch.split import Cutter, Section, as_graph


@dataclass
class TapePart:
    """A stretch as code, the number of its region if it has one, and the names of values that are not read after it."""

    run: Any
    region: int | None
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    again: bool
    random: bool
    parts: list[TapePart]
    done: list[str] = field(default_factory=list)


@dataclass
class _Recorded:
    """The values that a recorded stretch read, as leaves, and that it wrote, with its graph."""

    leaves: dict[str, torch.Tensor]
    results: dict[str, torch.Tensor]


@dataclass
class _RegionState:
    """The values that a region needs to run again."""

    part: TapePart
    inputs: dict[str, Any]
    generator: Any


class Tape:
    """One training step under a plan; call it with the inputs in order, then :meth:`backward`.

    Args:
        module: as compiled without a plan; shares its parameters.
        cutter: knows the plan's regions.
    """

    def __init__(self, module: NetworkModule, cutter: Cutter) -> None:
        self.module = module
        leaves = cutter.leaves
        self.inputs = [line.name for line in leaves if line.op == "placeholder"]
        self.attributes = {line.name: str(line.target) for line in leaves if line.op == "get_attr"}
        self.outputs = [line.name for line in cutter.results]
        self.loss = cutter.loss.name
        self.parts = _compiled(cutter.cut(), self.outputs)
        self.several = {name for name, count in _uses(self.parts).items() if count > 1 and name in self.attributes}
        self.entries: list[_Recorded | _RegionState] = []
        self.active: set[str] = set()  # values that have a gradient

    # -- the step ---------------------------------------------------------------------------------------------------
    def __call__(self, *inputs: Any) -> tuple[Any, ...]:
        """The outputs, detached; the loss is a leaf that wants a gradient if parameters influence it."""
        env = self.start(inputs)
        self.entries = self._forward(self.parts, env)
        values = [env[name] for name in self.outputs]
        del env
        at = self.outputs.index(self.loss)
        values[at] = values[at].detach().requires_grad_(self.loss in self.active)
        return tuple(values)

    def backward(self, loss: torch.Tensor) -> None:
        """Leave gradients in the parameters, reversing the last call."""
        gradients = {self.loss: torch.ones_like(loss)}
        entries, self.entries = self.entries, []
        self.reverse(entries, gradients)
        for name in self.several & gradients.keys():
            torch.autograd.backward(getattr(self.module, self.attributes[name]), gradients.pop(name))

    def start(self, inputs: Sequence[Any]) -> dict[str, Any]:
        """Values by name, as a step begins with them."""
        self.active = set()
        return {name: self._attribute(name) for name in self.attributes} | dict(zip(self.inputs, inputs, strict=True))

    def _attribute(self, name: str) -> Any:
        value = getattr(self.module, self.attributes[name])
        if name in self.several and isinstance(value, torch.nn.Parameter) and value.requires_grad:
            self.active.add(name)  # hooks on it wait until its last use is reversed
            return value.detach()
        return value

    def _forward(self, parts: Sequence[TapePart], env: dict[str, Any]) -> list[_Recorded | _RegionState]:
        entries: list[_Recorded | _RegionState] = []
        for part in parts:
            entries.append(self.again(part, env) if part.again else self.record(part, env))
            for name in part.done:
                env.pop(name, None)
        return entries

    def record(self, part: TapePart, env: dict[str, Any]) -> _Recorded:
        """Run a stretch recording; its values are added to those by name."""
        leaves = {name: env[name].detach().requires_grad_() for name in part.inputs if name in self.active}
        with torch.enable_grad():
            results = part.run(*[leaves.get(name, env[name]) for name in part.inputs])
        values = dict(zip(part.outputs, results, strict=True))
        recorded = {name: value for name, value in values.items() if _wants_gradient(value)}
        self.active.update(recorded)
        env.update((name, value.detach() if name in recorded else value) for name, value in values.items())
        return _Recorded(leaves, recorded)

    def again(self, part: TapePart, env: dict[str, Any]) -> _RegionState:
        """Run a region without recording; its values are added to those by name."""
        inputs = {name: env[name] for name in part.inputs}
        generator = _generator_state(inputs.values()) if part.random else None
        with torch.no_grad():
            values = dict(zip(part.outputs, part.run(*inputs.values()), strict=True))
        if any(name in self.active or _wants_gradient(value) for name, value in inputs.items()):
            self.active.update(n for n, v in values.items() if isinstance(v, torch.Tensor) and v.is_floating_point())
        env.update(values)
        return _RegionState(part, inputs, generator)

    def reverse(self, entries: list[_Recorded | _RegionState], gradients: dict[str, torch.Tensor]) -> None:
        """Take entries off the end of a list; gradients of values, by name, are used up and added."""
        while entries:
            # Names are deleted once they are used: each would hold tensors through the recursion or the backward pass.
            entry = entries.pop()
            if isinstance(entry, _RegionState):
                with _generator(entry.generator), running_again():
                    inner = self._forward(entry.part.parts, entry.inputs)
                del entry
                self.reverse(inner, gradients)
            else:
                goals = [(value, gradients.pop(name)) for name, value in entry.results.items() if name in gradients]
                leaves = entry.leaves
                del entry
                _reverse(goals, leaves, gradients)
                del leaves


class _Incoming(torch.autograd.Function):
    """Ends a stretch; its gradients are those in a list, which it empties, so that autograd alone holds them."""

    @staticmethod
    def forward(ctx: Any, box: list[torch.Tensor], *values: torch.Tensor) -> torch.Tensor:
        ctx.box = box
        return values[0].new_zeros(())

    @staticmethod
    def backward(ctx: Any, *_: torch.Tensor) -> Any:
        gradients = (None, *ctx.box)
        ctx.box.clear()
        return gradients


def _reverse(
    goals: list[tuple[torch.Tensor, torch.Tensor]], leaves: dict[str, torch.Tensor], gradients: dict[str, torch.Tensor]
) -> None:
    """Backward from values with their gradients, holding neither, and add the leaves' gradients to those by name."""
    if not goals:
        return
    # What later stretches left comes first, and is added to one by one: so autograd sums where nothing is cut.
    goals += [(leaf, gradients.pop(name)) for name, leaf in leaves.items() if name in gradients]
    with torch.enable_grad():
        end: Any = _Incoming.apply([gradient for _, gradient in goals], *[value for value, _ in goals])
    goals.clear()  # autograd holds the only references now, and lets go of each as it passes
    end.backward()
    for name, leaf in leaves.items():
        if leaf.grad is not None:
            gradients[name] = leaf.grad


def _wants_gradient(value: Any) -> bool:
    return isinstance(value, torch.Tensor) and value.requires_grad


def _generator_state(values: Collection[Any]) -> tuple[torch.Tensor, dict[int, torch.Tensor]]:
    devices = {value.device.index for value in values if isinstance(value, torch.Tensor) and value.is_cuda}
    return torch.get_rng_state(), {index: torch.cuda.get_rng_state(index) for index in devices}


@contextmanager
def _generator(state: tuple[torch.Tensor, dict[int, torch.Tensor]] | None) -> Iterator[None]:
    """The generators of random numbers as they were; as they are again, after that."""
    if state is None:
        yield
        return
    with torch.random.fork_rng(devices=list(state[1])):
        torch.set_rng_state(state[0])
        for index, rng_state in state[1].items():
            torch.cuda.set_rng_state(rng_state, index)
        yield


def _compiled(stretches: Sequence[Section], needed: Collection[str]) -> list[TapePart]:
    parts = []
    for stretch in stretches:
        code = NetworkModule({}, as_graph(stretch.lines, stretch.inputs, stretch.outputs), "Stretch")
        inputs, outputs = (tuple(line.name for line in lines) for lines in (stretch.inputs, stretch.outputs))
        parts.append(
            TapePart(code, stretch.region, inputs, outputs, stretch.again, stretch.random, _compiled(stretch.parts, ()))
        )
    seen = set(needed)
    for part in reversed(parts):
        part.done = [name for name in dict.fromkeys((*part.inputs, *part.outputs)) if name not in seen]
        seen.update(part.inputs)
    return parts


def _uses(parts: Sequence[TapePart]) -> dict[str, int]:
    """In how many recorded stretches a value is read."""
    counts: dict[str, int] = {}
    for part in parts:
        inner = _uses(part.parts) if part.again else dict.fromkeys(part.inputs, 1)
        for name, count in inner.items():
            counts[name] = counts.get(name, 0) + count
    return counts
