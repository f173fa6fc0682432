"""Attributes that make no sense to any backend: what ONNX's schemas leave to prose, refused when a node is made.

Kernels divide by strides and numbers of heads, and loop over kernels: of a zero some end their process, some return
nothing, some never return.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from deep500.errors import NetworkError

MOST = 2**24
"""The largest size of a window, stride, dilation, pad or state: kernels loop over them, and count them in 32 bits."""

_WINDOWED: tuple[str, ...] = (
    "AveragePool",
    "Conv",
    "ConvInteger",
    "ConvTranspose",
    "DeformConv",
    "LpPool",
    "MaxPool",
    "MaxUnpool",
)
_WINDOWED += ("QLinearConv", "Col2Im")
_RECURRENT = ("GRU", "LSTM", "RNN")
_NUMBERS = {
    **dict.fromkeys(_WINDOWED, ("dilations", "group", "kernel_shape", "offset_group", "p", "strides")),
    **dict.fromkeys(_RECURRENT, ("hidden_size",)),
    **dict.fromkeys(("DepthToSpace", "SpaceToDepth"), ("blocksize",)),
    "Attention": ("kv_num_heads", "q_num_heads"),
    "GlobalLpPool": ("p",),
    "Split": ("num_outputs",),
    "LRN": ("size",),
    "GroupNormalization": ("num_groups",),
}
"""Numbers from 1 on."""
_PADS = ("output_padding", "pads")
_LEAST = {"axis": -MOST, "batch_axis": 0, "batch_dims": 0, "block_size": 0, "time_axis": 0}
"""Sizes, and places among the axes of any operator: ONNX's inference cuts some to 32 bits, and reads there."""
_TEXTS: dict[str, dict[str, tuple[str, ...]]] = {
    **{key: {"direction": ("forward", "reverse", "bidirectional")} for key in _RECURRENT},
    **{key: {"auto_pad": ("NOTSET", "SAME_UPPER", "SAME_LOWER", "VALID")} for key in _WINDOWED},
    "BitShift": {"direction": ("LEFT", "RIGHT")},
    "DepthToSpace": {"mode": ("DCR", "CRD")},
    "GridSample": {"mode": ("linear", "nearest", "cubic"), "padding_mode": ("zeros", "border", "reflection")},
    "Pad": {"mode": ("constant", "reflect", "edge", "wrap")},
    "Resize": {
        "mode": ("nearest", "linear", "cubic"),
        "nearest_mode": ("round_prefer_floor", "round_prefer_ceil", "floor", "ceil"),
        "keep_aspect_ratio_policy": ("stretch", "not_larger", "not_smaller"),
        "coordinate_transformation_mode": (
            "half_pixel",
            "half_pixel_symmetric",
            "pytorch_half_pixel",
            "align_corners",
            "asymmetric",
            "tf_half_pixel_for_nn",
            "tf_crop_and_resize",
        ),
    },
    "RoiAlign": {"mode": ("avg", "max"), "coordinate_transformation_mode": ("half_pixel", "output_half_pixel")},
    **{key: {"reduction": ("none", "add", "mul", "max", "min")} for key in ("ScatterElements", "ScatterND")},
}


def check_settings(
    where: str, op_type: str, attributes: Mapping[str, Any], inputs: int = 1, outputs: int | None = None
) -> None:
    """Refuse numbers and words of a node's attributes that its operator does not know.

    Args:
        where: how errors call the node.
        op_type: of ONNX's own domain.
        attributes: as given, of the right kinds.
        inputs: how many the node has.
        outputs: how many the node has, None if that is no matter.

    Raises:
        NetworkError: naming the attribute, its value and what is allowed.

    Example:
        >>> check_settings("node 'c' (Conv)", "Conv", {"strides": (0, 1)})  # doctest: +IGNORE_EXCEPTION_DETAIL
        Traceback (most recent call last):
        deep500.errors.NetworkError: node 'c' (Conv): got strides=(0, 1); expected ...
    """
    for name in _NUMBERS.get(op_type, ()):
        _check_numbers(where, name, attributes, 1)
    if op_type in _WINDOWED:
        for name in _PADS:
            _check_numbers(where, name, attributes, 0 if name == "output_padding" else -MOST)
    if op_type in _WINDOWED:
        check_axes(where, attributes, len(attributes.get("kernel_shape") or ()))
    for name, least in _LEAST.items():
        _check_numbers(where, name, attributes, least)
    if op_type in _RECURRENT and attributes.get("layout", 0) not in (0, 1):
        raise NetworkError(f"{where}: got layout={attributes['layout']}; expected 0 or 1: correct it")
    if op_type == "Split" and outputs is not None and attributes.get("num_outputs", outputs) != outputs:
        raise NetworkError(
            f"{where}: got num_outputs={attributes['num_outputs']}; expected {outputs}, its outputs: correct it"
        )
    if op_type.startswith("Random"):
        _check_range(where, attributes)
    if op_type == "Scan" and not 1 <= (count := attributes.get("num_scan_inputs", 1)) <= inputs:
        raise NetworkError(f"{where}: got num_scan_inputs={count}; expected 1 to {inputs}, its inputs: correct it")
    for name, known in _TEXTS.get(op_type, {}).items():
        if name in attributes and attributes[name] not in known:
            raise NetworkError(
                f"{where}: got {name}={attributes[name]!r}; expected one of {', '.join(known)}: correct it"
            )


def check_axes(where: str, attributes: Mapping[str, Any], axes: int) -> None:
    """Raise NetworkError unless a window has a stride and a dilation for each axis, and two pads; 0 axes: not known."""
    for name, count in (("strides", axes), ("dilations", axes), ("pads", 2 * axes)):
        value = attributes.get(name)
        if axes and value and len(value) != count:
            raise NetworkError(f"{where}: got {name}={value!r}; expected {count} numbers for {axes} axes: correct it")


def _check_range(where: str, attributes: Mapping[str, Any]) -> None:
    """Distributions have finite bounds in order."""
    for name in ("low", "high", "mean", "scale"):
        if not math.isfinite(attributes.get(name, 0.0)):
            raise NetworkError(f"{where}: got {name}={attributes[name]!r}; expected a finite number: correct it")
    if attributes.get("low", 0.0) > attributes.get("high", 1.0):
        raise NetworkError(f"{where}: got low above high; expected bounds in order: exchange them")


def _check_numbers(where: str, name: str, attributes: Mapping[str, Any], least: int) -> None:
    value = attributes.get(name)
    numbers = () if value is None else (value,) if isinstance(value, int) else tuple(value)
    if any(not least <= number <= MOST for number in numbers):
        raise NetworkError(f"{where}: got {name}={value!r}; expected numbers from {least} to {MOST}: correct it")
