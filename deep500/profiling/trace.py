"""Profiles as files that Perfetto and ``chrome://tracing`` open: the Trace Event Format's JSON object."""

from __future__ import annotations

from typing import Any

from deep500.profiling.profile import FrameworkProfile, Profile

_KERNELS = 1


def trace_events(profile: Profile) -> dict[str, Any]:
    """A process per framework, in it a thread for the step and one for each thread of kernels; times in microseconds.

    Every event is a complete one (``ph`` X) or names a process or thread (M), as the format's specification has them.

    Example:
        >>> import numpy as np
        >>> import deep500.frameworks.reference as d5ref
        >>> from deep500.networks import create
        >>> from deep500.profiling.measuring import profile_network
        >>> inputs = {"input": np.ones((2, 4), "float32")}
        >>> net = create("mlp", shape=(4,))
        >>> trace = trace_events(profile_network(net, inputs, {"reference": d5ref.from_model}, loss=None, steps=1))
        >>> sorted({event["ph"] for event in trace["traceEvents"]})
        ['M', 'X']
    """
    events = [event for number, part in enumerate(profile.frameworks, 1) for event in _process(part, number)]
    about = {"subject": profile.subject, "loss": profile.loss or "", "machine": str(profile.machine.get("cpu"))}
    return {"traceEvents": events, "displayTimeUnit": "ms", "otherData": about}


def _process(part: FrameworkProfile, pid: int) -> list[dict[str, Any]]:
    lanes = sorted({kernel.lane for kernel in part.step.kernels})
    threads = {lane: _KERNELS + index for index, lane in enumerate(lanes)}
    events = [_named("process_name", pid, 0, f"{part.framework} {part.version}".strip())]
    events.append(_named("thread_name", pid, 0, "step"))
    events += [_named("thread_name", pid, tid, f"kernels {tid}") for tid in threads.values()]
    events.append(_event("step", "step", (0.0, part.step.seconds), pid, 0))
    for kernel in sorted(part.step.kernels, key=lambda kernel: kernel.start):
        node, phase = kernel.place or ("(no node)", "other")
        event = _event(node, phase, (kernel.start, kernel.seconds), pid, threads[kernel.lane])
        event["args"] = {"kernel": kernel.name}
        if kernel.holds:
            event["args"]["holds"] = ", ".join(kernel.holds)
        if kernel.memory is not None:
            event["args"]["bytes"] = kernel.memory
        events.append(event)
    return events


def _event(name: str, category: str, span: tuple[float, float], pid: int, tid: int) -> dict[str, Any]:
    start, seconds = span
    event = {"name": name, "cat": category, "ph": "X", "ts": round(1e6 * start, 3), "dur": round(1e6 * seconds, 3)}
    return {**event, "pid": pid, "tid": tid}


def _named(what: str, pid: int, tid: int, name: str) -> dict[str, Any]:
    return {"name": what, "ph": "M", "pid": pid, "tid": tid, "args": {"name": name}}
