"""Change of cost by a move, priced without making the whole graph: only the operators at the place and around it.

The region is what the rule replaces, what makes its variables, and what reads its results; there units are formed once
as they are and once as they would be. Readers further up can only change by how they are written together with these,
which is left to the price of the whole graph once the move is made.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Any

from deep500.transformations.substitutions.graph.store import StoredGraph, StoreValue
from deep500.transformations.substitutions.graph.units import Units

Users = dict[StoreValue, list[int]]


class Surroundings:
    """A graph's readers and nodes, to ask about many moves in it.

    Args:
        graph: the state.
        cost: prices units, as `Cost.unit` does.
    """

    def __init__(self, graph: StoredGraph, cost: Any) -> None:
        self.graph, self.store, self.cost = graph, graph.store, cost
        self.users = graph.users()
        self.present = set(graph.nodes())

    def change(self, mapping: dict[StoreValue, StoreValue], bound: Iterable[StoreValue]) -> float:
        """Seconds that replacing values adds (below 0: saves).

        Args:
            mapping: value -> what takes its place, made in the store.
            bound: values that a rule's variables stand for: where the region ends below.

        Raises:
            ShapeMismatch: a reader cannot read the replacement.

        Example:
            >>> from deep500.transformations.substitutions.cost import Analytic
            >>> from deep500.transformations.substitutions.graph.store import Store
            >>> store = Store()
            >>> x = store.input("x", (4, 4), "float32")
            >>> twice, = store.add("relu", store.add("tanh", x)[0])
            >>> once, = store.add("relu", x)
            >>> Surroundings(StoredGraph(store, (twice,)), Analytic()).change({twice: once}, [x]) < 0
            True
        """
        # Units form across nodes (a bias joins the product before it), so the price of a change is more than that of
        # the nodes that go and come: readers just outside are formed again too, as twins that read the new values.
        ends = {old.node for old in bound}
        inside = self.inside(mapping, ends)
        dead = self._dead(mapping, inside)
        readers = {n for old in mapping for n in self.users.get(old, ()) if n >= 0 and n not in dead}
        around = ends | inside | readers
        twins = self._twins(mapping, readers)
        new = self._new([*mapping.values(), *(value for values in twins.values() for value in values)])
        after = (around - dead - readers) | new
        users = self._users_after(mapping, twins, new, dead | readers)
        return self._price(after, users) - self._price(around, self.users)

    def inside(self, replaced: Iterable[StoreValue], ends: Collection[int]) -> set[int]:
        """Nodes from replaced values down to the variables."""
        inside = {value.node for value in replaced}.difference(ends)
        todo = list(inside)
        while todo:
            for value in self.store.nodes[todo.pop()].inputs:
                if value.node not in inside and value.node not in ends:
                    inside.add(value.node)
                    todo.append(value.node)
        return inside

    def _dead(self, mapping: dict[StoreValue, StoreValue], inside: set[int]) -> set[int]:
        """Nodes without readers once the values are replaced."""
        dead: set[int] = set()
        for number in sorted(inside, reverse=True):
            outputs = (StoreValue(number, output) for output in range(len(self.store.nodes[number].shapes)))
            if all(value in mapping or all(n in dead for n in self.users.get(value, ())) for value in outputs):
                dead.add(number)
        return dead

    def _twins(self, mapping: dict[StoreValue, StoreValue], readers: set[int]) -> dict[int, tuple[StoreValue, ...]]:
        """Values that readers of replaced values become."""
        twins = {}
        for number in readers:
            node = self.store.nodes[number]
            twins[number] = self.store.again(node, tuple(mapping.get(value, value) for value in node.inputs))
        return twins

    def _new(self, values: list[StoreValue]) -> set[int]:
        """Nodes that the graph does not have yet."""
        added: set[int] = set()
        todo = [value.node for value in values]
        while todo:
            number = todo.pop()
            if number not in self.present and number not in added:
                added.add(number)
                todo.extend(value.node for value in self.store.nodes[number].inputs)
        return added

    def _users_after(
        self,
        mapping: dict[StoreValue, StoreValue],
        twins: dict[int, tuple[StoreValue, ...]],
        new: set[int],
        gone: set[int],
    ) -> Users:
        """Readers of the values around, as they would be."""
        users = _Readers(self.users, gone)
        for number in sorted(new):
            for read in self.store.nodes[number].inputs:
                users.get(read).append(number)
        for number, values in twins.items():
            for output, value in enumerate(values):
                users.get(value).extend(self.users.get(StoreValue(number, output), ()))
        for old, value in mapping.items():
            if -1 in self.users.get(old, ()):
                users.get(value).append(-1)
        return users

    def _price(self, numbers: set[int], users: Users) -> float:
        units = Units(self.graph, sorted(numbers), users)
        return sum(self.cost.unit(self.graph, unit) for unit in units)


class _Readers(dict[StoreValue, list[int]]):
    """Readers as they would be: those that values have now and that stay, until others are added."""

    def __init__(self, before: Users, gone: set[int]) -> None:
        super().__init__()
        self.before, self.gone = before, gone

    def get(self, value: StoreValue, default: Any = None) -> Any:
        """The readers of a value."""
        if value not in self:
            self[value] = [n for n in self.before.get(value, ()) if n not in self.gone]
        return self[value]
