"""What exporters leave behind that does nothing is left out, and gathers, pools and scatters become one function each;
all gives what the nodes give one by one, in float64, with its gradients."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

import deep500.frameworks.pytorch as d5fw
from deep500.networks.execution.chains import ProgramGraph
from deep500.networks.execution.program import Program
from deep500.networks.execution.tidying import tidied
from deep500.networks.network import Network
from deep500.networks.node import Node

RNG = np.random.default_rng(0)


class Written:
    """A network under construction: one input ``x``, constants by value, nodes one after the other."""

    def __init__(self, *shape: Any) -> None:
        self.network, self.last = Network(), "x"
        self.network.add_input("x", shape, "float64")
        self.network.add_parameter("w", RNG.standard_normal([n for n in shape if isinstance(n, int)][-1:]))
        self("Mul", "w")

    def constant(self, value: Any) -> str:
        name = self.network.fresh_name("c")
        self.network.add_parameter(name, np.asarray(value), trainable=False)
        return name

    def __call__(self, operator: str, *inputs: Any, **attributes: Any) -> Written:
        names = [i if isinstance(i, str) else self.constant(i) for i in inputs]
        output = self.network.fresh_name("v")
        self.network.add_node(operator, [self.last, *names], [output], **attributes)
        self.last = output
        return self

    def done(self) -> Network:
        self("Tanh")
        self.network.add_output(self.last)
        self.network.add_node("ReduceSum", [self.last], ["loss"], keepdims=0)
        self.network.add_output("loss")
        return self.network


def windows(size: int, count: int) -> np.ndarray:
    return np.array([np.arange(i * size // count, -(-(i + 1) * size // count)) for i in range(count)])


def pool(size: int = 14, shift: int = 0) -> Network:
    """The mean over places of an image, as the newer exporter writes adaptive pooling."""
    rows, columns = np.broadcast_arrays(windows(size, 4)[:, :, None, None] + shift, windows(size, 4)[None, None])
    net = Written(2, 3, size + shift, size)("Transpose", perm=(2, 3, 0, 1))
    net("GatherND", np.stack([rows, columns], -1))("Transpose", perm=(4, 5, 0, 1, 2, 3))
    return net("ReduceMean", np.array([-3, -1]), keepdims=0).done()


def largest(fill: float, places: Any = ((0,), (2,), (0,))) -> Network:
    """The largest of what is scattered, without what was there before."""
    net = Written("N", 1)
    updates, index, old = net.last, net.constant(np.array(places)), net.constant(np.array([[5.0], [-7.0], [9.0]]))
    net("Shape")("ConstantOfShape", value=np.array([fill]))
    lowest = net.last
    net.network.add_node("ScatterElements", [old, index, lowest], ["low"], axis=0, reduction="min")
    net.network.add_node("ScatterElements", ["low", index, updates], ["high"], axis=0, reduction="max")
    net.last = "high"
    return net.done()


LOWEST = -float("inf")
CASES: dict[str, tuple[Callable[[], Network], tuple[str, ...]]] = {
    "adaptive pooling": (pool, ("adaptive_avg_pool2d",)),
    "scattered maximum": (lambda: largest(LOWEST), ("scatter_reduce",)),
    "places from the back": (lambda: largest(LOWEST, ((0,), (-1,), (0,))), ("scatter_reduce",)),
    "place of a row": (
        lambda: Written(4, 3)("Slice", np.array([1]), np.array([2]), np.array([0]))("Squeeze", np.array([0])).done(),
        ("select",),
    ),
    "last place": (
        lambda: Written(4, 3)("Slice", np.array([-1]), np.array([99]), np.array([1]))("Squeeze", np.array([-1])).done(),
        ("select",),
    ),
    "rows by GatherND": (lambda: Written(4, 3)("GatherND", np.array([[2], [0], [2]])).done(), ("index_select",)),
    "columns of a matrix that was turned": (
        lambda: Written(4, 3)("Transpose", perm=(1, 0))("Gather", np.array([2, 0]))("Transpose", perm=(1, 0)).done(),
        ("index_select",),
    ),
    "pairs of places": (
        lambda: Written(4, 3, 3)("Transpose", perm=(1, 2, 0))("Flatten", axis=2)("Gather", np.array([1, 5, 8]))(
            "Transpose", perm=(1, 0)
        ).done(),
        ("flatten", "index_select"),
    ),
    "reshaped twice": (
        lambda: Written(4, 3)("Reshape", np.array([2, 6]))("Reshape", np.array([3, -1])).done(),
        ("reshape",),
    ),
    "nothing to do": (
        lambda: Written(4, 3)("Identity")("Pad", np.zeros(4, np.int64))("Max")("Transpose", perm=(0, 1))(
            "Expand", np.array([4, 3])
        )("Slice", np.array([0]), np.array([99]), np.array([1]))("Cast", to=11)("Reshape", np.array([4, 3]))(
            "Concat", axis=0
        ).done(),
        (),
    ),
}


def calls(executor: Any) -> list[str]:
    """Functions that the compiled code calls, without those of every case."""
    names = [getattr(node.target, "__name__", "") for node in executor.module.graph.nodes if node.op == "call_function"]
    return [
        n for n in names if n not in ("mul", "tanh", "ReduceSum", "reduce_sum", "shape", "constant_of_shape", "sum")
    ]


def example(network: Network) -> torch.Tensor:
    """An input, with 3 for a size that only a run knows."""
    sizes = network.inputs["x"].shape or ()
    return torch.from_numpy(RNG.standard_normal([n if isinstance(n, int) else 3 for n in sizes]))


@pytest.mark.parametrize("name", CASES)
def test_a_form_is_one_function_and_gives_the_same(name: str) -> None:
    build, wanted = CASES[name]
    network = build()
    short, plain = d5fw.from_model(network), d5fw.from_model(network, recognise=False)
    assert tuple(calls(short)) == wanted and calls(plain) != list(wanted)
    x = example(network)
    found, written = (e.inference_and_backprop({"x": x}) for e in (short, plain))
    for value in network.outputs:
        assert torch.allclose(found[value], written[value], rtol=1e-12, atol=1e-12)
    mine, theirs = (e.network.fetch_tensors(["w.grad"])[0] for e in (short, plain))
    assert torch.allclose(mine, theirs, rtol=1e-12, atol=1e-12) and mine.abs().max() > 1e-3


@pytest.mark.parametrize(
    ("network", "kept"),
    [
        (lambda: pool(12, shift=2), "gather_nd"),  # windows that are no adaptive pooling's
        (lambda: largest(-2.0), "scatter_elements"),  # what was there counts where it is lower
        (lambda: Written(4, 3)("Pad", np.array([0, 1, 0, 0])).done(), "pad"),
        (lambda: Written("N", 3)("Reshape", np.array([-1, 3])).done(), "reshape"),
        (lambda: Written("N", 3)("Reshape", np.array([0, 0, -1])).done(), "reshape"),  # one axis more
        (lambda: Written("N", 3, 2)("Reshape", np.array([0, -1])).done(), "flatten"),
        (lambda: Written("N", 3, 2)("Reshape", np.array([3, 0, -1])).done(), "reshape"),
        (lambda: Written(4, 3)("Slice", *(np.array([n]) for n in (-1, -99, 0, -1))).done(), "slice_"),
    ],
)
def test_what_only_looks_alike_stays(network: Callable[[], Network], kept: str) -> None:
    made = network()
    executor = d5fw.from_model(made)
    if kept != "reshape":
        assert kept in calls(executor)
    x = example(made)
    plain = d5fw.from_model(made, recognise=False)
    for value in made.outputs:
        assert torch.equal(executor.inference({"x": x})[value], plain.inference({"x": x})[value])


def test_outputs_and_what_sub_graphs_capture_keep_their_names() -> None:
    nodes = [Node("Identity", ("x",), ("y",), "1"), Node("Identity", ("y",), ("z",), "2")]
    assert [str(n) for n in tidied(Program(["x"], ["y", "z"], nodes), lambda name: None).nodes] == [
        "y = Identity(x)  # 1",
        "z = Identity(y)  # 2",
    ]
    assert (
        ProgramGraph(Program(["x"], ["y"], nodes), lambda name: None, lambda name: False).only("y", "Identity") is None
    )


def greedy(
    boxes: np.ndarray, scores: np.ndarray, most: int, overlap: float, least: float
) -> list[tuple[int, int, int]]:
    """Non-maximum suppression box by box, after ONNX's text."""
    chosen = []
    for b, per_class in enumerate(scores):
        for c, values in enumerate(per_class):
            kept: list[int] = []
            for i in sorted(range(len(values)), key=lambda k: (-values[k], k)):
                if values[i] <= least or len(kept) == most:
                    continue
                if all(iou(boxes[b, i], boxes[b, j]) <= overlap for j in kept):
                    kept.append(i)
            chosen += [(b, c, i) for i in kept]
    return chosen


def iou(a: np.ndarray, b: np.ndarray) -> float:
    sides = np.minimum(a[2:], b[2:]) - np.maximum(a[:2], b[:2])
    shared = np.prod(np.maximum(sides, 0))
    return float(shared / (np.prod(a[2:] - a[:2]) + np.prod(b[2:] - b[:2]) - shared))


@pytest.mark.parametrize(("most", "least"), [(3, 0.2), (20, -1.0), (0, 0.0)])
def test_boxes_are_kept_as_onnx_says(most: int, least: float) -> None:
    network = Network()
    network.add_input("boxes", (2, 12, 4))
    network.add_input("scores", (2, 3, 12))
    for name, value in (("most", np.array(most)), ("iou", np.float32(0.4)), ("least", np.float32(least))):
        network.add_parameter(name, np.asarray(value).reshape(1), trainable=False)
    network.add_node("NonMaxSuppression", ["boxes", "scores", "most", "iou", "least"], ["y"])
    network.add_output("y")
    rng = np.random.default_rng(1)
    low = rng.uniform(0, 4, (2, 12, 2))
    boxes = np.concatenate([low, low + rng.uniform(1, 4, (2, 12, 2))], -1).astype(np.float32)
    scores = np.round(rng.uniform(0, 1, (2, 3, 12)), 1).astype(np.float32)  # with ties
    found = d5fw.from_model(network).inference({"boxes": boxes, "scores": scores})["y"].tolist()
    assert [tuple(row) for row in found] == greedy(boxes, scores, most, 0.4, least)
    assert len(found) > 6 or not most
