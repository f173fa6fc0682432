"""Traces of a framework from given weights and batches: everything that the gate compares, as arrays."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from deep500.compare.subject import Batch, Candidate
from deep500.networks.execution.executor import GraphExecutor
from deep500.networks.network import Network

Arrays = Mapping[str, np.ndarray]
CURVE = 20
"""Steps of the loss curves."""
STEPS = 4
"""Steps of the optimizer in double precision."""


@dataclass
class TrainingTrace:
    """The arrays that a framework computed.

    Attributes:
        evaluation: outputs of ``inference`` for each batch, from the initial weights.
        training: outputs of ``inference_and_backprop`` on the first batch.
        statistics: parameters that are not trained, after that run.
        gradients: of that run, by parameter.
        steps: all parameters after each step of the optimizer.
    """

    evaluation: list[Arrays] = field(default_factory=list)
    training: Arrays = field(default_factory=dict)
    statistics: Arrays = field(default_factory=dict)
    gradients: Arrays = field(default_factory=dict)
    steps: list[Arrays] = field(default_factory=list)


def cast(batches: Sequence[Batch], dtype: str, limit: int | None = None) -> list[Batch]:
    """Batches with floating-point arrays in another precision, and at most ``limit`` samples."""
    cut = [{name: array[:limit] for name, array in batch.items()} for batch in batches]
    return [{n: a.astype(dtype) if a.dtype.kind == "f" else a for n, a in batch.items()} for batch in cut]


def as_arrays(executor: GraphExecutor, tensors: Mapping[str, object]) -> dict[str, np.ndarray]:
    """Tensors of a framework as arrays of their own."""
    to_numpy = executor.network.to_numpy
    return {name: np.array(to_numpy(tensor)) for name, tensor in tensors.items()}


def gradients_of(executor: GraphExecutor, loss: str) -> dict[str, np.ndarray]:
    """The gradients of the last run by parameter."""
    pairs = executor.network.gradient(loss)
    tensors = executor.network.fetch_tensors([gradient for _, gradient in pairs])
    return as_arrays(executor, {name: tensor for (name, _), tensor in zip(pairs, tensors, strict=True)})


def trace(
    candidate: Candidate,
    network: Network,
    plain: Network,
    batches: Sequence[Batch],
    loss: str,
    judge: TrainingTrace | None = None,
) -> TrainingTrace:
    """Run a framework through everything.

    Args:
        candidate: the framework.
        network: evaluated as it is.
        plain: the same without randomness, for training.
        batches: at least :data:`STEPS`, in the network's dtype.
        loss: the scalar to differentiate.
        judge: before each further step of the optimizer the parameters are set to what the judge had then. So only what
            the step itself does is compared; left alone, a deep network multiplies rounding a hundredfold per step.
    """
    seen = TrainingTrace()
    executor = candidate.build(network)
    order = [0, 1, 0] if len(batches) > 1 else [0]  # a result must not depend on the run before
    seen.evaluation = [as_arrays(executor, executor.inference(batches[number])) for number in order]
    executor = candidate.build(plain)
    seen.training = as_arrays(executor, executor.inference_and_backprop(batches[0], loss))
    trained = set(executor.network.get_params())
    state = executor.network.state()
    seen.statistics = {name: value for name, value in state.items() if name not in trained}
    seen.gradients = gradients_of(executor, loss)
    if candidate.optimizer is not None:
        executor = candidate.build(plain)
        optimizer = candidate.optimizer(executor)
        for number in range(STEPS):
            if judge is not None and number:
                _load(executor, judge.steps[number - 1])
            optimizer.step(batches[number % len(batches)])
            seen.steps.append(executor.network.state())
    return seen


def _load(executor: GraphExecutor, state: Arrays) -> None:
    for name, current in executor.network.state().items():
        value = state[name].astype(current.dtype)
        if not np.array_equal(value, current):  # to feed what the code holds as a constant may compile it again
            executor.network.feed_tensor(name, value)


def curve(executor: GraphExecutor, optimizer: Any, batches: Sequence[Batch], loss: str) -> dict[str, list[float]]:
    """Loss and gradient norm of the first steps, in the network's own precision and with its randomness."""
    executor.reseed(0)
    losses, norms = [], []
    for batch in batches:
        outputs = optimizer.step(batch)
        losses.append(float(executor.network.to_numpy(outputs[loss])))
        squares = [float((g.astype(np.float64) ** 2).sum()) for g in gradients_of(executor, loss).values()]
        norms.append(sum(squares) ** 0.5)
    return {"loss": losses, "gradient_norm": norms}
