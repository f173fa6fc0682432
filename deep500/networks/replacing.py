"""`replace_operator`: a network with one operator in the place of another, in all nodes or in chosen ones."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from deep500.errors import NetworkError, nearest
from deep500.networks.custom import check_plugins
from deep500.networks.network import Network
from deep500.networks.node import Node


def replace_operator(
    network: Network,
    old: str,
    new: str,
    domain: str = "",
    *,
    old_domain: str = "",
    inputs: int | None = None,
    where: Callable[[Node], bool] | None = None,
    **attributes: Any,
) -> Network:
    """A copy of a network in which every node of one operator is a node of another; names and connections stay.

    Args:
        network: stays as it is.
        old: the operator to replace, of domain ``old_domain``.
        new: the operator that takes its place, of domain ``domain`` (``"deep500"`` for custom operators).
        inputs: how many of the old node's inputs the new one takes, the first ones; all if None. (Clip has three, an
            activation that takes its place one.)
        where: chooses among the nodes of ``old``; all if None.
        attributes: of the new nodes; those of the old ones are dropped.

    Raises:
        NetworkError: no such node, or inputs, outputs or attributes that the new operator does not take.
        UnsupportedOperator: a custom operator whose plugin is missing.

    Example:
        >>> from deep500.networks.zoo import create
        >>> network = replace_operator(create("lenet"), "Relu", "LeakyRelu", alpha=0.1)
        >>> [node.op_type for node in network.nodes if node.name.startswith("relu")]
        ['LeakyRelu', 'LeakyRelu', 'LeakyRelu', 'LeakyRelu']
    """
    copy = network.copy()
    candidates = [n for n in network.nodes if (n.domain, n.op_type) == (old_domain, old)]
    chosen = [node for node in candidates if where is None or where(node)]
    if not chosen:
        known = {f"{n.domain}.{n.op_type}" if n.domain else n.op_type for n in network.nodes}
        what = f"{old_domain}.{old}" if old_domain else old
        hint = f"{len(candidates)} node(s) of it, all left out by where" if candidates else nearest(what, known)
        raise NetworkError(f"got operator {what!r} to replace; expected one that the network has ({hint}): name it")
    for node in chosen:
        copy.replace(node.name, new, node.inputs[:inputs], domain, **attributes)
    check_plugins(copy.node(node.name) for node in chosen)
    copy.descriptors()  # custom operators refuse inputs that do not suit them
    return copy
