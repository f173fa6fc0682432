"""The lowest opset at which the nodes of a network mean what they mean in memory, without touching one of them.

Networks in memory are at the newest opset, which few runtimes read. But most operators did not change between opsets,
or learned new types only, so their nodes are valid, and the same, under an older label: a file gets the lowest one that
all of its nodes allow.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache

import onnx
from onnx import defs, helper

from deep500.networks.node import OPSET, decode, graphs_of
from deep500.tensors import TensorDescriptor

WRITTEN = 21
"""Opset of files where nothing newer is needed; it goes with IR version 10, which runtimes since 2024 read."""
LOWEST = 13
"""Below this opset labels are never changed: too many operators meant something else by the same signature."""
_MEANING = {
    **dict.fromkeys("Attention CenterCropPad DFT GridSample GroupNormalization Pad Resize".split(), OPSET),
    **dict.fromkeys("ScatterElements ScatterND Upsample".split(), OPSET),
    "Hardmax": 13,
    "RoiAlign": 16,
}
"""Operators that some version gave another meaning, or other words, by the same signature: from which opset on, at the
earliest, a label leaves them what they are (`OPSET`: only the newest)."""


_IN_OTHER_WORDS = {("Split", "num_outputs")}
"""Attributes that ONNX's converter writes in other words."""


def lowest_opset(
    graph: onnx.GraphProto, described: Mapping[str, TensorDescriptor] | None, floor: int = WRITTEN, at: int = OPSET
) -> int:
    """The lowest opset, ``floor`` or more, under whose label the nodes of a graph are valid and mean the same.

    Args:
        graph: at the opset ``at``.
        described: of its values; one that is not there, as behind a contributed operator, is of a type that some
            operator took at `WRITTEN`. None where types do not matter, as newer versions take all that older ones took.
        floor: not below `LOWEST`.
        at: the opset that the graph is at.

    Example:
        >>> from deep500.networks import create
        >>> lowest_opset(create("mlp").to_onnx().graph, create("mlp").descriptors(), 13)
        13
    """
    floor = min(max(floor, LOWEST), at)
    return max((_needed(node, described, floor, at) for node in _nodes(graph)), default=floor)


def lost_attributes(node: onnx.NodeProto, opset: int) -> list[str]:
    """Attributes of a node of the newest opset that say something, and that its operator does not have at another one.

    ONNX's converter drops them without a word, all but those that it knows how to write in other words.

    Example:
        >>> lost_attributes(helper.make_node("ReduceMax", ["x"], ["y"], noop_with_empty_axes=1), 15)
        ['noop_with_empty_axes']
    """
    newest, older = _schema(node, OPSET), _schema(node, opset)
    if newest is None or older is None:
        return []
    other_values = [a.name for a in node.attribute if a.name in newest.attributes and not _says_default(a, newest)]
    return [
        name for name in other_values if name not in older.attributes and (node.op_type, name) not in _IN_OTHER_WORDS
    ]


def strip_defaults(graph: onnx.GraphProto, opset: int) -> None:
    """Leave out attributes that an operator does not have at an opset and that say what holds without them."""
    for node in _nodes(graph):
        schema = _schema(node, opset)
        known = [a for a in node.attribute if schema is None or a.name in schema.attributes]
        if len(known) < len(node.attribute):
            del node.attribute[:]
            node.attribute.extend(known)


def _nodes(graph: onnx.GraphProto) -> list[onnx.NodeProto]:
    nodes = []
    for node in graph.node:
        nodes.append(node)
        for inner in graphs_of(node):
            nodes.extend(_nodes(inner))
    return nodes


def _schema(node: onnx.NodeProto, opset: int) -> defs.OpSchema | None:
    return _version(node.op_type, opset) if node.domain in ("", "ai.onnx") else None


@cache
def _version(operator: str, opset: int) -> defs.OpSchema | None:
    try:
        return defs.get_schema(operator, opset)
    except defs.SchemaError:
        return None


def _needed(node: onnx.NodeProto, described: Mapping[str, TensorDescriptor] | None, floor: int, at: int) -> int:
    schema = _schema(node, at)
    if schema is None or (described is None and _unchanged(node.op_type, floor, at)):
        return floor
    version = schema.since_version
    while version > floor:
        older = _schema(node, version - 1)
        equal_parts = node.op_type == "Split" and len(node.input) < 2  # since 18 they must be counted
        another = older is None or older.since_version < _MEANING.get(node.op_type, 0)
        if older is None or another or equal_parts or not _allows(older, schema, node, described):
            break
        version = older.since_version
    return max(version, floor)


@cache
def _unchanged(operator: str, floor: int, at: int) -> bool:
    """Return whether no version since ``floor`` changed more of an operator than the types that it takes."""
    newest = _version(operator, at)
    version = newest.since_version if newest is not None else floor
    while newest is not None and version > floor:
        older = _version(operator, version - 1)
        another = older is None or older.since_version < _MEANING.get(operator, 0)
        if older is None or another or _signature(older) != _signature(newest):
            return False
        version = older.since_version
    return True


def _signature(schema: defs.OpSchema) -> object:
    limits = (schema.min_input, schema.max_input, schema.min_output, schema.max_output, schema.deprecated)
    return limits, {name: _default(schema, name) for name in schema.attributes}


def _allows(
    older: defs.OpSchema, newest: defs.OpSchema, node: onnx.NodeProto, described: Mapping[str, TensorDescriptor] | None
) -> bool:
    """Return whether an older version takes a node as it is."""
    attributes = {a.name for a in node.attribute if not _says_default(a, newest)}
    if not attributes <= older.attributes.keys() & newest.attributes.keys():
        return False
    for name in older.attributes.keys() - attributes:  # a default that changed meanwhile would change the node
        if name not in newest.attributes or _default(older, name) != _default(newest, name):
            return False
    for schema in (older, newest):
        reads, writes = len(node.input), len(node.output)
        if not (schema.min_input <= reads <= schema.max_input and schema.min_output <= writes <= schema.max_output):
            return False
    return _same_values(node.input, older.inputs, newest.inputs, described) and _same_values(
        node.output, older.outputs, newest.outputs, described
    )


def _same_values(
    names: object, older: object, newest: object, described: Mapping[str, TensorDescriptor] | None
) -> bool:
    for position, name in enumerate(names):  # type: ignore[arg-type, var-annotated]
        if not name:
            continue
        before, now = (formal[min(position, len(formal) - 1)] for formal in (older, newest))  # type: ignore[index, arg-type]
        if described is None or before.types == now.types:
            continue
        dtype = described[name].dtype if name in described else None
        allows = now.types - before.types <= _later_types() if dtype is None else _word(dtype) in before.types
        if not allows:
            return False
    return True


@cache
def _later_types() -> frozenset[str]:
    """Types that no operator took or gave at `WRITTEN`."""
    newest, then = (
        {text for s in _schemas() if s.since_version <= opset for f in (*s.inputs, *s.outputs) for text in f.types}
        for opset in (OPSET, WRITTEN)
    )
    return frozenset(newest - then)


def _schemas() -> list[defs.OpSchema]:
    return [schema for schema in defs.get_all_schemas_with_history() if not schema.domain]


def _word(dtype: str) -> str:
    return f"tensor({_WORDS.get(dtype, dtype)})"


_WORDS = {"float32": "float", "float64": "double"}


def _says_default(attribute: onnx.AttributeProto, schema: defs.OpSchema) -> bool:
    if attribute.name not in schema.attributes or schema.attributes[attribute.name].required:
        return False
    default = _default(schema, attribute.name)
    return default is not None and default == decode(helper.get_attribute_value(attribute))


def _default(schema: defs.OpSchema, name: str) -> object:
    value = schema.attributes[name].default_value
    return decode(helper.get_attribute_value(value)) if value.type else None
