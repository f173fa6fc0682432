"""Figures 13 and 14: frameworks that compute the same, faults that are caught, processes whose clocks differ."""

from __future__ import annotations

import importlib.util
import json
import tempfile
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest

from deep500 import registry
from deep500.compare.checks import largest, relative
from deep500.compare.gate import check_equivalence
from deep500.compare.subject import Batch, Candidate
from deep500.compare.traces import CURVE, curve, trace
from deep500.errors import Deep500Error
from deep500.networks import Network
from tests.benchmarks.measuring.outcome import Options, Outcome, figure
from tests.compare.networks import batches, candidate, probe

FRAMEWORKS = ("reference", "pytorch", "tensorflow", "jax", "onnxruntime")


def _candidates() -> list[Candidate]:
    candidates = []
    for name in FRAMEWORKS:
        if name == "reference" or importlib.util.find_spec(registry.BACKENDS[name][0]) is not None:
            candidates.append(candidate(name))
    return candidates


def _losses(candidate: Candidate, network: Network, data: Sequence[Batch]) -> list[float]:
    executor = candidate.build(network)
    return curve(executor, candidate.optimizer(executor), data, "loss")["loss"]


def _caught() -> tuple[int, int, list[str]]:
    """Planted faults that the gate catches and names, as ``tests/test_mutants.py`` has them."""
    from tests.test_mutants import MUTANTS

    missed = []
    for name, (plant, check, words) in MUTANTS.items():
        with pytest.MonkeyPatch.context() as patch:
            plant(patch)
            network = probe(dropout="dropout" in name)
            failed = check_equivalence(network, batches(), [candidate("reference"), candidate("pytorch")]).first(
                "pytorch"
            )
        if failed is None or failed.name != check or words not in failed.where:
            missed.append(name)
    return len(MUTANTS) - len(missed), len(MUTANTS), missed


@figure(
    13,
    "the same in several frameworks, in float32",
    ">= 3 frameworks: forward <= 1e-5, gradients <= 1e-4, 20-step losses within 1e-3; >= 12 planted faults, all caught",
)
def frameworks(options: Options) -> Outcome:
    """Differences from the NumPy reference, relative to its largest value; faults are planted in PyTorch."""
    network, data, worst, names = probe(), batches(CURVE), np.zeros(3), []
    judge, *others = _candidates()
    truth, losses = trace(judge, network, network, data[:4], "loss"), _losses(judge, network, data)
    for other in options.each(others, "figure 13"):
        try:
            traced = trace(other, network, network, data[:4], "loss", truth)
            steps = _losses(other, network, data)
        except Deep500Error as error:
            return Outcome("nothing", False, f"{other.name}: {error}")
        pairs = [*zip(traced.evaluation, truth.evaluation, strict=True), (traced.training, truth.training)]
        forward = max(relative(got[name], want[name]) for got, want in pairs for name in want)
        size = largest(truth.gradients)  # a bias before a batch normalisation has a gradient of rounding alone
        gradients = max(relative(traced.gradients[name], truth.gradients[name], size) for name in truth.gradients)
        apart = max(abs(a / b - 1) for a, b in zip(steps, losses, strict=True))
        worst = np.maximum(worst, [forward, gradients, apart])
        names.append(other.name)
    text = f"reference, {', '.join(names)}: forward {worst[0]:.1e}, gradients {worst[1]:.1e}, losses {worst[2]:.1e}"
    good = len(names) >= 2 and bool((worst <= [1e-5, 1e-4, 1e-3]).all())
    if "pytorch" not in names:
        return Outcome(text, None, "the faults are planted in PyTorch, which is not installed")
    caught, total, missed = _caught()
    return Outcome(
        f"{text}; {caught} of {total} faults caught and named", good and caught == total >= 12, ", ".join(missed)
    )


SKEWED_BY, WITHIN_OFFSET, WITHIN_IMBALANCE = 200_000, 20_000, 0.05


@figure(
    14,
    "4 MPI processes, one skewed by 200 us",
    "offset within 20 us, imbalance within 5 %, Kruskal-Wallis flags it, pooled summary refused",
)
def ranks(options: Options) -> Outcome:
    """The last process's clock is ahead, and says that its steps of .8 ms took .2 ms longer."""
    if importlib.util.find_spec("tests.distributed.timing_cases") is None:
        return Outcome("nothing", None, "needs clocks of the distributed level, which it does not have yet")
    from tests.distributed import ranks as driver
    from tests.distributed import timing_cases as cases

    if (reason := driver.missing()) is not None:
        return Outcome("nothing", None, reason)
    with tempfile.TemporaryDirectory() as folder:
        file, outcomes = Path(folder) / "results.json", []
        for summary in options.each(("max", "pooled"), "figure 14"):
            code, output = driver.launch(driver.name_of(cases.skewed), 4, file, {"summary": summary})
            if code:
                return Outcome("nothing", False, f"4 processes ended with {code}: {output.strip()[-200:]}")
            outcomes.append(json.loads(file.read_text())[0])
    timed, pooled = outcomes
    true_imbalance = 1.0 / (0.8 + 0.2 / 4) - 1
    truths = [0, 0, 0, SKEWED_BY]
    off = max(abs(offset - truth) for offset, truth in zip(timed["offsets"], truths, strict=True))
    apart, refused = abs(timed["imbalance"] - true_imbalance), "refused" in pooled
    text = (
        f"offset off by {off / 1e3:.1f} us (bound stated: {max(timed['errors']) / 1e3:.1f}), imbalance "
        f"{timed['imbalance']:.3f} of a true {true_imbalance:.3f}, p {timed['rank_p']:.1e}, pooled "
        f"{'refused' if refused else 'NOT refused'}"
    )
    good = off <= WITHIN_OFFSET and apart <= WITHIN_IMBALANCE and timed["rank_p"] < 0.01 and refused
    return Outcome(text, good)
