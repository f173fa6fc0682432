"""The gradients of twenty operators in every backend: sixteen in Python, four compiled, all nodes of one network."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest

import deep500 as d5
from deep500.errors import MissingEngine
from deep500.networks import Network
from deep500.operators.enzyme.engine import find_clang, find_engine
from tests.frameworks.compiled import PythonMix, mix, pair, softsign
from tests.operators.gradient_table import CASES, Arrays, Case
from tests.tolerances import as_numpy, assert_close

Gradient = Callable[[Arrays, Arrays, Arrays], Arrays]


def fourth() -> d5.operators.CompiledOp:
    any_shape = [d5.TensorDescriptor("float64", None)]
    file = Path(d5.__file__).resolve().parent / "custom_ops" / "ipow" / "ipow.cpp"
    return d5.compile_custom_cppop("ipow", file, any_shape, any_shape, additional_definitions={"DPOWER": 4})


def _has_enzyme() -> bool:
    try:
        return bool(find_clang(find_engine()))
    except MissingEngine:
        return False


def _shown(x: np.ndarray) -> np.ndarray:
    return 1 / (1 + np.abs(x)) ** 2


# fmt: off
COMPILED: dict[str, tuple[Callable[[], d5.operators.CustomOp], Gradient, tuple[tuple[int, ...], ...]]] = {
    "mix": (mix, lambda g, i, o: PythonMix().backward(g, i, o), ((3, 4), (3, 4), (3,))),
    "softsign": (lambda: softsign("float64"), lambda g, i, o: [g[0] * _shown(i[0])], ((3, 4),)),
    "pair": (pair, lambda g, i, o: [3 * i[0] ** 2 * i[1] * g[0], i[0] ** 3 * g[0]], ((5,), (5,))),
    "fourth": (fourth, lambda g, i, o: [4 * i[0] ** 3 * g[0]], ((2, 3),)),
}
# fmt: on


def _register(name: str, make: Callable[[], d5.operators.CustomOp]) -> None:
    @d5.register_op(f"TestTable{name}")
    def made(inputs):
        return make()


for _case in CASES:
    _register(_case.name, lambda case=_case: case.operator("float64"))
for _name, (_make, _, _) in COMPILED.items():
    _register(_name, _make)


def _arrays(entry: Case | tuple[tuple[int, ...], ...], seed: int) -> Arrays:
    if isinstance(entry, Case):
        return entry.inputs("float64", seed)
    random = np.random.default_rng(seed)
    arrays = [random.normal(size=shape) for shape in entry]
    return [*arrays[:2], *(np.arange(len(x)) for x in arrays[2:])]


@pytest.mark.slow
def test_every_operator_s_gradient(backend: ModuleType) -> None:
    """Of a loss that weighs every output of every operator; by each parameter, against the operator's own formula."""
    net, feeds, expected, terms = Network(), {}, {}, []
    chosen: list[tuple[str, Callable[[], d5.operators.CustomOp], Gradient, Arrays]] = [
        (c.name, lambda c=c: c.operator("float64"), c.backward, _arrays(c, n)) for n, c in enumerate(CASES)
    ]
    for n, (name, (make, gradient, shapes)) in enumerate(COMPILED.items()):
        if name != "pair" or _has_enzyme():
            chosen.append((name, make, gradient, _arrays(shapes, n)))
    assert len(chosen) >= 19
    random = np.random.default_rng(1)
    for name, make, gradient, inputs in chosen:
        outputs, names = make().run(inputs), []
        for i, x in enumerate(inputs):
            names.append(f"{name}.{i}")
            if x.dtype == np.float64:
                net.add_parameter(names[-1], x)
            else:
                net.add_input(names[-1], x.shape, str(x.dtype))
                feeds[names[-1]] = x
        results = [f"{name}.out{k}" for k in range(len(outputs))]
        net.add_node(f"TestTable{name}", names, results, domain="deep500")
        weights = [random.normal(size=y.shape) if y.dtype == np.float64 else np.zeros_like(y) for y in outputs]
        for result, y, weight in zip(results, outputs, weights, strict=True):
            if y.dtype == np.float64:
                net.add_input(f"{result}.weight", y.shape, "float64")
                feeds[f"{result}.weight"] = weight
                net.add_node("Mul", [result, f"{result}.weight"], f"{result}.weighed")
                net.add_node("ReduceSum", f"{result}.weighed", f"{result}.sum", keepdims=0)
                terms.append(f"{result}.sum")
        of = zip(names, gradient(weights, inputs, outputs), strict=True)
        expected |= {f"{x}.grad": np.asarray(g) for x, g in of if x in net.parameters}
    net.add_node("Sum", terms, "loss")
    net.add_output("loss")
    executor = backend.from_model(net)
    executor.inference_and_backprop(feeds, "loss")
    for name, got in zip(expected, executor.network.fetch_tensors(list(expected)), strict=True):
        assert_close(as_numpy(got), expected[name], "gradient", name)
