"""What ONNX leaves open: backends answer as the table of docs/own_models.md says, each always the same."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest

from deep500.errors import Deep500Error
from deep500.networks import Network

PAGE = Path(__file__).parents[2] / "docs" / "own_models.md"
NAN = float("nan")
Make = Callable[[Network], object]


def whole(net: Network, name: str, values: list[int]) -> str:
    """A vector of whole numbers."""
    net.add_parameter(name, np.array(values, np.int64), trainable=False)
    return name


def node(op_type: str, *more: object, **attributes: object) -> Make:
    """An operator of x, and of whole numbers beside it."""

    def make(net: Network) -> None:
        names = ["x", *(whole(net, f"c{k}", values) for k, values in enumerate(more))]  # type: ignore[arg-type]
        net.add_node(op_type, names, "y", **attributes)

    return make


ENDS: dict[str, tuple[np.ndarray, Make]] = {
    "`Cast` of NaN to int32": (np.array([NAN], np.float32), node("Cast", to=6)),
    "`Cast` of 3e9 to int32": (np.array([3e9], np.float32), node("Cast", to=6)),
    "`Cast` of -1 to uint8": (np.array([-1], np.float32), node("Cast", to=2)),
    "`ArgMax` of 1, NaN, 2": (np.array([1, NAN, 2], np.float32), node("ArgMax", keepdims=0)),
    "`ArgMin` of 1, NaN, 2": (np.array([1, NAN, 2], np.float32), node("ArgMin", keepdims=0)),
    "`ReduceMax` of 1, NaN, 2": (np.array([1, NAN, 2], np.float32), node("ReduceMax", keepdims=0)),
    "`MaxPool` of 1, NaN": (np.array([[[1, NAN]]], np.float32), node("MaxPool", kernel_shape=[2])),
    "`Clip` of NaN to -1 and 1": (
        np.array([NAN], np.float32),
        lambda net: net.add_node("Clip", ["x", *(_number(net, v) for v in (-1.0, 1.0))], "y"),
    ),
    "`Relu` of NaN": (np.array([NAN], np.float32), node("Relu")),
    "`Sign` of NaN": (np.array([NAN], np.float32), node("Sign")),
    "`TopK`, first of 1, NaN, 2": (
        np.array([1, NAN, 2], np.float32),
        lambda net: net.add_node("TopK", ["x", whole(net, "k", [1])], ["y", "place"]),
    ),
    "`ReduceMean` of nothing": (np.zeros((0,), np.float32), node("ReduceMean", keepdims=0)),
    "`Div` of 7 by 0, int64": (np.array([7], np.int64), node("Div", [0])),
    "`Mod` of 7 by 0, int64": (np.array([7], np.int64), node("Mod", [0])),
    "`Pow` of 2 to -1, int64": (np.array([2], np.int64), node("Pow", [-1])),
}


def _number(net: Network, value: float) -> str:
    net.add_parameter(f"bound {value}", np.array(value, np.float32), trainable=False)
    return f"bound {value}"


def answer(backend: ModuleType, x: np.ndarray, make: Make) -> str:
    """The first number, or "error"."""
    net = Network("open")
    net.add_input("x", x.shape, str(x.dtype))
    make(net)
    net.add_output("y")
    try:
        executor = backend.from_model(net, "cpu")
        y = np.asarray(executor.network.to_numpy(executor.inference({"x": x})["y"]))
    except Deep500Error:
        return "error"
    return f"{y.ravel()[0]:g}" if y.dtype.kind == "f" else str(y.ravel()[0])


def table() -> dict[str, dict[str, str]]:
    """The page's answers, by row and backend."""
    text = PAGE.read_text(encoding="utf-8").partition("## What ONNX leaves open")[2].partition("\n## ")[0]
    lines = [[cell.strip() for cell in line.strip("|").split("|")] for line in text.splitlines() if line[:1] == "|"]
    return {line[0]: dict(zip(lines[0][1:], line[1:], strict=True)) for line in lines[2:]}


def test_answers_where_onnx_leaves_them_open_are_those_of_the_page(backend: ModuleType) -> None:
    rows, name = table(), backend.__name__.rpartition(".")[2]
    assert list(rows) == list(ENDS)
    assert {row: answer(backend, *case) for row, case in ENDS.items()} == {
        row: cells[name] for row, cells in rows.items()
    }


@pytest.mark.parametrize("op_type", ["ReduceMean", "GlobalAveragePool", "BatchNormalization", "LayerNormalization"])
def test_means_of_nothing_give_no_warning(op_type: str, backend: ModuleType) -> None:
    """NumPy's would, in the middle of a run."""
    net = Network("nothing")
    net.add_input("x", ("N", 3, 4), "float32")
    for name in ("scale", "bias", "mean", "variance"):
        net.add_parameter(
            name, np.ones(4 if op_type == "LayerNormalization" else 3, np.float32), name in ("scale", "bias")
        )
    more = {"BatchNormalization": ["scale", "bias", "mean", "variance"], "LayerNormalization": ["scale", "bias"]}
    net.add_node(op_type, ["x", *more.get(op_type, [])], "y")
    net.add_node("ReduceSum", "y", "loss", keepdims=0)
    net.add_output("y")
    net.add_output("loss")
    executor = backend.from_model(net, "cpu")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        executor.inference({"x": np.zeros((0, 3, 4), np.float32)})
        if op_type in more:
            executor.inference_and_backprop({"x": np.zeros((0, 3, 4), np.float32)}, "loss")


def test_operands_of_types_that_onnx_does_not_mix_are_named(backend: ModuleType) -> None:
    """PyTorch would widen, ONNX Runtime refuses, and a gradient would be of a third type."""
    network = Network()
    network.add_input("x", ("N", 2), "float64")
    network.add_parameter("w", np.ones(2, np.float32))
    network.add_node("Mul", ["x", "w"], ["y"], "scale")
    network.add_output("y")
    with pytest.raises(Deep500Error, match=r"(got 'x' of float64 and 'w' of float32|tensor.double. and tensor.float.)"):
        backend.from_model(network).inference({"x": np.ones((3, 2))})
