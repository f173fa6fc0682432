"""A loss on top of a network, which recipes name and training differentiates, and the names of its gradients.

A loss is a function ``(at: LossPlace, **options)`` that adds nodes and returns the scalar; :data:`LOSSES` lists them.
"""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from deep500.errors import NetworkError, nearest
from deep500.networks.emit import Emitter
from deep500.networks.graph import AnyGraph, Graph
from deep500.tensors import Dim, dtype_to_onnx

SCALE, SCALED = "loss.scale", "loss.scaled"
"""Of a network in float16: the input that the loss is multiplied with, and the product."""


@dataclass
class LossPlace:
    """Where a loss is added.

    Attributes:
        emit: writes the nodes.
        output: what is compared.
        label: name of the input to declare.
        loss: name of the scalar to make.
        shape, dtype: of the output.
    """

    emit: Emitter
    output: str
    label: str
    loss: str
    shape: tuple[Dim | None, ...]
    dtype: str

    def number(self, value: float) -> str:
        """A constant of the output's dtype."""
        return self.emit.constant(np.array(value, self.dtype))

    def input(self, name: str, shape: tuple[Dim | None, ...], dtype: str) -> str:
        """Declare an input; one that is there already is taken."""
        if name not in self.emit.network.inputs:
            self.emit.network.add_input(name, shape, dtype)
        return name


def huber(op: Emitter, value: str, target: str, delta: float = 1.0, dtype: str = "float32") -> str:
    """d^2 / 2 where |d| <= delta, else delta (|d| - delta / 2), d = value - target (Huber 1964), element by element.

    With c = min(|d|, delta) that is c (|d| - c / 2), whose derivative has no case.

    Args:
        op: writes the nodes.
        value, target: of one shape.
        delta: from where on the loss is a straight line, positive.
        dtype: of both.

    Returns:
        the name of the losses, of that shape.

    Raises:
        NetworkError: delta is not positive.
    """
    if not 0 < delta < math.inf:
        raise NetworkError(f"got delta={delta}; expected a positive number: 1.0 is usual")
    size = op("Abs", op("Sub", value, target))
    near = op("Min", size, op.constant(np.array(delta, dtype)))
    return op("Mul", near, op("Sub", size, op("Mul", near, op.constant(np.array(0.5, dtype)))))


def _cross_entropy(
    at: LossPlace, *, ignore_index: int | None = None, label_smoothing: float = 0.0, mask: str | None = None
) -> None:
    """-log softmax(output)[label], Softmax included; ``label`` holds int64 class numbers (items, ...).

    ``ignore_index``: labels of this value count for nothing. ``label_smoothing`` e in [0, 1): the target is (1 - e) at
    the label plus e / classes everywhere (Szegedy et al. 2016, arXiv 1512.00567). ``mask``: name of a further input
    with a weight for every label. The mean is over what counts: sum of weighted losses / sum of weights.
    """
    if not 0 <= label_smoothing < 1:
        raise NetworkError(f"got label_smoothing={label_smoothing}; expected 0 <= label_smoothing < 1: choose such one")
    emit, places = at.emit, (at.shape[0], *at.shape[2:])
    at.input(at.label, places, "int64")
    ignored: dict[str, Any] = {} if ignore_index is None else {"ignore_index": int(ignore_index)}
    nodes, ends = "SoftmaxCrossEntropyLoss", [at.output, at.label]
    if not label_smoothing and mask is None:
        emit.network.add_node(nodes, ends, [at.loss], name=at.loss, reduction="mean", **ignored)
        return
    single, log_p = emit.many(nodes, *ends, outputs=2, reduction="none", **ignored)
    weights = [] if mask is None else [at.input(mask, places, at.dtype)]
    if ignored:
        counted = emit("Not", emit("Equal", at.label, emit.constant(np.int64(ignored["ignore_index"]))))
        # what is ignored adds 0 to the sum of losses, and must not count in the number that divides it
        weights.append(emit("Cast", counted, to=dtype_to_onnx(at.dtype)))
    if label_smoothing:
        everywhere = emit("ReduceMean", log_p, emit.ints(1), keepdims=0)
        at_label = emit("Mul", single, at.number(1 - label_smoothing))
        single = emit("Sub", at_label, emit("Mul", everywhere, at.number(label_smoothing)))
    if not weights:
        emit.network.add_node("ReduceMean", [single], [at.loss], name=at.loss, keepdims=0)
        return
    weight = weights[0] if len(weights) == 1 else emit("Mul", *weights)
    # chosen, not multiplied: where nothing counts, gradients are 0 as of a loss without weights, and not 0 / 0
    counts = emit("Not", emit("Equal", weight, at.number(0)))
    total = emit("ReduceSum", emit("Where", counts, emit("Mul", single, weight), at.number(0)), keepdims=0)
    emit.network.add_node("Div", [total, emit("ReduceSum", weight, keepdims=0)], [at.loss], name=at.loss)


def _mean_squared_error(at: LossPlace) -> None:
    """Mean of (output - label)^2 over all numbers; ``label`` is like the output."""
    at.input(at.label, at.shape, at.dtype)
    difference = at.emit("Sub", at.output, at.label)
    square = at.emit("Mul", difference, difference)
    at.emit.network.add_node("ReduceMean", [square], [at.loss], name=at.loss, keepdims=0)


def _huber(at: LossPlace, *, delta: float = 1.0) -> None:
    """Mean of :func:`huber`; ``label`` is like the output."""
    at.input(at.label, at.shape, at.dtype)
    value = huber(at.emit, at.output, at.label, delta, at.dtype)
    at.emit.network.add_node("ReduceMean", [value], [at.loss], name=at.loss, keepdims=0)


def _kl_divergence(at: LossPlace) -> None:
    """Sum of p (log p - log softmax(output)) over axis 1, divided by items (``batchmean``); ``label`` holds p.

    Places where p is 0 count 0.
    """
    emit = at.emit
    at.input(at.label, at.shape, at.dtype)
    log_q = emit("LogSoftmax", at.output, axis=1)
    some = emit("Greater", at.label, at.number(0))  # p log p is 0 at 0 in the limit, and NaN in arithmetic
    log_p = emit("Log", emit("Where", some, at.label, at.number(1)))
    total = emit("ReduceSum", emit("Mul", at.label, emit("Sub", log_p, log_q)), keepdims=0)
    items = emit("Gather", emit("Shape", at.output), emit.constant(np.int64(0)))
    count = emit("Cast", items, to=dtype_to_onnx(at.dtype))
    emit.network.add_node("Div", [total, count], [at.loss], name=at.loss)


def _ctc(
    at: LossPlace,
    *,
    blank: int = 0,
    zero_infinity: bool = False,
    reduction: str = "mean",
    compiled: bool = False,
    input_length: str = "input_length",
    label_length: str = "label_length",
) -> None:
    """Connectionist temporal classification of scores (items, frames, classes), LogSoftmax included.

    ``label`` (items, S) holds int64 class numbers, padded with anything; see :func:`deep500.networks.ctc.ctc_loss`.
    ``input_length``: a value (items,), or an input to declare: frames that count. ``label_length``: the same of labels.
    """
    from deep500.networks.ctc import CTCOptions, ctc_loss

    network = at.emit.network
    if len(at.shape) != 3:
        raise NetworkError(f"got scores of shape {at.shape}; expected (items, frames, classes): choose such an output")
    at.input(at.label, (at.shape[0], "S"), "int64")
    for name in (input_length, label_length):
        if not network.has_value(name):
            network.add_input(name, (at.shape[0],), "int64")
    log_p = at.emit("LogSoftmax", at.output, axis=2)
    options = CTCOptions(blank, reduction, zero_infinity, compiled)
    value = ctc_loss(at.emit, log_p, at.label, input_length, label_length, at.shape[2], at.dtype, options)
    network.add_node("Identity", [value], [at.loss], name=at.loss)


LOSSES: dict[str, Callable[..., None]] = {
    "cross_entropy": _cross_entropy,
    "mean_squared_error": _mean_squared_error,
    "huber": _huber,
    "kl_divergence": _kl_divergence,
    "ctc": _ctc,
}
"""Every loss by name; keywords after the first argument are its options."""


def add_loss(
    network: AnyGraph,
    kind: str = "cross_entropy",
    output: str | None = None,
    label: str = "label",
    loss: str = "loss",
    **options: Any,
) -> AnyGraph:
    """Add an input ``label`` and a scalar output ``loss`` (the mean over the batch) to a network, and return it.

    ====================== ============================================ ================================================
    kind                   label                                        options
    ====================== ============================================ ================================================
    ``cross_entropy``      int64 class numbers (items, ...); Softmax is ``ignore_index``, ``label_smoothing``, ``mask``
                           part of the loss, as in PyTorch              (name of an input with weights of the labels)
    ``mean_squared_error`` like the output
    ``huber``              like the output                              ``delta`` = 1
    ``kl_divergence``      probabilities, like the output; Softmax is
                           part of the loss; mean over items
    ``ctc``                int64 class numbers (items, S), padded;      ``blank`` = 0, ``zero_infinity``, ``reduction``,
                           inputs ``input_length``, ``label_length``    ``compiled`` (the C++ operator)
    ====================== ============================================ ================================================

    Args:
        network: is edited.
        kind: see the table.
        output: what is compared with the label; the network's first output if None.
        label: name of the new input.
        loss: name of the new output.
        options: of this kind, see the table.

    Raises:
        NetworkError: unknown kind or option, or an output that it is not defined for.

    Example:
        >>> from deep500.networks import create
        >>> network = add_loss(create("mlp", shape=(4,), hidden=()), label_smoothing=0.1, ignore_index=-100)
        >>> network.outputs
        ['output', 'loss']
    """
    if kind not in LOSSES:
        raise NetworkError(f"got loss {kind!r}; expected one of {tuple(LOSSES)}: {nearest(kind, LOSSES)}")
    build = LOSSES[kind]
    known = list(inspect.signature(build).parameters)[1:]
    for option in options:
        if option not in known:
            raise NetworkError(
                f"loss {kind!r}: got option {option!r}; expected {'one of its own' if known else 'none'}: "
                f"{nearest(option, known) if known else 'leave it out'}"
            )
    output = network.outputs[0] if output is None else output
    described = network.descriptors()[output]
    shape = described.shape or ("N", None)
    build(LossPlace(Emitter(network, f"{loss}/"), output, label, loss, shape, described.dtype or "float32"), **options)
    network.add_output(loss)
    return network


def find_loss(network: Graph, loss: str) -> str:
    """The loss's name if the network has such a value, else NetworkError with the cure."""
    if not network.has_value(loss):
        raise NetworkError(
            f"got loss {loss!r}; expected a value of the network: {nearest(loss, network.outputs)} "
            "Add one with deep500.networks.add_loss(network)"
        )
    return loss


def gradient_name(parameter: str) -> str:
    """Name under which a run leaves the gradient of a parameter: ``"conv1.weight" -> "conv1.weight.grad"``."""
    return f"{parameter}.grad"
