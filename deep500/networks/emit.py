"""`Emitter`: write nodes like calls. Used by the model zoo, the gradient rules and the transformations."""

from __future__ import annotations

from typing import Any

import numpy as np

from deep500.networks.network import Network


class Emitter:
    """Adds nodes with fresh names to a network; calling it returns the name of the output.

    Args:
        network: receives the nodes.
        prefix: put before every name, for instance ``"layer1/"``.

    Example:
        >>> net = Network(); net.add_input("x", (2, 3))
        >>> op = Emitter(net)
        >>> op("Add", op("Relu", "x"), op.constant(np.float32(1)))
        'Add'
    """

    def __init__(self, network: Network, prefix: str = "") -> None:
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
