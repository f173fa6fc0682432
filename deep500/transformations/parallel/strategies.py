"""Ways in which one node runs on several ranks: factors of its operator, and the strategies that follow from them.

A *factor* is an independent loop of an operator (so called in Shardy; in einsum it is a letter): the rows ``m``,
columns ``n`` and summed ``k`` of a product. A rule (:mod:`deep500.transformations.parallel.rules`) names the factors of
each axis of inputs and outputs. A factor that the ranks share out splits the axes that it names; in an output without
it they have terms of a sum. An axis without a factor is whole on every rank.

A strategy is data: shardings of inputs and outputs, and what is other in the rank's node (:func:`local_node`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from deep500.networks.node import Node
from deep500.transformations.parallel.shardings import LOCAL, PARTIAL, R, Sharding, local_shape, pieces, split

Shape = tuple[int, ...]
Labels = Sequence[str | None]


class SizedNode:
    """A node with the shapes of what it reads and writes, all known, and the values of its constants.

    Args:
        node: of a network whose sizes are numbers.
        shapes: of its values.
        dtypes: of its values.
        constants: values of fixed parameters.
    """

    def __init__(
        self, node: Node, shapes: Mapping[str, Shape], dtypes: Mapping[str, str], constants: Mapping[str, np.ndarray]
    ) -> None:
        self.node = node
        self.inputs = [shapes[name] if name else () for name in node.inputs]
        self.outputs = [shapes[name] if name else () for name in node.outputs]
        self.dtypes = [dtypes.get(name, "") for name in (*node.inputs, *node.outputs)]
        self._constants = constants

    def attribute(self, name: str, default: Any = None) -> Any:
        """The attribute, else ONNX's default, else ``default``."""
        return self.node.attribute(name, default)

    def present(self, index: int) -> bool:
        """Whether the node reads an input of this number."""
        return index < len(self.node.inputs) and bool(self.node.inputs[index])

    def constant(self, index: int) -> np.ndarray | None:
        """The value of an input that is a fixed parameter; None for others."""
        return self._constants.get(self.node.inputs[index]) if self.present(index) else None

    def axes(self, index: int, rank: int) -> list[int] | None:
        """Axes that a constant input names, counted from the front; all if it is absent, None if it is no constant."""
        if not self.present(index):
            return list(range(rank))
        value = self.constant(index)
        return None if value is None else [int(axis) % max(rank, 1) for axis in value.reshape(-1)]

    @property
    def floating(self) -> bool:
        """Whether all that it writes are floating numbers."""
        return all("float" in dtype for dtype in self.dtypes[len(self.node.inputs) :] if dtype)


@dataclass(frozen=True)
class Factors:
    """Factors of a node, and what else a rule knows of it.

    Attributes:
        inputs: for each input the factor of each axis, None where it must be whole.
        outputs: the same of outputs.
        reduced: factors of inputs that outputs lack, with the reduction that combines the ranks' terms.
        once: inputs that enter a sum once, whatever is summed: the bias of a product.
        linear: sets of inputs in which the outputs are linear together: if these are partial and the others whole,
            so are the outputs.
        sizes: for inputs that are the shape of an output, the number of that output.
        means: factors that are averaged over: terms are weighted by the ranks' shares.
        extents: further numbers that a factor must divide into equal pieces, such as groups.
        divided: attributes that are divided by the number of ranks, by factor.
        local: outputs, by number, whose values are positions in the rank's own piece; their first factor's pieces must
            be equal.
        positions: inputs of that kind, with the factor that may be split so.
        hands_on: whether positions stay positions: a reshape of axes that are split at the outermost.
    """

    inputs: Sequence[Labels]
    outputs: Sequence[Labels]
    reduced: Mapping[str, str] = field(default_factory=dict)
    once: frozenset[int] = frozenset()
    linear: Sequence[frozenset[int]] = ()
    sizes: Mapping[int, int] = field(default_factory=dict)
    means: frozenset[str] = frozenset()
    extents: Mapping[str, int] = field(default_factory=dict)
    divided: Mapping[str, str] = field(default_factory=dict)
    local: frozenset[int] = frozenset()
    positions: Mapping[int, str] = field(default_factory=dict)
    hands_on: bool = False


@dataclass(frozen=True)
class Strategy:
    """One way to run a node on all ranks.

    Attributes:
        name: ``"replicate"``, a factor, or ``"partial"`` with the numbers of the partial inputs.
        inputs, outputs: shardings.
        sizes: see :class:`Factors`.
        share: size of the axis whose pieces weigh this rank's terms; 0 for none.
        divided: attribute that is divided by the number of ranks; ``""`` for none.
        work: whether each rank does only its part of the work.
    """

    name: str
    inputs: tuple[Sharding, ...]
    outputs: tuple[Sharding, ...]
    sizes: tuple[tuple[int, int], ...] = ()
    share: int = 0
    divided: str = ""
    work: bool = False

    def reads(self, node: Node) -> list[tuple[str, Sharding]]:
        """All that a node reads, with its sharding: inputs, then what sub-graphs capture, whole on every rank.

        Example:
            >>> Strategy("m", (split(0), R), (split(0),)).reads(Node("MatMul", ("x", "w"), ("y",), "fc"))
            [('x', Sharding(kind='S', axis=0, reduction='')), ('w', Sharding(kind='R', axis=0, reduction=''))]
        """
        inputs = [(value, s) for value, s in zip(node.inputs, self.inputs, strict=True) if value]
        return inputs + [(value, R) for value in node.captured]


def strategies_of(view: SizedNode, factors: Factors | None, ranks: int) -> list[Strategy]:
    """All strategies of a node; the first replicates it, and is the only one without factors or with one rank.

    Example:
        >>> node = Node("MatMul", ("x", "w"), ("y",), "fc")
        >>> view = SizedNode(node, {"x": (4, 6), "w": (6, 8), "y": (4, 8)}, dict.fromkeys("xwy", "float32"), {})
        >>> product = Factors([["m", "k"], ["k", "n"]], [["m", "n"]], {"k": "sum"}, linear=[frozenset({0})])
        >>> for strategy in strategies_of(view, product, 2):
        ...     print(strategy.name, *strategy.inputs, "->", *strategy.outputs)
        replicate R R -> R
        m S0 R -> S0
        k S1 S0 -> P
        n R S1 -> S1
        partial0 P R -> P
    """
    node = view.node
    strategies = [Strategy("replicate", (R,) * len(node.inputs), (R,) * len(node.outputs))]
    if factors is None or ranks == 1:
        return strategies
    labels = dict.fromkeys(label for operand in (*factors.inputs, *factors.outputs) for label in operand if label)
    for label in labels:
        strategy = _by_factor(view, factors, label, ranks)
        if strategy is not None:
            strategies.append(strategy)
    first = next((s for s in strategies[1:] if factors.hands_on and s.inputs[0] == s.outputs[0] == split(0)), None)
    if first is not None and not any(size % ranks for size in (view.inputs[0][0], view.outputs[0][0])):
        positions = replace(first, name="positions", inputs=(LOCAL, *first.inputs[1:]), outputs=(LOCAL,))
        strategies.append(positions)
    for together in factors.linear if view.floating else ():
        inputs = tuple(PARTIAL if i in together else R for i in range(len(node.inputs)))
        name = "partial" + "".join(map(str, sorted(together)))
        strategies.append(Strategy(name, inputs, (PARTIAL,) * len(node.outputs), tuple(factors.sizes.items())))
    return strategies


def _axes_of(operands: Sequence[Labels], label: str) -> list[int | None]:
    """For each operand the axis that a factor names, None if it names none."""
    return [list(operand).index(label) if label in operand else None for operand in operands]


def _by_factor(view: SizedNode, factors: Factors, label: str, ranks: int) -> Strategy | None:
    """The strategy that shares out one factor; None if it cannot be shared out."""
    ins, outs = _axes_of(factors.inputs, label), _axes_of(factors.outputs, label)
    sizes = [shape[axis] for shape, axis in zip(view.inputs, ins, strict=True) if axis is not None]
    sizes += [shape[axis] for shape, axis in zip(view.outputs, outs, strict=True) if axis is not None]
    sizes += [factors.extents[label]] if label in factors.extents else []
    positions = any(name == label for name in factors.positions.values())
    equal = len(set(sizes)) > 1 or label in factors.divided or bool(factors.local) or positions
    if min(sizes) < ranks or (equal and any(size % ranks for size in sizes)):
        return None
    missing = [i for i, axis in enumerate(outs) if axis is None and view.node.outputs[i]]
    if missing and (label not in factors.reduced or len(missing) < len([n for n in view.node.outputs if n])):
        return None
    partial = Sharding("P", 0, factors.reduced[label]) if missing else R
    if missing and partial == PARTIAL and not view.floating:
        return None

    def of_input(index: int, axis: int | None) -> Sharding:
        if axis is None:
            return PARTIAL if missing and index in factors.once else R
        return LOCAL if factors.positions.get(index) == label else split(axis)

    return Strategy(
        label,
        tuple(of_input(i, axis) for i, axis in enumerate(ins)),
        tuple(partial if axis is None else LOCAL if i in factors.local else split(axis) for i, axis in enumerate(outs)),
        tuple(factors.sizes.items()),
        sizes[0] if label in factors.means else 0,
        factors.divided.get(label, ""),
        work=True,
    )


def local_node(
    view: SizedNode, strategy: Strategy, ranks: int, rank: int
) -> tuple[Node, dict[int, np.ndarray], float | None]:
    """A rank's node, by a strategy.

    Returns:
        the node; for inputs, by number, the constants that take their place; and the weight of its first output, None
        for none.
    """
    node = view.node
    attributes = dict(node.attributes)
    if strategy.divided:
        attributes[strategy.divided] = view.attribute(strategy.divided) // ranks
    constants = {}
    for index, output in strategy.sizes:
        here = np.array(local_shape(view.outputs[output], strategy.outputs[output], ranks, rank), np.int64)
        known = view.constant(index)
        if known is None or not np.array_equal(known, here):  # also 0 and -1 are written out
            constants[index] = here
    weight = pieces(strategy.share, ranks)[rank] / strategy.share if strategy.share else None
    return replace(node, attributes=attributes), constants, weight
