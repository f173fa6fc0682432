"""`Analytic`: a roofline with an overhead per operator, from shapes alone and so the same on every machine.

seconds = overhead + max(operations / rate, bytes / bandwidth)   (Williams, Waterman and Patterson 2009, and a constant)

Operations are those of :mod:`deep500.networks.flops`; bytes are what is read, each value once, and what is written.
What a backend does by another view of the same memory moves nothing. The constants are round figures of what `Measured`
found on one core of an x86 server, for tensors that fit into its cache (tests/benchmarks/substitutions_cost.py); they
decide between rewrites where nothing may be measured, and predict no other machine's times.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from math import prod
from types import MappingProxyType

from deep500.errors import NetworkError
from deep500.networks.flops import FORMULAS
from deep500.networks.node import Node
from deep500.tensors import numpy_dtype
from deep500.transformations.substitutions.cost.model import CostModel
from deep500.transformations.substitutions.graph.sizes import numbers
from deep500.transformations.substitutions.graph.store import StoredGraph
from deep500.transformations.substitutions.graph.units import Unit
from deep500.transformations.substitutions.operators.elementwise import ACTIVATIONS


@dataclass(frozen=True)
class BackendConstants:
    """Constants of one backend.

    Attributes:
        overhead: seconds per operator, whatever its size: dispatch, checks, an output's memory.
        products: operations per second in convolutions and matrix products.
        others: operations per second elsewhere.
        bandwidth: bytes per second.
        views: kinds of units that move no bytes.
    """

    overhead: float
    products: float = 5e10
    others: float = 1e10
    bandwidth: float = 4e10
    views: frozenset[str] = frozenset({"reshape"})


_EAGER = frozenset({"split", "transpose", "reshape"})
MACHINES: Mapping[str, BackendConstants] = MappingProxyType(
    {
        "reference": BackendConstants(1.5e-6, views=_EAGER),
        "pytorch": BackendConstants(1e-6, views=_EAGER),
        "onnxruntime": BackendConstants(0.3e-6, products=1e11),
        "jax": BackendConstants(0.5e-6),
        "tensorflow": BackendConstants(1e-6),
    }
)
"""By backend. NumPy and PyTorch split and transpose by views, ONNX Runtime and the compilers copy."""
OTHER = BackendConstants(1e-6)
"""A backend from elsewhere."""
FUSED = frozenset({*ACTIVATIONS, "add", "mul", "shift", "scale", "bias", "gain", "normalize", "reshape"})
"""Kinds that compilers compute in the loop of what they read, or fold into it."""
IN_A_LOOP = 0.05
"""Cost of such a unit there, as a part of its price alone: what is kept in registers moves no bytes."""
UNWANTED = 10.0
"""How many times dearer a unit is that a search shall avoid."""

PRODUCTS = frozenset({"conv", "conv+bias", "matmul", "gemm"})
# fmt: off
ONNX = MappingProxyType(
    {
        "conv": "Conv", "conv+bias": "Conv", "matmul": "MatMul", "gemm": "Gemm", "batchnorm": "BatchNormalization",
        "normalize": "BatchNormalization", "add": "Add", "shift": "Add", "bias": "Add", "mul": "Mul", "scale": "Mul",
        "gain": "Mul", "concat": "Concat", "split": "Split", "transpose": "Transpose", "reshape": "Reshape",
        "enlarge": "Pad", "merge_groups": "Mul", "avgpool": "AveragePool", "maxpool": "MaxPool",
    }
)
# fmt: on
"""The ONNX operator whose formula counts a kind of unit."""
ELEMENTARY = 16
"""Operations that an exponential or its like takes on a CPU, where :mod:`~deep500.networks.flops` counts 1."""


def operations(graph: StoredGraph, unit: Unit) -> int:
    """Operations of a unit, a multiply-add being two.

    Raises:
        NetworkError: a kind that no formula counts.

    Example:
        >>> from deep500.transformations.substitutions.graph.store import Store
        >>> from deep500.transformations.substitutions.graph.units import Units
        >>> store = Store()
        >>> x, w = store.input("x", (2, 3), "float32"), store.input("w", (3, 5), "float32")
        >>> graph = StoredGraph(store, store.add("matmul", x, w))
        >>> [operations(graph, unit) for unit in Units(graph)]
        [60]
    """
    store = graph.store
    op_type = ONNX.get(unit.kind) or ACTIVATIONS.get(unit.kind)
    if op_type is None:
        raise NetworkError(f"got a unit of kind {unit.kind!r}; expected one of {sorted(ONNX)}; add it to this table")
    settings = dict(unit.settings)
    attributes = {"transA": settings.get("transA", 0), "kernel_shape": settings.get("kernel", ())}
    names = tuple(str(n) for n in range(len(unit.inputs)))
    node = Node(op_type, names, ("y",), unit.kind, attributes=attributes)
    shapes, results = ([numbers(store.shape(value)) for value in side] for side in (unit.inputs, unit.outputs))
    count = FORMULAS[op_type](node, shapes, results)
    elementary = ACTIVATIONS.get(unit.kind) not in (None, "Relu")
    return count * ELEMENTARY if elementary else count


def traffic(graph: StoredGraph, unit: Unit) -> int:
    """Bytes that a unit reads, each value once, and writes."""
    store = graph.store
    values = (*dict.fromkeys(unit.inputs), *unit.outputs)
    return sum(prod(numbers(store.shape(value))) * numpy_dtype(store.dtype(value)).itemsize for value in values)


class Analytic(CostModel):
    """Prices by formula: where nothing may be measured, and in tests.

    Args:
        backend: whose constants, see `MACHINES`; one that is not listed has those of `OTHER`.
        fused: the backend computes elementwise units in the loops of others: they are nearly free.
        without: kinds of units that shall be avoided, such as ``"split"``.

    Example:
        >>> from deep500.transformations.substitutions.graph.store import Store
        >>> store = Store()
        >>> x, y = store.input("x", (50, 50), "float32"), store.input("y", (50, 50), "float32")
        >>> graph = StoredGraph(store, store.add("concat", x, y, axis=0))
        >>> f"{Analytic('onnxruntime').total(graph):.3g} s"  # 0.3 us, and 40 kB at 40 GB/s
        '1.3e-06 s'
    """

    def __init__(self, backend: str = "reference", fused: bool = False, without: Collection[str] = ()) -> None:
        super().__init__()
        self.backend, self.machine = backend, MACHINES.get(backend, OTHER)
        self.fused, self.without = fused, frozenset(without)

    def price(self, graph: StoredGraph, unit: Unit) -> float:
        """The roofline's time; see the module."""
        machine = self.machine
        if unit.kind in machine.views and unit.kind not in self.without:
            return machine.overhead
        rate = machine.products if unit.kind in PRODUCTS else machine.others
        alone = machine.overhead + max(operations(graph, unit) / rate, traffic(graph, unit) / machine.bandwidth)
        if unit.kind in self.without:
            return UNWANTED * alone
        return IN_A_LOOP * alone if self.fused and unit.kind in FUSED else alone
