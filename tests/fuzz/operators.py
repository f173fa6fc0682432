"""Single nodes drawn from the schemas of ONNX, every opset from 7 on: all their attributes, operands and types.

``python -m tests.fuzz.networks --operators --count 1000 [--only LSTM,Resize]`` runs them in five backends, judged as
drawn networks are: by ONNX Runtime's session or ONNX's reference, by each other, and by differences.
A schema says which attributes and types there are in which version; what it does not say, which sizes and values fit
together, is said here by operator. What a runtime that is not ours refuses is no case.
"""

from __future__ import annotations

import functools
import math
import random
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import onnx
from onnx import defs, helper, numpy_helper

from tests.fuzz.network_bare import Arrays, bare
from tests.fuzz.network_models import ATTEMPTS, Case, Draw

OPSETS = (7, 24)
"""The oldest and the newest that are drawn."""
SIZES = (1, 2, 3, 3, 4, 5)
KINDS = ("float32",) * 6 + ("float64", "float16", "int64", "int32", "uint8", "int8", "bool")
DOMAINS: dict[str, tuple[float, float]] = {
    "Acosh": (1.1, 3.0),
    **dict.fromkeys(("Acos", "Asin", "Atanh"), (-0.9, 0.9)),
    **dict.fromkeys(("Log", "Sqrt", "Reciprocal", "ReduceLogSum", "Pow"), (0.2, 3.0)),
}
"""Operator -> the values of its first operand, where not all of (-3, 3) will do."""

Rule = Callable[["Sketch"], None]
RULES: dict[str, Rule] = {}


class Unfit(Exception):
    """Raised where drawn parts do not go together: another try."""


class Sketch:
    """One node while it is drawn.

    Attributes:
        draw, rng: where numbers come from.
        schema: of the operator in its opset.
        kind: dtype of its first operand.
        inputs: arrays, None where an optional one is left out.
        fixed: places of inputs that are arrays of the file, as sizes and axes usually are.
    """

    def __init__(self, draw: Draw, schema: Any, opset: int) -> None:
        self.draw, self.schema, self.opset = draw, schema, opset
        self.rng = np.random.default_rng(draw.getrandbits(32))
        self.inputs: list[np.ndarray | None] = []
        self.fixed: set[int] = set()
        self.attributes: dict[str, Any] = {}
        self.outputs = 1
        allowed = _types(schema, 0)
        self.kind = draw.choice([kind for kind in KINDS if kind in allowed] or ["float32"])

    # -- drawing ------------------------------------------------------------------------------------------------------
    def chance(self, share: float = 0.5) -> bool:
        return self.draw.random() < share

    def some(self, *values: Any) -> Any:
        return self.draw.choice(values)

    def shape(self, low: int = 0, high: int = 4) -> tuple[int, ...]:
        sizes = [self.draw.choice(SIZES) for _ in range(self.draw.randint(low, high))]
        if sizes and self.chance(0.03):
            sizes[self.draw.randrange(len(sizes))] = 0
        return tuple(sizes)

    def axis(self, rank: int, extra: int = 0) -> int:
        """An axis, counted from the front or from the back."""
        if rank + extra < 1:
            raise Unfit
        return self.draw.randrange(-rank - extra, rank + extra)

    def axes(self, rank: int, least: int = 1) -> list[int]:
        some = self.draw.sample(range(rank), self.draw.randint(min(least, rank), rank))
        return [axis - rank if self.chance(0.3) else axis for axis in some]

    def values(self, shape: Sequence[int], kind: str = "", low: float = -3.0, high: float = 3.0) -> np.ndarray:
        """Numbers of a dtype; floating ones are sometimes halves, among which there are ties."""
        kind = kind or self.kind
        if kind == "bool":
            return self.rng.integers(0, 2, shape).astype(bool)
        if kind.startswith("uint"):
            low = 0.0
        array = self.rng.uniform(low, high, shape)
        if kind.startswith(("int", "uint")):
            return np.rint(array * 3).astype(kind)
        return (np.rint(2 * array) / 2 if self.ties else array).astype(kind)

    @property
    def ties(self) -> bool:
        if not hasattr(self, "_ties"):
            self._ties = self.chance(0.15) and self.schema.name not in DOMAINS
        return self._ties

    # -- entering -----------------------------------------------------------------------------------------------------
    def add(self, array: Any, fixed: bool = False) -> np.ndarray:
        """The next operand."""
        if fixed:
            self.fixed.add(len(self.inputs))
        self.inputs.append(None if array is None else np.asarray(array))
        return self.inputs[-1]  # type: ignore[return-value]

    def x(self, shape: Sequence[int], kind: str = "", low: float = -3.0, high: float = 3.0) -> np.ndarray:
        if not self.inputs and self.schema.name in DOMAINS:
            low, high = DOMAINS[self.schema.name]
        return self.add(self.values(shape, kind, low, high))

    def ints(self, values: Any, kind: str = "int64") -> None:
        """Whole numbers as an operand: usually an array of the file."""
        self.add(np.array(values, kind), fixed=self.chance(0.9))

    def set(self, name: str, value: Any, always: bool = False) -> None:
        """An attribute, if this version has it; one with a default is left out now and then."""
        described = self.schema.attributes.get(name)
        if described is not None and (always or described.required or self.chance(0.8)):
            self.attributes[name] = value

    def has(self, name: str) -> bool:
        return name in self.schema.attributes

    def takes(self, place: int) -> bool:
        """Return whether there is an operand at this place."""
        return len(self.schema.inputs) > place

    def sizes_or(self, name: str, place: int, values: Any, share: float = 1.0) -> bool:
        """Whole numbers that are an attribute in older versions and an operand in newer ones; False: left out."""
        if not self.chance(share):
            return False
        if self.has(name):
            self.attributes[name] = values
        else:
            while len(self.inputs) < place:
                self.add(None)
            self.ints(values)
        return True

    # -- building -----------------------------------------------------------------------------------------------------
    def case(self) -> Case:
        names, feeds, tensors = [], Arrays(), []
        for place, array in enumerate(self.inputs):
            name = "" if array is None else f"x{place}"
            names.append(name)
            if array is not None and place in self.fixed:
                tensors.append(numpy_helper.from_array(array, name))
            elif array is not None:
                feeds[name] = array
        outputs = [f"y{number}" for number in range(self.outputs)]
        node = helper.make_node(self.schema.name, names, outputs, "node")
        for key, value in self.attributes.items():
            if not self.has(key):
                raise Unfit(key)
            node.attribute.append(helper.make_attribute(key, value, attr_type=int(self.schema.attributes[key].type)))
        described = [
            helper.make_tensor_value_info(n, helper.np_dtype_to_tensor_dtype(a.dtype), a.shape)
            for n, a in feeds.items()
        ]
        results = [onnx.ValueInfoProto(name=name) for name in outputs]
        graph = helper.make_graph([node], "drawn", described, results, tensors)
        versions = [helper.make_opsetid("", self.opset)]
        oldest = max(helper.find_min_ir_version_for(versions), 8)
        model = helper.make_model(graph, opset_imports=versions, ir_version=oldest)
        try:
            inferred = onnx.shape_inference.infer_shapes(model, check_type=True, strict_mode=True)
        except Exception as error:
            raise Unfit(str(error)) from error
        del model.graph.output[:]
        model.graph.output.extend(inferred.graph.output)
        if any(not value.type.WhichOneof("value") for value in model.graph.output):
            raise Unfit("no type")
        operands = ", ".join("none" if a is None else f"{a.dtype}{list(a.shape)}" for a in self.inputs)
        words = f" {self.schema.name}-{self.opset} {self.attributes} of {operands}"
        return Case(model.SerializeToString(), feeds, words)


def _types(schema: Any, place: int) -> set[str]:
    """NumPy's names of the dtypes that an operand may have."""
    names = {"tensor(float)": "float32", "tensor(double)": "float64"}
    if not schema.inputs:
        return set()
    types = schema.inputs[min(place, len(schema.inputs) - 1)].types
    return {names.get(text, text.removeprefix("tensor(").removesuffix(")")) for text in types}


def rule(*names: str) -> Callable[[Rule], Rule]:
    """Enter how operators are drawn."""

    def enter(function: Rule) -> Rule:
        RULES.update(dict.fromkeys(names, function))
        return function

    return enter


def operator_case(only: str, seed: int, number: int) -> Case:
    """A number of a seed: operators take turns; what is drawn runs in a runtime of somebody else's."""
    draw = random.Random(f"operators:{seed}:{number}")
    names = sorted(filter(None, only.split(","))) or sorted(RULES)
    name = names[number % len(names)]
    for _ in range(3 * ATTEMPTS):
        opset = draw.choice((draw.choice(_opsets(name)), _opsets(name)[-1]))
        sketch = Sketch(draw, defs.get_schema(name, opset, ""), opset)
        try:
            RULES[name](sketch)
            case = sketch.case()
        except Unfit:
            continue
        if bare(case.model, case.feeds).how == "ran":
            return case
    raise RuntimeError(f"got no case of {name} that ONNX Runtime or ONNX's reference runs; expected one")


@functools.cache
def _opsets(name: str) -> list[int]:
    """Those in which there is such an operator."""
    opsets = []
    for opset in range(OPSETS[0], OPSETS[1] + 1):
        try:
            opsets += [] if defs.get_schema(name, opset, "").deprecated else [opset]
        except defs.SchemaError:
            continue
    return opsets


# -- elementwise ------------------------------------------------------------------------------------------------------
UNARY = (
    "Abs Acos Acosh Asin Asinh Atan Atanh BitwiseNot Ceil Celu Cos Cosh Elu Erf Exp Floor HardSigmoid HardSwish "
    "Identity IsNaN LeakyRelu Log Mish Neg Not Reciprocal Relu Round Selu Shrink Sigmoid Sign Sin Sinh Softplus "
    "Softsign Sqrt Swish Tan Tanh ThresholdedRelu"
).split()


@rule(*UNARY)
def unary(s: Sketch) -> None:
    array = s.x(s.shape())
    if s.schema.name == "IsNaN" and array.size:
        array.reshape(-1)[0] = np.nan
    for name in s.schema.attributes:
        s.set(name, s.draw.uniform(0.2, 2.0))


@rule("Gelu")
def gelu(s: Sketch) -> None:
    s.x(s.shape())
    s.set("approximate", s.some("none", "tanh"))


@rule("IsInf")
def is_inf(s: Sketch) -> None:
    array = s.x(s.shape(1))
    array.reshape(-1)[: array.size // 2] = s.some(np.inf, -np.inf)
    s.set("detect_negative", s.some(0, 1))
    s.set("detect_positive", s.some(0, 1))


@rule(*"Add Sub Mul Div Pow Mod And Or Xor Equal Greater GreaterOrEqual Less LessOrEqual PRelu".split())
@rule(*"BitwiseAnd BitwiseOr BitwiseXor BitShift".split())
def binary(s: Sketch) -> None:
    first, second = _broadcast(s, 2)
    if s.schema.name == "PRelu":
        second = tuple(size if s.chance() else 1 for size in first[-len(second) :]) if first else ()
    s.x(first)
    kind = s.kind
    if s.schema.name == "Pow" and s.opset >= 12 and s.chance(0.3):
        kind = s.some("int64", "int32", "float32", "float64")
    if s.schema.name in ("Div", "Mod", "BitShift"):
        low = 0.4 if s.kind.startswith("uint") or s.schema.name == "BitShift" or s.chance() else -3.0
        array = s.values(second, kind, low, 1.5)
        s.add(np.where(array == 0, np.array(1, array.dtype), array))
    else:
        s.x(second, kind, 0.0 if s.schema.name == "Pow" and "int" in kind else -3.0)
    if s.schema.name == "Mod":
        s.attributes["fmod"] = 1 if "float" in s.kind else s.some(0, 1)
    s.set("direction", s.some("LEFT", "RIGHT"))


@rule("Max", "Min", "Sum", "Mean")
def variadic(s: Sketch) -> None:
    for shape in _broadcast(s, s.draw.randint(1, 4)):
        s.x(shape)


@rule("Where")
def where(s: Sketch) -> None:
    first, second, third = _broadcast(s, 3)
    s.kind = s.some("float32", "float32", "float64", "int64", "int32")
    s.x(first, "bool")
    s.x(second)
    s.x(third)


def _broadcast(s: Sketch, count: int) -> list[tuple[int, ...]]:
    """Shapes that broadcast against each other, of several ranks."""
    whole = s.shape()
    shapes = []
    for _ in range(count):
        start = s.draw.randint(0, len(whole)) if s.chance(0.3) else 0
        shapes.append(tuple(1 if s.chance(0.2) else size for size in whole[start:]))
    if s.schema.name != "PRelu":
        s.draw.shuffle(shapes)
    else:
        shapes[0] = whole
    return shapes


@rule("Clip")
def clip(s: Sketch) -> None:
    s.x(s.shape())
    if s.has("min"):
        s.set("min", s.draw.uniform(-2, 0.5))
        s.set("max", s.draw.uniform(0, 2))
        return
    bounds = [s.values((), low=-2, high=0.5), s.values((), low=0, high=2)]
    present = s.some((1, 1), (1, 0), (0, 1), (0, 0))
    for bound, there in zip(bounds, present, strict=True):
        s.add(bound if there else None, fixed=s.chance())


@rule("Cast")
def cast(s: Sketch) -> None:
    s.x(s.shape())
    to = s.some("float32", "float64", "float16", "int64", "int32", "uint8", "int8", "bool")
    if to.startswith("uint") and s.inputs[0].dtype.kind == "f":
        s.inputs[0] = np.abs(s.inputs[0])
    s.attributes["to"] = helper.np_dtype_to_tensor_dtype(np.dtype(to))


@rule("CastLike")
def cast_like(s: Sketch) -> None:
    s.x(s.shape())
    s.x(s.shape(), s.some("float32", "float64", "int64", "int32"))


@rule("QuantizeLinear", "DequantizeLinear")
def quantize(s: Sketch) -> None:
    whole, narrow = s.some("uint8", "int8"), s.schema.name == "QuantizeLinear"
    shape = list(s.shape(1, 4))
    how = s.some("one", "one", "axis" if s.opset >= 13 else "one", "blocks" if s.opset >= 21 else "one")
    axis, block = s.axis(len(shape)), s.some(1, 2)
    count: tuple[int, ...] = () if how == "one" else (shape[axis],)
    if how == "blocks":
        count = tuple(shape)
        shape[axis] *= block
        s.attributes["block_size"] = block
    s.kind = "float32"
    s.add(s.values(shape) if narrow else s.rng.integers(0, 100, shape).astype(whole))
    s.add(s.rng.uniform(0.02, 0.2, count).astype("float32"), fixed=s.chance())
    if narrow or s.chance(0.7):
        s.add(s.rng.integers(0, 20, count).astype(whole), fixed=s.chance())
    if how != "one":
        s.attributes["axis"] = axis


@rule("DynamicQuantizeLinear")
def dynamic_quantize(s: Sketch) -> None:
    s.x(s.shape(1))
    s.outputs = 3


# -- reductions and order ---------------------------------------------------------------------------------------------
@rule(*(f"Reduce{name}" for name in "L1 L2 LogSum LogSumExp Max Mean Min Prod Sum SumSquare".split()))
def reduction(s: Sketch) -> None:
    shape = s.shape(0, 4)
    s.x(shape)
    s.sizes_or("axes", 1, s.axes(len(shape), least=0 if s.opset >= 18 else 1), 0.8)
    s.set("keepdims", s.some(0, 1))
    s.set("noop_with_empty_axes", s.some(0, 1))


@rule("ArgMax", "ArgMin")
def arg_extreme(s: Sketch) -> None:
    shape = s.shape(1)
    s.x(shape)
    s.set("axis", s.axis(len(shape)) if s.opset >= 11 else s.draw.randrange(len(shape)))
    s.set("keepdims", s.some(0, 1))
    s.set("select_last_index", s.some(0, 1))


@rule("CumSum")
def cumulate(s: Sketch) -> None:
    shape = s.shape(1)
    s.x(shape)
    s.ints(s.axis(len(shape)))
    s.set("exclusive", s.some(0, 1))
    s.set("reverse", s.some(0, 1))


@rule("TopK")
def top_k(s: Sketch) -> None:
    shape = s.shape(1)
    axis = s.axis(len(shape)) if s.opset >= 11 else s.draw.randrange(len(shape))
    s.x(shape)
    s.sizes_or("k", 1, s.draw.randint(1, max(shape[axis], 1)) if s.has("k") else [s.draw.randint(0, shape[axis])])
    s.set("axis", axis, always=True)
    s.set("largest", s.some(0, 1))
    s.set("sorted", 1)
    s.outputs = 2


@rule("Softmax", "LogSoftmax", "Hardmax")
def softmax(s: Sketch) -> None:
    shape = s.shape(1)
    s.x(shape)
    s.set("axis", s.axis(len(shape)) if s.opset >= 11 else s.draw.randrange(len(shape)))
    if "axis" not in s.attributes and s.opset < 13 and len(shape) < 2:
        raise Unfit


@rule("Trilu")
def trilu(s: Sketch) -> None:
    s.x(s.shape(2))
    if s.chance(0.7):
        s.ints(s.draw.randint(-4, 4))
    s.set("upper", s.some(0, 1))


@rule("OneHot")
def one_hot(s: Sketch) -> None:
    shape, depth = s.shape(1, 3), s.draw.randint(1, 5)
    s.kind = s.some("int64", "int32", "float32")
    s.add(s.rng.integers(-depth, depth, shape).astype(s.kind))
    s.add(np.array(s.some(depth, [depth]), s.some("int64", "int32")), fixed=s.chance(0.8))
    s.add(s.values((2,), s.some("float32", "float32", "int64")), fixed=s.chance())
    s.set("axis", s.draw.randint(-len(shape) - 1, len(shape)))


@rule("NonZero", "Shape", "Size")
def about(s: Sketch) -> None:
    s.x(s.shape())
    s.set("start", s.draw.randint(-4, 4))
    s.set("end", s.draw.randint(-4, 4))


@rule("Unique")
def unique(s: Sketch) -> None:
    shape = s.shape(1, 3)
    s.add(np.rint(s.values(shape, "float32")).astype(s.some("float32", "int64")))
    s.set("axis", s.axis(len(shape)))
    s.set("sorted", 1)
    s.outputs = s.draw.randint(1, 4)


@rule("Range")
def numbers_in_order(s: Sketch) -> None:
    s.kind = s.some("float32", "int64", "int32", "float64")
    start, step = s.draw.randint(-4, 4), s.some(1, 2, -1, -2)
    for value in (start, start + step * s.draw.randint(-1, 5), step):
        s.add(np.array(value + (0.5 if "float" in s.kind and value is start else 0), s.kind), fixed=True)


@rule("EyeLike")
def eye_like(s: Sketch) -> None:
    s.x(s.shape(2, 2))
    s.set("k", s.draw.randint(-3, 3))
    s.set("dtype", helper.np_dtype_to_tensor_dtype(np.dtype(s.some("float32", "float64", "int64"))))


# -- movement ---------------------------------------------------------------------------------------------------------
@rule("Concat")
def concat(s: Sketch) -> None:
    shape = s.shape(1)
    axis = s.axis(len(shape)) if s.opset >= 11 else s.draw.randrange(len(shape))
    for _ in range(s.draw.randint(1, 4)):
        sizes = list(shape)
        sizes[axis] = s.draw.randint(0 if s.chance(0.2) else 1, 3)
        s.x(sizes)
    s.attributes["axis"] = axis


@rule("Split")
def split(s: Sketch) -> None:
    shape = list(s.shape(1))
    axis, count = s.axis(len(shape)) if s.opset >= 11 else s.draw.randrange(len(shape)), s.draw.randint(1, 3)
    parts = [s.draw.randint(0, 3) for _ in range(count)]
    uneven = s.opset >= 18 and s.chance(0.4)
    shape[axis] = sum(parts) if not uneven else s.draw.randint(count, 8)
    s.x(shape)
    if uneven:
        s.attributes["num_outputs"] = count
        if -(-shape[axis] // count) * (count - 1) >= shape[axis]:
            raise Unfit
    else:
        s.sizes_or("split", 1, parts)
    s.attributes["axis"], s.outputs = axis, count


@rule("Slice")
def cut(s: Sketch) -> None:
    shape = s.shape(1)
    axes = s.axes(len(shape)) if s.opset >= 10 else sorted(s.draw.sample(range(len(shape)), 1))
    steps = [s.some(1, 2, 3, -1, -2) if s.opset >= 10 and s.chance() else 1 for _ in axes]
    starts = [s.draw.randint(-6, 6) for _ in axes]
    ends = [s.some(s.draw.randint(-6, 6), 2**31 - 1 if step > 0 else -(2**31)) for step in steps]
    s.x(shape)
    if s.has("starts"):
        s.attributes.update(starts=starts, ends=ends, axes=axes)
        return
    kind = s.some("int64", "int32")
    s.ints(starts, kind)
    s.ints(ends, kind)
    s.ints(axes, kind)
    if set(steps) != {1} or s.chance():
        s.ints(steps, kind)


@rule("Pad")
def pad(s: Sketch) -> None:
    shape, mode = s.shape(1), s.some("constant", "constant", "reflect", "edge", "wrap")
    if mode == "wrap" and s.opset < 19:
        mode = "edge"
    axes = s.axes(len(shape)) if s.opset >= 18 and s.chance(0.4) else list(range(len(shape)))
    low = -1 if mode == "constant" and s.chance(0.3) else 0
    sizes = [shape[axis] for axis in axes]
    most = [max(size - 1, 0) if mode == "reflect" else min(size, 2) if mode != "constant" else 2 for size in sizes]
    pads = [s.draw.randint(max(low, -(size // 2)), m) for _ in (0, 1) for m, size in zip(most, sizes, strict=True)]
    s.x(shape)
    s.set("mode", mode, always=True)
    if s.has("pads"):
        s.attributes["pads"] = pads
        s.set("value", s.draw.uniform(-1, 1))
        return
    s.ints(pads)
    valued = s.chance(0.6)
    s.add(s.values(()) if valued else None, fixed=s.chance())
    if len(axes) < len(shape) or axes != list(range(len(shape))):
        s.ints(axes)
    elif not valued:
        s.inputs.pop()


@rule("Reshape")
def reshape(s: Sketch) -> None:
    shape = s.shape()
    size, zero = math.prod(shape), s.opset >= 14 and s.chance(0.2)
    new: list[int] = []
    rest = size
    while rest > 1 and len(new) < 3:
        part = s.draw.choice([n for n in range(1, rest + 1) if rest % n == 0])
        new.append(part)
        rest //= part
    new.append(rest)
    if size and s.chance(0.6):
        new[s.draw.randrange(len(new))] = -1
    elif not zero and shape and s.chance(0.3):
        new = [0, -1] if size else new
    s.x(shape)
    s.ints(new)
    if zero:
        s.attributes["allowzero"] = 1


@rule("Transpose")
def transpose(s: Sketch) -> None:
    shape = s.shape()
    s.x(shape)
    s.set("perm", s.draw.sample(range(len(shape)), len(shape)))


@rule("Expand")
def expand(s: Sketch) -> None:
    first, second = _broadcast(s, 2)
    s.x(first)
    s.ints(second)


@rule("Tile")
def tile(s: Sketch) -> None:
    shape = s.shape()
    s.x(shape)
    s.ints([s.draw.randint(0 if s.chance(0.1) else 1, 3) for _ in shape])


@rule("Squeeze")
def squeeze(s: Sketch) -> None:
    shape = [s.some(1, 1, 2, 3) for _ in range(s.draw.randint(0, 4))]
    ones = [axis for axis, size in enumerate(shape) if size == 1]
    s.x(shape)
    axes = s.draw.sample(ones, s.draw.randint(0, len(ones)))
    back = s.opset >= 11
    if axes:
        s.sizes_or("axes", 1, [axis - len(shape) if back and s.chance(0.3) else axis for axis in axes])


@rule("Unsqueeze")
def unsqueeze(s: Sketch) -> None:
    shape, more = s.shape(0, 3), s.draw.randint(1, 2)
    rank = len(shape) + more
    s.x(shape)
    axes = s.draw.sample(range(rank), more)
    s.sizes_or("axes", 1, [axis - rank if s.opset >= 11 and s.chance(0.3) else axis for axis in axes])


@rule("Flatten")
def flatten(s: Sketch) -> None:
    shape = s.shape()
    s.x(shape)
    s.set("axis", s.draw.randint(-len(shape) if s.opset >= 11 else 0, len(shape)), always=len(shape) < 1)


@rule("DepthToSpace", "SpaceToDepth")
def blocks(s: Sketch) -> None:
    block, (n, c, h, w) = s.draw.randint(1, 3), (s.some(1, 2), s.some(1, 2), s.some(1, 2), s.some(2, 3))
    deep = s.schema.name == "DepthToSpace"
    s.x((n, c * block**2, h, w) if deep else (n, c, h * block, w * block))
    s.attributes["blocksize"] = block
    s.set("mode", s.some("DCR", "CRD"))


@rule("ReverseSequence")
def reverse_sequence(s: Sketch) -> None:
    shape = s.shape(2, 4)
    time = s.some(0, 1)
    s.x(shape)
    s.add(s.rng.integers(1, max(shape[time], 1) + 1, shape[1 - time]))
    s.attributes.update(time_axis=time, batch_axis=1 - time)


@rule("CenterCropPad")
def center_crop_pad(s: Sketch) -> None:
    shape = s.shape(1, 4)
    axes = s.axes(len(shape)) if s.chance() else list(range(len(shape)))
    s.x(shape)
    s.ints([s.draw.randint(1, 6) for _ in axes])
    if axes != list(range(len(shape))):
        s.attributes["axes"] = axes


# -- indices ----------------------------------------------------------------------------------------------------------
def _indices(s: Sketch, shape: Sequence[int], size: int) -> np.ndarray:
    """Places on an axis, some counted from the back."""
    if not size and math.prod(shape):
        raise Unfit
    low = -size if s.opset >= 11 else 0
    return s.rng.integers(low, max(size, 1), shape).astype(s.some("int64", "int64", "int32"))


@rule("Gather")
def gather(s: Sketch) -> None:
    shape = s.shape(1, 3)
    axis = s.axis(len(shape))
    s.x(shape)
    s.add(_indices(s, s.shape(0, 2), shape[axis]), fixed=s.chance())
    s.set("axis", axis, always=True)


@rule("GatherElements")
def gather_elements(s: Sketch) -> None:
    shape = s.shape(1, 3)
    axis = s.axis(len(shape))
    s.x(shape)
    sizes = [s.draw.randint(1, max(size, 1)) if n != axis % len(shape) else 4 for n, size in enumerate(shape)]
    s.add(_indices(s, sizes, shape[axis]), fixed=s.chance())
    s.set("axis", axis, always=True)


@rule("GatherND")
def gather_nd(s: Sketch) -> None:
    shape = s.shape(1, 4)
    batch = s.draw.randint(0, min(2, len(shape) - 1)) if s.opset >= 12 else 0
    depth = s.draw.randint(1, len(shape) - batch)
    rows = (*shape[:batch], *s.shape(0 if batch else 1, 2))
    columns = [s.rng.integers(-n if s.opset >= 12 else 0, n, rows) for n in shape[batch : batch + depth] if n]
    if len(columns) < depth:
        raise Unfit
    s.x(shape)
    s.add(np.stack(columns, -1), fixed=s.chance())
    s.set("batch_dims", batch, always=True)


@rule("ScatterElements")
def scatter_elements(s: Sketch) -> None:
    shape = s.shape(1, 3)
    axis, reduction = s.axis(len(shape)), s.some("none", "add", "mul", "max", "min")
    if (reduction in ("max", "min") and s.opset < 18) or not s.has("reduction"):
        reduction = "none"
    count = s.draw.randint(0, shape[axis]) if reduction == "none" else 4
    sizes = [s.draw.randint(1, max(size, 1)) if n != axis % len(shape) else count for n, size in enumerate(shape)]
    s.x(shape)
    if reduction == "none":  # what is written twice has no order
        rows = [s.rng.permutation(max(shape[axis], 1))[:count] for _ in range(math.prod(sizes) // max(count, 1))]
        places = np.moveaxis(np.array(rows, np.int64).reshape(*np.delete(sizes, axis), count), -1, axis)
        s.add(places - shape[axis] * (s.rng.random(places.shape) < 0.2), fixed=s.chance())
    else:
        s.add(_indices(s, sizes, shape[axis]), fixed=s.chance())
    s.x(sizes)
    s.set("axis", axis, always=True)
    if reduction != "none":
        s.attributes["reduction"] = reduction


@rule("ScatterND")
def scatter_nd(s: Sketch) -> None:
    shape = s.shape(1, 3)
    depth, reduction = s.draw.randint(1, len(shape)), s.some("none", "add", "mul", "max", "min")
    if (reduction in ("max", "min") and s.opset < 18) or not s.has("reduction"):
        reduction = "none"
    places = list(np.ndindex(*shape[:depth]))
    if not places:
        raise Unfit
    if reduction == "none":
        rows = s.draw.sample(places, s.draw.randint(1, len(places)))
    else:
        rows = [s.draw.choice(places) for _ in range(5)]
    s.x(shape)
    s.add(np.array(rows, np.int64), fixed=s.chance())
    s.x((len(rows), *shape[depth:]))
    if reduction != "none":
        s.attributes["reduction"] = reduction


@rule("TensorScatter")
def tensor_scatter(s: Sketch) -> None:
    batch, length, some = s.some(1, 2), 5, s.draw.randint(1, 3)
    s.x((batch, 2, length, 3))
    s.x((batch, 2, some, 3))
    if s.chance(0.8):
        s.add(s.rng.integers(0, length - some + 1, batch))
    s.set("mode", s.some("linear", "circular"))
    s.set("axis", -2)


@rule("Compress")
def compress(s: Sketch) -> None:
    shape = s.shape(1, 3)
    axis = s.axis(len(shape))
    whole = s.chance(0.4)
    count = math.prod(shape) if whole else shape[axis]
    s.x(shape)
    s.add(s.rng.integers(0, 2, s.draw.randint(min(1, count), count)).astype(bool), fixed=s.chance(0.8))
    if not whole:
        s.attributes["axis"] = axis


# -- products ---------------------------------------------------------------------------------------------------------
@rule("MatMul")
def matmul(s: Sketch) -> None:
    m, k, n = (s.some(*SIZES) for _ in range(3))
    first, second = _broadcast(s, 2)
    s.x((*first[:2], m, k) if s.chance(0.85) else (k,))
    s.x((*second[:2], k, n) if s.chance(0.85) else (k,))


@rule("Gemm")
def gemm(s: Sketch) -> None:
    m, k, n = (s.some(*SIZES) for _ in range(3))
    across, down = s.some(0, 1), s.some(0, 1)
    s.x((k, m) if across else (m, k))
    s.x((n, k) if down else (k, n))
    if s.opset < 11 or s.chance(0.8):
        s.x(s.some((m, n), (n,), (1, n), (m, 1), (1,), ()))
    s.attributes.update(transA=across, transB=down)
    whole = "int" in s.kind
    s.set("alpha", s.some(-1.0, 2.0) if whole else s.draw.uniform(-2, 2))
    s.set("beta", s.some(-1.0, 2.0) if whole else s.draw.uniform(-2, 2))


@rule("Einsum")
def einsum(s: Sketch) -> None:
    letters = {letter: s.some(2, 3, 4) for letter in "abcd"}
    terms = ["".join(s.draw.sample("abcd", s.draw.randint(1, 3))) for _ in range(s.draw.randint(1, 3))]
    there = sorted({letter for term in terms for letter in term})
    result = "".join(s.draw.sample(there, s.draw.randint(0, len(there))))
    dots = s.chance(0.3)
    before = {term: s.shape(0, 1) for term in terms} if dots else {}
    if dots:
        whole = s.some(2, 3)
        before = {term: s.some((), (whole,), (1,)) for term in terms}
    for term in terms:
        s.x((*before.get(term, ()), *(letters[letter] for letter in term)))
    sign = "..." if dots else ""
    implied = not dots and s.chance(0.2)
    joined = ",".join(sign + term for term in terms)
    s.attributes["equation"] = joined if implied else f"{joined}->{sign}{result}"


@rule("Det")
def det(s: Sketch) -> None:
    n = s.some(1, 2, 3)
    s.x((*s.shape(0, 2), n, n))


@rule("MatMulInteger")
def matmul_integer(s: Sketch) -> None:
    m, k, n = (s.some(*SIZES) for _ in range(3))
    kinds = s.some("uint8", "int8"), s.some("uint8", "int8")
    s.add(s.rng.integers(0, 20, (m, k)).astype(kinds[0]))
    s.add(s.rng.integers(0, 20, (k, n)).astype(kinds[1]), fixed=s.chance())
    if s.chance(0.6):
        s.add(np.array(s.draw.randint(0, 5), kinds[0]), fixed=True)
        if s.chance(0.6):
            s.add(np.array(s.draw.randint(0, 5), kinds[1]), fixed=True)


# -- windows ----------------------------------------------------------------------------------------------------------
def _window(s: Sketch, rank: int, dilated: bool = True) -> list[int]:
    """Attributes of a sliding window; returns its kernel. With ``dilated`` it may be so under SAME, too, where ONNX
    Runtime's pools forget it."""
    kernel = [s.some(1, 2, 3) for _ in range(rank)]
    s.set("strides", [s.some(1, 1, 2, 3) for _ in range(rank)])
    how = s.some("NOTSET", "NOTSET", "pads", "pads", "SAME_UPPER", "SAME_LOWER", "VALID")
    if s.chance(0.4) and (dilated or "SAME" not in how):
        s.set("dilations", [s.some(1, 2) for _ in range(rank)])
    if how == "pads":
        s.attributes["pads"] = [s.draw.randint(0, size // 2) for _ in (0, 1) for size in kernel]
    elif how != "NOTSET" or s.chance():
        s.attributes["auto_pad"] = how
    return kernel


@rule("Conv", "ConvTranspose")
def conv(s: Sketch) -> None:
    rank, group, per, out = s.some(1, 2, 2, 3), s.some(1, 1, 2, 3), s.some(1, 2), s.some(1, 2)
    transposed = s.schema.name == "ConvTranspose"
    kernel = _window(s, rank)
    if transposed and s.attributes.get("auto_pad", "").startswith("SAME"):  # how much padding is below 0?
        kernel = [max(k, step) for k, step in zip(kernel, s.attributes.get("strides", kernel), strict=True)]
    sizes = [s.draw.randint(5, 8) if rank < 3 else s.draw.randint(4, 5) for _ in kernel]
    s.x((s.some(1, 2, 3), group * per, *sizes))
    s.x((group * per, out, *kernel) if transposed else (group * out, per, *kernel))
    if s.chance():
        s.x((group * out,))
    s.set("group", group, always=True)
    if s.chance():
        s.attributes["kernel_shape"] = kernel
    if transposed and s.chance(0.4) and "auto_pad" not in s.attributes:
        strides = s.attributes.get("strides", [1] * rank)
        s.attributes["output_padding"] = [s.draw.randint(0, max(stride - 1, 0)) for stride in strides]
    elif transposed and s.chance(0.2):
        s.attributes.pop("pads", None)
        strides = s.attributes.get("strides", [1] * rank)
        s.attributes["output_shape"] = [n * step + s.draw.randint(0, 1) for n, step in zip(sizes, strides, strict=True)]


@rule("MaxPool", "AveragePool", "LpPool")
def pool(s: Sketch) -> None:
    rank = s.some(1, 2, 2, 3)
    kernel = _window(s, rank, dilated=False)
    s.attributes["kernel_shape"] = kernel
    s.x((s.some(1, 2), s.some(1, 2, 3), *(s.draw.randint(4, 7) for _ in kernel)))
    s.set("ceil_mode", s.some(0, 1))
    s.set("count_include_pad", s.some(0, 1))
    s.set("p", s.some(1, 2, 3))
    if s.schema.name == "MaxPool" and s.opset >= 8 and s.chance(0.4):
        s.outputs = 2
        s.set("storage_order", s.some(0, 1))


@rule("GlobalAveragePool", "GlobalMaxPool", "GlobalLpPool")
def global_pool(s: Sketch) -> None:
    s.x((s.some(1, 2), s.some(1, 3), *(s.some(*SIZES) for _ in range(s.some(1, 2, 3)))))
    s.set("p", s.some(1, 2, 3))


@rule("MaxUnpool")
def max_unpool(s: Sketch) -> None:
    s.kind = "float32"
    s.x((1, 2, 2, 2))
    s.add(np.stack([s.rng.permutation(16)[:4].reshape(2, 2) + 16 * c for c in (0, 1)])[None], fixed=s.chance())
    s.attributes.update(kernel_shape=[2, 2], strides=[2, 2])
    s.set("pads", [0, 0, 0, 0])


@rule("Col2Im")
def col2im(s: Sketch) -> None:
    block, sizes = [s.some(1, 2, 3), s.some(1, 2, 3)], [s.draw.randint(4, 6), s.draw.randint(4, 6)]
    strides, dilations = [s.some(1, 2) for _ in block], [s.some(1, 2) for _ in block]
    pads = [s.some(0, 1) for _ in range(4)]
    count = 1
    for n, k, t, d, a, b in zip(sizes, block, strides, dilations, pads[:2], pads[2:], strict=True):
        count *= (n + a + b - d * (k - 1) - 1) // t + 1
    s.x((s.some(1, 2), 2 * math.prod(block), count))
    s.ints(sizes)
    s.ints(block)
    s.attributes.update(strides=strides, dilations=dilations, pads=pads)


@rule("LRN")
def lrn(s: Sketch) -> None:
    s.x((s.some(1, 2), s.some(1, 3, 5), *s.shape(0, 2)))
    s.attributes["size"] = s.some(1, 2, 3, 4, 5)
    s.set("alpha", s.draw.uniform(0.01, 1))
    s.set("beta", s.draw.uniform(0.3, 1))
    s.set("bias", s.draw.uniform(0.5, 2))


@rule("DeformConv")
def deform_conv(s: Sketch) -> None:
    group, offsets, kernel = s.some(1, 2), s.some(1, 2), [2, s.some(1, 2)]
    sizes, strides, dilations = [4, 5], [s.some(1, 1, 2), s.some(1, 2)], [s.some(1, 1, 2), 1]
    pads, n = [s.some(0, 1) for _ in range(4)], s.some(1, 2)
    out = [
        (size + before + after - dilation * (k - 1) - 1) // stride + 1
        for size, before, after, k, stride, dilation in zip(
            sizes, pads[:2], pads[2:], kernel, strides, dilations, strict=True
        )
    ]
    s.x((n, 2, *sizes))
    s.x((2, 2 // group, *kernel))
    s.x((n, offsets * 2 * math.prod(kernel), *out), low=-0.9, high=0.9)
    if s.chance(0.6):
        s.x((2,))
    if s.chance():
        if len(s.inputs) < 4:
            s.add(None)
        s.x((n, offsets * math.prod(kernel), *out))
    s.attributes.update(group=group, offset_group=offsets, kernel_shape=kernel)
    s.attributes.update(strides=strides, dilations=dilations, pads=pads)


# -- normalization ----------------------------------------------------------------------------------------------------
@rule("BatchNormalization")
def batch_norm(s: Sketch) -> None:
    shape = (s.some(2, 3), s.some(1, 2, 3), *s.shape(0, 3))
    s.x(shape)
    for low, high in ((0.5, 2), (-1, 1), (-1, 1), (0.5, 2)):
        s.add(s.values(shape[1:2], low=low, high=high), fixed=s.chance())
    s.set("epsilon", s.some(1e-5, 1e-3, 0.1))
    s.set("momentum", s.draw.uniform(0.1, 0.9))
    if s.has("training_mode") and s.chance(0.3) and 0 not in shape:
        s.attributes["training_mode"], s.outputs = 1, 3


@rule("InstanceNormalization", "GroupNormalization")
def instance_norm(s: Sketch) -> None:
    groups, per = s.some(1, 2, 3), s.some(1, 2)
    s.x((s.some(1, 2), groups * per, *(s.some(2, 3, 4) for _ in range(s.some(1, 2)))))
    grouped = s.schema.name == "GroupNormalization"
    count = groups if grouped and s.opset < 21 else groups * per
    s.x((count,))
    s.x((count,))
    s.set("epsilon", s.some(1e-5, 1e-3, 0.1))
    if grouped:
        s.attributes["num_groups"] = groups


@rule("LayerNormalization", "RMSNormalization")
def layer_norm(s: Sketch) -> None:
    shape = tuple(s.some(1, 2, 3, 4) for _ in range(s.draw.randint(1, 4)))
    axis = s.axis(len(shape))
    s.x(shape)
    s.x(shape[axis:])
    if s.takes(2) and s.chance(0.7):
        s.x(shape[axis:])
    s.set("axis", axis, always=True)
    s.set("epsilon", s.some(1e-5, 1e-3, 0.1))
    if s.schema.name == "LayerNormalization":
        s.outputs = s.some(1, 1, 3) if s.kind != "float64" else 1  # means in float32 are asked for, ours have all bits


@rule("LpNormalization")
def lp_norm(s: Sketch) -> None:
    shape = s.shape(1)
    s.x(shape)
    s.set("axis", s.axis(len(shape)))
    s.set("p", s.some(1, 2))


@rule("MeanVarianceNormalization")
def mean_variance(s: Sketch) -> None:
    s.add(s.values((2, 3, 4, 2), low=0.5, high=1.5) * np.array([-1, 1], s.kind))  # its body subtracts squares
    s.set("axes", [*s.draw.sample(range(3), s.draw.randint(0, 3)), 3])


# -- recurrences ------------------------------------------------------------------------------------------------------
WITH_DEFAULTS = {"Relu", "Tanh", "Sigmoid", "LeakyRelu", "HardSigmoid", "Elu", "Softsign", "Softplus"}
"""Activations of which runtimes agree what they are without numbers."""
ACTIVATIONS = "Relu Tanh Sigmoid Affine LeakyRelu ThresholdedRelu ScaledTanh HardSigmoid Elu Softsign Softplus".split()


@rule("RNN", "GRU", "LSTM")
def recurrent(s: Sketch) -> None:
    gates = {"RNN": 1, "GRU": 3, "LSTM": 4}[s.schema.name]
    steps, batch, size, hidden = s.some(1, 2, 4), s.some(1, 2, 3), s.some(1, 2, 3), s.some(1, 2, 3)
    direction = s.some("forward", "reverse", "bidirectional")
    ways, layout = (2 if direction == "bidirectional" else 1), s.some(0, 0, 1) if s.has("layout") else 0

    def first(array: np.ndarray) -> np.ndarray:
        return array.swapaxes(0, 1) if layout else array

    lstm, reach = s.schema.name == "LSTM", dict(low=-0.8, high=0.8)
    s.add(first(s.values((steps, batch, size))))
    s.add(s.values((ways, gates * hidden, size), **reach))
    s.add(s.values((ways, gates * hidden, hidden), **reach))
    optional: list[np.ndarray] = [
        s.values((ways, 2 * gates * hidden), **reach),
        s.rng.integers(1, steps + 1, batch).astype("int32"),
        first(s.values((ways, batch, hidden), **reach)),
    ]
    if lstm:
        optional += [first(s.values((ways, batch, hidden), **reach)), s.values((ways, 3 * hidden), **reach)]
    for array in optional:
        s.add(array if s.chance() else None, fixed=array.dtype == np.int32 and s.chance())
    while s.inputs[-1] is None:
        s.inputs.pop()
    s.attributes["hidden_size"] = hidden
    s.set("direction", direction, always=True)
    s.set("layout", layout, always=True)
    s.set("linear_before_reset", s.some(0, 1))
    s.set("input_forget", s.some(0, 0, 1))
    if s.chance(0.25):
        s.set("clip", s.draw.uniform(0.3, 1.5))
    if s.chance(0.5):
        count = {"RNN": 1, "GRU": 2, "LSTM": 3}[s.schema.name] * ways
        s.attributes["activations"] = [s.some(*ACTIVATIONS) for _ in range(count)]
        if s.chance(0.3) or not WITH_DEFAULTS.issuperset(s.attributes["activations"]):
            s.attributes["activation_alpha"] = [s.draw.uniform(0.1, 1) for _ in range(count)]
            s.attributes["activation_beta"] = [s.draw.uniform(0.1, 1) for _ in range(count)]
    s.outputs = 3 if lstm else 2


# -- images -----------------------------------------------------------------------------------------------------------
@rule("Resize")
def resize(s: Sketch) -> None:
    shape = (1, 2, s.draw.randint(2, 6), s.draw.randint(2, 6))
    s.kind = s.some("float32", "float32", "float64") if s.opset > 10 else "float32"
    axes = s.some([2, 3], [3, 2], [-1], [0, 1, 2, 3]) if s.opset >= 18 and s.chance(0.4) else [0, 1, 2, 3]
    mode = s.some("nearest", "linear", "cubic" if s.opset > 10 else "linear")
    new = [shape[a] if a in (0, 1) and s.chance(0.8) else s.draw.randint(1, 9) for a in axes]
    if mode in {"cubic", "linear"}:
        new = [shape[a] if a in (0, 1) else n for a, n in zip(axes, new, strict=True)]
    s.x(shape)
    scaled = s.opset <= 10 or s.chance()
    scales = np.array([n / shape[a] for a, n in zip(axes, new, strict=True)], "float32")
    how = s.some("half_pixel", "asymmetric", "align_corners", "pytorch_half_pixel", "tf_crop_and_resize")
    if s.opset >= 19 and s.chance(0.2):
        how = "half_pixel_symmetric"
    open_ = how == "align_corners" or (s.opset <= 10 and mode == "nearest")  # what part of a place is left at the end?
    if scaled and mode != "nearest" and not open_ and s.chance(0.3):  # factors as people write them
        scales = np.array(
            [scale if a in (0, 1) else s.draw.randint(3, 30) / 10 for a, scale in zip(axes, scales, strict=True)],
            "float32",
        )
    elif scaled and not open_ and s.chance(0.6):
        scales *= np.array([1.0 if a in (0, 1) else s.draw.uniform(0.9, 1.2) for a in axes], "float32")
    stays = [
        int(np.float32(shape[a]) * scale) == shape[a] != 0 and scale != 1 for a, scale in zip(axes, scales, strict=True)
    ]
    if scaled and any(stays):  # ONNX Runtime then does nothing
        raise Unfit
    if s.opset <= 10:
        if mode == "nearest" and scales.min() < 1:  # rounded up, or down?
            raise Unfit
        s.add(scales, fixed=True)
        s.set("mode", mode, always=True)
        return
    roi = None
    if how == "tf_crop_and_resize":
        roi = np.array([0.0 if a in (0, 1) else s.draw.uniform(-0.2, 0.3) for a in axes], "float32")
        roi = np.concatenate([roi, [1.0 if a in (0, 1) else s.draw.uniform(0.6, 1.3) for a in axes]]).astype("float32")
    s.add(roi if roi is not None else np.zeros(0, "float32") if s.opset < 13 else None, fixed=True)
    s.add(scales if scaled else np.zeros(0, "float32") if s.opset < 13 else None, fixed=True)
    if not scaled:
        s.add(np.array(new, "int64"), fixed=True)
    if len(axes) != 4 or axes != [0, 1, 2, 3]:
        s.attributes["axes"] = axes
    s.attributes.update(mode=mode, coordinate_transformation_mode=how)
    if how != "align_corners":  # which meets whole places, up to rounding
        s.set("nearest_mode", s.some("round_prefer_floor", "round_prefer_ceil", "floor", "ceil"))
    s.set("cubic_coeff_a", s.some(-0.75, -0.5))
    s.set("exclude_outside", s.some(0, 1) if mode == "cubic" else 0)
    s.set("extrapolation_value", s.draw.uniform(-1, 1))
    if s.chance(0.3):
        s.set("antialias", 1 if mode != "nearest" else 0)
    if not scaled and s.chance(0.3):
        s.set("keep_aspect_ratio_policy", s.some("stretch", "not_larger", "not_smaller"))


@rule("Upsample")
def upsample(s: Sketch) -> None:
    scales = [1.0, 1.0, s.some(1.0, 2.0, 3.0, 1.5), s.some(1.0, 2.0, 2.5)]
    s.kind = "float32"
    s.x((1, 2, s.draw.randint(2, 4), s.draw.randint(2, 4)))
    if s.has("scales"):
        s.attributes["scales"] = scales
    else:
        s.add(np.array(scales, "float32"), fixed=True)
    s.set("mode", s.some("nearest", "linear"))


@rule("GridSample")
def grid_sample(s: Sketch) -> None:
    rank = s.some(2, 2, 3) if s.opset >= 20 else 2
    s.kind = s.some("float32", "float64")
    modes = ("linear", "nearest", "cubic" if rank == 2 else "linear")
    old = ("bilinear", "nearest", "bicubic")
    n = s.some(1, 2)
    s.x((n, 2, *(s.draw.randint(2, 5) for _ in range(rank))))
    s.x((n, *(s.draw.randint(1, 4) for _ in range(rank)), rank), low=-1.3, high=1.3)
    s.set("mode", s.some(*(modes if s.opset >= 20 else old)))
    s.set("padding_mode", s.some("zeros", "border", "reflection"))
    s.set("align_corners", s.some(0, 1))


@rule("AffineGrid")
def affine_grid(s: Sketch) -> None:
    rank, n = s.some(2, 3), s.some(1, 2)
    s.x((n, rank, rank + 1))
    s.ints([n, 2, *(s.draw.randint(1, 4) for _ in range(rank))])
    s.set("align_corners", s.some(0, 1))


@rule("RoiAlign")
def roi_align(s: Sketch) -> None:
    s.kind, count = "float32", s.draw.randint(1, 3)
    s.x((2, 2, 6, 7))
    corners = s.rng.uniform(0, 3, (count, 2))
    s.add(np.concatenate([corners, corners + s.rng.uniform(0.5, 4, (count, 2))], 1).astype("float32"))
    s.add(s.rng.integers(0, 2, count), fixed=s.chance())
    s.set("mode", s.some("avg", "max") if s.opset >= 16 else "avg")
    s.set("output_height", s.draw.randint(1, 3))
    s.set("output_width", s.draw.randint(1, 3))
    s.set("sampling_ratio", s.some(0, 1, 2))
    s.set("spatial_scale", s.some(1.0, 0.5))
    s.set("coordinate_transformation_mode", s.some("half_pixel", "output_half_pixel"))


@rule("NonMaxSuppression")
def suppress(s: Sketch) -> None:
    count, s.kind = s.draw.randint(2, 8), "float32"
    corners = s.rng.uniform(0, 5, (1, count, 2))
    s.add(np.concatenate([corners, corners + s.rng.uniform(0.5, 3, (1, count, 2))], 2).astype("float32"))
    s.add(s.rng.uniform(0, 1, (1, 2, count)).astype("float32"))
    s.ints([s.draw.randint(0, 4)])
    s.add(np.array([s.some(0.0, 0.3, 0.6)], "float32"), fixed=True)
    if s.chance():
        s.add(np.array([s.some(0.1, 0.5)], "float32"), fixed=True)
    s.set("center_point_box", s.some(0, 1))


# -- losses -----------------------------------------------------------------------------------------------------------
@rule("NegativeLogLikelihoodLoss", "SoftmaxCrossEntropyLoss")
def loss(s: Sketch) -> None:
    n, classes, rest = s.some(1, 2, 3), s.some(2, 3, 4), s.shape(0, 2)
    if 0 in rest:
        raise Unfit
    labels = s.rng.integers(0, classes, (n, *rest)).astype(s.some("int64", "int32"))
    s.x((n, classes, *rest))
    s.add(labels, fixed=s.chance(0.3))
    if s.chance():
        s.add(s.values((classes,), low=0.2, high=2.0), fixed=s.chance())
    if s.chance(0.4):
        ignored = s.some(0, classes - 1, -1)
        s.attributes["ignore_index"] = ignored
        if ignored < 0 and labels.size > 1:
            labels.reshape(-1)[0] = ignored
    s.set("reduction", s.some("none", "sum", "mean"))
    if s.schema.name == "SoftmaxCrossEntropyLoss":
        s.outputs = s.some(1, 2)


# -- signals ----------------------------------------------------------------------------------------------------------
@rule("DFT")
def dft(s: Sketch) -> None:
    whole, back, one = s.some(1, 2), s.some(0, 1), s.some(0, 1)
    if back and one:
        one = 0
    if one:
        whole = 1
    shape = (s.some(1, 2), s.some(2, 3, 4, 5), s.some(2, 3, 4), whole)
    s.kind = s.some("float32", "float64")
    s.x(shape)
    axis = s.some(1, 2, -2, -3)
    length = s.some(2, 4, 6) if s.chance(0.3) else None
    if length:
        s.ints(length)
    if s.has("axis"):
        s.attributes["axis"] = axis
    else:
        if not length:
            s.add(None)
        s.ints(axis)
    s.set("inverse", back, always=True)
    s.set("onesided", one, always=True)


@rule("STFT")
def stft(s: Sketch) -> None:
    s.kind, frame = "float32", s.some(4, 6)
    s.x((s.some(1, 2), 16, 1))
    s.ints(s.some(2, 3, 4))
    windowed = s.chance(0.7)
    s.add(s.rng.uniform(0.2, 1, frame).astype("float32") if windowed else None, fixed=s.chance())
    if not windowed or s.chance():
        s.ints(frame)
    s.set("onesided", s.some(0, 1))


@rule("HannWindow", "HammingWindow", "BlackmanWindow")
def window(s: Sketch) -> None:
    s.ints(s.draw.randint(1, 9))
    s.set("periodic", s.some(0, 1))
    s.set("output_datatype", helper.np_dtype_to_tensor_dtype(np.dtype(s.some("float32", "float64"))))


@rule("MelWeightMatrix")
def mel(s: Sketch) -> None:
    for value in (s.some(4, 8), s.some(16, 32), 8000):
        s.ints(value)
    s.add(np.array(s.some(0.0, 100.0), "float32"), fixed=True)
    s.add(np.array(s.some(3000.0, 4000.0), "float32"), fixed=True)
    s.set("output_datatype", helper.np_dtype_to_tensor_dtype(np.dtype(s.some("float32", "float64"))))


# -- attention --------------------------------------------------------------------------------------------------------
@rule("Attention")
def attention(s: Sketch) -> None:
    s.kind = s.some("float32", "float32", "float64")
    batch, heads, share, size, width = s.some(1, 2), s.some(1, 2), s.some(1, 2), s.some(2, 4), s.some(2, 3)
    queries, keys = s.some(1, 2, 3), s.some(2, 3)
    if s.chance():
        s.x((batch, heads * share, queries, size))
        s.x((batch, heads, keys, size))
        s.x((batch, heads, keys, width))
    else:
        s.x((batch, queries, heads * share * size))
        s.x((batch, keys, heads * size))
        s.x((batch, keys, heads * width))
        s.attributes.update(q_num_heads=heads * share, kv_num_heads=heads)
    past, shown = (s.some(1, 2) if s.chance(0.3) else 0), s.chance(0.2)
    if s.chance(0.4):
        shape = s.some((queries, keys + past), (batch, 1, queries, keys + past))
        s.add(s.rng.integers(0, 2, shape).astype(bool) | (np.arange(shape[-1]) == 0) if s.chance() else s.values(shape))
    if past:
        if len(s.inputs) == 3:
            s.add(None)
        s.x((batch, heads, past, size))
        s.x((batch, heads, past, width))
        s.outputs = 3
        if shown:
            s.outputs = 4
            s.attributes["qk_matmul_output_mode"] = s.some(0, 1, 2, 3)
    s.set("is_causal", s.some(0, 1))
    if s.chance(0.4):
        s.set("scale", s.draw.uniform(0.2, 1))
    if s.chance(0.3):
        s.set("softcap", s.draw.uniform(0.5, 3))


@rule("RotaryEmbedding")
def rotary(s: Sketch) -> None:
    batch, heads, steps, size = s.some(1, 2), s.some(1, 2), s.some(2, 3), s.some(4, 6, 8)
    part = s.some(0, 0, 4) if size > 4 else 0
    half = (part or size) // 2
    if s.chance(0.6):
        s.x((batch, heads, steps, size))
    else:
        s.x((batch, steps, heads * size))
        s.attributes["num_heads"] = heads
    if part:
        s.attributes.update(rotary_embedding_dim=part, num_heads=heads)
    placed = s.chance()
    table = (7, half) if placed else (batch, steps, half)
    s.x(table, low=-1, high=1)
    s.x(table, low=-1, high=1)
    if placed:
        s.add(s.rng.integers(0, 7, (batch, steps)), fixed=s.chance())
    s.set("interleaved", s.some(0, 1))
