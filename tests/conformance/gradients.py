"""Which operators of the suite the emitted gradient passes through, from the tables of the gradient rules."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import onnx
from onnx import defs
from onnx.backend.test.loader import load_model_tests

from deep500.compare.conformance.suite import Suite, operator_of
from deep500.errors import NetworkError, UnsupportedOperator
from deep500.networks import Network
from deep500.networks.gradients.autodiff import with_gradient
from deep500.networks.gradients.rules import RULES, ZERO
from deep500.networks.gradients.unrolling import UNROLLERS
from deep500.networks.node import find_schema

_RENAMED = ("Scatter", "Upsample")  # deprecated: read as ScatterElements and Resize, which have rules
FLOATS = ("tensor(float16)", "tensor(float)", "tensor(double)", "tensor(bfloat16)")


def table(suite: Suite) -> str:
    """The section of the page."""
    kinds: dict[str, list[str]] = {"rule": [], "body": [], "zero": [], "discrete": [], "forward-only": []}
    models = {operator_of(case.model): case.model for case in reversed(load_model_tests(kind="node"))}
    for name in sorted({name for name in suite.operators.values() if name}):
        way = kind(name)
        kinds["body" if way == "forward-only" and _passes(name, models[name]) else way].append(name)
    return _SECTION.format(
        **{k.replace("-", "_"): ", ".join(v) or "none" for k, v in kinds.items()},
        n_rule=len(kinds["rule"]),
        n_body=len(kinds["body"]),
    )


def kind(name: str) -> str:
    """How the gradient passes an operator: 'rule', 'body', 'zero', 'discrete' (nothing floating) or 'forward-only'."""
    domain, _, op_type = name.rpartition(".")
    schema = find_schema(op_type, domain)
    if (domain, op_type) in RULES:
        return "rule"
    if op_type in ZERO and not domain:
        return "zero"
    if (op_type in UNROLLERS and not domain) or _has_rules(schema):
        return "body"
    captures = any(a.type == defs.OpSchema.AttrType.GRAPH for a in schema.attributes.values())
    floating = _floating(schema.outputs) and (captures or _floating(schema.inputs))
    return "forward-only" if floating else "discrete"


def _passes(name: str, model: onnx.ModelProto) -> bool:
    """Whether the gradient passes a case of an operator with a body; bodies may depend on the dtypes of the inputs."""
    domain, _, op_type = name.rpartition(".")
    schema = find_schema(op_type, domain)
    network = Network.from_onnx(model)
    if op_type in _RENAMED:
        return True
    if not (schema.has_function or schema.has_context_dependent_function):
        return False
    dtypes = {value: descriptor.dtype for value, descriptor in network.descriptors().items()}
    goal = next((v for v in network.outputs if dtypes[v] in ("float32", "float64")), None)
    given = [v for v in network.inputs if dtypes[v] in ("float32", "float64")]
    if goal is None or not given:
        return False
    network.add_node("ReduceSum", [goal], ["sum of the output"], keepdims=0)
    try:
        with_gradient(network, "sum of the output", given[:1])
    except (UnsupportedOperator, NetworkError):
        return False
    return True


def _floating(parameters: Iterable[defs.OpSchema.FormalParameter]) -> bool:
    return any(set(FLOATS) & set(p.types) or any("seq" in t or "optional" in t for t in p.types) for p in parameters)


def _has_rules(schema: defs.OpSchema) -> bool:
    """Whether ONNX defines the operator by a body of operators that have rules."""
    if not schema.has_function:
        return False
    function = onnx.FunctionProto()
    function.ParseFromString(schema.get_function_with_opset_version(max(schema.function_opset_versions)))
    nodes = list(_nodes(function.node))
    return bool(nodes) and all(
        n.op_type in ZERO or (n.domain, n.op_type) in RULES or n.op_type == "Cast" or kind(n.op_type) != "forward-only"
        for n in nodes
    )


def _nodes(nodes: Iterable[onnx.NodeProto]) -> Iterator[onnx.NodeProto]:
    for node in nodes:
        yield node
        for attribute in node.attribute:
            yield from _nodes(attribute.g.node)


_SECTION = """## Gradients

Backends with automatic differentiation use their own. The others run the gradient that
`deep500.networks.gradients.autodiff` emits as ONNX nodes; of the suite's operators it passes

- by a rule of their own ({n_rule}): {rule};
- through the body that ONNX defines, unrolled, or read as the operator that replaced it ({n_body}): {body};
- with the derivative zero: {zero}.

No gradient is defined, because nothing floating goes in or comes out: {discrete}.

**Forward-only** (floating, without a rule; a loss that depends on one is refused by name): {forward_only}.
"""
