"""Programs to pure functions: ``f(parameters, state, inputs, key) -> (outputs, new state)``.

The function walks over the program's nodes while JAX traces it; what it leaves behind is XLA's. What does not depend on
traced data is computed there and then with NumPy, so that shapes which networks compute by operators are numbers by the
time they are needed. State is the running statistics of BatchNormalization: read, and replaced by what comes back.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any
from urllib.parse import quote

import jax
import numpy as np
import onnx

from deep500.errors import Deep500Error, InputError
from deep500.frameworks.jax.context import RunContext
from deep500.frameworks.jax.custom import custom_op, desc_from_tensor
from deep500.frameworks.jax.dtypes import DTYPES
from deep500.frameworks.jax.operators import OPS
from deep500.frameworks.jax.operators.table import DependsOnData, JaxEntry, is_known
from deep500.frameworks.jax.recompute import run_group
from deep500.networks.custom import is_custom
from deep500.networks.execution.custom import call_node
from deep500.networks.execution.grouping import Item, NodeGroup
from deep500.networks.execution.operands import STATIC, check_operands
from deep500.networks.execution.operator_table import used_outputs
from deep500.networks.execution.program import Backend, Program, constant_value, from_graph
from deep500.networks.execution.refusals import unfit_operands
from deep500.networks.execution.slicing import values_read
from deep500.networks.graph import Graph
from deep500.networks.node import Node, captures

TARGET = Backend("jax", OPS, DTYPES)

Values = Mapping[str, Any]
PureFunction = Callable[..., tuple[dict[str, Any], dict[str, Any]]]
"""``f(parameters, state, inputs, key) -> (outputs, new state)``, all but the key by name."""


class BodyFunction:
    """The body of an If, Loop or Scan: called with its inputs, it runs where its node runs."""

    def __init__(self, graph: onnx.GraphProto, env: Mapping[str, Any], context: RunContext) -> None:
        self.program = from_graph(graph, TARGET)
        self.own = [v.name for v in graph.input]
        self.captured = {name: env[name] for name in captures(graph)}
        self.context = context

    def __call__(self, *inputs: Any) -> tuple[Any, ...]:
        context, node, follows = self.context, self.context.node, self.context.follows
        context.follows = False
        try:
            results = run(self.program, {**self.captured, **dict(zip(self.own, inputs, strict=True))}, context)
        finally:
            context.node, context.follows = node, follows
        return tuple(results)


def pure_function(
    program: Program,
    training: bool,
    constants: Mapping[str, np.ndarray],
    items: Sequence[Item] | None = None,
    statistics: Sequence[str] = (),
) -> PureFunction:
    """The function of a program.

    Args:
        program: to run.
        training: the mode.
        constants: parameters (and inputs) whose values it knows already.
        items: the program's nodes, with those that run again in groups; then the function has a fifth argument, which
            is false.
        statistics: :func:`statistics_of` the network.
    """

    def function(
        parameters: Mapping[str, Any], state: Mapping[str, Any], inputs: Mapping[str, Any], key: Any, never: Any = None
    ) -> tuple[dict[str, Any], dict[str, Any]]:
        context = RunContext(training, key, state, statistics, never=never)
        results = run(program, {**parameters, **state, **inputs, **constants}, context, items)
        return dict(zip(program.outputs, results, strict=True)), context.updates

    return function


def run(
    program: Program, values: Mapping[str, Any], context: RunContext, items: Sequence[Item] | None = None
) -> list[Any]:
    """Run a program's nodes (as ``items``, if given) on these values and return its outputs in order."""
    env: dict[str, Any] = {**program.constants, **values}
    read = values_read(program.nodes, program.outputs)
    with np.errstate(all="ignore"):  # IEEE arithmetic, as on every device
        _walk(program, program.nodes if items is None else items, env, context, read)
    missing = [name for name in program.outputs if name not in env]
    if missing:
        raise InputError(f"got {missing[0]!r}, which nothing provides; expected a value of the program")
    return [env[name] for name in program.outputs]


def _walk(program: Program, items: Sequence[Item], env: dict[str, Any], context: RunContext, read: set[str]) -> None:
    """Run nodes and groups of them, in order."""
    for item in items:
        if isinstance(item, NodeGroup):

            def inside(env: dict[str, Any], context: RunContext, items: Sequence[Item] = item.items) -> None:
                _walk(program, items, env, context, read)

            run_group(item, env, context, inside, frozenset(program.attributes))
        elif item.op_type == "Constant" and not item.domain:
            env[item.outputs[0]] = constant_value(item)
        else:
            with jax.named_scope(scope_of(item.name)):  # so XLA's metadata, and profiles, name the node
                if is_custom(item):
                    env.update(_custom(item, env, context, program))
                else:
                    context.node = item
                    env.update(_call(item, env, context, read))


def scope_of(name: str) -> str:
    """The name of a node as a scope of JAX's, whose own separators are written in another way.

    Example:
        >>> scope_of("layer1/conv")
        'node:layer1%2Fconv'
    """
    return f"node:{quote(name, safe='')}"


def _custom(node: Node, env: Mapping[str, Any], context: RunContext, program: Program) -> dict[str, Any]:
    """One custom node's results by name, those of its first run if it is in a region that runs again."""
    operands = [env.get(name) for name in node.inputs]
    earlier = context.custom_outputs.get(node.name)
    outputs = call_node(node, operands, program.descriptors, custom_op, desc_from_tensor, earlier)
    if context.keeping:
        context.custom_outputs[node.name] = outputs
    return {name: value for name, value in zip(node.outputs, outputs, strict=False) if name}


def _call(node: Node, env: Mapping[str, Any], context: RunContext, read: set[str]) -> dict[str, Any]:
    """One node's results by name."""
    entry = OPS[node.domain, node.op_type]
    args = [env[name] if name else None for name in node.inputs]
    try:
        for i in entry.static:
            if i < len(args) and not is_known(args[i]):
                raise DependsOnData(_where(node), [node.inputs[i]])
        if node.op_type in STATIC and args[0] is not None:
            operands = [arg if i and is_known(arg) else None for i, arg in enumerate(args)]
            check_operands(node, operands, args[0].shape)
        results, several = _apply(entry, node, args, env, context, read)
    except DependsOnData as error:
        if error.where and not node.graphs:
            raise
        raise DependsOnData(error.where or _where(node), _traced(node, env)) from error
    except (jax.errors.ConcretizationTypeError, jax.errors.TracerArrayConversionError) as error:
        raise DependsOnData(_where(node), _traced(node, env)) from error
    except Deep500Error:
        raise
    except (ValueError, LookupError, TypeError, ArithmeticError, AttributeError, MemoryError) as error:
        raise unfit_operands(node, args, error) from error
    names = node.outputs if several else node.outputs[:1]
    return {name: value for name, value in zip(names, results if several else (results,), strict=False) if name}


def _apply(
    entry: JaxEntry, node: Node, args: Sequence[Any], env: Mapping[str, Any], context: RunContext, read: set[str]
) -> tuple[Any, bool]:
    """Call the table's function; also whether it returned several results."""
    kwargs = {
        k: BodyFunction(v, env, context) if isinstance(v, onnx.GraphProto) else v
        for k, v in entry.keywords(node.all_attributes()).items()
    }
    used = used_outputs(node, read)
    offered = {"outputs": used, "context": context}
    kwargs.update({name: offered[name] for name in entry.extras})
    several = entry.many or len(used) > 1
    if entry.host or "context" in entry.extras or not all(map(is_known, args)):
        return entry.function(*args, **kwargs), several
    with jax.ensure_compile_time_eval():
        results = entry.function(*args, **kwargs)
        return jax.tree.map(np.asarray, results), several


def _where(node: Node) -> str:
    return f"{node.name!r} ({node.op_type})"


def _traced(node: Node, env: Mapping[str, Any]) -> list[str]:
    """Values that a node reads, its sub-graphs included, and that are not known."""
    return [name for name in dict.fromkeys(node.reads) if not is_known(env[name])]


def statistics_of(network: Graph, nodes: Sequence[Node]) -> list[str]:
    """Parameters that are running statistics which follow the executor's mode: they are state."""
    statistics: dict[str, None] = {}
    for node in nodes:
        if node.op_type == "BatchNormalization" and not node.domain and not node.attribute("training_mode"):
            running = [network.parameters.get(name) for name in node.inputs[3:5]]
            statistics.update(
                {n: None for n, p in zip(node.inputs[3:5], running, strict=True) if p and not p.trainable}
            )
    return list(statistics)
