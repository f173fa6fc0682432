"""Where a function has no slope: backends take the ones that the table of docs/gradients.md says, and never NaN."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest

from deep500.networks import Network, gradient_name

PAGE = Path(__file__).parents[2] / "docs" / "gradients.md"
Make = Callable[[Network], object]


def constant(net: Network, name: str, value: object, dtype: str = "float32") -> str:
    """A parameter that is not trained."""
    net.add_parameter(name, np.array(value, dtype), trainable=False)
    return name


def pooled(kind: str, **attributes: object) -> Make:
    """A pooling operator over w as one image of one row and one channel."""

    def make(net: Network) -> None:
        net.add_node("Unsqueeze", ["w", constant(net, "axes", [0, 1], "int64")], "image")
        net.add_node(kind, "image", "y", **attributes)

    return make


KINKS: dict[str, tuple[list[float], Make]] = {
    "`Relu`, 0": ([0], lambda net: net.add_node("Relu", "w", "y")),
    "`Abs`, 0": ([0], lambda net: net.add_node("Abs", "w", "y")),
    "`LeakyRelu` (`alpha` .25), 0": ([0], lambda net: net.add_node("LeakyRelu", "w", "y", alpha=0.25)),
    "`PRelu` (slope .25), 0": ([0], lambda net: net.add_node("PRelu", ["w", constant(net, "slope", 0.25)], "y")),
    "`LeakyRelu` (`alpha` .25), NaN": ([np.nan], lambda net: net.add_node("LeakyRelu", "w", "y", alpha=0.25)),
    "`PRelu` (slope .25), NaN": ([np.nan], lambda net: net.add_node("PRelu", ["w", constant(net, "slope", 0.25)], "y")),
    "`HardSigmoid`, -2.5": ([-2.5], lambda net: net.add_node("HardSigmoid", "w", "y")),
    "`HardSigmoid`, 2.5": ([2.5], lambda net: net.add_node("HardSigmoid", "w", "y")),
    "`HardSwish`, -3": ([-3], lambda net: net.add_node("HardSwish", "w", "y")),
    "`HardSwish`, 3": ([3], lambda net: net.add_node("HardSwish", "w", "y")),
    "`Clip` (-1 to 1), 1": (
        [1],
        lambda net: net.add_node("Clip", ["w", constant(net, "min", -1.0), constant(net, "max", 1.0)], "y"),
    ),
    "`Max` of two that are equal, first": ([2], lambda net: net.add_node("Max", ["w", constant(net, "c", [2])], "y")),
    "`ReduceMax` of two that are equal": ([3, 3, 1], lambda net: net.add_node("ReduceMax", "w", "y", keepdims=0)),
    "`MaxPool` of two that are equal, first": ([1, 1], pooled("MaxPool", kernel_shape=[2])),
    "`ReduceL2`, `LpPool`, of zeros": ([0, 0], lambda net: net.add_node("ReduceL2", "w", "y", keepdims=0)),
}


def gradient(backend: ModuleType, w: list[float], make: Make) -> np.ndarray:
    """Of the sum of what is made of w."""
    net = Network("kink")
    net.add_parameter("w", np.array(w, "float32"))
    make(net)
    net.add_node("ReduceSum", "y", "loss", keepdims=0)
    net.add_output("loss")
    executor = backend.from_model(net, "cpu")
    executor.inference_and_backprop({})
    return np.asarray(executor.network.to_numpy(executor.network.fetch_tensors([gradient_name("w")])[0]))


def table() -> dict[str, dict[str, float]]:
    """The page's table: slopes by backend, by row."""
    text = PAGE.read_text(encoding="utf-8").partition("## Where a function has no slope")[2]
    lines = [line.strip("|").split("|") for line in text.splitlines() if line.startswith("|")]
    names = [name.strip() for name in lines[0]][1:]
    rows = {}
    for line in lines[2:]:
        if len(line) != len(lines[0]) or not re.match(r" -?[.\d]+ $", line[1]):
            break
        rows[line[0].strip()] = {name: float(slope) for name, slope in zip(names, line[1:], strict=True)}
    return rows


def test_slopes_at_kinks_are_those_of_the_page(backend: ModuleType) -> None:
    rows = table()
    assert list(rows) == list(KINKS)
    found = {row: float(gradient(backend, *case)[0]) for row, case in KINKS.items()}
    name = backend.__name__.rpartition(".")[2]
    assert found == pytest.approx({row: slopes[name] for row, slopes in rows.items()}, rel=1e-6)


def losses(net: Network) -> None:
    """A cross entropy of labels that are all left out."""
    net.add_node("Reshape", ["w", constant(net, "shape", [2, 2], "int64")], "scores")
    labels = constant(net, "labels", [7, 7], "int64")
    net.add_node("SoftmaxCrossEntropyLoss", ["scores", labels], "y", ignore_index=7)


def masked(dtype: str) -> Make:
    """Attention of two queries, the second of which may see nothing."""
    mask = [[True, False], [False, False]] if dtype == "bool" else [[0, -np.inf], [-np.inf, -np.inf]]

    def make(net: Network) -> None:
        net.add_node("Reshape", ["w", constant(net, "shape", [1, 1, 2, 2], "int64")], "q")
        net.add_node("Attention", ["q", "q", "q", constant(net, "mask", mask, dtype)], "y")

    return make


DEGENERATE: dict[str, tuple[list[float], Make, list[float]]] = {
    "LpPool 2": ([0, 0, 3, 4], pooled("LpPool", kernel_shape=[2], strides=[2]), [0, 0, 0.6, 0.8]),
    "LpPool 3": (
        [0, 0, 1, -1],
        pooled("LpPool", kernel_shape=[2], strides=[2], p=3),
        [0, 0, 2 ** (-2 / 3), -(2 ** (-2 / 3))],
    ),
    "LpNormalization": ([0, 0], lambda net: net.add_node("LpNormalization", "w", "y", axis=0), [1, 1]),
    "LpNormalization 1": ([0, 0], lambda net: net.add_node("LpNormalization", "w", "y", axis=0, p=1), [1, 1]),
    "ReduceL2": ([3, 4], lambda net: net.add_node("ReduceL2", "w", "y", keepdims=0), [0.6, 0.8]),
    "labels that are all ignored": ([1, 2, 3, 4], losses, [0, 0, 0, 0]),
    "a query that sees nothing, bool": ([0.1, 0.2, 0.3, 0.4], masked("bool"), [1, 1, 0, 0]),
    "a query that sees nothing, float": ([0.1, 0.2, 0.3, 0.4], masked("float32"), [1, 1, 0, 0]),
    "Mod": ([1.5, -5.0], lambda net: net.add_node("Mod", ["w", constant(net, "by", [2.0])], "y", fmod=1), [1, 1]),
}


@pytest.mark.parametrize("kind", DEGENERATE)
def test_degenerate_inputs_have_finite_gradients(backend: ModuleType, kind: str) -> None:
    """Norms of zeros, losses of nothing, weights of nothing: NaN in one row would be NaN in every parameter."""
    w, make, want = DEGENERATE[kind]
    np.testing.assert_allclose(gradient(backend, w, make), want, rtol=1e-6)
