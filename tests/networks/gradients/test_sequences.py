"""Gradients through sequences of known length against PyTorch's autograd in float64."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from deep500.errors import UnsupportedOperator
from deep500.networks import Network
from tests.conftest import load_backend

X, Y = np.random.default_rng(4).normal(size=(2, 7)), np.random.default_rng(5).normal(size=(2, 2))


class Builder:
    """A network over parameters x [2, 7] and y [2, 2], written as calls."""

    def __init__(self) -> None:
        self.net = Network("sequences")
        self.net.add_parameter("x", X)
        self.net.add_parameter("y", Y)

    def __call__(self, op_type: str, *inputs: Any, **attributes: Any) -> str:
        names = [v if isinstance(v, str) else self.fixed(v) for v in inputs]
        output = self.net.fresh_name(op_type)
        self.net.add_node(op_type, names, [output], **attributes)
        return output

    def fixed(self, value: Any) -> str:
        name = self.net.fresh_name("fixed")
        self.net.add_parameter(name, np.array(value, np.int64), trainable=False)
        return name


def split_and_join(b: Builder) -> list[str]:
    """Parts of unequal size, one of them read alone, all of them joined."""
    parts = b("SplitToSequence", "x", [2, 1, 4], axis=1)
    first = b("SequenceAt", parts, 0)
    return [b("ConcatFromSequence", parts, axis=0 - 1), b("Mul", first, "y"), b("Sin", b("SequenceAt", parts, -1))]


def chunks(b: Builder) -> list[str]:
    parts = b("SplitToSequence", "x", 3, axis=-1)  # 3, 3, 1
    return [b("Exp", b("SequenceAt", parts, i)) for i in range(3)]


def rows(b: Builder) -> list[str]:
    kept = b("SplitToSequence", "x")
    dropped = b("SplitToSequence", "x", axis=1, keepdims=0)
    stacked = b("ConcatFromSequence", dropped, axis=1, new_axis=1)
    return [b("SequenceAt", kept, 1), b("Tanh", stacked), b("Cos", b("SequenceAt", dropped, 6))]


def edited(b: Builder) -> list[str]:
    """Constructed, inserted into, erased from; what is erased has no gradient."""
    parts = b("SequenceConstruct", "y", b("Sin", "y"))
    parts = b("SequenceInsert", parts, b("Exp", "y"), 1)
    parts = b("SequenceInsert", b("SequenceErase", parts, 0), b("Mul", "y", "y"))
    length = b("Cast", b("SequenceLength", parts), to=11)
    return [b("ConcatFromSequence", b("Identity", parts), axis=1), b("Mul", length, "y")]


CASES: dict[Callable[[Builder], list[str]], Callable[..., list[Any]]] = {
    split_and_join: lambda t, x, y: [x, x[:, :2] * y, t.sin(x[:, 3:])],
    chunks: lambda t, x, y: [t.exp(p) for p in x.split(3, 1)],
    rows: lambda t, x, y: [x[1:2], t.tanh(x), t.cos(x[:, 6])],
    edited: lambda t, x, y: [t.cat([t.exp(y), t.sin(y), y * y], 1), 3 * y],
}


def build(case: Callable[[Builder], list[str]]) -> Network:
    b = Builder()
    parts = [b("ReduceSumSquare", value, keepdims=0) for value in case(b)]
    b.net.add_node("Sum", parts, ["loss"])
    b.net.add_output("loss")
    return b.net


@pytest.mark.parametrize("case", CASES, ids=lambda c: c.__name__)
def test_gradient_is_that_of_pytorch(case: Callable[[Builder], list[str]], backend: Any) -> None:
    torch = pytest.importorskip("torch")
    x, y = (torch.tensor(v, requires_grad=True) for v in (X, Y))
    sum((v * v).sum() for v in CASES[case](torch, x, y)).backward()
    net = build(case)
    executor = backend.Executor(net)
    executor.inference_and_backprop({})
    for name, leaf in (("x", x), ("y", y)):
        if leaf.grad is not None:
            got = executor.network.fetch_tensors([f"{name}.grad"])[0]
            np.testing.assert_allclose(np.asarray(got), leaf.grad.numpy(), rtol=1e-9, atol=1e-9, err_msg=name)


def test_emitted_gradient_holds_no_sequence() -> None:
    step = build(split_and_join).with_gradient()
    assert not [node.op_type for node in step.nodes if "Sequence" in node.op_type]


def test_sequence_that_is_an_output_stays() -> None:
    net = build(chunks)
    (parts,) = (node.outputs[0] for node in net.nodes if node.op_type == "SplitToSequence")
    net.add_output(parts)
    got = load_backend("reference").Executor(net.with_gradient()).inference({}, [parts])[parts]
    assert [part.shape for part in got] == [(2, 3), (2, 3), (2, 1)]


def test_unknown_lengths_and_positions_are_refused() -> None:
    net = Network()
    net.add_input("x", ("N", 3), "float64")
    net.add_input("where", (), "int64")
    net.add_node("SplitToSequence", "x", "parts", name="cut")
    net.add_node("SequenceAt", ["parts", "where"], "part", name="pick")
    net.add_node("ReduceSum", "part", "loss", keepdims=0)
    with pytest.raises(UnsupportedOperator, match=r"'cut'.*lengths and positions that are known.*'pick'"):
        net.with_gradient("loss", ["x"])
