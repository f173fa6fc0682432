"""Jobs that a worker measures: training steps of a recipe, or inferences of an ONNX file."""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from itertools import cycle
from typing import Any

from deep500.compare.subject import Setting, Subject, digests
from deep500.events import Event
from deep500.metrics import TestAccuracy, TimeToAccuracy, TrainingTime
from deep500.networks.execution.inputs import make_inputs
from deep500.networks.network import Network
from deep500.operators.registry import load_plugins
from deep500.recipe.build import make_executor, make_optimizer, make_parts
from deep500.recipe.recomputation import refuse_memory
from deep500.registry import load_backend
from deep500.tensors import digest
from deep500.training.trainer import Trainer

Repetition = tuple[Callable[[], Any], Callable[[], Any]]
BATCHES = 20
"""Batches over which measured training steps go round; the gate digests the same ones."""


class Training:
    """Training steps of a recipe on one framework."""

    def __init__(self, framework: str, **setting: Any) -> None:
        self.subject = Subject.load(Setting(**{**setting, "overrides": tuple(setting.get("overrides", ()))}), framework)
        values = self.subject.plan.values
        refuse_memory(values, "a comparison of frameworks")
        batches = self.subject.batches(BATCHES)
        self.executor = make_executor(values, self.subject.network())
        self.executor.reseed(self.subject.seed)
        self.optimizer = make_optimizer(values, self.executor)
        self.following = cycle(batches)
        self.facts = {
            "weights": digest(self.executor.network.state()),
            "batches": digests(batches),
            "batch_size": len(next(iter(batches[0].values()))),
            "device": str(self.executor.device),
        }

    def repetition(self) -> Repetition:
        """One training step, and how to wait for the device."""
        following, step = self.following, self.optimizer.step
        return lambda: step(next(following)), self.executor.synchronize

    def train(self, seed: int) -> dict[str, Any]:
        """Train the recipe anew and return its results; None for what was not reached."""
        plan = self.subject.plan
        parts = make_parts(plan.values, self.subject.data, seed, False)
        trainer = Trainer(
            parts.train_sampler, parts.validation_sampler, parts.executor, parts.optimizer, seed=seed, task=parts.task
        )
        schedule = [] if plan.values["schedule"] is None else [copy.deepcopy(plan.values["schedule"])]
        events: list[Event] = [event() if isinstance(event, type) else event for event in plan.values["events"]]
        statistics = trainer.run(plan.values["epochs"], [*schedule, *events])
        target = self.target()
        return {
            "seed": seed,
            "accuracy": TestAccuracy().measure(statistics),
            "accuracies": [value for value in statistics.column("test_accuracy") if value is not None],
            "training_time": TrainingTime().measure(statistics),
            "target": target,
            "time_to_target": None if target is None else TimeToAccuracy(target).measure(statistics),
        }

    def target(self) -> float | None:
        """The recipe's acceptable test accuracy."""
        targets = (target for metric, target in self.subject.plan.metrics if isinstance(metric, TestAccuracy))
        return next((target for target in targets if target is not None), None)


class Inference:
    """Inferences of an ONNX file on one framework."""

    def __init__(
        self, framework: str, model: str, seed: int, sizes: dict[str, int], custom_ops: Sequence[str] = ()
    ) -> None:
        load_plugins(custom_ops)
        self.network = Network.from_onnx(model)
        self.executor = load_backend(framework).from_model(self.network)
        self.seed, self.sizes = seed, sizes
        self.facts = {"weights": digest(self.executor.network.state()), "device": str(self.executor.device)}

    def repetition(self, batch: int | None) -> Repetition:
        """One inference of a batch, with outputs on the device, and how to wait for it."""
        inputs = make_inputs(self.network, batch, self.seed, self.sizes)
        inference = self.executor.inference
        return lambda: inference(inputs), self.executor.synchronize


def _operator(**options: Any) -> Any:
    from deep500.compare.operator_subject import OperatorJob

    return OperatorJob(**options)


JOBS: dict[str, Callable[..., Any]] = {"training": Training, "inference": Inference, "operator": _operator}
