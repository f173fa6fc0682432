"""Prints the figures that were asked for; see the package's docstring."""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable

import numpy as np

import tests.benchmarks.recomputation
from deep500.errors import BudgetError
from deep500.frameworks.reference.compiler import KernelProgram
from deep500.frameworks.reference.operators.table import Random
from deep500.measure.statistics import median_interval
from deep500.networks import add_loss, create
from deep500.transformations.recomputation.chain import optimal_chain
from deep500.transformations.recomputation.counting import peak_bytes
from deep500.transformations.recomputation.placement import optimal_placement
from deep500.transformations.recomputation.planning import plan_network
from deep500.transformations.recomputation.region_tree import simulate
from deep500.transformations.recomputation.rewriting import planned_step
from deep500.transformations.workshop.recomputation.baselines import greedy, segmented
from tests.benchmarks.filling import say, say_ratio
from tests.benchmarks.recomputation import GREEDY, MIXED, PLACED, PREDICTED, SLOWEST, UNIFORM
from tests.transformations.recomputation.chains import random_chain, unit_chain
from tests.transformations.recomputation.test_rewriting import inputs_of, run
from tests.transformations.recomputation.trees import best_by_trying, mismatches, random_tree


def profiler() -> None:
    wrong = every = 0
    for label, places in (("own", None), ("shared", 8)):
        for kept in (False, True):
            counts = [mismatches(random_tree(seed, 4 + seed % 27, places=places), kept) for seed in range(210)]
            more, total = sum(w for _, w in counts), sum(t for t, _ in counts)
            print(f"{label} locations, snapshots {'kept' if kept else 'dropped'}: {more} mismatches of {total}")
            wrong, every = wrong + more, every + total
    say(PREDICTED, f"{wrong} of {every}", not wrong)


def nested() -> None:
    wrong = solved = 0
    for seed in range(60):
        root = random_tree(seed, 6 + seed % 5, places=5 if seed % 3 == 0 else None, transient=seed % 2 == 0)
        for share in (0.4, 0.6, 0.8):
            budget = int(share * simulate(root, ()).peak)
            for kept in (False, True):
                try:
                    got = optimal_placement(root, budget, snapshot_kept=kept).outcome.extra
                except BudgetError:
                    got = None
                wrong += got != best_by_trying(root, budget, kept)
                solved += 1
    say(PLACED, f"{wrong} of {solved}", not wrong)
    ratios, slowest = [], 0.0
    for seed in range(3):
        root = random_tree(seed, 150)
        for share in (0.3, 0.5, 0.7):
            begin = time.perf_counter()
            best = optimal_placement(root, share)
            slowest = max(slowest, time.perf_counter() - begin)
            ratios.append(greedy(root, share).outcome.extra / best.outcome.extra)
    say(SLOWEST, f"at most {slowest:.1f} s, {len(ratios)} plans", slowest <= 30)
    mean = statistics.mean(ratios)
    say(GREEDY, f"{min(ratios):.2f} to {max(ratios):.2f}, mean {mean:.2f}", min(ratios) >= 1 and mean >= 1.10)


def chains() -> None:
    plan = optimal_chain(unit_chain(100), 11)
    say(MIXED, f"{plan.outcome.time:.0f}", plan.outcome.time == 237)
    least, root = [], []
    for seed in range(20):
        chain = random_chain(seed, 20)
        rivals = [segmented(chain, count).outcome for count in range(2, 21)]
        smallest, square = min(rivals, key=lambda o: o.peak), min(rivals[2:4], key=lambda o: o.peak)
        for gains, rival in ((least, smallest), (root, square)):
            gains.append(optimal_chain(chain, rival.peak, slots=10**9).outcome.extra / rival.extra)
    of = {"over 4 or 5 segments of 20 random stages": root, "over those with the least peak": least}
    say_ratio(UNIFORM, {which: median_interval(gains) for which, gains in of.items()})


def steps() -> None:
    for name, options, batch, share in (
        ("resnet", {"depth": 20}, 32, 0.6),
        ("resnet", {"depth": 44}, 16, 0.4),
        ("transformer", {}, 32, 0.6),
    ):
        net = add_loss(create(name, **options))
        plan = plan_network(net, share, batch)
        step, again = planned_step(net, plan)
        inputs = inputs_of(net, batch)
        (want, full), (got, less) = run(step.network, inputs), run(again.network, inputs)
        same = all(np.array_equal(want[k], got[k]) for k in want)
        compiled = [KernelProgram(n, n.outputs, Random(0)) for n in (step.network, again.network)]
        times: list[list[float]] = [[], []]
        for _ in range(5):
            for seconds, compiled_plan in zip(times, compiled, strict=True):
                begin = time.process_time()
                compiled_plan.run(inputs)
                seconds.append(time.process_time() - begin)
        base = plan.predicted_time - plan.predicted_extra
        print(
            f"{name} {options}, batch {batch}, budget {share}: {len(plan.regions)} regions, bits "
            f"{'equal' if same else 'DIFFER'}"
        )
        print(
            f"    peak: predicted {plan.predicted_peak / peak_bytes(step.network):.3f} of that without, held "
            f"{less / full:.3f}; held over predicted {less / plan.predicted_peak:.4f}"
        )
        print(
            f"    step: {min(times[1]) / min(times[0]):.3f} of that without, by operations "
            f"{plan.predicted_time / base:.3f}"
        )


def clock() -> None:
    from tests.benchmarks.recomputation.clock import main

    main([])


def pytorch() -> None:
    from tests.benchmarks.recomputation.pytorch import figures

    figures()


PARTS: dict[str, Callable[[], None]] = {
    "profiler": profiler,
    "nested": nested,
    "chains": chains,
    "steps": steps,
    "clock": clock,
    "pytorch": pytorch,
}


def main() -> None:
    parser = argparse.ArgumentParser(
        description=tests.benchmarks.recomputation.__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--only", nargs="+", choices=PARTS, default=list(PARTS), help="which figures")
    for name in parser.parse_args().only:
        PARTS[name]()


if __name__ == "__main__":
    main()
