"""A compiled network in layers: modules that hold the parameters which nothing else reads, so that an engine of
PyTorch's may gather and let go of them layer by layer."""

from __future__ import annotations

import operator
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import fx

from deep500.frameworks.pytorch.compiler import NetworkModule
from deep500.frameworks.pytorch.split import origin

Lines = Sequence[fx.Node]


@dataclass(frozen=True)
class Layered:
    """A network in layers.

    Attributes:
        root: calls the layers in order; it holds what several of them read.
        layers: the modules, those without parameters of their own left out.
        places: for each parameter, by the network's name, the module that holds it, and under which attribute.
    """

    root: NetworkModule
    layers: tuple[NetworkModule, ...]
    places: Mapping[str, tuple[NetworkModule, str]]


def in_layers(module: NetworkModule, numbers: Mapping[str, int]) -> Layered:
    """The same code, cut into modules.

    Args:
        module: as compiled; its parameters are shared with the result.
        numbers: of the layer that each node of the network is in, by its name.

    Returns:
        modules that compute what the module does, line by line.
    """
    groups = _groups(module, numbers)
    readers = _readers(groups)
    graph, root, copies = fx.Graph(), dict[str, Any](), dict[fx.Node, fx.Node]()
    inside = {
        leaf
        for leaf, numbers_of in readers.items()
        if len(numbers_of) == 1 and SHARED not in numbers_of and _is_parameter(module, leaf)
    }
    for line in sorted(module.graph.nodes, key=lambda line: line.op != "placeholder"):
        if line.op == "placeholder" or (line.op == "get_attr" and line not in inside):
            copies[line] = graph.node_copy(line)
            if line.op == "get_attr":
                root[str(line.target)] = getattr(module, str(line.target))
    layers, homes = list[NetworkModule](), dict[str, NetworkModule]()
    for group in groups.values():
        leaves = [leaf for leaf in dict.fromkeys(s for line in group for s in line.all_input_nodes) if leaf in inside]
        if not leaves:
            for line in group:
                copies[line] = graph.node_copy(line, copies.__getitem__)
            continue
        layer, inputs, outputs = _layer(module, group, leaves)
        homes.update((str(leaf.target), layer) for leaf in leaves)
        name = _free(f"layer_{len(layers)}", root)
        root[name] = layer
        layers.append(layer)
        results = graph.call_module(name, tuple(copies[line] for line in inputs))
        for i, line in enumerate(outputs):
            copies[line] = graph.call_function(operator.getitem, (results, i))
    end = next(line for line in module.graph.nodes if line.op == "output")
    graph.output(fx.map_arg(end.args[0], copies.__getitem__))
    whole = NetworkModule(root, graph, "Layers")
    whole.meta.update(module.meta)
    for layer in layers:
        layer.meta.update(sources=module.meta["sources"], places=module.meta["places"])
    places = {
        name: (homes.get(attribute, whole), attribute)
        for attribute, name in module.names.items()
        if isinstance(getattr(module, attribute, None), torch.nn.Parameter)
    }
    return Layered(whole, tuple(layers), places)


SHARED = -1
"""The number of what is computed from parameters alone and read in several layers: the root computes it."""


def _groups(module: NetworkModule, numbers: Mapping[str, int]) -> dict[int, list[fx.Node]]:
    """Lines that compute, by layer; a line is never before what it reads."""
    sources, number = module.meta["sources"], dict[fx.Node, int]()
    lines = [line for line in module.graph.nodes if line.op not in ("placeholder", "get_attr", "output")]
    moving = {line for line in module.graph.nodes if line.op == "placeholder"}
    for line in lines:
        its = origin(sources.get(line.name, ""), numbers)
        if moving.intersection(line.all_input_nodes) or not line.all_input_nodes:
            moving.add(line)
            number[line] = max([numbers.get(its, 0), *(number[s] for s in line.all_input_nodes if s in number)])
    for line in reversed(lines):  # a view of a parameter must not leave the layer that holds it
        if line not in moving:
            users = {number.get(user, SHARED) for user in line.users}
            number[line] = users.pop() if len(users) == 1 else SHARED
    groups: dict[int, list[fx.Node]] = {}
    for line in lines:
        groups.setdefault(number[line], []).append(line)
    return {key: groups[key] for key in sorted(groups)}


def _readers(groups: Mapping[int, Lines]) -> dict[fx.Node, set[int]]:
    """For each line that is read: in which groups."""
    readers: dict[fx.Node, set[int]] = {}
    for number, group in groups.items():
        for line in group:
            for source in line.all_input_nodes:
                readers.setdefault(source, set()).add(number)
    return readers


def _is_parameter(module: NetworkModule, leaf: fx.Node) -> bool:
    return leaf.op == "get_attr" and isinstance(getattr(module, str(leaf.target), None), torch.nn.Parameter)


def _layer(module: NetworkModule, group: Lines, leaves: Lines) -> tuple[NetworkModule, Lines, Lines]:
    """A module of lines that holds some leaves; which lines it reads, and which of its own others read."""
    mine, inside = set(leaves), set(group)
    inputs = [
        line
        for line in dict.fromkeys(source for line in group for source in line.all_input_nodes)
        if line not in inside and line not in mine
    ]
    outputs = [line for line in group if any(user not in inside for user in line.users)]
    graph, root = fx.Graph(), {str(leaf.target): getattr(module, str(leaf.target)) for leaf in leaves}
    copies = {line: graph.placeholder(line.name) for line in inputs}
    copies.update({leaf: graph.node_copy(leaf) for leaf in leaves})
    for line in group:
        copies[line] = graph.node_copy(line, copies.__getitem__)
    graph.output(tuple(copies[line] for line in outputs))
    return NetworkModule(root, graph, "Layer"), inputs, outputs


def _free(name: str, taken: Mapping[str, Any]) -> str:
    while name in taken:
        name += "_"
    return name


def in_stages(
    module: NetworkModule, numbers: Mapping[str, int], count: int, copied: bool = False
) -> list[NetworkModule]:
    """The same code as a chain of modules: each takes what the one before returns, a tuple, and the last returns the
    outputs. What a later one reads passes through all between; an output that none of them reads is detached.

    Args:
        module: as compiled; its parameters are shared with the result.
        numbers: of the stage that each node of the network is in, by its name.
        count: how many stages there are.
        copied: whether results are in memory of their own, which may be detached in place.
    """
    groups = _groups(module, numbers)
    shared = groups.pop(SHARED, [])
    number = {line: k for k, group in groups.items() for line in group}
    placeholders = [line for line in module.graph.nodes if line.op == "placeholder"]
    number.update(dict.fromkeys(placeholders, 0))
    end = next(line for line in module.graph.nodes if line.op == "output")
    results = list(dict.fromkeys(end.all_input_nodes))
    last: dict[fx.Node, int] = {}
    for k, group in groups.items():
        last.update(dict.fromkeys((source for line in group for source in line.all_input_nodes), k))
    stages, receives = list[NetworkModule](), placeholders
    for k in range(count):
        reports = {line for line in results if last.get(line, -1) <= k}
        passes = [line for line in number if number[line] <= k and (last.get(line, -1) > k or line in reports)]
        graph, root = fx.Graph(), dict[str, Any]()
        copies = {line: graph.placeholder(line.name) for line in receives}
        idle = [line for line in results if line not in number] if k == count - 1 else []  # parameters
        for line in _in_order(module, [*groups.get(k, []), *idle], shared):
            if line.op == "get_attr":
                root[str(line.target)] = getattr(module, str(line.target))
            copies[line] = graph.node_copy(line, copies.__getitem__)
        if k == count - 1:
            graph.output(fx.map_arg(end.args[0], copies.__getitem__))
        else:
            graph.output(tuple(_handed_on(graph, copies[line], line in reports, copied) for line in passes))
        stages.append(NetworkModule(root, graph, "Stage"))
        receives = passes
    return stages


def _in_order(module: NetworkModule, group: Lines, shared: Lines) -> Lines:
    """Lines of a stage with the parameters and constants that they read, and what is computed from these alone."""
    needed, inside = set(group), set(shared)
    for line in reversed(module.graph.nodes):
        if line in needed:
            needed.update(source for source in line.all_input_nodes if source in inside or source.op == "get_attr")
    return [line for line in module.graph.nodes if line in needed]


def _handed_on(graph: fx.Graph, line: fx.Node, report: bool, copied: bool) -> fx.Node:
    """The line that goes to the next stage: its tensor lies in one stretch of memory, as messages do."""
    line = graph.call_method("detach", (line,)) if report else line
    if copied:
        return graph.call_method("clone", (line,), {"memory_format": torch.contiguous_format})
    return graph.call_method("contiguous", (line,))
