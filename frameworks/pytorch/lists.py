"""Lists of tensors as one operand: an update rule on all parameters by ``torch._foreach`` functions, same bits."""

from __future__ import annotations

import numbers
from collections.abc import Callable
from typing import Any

import torch

_NAMES = {"add": "add", "sub": "sub", "mul": "mul", "truediv": "div", "pow": "pow"}


class TensorList:
    """Tensors with ``+ - * / ** abs``, element for element with another list, or all with a number.

    Example:
        >>> x = TensorList([torch.ones(2), torch.ones(3)])
        >>> [tensor.tolist() for tensor in (1 - 3 * x).tensors]
        [[-2.0, -2.0], [-2.0, -2.0, -2.0]]
    """

    __slots__ = ("tensors",)

    def __init__(self, tensors: list[torch.Tensor]) -> None:
        self.tensors = tensors

    def __neg__(self) -> TensorList:
        return TensorList(list(torch._foreach_neg(self.tensors)))

    def __abs__(self) -> TensorList:
        return TensorList(list(torch._foreach_abs(self.tensors)))


def _forward(name: str) -> Callable[[TensorList, Any], Any]:
    function = getattr(torch, f"_foreach_{_NAMES[name]}")

    def operate(self: TensorList, other: Any) -> Any:
        if isinstance(other, TensorList):
            return TensorList(list(function(self.tensors, other.tensors)))
        return TensorList(list(function(self.tensors, other))) if isinstance(other, numbers.Real) else NotImplemented

    return operate


def _mirrored(name: str) -> Callable[[TensorList, Any], Any]:
    dunder = f"__r{name}__"
    commutes = {"add": torch._foreach_add, "mul": torch._foreach_mul}.get(name)

    def operate(self: TensorList, other: Any) -> Any:
        if not isinstance(other, numbers.Real):
            return NotImplemented
        if commutes is not None:
            return TensorList(list(commutes(self.tensors, other)))
        return TensorList([getattr(tensor, dunder)(other) for tensor in self.tensors])

    return operate


for _name in _NAMES:
    setattr(TensorList, f"__{_name}__", _forward(_name))
    setattr(TensorList, f"__r{_name}__", _mirrored(_name))
