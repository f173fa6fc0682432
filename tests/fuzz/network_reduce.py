"""The smallest graph that still shows a finding: fewer outputs, values in place of what computes them, fewer nodes."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING

import numpy as np
import onnx
from onnx import helper, numpy_helper, shape_inference

from tests.fuzz.network_bare import Arrays

if TYPE_CHECKING:
    from tests.fuzz.networks import Bench

MOST = 80
"""Smaller graphs that are tried."""
LARGEST = 2**22
"""Elements of a value; without its strides a convolution may have as many as no machine holds."""
State = tuple[onnx.ModelProto, Arrays]
Change = Callable[[onnx.ModelProto, Arrays], Iterator[State]]


def reduce(bench: Bench, model: bytes, feeds: Arrays, seed: int, kind: str) -> tuple[bytes, Arrays]:
    """A smaller model with a finding of the same kind, and what it is fed."""
    changes: tuple[Change, ...] = (
        *(_one_output, functools.partial(_values_for_nodes, bench), _past_nodes, _fewer_attributes),
    )
    state: State = shape_inference.infer_shapes(onnx.load_model_from_string(model)), dict(feeds)
    tried: set[bytes] = set()

    def shows(candidate: State) -> bool:
        data = candidate[0].SerializeToString()
        if data in tried or len(tried) > MOST or _largest(candidate[0]) > LARGEST:
            return False
        tried.add(data)
        return any(finding.kind == kind for finding in bench.findings(data, candidate[1], seed, only=kind))

    while True:
        candidates = sorted((c for change in changes for c in change(*state) if _size(c) < _size(state)), key=_size)
        smaller = next(filter(shows, candidates), None)
        if smaller is None:
            return state[0].SerializeToString(), state[1]
        state = smaller


def describe(model: bytes, feeds: Arrays) -> str:
    """The graph in ONNX's text form and what it is fed."""
    proto = onnx.load_model_from_string(model)
    del proto.graph.value_info[:]
    fed = "\n".join(f"  {name} = {value.dtype}{list(value.shape)} {_short(value)}" for name, value in feeds.items())
    arrays = {tensor.name: numpy_helper.to_array(tensor) for tensor in proto.graph.initializer}
    held = "".join(f"\n  {name} = {value.dtype}{list(value.shape)} {_short(value)}" for name, value in arrays.items())
    del proto.graph.initializer[:]
    return f"{onnx.printer.to_text(proto.graph)}\n{fed}{held}"


def _short(value: np.ndarray) -> str:
    return np.array2string(value.ravel(), threshold=8, precision=6).replace("\n", "")


def _size(state: State) -> tuple[int, int, int, int]:
    graph = state[0].graph
    attributes = sum(len(node.attribute) for node in graph.node)
    return len(graph.node), len(graph.output), attributes, sum(value.size for value in state[1].values())


def _one_output(model: onnx.ModelProto, feeds: Arrays) -> Iterator[State]:
    """One value alone as output: of the first nodes first."""
    known = {v.name: v for v in (*model.graph.value_info, *model.graph.output)}
    for node in model.graph.node:
        for name in node.output:
            if name in known:
                yield _cut(model, feeds, [known[name]], {})


def _values_for_nodes(bench: Bench, model: onnx.ModelProto, feeds: Arrays) -> Iterator[State]:
    """Values in place of the nodes that compute them, whole numbers as arrays of the file: of the last nodes first."""
    known = {value.name for value in model.graph.output}
    values = bench.helper.ask("values", model.SerializeToString(), feeds).outputs
    for node in reversed(model.graph.node):
        frozen = {name: values[name] for name in node.output if name in values and name not in known}
        if frozen:
            yield _cut(model, feeds, list(model.graph.output), frozen)


def _past_nodes(model: onnx.ModelProto, feeds: Arrays) -> Iterator[State]:
    """Readers of a node's result read its first operand."""
    outputs = {value.name for value in model.graph.output}
    for node in model.graph.node:
        if len(node.output) == 1 and node.input and node.output[0] not in outputs:
            copy = onnx.ModelProto()
            copy.CopyFrom(model)
            for reader in copy.graph.node:
                reader.input[:] = [node.input[0] if name == node.output[0] else name for name in reader.input]
            yield _cut(copy, feeds, list(copy.graph.output), {})


def _fewer_attributes(model: onnx.ModelProto, feeds: Arrays) -> Iterator[State]:
    for index, node in enumerate(model.graph.node):
        for number in range(len(node.attribute)):
            copy = onnx.ModelProto()
            copy.CopyFrom(model)
            del copy.graph.node[index].attribute[number]
            if _sound(copy):
                yield copy, feeds


def _largest(model: onnx.ModelProto) -> int:
    """Elements of the largest value whose shape follows from the model's."""
    bare = onnx.ModelProto()
    bare.CopyFrom(model)
    del bare.graph.value_info[:]
    graph = shape_inference.infer_shapes(bare).graph
    shapes = ([d.dim_value for d in v.type.tensor_type.shape.dim] for v in (*graph.value_info, *graph.output))
    return max((math.prod(shape) for shape in shapes), default=0)


def _sound(model: onnx.ModelProto) -> bool:
    try:
        onnx.checker.check_model(model)
    except onnx.checker.ValidationError:
        return False
    return True


def _cut(model: onnx.ModelProto, feeds: Arrays, outputs: list[onnx.ValueInfoProto], frozen: Arrays) -> State:
    """Return the part of a model that some outputs need; frozen values become inputs."""
    copy = onnx.ModelProto()
    copy.CopyFrom(model)
    nodes, wanted = _needed(model.graph.node, {value.name for value in outputs}, set(frozen))
    graph = copy.graph
    kept = [v for v in graph.input if v.name in wanted]
    arrays = [tensor for tensor in graph.initializer if tensor.name in wanted]
    arrays += [numpy_helper.from_array(v, name) for name, v in frozen.items() if v.dtype.kind != "f"]
    frozen = {name: value for name, value in frozen.items() if value.dtype.kind == "f"}
    kept += [
        helper.make_tensor_value_info(n, helper.np_dtype_to_tensor_dtype(v.dtype), v.shape) for n, v in frozen.items()
    ]
    known = [value for value in graph.value_info if any(value.name in node.output for node in nodes)]
    made = helper.make_graph(nodes, "reduced", kept, outputs, arrays, value_info=known)
    copy.graph.CopyFrom(made)
    return copy, {**{name: value for name, value in feeds.items() if name in wanted}, **frozen}


def _needed(nodes: Iterable[onnx.NodeProto], wanted: set[str], stop: set[str]) -> tuple[list[onnx.NodeProto], set[str]]:
    kept, wanted = [], set(wanted)
    for node in reversed(list(nodes)):
        if wanted & (set(node.output) - stop):
            kept.append(node)
            wanted |= set(node.input)
    return kept[::-1], wanted
