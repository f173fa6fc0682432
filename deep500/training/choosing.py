"""Which parameters of a network are meant, by name, by pattern or by the one word for norms and biases; freezing them.

Patterns are those of file names (``"backbone.*"``, ``"*.bias"``); ``"norms_and_biases"`` stands for all parameters that
weight decay is usually kept from.
"""

from __future__ import annotations

import fnmatch
from collections.abc import Collection, Sequence

from deep500.errors import InputError, nearest
from deep500.networks.drawing import check_drawn
from deep500.networks.network import Network
from deep500.networks.node import Node

NORMS_AND_BIASES = "norms_and_biases"
"""The word that stands for :func:`norms_and_biases`."""

_AFFINE = frozenset({"Add", "Sub", "Mul", "Div", "PRelu"})
_RECURRENT_BIAS = {("LSTM", 3), ("GRU", 3), ("RNN", 3), ("LSTM", 7)}


def norms_and_biases(network: Network) -> list[str]:
    """Trainable parameters that scale or shift, rather than mix features: biases, scales of norms, slopes, peepholes.

    Those with at most one axis (the rule of nanoGPT and timm, whose ``ndim <= 1`` it is), those that a normalization
    reads beside its data, biases of recurrent layers, and what is only added or multiplied and has one axis longer
    than 1, as exporters write the scale of a norm that they took apart.

    Example:
        >>> from deep500.networks.zoo import create
        >>> norms_and_biases(create("mlp", shape=(4,), hidden=(3,), classes=2))
        ['fc1.bias', 'fc2.bias']
    """
    reads: dict[str, list[tuple[Node, int]]] = {}
    for node in network.nodes:
        for index, name in enumerate(node.inputs):
            reads.setdefault(name, []).append((node, index))
    return [name for name in network.trainable() if _scales_or_shifts(network, name, reads.get(name, []))]


def _scales_or_shifts(network: Network, name: str, reads: Sequence[tuple[Node, int]]) -> bool:
    shape = network.parameters[name].value.shape
    if len(shape) <= 1:
        return True
    if any(
        (node.op_type.endswith("Normalization") and index) or (node.op_type, index) in _RECURRENT_BIAS
        for node, index in reads
    ):
        return True
    return sum(size > 1 for size in shape) <= 1 and bool(reads) and all(node.op_type in _AFFINE for node, _ in reads)


def matching(what: str, network: Network, patterns: str | Collection[str]) -> list[str]:
    """The trainable parameters that names, patterns or the word choose, in the network's order.

    Args:
        what: who asks, for the error message.
        network: whose.
        patterns: one or several; see the module.

    Raises:
        InputError: one that fits no trainable parameter.

    Example:
        >>> from deep500.networks.zoo import create
        >>> matching("freeze", create("mlp", shape=(4,), hidden=(3,), classes=2), "fc1.*")
        ['fc1.weight', 'fc1.bias']
    """
    known = network.trainable()
    chosen: set[str] = set()
    for pattern in [patterns] if isinstance(patterns, str) else patterns:
        if pattern == NORMS_AND_BIASES:
            fitting = set(norms_and_biases(network))
        else:
            fitting = {pattern} & set(known) or set(fnmatch.filter(known, pattern))
        if not fitting:
            raise InputError(
                f"{what}: got {pattern!r}, which fits no trainable parameter; expected names or patterns with *, or "
                f"{NORMS_AND_BIASES!r}: {nearest(str(pattern), known)}; print(network) shows them"
            )
        chosen |= fitting
    return [name for name in known if name in chosen]


def freeze(network: Network, patterns: str | Collection[str]) -> list[str]:
    """Let parameters keep their values: no gradient is computed for them, and no optimizer remembers anything of them.

    It is an edit of the network, so that it holds in every backend. Running statistics of normalizations are no
    trainable parameters: they still follow the batches in training mode, as those of a PyTorch module do whose
    parameters have ``requires_grad=False``.

    Args:
        network: is edited; before an optimizer is made for it, as a rule.
        patterns: see :func:`matching`.

    Returns:
        the names.

    Raises:
        InputError: a pattern that fits no trainable parameter, or nothing would be left to train.

    Example:
        >>> from deep500.networks.zoo import create
        >>> network = create("mlp", shape=(4,), hidden=(3,), classes=2)
        >>> freeze(network, ["fc1.*"]), network.trainable()
        (['fc1.weight', 'fc1.bias'], ['fc2.weight', 'fc2.bias'])
    """
    check_drawn(network, "freeze")
    names = matching("freeze", network, patterns)
    if len(names) == len(network.trainable()):
        raise InputError(
            f"freeze: got {patterns!r}, which fits all {len(names)} trainable parameters; expected something left to "
            "train: freeze less"
        )
    for name in names:
        network.set_parameter(name, network.parameters[name].value, trainable=False)
    return names
