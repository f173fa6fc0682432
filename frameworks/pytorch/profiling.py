"""Profiles of steps by ``torch.profiler``, brought back to the network's nodes.

A copy of the generated code stands in for it that opens a ``record_function`` range around each node. A function of
the tape has the sequence number of the operator that it belongs to, and so of the range around that; gradients are
handed to parameters (``AccumulateGrad``) right after the function that computed them, because they come first in the
engine's queue.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import replace
from time import perf_counter
from typing import Any

import torch
from torch import fx
from torch.profiler import ProfilerActivity, profile

from deep500.errors import UnsupportedOperator
from deep500.networks.execution.framework_clock import FrameworkClock
from deep500.networks.execution.step_profile import BACKWARD, Kernel, KernelPlace, Places, ProfiledStep, run_step

_RANGE, _STEP = "deep500:", "deep500 step"
_FUNCTION, _HAND = "autograd::engine::evaluate_function: ", "torch::autograd::AccumulateGrad"
_enter, _leave = torch.ops.profiler._record_function_enter_new, torch.ops.profiler._record_function_exit


class StepProfiler:
    """Runs steps of an executor under ``torch.profiler``.

    The first call also runs a step that counts memory: to write a line for each allocation takes time.

    Args:
        executor: whose network runs; a profiled step trains it like any other.
        loss: what is differentiated; None runs forward in evaluation mode.

    Raises:
        UnsupportedOperator: for compiled code and memory plans, whose kernels nothing names.

    Example:
        >>> import numpy as np
        >>> from deep500.frameworks.pytorch import from_model
        >>> from deep500.networks import create
        >>> profiler = StepProfiler(from_model(create("mlp", shape=(4,))), None)
        >>> profiler.step({"input": np.ones((2, 4), "float32")})
        >>> profiler.finish()[0].kernels[0].place
        KernelPlace(node='fc1', phase='forward')
    """

    def __init__(self, executor: Any, loss: str | None) -> None:
        if executor.compile or executor.checkpointing is not None:
            raise UnsupportedOperator(
                "got an executor with compile=True or a memory plan to profile; expected PyTorch's eager mode, in "
                "which each node has kernels of its own: leave both out"
            )
        self.executor, self.loss = executor, loss
        self.key = tuple(executor.network.outputs), loss
        if loss is not None:
            executor.training_step(loss)
            self.key = next(key for key in executor._compiled if key[1] == loss)
        self.plain = executor.compiled(*self.key)
        self.module = with_ranges(self.plain.module)
        self.nodes = list(self.plain.module.program.nodes)
        self.places = Places(executor.network.nodes)
        self.places.learn([(node.name, node.reads, node.writes) for node in self.nodes])
        self._clock = FrameworkClock()
        self._memory: dict[KernelPlace, int] | None = None
        self._steps: list[ProfiledStep] = []

    def step(self, inputs: Mapping[str, Any]) -> None:
        """Run one step; the first call runs three."""
        if self._memory is None:
            self._step(inputs)  # what torch makes at first use is no part of a step
            self.executor._let_go()  # of blocks whose sizes the profiler has not seen
            self._memory = _memory(self._run(inputs, memory=True)[0], self._place)
        events, seconds = self._run(inputs)
        kernels = _kernels(events, self._place, self._memory)
        self._steps.append(ProfiledStep(seconds, self._clock.seconds, tuple(kernels)))

    def finish(self) -> list[ProfiledStep]:
        """The steps that were run."""
        return self._steps

    def _place(self, name: str) -> KernelPlace | None:
        return self.places.names.get(name)

    def _run(self, inputs: Mapping[str, Any], memory: bool = False) -> tuple[list[Any], float]:
        with profile(activities=[ProfilerActivity.CPU], profile_memory=memory) as profiler:
            seconds = self._step(inputs)
        return list(profiler.profiler.kineto_results.events()), seconds

    def _step(self, inputs: Mapping[str, Any]) -> float:
        executor, self._clock = self.executor, FrameworkClock()
        self.module.train(self.loss is not None)
        ranged = replace(self.plain, call=self.module)
        executor._compiled[self.key] = executor.clocked(ranged, self._clock)
        try:
            begin = perf_counter()
            with torch.profiler.record_function(_STEP):
                run_step(executor, inputs, self.loss)
            executor.synchronize()
            return perf_counter() - begin
        finally:
            executor._compiled[self.key] = self.plain


def with_ranges(module: Any) -> fx.GraphModule:
    """A module with the same parts whose code names the node that it runs to ``torch.profiler``."""
    sources, graph, copies = module.meta["sources"], fx.Graph(), dict[fx.Node, fx.Node]()
    within, handle = None, None
    for line in module.graph.nodes:
        source = within if line.op in ("placeholder", "get_attr") else sources.get(line.name)
        if source != within:
            if handle is not None:
                graph.call_function(_leave._RecordFunction, (handle,))
            handle = None if source is None else graph.call_function(_enter.default, (_RANGE + source,))
            within = source
        copies[line] = graph.node_copy(line, copies.__getitem__)
    return fx.GraphModule(module, graph)


def _spans(events: Sequence[Any]) -> tuple[Any, list[Any]]:
    """The step, and the ranges of nodes and functions of the tape in it, by their start."""
    step = next(event for event in events if event.name() == _STEP)
    chosen = [e for e in events if e.name().startswith((_RANGE, _FUNCTION)) and e.start_ns() >= step.start_ns()]
    return step, sorted(chosen, key=lambda event: event.start_ns())


def _sequence(events: Sequence[Any], ranges: Sequence[Any]) -> dict[int, str]:
    """The node in whose range each number of the tape was given; the last one that an operator gave holds."""
    starts, names = [r.start_ns() for r in ranges], dict[int, str]()
    for event in sorted(events, key=lambda event: event.start_ns()):
        number = event.sequence_nr()
        if number < 0 or event.name().startswith((_RANGE, _FUNCTION, _STEP)) or event.fwd_thread_id():
            continue
        index = bisect_right(starts, event.start_ns()) - 1
        if index >= 0 and event.start_ns() <= ranges[index].end_ns():
            names.setdefault(number, ranges[index].name().removeprefix(_RANGE))
    return names


def _placed(events: Sequence[Any], place: Any) -> list[tuple[Any, KernelPlace | None]]:
    _, spans = _spans(events)
    numbers = _sequence(events, [span for span in spans if span.name().startswith(_RANGE)])
    placed, last = [], dict[int, KernelPlace | None]()
    for span in spans:
        name, thread = span.name(), span.start_thread_id()
        if name.startswith(_RANGE):
            placed.append((span, place(name.removeprefix(_RANGE))))
            continue
        if _HAND not in name:
            node = place(numbers.get(span.sequence_nr(), ""))
            last[thread] = None if node is None else KernelPlace(node.node, BACKWARD)
        placed.append((span, last.get(thread)))
    return placed


def _kernels(events: Sequence[Any], place: Any, memory: Mapping[KernelPlace, int]) -> list[Kernel]:
    step, _ = _spans(events)
    kernels, rest = [], dict(memory)
    for span, where in _placed(events, place):
        name = span.name().removeprefix(_RANGE).removeprefix(_FUNCTION)
        start, seconds = (span.start_ns() - step.start_ns()) / 1e9, span.duration_ns() / 1e9
        size = None if where is None else rest.pop(where, 0)
        kernels.append(Kernel(name, start, seconds, where, memory=size, lane=span.start_thread_id()))
    return kernels


def _memory(events: Sequence[Any], place: Any) -> dict[KernelPlace, int]:
    """Bytes that each node reserved and did not give back while it ran."""
    placed = _placed(events, place)
    starts, sums = [span.start_ns() for span, _ in placed], dict[KernelPlace, int]()
    for event in events:
        index = bisect_right(starts, event.start_ns()) - 1
        if event.name() == "[memory]" and index >= 0 and event.start_ns() <= placed[index][0].end_ns():
            where = placed[index][1]
            if where is not None:
                sums[where] = sums.get(where, 0) + event.nbytes()
    return {where: max(0, size) for where, size in sums.items()}


__all__ = ["StepProfiler", "with_ranges"]
