"""The table from ONNX operators to functions on arrays.

An entry is a function ``f(*inputs, *, attributes)``: inputs as arrays (None where an optional one is absent),
attributes as Python values with the schema's defaults filled in, one array or a tuple of them as result. It must not
write into its inputs, and its result may share their memory. What is not in the table, or not for this node, goes to
:mod:`deep500.frameworks.reference.fallback`.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeAlias, TypeVar

import numpy as np
import onnx

from deep500.networks.node import Node

Kernel: TypeAlias = Callable[..., Any]
Function = TypeVar("Function", bound=Kernel)


class Random:
    """The executor's source of randomness, shared by all kernels that draw; :meth:`reseed` restarts it."""

    def __init__(self, seed: int = 0) -> None:
        self.reseed(seed)

    def reseed(self, seed: int) -> None:
        """Make everything that is drawn from now on a function of ``seed``."""
        self.generator = np.random.Generator(np.random.PCG64(seed))


@dataclass(frozen=True)
class Entry:
    """A function, and for which nodes it holds (all if ``when`` is None)."""

    function: Kernel
    when: Callable[[Node], bool] | None = None


OPS: dict[tuple[str, str], Entry] = {}
"""All operators by (domain, operator type)."""


def op(*names: str, when: Callable[[Node], bool] | None = None, domain: str = "") -> Callable[[Function], Function]:
    """Enter a function under operator names.

    Its keyword-only parameters are the attributes that it understands; besides, one called ``outputs`` receives the
    number of outputs of the node, ``random`` the executor's :class:`Random`, and ``captured`` the names of the values
    that sub-graphs capture, which come as arguments after the inputs.
    """

    def enter(function: Function) -> Function:
        OPS.update({(domain, name): Entry(function, when) for name in names})
        return function

    return enter


def enter_all(functions: Mapping[str, Kernel]) -> None:
    """Enter functions without attributes, NumPy's own for instance."""
    OPS.update({("", name): Entry(function) for name, function in functions.items()})


def find(node: Node) -> Kernel | None:
    """The function for a node, None where the table has none."""
    entry = OPS.get((node.domain, node.op_type))
    return None if entry is None or (entry.when is not None and not entry.when(node)) else entry.function


def bind(function: Kernel, node: Node, random: Random, compile_body: Callable[[onnx.GraphProto], Any]) -> Kernel:
    """A function of the table with the attributes of a node filled in, sub-graphs compiled."""
    keywords = {
        name: compile_body(value) if isinstance(value, onnx.GraphProto) else value
        for name, value in node.all_attributes().items()
    }
    if not isinstance(function, np.ufunc):
        captured = node.reads[sum(map(bool, node.inputs)) :]
        offered = {"outputs": len(node.outputs), "random": random, "captured": captured}
        asked = inspect.signature(function).parameters
        keywords.update({name: value for name, value in offered.items() if name in asked})
    return partial(function, **keywords) if keywords else function


def ints(value: Any) -> tuple[int, ...] | None:
    """A vector of whole numbers as a tuple, None stays None."""
    return None if value is None else tuple(int(v) for v in np.ravel(value))
