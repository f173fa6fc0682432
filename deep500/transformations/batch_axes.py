"""Where the samples of a batch lie in every value of a network, and which operators keep them apart.

A value is *by sample* along an axis if each of its slices there follows from the same samples of the inputs and from
nothing of the others. A rule per operator says along which axis an operator's results are by sample, given those of
its inputs, or that it mixes samples. What no rule knows counts as mixing: nothing is cut in silence.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from deep500.errors import NetworkError
from deep500.networks.execution.labels import LOSSES as LOSSES
from deep500.networks.graph import Graph
from deep500.networks.node import Node
from deep500.tensors import TensorDescriptor

Axes = dict[str, int]
"""The axis of the samples, by value; values that depend on no sample are not in it."""

SUMS = frozenset({"ReduceSum", "ReduceMean"})
"""Operators that put samples together by sums, which sums over pieces make again; so do :data:`LOSSES`."""

# fmt: off
ELEMENTWISE = frozenset({
    "Abs", "Acos", "Acosh", "Add", "And", "Asin", "Asinh", "Atan", "Atanh", "Cast", "Ceil", "Celu", "Clip", "Cos",
    "Cosh", "Div", "Elu", "Equal", "Erf", "Exp", "Floor", "Gelu", "Greater", "GreaterOrEqual", "HardSigmoid",
    "HardSwish", "Identity", "IsInf", "IsNaN", "LeakyRelu", "Less", "LessOrEqual", "Log", "Max", "Mean", "Min", "Mish",
    "Mod", "Mul", "Neg", "Not", "Or", "PRelu", "Pow", "Reciprocal", "Relu", "Round", "Selu", "Sigmoid", "Sign", "Sin",
    "Sinh", "Softplus", "Softsign", "Sqrt", "Sub", "Sum", "Swish", "Tan", "Tanh", "ThresholdedRelu", "Where", "Xor",
})
WINDOWS = frozenset({
    "AveragePool", "Conv", "ConvTranspose", "DepthToSpace", "GlobalAveragePool", "GlobalMaxPool", "GroupNormalization",
    "InstanceNormalization", "LRN", "LpPool", "MaxPool", "SpaceToDepth",
})
"""Operators on (samples, channels, places ...), of which all other inputs belong to no sample."""
RECURRENT = frozenset({"GRU", "LSTM", "RNN"})
MIXING = {
    "BatchNormalization": "its statistics in training are those of all samples",
    "Dropout": "its mask is drawn for all samples at once",
}
REDUCTIONS = frozenset({
    "ReduceL1", "ReduceL2", "ReduceLogSum", "ReduceLogSumExp", "ReduceMax", "ReduceMean", "ReduceMin", "ReduceProd",
    "ReduceSum", "ReduceSumSquare",
})
# fmt: on


class Mixes(Exception):
    """An operator puts samples together, or no rule knows that it does not; the message says which."""


@dataclass
class BatchAxes:
    """The samples' axes of a network's values.

    Attributes:
        axes: by value.
        combined: values that sum over all samples, of :data:`SUMS` and :data:`LOSSES`, with the node's name.
        mixing: why a node that reads samples keeps them not apart, by its name.
    """

    axes: Axes = field(default_factory=dict)
    combined: dict[str, str] = field(default_factory=dict)
    mixing: dict[str, str] = field(default_factory=dict)


def find_batch_axes(network: Graph, inputs: Mapping[str, int] | None = None) -> BatchAxes:
    """The axis of the samples in every value.

    Args:
        network: stays as it is.
        inputs: axis of the samples in each input that has them; the first of every input that is no scalar if None.

    Raises:
        NetworkError: no input has samples, or an input or axis that is not there.

    Example:
        >>> from deep500.networks.zoo import create
        >>> where = find_batch_axes(create("mlp", shape=(4,), hidden=(3,), classes=2))
        >>> where.axes["output"], where.mixing
        (0, {})
    """
    described, result = network.descriptors(), BatchAxes()
    result.axes.update(_of_inputs(network, inputs))
    for node in network.nodes:
        if not any(name in result.axes for name in node.reads):
            continue
        try:
            if node.op_type in LOSSES | SUMS and not node.domain and _combines(node, result.axes, described, network):
                result.combined[node.outputs[0]] = node.name
                result.axes.update({name: 0 for name in node.outputs[1:] if name})  # log-probabilities are by sample
            else:
                result.axes.update(_rule(node, result.axes, described, network))
        except Mixes as reason:
            result.mixing[node.name] = str(reason)
            if node.op_type in MIXING and node.inputs[0] in result.axes:  # samples stay where they were
                result.axes[node.outputs[0]] = result.axes[node.inputs[0]]
    return result


def _of_inputs(network: Graph, inputs: Mapping[str, int] | None) -> Axes:
    shapes = {name: described.shape for name, described in network.inputs.items()}
    chosen = {n: 0 for n, shape in shapes.items() if shape} if inputs is None else dict(inputs)
    for name, axis in chosen.items():
        shape = shapes.get(name)
        if not shape or not 0 <= axis < len(shape):
            raise NetworkError(
                f"got axis {axis} of samples for {name!r}; expected an axis of an input (known: "
                f"{', '.join(f'{n!r} {s}' for n, s in shapes.items())}): name input and axis"
            )
    if not chosen:
        raise NetworkError(f"got network {network.name!r} without an input that has samples; expected one: add_input()")
    return chosen


def _combines(node: Node, axes: Axes, described: Mapping[str, TensorDescriptor], network: Graph) -> bool:
    """Whether a node sums over samples."""
    axis = axes.get(node.inputs[0])
    if node.op_type in LOSSES:
        apart = axis == axes.get(node.inputs[1]) == 0 and not any(name in axes for name in node.inputs[2:])
        return apart and node.attribute("reduction", "mean") != "none"
    return axis is not None and axis in reduced_axes(node, described, network)


def rank_of(name: str, described: Mapping[str, TensorDescriptor]) -> int:
    shape = described[name].shape if name in described else None
    if shape is None:
        raise Mixes(f"the rank of {name!r} is not known")
    return len(shape)


def constant_numbers(node: Node, place: int, network: Graph) -> list[int]:
    """The numbers of an input that must be known."""
    name = node.inputs[place] if place < len(node.inputs) else ""
    if not network.has_parameter(name):
        producer = network.producer(name)
        if producer is None or producer.op_type != "Constant":
            raise Mixes(f"its input {place} is computed, so that what it does with samples is not known")
        return [int(number) for number in np.ravel(producer.attribute("value"))]
    return [int(number) for number in network.parameter(name).value.ravel()]


def reduced_axes(node: Node, described: Mapping[str, TensorDescriptor], network: Graph) -> list[int]:
    rank = rank_of(node.inputs[0], described)
    named = len(node.inputs) > 1 and node.inputs[1] != ""
    axes = constant_numbers(node, 1, network) if named else list(node.attribute("axes") or ())
    if not axes and not node.attribute("noop_with_empty_axes", 0):
        axes = list(range(rank))
    return [axis % rank for axis in axes]


def _rule(node: Node, axes: Axes, described: Mapping[str, TensorDescriptor], network: Graph) -> Axes:
    """The axes of a node's results, or :class:`Mixes`."""
    rule = RULES.get(node.op_type) if not node.domain else None
    if rule is None and not node.domain and node.op_type in ELEMENTWISE:
        rule = _elementwise
    if rule is None:
        raise Mixes(MIXING.get(node.op_type, "no rule says that it keeps samples apart"))
    result = rule(node, axes, described, network)
    places = result if isinstance(result, tuple) else (result,) * len(node.outputs)
    return {name: place for name, place in zip(node.outputs, places, strict=False) if name and place is not None}


def _alone(node: Node, axes: Axes, places: Sequence[int] = (0,)) -> int:
    """The axis of the first input, if the inputs but those at ``places`` have no samples."""
    odd = [name for place, name in enumerate(node.inputs) if name in axes and place not in places]
    if odd or node.inputs[0] not in axes:
        raise Mixes(f"{', '.join(map(repr, odd or node.inputs[1:2]))} has samples where only one input may")
    return axes[node.inputs[0]]


def _elementwise(node: Node, axes: Axes, described: Mapping[str, TensorDescriptor], network: Graph) -> int:
    """Broadcast: all inputs have samples at the same place from the end, or one for all."""
    ranks = {name: rank_of(name, described) for name in node.inputs if name}
    most = max(ranks.values())
    ends = {ranks[name] - axes[name] for name in ranks if name in axes}
    if len(ends) > 1:
        raise Mixes("its inputs have their samples along different axes")
    (end,) = ends
    for name, rank in ranks.items():
        shape = described[name].shape or ()
        if name not in axes and rank >= end and shape[rank - end] != 1:
            raise Mixes(f"{name!r} has {shape[rank - end]} in the place of the samples; expected 1")
    return most - end


def _windows(node: Node, axes: Axes, described: Mapping[str, TensorDescriptor], network: Graph) -> int:
    if _alone(node, axes) != 0:
        raise Mixes("its samples are not along the first axis")
    if node.op_type == "MaxPool" and len(node.writes) > 1:
        raise Mixes("its indices count places in the whole batch")
    return 0


def _matmul(node: Node, axes: Axes, described: Mapping[str, TensorDescriptor], network: Graph) -> int:
    """Samples are a row of the first matrix, or one matrix each; places count from the end."""
    ranks = [rank_of(name, described) for name in node.inputs]
    ends = [rank - axes[name] if name in axes else 0 for rank, name in zip(ranks, node.inputs, strict=True)]
    end, rows = max(ends), ends[0] == 2 and not ends[1]
    if not (rows or end > 2) or (all(ends) and ends[0] != ends[1]):
        raise Mixes("it sums over samples, or pairs each with each")
    for name, rank in zip(node.inputs, ranks, strict=True):
        size = (described[name].shape or ())[-end] if rank >= end else 1
        if name not in axes and end > 2 and size != 1:
            raise Mixes(f"{name!r} has {size} in the place of the samples; expected 1")
    return max(ranks) - end


def _gemm(node: Node, axes: Axes, described: Mapping[str, TensorDescriptor], network: Graph) -> int:
    axis = _alone(node, axes, (0, 2))
    if axis != (1 if node.attribute("transA", 0) else 0):
        raise Mixes("it sums over samples")
    bias = node.inputs[2] if len(node.inputs) > 2 else ""
    shape = (described[bias].shape or ()) if bias else ()
    if bias in axes and (len(shape) != 2 or axes[bias] != 0):
        raise Mixes(f"{bias!r} has its samples in another place")
    if bias and bias not in axes and len(shape) > 1 and shape[0] != 1:
        raise Mixes(f"{bias!r} has {shape[0]} in the place of the samples; expected 1")
    return 0


def _normalised(node: Node, axes: Axes, described: Mapping[str, TensorDescriptor], network: Graph) -> int:
    """Softmax, LayerNormalization and their like: along one axis, or from one on."""
    axis, rank = _alone(node, axes), rank_of(node.inputs[0], described)
    along = int(node.attribute("axis", -1)) % rank
    if axis == along or (axis > along and node.op_type in ("LayerNormalization", "RMSNormalization")):
        raise Mixes("it goes over samples")
    return axis


def _flatten(node: Node, axes: Axes, described: Mapping[str, TensorDescriptor], network: Graph) -> int:
    if _alone(node, axes) != 0 or int(node.attribute("axis", 1)) % max(1, rank_of(node.inputs[0], described)) == 0:
        raise Mixes("it puts samples beside each other")
    return 0


def _reshape(node: Node, axes: Axes, described: Mapping[str, TensorDescriptor], network: Graph) -> int:
    """Samples stay outermost: the first size is kept, or what is left for it is of whole samples."""
    if _alone(node, axes) != 0:
        raise Mixes("its samples are not along the first axis")
    target, shape = constant_numbers(node, 1, network), described[node.inputs[0]].shape or ()
    rest = [shape[place] if size == 0 and place < len(shape) else size for place, size in enumerate(target)][1:]
    if target and target[0] == 0 and not node.attribute("allowzero", 0):
        return 0
    known = [[size for size in sizes if isinstance(size, int) and size > 0] for sizes in (shape[1:], rest)]
    if not target or target[0] != -1 or [len(sizes) for sizes in known] != [len(shape) - 1, len(rest)]:
        raise Mixes(f"its shape {target} holds a number of samples, or hides one")
    if math.prod(known[0]) % math.prod(known[1]):
        raise Mixes(f"its shape {target} puts numbers of two samples into one row")
    return 0


def _transpose(node: Node, axes: Axes, described: Mapping[str, TensorDescriptor], network: Graph) -> int:
    rank = rank_of(node.inputs[0], described)
    order = node.attribute("perm") or tuple(range(rank))[::-1]
    return [place % rank for place in order].index(axes[node.inputs[0]])


def _squeeze(node: Node, axes: Axes, described: Mapping[str, TensorDescriptor], network: Graph) -> int:
    axis, rank = _alone(node, axes), rank_of(node.inputs[0], described)
    gone = [place % rank for place in constant_numbers(node, 1, network)]
    if axis in gone:
        raise Mixes("it takes the samples' axis away")
    return axis - sum(place < axis for place in gone)


def _unsqueeze(node: Node, axes: Axes, described: Mapping[str, TensorDescriptor], network: Graph) -> int:
    axis, numbers = _alone(node, axes), constant_numbers(node, 1, network)
    rank = rank_of(node.inputs[0], described) + len(numbers)
    new = {place % rank for place in numbers}
    return [place for place in range(rank) if place not in new][axis]


def _concat(node: Node, axes: Axes, described: Mapping[str, TensorDescriptor], network: Graph) -> int:
    places = {axes.get(name) for name in node.inputs}
    along = int(node.attribute("axis")) % rank_of(node.inputs[0], described)
    if len(places) > 1 or None in places or along in places:
        raise Mixes("it puts what has samples beside what has none, or samples beside each other")
    return places.pop() or 0


def _split(node: Node, axes: Axes, described: Mapping[str, TensorDescriptor], network: Graph) -> int:
    axis = _alone(node, axes)
    if int(node.attribute("axis", 0)) % rank_of(node.inputs[0], described) == axis:
        raise Mixes("it cuts along the samples")
    return axis


def _slice(node: Node, axes: Axes, described: Mapping[str, TensorDescriptor], network: Graph) -> int:
    axis, rank = _alone(node, axes), rank_of(node.inputs[0], described)
    cut = constant_numbers(node, 3, network) if len(node.inputs) > 3 else range(len(constant_numbers(node, 1, network)))
    if axis in [place % rank for place in cut]:
        raise Mixes("it cuts along the samples")
    return axis


def _gather(node: Node, axes: Axes, described: Mapping[str, TensorDescriptor], network: Graph) -> int:
    data, indices = node.inputs
    along = int(node.attribute("axis", 0)) % rank_of(data, described)
    if data not in axes:
        return along + axes[indices]
    if indices in axes or axes[data] == along:
        raise Mixes("it looks among samples")
    return axes[data] if axes[data] < along else axes[data] + rank_of(indices, described) - 1


def _reduce(node: Node, axes: Axes, described: Mapping[str, TensorDescriptor], network: Graph) -> int:
    axis, gone = _alone(node, axes), reduced_axes(node, described, network)
    if axis in gone:
        raise Mixes("it goes over samples")
    return axis if node.attribute("keepdims", 1) else axis - sum(place < axis for place in gone)


def _attention(node: Node, axes: Axes, described: Mapping[str, TensorDescriptor], network: Graph) -> int:
    """Query, keys and values, past ones too, have the same samples first; a mask has them there, or is for all."""
    of_samples = [name for place, name in enumerate(node.inputs) if name and place != 3]
    if any(axes.get(name) != 0 for name in of_samples):
        raise Mixes("query, keys and values do not have the same samples along the first axis")
    mask = node.inputs[3] if len(node.inputs) > 3 else ""
    shape = (described[mask].shape or ()) if mask else ()
    if mask in axes and (axes[mask] != 0 or len(shape) != 4):
        raise Mixes(f"{mask!r} has its samples in another place")
    if mask and mask not in axes and len(shape) == 4 and shape[0] != 1:
        raise Mixes(f"{mask!r} has {shape[0]} in the place of the samples; expected 1")
    return 0


def _recurrent(
    node: Node, axes: Axes, described: Mapping[str, TensorDescriptor], network: Graph
) -> tuple[int, int, int]:
    if node.attribute("layout", 0):
        raise Mixes("its layout is 1")
    places = {0: 1, 4: 0, 5: 1, 6: 1}
    for place, name in enumerate(node.inputs):
        if name and axes.get(name) != places.get(place):
            raise Mixes(f"{name!r} has no samples, or along another axis than {places.get(place)}")
    return (2, 1, 1)


def _losses(node: Node, axes: Axes, described: Mapping[str, TensorDescriptor], network: Graph) -> int:
    if any(axes.get(name) != 0 for name in node.inputs[:2]):
        raise Mixes("scores and labels do not have the same samples along the first axis")
    return 0


RULES: dict[str, Callable[[Node, Axes, Mapping[str, TensorDescriptor], Graph], int | tuple[int, int, int]]] = {
    **dict.fromkeys(WINDOWS, _windows),
    **dict.fromkeys(REDUCTIONS, _reduce),
    **dict.fromkeys(RECURRENT, _recurrent),
    **dict.fromkeys(LOSSES, _losses),
    **dict.fromkeys(
        ("Softmax", "LogSoftmax", "LayerNormalization", "RMSNormalization", "LpNormalization"), _normalised
    ),
    "Attention": _attention,
    "Concat": _concat,
    "Flatten": _flatten,
    "Gather": _gather,
    "Gemm": _gemm,
    "MatMul": _matmul,
    "Reshape": _reshape,
    "Slice": _slice,
    "Split": _split,
    "Squeeze": _squeeze,
    "Transpose": _transpose,
    "Unsqueeze": _unsqueeze,
}
"""A rule per operator."""
