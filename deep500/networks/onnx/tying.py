"""Arrays that a file stores once for several parameters, or several times for one: which are tied, which were merged.

Exporters store equal arrays once, and write a weight that is read in two ways, as an embedding and as the last layer,
twice. So nothing but values and notes tells tied parameters from equal ones:

* trained arrays are equal only if they are tied; ones and zeros of layers that were not trained, and layers that were
  copied from one, are equal by themselves;
* PyTorch's exporter by ``torch.export`` (``dynamo=True``) notes at each node which parameters it was given.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Container, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
import onnx

from deep500.networks.node import captures, graphs_of, rename_captures

Arrays: TypeAlias = dict[str, np.ndarray]

GENERATED = re.compile(
    r"^(/|\d+$|_?val_|onnx::|scalar_tensor|_?const)|_output_\d+$|constant|[/_][xy](:0)?$", re.IGNORECASE
)
"""Names that exporters make up for values that had none."""
FLOATS = {onnx.TensorProto.FLOAT, onnx.TensorProto.DOUBLE, onnx.TensorProto.FLOAT16, onnx.TensorProto.BFLOAT16}
KIND = "pkg.torch.export.graph_signature.InputSpec.kind"
SIGNATURE = "pkg.torch.export.ExportedProgram.graph_signature"
GIVEN = "pkg.torch.onnx.fx_node"
"""PyTorch's notes: what an array was, all parameters by the names that nodes know, what a node was given."""


@dataclass(frozen=True)
class ExporterNotes:
    """Notes of PyTorch's exporter by ``torch.export`` in a file; empty for others.

    Attributes:
        kinds: whether an array was a parameter, and no buffer; None for one of an operation that was given no
            parameter, which is a constant or was computed from parameters by the exporter.
        certain: parameters of which it is certain who reads them.
        absent: parameters that it left out.
    """

    kinds: Mapping[str, bool | None]
    certain: Collection[str]
    absent: Sequence[str]


def follow_notes(graph: onnx.GraphProto, mapped: Arrays) -> ExporterNotes:
    """Read the notes, and part what was merged, in place; arguments are :func:`part_merged`'s."""
    certain, marks = part_merged(graph, mapped), ((v.name, mark) for v in graph.value_info for mark in v.metadata_props)
    kinds: dict[str, bool | None] = {name: mark.value == "PARAMETER" for name, mark in marks if mark.key == KIND}
    kinds.update({name: kinds[source] for name, source in certain.items() if source in kinds})
    stored = {t.name for t in graph.initializer if t.data_type in FLOATS and np.prod(t.dims) > 1} - kinds.keys()
    if not _targets(graph):
        return ExporterNotes({}, (), ())
    lost = left_out(graph)
    parameters = {name for names, read in _operations(graph) if names - read - {*lost} for name in read}
    return ExporterNotes(kinds | dict.fromkeys(stored - parameters), certain.keys(), lost)


def part_merged(graph: onnx.GraphProto, mapped: Arrays) -> dict[str, str]:
    """Give parameters that PyTorch's exporter merged, by its notes, arrays of their own again, in place.

    Readers of an array that were given no parameter in common read different ones.

    Args:
        graph: as it was in the file.
        mapped: arrays of initializers that the graph does not hold.

    Returns:
        Parameters of which it is certain now who reads them, by the array that each was stored as.
    """
    noted, targets = _notes(graph), set(_targets(graph).values())
    stored = {t.name: t for t in graph.initializer if t.data_type in FLOATS and t.dims}
    readers: dict[str, list[tuple[onnx.NodeProto, frozenset[str]]]] = {}
    for node, _, parameters in noted:
        for name in sorted({*reads(node)} & stored.keys()):
            readers.setdefault(name, []).append((node, parameters))
    taken = {t.name for t in graph.initializer}.union(*(({*node.input, *node.output}) for node in graph.node))
    certain: dict[str, str] = {}
    for name, nodes in readers.items():
        if all(parameters for _, parameters in nodes) and not any(True for node, _ in nodes for _ in graphs_of(node)):
            certain[name] = name
            for places in _apart([parameters for _, parameters in nodes])[1:]:
                candidates = frozenset[str]().union(*(nodes[place][1] for place in places)) & targets - stored.keys()
                tensor = onnx.TensorProto()
                tensor.CopyFrom(stored[name])
                tensor.name = _called(name, candidates, taken)
                taken.add(tensor.name)
                certain[tensor.name] = name
                graph.initializer.append(tensor)
                if name in mapped:
                    mapped[tensor.name] = mapped[name]
                for place in places:
                    _redirect(nodes[place][0], {name: tensor.name})
    return certain


def left_out(graph: onnx.GraphProto) -> list[str]:
    """Parameters that nodes were given, by PyTorch's notes, and do not read: its exporter drops biases of zeros."""
    wide = {t.name for t in graph.initializer if sum(size > 1 for size in t.dims) > 1}
    lost: dict[str, None] = {}
    for parameters, read in _operations(graph):
        absent, missing = sorted(parameters - read), len(parameters) - len(read)
        biases = [name for name in absent if name.endswith("bias")]
        if absent == biases and read - parameters <= wide:
            missing = len(biases)  # no array that is computed beside them is one of them
        # weights that are transposed or joined, as of recurrent layers, have other names: then biases, if it is they
        for names in (absent, biases):
            if 0 < missing == len(names):
                lost.update(dict.fromkeys(names))
                break
    return list(lost)


def _operations(graph: onnx.GraphProto) -> Iterable[tuple[frozenset[str], set[str]]]:
    """Of the module's operations, the parameters that each was given, and the stored arrays that its nodes read.

    Nodes without a note may read any parameter.
    """
    stored = {tensor.name for tensor in graph.initializer if tensor.data_type in FLOATS}
    operations: dict[str, tuple[frozenset[str], set[str]]] = {}
    for node, note, parameters in _notes(graph):
        operations.setdefault(note, (parameters, set()))[1].update({*reads(node)} & stored)
    return operations.values()


def _targets(graph: onnx.GraphProto) -> dict[str, str]:
    """The parameters of the module, by the names that notes have for them."""
    signature = next((p.value for p in graph.metadata_props if p.key == SIGNATURE), "")
    return dict(re.findall(r"^(\w+): PARAMETER target='(.*)'$", signature, re.MULTILINE))


def _notes(graph: onnx.GraphProto) -> list[tuple[onnx.NodeProto, str, frozenset[str]]]:
    """Nodes, the note about the operation that each is part of, and the parameters that this was given."""
    targets, operations = _targets(graph), []
    for node in graph.node if targets else ():
        note = next((p.value for p in node.metadata_props if p.key == GIVEN), "")
        operations.append((node, note, frozenset(targets[n] for n in re.findall(r"%(\w+)", note) if n in targets)))
    return operations


def _apart(sets: list[frozenset[str]]) -> list[list[int]]:
    """Places of sets, together where they share an element, directly or through others; in order of the first."""
    groups: list[tuple[set[str], list[int]]] = []
    for place, elements in enumerate(sets):
        joined = [group for group in groups if group[0] & elements]
        others = [group for group in groups if not group[0] & elements]
        places = sorted([place, *(p for group in joined for p in group[1])])
        groups = [*others, (set(elements).union(*(group[0] for group in joined)), places)]
    return sorted(places for _, places in groups)


def _called(name: str, candidates: Collection[str], taken: Container[str]) -> str:
    """The name of the parameter that was merged into another, if it is clear which it is, else a number."""
    last = [c for c in candidates if c.rpartition(".")[2] == name.rpartition(".")[2] and c not in taken]
    numbers = (f"{name}.{number}" for number in range(2, 10**9))
    return last[0] if len(last) == 1 else next(fresh for fresh in numbers if fresh not in taken)


def tie_transposes(graph: onnx.GraphProto, arrays: Arrays, trainable: Iterable[str]) -> set[str]:
    """Let a weight that a file stores once more, transposed, be computed from the first, in place; returns the others.

    Args:
        graph: whose nodes are in order.
        arrays: by name; those that are computed are taken out.
        trainable: the weights, in order of preference.
    """
    firsts: dict[tuple[int, ...], list[str]] = {}
    computed = set()
    for name in trainable:
        array = arrays[name]
        if array.ndim != 2 or min(array.shape) < 2:
            continue
        alike = (n for n in firsts.get(array.shape[::-1], ()) if _is_transpose(arrays[n], array))
        first = next(alike, None)
        if first is None:
            firsts.setdefault(array.shape, []).append(name)
            continue
        graph.node.insert(0, onnx.helper.make_node("Transpose", [first], [name], perm=[1, 0]))
        computed.add(name)
    for name in computed:
        del arrays[name]
    return computed


def _is_transpose(a: np.ndarray, b: np.ndarray) -> bool:
    """Return whether one is the other's transpose and no symmetric matrix, which layers of their own may be."""
    if a.dtype != b.dtype or not np.array_equal(a[0], b[:, 0]):
        return False
    return np.array_equal(a.T, b) and _varies(a) and not (a.shape == b.shape and np.array_equal(a, b))


def resolve_identities(
    graph: onnx.GraphProto, arrays: Arrays, constants: set[str], weights: Container[str] | None = None
) -> bool:
    """Drop Identity nodes of arrays: what they give is the array itself, or one of its own.

    It is one of its own if it holds one number, as the ones and zeros of layers that were not trained, which exporters
    merge; and of PyTorch's older exporter, by tracing, if it has a parameter's name: what is tied there has one name.
    Weights that this exporter transposed have none, and are taken for copies where others are.

    Args:
        graph: whose nodes are in order; it is changed.
        arrays: by name.
        constants: those that are no weights.
        weights: those that are weights, in a file that PyTorch's older exporter wrote: buffers that are equal are no
            sign of layers that were copied.

    Returns:
        Whether weights that were stored once have arrays of their own now.
    """
    results = {value.name for value in graph.output}
    joined: dict[str, str] = {}
    others = []
    sources, parted = set(), False
    identities = [n for n in graph.node if n.op_type == "Identity" and not n.domain and n.input[0] in arrays]
    named = {n.output[0] for n in identities if weights is not None and not GENERATED.search(n.output[0])}
    copies = any(
        _varies(arrays[n.input[0]]) for n in identities if n.output[0] in named and n.input[0] in (weights or ())
    )
    for node in graph.node:
        _redirect(node, joined)
        if node.op_type == "Identity" and node.domain == "" and node.input[0] in arrays:
            source, name = node.input[0], node.output[0]
            sources.add(source)
            if not copies and source not in constants and name not in results | named and _varies(arrays[source]):
                joined[name] = source
                continue
            arrays[name] = arrays[source]  # adding it as a parameter will copy it
            if source in constants:
                constants.add(name)
            parted |= source not in constants and arrays[source].size > 1
        else:
            others.append(node)
    set_nodes(graph, others)
    read = {v for node in others for v in reads(node)} | results
    for name in sources - read:  # only the Identity nodes read it
        del arrays[name]
    return parted


def _varies(array: np.ndarray) -> bool:
    return array.dtype.kind not in "iubOSU" and array.size > 1 and bool((array != array.flat[0]).any())


def _redirect(node: onnx.NodeProto, names: Mapping[str, str]) -> None:
    """Let a node, and what its sub-graphs capture, read other values."""
    if names:
        node.input[:] = [names.get(name, name) for name in node.input]
        for attribute in node.attribute:
            if attribute.HasField("g"):
                attribute.g.CopyFrom(rename_captures(attribute.g, lambda name: names.get(name, name)))


def join_copies(graph: onnx.GraphProto, names: Container[str]) -> None:
    """Let nodes read parameters themselves where an exporter put an Identity between, as for ``w.clone()``, in place.

    Left there, the copy would be a parameter of its own.

    Args:
        graph: whose nodes are in order.
        names: of the parameters; a copy that is one of these stays one.
    """
    stored, results = {array.name for array in graph.initializer}, {value.name for value in graph.output}
    copies: dict[str, str] = {}
    others = []
    for node in graph.node:
        _redirect(node, copies)
        plain = node.op_type == "Identity" and not node.domain and node.input[0] in stored and node.input[0] in names
        if plain and node.output[0] not in results and node.output[0] not in names:
            copies[node.output[0]] = node.input[0]
        else:
            others.append(node)
    if copies:
        set_nodes(graph, others)


def reads(node: onnx.NodeProto) -> list[str]:
    """Values that a node reads, captures of its sub-graphs included."""
    inner = [v for graph in graphs_of(node) for v in captures(graph)]
    return [v for v in (*node.input, *inner) if v]


def set_nodes(graph: onnx.GraphProto, nodes: list[onnx.NodeProto]) -> None:
    """Put other nodes in place of a graph's."""
    if len(nodes) != len(graph.node):
        del graph.node[:]
        graph.node.extend(nodes)
