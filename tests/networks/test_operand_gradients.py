"""Every floating operand of every operator as a trained parameter: five backends against differences of the reference.

Exporters make constants of bounds, scales, fill values and states; a backend that reads one of them as a number when it
compiles trains it not at all, without a word. Either the gradient is right, or an error names the node.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Iterator, Sequence
from types import ModuleType
from typing import Any

import numpy as np
import pytest
from onnx import defs

from deep500.errors import Deep500Error
from deep500.frameworks.reference import Executor
from deep500.networks import Network, gradient_name
from deep500.networks.emit import Emitter
from deep500.networks.gradients.rules import ZERO
from tests.differences import slopes
from tests.networks.evaluate import evaluate
from tests.networks.gradient_cases import Case
from tests.networks.operand_cases import BLOCKED, CHOSEN, ELSEWHERE, FLOATS, REFUSED, floating
from tests.tolerances import as_numpy

pytestmark = pytest.mark.slow

RIGHT = {"reference": 128, "pytorch": 137, "tensorflow": 139, "jax": 135, "onnxruntime": 107}
"""How many rows have a gradient at least; the others are errors."""
SINGLE = ("AffineGrid", "GridSample", "LinearAttention")
"""Operators that ONNX's evaluator or body computes in float32, so that differences need larger steps."""
ROWS = {case.name: case for case in CHOSEN}
_SHAPES: dict[str, tuple[tuple[int, ...], ...]] = {}


def network(cases: Sequence[Case], trained: bool = True) -> Network:
    """Operators side by side with all their floating operands trained (or inputs), and a loss that reads all."""
    net = Network("operands")
    emit, parts = Emitter(net), []
    for case in cases:
        names = ["" if value is None else f"{case.name}:{k}" for k, value in enumerate(case.inputs)]
        for k, value in enumerate(case.inputs):
            if value is not None and (trained or k not in floating(case)):
                net.add_parameter(names[k], value, trainable=k in floating(case))
            elif value is not None:
                net.add_input(names[k], value.shape, str(value.dtype))
        outputs = [f"{case.name}:y{k}" for k in range(case.outputs)]
        net.add_node(case.op_type, names, outputs, **case.attributes)
        for k in case.through:
            weights = np.random.default_rng(k).normal(size=shapes_of(case)[k])
            wide = emit("Cast", outputs[k], to=11)
            parts.append(emit("ReduceSum", emit("Mul", wide, emit.constant(weights)), keepdims=0))
    emit("Sum", *parts, output="loss")
    net.add_output("loss")
    return net


def shapes_of(case: Case) -> tuple[tuple[int, ...], ...]:
    """Of all outputs."""
    if case.name not in _SHAPES:
        net = Network("shapes")
        for k, value in enumerate(case.inputs):
            if value is not None:
                net.add_parameter(f"x{k}", value, trainable=False)
        outputs = [f"y{k}" for k in range(case.outputs)]
        names = ["" if value is None else f"x{k}" for k, value in enumerate(case.inputs)]
        net.add_node(case.op_type, names, outputs, **case.attributes)
        _SHAPES[case.name] = tuple(value.shape for value in evaluate(net, {}, outputs))
    return _SHAPES[case.name]


@functools.cache
def differences(row: str) -> dict[str, np.ndarray]:
    """Central differences of the loss with respect to every element, by the operand's name."""
    case = ROWS[row]
    executor = Executor(network([case], trained=False))
    feeds = {f"{case.name}:{k}": case.inputs[k] for k in floating(case)}
    step = 1e-3 if case.op_type in SINGLE else 1e-5

    def loss(name: str, value: np.ndarray) -> Any:
        return executor.inference({**feeds, name: value})["loss"]

    return {name: slopes(functools.partial(loss, name), value, step) for name, value in feeds.items()}


def gradients(
    backend: ModuleType, cases: Sequence[Case]
) -> Iterator[tuple[Case, dict[str, np.ndarray] | Deep500Error]]:
    """The gradients of each row's operands, or the error; rows run together until one of them is refused."""
    names = [f"{case.name}:{k}" for case in cases for k in floating(case)]
    try:
        executor = backend.from_model(network(cases), "cpu")
        executor.inference_and_backprop({})
        tensors = executor.network.fetch_tensors([gradient_name(name) for name in names])
    except Deep500Error as error:
        if len(cases) == 1:
            yield cases[0], error
            return
        half = len(cases) // 2
        yield from gradients(backend, cases[:half])
        yield from gradients(backend, cases[half:])
        return
    found = {name: as_numpy(executor.network.to_numpy(t)) for name, t in zip(names, tensors, strict=True)}
    for case in cases:
        yield case, {name: found[name] for name in names if name.rpartition(":")[0] == case.name}


@pytest.mark.parametrize("case", [case for case in CHOSEN if case.name in REFUSED], ids=lambda case: case.name)
def test_operands_without_a_gradient_are_refused(case: Case, backend: ModuleType) -> None:
    ((_, error),) = gradients(backend, [case])
    assert isinstance(error, Deep500Error) and re.search(REFUSED[case.name], str(error)), error


def test_gradient_of_every_operand_is_right_or_refused_by_name(backend: ModuleType) -> None:
    right, wrong = 0, []
    for case, found in gradients(backend, [case for case in CHOSEN if case.name not in REFUSED]):
        if isinstance(found, Deep500Error):
            wrong += [f"{case.name}: {found}"] if case.op_type not in str(found) else []
            continue
        right += 1
        tolerances = (1e-2, 1e-2) if case.op_type in SINGLE else (1e-5, 1e-6)
        for name, want in differences(case.name).items():
            if not (found[name].shape == want.shape and np.allclose(found[name], want, *tolerances)):
                wrong.append(f"{name}: got {found[name].ravel()[:4]}; expected {want.ravel()[:4]}")
    assert not wrong, "\n".join(wrong)
    assert right >= RIGHT[backend.__name__.rpartition(".")[2]]


def test_every_operand_that_may_be_floating_is_trained() -> None:
    trained = {(case.op_type, k) for case in CHOSEN for k in floating(case)}
    missing = [
        f"{schema.name} {k} ({operand.name})"
        for schema in defs.get_all_schemas()
        if not schema.domain and not schema.deprecated and schema.name not in {*ZERO, *ELSEWHERE}
        if any(FLOATS & set(output.types) for output in schema.outputs)
        for k, operand in enumerate(schema.inputs)
        if FLOATS & set(operand.types) and (schema.name, k) not in trained and (schema.name, k) not in BLOCKED
    ]
    assert not missing
