"""Dtype and shape of every value of a network: ONNX's shape inference, helped where it gives up.

Where the plain inference leaves something open, shape operands are computed, with numbers in place of symbolic sizes
(`open_shapes`). Weights are never copied: for shapes their dimensions are enough.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import lru_cache, partial
from typing import Any

import numpy as np
import onnx

from deep500.errors import Deep500Error
from deep500.networks.flow import is_flow
from deep500.networks.node import RANDOM, Node, graphs_of
from deep500.networks.protos import (
    UNKNOWN,
    ReadableNetwork,
    ReadableParameter,
    descriptor_of,
    graph_proto,
    model_proto,
    node_proto,
    tensor_proto,
    value_info,
)
from deep500.operators.registry import DOMAIN, is_registered
from deep500.tensors import Shape, TensorDescriptor, dtype_name

_SMALL = 256  # arrays up to this many elements may be operands that decide about shapes
_ROUNDS = 6

_MOST_FOLLOWED = 2**20
_WHOLE = (onnx.TensorProto.INT32, onnx.TensorProto.INT64)
_VECTORS = ("ConstantOfShape", "Expand", "Range", "Tile")  # a number of their operands is their results' size
_DRAWS = RANDOM - {"Dropout"}  # Dropout draws in training only, shapes are no matter of that

Descriptors = dict[str, TensorDescriptor]
Constants = dict[str, np.ndarray]


def infer_descriptors(network: ReadableNetwork, declared: Mapping[str, TensorDescriptor]) -> Descriptors:
    """Descriptors of all values; what cannot be inferred is None in its dtype, its shape or single sizes.

    Custom operators infer their own (:mod:`deep500.networks.custom_shapes`).

    Args:
        network: whose values are described.
        declared: what the file that the network came from says of values. It counts where a custom operator cannot
            tell or its plugin is missing, and for operators of other domains.

    Raises:
        NetworkError: a custom operator refuses its inputs or attributes; names the node.
    """
    inference = _Inference(network, declared)
    symbolic = inference.run({}, {})
    if all(_is_complete(symbolic[v]) for v in network.values() if network.producer(v)):
        return symbolic
    symbols = sorted({s for d in network.inputs.values() for s in d.shape or () if isinstance(s, str)})
    if not symbols:
        return inference.resolve({}, symbolic)
    from deep500.networks.open_shapes import infer_by_numbers  # most networks need none

    operands = [p.value for name, p in network.parameters.items() if _decides_shapes(name, p)]
    return infer_by_numbers(symbols, symbolic, operands, inference.feasible)


def _decides_shapes(name: str, parameter: ReadableParameter) -> bool:
    """Whether a parameter's values may be sizes, axes or indices; of weights the dimensions are enough."""
    return parameter.value.size <= _SMALL and (not parameter.trainable or parameter.value.dtype.kind in "iub")


def _is_complete(descriptor: TensorDescriptor) -> bool:
    return descriptor.dtype is not None and descriptor.shape is not None and None not in descriptor.shape


class _Inference:
    """Runs of ONNX's inference over one network, each with other numbers for its symbols."""

    def __init__(self, network: ReadableNetwork, declared: Mapping[str, TensorDescriptor]) -> None:
        self.network = network
        self.declared = declared
        self.skeleton = graph_proto(network, {}, _decides_shapes)
        _make_inferable(self.skeleton)
        kinds = {node.op_type for node in network.nodes}
        self.sizes = any(map(_may_go_wrong, network.nodes))
        self.cuts = "Slice" in kinds and any(kind.endswith(("Conv", "Pool")) for kind in kinds)

    def resolve(self, binding: Mapping[str, int], known: Descriptors | None = None) -> Descriptors:
        """Infer with numbers for symbols, folding what decides about shapes, until nothing new is learned.

        ``known`` is what a first run has told already.

        A shape that another operator computes (Shape, Gather, Concat, then Reshape) needs rounds: the inference gives
        the sizes that Shape reads, folding makes them the values that the next run reads.
        """
        constants: Constants = {
            n: p.value for n, p in self.network.parameters.items() if not p.trainable and _decides_shapes(n, p)
        }
        fixed = len(constants)
        descriptors = self.run(binding, {}) if known is None else known
        for _ in range(_ROUNDS):
            before = len(constants)
            _fold(self.network, descriptors, constants)
            if len(constants) == before:
                break
            descriptors = self.run(binding, dict(list(constants.items())[fixed:]))
            if all(map(_is_complete, descriptors.values())):
                break
        return descriptors

    def feasible(self, binding: Mapping[str, int]) -> Descriptors | None:
        """Like `resolve`; None where images are too small for the network's windows."""
        try:
            return self.resolve(binding)
        except _TooSmall:
            return None

    def run(self, binding: Mapping[str, int], folded: Constants) -> Descriptors:
        """One run of ONNX's inference; ``folded`` values enter as constants, so that their nodes are left out."""
        network, guessed = self.network, bool(binding)
        declared = {n: _bind(d, binding) for n, d in self.declared.items() if n not in folded and network.producer(n)}
        graph = self._graph(binding, folded)
        foreign = sorted(n for n in declared if _is_foreign(network.producer(n)))
        graph.value_info.extend(value_info(n, declared[n]) for n in foreign)
        try:
            if self.cuts:
                whole = onnx.GraphProto()
                whole.CopyFrom(graph)
                del whole.node[:]
                whole.node.extend(node for node in graph.node if node.op_type != "Slice")
                _refuse_too_small(_infer_shapes(model_proto(whole), declared, guessed))
            model = _infer_shapes(model_proto(graph), declared, guessed)
            if self.sizes:
                from deep500.networks.kernel_sizes import put_sizes  # few networks have such nodes

                while put_sizes(graph, model.graph):  # those behind another show when that has its sizes
                    model = _infer_shapes(model_proto(graph), declared, guessed)
            untold = declared.keys() - {value.name for value in model.graph.value_info}
            if open_values := [value_info(n, declared[n]) for n in sorted(untold) if declared[n].dtype is not None]:
                from deep500.networks.declared_shapes import with_declared  # few files tell more than inference

                model = with_declared(
                    graph, model, open_values, partial(_infer_shapes, declared=declared, guessed=guessed)
                )
            _refuse_too_small(model)
            known = {s for d in network.inputs.values() for s in d.shape or () if isinstance(s, str)}
            inferred = {v.name: _plain(descriptor_of(v.type), known) for v in model.graph.value_info}
        except _TooSmall:
            if binding:
                raise
            inferred = {}
        except Deep500Error:  # from a custom operator
            raise
        except (onnx.shape_inference.InferenceError, onnx.checker.ValidationError, ValueError, MemoryError):
            inferred = {}
        result = {n: _bind(d, binding) for n, d in network.inputs.items()}
        result |= {n: TensorDescriptor(dtype_name(p.value.dtype), p.value.shape) for n, p in network.parameters.items()}
        for name in network.values()[len(result) :]:
            if name in folded:
                result[name] = TensorDescriptor(dtype_name(folded[name].dtype), folded[name].shape)
            else:
                result[name] = _merge(inferred.get(name, UNKNOWN), declared.get(name, UNKNOWN))
        return result

    def _graph(self, binding: Mapping[str, int], folded: Constants) -> onnx.GraphProto:
        """The network's message with numbers for symbols and ``folded`` values in place of their nodes."""
        graph = onnx.GraphProto()
        graph.CopyFrom(self.skeleton)
        if folded:
            open_nodes = [n for n in graph.node if not all(o in folded for o in n.output if o)]
            del graph.node[:]
            graph.node.extend(open_nodes)
            graph.initializer.extend(tensor_proto(value, name) for name, value in folded.items())
        for value in graph.input:
            for dim in value.type.tensor_type.shape.dim:
                if dim.dim_param in binding:
                    dim.dim_value = binding[dim.dim_param]
        del graph.output[:]  # their declarations say nothing that inference does not
        return graph


def _may_go_wrong(node: Node) -> bool:
    """Whether ONNX's inference may say wrong sizes of a node, or none."""
    if node.op_type == "ConvTranspose":
        return str(node.attribute("auto_pad")).startswith("SAME") or min(node.attribute("pads") or (0,)) < 0
    return (node.op_type == "Resize" and len(node.inputs) == 3) or (
        node.op_type == "Split" and node.attribute("num_outputs") is not None
    )


class _TooSmall(Exception):
    """A size below 0, as of images that are smaller than a window."""


def _refuse_too_small(model: onnx.ModelProto) -> None:
    """Raise where a size is below 0: ONNX's inference ends the process at a Slice of such an axis."""
    for value in model.graph.value_info:
        if any(dim.dim_value < 0 for dim in value.type.tensor_type.shape.dim):
            raise _TooSmall(value.name)


def _infer_shapes(model: onnx.ModelProto, declared: Mapping[str, TensorDescriptor], guessed: bool) -> onnx.ModelProto:
    """ONNX's inference, with data propagation, for a model that may hold custom operators."""
    propagates = _propagates(model.graph)
    if not _holds_custom(model.graph):
        return onnx.shape_inference.infer_shapes(model, data_prop=propagates)
    from deep500.networks.custom_shapes import infer_custom_shapes  # most networks have none

    return infer_custom_shapes(model, declared, guessed, propagates)


def _make_inferable(graph: onnx.GraphProto) -> None:
    """Replace operators for which ONNX infers nothing, not even a dtype, by one of the same types and shapes."""
    for node in graph.node:
        if node.op_type == "GroupNormalization" and not node.domain:
            node.op_type = "InstanceNormalization"
            del node.attribute[:]
        for inner in graphs_of(node):
            _make_inferable(inner)


def _holds_custom(graph: onnx.GraphProto) -> bool:
    """Whether a node of the graph or of a sub-graph is of our domain."""
    inner = (attribute.g for node in graph.node for attribute in node.attribute if attribute.HasField("g"))
    return any(node.domain == DOMAIN for node in graph.node) or any(map(_holds_custom, inner))


def _propagates(graph: onnx.GraphProto) -> bool:
    """Whether values may be followed through the graph.

    ONNX writes out a message for every element of a vector that it follows, known or not: some hundred bytes each.
    """
    for value in graph.input:
        sizes = value.type.tensor_type.shape.dim
        if len(sizes) == 1 and sizes[0].dim_value > _MOST_FOLLOWED:
            return False
    numbers = [t for t in graph.initializer if t.data_type in _WHOLE and list(t.dims) in ([], [1])]
    large = {t.name for t in numbers if np.abs(onnx.numpy_helper.to_array(t).astype(float)).max() > _MOST_FOLLOWED}
    return not large or not any(node.op_type in _VECTORS and large.intersection(node.input) for node in graph.node)


def _is_foreign(node: Node | None) -> bool:
    """Whether only the file's declarations can tell the node's outputs before the run."""
    if node is None or is_flow(node):
        return False
    return node.domain != "" and not (node.domain == DOMAIN and is_registered(node.op_type))


def _bind(descriptor: TensorDescriptor, binding: Mapping[str, int]) -> TensorDescriptor:
    if descriptor.shape is None or not binding:
        return descriptor
    return replace(descriptor, shape=tuple(binding.get(d, d) if isinstance(d, str) else d for d in descriptor.shape))


def _plain(descriptor: TensorDescriptor, known: set[str]) -> TensorDescriptor:
    """Without the symbols that inference invents, which are none of the inputs'."""
    if descriptor.shape is None or not any(isinstance(d, str) for d in descriptor.shape):
        return descriptor
    sizes = tuple(
        None if isinstance(d, str) and d.startswith("unk__") and d not in known else d for d in descriptor.shape
    )
    return replace(descriptor, shape=sizes)


def _merge(first: TensorDescriptor, second: TensorDescriptor) -> TensorDescriptor:
    """Complete ``first`` by ``second`` where they do not contradict each other."""
    shape: Shape | None = first.shape if first.shape is not None else second.shape
    if first.shape is not None and second.shape is not None and len(first.shape) == len(second.shape):
        shape = tuple(b if a is None else a for a, b in zip(first.shape, second.shape, strict=True))
    return TensorDescriptor(first.dtype or second.dtype, shape)


def _fold(network: ReadableNetwork, descriptors: Descriptors, constants: Constants) -> None:
    """Add the values of nodes that depend on nothing but constants and static shapes, if they are small."""
    for node in network.nodes:
        outputs = node.writes
        if node.domain or node.op_type in _DRAWS or all(v in constants for v in outputs):
            continue
        known = all(v in constants for v in node.reads) and all(_is_small(descriptors[v]) for v in outputs)
        if known or node.op_type in ("Shape", "Size"):
            constants.update(_node_value(node, descriptors, constants))


def _node_value(node: Node, descriptors: Mapping[str, TensorDescriptor], constants: Constants) -> Constants:
    """Values that a node writes: a Shape or Size from what is known of its input, if enough, else from constants."""
    described = descriptors[node.inputs[0]] if node.inputs and node.inputs[0] else UNKNOWN
    if node.op_type == "Shape" and described.is_static:
        shape = np.array(described.shape, np.int64)
        return {node.outputs[0]: shape[node.attribute("start", 0) : node.attribute("end")]}
    if node.op_type == "Size" and described.size is not None:
        return {node.outputs[0]: np.array(described.size, np.int64)}
    return _evaluate(node, constants) if all(v in constants for v in node.reads) else {}


def folded_value(network: ReadableNetwork, descriptors: Mapping[str, TensorDescriptor], name: str) -> np.ndarray | None:
    """A small value that follows from fixed parameters and known shapes alone, None if it does not.

    Args:
        network: whose value it is.
        descriptors: of its values, from :func:`infer_descriptors`.
        name: of the value.
    """
    if name in network.parameters:
        parameter = network.parameters[name]
        return parameter.value if not parameter.trainable and parameter.value.size <= _SMALL else None
    node = network.producer(name)
    if node is None or node.domain or node.op_type in _DRAWS or node.graphs:
        return None
    constants: Constants = {}
    if node.op_type not in ("Shape", "Size"):
        for read in node.reads:
            value = folded_value(network, descriptors, read)
            if value is None:
                return None
            constants[read] = value
        if not all(_is_small(descriptors[v]) for v in node.writes):
            return None
    return _node_value(node, descriptors, constants).get(name)


def known_value(network: ReadableNetwork, name: str) -> np.ndarray | None:
    """The value of a fixed parameter, a Constant node, or a Concat of these, as exporters write scales; else None."""
    parameter = network.parameters.get(name) if name not in network.inputs else None
    if parameter is not None:
        return None if parameter.trainable else parameter.value
    producer = network.producer(name)
    if producer is not None and producer.op_type == "Concat":
        parts = [known_value(network, part) for part in producer.inputs]
        known = [part for part in parts if part is not None]
        return np.concatenate(known, int(producer.attributes["axis"])) if len(known) == len(parts) else None
    if producer is None or producer.op_type != "Constant":
        return None
    kinds = {"value_int": np.int64, "value_ints": np.int64, "value_float": np.float32, "value_floats": np.float32}
    for key, value in producer.attributes.items():
        if key == "value":
            return np.asarray(value)
        if key in kinds:
            return np.asarray(value, kinds[key])
    return None


def _is_small(descriptor: TensorDescriptor) -> bool:
    return descriptor.size is None or descriptor.size <= _SMALL


@lru_cache(maxsize=256)
def _evaluator(node: bytes) -> Any:
    """ONNX's evaluator of a node, given as bytes with numbers for names: preparing it takes longer than running it."""
    from onnx.reference import ReferenceEvaluator

    return ReferenceEvaluator(onnx.NodeProto.FromString(node))


def _evaluate(node: Node, constants: Constants) -> Constants:
    if any(isinstance(v, onnx.GraphProto) for v in node.attributes.values()):
        return {}
    proto = node_proto(node)
    places = {name: str(place) for place, name in enumerate(dict.fromkeys(node.reads))}
    proto.name = ""
    proto.input[:] = [places.get(name, "") for name in proto.input]
    proto.output[:] = [f"to {place}" if name else "" for place, name in enumerate(proto.output)]
    try:
        evaluator = _evaluator(proto.SerializeToString(deterministic=True))
        with np.errstate(all="ignore"):
            values = evaluator.run(None, {place: constants[name] for name, place in places.items()})
    except Exception:  # noqa: BLE001 - whatever goes wrong in there, the value just stays unknown
        return {}
    if not all(isinstance(v, (np.ndarray, np.generic)) and v.size <= _SMALL for v in values):
        return {}
    return {name: np.asarray(value) for name, value in zip(node.outputs, values, strict=False) if name}
