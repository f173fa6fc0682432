"""Gradients through If, Loop and Scan against PyTorch's autograd of the same steps, written by hand, in float64."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

from deep500.errors import UnsupportedOperator
from deep500.networks import Network
from tests.conftest import load_backend

RNG = np.random.default_rng(16)
EXACT = 1e-9
EMITTED = ("reference", "onnxruntime")
W, B, X = RNG.normal(size=(3, 3)) * 0.7, RNG.normal(size=3), RNG.normal(size=(2, 3))


def value(name: str, *shape: int | str, dtype: int = TensorProto.DOUBLE) -> onnx.ValueInfoProto:
    return helper.make_tensor_value_info(name, dtype, shape)


def graph(lines: list[tuple[Any, ...]], inputs: list[Any], outputs: list[Any], **arrays: np.ndarray) -> onnx.GraphProto:
    """A sub-graph from (operator, inputs, outputs, attributes) lines."""
    nodes = [helper.make_node(op, i.split(), o.split(), **(rest[0] if rest else {})) for op, i, o, *rest in lines]
    return helper.make_graph(
        nodes, "body", inputs, outputs, [onnx.numpy_helper.from_array(v, n) for n, v in arrays.items()]
    )


def network(parameters: Mapping[str, np.ndarray], fixed: Mapping[str, Any] | None = None) -> Network:
    net = Network("control")
    for name, array in parameters.items():
        net.add_parameter(name, array)
    for name, array in (fixed or {}).items():
        net.add_parameter(name, np.asarray(array), trainable=False)
    return net


def finish(net: Network, *values: str) -> Network:
    """loss = sum over the values of sum(v * v)"""
    parts = []
    for v in values:
        net.add_node("Mul", [v, v], [f"{v}.square"])
        net.add_node("ReduceSum", [f"{v}.square"], [f"{v}.sum"], keepdims=0)
        parts.append(f"{v}.sum")
    net.add_node("Sum", parts, ["loss"])
    net.add_output("loss")
    return net


def squares(*values: Any) -> Any:
    return sum((v * v).sum() for v in values)


def branches(condition: bool) -> Network:
    net = network({"x": X, "w": W, "b": B, "decides": np.array(1.0 if condition else -1.0)}, {"zero": np.array(0.0)})
    net.add_node("Greater", ["decides", "zero"], "c")
    then = graph([("MatMul", "x w", "t1"), ("Tanh", "t1", "t2")], [], [value("t2", 2, 3)])
    other = graph([("MatMul", "x w", "t1"), ("Add", "t1 b", "e2"), ("Sigmoid", "e2", "e3")], [], [value("e3", 2, 3)])
    net.add_node("If", "c", "y", then_branch=then, else_branch=other)
    return finish(net, "y")


STEP = [("MatMul", "h w", "l1"), ("Add", "l1 b", "l2"), ("Tanh", "l2", "l3"), ("Mul", "l3 scale", "after")]


def loop(trips: int, limit: float | None, unknown: bool = False) -> Network:
    """h = tanh(h w + b) * 1.5, each step kept; goes on while sum(h * h) < limit."""
    net = network({"x": X, "w": W, "b": B}, {"trips": trips, "go": True})
    lines = [*STEP, ("Identity", "after", "row")]
    arrays = {"scale": np.array(1.5)}
    if limit is None:
        lines.append(("Identity", "on", "more"))
    else:
        lines += [("ReduceSumSquare", "after", "size", {"keepdims": 0}), ("Less", "size limit", "more")]
        arrays["limit"] = np.array(limit)
    inputs = [value("i", dtype=TensorProto.INT64), value("on", dtype=TensorProto.BOOL), value("h", 2, 3)]
    outputs = [value("more", dtype=TensorProto.BOOL), value("after", 2, 3), value("row", 2, 3)]
    body = graph(lines, inputs, outputs, **arrays)
    if unknown:
        net.add_node("Mul", ["trips", "trips"], ["most"])
    net.add_node("Loop", ["most" if unknown else "trips", "go", "x"], ["last", "rows"], body=body)
    return finish(net, "last", "rows")


def scan(axis: int, directions: tuple[int, int]) -> Network:
    """A recurrent layer over an axis of a sequence [2, 4, 3] (or [4, 2, 3]); outputs along another axis."""
    shape = (2, 4, 3) if axis == 1 else (4, 2, 3)
    net = network({"x": X, "w": W, "b": B, "seq": np.random.default_rng(2).normal(size=shape)})
    lines = [
        ("Add", "h part", "s0"),
        ("MatMul", "s0 w", "s1"),
        ("Add", "s1 b", "s2"),
        ("Tanh", "s2", "h2"),
        ("Mul", "h2 part", "row"),
    ]
    body = graph(lines, [value("h", 2, 3), value("part", 2, 3)], [value("h2", 2, 3), value("row", 2, 3)])
    net.add_node(
        "Scan",
        ["x", "seq"],
        ["last", "rows"],
        body=body,
        num_scan_inputs=1,
        scan_input_axes=[axis],
        scan_input_directions=[directions[0]],
        scan_output_axes=[2],
        scan_output_directions=[directions[1]],
    )
    net.add_parameter("weights", np.random.default_rng(3).normal(size=(2, 3, 4)), trainable=False)
    net.add_node("Mul", ["rows", "weights"], ["weighted"])
    return finish(net, "last", "weighted")


def nested(trips: int) -> Network:
    """In each step an If over the parity of the step's number, which is a factor as well."""
    net = network({"x": X, "w": W, "b": B}, {"trips": trips, "go": True})
    odd = graph([("MatMul", "h w", "o1"), ("Sin", "o1", "o2")], [], [value("o2", 2, 3)])
    even = graph([("Mul", "h b", "o3")], [], [value("o3", 2, 3)])
    lines = [
        ("Mod", "i two", "rest"),
        ("Cast", "rest", "isodd", {"to": TensorProto.BOOL}),
        ("If", "isodd", "mixed", {"then_branch": odd, "else_branch": even}),
        ("Cast", "rest", "r2", {"to": TensorProto.DOUBLE}),
        ("Sub", "r2 half", "number"),
        ("Mul", "mixed number", "m2"),
        ("Add", "m2 h", "after"),
        ("Identity", "on", "more"),
    ]
    inputs = [value("i", dtype=TensorProto.INT64), value("on", dtype=TensorProto.BOOL), value("h", 2, 3)]
    body = graph(
        lines,
        inputs,
        [value("more", dtype=TensorProto.BOOL), value("after", 2, 3)],
        two=np.array(2, np.int64),
        half=np.array(0.5),
    )
    net.add_node("Loop", ["trips", "go", "x"], ["last"], body=body)
    return finish(net, "last")


def _torch_loop(trips: int, limit: float | None) -> Callable[..., Any]:
    def run(torch: Any, x: Any, w: Any, b: Any) -> Any:
        rows = []
        for _ in range(trips):
            x = torch.tanh(x @ w + b) * 1.5
            rows.append(x)
            if limit is not None and float((x * x).sum().detach()) >= limit:
                break
        return squares(x, *rows)

    return run


def _torch_scan(axis: int, directions: tuple[int, int]) -> Callable[..., Any]:
    def run(torch: Any, x: Any, w: Any, b: Any, seq: Any) -> Any:
        parts = list(seq.unbind(axis))
        rows = []
        for part in parts[::-1] if directions[0] else parts:
            x = torch.tanh((x + part) @ w + b)
            rows.append(x * part)
        weights = torch.tensor(np.random.default_rng(3).normal(size=(2, 3, 4)))
        return squares(x, torch.stack(rows[::-1] if directions[1] else rows, 2) * weights)

    return run


def _torch_nested(trips: int) -> Callable[..., Any]:
    def run(torch: Any, x: Any, w: Any, b: Any) -> Any:
        for i in range(trips):
            x = x + (torch.sin(x @ w) if i % 2 else x * b) * (i % 2 - 0.5)
        return squares(x)

    return run


CASES: dict[str, tuple[Callable[[], Network], Callable[..., Any]]] = {
    "If, first branch": (lambda: branches(True), lambda torch, x, w, b, decides: squares(torch.tanh(x @ w))),
    "If, second branch": (lambda: branches(False), lambda torch, x, w, b, decides: squares(torch.sigmoid(x @ w + b))),
    "Loop, constant": (lambda: loop(4, None), _torch_loop(4, None)),
    "Loop, many": (lambda: loop(100, None), _torch_loop(100, None)),
    "Loop, computed count": (lambda: loop(2, None, unknown=True), _torch_loop(4, None)),
    "Loop, until": (lambda: loop(50, 9.0), _torch_loop(50, 9.0)),
    "Loop, never": (lambda: loop(0, None), lambda torch, x, w, b: squares(x)),
    "Loop with If": (lambda: nested(5), _torch_nested(5)),
    "Loop with If, many": (lambda: nested(25), _torch_nested(25)),
    **{
        f"Scan, axis {a}, directions {d}": ((lambda a=a, d=d: scan(a, d)), _torch_scan(a, d))
        for a, d in [(0, (0, 0)), (1, (0, 0)), (1, (1, 0)), (0, (0, 1)), (1, (1, 1))]
    },
}  # fmt: skip


def torch_gradients(run: Callable[..., Any], net: Network) -> dict[str, np.ndarray]:
    torch = pytest.importorskip("torch")
    leaves = {n: torch.tensor(net.parameters[n].value, requires_grad=True) for n in net.trainable()}
    run(torch, **leaves).backward()
    return {n: np.zeros(v.shape) if v.grad is None else v.grad.numpy() for n, v in leaves.items()}


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("backend", EMITTED)
def test_gradient_is_that_of_pytorch(name: str, backend: str) -> None:
    build, run = CASES[name]
    net = build()
    want = torch_gradients(run, net)
    gradient = net.with_gradient("loss", net.trainable())
    if name.startswith("If"):
        assert [node.op_type for node in gradient.nodes].count("If") == 2
    onnx.checker.check_model(gradient.to_onnx(), full_check=True)
    got = load_backend(backend).Executor(gradient).inference({})
    assert any(np.abs(v).max() > 1e-3 for v in want.values())
    for parameter, expected in want.items():
        np.testing.assert_allclose(got[f"{parameter}.grad"], expected, rtol=EXACT, atol=EXACT, err_msg=parameter)


def test_training_step_on_backends_with_their_own_autograd(backend: Any) -> None:
    """The same networks, trained as they are."""
    names = ["If, second branch", "Loop, constant", "Scan, axis 1, directions (1, 1)"]
    if "jax" not in backend.__name__:  # it refuses stacks whose length depends on data
        names.append("Loop, until")
    for name in names:
        build, run = CASES[name]
        net = build()
        executor = backend.Executor(net)
        executor.inference_and_backprop({})
        for parameter, expected in torch_gradients(run, net).items():
            if parameter == "decides":
                continue  # the loss does not depend on it: no gradient is left behind
            got = executor.network.fetch_tensors([f"{parameter}.grad"])[0]
            np.testing.assert_allclose(np.asarray(got), expected, rtol=EXACT, atol=EXACT, err_msg=f"{name} {parameter}")


@pytest.mark.backend("tensorflow")
@pytest.mark.parametrize("name", [name for name in CASES if name.startswith("Scan")])
def test_a_scan_of_many_slices_is_a_loop_of_tensorflows_graph(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    from deep500.frameworks.tensorflow.operators import control

    graphs, loops = [], control._in_the_graph
    monkeypatch.setattr(control, "MOST_UNROLLED", 1)
    monkeypatch.setattr(control, "_in_the_graph", lambda *args: graphs.append(args) or loops(*args))
    build, run = CASES[name]
    net = build()
    executor = load_backend("tensorflow").Executor(net)
    for _ in range(2):
        executor.inference_and_backprop({})
    assert len(graphs) == 1  # traced once, not run slice by slice
    for parameter, expected in torch_gradients(run, net).items():
        got = executor.network.fetch_tensors([f"{parameter}.grad"])[0]
        np.testing.assert_allclose(np.asarray(got), expected, rtol=EXACT, atol=EXACT, err_msg=parameter)


def test_a_scan_over_a_length_that_batches_decide(backend: Any) -> None:
    """h = tanh((h + part) w) over inputs of 3 slices, 7, and 3 again, with its gradient."""
    net = network({"x": X, "w": W})
    net.add_input("seq", ("T", 2, 3), "float64")
    lines = [("Add", "h part", "s0"), ("MatMul", "s0 w", "s1"), ("Tanh", "s1", "h2"), ("Identity", "h2", "row")]
    body = graph(lines, [value("h", 2, 3), value("part", 2, 3)], [value("h2", 2, 3), value("row", 2, 3)])
    net.add_node("Scan", ["x", "seq"], ["last", "rows"], body=body, num_scan_inputs=1)
    finish(net, "last", "rows")
    executor, torch = backend.Executor(net), pytest.importorskip("torch")
    for length in (3, 7, 3):
        seq = np.random.default_rng(length).normal(size=(length, 2, 3))
        executor.inference_and_backprop({"seq": seq})
        x, w = (torch.tensor(net.parameters[name].value, requires_grad=True) for name in ("x", "w"))
        h, rows = x, []
        for part in torch.tensor(seq):
            h = torch.tanh((h + part) @ w)
            rows.append(h)
        squares(h, *rows).backward()
        for name, leaf in (("x", x), ("w", w)):
            got = executor.network.fetch_tensors([f"{name}.grad"])[0]
            np.testing.assert_allclose(np.asarray(got), leaf.grad, rtol=EXACT, atol=EXACT, err_msg=f"{name}, {length}")


def test_jax_names_the_loop_whose_stack_has_an_unknown_length_when_it_is_built() -> None:
    build, _ = CASES["Loop, until"]
    with pytest.raises(UnsupportedOperator, match=r"node 'Loop_last' \(Loop\): got 'x', 'w', 'b', which"):
        load_backend("jax").Executor(build())
    for known in ("Loop, constant", "Loop, computed count"):
        load_backend("jax").Executor(CASES[known][0]())


def test_short_loops_are_written_out_and_long_ones_run_backwards() -> None:
    def loops(net: Network) -> int:
        return [node.op_type for node in net.with_gradient().nodes].count("Loop")

    assert [loops(CASES[f"Loop, {case}"][0]()) for case in ("constant", "many", "until", "computed count")] == [
        0,
        2,
        2,
        2,
    ]
    assert loops(nested(5)) == 0


def test_a_branch_that_is_known_is_written_out() -> None:
    """As PyTorch's exporter writes scatter_reduce: a branch for each rank of its input."""
    torch = pytest.importorskip("torch")
    net = network({"x": X}, {"zero": 0})
    net.add_node("Shape", "x", "shape")
    net.add_node("Size", "shape", "rank")
    net.add_node("Equal", ["rank", "zero"], "scalar")
    flat = graph([("Reshape", "x all", "f")], [], [value("f", 6)], all=np.array([-1]))
    same = graph([("Tanh", "x", "s")], [], [value("s", 2, 3)])
    net.add_node("If", "scalar", "y", then_branch=flat, else_branch=same)
    gradient = finish(net, "y").with_gradient()
    assert "If" not in {node.op_type for node in gradient.nodes}
    x = torch.tensor(X, requires_grad=True)
    squares(torch.tanh(x)).backward()
    got = load_backend("reference").Executor(gradient).inference({})["x.grad"]
    np.testing.assert_allclose(got, x.grad.numpy(), rtol=EXACT, atol=EXACT)


def test_random_bodies_and_growing_states_are_refused() -> None:
    net = network({"x": X, "decides": np.array(1.0)}, {"zero": np.array(0.0)})
    net.add_node("Greater", ["decides", "zero"], "c")
    body = graph([("RandomNormalLike", "x", "r"), ("Mul", "x r", "y0")], [], [value("y0", 2, 3)])
    net.add_node("If", "c", "y", name="dice", then_branch=body, else_branch=body)
    with pytest.raises(UnsupportedOperator, match=r"'dice'.*random numbers \(RandomNormalLike\)"):
        finish(net, "y").with_gradient()
    net = network({"x": X}, {"trips": 30, "go": True})
    inputs = [value("i", dtype=TensorProto.INT64), value("on", dtype=TensorProto.BOOL), value("h", "n", 3)]
    lines = [("Concat", "h h", "longer", {"axis": 0}), ("Identity", "on", "more")]
    growing = graph(lines, inputs, [value("more", dtype=TensorProto.BOOL), value("longer", "m", 3)])
    net.add_node("Loop", ["trips", "go", "x"], ["y"], name="grows", body=growing)
    with pytest.raises(UnsupportedOperator, match=r"'grows'.*changes its shape from \(2, 3\) to \(4, 3\)"):
        finish(net, "y").with_gradient()


def test_second_derivative_through_a_loop() -> None:
    torch = pytest.importorskip("torch")
    net = loop(3, None)
    first = net.with_gradient("loss", ["x"])
    first.add_node("ReduceSumSquare", ["x.grad"], ["penalty"], keepdims=0)
    second = first.with_gradient("penalty", ["w"])
    got = load_backend("onnxruntime").Executor(second).inference({}, ["w.grad"])["w.grad"]
    x, w, b = (torch.tensor(v, requires_grad=True) for v in (X, W, B))
    (dx,) = torch.autograd.grad(_torch_loop(3, None)(torch, x, w, b), x, create_graph=True)
    (dx * dx).sum().backward()
    np.testing.assert_allclose(got, w.grad.numpy(), rtol=EXACT, atol=EXACT)
