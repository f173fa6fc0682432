"""The second route from a module to an ONNX model: ``torch.export`` and the exporter that reads its graphs.

It takes what tracing refuses (operators that only decompose), and frees axes beyond the batch. It needs onnxscript.
Left as it is, it would lose what a training network needs: equal arrays become one parameter, gradients flow through
``detach`` and ``no_grad``, what forward writes is dropped. So nothing is optimized, results without a gradient pass a
``StopGradient``, and buffers that are written are refused.
"""

from __future__ import annotations

import contextlib
import importlib
import inspect
import warnings
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any
from unittest.mock import patch

import onnx
import torch
from torch.overrides import TorchFunctionMode

from deep500.networks.objects import Axes
from deep500.registry import load_importer, load_package

OPSET = 18
"""The one that the exporter's functions are written for."""


def export(
    module: torch.nn.Module,
    inputs: Mapping[str, torch.Tensor],
    outputs: Sequence[str],
    mode: TorchFunctionMode,
    axes: Axes,
) -> Any:
    """The ONNX model of a module in training mode whose forward takes tensors and returns a tuple of them.

    Args:
        module: as it is to be exported.
        inputs: what it is traced with, by name.
        outputs: names of what it returns.
        mode: exchanges functions while the module runs.
        axes: those that are free.

    Raises:
        MissingPackage: no onnxscript.
        NetworkError: forward writes buffers.
        Exception: whatever the exporter raises.
    """
    load_package("onnxscript", "import-pytorch", "to export what tracing refuses")
    shapes = tuple(dict.fromkeys(axes[name], torch.export.Dim.DYNAMIC) for name in inputs)
    several = any(p.kind is p.VAR_POSITIONAL for p in inspect.signature(module.forward).parameters.values())
    with warnings.catch_warnings(), torch.compiler.set_stance("force_eager"):
        warnings.simplefilter("ignore")
        program = _program(module, tuple(inputs.values()), (shapes,) if several else shapes, mode)
        _stop_unrecorded(program.graph_module)
        tensors = (*module.state_dict().values(), *inputs.values())
        wide = any(isinstance(tensor, torch.Tensor) and tensor.dtype is torch.float64 for tensor in tensors)
        with _wide_numbers() if wide else contextlib.nullcontext():
            exported: Any = torch.onnx.export(
                program, dynamo=True, optimize=False, verbose=False, opset_version=OPSET,
                input_names=list(inputs), output_names=list(outputs),
            )  # fmt: skip
    written = exported.exported_program.graph_signature.buffers_to_mutate.values()
    load_importer("pytorch", "importing_gradients").refuse_written(written, module)
    proto = exported.model_proto
    _name_axes(proto, axes)
    _name_parameters(proto, module, exported.model.graph.initializers.values())
    return proto


def _program(
    module: torch.nn.Module, inputs: tuple[torch.Tensor, ...], shapes: Any, mode: TorchFunctionMode
) -> torch.export.ExportedProgram:
    """The module's graph, by running it, or by reading its bytecode where sizes are made numbers (``len(x)``)."""
    try:
        with mode:
            return torch.export.export(module, inputs, dynamic_shapes=shapes, strict=False)
    except torch._dynamo.exc.UserError:
        return torch.export.export(module, inputs, dynamic_shapes=shapes, strict=True)


def stop_gradient(x: torch.Tensor) -> torch.Tensor:
    """The node that lets no gradient through."""
    return torch.onnx.ops.symbolic("deep500::StopGradient", (x,), dtype=x.dtype, shape=x.shape, version=1)


def _stop_unrecorded(program: torch.fx.GraphModule) -> None:
    """Let what ``detach`` and ``no_grad`` blocks give pass a StopGradient, a call that is traced in the lowering."""
    detach, block = torch.ops.aten.detach.default, torch.ops.higher_order.wrap_with_set_grad_enabled
    for part in [m for m in program.modules() if isinstance(m, torch.fx.GraphModule)]:
        results = [node for node in part.graph.nodes if node.target is detach]
        results += [
            user for node in part.graph.nodes if node.target is block and node.args[0] is False for user in node.users
        ]
        for result in results:
            with part.graph.inserting_after(result):
                stopped = part.graph.call_function(stop_gradient, (result,))
            result.replace_all_uses_with(stopped, delete_user_cb=lambda user, itself=stopped: user is not itself)
        part.recompile()


@contextlib.contextmanager
def _wide_numbers() -> Iterator[None]:
    """Keep all digits of numbers in a program of float64: the exporter holds them in float32, and casts that."""
    building = importlib.import_module("torch.onnx._internal.exporter._building")
    judge, narrow, double = building._determine_input_dtype, building.ir.DataType.FLOAT, building.ir.DataType.DOUBLE

    def dtype(parameter: Any, value: Any, bound: Any) -> Any:
        free = parameter.type_constraint not in bound and len(parameter.type_constraint.allowed_types) > 1
        kind = judge(parameter, value, bound)
        return double if free and kind == narrow else kind

    with patch.object(building, "_determine_input_dtype", dtype):
        yield


def _name_axes(proto: onnx.ModelProto, free: Axes) -> None:
    """Give free axes their names, and take intermediate shapes out, which have the exporter's."""
    renamed: dict[str, str] = {}
    for value in proto.graph.input:
        sizes = value.type.tensor_type.shape.dim
        renamed |= {sizes[axis].dim_param: name for axis, name in free[value.name].items() if sizes[axis].dim_param}
    for value in (*proto.graph.input, *proto.graph.output):
        for size in value.type.tensor_type.shape.dim:
            if size.dim_param in renamed:
                size.dim_param = renamed[size.dim_param]
    del proto.graph.value_info[:]


def _name_parameters(proto: onnx.ModelProto, module: torch.nn.Module, values: Iterable[Any]) -> None:
    """Give a tensor that has several names the first of them, as ``named_parameters`` does.

    What only looks at a tensor in another way (``view_as_complex``) has renamed it, which its place in memory tells.

    Args:
        proto: changed in place.
        module: whose tensors they are.
        values: the exporter's initializers, which hold the tensors.
    """
    first: dict[torch.Tensor, str] = {}
    tensors = {n: t for n, t in module.state_dict(keep_vars=True).items() if isinstance(t, torch.Tensor)}
    names = {name: first.setdefault(tensor, name) for name, tensor in tensors.items()}
    places = {_place(tensor): name for tensor, name in first.items() if tensor.numel()}
    for value in values:
        tensor = getattr(value.const_value, "raw", None)
        if isinstance(tensor, torch.Tensor) and value.name not in names and _place(tensor) in places:
            names[value.name] = places[_place(tensor)]
    for node in proto.graph.node:
        node.input[:] = [names.get(name, name) for name in node.input]
    seen: set[str] = set()
    for place, array in reversed(list(enumerate(proto.graph.initializer))):
        array.name = names.get(array.name, array.name)
        if array.name in seen:
            del proto.graph.initializer[place]
        seen.add(array.name)


def _place(tensor: torch.Tensor) -> tuple[Any, ...]:
    return tensor.data_ptr(), tensor.dtype, tensor.shape, tensor.stride()
