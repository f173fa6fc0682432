"""Wrong calls and wrong arguments of C++ operators: one clear error each, and the interpreter lives."""

from __future__ import annotations

import re
from collections.abc import Callable

import numpy as np
import pytest

import deep500 as d5
from tests.operators.cpp_sources import WEIGHTED, simple

VECTOR = [d5.tensordesc(["N"])]
COPY = simple("y[0] = x[0];")


def wrong_calls() -> dict[str, tuple[Callable[[d5.operators.CompiledOp], object], str]]:
    x, y = np.zeros((2, 3)), np.zeros(2)
    odd = np.zeros(49, "int8")[1:].view("float64").reshape(2, 3)
    i, s = np.zeros(2, "int64"), np.array(1.0)

    def back(
        op: d5.operators.CompiledOp, grads: object = (y, y), inputs: object = (x, i, s), outputs: object = (y, y)
    ) -> object:
        return op.backward(grads, inputs, outputs)  # type: ignore[arg-type]

    return {
        "too few inputs": (lambda op: op.forward([x, i]), "got 2 inputs; expected 3"),
        "dtype": (lambda op: op.forward([x.astype("float32"), i, s]), "input 0: got dtype float32; expected float64"),
        "byte order": (lambda op: op.forward([x.astype(">f8"), i, s]), "input 0: got dtype >f8"),
        "objects": (lambda op: op.forward([x.astype(object), i, s]), "input 0: got dtype object"),
        "rank": (lambda op: op.forward([y, i, s]), r"input 0: got float64\[2\]; expected float64\[NxM\]"),
        "sizes": (lambda op: op.forward([x, i[:1].copy(), s]), "input 1: got .*expected .* with {'N': 2"),
        "strides": (lambda op: op.forward([np.zeros((3, 2)).T, i, s]), "input 0: got strides .*; expected a dense"),
        "misaligned": (lambda op: op.forward([odd, i, s]), "dense array"),
        "list": (lambda op: op.forward([[[1.0]], i, s]), "input 0: got a builtins.list; expected a NumPy array"),
        "None": (lambda op: op.forward([x, None, s]), "input 1: got a builtins.NoneType"),
        "gradient's shape": (lambda op: back(op, grads=(y, y[:1])), r"output gradient 1: got float64\[1\]"),
        "gradient's dtype": (lambda op: back(op, grads=(y.astype("f4"), y)), "output gradient 0: got float32"),
        "null gradient": (lambda op: back(op, grads=(None, y)), "output gradient 0: got a builtins.NoneType"),
        "null output": (lambda op: back(op, outputs=(y, None)), "output 1: got a builtins.NoneType"),
        "too few outputs": (lambda op: back(op, outputs=(y,)), "got 1 outputs; expected 2"),
    }


@pytest.mark.parametrize("isolate", [False, True])
def test_wrong_calls_are_errors(isolate: bool) -> None:
    inputs = [d5.tensordesc(("N", "M"), "float64"), d5.tensordesc(["N"], "int64"), d5.tensordesc((), "float64")]
    outputs = [d5.tensordesc(["N"], "float64")] * 2
    op = d5.compile_custom_cppop_inline("weighted", WEIGHTED, inputs, outputs, isolate=isolate)
    for kind, (call, wanted) in wrong_calls().items():
        with pytest.raises(d5.errors.InputError) as caught:
            call(op)
        assert re.search(wanted, str(caught.value)), (kind, caught.value)


def test_null_pointers_of_the_c_interface_are_errors() -> None:
    """What a framework could pass; empty tensors may have none."""
    op = d5.compile_custom_cppop_inline("broken", COPY, VECTOR, VECTOR)
    for inputs, outputs, wanted in (
        ([None], [np.ones(1)], "null pointer for input 0"),
        ([np.ones(1)], [None], "output 0"),
    ):
        with pytest.raises(d5.errors.OperatorError, match=wanted):
            op._binding.call("forward", op._binding.instance(op.sizes([(1,)])), inputs, outputs)
    with pytest.raises(d5.errors.OperatorError, match="null instance"):
        op._binding.call("forward", 0, [np.ones(1)], [np.ones(1)])


ARGUMENTS = {
    "name": (dict(name="a-b"), "got operator name 'a-b'; expected an ASCII identifier"),
    "gradient": (dict(gradient="magic"), "got gradient 'magic'; expected 'backward', 'enzyme' or None"),
    "no inputs": (dict(input_descriptors=[]), "got 0 inputs and 1 outputs; expected some"),
    "dtype": (dict(input_descriptors=[d5.tensordesc(["N"], "complex64")]), "input 0: got dtype complex64"),
    "no descriptor": (dict(output_descriptors=[(1,)]), r"output 0: got \(1,\); expected a TensorDescriptor"),
    "unknown size": (dict(output_descriptors=[d5.tensordesc(["K"])]), "got size 'K' of output 0"),
    "inactive": (dict(inactive=[1]), r"got inactive \[1\]; expected indices of its inputs"),
    "definition": (dict(additional_definitions={"A B": 1}), "got definition 'A B': '1'"),
    "other file": (dict(other_files=["absent.cpp"]), "got file 'absent.cpp', which does not exist"),
}


@pytest.mark.parametrize("kind", ARGUMENTS)
def test_wrong_arguments_are_errors(kind: str) -> None:
    changed, wanted = ARGUMENTS[kind]
    given = {"name": "broken", "code": COPY, "input_descriptors": VECTOR, "output_descriptors": VECTOR}
    with pytest.raises(d5.errors.InputError, match=wanted):
        d5.compile_custom_cppop_inline(**(given | changed))
