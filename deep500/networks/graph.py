"""`Network`: an ONNX graph that one can edit.

It holds nodes in topological order, named inputs with dtype and shape, parameters with their initial values and named
outputs; no framework object. Every edit checks names, arity, attributes and cycles *before* it changes anything, so
a network is valid at every moment. Its operators mean what ONNX's newest opset says, with one freedom:
BatchNormalization with ``training_mode=0`` and Dropout without a ``training_mode`` input follow the *executor's* mode.
"""

from __future__ import annotations

import heapq
import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import onnx

from deep500.errors import NetworkError, nearest
from deep500.networks.node import Node, check_node
from deep500.tensors import Dim, TensorDescriptor, dtype_to_onnx


@dataclass
class Parameter:
    """A named array of a network. What is not trainable is a constant, or state such as a running mean."""

    value: np.ndarray
    trainable: bool = True


def _names(value: str | Sequence[str]) -> tuple[str, ...]:
    return (value,) if isinstance(value, str) else tuple(value)


class Network:
    """An editable graph of ONNX operators.

    Example:
        >>> net = Network("tiny")
        >>> net.add_input("x", ("N", 3))
        >>> net.add_parameter("w", np.ones((3, 2), "float32"))
        >>> net.add_node("MatMul", ["x", "w"], ["y"], name="product")
        >>> net.add_output("y")
        >>> [str(node) for node in net.nodes]
        ['y = MatMul(x, w)  # product']
    """

    def __init__(self, name: str = "network") -> None:
        self.name = name
        self.inputs: dict[str, TensorDescriptor] = {}
        self.outputs: list[str] = []
        self._parameters: dict[str, Parameter] = {}
        self._nodes: dict[str, Node] = {}
        self._producers: dict[str, str] = {}  # value -> name of the node that writes it
        self._known: dict[str, TensorDescriptor] = {}  # descriptors that a file declared and inference may miss
        self._version = 0
        self._descriptors: tuple[int, dict[str, TensorDescriptor]] | None = None

    # -- looking ----------------------------------------------------------------------------------------------------
    @property
    def version(self) -> int:
        """Grows with every edit; whoever compiled the network compares it to know that it must compile again."""
        return self._version

    @property
    def nodes(self) -> tuple[Node, ...]:
        """All nodes, producers before consumers."""
        return tuple(self._nodes.values())

    @property
    def parameters(self) -> dict[str, Parameter]:
        """Parameters by name, in the order in which they were added (a copy: edit with :meth:`add_parameter`)."""
        return dict(self._parameters)

    def trainable(self) -> list[str]:
        """Names of the trainable parameters."""
        return [name for name, parameter in self._parameters.items() if parameter.trainable]

    def node(self, name: str) -> Node:
        """The node of that name; raises NetworkError with the nearest name."""
        if name not in self._nodes:
            raise NetworkError(f"got node {name!r}; expected one of the network's: {nearest(name, self._nodes)}")
        return self._nodes[name]

    def producer(self, value: str) -> Node | None:
        """The node that writes a value, None for inputs and parameters."""
        owner = self._producers.get(value)
        return None if owner is None else self._nodes[owner]

    def consumers(self, value: str) -> list[Node]:
        """The nodes that read a value, in topological order."""
        return [node for node in self._nodes.values() if value in node.reads]

    def has_value(self, name: str) -> bool:
        """Whether an input, a parameter or a node provides this value."""
        return name in self.inputs or name in self._parameters or name in self._producers

    def values(self) -> list[str]:
        """Names of all values: inputs, parameters, then node outputs."""
        return [*self.inputs, *self._parameters, *self._producers]

    def fresh_name(self, prefix: str) -> str:
        """A name beginning with ``prefix`` that neither a value nor a node has."""
        name, number = prefix, 0
        while self.has_value(name) or name in self._nodes:
            number += 1
            name = f"{prefix}_{number}"
        return name

    def descriptors(self) -> dict[str, TensorDescriptor]:
        """Dtype and shape of every value, as far as they can be inferred (cached until the next edit)."""
        if self._descriptors is None or self._descriptors[0] != self._version:
            from deep500.networks.shapes import infer_descriptors

            self._descriptors = (self._version, infer_descriptors(self))
        return self._descriptors[1]

    # -- editing ----------------------------------------------------------------------------------------------------
    def add_input(self, name: str, shape: Sequence[Dim] | None, dtype: str = "float32") -> None:
        """Declare an input; a string in the shape is a symbolic size, None in place of the shape an unknown rank."""
        self._check_new_value(name)
        dtype_to_onnx(dtype)
        sizes = None if shape is None else tuple(int(d) if isinstance(d, np.integer) else d for d in shape)
        if sizes is not None and any(isinstance(d, int) and d < 0 for d in sizes):
            raise NetworkError(f"input {name!r}: got shape {sizes}; expected sizes >= 0: use a string for a free size")
        self.inputs[name] = TensorDescriptor(dtype, sizes)
        self._touch()

    def add_parameter(self, name: str, value: Any, trainable: bool = True) -> None:
        """Add an array under a name. Give it its final dtype: nothing is converted."""
        self._check_new_value(name)
        array = np.array(value)
        dtype_to_onnx(array.dtype)
        if trainable and array.dtype.kind in "iub":
            raise NetworkError(
                f"parameter {name!r}: got dtype {array.dtype}; expected a floating one to train: pass trainable=False"
            )
        self._parameters[name] = Parameter(array, trainable)
        self._touch()

    def set_parameter(self, name: str, value: Any, trainable: bool | None = None) -> None:
        """Replace the value of a parameter (its shape may change) and, if given, whether it is trainable."""
        old = self._parameter(name)
        array = np.array(value)
        if array.dtype != old.value.dtype:
            raise NetworkError(
                f"parameter {name!r}: got dtype {array.dtype}; expected {old.value.dtype}: convert it first"
            )
        self._parameters[name] = Parameter(array, old.trainable if trainable is None else trainable)
        self._touch()

    def add_node(self, op_type: str, inputs: str | Sequence[str], outputs: str | Sequence[str],
                 name: str | None = None, domain: str = "", **attributes: Any) -> None:  # fmt: skip
        """Add an operator after everything it reads.

        Args:
            op_type: ONNX's operator name.
            inputs: names of existing values, ``""`` for an optional input left out.
            outputs: new names.
            name: a name of its own; made from the first output if absent.
            domain: ``""`` for ONNX's own operators.
            attributes: ONNX's attributes; None means absent.

        Raises:
            NetworkError: unknown value, duplicate name, wrong arity, unknown, missing or ill-typed attribute.
        """
        outs = _names(outputs)
        name = self.fresh_name(f"{op_type}_{outs[0] if outs else ''}") if name is None else name
        given = {n: v for n, v in attributes.items() if v is not None}
        node = Node(op_type, _names(inputs), outs, name, "" if domain == "ai.onnx" else domain, given)
        self._check_new_node_name(name)
        if len(set(node.writes)) != len(node.writes):
            raise NetworkError(f"node {name!r}: got outputs {outs}; expected different names: rename one")
        for value in node.writes:
            self._check_new_value(value)
        self._check_reads(node)
        check_node(node)
        self._insert(node)

    def remove_node(self, name: str, reconnect: bool = False) -> None:
        """Remove a node whose outputs nobody reads; ``reconnect=True`` hands its readers its first input instead."""
        node = self.node(name)
        if reconnect:
            self._redirect({node.outputs[0]: node.inputs[0]}, without=name)
            return
        for value in node.writes:
            readers = [n.name for n in self.consumers(value)] + ["the network's outputs"] * (value in self.outputs)
            if readers:
                raise NetworkError(
                    f"node {name!r}: got a removal while {value!r} is read by {', '.join(readers)}; expected no reader: "
                    "remove those first, or pass reconnect=True"
                )
        del self._nodes[name]
        for value in node.writes:
            del self._producers[value]
        self._touch()

    def replace(self, name: str, op_type: str, inputs: str | Sequence[str] | None = None,
                domain: str = "", **attributes: Any) -> None:  # fmt: skip
        """Put another operator in a node's place: same name, same outputs, by default the same inputs."""
        old = self.node(name)
        given = {n: v for n, v in attributes.items() if v is not None}
        new = Node(op_type, old.inputs if inputs is None else _names(inputs), old.outputs, name, domain, given)
        self._check_reads(new)
        check_node(new)
        self._commit({**self._nodes, name: new})

    def add_edge(self, producer: str, consumer: str, index: int | None = None) -> None:
        """Let a node read one more value, or another one.

        Args:
            producer: a value, or a node (then its first output).
            consumer: name of the reading node.
            index: which input to overwrite; None appends.

        Raises:
            NetworkError: unknown names, a cycle, or an arity that the operator does not have.
        """
        value, node = self._value_of(producer), self.node(consumer)
        inputs = list(node.inputs)
        if index is None:
            inputs.append(value)
        elif 0 <= index <= len(inputs):
            inputs[index : index + 1] = [value]
        else:
            raise NetworkError(
                f"node {consumer!r}: got input index {index}; expected 0 to {len(inputs)}: choose one of its inputs"
            )
        self._rewire(node, inputs)

    def remove_edge(self, producer: str, consumer: str) -> None:
        """Let a node stop reading a value; the input must be optional or one of a variadic list."""
        value, node = self._value_of(producer), self.node(consumer)
        if value not in node.inputs:
            raise NetworkError(
                f"node {consumer!r}: got no input {value!r}; expected one of {node.inputs}: name an edge that exists"
            )
        shorter = [n for n in node.inputs if n != value]
        blank = ["" if n == value else n for n in node.inputs]
        while blank and not blank[-1]:
            blank.pop()
        from deep500.networks.node import find_schema

        schema = find_schema(node.op_type, node.domain)
        variadic = onnx.defs.OpSchema.FormalParameterOption.Variadic
        is_variadic = schema is None or any(i.option == variadic for i in schema.inputs)
        self._rewire(node, shorter if is_variadic else blank)

    def replace_value(self, old: str, new: str) -> None:
        """Let every reader of ``old``, the outputs included, read ``new`` instead."""
        for name in (old, new):
            self._value_of(name)
        self._redirect({old: new})

    def add_output(self, name: str) -> None:
        """Declare an existing value as an output (again is an error)."""
        if not self.has_value(name):
            raise NetworkError(
                f"output {name!r}: got a name that nothing produces; {nearest(name, self.values())} Add its producer first"
            )
        if name in self.outputs:
            raise NetworkError(f"output {name!r}: got it a second time; expected a new one: it already is an output")
        self.outputs.append(name)
        self._touch()

    def remove_output(self, name: str) -> None:
        """Stop declaring a value as an output."""
        if name not in self.outputs:
            raise NetworkError(f"got output {name!r}; expected one of the network's: {nearest(name, self.outputs)}")
        self.outputs.remove(name)
        self._touch()

    def remove_parameter(self, name: str) -> None:
        """Remove a parameter that nobody reads."""
        self._parameter(name)
        self._check_unread(name)
        del self._parameters[name]
        self._touch()

    def remove_input(self, name: str) -> None:
        """Remove an input that nobody reads."""
        if name not in self.inputs:
            raise NetworkError(f"got input {name!r}; expected one of the network's: {nearest(name, self.inputs)}")
        self._check_unread(name)
        del self.inputs[name]
        self._touch()

    # -- in and out -------------------------------------------------------------------------------------------------
    @classmethod
    def from_onnx(cls, model: str | os.PathLike[str] | bytes | onnx.ModelProto) -> Network:
        """Read an ONNX model; see :func:`deep500.networks.onnx_io.load`."""
        from deep500.networks.onnx_io import load

        return load(model)

    def to_onnx(self, path: str | os.PathLike[str] | None = None, opset: int | None = None) -> onnx.ModelProto:
        """The network as an ONNX model, written to ``path`` if given; see :func:`deep500.networks.onnx_io.dump`."""
        from deep500.networks.onnx_io import dump

        self._sync()
        return dump(self, path, opset)

    def copy(self) -> Network:
        """A network of its own with the same content (a plain one, also of a bound network)."""
        self._sync()
        twin = Network(self.name)
        twin.inputs, twin.outputs = dict(self.inputs), list(self.outputs)
        twin._parameters = {n: replace(p, value=p.value.copy()) for n, p in self._parameters.items()}
        twin._nodes, twin._producers, twin._known = (
            dict(self._nodes),
            dict(self._producers),
            dict(self._known),
        )
        return twin

    def content_hash(self) -> str:
        """SHA-256 over operators, attributes, names, parameters, inputs and outputs (not over the network's name)."""
        from deep500.networks.onnx_io import content_hash

        self._sync()
        return content_hash(self)

    def __eq__(self, other: object) -> bool:
        return self.content_hash() == other.content_hash() if isinstance(other, Network) else NotImplemented

    __hash__ = None  # type: ignore[assignment]  # it changes

    def __str__(self) -> str:
        from deep500.networks.summary import summary

        return summary(self)

    def __repr__(self) -> str:
        return f"<Network {self.name!r}: {len(self._nodes)} nodes, {len(self._parameters)} parameters>"

    # -- gradients --------------------------------------------------------------------------------------------------
    def with_gradient(self, loss: str = "loss", wrt: Iterable[str] | None = None) -> Network:
        """A copy whose further outputs are the gradients of ``loss``; see :mod:`deep500.networks.autodiff`."""
        from deep500.networks.autodiff import with_gradient

        return with_gradient(self, loss, wrt)

    def gradient(self, loss: str = "loss") -> list[tuple[str, str]]:
        """``[(parameter, name of its gradient)]`` for every trainable parameter that ``loss`` depends on."""
        from deep500.networks.autodiff import gradient_names

        return gradient_names(self, loss)

    # -- inside -----------------------------------------------------------------------------------------------------
    def _sync(self) -> None:
        """Bring parameter values up to date; a bound network reads them from its executor."""

    def _touch(self) -> None:
        self._version += 1

    def _parameter(self, name: str) -> Parameter:
        if name not in self._parameters:
            raise NetworkError(
                f"got parameter {name!r}; expected one of the network's: {nearest(name, self._parameters)}"
            )
        return self._parameters[name]

    def _value_of(self, name: str) -> str:
        if self.has_value(name):
            return name
        if name in self._nodes:
            return self._nodes[name].outputs[0]
        raise NetworkError(f"got {name!r}; expected a value or a node: {nearest(name, [*self.values(), *self._nodes])}")

    def _check_new_value(self, name: str) -> None:
        if not name or not isinstance(name, str):
            raise NetworkError(f"got {name!r} as a value's name; expected a non-empty string: name it")
        if self.has_value(name):
            raise NetworkError(
                f"got {name!r} twice as a value's name; expected a new one: rename it or use fresh_name({name!r})"
            )

    def _check_new_node_name(self, name: str) -> None:
        if not name or name in self._nodes:
            raise NetworkError(
                f"got {name!r} as a node's name, which is {'taken' if name else 'empty'}; expected a new one: rename it"
            )

    def _check_reads(self, node: Node) -> None:
        for value in node.reads:
            if not self.has_value(value):
                raise NetworkError(
                    f"node {node.name!r} reads {value!r}, which nothing produces ({nearest(value, self.values())}); "
                    "add its producer first or declare it with add_input()"
                )

    def _check_unread(self, value: str) -> None:
        readers = [n.name for n in self.consumers(value)] + ["the network's outputs"] * (value in self.outputs)
        if readers:
            raise NetworkError(
                f"{value!r}: got a removal while {', '.join(readers)} read it; expected no reader: remove those first"
            )

    def _insert(self, node: Node) -> None:
        self._nodes[node.name] = node
        self._producers.update(dict.fromkeys(node.writes, node.name))
        self._touch()

    def _rewire(self, node: Node, inputs: Sequence[str]) -> None:
        new = replace(node, inputs=tuple(inputs))
        check_node(new)
        self._commit({**self._nodes, node.name: new})

    def _redirect(self, names: dict[str, str], without: str | None = None) -> None:
        nodes = {}
        for node in self._nodes.values():
            if node.name != without:
                inputs = tuple(names.get(n, n) for n in node.inputs)
                if set(node.reads) - set(node.inputs) & set(names):
                    raise NetworkError(f"node {node.name!r}: got a redirection of a value that its sub-graph captures; expected none: edit the sub-graph")  # fmt: skip
                nodes[node.name] = node if inputs == node.inputs else replace(node, inputs=inputs)
        renamed = list(dict.fromkeys(names.get(n, n) for n in self.outputs))
        removed = self._nodes[without].writes if without else ()
        still = [n for n in removed if n in renamed or any(n in node.reads for node in nodes.values())]
        if still:
            raise NetworkError(
                f"node {without!r}: got a removal while {still[0]!r} is read; expected no reader: remove those first"
            )
        self._commit(nodes)
        self.outputs = renamed
        for value in removed:
            del self._producers[value]

    def _commit(self, nodes: dict[str, Node]) -> None:
        """Take over edited nodes in topological order, or raise NetworkError naming a cycle and change nothing."""
        self._nodes = sort_nodes(nodes)
        self._touch()


def sort_nodes(nodes: dict[str, Node]) -> dict[str, Node]:
    """Nodes with producers before consumers, otherwise in the order given; NetworkError naming a cycle (Kahn 1962)."""
    order = {name: i for i, name in enumerate(nodes)}
    owner = {value: name for name, node in nodes.items() for value in node.writes}
    readers: dict[str, list[str]] = {name: [] for name in nodes}
    waiting = dict.fromkeys(nodes, 0)
    for name, node in nodes.items():
        for source in {owner[v] for v in node.reads if v in owner}:
            readers[source].append(name)
            waiting[name] += 1
    ready = [(order[name], name) for name, count in waiting.items() if count == 0]
    heapq.heapify(ready)
    done: dict[str, Node] = {}
    while ready:
        _, name = heapq.heappop(ready)
        done[name] = nodes[name]
        for reader in readers[name]:
            waiting[reader] -= 1
            if waiting[reader] == 0:
                heapq.heappush(ready, (order[reader], reader))
    if len(done) != len(nodes):
        stuck = [name for name in nodes if name not in done]
        raise NetworkError(
            f"got a cycle through nodes {', '.join(map(repr, stuck[:6]))}; expected an acyclic graph: remove one of these edges"
        )
    return done
