"""Networks with sizes known at run time only, drawn; and what any proved rules make of them, held at many sizes.

Rewrites are taken whatever they cost, so that also those are seen which no price would choose here.
"""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable, Iterator, Mapping

import numpy as np

from deep500.errors import Deep500Error
from deep500.networks import Network
from deep500.networks.dtype import to_dtype
from deep500.registry import load_backend
from deep500.transformations.substitutions.graph.importing import import_network
from deep500.transformations.substitutions.graph.writing import export_network
from deep500.transformations.substitutions.rules.matching import Matcher
from deep500.transformations.substitutions.rules.rule_file import read
from deep500.transformations.substitutions.search.moves import apply

SIZES = (1, 2, 3, 4, 5, 6, 7, 8, 9, 12, 13, 23, 64, 67)
"""All rests of strides up to four, one, primes, and what lies above every constant that is drawn."""
Draw = random.Random


class Drawing:
    """A network that grows by one node after the other; what does not fit is left out."""

    def __init__(self, seed: int) -> None:
        self.draw, self.rng = random.Random(seed), np.random.default_rng(seed)
        self.network, self.values, self.count = Network(f"drawn {seed}"), list[str](), 0
        image = self.draw.random() < 0.6
        shapes: list[tuple[object, ...]] = [("N", 4, "H", "W"), ("N", 4, "H", 6), (1, 4, "H", "H"), ("N", 4, 12, "W")]
        if not image:
            shapes = [("N", "S", 6), ("N", 6), ("S", "N", 6), ("N", "S", "M"), ("S", 6)]
        self.input(self.draw.choice(shapes))
        if self.draw.random() < 0.3:
            self.input(self.draw.choice(shapes))
        moves = IMAGE if image else ROWS
        for _ in range(self.draw.randint(3, 9)):
            self.grow(self.draw.choice(moves))
        read = {name for node in self.network.nodes for name in node.reads}
        for name in [name for name in self.values if name not in read and name not in self.network.inputs]:
            self.network.add_output(name)

    def input(self, shape: tuple[object, ...]) -> None:
        self.values.append(f"x{len(self.network.inputs)}")
        self.network.add_input(self.values[-1], shape)  # type: ignore[arg-type]

    def grow(self, move: Callable[[Drawing, str], None]) -> None:
        before = self.network.copy()
        known = len(self.values)
        try:
            move(self, self.draw.choice(self.values[-3:]))
            described = self.network.descriptors()
            executor = load_backend("reference").from_model(self.outputs())
            computed = executor.inference(feeds(self.network, dict.fromkeys(SYMBOLS, 12), 0))
            fits = all(np.size(value) for value in computed.values())  # a kernel above its image gives nothing
            fits &= all(0 not in (described[name].shape or (0,)) for name in self.values[known:])
        except (Deep500Error, IndexError, TypeError, ValueError):
            fits = False
        if not fits:
            self.network, self.values = before, self.values[:known]

    def outputs(self) -> Network:
        twin = self.network.copy()
        for name in self.values[-2:]:
            if name not in twin.inputs:
                twin.add_output(name)
        return twin

    def shape(self, value: str) -> tuple[int | str | None, ...]:
        return self.network.descriptors()[value].shape or ()

    def array(self, *shape: int) -> str:
        self.count += 1
        self.network.add_parameter(f"w{self.count}", self.rng.normal(size=shape).astype("float32"))
        return f"w{self.count}"

    def ints(self, *numbers: int) -> str:
        self.count += 1
        self.network.add_parameter(f"i{self.count}", np.array(numbers, np.int64), trainable=False)
        return f"i{self.count}"

    def node(self, op_type: str, *inputs: str, outputs: int = 1, **attributes: object) -> list[str]:
        names = [f"v{self.count}.{number}" for number in range(outputs)]
        self.count += 1
        self.network.add_node(op_type, list(inputs), names, **attributes)
        self.values += names
        return names


SYMBOLS = ("N", "H", "W", "S", "M")


def window(d: Drawing) -> dict[str, object]:
    pad = d.draw.choice(("NOTSET", "NOTSET", "SAME_UPPER", "SAME_LOWER", "VALID"))
    stride = d.draw.choice((1, 1, 2, 3, 4))
    pads = {"pads": (1, 1, 1, 1)} if pad == "NOTSET" and d.draw.random() < 0.7 else {}
    return {"strides": (stride, stride), **({"auto_pad": pad} if pad != "NOTSET" else pads)}


def conv(d: Drawing, x: str) -> None:
    channels, settings = d.shape(x)[1], window(d)
    size = d.draw.choice(((3, 3), (1, 3), (3, 3), (1, 1)))
    settings |= {"pads": (0, 0, 0, 0)} if size == (1, 1) and "pads" in settings else {}
    settings |= {"pads": (0, 1, 0, 1)} if size == (1, 3) and "pads" in settings else {}
    group = d.draw.choice((1, 1, 2, 4))
    several = d.draw.choice((1, 2, 2))
    for _ in range(several):
        weight = d.array(4, int(channels or 0) // group, *size)
        biases = [d.array(4)] * d.draw.randint(0, 1)
        (y,) = d.node("Conv", x, weight, *biases, group=group, **settings)
    if several == 2:
        d.node(d.draw.choice(("Add", "Mul", "Concat")), d.values[-2], y) if d.draw.random() < 0.5 else d.node(
            "Add", y, y
        )


def pool(d: Drawing, x: str) -> None:
    kind = d.draw.choice(("MaxPool", "AveragePool"))
    more = {"count_include_pad": d.draw.randint(0, 1)} if kind == "AveragePool" else {}
    d.node(kind, x, kernel_shape=(3, 3), ceil_mode=d.draw.choice((0, 0, 1)), **window(d), **more)


def elementwise(d: Drawing, x: str) -> None:
    d.node(d.draw.choice(("Relu", "Sigmoid", "HardSwish", "Tanh", "Softplus", "Identity")), x)


def vector(d: Drawing, x: str) -> None:
    shape = d.shape(x)
    fixed = [axis for axis, size in enumerate(shape) if isinstance(size, int)]
    axis = d.draw.choice(fixed)
    d.node(d.draw.choice(("Mul", "Add")), x, d.array(int(shape[axis] or 0), *[1] * (len(shape) - axis - 1)))


def scalar(d: Drawing, x: str) -> None:
    d.node(d.draw.choice(("Mul", "Add", "Div")), x, d.array(*[1] * d.draw.randint(0, 1)))


def together(d: Drawing, x: str) -> None:
    d.node(d.draw.choice(("Add", "Mul", "Sub")), x, d.draw.choice(d.values))


def joined(d: Drawing, x: str) -> None:
    d.node("Concat", x, d.draw.choice(d.values), axis=d.draw.randint(0, len(d.shape(x)) - 1))


def split(d: Drawing, x: str) -> None:
    shape = d.shape(x)
    axis = d.draw.randint(0, len(shape) - 1)
    size = shape[axis]
    if isinstance(size, int) and d.draw.random() < 0.6:
        first = d.draw.randint(1, size - 1)
        d.node("Split", x, d.ints(first, size - first), outputs=2, axis=axis)
    else:
        d.node("Split", x, outputs=2, axis=axis, num_outputs=2)


def cut(d: Drawing, x: str) -> None:
    axis = d.draw.randint(0, len(d.shape(x)) - 1)
    begin, end = d.draw.choice(((0, 8), (1, 9999), (-4, 9999), (0, -1), (0, 16), (0, 5)))
    d.node("Slice", x, d.ints(begin), d.ints(end), d.ints(axis), d.ints(d.draw.choice((1, 1, 2))))


def reshape(d: Drawing, x: str) -> None:
    rank = len(d.shape(x))
    last = d.shape(x)[-1]
    targets: list[tuple[int, ...]] = [(0, -1), (0, 4, -1), (-1, 4), (-1, 6), (0, 0, -1), (1, -1, 6), (0, 2, 2, -1)]
    targets += [(*[0] * (rank - 1), -1, 2)] + ([(-1, int(last))] if isinstance(last, int) else [])
    d.node("Reshape", x, d.ints(*d.draw.choice(targets)))


def flatten(d: Drawing, x: str) -> None:
    d.node("Flatten", x, axis=d.draw.choice((0, 1, 2, -1)))


def turned(d: Drawing, x: str) -> None:
    order = list(range(len(d.shape(x))))
    d.draw.shuffle(order)
    d.node("Transpose", x, perm=order)


def stretched(d: Drawing, x: str) -> None:
    axis = d.draw.randint(0, len(d.shape(x)))
    (y,) = d.node("Unsqueeze", x, d.ints(axis))
    if d.draw.random() < 0.5:
        d.node("Squeeze", y, d.ints(axis))


def product(d: Drawing, x: str) -> None:
    width = d.shape(x)[-1]
    wide, several = d.draw.choice((4, 6)), d.draw.choice((1, 2, 3))
    for _ in range(several):
        weight, biased = d.array(int(width or 0), wide), d.draw.random() < 0.5
        gemm = len(d.shape(x)) == 2 and d.draw.random() < 0.5
        (y,) = d.node("Gemm", x, weight, d.array(wide)) if gemm else d.node("MatMul", x, weight)
        if biased:
            (y,) = d.node("Add", y, d.array(wide))
        if d.draw.random() < 0.3:
            d.node("Sigmoid", y)
    if several > 1 and d.draw.random() < 0.5:
        d.node("Add", *d.values[-2:])


def reduced(d: Drawing, x: str) -> None:
    d.node("ReduceMean", x, d.ints(d.draw.randint(0, len(d.shape(x)) - 1)), keepdims=d.draw.randint(0, 1))


def asked(d: Drawing, x: str) -> None:
    """A shape that is computed from another, as exporters write views."""
    (sizes,) = d.node("Shape", x, start=0, end=1)
    (target,) = d.node("Concat", sizes, d.ints(-1, d.draw.choice((4, 6))), axis=0)
    d.node("Reshape", x, target)
    d.values.remove(sizes)
    d.values.remove(target)


def like(d: Drawing, x: str) -> None:
    """An Expand to a tensor's own shape, and a Resize by two."""
    if d.draw.random() < 0.5:
        (sizes,) = d.node("Shape", d.draw.choice(d.values))
        d.values.remove(sizes)
        d.node("Expand", x, sizes)
    else:
        d.count += 1
        d.network.add_parameter(f"s{d.count}", np.array([1, 1, 2, 2], "float32"), trainable=False)
        d.node("Resize", x, "", f"s{d.count}", mode="nearest")


def normalized(d: Drawing, x: str) -> None:
    channels = int(d.shape(x)[1] or 0)
    kind = d.draw.choice(("BatchNormalization", "InstanceNormalization", "GroupNormalization"))
    arrays = [d.array(channels), d.array(channels)]
    if kind == "BatchNormalization":
        arrays.append(d.array(channels))
        d.count += 1
        d.network.add_parameter(f"s{d.count}", d.rng.uniform(0.5, 2, channels).astype("float32"), trainable=False)
        arrays.append(f"s{d.count}")
    d.node(kind, x, *arrays, **({"num_groups": 2} if kind.startswith("Group") else {}))


def scores(d: Drawing, x: str) -> None:
    """A product of two values, as attention's scores and what it does with them."""
    other = d.draw.choice((x, d.draw.choice(d.values)))
    order = list(range(len(d.shape(other))))
    order[-2:] = order[-1:-3:-1]
    (turned,) = d.node("Transpose", other, perm=order)
    (y,) = d.node("MatMul", x, turned)
    if d.draw.random() < 0.5:
        (y,) = d.node("Softmax", y, axis=d.draw.choice((-1, -1, 1)))
    if d.draw.random() < 0.5:
        d.node("MatMul", y, other)


def padded(d: Drawing, x: str) -> None:
    rank = len(d.shape(x))
    before, after = (d.draw.choices((0, 0, 1, 2), k=rank) for _ in range(2))
    d.node("Pad", x, d.ints(*before, *after), mode=d.draw.choice(("constant", "constant", "edge", "reflect")))


def gathered(d: Drawing, x: str) -> None:
    axis, rank = d.draw.randint(0, len(d.shape(x)) - 1), d.draw.randint(0, 1)
    d.count += 1
    index = np.array(d.draw.choices((0, 1, 0, 2, -1), k=3) if rank else d.draw.choice((0, -1)), np.int64)
    d.network.add_parameter(f"i{d.count}", index, trainable=False)
    d.node("Gather", x, f"i{d.count}", axis=axis)


def tiled(d: Drawing, x: str) -> None:
    d.node("Tile", x, d.ints(*d.draw.choices((1, 1, 2, 3), k=len(d.shape(x)))))


def layered(d: Drawing, x: str) -> None:
    """A normalization of the last axis, by one operator or in pieces."""
    width = int(d.shape(x)[-1] or 0)
    if d.draw.random() < 0.5:
        d.node("LayerNormalization", x, d.array(width), d.array(width), axis=-1)
        return
    (mean,) = d.node("ReduceMean", x, d.ints(-1))
    (centred,) = d.node("Sub", x, mean)
    (square,) = d.node("Mul", centred, centred)
    (variance,) = d.node("ReduceMean", square, d.ints(-1))
    d.network.add_parameter(f"e{d.count}", np.array(0.1, "float32"), trainable=False)
    (deviation,) = d.node("Sqrt", d.node("Add", variance, f"e{d.count}")[0])
    d.node("Mul", d.node("Div", centred, deviation)[0], d.array(width))


def summed(d: Drawing, x: str) -> None:
    rank = len(d.shape(x))
    kind = d.draw.choice(("ReduceSum", "ReduceMax", "GlobalAveragePool", "CumSum"))
    if kind == "GlobalAveragePool":
        d.node(kind, x)
    elif kind == "CumSum":
        d.node(kind, x, d.ints(d.draw.randint(0, rank - 1)))
    else:
        axes = d.draw.sample(range(rank), d.draw.randint(1, min(2, rank)))
        d.node(kind, x, d.ints(*axes), keepdims=d.draw.randint(0, 1))


def spread(d: Drawing, x: str) -> None:
    """Convolutions that see far, and those that grow an image."""
    channels = int(d.shape(x)[1] or 0)
    if d.draw.random() < 0.5:
        step = d.draw.choice((2, 3))
        several = d.draw.choice((1, 2))
        for _ in range(several):
            (y,) = d.node("Conv", x, d.array(4, channels, 3, 3), pads=(step,) * 4, dilations=(step, step))
        if several == 2:
            d.node("Add", d.values[-2], y)
    else:
        stride = d.draw.choice((1, 2))
        for _ in range(2):
            (y,) = d.node("ConvTranspose", x, d.array(channels, 4, 2, 2), strides=(stride, stride))
        d.node("Add", d.values[-2], y)


def viewed(d: Drawing, x: str) -> None:
    """Rows of a view by sizes that are read one by one and joined, as the newer exporter writes them."""
    rank = len(d.shape(x))
    (sizes,) = d.node("Shape", x)
    parts = [d.node("Gather", sizes, d.ints(axis), axis=0)[0] for axis in range(rank - 1)]
    merged = [d.node("Mul", *parts[:2])[0], *parts[2:]] if rank > 2 and d.draw.random() < 0.7 else parts
    (target,) = d.node("Concat", *merged, d.ints(-1), axis=0)
    for name in {sizes, target, *parts, *merged}:
        d.values.remove(name)
    (y,) = d.node("Reshape", x, target)
    if d.draw.random() < 0.5:
        (back,) = d.node("Shape", x)
        d.values.remove(back)
        d.node("Reshape", d.node("Relu", y)[0], back)


SHAPED = (joined, split, cut, reshape, flatten, turned, stretched, reduced, asked, like)
LATER = (scores, padded, gathered, tiled, summed, viewed, layered)
COMMON = (elementwise, vector, scalar, together)
IMAGE = (*(conv,) * 10, *(pool,) * 4, *COMMON * 2, normalized, normalized, spread, spread, *SHAPED, *LATER)
ROWS = (*(product,) * 10, *COMMON * 2, *SHAPED, *LATER * 2)
MATCHER = Matcher(read())


def feeds(network: Network, sizes: Mapping[str, int], seed: int) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(seed)
    shapes = {
        name: [sizes[n] if isinstance(n, str) else n for n in d.shape or ()] for name, d in network.inputs.items()
    }  # type: ignore[index]
    return {name: rng.normal(size=shape).astype("float32") for name, shape in shapes.items()}  # type: ignore[arg-type]


def rewritten(network: Network, draw: Draw, steps: int) -> tuple[Network, int]:
    """Return what some matches of any rules make of a network, one after the other, and how many were taken."""
    imported = import_network(network)
    graph, taken = imported.graph, 0
    for _ in range(steps):
        matches = list(itertools.islice(MATCHER.matches(graph), 300))
        draw.shuffle(matches)
        after = next((made for match in matches[:20] if (made := apply(graph, match)) is not None), None)
        if after is None or len(after.nodes()) > 3 * len(imported.graph.nodes()) + 10:
            break
        graph, taken = after, taken + 1
    return export_network(imported, graph, wide=False), taken


def choices(draw: Draw, count: int) -> Iterator[dict[str, int]]:
    for _ in range(count):
        yield {symbol: draw.choice(SIZES) for symbol in SYMBOLS}


def differences(seed: int, count: int = 6) -> tuple[list[str], int, int]:
    """Return what differs, in words, how many rewrites were taken, and at how many sizes the drawn network runs."""
    drawn = Drawing(seed)
    network, draw = to_dtype(drawn.network, "float64"), random.Random(seed)
    if not network.outputs:
        return [], 0, 0
    other, taken = rewritten(network, draw, draw.choice((0, 2, 8, 20)))
    before, after = (load_backend("reference").from_model(one) for one in (network, other))
    wrong, ran = list[str](), 0
    for sizes in choices(draw, count):
        fed = {name: array.astype("float64") for name, array in feeds(network, sizes, seed).items()}
        try:
            want = before.inference(fed)
        except (Deep500Error, ValueError):
            continue
        ran += 1
        try:
            got = after.inference(fed)
        except (Deep500Error, ValueError) as error:
            wrong.append(f"{seed} at {sizes}: {str(error)[:200]}")
            continue
        for name, value in want.items():
            scale = float(np.abs(np.nan_to_num(value, posinf=0, neginf=0)).max(initial=1.0))
            near = value.shape == got[name].shape and np.allclose(got[name], value, atol=1e-6 * scale, equal_nan=True)
            if not near:
                wrong.append(f"{seed} at {sizes}: {name} {value.shape} {got[name].shape}")
    return wrong, taken, ran
