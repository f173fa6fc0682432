"""Write networks as ONNX models, with metadata from which :mod:`deep500.networks.onnx.load` restores them exactly."""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import onnx
from google.protobuf.message import EncodeError  # type: ignore[import-untyped]
from onnx import version_converter

from deep500.errors import NetworkError
from deep500.networks.drawing import check_drawn
from deep500.networks.flow import give_functions
from deep500.networks.node import OPSET
from deep500.networks.onnx import outside
from deep500.networks.onnx.opsets import LOWEST, WRITTEN, lost_attributes, lowest_opset, strip_defaults
from deep500.networks.protos import graph_proto, ir_version_for, model_proto

if TYPE_CHECKING:
    from deep500.networks.graph import Graph
    from deep500.tensors import TensorDescriptor

CONSTANTS_KEY = "deep500.constants"
"""Key of the model's metadata that lists the parameters that are not trainable."""
UNRANKED_KEY = "deep500.unranked"
"""Key of the model's metadata that lists inputs and outputs whose rank is unknown (ONNX insists on a shape)."""


def dump(
    network: Graph, path: str | os.PathLike[str] | None = None, opset: int | None = None, external: bool | None = None
) -> onnx.ModelProto:
    """The network as a valid ONNX model, also written to ``path`` if one is given.

    Args:
        network: is not changed.
        path: is replaced in one step, so that a failure leaves the old file.
        opset: version of ONNX's operators; by default the lowest from :data:`~deep500.networks.onnx.opsets.WRITTEN` on
            at which every node means the same, so that runtimes older than the installed ``onnx`` read the file. One
            that some node does not allow is reached with ONNX's converter. The IR version is the lowest with it.
        external: whether large arrays lie in a file of their own beside the model, ``model.onnx.data``, to which the
            message points. None: where all together exceed protobuf's 2 GiB.

    Raises:
        NetworkError: an operator cannot be converted, arrays that need a file of their own and no path, the path cannot
            be written.
    """
    check_drawn(network, "an ONNX model")
    network.sync()
    arrays = outside.large_arrays({n: p.value for n, p in network.parameters.items()}, external)
    if arrays and path is None:
        raise NetworkError(
            f"got {sum(a.nbytes for a in arrays.values())} bytes of weights and no path; expected one, for they lie in "
            "a file beside the model: pass path=..."
        )
    descriptors = network.descriptors()
    try:
        graph = graph_proto(network, descriptors, lambda name, parameter: name not in arrays)
        unranked = give_ranks(graph)
        model = model_proto(graph)
        model = at_opset(model, descriptors, opset)
        give_functions(model)
        onnx.checker.check_model(model)
        location = "" if path is None else f"{Path(path).name}.data"
        pieces = outside.move_out(model.graph, arrays, list(network.parameters), location) if arrays else None
        trainable = set(network.trainable())
        constants = [t.name for t in model.graph.initializer if t.name not in trainable]
        onnx.helper.set_model_props(model, {CONSTANTS_KEY: json.dumps(constants), UNRANKED_KEY: json.dumps(unranked)})
    except onnx.checker.ValidationError as error:
        raise NetworkError(
            f"got a network that ONNX refuses ({first_line(error)}); expected a valid one: change that node"
        ) from error
    except NetworkError:
        raise
    except (EncodeError, ValueError) as error:
        raise NetworkError(
            f"got a network that does not fit into an ONNX model ({first_line(error)}); expected less than 2 GiB, "
            "protobuf's limit: make it smaller"
        ) from error
    if path is not None:
        data = model.SerializeToString()
        if pieces is not None:  # before the model, which is of no use without
            write_bytes(pieces, Path(path).with_name(location))
        write_bytes([data], Path(path))
    return model


def give_ranks(graph: onnx.GraphProto) -> list[str]:
    """Give inputs and outputs of unknown rank the shape entry that the checker wants; returns their names."""
    unranked = []
    for value in (*graph.input, *graph.output):
        tensor = value.type.tensor_type
        if value.type.HasField("tensor_type") and not tensor.HasField("shape"):
            tensor.shape.CopyFrom(onnx.TensorShapeProto())
            unranked.append(value.name)
    return unranked


def at_opset(
    model: onnx.ModelProto, descriptors: Mapping[str, TensorDescriptor], opset: int | None = None
) -> onnx.ModelProto:
    """A model of the newest opset at a lower one: relabelled where nodes allow it, else converted.

    Args:
        model: is changed where it need not be converted.
        descriptors: of its values.
        opset: the lowest possible if None, see :mod:`~deep500.networks.onnx.opsets`.

    Raises:
        NetworkError: an opset that is none, or that some operator cannot be converted to.
    """
    if opset is not None and not 1 <= opset <= OPSET:
        raise NetworkError(
            f"got opset {opset}; expected 1 to {OPSET}, what the installed onnx knows: choose one of these"
        )
    floor = WRITTEN if opset is None else opset
    lowest = _relabelled(model, descriptors, floor, OPSET)
    while opset is not None and lowest > opset:
        # The converter refuses what did not change where it was not told so: it only does the steps that change nodes.
        model = _convert_down(model, max(opset, lowest - 1) if lowest > LOWEST else opset, opset)
        reached = next(imported.version for imported in model.opset_import if imported.domain == "")
        lowest = _relabelled(model, descriptors, floor, reached) if reached > opset else reached
    return model


def _relabelled(model: onnx.ModelProto, descriptors: Mapping[str, TensorDescriptor], floor: int, at: int) -> int:
    """Put the lowest possible opset on a model."""
    lowest = lowest_opset(model.graph, descriptors, floor, at)
    strip_defaults(model.graph, lowest)
    next(imported for imported in model.opset_import if imported.domain == "").version = lowest
    model.ir_version = ir_version_for(model.opset_import)
    return lowest


def _convert_down(model: onnx.ModelProto, opset: int, target: int) -> onnx.ModelProto:
    for node in model.graph.node:
        if lost := lost_attributes(node, target):
            raise NetworkError(
                f"got opset {target} for node {node.name!r} ({node.op_type}) with {', '.join(lost)}, which the "
                "operator does not have there; expected one that has it: choose a higher opset, or leave it out"
            )
    try:
        lower = version_converter.convert_version(model, opset)
    except Exception as error:
        reason = first_line(error).rpartition("failed: ")[2]
        raise NetworkError(
            f"got opset {target}, to which {_inconvertible(model, opset)} cannot be converted ({reason}); "
            "expected one that every operator of the network has: choose a higher opset or replace the operator"
        ) from error
    lower.ir_version = ir_version_for(lower.opset_import)
    return lower


def _inconvertible(model: onnx.ModelProto, opset: int) -> str:
    """Names of the operators that the converter refuses, found by converting one node of each kind on its own."""
    types = {v.name: v for v in (*model.graph.input, *model.graph.value_info)}
    arrays = {t.name: t for t in model.graph.initializer}
    refused = []
    for node in {n.op_type: n for n in model.graph.node}.values():
        graph = onnx.GraphProto(name="one")
        graph.node.append(node)
        graph.initializer.extend(arrays[n] for n in set(node.input) if n in arrays)
        graph.input.extend(types[n] for n in set(node.input) if n in types)
        graph.output.extend(types.get(n, onnx.ValueInfoProto(name=n)) for n in node.output if n)
        single = onnx.helper.make_model(graph, opset_imports=model.opset_import, ir_version=model.ir_version)
        try:
            version_converter.convert_version(single, opset)
        except Exception:  # noqa: BLE001 - the converter raises errors of many types
            refused.append(node.op_type)
    return ", ".join(sorted(refused)) or "an operator"


def first_line(error: BaseException) -> str:
    """The first line of an error's text: ONNX appends stack traces and whole graphs."""
    return str(error).strip().partition("\n")[0]


def write_bytes(pieces: Iterable[bytes | memoryview], path: Path) -> None:
    """Replace a file by these pieces in one step; the old one stays if anything goes wrong."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        try:
            with temporary.open("wb") as file:
                for piece in pieces:
                    file.write(piece)
                file.flush()
                os.fsync(file.fileno())
            temporary.replace(path)
        finally:
            with contextlib.suppress(OSError):
                temporary.unlink(missing_ok=True)
    except OSError as error:
        raise NetworkError(
            f"{path}: got '{error.strerror or error}'; expected a file that can be written: check the folder, its "
            "permissions and the free space"
        ) from error
