"""One operator with its inputs, as networks of a single node, and what a worker measures of it."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import onnx

from deep500.errors import InputError, nearest
from deep500.networks.execution.executor import GraphExecutor
from deep500.networks.network import Network
from deep500.networks.node import find_schema
from deep500.operators.base import Descriptors
from deep500.operators.base import describe as describe_array
from deep500.operators.registry import DOMAIN, find_operator, is_registered, load_plugins, operator_names
from deep500.registry import load_backend

FORWARD, BOTH = "forward pass", "forward and backward pass"
DTYPES = ("float16", "float32", "float64", "int8", "int32", "int64", "uint8", "bool")


@dataclass(frozen=True)
class OneOperator:
    """An operator with its inputs; JSON can hold it.

    Attributes:
        name: of ONNX, or of a custom operator.
        inputs: shapes such as ``8x3x32x32`` or ``8:int64``, or fixed values such as ``[4, 6]``.
        attributes: the operator's.
        seed: of the values.
        plugins: files or folders that register custom operators.
        positive: draw positive numbers only.
        outputs: shapes and dtypes of what it returns, once they are known.
    """

    name: str
    inputs: Sequence[str]
    attributes: Mapping[str, Any] = field(default_factory=dict)
    seed: int = 0
    plugins: Sequence[str] = ()
    positive: bool = False
    outputs: Sequence[tuple[Sequence[int], str]] = ()

    def arrays(self) -> dict[str, np.ndarray]:
        """Values of the inputs by name.

        Example:
            >>> {name: x.shape for name, x in OneOperator("MatMul", ["2x3", "3x4"]).arrays().items()}
            {'x0': (2, 3), 'x1': (3, 4)}
        """
        rng = np.random.default_rng(self.seed)
        return {f"x{number}": _array(word, rng, self.positive) for number, word in enumerate(self.inputs)}

    def network(self, trained: bool = False) -> Network:
        """Return the operator as a network; trained: with its loss, and floating inputs as parameters."""
        network, arrays = Network(self.name), self.arrays()
        for word, (name, array) in zip(self.inputs, arrays.items(), strict=True):
            if word.startswith("[") or (trained and array.dtype.kind == "f"):
                network.add_parameter(name, array, trainable=not word.startswith("["))
            else:
                network.add_input(name, array.shape, array.dtype.name)
        custom = find_schema(self.name, "") is None
        names = [f"y{number}" for number in range(self._count([describe_array(x) for x in arrays.values()]))]
        network.add_node(
            self.name, list(arrays), names, name=self.name, domain=DOMAIN if custom else "", **self.attributes
        )
        for name in names:
            network.add_output(name)
        terms = [n for n, (_, dtype) in zip(names, self.outputs, strict=False) if dtype.startswith("float")]
        if trained and terms:
            for name in terms:
                shape, dtype = self.outputs[names.index(name)]
                network.add_input(f"{name}.weight", shape, dtype)
                network.add_node("Mul", [name, f"{name}.weight"], [f"{name}.weighted"])
                network.add_node("ReduceSum", [f"{name}.weighted"], [f"{name}.sum"], keepdims=0)
            network.add_node("Sum", [f"{name}.sum" for name in terms], ["loss"])
            network.add_output("loss")
        return network

    def feed(self, network: Network) -> dict[str, np.ndarray]:
        """Values for the inputs of one of its networks; weights of outputs are 0.5 to 2 of either sign."""
        arrays, rng, values = self.arrays(), np.random.default_rng(self.seed + 1), {}
        for name, described in network.inputs.items():
            shape: Any = described.shape
            weights = rng.integers(8, 32, shape) / 16 * rng.choice([-1.0, 1.0], shape)
            values[name] = arrays[name] if name in arrays else np.asarray(weights).astype(described.dtype)
        return values

    def _count(self, inputs: Descriptors) -> int:
        schema = find_schema(self.name, "")
        if schema is not None:
            return max(schema.min_output, int(self.attributes.get("num_outputs", 1)))
        if not is_registered(self.name):
            known = {schema.name for schema in onnx.defs.get_all_schemas() if not schema.domain}
            raise InputError(
                f"got operator {self.name!r}; expected one of ONNX or a custom one: "
                f"{nearest(self.name, sorted({*known, *operator_names()}))}, or name its plugin with --custom-op PATH"
            )
        return len(find_operator(self.name, self.attributes, inputs).infer(inputs))


def _array(word: str, rng: np.random.Generator, positive: bool) -> np.ndarray:
    if word.startswith("["):
        try:
            value = np.array(json.loads(word))
        except ValueError:
            value = np.array(None)
        if value.dtype.kind in "ifb":
            return value.astype(np.float32) if value.dtype.kind == "f" else value
    shape, _, dtype = word.partition(":")
    if not re.fullmatch(r"[1-9]\d*(x[1-9]\d*)*", shape) or dtype not in ("", *DTYPES):
        raise InputError(
            f"got input {word!r}; expected sizes, and another dtype than float32 after a colon, or values: such as "
            "8x3x32x32, 8:int64 or '[4, 6]'"
        )
    sizes = [int(size) for size in shape.split("x")]
    if dtype and not dtype.startswith("float"):
        return rng.integers(0, 2, sizes).astype(dtype)
    values = rng.standard_normal(sizes)
    return (np.abs(values) + 0.5 if positive else values).astype(dtype or "float32")


class OperatorJob:
    """Forward, and forward with backward, of one operator on one framework: what a worker measures."""

    def __init__(self, framework: str, **operator: Any) -> None:
        self.operator = OneOperator(**operator)
        load_plugins(self.operator.plugins)
        self.build = load_backend(framework).from_model
        self.networks = {FORWARD: self.operator.network(), BOTH: self.operator.network(trained=True)}
        self.executors: dict[str, tuple[GraphExecutor, dict[str, Any]]] = {}
        self.facts = {"device": str(self._executor(FORWARD)[0].device)}

    def _executor(self, what: str) -> tuple[GraphExecutor, dict[str, Any]]:
        if what not in self.executors:
            executor: GraphExecutor = self.build(self.networks[what])
            values = self.operator.feed(self.networks[what])
            tensors = {name: executor.network.to_tensor(value) for name, value in values.items()}
            self.executors[what] = executor, tensors
        return self.executors[what]

    def repetition(self, passes: str) -> tuple[Callable[[], Any], Callable[[], Any]]:
        """One pass on tensors of the framework's own, and how to wait for it."""
        executor, tensors = self._executor(passes)
        call = executor.inference if passes == FORWARD else executor.inference_and_backprop
        return lambda: call(tensors), executor.synchronize
