"""Profiles of steps: the reference looks at the clock after each of its kernels."""

from __future__ import annotations

from collections.abc import Mapping
from time import perf_counter
from typing import Any

import numpy as np

from deep500.frameworks.reference.compiler import KernelProgram, KernelStep
from deep500.frameworks.reference.meter import base_of
from deep500.networks.execution.step_profile import Kernel, Places, ProfiledStep, run_step


class StepProfiler:
    """Runs steps of an executor and times each kernel, from the end of the one before to its own end.

    What a kernel leaves behind is given back at the beginning of the next one's time. Views of operands take no memory.

    Args:
        executor: whose network runs; a profiled step trains it like any other.
        loss: what is differentiated; None runs forward in evaluation mode.

    Example:
        >>> from deep500.frameworks.reference import from_model
        >>> from deep500.networks import create
        >>> profiler = StepProfiler(from_model(create("mlp", shape=(4,))), None)
        >>> profiler.step({"input": np.ones((2, 4), "float32")})
        >>> profiler.finish()[0].kernels[0].place
        KernelPlace(node='fc1', phase='forward')
    """

    def __init__(self, executor: Any, loss: str | None) -> None:
        self.executor, self.loss = executor, loss
        self.outputs = tuple(executor.network.outputs)
        program = executor._inference(self.outputs)[0] if loss is None else executor._training(loss).program
        self.program: KernelProgram = program
        rows = [(step.node.name, step.node.reads, step.node.writes) for step in program.steps]
        self.places = Places(executor.network.nodes).learn(rows)
        self._marks: list[tuple[float, int, float]] = []
        self._span = (0.0, 0.0)
        self._steps: list[ProfiledStep] = []

    def step(self, inputs: Mapping[str, Any]) -> None:
        """Run one step."""
        executor, loss, table = self.executor, self.loss, self.executor._inferences
        self._marks = []
        if loss is None:
            before = table[self.outputs]
            table[self.outputs] = _WatchedProgram(self), before[1]
        else:
            table, before = executor._trainings, executor._trainings[loss]
            table[loss] = before._replace(run=self.run)
        begin = perf_counter()
        try:
            run_step(executor, inputs, loss)
        finally:
            end = perf_counter()
            table[self.outputs if loss is None else loss] = before
        self._steps.append(ProfiledStep(end - begin, self._span[1] - self._span[0], tuple(self._kernels(begin))))

    def finish(self) -> list[ProfiledStep]:
        """The steps that were run."""
        return self._steps

    def run(self, inputs: Mapping[str, Any]) -> dict[str, Any]:
        """Run the program with an eye on the clock."""
        begin = perf_counter()
        results = self.program.run(inputs, self._mark)
        self._span = begin, perf_counter()
        return results

    def _mark(self, step: KernelStep, values: list[Any]) -> None:
        now = perf_counter()
        before = {id(base_of(v)) for v in (values[slot] for slot in step.reads) if isinstance(v, np.ndarray)}
        after = [base_of(v) for v in (values[slot] for slot in step.writes) if isinstance(v, np.ndarray)]
        size = sum(array.nbytes for array in after if id(array) not in before)
        self._marks.append((now, size, perf_counter()))

    def _kernels(self, begin: float) -> list[Kernel]:
        kernels, last = [], self._span[0]
        for step, place, (end, size, resumed) in zip(self.program.steps, self.places, self._marks, strict=True):
            kernels.append(Kernel(step.node.op_type, last - begin, end - last, place, memory=size))
            last = resumed
        return kernels


class _WatchedProgram:
    """Stands for the program while a step is profiled."""

    def __init__(self, profiler: StepProfiler) -> None:
        self.run = profiler.run
