"""The figures of recomputation in PyTorch, on a chain of 20 unlike residual blocks with measured stages.

python -m tests.benchmarks.recomputation --only pytorch

Peaks are the allocator's, parameters' gradients (made anew in every step) included; where those are said to be aside,
they are taken off by the model, whose peaks are the allocator's to 0.1 %. Times are processor time of one thread, by
rounds in which all plans take turns: medians of the ratios to the step without a plan in the same round.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
import torch

import deep500.frameworks.pytorch as d5fw
from deep500.errors import BudgetError
from deep500.frameworks.pytorch.memory import footprint
from deep500.measure.statistics import Interval, median_interval
from deep500.networks import add_loss, create
from deep500.transformations.recomputation import CheckpointingPlan, Stage, find_regions
from deep500.transformations.recomputation.chain import (
    ChainPlacement,
    as_plan,
    innermost_regions,
    keep_all,
    optimal_chain,
    plan_chain,
    simulate_chain,
    smallest_chain,
)
from deep500.transformations.recomputation.region_tree import Region
from deep500.transformations.workshop.recomputation.baselines import every_stage, greedy, segmented
from tests.benchmarks.filling import say, say_ratio, with_ends
from tests.benchmarks.recomputation import ADDED, PEAKS, RIVAL, STEPS

BATCH, ROUNDS = 8, 9
BARS = {0.5: 1.15, 0.35: 1.20, 0.3: 1.30}
SHARES = tuple(round(0.95 - 0.025 * i, 3) for i in range(28))


class Setting(NamedTuple):
    """The network, one batch, its regions and its measured stages."""

    network: Any
    inputs: dict[str, np.ndarray]
    regions: Any
    chain: Sequence[Stage]

    def plan(self, budget: float | int) -> CheckpointingPlan:
        """The chain's best plan."""
        return plan_chain(self.network, BATCH, self.regions, self.chain, budget, "pytorch")

    def rival(self, placement: Any) -> CheckpointingPlan:
        """A rival's placement as a plan."""
        return as_plan(self.network, BATCH, self.regions, placement, 10**12, "pytorch")

    def executor(self, plan: CheckpointingPlan | None, way: str = "explicit") -> Any:
        """One under a plan."""
        executor = d5fw.from_model(self.network, recompute=way)
        executor.set_checkpointing(plan)
        return executor


def figures() -> None:
    """All of them."""
    torch.set_num_threads(1)
    network = add_loss(create("mixed_resnet"))
    rng = np.random.default_rng(0)
    inputs = {"input": rng.standard_normal((BATCH, 3, 64, 64), np.float32), "label": rng.integers(0, 10, BATCH)}
    regions = find_regions(network, BATCH)
    chain = d5fw.from_model(network).measure_stages([region.values for region in innermost_regions(regions)], inputs)
    setting = Setting(network, inputs, regions, chain)
    full = simulate_chain(chain, keep_all(chain))
    share = sum(stage.forward for stage in chain) / full.time
    print(
        f"mixed_resnet, batch {BATCH}, {len(chain)} stages: peak {full.peak:,} B, step {full.time:.3f} s, of which "
        f"running forward {share:.3f}"
    )
    peaks(setting)
    recomputed(setting)
    times(setting)
    memory_budget(setting)


def peaks(setting: Setting) -> None:
    """Predicted against the allocator's."""
    plans: list[CheckpointingPlan] = []
    for share in SHARES:
        try:
            plans.append(setting.plan(share))
        except BudgetError:
            print(f"    budget {share}: none; smallest {smallest_chain(setting.chain).outcome.peak:,} B")
            break
    held = len(plans)
    plans += [setting.rival(segmented(setting.chain, n)) for n in range(2, 9)]
    plans.append(setting.rival(every_stage(setting.chain)))
    texts, good = [], True
    for way, bar in (("explicit", 0.01), ("checkpoint", 0.05)):
        measured = [setting.executor(plan, way).step_memory(setting.inputs) for plan in plans]
        off = [peak / plan.predicted_peak - 1 for peak, plan in zip(measured, plans, strict=True)]
        over = sum(peak > plan.budget for peak, plan in zip(measured[:held], plans, strict=False))
        texts.append(f"{way} {min(off):+.2%} to {max(off):+.2%} in {len(plans)} plans, {over} of {held} above")
        good &= max(map(abs, off)) <= bar and not over
    say(PEAKS, "; ".join(texts), good)


def recomputed(setting: Setting) -> None:
    """What runs again, against the paper's greedy guide on the same stages, by the measured times."""
    root = _tree(setting)
    ratios = []
    for share in (0.8, 0.7, 0.6, 0.5, 0.45, 0.4):
        budget = int(share * simulate_chain(setting.chain, keep_all(setting.chain)).peak)
        try:
            guide = greedy(root, budget, snapshot_kept=False).outcome.extra
        except BudgetError:
            continue
        ratios.append(setting.plan(budget).predicted_extra / guide)
    mean = statistics.mean(ratios)
    text = f"{min(ratios):.2f} to {max(ratios):.2f}, mean {mean:.2f} of what the greedy guide runs again"
    say(RIVAL, f"{text}, {len(ratios)} plans", max(ratios) <= 1 and mean <= 0.9)


def _tree(setting: Setting) -> Region:
    """The regions of the network with the measured bytes and times of its stages."""
    stages = dict(zip((region.name for region in innermost_regions(setting.regions)), setting.chain, strict=True))

    def measured(region: Region) -> Region:
        children = tuple(measured(child) for child in region.children)
        if children:
            last = children[-1].snapshot
            return Region(region.name, (0,) * (len(children) + 1), children, snapshot=last, candidate=region.candidate)
        stage = stages[region.name]
        mode = stage.modes[0]
        return Region(
            region.name,
            (mode.saved,),
            (),
            stage.output,
            stage.forward,
            mode.backward,
            advance=stage.overhead,
            overhead=stage.delta + mode.backward_overhead,
        )

    return measured(setting.regions.root)


def times(setting: Setting) -> None:
    """Steps under plans, and under segments of equal length at the least peak that these reach."""
    chain = setting.chain
    rivals = [segmented(chain, n) for n in range(2, len(chain) + 1)]
    root = [rival for rival in rivals if rival.method in ("4 segments", "5 segments")]
    best = min(root, key=lambda rival: rival.outcome.extra)
    least = min(rivals, key=lambda rival: rival.outcome.peak)
    subjects: dict[str, Any] = {"none": setting.executor(None)}
    beside = [replace(stage, gradient=min(stage.output, stage.delta)) for stage in chain]
    for share in BARS:
        aside = optimal_chain(beside, share, slots=2000)
        for way in ("explicit", "checkpoint"):
            subjects[f"{share} {way}"] = setting.executor(setting.plan(share), way)
            subjects[f"{share} {way}, gradients of parameters aside"] = setting.executor(
                setting.rival(ChainPlacement(aside.plan, simulate_chain(chain, aside.plan), aside.method)), way
            )
    for name, rival in (("sqrt(n)", best), ("least", least), ("every", every_stage(chain))):
        subjects[f"{name}, {rival.method}"] = setting.executor(setting.rival(rival))
        subjects[f"ours at the peak of {name}"] = setting.executor(setting.plan(rival.outcome.peak))
    full = subjects["none"].step_memory(setting.inputs)
    step_ratios = ratios({name: _step(executor, setting.inputs) for name, executor in subjects.items()})
    for name, ratio in step_ratios.items():
        plan = subjects[name].checkpointing
        model = (
            "" if plan is None else f", model {plan.predicted_time / (plan.predicted_time - plan.predicted_extra):.3f}"
        )
        peak = subjects[name].step_memory(setting.inputs) / full
        print(f"    {name}: peak {peak:.3f}, step {with_ends(median_interval(ratio))}{model}")
    planned = {share: median_interval(step_ratios[f"{share} explicit"]) for share in BARS}
    met = all(ratio.high is not None and ratio.high <= BARS[share] for share, ratio in planned.items())
    say(STEPS, "; ".join(f"{share:.0%}: {with_ends(ratio)}" for share, ratio in planned.items()), met)
    added: dict[str, Interval] = {}
    for name, rival in (("sqrt(n)", best), ("least", least), ("every", every_stage(chain))):
        ours, theirs = (step_ratios[key] for key in (f"ours at the peak of {name}", f"{name}, {rival.method}"))
        added[rival.method] = median_interval((ours - 1) / (theirs - 1))
    say_ratio(ADDED, added, at_most=0.65)


def _step(executor: Any, inputs: dict[str, np.ndarray]) -> Callable[[], Any]:
    return lambda: executor.inference_and_backprop(inputs)


def ratios(subjects: dict[str, Callable[[], Any]], rounds: int = ROUNDS) -> dict[str, np.ndarray]:
    """Every subject's time over the first one's in the same round."""
    taken: dict[str, list[float]] = {name: [] for name in subjects}
    for turn in range(rounds + 1):
        for name, step in subjects.items():
            begin = time.process_time()
            step()
            if turn:  # the first compiles
                taken[name].append(time.process_time() - begin)
    first = next(iter(taken.values()))
    return {name: np.divide(times, first) for name, times in taken.items()}


def memory_budget(setting: Setting) -> None:
    """PyTorch's own planner: ``activation_memory_budget`` with the backend aot_eager, ours at its measured peaks."""
    from torch._functorch import config

    executor = setting.executor(None)
    module, tensors = executor.module, [torch.from_numpy(value) for value in setting.inputs.values()]
    at = executor.network.outputs.index("loss")
    full = executor.step_memory(setting.inputs)

    def step(call: Callable[..., Any]) -> Callable[[], Any]:
        def run() -> None:
            for parameter in module.parameters():
                parameter.grad = None
            call(*tensors)[at].backward()

        return run

    for budget in (1.0, 0.8, 0.5, 0.4, 0.2, 0.0):
        torch._dynamo.reset()
        with config.patch(activation_memory_budget=budget):
            theirs = step(torch.compile(module, backend="aot_eager", dynamic=False))
            theirs()
            for parameter in module.parameters():
                parameter.grad = None
            peak = footprint(theirs).peak
            subjects = {"none": _step(executor, setting.inputs), "theirs": theirs}
            try:
                subjects["ours"] = _step(setting.executor(setting.plan(min(peak, full))), setting.inputs)
            except BudgetError:
                pass
            step_ratios = {name: float(np.median(found)) for name, found in ratios(subjects, 5).items()}
        ours = f"{step_ratios['ours']:.3f}" if "ours" in step_ratios else "none fits"
        print(
            f"    activation_memory_budget {budget}: peak {peak / full:.3f}, step {step_ratios['theirs']:.3f}; ours at "
            f"that peak {ours}"
        )
    smallest = smallest_chain(setting.chain).outcome.peak
    print(f"smallest peak that ours reaches: {smallest / full:.3f}")
