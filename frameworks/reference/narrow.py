"""Half precision in single precision: kernels compute float16 and bfloat16 in float32, and results are rounded once.

NumPy rounds after every operation: the mean of 5,000 numbers around -2,000 is -inf in float16, a sigmoid of -5.6 is 1 %
off. Accelerators accumulate in float32; so does the definition of right.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

import numpy as np
import onnx

from deep500.networks.node import Node, find_schema, from_proto
from deep500.tensors import dtype_to_onnx, numpy_dtype

NARROW = tuple(map(numpy_dtype, ("float16", "bfloat16")))
"""The dtypes that are computed in float32."""

EXACT = frozenset(
    (
        *("Bernoulli", "BitCast", "Cast", "CastLike", "EyeLike", "Identity", "RandomNormalLike", "RandomUniformLike"),
        *("If", "Loop", "Scan", "SequenceMap", "Optional", "OptionalGetElement", "OptionalHasElement"),
        *("ConcatFromSequence", "SequenceAt", "SequenceConstruct", "SequenceEmpty", "SequenceErase"),
        *("SequenceInsert", "SequenceLength", "SplitToSequence"),
    )
)
"""Operators that round at most once by themselves, or whose bodies do: they see values as they are."""

FOLLOWS = {"DequantizeLinear": 1, "LinearAttention": 0}
"""Operators with an output whose type follows an input of another one, where ONNX says so in words only."""

_TYPES = frozenset(dtype_to_onnx(str(dtype)) for dtype in NARROW)
_CHOICES = ("to", "dtype", "output_dtype", "stash_type")


def may_be_narrow(dtypes: Iterable[str | None], nodes: Iterable[Node]) -> bool:
    """Whether a value of a narrow dtype may occur, by the dtypes of what is fed and what nodes choose."""
    names = {str(dtype) for dtype in NARROW}
    return any(dtype is None or dtype in names for dtype in dtypes) or any(map(_makes_narrow, nodes))


def _makes_narrow(node: Node) -> bool:
    values = node.attributes.values()
    return (
        any(node.attributes.get(name) in _TYPES for name in _CHOICES)
        or any(isinstance(value, np.ndarray) and value.dtype in NARROW for value in values)
        or any(_holds_narrow(value) for value in values if isinstance(value, onnx.GraphProto))
    )


def _holds_narrow(graph: onnx.GraphProto) -> bool:
    return any(t.data_type in _TYPES for t in graph.initializer) or any(
        _makes_narrow(from_proto(node)) for node in graph.node
    )


def in_float32(kernel: Callable[..., Any], node: Node) -> Callable[..., Any]:
    """The kernel of a node, given float32 for narrow inputs; outputs of the type of such an input are rounded to it."""
    schema = find_schema(node.op_type, node.domain)
    if schema is None or node.op_type in EXACT:
        return kernel
    kinds = _kinds(schema.inputs, len(node.inputs))
    named = {kind for kind, name in zip(kinds, node.inputs, strict=False) if name}
    follows = FOLLOWS.get(node.op_type) if node.attribute("output_dtype") in (None, 0) else None
    results_of = [
        kind if kind in named or follows is None else kinds[follows]
        for kind in _kinds(schema.outputs, len(node.outputs))
    ]

    def call(*values: Any) -> Any:
        narrow: Mapping[str, np.dtype] = {
            kind: value.dtype
            for kind, value in zip(kinds, values, strict=False)
            if type(value) is np.ndarray and value.dtype in NARROW
        }
        if not narrow:
            return kernel(*values)
        results = kernel(*map(_widened, values))
        if not isinstance(results, tuple):
            results = (results,)
        return tuple(
            result if result is None or kind not in narrow else np.asarray(result).astype(narrow[kind])
            for result, kind in zip(results, results_of, strict=False)
        )

    return call


def _widened(value: Any) -> Any:
    return value.astype(np.float32) if type(value) is np.ndarray and value.dtype in NARROW else value


def _kinds(formals: Any, count: int) -> list[str]:
    """The names of the types of that many operands; the last formal one of a variadic operator is repeated."""
    names = [formal.type_str for formal in formals]
    return names + names[-1:] * (count - len(names))
