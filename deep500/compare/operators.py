"""``deep500 measure-op``: one operator in several frameworks, forward and backward: the same, right, and how fast?

The operator is the only node of a network. It is timed on tensors that each framework already has. For the gradient
its floating inputs are parameters, and the loss is a sum of its outputs, weighted at random, so that an element in the
wrong place is seen. The judge's gradient is held against differences of its own forward, in float64 where the operator
takes that, and the other frameworks against the judge.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import KW_ONLY, asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import onnx

from deep500.compare.frameworks import Effort, check_frameworks, write
from deep500.compare.models import JUDGES
from deep500.compare.operator_gate import check_operator
from deep500.compare.result import ComparisonResult
from deep500.compare.timing import Team
from deep500.compare.traces import as_arrays
from deep500.errors import InputError, MissingBackend, UnsupportedOperator, nearest
from deep500.keywords import takes
from deep500.measure.environment import describe
from deep500.measure.machine import threads_to_use
from deep500.networks.execution.executor import GraphExecutor
from deep500.networks.network import Network
from deep500.networks.node import find_schema
from deep500.operators.base import Descriptors
from deep500.operators.base import describe as describe_array
from deep500.operators.registry import DOMAIN, find_operator, is_registered, load_plugins, operator_names
from deep500.registry import backend_names, is_installed, load_backend

FORWARD, BOTH = "forward pass", "forward and backward pass"
DTYPES = ("float16", "float32", "float64", "int8", "int32", "int64", "uint8", "bool")


@dataclass(frozen=True)
class OneOperator:
    """An operator with its inputs; JSON can hold it.

    Attributes:
        name: of ONNX, or of a custom operator.
        inputs: shapes such as ``8x3x32x32`` or ``8:int64``, or fixed values such as ``[4, 6]``.
        attributes: the operator's.
        seed: of the values.
        plugins: files or folders that register custom operators.
        positive: draw positive numbers only.
        outputs: shapes and dtypes of what it returns, once they are known.
    """

    name: str
    inputs: Sequence[str]
    attributes: Mapping[str, Any] = field(default_factory=dict)
    seed: int = 0
    plugins: Sequence[str] = ()
    positive: bool = False
    outputs: Sequence[tuple[Sequence[int], str]] = ()

    def arrays(self) -> dict[str, np.ndarray]:
        """Values of the inputs by name.

        Example:
            >>> {name: x.shape for name, x in OneOperator("MatMul", ["2x3", "3x4"]).arrays().items()}
            {'x0': (2, 3), 'x1': (3, 4)}
        """
        rng = np.random.default_rng(self.seed)
        return {f"x{number}": _array(word, rng, self.positive) for number, word in enumerate(self.inputs)}

    def network(self, trained: bool = False) -> Network:
        """Return the operator as a network; trained: with its loss, and floating inputs as parameters."""
        network, arrays = Network(self.name), self.arrays()
        for word, (name, array) in zip(self.inputs, arrays.items(), strict=True):
            if word.startswith("[") or (trained and array.dtype.kind == "f"):
                network.add_parameter(name, array, trainable=not word.startswith("["))
            else:
                network.add_input(name, array.shape, array.dtype.name)
        custom = find_schema(self.name, "") is None
        names = [f"y{number}" for number in range(self._count([describe_array(x) for x in arrays.values()]))]
        network.add_node(
            self.name, list(arrays), names, name=self.name, domain=DOMAIN if custom else "", **self.attributes
        )
        for name in names:
            network.add_output(name)
        terms = [n for n, (_, dtype) in zip(names, self.outputs, strict=False) if dtype.startswith("float")]
        if trained and terms:
            for name in terms:
                shape, dtype = self.outputs[names.index(name)]
                network.add_input(f"{name}.weight", shape, dtype)
                network.add_node("Mul", [name, f"{name}.weight"], [f"{name}.weighted"])
                network.add_node("ReduceSum", [f"{name}.weighted"], [f"{name}.sum"], keepdims=0)
            network.add_node("Sum", [f"{name}.sum" for name in terms], ["loss"])
            network.add_output("loss")
        return network

    def feed(self, network: Network) -> dict[str, np.ndarray]:
        """Values for the inputs of one of its networks; weights of outputs are 0.5 to 2 of either sign."""
        arrays, rng, values = self.arrays(), np.random.default_rng(self.seed + 1), {}
        for name, described in network.inputs.items():
            shape: Any = described.shape
            weights = rng.integers(8, 32, shape) / 16 * rng.choice([-1.0, 1.0], shape)
            values[name] = arrays[name] if name in arrays else np.asarray(weights).astype(described.dtype)
        return values

    def _count(self, inputs: Descriptors) -> int:
        schema = find_schema(self.name, "")
        if schema is not None:
            return max(schema.min_output, int(self.attributes.get("num_outputs", 1)))
        if not is_registered(self.name):
            known = {schema.name for schema in onnx.defs.get_all_schemas() if not schema.domain}
            raise InputError(
                f"got operator {self.name!r}; expected one of ONNX or a custom one: "
                f"{nearest(self.name, sorted({*known, *operator_names()}))}, or name its plugin with --custom-op PATH"
            )
        return len(find_operator(self.name, self.attributes, inputs).infer(inputs))


def _array(word: str, rng: np.random.Generator, positive: bool) -> np.ndarray:
    if word.startswith("["):
        try:
            value = np.array(json.loads(word))
        except ValueError:
            value = np.array(None)
        if value.dtype.kind in "ifb":
            return value.astype(np.float32) if value.dtype.kind == "f" else value
    shape, _, dtype = word.partition(":")
    if not re.fullmatch(r"[1-9]\d*(x[1-9]\d*)*", shape) or dtype not in ("", *DTYPES):
        raise InputError(
            f"got input {word!r}; expected sizes, and another dtype than float32 after a colon, or values: such as "
            "8x3x32x32, 8:int64 or '[4, 6]'"
        )
    sizes = [int(size) for size in shape.split("x")]
    if dtype and not dtype.startswith("float"):
        return rng.integers(0, 2, sizes).astype(dtype)
    values = rng.standard_normal(sizes)
    return (np.abs(values) + 0.5 if positive else values).astype(dtype or "float32")


class OperatorJob:
    """Forward, and forward with backward, of one operator on one framework: what a worker measures."""

    def __init__(self, framework: str, **operator: Any) -> None:
        self.operator = OneOperator(**operator)
        load_plugins(self.operator.plugins)
        self.build = load_backend(framework).from_model
        self.networks = {FORWARD: self.operator.network(), BOTH: self.operator.network(trained=True)}
        self.executors: dict[str, tuple[GraphExecutor, dict[str, Any]]] = {}
        self.facts = {"device": str(self._executor(FORWARD)[0].device)}

    def _executor(self, what: str) -> tuple[GraphExecutor, dict[str, Any]]:
        if what not in self.executors:
            executor: GraphExecutor = self.build(self.networks[what])
            values = self.operator.feed(self.networks[what])
            tensors = {name: executor.network.to_tensor(value) for name, value in values.items()}
            self.executors[what] = executor, tensors
        return self.executors[what]

    def repetition(self, passes: str) -> tuple[Callable[[], Any], Callable[[], Any]]:
        """One pass on tensors of the framework's own, and how to wait for it."""
        executor, tensors = self._executor(passes)
        call = executor.inference if passes == FORWARD else executor.inference_and_backprop
        return lambda: call(tensors), executor.synchronize


@dataclass(frozen=True)
class OperatorComparison(Effort):
    """The options of :func:`compare_operator`.

    Args:
        op: an operator of ONNX, or a custom one by its name.
        inputs: a shape for each input, such as ``8x3x32x32`` or ``8:int64``, or its values, such as ``[4, 6]``.
        attributes: the operator's.
        frameworks: at least two backends; None: all that are installed and run it.
        rounds: blocks timed per framework; 0: only check.
        steps: passes per block; None: as many as take about 0.2 s.
        threads: threads and cores per process; None: ``OMP_NUM_THREADS``, else all that this process may use.
        seed: of the values and of the order.
        custom_ops: folders (or files) of plugins.
        out: folder for results; None writes nothing.
        dry_run: one round of one pass: does it work?
        say: called with a line of text for every stage.
    """

    op: str
    inputs: Sequence[str]
    attributes: Mapping[str, Any] = field(default_factory=dict)
    _: KW_ONLY
    frameworks: Sequence[str] | None = None
    seed: int = 0
    custom_ops: Sequence[str | Path] = ()


@takes(OperatorComparison)
def compare_operator(options: OperatorComparison) -> ComparisonResult:
    """Run one operator in several frameworks: is it the same, is its gradient right, and which is faster?

    Raises:
        InputError: an unknown operator, inputs that it does not take, fewer than two backends that run it.
        UnsupportedOperator: a backend that was named cannot run it.

    Example:
        >>> result = compare_operator("Tanh", ["4x3"], frameworks=["reference", "onnxruntime"], rounds=0)
        >>> bool(result), [check.name for check in result.gate.checks]
        (True, ['gradient against differences', 'outputs', 'gradients'])
    """
    plugins = [str(Path(path).expanduser().resolve()) for path in options.custom_ops]
    load_plugins(plugins)
    operator = OneOperator(options.op, list(options.inputs), dict(options.attributes), options.seed, plugins)
    operator.network()  # what the operator does not take is said first
    names, notes = _frameworks(operator, options.frameworks)
    rounds, steps = (1, 1) if options.dry_run else (options.rounds, options.steps)
    options.say(f"checking that {', '.join(names)} compute the same ...")
    judge = next((name for name in JUDGES if name in names), names[0])
    operator, more = _known(operator, judge)
    gate, differentiable = check_operator(operator, [judge, *(name for name in names if name != judge)])
    gate.notes += [*notes, *more]
    labels = ("dry run",) if options.dry_run else ()
    result = ComparisonResult(options.op, names, gate, labels=labels, environment=describe(None))
    if gate and rounds:
        with Team(names, options.threads or threads_to_use(), "operator", asdict(operator)) as team:
            result.facts = team.facts
            for label in (FORWARD, BOTH)[: 1 + differentiable]:
                options.say(f"timing {rounds} rounds: {label} ...")
                result.timings[label] = team.time(rounds, options.seed, steps, passes=label)
            result.memory = team.memory()
    return write(result, options.out, {"operator": asdict(operator), "rounds": rounds, "steps": steps})


def _frameworks(operator: OneOperator, asked: Sequence[str] | None) -> tuple[list[str], list[str]]:
    """Backends to compare, and notes on those that do not run the operator; one that was named must."""
    if asked is not None:
        return check_frameworks(asked), []
    able, notes, network = [], [], operator.network()
    for name in filter(is_installed, backend_names()):
        try:
            load_backend(name).from_model(network)
            able.append(name)
        except (UnsupportedOperator, MissingBackend) as error:
            notes.append(f"{name} is left out: {str(error).splitlines()[0]}")
    return check_frameworks(able), notes


def _known(operator: OneOperator, judge: str) -> tuple[OneOperator, list[str]]:
    """The operator with what it returns, on positive inputs where others give no numbers."""
    for positive in (False, True):
        operator = replace(operator, positive=positive)
        network = operator.network()
        executor: GraphExecutor = load_backend(judge).from_model(network)
        outputs = as_arrays(executor, executor.inference(operator.feed(network)))
        known = replace(operator, outputs=[(list(y.shape), y.dtype.name) for y in outputs.values()])
        if all(np.isfinite(y).all() for y in outputs.values() if y.dtype.kind == "f"):
            break
    return known, ["inputs are positive: others give values that are no numbers"] if positive else []
