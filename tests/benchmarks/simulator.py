"""How far the predicted time of a step is from the real one, per scheme, on 2 and 4 ranks of this machine.

python -m tests.benchmarks.simulator
python -m tests.benchmarks.simulator --framework reference --schemes ConsistentDecentralized --rounds 3

The network is fitted to messages between two ranks. In every round each scheme trains on real ranks, in turns with the
same steps without exchange, on all ranks at once, and with fixed work; the former are the compute times of the
prediction, the latter the noise. So what other programs take is in both (more ranks than cores are refused), and the
error is that of the model: messages, waiting and the scheme's own computation. Printed: predicted over measured, minus
1, median and interval over the rounds, without and with noise replayed, beside the share of the cores that others took;
where that is too much for a prediction, both are printed all the same, and that it would be refused.
"""

from __future__ import annotations

import argparse
import os
from dataclasses import replace
from typing import Any

import numpy as np

from deep500.compare.subject import Setting
from deep500.errors import InputError
from deep500.measure.machine import usable_cores
from deep500.measure.statistics import Interval, median_interval
from deep500.recipe.loader import find_recipe
from deep500.scaling.command import SCHEMES
from deep500.scaling.noise import noise_of
from deep500.scaling.prediction import SHARED, Compute, Machine, step_seconds
from deep500.scaling.ranks_job import fitted, on_ranks
from deep500.scaling.rig import Rig, SchemeChoice, parse_schemes
from tests.benchmarks.filling import say, say_not, say_ratio, with_ends

FIGURES = {
    "predicted over measured time of a step, minus 1, per scheme, 2 ranks with a core each": "median within 10 %",
    "more ranks than cores": "refused",
}
ERROR, MORE_RANKS = FIGURES


def round_(rig: Rig, scheme: SchemeChoice, ranks: int, job: dict[str, Any], machine: Machine) -> tuple[float, ...]:
    """Seconds per step: measured, predicted without and with noise; and seconds that a second of work takes."""
    answer = on_ranks(ranks, {**job, "scheme": str(scheme)})
    share = -(-job["global_batch"] // answer["workers"])
    compute = Compute({share: np.array(answer["compute"])}, rig, steps=100)
    noise = noise_of(answer)
    guesses = []
    for replayed in (None, noise):
        asked = replace(machine, noise=replayed)
        asked.check = lambda ranks: None  # type: ignore[method-assign]  # what would be refused is shown, too
        guesses.append(step_seconds(compute, rig, scheme, ranks, job["global_batch"], asked)[0].median)
    return float(np.mean(answer["seconds"])), *guesses, noise.dilation


def refused(machine: Machine, ranks: int) -> str:
    """Why so many ranks are not predicted; empty if they are."""
    try:
        machine.check(ranks)
    except InputError as refusal:
        return str(refusal)
    return ""


def main() -> int:
    """Print one line per scheme and number of ranks; 1 if a bar is missed."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--recipe", default="digits_lenet")
    parser.add_argument("--framework", default="pytorch")
    parser.add_argument("--schemes", default=SCHEMES)
    parser.add_argument("--ranks", default="2,4")
    parser.add_argument("--rounds", type=int, default=8)
    words = parser.parse_args()
    setting = {"recipe": str(find_recipe(words.recipe)), "overrides": []}
    rig = Rig(words.framework, Setting(setting["recipe"]))
    job = {
        "do": "steps",
        "setting": setting,
        "framework": words.framework,
        "global_batch": rig.batch_size,
        "blocks": 8,
        "block_seconds": 0.25,
    }
    network = on_ranks(2, {"do": "network"})
    machine = Machine(fitted(network), usable_cores())
    print(f"{machine.net}; misses its own messages by {network['median']:.0%}, at most {network['worst']:.0%}")
    errors: dict[str, Interval] = {}
    for ranks in map(int, words.ranks.split(",")):
        if why := refused(machine, ranks):
            print(f"{ranks} ranks: refused: {why}", flush=True)
            continue
        for scheme in parse_schemes(words.schemes):
            rounds = np.array([round_(rig, scheme, ranks, job, machine) for _ in range(words.rounds)])
            taken = 1 - 1 / float(np.median(rounds[:, 3]))
            shown = [f"{scheme!s:28} {ranks} ranks: measured {1e3 * np.median(rounds[:, 0]):8.3f} ms"]
            for column, name in ((1, "predicted"), (2, "with noise")):
                error = median_interval(rounds[:, column] / rounds[:, 0] - 1)
                shown.append(f"{name} {1e3 * np.median(rounds[:, column]):8.3f} ms, error {with_ends(error)}")
                if column == 1 and ranks == 2:
                    errors[f"{scheme}"] = error
            said = f"others took {taken:.0%} of the cores" + (", refused" if 1 / (1 - taken) > SHARED else "")
            print("; ".join([*shown, said, f"load {os.getloadavg()[0]:.0f}"]), flush=True)
    cores = usable_cores()
    why = refused(machine, cores + 1)
    met = say(MORE_RANKS, why or f"{cores + 1} ranks on {cores} cores: predicted", bool(why))
    if errors:
        met &= say_ratio(ERROR, errors, at_most=0.1, at_least=-0.1)
    else:
        say_not(ERROR, "2 ranks were refused, or not asked for")
    return 0 if met else 1


if __name__ == "__main__":
    raise SystemExit(main())
