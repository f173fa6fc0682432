"""Arrays to JAX and back, the dtypes that JAX has, and 64-bit numbers.

Importing this backend sets ``jax_enable_x64`` for the process. JAX would otherwise narrow every 64-bit array that it
meets without a word, and ONNX's indices, labels and shapes are int64. It has to be the global switch: values leave the
executor and meet the plain arithmetic of optimizers and metrics, where no context manager of ours is active. float32
networks stay float32 throughout: dtypes come from the network, and Python numbers are weakly typed. Functions of users
who count on 32 bits are run with the switch as they expect it (see ``native.py``).
"""

from __future__ import annotations

from typing import Any

import jax
import jax.experimental
import numpy as np

from deep500.networks.execution.dtypes import COMMON, find_dtype
from deep500.tensors import dtype_from_onnx, numpy_dtype

jax.config.update("jax_enable_x64", True)

enable_x64: Any = getattr(jax if hasattr(jax, "enable_x64") else jax.experimental, "enable_x64")  # noqa: B009
"""The switch for a while, ``with enable_x64(False)``. Older versions of JAX (as on Python 3.10) keep it elsewhere."""

_FLOAT8 = ("float8_e4m3fn", "float8_e4m3fnuz", "float8_e5m2", "float8_e5m2fnuz")
DTYPES = {name: numpy_dtype(name) for name in (*COMMON, *_FLOAT8, "int4", "uint4")}
"""NumPy's dtypes that JAX can hold, by name."""


def onnx_dtype(number: int) -> np.dtype:
    """The dtype for ONNX's number; InputError for one that JAX lacks."""
    return find_dtype(dtype_from_onnx(number), DTYPES, "JAX")


def is_float(x: Any) -> bool:
    """Whether an array has a floating dtype, bfloat16 and the narrow ones included."""
    return jax.numpy.issubdtype(x.dtype, np.floating)


def is_integer(x: Any) -> bool:
    """Whether an array has an integer dtype."""
    return jax.numpy.issubdtype(x.dtype, np.integer)


def place(value: Any, device: jax.Device) -> Any:
    """A value on a device. NumPy arrays are copied: JAX may go on reading their memory after a call returned."""
    if isinstance(value, jax.Array):
        return value if value.devices() == {device} else jax.device_put(value, device)
    if value is None or isinstance(value, (list, tuple)):  # optional values and sequences
        return value if value is None else [place(item, device) for item in value]
    return jax.device_put(np.array(value), device)


def as_argument(value: Any, device: jax.Device) -> Any:
    """A value for a jitted function on a device: like :func:`place`, but what goes to JAX's default device is left as a
    copy on the host, which the call itself moves, in less time."""
    if isinstance(value, np.ndarray) and device == jax.devices()[0]:
        return np.array(value)
    return place(value, device)
