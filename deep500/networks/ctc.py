"""The loss of connectionist temporal classification (Graves et al. 2006), as ONNX nodes or as the C++ operator.

A transcript with blanks between its labels and around them has 2S + 1 places; ``alpha`` is the log-probability of all
ways to be at a place after a frame, from which one stays, goes one place on, or two where the place skipped is a blank
between different labels (section 4.1). As nodes it is a Scan over frames, which every backend differentiates.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx
from onnx import helper, numpy_helper

from deep500.errors import NetworkError
from deep500.networks.emit import Emitter
from deep500.tensors import Dim, dtype_to_onnx

NEVER = -1e18
"""Stands for log 0: finite, so that no derivative is infinity minus infinity, and whole in int64."""

REDUCTIONS = ("mean", "sum", "none")


@dataclass(frozen=True)
class CTCOptions:
    """The settings of the loss.

    Attributes:
        blank: the class that is no label.
        reduction: ``"mean"`` (of loss / length of the transcript, over items), ``"sum"`` or ``"none"`` (items,).
        zero_infinity: items without any alignment count 0.
        compiled: one node ``CTCLoss`` of domain ``deep500``, in C++ (``custom_ops/ctc_loss``), instead of ONNX nodes.
    """

    blank: int = 0
    reduction: str = "mean"
    zero_infinity: bool = False
    compiled: bool = False


def ctc_loss(
    emit: Emitter,
    log_p: str,
    labels: str,
    input_length: str,
    label_length: str,
    classes: Dim | None,
    dtype: str,
    options: CTCOptions,
) -> str:
    """Add the nodes; returns the name of the loss.

    The values are those of ``torch.nn.functional.ctc_loss``: a transcript that does not fit its frames has an infinite
    loss (0 under ``zero_infinity``), whose gradient is 0 here in both cases; PyTorch's is NaN without
    ``zero_infinity``.

    Args:
        emit: writes the nodes.
        log_p: log-probabilities (items, frames, classes).
        labels: int64 (items, S), S >= 1; what stands after an item's length is not read.
        input_length, label_length: int64 (items,).
        classes: their number, which must be known.
        dtype: of log_p.
        options: settings; ``zero_infinity`` is about infinite losses.
    """
    blank, reduction = options.blank, options.reduction
    if reduction not in REDUCTIONS:
        raise NetworkError(f"got reduction {reduction!r}; expected one of {REDUCTIONS}: choose one of them")
    if not isinstance(classes, int) or not 0 <= blank < classes:
        raise NetworkError(f"got blank {blank} and {classes} classes; expected a known number, blank among them")
    if options.compiled:
        time_first = emit("Transpose", log_p, perm=[1, 0, 2])
        ends = (time_first, labels, input_length, label_length)
        settings: dict[str, Any] = {"blank": blank, "reduction": reduction, "zero_infinity": int(options.zero_infinity)}
        return emit("CTCLoss", *ends, domain="deep500", **settings)
    single = _Alignment(emit, labels, label_length, classes, blank, dtype).losses(log_p, input_length)
    return _reduced(emit, single, label_length, dtype, reduction, options.zero_infinity)


def _reduced(emit: Emitter, single: str, lengths: str, dtype: str, reduction: str, zero_infinity: bool) -> str:
    number = lambda value: emit.constant(np.array(value, dtype))  # noqa: E731
    without = emit("Greater", single, number(-NEVER / 10))
    single = emit("Where", without, number(0.0 if zero_infinity else np.inf), single)
    if reduction == "none":
        return single
    if reduction == "sum":
        return emit("ReduceSum", single, keepdims=0)
    least = emit("Max", lengths, emit.constant(np.int64(1)))
    average = emit("Div", single, emit("Cast", least, to=dtype_to_onnx(dtype)))
    return emit("ReduceMean", average, keepdims=0)


class _Alignment:
    """The places of transcripts: which class each has, where one may skip a place, and where one may end."""

    def __init__(self, emit: Emitter, labels: str, lengths: str, classes: int, blank: int, dtype: str) -> None:
        self.emit, self.classes, self.dtype, self.lengths = emit, classes, dtype, lengths
        self.tensor_type = dtype_to_onnx(dtype)
        none, zero, step = (emit.constant(np.int64(n)) for n in (blank, 0, 1))
        first = emit("Unsqueeze", emit("Add", emit("Mul", lengths, zero), none), emit.ints(1))
        number = emit("Range", zero, self._size(labels), step)
        column = emit("Unsqueeze", lengths, emit.ints(1))
        known = emit("Where", emit("Less", number, column), labels, none)
        blanks = emit("Add", emit("Mul", known, zero), none)
        pairs = emit("Concat", *(emit("Unsqueeze", value, emit.ints(2)) for value in (blanks, known)), axis=2)
        self.places = emit("Concat", emit("Reshape", pairs, emit.ints(0, -1)), first, axis=1)
        before = emit("Concat", first, first, self._cut(self.places, 2), axis=1)
        is_label = emit("Not", emit("Equal", self.places, none))
        skips = emit("And", is_label, emit("Not", emit("Equal", self.places, before)))
        self.skip = emit("Where", skips, self.constant(0), self.constant(NEVER))  # (items, places)
        self.position = emit("Range", zero, self._size(self.places), step)

    def constant(self, value: float) -> str:
        return self.emit.constant(np.array(value, self.dtype))

    def _size(self, value: str) -> str:
        return self.emit("Gather", self.emit("Shape", value), self.emit.constant(np.int64(1)))

    def _cut(self, value: str, count: int) -> str:
        emit = self.emit
        return emit("Slice", value, emit.ints(0), emit.ints(-count), emit.ints(1))

    def losses(self, log_p: str, input_length: str) -> str:
        """-log p of every transcript, about -NEVER where there is no way to it."""
        emit = self.emit
        # a product with ones and zeros, because its gradient is a product as well
        classes = emit.constant(np.arange(self.classes, dtype=np.int64).reshape(1, -1, 1))
        chosen = emit("Equal", emit("Unsqueeze", self.places, emit.ints(1)), classes)
        emitted = emit("MatMul", log_p, emit("Cast", chosen, to=self.tensor_type))
        frames = emit("Transpose", emitted, perm=[1, 0, 2])  # (frames, items, places)
        count = emit("Gather", emit("Shape", frames), emit.constant(np.int64(0)))
        clock = emit("Range", emit.constant(np.int64(0)), count, emit.constant(np.int64(1)))
        rows = emit("Unsqueeze", clock, emit.ints(1, 2))
        going = emit("Less", rows, emit("Unsqueeze", input_length, emit.ints(1)))  # (frames, items, 1)
        begin = emit("Equal", self.position, emit.constant(np.int64(0)))
        start = emit("Where", begin, self.constant(0), self.constant(NEVER))
        start = emit("Add", emit("Mul", self.skip, self.constant(0)), start)
        body = _step(self.skip, self.dtype)
        alpha = emit("Scan", start, frames, going, body=body, num_scan_inputs=2)
        return emit("Neg", self._ending(alpha))

    def _ending(self, alpha: str) -> str:
        """log of the sum over the last label and the blank after it."""
        emit = self.emit
        last = emit("Unsqueeze", emit("Mul", self.lengths, emit.constant(np.int64(2))), emit.ints(1))
        back = emit("Sub", last, self.position)
        ends = emit("And", emit("GreaterOrEqual", back, emit.ints(0)), emit("LessOrEqual", back, emit.ints(1)))
        value = emit("Where", ends, alpha, self.constant(NEVER))
        shift = emit("ReduceMax", value, emit.ints(1), keepdims=1)
        shift = emit("Cast", emit("Cast", shift, to=onnx.TensorProto.INT64), to=self.tensor_type)
        total = emit("ReduceSum", emit("Exp", emit("Sub", value, shift)), emit.ints(1), keepdims=0)
        return emit("Add", emit("Log", total), emit("Squeeze", shift, emit.ints(1)))


def _step(skip: str, dtype: str) -> onnx.GraphProto:
    """One frame: alpha -> log(exp(stay) + exp(one on) + exp(two on)) + what the frame says, where it counts.

    The shift before the exponentials is a whole number near the largest: no gradient flows through whole numbers.
    """
    kind = dtype_to_onnx(dtype)
    node = helper.make_node
    nodes = [
        node("Slice", ["alpha", "begin", "less1", "axis"], ["head1"]),
        node("Slice", ["alpha", "begin", "less2", "axis"], ["head2"]),
        node("Slice", ["alpha", "begin", "one", "axis"], ["column"]),
        node("Mul", ["column", "zero"], ["zeros"]),
        node("Add", ["zeros", "never"], ["edge"]),
        node("Concat", ["edge", "head1"], ["on1"], axis=1),
        node("Concat", ["edge", "edge", "head2"], ["on2_free"], axis=1),
        node("Add", ["on2_free", skip], ["on2"]),
        node("Max", ["alpha", "on1", "on2"], ["largest"]),
        node("Cast", ["largest"], ["whole"], to=onnx.TensorProto.INT64),
        node("Cast", ["whole"], ["shift"], to=kind),
    ]
    for name in ("alpha", "on1", "on2"):
        nodes += [node("Sub", [name, "shift"], [f"{name}_low"]), node("Exp", [f"{name}_low"], [f"{name}_exp"])]
    nodes += [
        node("Sum", ["alpha_exp", "on1_exp", "on2_exp"], ["total"]),
        node("Log", ["total"], ["log_total"]),
        node("Add", ["log_total", "shift"], ["reached"]),
        node("Add", ["reached", "frame"], ["said"]),
        node("Where", ["going", "said", "alpha"], ["alpha_next"]),
    ]
    value = helper.make_tensor_value_info
    inputs = [value("alpha", kind, None), value("frame", kind, None), value("going", onnx.TensorProto.BOOL, None)]
    arrays = {"begin": [0], "less1": [-1], "less2": [-2], "one": [1], "axis": [1]}
    constants = [numpy_helper.from_array(np.array(v, np.int64), name) for name, v in arrays.items()]
    floats = {"never": NEVER, "zero": 0.0}
    constants += [numpy_helper.from_array(np.array(v, dtype), name) for name, v in floats.items()]
    return helper.make_graph(nodes, "ctc_step", inputs, [value("alpha_next", kind, None)], constants)
