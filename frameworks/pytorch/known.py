"""Values known when a network is compiled: small parameters that do not train, and nodes that only read such."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import torch

from deep500.frameworks.pytorch.dtypes import from_array, to_array
from deep500.frameworks.pytorch.operators import OPS
from deep500.networks.execution.operator_table import used_outputs
from deep500.networks.execution.program import Program
from deep500.networks.node import Node

SMALL = 256  # parameters up to this many elements may be written into the code, or live on the processor
TABLE = 1 << 14  # the same of whole numbers, which are places and sizes


class KnownValues:
    """Values of a program's parameters; call it with a name, and get an array or None.

    Attributes:
        consulted: the tensors whose values may stand in the code.
    """

    def __init__(self, program: Program, tensors: Mapping[str, torch.Tensor]) -> None:
        self.program, self.tensors = program, tensors
        self.consulted: dict[str, torch.Tensor] = {}

    def __call__(self, name: str) -> np.ndarray | None:
        """A parameter that is not trained and small, or of whole numbers; it counts as consulted."""
        tensor = self.tensors.get(name) if name in self.program.attributes else None
        if not isinstance(tensor, torch.Tensor) or isinstance(tensor, torch.nn.Parameter) or tensor.is_meta:
            return None
        if tensor.numel() > (SMALL if tensor.is_floating_point() else TABLE):
            return None
        self.consulted[name] = tensor
        return to_array(tensor)

    def trains(self, name: str) -> bool:
        """Whether a value is a parameter that trains."""
        return name in self.program.attributes and isinstance(self.tensors.get(name), torch.nn.Parameter)


def evaluate(node: Node, values: Mapping[str, np.ndarray]) -> list[np.ndarray] | None:
    """Run a node by the table's function; None where that fails, so that the run itself reports it."""
    entry = OPS.get((node.domain, node.op_type))
    if entry is None:
        return None
    args = [
        None if not name else values[name].tolist() if i in entry.static else from_array(values[name])
        for i, name in enumerate(node.inputs)
    ]
    kwargs = entry.keywords(node.all_attributes())
    used = used_outputs(node, set(node.writes))
    if any(isinstance(value, np.ndarray) for value in kwargs.values()):
        kwargs = {n: from_array(v) if isinstance(v, np.ndarray) else v for n, v in kwargs.items()}
    if "outputs" in entry.extras:
        kwargs["outputs"] = used
    try:
        with torch.no_grad():
            result = entry.function(*args, **kwargs)
    except (RuntimeError, IndexError, TypeError, ValueError):
        return None
    parts = result if len(used) > 1 or entry.many else (result,)
    return [np.array(to_array(part)) for part in parts] if all(isinstance(p, torch.Tensor) for p in parts) else None
