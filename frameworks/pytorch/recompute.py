"""Checkpointing plans by PyTorch's own means: every region is a module that runs under ``torch.utils.checkpoint``.

Non-reentrant, so one graph of gradients covers the whole step: hooks, shared parameters and nested regions work as
without a plan. The generator of random numbers is put back before a region draws again, and running statistics are
written in the first run only.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from contextlib import nullcontext
from dataclasses import replace
from typing import Any

import torch
from torch import fx
from torch.utils.checkpoint import checkpoint

from deep500.frameworks.pytorch.compiler import NetworkModule
from deep500.frameworks.pytorch.operators.normalization import running_again
from deep500.frameworks.pytorch.split import Cutter, Section
from deep500.frameworks.pytorch.tape import Tape
from deep500.networks.graph import Graph


def planned(compiled: Any, network: Graph, regions: Sequence[Collection[str]], loss: str, recompute: str) -> Any:
    """Return what a training run calls under a plan.

    Args:
        compiled: the :class:`~deep500.frameworks.pytorch.executor.Compiled` network without a plan.
        network: that it was compiled from.
        regions: for each region the values that its nodes write.
        loss: the output that is differentiated.
        recompute: ``"checkpoint"`` or ``"explicit"``.
    """
    cutter = Cutter(compiled.module, network.nodes, regions, loss)
    if recompute == "explicit":
        tape = Tape(compiled.module, cutter)
        return replace(compiled, call=tape, backward=tape.backward)
    module = checkpointed(compiled.module, cutter)
    return replace(compiled, module=module, call=module)


class RecomputedModule(torch.nn.Module):
    """A region: run in the forward pass without keeping what it records, and again when that is first needed.

    Args:
        body: a function of all that the region reads.
        random: whether it draws random numbers.
    """

    def __init__(self, body: torch.nn.Module, random: bool) -> None:
        super().__init__()
        self.body, self.random = body, random

    def forward(self, *args: Any) -> Any:
        """Run the body."""
        return checkpoint(
            self.body,
            *args,
            use_reentrant=False,
            preserve_rng_state=self.random,
            context_fn=lambda: (nullcontext(), running_again()),
        )


def checkpointed(module: NetworkModule, cutter: Cutter) -> NetworkModule:
    """The same module, with its parameters, in which a plan's regions run again.

    Args:
        module: as compiled without a plan.
        cutter: knows the plan's regions.
    """
    leaves = cutter.leaves
    named = [line for line in module.graph.nodes if line.op in ("get_attr", "call_module")]
    root: dict[str, Any] = {str(line.target): getattr(module, str(line.target)) for line in named}
    graph, copies = fx.Graph(), dict[fx.Node, fx.Node]()
    for line in sorted(leaves, key=lambda line: line.op != "placeholder"):
        copies[line] = graph.node_copy(line)
    _write(graph, copies, cutter.cut(), root)
    graph.output(fx.map_arg(cutter.output.args[0], copies.__getitem__))
    planned = NetworkModule(root, graph, "Network")
    planned.meta.update(module.meta)
    return planned


def checkpoint_within(
    module: NetworkModule, plain: fx.Graph, network: Graph, regions: Sequence[Collection[str]]
) -> None:
    """Let regions run again in a part of a network that an engine has taken, which goes on with the same module.

    Args:
        module: the part; its code is changed, its parameters and hooks stay.
        plain: its code without a plan.
        network: the whole.
        regions: for each region the values that its nodes write; a region that other parts share ends at their borders.
    """
    module.graph = plain
    planned = checkpointed(module, Cutter(module, network.nodes, regions, None))
    for name, child in planned.named_children():
        module.add_module(name, child)
    module.graph = planned.graph


def _write(graph: fx.Graph, copies: dict[fx.Node, fx.Node], stretches: Sequence[Section], root: dict[str, Any]) -> None:
    """Write stretches into a graph; ``root`` takes the regions' modules."""
    for stretch in stretches:
        if not stretch.again:
            for line in stretch.lines:
                copies[line] = graph.node_copy(line, copies.__getitem__)
            continue
        name = f"region_{len(root)}"
        while name in root:
            name += "_"
        root[name] = RecomputedModule(_body(stretch), stretch.random)
        results = graph.call_module(name, tuple(copies[line] for line in stretch.inputs))
        for i, line in enumerate(stretch.outputs):
            copies[line] = graph.call_function(_item, (results, i))


def _body(stretch: Section) -> fx.GraphModule:
    graph, root = fx.Graph(), dict[str, Any]()
    copies = {line: graph.placeholder(line.name) for line in stretch.inputs}
    _write(graph, copies, stretch.parts, root)
    graph.output(tuple(copies[line] for line in stretch.outputs))
    return NetworkModule(root, graph, "Region")


def _item(results: Sequence[Any], index: int) -> Any:
    return results[index]
