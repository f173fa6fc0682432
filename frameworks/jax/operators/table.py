"""The table from ONNX operators to functions on JAX arrays, and what those functions share.

Functions get arrays, and attributes as Python values with the schema's defaults filled in, while JAX traces a network.
Values that do not depend on traced data are NumPy arrays; inputs that must be such (shapes, axes, bounds) are
``static``. Functions marked ``host`` compute NumPy arrays from NumPy arrays (they ask :func:`xp` for the library to
use); the others are evaluated by JAX at trace time when all their inputs are known. A parameter called ``outputs``
receives a tuple of booleans: which outputs are read, unread ones at the end left off; one called ``context`` the run's
:class:`deep500.frameworks.jax.context.RunContext`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import jax
import jax.numpy as jnp
import numpy as np

from deep500.errors import UnsupportedOperator
from deep500.networks.execution.operator_table import OperatorEntry, OperatorTable

Array: TypeAlias = Any
"""A traced or concrete JAX array, or a NumPy array that is known at trace time."""


class DependsOnData(UnsupportedOperator):
    """Something that JAX must know before it runs depends on data; ``where`` is the node, ``values`` what is wanted,
    or for a node within the body of another all that the outermost of them reads."""

    def __init__(self, where: str = "", values: Sequence[str] = ()) -> None:
        super().__init__(
            f"node {where}: got {', '.join(map(repr, values[:3])) or 'a value'}, which depends on data; expected what "
            "is known before the network runs, for JAX compiles for fixed shapes: make it a constant, or run this "
            "network on backend 'pytorch' or 'reference'"
        )
        self.where, self.values = where, tuple(values)


@dataclass(frozen=True)
class JaxEntry(OperatorEntry):
    """An entry; ``host`` functions compute NumPy arrays from NumPy arrays, others are evaluated by JAX."""

    host: bool = False


OPS = OperatorTable(JaxEntry, extras=("outputs", "context"))
"""All operators by (domain, operator type)."""

op, enter_all = OPS.op, OPS.enter_all


def is_known(value: Any) -> bool:
    """Whether a value is there while JAX traces: a NumPy array, or an absent one."""
    if isinstance(value, (list, tuple)):
        return all(is_known(v) for v in value)
    return not isinstance(value, jax.Array)


def xp(*values: Any) -> Any:
    """NumPy if all values are known, else ``jax.numpy``."""
    return np if all(map(is_known, values)) else jnp


def ints(value: Any) -> list[int] | None:
    """A vector of whole numbers that is known, as a list; None stays None."""
    return None if value is None else [int(v) for v in np.ravel(value)]


def scalar(value: Any, default: Any = None) -> Any:
    """A known number of an array of one element, or of None or an empty one (then the default)."""
    if value is None or not np.size(value):
        return default
    return np.ravel(value)[0].item()


def wrapped(indices: Array, size: int) -> Array:
    """Indices counted from the front (ONNX lets them count from the back), in int64."""
    indices = indices.astype(np.int64)
    return xp(indices).where(indices < 0, indices + size, indices)
