"""Operators without a kernel of a backend's own: ONNX's reference evaluator runs them, one node as a model.

For backends whose tensors are NumPy's: :func:`kernels` says what runs each node of a network.

The evaluator is imported when the first such node is compiled, and made when it first runs: some operators are
functions whose body depends on the dtypes of the inputs. Known to be wrong or missing there, hence kernels of our own:
the indices of MaxPool at stride 1, ConvTranspose with groups, Loop with scalar scan outputs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import onnx

from deep500.errors import UnsupportedOperator
from deep500.networks.custom import CustomCall, check_plugins, is_custom
from deep500.networks.node import Node, find_schema, from_proto
from deep500.networks.protos import model_proto, node_proto, value_info
from deep500.tensors import TensorDescriptor

_DOMAINS = {
    "": "ops._op_list",
    "ai.onnx.ml": "ops.aionnxml._op_list",
    "ai.onnx.preview": "ops.aionnx_preview._op_list",
    "ai.onnx.preview.training": "ops.aionnx_preview_training._op_list",
}


Kernel = Callable[..., Any]
"""A function of the arrays that a node reads (:func:`arguments`), which returns its output or a tuple of them."""


def kernels(
    nodes: Sequence[Node],
    table: Mapping[str, Callable[[Node], Kernel]],
    known: Mapping[str, TensorDescriptor],
    backend: str,
) -> list[Kernel]:
    """Find what runs each node: the backend's own function, a custom operator, else ONNX's evaluator.

    Args:
        nodes: in the order of a network.
        table: by ONNX operator, what makes a kernel for a node.
        known: dtypes and shapes of the values, as far as they are known.
        backend: its name, for the message.

    Raises:
        UnsupportedOperator: names all nodes that nothing runs.

    Example:
        >>> relu, mish = Node("Relu", ("x",), ("y",), "a"), Node("Mish", ("y",), ("z",), "b")
        >>> first, second = kernels([relu, mish], {"Relu": lambda node: lambda x: np.maximum(x, 0)}, {}, "mine")
        >>> first(np.float32([-1, 1])).tolist(), [round(float(z), 2) for z in second(np.float32([0, 1]))[0]]
        ([0.0, 1.0], [0.0, 0.87])
    """
    check_plugins(nodes)
    refuse(unknown(nodes, lambda node: not node.domain and node.op_type in table), backend, "KERNELS of the backend")
    make = {**dict.fromkeys((node.op_type for node in nodes), make_kernel), **table}
    return [
        CustomCall(node, known) if is_custom(node) else (make_kernel if node.domain else make[node.op_type])(node)
        for node in nodes
    ]


def unknown(nodes: Iterable[Node], has_kernel: Callable[[Node], bool]) -> Iterator[Node]:
    """Nodes that nothing can run, those of sub-graphs included; ``has_kernel``: whether the backend does itself."""
    for node in nodes:
        if not is_custom(node) and not has_kernel(node) and not is_known(node):
            yield node
        for graph in node.graphs:
            yield from unknown(map(from_proto, graph.node), has_kernel)


def refuse(missing: Iterable[Node], backend: str, where: str) -> None:
    """Raise one UnsupportedOperator that names every node; ``where`` kernels are entered."""
    if listed := ", ".join(f"{f'{n.domain}.' if n.domain else ''}{n.op_type} (node {n.name!r})" for n in missing):
        raise UnsupportedOperator(
            f"got {listed}; expected operators that backend {backend!r} knows: replace them, or enter kernels with "
            f"{where}"
        )


def arguments(node: Node) -> tuple[str, ...]:
    """Names of a kernel's arguments: the inputs with their gaps (``""``), then what sub-graphs capture."""
    return (*node.inputs, *node.reads[sum(map(bool, node.inputs)) :])


def is_known(node: Node) -> bool:
    """Whether ONNX's evaluator has the operator, or ONNX defines it as a function."""
    import importlib

    schema = find_schema(node.op_type, node.domain)
    if schema is None or node.domain not in _DOMAINS:
        return False
    if schema.has_function or schema.has_context_dependent_function:
        return True
    module = importlib.import_module(f"onnx.reference.{_DOMAINS[node.domain]}")
    return hasattr(module, node.op_type) or node.op_type in _registered(module)


def _registered(module: Any) -> Any:
    if getattr(module, "_registered_operators", None) is None:
        module._registered_operators = module._build_registered_operators()
    return module._registered_operators


def make_kernel(node: Node) -> Callable[..., Any]:
    """A function like those of the table; it takes what the node reads, captured values of sub-graphs included."""
    return _Fallback(node)


class _Fallback:
    def __init__(self, node: Node) -> None:
        self.node = node
        self.names = list(dict.fromkeys(node.reads))
        self.evaluator: Any = None

    def __call__(self, *values: Any) -> Any:
        feeds = {name: value for name, value in zip(arguments(self.node), values, strict=False) if name}
        if self.evaluator is None:
            self.evaluator = self._make(feeds)
        results = self.evaluator.run(list(self.node.writes), feeds)
        remaining = iter(results)
        return tuple(next(remaining) if name else None for name in self.node.outputs)

    def _make(self, feeds: dict[str, Any]) -> Any:
        from onnx.reference import ReferenceEvaluator

        from deep500.networks.bodies import computes_in_float64, expand

        graph = onnx.GraphProto(name=self.node.name or "node")
        graph.input.extend(value_info(name, _describe(value)) for name, value in feeds.items())
        graph.output.extend(onnx.ValueInfoProto(name=name) for name in self.node.writes)
        described = {name: _describe(value) for name, value in feeds.items()}
        wide = expand(self.node, described) if computes_in_float64(self.node, described) else None
        graph.node.extend(map(node_proto, wide or [self.node]))
        return ReferenceEvaluator(model_proto(graph))


def _describe(value: Any) -> TensorDescriptor:
    if isinstance(value, np.ndarray):
        name = "string" if value.dtype.kind in "OSU" else str(value.dtype)
        return TensorDescriptor(name, (None,) * value.ndim)
    if isinstance(value, list):
        inner = _describe(value[0]).dtype if value else "float32"
        return TensorDescriptor(f"sequence({inner})", None)
    return TensorDescriptor(None, None)
