"""Measured times of a training step's nodes on a backend, for planners.

A backend that can time nodes (:class:`~deep500.networks.execution.capabilities.TimesNodes`) does so. For another one
each innermost region is run as a network of its own, once per static location, through the executor's public methods;
what a call costs by itself is subtracted. The time of a region is divided among its nodes, and what the whole step
takes beyond the forward pass among the backward ones, by counted operations.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from time import perf_counter
from typing import Any

import numpy as np

from deep500.errors import PlanError
from deep500.networks.execution.capabilities import node_times
from deep500.networks.execution.executor import GraphExecutor
from deep500.networks.graph import Graph
from deep500.networks.node import Node
from deep500.progress import numbered
from deep500.transformations.recomputation.region_tree import Region
from deep500.transformations.recomputation.regions import NetworkRegions, find_regions, live_out
from deep500.transformations.recomputation.training_step import TrainingStep

SAMPLES = 5
"""Samples whose least is taken."""
_LONG = 0.002  # seconds that a sample should take at least


def measured_regions(
    executor: GraphExecutor, inputs: Mapping[str, Any], loss: str = "loss", samples: int = SAMPLES
) -> NetworkRegions:
    """The candidate regions of an executor's network with times in seconds, measured on its backend and device.

    The executor itself is left as it is: what is run are copies.

    Args:
        executor: whose network, backend and device count.
        inputs: a batch for training; its size is the plan's.
        loss: the scalar that is differentiated.
        samples: for each time, of which the least counts.

    Raises:
        PlanError: inputs without one batch size.

    Example:
        >>> import deep500.frameworks.reference as d5ref
        >>> from deep500.networks import add_loss, create
        >>> executor = d5ref.from_model(add_loss(create("mlp", shape=(4,), classes=3)))
        >>> batch = {"input": np.ones((8, 4), "float32"), "label": np.zeros(8, "int64")}
        >>> regions = measured_regions(executor, batch)
        >>> regions.time_unit, all(seconds > 0 for seconds in regions.times.values())
        ('s', True)
    """
    network = executor.network.copy()
    batch = batch_of(network, inputs)
    counted = find_regions(network, batch, loss)
    step = counted.step
    times = node_times(executor, step.network, inputs, samples)
    if times is None:
        times = _Probes(executor, network, counted, inputs, samples).times()
    return replace(find_regions(network, batch, loss, times=times), backend=executor.backend)


def batch_of(network: Graph, inputs: Mapping[str, Any]) -> int:
    """The batch size of inputs: what stands for every symbolic size.

    Raises:
        PlanError: an input is missing, or they have several sizes.

    Example:
        >>> from deep500.networks import create
        >>> batch_of(create("mlp", shape=(4,)), {"input": np.ones((8, 4), "float32")})
        8
    """
    sizes: dict[int, str] = {}
    for name, described in network.inputs.items():
        if name not in inputs:
            raise PlanError(f"got no input {name!r}; expected all of {list(network.inputs)}: give a batch for training")
        for want, size in zip(described.shape or (), np.shape(inputs[name]), strict=False):
            if isinstance(want, str) or want is None:
                sizes.setdefault(int(size), f"{name}'s {want!r}")
    if len(sizes) > 1:
        raise PlanError(
            f"got inputs with sizes {sizes}; expected one for every symbolic size, as plans hold for one batch size: "
            "give the network's other sizes as numbers"
        )
    if sizes:
        return next(iter(sizes))
    return first_size(network)


def first_size(network: Graph) -> int:
    """The first size of a network's first input, where it is a number; else 1."""
    shape = next((described.shape for described in network.inputs.values() if described.shape), (1,))
    return shape[0] if isinstance(shape[0], int) else 1


class _Probes:
    """Regions as networks of their own, on executors like a given one."""

    def __init__(
        self, executor: GraphExecutor, network: Graph, regions: NetworkRegions, inputs: Mapping[str, Any], samples: int
    ) -> None:
        self.executor, self.network, self.regions, self.inputs = executor, network, regions, dict(inputs)
        self.samples, self.step = samples, regions.step
        self.leaves = regions.innermost()

    def times(self) -> dict[str, float]:
        """Seconds of every node of the step."""
        first: dict[str, Region] = {}
        for region in self.leaves:
            first.setdefault(region.place, region)
        parts = {place: self._part(self.regions.nodes[region.name]) for place, region in first.items()}
        values = self._values({name for part in parts.values() for name in part.inputs})
        calls = {place: self._call(part, {n: values[n] for n in part.inputs}) for place, part in parts.items()}
        nothing = Graph("nothing")
        nothing.add_input("x", (1,))
        nothing.add_node("Identity", ["x"], ["y"])
        nothing.add_output("y")
        calls[""] = self._call(nothing, {"x": np.zeros(1, "float32")})
        trained = self.executor.like(self.network)
        calls["step"] = lambda: (trained.inference_and_backprop(self.inputs, self.step.loss), trained.synchronize())
        seconds = least_seconds(calls, self.samples)
        idle = seconds.pop("")
        runs = {place: max(taken - idle, taken / 10) for place, taken in seconds.items()}
        return self._divided(runs)

    def _divided(self, runs: Mapping[str, float]) -> dict[str, float]:
        times: dict[str, float] = {}
        for region in self.leaves:
            times.update(_shares(self.regions.nodes[region.name], self.regions.times, runs[region.place]))
        forward = sum(times.values())
        times.update(_shares(self.step.backward, self.regions.times, max(runs["step"] - forward, forward / 10)))
        return times

    def _part(self, nodes: Sequence[Node]) -> Graph:
        return _network(self.step, nodes, sorted(live_out(self.step, nodes)))

    def _values(self, names: set[str]) -> dict[str, Any]:
        """Arrays of values in a step with the given inputs."""
        inner = sorted(names - set(self.inputs))
        values = dict(self.inputs)
        if inner:
            forward = _network(self.step, self.step.forward, inner)
            values.update(
                self.executor.like(forward).inference({name: self.inputs[name] for name in forward.inputs}, inner)
            )
        return values

    def _call(self, network: Graph, values: Mapping[str, Any]) -> Callable[[], Any]:
        executor = self.executor.like(network)
        return lambda: (executor.inference(values), executor.synchronize())


def least_seconds(calls: Mapping[str, Callable[[], Any]], samples: int) -> dict[str, float]:
    """Least seconds of one call of each, over samples that take turns so that a slow while meets all alike.

    A sample of a short call is the mean of as many as take two milliseconds.

    Example:
        >>> from time import sleep
        >>> seconds = least_seconds({"short": lambda: None, "long": lambda: sleep(0.003)}, 2)
        >>> seconds["short"] < 0.003 <= seconds["long"]
        True
    """
    counts: dict[str, int] = {}
    for name, call in numbered("part", calls.items()):
        call()
        counts[name] = max(1, int(_LONG / max(_seconds(call, 1), 1e-7)))
    seconds = dict.fromkeys(calls, float("inf"))
    for _ in numbered("times, sample", range(samples)):
        for name, call in calls.items():
            seconds[name] = min(seconds[name], _seconds(call, counts[name]))
    return seconds


def _seconds(call: Callable[[], Any], count: int) -> float:
    begin = perf_counter()
    for _ in range(count):
        call()
    return (perf_counter() - begin) / count


def _shares(nodes: Sequence[Node], weights: Mapping[str, float], whole: float) -> dict[str, float]:
    """A time divided among nodes by their operations, at least one each."""
    operations = {node.writes[0]: max(weights[node.writes[0]], 1.0) for node in nodes}
    total = sum(operations.values())
    return {name: whole * weight / total for name, weight in operations.items()}


def _network(step: TrainingStep, nodes: Sequence[Node], outputs: Iterable[str]) -> Graph:
    """Some nodes of a step as a network; what others write is an input."""
    part, described = Graph("part"), step.network.descriptors()
    written = {value for node in nodes for value in node.writes}
    for name in dict.fromkeys(value for node in nodes for value in node.reads if value not in written):
        if name in step.network.parameters:
            part.add_parameter(name, step.network.parameters[name].value, trainable=False)
        else:
            part.add_input(name, described[name].shape, described[name].dtype or "float32")
    for node in nodes:
        part.add_node(node.op_type, node.inputs, node.outputs, node.name, node.domain, **node.attributes)
    for name in outputs:
        part.add_output(name)
    return part
