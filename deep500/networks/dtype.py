"""`to_dtype`: a copy of a network in another floating-point precision, such as float64 for tests of correctness."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from deep500.networks.network import Network
from deep500.networks.node import Node, find_schema
from deep500.tensors import TensorDescriptor, dtype_to_onnx

_TYPED = {"to", "dtype", "stash_type", "output_dtype"}  # attributes that hold ONNX's number of a dtype


def to_dtype(network: Network, dtype: str, source: str = "float32") -> Network:
    """A copy with every input, parameter and tensor attribute of dtype ``source`` turned into ``dtype``.

    What an operator's schema fixes stays as it is, for instance the float32 scales of Resize. Random initial weights
    are those of the original, rounded if the new precision is lower.

    Example:
        >>> from deep500.networks.zoo import create
        >>> to_dtype(create("mlp"), "float64").descriptors()["output"].dtype
        'float64'
    """
    copy = network.copy()
    fixed = {name for node in copy.nodes for name in fixed_inputs(node, dtype)}
    for name, parameter in copy._parameters.items():
        if str(parameter.value.dtype) == source and name not in fixed:
            copy._parameters[name] = replace(parameter, value=parameter.value.astype(np.dtype(dtype)))
    for name, described in copy.inputs.items():
        if described.dtype == source and name not in fixed:
            copy.inputs[name] = TensorDescriptor(dtype, described.shape)
    for name, node in copy._nodes.items():
        changed = {key: _convert(key, value, dtype, source) for key, value in node.attributes.items()}
        if node.op_type == "ConstantOfShape" and not changed and source == "float32":
            changed = {"value": np.zeros(1, np.dtype(dtype))}  # what is absent means zeros in float32
        copy._nodes[name] = replace(node, attributes=changed)
    copy._known = {n: replace(d, dtype=dtype) if d.dtype == source else d for n, d in copy._known.items()}
    copy._touch()
    return copy


def fixed_inputs(node: Node, dtype: str) -> list[str]:
    """Inputs whose schema does not allow ``dtype``."""
    schema = find_schema(node.op_type, node.domain)
    if schema is None:
        return []
    wanted = f"tensor({'double' if dtype == 'float64' else 'float' if dtype == 'float32' else dtype})"
    formal = list(schema.inputs)
    formal += formal[-1:] * (len(node.inputs) - len(formal))  # the last may be variadic
    return [name for name, declared in zip(node.inputs, formal, strict=False) if name and wanted not in declared.types]


def _convert(key: str, value: Any, dtype: str, source: str) -> Any:
    if isinstance(value, np.ndarray) and str(value.dtype) == source:
        return value.astype(np.dtype(dtype))
    if key in _TYPED and value == dtype_to_onnx(source):
        return dtype_to_onnx(dtype)
    return value
