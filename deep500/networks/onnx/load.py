"""Read ONNX models as networks, or refuse them with an error that says what is wrong with the file.

A file that Deep500 wrote is read back exactly. A file that is not a sound model is a NetworkError, never a traceback
from protobuf.

The steps: parse; external data, only from inside the model's folder; ONNX's checker; local functions inlined; converted
up to :data:`~deep500.networks.node.OPSET`; brought into our form (:mod:`deep500.networks.onnx.normalise`). Large
arrays take no part in the middle steps, so that weights are not copied and 2 GiB is no limit.
"""

from __future__ import annotations

import json
import os
import warnings
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TypeVar

import numpy as np
import onnx
from onnx import numpy_helper

from deep500.errors import NetworkError
from deep500.networks.flow import take_functions
from deep500.networks.graph import AnyGraph, Choice
from deep500.networks.node import OPSET, from_proto
from deep500.networks.onnx import classical, fused
from deep500.networks.onnx.dump import CONSTANTS_KEY, UNRANKED_KEY, first_line, give_ranks
from deep500.networks.onnx.embedded import without_weights
from deep500.networks.onnx.limits import check_limits
from deep500.networks.onnx.normalise import (
    densify,
    find_scans,
    normalise,
    restore_batch_axis,
    restore_places,
    write_out,
)
from deep500.networks.onnx.opsets import lowest_opset
from deep500.networks.onnx.outside import SMALL, check_extent, map_initializers
from deep500.networks.onnx.scopes import reveal
from deep500.networks.onnx.trainable import Judgement, choose, judge, warning_text
from deep500.networks.onnx.tying import GENERATED, Arrays, follow_notes, tie_transposes
from deep500.networks.protos import UNKNOWN, descriptor_of, tensor_proto, value_info
from deep500.networks.ties import one_number, shared_parameters
from deep500.tensors import TensorDescriptor, dtype_name

_T = TypeVar("_T")


class DoubtfulParametersWarning(UserWarning):
    """A file holds arrays that may be weights and stay fixed; the line names them with the reasons."""


class MergedParametersWarning(UserWarning):
    """Nodes of a file read the same constant weights, which an exporter may have merged; the line names them."""


class LeftOutParametersWarning(UserWarning):
    """PyTorch's exporter left parameters out of a file; the line names them."""


def load(
    model: str | os.PathLike[str] | bytes | onnx.ModelProto, trainable: Choice | None, kind: type[AnyGraph]
) -> AnyGraph:
    """Read an ONNX model.

    Args:
        model: a path, the bytes of a file, or a message (which is not changed).
        trainable: the arrays that train: names or patterns (``"*.weight"``), or a function of name and array. None:
            those that a Deep500 file lists, else those that are read as weights (not running statistics, bounds,
            tables of sines and the like, see :mod:`deep500.networks.onnx.trainable`); where that is doubtful an array
            stays fixed, and one warning names these.
        kind: the class of what is returned.

    Initializers become parameters, those of sub-graphs, too; ``Constant`` nodes become parameters that are not
    trainable; what is tied and what has arrays of its own, :mod:`deep500.networks.onnx.tying` decides.

    Raises:
        NetworkError: no such file, not an ONNX model, truncated, too new, invalid, or external data outside the folder.
        InputError: ``trainable`` names what the file does not have.
    """
    # Arrays are taken out twice: before the conversion, so that large ones take no part in it, and after it, because
    # the converter adds small ones (axes that were attributes), changes and removes them.
    where, proto, mapped = _parse(model)
    _check_versions(proto, where)
    check_limits(proto, where)
    proto.ir_version = max(proto.ir_version, 4)  # before 4, initializers had to be inputs too
    metadata = {p.key: p.value for p in proto.metadata_props}
    unranked = {*give_ranks(proto.graph), *_read_list(metadata, UNRANKED_KEY, where)}
    declared = {v.name: descriptor_of(v.type) for v in (*proto.graph.value_info, *proto.graph.output)}
    by_tracing = proto.producer_name == "pytorch" and not proto.graph.metadata_props
    notes = _guard(where, "notes that agree with the graph", lambda: follow_notes(proto.graph, mapped))
    original = _guard(where, "tensors that agree with their dimensions", lambda: _take_arrays(proto.graph, mapped))
    proto = _at_newest_opset(proto, where)
    small = _guard(where, "sound tensors", lambda: _take_arrays(proto.graph, {}))
    large = {n: small.get(n, a) for n, a in original.items() if n in small or a.size > SMALL}
    arrays = large | small
    constants = set(small) - set(original)  # what the converter adds is no weight
    parted = False
    del original, small, large  # the last hold on the weights is ``arrays``, which building lets go one by one
    if CONSTANTS_KEY in metadata:
        constants.update(_read_list(metadata, CONSTANTS_KEY, where))
        judged = Judgement(frozenset(n for n, a in arrays.items() if n not in constants and _is_floating(a)), {})
    else:
        parted = _guard(where, "sound tensors", lambda: normalise(proto.graph, arrays, constants, by_tracing))
        judged = judge(proto.graph, arrays, constants, notes.kinds)
        named = sorted(judged.trainable, key=lambda name: (bool(GENERATED.search(name)), name))
        judged = replace(judged, trainable=judged.trainable - tie_transposes(proto.graph, arrays, named))
    if trainable is not None:
        judged = Judgement(choose(arrays, trainable), {})
    try:
        expected = "names and attributes that ONNX allows"
        network = _guard(where, expected, lambda: _build(kind, proto.graph, arrays, judged, unranked))
    except NetworkError as error:
        raise error if str(error).startswith(f"{where}: ") else NetworkError(f"{where}: {error}") from error
    _warn(where, network, judged, notes.absent)
    if trainable is None and CONSTANTS_KEY not in metadata:
        shared = {name: nodes for name, nodes in shared_parameters(network).items() if name not in notes.certain}
        _warn_of_merged(where, shared, one_number(network), parted)
    network.declare({n: d for n, d in declared.items() if n not in unranked and d != UNKNOWN})
    return network


def _warn(where: str, network: AnyGraph, judged: Judgement, absent: Sequence[str]) -> None:
    """Warn of arrays that may be weights and stay fixed, and of parameters that are not in the file."""
    if judged.doubtful:
        count = len(judged.trainable)
        text = warning_text(where, count, len(network.parameters) - count, judged.doubtful.items())
        warnings.warn(text, DoubtfulParametersWarning, stacklevel=4)
    if absent:
        more = f" and {len(absent) - 3} more" * (len(absent) > 3)
        text = (
            f"{where}: got no array for {', '.join(map(repr, absent[:3]))}{more}; expected all parameters: PyTorch's "
            "exporter leaves biases of zeros out, which then do not train; give the module itself to "
            "deep500.networks.as_network, or export it when it is trained"
        )
        warnings.warn(text, LeftOutParametersWarning, stacklevel=4)


def _warn_of_merged(where: str, shared: dict[str, list[str]], numbers: Collection[str], parted: bool) -> None:
    """Warn of parameters, by the nodes that read them, that an exporter may have merged.

    Args:
        where: how the file is called.
        shared: all that several nodes read.
        numbers: all that hold one number everywhere, of which a network has some until it trains.
        parted: whether there were merged ones that are parted already.
    """
    merged = {name: readers for name, readers in shared.items() if name in numbers}
    copies = {name: readers for name, readers in shared.items() if name not in numbers}
    if merged:
        text = (
            f"{where}: got {_first(merged, 'one number everywhere')}; expected parameters of their own, unless they "
            "are tied: an exporter that merges equal arrays makes them train as one; deep500.networks.untie(network) "
            "parts them"
        )
        warnings.warn(text, MergedParametersWarning, stacklevel=4)
    if copies and (numbers or parted):
        text = (
            f"{where}: got {_first(copies, 'tied')}, in a network whose scales and biases were not trained; expected "
            "so where its author tied them: layers that were copied from one, as nn.TransformerEncoder's, are equal "
            "until they train, and an exporter merges them; deep500.networks.untie(network, NAMES) parts them"
        )
        warnings.warn(text, MergedParametersWarning, stacklevel=4)


def _first(merged: dict[str, list[str]], what: str) -> str:
    name, readers = next(iter(merged.items()))
    more = f" and {len(merged) - 1} more" if len(merged) > 1 else ""
    shown = f"{', '.join(readers[:3])}{', ...' if len(readers) > 3 else ''}"
    return f"{name!r}{more}, {what}, for {len(readers)} nodes ({shown})"


def _guard(where: str, expected: str, action: Callable[[], _T]) -> _T:
    """Run a function of ONNX's and turn any error that it raises for a bad model into a NetworkError."""
    try:
        return action()
    except NetworkError:
        raise
    except Exception as error:
        raise NetworkError(
            f"{where}: got {first_line(error) or type(error).__name__}; expected {expected}: export the model again"
        ) from error


def _is_floating(array: np.ndarray) -> bool:
    return array.dtype.kind not in "iubOSU"


# -- reading ----------------------------------------------------------------------------------------------------------
def _parse(model: str | os.PathLike[str] | bytes | onnx.ModelProto) -> tuple[str, onnx.ModelProto, Arrays]:
    """How errors call the model (its path, or "model"), the model, and large arrays that it does not hold itself."""
    expected = "a complete ONNX model"
    if isinstance(model, (onnx.ModelProto, bytes)):
        where = "model"
        if isinstance(model, bytes):
            proto = _guard("bytes", expected, lambda: onnx.load_model_from_string(model))
        else:
            proto = onnx.ModelProto()
            proto.CopyFrom(model)
        outside = next((t.name for t in _tensors(proto) if t.data_location == onnx.TensorProto.EXTERNAL), None)
        if outside is not None:
            raise NetworkError(
                f"model: got tensor {outside!r} with its data in another file; expected all data inside: pass the path"
            )
        return where, proto, {}
    path = Path(model)
    if not path.is_file():
        what = "a directory" if path.is_dir() else "a file that does not exist"
        raise NetworkError(f"{path}: got {what}; expected an ONNX file: check the path")
    content, inside = _guard(str(path), expected, lambda: without_weights(path))
    proto = _guard(str(path), expected, lambda: onnx.load_model_from_string(content))
    _check_external(proto, path)
    folder, expected = path.parent, "complete external data"
    mapped = inside | _guard(str(path), expected, lambda: map_initializers(proto.graph, folder, SMALL))
    _guard(str(path), expected, lambda: onnx.load_external_data_for_model(proto, str(folder)))
    return str(path), proto, mapped


def _check_external(proto: onnx.ModelProto, path: Path) -> None:
    """Refuse external data that does not lie in the model's folder or below, links included, or not in its file."""
    folder = path.parent.resolve()
    for tensor in _tensors(proto):
        if tensor.data_location == onnx.TensorProto.EXTERNAL:
            location = next((e.value for e in tensor.external_data if e.key == "location"), "")
            target = _resolved(folder, location)
            if not location or Path(location).is_absolute() or target is None or not target.is_relative_to(folder):
                raise NetworkError(
                    f"{path}: got external data at {location!r} for tensor {tensor.name!r}; expected a file inside the "
                    "model's folder: move it there"
                )
            if not target.is_file():
                raise NetworkError(
                    f"{path}: got no file {location!r}, which holds tensor {tensor.name!r}; expected it beside the "
                    "model: copy it there"
                )
            check_extent(tensor, target, str(path))


def _resolved(folder: Path, location: str) -> Path | None:
    """The file that a location means; None for links in a circle and names that no file can have."""
    try:
        return (folder / location).resolve()
    except (OSError, RuntimeError, ValueError):  # links in a circle are a RuntimeError before Python 3.13
        return None


def _tensors(proto: onnx.ModelProto) -> Iterator[onnx.TensorProto]:
    """Every tensor of a model, wherever it stands: any of them may point to another file."""
    yield from _tensors_of(proto.graph)
    for function in proto.functions:
        yield from _tensors_in(function.node)


def _tensors_of(graph: onnx.GraphProto) -> Iterator[onnx.TensorProto]:
    yield from graph.initializer
    for sparse in graph.sparse_initializer:
        yield from (sparse.values, sparse.indices)
    yield from _tensors_in(graph.node)


def _tensors_in(nodes: object) -> Iterator[onnx.TensorProto]:
    for node in nodes:  # type: ignore[attr-defined]
        for attribute in node.attribute:
            if attribute.HasField("t"):
                yield attribute.t
            yield from attribute.tensors
            for sparse in (
                *[attribute.sparse_tensor][: attribute.HasField("sparse_tensor")],
                *attribute.sparse_tensors,
            ):
                yield from (sparse.values, sparse.indices)
            for graph in (*[attribute.g][: attribute.HasField("g")], *attribute.graphs):  # not checked yet: all fields
                yield from _tensors_of(graph)


def _read_list(metadata: dict[str, str], key: str, where: str) -> list[str]:
    """A list of names that Deep500 wrote into a model's metadata."""
    values = _guard(where, f"a JSON list as metadata {key}", lambda: json.loads(metadata.get(key, "[]")))
    if not isinstance(values, list) or not all(isinstance(v, str) for v in values):
        raise NetworkError(f"{where}: got {values!r} as metadata {key}; expected a list of names: remove that entry")
    return values


# -- checking and converting ------------------------------------------------------------------------------------------
def _check_versions(proto: onnx.ModelProto, where: str) -> None:
    if proto.ir_version < 1 or not proto.HasField("graph"):
        raise NetworkError(
            f"{where}: got no ONNX model (it holds neither version nor graph); expected a complete one: export it again"
        )
    newest = max([o.version for o in proto.opset_import if o.domain in ("", "ai.onnx")], default=0)
    for what, got, most in (("IR version", proto.ir_version, onnx.IR_VERSION), ("opset", newest, OPSET)):
        if got > most:
            raise NetworkError(
                f"{where}: got {what} {got}; expected at most {most}, the newest that onnx {onnx.__version__} knows: "
                "update onnx, or export the model for an older version"
            )


def _take_arrays(graph: onnx.GraphProto, mapped: Arrays) -> Arrays:
    """Arrays of all initializers; in the graph the large ones become inputs, none stays sparse or twice."""
    arrays = {
        t.name: mapped[t.name] if t.name in mapped else np.asarray(numpy_helper.to_array(t)) for t in graph.initializer
    }
    arrays |= {s.values.name: densify(s) for s in graph.sparse_initializer}
    inputs = [v for v in graph.input if v.name not in arrays]
    for field in (graph.input, graph.initializer, graph.sparse_initializer):
        del field[:]
    graph.input.extend(inputs)
    for name, array in arrays.items():
        if array.size <= SMALL:
            graph.initializer.append(tensor_proto(array, name))
        else:
            graph.input.append(value_info(name, TensorDescriptor(dtype_name(array.dtype), array.shape)))
    return arrays


def _at_newest_opset(proto: onnx.ModelProto, where: str) -> onnx.ModelProto:
    """The model, checked, with local functions inlined and at our opset."""
    fused.claim(proto)
    take_functions(proto)
    _guard(where, "a valid ONNX model", lambda: onnx.checker.check_model(proto))
    if proto.functions:
        from onnx import inliner

        proto = _guard(where, "functions that can be inlined", lambda: inliner.inline_local_functions(proto, True))
    for imported in proto.opset_import:
        if imported.domain == "ai.onnx":
            imported.domain = ""
    ours = any(p.key == CONSTANTS_KEY for p in proto.metadata_props)
    if not ours:  # a file of ours is read back as the network was
        reveal(proto.graph)
    versions = {o.version for o in proto.opset_import if o.domain == ""}
    batched = find_scans(proto.graph) if versions and min(versions) < 9 else set()
    if len(versions) == 1 and lowest_opset(proto.graph, None, min(versions)) == min(versions):
        # The nodes mean the same under our label: the converter would take longer, and write sub-graphs anew.
        next(o for o in proto.opset_import if o.domain == "").version = OPSET
    elif versions and versions != {OPSET}:
        from onnx import version_converter

        model = proto
        write_out(proto.graph, min(versions))
        expected = f"operators that ONNX can convert to opset {OPSET}"
        proto = _guard(where, expected, lambda: version_converter.convert_version(model, OPSET))
        if batched:
            restore_batch_axis(proto.graph, batched, model.graph)
        restore_places(proto.graph, min(versions))
    classical.expand(proto.graph, where)
    return proto


# -- building ---------------------------------------------------------------------------------------------------------
def _build(
    kind: type[AnyGraph], graph: onnx.GraphProto, arrays: Arrays, judged: Judgement, unranked: set[str]
) -> AnyGraph:
    network = kind(graph.name if isinstance(graph.name, str) else "network")  # protobuf gives bad text as bytes
    for value in graph.input:
        if value.name not in arrays:
            described = descriptor_of(value.type)
            shape = None if value.name in unranked else described.shape
            network.add_input(value.name, shape, described.dtype)  # type: ignore[arg-type]
    taken_over: set[int] = set()
    while arrays:  # each is let go once it is copied, so that two of all are never held
        name = next(iter(arrays))
        array = arrays.pop(name)
        private = (
            array.flags.writeable and id(array) not in taken_over
        )  # mapped, see outside.py, and not shared by Identity
        taken_over |= {id(array)} if private else set()
        network.add_parameter(name, array, name in judged.trainable, judged.doubtful.get(name, ""), copy=not private)
    reserved = {node.name for node in graph.node}  # a made-up name must not be one that a later node has
    taken: set[str] = set()
    for node in graph.node:
        name = node.name
        if not name or name in taken:
            base = name or f"{node.op_type}_{next(filter(None, node.output), '')}"
            name = next(candidate for candidate in _numbered(base) if candidate not in reserved)
            reserved.add(name)
        taken.add(name)
        network.insert(from_proto(node, name))
    for value in graph.output:
        network.add_output(value.name)
    return network


def _numbered(base: str) -> Iterator[str]:
    """``base``, ``base_1``, ``base_2``, ..."""
    yield base
    number = 0
    while True:
        number += 1
        yield f"{base}_{number}"
