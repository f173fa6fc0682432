"""Parameters that several nodes read: tied by their author, or merged by an exporter because they were equal.

Exporters store equal arrays once (torch's newer one does). In an untrained model all scales are ones and all biases
zeros, so that its normalizations would train as if they were tied. Nothing in a file tells the two apart; but trained
arrays are equal only if they are tied, so only arrays that hold one number everywhere are suspected.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

import numpy as np

from deep500.errors import NetworkError, nearest
from deep500.networks.graph import AnyGraph, Graph


def merged_parameters(network: Graph) -> dict[str, list[str]]:
    """Trainable parameters of more than one element that hold one number and that several nodes read, with these nodes.

    Example:
        >>> import numpy as np
        >>> from deep500.networks import Network
        >>> net = Network()
        >>> net.add_input("x", ("N", 3))
        >>> net.add_parameter("ones", np.ones(3, "float32"))
        >>> net.add_node("Mul", ["x", "ones"], "y", "first")
        >>> net.add_node("Mul", ["y", "ones"], "z", "second")
        >>> merged_parameters(net)
        {'ones': ['first', 'second']}
    """
    shared, numbers = shared_parameters(network), one_number(network)
    return {name: readers for name, readers in shared.items() if name in numbers}


def shared_parameters(network: Graph) -> dict[str, list[str]]:
    """Trainable parameters of more than one element that several nodes read, with these nodes.

    Example:
        >>> import numpy as np
        >>> from deep500.networks import Network
        >>> net = Network()
        >>> net.add_input("x", ("N", 2))
        >>> net.add_parameter("w", np.eye(2, dtype="float32"))
        >>> net.add_node("MatMul", ["x", "w"], "y", "first")
        >>> net.add_node("MatMul", ["y", "w"], "z", "second")
        >>> shared_parameters(net)
        {'w': ['first', 'second']}
    """
    readers = {n: network.consumers(n) for n, p in network.parameters.items() if p.trainable and p.value.size > 1}
    return {name: [node.name for node in nodes] for name, nodes in readers.items() if len(nodes) > 1}


def one_number(network: Graph) -> set[str]:
    """Trainable parameters of more than one element that hold one number, as scales and biases do before they train."""
    values = {n: p.value for n, p in network.parameters.items() if p.trainable and p.value.size > 1}
    return {n for n, a in values.items() if (a.flat[:2] == a.flat[0]).all() and (a == a.flat[0]).all()}


def untie(network: AnyGraph, names: Iterable[str] | None = None) -> AnyGraph:
    """A copy of a network in which each node has a parameter of its own in place of one that several nodes read.

    The first node keeps the parameter; the others get copies named ``<parameter>.2``, ``<parameter>.3``, ...

    Args:
        network: stays as it is.
        names: of the parameters; if None, those of :func:`merged_parameters`, and the running statistics of batch
            normalizations that read one of these.

    Raises:
        NetworkError: no such parameter.

    Example:
        >>> import numpy as np
        >>> from deep500.networks import Network
        >>> net = Network()
        >>> net.add_input("x", ("N", 3))
        >>> net.add_parameter("ones", np.ones(3, "float32"))
        >>> net.add_node("Mul", ["x", "ones"], "y", "first")
        >>> net.add_node("Mul", ["y", "ones"], "z", "second")
        >>> untie(net).trainable()
        ['ones', 'ones.2']
    """
    copy = network.copy()
    chosen = [*merged_parameters(copy), *_statistics(copy)] if names is None else list(names)
    for name in chosen:
        if name not in copy.parameters:
            raise NetworkError(f"got {name!r} to untie; expected a parameter ({nearest(name, copy.parameters)})")
    readers: dict[str, int] = dict.fromkeys(chosen, 0)
    nodes = []
    for node in copy.nodes:
        names_of_node = {}
        for name in {*node.inputs} & readers.keys():
            readers[name] += 1
            if readers[name] > 1:
                replica = copy.fresh_name(f"{name}.{readers[name]}")
                parameter = copy.parameter(name)
                copy.add_parameter(replica, np.array(parameter.value), parameter.trainable)
                names_of_node[name] = replica
        nodes.append(replace(node, inputs=tuple(names_of_node.get(value, value) for value in node.inputs)))
    copy.set_nodes(nodes)
    return copy


def _statistics(network: Graph) -> list[str]:
    merged = merged_parameters(network)
    normalizations = [n for n in network.nodes if n.op_type == "BatchNormalization" and not n.domain]
    read = [value for node in normalizations if {*node.inputs[1:3]} & merged.keys() for value in node.inputs[3:5]]
    return [value for value in dict.fromkeys(read) if network.has_parameter(value) and read.count(value) > 1]
