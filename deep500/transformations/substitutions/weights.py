"""Weights through a merge: where each parameter of a network went, and checkpoints in both directions.

Forward, a checkpoint of the original goes through the history: the steps are those of the structure, not of the
weights. Back, what was only laid side by side is cut out again; what was added or multiplied with others has no way
back, and says so.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

import numpy as np

from deep500.errors import InputError
from deep500.networks.network import Network
from deep500.transformations.substitutions.graph.store import Store, StoreValue, parts
from deep500.transformations.substitutions.graph.writing import Array, export_network
from deep500.transformations.substitutions.loading import Rules
from deep500.transformations.substitutions.optimize import replay_history, retrace
from deep500.transformations.substitutions.result import History


@dataclass(frozen=True)
class WeightPlace:
    """Where a parameter is in an optimized network.

    Attributes:
        name: of the parameter there; empty where it went into constants while the network was read, as the variance of
            a normalization does.
        axis, begin, end: the part of it; an axis of None is all of it.
        axes: order of the parameter's axes in that part, where it lies turned; empty: as they are.
        mixed: whether it was computed with: added to others, or multiplied by them.
    """

    name: str
    axis: int | None = None
    begin: int = 0
    end: int = 0
    mixed: bool = False
    axes: tuple[int, ...] = ()


def weight_places(
    network: Network, history: History, rules: Rules = None, unproved: bool = False
) -> dict[str, tuple[WeightPlace, ...]]:
    """Places of all parameters of a network in what a history makes of it; none where it is not needed any more.

    Raises:
        InputError: the history is of another network.

    Example:
        >>> from deep500.networks import create
        >>> from deep500.transformations.substitutions import optimize_network
        >>> net = create("repvgg", 1, shape=(3, 8, 8), widths=(4,), blocks=(1,))
        >>> places = weight_places(net, optimize_network(net, measure=False).history)
        >>> {place.mixed for name in places if ".bn." in name for place in places[name]}
        {True}
    """
    history.check(network)
    if history.unchanged:
        return {name: (WeightPlace(name),) for name in network.parameters}
    imported, graph = retrace(network, history, rules, unproved)
    names = dict[StoreValue, str]()
    written = export_network(imported, graph, names=names, whole=history.fused)
    places: dict[str, list[WeightPlace]] = {name: [] for name in network.parameters}
    originals: dict[StoreValue, list[str]] = {}
    for name in network.parameters:
        originals.setdefault(imported.values[name], []).append(name)
    for value, name in names.items():
        if name in written.parameters:
            for leaf, place in _leaves(imported.store, value, WeightPlace(name)):
                for original in originals.get(leaf, ()):
                    places[original].append(place)
    read = {name for node in network.nodes for name in node.reads}
    lost = {name: (WeightPlace("", mixed=True),) for name in read}
    return {name: tuple(dict.fromkeys(at)) or lost.get(name, ()) for name, at in places.items()}


def _leaves(store: Store, value: StoreValue, place: WeightPlace) -> Iterator[tuple[StoreValue, WeightPlace]]:
    node = store.node(value)
    if not node.inputs:
        yield value, place
    elif node.op == "transpose" and not place.mixed and not place.axes:
        yield from _leaves(store, node.inputs[0], replace(place, axes=tuple(node.parameter("perm"))))
    elif node.op == "concat" and place.axis is None and not place.mixed and not place.axes:
        axis, begin = node.parameter("axis"), 0
        for part in parts(store, value, axis):
            end = begin + store.shape(part)[axis]
            yield from _leaves(store, part, WeightPlace(place.name, axis, begin, end))
            begin = end
    else:
        for operand in node.inputs:
            yield from _leaves(store, operand, replace(place, mixed=True, axes=()))


def merged_weights(
    network: Network, history: History, weights: Mapping[str, Array], rules: Rules = None
) -> dict[str, Array]:
    """Parameters of the optimized network for other weights of the original: a checkpoint, by its names.

    Raises:
        InputError: names that the network lacks, or a history of another network.
        NetworkError: the steps do not hold for these weights, as where a bias of zeros was left out.
    """
    unknown = sorted(weights.keys() - network.parameters.keys())
    if unknown:
        raise InputError(f"got weights {', '.join(unknown)}; expected parameters of the network: name those")
    loaded = network.copy()
    for name, value in weights.items():
        loaded.set_parameter(name, np.asarray(value))
    return {name: np.asarray(p.value) for name, p in replay_history(loaded, history, rules).parameters.items()}


def original_weights(
    network: Network, history: History, weights: Mapping[str, Array], rules: Rules = None
) -> dict[str, Array]:
    """Parameters of the original, cut out of those of the optimized network.

    Raises:
        InputError: one was computed with, and has no way back; or ``weights`` lack a parameter.
    """
    cut = dict[str, Array]()
    for name, places in weight_places(network, history, rules).items():
        whole = next((place for place in places if not place.mixed), None)
        numbers = network.parameters[name].value.dtype.kind != "f"  # of the structure, as targets of reshapes are
        if whole is None and places and not numbers:
            raise InputError(
                f"got parameter {name!r}, computed into {places[0].name or 'constants'}; expected one that lies there "
                "as it is: optimize with training=True, which keeps all"
            )
        if whole is None:
            cut[name] = np.asarray(network.parameters[name].value)  # nothing reads it as a weight any more
            continue
        if whole.name not in weights:
            raise InputError(f"got no weight {whole.name!r}; expected all of the optimized network's: add it")
        array = np.asarray(weights[whole.name])
        part = array if whole.axis is None else array.take(range(whole.begin, whole.end), whole.axis)
        part = part.transpose(np.argsort(whole.axes)) if whole.axes else part
        cut[name] = part.reshape(np.shape(network.parameters[name].value))
    return cut
