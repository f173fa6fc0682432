"""Custom operators: the gradient of ``deep500.Name`` is the node ``deep500.NameGrad``, which calls ``backward``.

Its inputs are the gradients of all outputs (zeros where none flows), the inputs and the outputs; its outputs the
gradients of the inputs, unnamed where none is needed. An operator with a rule of its own (``gradient_rule(...,
domain="deep500")``) keeps that.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace

import numpy as np

from deep500.errors import Deep500Error
from deep500.networks.custom import missing_plugins, operator_of, place_of
from deep500.networks.gradients.rules.context import GradContext, Value
from deep500.networks.gradients.rules.registry import RULES, GradientRule
from deep500.networks.node import Node
from deep500.operators.base import CustomOp
from deep500.operators.registry import DOMAIN, GRADIENT, is_registered
from deep500.tensors import TensorDescriptor, numpy_dtype

Descriptors = Mapping[str, TensorDescriptor]


def find_rule(node: Node, descriptors: Descriptors) -> GradientRule | None:
    """The rule of a node: the table's, else, for a custom operator with ``backward``, the one of this module."""
    rule = RULES.get((node.domain, node.op_type))
    if rule is not None or node.domain != DOMAIN or why_not(node, descriptors) is not None:
        return rule
    return GradientRule(_gradient_node, outputs=_count_outputs(node, operator_of(node, descriptors), descriptors))


def _count_outputs(node: Node, operator: CustomOp, descriptors: Descriptors) -> int:
    """How many outputs the operator has, which may be more than the node names.

    If it does not declare them, its inference is tried with several numbers for unknown sizes; if it refuses them all,
    the outputs that the node names count.
    """
    if operator.num_outputs is not None:
        return operator.num_outputs
    inputs = [descriptors[name] for name in node.inputs]
    for size in (2, 8, 3):
        shapes = [
            None if d.shape is None else tuple(n if isinstance(n, int) else size for n in d.shape) for d in inputs
        ]
        with suppress(Deep500Error):
            return len(operator.infer([replace(d, shape=shape) for d, shape in zip(inputs, shapes, strict=True)]))
    return len(node.outputs)


def why_not(node: Node, descriptors: Descriptors) -> str | None:
    """Reason why no gradient passes a custom node; None if one does."""
    if not is_registered(node.op_type):
        return missing_plugins([node])
    if node.op_type.endswith(GRADIENT):
        return "the gradient of a custom operator has no gradient itself"
    try:
        differentiable = operator_of(node, descriptors).differentiable
    except Deep500Error as error:
        return str(error)
    if differentiable:
        return None
    return f'operator {node.op_type!r} has no gradient: write its backward, or compile it with gradient="enzyme"'


def _gradient_node(g: GradContext) -> list[Value | None]:
    """One node for all gradients of a custom node."""
    node = g.node
    if "" in node.inputs:
        g.refuse(f"{place_of(node)} leaves an input out")
    outputs = [g.output(i) for i in range(len(node.outputs))]
    grads = [_zeros(g, value) if grad is None else grad for grad, value in zip(g.grads, outputs, strict=True)]
    needed = [i for i in range(len(node.inputs)) if g.needs(i)]
    network = g.emitter.network
    base = network.fresh_name(f"{g.emitter.prefix}{node.op_type}{GRADIENT}")
    names = [network.fresh_name(f"{base}:{i}") if i in needed else "" for i in range(len(node.inputs))]
    network.add_node(
        node.op_type + GRADIENT,
        [*map(str, grads), *node.inputs, *map(str, outputs)],
        names,
        name=base,
        domain=DOMAIN,
        num_outputs=len(outputs),
        **node.attributes,
    )
    return [Value(g, name) if name else None for name in names]


def _zeros(g: GradContext, value: Value) -> Value:
    """Zeros of an output's own dtype, which need not be that of the gradient."""
    dtype = g.describe(value).dtype or g.dtype
    return g("ConstantOfShape", g.shape(value), value=np.zeros(1, numpy_dtype(dtype)))
