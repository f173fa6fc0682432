"""`Classes`: which values of a store are known to be equal (an e-graph over hash-consed nodes).

Willsey et al., egg (POPL 2021): equal values form classes (union-find); nodes whose inputs are equal are equal too
(congruence), which `close` restores after unions.
"""

from __future__ import annotations

from typing import Any

from deep500.transformations.substitutions.graph.store import Store, Value


class Classes:
    """Classes of equal values over one store.

    Example:
        >>> store = Store()
        >>> x, y = store.input("x", (2,), "float32"), store.input("y", (2,), "float32")
        >>> (a,), (b,) = store.add("relu", x), store.add("relu", y)
        >>> classes = Classes(store, [a, b])
        >>> classes.union(x, y); classes.close()
        >>> classes.find(a) == classes.find(b)
        True
    """

    def __init__(self, store: Store, values: list[Value]) -> None:
        self.store = store
        self._parent: dict[Value, Value] = {}
        self._members: dict[Value, list[Value]] = {}
        self.nodes: set[int] = set()
        self.include(values)

    def include(self, values: list[Value]) -> None:
        """Take in values and all they are made of."""
        todo = [one.node for one in values]
        while todo:
            number = todo.pop()
            if number not in self.nodes:
                self.nodes.add(number)
                todo.extend(one.node for one in self.store.nodes[number].inputs)

    def find(self, value: Value) -> Value:
        """The representative: the value of a class that was made first."""
        root = value
        while (parent := self._parent.get(root)) is not None:
            root = parent
        while value != root:
            above = self._parent[value]
            self._parent[value] = root
            value = above
        return root

    def members(self, value: Value) -> list[Value]:
        """All values known to equal one, the representative first."""
        root = self.find(value)
        return self._members.get(root, [root])

    def union(self, one: Value, other: Value) -> None:
        """Two values are equal."""
        first, second = sorted((self.find(one), self.find(other)))
        if first != second:
            self._parent[second] = first
            self._members[first] = sorted([*self.members(first), *self._members.pop(second, [second])])

    def close(self) -> None:
        """Unite outputs of nodes that do the same with equal inputs, until there are none."""
        changed = True
        while changed:
            changed, known = False, dict[Any, int]()
            for number in sorted(self.nodes):
                node = self.store.nodes[number]
                if not node.inputs:
                    continue
                inputs = tuple(self.find(one) for one in node.inputs)
                key = (node.op, node.parameters, inputs, node.shapes)
                twin = known.setdefault(key, number)
                for output in range(len(node.shapes)):
                    if self.find(Value(twin, output)) != self.find(Value(number, output)):
                        self.union(Value(twin, output), Value(number, output))
                        changed = True

    def roots(self) -> list[Value]:
        """One value of every class, in order."""
        outputs = (Value(n, o) for n in self.nodes for o in range(len(self.store.nodes[n].shapes)))
        return sorted({self.find(one) for one in outputs})
