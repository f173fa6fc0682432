"""``deep500 measure-op``: one operator in several frameworks, forward and backward: the same, right, and how fast?

The operator is the only node of a network. It is timed on tensors that each framework already has. For the gradient
its floating inputs are parameters, and the loss is a sum of its outputs, weighted at random, so that an element in the
wrong place is seen. The judge's gradient is held against differences of its own forward, in float64 where the operator
takes that, and the other frameworks against the judge.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import KW_ONLY, asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from deep500.compare.frameworks import Effort, check_frameworks, write
from deep500.compare.models import JUDGES
from deep500.compare.operator_gate import check_operator
from deep500.compare.operator_subject import BOTH, FORWARD, OneOperator
from deep500.compare.result import ComparisonResult
from deep500.compare.timing import Team
from deep500.compare.traces import as_arrays
from deep500.errors import MissingBackend, UnsupportedOperator
from deep500.keywords import takes
from deep500.measure.environment import describe
from deep500.measure.machine import threads_to_use
from deep500.networks.execution.executor import GraphExecutor
from deep500.operators.registry import load_plugins
from deep500.registry import backend_names, is_installed, load_backend


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
