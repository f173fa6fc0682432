"""Losses of object detection, as nodes: focal loss, smooth L1, generalised intersection over union, and their sum.

Each function emits nodes and returns the name of the values per anchor; :func:`add_detection_loss` sums them up over
the anchors that count and divides by the number of anchors that answer for an object (Lin et al. 2017, section 4.1).
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from deep500.errors import NetworkError
from deep500.networks.emit import Emitter
from deep500.networks.graph import AnyGraph
from deep500.networks.losses import huber

BOX_LOSSES = ("smooth_l1", "giou")
SMALLEST_AREA = 1e-7
"""Added to areas that are divided by, as in torchvision."""


def sigmoid_cross_entropy(op: Emitter, logits: str, target: str) -> str:
    """-t log p - (1 - t) log(1 - p) with p = sigmoid(x), without overflow: max(x, 0) - x t + log(1 + exp(-|x|))."""
    overflow_free = op("Softplus", op("Neg", op("Abs", logits)))
    return op("Add", op("Sub", op("Relu", logits), op("Mul", logits, target)), overflow_free)


def focal_loss(
    op: Emitter, logits: str, target: str, alpha: float = 0.25, gamma: float = 2.0, dtype: str = "float32"
) -> str:
    """-alpha_t (1 - p_t)^gamma log p_t, element by element (Lin et al. 2017, arXiv 1708.02002, equation 5).

    Args:
        op: writes the nodes.
        logits: any shape.
        target: 1 where the class is present, else 0, of that shape and dtype.
        alpha: weight of what is present; 1 - alpha that of what is not. Negative: both weigh 1.
        gamma: how little what is easy counts; 0 is cross entropy.
        dtype: of the logits.

    Returns:
        the name of the losses, of the shape of the logits.
    """
    entropy = sigmoid_cross_entropy(op, logits, target)
    p, unit = op("Sigmoid", logits), op.constant(np.array(1, dtype))
    other = op("Sub", unit, target)
    miss = op("Add", op("Mul", op("Sub", unit, p), target), op("Mul", p, other))  # 1 - p_t
    loss = entropy
    if gamma == 2.0:
        loss = op("Mul", loss, op("Mul", miss, miss))
    elif gamma:
        loss = op("Mul", loss, op("Pow", miss, op.constant(np.array(gamma, dtype))))
    if alpha >= 0:
        present = op("Mul", target, op.constant(np.array(alpha, dtype)))
        absent = op("Mul", other, op.constant(np.array(1 - alpha, dtype)))
        loss = op("Mul", loss, op("Add", present, absent))
    return loss


def smooth_l1(op: Emitter, value: str, target: str, beta: float = 1.0, dtype: str = "float32") -> str:
    """d^2 / (2 beta) where d = |value - wanted| < beta, else d - beta / 2 (Girshick 2015, equation 3).

    That is :func:`deep500.networks.losses.huber` with delta = beta, divided by beta, which must be positive.
    """
    return op("Div", huber(op, value, target, beta, dtype), op.constant(np.array(beta, dtype)))


def giou_loss(op: Emitter, boxes: str, target: str, dtype: str = "float32") -> str:
    """1 - (intersection / union - (hull - union) / hull) of boxes (..., 4) as corners (Rezatofighi et al. 2019).

    Args:
        op: writes the nodes.
        boxes, target: x1, y1, x2, y2 in the last axis.
        dtype: of the boxes.

    Returns:
        the name of the losses (...,): 0 for equal boxes, 2 at worst.
    """
    last, small = -1, op.constant(np.array(SMALLEST_AREA, dtype))

    def corners(value: str) -> tuple[str, str]:
        return tuple(op("Slice", value, op.ints(start), op.ints(start + 2), op.ints(last)) for start in (0, 2))  # type: ignore[return-value]

    def area(low: str, high: str) -> str:
        sides = op("Relu", op("Sub", high, low))
        return op("ReduceProd", sides, op.ints(last), keepdims=0)

    (low, high), (wanted_low, wanted_high) = corners(boxes), corners(target)
    inner = area(op("Max", low, wanted_low), op("Min", high, wanted_high))
    hull = area(op("Min", low, wanted_low), op("Max", high, wanted_high))
    union = op("Sub", op("Add", area(low, high), area(wanted_low, wanted_high)), inner)
    overlap = op("Div", inner, op("Add", union, small))
    spare = op("Div", op("Sub", hull, union), op("Add", hull, small))
    return op("Add", op("Sub", op.constant(np.array(1, dtype)), overlap), spare)


def decoded(
    op: Emitter, offsets: str, anchors: np.ndarray, variances: Sequence[float], longest: float, dtype: str = "float32"
) -> str:
    """Corners (N, anchors, 4) of offsets from anchors, as :func:`deep500.tasks.boxes.decode` makes them."""
    middle, extent = (anchors[:, :2] + anchors[:, 2:]) / 2, anchors[:, 2:] - anchors[:, :2]
    scaled = op("Mul", offsets, op.constant(np.asarray(variances, dtype)))
    shift, growth = (op("Slice", scaled, op.ints(s), op.ints(s + 2), op.ints(-1)) for s in (0, 2))
    growth = op("Min", growth, op.constant(np.array(longest, dtype)))
    centre = op("Add", op.constant(middle.astype(dtype)), op("Mul", shift, op.constant(extent.astype(dtype))))
    half = op("Mul", op("Exp", growth), op.constant((extent / 2).astype(dtype)))
    return op("Concat", op("Sub", centre, half), op("Add", centre, half), axis=-1)


def add_detection_loss(
    network: AnyGraph,
    anchors: np.ndarray,
    *,
    box_loss: str = "smooth_l1",
    box_weight: float = 1.0,
    variances: Sequence[float] = (0.1, 0.1, 0.2, 0.2),
    longest: float = math.log(1000 / 16),
    output: str | None = None,
    loss: str = "loss",
    **focal: float,
) -> AnyGraph:
    """Add inputs ``anchor_label`` and ``anchor_box`` and the scalar output ``loss`` to a detector, and return it.

    loss = (sum of focal losses of anchors that are judged + box_weight * sum of box losses of anchors that answer for
    an object) / (sum over pictures of max(1, number of those)), by which parts of a batch add up.

    Args:
        network: its output (N, anchors, 4 + classes) holds offsets, then a logit per class; it is edited.
        anchors: (anchors, 4), corners in pixels.
        box_loss: ``"smooth_l1"`` of the offsets, with beta 1/9 as in RetinaNet, or ``"giou"`` of the boxes.
        box_weight: of the boxes beside the classes.
        variances, longest: of the offsets, see :mod:`deep500.tasks.boxes`.
        output, loss, focal: names of that output (None: the first) and of the new one; options of :func:`focal_loss`.

    Inputs that are added:
        ``anchor_label`` int64 (N, anchors): class, -1 background, -2 not judged;
        ``anchor_box`` (N, anchors, 4): offsets for ``smooth_l1``, corners for ``giou``; read where there is a class.

    Raises:
        NetworkError: an unknown box loss, or an output whose shape does not fit the anchors.
    """
    if box_loss not in BOX_LOSSES:
        raise NetworkError(f"got box_loss {box_loss!r}; expected one of {BOX_LOSSES}: choose one")
    output = network.outputs[0] if output is None else output
    described = network.descriptors()[output]
    shape, dtype = described.shape or (), described.dtype or "float32"
    if len(shape) != 3 or shape[1] != len(anchors) or not isinstance(shape[2], int) or shape[2] < 5:
        raise NetworkError(
            f"got output {output!r} of shape {shape}; expected (N, {len(anchors)}, 4 + classes): one row of offsets "
            "and class scores per anchor"
        )
    network.add_input("anchor_label", (shape[0], len(anchors)), "int64")
    network.add_input("anchor_box", (shape[0], len(anchors), 4), dtype)
    op = Emitter(network, "detection/")
    offsets = op("Slice", output, op.ints(0), op.ints(4), op.ints(-1))
    logits = op("Slice", output, op.ints(4), op.ints(shape[2]), op.ints(-1))
    judged, present, target = _flags(op, shape[2] - 4, dtype)
    classes = op("Mul", focal_loss(op, logits, target, dtype=dtype, **focal), judged)
    if box_loss == "giou":
        corners = decoded(op, offsets, anchors, variances, longest, dtype)
        boxes = op("Unsqueeze", giou_loss(op, corners, "anchor_box", dtype), op.ints(-1))
    else:
        boxes = smooth_l1(op, offsets, "anchor_box", 1 / 9, dtype)
    total, of_boxes = op("ReduceSum", classes, keepdims=0), op("ReduceSum", op("Mul", boxes, present), keepdims=0)
    total = op("Add", total, op("Mul", of_boxes, op.constant(np.array(box_weight, dtype))))
    count = op("Max", op("ReduceSum", present, op.ints(1, 2), keepdims=0), op.constant(np.array(1, dtype)))
    network.add_node("Div", [total, op("ReduceSum", count, keepdims=0)], [loss], name=loss)
    network.add_output(loss)
    return network


def _flags(op: Emitter, classes: int, dtype: str) -> tuple[str, str, str]:
    """Zeros and ones per anchor: whether it is judged, whether it answers for an object, and of which class."""
    from onnx import helper

    kind = int(helper.np_dtype_to_tensor_dtype(np.dtype(dtype)))
    label = op("Unsqueeze", "anchor_label", op.ints(-1))
    target = op("Cast", op("Equal", label, op.constant(np.arange(classes, dtype=np.int64))), to=kind)
    judged, present = (
        op("Cast", op("Greater", label, op.constant(np.array(least, np.int64))), to=kind) for least in (-2, -1)
    )
    return judged, present, target
