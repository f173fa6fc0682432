"""`measure`: time a function in one launch or in several, each of which begins anew.

What differs between processes (memory layout, hash seeds, which core, which neighbours) shows between launches only. So
launches are processes of their own, unless the plan says that they share this one, and then every result says so. Each
launch has its own warm-up and its own steady state; its interval over launches comes from
:mod:`deep500.measure.launches`.
"""

from __future__ import annotations

import dataclasses
import gc
import time
from collections.abc import Callable

import numpy as np

from deep500.measure.fresh import in_fresh_processes, resolve
from deep500.measure.launches import launches_differ, over_launches
from deep500.measure.plan import Plan
from deep500.measure.sampling import COARSE, Clock, Measurement, measure_launch, not_reached
from deep500.measure.standing import coarse, ties

SHARED = "launches share one process: what differs between processes is not in the interval"


def measure(
    function: Callable[[], object] | str,
    plan: Plan | None = None,
    synchronize: Callable[[], object] | None = None,
    clock: Clock = time.perf_counter_ns,
) -> Measurement:
    """Call a function repeatedly and time every call, in as many launches as the plan says.

    Args:
        function: takes nothing; what it returns is dropped. ``"module:name"`` is imported, in every process anew. For
            launches in processes of their own it must be one that pickle can send: a function of a module, or
            ``functools.partial`` of one.
        plan: what is wanted; 99 % interval of the median within 5 % by default, in one launch.
        synchronize: waits for the device, for instance ``executor.synchronize``; part of every sample.
        clock: returns nanoseconds.

    Raises:
        InputError: the clock went backwards; a function that cannot be sent to a new process; one that fails there.

    Example:
        >>> from deep500.measure.plan import Budget
        >>> found = measure(lambda: sum(range(1000)), Plan(budget=Budget(max_s=2.0)))
        >>> bool(found.samples.min() > 0), found.basis
        (True, 'within one launch')
    """
    plan = plan or Plan()
    count, fresh = plan.budget.launches, plan.budget.fresh
    single = dataclasses.replace(plan, budget=dataclasses.replace(plan.budget, launches=1))
    if count == 1:
        return measure_launch(resolve(function), single, synchronize, clock)
    if fresh:
        return combine(in_fresh_processes(count, function, single, synchronize, clock), plan)
    launches = []
    for _ in range(count):
        gc.collect()  # what one launch left behind is not collected within the next
        launches.append(measure_launch(resolve(function), single, synchronize, clock))
    return combine(launches, plan)


def combine(launches: list[Measurement], plan: Plan) -> Measurement:
    """Several launches as one measurement, whose intervals hold over launches where there are enough of them.

    Args:
        launches: one measurement each.
        plan: targets, and whether the launches were processes of their own.
    """
    groups = [launch.kept for launch in launches]
    states, least, differ = [launch.steady for launch in launches], plan.budget.min_neff, launches_differ(groups)
    estimates = [over_launches(groups, target.q, target.level, differ, states, least) for target in plan.targets]
    unsteady = [(number, launch.steady) for number, launch in enumerate(launches, 1) if not launch.steady.is_steady]
    problems = [f"no steady state in launch {number}: {steady}" for number, steady in unsteady]
    for estimate, target in zip(estimates, plan.targets, strict=True):
        if estimate.estimate.precision > target.rel:
            problems.append(not_reached(target, estimate.estimate, np.concatenate(groups)))
    reached = not problems  # the two below are remarks: they do not make the interval wrong
    problems += [COARSE] if any(COARSE in launch.problems for launch in launches) else []
    problems += [warning] if (warning := coarse(ties(np.concatenate(groups)))) else []
    problems += [] if plan.budget.fresh else [SHARED]
    return Measurement(
        np.concatenate([launch.samples for launch in launches]),
        unsteady[0][1] if unsteady else launches[0].steady,
        tuple(estimate.estimate for estimate in estimates),
        reached,
        tuple(problems),
        float(np.median([launch.timer_overhead for launch in launches])),
        estimates[0].basis + ("" if plan.budget.fresh else " in one process"),
        tuple(launches),
    )
