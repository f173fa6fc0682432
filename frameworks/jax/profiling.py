"""Profiles of steps by ``jax.profiler``, brought back to the network's nodes by the metadata of XLA's instructions.

Each node is traced in a scope of its name, which JAX's differentiation keeps and XLA writes beside every instruction.
A fusion holds instructions of several nodes; it stands with the node of its root, and names the others.
"""

from __future__ import annotations

import re
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from time import perf_counter
from typing import Any
from urllib.parse import unquote

import jax
from jax.profiler import ProfileData, ProfileOptions, TraceAnnotation, trace

from deep500.networks.execution.step_profile import (
    BACKWARD,
    FORWARD,
    Kernel,
    KernelPlace,
    Places,
    ProfiledStep,
    run_step,
)

_STEP, _END = "deep500 step", "end: "
_INSTRUCTION = re.compile(r"^\s*(?:ROOT )?%([\w.-]+) = ")
_COMPUTATION = re.compile(r"^(?:ENTRY )?%([\w.-]+) \(.*\{$")
_CALLED = re.compile(r"(?:calls|to_apply|body|condition|branch_computations)=\{?((?:%[\w.-]+(?:, )?)+)")
_OPERATION = re.compile(r'metadata=\{op_name="([^"]*)"')
_NAME = re.compile(r"%([\w.-]+)")
_PARAMETER = re.compile(r" parameter\((\d+)\)")
_SCOPE = re.compile(r"node:([^/()\"]+)")


class StepProfiler:
    """Runs steps of an executor under ``jax.profiler``, compiled once more so that the instructions are known.

    Kernels may run side by side in XLA's threads. Memory is not counted: XLA plans that of the whole step.

    Args:
        executor: whose network runs; a profiled step trains it like any other.
        loss: what is differentiated; None runs forward in evaluation mode.

    Attributes:
        text: of XLA's module, after the first step.
        instructions: those of the module, by name.

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
        self.text = ""
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
        self.text = self._function.as_text()
        self.instructions = Module(self.text, self.places).instructions

    def _run(self, inputs: Mapping[str, Any]) -> float:
        executor, begin = self.executor, perf_counter()
        run_step(executor, inputs, self.loss)
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
        operands, calls, readers: names of instructions, of computations, of instructions.
        number: of a parameter among those of its computation.
        holds: further nodes that it computes.
    """

    place: KernelPlace | None
    operands: list[str]
    calls: list[str]
    number: int = -1
    holds: tuple[str, ...] = ()
    readers: list[str] = field(default_factory=list)
    seen: bool = False


class Module:
    """A module in XLA's text form, whose instructions are brought back to nodes.

    An instruction belongs to the node in whose scope it was traced. XLA leaves that out where it replaced one: then it
    belongs to the last node whose instructions it holds, else to that of the instruction that reads it (a convolution's
    result is turned in the scope of the convolution), else of an operand.

    Args:
        text: of the module.
        places: knows the nodes by the names of their scopes.

    Attributes:
        instructions: by name.
    """

    def __init__(self, text: str, places: Places) -> None:
        self.instructions: dict[str, Instruction] = {}
        self.members: dict[str, list[Instruction]] = {}
        self._read(text, places)
        every = self.instructions.values()
        for instruction in every:
            self._resolve(instruction)
        for instruction in every:  # operands stand before their readers
            near = (self.instructions[name].place for name in instruction.operands if name in self.instructions)
            instruction.place = instruction.place or next(filter(None, near), None)
        for instruction in every:
            nodes = dict.fromkeys(place.node for place in self._inside(instruction))
            instruction.holds = tuple(n for n in nodes if instruction.place is None or n != instruction.place.node)

    def _read(self, text: str, places: Places) -> None:
        computation = ""
        for line in text.splitlines():
            if opening := _COMPUTATION.match(line):
                computation = opening[1]
            if not (name := _INSTRUCTION.match(line)):
                continue
            operation, parameter = _OPERATION.search(line), _PARAMETER.search(line)
            calls = [call for group in _CALLED.findall(line) for call in _NAME.findall(group)]
            operands = [operand for operand in _NAME.findall(line.partition(" = ")[2]) if operand not in calls]
            place = _scope(operation[1], places) if operation else None
            instruction = Instruction(place, operands, calls, int(parameter[1]) if parameter else -1)
            self.instructions[name[1]] = instruction
            self.members.setdefault(computation, []).append(instruction)
            for operand in operands:
                if operand in self.instructions:
                    self.instructions[operand].readers.append(name[1])

    def _resolve(self, instruction: Instruction) -> KernelPlace | None:
        """The place that an instruction's metadata, parts or readers say."""
        if instruction.place is None and not instruction.seen:
            instruction.seen = True
            instruction.place = next(reversed(list(self._inside(instruction))), None)
            for name in instruction.readers:
                reader = self.instructions[name]
                instruction.place = instruction.place or self._where_read(instruction, reader) or self._resolve(reader)
        return instruction.place

    def _where_read(self, instruction: Instruction, reader: Instruction) -> KernelPlace | None:
        """The place of what reads an instruction inside of a fusion."""
        for call in reader.calls:
            for number, operand in enumerate(reader.operands):
                if self.instructions.get(operand) is instruction:
                    inner = (m for m in self.members.get(call, ()) if m.number == number)
                    readers = [self.instructions[name] for member in inner for name in member.readers]
                    return next(filter(None, map(self._resolve, readers)), None)
        return None

    def _inside(self, instruction: Instruction) -> Iterator[KernelPlace]:
        """Places of the instructions that one calls, those that they call included."""
        for call in instruction.calls:
            for member in self.members.get(call, ()):
                if member.place is not None and member.number < 0:
                    yield member.place
                yield from self._inside(member)


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
