"""Networks to TensorFlow functions: a program is walked through once while ``tf.function`` traces it.

What remains is TensorFlow's graph: one call per operator, attributes and constant shapes written in, parameters read
from variables. Values that are known while tracing are computed at once and become constants. A program that needs a
value which only a run computes (:class:`NeedsValue`: the axes of a sum, say) is walked through eagerly at every run.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Container, Mapping, Sequence
from typing import Any

import numpy as np
import onnx

from deep500.errors import Deep500Error, InputError, NetworkError, UnsupportedOperator
from deep500.frameworks.tensorflow.custom import call_node
from deep500.frameworks.tensorflow.dtypes import DTYPES, from_array, to_array
from deep500.frameworks.tensorflow.layout import Last, align, last_axis, to_last
from deep500.frameworks.tensorflow.operators import OPS, NeedsValue
from deep500.frameworks.tensorflow.operators.table import TensorFlowEntry
from deep500.frameworks.tensorflow.operators.windows import kernel_first, kernel_last
from deep500.frameworks.tensorflow.recompute import Rerun, RunLog, draw, run_group
from deep500.frameworks.tensorflow.runtime import tf
from deep500.networks.custom import is_custom
from deep500.networks.execution.grouping import Item, NodeGroup
from deep500.networks.execution.operator_table import used_outputs
from deep500.networks.execution.program import Backend, Program, constant_value, from_graph
from deep500.networks.execution.refusals import no_memory
from deep500.networks.execution.slicing import values_read
from deep500.networks.node import Node, captures
from deep500.operators.failures import find_failure

TARGET = Backend("tensorflow", OPS, DTYPES)

_SMALL = 256  # parameters up to this many elements may be taken as constants
_EMBEDDED = 4096  # constants up to this many elements are written into the graph; larger ones are captured


class Randomness:
    """The executor's source of random numbers, shared by everything that it compiles."""

    def __init__(self, seed: int = 0) -> None:
        self.generator = tf.random.Generator.from_seed(seed, alg="philox")

    def reseed(self, seed: int) -> None:
        """Make everything that is drawn from now on a function of ``seed``."""
        self.generator.reset_from_seed(seed)


class NodeContext:
    """One node while it is run, as an operator's function may ask to see it."""

    def __init__(self, walk: Walk, node: Node) -> None:
        self.walk, self.node = walk, node

    @property
    def training(self) -> bool:
        """The executor's mode."""
        return self.walk.training

    def variable(self, index: int) -> Any:
        """The variable behind an input, None where it is none that is not trained."""
        name = self.node.inputs[index] if index < len(self.node.inputs) else ""
        return self.walk.variables.get(name) if name not in self.walk.sources else None

    def assign(self, index: int, value: Any) -> None:
        """Overwrite the variable behind an input; who reads it later reads the new value."""
        name = self.node.inputs[index]
        if self.walk.replay is not None:
            return  # the first run has done it
        self.walk.variables[name].assign(value)
        self.walk.values.pop(name, None)

    def uniform(self, shape: Any, seed: float | None = None, dtype: Any = tf.float32) -> Any:
        """Uniform numbers in [0, 1): the executor's, or every time the same for a node with a seed of its own."""
        if seed is None:
            return self.walk.draw("uniform", shape, dtype)
        return tf.random.stateless_uniform(shape, [hash(float(seed)) & (2**31 - 1), 0], dtype=dtype)

    def normal(self, shape: Any, seed: float | None = None, dtype: Any = tf.float32) -> Any:
        """Normal numbers, drawn like :meth:`uniform`."""
        if seed is None:
            return self.walk.draw("normal", shape, dtype)
        return tf.random.stateless_normal(shape, [hash(float(seed)) & (2**31 - 1), 0], dtype=dtype)

    def body(self, graph: onnx.GraphProto) -> Callable[..., list[Any]]:
        """The body of If, Loop or Scan as a function of its inputs."""
        return self.walk.body(graph)


class Walk:
    """One way through a program.

    Args:
        program: what to run.
        variables: parameters by the network's names.
        training: the mode.
        random: source of random numbers.
        sources: tensors in place of trainable parameters, which a tape watches.
        constants: called with the name of each parameter whose present value is written into the graph.
        kernels: parameters that are held as [*size, inputs, outputs], ONNX's [outputs, inputs, *size].
        reached: values on which the loss depends, where regions run again.

    Attributes:
        record: where a region that runs again notes what a second run needs; None outside of such.
        replay: what the first run noted, in the second one.
    """

    def __init__(
        self,
        program: Program,
        variables: Mapping[str, Any],
        training: bool,
        random: Randomness,
        sources: Mapping[str, Any] | None = None,
        constants: Callable[[str], None] = lambda name: None,
        kernels: Container[str] = (),
        reached: frozenset[str] = frozenset(),
    ) -> None:
        self.program, self.variables, self.training, self.random = program, variables, training, random
        self.sources, self.report, self.kernels = sources or {}, constants, kernels
        self.tracing = not tf.executing_eagerly()
        self.scopes = scopes(program.nodes)
        self.known: dict[str, np.ndarray] = dict(program.constants)
        self.values: dict[str, Any] = {}
        self.turned: dict[str, Any] = {}  # values with channels last, of those that came with channels first
        self.read = values_read(program.nodes, program.outputs)
        self.record: RunLog | None = None
        self.replay: Rerun | None = None
        self.reached = reached

    def run(self, inputs: Sequence[Any], items: Sequence[Item] | None = None) -> list[Any]:
        """All outputs, in ONNX's layout; ``items`` are the program's nodes, with those that run again in groups."""
        self.values.update(zip(self.program.inputs, inputs, strict=True))
        self.steps(self.program.nodes if items is None else items)
        return [self.first(name) for name in self.program.outputs]

    def steps(self, items: Sequence[Item]) -> None:
        """Run nodes and groups of them, in order."""
        for item in items:
            if isinstance(item, NodeGroup):
                run_group(item, self, self.reached)
            elif item.op_type == "Constant" and not item.domain:
                self.known[item.outputs[0]] = constant_value(item)
            elif is_custom(item):
                self.custom(item)
            else:
                self.call(item)

    def custom(self, node: Node) -> None:
        """Run a custom node, in ONNX's layout; in the second run of a region it is not called."""
        operands = [self.first(name) if name else None for name in node.inputs]
        earlier = None if self.replay is None else next(self.replay.results)
        with tf.name_scope(self.scopes[node.name]):
            outputs = call_node(node, operands, self.program.descriptors, earlier)
        if self.record is not None:
            self.record.results.append(outputs if earlier is None else earlier)
        self.values.update({name: y for name, y in zip(node.outputs, outputs, strict=False) if name})

    def within(self, region: tuple[Mapping[str, Any], dict[str, Any]], replay: Rerun | None, record: RunLog) -> Walk:
        """A walk through a part of the program, with these sources and values of its own; what is known is shared."""
        sources, values = region
        walk = Walk(
            self.program, self.variables, self.training, self.random, sources, self.report, self.kernels, self.reached
        )
        walk.known, walk.values, walk.read = self.known, values, self.read
        walk.record, walk.replay = record, replay
        return walk

    def draw(self, kind: str, shape: Any, dtype: Any) -> Any:
        """Random numbers of the executor's, ``"uniform"`` or ``"normal"``; a second run draws those of the first."""
        generator = self.random.generator
        if self.record is None:
            return getattr(generator, kind)(shape, dtype=dtype)
        state = generator.state.read_value() if self.replay is None else next(self.replay.states)
        self.record.states.append(state)
        if self.replay is not None:
            return draw(kind, state, shape, dtype)
        return getattr(generator, kind)(shape, dtype=dtype)

    # -- values -----------------------------------------------------------------------------------------------------
    def value(self, name: str) -> Any:
        """A value: a tensor, a :class:`Last`, or a list of tensors."""
        if name not in self.values:
            self.values[name] = self._fetch(name)
        return self.values[name]

    def _fetch(self, name: str) -> Any:
        if name in self.kernels:
            return kernel_first(self.in_layout(name))
        if name in self.sources:
            return self.sources[name]
        constant = self.constant(name, self._is_shape(name))
        if constant is not None:
            if constant.size > _EMBEDDED:
                with tf.init_scope():
                    return from_array(constant)
            return from_array(constant)
        if name in self.variables:
            variable = self.variables[name]
            if not isinstance(variable, tf.Variable):
                raise UnsupportedOperator(
                    f"got parameter {name!r} of dtype {variable.dtype}; expected one that TensorFlow "
                    "has: use another backend"
                )
            return self.in_layout(name)
        raise InputError(f"got {name!r}, which nothing provides; expected a value of the program")

    def in_layout(self, name: str) -> Any:
        """A parameter as the executor holds it."""
        if name in self.sources:
            return self.sources[name]
        variable = self.variables[name]
        return variable.value() if self.tracing else variable.read_value()

    def kernel(self, name: str) -> Any:
        """A value [outputs, inputs, *size] as [*size, inputs, outputs]."""
        return self.in_layout(name) if name in self.kernels else kernel_last(self.first(name))

    def _is_shape(self, name: str) -> bool:
        """Whether a parameter is of a kind that shapes, axes and flags are of."""
        variable = self.variables.get(name)
        return variable is not None and not variable.dtype.is_floating if isinstance(variable, tf.Variable) else False

    def constant(self, name: str, parameters: bool = True) -> np.ndarray | None:
        """A value that is known now: a constant, or (if wanted) a parameter that is not trained and small."""
        if name in self.known:
            return self.known[name]
        variable = self.variables.get(name) if parameters and name not in self.sources else None
        if not isinstance(variable, tf.Variable) or variable.trainable or variable.shape.num_elements() > _SMALL:
            return None
        self.report(name)
        with tf.init_scope():
            self.known[name] = to_array(kernel_first(variable) if name in self.kernels else variable)
        return self.known[name]

    def first(self, name: str) -> Any:
        """A value in ONNX's layout."""
        value = self.value(name)
        return value.first if isinstance(value, Last) else value

    def last(self, name: str) -> Any:
        """A value with channels last."""
        value = self.value(name)
        if isinstance(value, Last):
            return value.tensor
        if name not in self.turned:
            if value.shape.rank is None:
                raise NeedsValue
            self.turned[name] = to_last(value)
        return self.turned[name]

    # -- nodes ------------------------------------------------------------------------------------------------------
    def call(self, node: Node) -> None:
        """Run a node and keep its results."""
        entry = OPS[node.domain, node.op_type]
        used = used_outputs(node, self.read)
        attributes = node.all_attributes()
        kwargs = entry.keywords(attributes)
        if entry.extras:
            offered = {"outputs": used, "context": NodeContext(self, node)}
            kwargs.update({name: offered[name] for name in entry.extras})
        fold = self._folds(node, entry)  # shapes computed by operators become numbers, as other operators need them
        try:
            if fold:
                with tf.init_scope():
                    results = entry.function(*self._constants(node, entry), **kwargs)
            else:
                with tf.name_scope(self.scopes[node.name]):
                    results, wrap = self._apply(node, entry, kwargs)
        except (Deep500Error, NeedsValue):
            raise
        except (ValueError, TypeError, LookupError, tf.errors.OpError) as error:
            raise failure(error, f"node {node.name!r} ({node.op_type})") from error
        parts = results if len(used) > 1 or entry.many else (results,)
        for i, (name, result) in enumerate(zip(node.outputs, parts, strict=False)):
            if not name or not used[min(i, len(used) - 1)]:
                continue
            if fold:
                self.known[name] = to_array(result)
            else:
                self.values[name] = Last(result) if wrap and (i == 0 or wrap == "all") else result

    def _folds(self, node: Node, entry: TensorFlowEntry) -> bool:
        """Whether a node can be computed while tracing; not where it wants another layout than constants have."""
        if (
            not self.tracing
            or "context" in entry.extras
            or not node.inputs
            or node.graphs
            or entry.layout in ("last", "conv")
        ):
            return False
        return all(not name or self.constant(name, self._is_shape(name)) is not None for name in node.inputs)

    def _constants(self, node: Node, entry: TensorFlowEntry) -> list[Any]:
        known = [self.constant(name) if name else None for name in node.inputs]
        return [k if k is None else k.tolist() if i in entry.static else from_array(k) for i, k in enumerate(known)]

    def _apply(self, node: Node, entry: TensorFlowEntry, kwargs: dict[str, Any]) -> tuple[Any, str]:
        """The results, and which of them have their channels last: "", "first" or "all"."""
        if entry.layout in ("last", "conv"):
            x = self.last(node.inputs[0])
            others = [
                self.kernel(name) if i == 1 and entry.layout == "conv" else self._argument(name, i in entry.static)
                for i, name in enumerate(node.inputs)
                if i
            ]
            return entry.function(x, *others, **kwargs), "first" if x.shape.rank > 2 else ""
        if entry.layout:
            aligned = self._aligned(node, entry)
            if aligned is not None:
                args, rank = aligned
                if entry.layout == "axis":
                    kwargs["axis"] = last_axis(kwargs["axis"], rank)
                return entry.function(*args, **kwargs), "all"
        args = [self._argument(name, i in entry.static) for i, name in enumerate(node.inputs)]
        return entry.function(*args, **kwargs), ""

    def _argument(self, name: str, static: bool) -> Any:
        """An input in ONNX's layout; a Python value if that is wanted and it is known."""
        if not name:
            return None
        constant = self.constant(name) if static and name not in self.values else None
        return self.first(name) if constant is None else constant.tolist()

    def _aligned(self, node: Node, entry: TensorFlowEntry) -> tuple[list[Any], int] | None:
        """All inputs with channels last, if one has them so and the others can follow."""
        # One input with channels last decides: to turn the others (biases, scalars) costs less than to turn it back.
        whole = [name for i, name in enumerate(node.inputs) if name and i not in entry.static]
        ranks = [v.rank for v in map(self.value, whole) if isinstance(v, Last)]
        if not ranks or any(isinstance(self.value(name), (list, type(None))) for name in whole):
            return None
        args: list[Any] = []
        for i, name in enumerate(node.inputs):
            if not name or i in entry.static:
                args.append(self._argument(name, True))
                continue
            value = self.value(name)
            args.append(
                align(
                    value if isinstance(value, Last) or value.shape.rank != max(ranks) else Last(self.last(name)),
                    max(ranks),
                )
            )
            if args[-1] is None:
                return None
        return args, max(ranks)

    def body(self, graph: onnx.GraphProto) -> Callable[..., list[Any]]:
        """A sub-graph as a function of its inputs; what it captures is taken from here."""
        program, captured = from_graph(graph, TARGET), [self.first(name) for name in captures(graph)]

        def run(*inputs: Any) -> list[Any]:
            return Walk(program, {}, self.training, self.random).run([*inputs, *captured])

        return run


def scopes(nodes: Sequence[Node]) -> dict[str, str]:
    """Scopes of nodes by their names, as TensorFlow allows them; numbers keep them apart, and from operators' names.

    Example:
        >>> scopes([Node("Relu", ("x",), ("y",), "relu:1")])
        {'relu:1': 'relu_1-0'}
    """
    clean = {node.name: re.sub(r"[^A-Za-z0-9_.\-/]", "_", node.name) for node in nodes}
    return {
        name: f"{text if text[:1].isalnum() else f'n{text}'}-{number}"
        for number, (name, text) in enumerate(clean.items())
    }


def failure(error: Exception, where: str) -> Deep500Error:
    """TensorFlow's error as one of ours."""
    if (ours := find_failure(str(error))) is not None:  # a custom operator's, which is named in it
        return ours
    text = re.split(r"\n *File [^\n]*", str(error))[-1]  # without the lines that trace where the graph was made
    text = re.sub(r"\s+", " ", text).strip()[:400]
    if isinstance(error, tf.errors.ResourceExhaustedError):
        return no_memory(where, text)
    if isinstance(error, (tf.errors.UnimplementedError, tf.errors.NotFoundError)) or "No OpKernel" in text:
        return UnsupportedOperator(
            f"{where}: got something that TensorFlow has no kernel for ({text}); "
            "expected another dtype or operator: use another backend"
        )
    if isinstance(error, tf.errors.OpError) and re.search(r"label|indices|index", text):
        return InputError(
            f"{where}: got an index out of range ({text}); expected labels and indices that exist: check the data"
        )
    return NetworkError(f"{where}: got {text}; expected operands that fit: check the shapes and values of its inputs")
