"""ONNX's shape inference for networks that hold custom operators, whose types and shapes the operators infer.

ONNX calls a function of an operator's schema, and custom operators have none. A schema that stayed registered would
change the answers of ONNX's checker and of this package's ``find_schema`` for domain ``deep500``; so schemas are
registered for one run, under a lock, for the operators of the network at hand. ONNX does not tell the function which
node it is called for: each node carries its number as an attribute.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import onnx

from deep500.errors import Deep500Error, UnsupportedOperator
from deep500.networks import flow
from deep500.networks.custom import named, operator_of
from deep500.networks.node import Node, from_proto
from deep500.networks.protos import UNKNOWN, descriptor_of, type_proto
from deep500.operators.registry import DOMAIN, is_registered
from deep500.tensors import TensorDescriptor

_NUMBER = "deep500_number"
_lock = threading.RLock()
_runs: list[_Run] = []  # the innermost run is the last: an operator may build networks while it infers its shapes


@dataclass
class _Run:
    """One run of the inference: its nodes by number, what a file declared, and the first error of an operator."""

    nodes: Sequence[Node]
    declared: Mapping[str, TensorDescriptor]
    guessed: bool  # numbers stand in place of symbols: an operator that refuses them may accept others
    error: Deep500Error | None = field(default=None)

    def answer(self, context: Any) -> None:
        """Set the types of one node's outputs in ONNX's context, as far as they are known."""
        node = self.nodes[context.get_attribute(_NUMBER).i]
        types = [context.get_input_type(i) for i in range(context.get_num_inputs())]
        inferred = self._infer(node, [UNKNOWN if proto is None else descriptor_of(proto) for proto in types])
        for i, name in enumerate(node.outputs):
            described = inferred[i] if i < len(inferred) else self.declared.get(name, UNKNOWN)
            if described.dtype is not None:
                context.set_output_type(i, type_proto(described))

    def _infer(self, node: Node, inputs: Sequence[TensorDescriptor]) -> list[TensorDescriptor]:
        """Ask the operator for descriptors of a node's outputs; none if it cannot infer them.

        The first refusal is kept in ``error`` until the run is over, rather than raised through ONNX's C++ code.
        """
        if flow.is_flow(node):
            return list(inputs[: flow.values_of(node.op_type, node.attributes)])
        if any(described.dtype is None for described in inputs):
            return []
        try:
            operator = operator_of(node, dict(zip(node.inputs, inputs, strict=True)))
            try:
                return list(operator.infer(inputs))
            except UnsupportedOperator:  # sizes that it must know: another pass has numbers for them
                return []
            except Deep500Error as error:
                raise named(node, error) from error
        except Deep500Error as error:
            if self.error is None and not self.guessed:
                self.error = error
        return []


def infer_custom_shapes(
    model: onnx.ModelProto, declared: Mapping[str, TensorDescriptor], guessed: bool, propagates: bool
) -> onnx.ModelProto:
    """ONNX's inference for a model that holds custom operators.

    Args:
        model: its custom nodes are given an attribute more.
        declared: descriptors of outputs that count where a custom operator cannot tell.
        guessed: sizes are made up, so an operator that refuses them is no error.
        propagates: whether values are followed through the graph.

    Raises:
        Deep500Error: a custom operator refuses a node's inputs or attributes; names the node.
    """
    custom = list(_numbered(model.graph, 0))
    run = _Run(custom, declared, guessed)
    with _schemas(run, {node.op_type for node in custom}):
        inferred = onnx.shape_inference.infer_shapes(model, data_prop=propagates)
    if run.error is not None:
        raise run.error
    return inferred


def _numbered(graph: onnx.GraphProto, first: int) -> Iterator[Node]:
    """The custom nodes with a plugin, sub-graphs included; each is given its number in this order."""
    for proto in graph.node:
        for attribute in proto.attribute:
            if attribute.type == onnx.AttributeProto.GRAPH:
                for node in _numbered(attribute.g, first):
                    first += 1
                    yield node
        if proto.domain == DOMAIN and (flow.is_flow(proto) or is_registered(proto.op_type)):
            yield from_proto(proto)
            proto.attribute.append(onnx.helper.make_attribute(_NUMBER, first))
            first += 1


@contextmanager
def _schemas(run: _Run, op_types: set[str]) -> Iterator[None]:
    """Schemas for these operators, as long as the block lasts; other threads wait."""
    with _lock:
        new = sorted(name for name in op_types if not onnx.defs.has(name, DOMAIN))
        _runs.append(run)
        try:
            for name in new:
                onnx.defs.register_schema(_schema(name))
            yield
        finally:
            _runs.pop()
            for name in new:
                onnx.defs.deregister_schema(name, 1, DOMAIN)


def _schema(name: str) -> onnx.defs.OpSchema:
    """A schema with any number of inputs and outputs of any types, whose inference is the operator's."""
    formal, variadic = onnx.defs.OpSchema.FormalParameter, onnx.defs.OpSchema.FormalParameterOption.Variadic
    schema = onnx.defs.OpSchema(
        name,
        DOMAIN,
        1,
        inputs=[formal("inputs", "T", param_option=variadic, is_homogeneous=False, min_arity=0)],
        outputs=[formal("outputs", "T", param_option=variadic, is_homogeneous=False, min_arity=1)],
        type_constraints=[("T", ["tensor(float)"], "not looked at by the inference")],
    )
    schema.set_type_and_shape_inference_function(_answer)
    return schema


def _answer(context: Any) -> None:
    _runs[-1].answer(context)
