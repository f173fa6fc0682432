"""Networks to programs: lists of kernels that run in order over numbered slots.

Compiled once per (network, wanted outputs): nodes that no wanted value needs are left out, names become slot numbers,
attributes are bound to their kernels, and a value is dropped after its last reader. What no kernel can do is one
UnsupportedOperator that names every such node, raised here.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import onnx

from deep500.errors import Deep500Error
from deep500.frameworks.reference.narrow import in_float32, may_be_narrow
from deep500.frameworks.reference.operators import Random, bind, find
from deep500.networks.custom import CustomCall, check_plugins, is_custom
from deep500.networks.execution import fallback
from deep500.networks.execution.operands import STATIC, check_network, check_operands, check_types
from deep500.networks.execution.refusals import unfit_operands
from deep500.networks.execution.sizes import GROWING, check_sizes
from deep500.networks.execution.slicing import needed_nodes, values_read, without_gradients
from deep500.networks.graph import Graph, Parameter
from deep500.networks.node import Node, captures, from_proto
from deep500.tensors import TensorDescriptor, dtype_name

_FAILURES = (
    *(ValueError, LookupError, TypeError, ArithmeticError, AttributeError, RuntimeError, MemoryError),
    AssertionError,  # ONNX's own kernels
    OSError,  # pictures that cannot be decoded
)
"""Exceptions of NumPy for operands that do not fit, or whose result memory cannot hold."""


class KernelStep(NamedTuple):
    """One node: a kernel, the slots that it reads (0: absent), those that it fills, those that are not read later."""

    kernel: Callable[..., Any]
    reads: tuple[int, ...]
    writes: tuple[int, ...]
    done: tuple[int, ...]
    node: Node


class KernelProgram:
    """A compiled network.

    Attributes:
        inputs: names of the network's inputs that the wanted values depend on.
        parameters: the parameters that they depend on, read anew at every run.
        outputs: names of the wanted values.
    """

    def __init__(
        self,
        network: Graph | _Body,
        outputs: Sequence[str],
        random: Random,
        live: Mapping[str, Parameter] | None = None,
        narrow: bool = False,
    ) -> None:
        """Compile; parameters that ``live`` has are taken from there instead of from the network.

        ``narrow`` says that values of half precision may come from outside, see :mod:`.narrow`.
        """
        nodes = needed_nodes(without_gradients(network.nodes), outputs)
        used = values_read(nodes, outputs)
        self.inputs = [name for name in network.inputs if name in used]
        self.parameters = {name: (live or {}).get(name, p) for name, p in network.parameters.items() if name in used}
        self.outputs = tuple(outputs)
        self.slots = {"": 0}
        for name in (*self.inputs, *self.parameters, *(v for node in nodes for v in node.writes)):
            self.slots[name] = len(self.slots)
        asked = any(is_custom(node) or node.op_type in GROWING for node in nodes)  # inference costs more than the rest
        descriptors = network.descriptors() if isinstance(network, Graph) and asked else {}
        check_sizes(nodes, descriptors)
        if isinstance(network, Graph):
            check_network(network, nodes)
            stored = {n: TensorDescriptor(dtype_name(p.value.dtype), p.value.shape) for n, p in self.parameters.items()}
            check_types(nodes, descriptors or {**network.inputs, **stored})
        fed = [getattr(network.inputs[name], "dtype", "") for name in self.inputs]
        narrow = narrow or may_be_narrow([*fed, *(str(p.value.dtype) for p in self.parameters.values())], nodes)
        self.steps = self._steps(nodes, _bind_all(nodes, random, descriptors, narrow))

    def _steps(self, nodes: Sequence[Node], kernels: Sequence[Callable[..., Any]]) -> list[KernelStep]:
        """Kernels with the slots that they read, fill and empty, in order."""
        needed = {self.slots[name] for name in (*self.outputs, *self.parameters)} | {0}
        steps: list[KernelStep] = []
        for node, kernel in zip(reversed(nodes), reversed(kernels), strict=True):
            reads = tuple(self.slots[name] for name in fallback.arguments(node))
            writes = tuple(self.slots[name] for name in node.outputs)
            done = tuple({*reads, *writes} - needed)  # walking backwards: not read later on
            needed.update(reads)
            steps.append(KernelStep(kernel, reads, writes, done, node))
        return steps[::-1]

    def run(
        self, inputs: Mapping[str, Any], watch: Callable[[KernelStep, list[Any]], None] | None = None
    ) -> dict[str, Any]:
        """Run all kernels and return the wanted values by name.

        Args:
            inputs: by name.
            watch: is shown every step and all slots after its kernel ran, before those that are done are emptied.
        """
        values: list[Any] = [None] * len(self.slots)
        for name in self.inputs:
            value = inputs[name]
            values[self.slots[name]] = value if type(value) is np.ndarray else _as_value(value)
        for name, parameter in self.parameters.items():
            values[self.slots[name]] = parameter.value
        step = None
        try:
            with np.errstate(all="ignore"):  # IEEE arithmetic, as on every other backend
                for step in self.steps:
                    results = step.kernel(*[values[slot] for slot in step.reads])
                    if not isinstance(results, tuple):
                        results = (results,)
                    for slot, result in zip(step.writes, results, strict=False):
                        values[slot] = result if type(result) is np.ndarray else _as_value(result)
                    if watch is not None:
                        watch(step, values)
                    results = result = None  # else a value that is never read would live until the next kernel is done
                    for slot in step.done:
                        values[slot] = None
                    values[0] = None
        except Deep500Error:
            raise
        except _FAILURES as error:
            if step is None:
                raise
            raise unfit_operands(step.node, [values[slot] for slot in step.reads], error) from error
        return {name: values[self.slots[name]] for name in self.outputs}


def _as_value(result: Any) -> Any:
    return result if result is None or isinstance(result, (list, dict)) else np.asarray(result)


def _bind_all(
    nodes: Sequence[Node], random: Random, descriptors: Mapping[str, TensorDescriptor], narrow: bool
) -> list[Callable[..., Any]]:
    """The kernel of each node: a custom operator, a function of the table, or ONNX's evaluator as the fallback."""
    check_plugins(nodes)
    missing = fallback.unknown(nodes, lambda node: find(node) is not None)
    fallback.refuse(missing, "reference", "deep500.frameworks.reference.operators.op")
    kernels: list[Callable[..., Any]] = []
    for node in nodes:
        entry = find(node)
        if is_custom(node):
            kernels.append(CustomCall(node, descriptors))
            continue
        kernel: Callable[..., Any] = (
            fallback.make_kernel(node)
            if entry is None
            else bind(entry, node, random, partial(BodyProgram, random=random, narrow=narrow))
        )
        kernel = in_float32(kernel, node) if narrow else kernel
        is_ours = entry is not None and node.op_type in STATIC and not node.domain
        kernels.append(_checked(kernel, node) if is_ours else kernel)
    return kernels


def _checked(kernel: Callable[..., Any], node: Node) -> Callable[..., Any]:
    """The kernel after a check of the numbers that it is given."""

    def call(x: Any, *operands: Any) -> Any:
        check_operands(node, [None, *operands], np.shape(x))
        return kernel(x, *operands)

    return call


class _Body(NamedTuple):
    """A sub-graph, with all that :class:`KernelProgram` reads of a network."""

    inputs: dict[str, Any]
    parameters: dict[str, Parameter]
    nodes: tuple[Node, ...]


class BodyProgram:
    """The compiled body of an If, Loop or Scan; what it captures comes with every call."""

    def __init__(self, graph: onnx.GraphProto, random: Random, narrow: bool = False) -> None:
        constants = {t.name: Parameter(onnx.numpy_helper.to_array(t), False) for t in graph.initializer}
        self.inputs = [v.name for v in graph.input if v.name not in constants]
        self.outputs = [v.name for v in graph.output]
        every = dict.fromkeys([*self.inputs, *captures(graph)])
        nodes = tuple(from_proto(node) for node in graph.node)
        self.program = KernelProgram(_Body(every, constants, nodes), self.outputs, random, narrow=narrow)

    def __call__(self, values: Sequence[Any], captured: Mapping[str, Any]) -> list[Any]:
        results = self.program.run({**captured, **dict(zip(self.inputs, values, strict=True))})
        return [results[name] for name in self.outputs]
