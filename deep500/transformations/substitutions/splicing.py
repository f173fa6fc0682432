"""A rewritten network as the file that it came from, with only those nodes exchanged that changed.

A node of the file stays where, read once more with what its inputs became, it gives what its outputs became. So values
of the result come from nodes of the file or from units (`graph.units`). They are asked for from the outputs back: by
name where a node of the file reads them, by value where a unit does.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

import onnx

from deep500.errors import NetworkError
from deep500.networks.network import Network
from deep500.networks.node import Node
from deep500.networks.onnx.dump import CONSTANTS_KEY, at_opset
from deep500.networks.onnx.outside import SMALL
from deep500.networks.onnx.patching import Patch
from deep500.networks.onnx.tying import reads
from deep500.networks.protos import graph_proto, model_proto
from deep500.transformations.substitutions.graph.importing import Imported
from deep500.transformations.substitutions.graph.stacked import unstacked
from deep500.transformations.substitutions.graph.store import INPUT, StoredGraph, StoreValue
from deep500.transformations.substitutions.graph.units import Unit, Units, ordered
from deep500.transformations.substitutions.graph.writing import Writer

Items = Sequence["int | onnx.NodeProto"]


class NotSpliced(NetworkError):
    """A result that cannot be written into its file."""


def _written(graph: StoredGraph) -> tuple[dict[StoreValue, Unit], set[StoreValue]]:
    """Units by what they write, and values that are written with the bias of a sum behind them."""
    units = Units(graph)
    by_value = {value: unit for unit in units for value in unit.outputs}
    biased = {StoreValue(number) for number in units.sunk}
    for value, unit in by_value.items():  # those before come first
        if unit.kind == "add" and len(unit.nodes) == 1 and not biased.isdisjoint(unit.inputs):
            biased.add(value)
    return by_value, biased


class Splice:
    """Nodes of a file that stay, and units that are written for the rest.

    Args:
        imported: the network, as it was read from the file.
        graph: the result.
        became: what values of ``imported`` are in the result, as `replay` says.
        file: the file's graph.
        initializers: names of its arrays.

    Attributes:
        stays: places of nodes that may stay.
        kept: places of those that the result needs.
        asked: values that units write for nodes of the file, or as outputs, and the names for that.

    Raises:
        NotSpliced: some value of the result has no name in the file and no unit.
    """

    def __init__(
        self,
        imported: Imported,
        graph: StoredGraph,
        became: Mapping[StoreValue, StoreValue],
        file: onnx.GraphProto,
        initializers: Collection[str],
    ) -> None:
        self.imported, self.graph, self.store, self.file = imported, graph, graph.store, file
        self.network, self._moved, self._initializers = imported.network, became, initializers
        self._parameters = self.network.parameters
        self._order = {node.name: place for place, node in enumerate(self.network.nodes)}
        self._units, self._biased = _written(graph)
        self._given = {*initializers, *(value.name for value in file.input)}
        self._place = {name: place for place, node in enumerate(file.node) for name in node.output if name}
        self._became = {name: imported.values[name] for name in self._given if name in imported.values}
        self._sources: dict[StoreValue, str] = {}
        for name in (*initializers, *self.network.inputs):
            if name in self._became:
                self._sources.setdefault(self._became[name], name)
        self.stays, self.kept = set[int](), set[int]()
        for place, node in enumerate(file.node):
            self._read_again(place, node)
        self.asked: dict[StoreValue, list[str]] = {}
        self._chosen: dict[tuple[int, ...], Unit] = {}
        self._select()

    # -- what nodes of the file give --------------------------------------------------------------------------------
    def _read_again(self, place: int, node: onnx.NodeProto) -> None:
        outputs = [name for name in node.output if name in self.imported.values]
        results = self._results(outputs)
        for name in outputs:
            before = self.imported.values[name]
            after = self._moved.get(before, before)
            if self._exists(after):
                self._became[name] = after
            elif name in results:  # what the result's units have inside; the file's nodes still make it
                self._became[name] = results[name]
        if not outputs or any(name not in results or results[name] != self._became.get(name) for name in outputs):
            return
        self.stays.add(place)
        below = [self._became[name].node for name in reads(node) if name in self._became]
        for name in outputs:
            value = self._became[name]
            if max(below, default=-1) < value.node:  # else it may be made of itself: cut out of a concatenation
                self._sources.setdefault(value, name)

    def _results(self, outputs: Sequence[str]) -> dict[str, StoreValue]:
        """Values that the network's nodes for a node of the file give now; none where one reads what is not known."""
        local = dict[str, StoreValue]()
        for node in self._behind(outputs):
            values = dict[str, StoreValue]()
            for name in node.reads:
                constant = self.imported.values[name] if name in self._parameters else None
                value = local.get(name) or self._became.get(name) or constant
                if value is None:
                    return {}
                values[name] = value
            try:
                local.update(zip(node.writes, self.imported.again(node, values), strict=False))
            except NetworkError:
                return {}
        parameters = {name: self.imported.values[name] for name in outputs if name in self._parameters}
        return {**parameters, **{name: local[name] for name in outputs if name in local}}

    def _behind(self, outputs: Sequence[str]) -> list[Node]:
        """The network's nodes that make some values of what the file has names for."""
        nodes, todo = dict[str, Node](), list(outputs)
        while todo:
            node = self.network.producer(todo.pop())
            if node is not None and node.name not in nodes:
                nodes[node.name] = node
                todo += [name for name in node.reads if name not in self._place and name not in self._given]
        return sorted(nodes.values(), key=lambda node: self._order[node.name])

    def _exists(self, value: StoreValue) -> bool:
        node = self.store.node(value)
        return node.constant or node.op == INPUT or (value in self._units and value not in self._biased)

    # -- what is needed ---------------------------------------------------------------------------------------------
    def _select(self) -> None:
        names, values = [output.name for output in self.file.output], list[StoreValue]()
        seen = set[Any]()
        while names or values:
            if names:
                name = names.pop()
                if name not in seen:
                    seen.add(name)
                    self._ask(name, names, values)
                continue
            value = values.pop()
            if value not in seen:
                seen.add(value)
                self._make(value, names, values)
        for places in self.asked.values():
            places.sort(key=lambda name: self._place[name])
        available = {*self._given, *(name for place in self.kept for name in self.file.node[place].output)}
        available |= {name for asked in self.asked.values() for name in asked}
        for place in self._dead():
            node = self.file.node[place]
            outputs = {name for name in node.output if name}
            if available.issuperset(reads(node)) and available.isdisjoint(outputs):
                self.kept.add(place)
                available |= outputs

    def _ask(self, name: str, names: list[str], values: list[StoreValue]) -> None:
        """Something reads a name of the file."""
        place = self._place.get(name)
        if place in self.stays:
            if place not in self.kept:
                self.kept.add(place)
                names += reads(self.file.node[place])
        elif place is not None and name in self._became:
            self.asked.setdefault(self._became[name], []).append(name)
            values.append(self._became[name])
        elif name not in self._given:
            raise NotSpliced(f"got value {name!r}, which nothing gives; expected a node of the file or a unit")

    def _make(self, value: StoreValue, names: list[str], values: list[StoreValue]) -> None:
        """A unit reads a value, or writes it under a name that was asked for."""
        source = self._source(value)
        if source is not None:
            names.append(source)
        elif not self.store.node(value).constant:
            unit = self._units.get(value)
            if unit is None:
                raise NotSpliced("got a value inside of a unit; expected one between units")
            self._chosen[unit.nodes] = unit
            values += unit.inputs

    def _source(self, value: StoreValue) -> str | None:
        """A name of the file for a value; what is computed from constants is computed once, when it is written."""
        computed = self.store.node(value).constant and value.node not in self.store.arrays
        return None if computed or value in self._biased else self._sources.get(value)

    def _dead(self) -> list[int]:
        """Places of nodes that no output of the file needs: they are nobody's change."""
        live, todo = set[int](), [output.name for output in self.file.output]
        while todo:
            place = self._place.get(todo.pop())
            if place is not None and place not in live:
                live.add(place)
                todo += reads(self.file.node[place])
        return [place for place in range(len(self.file.node)) if place not in live]

    # -- what is written --------------------------------------------------------------------------------------------
    def region(self) -> Network:
        """The units as a network: its inputs and parameters are those of the file, its outputs what is asked for."""
        network, described = Network(self.network.name), self.network.descriptors()
        for name, tensor in self.network.inputs.items():
            network.add_input(name, tensor.shape, tensor.dtype)  # type: ignore[arg-type]
        units = ordered(list(self._chosen.values()), list(self.asked))
        needed = dict.fromkeys([value for unit in units for value in unit.inputs] + list(self.asked))
        known = {value: source for value in needed if (source := self._source(value)) is not None}
        for name in known.values():
            if name in self._parameters:
                network.add_parameter(name, self._parameters[name].value, trainable=False, copy=False)
            elif not network.has_value(name):
                network.add_input(name, described[name].shape, described[name].dtype)  # type: ignore[arg-type]
        for value, names in self.asked.items():
            known.setdefault(value, names[0])
        for name, value in self._became.items():
            if name in self._place and self._place[name] not in self.kept:
                known.setdefault(value, name)
        # A value with a bias of what comes after it is none of the file's.
        known = {value: name for value, name in known.items() if value not in self._biased}
        for value, name in self.imported.names.items():  # so that names of what is made of arrays tell them
            known.update({} if value in known or value.node not in self.store.arrays else {value: name})
        writer = Writer(network, self.graph, known, self.imported)
        writer.taken |= {*self._given, *self._place}
        for unit in units:
            writer.write(unit)
        for value, names in self.asked.items():
            for name in names:
                if not network.has_value(name):
                    network.add_node("Identity", [writer.name(value)], [name])
                network.add_output(name)
        return unstacked(network)

    def patch(
        self, opset: int, metadata: Mapping[str, str], entries: Mapping[str, str]
    ) -> tuple[Patch, dict[str, Any]]:
        """The file's change, and large new arrays by name, which may go elsewhere.

        Args:
            opset: the file's.
            metadata: of the file.
            entries: of the metadata, to be set.

        Raises:
            NotSpliced: what is new needs another name or opset, or a node of the file would have to move.
        """
        region = self.region()
        described = region.descriptors()
        graph = graph_proto(region, described, lambda name, parameter: parameter.value.size <= SMALL)
        try:
            graph = at_opset(model_proto(graph), described, opset).graph
        except NetworkError as error:
            raise NotSpliced(f"got nodes that opset {opset} does not have ({error}); expected the file's") from error
        stays = {name for place in self.kept for name in self.file.node[place].output if name} | self._given
        tensors = [tensor for tensor in graph.initializer if tensor.name not in stays]
        large = {n: p.value for n, p in region.parameters.items() if p.value.size > SMALL and n not in stays}
        arrays = [*(tensor.name for tensor in tensors), *large]
        new = [*arrays, *(name for node in graph.node for name in node.output if name)]
        if not stays.isdisjoint(new) or len(set(new)) < len(new):
            raise NotSpliced("got a new value of a name that the file has; expected names of its own")
        nodes = self._in_order(self._renamed(graph.node))
        gone = self._place.keys() - stays - {*new} | self._unread(nodes)
        infos = [info for info in graph.value_info if info.name in new and info.name not in self._place]
        if CONSTANTS_KEY in metadata:
            fixed = [name for name in json.loads(metadata[CONSTANTS_KEY]) if name not in gone]
            fixed += [name for name in arrays if name not in {*region.trainable()}]
            entries = {**entries, CONSTANTS_KEY: json.dumps(fixed)}
        return Patch(nodes, gone, tensors, infos if self.file.value_info else [], entries), large

    def _renamed(self, nodes: Iterable[onnx.NodeProto]) -> list[onnx.NodeProto]:
        """Nodes without names that others have."""
        taken, renamed = {self.file.node[place].name for place in self.kept}, list[onnx.NodeProto]()
        for node in nodes:
            number, name = 0, node.name
            while node.name in taken:
                number += 1
                node.name = f"{name}_{number}"
            taken.add(node.name)
            renamed.append(node)
        return renamed

    def _unread(self, nodes: Items) -> set[str]:
        """Initializers that only nodes read which are gone."""
        if self.imported.training:
            return set()
        before, after = self._read(self.file.node), self._read(nodes)
        fixed = {value.name for value in (*self.file.input, *self.file.output)}
        return ({*self._initializers} & before) - after - fixed

    def _read(self, nodes: Iterable[int | onnx.NodeProto]) -> set[str]:
        return {name for node in nodes for name in reads(self.file.node[node] if isinstance(node, int) else node)}

    def _in_order(self, new: Sequence[onnx.NodeProto]) -> list[int | onnx.NodeProto]:
        """Nodes that stay in their order, as far as that goes, each new one before the first that reads it."""
        items: list[int | onnx.NodeProto] = [*sorted(self.kept), *new]
        nodes = [self.file.node[item] if isinstance(item, int) else item for item in items]
        maker = {name: item for item, node in enumerate(nodes) for name in node.output if name}
        order, begun = dict[int, None](), set[int]()
        for item in range(len(items)):
            todo = [item]
            while todo:
                current = todo[-1]
                waits = [maker[n] for n in reads(nodes[current]) if n in maker and maker[n] not in order]
                if waits and current in begun:
                    raise NotSpliced("got a circle of nodes; expected an order in which each reads what is before it")
                begun.add(current)
                if waits and current not in order:
                    todo += waits
                else:
                    order.setdefault(todo.pop())
        return [items[item] for item in order]
