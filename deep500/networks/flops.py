"""Floating point operations per operator, counted from shapes. A multiply-add is **two** operations.

Counted is the arithmetic of the textbook algorithm: data movement is 0, a transcendental function counts as one.
Weights of a convolution that meet padding are counted too, as is usual. What is not in the table is unknown (None),
never 0.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from math import prod
from typing import TYPE_CHECKING, TypeAlias

from deep500.networks.node import Node

if TYPE_CHECKING:
    from deep500.networks.graph import AnyGraph, Graph

Sizes: TypeAlias = tuple[int, ...]
Formula: TypeAlias = Callable[[Node, list[Sizes], list[Sizes]], int]


def _conv(node: Node, inputs: list[Sizes], outputs: list[Sizes]) -> int:
    """2 * (output elements) * (input channels of the group) * (kernel size), and the bias."""
    return prod(outputs[0]) * (2 * prod(inputs[1][1:]) + _has(inputs, 2))


def _conv_transpose(node: Node, inputs: list[Sizes], outputs: list[Sizes]) -> int:
    """Every input element meets (output channels of the group) * (kernel size) weights."""
    return 2 * prod(inputs[0]) * prod(inputs[1][1:]) + _has(inputs, 2) * prod(outputs[0])


def _gemm(node: Node, inputs: list[Sizes], outputs: list[Sizes]) -> int:
    inner = inputs[0][0 if node.attribute("transA", 0) else 1]
    return prod(outputs[0]) * (2 * inner + _has(inputs, 2))


def _matmul(node: Node, inputs: list[Sizes], outputs: list[Sizes]) -> int:
    return 2 * prod(outputs[0]) * inputs[0][-1]


def _pool(node: Node, inputs: list[Sizes], outputs: list[Sizes]) -> int:
    return prod(outputs[0]) * prod(node.attribute("kernel_shape"))


def _recurrent(node: Node, inputs: list[Sizes], outputs: list[Sizes]) -> int:
    """Both matrix products of every step and gate; the element-wise part is left out (below 1 %)."""
    steps, batch = inputs[0][:2]
    return 2 * steps * batch * (prod(inputs[1]) + prod(inputs[2]))


def _attention(node: Node, inputs: list[Sizes], outputs: list[Sizes]) -> int:
    """Two products per pair of query and key, and scale (1), mask (1 if there is one) and softmax (5) of the scores."""
    (batch, *_, queries, width), (*_, keys, value_width) = inputs[0], inputs[2]
    if len(inputs[0]) == 3:
        heads, kv_heads = node.attribute("q_num_heads"), node.attribute("kv_num_heads")
        width, value_width = width // heads, value_width // kv_heads
    else:
        heads = inputs[0][1]
    if _has(inputs, 4):
        keys += inputs[4][2]  # those of earlier calls
    return batch * heads * queries * keys * (2 * (width + value_width) + 6 + _has(inputs, 3))


def _has(inputs: list[Sizes], index: int) -> int:
    return int(len(inputs) > index and inputs[index] != _ABSENT)


def _per_output(count: int) -> Formula:
    return lambda node, inputs, outputs: count * prod(outputs[0])


def _per_input(count: int) -> Formula:
    return lambda node, inputs, outputs: count * prod(inputs[0])


def _variadic(node: Node, inputs: list[Sizes], outputs: list[Sizes]) -> int:
    return (len(inputs) - 1) * prod(outputs[0])


_ABSENT: Sizes = (-1,)
_MOVE = _per_output(0)
# fmt: off
_MOVES = (
    "Cast", "Concat", "Constant", "ConstantOfShape", "DepthToSpace", "Expand", "Flatten", "Gather", "GatherElements",
    "GatherND", "Identity", "OneHot", "Pad", "Range", "Reshape", "ScatterElements", "ScatterND", "Shape", "Size",
    "Slice", "SpaceToDepth", "Split", "Squeeze", "Tile", "Transpose", "Unsqueeze", "Where",
)
_ONE_PER_OUTPUT = (
    "Abs", "Add", "And", "Ceil", "Clip", "Cos", "Div", "Equal", "Erf", "Exp", "Floor", "Greater", "GreaterOrEqual",
    "LeakyRelu", "Less", "LessOrEqual", "Log", "Mod", "Mul", "Neg", "Not", "Or", "PRelu", "Pow", "Reciprocal", "Relu",
    "Round", "Sigmoid", "Sign", "Sin", "Sqrt", "Sub", "Tanh", "Xor",
)
# fmt: on
_ONE_PER_INPUT = (
    "ArgMax",
    "ArgMin",
    "CumSum",
    "GlobalAveragePool",
    "GlobalMaxPool",
    "ReduceMax",
    "ReduceMean",
    "ReduceMin",
    "ReduceProd",
    "ReduceSum",
)

# fmt: off
FORMULAS: dict[str, Formula] = {
    **dict.fromkeys(_MOVES, _MOVE),
    **dict.fromkeys(_ONE_PER_OUTPUT, _per_output(1)),
    **dict.fromkeys(_ONE_PER_INPUT, _per_input(1)),
    **dict.fromkeys(("Max", "Mean", "Min", "Sum"), _variadic),
    **dict.fromkeys(("AveragePool", "LpPool", "MaxPool"), _pool),
    **dict.fromkeys(("GRU", "LSTM", "RNN"), _recurrent),
    "Attention": _attention,
    "Conv": _conv,
    "ConvTranspose": _conv_transpose,
    "Gemm": _gemm,
    "MatMul": _matmul,
    "BatchNormalization": _per_output(4),  # subtract, divide, scale, shift
    "GroupNormalization": _per_output(7),  # and mean and variance before: 3 per element
    "InstanceNormalization": _per_output(7),
    "LayerNormalization": _per_output(7),
    "RMSNormalization": _per_output(4),
    "Dropout": _per_output(2),
    "Elu": _per_output(2),
    "Gelu": _per_output(4),  # x / 2 * (1 + erf(x / sqrt(2)))
    "HardSigmoid": _per_output(2),
    "HardSwish": _per_output(3),
    "Softplus": _per_output(3),
    "Swish": _per_output(2),
    "LogSoftmax": _per_output(5),  # maximum, subtract, exponential, sum, subtract
    "Softmax": _per_output(5),
    "NegativeLogLikelihoodLoss": lambda node, inputs, outputs: prod(inputs[1]),
    "ReduceL2": _per_input(2),
    "ReduceSumSquare": _per_input(2),
    "SoftmaxCrossEntropyLoss": _per_input(5),
}
# fmt: on
"""Formulas by operator of ONNX's own domain: (node, input shapes, output shapes) -> operations."""


@dataclass(frozen=True)
class FlopCount:
    """Operations of a network.

    Attributes:
        known: operations of the nodes that could be counted.
        operators: the same by operator, largest first; what only moves data is left out.
        unknown: nodes that could not be counted, as ``name (operator)``: they have no formula, or a shape that is only
            known at run time.
    """

    known: int
    operators: dict[str, int]
    unknown: tuple[str, ...] = ()

    @property
    def total(self) -> int | None:
        """All operations; None, not a smaller number, if a node is unknown."""
        return None if self.unknown else self.known


def flop_count(network: Graph, batch: int = 1, loss: str | None = None) -> FlopCount:
    """Operations of one forward run, or of one training step without the optimizer's update.

    A training step is counted on the gradient that ``with_gradient`` emits, node by node. For strided
    convolutions that one computes up to one row more than needed and cuts it off (below 1 % in a ResNet).

    Args:
        network: is not changed.
        batch: takes the place of every symbolic size.
        loss: the scalar whose gradient is taken; None counts forward only.

    Raises:
        NetworkError: there is no such value, or an operator on the way to it has no gradient rule.

    Example:
        >>> from deep500.networks import add_loss, create
        >>> net = add_loss(create("mlp"))
        >>> forward, step = flop_count(net), flop_count(net, loss="loss")
        >>> list(forward.operators)[0], 2 < step.total / forward.total < 3
        ('Gemm', True)
    """
    counted = network
    if loss is not None:
        from deep500.networks.gradients.autodiff import with_gradient  # many rules, for who counts a training step

        counted = with_gradient(network, loss)
    counts = count_flops(counted, batch)
    operators: dict[str, int] = {}
    for node in counted.nodes:
        count = counts[node.name]
        if count:
            operators[node.op_type] = operators.get(node.op_type, 0) + count
    unknown = tuple(f"{node.name} ({node.op_type})" for node in counted.nodes if counts[node.name] is None)
    ordered = dict(sorted(operators.items(), key=lambda pair: -pair[1]))
    return FlopCount(sum(operators.values()), ordered, unknown)


def count_flops(network: Graph, batch: int = 1) -> dict[str, int | None]:
    """Operations of one forward run, by node name; None where the operator or a shape is unknown.

    Args:
        network: is not changed.
        batch: takes the place of every symbolic size.

    Example:
        >>> from deep500.networks.graph import Graph
        >>> net = Graph(); net.add_input("x", ("N", 3)); net.add_node("Relu", ["x"], ["y"], name="relu")
        >>> count_flops(net, batch=8)
        {'relu': 24}
    """
    descriptors = _concrete(network, batch).descriptors()

    def sizes(name: str) -> Sizes | None:
        shape = descriptors[name].shape
        if shape is None or None in shape:
            return None
        return tuple(batch if isinstance(size, str) else size for size in shape if size is not None)

    return {node.name: operations_of(node, sizes) for node in network.nodes}


def operations_of(node: Node, sizes: Callable[[str], Sizes | None]) -> int | None:
    """Operations of a node; None where its operator, or a shape that ``sizes`` gives, is unknown."""
    formula = FORMULAS.get(node.op_type) if not node.domain else None
    if formula is _MOVE:
        return 0
    inputs, outputs = ([sizes(n) if n else _ABSENT for n in names] for names in (node.inputs, node.outputs))
    known_in, known_out = [s for s in inputs if s is not None], [s for s in outputs if s is not None]
    complete = len(known_in) == len(inputs) and len(known_out) == len(outputs)
    return formula(node, known_in, known_out) if formula and complete else None


def _concrete(network: AnyGraph, batch: int) -> AnyGraph:
    """A copy in which every symbolic size of an input is ``batch``, so that more shapes can be inferred."""
    copy = network.copy(arrays=False)
    for name, descriptor in network.inputs.items():
        if descriptor.shape is not None and not descriptor.is_static:
            shape = tuple(batch if isinstance(size, str) else size for size in descriptor.shape)
            copy.set_input(name, shape)
    return copy
