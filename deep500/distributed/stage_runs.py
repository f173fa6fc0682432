"""`StageRun`: one stage of a network on a backend, forward and backward, its parameters brought by the caller."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

from deep500.distributed.transports.communicator import Communicator
from deep500.networks.execution.capabilities import PullsBack
from deep500.networks.execution.executor import GraphExecutor
from deep500.tensors import numpy_dtype
from deep500.transformations.stages import SEED, TrainingStage


class StageRun:
    """Runs a stage; holds no parameter, and nothing of a run after it.

    Backward is the framework's own automatic differentiation where an executor ``PullsBack``, else the gradient that
    the stage's network emits.

    Args:
        stage: what to run.
        like: an executor of the backend that runs it. Its network keeps the running statistics, which a run reads and
            writes.
    """

    def __init__(self, stage: TrainingStage, like: GraphExecutor) -> None:
        self.stage, self.home = stage, like.network
        self.executor = like.like(stage.network)
        # a backend may draw otherwise where nobody reads the mask; backward it is read
        drawn = [value for node in stage.network.nodes if node.is_random for value in node.writes]
        self._forward = [*dict.fromkeys([*stage.hands_on, *stage.outputs, *stage.statistics.values(), *drawn])]
        self._backward = [*dict.fromkeys(stage.gradients.values())]

    def forward(self, tensors: Mapping[str, Any], seed: int = 0) -> dict[str, Any]:
        """Compute what the stage hands on, and its outputs; statistics of the home network move.

        Args:
            tensors: by name: inputs of the network, what the stage receives, and its parameters.
            seed: of the random numbers.
        """
        self._prepare(seed)
        results = self._run(tensors, self._forward)
        self._keep_statistics(results)
        return {name: results[name] for name in dict.fromkeys([*self.stage.hands_on, *self.stage.outputs])}

    def backward(
        self, tensors: Mapping[str, Any], gradients: Mapping[str, Any], seed: int = 0, first: bool = False
    ) -> tuple[dict[str, Any], dict[str, Any]]:
        """The forward pass again, and back.

        Args:
            tensors, seed: those of the forward pass.
            gradients: of the loss with respect to each value that the stage handed on and, if it is computed here, to
                the loss itself; what is absent is 0.
            first: whether this is the stage's only run on these samples, so that it returns outputs and moves the
                statistics as well.

        Returns:
            gradients by parameter and by received value, and the outputs (empty unless ``first``).
        """
        self._prepare(seed)
        seeds = {}
        for name in self.stage.network.inputs:
            if name.startswith(SEED):
                value = name.removeprefix(SEED)
                seeds[value] = gradients[value] if value in gradients else self._zeros(value, tensors)
        forward = self._forward if first or self.stage.random else []
        seeds = {
            value: self._as_declared(s, self.stage.network.inputs[SEED + value].dtype) for value, s in seeds.items()
        }
        if isinstance(self.executor, PullsBack):
            pulled, results = self.executor.pull_back(self._needed(tensors), seeds, list(self.stage.gradients), forward)
        else:
            fed = {SEED + value: seed for value, seed in seeds.items()}
            results = self._run({**tensors, **fed}, [*dict.fromkeys([*self._backward, *forward])])
            pulled = {name: results[value] for name, value in self.stage.gradients.items()}
        if first:
            self._keep_statistics(results)
        return pulled, {name: results[name] for name in self.stage.outputs} if first else {}

    def _needed(self, tensors: Mapping[str, Any]) -> dict[str, Any]:
        statistics = list(self.stage.statistics)
        tensors = {**tensors, **dict(zip(statistics, self.home.fetch_tensors(statistics), strict=True))}
        declared = self.stage.network.inputs
        return {name: self._as_declared(tensors[name], declared[name].dtype) for name in declared if name in tensors}

    @staticmethod
    def _as_declared(value: Any, dtype: str | None) -> Any:
        """NumPy kernels keep narrow floats in wider arrays: between stages they are rounded as their dtype says."""
        if not isinstance(value, np.ndarray) or dtype is None or "(" in dtype:
            return value
        return value.astype(numpy_dtype(dtype), copy=False)

    def _run(self, tensors: Mapping[str, Any], names: list[str]) -> dict[str, Any]:
        results = self.executor.inference(self._needed(tensors), names)
        self.executor.network.forget_results()
        return results

    def _zeros(self, value: str, tensors: Mapping[str, Any]) -> np.ndarray:
        """For a value that no later stage has a gradient of: it takes its shape from a run."""
        to_numpy = self.home.to_numpy
        return np.zeros_like(to_numpy(self._run(tensors, [value])[value]))

    def _prepare(self, seed: int) -> None:
        if self.stage.random:
            self.executor.reseed(seed)

    def _keep_statistics(self, results: Mapping[str, Any]) -> None:
        for name, value in self.stage.statistics.items():
            self.home.feed_tensor(name, results[value])


def clip_factor(comm: Communicator, clip: Any, gradients: Iterable[np.ndarray]) -> float | None:
    """Factor of clipping by norm, for gradients of which each rank has some; None without clipping."""
    if clip is None:
        return None
    squares = np.array([float(sum(np.vdot(gradient, gradient) for gradient in gradients))])
    comm.all_reduce(squares, control=squares.nbytes)
    return float(clip.factor(squares[0] ** 0.5))
