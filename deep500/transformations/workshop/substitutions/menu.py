"""Menu of operators and parameters that generation tries on operands of given types."""

from __future__ import annotations

import functools
import itertools
from dataclasses import dataclass
from typing import Any, NamedTuple

from deep500.transformations.substitutions.operators.specification import ShapeMismatch
from deep500.transformations.workshop.substitutions.terms import ENVIRONMENTS, SYMBOLS, Sizes, Type, infer

WINDOW = {"kernel": (3, 3), "strides": (1, 1), "pads": (1, 1, 1, 1)}  # a 3 x 3 window that keeps the image's size
CONSTANTS: tuple[tuple[str, tuple[str | int, ...]], ...] = (
    ("pool_kernel", ("c", 1, 3, 3)),
    ("identity_kernel", ("c", "c", 3, 3)),
    ("identity_kernel", ("c", 1, 3, 3)),
    ("identity", ("k", "k")),
    ("ones", ("b", "c", "h", "v")),
)


class OperatorCall(NamedTuple):
    """An operator with its parameters, one of its outputs and that output's type."""

    op: str
    parameters: tuple[tuple[str, Any], ...]
    output: int
    type: Type


def _calls(op: str, types: tuple[Type, ...], **parameters: Any) -> list[OperatorCall]:
    ordered = tuple(sorted(parameters.items()))
    try:
        types_out = infer(op, types, ordered)
    except ShapeMismatch:
        return []
    return [OperatorCall(op, ordered, output, type_out) for output, type_out in enumerate(types_out)]


def conv_parameters(kernel: tuple[int, ...], groups: Any) -> dict[str, Any]:
    """Parameters of a convolution with stride 1 that keeps the image's size, for an odd kernel."""
    rows, columns = kernel[0] // 2, kernel[1] // 2
    pads = (rows, columns, rows, columns)
    return {"kernel": kernel, "strides": (1, 1), "pads": pads, "dilations": (1, 1), "groups": groups}


def size(values: tuple[int, ...]) -> Any:
    """A size as a parameter: a plain number where it is the same in all environments."""
    return values[0] if len(set(values)) == 1 else Sizes(values)


@functools.cache
def _sums(names: tuple[str, ...]) -> frozenset[tuple[int, ...]]:
    """Sums of up to three of some sizes: what is left of a concatenation after its first part."""
    vectors = [SYMBOLS.get(name, (1,) * ENVIRONMENTS) for name in names]
    chosen = (c for count in (1, 2, 3) for c in itertools.combinations_with_replacement(vectors, count))
    return frozenset(tuple(map(sum, zip(*addends, strict=True))) for addends in chosen)


def cuts(type_: Type, axis: int) -> list[Any]:
    """Sizes at which an axis can be split: a symbol that leaves a sum of symbols in every environment.

    Example:
        >>> cuts(((4, 3), (10, 2)), 0)  # 2n rows
        [(2, 5)]
    """
    length = tuple(shape[axis] for shape in type_)
    rank = len(type_[0])
    names = ("c", "k") if rank == 1 else ("n", "k") if rank == 2 else (("b", "c"), ("c", "1"))[axis]
    vectors = [SYMBOLS.get(name, (1,) * ENVIRONMENTS) for name in names]
    rests = [(part, tuple(a - b for a, b in zip(length, part, strict=True))) for part in vectors]
    return [size(part) for part, rest in rests if rest in _sums(names)]


@dataclass(frozen=True)
class Menu:
    """Operators and parameters that an enumeration tries.

    Attributes:
        operators: names of operators; only those in the cases below are ever tried.
        kernels: kernel sizes of convolutions; all but the first are enlarged to it.
        constants: (operator, shape in symbols), each counted as one operator.
        factor: by which `merge_groups` merges.
    """

    operators: frozenset[str]
    kernels: tuple[tuple[int, int], ...] = ((3, 3), (1, 3), (3, 1))
    constants: tuple[tuple[str, tuple[str | int, ...]], ...] = ()
    factor: int = 2

    def _calls(self, op: str, types: tuple[Type, ...], **parameters: Any) -> list[OperatorCall]:
        return _calls(op, types, **parameters) if op in self.operators else []

    @functools.cache  # noqa: B019 - menus live as long as the program
    def unary(self, type_: Type) -> list[OperatorCall]:
        """Calls with one operand."""
        rank, types = len(type_[0]), (type_,)
        calls: list[OperatorCall] = []
        if rank == 0:
            return calls
        calls += self._calls("relu", types)
        if rank == 2:
            calls += self._calls("transpose", types, perm=(1, 0))
        if rank == 4:
            calls += self._calls("avgpool", types, **WINDOW, count_padding=True)
            calls += self._calls("maxpool", types, **WINDOW)
            for kernel in self.kernels[1:]:
                calls += self._calls("enlarge", types, source=kernel, target=self.kernels[0])
            outputs = {shape[0] for shape in type_}
            if len(outputs) == 1 and (groups := outputs.pop()) % self.factor == 0:
                calls += self._calls("merge_groups", types, groups=groups, factor=self.factor)
        for axis in range(min(2, rank)):
            for cut in cuts(type_, axis):
                calls += self._calls("split", types, axis=axis, cut=cut)
        return calls

    @functools.cache  # noqa: B019
    def binary(self, left: Type, right: Type) -> list[OperatorCall]:
        """Calls with two operands, in this order."""
        types, rank = (left, right), len(left[0])
        calls: list[OperatorCall] = []
        if rank == 0:
            return calls
        if len(right[0]) == 0:
            return self._calls("scale", types)
        if rank > len(right[0]) == 1:
            return [call for op in ("bias", "gain") for axis in (0, 1) for call in self._calls(op, types, axis=axis)]
        if rank != len(right[0]):
            return calls
        calls += self._calls("add", types) + self._calls("mul", types)
        for axis in range(min(2, rank)):
            calls += self._calls("concat", types, axis=axis)
        if rank == 2:
            return calls + self._calls("matmul", types)
        kernels = {shape[2:] for shape in right}
        if rank == 4 and len(kernels) == 1 and (kernel := kernels.pop()) in self.kernels:
            groups = tuple(a[1] // b[1] for a, b in zip(left, right, strict=True))
            if min(groups) > 0:
                calls += self._calls("conv", types, **conv_parameters(kernel, size(groups)))
        return calls

    def leaves(self) -> list[OperatorCall]:
        """The constants, each counted as one operator."""
        calls: list[OperatorCall] = []
        for op, shape in self.constants:
            sizes = tuple(Sizes(SYMBOLS[symbol]) if isinstance(symbol, str) else symbol for symbol in shape)
            calls += _calls(op, (), shape=sizes)
        return calls


CORE = Menu(
    frozenset(
        {
            "relu",
            "transpose",
            "avgpool",
            "maxpool",
            "enlarge",
            "split",
            "scale",
            "add",
            "mul",
            "concat",
            "matmul",
            "conv",
        }
    ),
    constants=CONSTANTS,
)
