"""Conversions of traced tensors to Python's numbers: a trace would hold the one path that the example's values take.

What follows from sizes alone is no branch on values (the batch's are held by the check on another batch), nor are
constants and buffers, nor conditions that only decide whether an error or a warning comes, nor what PyTorch's own
functions ask. All else is an error that names the line.
"""

from __future__ import annotations

import ast
import functools
import linecache
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch

from deep500.errors import NetworkError

_Tensor = torch.Tensor
_C: Any = torch._C
CONVERSIONS = frozenset(
    getattr(_Tensor, name)
    for name in ("__bool__", "__int__", "__float__", "__index__", "__complex__", "__array__", "item", "tolist", "numpy")
)
"""Methods through which values leave a trace."""
_SIZES = frozenset({"aten::size", "aten::numel", "aten::dim", "aten::len", "aten::sym_size", "aten::is_floating_point"})
SHAPED = frozenset(f"aten::{n}_like" for n in ("zeros", "ones", "full", "empty", "rand", "randn")) | {
    f"aten::new_{n}" for n in ("zeros", "ones", "full", "empty")
}
"""Operators that read the shape of their operand alone."""
_SIZED_BY_VALUES = frozenset({"aten::nonzero", "aten::nonzero_numpy", "aten::masked_select"}) | {
    f"aten::{n}" for n in ("unique", "_unique", "_unique2", "unique_dim", "unique_consecutive", "repeat_interleave")
}
_PACKAGE = f"{Path(torch.__file__).parent}{os.sep}"
_DOORS = (_PACKAGE + "overrides.py", _PACKAGE + "_tensor.py")
_HERE = f"{Path(__file__).parent}{os.sep}"
_WORDS = frozenset({"warn", "warning", "warning_once", "info", "debug", "log", "print"})


def check_conversion(tensor: torch.Tensor, function: Any, examples: int) -> None:
    """Raise NetworkError where a traced tensor becomes a Python number that follows from values.

    Args:
        tensor: what is converted.
        function: the method.
        examples: how many of the trace's inputs are the model's; those behind are parameters and buffers.
    """
    if not torch.jit.is_tracing() or not _follows_from_values(_C._get_value_trace(tensor), examples):
        return
    frame = user_frame()
    if frame is None or _only_raises(*frame):
        return
    raise NetworkError(
        f"{frame[0]}:{frame[1]}: got a Python number of a tensor's values ({function.__name__}); expected what can be "
        "traced for all values, for a branch on them would keep the example's side: write torch.where(condition, a, b)"
        ", or compute with tensors"
    )


def user_frame() -> tuple[str, int] | None:
    """File and line of the innermost code outside of PyTorch and the importer; None where PyTorch itself asks."""
    frame: Any = sys._getframe(1)
    while frame is not None and frame.f_code.co_filename.startswith((_HERE, *_DOORS)):
        frame = frame.f_back
    if frame is None or frame.f_code.co_filename.startswith(_PACKAGE):
        return None
    return frame.f_code.co_filename, frame.f_lineno


def where() -> str:
    """The same for messages, PyTorch's own frames left out."""
    frame: Any = sys._getframe(1)
    while frame is not None and frame.f_code.co_filename.startswith((_HERE, _PACKAGE)):
        frame = frame.f_back
    return "the module" if frame is None else f"{frame.f_code.co_filename}:{frame.f_lineno}"


def _follows_from_values(value: Any, examples: int) -> bool:
    """Whether a value of the trace depends on what inputs or trained parameters hold."""
    seen: set[tuple[str, bool]] = set()
    open_ends = [(value, False)]  # with whether its shape alone counts
    while open_ends:
        value, shape_only = open_ends.pop()
        if (value.debugName(), shape_only) in seen:
            continue
        seen.add((value.debugName(), shape_only))
        node = value.node()
        kind, inputs = node.kind(), list(node.inputs())
        if kind == "prim::Param":
            if not shape_only and (value.requires_grad() or _place(value, node) < examples):
                return True
        elif shape_only and kind in _SIZED_BY_VALUES:
            return True
        elif kind in _SIZES or kind in SHAPED or shape_only:
            open_ends += [(i, True) for i in inputs[:1]]
        else:
            open_ends += [(i, False) for i in inputs]
    return False


def _place(value: Any, node: Any) -> int:
    return [output.debugName() for output in node.outputs()].index(value.debugName())


@functools.lru_cache(maxsize=64)
def _conditions(path: str) -> list[tuple[int, int]]:
    """First and last line of the conditions in a file that only decide whether an error or a warning comes."""
    try:
        tree = ast.parse("".join(linecache.getlines(path)))
    except SyntaxError:
        return []
    return [(test.lineno, test.end_lineno or test.lineno) for test in _guards(tree)]


def _guards(tree: ast.AST) -> Iterator[ast.expr]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Assert) or (
            isinstance(node, ast.If) and not node.orelse and all(_speaks(line) for line in node.body)
        ):
            yield node.test


def _speaks(line: ast.stmt) -> bool:
    if isinstance(line, ast.Expr) and isinstance(line.value, ast.Call):
        name = getattr(line.value.func, "attr", getattr(line.value.func, "id", ""))
        return name in _WORDS
    return isinstance(line, (ast.Raise, ast.Pass))


def _only_raises(path: str, line: int) -> bool:
    return any(first <= line <= last for first, last in _conditions(path))


def sample(tensor: torch.Tensor) -> torch.Tensor:
    """A tensor's values outside of the trace."""
    tracer: Any = torch._C
    state = tracer._get_tracing_state()
    tracer._set_tracing_state(None)
    try:
        return tensor.detach().clone()
    finally:
        tracer._set_tracing_state(state)
