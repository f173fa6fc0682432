"""Operators in Python by themselves: what they accept, what they infer, what their authors may get wrong."""

from __future__ import annotations

import importlib.metadata
import sys
import types
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import deep500 as d5
from deep500.errors import InputError, UnsupportedOperator
from deep500.operators import GradientOp, registry
from deep500.tensors import TensorDescriptor, tensordesc


class Power(d5.CustomPythonOp):
    """That of the design document."""

    def __init__(self, exponent):
        super().__init__()
        self.exponent = exponent

    def forward(self, inputs):
        return inputs[0] ** self.exponent

    def backward(self, grads, fwd_inputs, fwd_outputs):
        return grads[0] * self.exponent * fwd_inputs[0] ** (self.exponent - 1)


def make(forward, backward=None, inputs=None, outputs=None) -> d5.CustomPythonOp:
    """An operator from functions."""
    body = {"forward": lambda self, x: forward(x)}
    if backward is not None:
        body["backward"] = lambda self, g, x, y: backward(g, x, y)
    return type("Made", (d5.CustomPythonOp,), body)(inputs, outputs)


def test_the_operator_of_the_design_document() -> None:
    cube, x = Power(3), np.array([[1.0, -2.0]])
    np.testing.assert_array_equal(cube(x), x**3)
    np.testing.assert_array_equal(cube.run_backward([np.ones_like(x)], [x], [x**3])[0], 3 * x**2)
    assert cube.differentiable and cube.name == "Power"


def test_scalars_stay_scalars() -> None:
    """Also where NumPy's ascontiguousarray would make a vector of them."""
    cube, x = Power(3), np.array(2.0)
    assert cube(2.0).shape == () == cube(x).shape
    assert cube.run_backward([np.float64(1)], [x], [x**3])[0].shape == ()
    assert GradientOp(cube, 1).forward([np.array(1.0), x, x**3])[0].shape == ()


def test_forward_gets_contiguous_arrays_and_no_copies() -> None:
    seen: list[np.ndarray] = []
    op = make(lambda inputs: seen.extend(inputs) or inputs[0] + 1)
    x = np.arange(6.0).reshape(2, 3)
    op(x, x.T, [1, 2])
    assert np.shares_memory(seen[0], x) and seen[1].flags.c_contiguous and isinstance(seen[2], np.ndarray)


def test_inference_by_trying() -> None:
    calls = []

    def forward(inputs):
        calls.append(inputs[0].shape)
        return [inputs[0].sum(0), inputs[0] > 0]

    op = make(forward)
    want = [tensordesc((3,), "float32"), tensordesc((2, 3), "bool")]
    assert op.infer([tensordesc((2, 3))]) == want == op.infer([tensordesc((2, 3))])
    assert calls == [(2, 3)], "asked once for each kind of input"
    with pytest.raises(UnsupportedOperator, match=r"float32\[Nx3\].*output_descriptors"):
        op.infer([tensordesc(("N", 3))])
    with pytest.raises(InputError, match=r"IndexError .*with ones of float32\[2x3\].*mend it"):
        make(lambda inputs: inputs[7]).infer([tensordesc((2, 3))])


def test_inference_from_declarations() -> None:
    op = make(
        lambda x: x,
        inputs=[tensordesc(("N", 3)), TensorDescriptor(None, ("N",))],
        outputs=[TensorDescriptor(None, ("N", 1)), TensorDescriptor("int64", None)],
    )
    given = [tensordesc(("batch", 3)), tensordesc((None,), "bool")]
    assert op.infer(given) == [tensordesc(("batch", 1)), tensordesc(("batch", 3), "int64")]
    assert (op.num_inputs, op.num_outputs) == (2, 2)


REFUSED = [
    ([np.ones((2, 3))], "got 1 inputs; expected 2"),
    ([np.ones((2, 3)), np.ones(3)], r"input 1: got float64\[3\]; expected float64\[N\] with {'N': 2}"),
    ([np.ones((2, 4)), np.ones(2)], r"input 0: got float64\[2x4\]; expected float64\[Nx3\]"),
    ([np.ones((2, 3), np.float32), np.ones(2)], "input 0: got dtype float32; expected float64"),
]


@pytest.mark.parametrize(("inputs", "expected"), REFUSED, ids=[e.split(";")[0] for _, e in REFUSED])
def test_inputs_are_held_to_their_declaration(inputs, expected) -> None:
    op = make(lambda x: x[0], inputs=[tensordesc(("N", 3), "float64"), tensordesc(("N",), "float64")])
    with pytest.raises(InputError, match=f"operator 'Made'.*{expected}"):
        op(*inputs)


WRONG = [  # forward, declared output, what the error says
    (lambda x: x[0].astype(np.float64), tensordesc(("N",)), r"output 0 of float64\[2\] .*expected float32\[2\]"),
    (lambda x: x[0][:1], tensordesc(("N",)), r"output 0 of float32\[1\]"),
    (lambda x: [x[0], x[0]], tensordesc(("N",)), "got 2 outputs from forward; expected 1"),
]


@pytest.mark.parametrize(("forward", "declared", "expected"), WRONG, ids=["dtype", "shape", "count"])
def test_outputs_are_held_to_their_declaration(forward, declared, expected) -> None:
    op = make(forward, inputs=[tensordesc(("N",))], outputs=[declared])
    with pytest.raises(InputError, match=expected):
        op(np.ones(2, np.float32))


def test_gradients_are_completed_and_checked() -> None:
    x, index = np.ones((2, 3), np.float32), np.array([0, 1])
    op = make(lambda x: x[0], lambda g, x, y: [g[0].astype(np.float64), None])
    gradient, none = op.run_backward([x], [x, index], [x])
    assert gradient.dtype == np.float32 and none.dtype == index.dtype and not none.any()
    with pytest.raises(InputError, match=r"gradient of shape \(2,\) for input 0; expected \(2, 3\)"):
        make(lambda x: x[0], lambda g, x, y: g[0][:, 0]).run_backward([x], [x], [x])
    with pytest.raises(InputError, match="got 1 gradients from backward; expected 2"):
        make(lambda x: x[0], lambda g, x, y: g[0]).run_backward([x], [x, index], [x])
    without = make(lambda x: x[0])
    assert not without.differentiable
    with pytest.raises(UnsupportedOperator, match="write it"):
        without.run_backward([x], [x], [x])


def test_registered_operators_are_made_once_for_each_use() -> None:
    made = []

    @d5.register_op("TestMadeOnce")
    def factory(inputs, sizes=(), array=None):
        made.append((sizes, array))
        return Power(2)

    inputs = [tensordesc((3,))]
    first = registry.find_operator("TestMadeOnce", {"sizes": [1, 2], "array": np.ones((1, 2))}, inputs)
    assert registry.find_operator("TestMadeOnce", {"array": np.ones((1, 2)), "sizes": (1, 2)}, inputs) is first
    assert registry.find_operator("TestMadeOnce", {}, inputs) is not first
    assert made == [((1, 2), ((1.0, 1.0),)), ((), None)]
    assert isinstance(registry.find_operator("TestMadeOnceGrad", {"num_outputs": 1}, inputs * 3), GradientOp)
    assert "TestMadeOnce" in registry.operator_names() and len(made) == 2, "to list operators makes none"


@given(
    st.lists(st.sampled_from([0, 0.0, -0.0, False, 1, 1.0, True, 2, 2.0, "2", (1, 2), (1.0, 2), [1, 2]]), min_size=2)
)
def test_attributes_that_are_written_otherwise_make_operators_of_their_own(values: list[Any]) -> None:
    """Whatever was made before in the process: 2 and 2.0 are equal, and a C++ operator divides otherwise by them."""
    registry.register_op("TestPower")(Power)
    operators = [registry.find_operator("TestPower", {"exponent": value}, [tensordesc((3,))]) for value in values]
    assert [op.exponent for op in operators] == [tuple(v) if isinstance(v, list) else v for v in values]
    assert [type(op.exponent) for op in operators] == [tuple if isinstance(v, list) else type(v) for v in values]
    assert all(str(op.exponent) == str(v) for op, v in zip(operators, values, strict=True) if isinstance(v, float))


class Carried(d5.CustomPythonOp):
    """Its backward reads what its forward left, in one of the ways."""

    def __init__(self, way):
        super().__init__()
        self.way, self.many, self.array = way, [], np.zeros(1)

    def forward(self, inputs):
        mask = (inputs[0] > 0).astype(inputs[0].dtype)
        if self.way == "attribute":
            self.mask = mask
        elif self.way == "container":
            self.many.append(mask)
        elif self.way == "array":
            self.array[:] = inputs[0].sum()
        self.calls = getattr(self, "calls", 0) + 1
        return [inputs[0] * mask, mask]

    def backward(self, grads, fwd_inputs, fwd_outputs):
        mask = {"attribute": lambda: self.mask, "container": lambda: self.many[-1], "array": lambda: self.array}
        return grads[0] * mask.get(self.way, lambda: fwd_outputs[1])()


@pytest.mark.parametrize("way", ["attribute", "container", "array", "output"])
def test_backward_that_reads_what_forward_left_is_refused(way: str) -> None:
    registry.register_op("TestCarried")(Carried)
    operator, x = registry.find_operator("TestCarried", {"way": way}, [tensordesc((3,))]), np.array([1.0, -1.0, 2.0])
    for again in range(2):
        outputs = operator.run([x])
        if way == "output":
            np.testing.assert_array_equal(operator.run_backward([x, x], [x], outputs)[0], x * outputs[1])
        else:
            with pytest.raises(InputError, match=r"'Carried': got .* where forward did not run before .*fwd_outputs"):
                operator.run_backward([x, x], [x], outputs)
        assert operator.calls >= again + 1, "what forward counts for itself it may"


def test_plugins_of_installed_packages(monkeypatch: pytest.MonkeyPatch) -> None:
    package = types.ModuleType("somebodys_package")
    package.Half = type("Half", (Power,), {"__module__": "somebodys_package"})
    monkeypatch.setitem(sys.modules, "somebodys_package", package)
    entries = [importlib.metadata.EntryPoint("half", "somebodys_package", "deep500.custom_ops")]
    monkeypatch.setattr(registry, "entry_points", lambda group: entries)
    assert registry._find_plugins.__wrapped__()[-1] is package
    entries.append(importlib.metadata.EntryPoint("gone", "no_such_package", "deep500.custom_ops"))
    with pytest.raises(InputError, match=r"plugin 'gone' \(no_such_package\).*ModuleNotFoundError"):
        registry._find_plugins.__wrapped__()


def test_names_that_nodes_cannot_have() -> None:
    for name in ("no name", "SomethingGrad", ""):
        with pytest.raises(InputError, match="expected an identifier"):
            d5.register_op(name)(Power)
    with pytest.raises(UnsupportedOperator, match=r"'TestMadeOnze'.*load_plugin"):
        registry.find_operator("TestMadeOnze", {}, [])
    d5.register_op("TestNoOperator")(lambda inputs: 3)
    with pytest.raises(InputError, match="got 3 from its factory"):
        registry.find_operator("TestNoOperator", {}, [])


@pytest.mark.parametrize("method", ["forward", "backward"])
def test_what_others_read_too_cannot_be_written(method: str) -> None:
    """In place, an input would be another one for the nodes that read it, too."""

    class InPlace(d5.CustomPythonOp):
        def forward(self, inputs: Any) -> Any:
            if method == "forward":
                inputs[0] *= 2
            return inputs[0]

        def backward(self, grads: Any, fwd_inputs: Any, fwd_outputs: Any) -> Any:
            grads[0] *= 3
            return grads[0]

    operator = InPlace()
    x = np.ones(3, np.float32)
    with pytest.raises(InputError, match=f"got a write into an array of {method} .*; expected these to stay"):
        operator.run([x]) if method == "forward" else operator.run_backward([x], [x], [x])
    if method == "backward":
        (y,) = operator.run([x])
        y += 1  # a copy of the input that forward returned
    np.testing.assert_array_equal(x, 1)
