"""What editing a network comes down to: changes that check first and then take effect as a whole, or not at all."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

from deep500.errors import NetworkError
from deep500.networks.checks import check_new_node, check_storable, sort_nodes
from deep500.networks.node import Node, check_node
from deep500.networks.structure import Structure


class Rewiring(Structure):
    """A structure whose nodes can be added, dropped and connected otherwise; :class:`Network` builds on it."""

    def _touch(self) -> None:
        self._version += 1

    def _insert(self, node: Node) -> None:
        """Append a node after all checks; loading and :meth:`add_node` share it."""
        check_new_node(self, node)
        check_node(node)
        check_storable(node)
        self._nodes[node.name] = node
        self._producers.update(dict.fromkeys(node.writes, node.name))
        self._inner.update(node.defines)
        self._touch()

    def _drop(self, node: Node) -> None:
        self._nodes = {name: other for name, other in self._nodes.items() if name != node.name}
        for value in node.writes:
            del self._producers[value]
            self._known.pop(value, None)

    def _rewire(self, node: Node, inputs: Sequence[str]) -> None:
        new = replace(node, inputs=tuple(inputs))
        check_node(new)
        self._commit({**self._nodes, node.name: new})
        self._forget_after(new.writes)

    def _redirect(self, names: dict[str, str], without: str | None = None) -> None:
        nodes = {}
        for node in self._nodes.values():
            if node.name == without:
                continue
            if set(node.captured) & set(names):
                raise NetworkError(
                    f"node {node.name!r}: got a redirection of a value that its sub-graph captures; expected none: "
                    "edit the sub-graph"
                )
            inputs = tuple(names.get(n, n) for n in node.inputs)
            nodes[node.name] = node if inputs == node.inputs else replace(node, inputs=inputs)
        renamed = list(dict.fromkeys(names.get(n, n) for n in self.outputs))
        removed = self._nodes[without].writes if without else ()
        still = [n for n in removed if n in renamed or any(n in node.reads for node in nodes.values())]
        if still:
            raise NetworkError(
                f"node {without!r}: got a removal while {still[0]!r} is read; expected no reader: remove those first"
            )
        changed = [n.name for n in nodes.values() if n is not self._nodes[n.name]]
        self._commit(nodes)
        self.outputs = renamed
        for value in removed:
            del self._producers[value]
            self._known.pop(value, None)
        self._forget_after([value for name in changed for value in nodes[name].writes])

    def _commit(self, nodes: dict[str, Node]) -> None:
        """Take over edited nodes in topological order, or raise NetworkError naming a cycle and change nothing."""
        self._nodes = sort_nodes(nodes)
        self._inner = {value for node in nodes.values() for value in node.defines}
        self._touch()

    def _forget_after(self, values: Iterable[str]) -> None:
        """Forget what the file declared about these values and all that depend on them."""
        if self._known:
            stale = set(values)
            for node in self._nodes.values():
                if not stale.isdisjoint(node.reads):
                    stale.update(node.writes)
            self._known = {n: d for n, d in self._known.items() if n not in stale}
