"""Attributes of operators that have many, one object for each kind: what kernels take instead of one argument for each.

Fields have the names and defaults of ONNX's schemas. Tables of operators read from a function's signature which of them
it takes (:mod:`deep500.networks.execution.operator_table`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, TypeVar

Ints = Sequence[int] | None
Kind = TypeVar("Kind", bound=tuple[Any, ...])


def collect(kind: type[Kind], attributes: Mapping[str, Any]) -> Kind:
    """Those attributes of a node that a class has, the others by default.

    Example:
        >>> collect(BatchNorm, {"epsilon": 1e-3, "consumed_inputs": ()})
        BatchNorm(epsilon=0.001, momentum=0.9, training_mode=0)
    """
    make: Any = kind
    return make(**{name: attributes[name] for name in make._fields if name in attributes})


class Sliding(NamedTuple):
    """Attributes of operators that slide a window: convolution, pooling, and their inverses.

    :func:`deep500.networks.windows.make_window` resolves them for an input's sizes.
    """

    auto_pad: str = "NOTSET"
    ceil_mode: int = 0
    count_include_pad: int = 0
    dilations: Ints = None
    group: int = 1
    kernel_shape: Any = None
    output_padding: Ints = None
    output_shape: Any = None
    p: int = 2
    pads: Ints = None
    storage_order: int = 0
    strides: Ints = None


class Recurrent(NamedTuple):
    """Attributes of LSTM, GRU and RNN, and of those whose weights are in a framework's own order."""

    activation_alpha: Any = None
    activation_beta: Any = None
    activations: Any = None
    clip: float | None = None
    direction: str = "forward"
    hidden_size: int | None = None
    input_forget: int = 0
    layers: int = 1
    layout: int = 0
    linear_before_reset: int = 0

    def backward(self, d: int) -> bool:
        """Whether the sequence is read from its end in a direction."""
        return self.direction == "reverse" or d == 1


class Attending(NamedTuple):
    """Attributes of Attention."""

    is_causal: int = 0
    kv_num_heads: int = 0
    left_window_size: int = -1
    q_num_heads: int = 0
    qk_matmul_output_mode: int = 0
    right_window_size: int = -1
    scale: float | None = None
    softcap: float = 0.0
    softmax_precision: int | None = None


class Resizing(NamedTuple):
    """Attributes of Resize."""

    antialias: int = 0
    axes: Ints = None
    coordinate_transformation_mode: str = "half_pixel"
    cubic_coeff_a: float = -0.75
    exclude_outside: int = 0
    extrapolation_value: float = 0.0
    keep_aspect_ratio_policy: str = "stretch"
    mode: str = "nearest"
    nearest_mode: str = "round_prefer_floor"


class BatchNorm(NamedTuple):
    """Attributes of BatchNormalization."""

    epsilon: float = 1e-5
    momentum: float = 0.9
    training_mode: int = 0


class Labels(NamedTuple):
    """Attributes of ``ai.onnx.ml``'s LabelEncoder."""

    keys_strings: Any = None
    keys_int64s: Any = None
    keys_floats: Any = None
    keys_tensor: Any = None
    values_strings: Any = None
    values_int64s: Any = None
    values_floats: Any = None
    values_tensor: Any = None
    default_string: str = "_Unused"
    default_int64: int = -1
    default_float: float = -0.0
    default_tensor: Any = None
