"""Profiles of steps by ``tf.profiler``, brought back to the network's nodes by the scopes that they are traced in.

Gradients stand in the scope of their operator below ``gradient_tape``; graph optimizers keep the name of one of the
operators that they fuse.
"""

from __future__ import annotations

import re
import tempfile
from collections.abc import Mapping
from pathlib import Path
from time import perf_counter
from typing import Any

from deep500.errors import UnsupportedOperator
from deep500.frameworks.tensorflow.compiler import TARGET, scopes
from deep500.frameworks.tensorflow.runtime import tf
from deep500.networks.execution.framework_clock import FrameworkClock
from deep500.networks.execution.program import from_network
from deep500.networks.execution.step_profile import BACKWARD, Kernel, KernelPlace, Places, ProfiledStep, run_step

_STEP, _TAPE = "deep500 step", "gradient_tape/"
_KERNEL = re.compile(r"([\w./>-]+):(\w+)")


class StepProfiler:
    """Runs steps of an executor under ``tf.profiler``.

    Kernels may run side by side in TensorFlow's threads. Memory is not counted: of small tensors it is not told.

    Args:
        executor: whose network runs; a profiled step trains it like any other.
        loss: what is differentiated; None runs forward in evaluation mode.

    Raises:
        UnsupportedOperator: for ``jit_compile=True``, whose kernels nothing names.

    Example:
        >>> import numpy as np
        >>> from deep500.frameworks.tensorflow import from_model
        >>> from deep500.networks import create
        >>> profiler = StepProfiler(from_model(create("mlp", shape=(4,))), None)
        >>> profiler.step({"input": np.ones((2, 4), "float32")})
        >>> "fc1" in {kernel.place.node for kernel in profiler.finish()[0].kernels if kernel.place}
        True
    """

    def __init__(self, executor: Any, loss: str | None) -> None:
        if executor.jit_compile:
            raise UnsupportedOperator(
                "got an executor with jit_compile=True to profile; expected TensorFlow's own kernels, which it names: "
                "leave it out, or profile in jax"
            )
        self.executor, self.loss = executor, loss
        executor.refresh()
        outputs = tuple(executor.network.outputs)
        self.compiled = executor.compiled(outputs, None) if loss is None else executor.training_step(loss)
        self.key = next(key for key, compiled in executor._compiled.items() if compiled is self.compiled)
        self.places = places_of(executor, self.compiled)
        self._clock = FrameworkClock()
        self._steps: list[ProfiledStep] = []

    def step(self, inputs: Mapping[str, Any]) -> None:
        """Run one step under the profiler; the first call runs two."""
        if not self._steps:
            self._run(inputs)  # traces
        options = tf.profiler.experimental.ProfilerOptions(
            host_tracer_level=2, python_tracer_level=0, device_tracer_level=0
        )
        with tempfile.TemporaryDirectory() as folder:
            tf.profiler.experimental.start(folder, options=options)
            try:
                with tf.profiler.experimental.Trace(_STEP):
                    seconds = self._run(inputs)
            finally:
                tf.profiler.experimental.stop()
            (file,) = Path(folder).rglob("*.xplane.pb")
            kernels = _kernels(file.read_bytes(), self.places)
        self._steps.append(ProfiledStep(seconds, self._clock.seconds, tuple(kernels)))

    def finish(self) -> list[ProfiledStep]:
        """The steps that were run."""
        return self._steps

    def _run(self, inputs: Mapping[str, Any]) -> float:
        executor, compiled, self._clock = self.executor, self.executor._compiled, FrameworkClock()
        compiled[self.key] = executor.clocked(self.compiled, self._clock)
        begin = perf_counter()
        try:
            run_step(executor, inputs, self.loss)
            return perf_counter() - begin
        finally:
            compiled[self.key] = self.compiled


def places_of(executor: Any, compiled: Any) -> dict[str, KernelPlace]:
    """Places by scope."""
    nodes = from_network(executor.network, compiled.outputs, TARGET, {name: name for name in executor.tensors}).nodes
    places = Places(executor.network.nodes)
    places.learn([(node.name, node.reads, node.writes) for node in nodes])
    return {scope: places.names[name] for name, scope in scopes(nodes).items() if name in places.names}


def _place(operation: str, places: Mapping[str, KernelPlace]) -> KernelPlace | None:
    """The place of an operation of TensorFlow's graph: some part of its path is a scope."""
    parts = operation.split("/")
    for first in range(len(parts)):
        for last in range(len(parts), first, -1):
            place = places.get("/".join(parts[first:last]))
            if place is not None:
                return KernelPlace(place.node, BACKWARD) if _TAPE in operation else place
    return None


def _kernels(data: bytes, places: Mapping[str, KernelPlace]) -> list[Kernel]:
    """Kernels of the step: events of operations that lie in no other one's of their thread, by their start."""
    from tensorflow.tsl.profiler.protobuf import xplane_pb2

    space = xplane_pb2.XSpace()
    space.ParseFromString(data)
    events = [
        (
            line.timestamp_ns + event.offset_ps / 1e3,
            event.duration_ps / 1e3,
            lane,
            plane.event_metadata[event.metadata_id],
        )
        for plane in space.planes
        for lane, line in enumerate(plane.lines)
        for event in line.events
    ]
    begin = next(start for start, _, _, about in events if about.name == _STEP)
    kernels, ends = list[Kernel](), dict[int, float]()
    for start, length, lane, about in sorted(events, key=lambda event: (event[0], -event[1])):
        kernel = _KERNEL.fullmatch(about.name)
        if kernel is None or start < max(begin, ends.get(lane, 0.0)):
            continue
        ends[lane] = start + length
        name = f"{kernel[2]} {kernel[1]}"
        kernels.append(Kernel(name, (start - begin) / 1e9, length / 1e9, _place(kernel[1], places), lane=lane))
    return kernels
