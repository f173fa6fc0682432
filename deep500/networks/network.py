"""`Network`: an ONNX graph that one can edit.

It holds nodes in topological order, named inputs with dtype and shape, parameters with their initial values and named
outputs; no framework object. Every edit checks names, arity, attributes and cycles *before* it changes anything, so
a network is valid at every moment. Its operators mean what ONNX's newest opset says, with one freedom:
BatchNormalization with ``training_mode=0`` and Dropout without a ``training_mode`` input follow the *executor's* mode.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import onnx

from deep500.errors import NetworkError, nearest
from deep500.networks.checks import (
    as_parameter,
    as_shape,
    check_dtype,
    check_new_value,
    check_reads,
    check_storable,
    check_unread,
    sort_nodes,
)
from deep500.networks.node import Node, check_node, first_variadic, most_outputs
from deep500.networks.rewiring import Rewiring
from deep500.networks.structure import Parameter
from deep500.tensors import Dim, TensorDescriptor

if TYPE_CHECKING:
    from deep500.networks.flops import FlopCount

__all__ = ["Network", "Parameter", "sort_nodes"]


def _names(value: str | Sequence[str]) -> tuple[str, ...]:
    return (value,) if isinstance(value, str) else tuple(value)


def _given(attributes: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in attributes.items() if value is not None}


class Network(Rewiring):
    """An editable graph of ONNX operators.

    Example:
        >>> import numpy as np
        >>> net = Network("tiny")
        >>> net.add_input("x", ("N", 3))
        >>> net.add_parameter("w", np.ones((3, 2), "float32"))
        >>> net.add_node("MatMul", ["x", "w"], ["y"], name="product")
        >>> net.add_output("y")
        >>> [str(node) for node in net.nodes]
        ['y = MatMul(x, w)  # product']
    """

    # -- editing ----------------------------------------------------------------------------------------------------
    def add_input(self, name: str, shape: Sequence[Dim] | None, dtype: str = "float32") -> None:
        """Declare an input; a string in the shape is a symbolic size, None in place of the shape an unknown rank."""
        check_new_value(self, name, outermost=True)
        check_dtype(name, dtype)
        self.inputs[name] = TensorDescriptor(dtype, as_shape(name, shape))
        self._touch()

    def add_parameter(self, name: str, value: Any, trainable: bool = True) -> None:
        """Add an array under a name. Give it its final dtype: nothing is converted."""
        check_new_value(self, name, outermost=True)
        self._parameters[name] = Parameter(as_parameter(name, value, trainable), trainable)
        self._touch()

    def set_parameter(self, name: str, value: Any, trainable: bool | None = None) -> None:
        """Replace the value of a parameter (its shape may change) and, if given, whether it is trainable."""
        old = self._parameter(name)
        trainable = old.trainable if trainable is None else trainable
        array = as_parameter(name, value, trainable)
        if array.dtype != old.value.dtype:
            raise NetworkError(
                f"parameter {name!r}: got dtype {array.dtype}; expected {old.value.dtype}: convert it first"
            )
        self._parameters[name] = Parameter(array, trainable)
        self._forget_after([name])
        self._touch()

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
        self._insert(Node(op_type, _names(inputs), outs, name, domain, _given(attributes)))

    def remove_node(self, name: str, reconnect: bool = False) -> None:
        """Remove a node whose outputs nobody reads.

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

        Outputs that the new operator does not have are dropped if nobody reads them.
        """
        old = self.node(name)
        outputs = list(old.outputs)
        while len(outputs) > most_outputs(op_type, domain) and not self._readers(outputs[-1]):
            outputs.pop()
        new_inputs = old.inputs if inputs is None else _names(inputs)
        new = Node(op_type, new_inputs, tuple(outputs), name, domain, _given(attributes))
        check_reads(self, new)
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
        """Remove a parameter that nobody reads."""
        self._parameter(name)
        check_unread(self, name)
        del self._parameters[name]
        self._touch()

    def remove_input(self, name: str) -> None:
        """Remove an input that nobody reads."""
        if name not in self.inputs:
            raise NetworkError(f"got input {name!r}; expected one of the network's: {nearest(name, self.inputs)}")
        check_unread(self, name)
        del self.inputs[name]
        self._touch()

    # -- in and out -------------------------------------------------------------------------------------------------
    @classmethod
    def from_onnx(cls, model: str | os.PathLike[str] | bytes | onnx.ModelProto) -> Network:
        """Read an ONNX model; see :func:`deep500.networks.onnx.dump.load`."""
        from deep500.networks.onnx.dump import load

        return load(model)

    def to_onnx(self, path: str | os.PathLike[str] | None = None, opset: int | None = None) -> onnx.ModelProto:
        """The network as an ONNX model, written to ``path`` if given; see :func:`deep500.networks.onnx.dump.dump`."""
        from deep500.networks.onnx.dump import dump

        self._sync()
        return dump(self, path, opset)

    def copy(self) -> Network:
        """A network of its own with the same content (a plain one, also of a bound network)."""
        self._sync()
        twin = Network(self.name)
        twin.inputs, twin.outputs = dict(self.inputs), list(self.outputs)
        twin._parameters = {n: replace(p, value=p.value.copy()) for n, p in self._parameters.items()}
        twin._nodes, twin._producers = dict(self._nodes), dict(self._producers)
        twin._known, twin._inner, twin._numbers = dict(self._known), set(self._inner), dict(self._numbers)
        return twin

    def content_hash(self) -> str:
        """SHA-256 over operators, attributes, names, parameters, inputs and outputs (not over the network's name)."""
        from deep500.networks.onnx.dump import content_hash

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
        """A copy whose further outputs are the gradients of ``loss``; see `gradients/autodiff.py`."""
        from deep500.networks.gradients.autodiff import with_gradient

        return with_gradient(self, loss, wrt)

    def gradient(self, loss: str = "loss") -> list[tuple[str, str]]:
        """``[(parameter, name of its gradient)]`` for every trainable parameter that ``loss`` depends on."""
        from deep500.networks.gradients.autodiff import gradient_names

        return gradient_names(self, loss)

    def flops(self, batch: int = 1, loss: str | None = None) -> FlopCount:
        """Operations of one forward run, or of a training step on ``loss``; see :mod:`deep500.networks.flops`."""
        from deep500.networks.flops import flop_count

        return flop_count(self, batch, loss)

    def _sync(self) -> None:
        """Bring parameter values up to date; a bound network reads them from its executor."""
