"""Plans held to what a step of them holds: the backend that will run a plan runs it once before it is handed out.

Every model of memory, counted or measured stage by stage, is a little off: views, what autograd keeps besides, a step
that fuses more than its parts. So a budget is a share of the *measured* peak of a step, and a plan is accepted when a
measured step of it is within. What the model was off by on one plan is what it is asked for less, or more, on the next.
What its steps take is not added up from nodes either: the plan that is handed out is timed in turns with none at all.
"""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from statistics import median
from time import perf_counter, process_time
from typing import Any

from deep500.errors import BudgetError, OutOfMemory
from deep500.measure.allocation import save_memory
from deep500.measure.memory import free_memory
from deep500.networks.execution.capabilities import CountsStepMemory, step_memory
from deep500.networks.execution.executor import GraphExecutor
from deep500.progress import numbered, stage
from deep500.transformations.recomputation.budgets import unreachable
from deep500.transformations.recomputation.counting import Counter
from deep500.transformations.recomputation.plan_file import CheckpointingPlan

_ROUNDS = 5  # plans that are tried for one budget and one way of cutting

_PAIRS, _SECONDS = (5, 25), 1.5  # timed steps with a plan and without: fewest, most, and when the most need not be

_NEAR = 0.02  # of the peak: a plan that leaves no more than this is not improved

SHORT = "; memory is short here: that of a step without a plan is counted, and what is freed is returned at once"

ROOM = 1.5  # a step holds more than its values: what kernels need inside, and holes between blocks


@dataclass(frozen=True)
class Planner:
    """A model of one network, cut in one way.

    Attributes:
        full: bytes of a step in which nothing runs again, by the model.
        within: the plan with the least extra time within bytes of the model's; BudgetError if there is none.
    """

    full: int
    within: Callable[[int], CheckpointingPlan]

    def smallest(self) -> CheckpointingPlan:
        """The plan with the smallest peak of the model's."""
        try:
            return self.within(1)
        except BudgetError as error:
            if error.smallest is None:
                raise
            return self.within(error.smallest)


def is_short(counted: int) -> bool:
    """Return whether memory is short for a step that holds so many bytes of values."""
    free = free_memory()
    return free is not None and ROOM * counted > free


def step_peak(
    twin: GraphExecutor, plan: CheckpointingPlan | None, inputs: Mapping[str, Any], loss: str, counted: int = 0
) -> int | None:
    """Bytes that a step under a plan holds at most, measured; None where the backend does not count them.

    Args:
        twin: an executor that is used for nothing else.
        plan: None for a step without one.
        inputs, loss: of the step.
        counted: bytes of the values in it, if memory may be short: then such a step is not begun, since a system may
            end a process that takes too much, and the allocator returns what is freed from now on.

    Raises:
        OutOfMemory: memory does not hold it.
    """
    if not isinstance(twin, CountsStepMemory):
        return None
    if is_short(counted):
        save_memory()
        raise OutOfMemory(
            f"a step holds {counted} bytes of values; {free_memory()} are free: plan for less, or free some"
        )
    twin.set_checkpointing(plan)
    try:
        twin.inference_and_backprop(inputs, loss)  # compiles; libraries get their workspaces
        return step_memory(twin, inputs, loss)
    except OutOfMemory as error:
        text = str(error)
    gc.collect()  # the frames of the error, which hold what was computed, refer to each other
    raise OutOfMemory(text)


class Rehearsals:
    """Steps for the bytes that they hold, on an executor that is used for nothing else.

    Attributes:
        full: bytes of the step without a plan; None where the backend does not count them.
        whole: whether memory holds that step; if not, ``full`` is counted and nothing is timed.
        how: they were found.

    Example:
        >>> import numpy as np
        >>> import deep500.frameworks.reference as d5ref
        >>> from deep500.networks import add_loss, create
        >>> executor = d5ref.from_model(add_loss(create("mlp", shape=(4,), classes=3)))
        >>> batch = {"input": np.ones((8, 4), "float32"), "label": np.zeros(8, "int64")}
        >>> with executor.rehearsal() as twin:
        ...     Rehearsals(twin, batch, "loss").full == executor.step_memory(batch)
        True
    """

    full: int | None
    whole = True
    how = "measured"

    def __init__(self, twin: GraphExecutor, inputs: Mapping[str, Any], loss: str, counted: int = 0) -> None:
        self.twin, self.inputs, self.loss = twin, inputs, loss
        stage("a step without a plan")
        try:
            self.full = step_peak(twin, None, inputs, loss, counted)
        except OutOfMemory:
            self.full, self.whole = counted, False

    def measured_peak(self, plan: CheckpointingPlan) -> int | None:
        """Bytes that a step under a plan holds at most; see :func:`step_peak`."""
        return step_peak(self.twin, plan, self.inputs, self.loss)

    def measured(self, plan: CheckpointingPlan) -> CheckpointingPlan:
        """The plan with what was measured in the place of what was predicted; as it is where nothing is measured.

        What memory does not hold is as large as a step without a plan.
        """
        if self.full is None:
            return plan
        try:
            peak = self.measured_peak(plan)
        except OutOfMemory:
            peak = max(self.full, plan.predicted_peak)
        if peak is None:
            return plan
        method = plan.method if self.whole else f"{plan.method}{SHORT}"
        return replace(plan, predicted_peak=peak, peak_without=self.full, measured=True, method=method)

    def timed(self, plan: CheckpointingPlan, executor: GraphExecutor) -> CheckpointingPlan:
        """The plan with what a step under it takes, and a step without: medians of steps in turns.

        Times of nodes do not add up to it: frameworks overlap, allocate, and start what runs again at a price.
        """
        if not self.whole:
            return plan
        stage("steps with the plan and without, in turns")
        with executor.rehearsal() as plain:
            self.twin.set_checkpointing(plan)
            for twin in (plain, self.twin):
                twin.inference_and_backprop(self.inputs, self.loss)  # compiles
            pairs, end = list[tuple[float, float]](), perf_counter() + _SECONDS
            while len(pairs) < _PAIRS[0] or (len(pairs) < _PAIRS[1] and perf_counter() < end):
                pairs.append((self._seconds(plain), self._seconds(self.twin)))
        without = median(before for before, _ in pairs)
        time = without * median(after / before for before, after in pairs)
        return replace(plan, predicted_time=time, predicted_extra=max(0.0, time - without), time_unit="s")

    def _seconds(self, twin: GraphExecutor) -> float:
        """Seconds of a step, on a CPU of its own time, which other programs disturb less."""
        clock = process_time if twin.device.kind == "cpu" else perf_counter
        twin.synchronize()
        begin = clock()
        twin.inference_and_backprop(self.inputs, self.loss)
        twin.synchronize()
        return clock() - begin

    def within(self, planner: Planner, limit: int) -> CheckpointingPlan:
        """The quickest plan that is tried whose measured step is within ``limit`` bytes; its budget is the limit.

        Raises:
            BudgetError: none is; names the smallest that was measured.
        """
        if self.full is None:
            return planner.within(limit)
        best: CheckpointingPlan | None = None
        smallest, off, asked = self.full, self.full - planner.full, set[int]()
        for _ in numbered("a step of plan", range(_ROUNDS), f"at most {_ROUNDS}"):
            ask = max(planner.full, 1) * 2 if self.full <= limit else limit - off
            if ask in asked or ask < 1:
                break
            asked.add(ask)
            try:
                plan = planner.within(ask)
            except BudgetError:
                break
            tried = self.measured(plan)
            off = tried.predicted_peak - plan.predicted_peak
            smallest = min(smallest, tried.predicted_peak)
            if tried.predicted_peak <= limit and (best is None or plan.predicted_extra < best.predicted_extra):
                best = tried
                if limit - tried.predicted_peak <= _NEAR * self.full:
                    break
        if best is None:
            stage("a step of the smallest plan")
            tried = self.measured(planner.smallest())
            smallest = min(smallest, tried.predicted_peak)
            if tried.predicted_peak > limit:
                raise unreachable(limit, smallest, self.full, f"all plans that were tried and {self.how}")
            best = tried
        return replace(best, budget=limit)

    def quickest(self, planners: Iterable[Planner], limit: int) -> CheckpointingPlan:
        """Of the plans of several models within ``limit`` bytes, the one with the least extra time.

        Raises:
            BudgetError: there is none; names the smallest that was found.
        """
        plans, errors = list[CheckpointingPlan](), list[BudgetError]()
        for planner in planners:
            try:
                plans.append(self.within(planner, limit))
            except BudgetError as error:
                errors.append(error)
        if not plans:
            raise min(errors, key=lambda error: error.smallest or 0)
        return min(plans, key=lambda plan: plan.predicted_extra)


class Counts(Rehearsals):
    """The same where no backend counts: bytes of the network's values, for executors that free them early.

    Args:
        counter: of the network's regions, however they are cut.

    Example:
        >>> from deep500.networks import add_loss, create
        >>> from deep500.transformations.recomputation.regions import find_regions
        >>> counter = Counter(find_regions(add_loss(create("resnet", depth=8)), batch=2))
        >>> Counts(counter).full == counter.full
        True
    """

    how = "counted"

    def __init__(self, counter: Counter) -> None:
        self.counter, self.full = counter, counter.full

    def measured(self, plan: CheckpointingPlan) -> CheckpointingPlan:
        """The plan with what was counted."""
        peak, _ = self.counter.step([region.values for region in plan.regions])
        return replace(plan, predicted_peak=peak, peak_without=self.counter.full)

    def timed(self, plan: CheckpointingPlan, executor: GraphExecutor) -> CheckpointingPlan:
        """The plan as it is."""
        return plan
