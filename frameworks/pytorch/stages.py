"""The costs of the stages of a network on this device: time and bytes of running, recording and reversing each of them.

One pass counts bytes, by the allocator's events; further ones take times. Every pass is a training step on real data,
stage by stage, in the order of a step, with each stage also run without recording. It leaves no trace: running
statistics, gradients and generators of random numbers are as they were.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import torch

from deep500.frameworks.pytorch.memory import footprint, settle
from deep500.frameworks.pytorch.operators.normalization import running_again
from deep500.frameworks.pytorch.split import Cutter
from deep500.frameworks.pytorch.tape import Tape, TapePart
from deep500.networks.graph import Graph
from deep500.progress import numbered, stage
from deep500.transformations.recomputation.chain import Mode, Stage

_STATE = 5056  # bytes of the state of the processor's generator, which snapshots hold where numbers are drawn

Meter = Callable[[Callable[[], Any]], Any]


class _Readings(NamedTuple):
    """Of one stage: running it without recording, recording it, reversing it."""

    run: Any
    record: Any
    reverse: Any


def measure(
    compiled: Any, network: Graph, stages: Sequence[Collection[str]], inputs: Sequence[Any], loss: str, passes: int
) -> list[Stage]:
    """Measure stages that form a chain; see :meth:`deep500.frameworks.pytorch.Executor.measure_stages`.

    Args:
        compiled: the :class:`~deep500.frameworks.pytorch.executor.Compiled` network without a plan.
        network: that it was compiled from.
        stages: for each the values that its nodes write.
        inputs: tensors on the device, in the order of the network's inputs.
        loss: the output that is differentiated.
        passes: how often times are taken.
    """
    tape = Tape(compiled.module, Cutter(compiled.module, network.nodes, stages, loss))
    device = next((x.device for x in inputs if isinstance(x, torch.Tensor)), torch.device("cpu"))
    sweep = _Sweep(tape, _grouped(tape.parts, len(stages)), inputs)
    before = [(parameter, parameter.grad) for parameter in compiled.module.parameters()]
    try:
        with running_again(), torch.random.fork_rng():
            stage(f"a step in {len(stages)} stages")
            sweep.run(_clock(device))  # warm up
            settle()
            stage(f"bytes of {len(stages)} stages")
            sizes = sweep.run(lambda call: footprint(call, device))
            gradients = sweep.gradients
            times = [sweep.run(_clock(device)) for _ in numbered(f"times of {len(stages)} stages, pass", range(passes))]
    finally:
        for parameter, gradient in before:
            parameter.grad = gradient
    least = [_Readings(*map(min, zip(*readings, strict=True))) for readings in zip(*times, strict=True)]
    state = 0 if device.type == "cuda" else _STATE  # a GPU's is 16 bytes, on the processor
    measured: list[Stage] = []
    for group, size, seconds, gradient in zip(sweep.groups, sizes, least, gradients, strict=True):
        name = f"stage {len(measured)}"
        entry = _stage(name, size, seconds, gradient, state if group.random else 0)
        if not group.parts:  # its nodes run as part of another stage's function: it hands on what it was given
            handed = measured[-1].output if measured else 0
            entry = Stage(name, handed, (Mode(0.0, 0.0, 0),), 0.0, gradient=gradient)
        measured.append(entry)
    return measured


def _stage(name: str, size: _Readings, seconds: _Readings, gradient: int, state: int) -> Stage:
    mode = Mode(
        seconds.record, seconds.reverse, size.record.left, size.record.peak - size.record.left, size.reverse.peak
    )
    return Stage(name, size.run.left + state, (mode,), seconds.run, size.run.peak - size.run.left, gradient)


@dataclass
class _Group:
    """The parts that one stage consists of: one, unless a node in it must not run again."""

    parts: list[TapePart]

    @property
    def random(self) -> bool:
        return any(part.random for part in self.parts)


def _grouped(parts: Sequence[TapePart], count: int) -> list[_Group]:
    """Parts by stage; what is in none goes with the stage before it."""
    groups = [_Group([]) for _ in range(count)]
    current = 0
    for part in parts:
        current = current if part.region is None else part.region
        groups[current].parts.append(part)
    return groups


class _Sweep:
    """Training steps, stage by stage, under a meter.

    Attributes:
        gradients: bytes of gradients, of values and of parameters, held before each stage is reversed.
    """

    def __init__(self, tape: Tape, groups: list[_Group], inputs: Sequence[Any]) -> None:
        self.tape, self.groups, self.inputs = tape, groups, inputs
        self.parameters = list(tape.module.parameters())
        self.gradients: list[int] = []

    def run(self, meter: Meter) -> list[_Readings]:
        """One step; a reading of every stage."""
        for parameter in self.parameters:
            parameter.grad = None
        tape, env = self.tape, self.tape.start(self.inputs)
        entries: list[list[Any]] = []
        run, record, reverse, sizes = [], [], [], []
        for group in self.groups:
            run.append(meter(partial(_plain, tape, group, dict(env))))
            entries.append([])
            record.append(meter(partial(_recorded, tape, group, env, entries[-1])))
        gradients = {tape.loss: torch.ones_like(env[tape.loss])}
        del env
        while entries:
            sizes.append(self._bytes_of_gradients(gradients))
            reverse.append(meter(partial(tape.reverse, entries.pop(), gradients)))
        self.gradients = sizes[::-1]
        return [_Readings(*readings) for readings in zip(run, record, reverse[::-1], strict=True)]

    def _bytes_of_gradients(self, gradients: Mapping[str, torch.Tensor]) -> int:
        unreported = [parameter.grad for parameter in self.parameters if parameter.grad is not None]
        return sum(gradient.nbytes for gradient in (*gradients.values(), *unreported))


def _plain(tape: Tape, group: _Group, env: dict[str, Any]) -> Any:
    """Run a stage as a region of its own runs in the forward pass; returns all that then stays."""
    return [tape.again(part, env) if part.again else tape.record(part, env) for part in group.parts], env


def _recorded(tape: Tape, group: _Group, env: dict[str, Any], entries: list[Any]) -> None:
    """Record a stage."""
    for part in group.parts:
        for inner in part.parts or [part]:
            entries.append(tape.record(inner, env))
        for name in part.done:
            env.pop(name, None)


def _clock(device: torch.device) -> Meter:
    """Seconds: of this process where it computes in one thread, so that others on the machine do not count; else on
    the wall."""
    alone = device.type == "cpu" and torch.get_num_threads() == 1
    now = time.process_time if alone else time.perf_counter

    def clock(call: Callable[[], Any]) -> float:
        _wait(device)
        begin = now()
        call()
        _wait(device)
        return now() - begin

    return clock


def _wait(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize(device)
