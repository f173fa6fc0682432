"""The cheapest graph that classes of equal values hold, exactly, by mixed-integer programming.

For every node n a binary x_n (it is used) with its price; for every class c a depth t_c:

    minimise    sum_n price_n x_n
    subject to  sum_{n makes c} x_n >= 1                       for every class c of an output,
                sum_{m makes c} x_m >= x_n                     for every node n and class c that it reads,
                t_c >= t_d + 1 - N (1 - x_n)                   for every n, class c that it makes and d that it reads.

The last keeps a value from being made of itself (Yang et al., Tensat, MLSys 2021, section 4); it is needed only between
classes that can be made of each other (one strongly connected component). A node that several others read is paid once,
which choosing class by class cannot see.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from deep500.errors import NetworkError
from deep500.transformations.substitutions.graph.store import Graph, Value
from deep500.transformations.substitutions.search.classes import Classes

Choice = dict[Value, Value]
LATE = 1  # the solver's status where the time ended it


@dataclass(frozen=True)
class Extraction:
    """What was extracted.

    Attributes:
        choice: for every class that is needed, by its representative, the member that is used.
        cost: the sum of prices.
        gap: how far it can be from the cheapest, relatively; 0 if it is that, within the solver's precision.
    """

    choice: Choice
    cost: float
    gap: float


def extract(classes: Classes, outputs: list[Value], price: Callable[[int], float], seconds: float = 30.0) -> Extraction:
    """Choose the nodes that make the outputs at the least total price.

    Args:
        classes: closed.
        outputs: values that must be made.
        price: of a node.
        seconds: for the solver; what it has by then is returned with its gap.

    Raises:
        NetworkError: the solver found nothing in that time.

    Example:
        >>> from deep500.transformations.substitutions.graph.store import Store
        >>> store = Store()
        >>> x = store.input("x", (2,), "float32")
        >>> (slow,), (fast,) = store.add("gelu", x), store.add("relu", x)
        >>> classes = Classes(store, [slow, fast]); classes.union(slow, fast)
        >>> found = extract(classes, [slow], lambda n: {slow.node: 2.0, fast.node: 1.0}.get(n, 0.0))
        >>> round(found.cost, 6), found.choice[classes.find(slow)] == fast
        (1.0, True)
    """
    problem = _Problem(classes, outputs)
    prices = np.array([price(number) for number in problem.nodes])
    result = problem.solve(prices, seconds)
    if result.x is None:
        raise NetworkError(f"got no extraction in {seconds} s ({result.message}); expected one; raise the budget")
    used = {number for number, x in zip(problem.nodes, result.x, strict=False) if x > 0.5}
    gap = float(result.mip_gap or 0.0) if result.status == LATE and np.any(prices) else 0.0
    return Extraction(_choice(classes, outputs, used), float(result.fun * problem.scale), gap)


class _Problem:
    """Variables: x of every node, then t of every class; rows as the module says."""

    def __init__(self, classes: Classes, outputs: list[Value]) -> None:
        self.classes, self.scale = classes, 1.0
        self.outputs = [classes.find(one) for one in outputs]
        self.nodes = self._needed()
        self.column = {number: n for n, number in enumerate(self.nodes)}
        self.component = self._components()
        counts = Counter(self.component.values())
        circular = sorted(one for one, label in self.component.items() if counts[label] > 1)
        self.depth = {one: len(self.nodes) + n for n, one in enumerate(circular)}
        self.makers: dict[Value, list[int]] = {}
        for number in self.nodes:
            for output in range(len(classes.store.nodes[number].shapes)):
                self.makers.setdefault(classes.find(Value(number, output)), []).append(number)

    def _components(self) -> dict[Value, int]:
        """The strongly connected component of every class: classes that can be made of each other."""
        from scipy.sparse import csr_matrix
        from scipy.sparse.csgraph import connected_components

        find, nodes = self.classes.find, self.classes.store.nodes
        edges = [
            (find(Value(n, o)), find(one))
            for n in self.nodes
            for o in range(len(nodes[n].shapes))
            for one in nodes[n].inputs
        ]
        every = sorted({find(Value(n, o)) for n in self.nodes for o in range(len(nodes[n].shapes))})
        number = {one: n for n, one in enumerate(every)}
        rows, columns = [number[one] for one, _ in edges], [number[one] for _, one in edges]
        matrix = csr_matrix((np.ones(len(edges)), (rows, columns)), shape=(len(every), len(every)))
        labels = connected_components(matrix, directed=True, connection="strong")[1]
        return {one: int(labels[n]) for one, n in number.items()}

    def _needed(self) -> list[int]:
        seen, found, todo = set(self.outputs), set(), list(self.outputs)
        while todo:
            for member in self.classes.members(todo.pop()):
                if member.node in found or member.node not in self.classes.nodes:
                    continue
                found.add(member.node)
                for one in self.classes.store.nodes[member.node].inputs:
                    root = self.classes.find(one)
                    if root not in seen:
                        seen.add(root)
                        todo.append(root)
        return sorted(found)

    def rows(self) -> tuple[Any, np.ndarray]:
        """The constraints' matrix and the least values of its rows."""
        from scipy.sparse import csr_matrix

        entries: list[tuple[int, int, float]] = []
        lower: list[float] = []

        def add(terms: list[tuple[int, float]], least: float) -> None:
            entries.extend((len(lower), column, factor) for column, factor in terms)
            lower.append(least)

        for root in dict.fromkeys(self.outputs):
            add([(self.column[n], 1.0) for n in self.makers[root]], 1.0)
        count = len(self.depth)
        for number in self.nodes:
            node = self.classes.store.nodes[number]
            own = {self.classes.find(Value(number, output)) for output in range(len(node.shapes))}
            for read in {self.classes.find(one) for one in node.inputs}:
                add([*((self.column[n], 1.0) for n in self.makers[read]), (self.column[number], -1.0)], 0.0)
                for made in own:
                    if self.component[made] != self.component[read]:
                        continue
                    if made == read:
                        add([(self.column[number], -1.0)], 0.0)
                    else:
                        depths = [(self.depth[made], 1.0), (self.depth[read], -1.0)]
                        add([*depths, (self.column[number], -float(count + 1))], -float(count))
        row, column, factor = (np.array(one) for one in zip(*entries, strict=True))
        shape = (len(lower), len(self.nodes) + count)
        return csr_matrix((factor, (row, column)), shape=shape), np.array(lower)

    def solve(self, prices: np.ndarray, seconds: float) -> Any:
        """The solver's result."""
        from scipy.optimize import Bounds, LinearConstraint, milp

        matrix, lower = self.rows()
        binaries, depths = len(self.nodes), len(self.depth)
        self.scale = float(prices.max(initial=0.0)) or 1.0
        tie = 1e-9  # of two selections of one price the one with fewer nodes
        return milp(
            np.concatenate([prices / self.scale + tie, np.zeros(depths)]),
            constraints=LinearConstraint(matrix, lower, np.inf),
            integrality=np.concatenate([np.ones(binaries), np.zeros(depths)]),
            bounds=Bounds(0, np.concatenate([np.ones(binaries), np.full(depths, float(depths + 1))])),
            options={"time_limit": seconds},
        )


def _choice(classes: Classes, outputs: list[Value], used: set[int]) -> Choice:
    """The used member of every class that the outputs need."""
    choice: Choice = {}
    todo = [classes.find(one) for one in outputs]
    while todo:
        root = todo.pop()
        if root not in choice:
            choice[root] = next(one for one in classes.members(root) if one.node in used)
            todo.extend(classes.find(one) for one in classes.store.nodes[choice[root].node].inputs)
    return choice


def build(classes: Classes, outputs: tuple[Value, ...], choice: Choice) -> Graph:
    """The graph of a choice."""
    made: dict[Value, Value] = {}
    todo = [(classes.find(one), False) for one in outputs]
    while todo:
        root, ready = todo.pop()
        if root in made:
            continue
        member = choice[root]
        node = classes.store.nodes[member.node]
        if ready or not node.inputs:
            inputs = tuple(made[classes.find(one)] for one in node.inputs)
            made[root] = classes.store.again(node, inputs)[member.output] if node.inputs else member
        else:
            todo.append((root, True))
            todo.extend((classes.find(one), False) for one in node.inputs)
    return Graph(classes.store, tuple(made[classes.find(one)] for one in outputs))
