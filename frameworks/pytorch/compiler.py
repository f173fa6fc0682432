"""Networks to PyTorch code: a program becomes a ``torch.fx.GraphModule``, an ordinary ``nn.Module``.

The code is straight-line: one call per operator, attributes and constant shapes written in as Python values, parameters
read from the module. ``module.training`` decides what BatchNormalization and Dropout do, when the code runs.
"""

from __future__ import annotations

import copy
import keyword
import operator
import re
from collections.abc import Callable, Iterable, Mapping
from itertools import islice
from typing import Any

import numpy as np
import onnx
import torch
from torch import fx

from deep500.errors import InputError, UnsupportedOperator
from deep500.frameworks.pytorch.custom import node_function
from deep500.frameworks.pytorch.dtypes import DTYPES, from_array, torch_dtype
from deep500.frameworks.pytorch.known import KnownValues, evaluate
from deep500.frameworks.pytorch.lowering import LoweredNode
from deep500.frameworks.pytorch.operators import OPS
from deep500.frameworks.pytorch.operators.movement import to_device
from deep500.networks.custom import is_custom
from deep500.networks.execution.folding import fold
from deep500.networks.execution.guards import guarded
from deep500.networks.execution.operator_table import used_outputs
from deep500.networks.execution.program import Backend, Program, constant_value, from_graph
from deep500.networks.execution.recognition import recognised
from deep500.networks.execution.slicing import values_read
from deep500.networks.execution.tidying import tidied
from deep500.networks.node import Node, captures

TARGET = Backend("pytorch", OPS, DTYPES)

_HOST_SOURCES = frozenset(
    {
        "ConstantOfShape",
        "OptionalHasElement",
        "RandomNormal",
        "RandomUniform",
        "Range",
        "SequenceLength",
        "Shape",
        "Size",
    }
)
_WIDE = {"uint16", "uint32", "uint64"}  # torch can store and move these, not compute with them
_MOVES = frozenset(
    {
        "Identity",
        "Reshape",
        "Transpose",
        "Squeeze",
        "Unsqueeze",
        "Flatten",
        "Expand",
        "Cast",
        "BitCast",
        "Shape",
        "Size",
        "Concat",
        "Split",
        "QuantizeLinear",
        "DequantizeLinear",
        "CastLike",
    }
)


class NetworkModule(fx.GraphModule):
    """A compiled network: call it with the inputs in order, get a tensor or a tuple of tensors in the outputs' order.

    It is an ordinary module: ``state_dict``, ``train``, ``eval``, hooks, data parallelism, ``torch.compile``,
    ``copy.deepcopy`` and pickling work. ``names`` maps its attributes to the network's parameters.
    """

    @property
    def program(self) -> Program:
        """The program that it was compiled from."""
        return self.meta["program"]

    @property
    def recognised(self) -> dict[str, str]:
        """Operators that exporters had taken apart and one function computes here, by the values that they give."""
        return dict(self.meta["recognised"])

    @property
    def names(self) -> dict[str, str]:
        """The network's name of every parameter and buffer, by attribute."""
        return {attribute: name for name, attribute in self.program.attributes.items()}

    def recompile(self) -> Any:
        """Generate the code anew; see the base class, whose ``__call__`` prints errors and drops where they arose."""
        code = super().recompile()
        if "__call__" in vars(type(self)):  # the class is this instance's alone
            del type(self).__call__
        return code

    def __reduce__(self) -> Any:
        return _rebuild, (self.program, self._tensors(), self.training, self.meta["recognise"])

    def __deepcopy__(self, memo: Any) -> NetworkModule:
        tensors = copy.deepcopy(self._tensors(), memo)
        return _rebuild(self.program, tensors, self.training, self.meta["recognise"])

    def _tensors(self) -> dict[str, torch.Tensor]:
        """Parameters by the network's names: those that the module holds, and those that stand in its code."""
        tensors = {n: getattr(self, attribute, None) for n, attribute in self.program.attributes.items()}
        return {**self.meta["consulted"], **{name: tensor for name, tensor in tensors.items() if tensor is not None}}


def _rebuild(
    program: Program, tensors: Mapping[str, torch.Tensor], training: bool, recognise: bool = True
) -> NetworkModule:
    return compile_program(program, tensors, recognise=recognise).train(training)


def compile_program(
    program: Program, tensors: Mapping[str, torch.Tensor], device: torch.device | None = None, recognise: bool = True
) -> NetworkModule:
    """Turn a program into a module.

    Args:
        program: see :mod:`deep500.networks.execution.program`.
        tensors: parameters (``nn.Parameter``) and buffers by the network's names; the module shares them.
        device: where it will run; where the tensors are if None.
        recognise: compute what is known when it compiles, and by one function what
            :mod:`deep500.networks.execution.recognition` knows.
    """
    if device is None:
        device = next((t.device for t in tensors.values() if isinstance(t, torch.Tensor)), torch.device("cpu"))
    values = KnownValues(program, tensors)
    kinds: dict[str, str] = {}
    short = program
    if recognise:
        short = tidied(fold(program, values, evaluate), values)
        short, kinds = recognised(short, OPS, values, values.trains)
    short = guarded(short)  # after attention, which needs no guard
    writer = _Writer(short, tensors, device, values)
    writer.write()
    module = NetworkModule(writer.root, writer.graph, "Network")
    module.meta.update(program=program, consulted=values.consulted, places=writer.places, sources=writer.sources)
    module.meta.update(recognise=recognise, recognised=kinds)
    return module


def attribute_names(names: Iterable[str]) -> dict[str, str]:
    """Identifiers for values' names, all different and none that a module or its ``forward`` uses itself.

    Example:
        >>> attribute_names(["conv1.weight", "conv1/weight", "train", "self"])
        {'conv1.weight': 'conv1_weight', 'conv1/weight': 'conv1_weight_1', 'train': 'train_1', 'self': 'self_1'}
    """
    taken, identifiers = {*dir(fx.GraphModule), "training", "graph", "self"}, {}
    for name in names:
        base = re.sub(r"\W", "_", name)
        base = f"p{base}" if not base or base[0].isdigit() or base[0] == "_" or keyword.iskeyword(base) else base
        identifiers[name] = _free(base, taken)
    return identifiers


def _free(base: str, taken: set[str]) -> str:
    """The name with a number after it if it is taken; takes it."""
    candidate, number = base, 0
    while candidate in taken:
        number += 1
        candidate = f"{base}_{number}"
    taken.add(candidate)
    return candidate


class _Writer:
    """Writes the graph of one program; ``root`` collects what the module will hold."""

    def __init__(
        self, program: Program, tensors: Mapping[str, torch.Tensor], device: torch.device, values: KnownValues
    ) -> None:
        self.program, self.tensors, self.device, self.values = program, tensors, device, values
        self.graph, self.root = fx.Graph(), dict[str, Any]()
        self.env: dict[str, Any] = {}
        self.host: set[str] = set()
        self.places: dict[str, str] = {}  # names in the code -> the network's node that they come from
        self.sources: dict[str, str] = {}  # names in the code -> the name of the node that they come from
        self.folded: dict[str, np.ndarray] = dict(program.constants)
        self.taken = {*dir(fx.GraphModule), "training", "graph", *program.attributes.values()}
        self.read = values_read(program.nodes, program.outputs)

    def write(self) -> None:
        """Write inputs, nodes and outputs."""
        arguments = attribute_names(self.program.inputs)
        for name in self.program.inputs:
            self.env[name] = self.graph.placeholder(arguments[name])
        for node in self.program.nodes:
            written = len(self.graph.nodes)
            if node.op_type == "Constant" and not node.domain:
                self.folded[node.outputs[0]] = constant_value(node)
                continue
            if is_custom(node):
                self.custom(node)
            else:
                lowering = OPS[node.domain, node.op_type].lowering
                plain = self.device.type == "cpu" or not self.host.intersection(node.reads)
                result = lowering(LoweredNode(self, node)) if lowering is not None and plain else None
                if result is not None:
                    self.env[node.outputs[0]] = result
                else:
                    self.call(node)
            place = f"node {node.name!r} ({f'{node.domain}.' if node.domain else ''}{node.op_type})"
            new = [line.name for line in islice(reversed(self.graph.nodes), len(self.graph.nodes) - written)]
            self.places.update(dict.fromkeys(new, place))
            self.sources.update(dict.fromkeys(new, node.name))
        results = [self.on_device(name) for name in self.program.outputs]
        self.graph.output(results[0] if len(results) == 1 else tuple(results))

    # -- values -----------------------------------------------------------------------------------------------------
    def value(self, name: str) -> Any:
        """The graph's node that holds a value; parameters and constants are read from the module on first use."""
        if name not in self.env:
            if name in self.program.attributes and name in self.tensors:
                self.env[name] = self.get_attr(self.program.attributes[name], self.tensors[name])
            elif name in self.folded:
                self.env[name] = self.buffer(self.folded[name])
            else:
                raise InputError(f"got {name!r}, which nothing provides; expected a value of the program")
        return self.env[name]

    def get_attr(self, attribute: str, value: Any) -> fx.Node:
        """Read something from the module."""
        if value is not None and not isinstance(value, (torch.Tensor, torch.nn.Module, bool)):
            raise UnsupportedOperator(
                f"got a constant of dtype {value.dtype}; expected one that torch has: use another backend"
            )
        self.root[attribute] = value
        return self.graph.create_node("get_attr", attribute)

    def buffer(self, array: np.ndarray) -> fx.Node:
        """A constant that the module holds."""
        return self.get_attr(_free("constant", self.taken), from_array(array).to(self.device))

    def training(self) -> fx.Node:
        """The executor's mode, read when the code runs."""
        if "" not in self.env:
            self.env[""] = self.get_attr("training", True)
        return self.env[""]

    def constant(self, name: str) -> np.ndarray | None:
        """A value that is known now: a constant, or a parameter that is not trained and small."""
        return self.folded[name] if name in self.folded else self.values(name)

    def on_device(self, name: str) -> Any:
        """A value where the program runs, wherever it was computed."""
        node = self.value(name)
        return self.graph.call_function(to_device, (node, str(self.device))) if name in self.host else node

    # -- nodes ------------------------------------------------------------------------------------------------------
    def call(self, node: Node) -> None:
        """Write a call of the table's function for a node and name its results."""
        entry = OPS[node.domain, node.op_type]
        static = {
            i: c.tolist()
            for i in entry.static
            if i < len(node.inputs) and node.inputs[i] and (c := self.constant(node.inputs[i])) is not None
        }
        self._refuse_on_card(node)
        on_host = self._is_host(node, static)
        args = [
            static[i] if i in static else None if not name else self._argument(name, on_host, i in entry.static)
            for i, name in enumerate(node.inputs)
        ]
        kwargs = {k: self._attribute(v) for k, v in entry.keywords(node.all_attributes()).items()}
        used = used_outputs(node, self.read)
        if "outputs" in entry.extras:
            kwargs["outputs"] = used
        args, narrow = self._widen(node, args)
        result = self.graph.call_function(entry.function, tuple(args), kwargs)
        several = len(used) > 1 or entry.many
        for i, name in enumerate(node.outputs[: len(used)]):
            if name and used[i]:
                part = self.graph.call_function(operator.getitem, (result, i)) if several else result
                self.env[name] = narrow(part, name)
        if on_host:
            self.host.update(node.writes)

    def custom(self, node: Node) -> None:
        """Write a call of a custom operator."""
        function = node_function(node, self.program.descriptors, self.device)
        result = self.graph.call_function(function, tuple(self.on_device(name) for name in node.inputs))
        for i, name in enumerate(node.outputs):
            if name and name in self.read:
                self.env[name] = self.graph.call_function(operator.getitem, (result, i))

    def _attribute(self, value: Any) -> Any:
        """An attribute as generated code can hold it: arrays and sub-graphs live in the module."""
        if isinstance(value, np.ndarray):
            return self.get_attr(_free("constant", self.taken), from_array(value))
        if isinstance(value, onnx.TypeProto):
            return None  # tensors know their types
        if isinstance(value, onnx.GraphProto):
            body = compile_program(from_graph(value, TARGET), {}, self.device)
            captured = [self.on_device(n) for n in captures(value)]
            return self.get_attr(_free("body", self.taken), body), captured, str(self.device)
        return value

    def _refuse_on_card(self, node: Node) -> None:
        """Raise UnsupportedOperator for a node that would fail on a GPU at its first run."""
        dtype = (
            self.program.descriptors[node.inputs[0]].dtype
            if node.inputs[0:1] and node.inputs[0] in self.program.descriptors
            else None
        )
        if self.device.type == "cuda" and node.op_type == "Einsum" and dtype in ("int32", "int64", "uint32", "uint64"):
            raise UnsupportedOperator(
                f"node {node.name!r} (Einsum): got {dtype} on {self.device}; expected floating-point numbers, as CUDA "
                "has no products of whole numbers: cast them to float64, or run on the processor"
            )

    def _is_host(self, node: Node, static: Mapping[int, Any]) -> bool:
        """Whether to compute a node on the processor, where shapes live, though the program runs elsewhere."""
        if self.device.type == "cpu":
            return False
        if node.graphs:
            return False  # its bodies are code for the device
        if node.op_type in _HOST_SOURCES:
            return True  # shapes are known there; on the device every use of a size would wait for it
        inputs = [n for i, n in enumerate(node.inputs) if n and i not in static]
        return any(n in self.host for n in inputs) and all(
            n in self.host or (n not in self.env and self.constant(n) is not None) for n in inputs
        )

    def _argument(self, name: str, on_host: bool, static: bool) -> Any:
        if name in self.host:
            return self.env[name] if on_host or static else self.on_device(name)
        if on_host and (constant := self.constant(name)) is not None:
            kwargs: dict[str, Any] = {"dtype": torch_dtype(constant.dtype.name)}
            return self.graph.call_function(torch.tensor, (constant.tolist(),), kwargs)
        return self.value(name)

    def _widen(self, node: Node, args: list[Any]) -> tuple[list[Any], Callable[[Any, str], Any]]:
        """Compute unsigned integers that torch cannot compute with in int64, and turn the results back."""
        dtypes = {
            n: self.program.descriptors[n].dtype for n in (*node.inputs, *node.outputs) if n in self.program.descriptors
        }
        if node.op_type in _MOVES or not _WIDE.intersection(d for d in dtypes.values() if d):
            return args, lambda part, name: part
        wide = [
            self.graph.call_function(torch.Tensor.to, (arg, torch.int64))
            if dtypes.get(name) in _WIDE and isinstance(arg, fx.Node)
            else arg
            for name, arg in zip(node.inputs, args, strict=True)
        ]

        def narrow(part: Any, name: str) -> Any:
            dtype = dtypes.get(name)
            return self.graph.call_function(torch.Tensor.to, (part, torch_dtype(dtype))) if dtype in _WIDE else part

        return wide, narrow


__all__ = ["TARGET", "NetworkModule", "attribute_names", "compile_program"]
