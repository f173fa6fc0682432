"""Rows that a mask hides altogether: zeros whose gradient is zero, as their exporter's framework has it.

PyTorch's exporter writes ``where(isnan(softmax(x)), 0, softmax(x))``. Forward that is right; automatic differentiation
multiplies the zero that comes back by NaN. Emitted gradients know the form (:mod:`deep500.networks.gradients.rules`).
"""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import numpy as np

from deep500.networks.execution.program import Program
from deep500.networks.node import Node
from deep500.networks.protos import UNKNOWN
from deep500.tensors import numpy_dtype


def guarded(program: Program) -> Program:
    """The program with rows without a finite maximum put in order before their Softmax, where Where replaces its NaN.

    Example:
        >>> nodes = [Node("Softmax", ("x",), ("s",), "1"), Node("IsNaN", ("s",), ("n",), "2"),
        ...          Node("Where", ("n", "zero", "s"), ("y",), "3")]
        >>> from deep500.tensors import TensorDescriptor
        >>> described = {"x": TensorDescriptor("float32", (2, 3))}
        >>> [node.op_type for node in guarded(Program(["x"], ["y"], nodes, descriptors=described)).nodes]
        ['ReduceMax', 'IsInf', 'IsNaN', 'Or', 'Where', 'Softmax', 'Where']
    """
    makers = {node.outputs[0]: node for node in program.nodes if not node.domain}
    readers = Counter(name for node in program.nodes for name in node.reads)
    readers.update(program.outputs)
    constants, changed = dict(program.constants), dict[str, list[Node]]()
    for node in program.nodes:
        test, soft = (makers.get(name) for name in node.inputs[::2]) if _chooses(node) else (None, None)
        if test is None or soft is None or (test.op_type, soft.op_type) != ("IsNaN", "Softmax"):
            continue
        dtype = program.descriptors.get(soft.inputs[0], UNKNOWN).dtype
        if (
            test.inputs[0] == soft.outputs[0]
            and readers[soft.outputs[0]] == 2
            and readers[test.outputs[0]] == 1
            and dtype
        ):
            changed[soft.name], names = _ordered(soft, test)
            constants |= {
                names[0]: np.array([soft.all_attributes()["axis"]]),
                names[1]: np.zeros((), numpy_dtype(dtype)),
            }
            changed[test.name] = []
    if not changed:
        return program
    nodes = [part for node in program.nodes for part in changed.get(node.name, [node])]
    return replace(program, nodes=nodes, constants=constants)


def _chooses(node: Node) -> bool:
    return node.op_type == "Where" and not node.domain


def _ordered(soft: Node, test: Node) -> tuple[list[Node], tuple[str, str]]:
    """Softmax behind a Where, with the nodes that tell its rows, and the names of the axis and of the zero."""
    x, dead = soft.inputs[0], test.outputs[0]
    largest, endless, odd, safe, axis, zero = (f"{soft.outputs[0]}:{k}" for k in range(6))
    parts: list[tuple[str, tuple[str, ...], str]] = [
        *(("ReduceMax", (x, axis), largest), ("IsInf", (largest,), endless), ("IsNaN", (largest,), odd)),
        *(("Or", (endless, odd), dead), ("Where", (dead, zero, x), safe)),
    ]
    nodes = [Node(kind, inputs, (output,), output) for kind, inputs, output in parts]
    return [*nodes, replace(soft, inputs=(safe,))], (axis, zero)
