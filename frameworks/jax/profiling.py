"""Profiles of steps by ``jax.profiler``, brought back to the network's nodes by the metadata of XLA's instructions.

Each node is traced in a scope of its name, which JAX's differentiation keeps and XLA writes beside every instruction.
A fusion holds instructions of several nodes; it stands with the node of its root, and names the others.
"""

from __future__ import annotations

import re
import tempfile
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from time import perf_counter
from typing import Any
from urllib.parse import unquote

import jax
from jax.profiler import ProfileData, ProfileOptions, TraceAnnotation, trace

from deep500.networks.execution.step_profile import BACKWARD, FORWARD, Kernel, KernelPlace, Places, ProfiledStep

_STEP, _END = "deep500 step", "end: "
_INSTRUCTION = re.compile(r"^\s*(?:ROOT )?%([\w.-]+) = ")
_COMPUTATION = re.compile(r"^(?:ENTRY )?%([\w.-]+) \(.*\{$")
_CALLED = re.compile(r"(?:calls|to_apply|body|condition|branch_computations)=\{?((?:%[\w.-]+(?:, )?)+)")
_OPERATION = re.compile(r'metadata=\{op_name="([^"]*)"')
_NAME = re.compile(r"%([\w.-]+)")
_SCOPE = re.compile(r"node:([^/()\"]+)")


class StepProfiler:
    """Runs steps of an executor under ``jax.profiler``, compiled once more so that the instructions are known.

    Kernels may run side by side in XLA's threads. Memory is not counted: XLA plans that of the whole step.

    Args:
        executor: whose network runs; a profiled step trains it like any other.
        loss: what is differentiated; None runs forward in evaluation mode.

    Example:
        >>> import numpy as np
        >>> from deep500.frameworks.jax import from_model
        >>> from deep500.networks import create
        >>> profiler = StepProfiler(from_model(create("mlp", shape=(4,))), None)
        >>> profiler.step({"input": np.ones((2, 4), "float32")})
        >>> "fc1" in {kernel.place.node for kernel in profiler.finish()[0].kernels if kernel.place}
        True
    """

    def __init__(self, executor: Any, loss: str | None) -> None:
        self.executor, self.loss = executor, loss
        outputs = tuple(executor.network.outputs)
        executor.refresh()
        self.compiled = executor.compiled(outputs, None) if loss is None else executor.training_step(loss)
        self.places = Places(executor.network.nodes)
        self.places.learn([(node.name, node.reads, node.writes) for node in self.compiled.program.nodes])
        self.instructions: dict[str, Instruction] = {}
        self._function: Any = None
        self._inside = 0.0
        self._steps: list[ProfiledStep] = []

    def step(self, inputs: Mapping[str, Any]) -> None:
        """Run one step under the profiler."""
        if self._function is None:
            self._compile(inputs)
        variants = self.compiled.variants
        key = next(reversed(variants))
        usual, variants[key] = variants[key], self._call
        options = ProfileOptions()
        options.python_tracer_level = 0
        try:
            with tempfile.TemporaryDirectory() as folder:
                with trace(folder, profiler_options=options), TraceAnnotation(_STEP):
                    seconds = self._run(inputs)
                (file,) = Path(folder).rglob("*.xplane.pb")
                kernels = _kernels(ProfileData.from_file(str(file)), self.instructions)
        finally:
            variants[key] = usual
        self._steps.append(ProfiledStep(seconds, self._inside, tuple(kernels)))

    def finish(self) -> list[ProfiledStep]:
        """The steps that were run."""
        return self._steps

    def _compile(self, inputs: Mapping[str, Any]) -> None:
        """Compile the function of these inputs by its own metadata, not by another network's from the cache."""
        self.compiled.check(inputs)
        setting = "jax_compilation_cache_include_metadata_in_key"
        before = getattr(jax.config, setting)
        jax.config.update(setting, True)
        try:
            self._function = self.compiled.lowered(inputs).compile()
        finally:
            jax.config.update(setting, before)
        self.instructions = read_module(self._function.as_text(), self.places)

    def _run(self, inputs: Mapping[str, Any]) -> float:
        executor, begin = self.executor, perf_counter()
        executor.inference(inputs) if self.loss is None else executor.inference_and_backprop(inputs, self.loss)
        executor.synchronize()
        return perf_counter() - begin

    def _call(self, *arguments: Any) -> Any:
        begin = perf_counter()
        results = jax.block_until_ready(self._function(*arguments))
        self._inside = perf_counter() - begin
        return results


@dataclass
class Instruction:
    """An instruction of XLA's.

    Attributes:
        place: the node that it belongs to.
        holds: further nodes that it computes.
        operands, calls, readers: names of instructions, of computations, of instructions.
    """

    place: KernelPlace | None
    operands: list[str]
    calls: list[str]
    holds: tuple[str, ...] = ()
    readers: list[str] = field(default_factory=list)


def read_module(text: str, places: Places) -> dict[str, Instruction]:
    """Instructions of a module in XLA's text form, by name; ``places`` knows the nodes whose scopes they have.

    What XLA adds without metadata, such as copies, belongs to the node of an operand, else of a reader.
    """
    instructions: dict[str, Instruction] = {}
    members: dict[str, list[Instruction]] = {}
    computation = ""
    for line in text.splitlines():
        if opening := _COMPUTATION.match(line):
            computation = opening[1]
        if not (name := _INSTRUCTION.match(line)):
            continue
        operation = _OPERATION.search(line)
        calls = [call for group in _CALLED.findall(line) for call in _NAME.findall(group)]
        operands = [operand for operand in _NAME.findall(line.partition(" = ")[2]) if operand not in calls]
        instruction = Instruction(_scope(operation[1], places) if operation else None, operands, calls)
        instructions[name[1]] = instruction
        members.setdefault(computation, []).append(instruction)
        for operand in operands:
            if operand in instructions:
                instructions[operand].readers.append(name[1])
    for instruction in instructions.values():  # operands stand before their readers
        inside = list(_inside(instruction, members))
        near = [*reversed(inside), *(instructions[o].place for o in instruction.operands if o in instructions)]
        instruction.place = instruction.place or next(filter(None, near), None)
        instruction.holds = tuple(dict.fromkeys(place.node for place in inside))
    for instruction in reversed(instructions.values()):
        near = [instructions[reader].place for reader in instruction.readers]
        instruction.place = instruction.place or next(filter(None, near), None)
        nodes = {instruction.place.node} if instruction.place else set()
        instruction.holds = tuple(node for node in instruction.holds if node not in nodes)
    return instructions


def _inside(instruction: Instruction, members: Mapping[str, list[Instruction]]) -> Iterable[KernelPlace]:
    """Places of the instructions that one calls, those that they call included."""
    for call in instruction.calls:
        for member in members.get(call, ()):
            if member.place is not None:
                yield member.place
            yield from _inside(member, members)


def _scope(operation: str, places: Places) -> KernelPlace | None:
    scope = _SCOPE.search(operation)
    place = None if scope is None else places.names.get(unquote(scope[1]))
    return None if place is None else KernelPlace(place.node, BACKWARD if "transpose(" in operation else FORWARD)


def _kernels(data: Any, instructions: Mapping[str, Instruction]) -> list[Kernel]:
    """Kernels of the step: instructions that lie in no other one's of their thread, by their start."""
    lines = [sorted(line.events, key=_order) for plane in data.planes for line in plane.lines]
    step = next(event for events in lines for event in events if event.name == _STEP)
    spans, ends = list[tuple[float, float, str]](), dict[str, list[float]]()
    for events in lines:
        end = step.start_ns
        for event in events:
            if event.name.startswith(_END):
                ends.setdefault(event.name.removeprefix(_END), []).append(event.start_ns)
            elif event.start_ns >= end and "hlo_op" in (stats := dict(event.stats)):
                end = event.start_ns + event.duration_ns
                spans.append((event.start_ns, end, str(stats["hlo_op"])))
    starts = {name: start for start, _, name in sorted(spans, reverse=True)}
    kernels, lanes = list[Kernel](), list[float]()
    for start, returned, name in sorted(spans):
        instruction, end = instructions.get(name, Instruction(None, [], [])), returned
        done = [time for time in ends.get(name, ()) if time >= returned]
        if done:  # it went on in other threads, at most until what reads it began
            end = min([*done, *(starts[r] for r in instruction.readers if starts.get(r, 0) >= returned)])
        lane = next((number for number, busy in enumerate(lanes) if busy <= start), len(lanes))
        lanes[lane : lane + 1] = [end]
        span = (start - step.start_ns) / 1e9, (end - start) / 1e9
        kernels.append(Kernel(name, *span, instruction.place, instruction.holds, None, lane))
    return kernels


def _order(event: Any) -> tuple[float, float]:
    return event.start_ns, -event.duration_ns
