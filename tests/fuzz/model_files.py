"""Sound ONNX models from a seed, and a grammar of damage: bytes, attributes, types, wiring, arrays, versions."""

from __future__ import annotations

import random
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from deep500.networks import add_loss, create
from tests.fuzz.mutations import cut_out, flip, truncate

Draw = random.Random
NUMBERS = (0, 1, -1, 2, 3, 7, -7, 64, 2**31 - 1, 2**31, -(2**31), 2**40, 2**62, 2**63 - 1, -(2**63))
REALS = (0.0, -0.0, 1.0, -1.0, 1e-45, 1e38, float("inf"), float("-inf"), float("nan"))
TEXTS = (b"", b"x", b"\xff", b"SAME_UPPER", b"linear", b"nearest", b"max", b"reflect", b"ab,bc->ac", b"a\0b")
ZOO = (("mlp", {"hidden": (4,)}), ("lenet", {}), ("resnet", {"depth": 8}))
OUTSIDE = "weights"
"""The file beside a model that holds what :func:`_outside` moves."""
DATA = ("raw_data", "float_data", "int32_data", "int64_data", "double_data", "uint64_data", "string_data")
SIZE = 2**17
"""Bytes of the largest node test that is taken: damage to weights finds little."""


def corpus() -> list[tuple[str, bytes]]:
    """Networks of the zoo, a training network, a model with a function, and ONNX's own node tests."""
    made = []
    for name, kwargs in ZOO:
        network = create(name, **kwargs)
        made.append((name, network.to_onnx().SerializeToString()))
        made.append((f"{name} with loss", add_loss(network).to_onnx().SerializeToString()))
    made.append(("function", _function().SerializeToString()))
    from onnx.backend.test.loader import load_model_tests  # seconds: it computes every case

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # overflows that cases provoke on purpose
        found = {case.name: case.model.SerializeToString() for case in load_model_tests(kind="node")}
    return made + [(name, data) for name, data in sorted(found.items()) if len(data) < SIZE]


def _function() -> onnx.ModelProto:
    opsets = [helper.make_opsetid("", 20), helper.make_opsetid("local", 1)]
    inner = [helper.make_node("Mul", ["a", "a"], ["m"]), helper.make_node("Relu", ["m"], ["b"])]
    functions = [helper.make_function("local", "f", ["a"], ["b"], inner, opsets)]
    x, y = (helper.make_tensor_value_info(name, TensorProto.FLOAT, [2, 3]) for name in "xy")
    graph = helper.make_graph([helper.make_node("f", ["x"], ["y"], domain="local")], "g", [x], [y])
    return helper.make_model(graph, functions=functions, opset_imports=opsets, ir_version=9)


# -- structure --------------------------------------------------------------------------------------------------------
def graphs(model: onnx.ModelProto) -> Iterator[onnx.GraphProto]:
    """The model's graph and those inside its nodes."""
    todo = [model.graph]
    while todo:
        graph = todo.pop()
        yield graph
        for node in graph.node:
            todo += [a.g for a in node.attribute if a.HasField("g")]


def nodes(model: onnx.ModelProto) -> list[onnx.NodeProto]:
    return [node for graph in graphs(model) for node in graph.node] + [n for f in model.functions for n in f.node]


def _attribute(model: onnx.ModelProto, draw: Draw) -> None:
    found = [a for node in nodes(model) for a in node.attribute]
    if not found:
        return
    one = draw.choice(found)
    if one.type == onnx.AttributeProto.INT:
        one.i = draw.choice(NUMBERS)
    elif one.type == onnx.AttributeProto.FLOAT:
        one.f = draw.choice(REALS)
    elif one.type == onnx.AttributeProto.STRING:
        one.s = draw.choice(TEXTS)
    elif one.type == onnx.AttributeProto.INTS and one.ints and draw.random() < 0.8:
        one.ints[draw.randrange(len(one.ints))] = draw.choice(NUMBERS)
    elif one.type == onnx.AttributeProto.INTS:
        one.ints.append(draw.choice(NUMBERS))
    elif one.type == onnx.AttributeProto.TENSOR:
        _tensor(one.t, draw)
    else:
        one.type = draw.choice(list(onnx.AttributeProto.AttributeType.values()))


def _new_attribute(model: onnx.ModelProto, draw: Draw) -> None:
    if found := nodes(model):
        node = draw.choice(found)
        try:
            known = sorted(onnx.defs.get_schema(node.op_type).attributes) or ["axis"]
        except onnx.defs.SchemaError:
            known = ["axis"]
        value: object = draw.choice(
            (draw.choice(NUMBERS), draw.choice(REALS), draw.choice(TEXTS), [draw.choice(NUMBERS)])
        )
        node.attribute.append(helper.make_attribute(draw.choice(known), value))


def _less_attribute(model: onnx.ModelProto, draw: Draw) -> None:
    if found := [node for node in nodes(model) if node.attribute]:
        node = draw.choice(found)
        del node.attribute[draw.randrange(len(node.attribute))]


def _tensor(tensor: TensorProto, draw: Draw) -> None:
    kind = draw.randrange(5)
    if kind == 0:
        tensor.data_type = draw.randrange(-1, 30)
    elif kind == 1 and tensor.dims:
        tensor.dims[draw.randrange(len(tensor.dims))] = draw.choice(NUMBERS)
    elif kind == 2:
        tensor.dims.append(draw.choice(NUMBERS))
    elif kind == 3:
        tensor.data_location = TensorProto.EXTERNAL
        for key, value in (("location", draw.choice(("x", "../x", "a\0b", ""))), ("offset", str(draw.choice(NUMBERS)))):
            entry = tensor.external_data.add()
            entry.key, entry.value = key, value
    else:
        try:
            array = np.array(numpy_helper.to_array(tensor))
        except Exception:  # noqa: BLE001 - damaged before
            return
        if array.size and array.dtype.kind in "if":
            with np.errstate(all="ignore"):
                values = np.array(draw.choice(NUMBERS if array.dtype.kind == "i" else REALS)).astype(array.dtype)
            array.flat[draw.randrange(array.size)] = values
            tensor.CopyFrom(numpy_helper.from_array(array, tensor.name))


def lay_out(folder: Path) -> Path:
    """Fill a folder with what external data of damaged files point to; returns where the model goes."""
    (folder / OUTSIDE).write_bytes(bytes(range(256)) * 64)
    (folder / "empty").touch()
    (folder / "folder").mkdir()
    (folder / "loop").symlink_to("loop")
    (folder / "away").symlink_to("../away")
    return folder / "model.onnx"


def _outside(model: onnx.ModelProto, draw: Draw) -> None:
    """The data of one to three arrays lie in another file; mostly there, at places that mostly make sense."""
    found = [t for graph in graphs(model) for t in graph.initializer]
    found += [a.t for node in nodes(model) for a in node.attribute if a.type == onnx.AttributeProto.TENSOR]
    for tensor in draw.sample(found, min(len(found), draw.randrange(1, 4))):
        for field in (
            "raw_data",
            "float_data",
            "int32_data",
            "int64_data",
            "double_data",
            "uint64_data",
            "string_data",
        ):
            tensor.ClearField(field)
        tensor.data_location = TensorProto.EXTERNAL
        places = ("empty", "folder", "loop", "away", "none", "../x", "a\0b", "", ".", f"folder/../{OUTSIDE}")
        entries = {"location": OUTSIDE if draw.random() < 0.7 else draw.choice(places)}
        for key in ("offset", "length", "checksum"):
            if draw.random() < 0.5:
                text = draw.choice(("", "x", "1.5", "-0", " 8", "0x10", "\u0663", "9" * 400))
                entries[key] = str(draw.choice((0, 4, 64, 4096, *NUMBERS))) if draw.random() < 0.8 else text
        del tensor.external_data[:]
        for key, value in entries.items():
            entry = tensor.external_data.add()
            entry.key, entry.value = key, value


def _initializer(model: onnx.ModelProto, draw: Draw) -> None:
    if found := [t for graph in graphs(model) for t in graph.initializer]:
        _tensor(draw.choice(found), draw)


def _frozen_input(model: onnx.ModelProto, draw: Draw) -> None:
    """A whole-number input becomes an array of the file: sizes, axes, indices."""
    whole = (TensorProto.INT64, TensorProto.INT32)
    inputs = [v for v in model.graph.input if v.type.tensor_type.elem_type in whole]
    if inputs:
        value = draw.choice(inputs)
        sizes = [min(d.dim_value, 8) for d in value.type.tensor_type.shape.dim]
        array = np.array([draw.choice(NUMBERS[:10]) for _ in range(int(np.prod(sizes)))], np.int64).reshape(sizes)
        if array.size and draw.random() < 0.5:
            array.flat[0] = draw.choice(NUMBERS)
        dtype = np.int64 if value.type.tensor_type.elem_type == TensorProto.INT64 else np.int32
        model.graph.initializer.append(numpy_helper.from_array(array.astype(dtype), value.name))
        model.graph.input.remove(value)


def _shape(model: onnx.ModelProto, draw: Draw) -> None:
    values = [v for graph in graphs(model) for v in (*graph.input, *graph.output, *graph.value_info)]
    if values:
        kind = draw.choice(values).type.tensor_type
        if draw.random() < 0.4:
            kind.elem_type = draw.randrange(-1, 30)
        elif kind.shape.dim and draw.random() < 0.7:
            kind.shape.dim[draw.randrange(len(kind.shape.dim))].dim_value = draw.choice(NUMBERS)
        else:
            kind.shape.dim.add().dim_value = draw.choice(NUMBERS)


def _wiring(model: onnx.ModelProto, draw: Draw) -> None:
    found = nodes(model)
    names = [name for node in found for name in (*node.input, *node.output)] + ["", "none"]
    node = draw.choice(found) if found else None
    if node is None:
        return
    field = node.input if draw.random() < 0.7 else node.output
    kind = draw.randrange(3)
    if kind == 0 or not field:
        field.append(draw.choice(names))
    elif kind == 1:
        field[draw.randrange(len(field))] = draw.choice(names)
    else:
        del field[draw.randrange(len(field))]


def _operator(model: onnx.ModelProto, draw: Draw) -> None:
    if found := nodes(model):
        node = draw.choice(found)
        if draw.random() < 0.8:
            node.op_type = draw.choice([s.name for s in onnx.defs.get_all_schemas() if s.domain == ""])
        else:
            node.domain = draw.choice(("", "ai.onnx", "ai.onnx.ml", "com.microsoft", "local", "deep500", "x"))


def _versions(model: onnx.ModelProto, draw: Draw) -> None:
    if draw.random() < 0.3:
        model.ir_version = draw.choice((*NUMBERS, 3, 8, 10))
    elif model.opset_import:
        draw.choice(list(model.opset_import)).version = draw.choice((*NUMBERS, *range(1, 27)))


def _nodes(model: onnx.ModelProto, draw: Draw) -> None:
    graph = draw.choice(list(graphs(model)))
    if graph.node:
        node = draw.choice(list(graph.node))
        if draw.random() < 0.5:
            graph.node.add().CopyFrom(node)
        else:
            graph.node.remove(node)


def _body(model: onnx.ModelProto, draw: Draw) -> None:
    for function in model.functions:
        draw.choice((function.input, function.output)).append("b")
        node = draw.choice(list(function.node))
        node.op_type, node.domain = draw.choice((("f", "local"), ("Relu", ""), ("f", "")))


def _names(model: onnx.ModelProto, draw: Draw) -> None:
    graph = draw.choice(list(graphs(model)))
    named = [*graph.node, *graph.input, *graph.output, *graph.initializer, graph]
    draw.choice(named).name = draw.choice(("", "x", "a\nb", "../x", "é\u202e", "x" * 5000, "0", "None", "self"))


# What numbers decide is where processes die, so it is drawn most.
STRUCTURE: tuple[Callable[[onnx.ModelProto, Draw], None], ...] = (
    *(_attribute, _attribute, _attribute, _frozen_input, _frozen_input, _frozen_input, _initializer, _initializer),
    *(
        _outside,
        _new_attribute,
        _less_attribute,
        _shape,
        _shape,
        _wiring,
        _wiring,
        _operator,
        _versions,
        _nodes,
        _body,
        _names,
    ),
)
BYTES = (truncate, flip, flip, cut_out)


def damaged(originals: list[tuple[str, bytes]], seed: int, number: int) -> tuple[str, bytes]:
    """Number ``number`` of a seed: what was done, in words, and the bytes of the file."""
    draw = random.Random(f"{seed}:{number}")
    name, data = draw.choice(originals)
    done = []
    if draw.random() < 0.85:
        model = onnx.load_model_from_string(data)
        for _ in range(draw.choice((1, 1, 1, 2, 3))):
            change = draw.choice(STRUCTURE)
            try:
                change(model, draw)
            except (ValueError, TypeError):  # a number that the field cannot hold, a text that is no UTF-8
                continue
            done.append(change.__name__)
        data = model.SerializeToString()
    else:
        harm = draw.choice(BYTES)
        data, done = harm(data, draw), [harm.__name__]
    return f"{name} after {', '.join(done) or 'nothing'}", data
