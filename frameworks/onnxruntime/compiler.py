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

from collections.abc import Collection, Iterable, Mapping, Sequence
from functools import lru_cache
from typing import Any

import onnx
import onnxruntime as ort

from deep500.errors import NetworkError, UnsupportedOperator, nearest
from deep500.frameworks.onnxruntime.operators import EXPANSIONS, overwrites, widen
from deep500.frameworks.onnxruntime.session import (
    BUILD_ERRORS,
    OLDEST,
    exists_at,
    limits,
    model_at,
    open_session,
    options,
    reason,
    strip,
)
from deep500.networks.gradient_rules.expansion import expand_function
from deep500.networks.gradient_rules.recurrent import UNROLLERS
from deep500.networks.graph import Network
from deep500.networks.node import Node
from deep500.networks.protos import UNKNOWN, graph_proto, node_proto, tensor_proto, value_info
from deep500.networks.rewrite import supersede
from deep500.tensors import TensorDescriptor

Descriptors = Mapping[str, TensorDescriptor]
_SMALL = 1024  # fixed parameters up to this many elements are tried with their values: kernels may insist on them
_ABSENT = ("No Op registered", "not a registered")  # complaints that hold whatever the dtypes are
_ROUNDS = 12  # expansions may need expansions


def compile_session(
    network: Network, outputs: Sequence[str], variables: Collection[str], settings: ort.SessionOptions,
    providers: Sequence[Any], seed: int,
) -> ort.InferenceSession:  # fmt: skip
    """A session that computes ``outputs``.

    Args:
        network: is not changed.
        outputs: values that nodes produce.
        variables: parameters that become inputs of the session; the others are part of it.
        settings, providers: of the session.
        seed: of nodes with randomness that have no seed of their own.

    Raises:
        UnsupportedOperator: naming every node that cannot be run.
    """
    work = cut(network, outputs)
    _seed(work, seed)
    _replace(work, {n.name: "" for n in work.nodes if overwrites(n)})
    for _ in range(_ROUNDS):
        opset, missing = _opset(work)
        error: Exception | None = None
        if not missing:
            try:
                return open_session(_model(work, variables, opset), settings, providers)
            except BUILD_ERRORS as refusal:
                error = refusal
        missing = missing or _refused(work, opset)
        if not missing and error is not None:
            return _older(work, variables, settings, providers, opset, error)
        _replace(work, missing)
    raise UnsupportedOperator("got operators whose bodies never end; expected ONNX's own: replace them")


def cut(network: Network, outputs: Sequence[str]) -> Network:
    """A network of only what the outputs depend on."""
    wanted, nodes = set(outputs), []
    for node in reversed(network.nodes):
        if wanted.intersection(node.writes):
            wanted.update(node.reads)
            nodes.append(node)
    work = Network(network.name)
    work.inputs = {n: d for n, d in network.inputs.items() if n in wanted}
    work._parameters = {n: p for n, p in network._parameters.items() if n in wanted}
    for node in reversed(nodes):
        work._insert(node)
    work.outputs = list(outputs)
    work._known = {n: d for n, d in network._known.items() if n in work._producers}
    return work


def _seed(work: Network, seed: int) -> None:
    """Give each node that draws at random a seed of its own: ONNX Runtime's default one belongs to the process."""
    for number, node in enumerate(work.nodes):
        schema = onnx.defs.get_schema(node.op_type) if not node.domain else None
        if schema is not None and "seed" in schema.attributes and "seed" not in node.attributes:
            drawn = (seed * 7919 + number * 104729) % 2**23  # some operators hold their seed as float32
            attributes = {**node.attributes, "seed": drawn}
            work._nodes[node.name] = Node(node.op_type, node.inputs, node.outputs, node.name, "", attributes)


def _opset(work: Network) -> tuple[int, dict[str, str]]:
    """The opset to write, and nodes that do not exist there."""
    newest = limits()[0]
    return newest, {n.name: f"newer than opset {newest}" for n in work.nodes if not exists_at(n, newest)}


def _model(work: Network, variables: Collection[str], opset: int) -> onnx.ModelProto:
    graph = graph_proto(work, work.descriptors(), lambda name, parameter: name not in variables)
    return model_at(strip(graph, opset), opset)


def _older(
    work: Network, variables: Collection[str], settings: ort.SessionOptions, providers: Sequence[Any], opset: int,
    error: Exception,
) -> ort.InferenceSession:  # fmt: skip
    """A model that is refused although each of its nodes is accepted: another opset, or the end."""
    for lower in range(opset - 1, OLDEST - 1, -1):
        if all(exists_at(node, lower) for node in work.nodes):
            try:
                return open_session(_model(work, variables, lower), settings, providers)
            except BUILD_ERRORS:
                continue
    raise UnsupportedOperator(
        f"got a network that backend 'onnxruntime' refuses ({reason(error)}); expected one that it runs: try backend "
        "'reference'"
    ) from error


# -- nodes one by one -------------------------------------------------------------------------------------------------
def _refused(work: Network, opset: int) -> dict[str, str]:
    """Nodes that ONNX Runtime refuses, with its reason."""
    descriptors, problems = work.descriptors(), {}
    for node in work.nodes:
        problem = _try_node(work, node, descriptors, opset)
        if problem:
            problems[node.name] = problem
    return problems


def _try_node(work: Network, node: Node, descriptors: Descriptors, opset: int) -> str | None:
    names = {n: n if node.graphs else f"i{k}" for k, n in enumerate(dict.fromkeys(node.reads))}
    unknown = any(descriptors.get(n, UNKNOWN).dtype is None for n in names)
    proto = node_proto(node)
    proto.name = ""
    proto.input[:] = [names.get(n, "") for n in node.inputs]
    proto.output[:] = [n and f"o{k}" for k, n in enumerate(node.outputs)]
    graph = onnx.GraphProto(name="one", node=[proto])
    for name, short in names.items():
        parameter = work._parameters.get(name)
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


def _replace(work: Network, missing: Mapping[str, str]) -> None:
    """Put other nodes in the place of refused ones; raises UnsupportedOperator for those that have no other."""
    descriptors, done, lost = work.descriptors(), {}, []
    for name, why in missing.items():
        node = work.node(name)
        taken = _expansion(work, node, descriptors)
        if taken is None:
            lost.append((node, why))
        else:
            done[name] = taken
    if lost:
        raise _unsupported(lost)
    supersede(work, done)


def _expansion(work: Network, node: Node, descriptors: Descriptors) -> dict[str, str] | None:
    for expand in (EXPANSIONS.get((node.domain, node.op_type)), expand_function, UNROLLERS.get(node.op_type), widen):
        taken = None if expand is None else expand(work, node, descriptors)
        if taken is not None:
            return taken
    return None


def _unsupported(lost: Iterable[tuple[Node, str]]) -> UnsupportedOperator:
    rows = [f"{n.name!r} ({n.domain + '.' if n.domain else ''}{n.op_type}: {why[:160]})" for n, why in lost]
    return UnsupportedOperator(
        f"got {len(rows)} node(s) that backend 'onnxruntime' cannot run: {'; '.join(rows[:20])}; expected operators and "
        "dtypes that it has kernels for: try backend 'reference', or remove these nodes"
    )


def check_outputs(network: Network, outputs: Sequence[str]) -> None:
    """Raise NetworkError for a name that is no value of the network."""
    for name in outputs:
        if not network.has_value(name):
            raise NetworkError(
                f"got output {name!r}; expected a value of the network: {nearest(name, network.values())}"
            )
