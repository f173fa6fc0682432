"""Networks made runnable for ONNX Runtime: sliced to what is wanted, with other nodes for those without a kernel.

ONNX Runtime has no list of what it can run; it refuses a model when a session is made. So a refused model is taken
apart: each distinct node is tried as a model of its own, and each that fails is replaced, in the same precision or a
finer one, by

1. an entry of :data:`deep500.frameworks.onnxruntime.operators.EXPANSIONS` (convolution in float64, for instance),
2. the body that ONNX's schema gives the operator, or unrolled time steps,
3. the operator itself on a wider dtype between Casts (int16 through int32, bfloat16 through float32),

until the whole is accepted. What is left over is one UnsupportedOperator naming every node.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from typing import Any
from zlib import crc32

import numpy as np
import onnx
import onnxruntime as ort

from deep500.errors import UnsupportedOperator
from deep500.frameworks.onnxruntime.division import guard_division
from deep500.frameworks.onnxruntime.operators import EXPANSIONS, is_wrong, widen
from deep500.frameworks.onnxruntime.session import (
    BUILD_ERRORS,
    OLDEST,
    exists_at,
    has_kernel,
    limits,
    model_at,
    open_session,
    options,
    reason,
    strip,
)
from deep500.networks.execution.operands import check_network
from deep500.networks.execution.program import expand
from deep500.networks.execution.sizes import GROWING, check_sizes
from deep500.networks.execution.slicing import needed_nodes, values_read, without_gradients
from deep500.networks.gradients.unrolling import UNROLLERS
from deep500.networks.graph import Graph
from deep500.networks.node import Node
from deep500.networks.protos import UNKNOWN, graph_proto, node_proto, tensor_proto, value_info
from deep500.networks.rewrite import supersede
from deep500.tensors import TensorDescriptor

Descriptors = Mapping[str, TensorDescriptor]
_SMALL = 1024  # fixed parameters up to this many elements are tried with their values: kernels may insist on them
_ABSENT = ("No Op registered", "not a registered")  # complaints that hold whatever the dtypes are
_ROUNDS = 12  # expansions may need expansions


def compile_session(
    network: Graph,
    outputs: Sequence[str],
    variables: Collection[str],
    settings: ort.SessionOptions,
    providers: Sequence[Any],
    seed: int,
) -> ort.InferenceSession:
    """A session that computes ``outputs``; see :func:`compile_model`."""
    return compile_model(network, outputs, variables, settings, providers, seed)[1]


def compile_model(
    network: Graph,
    outputs: Sequence[str],
    variables: Collection[str],
    settings: ort.SessionOptions,
    providers: Sequence[Any],
    seed: int,
) -> tuple[onnx.ModelProto, ort.InferenceSession]:
    """A model that computes ``outputs`` in operators that ONNX Runtime runs, and a session of it.

    Args:
        network: is not changed.
        outputs: values that nodes produce.
        variables: parameters that become inputs of the session; the others are part of it.
        settings, providers: of the session.
        seed: of nodes with randomness that have no seed of their own.

    Raises:
        UnsupportedOperator: naming every node that cannot be run.
    """
    work = _prepared(network, outputs, seed)
    first, reasons = work.nodes, dict[str, str]()
    origins, lost = {node.name: node.name for node in first}, set[str]()
    if settings.execution_order == ort.ExecutionOrder.PRIORITY_BASED or settings.enable_profiling:
        _inline(work, origins)  # ONNX Runtime's own inlining gives nodes no name that a profile could show
    newest = limits()[0]

    def opened(opset: int) -> tuple[onnx.ModelProto, ort.InferenceSession]:
        model = _model(work, variables, opset)
        return model, open_session(model, settings, providers)

    for _ in range(_ROUNDS):
        missing = _unfit(work, newest)  # known beforehand, so no session has to be tried for them
        if not missing.keys() - lost:
            error: Exception | None = None
            if not lost:
                try:
                    return opened(newest)
                except BUILD_ERRORS as refusal:
                    error = refusal
            # Refused as a whole, with a reason that names one node at most: try every node as a model of its own.
            missing = _refused(work, newest)
            older = None if lost else _older(work, missing, newest)
            if older is not None:
                try:
                    return opened(older)
                except BUILD_ERRORS as refusal:
                    raise _refusal(refusal) from refusal
            if not missing and error is not None:  # each node is accepted, together they are not
                raise _refusal(error) from error
            if not missing.keys() - lost:  # nothing new to replace: what is lost has no other form
                break
        for name, why in missing.items():
            reasons.setdefault(origins[name], why)
        lost |= _replace(work, {name: why for name, why in missing.items() if name not in lost}, origins)
    named = {origins[name] for name in lost} or set(reasons)
    raise _unsupported([(node, reasons[node.name]) for node in first if node.name in named])


def _prepared(network: Graph, outputs: Sequence[str], seed: int) -> Graph:
    """The part of a network that outputs need, checked, with seeds."""
    work = cut(network, outputs)
    if any(node.op_type in GROWING for node in work.nodes):
        check_sizes(work.nodes, network.descriptors())
    check_network(network, work.nodes)
    _seed(work, seed)
    return work


def _inline(work: Graph, origins: dict[str, str]) -> None:
    """Write out the operators that ONNX Runtime has no kernel for: it would do so itself, but run them last."""
    tried: set[str] = set()
    for _ in range(_ROUNDS):
        new = {n.name: _ABSENT[0] for n in work.nodes if n.name not in tried and not has_kernel(n.domain, n.op_type)}
        if not new:
            return
        tried.update(new)
        _replace(work, new, origins)


def _unfit(work: Graph, newest: int) -> dict[str, str]:
    """Nodes that need not be tried, and why."""
    descriptors = Described(work)
    wrong = {n.name: "another result than ONNX's" for n in work.nodes if is_wrong(n, descriptors)}
    return wrong | {n.name: f"newer than opset {newest}" for n in work.nodes if not exists_at(n, newest)}


def cut(network: Graph, outputs: Sequence[str]) -> Graph:
    """A network of only what the outputs depend on."""
    nodes = needed_nodes(without_gradients(network.nodes), outputs)
    read = values_read(nodes, outputs)
    work = Graph(network.name)
    work.inputs = {n: d for n, d in network.inputs.items() if n in read}
    work.put_parameters({n: p for n, p in network.parameters.items() if n in read})
    for node in nodes:
        work.insert(node)
    work.outputs = list(outputs)
    work.declare(network.declared)
    return work


class Described(Mapping[str, TensorDescriptor]):
    """Descriptors of a network's values; inferred, which takes long, only when one of a node's outputs is asked for."""

    def __init__(self, work: Graph) -> None:
        self._known = dict(work.inputs)
        self._known |= {n: TensorDescriptor(str(p.value.dtype), p.value.shape) for n, p in work.parameters.items()}
        self._infer: Callable[[], Descriptors] | None = work.descriptors

    def _all(self) -> dict[str, TensorDescriptor]:
        if self._infer is not None:
            self._known, self._infer = {**self._infer(), **self._known}, None
        return self._known

    def __getitem__(self, name: str) -> TensorDescriptor:
        return self._known[name] if name in self._known else self._all()[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._all())

    def __len__(self) -> int:
        return len(self._all())


def _seed(work: Graph, seed: int) -> None:
    """Give each node that draws at random a seed made of the executor's and its own, if it has one.

    ONNX Runtime's default seed belongs to the process; a seed of the node's alone would repeat itself after a reseed.
    Its name tells it from others, so that it draws the same under a checkpointing plan, which adds and moves nodes.
    """
    seeded = []
    for node in work.nodes:
        new, schema = node, onnx.defs.get_schema(node.op_type) if not node.domain else None
        if schema is not None and "seed" in schema.attributes:
            attribute = int(node.attributes.get("seed", 0))
            (drawn,) = np.random.SeedSequence([seed, crc32(node.name.encode()), attribute % 2**32]).generate_state(1)
            attributes = {**node.attributes, "seed": int(drawn) % 2**23}  # some operators hold their seed as float32
            new = replace(node, attributes=attributes)
        seeded.append(new)
    work.set_nodes(seeded)


def _model(work: Graph, variables: Collection[str], opset: int) -> onnx.ModelProto:
    graph = graph_proto(work, {}, lambda name, parameter: name not in variables)
    del graph.output[:]
    graph.output.extend(onnx.ValueInfoProto(name=name) for name in work.outputs)  # ONNX Runtime infers the types
    guard_division(graph, opset)
    return model_at(strip(graph, opset), opset)


def _older(work: Graph, missing: Mapping[str, str], newest: int) -> int | None:
    """An older opset at which the nodes missing have kernels and all others mean the same, if there is one."""
    descriptors = work.descriptors()
    for lower in range(newest - 1, OLDEST - 1, -1) if missing else ():
        if not all(exists_at(node, lower) for node in work.nodes):
            return None
        if not any(_try_node(work, work.node(name), descriptors, lower) for name in missing):
            return None if _refused(work, lower) else lower
    return None


def _refusal(error: Exception) -> UnsupportedOperator:
    """For a model that is refused although each of its nodes is accepted."""
    return UnsupportedOperator(
        f"got a network that backend 'onnxruntime' refuses ({reason(error)}); expected one that it runs: try backend "
        "'reference'"
    )


# -- nodes one by one -------------------------------------------------------------------------------------------------
def _refused(work: Graph, opset: int) -> dict[str, str]:
    """Nodes that ONNX Runtime refuses, with its reason."""
    descriptors, problems = work.descriptors(), {}
    for node in work.nodes:
        problem = _try_node(work, node, descriptors, opset) if exists_at(node, opset) else f"newer than opset {opset}"
        if problem:
            problems[node.name] = problem
    return problems


def _try_node(work: Graph, node: Node, descriptors: Descriptors, opset: int) -> str | None:
    names = {n: n if node.graphs else f"i{k}" for k, n in enumerate(dict.fromkeys(node.reads))}
    unknown = any(descriptors.get(n, UNKNOWN).dtype is None for n in names)
    proto = node_proto(node)
    proto.name = ""
    proto.input[:] = [names.get(n, "") for n in proto.input]
    proto.output[:] = [n and f"o{k}" for k, n in enumerate(node.outputs)]
    graph = onnx.GraphProto(name="one", node=[proto])
    for name, short in names.items():
        parameter = work.parameter(name) if work.has_parameter(name) else None
        if parameter is not None and not parameter.trainable and parameter.value.size <= _SMALL:
            graph.initializer.append(tensor_proto(parameter.value, short))
        else:
            described = descriptors.get(name, UNKNOWN)
            rank = None if described.shape is None else (None,) * len(described.shape)
            graph.input.append(value_info(short, TensorDescriptor(described.dtype or "float32", rank)))
    graph.output.extend(onnx.ValueInfoProto(name=n) for n in proto.output if n)
    problem = _try_graph(graph.SerializeToString(deterministic=True), opset)
    return None if problem and unknown and not any(word in problem for word in _ABSENT) else problem


@lru_cache(maxsize=4096)
def _try_graph(data: bytes, opset: int) -> str | None:
    graph = onnx.GraphProto.FromString(data)
    try:
        open_session(model_at(strip(graph, opset), opset), options(1))
    except BUILD_ERRORS as error:
        return reason(error)
    return None


def _replace(work: Graph, missing: Mapping[str, str], origins: dict[str, str]) -> set[str]:
    """Put other nodes in the place of these and return those that have no other.

    ``origins`` maps each node to the one that stood there first, which is what errors name.
    """
    rank = {node.name: i for i, node in enumerate(work.nodes)}
    descriptors = work.descriptors()  # before the first edit: after each, all would be inferred anew
    done, lost = dict[str, dict[str, str]](), set[str]()
    for name, why in missing.items():
        before = {node.name for node in work.nodes}
        taken = _expansion(work, work.node(name), descriptors, why)
        if taken is None:
            lost.add(name)
        else:
            done[name] = taken
        new = {node.name for node in work.nodes} - before
        origins.update(dict.fromkeys(new, origins[name]))
        rank.update(dict.fromkeys(new, rank[name]))  # they run where it would have run
    supersede(work, done)
    work.set_nodes(sorted(work.nodes, key=lambda node: rank[node.name]))
    return lost


def _expansion(work: Graph, node: Node, descriptors: Descriptors, why: str) -> dict[str, str] | None:
    choices = [EXPANSIONS.get((node.domain, node.op_type)), _body, UNROLLERS.get(node.op_type)]
    if not any(word in why for word in _ABSENT):
        choices.append(widen)
    for choice in choices:
        taken = None if choice is None else choice(work, node, descriptors)
        if taken is not None:
            return taken
    return None


def _body(work: Graph, node: Node, descriptors: Descriptors) -> dict[str, str] | None:
    """The schema's function body; its values get fresh names, the captures of its sub-graphs follow."""
    nodes = expand(node, descriptors)
    if nodes is None:
        return None
    taken = {}
    for inner in nodes:
        outputs = tuple(work.fresh_name(f"{node.name}/{v}") if v in node.writes else v for v in inner.outputs)
        taken.update({v: n for v, n in zip(inner.outputs, outputs, strict=True) if v in node.writes})
        inputs = tuple(taken.get(v, v) for v in inner.inputs)
        work.insert(Node(inner.op_type, inputs, outputs, work.fresh_name(inner.name), inner.domain, inner.attributes))
    return taken


def _unsupported(nodes: Sequence[tuple[Node, str]]) -> UnsupportedOperator:
    rows = [f"{n.name!r} ({n.domain + '.' if n.domain else ''}{n.op_type}: {why[:160]})" for n, why in nodes]
    return UnsupportedOperator(
        f"got {len(rows)} node(s) that backend 'onnxruntime' cannot run: {'; '.join(rows[:20])}; expected operators "
        "and dtypes that it has kernels for: try backend 'reference', or remove these nodes"
    )
