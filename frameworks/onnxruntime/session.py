"""From networks to sessions: the opset and IR version that the installed ONNX Runtime reads, options, its errors.

A network is at the newest opset that ``onnx`` knows; ONNX Runtime is usually behind. An operator that changed since
then is written at its older version where that version has the same attributes and arity: newer versions mostly add
dtypes, and for which dtypes it has kernels ONNX Runtime says itself. What changed more is expanded, or unsupported.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any

import onnx
import onnxruntime as ort
from onnx import helper
from onnxruntime.capi import onnxruntime_pybind11_state as errors

from deep500.errors import Deep500Error, InputError, NetworkError, UnsupportedOperator, nearest
from deep500.networks.execution.refusals import no_memory
from deep500.networks.node import OPSET, Node, from_proto
from deep500.networks.protos import domains_of, ir_version_for

OLDEST = 21
"""The oldest opset that is tried."""
BUILD_ERRORS = (
    errors.NotImplemented,
    errors.InvalidGraph,
    errors.Fail,
    errors.InvalidArgument,
    errors.RuntimeException,
    errors.InvalidProtobuf,
)
"""Exceptions of ONNX Runtime for a model that it cannot run."""
_MEMORY = re.compile(r"bad alloc|[Ff]ailed to allocate|out of memory|Available memory")
_INDEX = ("out of data bounds", "out of bounds", "out of range", "indices", "index")


LEVELS = {
    "disabled": ort.GraphOptimizationLevel.ORT_DISABLE_ALL,
    "basic": ort.GraphOptimizationLevel.ORT_ENABLE_BASIC,
    "extended": ort.GraphOptimizationLevel.ORT_ENABLE_EXTENDED,
    "all": ort.GraphOptimizationLevel.ORT_ENABLE_ALL,
}
"""How far ONNX Runtime rewrites a graph itself: not at all, for any kernels, for its own ones, for its layout too."""


def options(threads: int | None = None, in_order: bool = False, optimization: str = "all") -> ort.SessionOptions:
    """Options: deterministic kernels, errors raised instead of logged; ``OMP_NUM_THREADS`` counts as elsewhere.

    With ``in_order`` nodes run in the model's order and as they are: optimizers would merge those that are meant to run
    twice, and what they put in the place of others runs last of all nodes that could run. Without it ``optimization``
    is the level, one of :data:`LEVELS`.
    """
    if optimization not in LEVELS:
        raise InputError(
            f"got optimization {optimization!r}; expected a level of ONNX Runtime: {nearest(str(optimization), LEVELS)}"
        )
    chosen = ort.SessionOptions()
    chosen.graph_optimization_level = LEVELS[optimization]
    chosen.log_severity_level = 4
    chosen.use_deterministic_compute = True
    declared = os.environ.get("OMP_NUM_THREADS", "")
    chosen.intra_op_num_threads = threads or (int(declared) if declared.isdigit() else 0)
    if in_order:
        chosen.execution_order = ort.ExecutionOrder.PRIORITY_BASED  # of nodes that can run the one that comes first
        chosen.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    return chosen


_PLANNED = 1500  # nodes; planning takes about 0.7 s here and grows with the square


@cache
def has_kernel(domain: str, op_type: str) -> bool:
    """Whether ONNX Runtime has a kernel of its own for an operator, for some dtypes at least.

    Example:
        >>> has_kernel("", "Relu"), has_kernel("", "SoftmaxCrossEntropyLoss")
        (True, False)
    """
    return (domain, op_type) in {(kernel.domain, kernel.op_name) for kernel in errors.get_all_opkernel_def()}


def open_session(
    model: onnx.ModelProto, settings: ort.SessionOptions, providers: Sequence[Any] = ("CPUExecutionProvider",)
) -> ort.InferenceSession:
    """A session; raises one of :data:`BUILD_ERRORS`.

    Equal constants stay apart: BatchNormalization in training mode writes its new statistics into the old ones' memory,
    and all that share it would read them. A padded kernel stays padded: the fusion of a Pad with the Conv after it
    takes every Pad for one of the image (so in 1.31, which then refuses the model). A scale of a float64 product stays
    apart: the fused product holds it in float32. A Dropout that drops stays: where nothing reads its mask, as where no
    gradient flows to its input, it is taken for one that does not. An Expand to nothing stays: it is taken for one that
    spreads nothing. A network of thousands of nodes shares no memory by
    plan: the planner compares each value with all that are free, 40 s for a GRU of 256 steps, and what is read for the
    last time is given back without it, too.
    """
    in_order = settings.execution_order == ort.ExecutionOrder.PRIORITY_BASED  # its memory is planned to the byte
    settings.enable_mem_reuse = in_order or len(model.graph.node) <= _PLANNED
    disabled = ["ConstantSharing"] + ["Pad_Fusion"] * _pads_a_kernel(model) + ["MatMulScaleFusion"] * _is_double(model)
    disabled += ["EliminateDropout"] * _drops(model.graph) + ["ExpandElimination"] * _empties(model.graph)
    try:
        return ort.InferenceSession(
            model.SerializeToString(), settings, providers=list(providers), disabled_optimizers=disabled
        )
    except UnicodeDecodeError as error:  # its message quotes bytes of the model
        raise errors.Fail(error.object.decode("utf-8", "replace")) from error


def _pads_a_kernel(model: onnx.ModelProto) -> bool:
    padded = {node.output[0] for node in model.graph.node if node.op_type == "Pad"}
    return bool(padded) and any(node.op_type == "Conv" and node.input[1] in padded for node in model.graph.node)


def _drops(graph: onnx.GraphProto) -> bool:
    """Whether some Dropout, sub-graphs included, has a mode of its own."""
    inner = (attribute.g for node in graph.node for attribute in node.attribute if attribute.HasField("g"))
    return any(n.op_type == "Dropout" and len(n.input) > 2 for n in graph.node) or any(map(_drops, inner))


def _empties(graph: onnx.GraphProto) -> bool:
    """Whether some Expand has a constant shape with a size of 0."""
    shapes = {node.input[1] for node in graph.node if node.op_type == "Expand"}
    return any(t.name in shapes and not onnx.numpy_helper.to_array(t).all() for t in graph.initializer)


def _is_double(model: onnx.ModelProto) -> bool:
    graph, double = model.graph, onnx.TensorProto.DOUBLE
    return any(tensor.data_type == double for tensor in graph.initializer) or any(
        value.type.tensor_type.elem_type == double for value in graph.input
    )


@cache
def limits() -> tuple[int, int]:
    """(opset, IR version): the newest that the installed ONNX Runtime reads, found by trying."""
    settings = options(1)

    def reads(opset: int, ir: int) -> bool:
        x, y = (helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, [1]) for name in "xy")
        graph = helper.make_graph([helper.make_node("Relu", ["x"], ["y"])], "one", [x], [y])
        imports = [helper.make_operatorsetid("", opset)]
        try:
            open_session(helper.make_model(graph, opset_imports=imports, ir_version=ir), settings)
        except BUILD_ERRORS:
            return False
        return True

    opset = next((n for n in range(OPSET, OLDEST, -1) if reads(n, 8)), OLDEST)
    ir = next((n for n in range(onnx.IR_VERSION, 8, -1) if reads(opset, n)), 8)
    return opset, ir


def model_at(graph: onnx.GraphProto, opset: int) -> onnx.ModelProto:
    """A model around a graph whose operators are taken at that opset."""
    versions = {"": opset}
    for domain in sorted(domains_of(graph.node) - {""}):
        known = [s.since_version for s in onnx.defs.get_all_schemas() if s.domain == domain]
        versions[domain] = max(known, default=1)
    imports = [helper.make_operatorsetid(domain, version) for domain, version in versions.items()]
    ir = min(ir_version_for(imports), limits()[1])
    return helper.make_model(graph, opset_imports=imports, producer_name="deep500", ir_version=ir)


def exists_at(node: Node, opset: int) -> bool:
    """Whether the node, sub-graphs included, means the same at an older opset: same arity, no attribute unknown."""
    for graph in node.graphs:
        if not all(exists_at(from_proto(inner), opset) for inner in graph.node):
            return False
    return bool(node.domain) or _exists_at(node.op_type, opset, len(node.inputs), len(node.outputs), _attributes(node))


def _attributes(node: Node) -> tuple[str, ...]:
    """Attributes that differ from their defaults."""
    bare = Node(node.op_type, node.inputs, node.outputs, node.name, node.domain)
    return tuple(
        name
        for name, value in node.attributes.items()
        if not isinstance(value, (int, float, str)) or bare.attribute(name) != value
    )


@cache
def _exists_at(op_type: str, opset: int, inputs: int, outputs: int, attributes: tuple[str, ...]) -> bool:
    try:
        schema = onnx.defs.get_schema(op_type, opset, "")
    except onnx.defs.SchemaError:
        return False
    arity = inputs <= schema.max_input and outputs <= schema.max_output
    return arity and set(attributes) <= set(schema.attributes)


def strip(graph: onnx.GraphProto, opset: int) -> onnx.GraphProto:
    """The graph without attributes (all at their defaults, see :func:`exists_at`) that the opset does not know."""
    for proto in graph.node:
        for attribute in proto.attribute:
            if attribute.type == onnx.AttributeProto.GRAPH:
                strip(attribute.g, opset)
        if proto.domain or onnx.defs.get_schema(proto.op_type).since_version <= opset:
            continue
        known = onnx.defs.get_schema(proto.op_type, opset, "").attributes
        allowed = [a for a in proto.attribute if a.name in known]
        del proto.attribute[:]
        proto.attribute.extend(allowed)
    return graph


def reason(error: BaseException) -> str:
    """ONNX Runtime's message in one line, without its addresses in C++ sources."""
    text = str(error).strip().replace("\n", " ")
    return text.partition(" : ")[2].partition(" : ")[2] or text


def run_error(error: Exception, names: Mapping[str, Any] | Sequence[str]) -> Deep500Error:
    """The error of ours that stands for a failure during a run."""
    text = reason(error)
    if _MEMORY.search(text):
        return no_memory("a node of the network", text)
    if isinstance(error, errors.NotImplemented):
        return UnsupportedOperator(
            f"got a network that backend 'onnxruntime' cannot run ({text}); expected operators and dtypes that it has: "
            "try backend 'reference'"
        )
    if isinstance(error, errors.InvalidArgument) or any(word in text.lower() for word in _INDEX):
        return InputError(
            f"got inputs {list(names)} that an operator refuses ({text}); expected values, labels and indices in "
            "their range and shapes that fit: check the data"
        )
    return NetworkError(f"got operands that do not fit ({text}); expected ones that do: check the shapes of the inputs")
