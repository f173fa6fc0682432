"""ONNX's protobuf messages for types, attributes, nodes and graphs; :mod:`deep500.networks.onnx` has the files."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Protocol

import numpy as np
import onnx
from onnx import AttributeProto, TypeProto, helper, numpy_helper

from deep500.errors import NetworkError
from deep500.networks.node import EXACT, OPSET, Node, find_schema
from deep500.operators.registry import DOMAIN
from deep500.tensors import TensorDescriptor, dtype_from_onnx, dtype_name, dtype_to_onnx

MOST_BYTES = 2**31 - 2**25
"""Bytes of arrays in one message: protobuf's limit is 2 GiB, the rest is left to nodes."""

UNKNOWN = TensorDescriptor(None, None)
"""Descriptor of a value of which nothing is known."""


class ReadableParameter(Protocol):
    """The part of a :class:`~deep500.networks.network.Parameter` that is read here."""

    @property
    def value(self) -> np.ndarray: ...
    @property
    def trainable(self) -> bool: ...

    undrawn: Any


class ReadableNetwork(Protocol):
    """The part of a :class:`~deep500.networks.network.Network` that messages, shape inference and hashes read.

    A network asks for all three, so they cannot import it: they lie below.
    """

    @property
    def name(self) -> str: ...
    @property
    def inputs(self) -> Mapping[str, TensorDescriptor]: ...
    @property
    def outputs(self) -> Sequence[str]: ...
    @property
    def nodes(self) -> Sequence[Node]: ...
    @property
    def parameters(self) -> Mapping[str, ReadableParameter]: ...
    def values(self) -> list[str]:
        """Names of all values: inputs, parameters, then node outputs."""

    def producer(self, value: str) -> Node | None:
        """The node that writes a value, None for inputs and parameters."""


def _bytes(value: str | bytes) -> bytes:
    return value if isinstance(value, bytes) else value.encode("utf-8", errors="surrogateescape")


def tensor_proto(value: np.ndarray, name: str = "") -> onnx.TensorProto:
    """An array as a TensorProto; strings are arrays of objects."""
    array = np.asarray(value)
    return numpy_helper.from_array(array.astype(object) if array.dtype.kind in "US" else array, name)


_PYTHON_KINDS: dict[type, Any] = {
    bool: AttributeProto.INT,
    int: AttributeProto.INT,
    float: AttributeProto.FLOAT,
    str: AttributeProto.STRING,
    bytes: AttributeProto.STRING,
    onnx.GraphProto: AttributeProto.GRAPH,
    onnx.TypeProto: AttributeProto.TYPE_PROTO,
    onnx.SparseTensorProto: AttributeProto.SPARSE_TENSOR,
}
_LIST_OF = {
    AttributeProto.INT: AttributeProto.INTS,
    AttributeProto.FLOAT: AttributeProto.FLOATS,
    AttributeProto.STRING: AttributeProto.STRINGS,
    AttributeProto.TENSOR: AttributeProto.TENSORS,
    AttributeProto.GRAPH: AttributeProto.GRAPHS,
    AttributeProto.TYPE_PROTO: AttributeProto.TYPE_PROTOS,
    AttributeProto.SPARSE_TENSOR: AttributeProto.SPARSE_TENSORS,
}
_ENCODE: dict[Any, tuple[str, bool, Callable[[Any], Any]]] = {  # kind -> (field, is a list, how one element is stored)
    AttributeProto.INT: ("i", False, int),
    AttributeProto.FLOAT: ("f", False, float),
    AttributeProto.STRING: ("s", False, _bytes),
    AttributeProto.TENSOR: ("t", False, tensor_proto),
    AttributeProto.GRAPH: ("g", False, lambda v: v),
    AttributeProto.TYPE_PROTO: ("tp", False, lambda v: v),
    AttributeProto.SPARSE_TENSOR: ("sparse_tensor", False, lambda v: v),
    AttributeProto.INTS: ("ints", True, int),
    AttributeProto.FLOATS: ("floats", True, float),
    AttributeProto.STRINGS: ("strings", True, _bytes),
    AttributeProto.TENSORS: ("tensors", True, tensor_proto),
    AttributeProto.GRAPHS: ("graphs", True, lambda v: v),
    AttributeProto.TYPE_PROTOS: ("type_protos", True, lambda v: v),
    AttributeProto.SPARSE_TENSORS: ("sparse_tensors", True, lambda v: v),
}


def attribute_proto(name: str, value: Any, kind: int | None = None) -> AttributeProto:
    """A Python value as an attribute of the kind that the schema declares, or of the kind that the value looks like.

    An empty list without a declared kind becomes a list of integers. Raises NetworkError for a type that ONNX lacks.
    """
    kind = _kind_of(name, value) if kind is None else kind
    field, is_list, encode = _ENCODE[kind]
    proto = AttributeProto(name=name, type=kind)  # type: ignore[arg-type]
    if is_list:
        getattr(proto, field).extend([encode(v) for v in value])
    elif isinstance(encoded := encode(value), (int, float, bytes)):
        setattr(proto, field, encoded)
    else:
        getattr(proto, field).CopyFrom(encoded)
    return proto


def _kind_of(name: str, value: Any) -> Any:
    if isinstance(value, np.ndarray):
        return AttributeProto.TENSOR
    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, (list, tuple)):
        kinds = {_kind_of(name, v) for v in value} or {AttributeProto.INT}
        if kinds == {AttributeProto.INT, AttributeProto.FLOAT}:
            kinds = {AttributeProto.FLOAT}
        if len(kinds) == 1 and (only := kinds.pop()) in _LIST_OF:
            return _LIST_OF[only]
    elif type(value) in _PYTHON_KINDS:
        return _PYTHON_KINDS[type(value)]
    raise NetworkError(
        f"attribute {name!r}: got {value!r}; expected a number, a string, an array, a graph or a list of one kind of "
        "these: convert it"
    )


def node_proto(node: Node) -> onnx.NodeProto:
    """A node as ONNX's message, its attributes in the order of their names.

    Inputs that are left out at the end are no entries: ONNX Runtime ends the process where the axis of a DFT is ``""``.
    """
    schema = find_schema(node.op_type, node.domain)
    declared = schema.attributes if schema else {}
    inputs = node.inputs[: max((place for place, name in enumerate(node.inputs, 1) if name), default=0)]
    proto = onnx.NodeProto(op_type=node.op_type, input=inputs, output=node.outputs, name=node.name, domain=node.domain)
    for name, value in sorted(node.attributes.items()):
        if node.domain == DOMAIN and _is_cut(value):
            exact = attribute_proto(name, np.asarray(value, np.float64), AttributeProto.TENSOR)
            exact.doc_string = EXACT
            proto.attribute.append(exact)
            continue
        kind = int(declared[name].type) if name in declared else None
        proto.attribute.append(attribute_proto(name, value, kind))
    return proto


def _is_cut(value: Any) -> bool:
    """Return whether a float, or one in a list of numbers, is none of the 32 bits that ONNX has for attributes."""
    if isinstance(value, (list, tuple)):
        return all(type(v) in (int, float) for v in value) and any(map(_is_cut, value))
    with np.errstate(over="ignore"):
        return type(value) is float and float(np.float32(value)) != value


def type_proto(descriptor: TensorDescriptor) -> TypeProto:
    """A descriptor as ONNX's message; what is unknown stays unset, dtypes like ``"sequence(float32)"`` nest."""
    outer, _, inner = (descriptor.dtype or "").partition("(")
    if inner:
        nested = TensorDescriptor(inner[:-1], descriptor.shape)
        if outer == "sequence":
            return helper.make_sequence_type_proto(type_proto(nested))
        if outer == "optional":
            return helper.make_optional_type_proto(type_proto(nested))
        key, _, value = inner[:-1].partition(",")
        return helper.make_map_type_proto(dtype_to_onnx(key), type_proto(TensorDescriptor(value, descriptor.shape)))
    number = dtype_to_onnx(descriptor.dtype) if descriptor.dtype else onnx.TensorProto.UNDEFINED
    proto = helper.make_tensor_type_proto(number, None)
    if descriptor.shape is not None:
        proto.tensor_type.shape.CopyFrom(onnx.TensorShapeProto())  # a scalar has a shape without dimensions
        for size in descriptor.shape:
            dim = proto.tensor_type.shape.dim.add()
            if isinstance(size, str):
                dim.dim_param = size
            elif size is not None:
                dim.dim_value = size
    return proto


def descriptor_of(proto: TypeProto) -> TensorDescriptor:
    """The descriptor that a TypeProto stands for: the inverse of :func:`type_proto`."""
    kind = proto.WhichOneof("value")
    if kind in ("sequence_type", "optional_type"):
        inner = descriptor_of(getattr(proto, kind).elem_type)
        return TensorDescriptor(f"{kind.partition('_')[0]}({inner.dtype or 'undefined'})", inner.shape)
    if kind == "map_type":
        inner = descriptor_of(proto.map_type.value_type)
        return TensorDescriptor(f"map({dtype_from_onnx(proto.map_type.key_type)},{inner.dtype})", inner.shape)
    if kind != "tensor_type":
        return UNKNOWN
    tensor = proto.tensor_type
    shape = tuple(_size(d) for d in tensor.shape.dim) if tensor.HasField("shape") else None
    return TensorDescriptor(dtype_from_onnx(tensor.elem_type), shape)


def _size(dim: onnx.TensorShapeProto.Dimension) -> int | str | None:
    if dim.HasField("dim_value"):
        return dim.dim_value if dim.dim_value >= 0 else None  # some exporters write -1 for a free size
    return dim.dim_param if dim.dim_param and isinstance(dim.dim_param, str) else None  # bytes: not UTF-8


def value_info(name: str, descriptor: TensorDescriptor) -> onnx.ValueInfoProto:
    """A named descriptor as ONNX's message."""
    return helper.make_value_info(name, type_proto(descriptor))


def graph_proto(
    network: ReadableNetwork,
    descriptors: Mapping[str, TensorDescriptor],
    holds_data: Callable[[str, ReadableParameter], bool] = lambda name, parameter: True,
) -> onnx.GraphProto:
    """The network as a GraphProto.

    Args:
        network: is not changed.
        descriptors: dtypes and shapes to declare; unknown ones are left out except where ONNX wants an entry.
        holds_data: parameters for which it returns False are declared as inputs, with dtype and shape and no data.
    """
    graph = onnx.GraphProto(name=network.name or "network")
    graph.input.extend(value_info(n, d) for n, d in network.inputs.items())
    for name, parameter in network.parameters.items():
        if holds_data(name, parameter):
            graph.initializer.append(tensor_proto(parameter.value, name))
        else:
            described = TensorDescriptor(dtype_name(parameter.value.dtype), parameter.value.shape)
            graph.input.append(value_info(name, described))
    graph.node.extend(node_proto(node) for node in network.nodes)
    graph.output.extend(value_info(n, descriptors.get(n, UNKNOWN)) for n in network.outputs)
    inner = (n for node in network.nodes for n in node.writes if n not in network.outputs)
    known = ((n, descriptors[n]) for n in inner if n in descriptors)
    graph.value_info.extend(value_info(n, d) for n, d in known if d.dtype is not None and d.shape is not None)
    return graph


def domains_of(nodes: Iterable[onnx.NodeProto]) -> set[str]:
    """Domains of nodes, those inside their sub-graphs included."""
    domains = set()
    for node in nodes:
        domains.add("" if node.domain == "ai.onnx" else node.domain)
        for attribute in node.attribute:
            for graph in (attribute.g, *attribute.graphs):
                domains |= domains_of(graph.node)
    return domains


def model_proto(graph: onnx.GraphProto) -> onnx.ModelProto:
    """A model around a graph, at :data:`~deep500.networks.node.OPSET`, importing every domain that it uses."""
    versions: dict[str, int] = {"": OPSET}
    for domain in sorted(domains_of(graph.node) - {""}):
        schemas = [s.since_version for s in onnx.defs.get_all_schemas() if s.domain == domain]
        versions[domain] = max(schemas, default=1)
    imports = [helper.make_operatorsetid(domain, version) for domain, version in versions.items()]
    return helper.make_model(graph, opset_imports=imports, producer_name="deep500", ir_version=ir_version_for(imports))


def ir_version_for(imports: Iterable[onnx.OperatorSetIdProto]) -> int:
    """The lowest IR version that goes with these opsets and allows initializers that are not inputs (4)."""
    return max(4, helper.find_min_ir_version_for(list(imports), ignore_unknown=True))
