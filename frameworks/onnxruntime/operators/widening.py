"""An operator on a wider dtype between Casts, where ONNX Runtime has no kernel for the dtype itself."""

from __future__ import annotations

import numpy as np
import onnx

from deep500.frameworks.onnxruntime.operators.table import Descriptors, ExpansionEmitter
from deep500.networks.graph import Graph
from deep500.networks.node import Node, find_schema
from deep500.networks.protos import UNKNOWN
from deep500.tensors import dtype_to_onnx

WIDER = {
    "float16": "float32",
    "bfloat16": "float32",
    "int8": "int32",
    "int16": "int32",
    "uint8": "uint32",
    "uint16": "uint32",
    "uint32": "uint64",
    "int32": "int64",
}
"""The dtype that holds every value of another."""


def widen(network: Graph, node: Node, descriptors: Descriptors) -> dict[str, str] | None:
    """Cast the inputs of the schema's type variables up, run the node, cast its outputs back."""
    schema = find_schema(node.op_type, node.domain)
    if schema is None or node.domain or node.op_type in ("Cast", "CastLike", "QuantizeLinear", "DequantizeLinear"):
        return None
    op = ExpansionEmitter(network, node, descriptors)
    chosen = _variables(op, schema)
    if not chosen:
        return None
    inputs = []
    for i, value in enumerate(node.inputs):
        wide = chosen.get(_formal(schema.inputs, i).type_str) if value else None
        inputs.append(op("Cast", value, to=dtype_to_onnx(wide)) if wide else value)
    outputs = op.many(node.op_type, *inputs, outputs=len(node.outputs), **node.attributes)
    taken = {}
    for i, (value, wide_value) in enumerate(zip(node.outputs, outputs, strict=True)):
        if value:
            dtype = descriptors.get(value, UNKNOWN).dtype
            narrow = _formal(schema.outputs, i).type_str in chosen or dtype in WIDER  # EyeLike follows its input, too
            if narrow and dtype is None:
                return None
            taken[value] = op("Cast", wide_value, to=dtype_to_onnx(dtype)) if narrow else wide_value
    return taken


def _formal(formals: list[onnx.defs.OpSchema.FormalParameter], index: int) -> onnx.defs.OpSchema.FormalParameter:
    return formals[min(index, len(formals) - 1)]


def _variables(op: ExpansionEmitter, schema: onnx.defs.OpSchema) -> dict[str, str]:
    """Type variables to widen, and what to; those that indices or shapes use stay."""
    wider: dict[str, str] = {}
    fixed = {c.type_param_str for c in schema.type_constraints if set(c.allowed_type_strs) <= _INDICES}
    for i, value in enumerate(op.node.inputs):
        kind = _formal(schema.inputs, i).type_str
        dtype = op.descriptors.get(value, UNKNOWN).dtype if value else None
        if kind not in fixed and "(" not in kind and dtype in WIDER:
            wider[kind] = WIDER[dtype]
    return wider if all(np.dtype(object) != k for k in wider.values()) else {}


_INDICES = {"tensor(int32)", "tensor(int64)"}
