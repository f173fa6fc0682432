"""Networks for :mod:`tests.fuzz.plans`: drawn of what plans find hard, and taken from the other generators.

Drawn are layers in which samples meet (means over the batch, attention, sums along rows), sub-graphs that capture
values and weights, gathered and written elements, constants of sizes, and frozen arrays, in float64.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from deep500.networks import Network, add_loss, create, to_dtype
from deep500.networks.emit import Emitter

Arrays = dict[str, np.ndarray]
Draw = random.Random


class Case(NamedTuple):
    """A network with a scalar ``loss``, what it is fed, and of what it was made."""

    network: Network
    feeds: Arrays
    words: str


class Layers:
    """A network of rows that grows by drawn layers."""

    def __init__(self, draw: Draw) -> None:
        self.draw, self.rng = draw, np.random.default_rng(draw.getrandbits(32))
        self.rows, self.width = draw.choice((4, 5, 6, 7)), draw.choice((2, 3, 4, 6))
        self.network, self.words = Network("drawn"), list[str]()
        self.network.add_input("x", (draw.choice(("N", self.rows)), self.width), "float64")
        self.emit, self.value = Emitter(self.network, "p/"), "x"

    def array(self, *shape: int, trainable: bool = True) -> str:
        name = self.network.fresh_name("w")
        self.network.add_parameter(name, self.rng.normal(size=shape), trainable=trainable)
        return name

    def constant(self, value: object, dtype: Any = np.float64) -> str:
        return self.emit.constant(np.asarray(value, dtype))

    def graph(self, nodes: list[Any], gives: list[str], takes: list[Any] | None = None) -> Any:
        """A body; its names are those of this place in the network."""
        outputs = [helper.make_tensor_value_info(name, kind, None) for name, kind in map(self._kind, gives)]
        return helper.make_graph(nodes, self.network.fresh_name("body"), takes or [], outputs)

    @staticmethod
    def _kind(name: str) -> tuple[str, int]:
        return name, TensorProto.BOOL if name.endswith("go") else TensorProto.DOUBLE

    def grow(self) -> None:
        layer = self.draw.choice(LAYERS)
        self.words.append(layer.__name__[1:])
        self.value = layer(self, self.value)


def _linear(b: Layers, x: str) -> str:
    wide = b.draw.choice((2, 3, 4, 6))
    y = b.emit("MatMul", x, b.array(b.width, wide))
    b.width = wide
    return b.emit(b.draw.choice(("Tanh", "Sigmoid", "Relu", "Softplus")), b.emit("Add", y, b.array(wide)))


def _gemm(b: Layers, x: str) -> str:
    wide = b.draw.choice((2, 4, 6))
    y = b.emit("Gemm", x, b.array(wide, b.width), b.array(wide), transB=1, alpha=0.5)
    b.width = wide
    return y


def _batch_mean(b: Layers, x: str) -> str:
    return b.emit("Sub", x, b.emit("ReduceMean", x, b.emit.ints(0), keepdims=1))


def _batch_std(b: Layers, x: str) -> str:
    centred = _batch_mean(b, x)
    variance = b.emit("ReduceMean", b.emit("Mul", centred, centred), b.emit.ints(0), keepdims=b.draw.choice((0, 1)))
    return b.emit("Div", centred, b.emit("Sqrt", b.emit("Add", variance, b.constant(0.1))))


def _scalar_mean(b: Layers, x: str) -> str:
    return b.emit("Mul", x, b.emit("ReduceMean", b.emit("Exp", x), keepdims=0))


def _softmax(b: Layers, x: str) -> str:
    return b.emit("Softmax", x, axis=b.draw.choice((0, 1, -1)))


def _row_attention(b: Layers, x: str) -> str:
    """Rows of the batch look at one another, behind a mask."""
    q, k, v = (b.emit("MatMul", x, b.array(b.width, b.width)) for _ in range(3))
    scores = b.emit("MatMul", q, b.emit("Transpose", k, perm=[1, 0]))
    mask = b.constant(np.tril(np.ones((b.rows, b.rows))), bool)
    return b.emit("MatMul", b.emit("Softmax", b.emit("Where", mask, scores, b.constant(-1e9)), axis=-1), v)


def _heads(b: Layers, x: str) -> str:
    """Attention over places with heads and a mask, as modules write it."""
    places, heads = 3, 2
    x = b.emit("Add", b.emit("Unsqueeze", x, b.emit.ints(1)), b.array(places, b.width))
    wide, parts = 4, []
    for perm in ([0, 2, 1, 3], [0, 2, 3, 1], [0, 2, 1, 3]):
        y = b.emit("Add", b.emit("MatMul", x, b.array(b.width, wide)), b.array(wide))
        y = b.emit("Reshape", y, b.emit.ints(0, places, heads, wide // heads))
        parts.append(b.emit("Transpose", y, perm=perm))
    mask = b.constant(np.where(np.tril(np.ones((places, places))), 0, -1e9))
    mixed = b.emit("Softmax", b.emit("Add", b.emit("MatMul", parts[0], parts[1]), mask), axis=-1)
    y = b.emit("Transpose", b.emit("MatMul", mixed, parts[2]), perm=[0, 2, 1, 3])
    b.width = wide
    return b.emit("ReduceMean", b.emit("Reshape", y, b.emit.ints(0, places, wide)), b.emit.ints(1), keepdims=0)


def _embedding(b: Layers, x: str) -> str:
    where = b.emit("ArgMax", x, axis=1, keepdims=0)
    return b.emit("Add", x, b.emit("Gather", b.array(b.width, b.width), where, axis=0))


def _gather(b: Layers, x: str) -> str:
    axis = b.draw.choice((0, 1))
    size = b.width if axis else b.rows
    return b.emit("Gather", x, b.constant(b.rng.integers(-size, size, size), np.int64), axis=axis)


def _sorted(b: Layers, x: str) -> str:
    axis = b.draw.choice((0, 1))
    count = b.emit.ints(b.width if axis else b.rows)
    values, places = b.emit.many("TopK", x, count, outputs=2, axis=axis)
    return values if b.draw.random() < 0.3 else b.emit("GatherElements", x, places, axis=axis)


def _index_update(b: Layers, x: str) -> str:
    rows = b.constant(b.rng.integers(0, b.rows, (3, 1)), np.int64)
    some = b.emit("Slice", x, b.emit.ints(0), b.emit.ints(3), b.emit.ints(0))
    base = x
    if b.draw.random() < 0.5:
        base = b.emit("ConstantOfShape", b.emit("Shape", x), value=np.zeros(1))
    return b.emit("Add", x, b.emit("ScatterND", base, rows, some, reduction="add"))


def _scatter_elements(b: Layers, x: str) -> str:
    axis = b.draw.choice((0, 1))
    size = b.width if axis else b.rows
    where = b.constant(b.rng.integers(0, size, (b.rows, b.width)), np.int64)
    return b.emit("ScatterElements", x, where, b.emit("Tanh", x), axis=axis, reduction="add")


def _if(b: Layers, x: str) -> str:
    """Branches capture the value, and one of them a weight."""
    w, s = b.array(b.width, b.width), b.emit("ReduceSum", x, keepdims=0)
    condition = b.emit("Less", s, b.constant(b.draw.choice((-1e9, 0.0, 1e9))))
    t, e = b.network.fresh_name("then"), b.network.fresh_name("else")
    then = b.graph([helper.make_node("MatMul", [x, w], [t])], [t])
    other = b.graph([helper.make_node(b.draw.choice(("Tanh", "Neg", "Identity")), [x], [e])], [e])
    return b.emit("If", condition, then_branch=then, else_branch=other)


def _loop(b: Layers, x: str) -> str:
    """A state that is multiplied by captured values, or carried alone."""
    n = b.network.fresh_name("loop")
    step, go, state = (f"{n}/{s}" for s in ("step", "come", "state"))
    by = x if b.draw.random() < 0.5 else b.array(b.width)
    kinds = ((step, TensorProto.INT64, []), (go, TensorProto.BOOL, []), (state, TensorProto.DOUBLE, None))
    takes = [helper.make_tensor_value_info(*kind) for kind in kinds]
    nodes = [
        helper.make_node("Mul", [state, by], [f"{n}/product"]),
        helper.make_node("Tanh", [f"{n}/product"], [f"{n}/out"]),
        helper.make_node("Identity", [go], [f"{n}/go"]),
    ]
    body = b.graph(nodes, [f"{n}/go", f"{n}/out"], takes)
    return b.emit("Loop", b.constant(2, np.int64), "", b.emit("Neg", x), body=body)


def _scan(b: Layers, x: str) -> str:
    """Along the rows, with a captured weight."""
    n, w = b.network.fresh_name("scan"), b.array(b.width)
    kinds = ((f"{n}/state", TensorProto.DOUBLE, [b.width]), (f"{n}/row", TensorProto.DOUBLE, [b.width]))
    takes = [helper.make_tensor_value_info(*kind) for kind in kinds]
    nodes = [
        helper.make_node("Mul", [f"{n}/state", w], [f"{n}/kept"]),
        helper.make_node("Add", [f"{n}/kept", f"{n}/row"], [f"{n}/sum"]),
        helper.make_node("Tanh", [f"{n}/sum"], [f"{n}/next"]),
        helper.make_node("Identity", [f"{n}/next"], [f"{n}/out"]),
    ]
    body = b.graph(nodes, [f"{n}/next", f"{n}/out"], takes)
    start = b.constant(np.zeros(b.width))
    return b.emit.many("Scan", start, x, outputs=2, body=body, num_scan_inputs=1)[1]


def _where(b: Layers, x: str) -> str:
    condition = b.emit("Greater", x, b.emit("ReduceMean", x, b.emit.ints(b.draw.choice((0, 1))), keepdims=1))
    return b.emit("Where", condition, x, b.emit("Mul", x, b.constant(0.1)))


def _concat(b: Layers, x: str) -> str:
    b.width *= 2
    return b.emit("Concat", x, b.emit("Tanh", x), axis=1)


def _halves(b: Layers, x: str) -> str:
    if b.width % 2:
        return b.emit("Neg", x)
    b.width //= 2
    left, right = b.emit.many("Split", x, outputs=2, axis=1, num_outputs=2)
    return b.emit("Mul", left, b.emit("Sigmoid", right))


def _doubled_rows(b: Layers, x: str) -> str:
    both = b.emit("Concat", b.emit("Tanh", x), x, axis=0)
    return b.emit("Slice", both, b.emit.ints(1), b.emit.ints(b.rows + 1), b.emit.ints(0))


def _across(b: Layers, x: str) -> str:
    """A product along the batch."""
    return b.emit("MatMul", b.array(b.rows, b.rows), x)


def _pairs(b: Layers, x: str) -> str:
    return b.emit("MatMul", b.emit("Einsum", x, x, equation="nf,mf->nm"), x)


def _layer_norm(b: Layers, x: str) -> str:
    return b.emit("LayerNormalization", x, b.array(b.width), b.array(b.width), axis=-1)


def _running(b: Layers, x: str) -> str:
    names = [b.network.fresh_name(name) for name in ("mean", "variance")]
    for name, value in zip(names, (np.zeros(b.width), np.ones(b.width)), strict=True):
        b.network.add_parameter(name, value, trainable=False)
    return b.emit("BatchNormalization", x, b.array(b.width), b.array(b.width), *names)


def _running_sum(b: Layers, x: str) -> str:
    return b.emit("Tanh", b.emit("CumSum", x, b.constant(b.draw.choice((0, 1)), np.int64)))


def _largest(b: Layers, x: str) -> str:
    axes = b.emit.ints(b.draw.choice((0, 1)))
    return b.emit("Sub", x, b.emit(b.draw.choice(("ReduceMax", "ReduceMin", "ReduceLogSumExp")), x, axes, keepdims=1))


def _regrouped(b: Layers, x: str) -> str:
    """Rows and columns change their places and come back."""
    y = b.emit("Reshape", b.emit("Transpose", x, perm=[1, 0]), b.emit.ints(-1))
    y = b.emit("Mul", y, b.array(b.rows * b.width, trainable=b.draw.random() < 0.5))
    return b.emit("Transpose", b.emit("Reshape", y, b.emit.ints(b.width, b.rows)), perm=[1, 0])


def _frozen(b: Layers, x: str) -> str:
    return b.emit("Mul", x, b.array(b.rows, b.width, trainable=False))


def _of_sizes(b: Layers, x: str) -> str:
    """A scalar weight that is made as large as the batch."""
    return b.emit("Mul", x, b.emit("Expand", b.array(1, 1), b.emit("Shape", x)))


def _padded(b: Layers, x: str) -> str:
    b.width += 1
    return b.emit("Pad", x, b.emit.ints(0, 0, 0, 1), b.constant(0.5))


LAYERS: tuple[Callable[[Layers, str], str], ...] = (
    *(_linear, _linear, _gemm, _batch_mean, _batch_std, _scalar_mean, _softmax, _row_attention, _heads, _embedding),
    *(_gather, _sorted, _index_update, _scatter_elements, _if, _if, _loop, _scan, _where, _concat, _halves),
    *(_doubled_rows, _across, _pairs, _layer_norm, _running, _running_sum, _largest, _regrouped, _frozen, _of_sizes),
    *(_padded,),
)


def drawn(draw: Draw) -> Case:
    """Three to seven layers, then a loss of one of several kinds."""
    b = Layers(draw)
    b.value = _linear(b, b.value)
    for _ in range(draw.randint(2, 6)):
        b.grow()
    b.value = _linear(b, b.value)
    network, feeds = b.network, {"x": b.rng.normal(size=(b.rows, int(b.network.inputs["x"].shape[1])))}
    network.add_output(b.value)
    if draw.random() < 0.15:
        network.add_output(draw.choice(["x", *network.parameters]))
    kind = draw.choice(("mean_squared_error", "cross_entropy", "huber", "own"))
    if kind == "own":
        network.add_node("ReduceSumSquare", [b.value], ["loss"], "loss", keepdims=0)
        network.add_output("loss")
    else:
        add_loss(network, kind, output=b.value)
        classes = kind == "cross_entropy"
        shape = (b.rows, b.width)
        feeds["label"] = b.rng.integers(0, b.width, b.rows) if classes else b.rng.normal(size=shape)
    return Case(network, feeds, f"{' '.join(b.words)}, {kind}")


ZOO: dict[str, dict[str, Any]] = {
    "mlp": {"shape": (6,), "hidden": (8, 8), "classes": 4},
    "lenet": {"shape": (1, 16, 16), "classes": 4},
    "causal_transformer": {"shape": (4,), "classes": 8, "width": 8, "heads": 2, "layers": 1},
    "lstm_language_model": {"shape": (3,), "classes": 8, "width": 8, "embedding": 6},
    "resnet": {"shape": (3, 8, 8), "classes": 4, "depth": 8},
}


def of_the_zoo(draw: Draw) -> Case:
    name, rng = draw.choice(sorted(ZOO)), np.random.default_rng(draw.getrandbits(32))
    network, rows = to_dtype(add_loss(create(name, **ZOO[name])), "float64"), draw.choice((3, 4, 5, 6))
    feeds = {}
    for key, about in network.inputs.items():
        shape = tuple(rows if isinstance(n, str) else n for n in about.shape or ())
        feeds[key] = rng.integers(0, 4, shape) if "int" in str(about.dtype) else rng.normal(size=shape)
    return Case(network, feeds, name)


def of_modules(draw: Draw) -> Case:
    """A drawn PyTorch module, as it is read."""
    from tests.fuzz import modules

    module = modules.drawn(draw.getrandbits(20), 0)
    network = to_dtype(modules.network_of(module, "module").network, "float64")
    (name,), (output,) = network.inputs, network.outputs
    batch = module.batch(draw.getrandbits(20), draw.choice((3, 4, 5, 6)))
    x = batch["input"] if batch["input"].dtype.kind == "i" else batch["input"].astype("float64")
    add_loss(network, "mean_squared_error", output=output)
    return Case(network, {name: x, "label": batch["label"].astype("float64")}, " ".join(module.words))


def of_nnsmith(draw: Draw) -> Case | None:
    """Somebody else's network: most floating inputs train, the loss is a weighted sum of its floating outputs."""
    from tests.fuzz.network_models import case

    taken = case(draw.getrandbits(30), 0)
    model = onnx.load_model_from_string(taken.model)
    for value in [v for v in model.graph.input if taken.feeds[v.name].dtype.kind == "f" and draw.random() < 0.8]:
        model.graph.initializer.append(numpy_helper.from_array(taken.feeds[value.name], value.name))
        model.graph.input.remove(value)
    floating = [t.name for t in model.graph.initializer if numpy_helper.to_array(t).dtype.kind == "f"]
    network = to_dtype(Network.from_onnx(model, trainable=floating), "float64")
    rng, emit, terms = np.random.default_rng(0), Emitter(network, "loss/"), []
    for name, about in network.descriptors().items():
        if name in network.outputs and about.dtype == "float64" and about.is_static:
            weights = rng.normal(size=tuple(int(n) for n in about.shape or ()))
            terms.append(emit("ReduceSum", emit("Mul", name, emit.constant(weights)), keepdims=0))
    if not terms or not network.trainable():
        return None
    total = terms[0] if len(terms) == 1 else emit("Sum", *terms)
    network.add_node("Identity", [total], ["loss"], "loss")
    network.add_output("loss")
    feeds = {name: np.asarray(v) for name, v in taken.feeds.items() if name in network.inputs}
    feeds = {n: v.astype("float64") if v.dtype.kind == "f" else v for n, v in feeds.items()}
    return Case(network, feeds, f"nnsmith{taken.words}")


KINDS: dict[str, Callable[[Draw], Case | None]] = {
    "drawn": drawn,
    "zoo": of_the_zoo,
    "modules": of_modules,
    "nnsmith": of_nnsmith,
}
"""Where networks come from."""
