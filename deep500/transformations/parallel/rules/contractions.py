"""Rules of products: rows and columns are split, and over what is summed over the ranks have terms."""

from __future__ import annotations

from deep500.transformations.parallel.rules.registry import letters, passing, sharding_rule
from deep500.transformations.parallel.strategies import Factors, SizedNode

_BOTH = (frozenset({0}), frozenset({1}))


@sharding_rule("MatMul")
def matmul(view: SizedNode) -> Factors | None:
    """Rows m, columns n, summed k, and the axes of the batch."""
    a, b = view.inputs
    if min(len(a), len(b)) < 2:
        return None
    shape = view.outputs[0]
    batch = [f"b{axis}" for axis in range(len(shape) - 2)]

    def of_batch(operand: tuple[int, ...]) -> list[str | None]:
        first = len(shape) - len(operand)
        return [batch[first + i] if n == shape[first + i] else None for i, n in enumerate(operand[:-2])]

    inputs = [[*of_batch(a), "m", "k"], [*of_batch(b), "k", "n"]]
    return Factors(inputs, [[*batch, "m", "n"]], {"k": "sum"}, linear=_BOTH)


@sharding_rule("Gemm")
def gemm(view: SizedNode) -> Factors:
    """Rows m, columns n, summed k; C enters the sum once."""
    a = ["k", "m"] if view.attribute("transA") else ["m", "k"]
    b = ["n", "k"] if view.attribute("transB") else ["k", "n"]
    inputs: list[list[str | None]] = [[*a], [*b]]
    if view.present(2):
        shape = view.inputs[2]
        aligned = ["m", "n"][2 - len(shape) :]
        ends = view.outputs[0][2 - len(shape) :]
        inputs.append([label if n == m else None for label, n, m in zip(aligned, shape, ends, strict=True)])
        linear: tuple[frozenset[int], ...] = (frozenset({0, 2}), frozenset({1, 2}))
    else:
        inputs += [[] for _ in view.inputs[2:]]
        linear = _BOTH
    return Factors(inputs, [["m", "n"]], {"k": "sum"}, once=frozenset({2}), linear=linear)


@sharding_rule("Einsum")
def einsum(view: SizedNode) -> Factors | None:
    """The letters of the equation."""
    equation = str(view.attribute("equation")).replace(" ", "")
    if "." in equation or "->" not in equation:
        return None
    before, after = equation.split("->")
    operands = [list(part) for part in before.split(",")]
    if any(len(set(operand)) < len(operand) for operand in operands):
        return None
    inputs: list[list[str | None]] = [[*operand] for operand in operands]
    reduced = {letter: "sum" for operand in operands for letter in operand if letter not in after}
    # a letter that only some operands have sums the others' whole, which is right: sums distribute over products
    return Factors(inputs, [list(after)], reduced, linear=[frozenset({i}) for i in range(len(operands))])


@sharding_rule("LSTM", "GRU", "RNN")
def recurrent(view: SizedNode) -> Factors:
    """The batch; time and hidden states are whole, as every step needs all of them."""
    layout = view.attribute("layout", 0)
    x = ["n", None, None] if layout else [None, "n", None]
    inputs: list[list[str | None]] = [[*x], [None] * 3, [None] * 3]
    for index, shape in enumerate(view.inputs[3:], 3):
        usual: list[str | None] = [None] * len(shape)
        if index == 4:
            usual = ["n"] if shape else []
        elif index in (5, 6) and shape:
            usual = [*x]
        inputs.append(usual)
    outputs: list[list[str | None]] = [["n", None, None, None] if layout else [None, None, "n", None]]
    outputs += [[*x] for _ in view.outputs[1:]]
    return Factors(inputs, outputs)


@sharding_rule("Softmax", "LogSoftmax", "Hardmax", "LpNormalization")
def normalised(view: SizedNode) -> Factors:
    """All axes but the one that is normalised."""
    return passing(view, [view.attribute("axis", -1)])


@sharding_rule("LayerNormalization", "RMSNormalization")
def layer_normalization(view: SizedNode) -> Factors:
    """The axes in front of those that are normalised."""
    rank = len(view.outputs[0])
    return passing(view, range(view.attribute("axis", -1) % rank, rank))


@sharding_rule("GroupNormalization", "InstanceNormalization")
def group_normalization(view: SizedNode) -> Factors:
    """Samples; with statistics of single channels, channels too."""
    rank = len(view.outputs[0])
    channels = "c" if view.node.op_type == "InstanceNormalization" else None
    labels = ["n", channels, *[None] * (rank - 2)]
    return Factors([labels, [channels], [channels]], [labels])


@sharding_rule("BatchNormalization")
def batch_normalization(view: SizedNode) -> Factors:
    """Channels with all five vectors; in evaluation mode all other axes as well."""
    training = bool(view.attribute("training_mode"))
    rank = len(view.outputs[0])
    labels: list[str | None] = ["n", "c", *letters(rank - 2)]
    if training:
        labels = [None, "c", *[None] * (rank - 2)]
    return Factors([labels, *[["c"]] * 4], [labels, *[["c"]] * (len(view.outputs) - 1)])


@sharding_rule("LRN")
def local_response(view: SizedNode) -> Factors:
    """All axes but the channels."""
    return passing(view, [1])
