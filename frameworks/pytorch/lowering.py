"""Shorter code for hot operators: where attributes and ranks are known, a node becomes one call of a torch function.

A lowering returns None where the general function of the table has to decide at run time.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import fx

from deep500.frameworks.pytorch.dtypes import from_array
from deep500.frameworks.pytorch.operators import normalization, windows
from deep500.networks.node import Node
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
        """What is known of an input."""
        return self.writer.program.descriptors.get(self.node.inputs[index], TensorDescriptor(None, None))

    def rank(self, index: int) -> int | None:
        """An input's number of dimensions, None if unknown."""
        shape = self.descriptor(index).shape
        return None if shape is None else len(shape)

    def emit(self, function: Callable[..., Any], *args: Any, **kwargs: Any) -> fx.Node:
        """Write a call."""
        return self.writer.graph.call_function(function, args, kwargs)


Lowering = Callable[[LoweredNode], fx.Node | None]


def _window(lowered: LoweredNode) -> tuple[Any, Any, Any] | None:
    """Stride, padding and dilation as torch's functions take them, None if they need preparation at run time."""
    attributes, rank = lowered.attributes, lowered.rank(0)
    if rank is None or not 3 <= rank <= 5 or attributes.get("auto_pad", "NOTSET") != "NOTSET":
        return None
    spatial = rank - 2
    pads = tuple(attributes.get("pads") or (0,) * 2 * spatial)
    if pads[:spatial] != pads[spatial:]:
        return None
    ones = (1,) * spatial
    return tuple(attributes.get("strides") or ones), pads[:spatial], tuple(attributes.get("dilations") or ones)


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


def gemm(lowered: LoweredNode) -> fx.Node | None:
    """``linear`` for a dense layer, ``addmm`` where the weights lie the other way."""
    attributes = lowered.attributes
    if attributes["alpha"] != 1 or attributes["beta"] != 1 or attributes["transA"]:
        return None
    if len(lowered.node.inputs) == 3 and (lowered.rank(2) != 1 or 1 in (lowered.descriptor(2).shape or ())):
        return None
    if not (lowered.descriptor(0).dtype or "").startswith("float"):
        return None
    if attributes["transB"]:
        return lowered.emit(F.linear, lowered.input(0), lowered.input(1), lowered.input(2))
    if lowered.input(2) is None:
        return lowered.emit(torch.mm, lowered.input(0), lowered.input(1))
    return lowered.emit(torch.addmm, lowered.input(2), lowered.input(0), lowered.input(1))


def matmul(lowered: LoweredNode) -> fx.Node | None:
    """``matmul``."""
    return lowered.emit(torch.matmul, lowered.input(0), lowered.input(1))


def concat(lowered: LoweredNode) -> fx.Node | None:
    """``cat``."""
    values = [lowered.input(position) for position in range(len(lowered.node.inputs))]
    return lowered.emit(torch.cat, values, lowered.attributes["axis"])


def split(lowered: LoweredNode) -> fx.Node | None:
    """``split_with_sizes`` where they are known and every part is read."""
    sizes = lowered.constant(1)
    if sizes is None or len(sizes) < 2 or any(name not in lowered.writer.read for name in lowered.node.outputs):
        return None
    whole = lowered.emit(torch.split_with_sizes, lowered.input(0), sizes.tolist(), lowered.attributes["axis"])
    for position, name in enumerate(lowered.node.outputs[1:], 1):
        lowered.writer.env[name] = lowered.emit(operator.getitem, whole, position)
    return lowered.emit(operator.getitem, whole, 0)


def flatten(lowered: LoweredNode) -> fx.Node | None:
    """``flatten(x, 1)``."""
    rank = lowered.rank(0)
    if rank is None or rank < 2 or lowered.attributes["axis"] != 1:
        return None
    return lowered.emit(torch.flatten, lowered.input(0), 1)


def reshape(lowered: LoweredNode) -> fx.Node | None:
    """``reshape`` to constant sizes."""
    shape = lowered.constant(1)
    if shape is None or (0 in shape and not lowered.attributes["allowzero"]):
        return None
    return lowered.emit(torch.reshape, lowered.input(0), tuple(shape.tolist()))


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


def constant_of_shape(lowered: LoweredNode) -> fx.Node | None:
    """``full`` with a Python number."""
    shape, value = lowered.constant(0), lowered.attributes.get("value")
    fill = torch.zeros(1) if value is None else from_array(value)
    if shape is None:
        return None
    device = str(lowered.writer.device)
    return lowered.emit(torch.full, tuple(shape.tolist()), fill.reshape(-1)[0].item(), dtype=fill.dtype, device=device)


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


LOWERINGS: dict[tuple[str, str], Lowering] = {
    ("", "Conv"): conv,
    ("", "MaxPool"): max_pool,
    ("", "Gemm"): gemm,
    ("", "MatMul"): matmul,
    ("", "Concat"): concat,
    ("", "Split"): split,
    ("", "Flatten"): flatten,
    ("", "Reshape"): reshape,
    ("", "BatchNormalization"): batch_norm,
    ("", "Dropout"): dropout,
    ("", "ConstantOfShape"): constant_of_shape,
    ("", "LayerNormalization"): layer_norm,
}
"""Lowerings by (domain, operator); tried before the table."""
