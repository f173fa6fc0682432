"""Unroll LSTM, GRU and RNN over a sequence length that is known, into operators that have gradient rules.

Gate order and formulas are those of ONNX's specification. Input products of all time steps are one MatMul; what remains
per step is the product with the hidden state and the gates. Forward, reverse and bidirectional; past a sample's length
(``sequence_lens``) its output is 0 and its state stays. With peepholes, ``clip``, ``input_forget`` and activations with
numbers of their own the node is left as it is.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np
import onnx

from deep500.networks.emit import Emitter
from deep500.networks.graph import Graph
from deep500.networks.node import Node
from deep500.tensors import TensorDescriptor

Descriptors = Mapping[str, TensorDescriptor]
Unroller = Callable[[Graph, Node, Descriptors], "dict[str, str] | None"]
_DEFAULTS = {"LSTM": ("Sigmoid", "Tanh", "Tanh"), "GRU": ("Sigmoid", "Tanh"), "RNN": ("Tanh",)}
_GATES = {"LSTM": 4, "GRU": 3, "RNN": 1}
_PLAIN = {"Sigmoid", "Tanh", "Relu", "Softplus", "Softsign", "Elu", "LeakyRelu", "HardSigmoid", "ThresholdedRelu"}


@dataclass
class Direction:
    """One direction of a recurrent node: its parameters as matrices [input, gates], its activations and states."""

    emit: Emitter
    kind: str
    hidden: int
    activations: tuple[str, ...]
    weight: str  # [input, gates * hidden]
    recurrence: str  # [hidden, gates * hidden]
    biases: tuple[str, str] | None  # of the input and of the recurrence
    state: str  # [batch, hidden]
    cell: str  # [batch, hidden], LSTM only
    linear_before_reset: bool
    zero: str  # scalar

    def steps(self, frames: list[str], alive: list[str] | None = None) -> list[str]:
        """Hidden states after each frame ([batch, gates * hidden], the input's part of the gates).

        ``alive`` says of each frame which samples reach it, [batch, 1].
        """
        step = {"LSTM": self.lstm, "GRU": self.gru, "RNN": self.rnn}[self.kind]
        states = []
        for number, frame in enumerate(frames):
            state, cell = self.state, self.cell
            self.state = step(frame)
            if alive is None:
                states.append(self.state)
                continue
            where = alive[number]
            states.append(self.emit("Where", where, self.state, self.zero))
            self.state = self.emit("Where", where, self.state, state)
            self.cell = self.emit("Where", where, self.cell, cell) if cell else cell
        return states

    def split(self, value: str, parts: int) -> list[str]:
        """Cut the last axis into gates."""
        return self.emit.many("Split", value, axis=-1, num_outputs=parts, outputs=parts)

    def hidden_part(self) -> str:
        """Recurrent part of all gates."""
        product = self.emit("MatMul", self.state, self.recurrence)
        return product if self.biases is None else self.emit("Add", product, self.biases[1])

    def lstm(self, frame: str) -> str:
        """i, o, f = f(..); C = f * C + i * g(..); H = o * h(C)."""
        emit, (f, g, h) = self.emit, self.activations
        gates = self.split(emit("Add", frame, self.hidden_part()), 4)
        i, o, forget = (emit(f, gate) for gate in gates[:3])
        self.cell = emit("Add", emit("Mul", forget, self.cell), emit("Mul", i, emit(g, gates[3])))
        return emit("Mul", o, emit(h, self.cell))

    def gru(self, frame: str) -> str:
        """z, r = f(..); h = g(.. r applied before or after the product ..); H = (1 - z) * h + z * H."""
        emit, (f, g) = self.emit, self.activations
        x_zr, x_h = self.cut(frame)
        if self.linear_before_reset:
            h_zr, h_h = self.cut(self.hidden_part())
            z, r = self.split(emit(f, emit("Add", x_zr, h_zr)), 2)
            candidate = emit("Add", x_h, emit("Mul", r, h_h))
        else:
            r_zr, r_h = self.cut(self.recurrence)
            h_zr, bias = emit("MatMul", self.state, r_zr), None
            if self.biases is not None:
                b_zr, bias = self.cut(self.biases[1])
                h_zr = emit("Add", h_zr, b_zr)
            z, r = self.split(emit(f, emit("Add", x_zr, h_zr)), 2)
            product = emit("MatMul", emit("Mul", r, self.state), r_h)
            candidate = emit("Add", x_h, product if bias is None else emit("Add", product, bias))
        new = emit(g, candidate)
        return emit("Add", new, emit("Mul", z, emit("Sub", self.state, new)))

    def cut(self, value: str) -> list[str]:
        """Separate the first two gates from the third."""
        emit = self.emit
        return emit.many("Split", value, emit.ints(2 * self.hidden, self.hidden), axis=-1, outputs=2)

    def rnn(self, frame: str) -> str:
        """H = f(..)."""
        return self.emit(self.activations[0], self.emit("Add", frame, self.hidden_part()))


def unroll(network: Graph, node: Node, descriptors: Descriptors) -> dict[str, str] | None:
    """Add the unrolled nodes under fresh names; None if the node cannot be unrolled.

    Returns:
        for each output of the node the value that equals it.
    """
    described = descriptors.get(node.inputs[0], TensorDescriptor(None, None))
    layout = node.attribute("layout", 0)
    length = None if described.shape is None else described.shape[layout]
    hidden = node.attribute("hidden_size") or _hidden_size(node, descriptors)
    optional = [*node.inputs, *[""] * 8][3:8]
    if not isinstance(length, int) or not hidden or optional[4] or not _supported(node):
        return None
    emit = Emitter(network, f"{node.name}/")
    x = emit("Transpose", node.inputs[0], perm=(1, 0, 2)) if layout else node.inputs[0]
    reverse = {"forward": [False], "reverse": [True], "bidirectional": [False, True]}[node.attribute("direction")]
    tracks = []
    for d, backwards in enumerate(reverse):
        direction = _direction(emit, node, x, d, hidden, layout, described.dtype or "float32")
        frames = _frames(emit, direction, x, length)
        alive = _alive(emit, optional[1], length) if optional[1] else None
        if backwards:
            frames, alive = frames[::-1], alive and alive[::-1]
        states = direction.steps(frames, alive)
        tracks.append((states[::-1] if backwards else states, direction))
    return _outputs(emit, node, tracks, layout)


UNROLLERS: dict[str, Unroller] = dict.fromkeys(_GATES, unroll)


def _supported(node: Node) -> bool:
    names = node.attribute("activations") or ()
    plain = all(n in _PLAIN for n in names) and not node.attribute("activation_alpha")
    return (
        plain
        and not node.attribute("activation_beta")
        and not node.attribute("clip")
        and not node.attribute("input_forget", 0)
    )


def _hidden_size(node: Node, descriptors: Descriptors) -> int | None:
    shape = descriptors[node.inputs[2]].shape if node.inputs[2] in descriptors else None
    return shape[-1] if shape and isinstance(shape[-1], int) else None


def _direction(emit: Emitter, node: Node, x: str, d: int, hidden: int, layout: int, dtype: str) -> Direction:
    kind = node.op_type
    names = tuple(node.attribute("activations") or ())
    count = len(_DEFAULTS[kind])
    names *= 2 if len(names) == count else 1  # an RNN's may be named once for both directions
    bias, initial_h, initial_c = ([*node.inputs, *[""] * 8][i] for i in (3, 5, 6))

    def pick(value: str, axis: int) -> str:
        return emit("Gather", value, emit.constant(np.array(d)), axis=axis)

    def state(value: str) -> str:
        if value:
            return pick(value, 1 if layout else 0)
        batch = emit("Gather", emit("Shape", x), emit.ints(1))
        shape = emit("Concat", batch, emit.ints(hidden), axis=0)
        return emit("ConstantOfShape", shape, value=np.zeros(1, dtype))

    weight, recurrence = (emit("Transpose", pick(node.inputs[i], 0), perm=(1, 0)) for i in (1, 2))
    biases = None
    if bias:
        of_input, of_state = emit.many("Split", pick(bias, 0), num_outputs=2, axis=0, outputs=2)
        biases = (of_input, of_state)
    return Direction(
        emit,
        kind,
        hidden,
        names[d * count : (d + 1) * count] or _DEFAULTS[kind],
        weight,
        recurrence,
        biases,
        state(initial_h),
        state(initial_c) if kind == "LSTM" else "",
        bool(node.attribute("linear_before_reset", 0)),
        emit.constant(np.zeros((), dtype)),
    )


def _alive(emit: Emitter, lengths: str, steps: int) -> list[str]:
    """For each time step which samples reach it, [batch, 1]."""
    column = emit("Cast", emit("Unsqueeze", lengths, emit.ints(1)), to=onnx.TensorProto.INT64)
    return [emit("Less", emit.ints(t), column) for t in range(steps)]


def _frames(emit: Emitter, direction: Direction, x: str, length: int) -> list[str]:
    """The input's part of the gates, [batch, gates * hidden] for each time step, by one product."""
    product = emit("MatMul", x, direction.weight)
    if direction.biases is not None:
        product = emit("Add", product, direction.biases[0])
    steps = [product] if length == 1 else emit.many("Split", product, axis=0, num_outputs=length, outputs=length)
    return [emit("Squeeze", step, emit.ints(0)) for step in steps]


def _outputs(emit: Emitter, node: Node, tracks: list[tuple[list[str], Direction]], layout: int) -> dict[str, str]:
    """Y [seq, directions, batch, hidden], Y_h and Y_c [directions, batch, hidden]; batch first under layout 1."""

    def stack(values: list[str], axis: int) -> str:
        parts = [emit("Unsqueeze", v, emit.ints(axis)) for v in values]
        return emit("Concat", *parts, axis=axis)

    results = {}
    names = [*node.outputs, "", "", ""][:3]
    if names[0]:
        steps = [stack(list(states), 1 if layout else 0) for states in zip(*(t for t, _ in tracks), strict=True)]
        results[names[0]] = stack(steps, 1 if layout else 0)
    for name, last in ((names[1], [d.state for _, d in tracks]), (names[2], [d.cell for _, d in tracks])):
        if name:
            results[name] = stack(last, 1 if layout else 0)
    return results
