"""Is a custom operator right? ``check_op_forward`` and ``check_op_gradient`` decide, and show the numbers behind it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from deep500.errors import InputError, UnsupportedOperator
from deep500.operators.base import CustomOp, as_list, describe
from deep500.operators.differences import epsilon, is_floating
from deep500.operators.findings import ComparedEntry, OpCheck
from deep500.operators.gradients import Finding, Point, directional, full, over
from deep500.operators.python_op import CustomPythonOp

FORWARD = {1e-14: (1e-10, 1e-12), 1e-6: (1e-4, 1e-5), 1e-3: (1e-2, 1e-3), 1.0: (5e-2, 1e-2)}
GRADIENT = {1e-14: (1e-5, 1e-8), 1e-6: (2e-3, 1e-4), 1e-3: (3e-2, 1e-2), 1.0: (1e-1, 3e-2)}
"""Largest epsilon of a dtype -> tolerance relative to a value, and relative to the largest of its tensor."""
FULL = 256
"""Up to this number of input elements, and of output elements, the whole Jacobian is compared."""
JUDGED = 0.5
"""At least this share of the entries must be clear of the differences' own noise."""


def check_op_forward(
    op: CustomOp,
    inputs: Sequence[Any],
    reference: Callable[..., Any] | Sequence[Any] | np.ndarray,
    rtol: float | None = None,
    atol: float | None = None,
) -> OpCheck:
    """Compare an operator's outputs with those of a reference.

    Besides values: that dtypes and shapes are those that ``op.infer`` announces, and that inputs are not changed.

    Args:
        op: the operator.
        inputs: its arrays.
        reference: the expected outputs (an array, or a list for several), or a function of the inputs that gives them.
        rtol, atol: what may differ: ``rtol * |expected| + atol * largest |expected| of the output``. By the outputs'
            dtype: float64 1e-10 and 1e-12, float32 1e-4 and 1e-5, float16 1e-2 and 1e-3, bfloat16 5e-2 and 1e-2;
            integers and booleans must be equal.

    Raises:
        InputError: the operator refuses the inputs, or the reference has other outputs.

    Example:
        >>> class Twice(CustomPythonOp):
        ...     def forward(self, inputs):
        ...         return 2 * inputs[0]
        >>> check_op_forward(Twice(), [np.array([1.0, 2.0])], lambda x: x + x).ok
        True
    """
    arrays = _arrays(inputs)
    point = Point(op, arrays, [])
    expected = [np.asarray(y) for y in as_list(reference(*arrays) if callable(reference) else reference)]
    if [y.shape for y in expected] != [y.shape for y in point.outputs]:
        raise InputError(
            f"operator {op.name!r}: got outputs of shapes {[y.shape for y in point.outputs]}; expected those of the "
            f"reference, {[y.shape for y in expected]}: correct one of them"
        )
    pairs = list(zip(point.outputs, expected, strict=True))
    entries = [_worst_value(i, got, want, rtol, atol) for i, (got, want) in enumerate(pairs) if got.size]
    worst = max(entries, key=lambda entry: entry.excess, default=None)
    problems = [*point.problems(), *_undeclared(op, arrays, point.outputs)]
    ok = not problems and (worst is None or worst.excess <= 1)
    dtype = ", ".join(dict.fromkeys(y.dtype.name for y in point.outputs))
    return OpCheck(
        op.name, "forward", ok, "comparison", dtype, sum(y.size for y in expected), worst, problems=tuple(problems)
    )


def check_op_gradient(
    op: CustomOp,
    inputs: Sequence[Any],
    grad_inputs: Sequence[int] | None = None,
    *,
    method: str = "auto",
    precision: str = "auto",
    seed: int = 0,
    rtol: float | None = None,
    atol: float | None = None,
) -> OpCheck:
    """Compare an operator's ``backward`` with differences of its ``forward``.

    Steps are tried from 3 % of an input's size down and chosen per entry (:mod:`deep500.operators.differences`). What
    neighbouring steps disagree by is added to what is allowed, so that float32 and kinks raise no false alarm; if more
    than half of the entries drown in it, the verdict is not ``ok``.

    Args:
        op: the operator; it must have a backward.
        inputs: the point; away from kinks, and with sizes near one, is best. Integers are not differentiated.
        grad_inputs: positions of the inputs to check; all of floating dtype if None, but those that the
            operator was compiled with as inactive.
        method: ``full`` compares every entry of the Jacobian (a forward pair per input element and step, a backward
            per output element); ``directional`` a few random directions (their number does not depend on sizes), and
            searches the wrong element only if one disagrees; ``auto`` is full up to 256 elements on each side.
        precision: ``given`` keeps the inputs' dtypes; ``float64`` converts them; ``auto`` converts where the operator
            is written in Python, declares no dtypes, and computes in float64 when given that.
        seed: of output gradients and directions.
        rtol, atol: what may differ, relative to an entry and to the largest of its tensor, besides the noise. By the
            dtype: float64 1e-5 and 1e-8, float32 2e-3 and 1e-4, float16 3e-2 and 1e-2, bfloat16 1e-1 and 3e-2.

    Raises:
        UnsupportedOperator: the operator has no backward.
        InputError: the operator refuses the inputs, or nothing in them can have a gradient.

    Example:
        >>> class Square(CustomPythonOp):
        ...     def forward(self, inputs):
        ...         return inputs[0] ** 2
        ...     def backward(self, grads, fwd_inputs, fwd_outputs):
        ...         return 3 * grads[0] * fwd_inputs[0]
        >>> print(check_op_gradient(Square(), [np.array([1.0, 2.0])]).worst)
        gradient of output 0[1] by input 0[1]: got 6, expected 4 (difference 2, allowed 4e-05)
    """
    if not op.differentiable:
        raise UnsupportedOperator(f"operator {op.name!r}: got no backward to check; expected one: write it")
    arrays, converted = _in_precision(op, _arrays(inputs), precision)
    point = Point(op, arrays, _differentiable(op, arrays, grad_inputs))
    if not point.size:
        raise InputError(f"operator {op.name!r}: got no floating-point output with elements; expected one to check")
    rtol, atol = _tolerance(GRADIENT, point.epsilon, rtol, atol)
    if method not in ("auto", "full", "directional"):
        raise InputError(f"got method {method!r}; expected 'auto', 'full' or 'directional'")
    small = point.size <= FULL and sum(arrays[i].size for i in point.differentiated) <= FULL
    whole = method == "full" or (method == "auto" and small)
    random = np.random.default_rng(seed)
    with np.errstate(all="ignore"):  # a step may leave the function's domain: that step is not used
        finding = (full if whole else directional)(point, random, rtol, atol)
        problems = point.problems()
    return _verdict(op, point, finding, "full Jacobian" if whole else "directional", problems, converted)


def _verdict(op: CustomOp, point: Point, finding: Finding, method: str, problems: list[str], converted: str) -> OpCheck:
    if finding.judged < JUDGED:
        problems.append(
            f"differences are too noisy, or too near to kinks, for {1 - finding.judged:.0%} of the entries: got "
            "nothing to judge them by; expected inputs of size near one, away from kinks, or float64"
        )
    condition = (
        f"differences are good to {finding.noise:.1e} of the gradient's size (rounding {finding.rounding:.1e}); "
        f"{finding.judged:.0%} of the entries could be judged{converted}"
    )
    ok = not problems and finding.worst.excess <= 1
    return OpCheck(
        op.name,
        "gradient",
        ok,
        method,
        point.dtype,
        finding.compared,
        finding.worst,
        finding.noise,
        condition,
        tuple(problems),
    )


def _arrays(inputs: Sequence[Any]) -> list[np.ndarray]:
    return [np.array(x, order="C") for x in inputs]


def _in_precision(op: CustomOp, arrays: list[np.ndarray], precision: str) -> tuple[list[np.ndarray], str]:
    """The inputs in the precision to check in, and a remark if that is not theirs."""
    if precision not in ("auto", "given", "float64"):
        raise InputError(f"got precision {precision!r}; expected 'auto', 'given' or 'float64'")
    wide = [x.astype(np.float64) if is_floating(x.dtype) else x for x in arrays]
    if precision == "given" or all(x.dtype == w.dtype for x, w in zip(arrays, wide, strict=True)):
        return arrays, ""
    if precision == "float64":
        return wide, "; inputs were converted to float64"
    declared = [d for d in op.input_descriptors or () if d.dtype is not None]
    if not isinstance(op, CustomPythonOp) or declared:
        return arrays, ""
    try:
        outputs = op.run([x.copy() for x in wide])
    except Exception as error:  # noqa: BLE001  # whatever it is: the operator does not take float64, which is said
        return arrays, f"; not in float64, which forward refuses ({type(error).__name__}: {error})"
    if not all(y.dtype == np.float64 for y in outputs if is_floating(y.dtype)):
        return arrays, "; not in float64, since forward computes in less"
    return wide, "; inputs were converted to float64"


def _differentiable(op: CustomOp, arrays: Sequence[np.ndarray], chosen: Sequence[int] | None) -> list[int]:
    floating = [i for i, x in enumerate(arrays) if is_floating(x.dtype) and x.size]
    wrong = sorted(set(chosen or ()) - set(floating))
    if wrong or not floating:
        got = f"grad_inputs with {wrong}" if wrong else "no floating-point input with elements"
        raise InputError(f"operator {op.name!r}: got {got}; expected some of the floating-point inputs {floating}")
    inactive = getattr(getattr(op, "spec", None), "inactive", ())  # a compiled operator says what has no gradient
    return [i for i in floating if i not in inactive] if chosen is None else sorted(set(chosen))


def _tolerance(
    table: dict[float, tuple[float, float]], eps: float, rtol: float | None, atol: float | None
) -> tuple[float, float]:
    relative, absolute = next(pair for limit, pair in table.items() if eps <= limit)
    return relative if rtol is None else rtol, absolute if atol is None else atol


def _worst_value(
    output: int, got: np.ndarray, want: np.ndarray, rtol: float | None, atol: float | None
) -> ComparedEntry:
    floating = is_floating(got.dtype)
    relative, absolute = _tolerance(FORWARD, epsilon(got.dtype), rtol, atol) if floating else (0.0, 0.0)
    a, b = (np.asarray(y, np.float64) for y in (got, want))
    allowed = relative * np.abs(b) + absolute * float(np.abs(b[np.isfinite(b)]).max(initial=0.0))
    with np.errstate(all="ignore"):
        off = np.where(np.isfinite(a) & np.isfinite(b), over(a, b, allowed), np.inf)
    off = np.where((a == b) | (np.isnan(a) & np.isnan(b)), 0.0, off)
    at = np.unravel_index(int(off.argmax()), off.shape)
    return ComparedEntry(output, tuple(map(int, at)), None, None, float(a[at]), float(b[at]), float(allowed[at]))


def _undeclared(op: CustomOp, arrays: Sequence[np.ndarray], outputs: Sequence[np.ndarray]) -> list[str]:
    """Say where outputs are not what infer announces."""
    announced = op.infer([describe(x) for x in arrays])
    return [
        f"output {i} is {describe(y)}; infer announces {d}"
        for i, (d, y) in enumerate(zip(announced, outputs, strict=True))
        if d.dtype not in (None, y.dtype.name) or not d.accepts(y.shape)
    ]


test_op_forward = check_op_forward
"""The original's name."""
test_op_gradient = check_op_gradient
"""The original's name."""
check_op_forward.__test__ = False  # type: ignore[attr-defined]  # pytest must not collect them
check_op_gradient.__test__ = False  # type: ignore[attr-defined]
