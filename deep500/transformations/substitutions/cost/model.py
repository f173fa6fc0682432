"""`Cost`: seconds of a graph as the sum over its units, each of which is priced once."""

from __future__ import annotations

import abc
import math
from typing import Any
from weakref import WeakKeyDictionary

from deep500.transformations.substitutions.graph.store import OPAQUE, Store, StoredGraph
from deep500.transformations.substitutions.graph.units import Unit, Units

Key = tuple[Any, ...]


class OutOfTime(Exception):
    """A unit would have to be measured after the time for that is over."""


class CostModel(abc.ABC):
    """Prices of units, and of graphs as their sum; what is known is looked up.

    How a search uses it: make one cost per search and ask ``total(graph)`` for every state. Graphs that share a store
    share their nodes, so a unit that was priced in one state costs one look-up in the next; units of new nodes are
    looked up by `Unit.key`, and only a key that was never seen is priced. Work happens on first sight alone, so the
    first total of a network is the slow one for a cost that measures.

    Opaque units (operators that no specification describes) cost 0: no rule changes them, so differences between
    states of a search are right, but a total is less than the whole network takes.

    Example:
        >>> import numpy as np
        >>> from deep500.transformations.substitutions.cost import Analytic
        >>> store = Store()
        >>> x, w = store.input("x", (64, 64), "float32"), store.constant(np.ones((64, 64), "float32"))
        >>> y, = store.add("matmul", x, w)
        >>> z, = store.add("matmul", y, w)
        >>> cost = Analytic()
        >>> cost.total(StoredGraph(store, (z,))) == 2 * cost.total(StoredGraph(store, (y,)))
        True
    """

    def __init__(self) -> None:
        self._nodes: WeakKeyDictionary[Store, dict[tuple[Any, ...], float]] = WeakKeyDictionary()
        self._keys: dict[Key, float] = {}

    @abc.abstractmethod
    def price(self, graph: StoredGraph, unit: Unit) -> float:
        """Seconds of a unit that was not seen before and is not opaque; to be asked for through `unit`."""

    def unit(self, graph: StoredGraph, unit: Unit) -> float:
        """Seconds of one unit; 0 if it is opaque, infinite if the backend cannot run it."""
        if unit.kind == OPAQUE:
            return 0.0
        known = self._nodes.get(graph.store)
        if known is None:
            known = self._nodes[graph.store] = {}
        place = (unit.kind, unit.nodes)
        seconds = known.get(place)
        if seconds is None:
            key = unit.key(graph)
            seconds = self._keys.get(key)
            if seconds is None:
                seconds = self._keys[key] = self.price(graph, unit)
            known[place] = seconds
        return seconds

    def total(self, graph: StoredGraph) -> float:
        """Seconds of all units that are not opaque; it does not depend on the order of the nodes."""
        return math.fsum(self.unit(graph, unit) for unit in Units(graph))
