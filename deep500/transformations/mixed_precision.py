"""Mixed precision as a transformation of networks: Casts around the operators that run in 16 bits, by one table.

The table is the policy of PyTorch's autocast: products and convolutions run low, what sums, exponentiates or
normalises runs in float32, and what stands between follows its inputs, the widest of which decides. Every backend
executes the result with its own kernels, and a checkpoint, an optimizer or a user sees float32 only: parameters stay
float32 (master weights: the low copies are Casts, through which gradients come back in float32), so do inputs and
outputs. Micikevicius et al. 2018, arXiv 1710.03740; PyTorch's "Autocast Op Reference".

Where this differs from autocast: arrays of the network (a bias, a constant) take the type of the data they meet, where
autocast lets a float32 tensor widen the result; a constant that 16 bits cannot hold (a mask of -3e38, an epsilon of
1e-12 in float16) widens it here too; means are taken in float32, whatever a framework's kernel accumulates in. Autocast
on the CPU leaves low what the one on GPUs and this table widen: GELU, softmax, attention, exp, log, square roots.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from deep500.errors import InputError, nearest
from deep500.networks.losses import SCALE, SCALED
from deep500.networks.network import Network
from deep500.networks.node import Node, find_schema
from deep500.tensors import dtype_to_onnx, numpy_dtype

PRECISIONS = {"bf16": "bfloat16", "f16": "float16"}
"""Dtypes by the words that users have for them."""

# fmt: off
LOW = frozenset({"Attention", "Conv", "ConvTranspose", "Einsum", "GRU", "Gemm", "LSTM", "MatMul", "RNN"})
"""Operators that run in 16 bits, whatever the type of their inputs."""

FLOAT32 = frozenset({
    "Acos", "Acosh", "Asin", "Asinh", "Atanh", "BatchNormalization", "Cosh", "CumSum", "Det", "Erf", "Exp",
    "GroupNormalization", "InstanceNormalization", "LRN", "LayerNormalization", "Log", "LogSoftmax", "LpNormalization",
    "MeanVarianceNormalization", "NegativeLogLikelihoodLoss", "Pow", "RMSNormalization", "Reciprocal", "ReduceL1",
    "ReduceL2", "ReduceLogSum", "ReduceLogSumExp", "ReduceMean", "ReduceProd", "ReduceSum", "ReduceSumSquare", "Sinh",
    "Softmax", "SoftmaxCrossEntropyLoss", "Softplus", "Sqrt", "Tan",
})
"""Operators that run in float32, whatever the type of their inputs."""
# fmt: on


def mixed_precision(network: Network, precision: str, loss: str = "loss") -> Network:
    """A copy of a network in which most of the work is done in 16 bits.

    Values keep their names and types; their low copies are named ``"<value>.bf16"``. In float16 a network with a loss
    gets the input :data:`SCALE` and the value :data:`SCALED`, for :mod:`deep500.training.loss_scaling`.

    Args:
        network: in float32; stays as it is.
        precision: ``"bf16"`` or ``"f16"``.
        loss: the scalar to scale, if there is such a value.

    Raises:
        InputError: another precision, or a network in which nothing can run low, such as one in float64.

    Example:
        >>> from deep500.networks.zoo import create
        >>> low = mixed_precision(create("mlp", shape=(4,), hidden=(3,), classes=2), "bf16")
        >>> [str(node) for node in low.nodes if node.op_type != "Cast"][-1]
        'output.bf16 = Gemm(relu1.bf16, fc2.weight.bf16, fc2.bias.bf16)  # fc2'
    """
    if precision not in PRECISIONS:
        raise InputError(
            f"got precision={precision!r}; expected one of {tuple(PRECISIONS)}: {nearest(str(precision), PRECISIONS)}"
        )
    work = _Work(network, precision)
    for node in network.nodes:
        work.add(node)
    if not work.lowered:
        raise InputError(
            f"got network {network.name!r} for precision={precision!r}, in which no operator can run in 16 bits; "
            f"expected some of {sorted(LOW)} in float32: leave precision out"
        )
    for name in network.outputs:
        work.network.add_output(work.full(name))
    if precision == "f16" and network.has_value(loss):
        work.network.add_input(SCALE, (), "float32")
        work.network.add_node("Mul", [work.full(loss), SCALE], [SCALED])
    work.network.declare(network.declared)  # values keep their names, so what files said of them holds
    return work.network


class _Work:
    """The network under construction, and which values it has in which type."""

    def __init__(self, network: Network, precision: str) -> None:
        self.ending, self.dtype = precision, PRECISIONS[precision]
        self.described, self.parameters = network.descriptors(), network.parameters
        self.network = Network(network.name)
        for name, described in network.inputs.items():
            self.network.add_input(name, described.shape, described.dtype or "float32")
        self.network.put_parameters(
            {n: p if p.undrawn else replace(p, value=p.value.copy()) for n, p in self.parameters.items()}
        )
        self.names: dict[str, str] = {}  # of low copies, by the value's own name
        self.born_low: set[str] = set()  # values that a node writes in 16 bits
        self.present = {*network.inputs, *self.parameters}  # values that are there under their own name
        self.lowered = 0
        self.taken = set(network.values())

    def add(self, node: Node) -> None:
        """Add a node in the type that the table says, and the Casts that it needs."""
        kinds = _type_variables(node)
        variable = self._low_variable(node, kinds)
        inputs = [
            name if not name else self.low(name) if variable and self._turns(name, kind, variable) else self.full(name)
            for name, kind in zip(node.inputs, kinds[0], strict=True)
        ]
        for name in node.captured:
            self.full(name)
        outputs = []
        for name, kind in zip(node.outputs, kinds[1], strict=True):
            turns = bool(name) and bool(variable) and self._turns(name, kind, variable)
            outputs.append(self._name(name) if turns else name)
            (self.born_low if turns else self.present).add(name)
            if turns:
                self.names[name] = outputs[-1]
        self.lowered += variable is not None and node.op_type in LOW
        self.network.add_node(node.op_type, inputs, outputs, node.name, node.domain, **node.attributes)

    def _turns(self, name: str, kind: str, variable: str | None) -> bool:
        return kind == variable and self._type(name) == "float32"

    def _type(self, name: str) -> str | None:
        described = self.described.get(name)
        return None if described is None else described.dtype

    def _low_variable(self, node: Node, kinds: tuple[Sequence[str], Sequence[str]]) -> str | None:
        """The type variable of a node's schema that becomes 16 bits wide; None if it runs as it is."""
        schema = find_schema(node.op_type, node.domain)
        if schema is None or node.graphs or (not node.domain and node.op_type in FLOAT32):
            return None
        pairs = [*zip(node.outputs, kinds[1], strict=True), *zip(node.inputs, kinds[0], strict=True)]
        variable = next((kind for name, kind in pairs if name and self._type(name) == "float32"), None)
        allowed = {c.type_param_str: c.allowed_type_strs for c in schema.type_constraints}
        if variable is None or f"tensor({self.dtype})" not in allowed.get(variable, ()):
            return None
        read = [name for name, kind in zip(node.inputs, kinds[0], strict=True) if name and kind == variable]
        if not read or any(self._type(name) != "float32" for name in read) or not all(map(self._fits, read)):
            return None
        if node.op_type in LOW and not node.domain:
            return variable
        data = [name for name in read if name not in self.parameters]
        return variable if data and all(name in self.born_low for name in data) else None

    def _fits(self, name: str) -> bool:
        """Return whether 16 bits can hold a constant: nothing that is finite or not 0 becomes infinite or 0."""
        parameter = self.parameters.get(name)
        if parameter is None or parameter.trainable:
            return True
        with np.errstate(over="ignore", under="ignore"):
            low = parameter.value.astype(numpy_dtype(self.dtype)).astype(np.float32)
        return bool(
            np.all(np.isfinite(low) == np.isfinite(parameter.value)) and np.all((low == 0) == (parameter.value == 0))
        )

    def low(self, name: str) -> str:
        """The value in 16 bits, cast once."""
        if name not in self.names:
            low = self.names[name] = self._name(name)
            parameter = self.parameters.get(name)
            if parameter is not None and not parameter.trainable:
                self.network.add_parameter(low, parameter.value.astype(numpy_dtype(self.dtype)), trainable=False)
            else:
                self.network.add_node("Cast", [name], [low], to=dtype_to_onnx(self.dtype))
        return self.names[name]

    def full(self, name: str) -> str:
        """The value in its own type, under its own name."""
        if name and name not in self.present:
            self.network.add_node("Cast", [self.names[name]], [name], to=dtype_to_onnx("float32"))
            self.present.add(name)
        return name

    def _name(self, name: str) -> str:
        low = f"{name}.{self.ending}"
        while low in self.taken:
            low += "_"
        self.taken.add(low)
        return low


def _type_variables(node: Node) -> tuple[list[str], list[str]]:
    """Names that a node's schema has for the types of its inputs and of its outputs; ``""`` without a schema."""
    schema = find_schema(node.op_type, node.domain)
    if schema is None:
        return [""] * len(node.inputs), [""] * len(node.outputs)

    def kinds(formals: Any, count: int) -> list[str]:
        return [formals[min(i, len(formals) - 1)].type_str for i in range(count)]

    return kinds(schema.inputs, len(node.inputs)), kinds(schema.outputs, len(node.outputs))
