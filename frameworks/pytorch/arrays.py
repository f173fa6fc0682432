"""Operators on tensors of the processor by way of NumPy, whose arrays share the tensors' memory."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

import numpy as np
import torch

from deep500.errors import Deep500Error, InputError, NetworkError
from deep500.frameworks.pytorch.dtypes import NAMES, from_array, to_array
from deep500.operators.base import CustomOp
from deep500.tensors import TensorDescriptor

Tensors = Sequence[torch.Tensor]


def desc_from_tensor(tensor: torch.Tensor) -> TensorDescriptor:
    """The descriptor of a tensor: its dtype by NumPy's name and its shape.

    Example:
        >>> print(desc_from_tensor(torch.zeros(2, 3)))
        float32[2x3]
    """
    return TensorDescriptor(dtype_name(tensor), tuple(int(size) for size in tensor.shape))


def dtype_name(tensor: torch.Tensor) -> str:
    """NumPy's name of a tensor's dtype."""
    name = NAMES.get(tensor.dtype)
    if name is None:
        raise InputError(f"got a tensor of {tensor.dtype}; expected a dtype that NumPy can hold: convert it")
    return name


def by_arrays(op: CustomOp, inputs: Tensors) -> list[torch.Tensor]:
    """Forward, without copies of contiguous tensors."""
    arrays = [host_array(x) for x in inputs]
    expected = op.infer([desc_from_tensor(x) for x in inputs])
    outputs: list[torch.Tensor] = []
    for result, want in zip(_asked(op, "forward", op.run, arrays), expected, strict=True):
        y = _apart(result, arrays)  # PyTorch's operators return memory of their own
        if y.dtype.name != want.dtype or not want.accepts(y.shape):
            raise InputError(
                f"operator {op.name!r}: got output {len(outputs)} of {y.dtype.name} {y.shape} from forward; expected "
                f"{want}, as infer() says: let them agree"
            )
        arrays.append(y)
        outputs.append(from_array(np.asarray(y, order="C")))
    return outputs


def backward_by_arrays(
    op: CustomOp, grads: Tensors, inputs: Tensors, outputs: Tensors, needed: Sequence[bool]
) -> list[torch.Tensor]:
    """The needed input gradients."""
    parts = [[host_array(x) for x in group] for group in (grads, inputs, outputs)]
    taken = [x for part in parts for x in part]
    gradients: list[torch.Tensor] = []
    for gradient, want in zip(_asked(op, "backward", op.run_backward, *parts), needed, strict=True):
        if want:
            taken.append(_apart(gradient, taken))
            gradients.append(from_array(taken[-1]))
    return gradients


def _asked(
    op: CustomOp, method: str, call: Callable[..., list[np.ndarray]], *groups: list[np.ndarray]
) -> list[np.ndarray]:
    """The operator's own code, whose errors name the operator."""
    try:
        return call(*groups)
    except (Deep500Error, MemoryError):
        raise
    except Exception as error:  # whatever the author did not think of
        shapes = ", ".join(f"{x.dtype}{list(x.shape)}" for group in groups for x in group)
        raise NetworkError(
            f"operator {op.name!r}: got {type(error).__name__} ({error}) from its {method} for {shapes}; expected "
            "arrays: mend the operator"
        ) from error


def host_array(tensor: torch.Tensor) -> np.ndarray:
    """A tensor's memory as a contiguous array; a copy of what is not contiguous."""
    return to_array(tensor.detach().resolve_conj().resolve_neg().contiguous())


def _apart(array: np.ndarray, others: Iterable[np.ndarray]) -> np.ndarray:
    """The array, or a copy if it may share memory with others."""
    return array.copy() if any(np.may_share_memory(array, other) for other in others) else array
