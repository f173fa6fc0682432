"""One network from its regions to a record: profile, plan, run in turns, compare."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from deep500.networks.execution.executor import GraphExecutor
from deep500.registry import load_backend
from deep500.results.recomputation import Choice, RecomputationRecord, record_of
from deep500.transformations.recomputation import CheckpointingPlan
from deep500.transformations.recomputation.counting import MemoryCurve
from recipes.studies.recomputation_profile.measuring import StepRunner, TimedStep, equal, runner_of, time_in_turns
from recipes.studies.recomputation_profile.planners import planner_for
from recipes.studies.recomputation_profile.subjects import PlanSubject
from recipes.studies.recomputation_profile.torch_budget import COMPILER, torch_runner
from recipes.studies.recomputation_profile.ways import NONE, PLANNED, TORCH, Way, WayPlanner, label_of, planned, ways_of

SHOWN = 0.5
"""The plan nearest to this budget is drawn over time."""


@dataclass(frozen=True)
class ProfileSettings:
    """The settings of the measurement.

    Attributes:
        backend, options: and what its ``from_model`` takes beside the network.
        budgets: of the plans, as shares of the peak without recomputation.
        guided: budgets of the greedy guide.
        torch: budgets of ``activation_memory_budget``; none: it is not measured.
        rounds: of timed steps.
        passes: of profiled steps.
    """

    backend: str
    budgets: Sequence[float]
    guided: Sequence[float]
    torch: Sequence[float]
    rounds: int
    passes: int
    options: Mapping[str, Any] = field(default_factory=dict)


@dataclass
class Profiled:
    """The outcome of one network: the record, the plans that ran by label, and what went wrong."""

    record: RecomputationRecord
    plans: dict[str, CheckpointingPlan]
    wrong: list[str]


class Bench:
    """One network on one backend."""

    def __init__(self, subject: PlanSubject, settings: ProfileSettings) -> None:
        self.subject, self.settings = subject, settings
        self.network, self.arrays = subject.network(), subject.inputs()
        self.planner: WayPlanner = planner_for(subject, self.network, self.executor(), self.arrays, settings.passes)
        self.runners: list[StepRunner] = []
        self.choices: list[Choice] = []
        self.plans: dict[str, CheckpointingPlan] = {}
        self.wrong: list[str] = []
        self.answer: dict[str, np.ndarray] = {}
        sizes = self.planner.regions.step.sizes
        self.outputs = sum(sizes[name] for name in self.network.outputs)

    def executor(self, plan: CheckpointingPlan | None = None) -> GraphExecutor:
        """A new one, under a plan or none."""
        executor: GraphExecutor = load_backend(self.settings.backend).from_model(self.network, **self.settings.options)
        if plan is not None:
            executor.set_checkpointing(plan)
        return executor

    def run(self) -> Profiled:
        """Everything; a record of it."""
        for way in ways_of(self.planner, self.settings.budgets, self.settings.guided, not self.subject.chain):
            self.add(way)
        self.add_torch()
        ran = [i for i, choice in enumerate(self.choices) if not choice.note.startswith("not run")]
        on_processor = self.executor().device.kind == "cpu"
        for i, timed in zip(ran, time_in_turns(self.runners, self.settings.rounds, on_processor), strict=True):
            self.choices[i] = with_times(self.choices[i], timed)
        plan = self.shown()
        curves = [] if plan is None else self.curves(plan)
        plan = plan or self.planner.plan(self.planner.full[0])
        record = record_of(self.planner.regions, plan, self.settings.backend, self.choices, curves)
        return Profiled(record, self.plans, self.wrong)

    def add(self, way: Way) -> None:
        """Run a way's first step, and note what it holds; what was refused is not run."""
        if way.refused:
            self.choices.append(Choice(way.label, way.family, note=f"not run: {way.refused}"))
            return
        runner, answer = runner_of(self.executor(way.plan), self.arrays)
        self.answer = self.answer or answer
        self.runners.append(runner)
        if not equal(answer, self.answer):
            self.wrong.append(f"{way.label}: gradients or running statistics differ from those without recomputation")
        if way.plan is None:
            peak, time = self.planner.full
            self.choices.append(Choice(way.label, way.family, 0, peak, time, runner.peak))
            return
        self.plans[way.label] = way.plan
        plan, peak = way.plan, runner.peak
        self.choices.append(
            Choice(way.label, way.family, len(plan.regions), plan.predicted_peak, plan.predicted_time, peak)
        )
        allowed = plan.budget + self.outputs  # which the caller holds to the end of the step
        if way.family == PLANNED and peak is not None and peak > allowed:
            self.wrong.append(f"{way.label}: got a measured peak of {peak:,} bytes; expected {allowed:,} at most")

    def add_torch(self) -> None:
        """PyTorch's own planner, and a plan of ours that holds no more than the best of its peaks."""
        peaks = []
        for budget in self.settings.torch:
            runner = torch_runner(self.executor(), self.arrays, budget)
            self.runners.append(runner)
            note = (
                "" if peaks else f"torch.compile(backend={COMPILER!r}); budgets are shares of saved bytes, not of peaks"
            )
            self.choices.append(Choice(f"torch budget {budget:g}", TORCH, measured_peak=runner.peak, note=note))
            peaks.append(runner.peak)
        full = next(choice.measured_peak for choice in self.choices if choice.family == NONE)
        least = min((peak for peak in peaks if peak is not None), default=None)
        if least is not None and full is not None and least < full:
            self.add(planned(self.planner, least, "planned, torch's best peak"))

    def shown(self) -> CheckpointingPlan | None:
        """The plan of the budget nearest to :data:`SHOWN` that ran."""
        labels = {label_of(budget): budget for budget in self.settings.budgets}
        ran = [label for label in labels if label in self.plans]
        return self.plans[min(ran, key=lambda label: abs(labels[label] - SHOWN))] if ran else None

    def curves(self, plan: CheckpointingPlan) -> list[MemoryCurve]:
        """Memory over a step without and with the plan, where the backend's allocator can be observed; else none."""
        if self.settings.backend != "pytorch" or self.executor().device.kind != "cpu":
            return []
        from deep500.frameworks.pytorch.memory import timeline

        curves = []
        for followed in (None, plan):
            executor = self.executor(followed)
            fed: dict[str, Any] = {name: executor.network.to_tensor(array) for name, array in self.arrays.items()}
            executor.inference_and_backprop(fed)
            executor.module.zero_grad(set_to_none=True)  # type: ignore[attr-defined]
            at, amounts = timeline(lambda executor=executor, fed=fed: executor.inference_and_backprop(fed))  # type: ignore[misc]
            curves.append(MemoryCurve(tuple(at), tuple(amounts)))
        return curves


def with_times(choice: Choice, timed: TimedStep) -> Choice:
    """A choice with its times."""
    return replace(choice, measured_time=timed.seconds, ratio=timed.ratio)
