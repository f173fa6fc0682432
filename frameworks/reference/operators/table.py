"""The table from ONNX operators to functions on arrays.

Functions get arrays, and attributes as Python values with the schema's defaults filled in, and return one array or a
tuple of them. They must not write into their inputs, and their results may share the inputs' memory. A parameter called
``outputs`` receives the number of outputs of the node, ``random`` the executor's :class:`Random`, and ``captured`` the
names of the values that sub-graphs capture, which come as arguments after the inputs. What is not in the table, or not
for this node, goes to :mod:`deep500.networks.execution.fallback`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeAlias

import numpy as np
import onnx

from deep500.networks.execution.operator_table import OperatorEntry, OperatorTable
from deep500.networks.node import Node

Kernel: TypeAlias = Callable[..., Any]


class Random:
    """The executor's source of randomness, shared by all kernels that draw; :meth:`reseed` restarts it."""

    def __init__(self, seed: int = 0) -> None:
        self.reseed(seed)

    def reseed(self, seed: int) -> None:
        """Make everything that is drawn from now on a function of ``seed``."""
        self.generator = np.random.Generator(np.random.PCG64(seed))


@dataclass(frozen=True)
class ReferenceEntry(OperatorEntry):
    """An entry, and for which nodes it holds (all if ``when`` is None)."""

    when: Callable[[Node], bool] | None = None


OPS = OperatorTable(ReferenceEntry, extras=("outputs", "random", "captured"))
"""All operators by (domain, operator type)."""

op, enter_all = OPS.op, OPS.enter_all


def find(node: Node) -> ReferenceEntry | None:
    """The entry for a node, None where the table has none."""
    entry = OPS.get((node.domain, node.op_type))
    return None if entry is None or (entry.when is not None and not entry.when(node)) else entry


def bind(entry: ReferenceEntry, node: Node, random: Random, compile_body: Callable[[onnx.GraphProto], Any]) -> Kernel:
    """An entry's function with the attributes of a node filled in, sub-graphs compiled."""
    attributes = node.all_attributes()
    unknown = {name: value for name, value in attributes.items() if name not in entry.attributes}  # refused by the call
    keywords = {
        name: compile_body(value) if isinstance(value, onnx.GraphProto) else value
        for name, value in {**unknown, **entry.keywords(attributes)}.items()
    }
    captured = node.reads[sum(map(bool, node.inputs)) :]
    offered = {"outputs": len(node.outputs), "random": random, "captured": captured}
    keywords.update({name: offered[name] for name in entry.extras})
    return partial(entry.function, **keywords) if keywords else entry.function


def ints(value: Any) -> tuple[int, ...] | None:
    """A vector of whole numbers as a tuple, None stays None."""
    return None if value is None else tuple(int(v) for v in np.ravel(value))


def average(x: np.ndarray, axes: Any = None, **options: Any) -> Any:
    """NumPy's mean, without its warning where there is nothing: NaN."""
    if x.size:
        return np.mean(x, axes, **options)
    return np.sum(x, axes, **options) * (x.dtype.type(np.nan) if x.dtype.kind == "f" else np.nan)
