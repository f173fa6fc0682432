"""The choice of an ONNX file's weights: few files say so, hence it is judged by what reads arrays and what they hold.

``torch.onnx.export(dynamo=True)`` notes what was a parameter and what a buffer, and is believed.

Never weights: what is not floating; settings (:data:`SETTINGS`: bounds, scales, running statistics); ``Constant``
nodes; what the version converter adds. Readers that ask only for an array's shape or type say nothing about it. What is
left trains, unless there is reason to doubt it: then it stays fixed, and the reason is kept with the parameter
(:attr:`~deep500.networks.network.Parameter.doubt`) for the user to decide, with ``trainable=``.
"""

from __future__ import annotations

import fnmatch
import re
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
import onnx

from deep500.errors import InputError, nearest
from deep500.networks.graph import Choice
from deep500.networks.onnx.tying import GENERATED, Arrays, reads
from deep500.tensors import dtype_name

# fmt: off
SETTINGS: dict[str, tuple[int, ...]] = {
    "AffineGrid": (1,), "BatchNormalization": (3, 4), "Clip": (1, 2), "ConstantOfShape": (0,),
    "DequantizeLinear": (1, 2), "Dropout": (1, 2), "Expand": (1,), "GRU": (4, 5), "GroupQueryAttention": (),
    "LSTM": (4, 5, 6), "MaxRoiPool": (1,), "MelWeightMatrix": (0, 1, 2, 3, 4), "NonMaxSuppression": (2, 3, 4),
    "OneHot": (1, 2), "Pad": (1, 2, 3), "QLinearConv": (1, 2, 4, 5, 6, 7), "QLinearMatMul": (1, 2, 4, 5, 6, 7),
    "QuantizeLinear": (1, 2), "RNN": (4, 5), "Range": (0, 1, 2), "Resize": (1, 2, 3), "RoiAlign": (1, 2), "STFT": (2,),
}
# fmt: on
"""Inputs, by operator, that are settings or state rather than weights."""

ASKS_SHAPE_OR_TYPE = {("Shape", 0), ("Size", 0), ("CastLike", 1)}
"""Readers that look at no element."""

PRODUCTS = frozenset({"Conv", "ConvTranspose", "Einsum", "Gemm", "MatMul"})
WAVES = frozenset({"Cos", "Sin"})
FLOATING = ("bfloat16", "float16", "float32", "float64")
NAMED = re.compile(r"(scale|weight|bias|gamma|beta|alpha|temperature|gain|slope|gate)\w*$", re.IGNORECASE)
"""Names of single numbers that are weights."""
HUGE = 1e4
"""Masks hold values such as -inf or the lowest number of a type (float16: -65504), weights do not."""
FEW = 0.25
"""Tables that were computed repeat values: at most this part of their elements are different."""
LEAST_TABLE, MOST_TABLE = 64, 2**16
"""Elements of a table whose values are counted: fewer repeat by chance, more do so where 16 bits were trained."""
RESHAPES = frozenset({"Cast", "Flatten", "Reshape", "Squeeze", "Transpose", "Unsqueeze"})


@dataclass(frozen=True)
class Judgement:
    """Arrays that train, and those that stay fixed although they may be weights, with the reason."""

    trainable: frozenset[str]
    doubtful: Mapping[str, str]


def judge(
    graph: onnx.GraphProto, arrays: Arrays, constants: Collection[str], noted: Mapping[str, bool | None] | None = None
) -> Judgement:
    """Tell weights from the other arrays of a graph.

    Args:
        graph: brought into our form by :func:`~deep500.networks.onnx.normalise.normalise`.
        arrays: its initializers and constants.
        constants: those that were Constant nodes, or that the version converter added.
        noted: whether an array was a parameter, where the file says so, see
            :class:`~deep500.networks.onnx.tying.ExporterNotes`.

    Example:
        >>> from onnx import parser
        >>> graph = parser.parse_graph("g (float[N,2] x) => (float[N,3] y) { y = MatMul(x, w) }")
        >>> judge(graph, {"w": np.ones((2, 3), np.float32)}, set()).trainable
        frozenset({'w'})
    """
    readers = _readers(graph)
    floating = {name for name, array in arrays.items() if dtype_name(array.dtype) in FLOATING}
    weights = {
        name
        for name in floating
        if readers[name] and not any(index in SETTINGS.get(kind, ()) for kind, index, _ in readers[name])
    }
    fixed, raw = _independent_of_inputs(graph, arrays), _raw(graph, arrays)
    sinusoids = _sinusoids({name: arrays[name] for name in weights})
    noted = {} if noted is None else {name: trains for name, trains in noted.items() if name in floating}
    doubts = {name: _FOLDED for name in sorted(weights - set(constants)) if noted.get(name, True) is None}
    for name in sorted(weights - noted.keys()):
        reason = _doubt(name, arrays, readers, fixed, sinusoids, name in constants)
        if not reason and not NAMED.search(name) and _normalises_input(name, readers, raw):
            reason = "it is taken from an input, or divides one, as it comes"
        if reason:
            doubts[name] = reason
    chosen = (weights - doubts.keys() - set(constants) - noted.keys()) | {n for n, trains in noted.items() if trains}
    return Judgement(frozenset(chosen), {name: reason for name, reason in doubts.items() if reason != _PLAIN})


def choose(arrays: Arrays, choice: Choice) -> frozenset[str]:
    """The arrays that a user wants to train.

    Raises:
        InputError: a name that no floating array has, or a pattern that fits none.

    Example:
        >>> sorted(choose({"a.w": np.ones(2), "a.b": np.ones(2), "n": np.array(3)}, "*.w"))
        ['a.w']
    """
    floating = [name for name, array in arrays.items() if dtype_name(array.dtype) in FLOATING]
    if callable(choice):
        return frozenset(name for name in floating if choice(name, arrays[name]))
    chosen: set[str] = set()
    for pattern in [choice] if isinstance(choice, str) else choice:
        fitting = {pattern} & set(floating) or set(fnmatch.filter(floating, pattern))
        if not fitting:
            raise InputError(
                f"trainable: got {pattern!r}, which fits no floating array ({nearest(pattern, floating)}); expected "
                "names or patterns with *: print(network) shows the names"
            )
        chosen |= fitting
    return frozenset(chosen)


# -- readers -----------------------------------------------------------------------------------------------------------
_Reader: TypeAlias = tuple[str, int, onnx.NodeProto]
_FOLDED = "its reader was given no parameter that it may be: a constant, or computed from parameters by the exporter"
_PLAIN = "constant"  # surely no weight: not worth a warning


def _readers(graph: onnx.GraphProto) -> dict[str, list[_Reader]]:
    """Return a value's readers: operator, position, node; sub-graphs at -1. Those that read no element are left out."""
    readers: dict[str, list[_Reader]] = defaultdict(list)
    for node in graph.node:
        kind = node.op_type if node.domain == "" else f"{node.domain}.{node.op_type}"
        for index, value in enumerate(node.input):
            if value and (kind, index) not in ASKS_SHAPE_OR_TYPE:
                readers[value].append((kind, index, node))
        for value in reads(node)[len([v for v in node.input if v]) :]:
            readers[value].append((kind, -1, node))
    return readers


def _independent_of_inputs(graph: onnx.GraphProto, arrays: Arrays) -> set[str]:
    """Values that follow from arrays and whole numbers (positions) alone, not from a floating input."""
    fixed = set(arrays) | {v.name for v in graph.input if v.type.tensor_type.elem_type not in _FLOATING_TYPES}
    for node in graph.node:
        if all(value in fixed for value in reads(node)):
            fixed.update(node.output)
    return fixed


def _raw(graph: onnx.GraphProto, arrays: Arrays) -> dict[str, str]:
    """Inputs, and what becomes of them before anything is learned: the operator that arrays were last applied with.

    Changes of shape and type and a scale of one number leave an input as it comes.
    """
    raw = {value.name: "" for value in graph.input if value.name not in arrays}
    for node in graph.node:
        kind, first = node.op_type, next(iter(node.input), "")
        if node.domain or first not in raw:
            continue
        if kind in RESHAPES:
            raw[node.output[0]] = raw[first]
        elif kind in ("Div", "Mul", "Sub") and node.input[1] in arrays:
            single = arrays[node.input[1]].size == 1
            if single or kind != "Mul" or raw[first] == "Sub":
                raw[node.output[0]] = raw[first] if single and kind == "Mul" else kind
    return raw


def _normalises_input(name: str, readers: Mapping[str, list[_Reader]], raw: Mapping[str, str]) -> bool:
    """Return whether an array only is subtracted from inputs as they come, divides them, or scales a difference."""
    return all(
        index == 1
        and node.input[0] in raw
        and (kind in ("Div", "Sub") or (kind == "Mul" and raw[node.input[0]] == "Sub"))
        for kind, index, node in readers[name]
    )


_FLOATING_TYPES = {getattr(onnx.TensorProto, name.upper().replace("FLOAT32", "FLOAT")) for name in FLOATING[:-1]} | {
    onnx.TensorProto.DOUBLE
}


# -- doubts ------------------------------------------------------------------------------------------------------------
def _doubt(
    name: str,
    arrays: Arrays,
    readers: Mapping[str, list[_Reader]],
    fixed: set[str],
    sinusoids: set[str],
    constant: bool,
) -> str:
    """Return why an array that is read like a weight may be none; empty if there is no doubt."""
    array = arrays[name]
    if constant:
        is_operand = any(kind in PRODUCTS and index == 1 for kind, index, _ in readers[name])
        return "a Constant node, but the operand of a product" if is_operand and array.ndim > 1 else _PLAIN
    if array.size <= 1:
        if NAMED.search(name) or any((kind, index) == ("PRelu", 1) for kind, index, _ in readers[name]):
            return ""  # a slope that is no weight is LeakyRelu's
        return _PLAIN if GENERATED.search(name) else "a single number whose name does not say that it is a weight"
    if not _largest(array) < HUGE:
        return "a mask: it holds infinite or huge values"
    if not NAMED.search(name):
        reason = _filled(name, array, readers)
        if reason:
            return reason
    if name in sinusoids:
        return "a table of sines and cosines"
    if _only_makes_waves(name, array, readers, fixed):
        return "frequencies: only sines and cosines are made of it"
    if _is_multiplied_table(name, array, fixed, readers):
        return "a computed table: weights are applied to it, and its values repeat"
    return ""


def _filled(name: str, array: np.ndarray, readers: Mapping[str, list[_Reader]]) -> str:
    """Of an array without the name of a weight: what it was filled with by code, not by training.

    Exporters write a group normalization as an InstanceNormalization with ones and zeros; models bring masks that are
    added to scores, coordinates of a grid, the identity.
    """
    low, high = float(array.min()), float(array.max())
    elementwise = _elementwise(name, readers)
    places = {(kind, index) for kind, index, _ in readers[name]}
    if low == high:
        if places <= {("InstanceNormalization", 1), ("InstanceNormalization", 2)} and low in (0.0, 1.0):
            return _PLAIN
        if places <= {("ScatterElements", 2), ("ScatterND", 2)}:
            return _PLAIN
        before_softmax = any(
            kind == "Softmax"
            for _, _, node in elementwise
            for value in node.output
            for kind, _, _ in readers.get(value, [])
        )
        return "a mask: it adds the same to all scores" if before_softmax and array.ndim > 2 else ""
    if array.ndim == 2 and array.size > 1 and np.array_equal(array, np.eye(*array.shape, dtype=array.dtype)):
        return "the identity"
    if max(array.shape) == array.size > 3 and _is_even(array.astype(np.float64).ravel()):
        return "evenly spaced values"
    if elementwise and array.ndim > 1 and LEAST_TABLE <= array.size <= MOST_TABLE:
        if np.unique(array.astype(np.float64)).size <= FEW * array.size:
            return "a computed table: its values repeat"
    return ""


def _is_even(values: np.ndarray) -> bool:
    step = (values[-1] - values[0]) / (values.size - 1)
    return bool(
        np.allclose(values, values[0] + step * np.arange(values.size), rtol=0, atol=1e-6 * np.abs(values).max())
    )


def _elementwise(name: str, readers: Mapping[str, list[_Reader]]) -> list[_Reader]:
    """Readers that add or multiply element by element, also behind a change of shape."""
    seen, todo, readers_found = {name}, [name], []
    while todo:
        for kind, index, node in readers.get(todo.pop(), []):
            if kind in ("Add", "Mul", "Sub"):
                readers_found.append((kind, index, node))
            elif kind in RESHAPES and index == 0:
                more = [value for value in node.output if value not in seen]
                seen.update(more)
                todo += more
    return readers_found


def _only_makes_waves(name: str, array: np.ndarray, readers: Mapping[str, list[_Reader]], fixed: set[str]) -> bool:
    """Return whether a vector is only multiplied by positions, to take sines and cosines of (rotary embeddings).

    A weight of a network with sine activations also ends there, but multiplied by what comes from a floating input.
    """
    if max(array.shape, default=0) < array.size:
        return False
    seen, todo, waves = {name}, [name], False
    while todo:
        for kind, _, node in readers.get(todo.pop(), []):
            if not all(value in fixed for value in node.output):
                return False
            if kind in WAVES:
                waves = True
            else:
                more = [value for value in node.output if value and value not in seen]
                seen.update(more)
                todo += more
                if not any(readers.get(value) for value in node.output):
                    return False  # an output of the network
    return waves


def _sinusoids(arrays: Mapping[str, np.ndarray]) -> set[str]:
    """Tables of sines and cosines: their squares add up to one, in halves, alternately, or over two tables."""
    tables = set()
    singles: dict[tuple[int, ...], list[str]] = defaultdict(list)
    for name, array in arrays.items():
        if array.ndim >= 2 and array.size >= 16 and _largest(array) <= 1 + 1e-3:
            singles[array.shape].append(name)
            half = array.shape[-1] // 2
            if array.shape[-1] % 2 == 0 and (
                _is_circle(array[..., :half], array[..., half:]) or _is_circle(array[..., ::2], array[..., 1::2])
            ):
                tables.add(name)
    for names in singles.values():
        for place, first in enumerate(names):
            for second in names[place + 1 :]:
                if _is_circle(arrays[first], arrays[second]):
                    tables |= {first, second}
    return tables


def _is_circle(a: np.ndarray, b: np.ndarray) -> bool:
    if not a.size or not abs(float(a.flat[0]) ** 2 + float(b.flat[0]) ** 2 - 1) < 6e-3:
        return False
    rows = a.reshape(-1, a.shape[-1])[:1], b.reshape(-1, b.shape[-1])[:1]  # of most arrays the first row says no
    for pair in (rows, (a, b)):
        x, y = (values.astype(np.float64) for values in pair)
        if not np.allclose(x * x + y * y, 1, atol=5e-3):  # float16 tables are that exact
            return False
    return True


def _largest(array: np.ndarray) -> float:
    """The largest absolute value; NaN where there is one. Makes no copy: weights may be gigabytes."""
    return float(np.maximum(array.max(), -array.min()))


def _is_multiplied_table(name: str, array: np.ndarray, fixed: set[str], readers: Mapping[str, list[_Reader]]) -> bool:
    """Return whether weights are applied to the array, as to an input, and it repeats values, as a grid does."""
    seen, todo = {name}, [name]
    while todo:
        for kind, index, node in readers.get(todo.pop(), []):
            if kind in PRODUCTS and index == 0 and len(node.input) > 1 and node.input[1] in fixed:
                return array.size >= 16 and 1 < np.unique(array.astype(np.float64)).size <= FEW * array.size
            if kind in RESHAPES and index == 0:
                more = [value for value in node.output if value not in seen]
                seen.update(more)
                todo += more
    return False


def warning_text(where: str, train: int, others: int, doubtful: Iterable[tuple[str, str]]) -> str:
    """One line that says how many arrays train, how many do not, and which of these might be weights.

    Example:
        >>> warning_text("m.onnx", 3, 2, [("inv_freq", "frequencies")])
        "m.onnx: 3 arrays train, 2 do not, of which may be weights: 'inv_freq' (frequencies); decide with trainable="
    """
    named = [f"{name!r} ({reason})" for name, reason in doubtful]
    more = [f"{len(named) - 3} more, see print(network)"] if len(named) > 4 else []
    shown = ", ".join([*named[:3], *more] if more else named)
    return f"{where}: {train} arrays train, {others} do not, of which may be weights: {shown}; decide with trainable="
