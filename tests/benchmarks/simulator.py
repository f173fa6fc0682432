"""How far the predicted time of a step is from the real one, per scheme, on 2 and 4 ranks of this machine.

python -m tests.benchmarks.simulator
python -m tests.benchmarks.simulator --framework reference --schemes ConsistentDecentralized --rounds 3

The network is fitted to messages between two ranks. In every round each scheme trains on real ranks, in turns with the
same steps without exchange, on all ranks at once; the latter are the compute times of the prediction. So what other
programs take is in both (more ranks than cores are refused), and the error is that of the model: messages, waiting
and the scheme's own computation. Printed: predicted over measured, minus 1, median and range over the rounds.
"""

from __future__ import annotations

import argparse
from typing import Any

import numpy as np

from deep500.compare.subject import Setting
from deep500.errors import InputError
from deep500.measure.machine import usable_cores
from deep500.recipe.loader import find_recipe
from deep500.scaling.command import SCHEMES
from deep500.scaling.prediction import Compute, Machine, step_seconds
from deep500.scaling.ranks_job import fitted, on_ranks
from deep500.scaling.rig import Rig, SchemeChoice, parse_schemes

FIGURES = {
    "predicted over measured time of a step, minus 1, per scheme, 2 ranks with a core each": "median within 10 %",
    "more ranks than cores": "refused",
}


def round_(rig: Rig, scheme: SchemeChoice, ranks: int, job: dict[str, Any], machine: Machine) -> tuple[float, float]:
    """Measured and predicted seconds per step."""
    answer = on_ranks(ranks, {**job, "scheme": str(scheme)})
    share = -(-job["global_batch"] // answer["workers"])
    compute = Compute({share: np.array(answer["compute"])}, rig, steps=100)
    predicted, _ = step_seconds(compute, rig, scheme, ranks, job["global_batch"], machine)
    return float(np.mean(answer["seconds"])), predicted.median


def main() -> None:
    """Print one line per scheme and number of ranks."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--recipe", default="digits_lenet")
    parser.add_argument("--framework", default="pytorch")
    parser.add_argument("--schemes", default=SCHEMES)
    parser.add_argument("--ranks", default="2,4")
    parser.add_argument("--rounds", type=int, default=5)
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
    for ranks in map(int, words.ranks.split(",")):
        try:
            machine.check(ranks)
        except InputError as refusal:
            print(f"{ranks} ranks: refused: {refusal}", flush=True)
            continue
        for scheme in parse_schemes(words.schemes):
            pairs = np.array([round_(rig, scheme, ranks, job, machine) for _ in range(words.rounds)])
            errors, (real, guess) = pairs[:, 1] / pairs[:, 0] - 1, 1e3 * np.median(pairs, axis=0)
            print(
                f"{scheme!s:28} {ranks} ranks: measured {real:8.3f} ms, predicted {guess:8.3f} ms, error "
                f"{np.median(errors):+.0%} ({errors.min():+.0%} to {errors.max():+.0%})",
                flush=True,
            )


if __name__ == "__main__":
    main()
