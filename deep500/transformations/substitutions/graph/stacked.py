"""Products of stacked matrices, written for whole tensors again where no bias is in them.

In the rule language a product has matrices, so one of a tensor of more axes stands between two reshapes. A product with
a bias keeps them, as `Gemm` knows nothing else. Without one they are two operators more than `MatMul` needs.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

import numpy as np

from deep500.networks.graph import Graph
from deep500.networks.network import Network
from deep500.networks.node import Node
from deep500.transformations.substitutions.operators.elementwise import ACTIVATIONS

Shape = tuple[int | str | None, ...]
Shapes = Mapping[str, Shape | None]


def unstacked(network: Network) -> Network:
    """The network without reshapes to matrices between which only products and activations stand.

    Example:
        >>> network = Network("n"); network.add_input("x", (2, 3, 4))
        >>> network.add_parameter("w", np.ones((4, 5), "float32"))
        >>> network.add_parameter("flat", np.array([6, 4]), trainable=False)
        >>> network.add_parameter("stacked", np.array([2, 3, 5]), trainable=False)
        >>> for op_type, inputs, output in (
        ...     ("Reshape", ["x", "flat"], "y"), ("MatMul", ["y", "w"], "z"), ("Reshape", ["z", "stacked"], "b")
        ... ):
        ...     _ = network.add_node(op_type, inputs, [output])
        >>> _ = network.add_node("Softmax", ["b"], ["p"]); network.add_output("p")
        >>> [node.op_type for node in unstacked(network).nodes]
        ['MatMul', 'Softmax']
    """
    described: Shapes = {name: known.shape for name, known in network.descriptors().items()}
    change = Change()
    for node in network.nodes:
        ends = _ends(network, node.outputs[0]) if _to_matrix(node, described) else None
        whole = _whole(node, ends, described) if ends else None
        if ends is None or whole is None:
            continue
        alike = {end.inputs[0]: end for end in reversed(ends) if _restores(end, whole, described)}
        result = node.outputs[0]
        alike = {
            value: end for value, end in alike.items() if value != result and end.outputs[0] not in network.outputs
        }
        if described[node.inputs[0]] == whole:
            change.gone.add(node.name)
            change.names[node.outputs[0]] = node.inputs[0]
        elif alike:
            change.targets[node.name] = [int(str(size)) for size in whole]
        change.gone |= {end.name for end in alike.values()}
        change.names |= {value: end.outputs[0] for value, end in alike.items()}  # which it was called before
    return change.applied(network) if change.gone else network


def _to_matrix(node: Node, described: Shapes) -> bool:
    """Return whether a node makes a matrix of a tensor."""
    after = described.get(node.outputs[0])
    return node.op_type == "Reshape" and not node.domain and after is not None and len(after) == 2


def _whole(node: Node, ends: list[Node], described: Shapes) -> Shape | None:
    """The shape that a matrix shall have instead: its tensor's, or like those of all tensors made of it; None: none."""
    before, after = described.get(node.inputs[0]), described[node.outputs[0]]
    if after is None or not isinstance(after[-1], int):
        return None
    if before is not None and len(before) > 2 and before[-1] == after[-1]:
        return before
    shapes = {(described[end.outputs[0]] or ())[:-1] for end in ends}
    first = next(iter(shapes))
    fixed = len(shapes) == 1 and len(first) > 1 and all(isinstance(size, int) for size in first)
    return (*first, after[-1]) if fixed and math.prod(first) == after[0] else None  # type: ignore[arg-type]


def _restores(end: Node, whole: Shape, described: Shapes) -> bool:
    """Return whether a reshape gives a matrix the axes of a tensor back, all but the last."""
    last = described[end.inputs[0]]
    return last is not None and described[end.outputs[0]] == (*whole[:-1], last[-1])


def _ends(network: Graph, value: str) -> list[Node] | None:
    """The reshapes in which all that is made of a matrix ends; None where it reaches what needs a matrix."""
    ends, todo = list[Node](), [value]
    while todo:
        name = todo.pop()
        readers = network.consumers(name)
        if name in network.outputs or not readers:
            return None
        for node in readers:
            if node.op_type == "Reshape" and node.inputs[0] == name and _fixed(network, node.inputs[1]):
                ends.append(node)
            elif _keeps_rows(network, node, name):
                todo.append(node.outputs[0])
            else:
                return None
    return ends


def _fixed(network: Graph, target: str) -> bool:
    """Return whether a reshape's target says all sizes itself: a 0 would take one from what it reads."""
    known = network.parameters.get(target)
    return known is not None and bool(np.all(np.asarray(known.value) != 0))


def _keeps_rows(network: Graph, node: Node, name: str) -> bool:
    """Return whether a node treats every row of a matrix by itself, as it would those of a larger tensor."""
    if node.domain:
        return False
    if node.op_type == "MatMul":
        weight = network.parameters.get(node.inputs[1])
        return node.inputs[0] == name and weight is not None and np.ndim(weight.value) == 2
    return node.op_type in ACTIVATIONS.values() and len(node.inputs) == 1


@dataclass
class Change:
    """A change of a network.

    Attributes:
        gone: names of nodes that go.
        names: values that have other names, or that others take the place of.
        targets: reshapes that make another shape.
    """

    gone: set[str] = field(default_factory=set)
    names: dict[str, str] = field(default_factory=dict)
    targets: dict[str, list[int]] = field(default_factory=dict)

    def applied(self, network: Network) -> Network:
        """A changed copy, without the parameters that nothing reads any more."""
        nodes, arrays = list[Node](), dict[str, np.ndarray]()
        for node in network.nodes:
            inputs, outputs = (tuple(self.names.get(n, n) for n in side) for side in (node.inputs, node.outputs))
            if node.name in self.targets:
                target = network.fresh_name(f"{node.outputs[0]}_shape")
                arrays[target] = np.array(self.targets[node.name], np.int64)
                inputs = (inputs[0], target)
            if node.name not in self.gone:
                nodes.append(replace(node, inputs=inputs, outputs=outputs))
        return with_nodes(network, nodes, arrays)


def with_nodes(network: Network, nodes: Iterable[Node], arrays: Mapping[str, np.ndarray] | None = None) -> Network:
    """A copy with other nodes and further parameters, without those that nothing reads any more.

    Example:
        >>> from deep500.networks import create
        >>> network = create("mlp")
        >>> with_nodes(network, network.nodes) == network
        True
    """
    changed = network.copy(arrays=False)
    for name, array in (arrays or {}).items():
        changed.add_parameter(name, array, trainable=False)
    changed.set_nodes(nodes)
    before, after = ({name for node in graph.nodes for name in node.reads} for graph in (network, changed))
    for name in changed.parameters.keys() & before - after - {*changed.outputs}:
        changed.remove_parameter(name)
    return changed
