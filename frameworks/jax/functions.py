"""Compiled functions of an executor: one per (outputs, mode), jitted, with what it knows of its arguments.

Three kinds of values are known while JAX traces and stand in the compiled code: constants of the program, parameters
that are not trained and are whole numbers or small (shapes, bounds; feeding one compiles anew), and
inputs that decide about shapes. The last are found out by trying: where a node wants a value that depends on data, the
small inputs behind it become constants and the function is traced again, once per value.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from operator import itemgetter
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from deep500.frameworks.jax.compiler import statistics_of
from deep500.frameworks.jax.custom import finished
from deep500.frameworks.jax.dtypes import as_argument, enable_x64, is_float
from deep500.frameworks.jax.operators import OPS
from deep500.frameworks.jax.operators.table import DependsOnData
from deep500.networks.custom import every_node, is_custom
from deep500.networks.execution.grouping import planned
from deep500.networks.execution.input_check import input_check
from deep500.networks.execution.labels import check_range, label_checks
from deep500.networks.execution.program import Program
from deep500.networks.execution.refusals import loss_not_scalar, unreached_loss
from deep500.networks.execution.slicing import sources
from deep500.networks.node import Node, from_proto

SMALL = 256
"""Parameters of at most this many elements that are not trained are written into the code."""
DECIDING = 1024
"""Inputs of at most this many elements may decide about shapes; larger ones are data."""
_NO_DRAW = np.zeros(2, np.int64)
VARIANTS = 64
"""For how many values of deciding inputs compiled functions are kept."""


class Compiled:
    """A jitted function for one selection of outputs in one mode.

    Attributes:
        executor: whose function it is; its tensors, keys and device are read at every call.
        constants: parameters that stand in the code, by name.
        deciding: inputs that must be constants too.
        check: looks at the inputs of every call.
    """

    def __init__(self, executor: Any, program: Program, training: bool, loss: str = "") -> None:
        network = executor.network
        self.executor, self.program, self.training, self.loss = executor, program, training, loss
        self.outputs = tuple(program.outputs)
        self.state = [n for n in statistics_of(network, network.nodes) if n in program.attributes]
        trainable = [n for n in network.trainable() if n in program.attributes]
        self.constants = {
            n: np.asarray(executor.tensors[n])
            for n in program.attributes
            if n not in trainable and n not in self.state and self._is_constant(n, executor)
        }
        _refuse_unknowable(program, {n for n in program.attributes if n not in self.constants})
        self.trained = trainable if training else []
        zeros = [n for n in network.trainable() if n not in trainable] if training else []
        self.unreached = {n: jnp.zeros_like(executor.tensors[n]) for n in zeros}  # their gradients
        self.others = [n for n in program.attributes if n not in self.constants and n not in self.state]
        self.others = [n for n in self.others if n not in self.trained]
        self.take = [taker(names) for names in (self.trained, self.others, self.state)]
        self.random = any(node.is_random or node.graphs for node in program.nodes) or executor.always_random
        self.check = input_check(network, self.outputs)
        if loss and not network.gradient(loss):
            raise unreached_loss(loss)
        self.items = planned(program, network, executor.checkpointing) if loss else None
        self.labels = label_checks(program)
        self.deciding: set[str] = set()
        self.variants: OrderedDict[tuple[Any, ...], Callable[..., Any]] = OrderedDict()

    @staticmethod
    def _is_constant(name: str, executor: Any) -> bool:
        value = executor.tensors[name]
        if not is_float(value):
            return True
        return value.size <= SMALL and name not in executor.written

    # -- calling ----------------------------------------------------------------------------------------------------
    def __call__(self, inputs: Mapping[str, Any]) -> Any:
        """Run on these inputs, which were checked."""
        return self._try(inputs, self._drawn(inputs), lambda function, arguments: function(*arguments))

    def operands(self, inputs: Mapping[str, Any]) -> tuple[Any, ...]:
        """The arguments of :meth:`traced` for inputs that were checked, none of which is a constant."""
        trained, others, state = [take(self.executor.tensors) for take in self.take]
        return trained, others, state, {name: inputs[name] for name in self.program.inputs}, self._drawn(inputs)

    def _drawn(self, inputs: Mapping[str, Any]) -> Any:
        """The draw of a run whose labels are in range."""
        for name, classes in self.labels.items():
            check_range(name, inputs.get(name), *classes)
        return self.executor.next_draw() if self.random else None if self.items is None else _NO_DRAW

    def lowered(self, inputs: Mapping[str, Any]) -> Any:
        """The function for these inputs, which were checked, as XLA gets it (``jax.stages.Lowered``)."""
        draw = None if not self.random and self.items is None else _NO_DRAW
        return self._try(inputs, draw, lambda function, arguments: function.lower(*arguments))

    def _try(self, inputs: Mapping[str, Any], draw: Any, use: Callable[[Any, tuple[Any, ...]], Any]) -> Any:
        """Use the function for these inputs and its arguments, once it is known which inputs must be constants."""
        executor = self.executor
        tensors, device = executor.tensors, executor.jax_device
        trained, others, state = [take(tensors) for take in self.take]
        while True:  # each round that fails learns of further inputs that must be constants
            known = {n: np.asarray(inputs[n]) for n in self.deciding if _elements(inputs[n]) <= DECIDING}
            arguments = {n: as_argument(inputs[n], device) for n in self.program.inputs if n not in known}
            try:
                function = self._jitted(known)
                if executor.wide and executor.usual:
                    return use(function, (trained, others, state, arguments, draw))
                with enable_x64(executor.wide), executor.settings():
                    return use(function, (trained, others, state, arguments, draw))
            except DependsOnData as error:
                if not self._decide(error, inputs):
                    raise

    def _decide(self, error: DependsOnData, inputs: Mapping[str, Any]) -> bool:
        """Make constants of the inputs behind a value that must be known; False if that is not possible."""
        # A value that depends on data is known once all inputs behind it are constants: small ones can be, as each of
        # their values then has a compiled function of its own. Parameters cannot: they change in every step.
        program = self.program
        movable = {*program.inputs, *program.attributes} - set(self.constants) - self.deciding
        behind = sources(program.nodes, error.values) & movable
        if not behind:
            return False
        if any(n not in self.program.inputs or _elements(inputs[n]) > DECIDING for n in behind):
            return False
        self.deciding |= behind
        self.variants.clear()
        return True

    def _jitted(self, known: Mapping[str, np.ndarray]) -> Callable[..., Any]:
        key = tuple((n, v.shape, v.dtype.name, v.tobytes()) for n, v in sorted(known.items())) if known else ()
        if key in self.variants:
            self.variants.move_to_end(key)
            return self.variants[key]
        function: Callable[..., Any] = jax.jit(self.traced(known))
        if any(map(is_custom, every_node(self.program.nodes))):
            function = finished(function)
        self.variants[key] = function
        if len(self.variants) > VARIANTS:
            self.variants.popitem(last=False)
        return function

    def traced(self, known: Mapping[str, np.ndarray]) -> Callable[..., Any]:
        """The function to jit: forward, or in training forward and backward; ``known`` are inputs that stand in it."""
        pure, loss = self.executor.pure(self, {**self.constants, **known}), self.loss

        def forward(trained: Any, others: Any, state: Any, inputs: Any, draw: Any) -> Any:  # tuples: cheaper than dicts
            parameters = dict(zip((*self.trained, *self.others), (*trained, *others), strict=True))
            key = jax.random.fold_in(jax.random.key(draw[0]), draw[1]) if self.random else None
            never = () if self.items is None else (draw[1] < 0,)  # runs are counted from 1, which XLA cannot know
            return pure(parameters, dict(zip(self.state, state, strict=True)), inputs, key, *never)

        def goal(trained: Any, others: Any, state: Any, inputs: Any, draw: Any) -> Any:
            outputs, updates = forward(trained, others, state, inputs, draw)
            value = outputs[loss]
            if jnp.size(value) != 1 or not is_float(value):
                raise loss_not_scalar(loss, f"{value.dtype}{list(value.shape)}")
            return jnp.reshape(value, ()), (outputs, updates)

        return jax.value_and_grad(goal, has_aux=True) if loss else forward


def taker(names: Sequence[str]) -> Callable[[Mapping[str, Any]], tuple[Any, ...]]:
    """A function that picks the values of these names; faster than a loop where there are many."""
    if len(names) > 1:
        return itemgetter(*names)
    return lambda values: tuple(values[name] for name in names)


def _elements(value: Any) -> int:
    return int(np.size(value)) if hasattr(value, "shape") else DECIDING + 1


_READ_NO_ELEMENT = {"Shape", "Size", "SequenceLength", "OptionalHasElement", "EyeLike"}


def _refuse_unknowable(program: Program, changing: set[str]) -> None:
    """Raise DependsOnData for nodes that must know at trace time what follows from parameters that change.

    No call could run them: inputs can become constants of a function, for each of their values one; parameters change
    in every step.
    """
    tainted = set(changing)
    for node in program.nodes:
        if node.domain == "" and node.op_type in _READ_NO_ELEMENT:
            continue
        if not tainted.isdisjoint(node.reads):
            tainted.update(node.writes)
        entry = OPS.get((node.domain, node.op_type))
        static = [node.inputs[i] for i in entry.static if i < len(node.inputs)] if entry is not None else []
        unknown = [name for name in static if name in tainted]
        if not unknown and node.op_type == "Loop" and node.domain == "" and _stacks_unknown_length(node, tainted):
            unknown = [name for name in node.reads if name in tainted]
        if unknown:
            raise DependsOnData(f"{node.name!r} ({node.op_type})", unknown)


def _stacks_unknown_length(node: Node, tainted: set[str]) -> bool:
    """Whether a Loop collects what its steps yield, and how many steps it makes follows from values in ``tainted``."""
    body, initial = node.graphs[0], node.inputs[2:]
    if len(body.output) - 1 == len(initial):
        return False
    states = [value.name for value in body.input[2:]]
    inside = {*tainted, *(state for state, value in zip(states, initial, strict=True) if value in tainted)}
    before = -1
    while before != len(inside):  # what a state depends on may reach it in a later step only
        before = len(inside)
        for inner in map(from_proto, body.node):
            if not inside.isdisjoint(inner.reads) and inner.op_type not in _READ_NO_ELEMENT:
                inside.update(inner.writes)
        after = [value.name for value in body.output[1 : 1 + len(states)]]
        inside.update(state for state, value in zip(states, after, strict=True) if value in inside)
    return body.output[0].name in inside or not tainted.isdisjoint(node.inputs[:2])
