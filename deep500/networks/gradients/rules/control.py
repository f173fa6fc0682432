"""Rules of If, Loop and Scan. A loop runs backwards as a Loop: each step computes the forward step again from the state
that it began with, which the forward loop is made to keep as scan outputs, and hands on the gradient of that state."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import onnx
from onnx import helper

from deep500.networks.emit import Emitter
from deep500.networks.gradients.rules.context import GradContext, Value
from deep500.networks.gradients.rules.registry import gradient_rule
from deep500.networks.gradients.rules.subgraphs import add_up, close_body, open_body
from deep500.networks.node import captures
from deep500.networks.rewrite import extend_node
from deep500.tensors import TensorDescriptor, numpy_dtype

Gradients = Sequence[Value | None]


@gradient_rule("If")
def if_(g: GradContext) -> Gradients:
    """An If over the gradients of both branches; what a branch does not read has a gradient of zeros in it."""
    node, targets, branches = g.node, _captured_targets(g), {}
    for name in ("then_branch", "else_branch"):
        graph = node.attributes[name]
        body, outside = open_body(g, graph, []), set(captures(graph))
        for value in targets:
            if value not in outside:
                body.add_input(value, g.dims(value), g.describe(value).dtype or g.dtype)
        seeds: dict[str, list[str]] = {}
        for output, value, grad in zip(graph.output, node.outputs, g.grads, strict=False):
            if grad is not None:
                if not body.has_value(str(grad)):
                    body.add_input(str(grad), g.dims(value), g.describe(value).dtype or g.dtype)
                seeds.setdefault(output.name, []).append(str(grad))
        totals = g.pull_back(body, add_up(body, seeds), targets)
        branches[name], _ = close_body(g, body, [], totals, outside)
    outputs = g.many("If", g.input(0), outputs=len(targets), **branches)
    return _placed(g, [], dict(zip(targets, outputs, strict=True)))


def _captured_targets(g: GradContext) -> list[str]:
    """The captured values whose gradient is wanted."""
    first = len(g.node.inputs)
    return list(dict.fromkeys(v for i, v in enumerate(g.node.captured, first) if g.needs(i)))


def _placed(g: GradContext, of_inputs: Sequence[Value | None], of_captured: dict[str, Value]) -> Gradients:
    """Gradients in the order of what the node reads; a value that both branches capture counts once."""
    results = [*of_inputs, *[None] * (len(g.node.inputs) - len(of_inputs))]
    return [*results, *(of_captured.pop(value, None) for value in g.node.captured)]


@dataclass(frozen=True)
class Scanned:
    """A value that a step reads or writes a slice of: its name in the body, its name outside, the axis, and whether
    the first step has the last slice."""

    inner: str
    outer: str
    axis: int = 0
    backwards: bool = False


@dataclass(frozen=True)
class Recurrence:
    """The common form of Loop and Scan. ``first`` is the index of the first state among the node's inputs."""

    graph: onnx.GraphProto
    first: int
    states: list[tuple[str, str]]  # input and output of the body for each state
    slices: list[Scanned]
    stacks: list[Scanned]
    counter: str = ""  # inputs of a Loop's body: the number of the step, whether it goes on
    condition: str = ""


@gradient_rule("Loop", blocked=[0, 1])
def loop(g: GradContext) -> Gradients:
    """Backwards as often as it ran forwards, whatever ended it."""
    graph = g.node.attributes["body"]
    inputs, outputs = ([v.name for v in values] for values in (graph.input, graph.output))
    count = len(inputs) - 2
    states = list(zip(inputs[2:], outputs[1 : 1 + count], strict=True))
    stacks = [Scanned(n, o) for n, o in zip(outputs[1 + count :], g.node.outputs[count:], strict=False)]
    return _backwards(g, Recurrence(graph, 2, states, [], stacks, inputs[0], inputs[1]))


@gradient_rule("Scan")
def scan(g: GradContext) -> Gradients:
    """Backwards along the same axes."""
    graph, node = g.node.attributes["body"], g.node
    inputs, outputs = ([v.name for v in values] for values in (graph.input, graph.output))
    count = len(inputs) - node.attribute("num_scan_inputs")

    def scanned(kind: str, inner: Sequence[str], outer: Sequence[str]) -> list[Scanned]:
        axes = node.attribute(f"scan_{kind}_axes") or (0,) * len(inner)
        directions = node.attribute(f"scan_{kind}_directions") or (0,) * len(inner)
        ranks = [g.rank(v) if a < 0 else 0 for v, a in zip(outer, axes, strict=True)]
        return [
            Scanned(n, v, a + r, bool(d)) for n, v, a, r, d in zip(inner, outer, axes, ranks, directions, strict=True)
        ]

    states = list(zip(inputs[:count], outputs[:count], strict=True))
    slices = scanned("input", inputs[count:], node.inputs[count:])
    stacks = scanned("output", outputs[count:], node.outputs[count:])
    return _backwards(g, Recurrence(graph, 0, states, slices, stacks))


def _backwards(g: GradContext, r: Recurrence) -> Gradients:
    """The node's gradient by a Loop over the steps from the last to the first."""
    begins = [g.node.inputs[r.first + k] for k in range(len(r.states))]
    steps = _Steps(g, r, begins, _captured_targets(g))
    graph, read = steps.close()
    for inner, outer in steps.recorded.items():
        if inner in read:
            _keep(g, r.graph, inner, outer)
    ends = [_start(g, begins[k], g.grads[k]) for k in steps.floating]
    zeros = [_start(g, value, None) for value in steps.targets]
    outputs = g.many("Loop", steps.length, None, *ends, *zeros, outputs=len(graph.output) - 1, body=graph)
    summed = len(ends) + len(zeros)
    of_states = dict(zip(steps.floating, outputs, strict=False))
    of_slices = {s: _assembled(g, s, v) for s, v in zip(steps.differentiated, outputs[summed:], strict=True)}
    of_inputs = [*[None] * r.first, *map(of_states.get, range(len(begins))), *map(of_slices.get, r.slices)]
    return _placed(g, of_inputs, dict(zip(steps.targets, outputs[len(ends) : summed], strict=True)))


class _Steps:
    """One step backwards, as the body of a Loop: (step, go on, gradients of the states, sums for what is captured) ->
    (go on, the same after the step, gradients of the slices that the forward step read).

    Attributes:
        length: number of steps, [1] int64.
        floating: which states have a gradient.
        differentiated: slices whose gradient is asked for.
        recorded: for each input of the forward body the value outside that stacks what it was in each step.
    """

    def __init__(self, g: GradContext, r: Recurrence, begins: Sequence[str], targets: list[str]) -> None:
        self.g, self.r, self.targets = g, r, targets
        inner = [*([r.counter, r.condition] if r.counter else []), *(name for name, _ in r.states)]
        known = [TensorDescriptor("int64", ()), TensorDescriptor("bool", ())] if r.counter else []
        known += [g.describe(value) for value in begins]
        known += [_without(g.describe(s.outer), s.axis) for s in r.slices]
        self.body = open_body(g, r.graph, known)
        self.described = dict(self.body.descriptors())
        self._check_states()
        self.floating = [k for k, (name, _) in enumerate(r.states) if "float" in (self.described[name].dtype or "")]
        self.differentiated = [s for k, s in enumerate(r.slices) if g.needs(r.first + len(begins) + k)]
        network = g.emitter.network
        self.recorded = {name: network.fresh_name(f"{g.node.name}/kept/{name}") for name in inner}
        self.length = self._length()
        self.carried = [self._like("grad/state", r.states[k][0]) for k in self.floating]
        self.sums = [self._like("grad/sum", value) for value in targets]
        self.go_on, self.step, self.place = (
            self._add(name, TensorDescriptor(dtype, ()))
            for name, dtype in (("grad/go_on", "bool"), ("grad/step", "int64"), ("grad/place", "int64"))
        )
        self.before = self._reading()

    def _check_states(self) -> None:
        for name, after in self.r.states:
            shapes = [self.described[v].shape for v in (name, after)]
            sizes = zip(*(s or () for s in shapes), strict=False)
            grows = None not in shapes and len(shapes[0] or ()) != len(shapes[1] or ())
            if grows or any(isinstance(a, int) and isinstance(b, int) and a != b for a, b in sizes):
                self.g.refuse(f"state {name!r} changes its shape from {shapes[0]} to {shapes[1]}; it must keep it")

    def _length(self) -> Value:
        if not self.r.counter:
            return self.g.sizes(self.r.slices[0].outer, [self.r.slices[0].axis])
        counter = self.recorded.pop(self.r.counter)
        _keep(self.g, self.r.graph, self.r.counter, counter)
        return self.g("Shape", counter)

    def _add(self, name: str, described: TensorDescriptor) -> str:
        fresh = self.body.fresh_name(name)
        self.body.add_input(fresh, described.shape, described.dtype or "float32")
        return fresh

    def _like(self, name: str, like: str) -> str:
        return self._add(name, self.described[like])

    def _outside(self, name: str) -> str:
        """A value of the network around that the step reads: entered, so that nothing else takes its name."""
        if not self.body.has_value(name):
            self.body.add_input(name, None, "int64")
        return name

    def _gather(self, outer: str, backwards: bool, inner: str, axis: int = 0) -> onnx.NodeProto:
        spot = self.step if backwards else self.place
        return helper.make_node("Gather", [self._outside(outer), spot], [inner], axis=axis)

    def _reading(self) -> list[onnx.NodeProto]:
        """Nodes that give the forward step its inputs again: the last step comes first."""
        r, emit = self.r, self.g.emitter
        last = self._outside(emit("Sub", str(self.length), emit.ints(1)))
        flat, scalar = self._add("grad/last", TensorDescriptor("int64", (1,))), self._outside(emit.ints())
        nodes = [
            helper.make_node("Sub", [last, self.step], [flat]),
            helper.make_node("Reshape", [flat, scalar], [self.place]),
        ]
        nodes += [self._gather(self.recorded[name], False, name) for name, _ in r.states]
        nodes += [self._gather(s.outer, s.backwards, s.inner, s.axis) for s in r.slices]
        if r.counter:
            nodes.append(helper.make_node("Identity", [self.place], [r.counter]))
            nodes.append(helper.make_node("Identity", [self.go_on], [r.condition]))
        return nodes

    def close(self) -> tuple[onnx.GraphProto, set[str]]:
        """The body of the backward Loop, and which inputs of the forward body it reads."""
        r, g, body = self.r, self.g, self.body
        seeds: dict[str, list[str]] = {}
        for k, seed in zip(self.floating, self.carried, strict=True):
            seeds.setdefault(r.states[k][1], []).append(seed)
        for stack, grad in zip(r.stacks, g.grads[len(r.states) :], strict=False):
            if grad is not None:
                seed = self._like("grad/slice", stack.inner)
                seeds.setdefault(stack.inner, []).append(seed)
                self.before.append(self._gather(str(grad), stack.backwards, seed, stack.axis))
        inner = [*(r.states[k][0] for k in self.floating), *(s.inner for s in self.differentiated)]
        totals = g.pull_back(body, add_up(body, seeds), [*inner, *self.targets])
        emit = Emitter(body, "grad/")
        added = [emit("Add", *pair) for pair in zip(self.sums, totals[len(inner) :], strict=True)]
        states, slices = totals[: len(self.floating)], totals[len(self.floating) : len(inner)]
        inputs = [self.step, self.go_on, *self.carried, *self.sums]
        return close_body(g, body, inputs, [self.go_on, *states, *added, *slices], captures(r.graph), self.before)


def _without(described: TensorDescriptor, axis: int) -> TensorDescriptor:
    """A slice of a value along an axis."""
    shape = described.shape
    return replace(described, shape=None if shape is None else shape[:axis] + shape[axis + 1 :])


def _keep(g: GradContext, original: onnx.GraphProto, inner: str, outer: str) -> None:
    """Let the forward node stack one input of its body as one more output."""
    network = g.emitter.network
    node = network.node(g.node.name)
    graph = onnx.GraphProto()
    graph.CopyFrom(node.attributes["body"])
    name = network.fresh_name(f"{node.name}/keep/{inner}")
    graph.node.add(op_type="Identity", input=[inner], output=[name])
    (declared,) = (value for value in original.input if value.name == inner)
    graph.output.add(name=name).type.CopyFrom(declared.type)
    attributes: dict[str, object] = {"body": graph}
    for kind in ("scan_output_axes", "scan_output_directions"):
        if kind in node.attributes:
            attributes[kind] = (*node.attributes[kind], 0)
    extend_node(network, node.name, len(graph.output) - 1 - (node.op_type == "Loop"), outer, attributes)


def _start(g: GradContext, value: str, grad: Value | None) -> Value:
    """The gradient that comes from after the loop; zeros of the value's dtype and shape if none does."""
    if grad is not None:
        return grad
    zero = np.zeros(1, numpy_dtype(g.describe(value).dtype or g.dtype))
    return g("ConstantOfShape", g.shape(value), value=zero)


def _assembled(g: GradContext, s: Scanned, stack: Value) -> Value:
    """The gradient of what was sliced from those of its slices, which come in the order of the backward steps."""
    if not s.backwards:
        stack = g("Slice", stack, g.ints(-1), g.ints(-(2**63)), g.ints(0), g.ints(-1))
    rank = g.rank(s.outer)
    order = list(range(1, rank))
    order.insert(s.axis, 0)
    return g.transpose(stack, order)
