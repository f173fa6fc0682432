"""Shorter code for hot operators: where attributes and ranks are known, a node becomes one call of a torch function.

A lowering is part of its operator's entry in the table, and returns None for a node about which the function there has
to decide at run time. So a node is served by one of the two, and an entry of a user's own by its function alone.
"""

from __future__ import annotations

import operator
import sys
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import fx

from deep500.frameworks.pytorch.dtypes import from_array
from deep500.frameworks.pytorch.operators import OPS, normalization, windows
from deep500.frameworks.pytorch.operators.movement import rows
from deep500.networks.attributes import Sliding, collect
from deep500.networks.execution.chains import DOMAIN
from deep500.networks.execution.operator_table import positive
from deep500.networks.node import Node
from deep500.networks.windows import make_window
from deep500.tensors import TensorDescriptor


class LoweredNode:
    """One node while it is compiled, as a lowering sees it."""

    def __init__(self, writer: Any, node: Node) -> None:
        self.writer, self.node = writer, node
        self.attributes = node.all_attributes()

    def input(self, index: int) -> Any:
        """The graph's node for an input, None where it is absent."""
        name = self.node.inputs[index] if index < len(self.node.inputs) else ""
        return self.writer.value(name) if name else None

    def constant(self, index: int) -> np.ndarray | None:
        """The value of an input if it is known now."""
        return self.writer.constant(self.node.inputs[index]) if index < len(self.node.inputs) else None

    def descriptor(self, index: int) -> TensorDescriptor:
        """Dtype and shape of an input, as far as they are known."""
        return self.writer.program.descriptors.get(self.node.inputs[index], TensorDescriptor(None, None))

    def has(self, index: int) -> bool:
        """Whether an input is there, and holds something as far as one can know."""
        name = self.node.inputs[index] if index < len(self.node.inputs) else ""
        return bool(name) and self.descriptor(index).size != 0

    def tensor(self, array: np.ndarray) -> fx.Node:
        """A further constant of the module."""
        return self.writer.buffer(array)

    def rank(self, index: int) -> int | None:
        """An input's number of dimensions, None if unknown."""
        shape = self.descriptor(index).shape
        return None if shape is None else len(shape)

    def emit(self, function: Callable[..., Any], *args: Any, **kwargs: Any) -> fx.Node:
        """Write a call."""
        return self.writer.graph.call_function(function, args, kwargs)


Lowering = Callable[[LoweredNode], fx.Node | None]


def lowers(*names: str, domain: str = "") -> Callable[[Lowering], Lowering]:
    """Enter a lowering into the entries of operators, whose own functions serve nodes that it leaves."""

    def enter(lowering: Lowering) -> Lowering:
        OPS.update({(domain, name): replace(OPS[domain, name], lowering=lowering) for name in names})
        return lowering

    return enter


def _window(lowered: LoweredNode) -> tuple[Any, Any, Any] | None:
    """Stride, padding and dilation as torch's functions take them, None if they need preparation at run time."""
    rank, settings = lowered.rank(0), collect(Sliding, lowered.attributes)
    if rank is None or not 3 <= rank <= 5 or settings.auto_pad != "NOTSET":
        return None
    window = make_window([None] * (rank - 2), [1] * (rank - 2), settings)  # paddings that a node names need no sizes
    return (window.strides, window.begin, window.dilations) if window.begin == window.end else None


@lowers("Conv")
def conv(lowered: LoweredNode) -> fx.Node | None:
    """One ``conv1d``, ``conv2d`` or ``conv3d``."""
    window, rank = _window(lowered), lowered.rank(0)
    if window is None or rank is None or len(window[0]) != rank - 2:
        return None
    return lowered.emit(
        windows.CONV[rank - 2],
        lowered.input(0),
        lowered.input(1),
        lowered.input(2),
        *window,
        lowered.attributes.get("group", 1),
    )


@lowers("MaxPool")
def max_pool(lowered: LoweredNode) -> fx.Node | None:
    """One ``max_pool``, unless indices, ceil mode or wide padding ask for more."""
    window, rank, kernel = _window(lowered), lowered.rank(0), tuple(lowered.attributes["kernel_shape"])
    floating = (lowered.descriptor(0).dtype or "").startswith("float")
    if (
        window is None
        or rank is None
        or len(lowered.node.outputs) > 1
        or lowered.attributes.get("ceil_mode")
        or not floating
    ):
        return None
    if any(2 * p > k for p, k in zip(window[1], kernel, strict=True)):
        return None
    return lowered.emit(windows.MAX_POOL[rank - 2], lowered.input(0), kernel, *window)


@lowers("Gemm")
def gemm(lowered: LoweredNode) -> fx.Node | None:
    """``linear`` for a dense layer, ``addmm`` where the weights lie the other way."""
    attributes = lowered.attributes
    if attributes["alpha"] != 1 or attributes["beta"] != 1 or attributes["transA"]:
        return None
    width = (lowered.descriptor(1).shape or (None, None))[0 if attributes["transB"] else 1]
    if len(lowered.node.inputs) == 3 and (
        lowered.rank(2) != 1 or lowered.descriptor(2).shape not in ((width,), (None,))
    ):
        return None
    if not (lowered.descriptor(0).dtype or "").startswith("float"):
        return None
    if attributes["transB"]:
        return lowered.emit(F.linear, lowered.input(0), lowered.input(1), lowered.input(2))
    if lowered.input(2) is None:
        return lowered.emit(torch.mm, lowered.input(0), lowered.input(1))
    return lowered.emit(torch.addmm, lowered.input(2), lowered.input(0), lowered.input(1))


@lowers("MatMul")
def matmul(lowered: LoweredNode) -> fx.Node | None:
    """``matmul``."""
    return lowered.emit(torch.matmul, lowered.input(0), lowered.input(1))


@lowers("Concat")
def concat(lowered: LoweredNode) -> fx.Node | None:
    """``cat``."""
    values = [lowered.input(position) for position in range(len(lowered.node.inputs))]
    return lowered.emit(torch.cat, values, lowered.attributes["axis"])


@lowers("Split")
def split(lowered: LoweredNode) -> fx.Node | None:
    """``split_with_sizes`` where they are known and every part is read."""
    sizes = lowered.constant(1)
    if sizes is None or len(sizes) < 2 or any(name not in lowered.writer.read for name in lowered.node.outputs):
        return None
    whole = lowered.emit(torch.split_with_sizes, lowered.input(0), sizes.tolist(), lowered.attributes["axis"])
    for position, name in enumerate(lowered.node.outputs[1:], 1):
        lowered.writer.env[name] = lowered.emit(operator.getitem, whole, position)
    return lowered.emit(operator.getitem, whole, 0)


@lowers("Flatten")
def flatten(lowered: LoweredNode) -> fx.Node | None:
    """``flatten`` of the axes before, of those after."""
    rank = lowered.rank(0)
    axis = None if rank is None else positive(lowered.attributes["axis"], rank)
    if rank is None or axis is None or not 1 <= axis < rank:
        return None
    x = lowered.input(0) if axis == 1 else lowered.emit(torch.flatten, lowered.input(0), 0, axis - 1)
    return x if axis > 1 and axis == rank - 1 else lowered.emit(torch.flatten, x, 1)


@lowers("Reshape")
def reshape(lowered: LoweredNode) -> fx.Node | None:
    """``reshape`` to constant sizes."""
    shape, before = lowered.constant(1), lowered.descriptor(0).shape
    if shape is None or (0 in shape and lowered.attributes["allowzero"]):
        return None
    sizes = shape.tolist()
    if before is not None and len(before) >= len(sizes) and set(sizes[:-1]) == {0} and sizes[-1] == -1:
        return lowered.emit(torch.flatten, lowered.input(0), len(sizes) - 1)
    if 0 in sizes and (before is None or len(before) < len(sizes)):
        return None
    sizes = [before[i] if n == 0 else n for i, n in enumerate(sizes)]  # type: ignore[index]
    unknown = [i for i, n in enumerate(sizes) if not isinstance(n, int)]
    if unknown and (len(unknown) > 1 or -1 in sizes):
        return None
    return lowered.emit(torch.reshape, lowered.input(0), tuple(-1 if i in unknown else n for i, n in enumerate(sizes)))


_SAMPLING = {"linear": 0, "nearest": 1, "cubic": 2}
_OUTSIDE = {"zeros": 0, "border": 1, "reflection": 2}


@lowers("GridSample")
def grid_sample(lowered: LoweredNode) -> fx.Node | None:
    """``grid_sampler`` of an image or a volume of its places' dtype."""
    attributes, mode = lowered.attributes, _SAMPLING.get(lowered.attributes["mode"])
    rank, kinds = lowered.rank(0), {lowered.descriptor(0).dtype, lowered.descriptor(1).dtype}
    if mode is None or rank not in (4, 5) or (rank == 5 and mode == 2) or kinds not in ({"float32"}, {"float64"}):
        return None
    rest = mode, _OUTSIDE[attributes["padding_mode"]], bool(attributes["align_corners"])
    return lowered.emit(torch.grid_sampler, lowered.input(0), lowered.input(1), *rest)


@lowers("LeakyRelu")
def leaky_relu(lowered: LoweredNode) -> fx.Node:
    """``leaky_relu``."""
    return lowered.emit(torch._C._nn.leaky_relu, lowered.input(0), lowered.attributes["alpha"])


@lowers("AdaptiveAveragePool", domain=DOMAIN)
def adaptive_pool(lowered: LoweredNode) -> fx.Node:
    """``adaptive_avg_pool2d``."""
    return lowered.emit(torch._C._nn.adaptive_avg_pool2d, lowered.input(0), tuple(lowered.attributes["size"]))


@lowers("BatchNormalization")
def batch_norm(lowered: LoweredNode) -> fx.Node | None:
    """Running statistics that the module owns follow the mode; those that are computed follow ONNX to the letter."""
    node, program = lowered.node, lowered.writer.program
    owned = all(
        name in program.attributes and not isinstance(lowered.writer.tensors[name], torch.nn.Parameter)
        for name in node.inputs[3:5]
    )
    if lowered.attributes["training_mode"] or not owned:
        return None
    if len({lowered.descriptor(i).dtype for i in range(5)}) != 1:
        return None
    args = [lowered.input(i) for i in range(5)]
    momentum = 1 - float(lowered.attributes["momentum"])
    return lowered.emit(
        normalization.batch_norm, *args, lowered.writer.training(), momentum, lowered.attributes["epsilon"]
    )


@lowers("Dropout")
def dropout(lowered: LoweredNode) -> fx.Node | None:
    """Without an input ``training_mode`` it follows the mode."""
    if len(lowered.node.inputs) > 2 and lowered.node.inputs[2]:
        return None
    ratio = lowered.constant(1)
    rate = lowered.input(1) if ratio is None else float(ratio)
    rate = 0.5 if rate is None else rate
    outputs = tuple(name in lowered.writer.read for name in lowered.node.outputs)
    seed = lowered.attributes.get("seed")
    if not any(outputs[1:]) and seed is None and isinstance(rate, float):
        return lowered.emit(F.dropout, lowered.input(0), rate, lowered.writer.training())
    from deep500.frameworks.pytorch.operators.elementwise import dropout as general

    both = lowered.emit(general, lowered.input(0), rate, lowered.writer.training(), seed=seed, outputs=(True, True))
    if any(outputs[1:]):
        lowered.writer.env[lowered.node.outputs[1]] = lowered.emit(_item, both, 1)
    return lowered.emit(_item, both, 0)


def _item(values: Any, index: int) -> Any:
    return values[index]


@lowers("ConstantOfShape")
def constant_of_shape(lowered: LoweredNode) -> fx.Node | None:
    """``full`` with a Python number."""
    shape, value = lowered.constant(0), lowered.attributes.get("value")
    fill = torch.zeros(1) if value is None else from_array(value)
    if shape is None:
        return None
    device = str(lowered.writer.device)
    return lowered.emit(torch.full, tuple(shape.tolist()), fill.reshape(-1)[0].item(), dtype=fill.dtype, device=device)


@lowers("LayerNormalization")
def layer_norm(lowered: LoweredNode) -> fx.Node | None:
    """``layer_norm`` over sizes that are known."""
    shape, axis = lowered.descriptor(0).shape, lowered.attributes["axis"]
    used = [name for name in lowered.node.outputs[1:] if name in lowered.writer.read]
    if used or shape is None or not all(isinstance(n, int) for n in shape[axis:]):
        return None
    if lowered.descriptor(1).shape != shape[axis:] or (
        lowered.input(2) is not None and lowered.descriptor(2).shape != shape[axis:]
    ):
        return None
    return lowered.emit(
        F.layer_norm, lowered.input(0), shape[axis:], lowered.input(1), lowered.input(2), lowered.attributes["epsilon"]
    )


@lowers("Linear", domain=DOMAIN)
def linear(lowered: LoweredNode) -> fx.Node:
    """``linear``."""
    return lowered.emit(F.linear, *(lowered.input(i) for i in range(len(lowered.node.inputs))))


@lowers("Transpose")
def transpose(lowered: LoweredNode) -> fx.Node | None:
    """``permute``, or the shorter ``t`` of a matrix."""
    perm = lowered.attributes.get("perm")
    if perm is None:
        return None
    return (
        lowered.emit(torch.t, lowered.input(0))
        if perm == (1, 0)
        else lowered.emit(torch.permute, lowered.input(0), perm)
    )


@lowers("Unsqueeze")
def unsqueeze(lowered: LoweredNode) -> fx.Node | None:
    """One ``unsqueeze`` per axis."""
    axes, rank = lowered.constant(1), lowered.rank(0)
    if axes is None or rank is None:
        return None
    value = lowered.input(0)
    for axis in sorted(positive(int(a), rank + axes.size) for a in axes.reshape(-1)):
        value = lowered.emit(torch.unsqueeze, value, axis)
    return value


@lowers("Squeeze")
def squeeze(lowered: LoweredNode) -> fx.Node | None:
    """``squeeze`` of known axes."""
    axes = lowered.constant(1)
    return None if axes is None else lowered.emit(torch.squeeze, lowered.input(0), tuple(axes.reshape(-1).tolist()))


@lowers("Gather")
def gather(lowered: LoweredNode) -> fx.Node | None:
    """``select`` of a known place, ``index_select`` of several, ``embedding`` for rows of a table that trains."""
    places, shape, axis = lowered.constant(1), lowered.descriptor(0).shape, lowered.attributes["axis"]
    if places is not None and places.ndim == 0:
        # What is taken one by one is taken apart at once: a gradient for all instead of one as large as the whole each.
        return lowered.emit(torch.select, lowered.input(0), axis, int(places))
    if places is not None and places.ndim == 1 and (places >= 0).all():
        return lowered.emit(torch.index_select, lowered.input(0), axis, lowered.tensor(places.astype(np.int64)))
    if shape is None or not -len(shape) <= axis < len(shape):
        return None
    axis, size = positive(axis, len(shape)), shape[axis]
    if places is not None and places.ndim == 1 and isinstance(size, int):
        index = lowered.tensor(np.where(places < 0, places + size, places).astype(np.int64))
        return lowered.emit(torch.index_select, lowered.input(0), axis, index)
    if axis == 0 and len(shape) == 2 and isinstance(size, int) and places is None:
        return lowered.emit(rows, lowered.input(0), lowered.input(1))
    return None


@lowers("Slice")
def slice_(lowered: LoweredNode) -> fx.Node | None:
    """Python's slices, where begin, end, axes and step are known and the step leads forward."""
    rank, parts = lowered.rank(0), [lowered.constant(i) for i in range(1, len(lowered.node.inputs))]
    if rank is None or any(part is None for part in parts):
        return None
    begins, ends = parts[0].tolist(), parts[1].tolist()  # type: ignore[union-attr]
    axes = parts[2].tolist() if len(parts) > 2 else list(range(len(begins)))  # type: ignore[union-attr]
    steps = parts[3].tolist() if len(parts) > 3 else [1] * len(begins)  # type: ignore[union-attr]
    if any(step < 1 for step in steps) or len({len(part) for part in (begins, ends, axes, steps)}) > 1:
        return None
    index = [slice(None)] * rank
    for begin, end, axis, step in zip(begins, ends, axes, steps, strict=True):
        index[positive(axis, rank)] = slice(begin, min(end, sys.maxsize), step)
    return lowered.emit(operator.getitem, lowered.input(0), tuple(index))


@lowers("Softmax")
def softmax(lowered: LoweredNode) -> fx.Node:
    """``softmax``."""
    return lowered.emit(torch.softmax, lowered.input(0), lowered.attributes["axis"])


@lowers("Swish")
def swish(lowered: LoweredNode) -> fx.Node | None:
    """``silu``."""
    return lowered.emit(F.silu, lowered.input(0)) if lowered.attributes["alpha"] == 1 else None


@lowers("Gelu")
def gelu(lowered: LoweredNode) -> fx.Node:
    """``gelu``."""
    return lowered.emit(F.gelu, lowered.input(0), approximate=lowered.attributes["approximate"])


@lowers("HardSigmoid")
def hard_sigmoid(lowered: LoweredNode) -> fx.Node | None:
    """``hardsigmoid`` for its slope, as exactly as float32 knows it."""
    slope = lowered.attributes["alpha"] == float(np.float32(1 / 6)) and lowered.attributes["beta"] == 0.5
    return lowered.emit(F.hardsigmoid, lowered.input(0)) if slope and lowered.descriptor(0).dtype == "float32" else None


@lowers("Div")
def divide(lowered: LoweredNode) -> fx.Node | None:
    """``div``."""
    floating = (lowered.descriptor(0).dtype or "").startswith("float")
    return lowered.emit(torch.div, lowered.input(0), lowered.input(1)) if floating else None


@lowers("Pow")
def power(lowered: LoweredNode) -> fx.Node | None:
    """``pow`` with a Python number, which has a shorter gradient."""
    exponent, floating = lowered.constant(1), (lowered.descriptor(0).dtype or "").startswith("float")
    if exponent is None or exponent.size != 1 or exponent.ndim > (lowered.rank(0) or 0) or not floating:
        return None
    return lowered.emit(torch.pow, lowered.input(0), exponent.reshape(-1)[0].item())


@lowers("ReduceMean", "ReduceSum")
def reduction(lowered: LoweredNode) -> fx.Node | None:
    """``mean`` or ``sum`` over known axes."""
    axes, floating = lowered.constant(1), (lowered.descriptor(0).dtype or "").startswith("float")
    if axes is None or not axes.size or not floating:
        return None
    function = torch.mean if lowered.node.op_type == "ReduceMean" else torch.sum
    keep = bool(lowered.attributes["keepdims"])
    return lowered.emit(function, lowered.input(0), tuple(axes.reshape(-1).tolist()), keep)


@lowers("Expand")
def expand(lowered: LoweredNode) -> fx.Node | None:
    """``expand`` to known sizes."""
    sizes, shape = lowered.constant(1), lowered.descriptor(0).shape
    if sizes is None or shape is None or len(shape) > sizes.size:
        return None
    aligned = (*[1] * (sizes.size - len(shape)), *shape)
    target = [-1 if n == 1 and old != 1 else int(n) for n, old in zip(sizes, aligned, strict=True)]
    return lowered.emit(torch.Tensor.expand, lowered.input(0), target)


@lowers("InstanceNormalization")
def instance_norm(lowered: LoweredNode) -> fx.Node:
    """``instance_norm`` without the checks in Python."""
    x, scale, bias = (lowered.input(i) for i in range(3))
    options = (None, None, True, 0.0, lowered.attributes["epsilon"], torch.backends.cudnn.enabled)
    return lowered.emit(torch.instance_norm, x, scale, bias, *options)


@lowers("GroupNormalization")
def group_norm(lowered: LoweredNode) -> fx.Node:
    """``group_norm`` without the checks in Python."""
    x, scale, bias = (lowered.input(i) for i in range(3))
    groups, epsilon = lowered.attributes["num_groups"], lowered.attributes["epsilon"]
    return lowered.emit(torch.group_norm, x, groups, scale, bias, epsilon, torch.backends.cudnn.enabled)


_PLAIN = {"is_causal": 0, "softcap": 0.0, "left_window_size": -1, "right_window_size": -1}


@lowers("Attention")
def attention(lowered: LoweredNode) -> fx.Node | None:
    """``scaled_dot_product_attention`` of heads in equal number, with a mask of numbers for all keys or without one."""
    shapes, attributes = [lowered.descriptor(i).shape for i in range(3)], lowered.attributes
    inputs, outputs = lowered.node.inputs, [n for n in lowered.node.outputs if n in lowered.writer.read]
    options = {**_PLAIN, "is_causal": attributes["is_causal"]}
    fit = all(attributes.get(name, value) == value for name, value in options.items()) and len(outputs) == 1
    if not fit or any(inputs[4:]) or "softmax_precision" in attributes or any(s is None or len(s) != 4 for s in shapes):
        return None
    if len({s[1] for s in shapes if s}) > 1 or lowered.descriptor(0).dtype not in ("float32", "float64"):
        return None
    mask = lowered.input(3)
    if mask is not None:
        known, keys = lowered.descriptor(3), shapes[1][-2]  # type: ignore[index]
        whole = known.shape is not None and known.shape[-1:] == (keys,) and isinstance(keys, int)
        if not whole or known.dtype != lowered.descriptor(0).dtype or attributes["is_causal"]:
            return None
    args = (*(lowered.input(i) for i in range(3)), mask, 0.0, bool(attributes["is_causal"]))
    return lowered.emit(F.scaled_dot_product_attention, *args, scale=attributes.get("scale"))


_INTERPOLATE = {("linear", 3): "linear", ("linear", 4): "bilinear", ("linear", 5): "trilinear", ("cubic", 4): "bicubic"}


@lowers("Resize")
def resize(lowered: LoweredNode) -> fx.Node | None:
    """``interpolate`` of known places, where its coordinates are the node's."""
    shape, attributes = lowered.descriptor(0).shape, lowered.attributes
    scales, sizes = (lowered.constant(i) if lowered.has(i) else None for i in (2, 3))
    target = scales if sizes is None or not sizes.size else sizes
    plain = not attributes["antialias"] and not attributes["exclude_outside"] and "axes" not in attributes
    plain = plain and attributes["keep_aspect_ratio_policy"] == "stretch" and not lowered.has(1)
    if not plain or shape is None or target is None or target.size != len(shape) or not 3 <= len(shape) <= 5:
        return None
    before = shape[2:]
    if (target is scales and (target[:2] != 1).any()) or (target is sizes and tuple(target[:2]) != shape[:2]):
        return None
    if not all(isinstance(n, int) for n in before):
        return None
    exact = target[2:] * np.array(before) if target is scales else target[2:]
    after = np.floor(exact).astype(int)
    if (after != exact).any() or not (lowered.descriptor(0).dtype or "").startswith("float"):
        return None
    size, x = tuple(after.tolist()), lowered.input(0)
    mode, way = attributes["mode"], attributes["coordinate_transformation_mode"]
    if mode == "nearest":
        rule = way == "asymmetric" and attributes["nearest_mode"] == "floor"
        same = rule and all(_same_places(int(n), m) for n, m in zip(before, size, strict=True))  # type: ignore[arg-type]
        return lowered.emit(F.interpolate, x, size, None, "nearest") if same else None
    name, corners = _INTERPOLATE.get((mode, len(shape))), way == "align_corners"
    known = corners or way == "half_pixel" or (way == "pytorch_half_pixel" and min(size) > 1)
    if name is None or not known or (mode == "cubic" and attributes["cubic_coeff_a"] != -0.75):
        return None
    return lowered.emit(F.interpolate, x, size, None, name, corners)


def _same_places(before: int, after: int) -> bool:
    """Whether torch, which computes them with 32 bits, takes the places that the exact quotient tells."""
    i = np.arange(after)
    return bool((np.floor(i.astype(np.float32) * np.float32(before / after)) == i * before // after).all())
