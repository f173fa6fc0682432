"""`Graph`: an ONNX graph that one can edit; all that transformations, gradients and backends know of a network.

It holds nodes in topological order, named inputs with dtype and shape, parameters with their initial values and named
outputs; no framework object. Every edit checks names, arity, attributes and cycles *before* it changes anything, so
a network is valid at every moment. Its operators mean what ONNX's newest opset says, with one freedom:
BatchNormalization with ``training_mode=0`` and Dropout without a ``training_mode`` input follow the *executor's* mode.

Users hold a :class:`~deep500.networks.network.Network`, which adds files, gradients and FLOPs. What edits a graph is of
the same kind afterwards (:meth:`Graph.copy`), so a network stays one.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar

import numpy as np
from numpy.typing import DTypeLike

from deep500.errors import NetworkError, nearest
from deep500.networks.checks import as_dtype, as_parameter, as_shape, check_name, check_storable, sort_nodes
from deep500.networks.hashing import content_hash
from deep500.networks.node import Node, check_node, first_variadic, most_outputs
from deep500.networks.shapes import infer_descriptors
from deep500.tensors import Dim, TensorDescriptor

if TYPE_CHECKING:
    from deep500.networks.drawing import Undrawn

AnyGraph = TypeVar("AnyGraph", bound="Graph")
"""A kind of graph: a function from graph to graph returns the kind that it takes."""
Choice: TypeAlias = str | Collection[str] | Callable[[str, np.ndarray], bool]
"""Which arrays of a file train, as users say it: a name or pattern (``"*.weight"``), several, or a function of both."""


@dataclass
class Parameter:
    """A named array of a network. What is not trainable is a constant, or state such as a running mean.

    Attributes:
        doubt: why an array of a file stays fixed although it may be a weight; else empty.
        undrawn: who draws the initial value, which is not here (:mod:`deep500.networks.drawing`); else None.
    """

    value: np.ndarray
    trainable: bool = True
    doubt: str = ""
    undrawn: Undrawn | None = None


def _names(value: str | Sequence[str]) -> tuple[str, ...]:
    return (value,) if isinstance(value, str) else tuple(value)


def _without_absent(attributes: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in attributes.items() if value is not None}


class Graph:
    """An editable graph of ONNX operators: nodes in topological order, inputs, parameters and outputs.

    Attributes:
        name: of the network; shown in tables and written to files, not part of its identity.
        inputs: descriptors by name, in the order in which they were declared.
        outputs: names of values.

    Example:
        >>> import numpy as np
        >>> net = Graph("tiny")
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
        self._inner: set[str] = set()  # names that sub-graphs use for themselves
        self._numbers: dict[str, int] = {}  # where fresh_name goes on counting
        self._edits = 0
        self._descriptors: tuple[int, dict[str, TensorDescriptor]] | None = None

    # -- looking (never changes anything) ---------------------------------------------------------------------------
    @property
    def version(self) -> int:
        """Grows with every edit: code compiled from the network is stale once it differs."""
        return self._edits

    @property
    def nodes(self) -> tuple[Node, ...]:
        """All nodes, producers before consumers."""
        return tuple(self._nodes.values())

    @property
    def parameters(self) -> dict[str, Parameter]:
        """Parameters by name, in the order in which they were added (a copy: edit with ``add_parameter``)."""
        return dict(self._parameters)

    def trainable(self) -> list[str]:
        """Names of the trainable parameters."""
        return [name for name, parameter in self._parameters.items() if parameter.trainable]

    def parameter(self, name: str) -> Parameter:
        """The parameter of that name; raises NetworkError with the nearest name."""
        if name not in self._parameters:
            raise NetworkError(
                f"got parameter {name!r}; expected one of the network's: {nearest(name, self._parameters)}"
            )
        return self._parameters[name]

    def has_parameter(self, name: str) -> bool:
        """Whether there is a parameter of that name."""
        return name in self._parameters

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
        name = prefix
        while self.has_value(name) or name in self._nodes or name in self._inner:
            self._numbers[prefix] = self._numbers.get(prefix, 0) + 1
            name = f"{prefix}_{self._numbers[prefix]}"
        return name

    def descriptors(self) -> dict[str, TensorDescriptor]:
        """Dtype and shape of every value, as far as they can be inferred (cached until the next edit)."""
        if self._descriptors is None or self._descriptors[0] != self._edits:
            self._descriptors = (self._edits, infer_descriptors(self, self._known))
        return self._descriptors[1]

    @property
    def declared(self) -> dict[str, TensorDescriptor]:
        """Descriptors that a file declared for values of nodes, and inference may miss (a copy)."""
        return dict(self._known)

    # -- editing ----------------------------------------------------------------------------------------------------
    def add_input(self, name: str, shape: Sequence[Dim] | None, dtype: DTypeLike = "float32") -> None:
        """Declare an input; a string in the shape is a symbolic size, None in place of the shape an unknown rank."""
        self._check_new_value(name, outermost=True)
        self.inputs[name] = TensorDescriptor(as_dtype(name, dtype), as_shape(name, shape))
        self._touch()

    def set_input(self, name: str, shape: Sequence[Dim] | None, dtype: DTypeLike | None = None) -> None:
        """Give an input another shape and, if one is given, another dtype."""
        old = self._input(name)
        self.inputs[name] = TensorDescriptor(as_dtype(name, dtype) or old.dtype, as_shape(name, shape))
        self._touch()

    def add_parameter(self, name: str, value: Any, trainable: bool = True, doubt: str = "", copy: bool = True) -> None:
        """Add an array under a name. Give it its final dtype: nothing is converted.

        With ``copy=False`` an array is taken as it is: the caller gives it up.
        """
        self._check_new_value(name, outermost=True)
        self._parameters[name] = Parameter(as_parameter(name, value, trainable, copy), trainable, doubt)
        self._touch()

    def set_parameter(self, name: str, value: Any, trainable: bool | None = None) -> None:
        """Replace the value of a parameter (its shape may change) and, if given, whether it is trainable."""
        old = self.parameter(name)
        doubt = old.doubt if trainable is None else ""
        trainable = old.trainable if trainable is None else trainable
        array = as_parameter(name, value, trainable)
        if array.dtype != old.value.dtype:
            raise NetworkError(
                f"parameter {name!r}: got dtype {array.dtype}; expected {old.value.dtype}: convert it first"
            )
        self._parameters[name] = Parameter(array, trainable, doubt)
        self._forget_after([name])
        self._touch()

    def put_parameters(self, parameters: Mapping[str, Parameter]) -> None:
        """Hold these very parameters, not copies, under names that are new or those of parameters."""
        for name in parameters.keys() - self._parameters.keys():
            self._check_new_value(name, outermost=True)
        self._parameters.update(parameters)
        self._touch()

    def parameter_to_input(self, name: str) -> np.ndarray:
        """Make a parameter an input of its dtype and shape, and return the array that it had."""
        value = self.parameter(name).value
        del self._parameters[name]
        self.inputs[name] = TensorDescriptor(value.dtype.name, value.shape)
        self._touch()
        return value

    def add_node(
        self,
        op_type: str,
        inputs: str | Sequence[str],
        outputs: str | Sequence[str],
        name: str | None = None,
        domain: str = "",
        **attributes: Any,
    ) -> None:
        """Add an operator after everything it reads.

        Args:
            op_type: the operator's name.
            inputs: names of existing values, ``""`` for an optional input left out.
            outputs: new names.
            name: a name of its own; made from the first output if absent.
            domain: ``""`` for ONNX's own operators, ``"deep500"`` for custom ones.
            attributes: ONNX's attributes, or a custom operator's arguments; None means absent.

        Raises:
            NetworkError: unknown value, duplicate name, wrong arity, unknown, missing or ill-typed attribute.
        """
        outs = _names(outputs)
        name = self.fresh_name(f"{op_type}_{next(filter(None, outs), '')}") if name is None else name
        self.insert(Node(op_type, _names(inputs), outs, name, domain, _without_absent(attributes)))

    def insert(self, node: Node) -> None:
        """Add a node as it is after everything it reads; see :meth:`add_node`."""
        self._check_new_node(node)
        check_node(node)
        check_storable(node)
        self._nodes[node.name] = node
        self._producers.update(dict.fromkeys(node.writes, node.name))
        self._inner.update(node.defines)
        self._touch()

    def set_nodes(self, nodes: Iterable[Node]) -> None:
        """Put these nodes in the place of all: some changed, left out or new, in any order.

        Raises:
            NetworkError: two of one name or output, a value that nothing produces any more, or a cycle.
        """
        nodes = list(nodes)
        producers = {value: node.name for node in nodes for value in node.writes}
        if len({node.name for node in nodes}) < len(nodes) or len(producers) < sum(len(node.writes) for node in nodes):
            raise NetworkError("got two nodes of one name or with one output; expected different ones: rename one")
        ordered = sort_nodes({node.name: node for node in nodes})
        lost = self._producers.keys() - producers.keys()
        reader = next((node for node in nodes if lost.intersection(node.reads)), None)
        if reader is not None or lost.intersection(self.outputs):
            gone = sorted(lost.intersection(reader.reads if reader else self.outputs))
            raise NetworkError(
                f"{f'node {reader.name!r}' if reader else 'outputs'}: got a removal of {gone}; expected what is read "
                "to be taken over: name its successor"
            )
        self._commit(ordered)
        self._producers = producers
        self._known = {value: known for value, known in self._known.items() if value in producers}

    def declare(self, descriptors: Mapping[str, TensorDescriptor]) -> None:
        """Say what values of nodes are, where inference may miss it; names of other values are passed over."""
        self._known.update((name, known) for name, known in descriptors.items() if name in self._producers)
        self._touch()

    def remove_node(self, name: str, reconnect: bool = False) -> None:
        """Remove a node whose outputs are unread.

        With ``reconnect=True`` the readers of its first output read its first input instead; an input that already is
        an output of the network stays one output. Further outputs must be unread.
        """
        node = self.node(name)
        if reconnect:
            if not (node.inputs and node.inputs[0] and node.outputs[0]):
                raise NetworkError(
                    f"node {name!r}: got reconnect=True for {node}; expected a first input and a first output: "
                    "redirect its readers with replace_value"
                )
            self._redirect({node.outputs[0]: node.inputs[0]}, without=name)
            return
        for value in node.writes:
            if readers := self._readers(value):
                raise NetworkError(
                    f"node {name!r}: got a removal while {value!r} is read by {', '.join(readers)}; "
                    "expected no reader: remove those first, or pass reconnect=True"
                )
        self._drop(node)
        self._touch()

    def replace(
        self, name: str, op_type: str, inputs: str | Sequence[str] | None = None, domain: str = "", **attributes: Any
    ) -> None:
        """Put another operator in a node's place: same name, same outputs, by default the same inputs.

        Outputs that the new operator does not have are dropped if they are unread.
        """
        old = self.node(name)
        outputs = list(old.outputs)
        while len(outputs) > most_outputs(op_type, domain) and not self._readers(outputs[-1]):
            outputs.pop()
        new_inputs = old.inputs if inputs is None else _names(inputs)
        new = Node(op_type, new_inputs, tuple(outputs), name, domain, _without_absent(attributes))
        self._check_reads(new)
        check_node(new)
        check_storable(new)
        self._commit({**self._nodes, name: new})
        for value in set(old.writes) - set(new.writes):
            del self._producers[value]
        self._forget_after(new.writes)

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
        index = len(inputs) if index is None else index
        if not 0 <= index <= len(inputs):
            raise NetworkError(
                f"node {consumer!r}: got input index {index}; expected 0 to {len(inputs)}: choose one of its inputs"
            )
        inputs[index : index + 1] = [value]
        self._rewire(node, inputs)

    def remove_edge(self, producer: str, consumer: str) -> None:
        """Let a node stop reading a value, everywhere among its inputs: optional ones, or some of a variadic list."""
        value, node = self._value_of(producer), self.node(consumer)
        if value not in node.inputs:
            raise NetworkError(
                f"node {consumer!r}: got no input {value!r}; expected one of {node.inputs}: name an edge that exists"
            )
        variadic = first_variadic(node.op_type, node.domain)
        inputs = ["" if n == value else n for n in node.inputs[:variadic]]
        inputs += [n for n in node.inputs[variadic:] if n != value]
        while inputs and not inputs[-1]:
            inputs.pop()
        self._rewire(node, inputs)

    def replace_value(self, old: str, new: str) -> None:
        """Let every reader of ``old``, the outputs included, read ``new`` instead (an output stays named once)."""
        self._redirect({self._value_of(old): self._value_of(new)})

    def add_output(self, name: str) -> None:
        """Declare an existing value as an output (again is an error)."""
        if not self.has_value(name):
            raise NetworkError(
                f"output {name!r}: got a name that nothing produces; expected a value: {nearest(name, self.values())} "
                "Add its producer first"
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
        """Remove an unread parameter."""
        self.parameter(name)
        self._check_unread(name)
        del self._parameters[name]
        self._touch()

    def remove_input(self, name: str) -> None:
        """Remove an unread input."""
        self._input(name)
        self._check_unread(name)
        del self.inputs[name]
        self._touch()

    # -- the whole ------------------------------------------------------------------------------------------------
    def take_over(self, other: Graph) -> None:
        """Hold what another graph holds, which is given up."""
        self.__dict__.update(other.__dict__)

    def bare(self: AnyGraph) -> AnyGraph:
        """A graph of the same kind and name without content."""
        return type(self)(self.name)

    def copy(self: AnyGraph, arrays: bool = True) -> AnyGraph:
        """A graph of the same kind with the same content (a plain network, also of a bound one).

        With ``arrays=False`` both hold the same arrays: for who only reads them.
        """
        self.sync()
        copy = self.bare()
        copy.inputs, copy.outputs = dict(self.inputs), list(self.outputs)
        copy._parameters = {
            n: replace(p, value=p.value.copy() if arrays and p.undrawn is None else p.value)
            for n, p in self._parameters.items()
        }
        copy._nodes, copy._producers = dict(self._nodes), dict(self._producers)
        copy._known, copy._inner, copy._numbers = dict(self._known), set(self._inner), dict(self._numbers)
        return copy

    def content_hash(self) -> str:
        """SHA-256 over operators, attributes, names, parameters, inputs and outputs (not over the network's name)."""
        self.sync()
        return content_hash(self)

    def __eq__(self, other: object) -> bool:
        return self.content_hash() == other.content_hash() if isinstance(other, Graph) else NotImplemented

    __hash__ = None  # type: ignore[assignment]  # it changes

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.name!r}: {len(self._nodes)} nodes, {len(self._parameters)} parameters>"

    def sync(self) -> None:
        """Bring parameter values up to date; a bound network reads them from its executor."""

    # -- what edits share: first all checks, then the whole change or none ------------------------------------------
    def _input(self, name: str) -> TensorDescriptor:
        """The input of that name; raises NetworkError with the nearest name."""
        if name not in self.inputs:
            raise NetworkError(f"got input {name!r}; expected one of the network's: {nearest(name, self.inputs)}")
        return self.inputs[name]

    def _value_of(self, name: str) -> str:
        """A value by its own name or by that of the node whose first output it is."""
        if self.has_value(name):
            return name
        if name in self._nodes:
            return self._nodes[name].writes[0]
        raise NetworkError(f"got {name!r}; expected a value or a node: {nearest(name, [*self.values(), *self._nodes])}")

    def _readers(self, value: str) -> list[str]:
        """Names of the nodes that read a value, and a phrase for the outputs: for error messages."""
        return [n.name for n in self.consumers(value)] + ["the network's outputs"] * (value in self.outputs)

    def _check_new_value(self, name: Any, outermost: bool = False) -> None:
        """The name must be usable and not yet be a value's, nor (``outermost``: inputs, parameters) a sub-graph's."""
        check_name(name, "a value's")
        if self.has_value(name) or (outermost and name in self._inner):
            raise NetworkError(
                f"got {name!r} twice as a value's name; expected a new one: rename it or use fresh_name({name!r})"
            )

    def _check_new_node(self, node: Node) -> None:
        """The node's name and outputs must be new, its inputs must exist."""
        check_name(node.name, "a node's")
        if node.name in self._nodes:
            raise NetworkError(f"got {node.name!r} as a node's name, which is taken; expected a new one: rename it")
        if len(set(node.writes)) != len(node.writes):
            raise NetworkError(f"node {node.name!r}: got outputs {node.outputs}; expected different names: rename one")
        for value in node.writes:
            self._check_new_value(value)
        self._check_reads(node)

    def _check_reads(self, node: Node) -> None:
        """Everything that the node reads must exist, and its sub-graphs must not hide it."""
        for value in node.reads:
            if not self.has_value(value):
                raise NetworkError(
                    f"node {node.name!r} reads {value!r}, which nothing produces ({nearest(value, self.values())}); "
                    "add its producer first or declare it with add_input()"
                )
        hidden = next((v for v in node.defines if self.has_value(v)), None)
        if hidden is not None:
            raise NetworkError(
                f"node {node.name!r}: got a sub-graph that defines {hidden!r}, which the network has; expected new "
                "names: rename it in the sub-graph"
            )

    def _check_unread(self, value: str) -> None:
        """No node may read the value, and it must not be an output."""
        if readers := self._readers(value):
            raise NetworkError(
                f"{value!r}: got a removal while {', '.join(readers)} read it; expected no reader: remove those first"
            )

    def _touch(self) -> None:
        """Mark the network as changed: see :attr:`version`."""
        self._edits += 1

    def _drop(self, node: Node) -> None:
        """Take out a node whose outputs are unread."""
        self._nodes = {name: other for name, other in self._nodes.items() if name != node.name}
        for value in node.writes:
            del self._producers[value]
            self._known.pop(value, None)

    def _rewire(self, node: Node, inputs: Sequence[str]) -> None:
        """Let a node read other values."""
        new = replace(node, inputs=tuple(inputs))
        check_node(new)
        self._commit({**self._nodes, node.name: new})
        self._forget_after(new.writes)

    def _redirect(self, names: dict[str, str], without: str | None = None) -> None:
        """Let all readers of ``names`` (old to new) read the new values, and drop the node ``without``.

        Both at once: while the node exists its outputs cannot go, and once it is gone its readers would read nothing.
        All is computed on the side, since a cycle or a reader that is left must leave the network as it was.
        """
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
        read = [n for n in removed if n in renamed or any(n in node.reads for node in nodes.values())]
        if read:
            raise NetworkError(
                f"node {without!r}: got a removal while {read[0]!r} is read; expected no reader: remove those first"
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
        """Forget what the file declared about these values and all that depend on them.

        A declaration was made for the network as it was in the file; after an edit upstream it may be wrong.
        """
        if self._known:
            stale = set(values)
            for node in self._nodes.values():
                if not stale.isdisjoint(node.reads):
                    stale.update(node.writes)
            self._known = {n: d for n, d in self._known.items() if n not in stale}
