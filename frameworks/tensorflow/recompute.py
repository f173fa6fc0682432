"""Regions of a network that run again: the values inside are computed once more in the backward pass, not kept.

As ``tf.recompute_grad`` does it, but for walks through a program: a region is a ``tf.custom_gradient`` whose gradient
walks through the region once more, on inputs that wait for the arriving gradients by control edges. TensorFlow's graph
optimizer keeps nodes apart that have different control inputs, so it does not merge the second run with the first.

The second run draws the random numbers of the first from the generator's state at that time, leaves running statistics
alone, and takes what custom operators returned instead of calling them again, for they may hold state.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from deep500.errors import PlanError
from deep500.frameworks.tensorflow.layout import Last
from deep500.frameworks.tensorflow.runtime import tf
from deep500.networks.execution.grouping import NodeGroup

Walk = Any
"""A :class:`deep500.frameworks.tensorflow.compiler.Walk`, which runs regions by the functions of this file."""


class RunLog:
    """The values that the first run of a region leaves for the second, in order.

    Attributes:
        states: of the random generator, before each draw.
        results: of custom operators.
    """

    def __init__(self) -> None:
        self.states: list[Any] = []
        self.results: list[Sequence[Any]] = []

    def extend(self, other: RunLog) -> None:
        """Add what an inner region left."""
        self.states += other.states
        self.results += other.results


class Rerun:
    """The record of an earlier run, read in order."""

    def __init__(self, record: RunLog) -> None:
        self.states: Iterator[Any] = iter(record.states)
        self.results: Iterator[Sequence[Any]] = iter(record.results)


def draw(kind: str, state: Any, shape: Any, dtype: Any) -> Any:
    """Numbers of a generator (Philox) that is in this state: ``kind`` is ``"uniform"`` or ``"normal"``."""
    operator = tf.raw_ops.StatelessRandomUniformV2 if kind == "uniform" else tf.raw_ops.StatelessRandomNormalV2
    key, counter = tf.bitcast(state[2:], tf.uint64), tf.bitcast(state[:2], tf.uint64)
    return operator(shape=shape, key=key, counter=counter, alg=1, dtype=dtype)


def run_group(group: NodeGroup, walk: Walk, reached: frozenset[str]) -> None:
    """Run a region so that its gradient runs it again; its values become the walk's.

    Args:
        group: the region.
        walk: through the program around it.
        reached: values on which the loss depends; the others have no gradient.
    """
    names, arguments = _arguments(group, walk)
    layouts = {name: isinstance(walk.values.get(name), Last) for name in names}
    record = RunLog()
    written: list[tuple[str, bool]] = []

    def run(tensors: Sequence[Any], replay: Rerun | None, noted: RunLog) -> list[Any]:
        inner = walk.within(_wrapped(names, tensors, layouts, walk), replay, noted)
        inner.steps(group.items)
        written[:] = [(n, isinstance(inner.value(n), Last)) for n in group.writes if n not in inner.known]
        return [_tensor(inner.value(name), name) for name, _ in written]

    @tf.custom_gradient
    def region(*tensors: Any) -> Any:
        results = run(tensors, walk.replay, record)
        marks = [name in reached and y.dtype.is_floating for (name, _), y in zip(written, results, strict=True)]

        def gradient(*arriving: Any) -> list[Any]:
            cotangents = [g for g, mark in zip(arriving, marks, strict=True) if mark]
            return _again(
                names, tensors, cotangents, walk, lambda tied: _marked(run(tied, Rerun(record), RunLog()), marks)
            )

        return results, gradient

    results = region(*arguments)
    for (name, last), result in zip(written, results, strict=True):
        value = result if name in reached and result.dtype.is_floating else tf.stop_gradient(result)
        walk.values[name] = Last(value) if last else value
    if walk.record is not None:
        walk.record.extend(record)


def _again(names: Sequence[str], tensors: Sequence[Any], arriving: Sequence[Any], walk: Walk, run: Any) -> list[Any]:
    """The gradients of a region's inputs, from a second run that begins when these gradients are there."""
    if not arriving:
        return [None] * len(tensors)
    with tf.control_dependencies(arriving):
        tied = [x if name in walk.variables else tf.identity(x) for name, x in zip(names, tensors, strict=True)]
        moving = [x for x in tied if x.dtype.is_floating]
        with tf.GradientTape(watch_accessed_variables=False) as tape:
            tape.watch(moving)
            results = run(tied)
    gradients = tape.gradient(results, moving, output_gradients=list(arriving), unconnected_gradients="none")
    ready = iter(
        tf.tuple(gradients)
    )  # together: what comes before runs again once all values of this region are done with
    return [next(ready) if x.dtype.is_floating else None for x in tied]


def _marked(results: Sequence[Any], marks: Sequence[bool]) -> list[Any]:
    return [result for result, mark in zip(results, marks, strict=True) if mark]


def _arguments(group: NodeGroup, walk: Walk) -> tuple[list[str], list[Any]]:
    """The values that a region reads and that are not known, as tensors; parameters in the layout of the variables."""
    names, tensors = [], []
    for name in group.reads:
        variable = walk.variables.get(name)
        if name in walk.sources:
            tensors.append(walk.sources[name])
        elif name in walk.known or (variable is not None and not getattr(variable, "trainable", False)):
            continue
        elif variable is not None:  # one that the loss does not reach
            tensors.append(walk.in_layout(name))
        else:
            tensors.append(_tensor(walk.value(name), name))
        names.append(name)
    return names, tensors


def _tensor(value: Any, name: str) -> Any:
    value = value.tensor if isinstance(value, Last) else value
    if not isinstance(value, tf.Tensor):
        raise PlanError(
            f"got {name!r}, a sequence or an optional value, where a region of the plan begins or ends; expected "
            "tensors: leave that region out of the plan"
        )
    return value


def _wrapped(
    names: Sequence[str], tensors: Sequence[Any], layouts: Mapping[str, bool], walk: Walk
) -> tuple[dict[str, Any], dict[str, Any]]:
    """Parameters, and values as the walk had them."""
    values = dict(zip(names, tensors, strict=True))
    sources = {name: x for name, x in values.items() if name in walk.variables}
    return sources, {name: Last(x) if layouts[name] else x for name, x in values.items() if name not in sources}
