"""Processes of :mod:`tests.fuzz.networks`: they run a model on a backend, on a bare session, or disturbed.

Every process answers (function, arguments) with a value; it is ended and started again by its parent when it hangs or
dies. Nothing here judges.
"""

from __future__ import annotations

import itertools
import os
import traceback
import warnings
from multiprocessing.connection import Connection
from typing import Any

import numpy as np
from onnx import helper

from deep500.errors import Deep500Error, NetworkError
from deep500.networks import Network, gradient_name, to_dtype
from deep500.networks.gradients.rules import FLAT
from tests.fuzz.network_bare import Arrays, Outcome, bare, witness
from tests.fuzz.network_judge import LOSS, ROUNDING
from tests.fuzz.network_models import case
from tests.fuzz.operators import operator_case

WEIGHT = "weight of "
FLOATING = ("float16", "float32", "float64")
DRAWS = 6
"""Disturbed runs: a tie that is broken at random falls the same way in all of them once in 32."""
DIRECTIONS = 2
STEPS = (1e-4, 1e-5, 1e-6, 1e-7)


def answers(connection: Connection, *first: Any) -> None:
    """The main function of a process: what the parent sends is added to ``first``."""
    null = os.open(os.devnull, os.O_WRONLY)
    os.dup2(null, 1)
    os.dup2(null, 2)  # native code writes there
    warnings.simplefilter("ignore")
    while True:
        try:
            name, arguments = connection.recv()
        except EOFError:
            return
        connection.send(FUNCTIONS[name](*first, *arguments))


def attempt(run: Any, *arguments: Any) -> Outcome:
    """A run's outcome, whatever it raises."""
    try:
        return run(*arguments)
    except Deep500Error as error:
        return Outcome("refused", f"{type(error).__name__}: {error}")
    except Exception as error:  # noqa: BLE001 - that is what is looked for
        place = "".join(traceback.format_tb(error.__traceback__)[-4:])
        return Outcome("raw", f"{type(error).__name__}: {str(error)[:1500]}\n{place}")


# -- backends ---------------------------------------------------------------------------------------------------------
def plain(backend: str, model: bytes, feeds: Arrays) -> Outcome:
    """The model as it is, on a backend."""
    return attempt(_plain, backend, model, feeds)


def _plain(backend: str, model: bytes, feeds: Arrays) -> Outcome:
    executor = _executor(backend, Network.from_onnx(model))
    results = executor.inference({name: value for name, value in feeds.items() if name in executor.network.inputs})
    if backend == "reference":
        untrue = _untrue(executor.network, {n: v for n, v in feeds.items() if n in executor.network.inputs})
        assert not untrue or undefined(model, feeds), untrue
    return Outcome("ran", "", {name: executor.network.to_numpy(value) for name, value in results.items()})


def _untrue(network: Network, feeds: Arrays) -> str:
    """Name the values that are not as they are described before a run: gradients are made of the descriptions."""
    about, wrong = network.descriptors(), []
    for name, value in _values(network, feeds).items():
        shape = value.shape if about[name].shape is None else about[name].shape
        sizes = tuple(n if isinstance(n, int) else size for n, size in zip(shape, value.shape, strict=False))
        if len(shape) != value.ndim or sizes != value.shape or about[name].dtype not in (None, value.dtype.name):
            wrong.append(f"{name}: {about[name]} for {value.dtype}{value.shape}")
    return "; ".join(wrong)


def _executor(backend: str, network: Network) -> Any:
    from deep500.registry import load_backend

    return load_backend(backend).from_model(network, "cpu")


def trained(backend: str, model: bytes, feeds: Arrays, seed: int) -> Outcome:
    """One training run in float64, every floating input and parameter trainable."""
    return attempt(lambda: _train(backend, training_network(model, feeds, seed), _whole(feeds)))


def _train(backend: str, network: Network, feeds: Arrays) -> Outcome:
    executor = _executor(backend, network)
    used = {name: value for name, value in feeds.items() if name in network.inputs}
    results = executor.inference_and_backprop(used, LOSS)
    outputs = {name: executor.network.to_numpy(value) for name, value in results.items()}
    gradients = {}
    for name, parameter in network.parameters.items():
        if parameter.trainable:
            try:
                gradients[name] = executor.network.to_numpy(executor.network.fetch_tensors([gradient_name(name)])[0])
            except NetworkError:  # backends without automatic differentiation have none where the loss does not reach
                gradients[name] = np.zeros_like(parameter.value)
    return Outcome("ran", "", outputs, gradients)


def _whole(feeds: Arrays) -> Arrays:
    return {name: value for name, value in feeds.items() if value.dtype.name not in FLOATING}


def training_network(
    model: bytes, feeds: Arrays, seed: int, noise: float = 0.0, draw: int = 0, straight: bool = False, grid: str = ""
) -> Network:
    """The model in float64, inputs as parameters, with a loss: the sum of outputs, each element with a weight.

    With ``noise`` every value that a node reads is disturbed, in proportion to itself and to the largest beside it,
    or rounded to the dtype ``grid``, which alone makes ties of what was none.
    With ``straight`` nothing is rounded.
    """
    network = Network.from_onnx(model)
    for source in ("float16", "float32"):
        network = to_dtype(network, "float64", source)
    shapes = {}
    if noise:
        values = _values(network, feeds)
        shapes = {name: value for name, value in values.items() if value.dtype == np.float64 and value.size}
    copy = Network(network.name)
    for name, described in network.inputs.items():
        if described.dtype == "float64":
            copy.add_parameter(name, feeds[name].astype(np.float64))
        else:
            copy.add_input(name, described.shape, described.dtype or "float64")
    running = {n for node in network.nodes if node.op_type == "BatchNormalization" for n in node.inputs[3:]}
    for name, parameter in network.parameters.items():
        copy.add_parameter(name, parameter.value, parameter.value.dtype == np.float64 and name not in running)
    rng = np.random.default_rng(seed)

    def disturb(name: str) -> str:
        return _round(copy, name, grid) if grid else _disturb(copy, name, shapes[name], noise, draw)

    read = {name: disturb(name) for name in copy.trainable() if name in shapes}
    for node in network.nodes:
        inputs = [read.get(name, name) for name in node.inputs]
        op_type = "Identity" if straight and node.op_type in FLAT else node.op_type
        copy.add_node(op_type, inputs, node.outputs, node.name, node.domain, **node.attributes)
        rounds = node.op_type not in FLAT  # whole numbers are exact
        moved = [name for name in node.outputs if name in shapes and rounds]
        read.update((name, disturb(name)) for name in moved)
    for name in network.outputs:
        copy.add_output(name)
    _add_loss(copy, network, read, rng, feeds)
    return copy


def _disturb(network: Network, name: str, value: np.ndarray, noise: float, draw: int) -> str:
    rng, side = np.random.default_rng([draw // 2, *name.encode()]), (1, -1)[draw % 2]  # in pairs, to both sides
    largest = float(np.max(np.abs(value[np.isfinite(value)]), initial=0.0)) or 1.0
    # Never by next to nothing, and in the first pair all the same way: of a thousand ties some would not be met.
    up = side * noise * (rng.choice((-1.0, 1.0), value.shape) if draw > 1 else 1.0)
    parts = {
        "factor": 1 + up * rng.uniform(0.5, 1, value.shape),
        "term": up * np.where(value < 0, -largest, largest) * rng.uniform(0.5, 1, value.shape),
    }
    for part, array in parts.items():
        network.add_parameter(f"{part} of {name}", array, trainable=False)
    network.add_node("Mul", [name, f"factor of {name}"], f"{name} scaled")
    network.add_node("Add", [f"{name} scaled", f"term of {name}"], f"{name} disturbed")
    return f"{name} disturbed"


def _onnx_dtype(name: str) -> int:
    """ONNX's number of a dtype."""
    return int(helper.np_dtype_to_tensor_dtype(np.dtype(name)))


def _round(network: Network, name: str, grid: str) -> str:
    network.add_node("Cast", [name], f"{name} rounded", to=_onnx_dtype(grid))
    network.add_node("Cast", [f"{name} rounded"], f"{name} wide", to=_onnx_dtype("float64"))
    return f"{name} wide"


def _add_loss(network: Network, original: Network, read: dict[str, str], rng: Any, feeds: Arrays) -> None:
    values = _values(original, feeds)
    terms = []
    for name in original.outputs:
        if values[name].dtype == np.float64:
            weight, term = WEIGHT + name, f"term of the loss of {name}"
            network.add_parameter(weight, rng.uniform(0.5, 1.5, values[name].shape), trainable=False)
            network.add_node("Mul", [read.get(name, name), weight], f"weighted {name}")
            network.add_node("ReduceSum", f"weighted {name}", term, keepdims=0)
            terms.append(term)
    if not terms:
        network.add_parameter("nothing", np.zeros(()), trainable=False)
        terms.append("nothing")
    network.add_node("Sum", terms, LOSS)


def _values(network: Network, feeds: Arrays) -> Arrays:
    """Every value of a network, which may be in float64 where what it is fed is not, by the reference."""
    wide = {n: feeds[n].astype(np.float64) if d.dtype == "float64" else feeds[n] for n, d in network.inputs.items()}
    names = [name for name in network.values() if name not in network.inputs and name not in network.parameters]
    results = _executor("reference", network).inference(wide, names)
    return {
        **wide,
        **{n: p.value for n, p in network.parameters.items()},
        **{n: np.asarray(v) for n, v in results.items()},
    }


# -- how far an answer can be trusted ---------------------------------------------------------------------------------
def trust(model: bytes, feeds: Arrays, seed: int, noise: float, training: bool) -> Outcome:
    """For each result of the reference in float64 two rows: it, and how far it moves when values are disturbed."""
    return attempt(_trust, model, feeds, seed, noise, training)


def _trust(model: bytes, feeds: Arrays, seed: int, noise: float, training: bool) -> Outcome:
    whole = _whole(feeds)

    def run(noise: float, draw: int, grid: str = "") -> Outcome:
        network = training_network(model, feeds, seed, noise, draw, grid=grid)
        if training:
            return _train("reference", network, whole)
        results = _executor("reference", network).inference({n: v for n, v in whole.items() if n in network.inputs})
        return Outcome("ran", "", {name: np.asarray(value) for name, value in results.items()})

    base = run(0.0, 0)
    others = [run(noise, draw) for draw in range(DRAWS)]
    others += [run(noise, 0, grid) for grid, size in ROUNDING.items() if size == noise and grid != "float64"]
    outputs = {n: _moves(v, [other.outputs[n] for other in others]) for n, v in base.outputs.items()}
    gradients = {n: _moves(v, [other.gradients[n] for other in others]) for n, v in base.gradients.items()}
    return Outcome("ran", "", outputs, gradients)


def _moves(base: np.ndarray, others: list[np.ndarray]) -> np.ndarray:
    wide = base.astype(np.float64)
    moved = np.zeros_like(wide)
    for other in others:
        with np.errstate(invalid="ignore"):
            distance = np.abs(other.astype(np.float64) - wide)
        same = (np.isnan(wide) & np.isnan(other)) | (wide == other)
        moved = np.maximum(moved, np.where(same, 0.0, np.where(np.isfinite(distance), distance, np.inf)))
    return np.stack([wide, moved])


def slopes(model: bytes, feeds: Arrays, seed: int) -> Outcome:
    """The reference's gradients along directions (first number of each array), and central differences at step sizes.

    The second row holds the smallest error that differences of a sum of this size can have, the third by how much the
    differences to both sides differ: at a kink they do for every step.
    """
    return attempt(_slopes, model, feeds, seed)


def _slopes(model: bytes, feeds: Arrays, seed: int) -> Outcome:
    network, whole = training_network(model, feeds, seed), _whole(feeds)
    base = _train("reference", network, whole)
    executor, rng, found = _executor("reference", network), np.random.default_rng(seed), {}
    whole = {name: value for name, value in whole.items() if name in network.inputs}
    size = sum(float(np.abs(base.outputs[n]).sum()) for n in network.outputs if base.outputs[n].dtype == np.float64)
    for direction in range(DIRECTIONS):
        to = {name: rng.normal(size=gradient.shape) for name, gradient in base.gradients.items()}
        bends = [0.0]
        row = [float(sum(np.sum(gradient * to[name]) for name, gradient in base.gradients.items()))]
        for step in STEPS:
            ends = []
            for sign in (1, -1):
                for name, toward in to.items():
                    executor.network.feed_tensor(name, network.parameters[name].value + sign * step * toward)
                ends.append(float(executor.inference_and_backprop(whole, LOSS)[LOSS]))
            row.append((ends[0] - ends[1]) / (2 * step))
            bends.append(abs(ends[0] + ends[1] - 2 * float(base.outputs[LOSS])) / step)
        found[f"direction {direction}"] = np.array(
            [row, [np.finfo(np.float64).eps * size / step for step in (1.0, *STEPS)], bends]
        )
    return Outcome("ran", "", found)


def values(model: bytes, feeds: Arrays) -> Outcome:
    """Every value of the model as it is, by the reference."""
    return attempt(lambda: Outcome("ran", "", _values(Network.from_onnx(model), feeds)))


def poles(model: bytes, feeds: Arrays, seed: int) -> bool:
    """Return whether anything on the way to the gradients is infinite or NaN, which times 0 is NaN; rounding counts."""
    network = training_network(model, feeds, seed, straight=True)
    emitted = network.with_gradient(LOSS, network.trainable())
    return any(not np.isfinite(v).all() for v in _values(emitted, feeds).values() if v.dtype.kind == "f")


def kinks(model: bytes, feeds: Arrays, seed: int) -> int:
    """How many nodes stand where their slope jumps: bends of two may cancel, as of Min(x, Abs(x)) at 0."""
    network = training_network(model, feeds, seed, straight=True)
    values = _values(network, feeds)
    operands = [(node.op_type, [values[name] for name in node.inputs if name]) for node in network.nodes]
    zero = sum(bool((of[0] == 0).any()) for kind, of in operands if kind in ("Abs", "Relu", "LeakyRelu", "PRelu"))
    return zero + sum(
        any(bool((a == b).any()) for a, b in itertools.combinations(np.broadcast_arrays(*of), 2))
        for kind, of in operands
        if kind in ("Max", "Min")
    )


# -- what ONNX leaves open --------------------------------------------------------------------------------------------
def undefined(model: bytes, feeds: Arrays) -> dict[str, str]:
    """Outputs that depend on something which ONNX leaves undefined, and the reason."""
    network = Network.from_onnx(model)
    values = _values(network, feeds)
    reasons: dict[str, str] = {}
    for node in network.nodes:
        inputs = [values[name] for name in node.inputs if name]
        inherited = next((reasons[name] for name in node.inputs if name in reasons), "")
        results = [values[n] for n in node.outputs if n]
        reason = inherited or OPEN.get(node.op_type, _nothing)(inputs, results) or _overflow(inputs, results)
        if node.op_type == "AffineGrid" and node.attribute("align_corners") and 1 in inputs[1][2:]:
            reason = "where the corner of one place is"
        if reason:
            reasons.update(dict.fromkeys(filter(None, node.outputs), reason))
    return {name: reasons[name] for name in network.outputs if name in reasons}


def _nothing(inputs: list[np.ndarray], outputs: list[np.ndarray]) -> str:
    return ""


def _overflow(inputs: list[np.ndarray], outputs: list[np.ndarray]) -> str:
    """ONNX Runtime computes neighbours in float32 where it can, so that nothing overflows between them."""
    finite = all(np.isfinite(value).all() for value in inputs if value.dtype.kind == "f")
    beyond = any(value.dtype == np.float16 and not np.isfinite(value).all() for value in outputs)
    return "more than float16 holds" if finite and beyond else ""


def _cast(inputs: list[np.ndarray], outputs: list[np.ndarray]) -> str:
    value, kind = inputs[0], outputs[0].dtype
    if value.dtype.kind != "f" or kind.kind not in "iu":
        return ""
    limits = np.iinfo(kind)
    inside = (value > float(limits.min) - 1) & (value < float(limits.max) + 1)
    return "" if inside.all() else f"Cast to {kind} of NaN or of what it cannot hold"


def _divided(inputs: list[np.ndarray], outputs: list[np.ndarray]) -> str:
    return "whole number divided by 0" if inputs[1].dtype.kind in "iu" and not inputs[1].all() else ""


def _power(inputs: list[np.ndarray], outputs: list[np.ndarray]) -> str:
    whole = inputs[0].dtype.kind in "iu"
    if whole and inputs[1].dtype.kind == "i" and (inputs[1] < 0).any():
        return "whole number to a negative power"
    return "power of whole numbers that its type cannot hold" if whole and _too_large(inputs) else ""


def _too_large(inputs: list[np.ndarray]) -> bool:
    with np.errstate(all="ignore"):
        size = np.power(np.abs(inputs[0].astype(np.float64)), inputs[1].astype(np.float64))
    return bool((~(size < float(np.iinfo(inputs[0].dtype).max))).any())


def _ordered(inputs: list[np.ndarray], outputs: list[np.ndarray]) -> str:
    return "order of NaN" if inputs[0].dtype.kind == "f" and np.isnan(inputs[0]).any() else ""


def _extreme(inputs: list[np.ndarray], outputs: list[np.ndarray]) -> str:
    return "extreme of NaN" if any(value.dtype.kind == "f" and np.isnan(value).any() for value in inputs) else ""


def _slope(inputs: list[np.ndarray], outputs: list[np.ndarray]) -> str:
    return "slope at NaN" if inputs[0].dtype.kind == "f" and np.isnan(inputs[0]).any() else ""


def _nothing_reduced(inputs: list[np.ndarray], outputs: list[np.ndarray]) -> str:
    """Extremes of nothing are defined from opset 20 on, which nnsmith does not write; means never are."""
    return "reduction of nothing" if not inputs[0].size else ""


OPEN: dict[str, Any] = {
    "Cast": _cast,
    "NonZero": lambda i, o: "" if i[0].ndim else "where a single number is",
    "Div": _divided,
    "Pow": _power,
    **dict.fromkeys(("ArgMax", "ArgMin", "TopK"), lambda i, o: _nothing_reduced(i, o) or _ordered(i, o)),
    **dict.fromkeys(("Max", "Min", "MaxPool", "Clip", "Relu", "Softmax", "LogSoftmax", "Resize"), _extreme),
    **dict.fromkeys(("LeakyRelu", "PRelu"), _slope),
    **dict.fromkeys(("ReduceMax", "ReduceMin"), lambda i, o: _nothing_reduced(i, o) or _extreme(i, o)),
    **dict.fromkeys(("ReduceMean", "BatchNormalization"), _nothing_reduced),
}
"""Operator -> what ONNX does not say: a function of a node's inputs and outputs that gives the reason, or nothing."""

FUNCTIONS = {
    f.__name__: f
    for f in (case, operator_case, bare, witness, plain, trained, trust, slopes, values, poles, kinks, undefined)
}
"""Questions that a process answers."""
