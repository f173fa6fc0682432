"""Networks from somebody else's generator (nnsmith, 76 operator types), varied, with what they are fed.

nnsmith solves for shapes and attributes under which operators fit together, writes a PyTorch module and exports it. A
number of a seed is always the same model: nothing here depends on time.
"""

from __future__ import annotations

import functools
import random
import warnings
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import onnx
from onnx import helper, numpy_helper

from tests.fuzz.network_bare import Arrays, bare

Draw = random.Random
RANGES = ((-1.0, 1.0), (0.1, 0.9), (-3.0, 3.0), (1.0, 3.0), (3.0, 7.0))
"""Of values: the first from which the module computes finite numbers; some operators want (0, 1), others more."""
NODES = (2, 3, 5, 5, 8, 12)
ELEMENTS = 2048
"""Of the largest array: what is wrong is wrong in small ones."""
ATTEMPTS = 20


class Case(NamedTuple):
    """A model as bytes, what it is fed, and how it was varied (empty: as nnsmith wrote it)."""

    model: bytes
    feeds: Arrays
    words: str = ""


def case(seed: int, number: int) -> Case:
    """A number of a seed: a generated model, varied in ways after which ONNX Runtime still runs it."""
    draw = random.Random(f"{seed}:{number}")
    taken = next((made for _ in range(ATTEMPTS) if (made := _generated(draw)) is not None), None)
    if taken is None:
        raise RuntimeError(f"got no model from {ATTEMPTS} seeds of nnsmith; expected one: number {number} of {seed}")
    for _ in range(draw.choice((0, 1, 1, 2, 3))):
        varied = draw.choice(VARIATIONS)(taken, draw)
        if varied is not None and not bare(varied.model, varied.feeds).text:
            taken = varied
    return taken


@functools.cache
def _operators() -> list[Any]:
    """nnsmith's operators, and its exporter taught to use the exporter of PyTorch that it was written for."""
    import torch

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from nnsmith.materialize.onnx import ONNXModelCPU

        torch.onnx.export = functools.partial(torch.onnx.export, dynamo=False)
        ONNXModelCPU.add_seed_setter()
        return list(ONNXModelCPU.operators())


def _generated(draw: Draw) -> Case | None:
    """One model, or None where PyTorch cannot run or export what nnsmith thought of."""
    import torch

    operators = _operators()
    from nnsmith.abstract.dtype import DTYPE_GEN_FLOATS, DTYPE_GEN_INTS
    from nnsmith.graph_gen import model_gen
    from nnsmith.materialize.onnx import ONNXModelCPU

    seed, nodes = draw.getrandbits(31), draw.choice(NODES)
    try:
        generated = model_gen(
            opset=operators,
            method="symbolic-cinit",
            seed=seed,
            max_elem_per_tensor=ELEMENTS,
            max_nodes=nodes,
            dtype_choices=DTYPE_GEN_FLOATS + draw.choice(([], DTYPE_GEN_INTS)),
        )
        wrapped = ONNXModelCPU.from_gir(generated.make_concrete())
        feeds = _values(wrapped.torch_model, torch, seed)
        model = wrapped.get_onnx_from_torch()
    except Exception:  # noqa: BLE001 - PyTorch says no in many ways: complex numbers, types without kernels
        return None
    return Case(model.SerializeToString(), feeds)


def _values(module: Any, torch: Any, seed: int) -> Arrays:
    """Weights and inputs from the first range that leads to finite outputs, else from the last."""
    feeds: Arrays = {}
    for low, high in RANGES:
        rng = np.random.default_rng(seed)

        def filled(tensor: Any, low: float = low, high: float = high, rng: Any = rng) -> Any:
            if tensor.is_floating_point():
                array = rng.uniform(low, high, tuple(tensor.shape))
            else:
                array = rng.integers(*((0, 2) if tensor.dtype == torch.bool else (1, 7)), tuple(tensor.shape))
            return torch.tensor(array).to(tensor.dtype)

        with torch.no_grad():
            for name, tensor in (*module.named_parameters(), *module.named_buffers()):
                tensor.copy_(filled(tensor).abs() + 0.1 if name.endswith("running_var") else filled(tensor))
            kinds = {
                name: torch.zeros(kind.shape, dtype=kind.dtype.torch()) for name, kind in module.input_like.items()
            }
            inputs = {name: filled(tensor) for name, tensor in kinds.items()}
            feeds = {name: tensor.numpy() for name, tensor in inputs.items()}
            if all(torch.isfinite(result).all() for result in module.eval()(**inputs)):
                break
    return feeds


# -- variations: each gives another case, or None where it has nothing to take hold of --------------------------------
def _negative_axes(case: Case, draw: Draw) -> Case | None:
    model = onnx.shape_inference.infer_shapes(onnx.load_model_from_string(case.model))
    ranks = {v.name: len(v.type.tensor_type.shape.dim) for v in (*model.graph.value_info, *model.graph.input)}
    ranks |= {tensor.name: len(tensor.dims) for tensor in model.graph.initializer}
    found = [
        (n, a) for n in model.graph.node for a in n.attribute if a.name in ("axis", "axes") and n.input[0] in ranks
    ]
    if not found:
        return None
    node, attribute = draw.choice(found)
    rank = ranks[node.input[0]]
    if attribute.name == "axis":
        attribute.i = attribute.i if attribute.i < 0 or not rank else attribute.i - rank
    else:
        attribute.ints[:] = [axis if axis < 0 else axis - rank for axis in attribute.ints]
    return Case(model.SerializeToString(), case.feeds, f"{case.words} negative axes of {node.op_type}")


def _same_input(case: Case, draw: Draw) -> Case | None:
    """Two inputs become one."""
    pairs = [
        (a, b)
        for a in case.feeds
        for b in case.feeds
        if a < b and case.feeds[a].dtype == case.feeds[b].dtype and case.feeds[a].shape == case.feeds[b].shape
    ]
    if not pairs:
        return None
    stays, goes = draw.choice(pairs)
    model = onnx.load_model_from_string(case.model)
    _rename(model, goes, stays)
    model.graph.input.remove(next(v for v in model.graph.input if v.name == goes))
    feeds = {name: value for name, value in case.feeds.items() if name != goes}
    return Case(model.SerializeToString(), feeds, f"{case.words} {goes} is {stays}")


def _same_array(case: Case, draw: Draw) -> Case | None:
    """Two arrays of the file become one."""
    model = onnx.load_model_from_string(case.model)
    tensors = list(model.graph.initializer)
    pairs = [(a, b) for a in tensors for b in tensors if a.name < b.name and _kind(a) == _kind(b)]
    if not pairs:
        return None
    stays, goes = draw.choice(pairs)
    _rename(model, goes.name, stays.name)
    words = f"{case.words} {goes.name} is {stays.name}"
    model.graph.initializer.remove(goes)
    return Case(model.SerializeToString(), case.feeds, words)


def _array_as_input(case: Case, draw: Draw) -> Case | None:
    model = onnx.load_model_from_string(case.model)
    tensors = [tensor for tensor in model.graph.initializer if tensor.data_type != onnx.TensorProto.INT64]
    if not tensors:
        return None
    tensor = draw.choice(tensors)
    value = numpy_helper.to_array(tensor)
    model.graph.initializer.remove(tensor)
    model.graph.input.append(helper.make_tensor_value_info(tensor.name, tensor.data_type, value.shape))
    return Case(model.SerializeToString(), {**case.feeds, tensor.name: value}, f"{case.words} {tensor.name} is fed")


def _inner_output(case: Case, draw: Draw) -> Case | None:
    """Make what lies between an output too: no pattern may swallow it."""
    model = onnx.shape_inference.infer_shapes(onnx.load_model_from_string(case.model))
    outputs = {value.name for value in model.graph.output}
    inner = [value for value in model.graph.value_info if value.name not in outputs]
    if not inner:
        return None
    value = draw.choice(inner)
    model.graph.output.append(value)
    return Case(model.SerializeToString(), case.feeds, f"{case.words} {value.name} is read")


def _other_batch(case: Case, draw: Draw) -> Case | None:
    """The first axis of inputs becomes a symbol, of another size than declared: none, one, or three."""
    model = onnx.load_model_from_string(case.model)
    sizes = {value.shape[0] for value in case.feeds.values() if value.ndim}
    if not sizes:
        return None
    size, other = draw.choice(sorted(sizes)), draw.choice((0, 1, 3))
    feeds = dict(case.feeds)
    for value in model.graph.input:
        if feeds[value.name].ndim and feeds[value.name].shape[0] == size:
            value.type.tensor_type.shape.dim[0].dim_param = "N"
            feeds[value.name] = np.resize(feeds[value.name], (other, *feeds[value.name].shape[1:]))
    del model.graph.value_info[:]
    for value in model.graph.output:
        value.type.tensor_type.ClearField("shape")
    return Case(model.SerializeToString(), feeds, f"{case.words} N = {other}")


def _other_dtype(case: Case, draw: Draw) -> Case | None:
    """float32 becomes float64 or float16."""
    from deep500.networks import Network, to_dtype

    dtype = draw.choice(("float64", "float16"))
    model = to_dtype(Network.from_onnx(case.model), dtype).to_onnx()
    kinds = {v.name: helper.tensor_dtype_to_np_dtype(v.type.tensor_type.elem_type) for v in model.graph.input}
    feeds = {name: case.feeds[name].astype(kind) for name, kind in kinds.items() if name in case.feeds}
    return Case(model.SerializeToString(), feeds, f"{case.words} in {dtype}") if kinds.keys() == feeds.keys() else None


Variation = Callable[[Case, Draw], Case | None]
VARIATIONS: tuple[Variation, ...] = (
    *(_negative_axes, _same_input, _same_array, _array_as_input, _inner_output, _other_batch, _other_dtype),
)


def _rename(model: onnx.ModelProto, old: str, new: str) -> None:
    for node in model.graph.node:
        node.input[:] = [new if name == old else name for name in node.input]


def _kind(tensor: onnx.TensorProto) -> tuple[int, tuple[int, ...]]:
    return tensor.data_type, tuple(tensor.dims)
