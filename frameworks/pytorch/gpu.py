"""Operators in CUDA on tensors of a GPU: their exports take device pointers and PyTorch's current stream."""

from __future__ import annotations

import ctypes
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch

from deep500.errors import InputError
from deep500.frameworks.pytorch.dtypes import torch_dtype
from deep500.frameworks.pytorch.native_op import NativeOp
from deep500.operators.base import CustomOp, Descriptors
from deep500.operators.bridge import can_bridge
from deep500.operators.cpp.binding import failure

Tensors = Sequence[torch.Tensor]


def runs_on_card(op: CustomOp) -> bool:
    """Whether an operator takes tensors of a GPU: it is in CUDA, or made of functions of torch's."""
    return isinstance(op, NativeOp) or (can_bridge(op) and op.spec.is_cuda)


def common_device(op: CustomOp, tensors: Tensors) -> torch.device | None:
    """The GPU that all tensors are on; None if all are on the processor.

    Raises:
        InputError: they are on several devices, or on one that the operator cannot use.
    """
    devices = {x.device for x in tensors}
    if all(device.type == "cpu" for device in devices):
        return None
    names = ", ".join(sorted(map(str, devices)))
    if len(devices) > 1:
        raise InputError(f"operator {op.name!r}: got tensors on {names}; expected all on one device: move them")
    (device,) = devices
    if device.type != "cuda" or not runs_on_card(op):
        raise InputError(
            f"operator {op.name!r}: got tensors on {names}; expected the processor's: move them with .cpu(), or write "
            "forward_cuda in a .cu file"
        )
    return device


def launch(
    op: Any, kind: str, inputs: Tensors, groups: Sequence[Tensors], results: Descriptors, needed: Sequence[bool]
) -> list[torch.Tensor]:
    """Start ``forward`` or ``backward`` on the tensors' device, in the order of its current stream.

    Args:
        op: a compiled operator.
        inputs: the operator's, whose shapes choose its instance.
        groups: what the export takes before its results.
        results: dtypes and shapes of what it writes.
        needed: which of the results are returned; all are computed.

    Raises:
        OperatorError: the operator refuses the shapes, or fails.
    """
    device = inputs[0].device
    dense = [[x.detach().contiguous() for x in group] for group in groups]
    # All of them: a kernel writes every gradient, whether or not somebody reads it.
    outputs = [torch.empty(d.shape, dtype=torch_dtype(d.dtype), device=device) for d in results]  # type: ignore[arg-type]
    instance = _function(op, "instance", 1, ctypes.c_void_p)(op.sizes([x.shape for x in inputs]).ctypes.data)
    arrays = [*map(_pointers, dense), _pointers(outputs)]
    call = _function(op, f"{kind}_cuda", len(arrays) + 2, ctypes.c_int)
    with _stream(device) as stream:
        failed = instance is None or call(instance, *map(ctypes.addressof, arrays), stream)
    if failed:
        message = _function(op, "error", 0, ctypes.c_char_p)() or b""
        raise failure(op.name, kind if instance else "create_new_op", message.decode(errors="replace"))
    return [y for y, want in zip(outputs, needed, strict=True) if want]


def _pointers(tensors: Sequence[torch.Tensor]) -> Any:
    return (ctypes.c_void_p * len(tensors))(*[x.data_ptr() for x in tensors])


@contextmanager
def _stream(device: torch.device) -> Iterator[int]:
    """PyTorch's current stream on a device, which becomes CUDA's current one."""
    with torch.cuda.device(device):
        yield torch.cuda.current_stream(device).cuda_stream


def _function(op: Any, name: str, arguments: int, result: Any) -> Any:
    return ctypes.CFUNCTYPE(result, *[ctypes.c_void_p] * arguments)(op.address(f"d500_{name}"))
