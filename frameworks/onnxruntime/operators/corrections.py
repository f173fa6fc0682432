"""Operators that ONNX Runtime accepts and then gets wrong or fails on: replaced before it sees them.

``CORRECTED`` maps an operator to ``f(node, descriptors) -> bool``: whether this node is such a case. The replacement is
the operator's entry in ``EXPANSIONS``, else ONNX's function body.
"""

from __future__ import annotations

from collections.abc import Callable

from deep500.frameworks.onnxruntime.operators.convolution import adding_window
from deep500.frameworks.onnxruntime.operators.pooling import dilated_same
from deep500.frameworks.onnxruntime.operators.table import Descriptors, ExpansionEmitter, expansion
from deep500.networks.kernel_sizes import chunks
from deep500.networks.node import Node
from deep500.networks.protos import UNKNOWN
from deep500.tensors import dtype_to_onnx

Test = Callable[[Node, Descriptors], bool]


def _dtype(node: Node, index: int, descriptors: Descriptors) -> str:
    return descriptors.get(node.inputs[index], UNKNOWN).dtype or ""


def overwrites(node: Node, descriptors: Descriptors) -> bool:
    """BatchNormalization leaves new running statistics in the memory of the old ones, which other nodes and our
    parameters may share; and in float64 it rounds momentum and epsilon to float32."""
    if _dtype(node, 1, descriptors) == "float64" and descriptors[node.inputs[0]].shape:
        return True
    return bool(node.attribute("training_mode") and any(node.outputs[1:]) and node.attribute("momentum") != 0)


def _rounded_epsilon(node: Node, descriptors: Descriptors) -> bool:
    wide = _dtype(node, 1, descriptors) == "float64" and bool(descriptors[node.inputs[0]].shape)
    return wide and not any(node.outputs[1:])


def _recurrent_double(node: Node, descriptors: Descriptors) -> bool:
    """The kernel is registered, but fails as not implemented when it runs."""
    return _dtype(node, 1, descriptors) == "float64"


def _rounded_numbers(node: Node, descriptors: Descriptors) -> bool:
    """Attributes and literals are taken in float32, by the kernel or by ONNX's body in it, also for float64."""
    return _dtype(node, 0, descriptors) == "float64"


def _rounded_inverse(node: Node, descriptors: Descriptors) -> bool:
    """The kernel multiplies by 1/n in float32."""
    return bool(node.attribute("inverse")) and _dtype(node, 0, descriptors) == "float64"


def _floored_mod(node: Node, descriptors: Descriptors) -> bool:
    return not node.attribute("fmod") and "float" in _dtype(node, 0, descriptors)


def _slope_per_channel(node: Node, descriptors: Descriptors) -> bool:
    x, slope = (descriptors.get(n, UNKNOWN).shape for n in node.inputs)
    if x is None or slope is None or len(slope) != 1 or len(x) < 3:
        return False
    return slope[0] not in (1, x[-1]) and slope[0] == x[1]


def _of_bools(node: Node, descriptors: Descriptors) -> bool:
    return _dtype(node, 0, descriptors) == "bool"


def _zero_point_per_channel(node: Node, descriptors: Descriptors) -> bool:
    return len(node.inputs) > 3 and bool(descriptors.get(node.inputs[3], UNKNOWN).shape)


def _partial_attention(node: Node, descriptors: Descriptors) -> bool:
    """With lengths of unpadded keys, or with the scores as an output: both differ from ONNX's definition. In float64
    the kernel rounds the scale to float32."""
    if _rounded_numbers(node, descriptors):
        return True
    return any(node.inputs[6:]) or any(node.outputs[3:])


def _reduces_16_bits(node: Node, descriptors: Descriptors) -> bool:
    """The kernels are registered, but fail as not implemented when they run."""
    return node.attribute("reduction") != "none" and _dtype(node, 0, descriptors) in ("float16", "bfloat16")


def _wide_window(node: Node, descriptors: Descriptors) -> bool:
    """The kernel computes in float32 also what it writes in float64."""
    return bool(node.attribute("output_datatype") == dtype_to_onnx("float64"))


def _cropped(node: Node, descriptors: Descriptors) -> bool:
    """Along axes that keep their size the kernel does not crop."""
    before, after = ((descriptors.get(name, UNKNOWN).shape or ())[2:] for name in (node.inputs[0], node.outputs[0]))
    stays = any(isinstance(size, int) and size == other for size, other in zip(before, after, strict=False))
    return stays and node.attribute("coordinate_transformation_mode") == "tf_crop_and_resize"


def _sized_unpool(node: Node, descriptors: Descriptors) -> bool:
    return any(node.inputs[2:])


def _adds_zeros(node: Node, descriptors: Descriptors) -> bool:
    return adding_window(node, descriptors) is not None


def _may_lack_chunks(node: Node, descriptors: Descriptors) -> bool:
    """Chunks of 9 in 4 are 3, 3, 3 and 0, which ONNX Runtime refuses when it comes to it."""
    if node.attribute("num_outputs") is None:
        return False
    shape, axis, count = descriptors.get(node.inputs[0], UNKNOWN).shape, node.attribute("axis", 0), len(node.outputs)
    size = shape[axis] if shape else None
    return not isinstance(size, int) or chunks(size, count)[-1] == 0


# fmt: off
CORRECTED: dict[str, Test] = {
    "Attention": _partial_attention, "AveragePool": dilated_same, "BatchNormalization": overwrites,
    "BlackmanWindow": _wide_window, "Conv": dilated_same, "ConvInteger": _zero_point_per_channel,
    "ConvTranspose": _adds_zeros, "DFT": _rounded_inverse,
    "GRU": _recurrent_double, "Gelu": _rounded_numbers, "GroupNormalization": _rounded_numbers,
    "HammingWindow": _wide_window, "HannWindow": _wide_window, "HardSwish": _rounded_numbers,
    "LSTM": _recurrent_double, "LayerNormalization": _rounded_epsilon, "LpPool": dilated_same,
    "MaxPool": dilated_same, "MaxUnpool": _sized_unpool, "MeanVarianceNormalization": _rounded_numbers,
    "Mod": _floored_mod, "RMSNormalization": _rounded_numbers,
    "PRelu": _slope_per_channel, "ReduceMax": _of_bools, "ReduceMin": _of_bools, "Resize": _cropped,
    "ScatterElements": _reduces_16_bits, "ScatterND": _reduces_16_bits, "Shrink": _rounded_numbers,
    "Split": _may_lack_chunks,
}
# fmt: on
"""operator -> whether a node must be replaced."""


def is_wrong(node: Node, descriptors: Descriptors) -> bool:
    """Whether ONNX Runtime would accept a node and then fail on it or give another result than ONNX's."""
    test = CORRECTED.get(node.op_type)
    return test is not None and not node.domain and test(node, descriptors)


@expansion("Mod")
def mod(op: ExpansionEmitter) -> dict[str, str] | None:
    """Floating remainder with the divisor's sign: that of C, and one divisor more where the signs differ."""
    a, b = op.node.inputs
    zero = op.like(0)
    r = op("Mod", a, b, fmod=1)
    differs = op("Not", op("Equal", op("Less", r, zero), op("Less", b, zero)))
    signed = op("Where", op("Less", b, zero), op.like(-0.0), zero)
    moved = op("Where", differs, op("Add", r, b), r)
    return {op.node.outputs[0]: op("Where", op("Equal", r, zero), signed, moved)}


@expansion("Split")
def split(op: ExpansionEmitter) -> dict[str, str] | None:
    """By sizes: chunks of size over count, rounded up, while there is something left."""
    if not _may_lack_chunks(op.node, op.descriptors):
        return None
    x, outputs, axis = op.node.inputs[0], op.node.outputs, op.node.attribute("axis", 0)
    end = {} if axis == -1 else {"end": axis + 1}
    size, count = op("Shape", x, start=axis, **end), len(outputs)
    chunk = op("Div", op("Add", size, op.ints(count - 1)), op.ints(count))
    left = op("Sub", size, op("Mul", op.ints(*range(count)), chunk))
    sizes = op("Max", op("Min", left, chunk), op.ints(0))
    return dict(zip(outputs, op.many("Split", x, sizes, outputs=count, axis=axis), strict=True))


@expansion("PRelu")
def prelu(op: ExpansionEmitter) -> dict[str, str] | None:
    """A slope for each channel, which is axis 1, as before opset 7."""
    x, slope = op.node.inputs
    if not _slope_per_channel(op.node, op.descriptors):
        return None
    wide = op("Unsqueeze", slope, op.ints(*range(1, (op.rank(0) or 2) - 1)))
    return {op.node.outputs[0]: op("PRelu", x, wide)}


@expansion("ReduceMax", "ReduceMin")
def reduce_bools(op: ExpansionEmitter) -> dict[str, str] | None:
    """Any or all, also of nothing: by counting the true, or the false."""
    if op.dtype() != "bool":
        return None
    largest = op.node.op_type == "ReduceMax"
    x = op.node.inputs[0] if largest else op("Not", op.node.inputs[0])
    number = op("Cast", x, to=dtype_to_onnx("int64"))
    count = op("ReduceSum", number, *op.node.inputs[1:], **op.node.attributes)
    zero = op.ints()
    zero = op("ReduceSum", zero, keepdims=0)
    result = op("Greater", count, zero) if largest else op("Equal", count, zero)
    return {op.node.outputs[0]: result}


@expansion("ConvInteger")
def conv_integer(op: ExpansionEmitter) -> dict[str, str] | None:
    """A convolution in float64, which holds all sums of such products exactly."""
    x, weight = (op("Cast", n, to=dtype_to_onnx("float64")) for n in op.node.inputs[:2])
    rank = op.rank(1)
    if rank is None:
        return None
    if op.operand(2):
        x = op("Sub", x, op("Cast", op.operand(2), to=dtype_to_onnx("float64")))
    if op.operand(3):
        zero = op("Cast", op.operand(3), to=dtype_to_onnx("float64"))
        weight = op("Sub", weight, op("Unsqueeze", op("Reshape", zero, op.ints(-1)), op.ints(*range(1, rank))))
    y = op("Conv", x, weight, **op.node.attributes)
    return {op.node.outputs[0]: op("Cast", y, to=dtype_to_onnx("int32"))}


@expansion("MaxUnpool")
def max_unpool(op: ExpansionEmitter) -> dict[str, str] | None:
    """The indices belong to the size that follows from the attributes; zeros fill up to the size that is asked for."""
    if not op.operand(2):
        return None
    y = op("MaxUnpool", *op.node.inputs[:2], **op.node.attributes)
    more = op("Sub", op.operand(2), op("Shape", y))
    return {op.node.outputs[0]: op("Pad", y, op("Concat", op("Sub", more, more), more, axis=0))}
