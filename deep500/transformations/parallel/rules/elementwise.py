"""Rules of elementwise operators: every axis that all operands share may be split."""

from __future__ import annotations

from collections.abc import Iterable

from deep500.transformations.parallel.rules.registry import passing, sharding_rule
from deep500.transformations.parallel.strategies import Factors, SizedNode

FUNCTIONS = (
    "Abs Acos Acosh Asin Asinh Atan Atanh Ceil Celu Cos Cosh Elu Erf Exp Floor Gelu HardSigmoid HardSwish IsInf IsNaN "
    "LeakyRelu Log Mish Not Reciprocal Relu Round Selu Shrink Sigmoid Sign Sin Sinh Softplus Softsign Sqrt Swish Tan "
    "Tanh ThresholdedRelu BitwiseNot"
)
"""Functions of one operand that are not linear."""
MERGING = (
    "And BitShift BitwiseAnd BitwiseOr BitwiseXor Equal Greater GreaterOrEqual Less LessOrEqual Max Min Mod Or PRelu "
    "Pow Xor"
)
"""Functions of several operands that are linear in none."""


def broadcast(view: SizedNode, linear: Iterable[Iterable[int]] = ()) -> Factors:
    """Factors of operands aligned from the right; axes of size 1 are whole where the result's are not."""
    shape = view.outputs[0]
    result = [f"d{axis}" if size > 1 else None for axis, size in enumerate(shape)]

    def aligned(operand: tuple[int, ...]) -> list[str | None]:
        first = len(shape) - len(operand)
        return [result[first + axis] if size == shape[first + axis] else None for axis, size in enumerate(operand)]

    return Factors([aligned(s) for s in view.inputs], [result] * len(view.outputs), linear=[*map(frozenset, linear)])


@sharding_rule(*FUNCTIONS.split(), *MERGING.split())
def nonlinear(view: SizedNode) -> Factors:
    """All axes."""
    return broadcast(view)


@sharding_rule("Identity", "Neg")
def linear_function(view: SizedNode) -> Factors:
    """All axes, and terms of a sum."""
    return broadcast(view, [[0]])


@sharding_rule("Cast")
def cast(view: SizedNode) -> Factors:
    """All axes; terms of a sum between floating types of the same width or to a wider one."""
    widths = {"float16": 1, "bfloat16": 1, "float32": 2, "float64": 3}
    before, after = (widths.get(dtype, 0) for dtype in view.dtypes[:2])
    return broadcast(view, [[0]] if 0 < before <= after else [])


@sharding_rule("Add", "Sub", "Sum", "Mean")
def sums(view: SizedNode) -> Factors:
    """All axes; terms of a sum where all operands are."""
    return broadcast(view, [range(len(view.inputs))])


@sharding_rule("Mul")
def product(view: SizedNode) -> Factors:
    """All axes; terms of a sum in either operand."""
    return broadcast(view, [[0], [1]])


@sharding_rule("Div")
def quotient(view: SizedNode) -> Factors:
    """All axes; terms of a sum in what is divided."""
    return broadcast(view, [[0]])


@sharding_rule("Where")
def where(view: SizedNode) -> Factors:
    """All axes; terms of a sum where both choices are."""
    return broadcast(view, [[1, 2]])


@sharding_rule("Clip")
def clip(view: SizedNode) -> Factors:
    """All axes; the limits are whole."""
    return passing(view, [])


@sharding_rule("Dropout")
def dropout(view: SizedNode) -> Factors | None:
    """All axes in evaluation mode; in training every rank draws the whole mask from the same seed."""
    mode = view.constant(2)
    if view.present(2) and (mode is None or mode.any()):
        return None
    return passing(view, [])
