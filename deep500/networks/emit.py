"""`Emitter`: write nodes like calls. Used by the model zoo, the gradient rules and the transformations."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import onnx

from deep500.networks.graph import Graph
from deep500.networks.node import from_proto, rename_captures


class Emitter:
    """Adds nodes with fresh names to a network; calling it returns the name of the output.

    Args:
        network: receives the nodes.
        prefix: put before every name, for instance ``"layer1/"``.

    Example:
        >>> net = Graph(); net.add_input("x", (2, 3))
        >>> op = Emitter(net)
        >>> op("Add", op("Relu", "x"), op.constant(np.float32(1)))
        'Add'
    """

    def __init__(self, network: Graph, prefix: str = "") -> None:
        self.network = network
        self.prefix = prefix
        self._constants: dict[tuple[str, tuple[int, ...], bytes], str] = {}

    def __call__(
        self, op_type: str, *inputs: str, output: str | None = None, domain: str = "", **attributes: Any
    ) -> str:
        """Add a node with one output and return its name (``output``, or a fresh one)."""
        name = output or self.network.fresh_name(f"{self.prefix}{op_type}")
        self.network.add_node(op_type, inputs, [name], domain=domain, **attributes)
        return name

    def many(
        self, op_type: str, *inputs: str, outputs: int | list[str], domain: str = "", **attributes: Any
    ) -> list[str]:
        """Add a node with several outputs and return their names (``outputs``: how many, or the names)."""
        if isinstance(outputs, int):
            base = self.network.fresh_name(f"{self.prefix}{op_type}")
            outputs = [self.network.fresh_name(f"{base}:{i}") for i in range(outputs)]
        self.network.add_node(op_type, inputs, outputs, domain=domain, **attributes)
        return outputs

    def constant(self, value: Any, name: str = "constant") -> str:
        """Name of a non-trainable parameter with this value; equal values share one."""
        array = np.asarray(value)
        key = (str(array.dtype), array.shape, array.tobytes())
        if key not in self._constants:
            fresh = self.network.fresh_name(f"{self.prefix}{name}")
            self.network.add_parameter(fresh, array, trainable=False)
            self._constants[key] = fresh
        return self._constants[key]

    def ints(self, *values: int) -> str:
        """Name of a constant int64 vector: axes, shapes, indices."""
        return self.constant(np.array(values, np.int64))

    def inline(self, graph: onnx.GraphProto, inputs: Sequence[str]) -> list[str]:
        """Add the nodes of a sub-graph under fresh names, with these values as its inputs; returns its outputs."""
        names = {value.name: outer for value, outer in zip(graph.input, inputs, strict=True)}
        names.update({tensor.name: self.constant(onnx.numpy_helper.to_array(tensor)) for tensor in graph.initializer})
        for proto in graph.node:
            node = from_proto(proto)
            attributes = {k: rename_captures(v, lambda name: names.get(name, name)) for k, v in node.attributes.items()}
            read = [names.get(v, v) for v in node.inputs]
            written = [v and self.network.fresh_name(f"{self.prefix}{v}") for v in node.outputs]
            self.network.add_node(node.op_type, read, written, domain=node.domain, **attributes)
            names.update(zip(node.outputs, written, strict=True))
        return [names.get(value.name, value.name) for value in graph.output]
