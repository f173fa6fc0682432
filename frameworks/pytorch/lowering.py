"""Shorter code for hot operators: where attributes and ranks are known, a node becomes one call of a torch function.

A lowering returns None where the general function of the table has to decide at run time.
"""

from __future__ import annotations

import operator
from typing import Any

import torch
import torch.nn.functional as F
from torch import fx

from deep500.frameworks.pytorch.compiler import Call, Lowering
from deep500.frameworks.pytorch.dtypes import from_array
from deep500.frameworks.pytorch.operators import normalization, windows


def _window(call: Call) -> tuple[Any, Any, Any] | None:
    """Stride, padding and dilation as torch's functions take them, None if they need preparation at run time."""
    attributes, rank = call.attributes, call.rank(0)
    if rank is None or not 3 <= rank <= 5 or attributes.get("auto_pad", "NOTSET") != "NOTSET":
        return None
    spatial = rank - 2
    pads = tuple(attributes.get("pads") or (0,) * 2 * spatial)
    if pads[:spatial] != pads[spatial:]:
        return None
    ones = (1,) * spatial
    return tuple(attributes.get("strides") or ones), pads[:spatial], tuple(attributes.get("dilations") or ones)


def conv(call: Call) -> fx.Node | None:
    """One ``conv1d``, ``conv2d`` or ``conv3d``."""
    window, rank = _window(call), call.rank(0)
    if window is None or rank is None or len(window[0]) != rank - 2:
        return None
    return call.emit(
        windows.CONV[rank - 2], call.input(0), call.input(1), call.input(2), *window, call.attributes.get("group", 1)
    )


def max_pool(call: Call) -> fx.Node | None:
    """One ``max_pool``, unless indices, ceil mode or wide padding ask for more."""
    window, rank, kernel = _window(call), call.rank(0), tuple(call.attributes["kernel_shape"])
    floating = (call.descriptor(0).dtype or "").startswith("float")
    if window is None or rank is None or len(call.node.outputs) > 1 or call.attributes.get("ceil_mode") or not floating:
        return None
    if any(2 * p > k for p, k in zip(window[1], kernel, strict=True)):
        return None
    return call.emit(windows.MAX_POOL[rank - 2], call.input(0), kernel, *window)


def gemm(call: Call) -> fx.Node | None:
    """``linear`` for a dense layer, ``addmm`` where the weights lie the other way."""
    attributes = call.attributes
    if attributes["alpha"] != 1 or attributes["beta"] != 1 or attributes["transA"]:
        return None
    if len(call.node.inputs) == 3 and (call.rank(2) != 1 or 1 in (call.descriptor(2).shape or ())):
        return None
    if not (call.descriptor(0).dtype or "").startswith("float"):
        return None
    if attributes["transB"]:
        return call.emit(F.linear, call.input(0), call.input(1), call.input(2))
    if call.input(2) is None:
        return call.emit(torch.mm, call.input(0), call.input(1))
    return call.emit(torch.addmm, call.input(2), call.input(0), call.input(1))


def matmul(call: Call) -> fx.Node | None:
    """``matmul``."""
    return call.emit(torch.matmul, call.input(0), call.input(1))


def concat(call: Call) -> fx.Node | None:
    """``cat``."""
    values = [call.input(position) for position in range(len(call.node.inputs))]
    return call.emit(torch.cat, values, call.attributes["axis"])


def split(call: Call) -> fx.Node | None:
    """``split_with_sizes`` where they are known and every part is read."""
    sizes = call.constant(1)
    if sizes is None or len(sizes) < 2 or any(name not in call.writer.read for name in call.node.outputs):
        return None
    whole = call.emit(torch.split_with_sizes, call.input(0), sizes.tolist(), call.attributes["axis"])
    for position, name in enumerate(call.node.outputs[1:], 1):
        call.writer.env[name] = call.emit(operator.getitem, whole, position)
    return call.emit(operator.getitem, whole, 0)


def flatten(call: Call) -> fx.Node | None:
    """``flatten(x, 1)``."""
    rank = call.rank(0)
    if rank is None or rank < 2 or call.attributes["axis"] != 1:
        return None
    return call.emit(torch.flatten, call.input(0), 1)


def reshape(call: Call) -> fx.Node | None:
    """``reshape`` to constant sizes."""
    shape = call.constant(1)
    if shape is None or (0 in shape and not call.attributes["allowzero"]):
        return None
    return call.emit(torch.reshape, call.input(0), tuple(shape.tolist()))


def batch_norm(call: Call) -> fx.Node | None:
    """Running statistics that the module owns follow the mode; those that are computed follow ONNX to the letter."""
    node, program = call.node, call.writer.program
    owned = all(
        name in program.attributes and not isinstance(call.writer.tensors[name], torch.nn.Parameter)
        for name in node.inputs[3:5]
    )
    if call.attributes["training_mode"] or not owned:
        return None
    if len({call.descriptor(i).dtype for i in range(5)}) != 1:
        return None
    args = [call.input(i) for i in range(5)]
    momentum = 1 - float(call.attributes["momentum"])
    return call.emit(normalization.batch_norm, *args, call.writer.training(), momentum, call.attributes["epsilon"])


def dropout(call: Call) -> fx.Node | None:
    """Without an input ``training_mode`` it follows the mode."""
    if len(call.node.inputs) > 2 and call.node.inputs[2]:
        return None
    ratio = call.constant(1)
    rate = call.input(1) if ratio is None else float(ratio)
    rate = 0.5 if rate is None else rate
    outputs = tuple(name in call.writer.read for name in call.node.outputs)
    seed = call.attributes.get("seed")
    if not any(outputs[1:]) and seed is None and isinstance(rate, float):
        return call.emit(F.dropout, call.input(0), rate, call.writer.training())
    from deep500.frameworks.pytorch.operators.elementwise import dropout as general

    both = call.emit(general, call.input(0), rate, call.writer.training(), seed=seed, outputs=(True, True))
    if any(outputs[1:]):
        call.writer.env[call.node.outputs[1]] = call.emit(_item, both, 1)
    return call.emit(_item, both, 0)


def _item(values: Any, index: int) -> Any:
    return values[index]


def constant_of_shape(call: Call) -> fx.Node | None:
    """``full`` with a Python number."""
    shape, value = call.constant(0), call.attributes.get("value")
    fill = torch.zeros(1) if value is None else from_array(value)
    if shape is None:
        return None
    device = str(call.writer.device)
    return call.emit(torch.full, tuple(shape.tolist()), fill.reshape(-1)[0].item(), dtype=fill.dtype, device=device)


def layer_norm(call: Call) -> fx.Node | None:
    """``layer_norm`` over sizes that are known."""
    shape, axis = call.descriptor(0).shape, call.attributes["axis"]
    used = [name for name in call.node.outputs[1:] if name in call.writer.read]
    if used or shape is None or not all(isinstance(n, int) for n in shape[axis:]):
        return None
    if call.descriptor(1).shape != shape[axis:] or (
        call.input(2) is not None and call.descriptor(2).shape != shape[axis:]
    ):
        return None
    return call.emit(
        F.layer_norm, call.input(0), shape[axis:], call.input(1), call.input(2), call.attributes["epsilon"]
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
