"""Profiles of steps by ONNX Runtime's own profiling file, brought back to the network's nodes.

A session that profiles is made beside the executor's; its graph, as ONNX Runtime rewrote it, is written to a file, from
which the values are known that each kernel writes.
"""

from __future__ import annotations

import tempfile
from collections.abc import Mapping
from time import perf_counter
from typing import Any

import onnx

from deep500.errors import UnsupportedOperator
from deep500.frameworks.onnxruntime.program import SessionProgram
from deep500.frameworks.onnxruntime.session import options as session_options
from deep500.networks.execution.step_profile import Kernel, KernelPlace, Places, ProfiledStep, run_step
from deep500.reading import parse, read_bytes

_SUFFIX = "_kernel_time"
_MOST_BYTES = 2**31


class StepProfiler:
    """Runs steps of an executor in a session that profiles.

    Args:
        executor: whose network runs; a profiled step trains it like any other.
        loss: what is differentiated; None runs forward in evaluation mode.

    Raises:
        UnsupportedOperator: a network with custom operators, which run between several sessions.

    Example:
        >>> import numpy as np
        >>> from deep500.frameworks.onnxruntime import from_model
        >>> from deep500.networks import create
        >>> profiler = StepProfiler(from_model(create("mlp", shape=(4,))), None)
        >>> profiler.step({"input": np.ones((2, 4), "float32")})
        >>> profiler.finish()[0].kernels[0].place.phase
        'forward'
    """

    def __init__(self, executor: Any, loss: str | None) -> None:
        self.executor, self.loss = executor, loss
        self.key: Any = tuple(executor.network.outputs) if loss is None else loss
        self._files = tempfile.TemporaryDirectory()
        self._seconds: list[float] = []
        self._open()
        program = self.entry[0] if loss is None else self.entry.program
        if not isinstance(program, SessionProgram) or program.session is None:
            raise UnsupportedOperator(
                "got a network with custom operators, or without nodes, to profile in ONNX Runtime; expected one that "
                "a single session runs: profile it in another backend"
            )
        self.session: Any = program.session

    def _open(self) -> None:
        """Make the session that profiles, and leave the executor's own where they were."""
        executor, loss = self.executor, self.loss
        settings = session_options(executor.threads, optimization=executor.optimization)
        settings.use_deterministic_compute = executor.deterministic
        settings.enable_profiling, settings.profile_file_prefix = True, f"{self._files.name}/profile"
        settings.optimized_model_filepath = f"{self._files.name}/graph.onnx"
        if loss is not None:
            executor._training(loss)  # from here on parameters are inputs
        usual, before = executor.settings, self._table().pop(self.key, None)
        executor.settings = settings
        try:
            self.entry = executor._inference(self.key) if loss is None else executor._training(loss)
        finally:
            executor.settings = usual
            self._put(before)

    def _put(self, entry: Any) -> None:
        """Let the executor run this one; None: one that it makes itself."""
        table = self._table()  # a new one after parameters were written
        table.pop(self.key, None)
        if entry is not None:
            table[self.key] = entry

    def _table(self) -> dict[Any, Any]:
        table: dict[Any, Any] = self.executor._inferences if self.loss is None else self.executor._trainings
        return table

    def step(self, inputs: Mapping[str, Any]) -> None:
        """Run one step under the profiler."""
        executor, loss, before = self.executor, self.loss, self._table().get(self.key)
        self._put(self.entry)
        begin = perf_counter()
        try:
            run_step(executor, inputs, loss)
        finally:
            end = perf_counter()
            self._put(before)
        self._seconds.append(end - begin)

    def finish(self) -> list[ProfiledStep]:
        """The steps that were run."""
        events = parse(read_bytes(self.session.end_profiling(), _MOST_BYTES), "ONNX Runtime's profile")
        graph = onnx.load(f"{self._files.name}/graph.onnx", load_external_data=False).graph
        self._files.cleanup()
        executor = self.executor
        places = Places(executor.network.nodes)
        if self.loss is not None:
            places.learn([(n.name, n.reads, n.writes) for n in executor.step_network(self.loss)[0].nodes])
        rows = [(n.name, [v for v in n.input if v], [v for v in n.output if v]) for n in graph.node]
        located = {name: place for (name, _, _), place in zip(rows, places.learn(rows), strict=True) if name}
        runs = [event for event in events if event["name"] == "model_run"]
        kernels = [event for event in events if event.get("cat") == "Node" and event["name"].endswith(_SUFFIX)]
        return [
            ProfiledStep(seconds, run["dur"] / 1e6, tuple(_kernels(kernels, run, located, seconds)))
            for seconds, run in zip(self._seconds, runs, strict=True)
        ]


def _kernels(
    events: list[dict[str, Any]], run: Mapping[str, Any], places: Mapping[str, KernelPlace | None], seconds: float
) -> list[Kernel]:
    """The kernels of one run; that the run began in the middle of what the call takes beside it is a guess."""
    begin, end, before = run["ts"], run["ts"] + run["dur"], max(0.0, (seconds - run["dur"] / 1e6) / 2)
    kernels = []
    for event in events:
        if begin <= event["ts"] <= end:
            name, start = event["name"].removesuffix(_SUFFIX), before + (event["ts"] - begin) / 1e6
            size = int(event["args"].get("output_size") or 0)
            where = places.get(name)
            kernels.append(Kernel(f"{event['args']['op_name']} {name}", start, event["dur"] / 1e6, where, (), size))
    return kernels
