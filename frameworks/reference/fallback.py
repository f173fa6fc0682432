"""Operators without a kernel of our own: ONNX's reference evaluator runs them, one node as a model.

The evaluator is imported when the first such node is compiled, and made when it first runs: some operators are
functions whose body depends on the dtypes of the inputs. Known to be wrong or missing there, hence kernels of our own:
the indices of MaxPool at stride 1, ConvTranspose with groups, Loop with scalar scan outputs.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import onnx

from deep500.networks.node import Node, find_schema
from deep500.networks.protos import model_proto, node_proto, value_info
from deep500.tensors import TensorDescriptor

_DOMAINS = {
    "": "ops._op_list",
    "ai.onnx.ml": "ops.aionnxml._op_list",
    "ai.onnx.preview": "ops.aionnx_preview._op_list",
    "ai.onnx.preview.training": "ops.aionnx_preview_training._op_list",
}


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
        feeds = {name: value for name, value in zip(self.node_reads(), values, strict=False) if name}
        if self.evaluator is None:
            self.evaluator = self._make(feeds)
        results = self.evaluator.run(list(self.node.writes), feeds)
        remaining = iter(results)
        return tuple(next(remaining) if name else None for name in self.node.outputs)

    def node_reads(self) -> tuple[str, ...]:
        """Names of the arguments: the inputs with their gaps, then what sub-graphs capture."""
        given = sum(map(bool, self.node.inputs))
        return (*self.node.inputs, *self.node.reads[given:])

    def _make(self, feeds: dict[str, Any]) -> Any:
        from onnx.reference import ReferenceEvaluator

        graph = onnx.GraphProto(name=self.node.name or "node")
        graph.input.extend(value_info(name, _describe(value)) for name, value in feeds.items())
        graph.output.extend(onnx.ValueInfoProto(name=name) for name in self.node.writes)
        graph.node.append(node_proto(self.node))
        return ReferenceEvaluator(model_proto(graph))


def _describe(value: Any) -> TensorDescriptor:
    if isinstance(value, np.ndarray):
        name = "string" if value.dtype.kind in "OSU" else str(value.dtype)
        return TensorDescriptor(name, (None,) * value.ndim)
    if isinstance(value, list):
        inner = _describe(value[0]).dtype if value else "float32"
        return TensorDescriptor(f"sequence({inner})", None)
    return TensorDescriptor(None, None)
