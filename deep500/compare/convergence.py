"""``deep500 publish check RUN --references RUN ...``: does a run learn significantly faster than reference runs?

A run that needs fewer samples than it should differs in something that it should not: data, model, evaluation. As in
MLPerf's check of reference convergence points, references at several batch sizes say how many samples a target takes,
between two of them by a straight line; unlike there, the judged run's seeds have a spread of their own, and the test
is Welch's (one-sided, on logarithms, since samples to a target scatter by a factor).
"""

from __future__ import annotations

import argparse
import math
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from deep500.errors import ResultsError
from deep500.results.command import add_check as add_rules_check
from deep500.results.files import read_json, read_lines, to_json
from deep500.results.record import MANIFEST, METRICS

FASTER, AS_FAST = "faster than its references", "not faster than its references"
ALPHA = 0.05
FEWEST = 3
"""Seeds of a run, and of the references at a batch size, from which on a spread is known."""


@dataclass(frozen=True)
class Convergence:
    """The comparison of a run with its references.

    Attributes:
        metric: of the curve, with its target.
        target: what has to be reached.
        batch_sizes: of the run, and of the references that it was held against (one, or the two around it).
        ratio: samples that the run took over those that references take (geometric means).
        p: one-sided, that the run is not faster.
        seeds: of the run, and of each group of references.
        verdict: :data:`FASTER` where p is below .05, else :data:`AS_FAST`.
    """

    metric: str
    target: float
    batch_sizes: tuple[int, tuple[int, ...]]
    ratio: float
    p: float
    seeds: tuple[int, tuple[int, ...]]
    verdict: str

    def __str__(self) -> str:
        sizes = " and ".join(map(str, self.batch_sizes[1]))
        basis = f"batch size {self.batch_sizes[0]} against {sizes}, {self.seeds[0]} against {sum(self.seeds[1])} seeds"
        warning = "; something differs that should not: data, model or evaluation" if self.verdict == FASTER else ""
        taken = f"{self.ratio:.3f} of their samples to {self.metric} {self.target:g}"
        return f"{self.verdict}: {taken} (one-sided p {self.p:.2g}, {basis}){warning}"


def judge_convergence(
    samples: Sequence[float], references: Mapping[int, Sequence[float]], batch_size: int
) -> tuple[float, float, tuple[int, ...]]:
    """How fast a run is among references: ratio of geometric means, one-sided p of Welch's test, and whose batch sizes.

    Between two batch sizes the mean of the logarithms is on the straight line between theirs, and so is its error:
    ``m = (1 - w) m1 + w m2``, ``v = (1 - w)^2 s1^2 / n1 + w^2 s2^2 / n2``, ``w = (b - b1) / (b2 - b1)``.

    Args:
        samples: that each seed of the run took to the target; infinite for one that missed it.
        references: the same of reference runs, by batch size.
        batch_size: of the run.

    Raises:
        ResultsError: too few seeds, a reference that missed the target, or no references at or around the batch size.

    Example:
        >>> ratio, p, sizes = judge_convergence([500, 520, 540], {32: [990, 1000, 1010], 64: [1190, 1200, 1210]}, 48)
        >>> round(ratio, 2), p < 0.001, sizes
        (0.47, True, (32, 64))
    """
    known = {size: np.asarray(taken, np.float64) for size, taken in sorted(references.items())}
    for whose, taken in {"the run": np.asarray(samples), **{f"references of {b}": t for b, t in known.items()}}.items():
        if len(taken) < FEWEST:
            raise ResultsError(f"got {len(taken)} seeds of {whose}; expected {FEWEST} or more: repeat with --repeat")
    if any(not np.isfinite(taken).all() for taken in known.values()):
        raise ResultsError("got references that miss the target; expected some that reach it: train them longer")
    below, above = ([b for b in known if b <= batch_size], [b for b in known if b >= batch_size])
    if not below or not above:
        raise ResultsError(
            f"got batch size {batch_size}; expected references at it or around it "
            f"(known: {', '.join(map(str, known))}): run some"
        )
    if not np.isfinite(samples).all():  # a seed that never arrived is no faster run
        return math.inf, 1.0, tuple(dict.fromkeys((below[-1], above[0])))
    return _welch(np.log(np.asarray(samples, np.float64)), known, batch_size, below[-1], above[0])


def _welch(
    logs: np.ndarray, known: Mapping[int, np.ndarray], batch_size: int, low: int, high: int
) -> tuple[float, float, tuple[int, ...]]:
    from scipy.stats import t

    share = (batch_size - low) / (high - low) if high > low else 0.0
    parts = [(1 - share, np.log(known[low])), (share, np.log(known[high]))] if share else [(1.0, np.log(known[low]))]
    mean = sum(weight * group.mean() for weight, group in parts)
    terms = [(float(logs.var(ddof=1)) / logs.size, logs.size)]
    terms += [(float(weight**2 * group.var(ddof=1)) / group.size, group.size) for weight, group in parts]
    variance, difference = sum(v for v, _ in terms), float(logs.mean() - mean)
    if not variance:
        return math.exp(difference), 0.0 if difference < 0 else 1.0, tuple(dict.fromkeys((low, high)))
    freedom = variance**2 / sum(v**2 / (n - 1) for v, n in terms)
    p = float(t.cdf(difference / math.sqrt(variance), freedom))
    return math.exp(difference), p, tuple(dict.fromkeys((low, high)))


def compare_convergence(run: Path, references: Sequence[Path]) -> Convergence:
    """Hold a run against reference runs of the same recipe.

    Args:
        run: results folder that is judged.
        references: others of the recipe, of any batch sizes.

    Raises:
        ResultsError: runs of other recipes, without a target, or too few of them.
    """
    manifests = {path: read_json(path / MANIFEST) for path in (run, *references)}
    odd = [path for path, manifest in manifests.items() if manifest.get("recipe") != manifests[run].get("recipe")]
    if odd:
        raise ResultsError(
            f"got {odd[0]} of another recipe; expected runs of {manifests[run].get('recipe')!r}: leave it out"
        )
    metric = _judged_metric(run, manifests[run])
    by_size: dict[int, list[float]] = {}
    for path in references:
        by_size.setdefault(_batch_size(manifests[path]), []).extend(_samples_to(path, manifests[path], metric))
    mine, size = _samples_to(run, manifests[run], metric), _batch_size(manifests[run])
    ratio, p, sizes = judge_convergence(mine, by_size, size)
    seeds = len(mine), tuple(len(by_size[b]) for b in sizes)
    verdict = FASTER if p < ALPHA else AS_FAST
    return Convergence(metric["name"], metric["target"], (size, sizes), ratio, p, seeds, verdict)


def _judged_metric(path: Path, manifest: Mapping[str, Any]) -> Mapping[str, Any]:
    """The first metric of quality with a target."""
    metrics = (manifest.get("resolved") or {}).get("metrics") or ()
    judged = (m for m in metrics if m.get("kind") == "quality" and isinstance(m.get("target"), (int, float)))
    metric: Mapping[str, Any] | None = next(judged, None)
    if metric is None:
        raise ResultsError(
            f"{path}: got no metric of quality with a target; expected one: references are held to targets"
        )
    return metric


def _batch_size(manifest: Mapping[str, Any]) -> int:
    return int(((manifest.get("resolved") or {}).get("recipe") or {})["batch_size"])


def _samples_to(path: Path, manifest: Mapping[str, Any], metric: Mapping[str, Any]) -> list[float]:
    """Samples seen until the validation curve crosses the target, by seed; interpolated between evaluations."""
    name, target, sign = metric["name"], float(metric["target"]), 1 if metric["direction"] == "higher" else -1
    curves: dict[int, list[tuple[float, float]]] = {seed: [] for seed in manifest["seeds"]}
    seen = dict.fromkeys(curves, 0.0)
    for line in read_lines(path / METRICS):
        seen[line["seed"]] += float(line.get("train_samples") or 0)
        value = line.get(name)
        if isinstance(value, (int, float)):
            curves[line["seed"]].append((seen[line["seed"]], sign * float(value)))
    if not any(curves.values()):
        raise ResultsError(
            f"{path}: got no curve of {name!r}; expected its value after epochs: train with validation data"
        )
    return [_crossing(curve, sign * target) for curve in curves.values()]


def _crossing(curve: Sequence[tuple[float, float]], target: float) -> float:
    before: tuple[float, float] | None = None
    for samples, value in curve:
        if value >= target:
            if before is None:
                return samples
            return before[0] + (samples - before[0]) * (target - before[1]) / (value - before[1])
        before = samples, value
    return math.inf


def add_check(parser: argparse.ArgumentParser) -> Callable[[argparse.Namespace], int]:
    """Declare the options of ``check``; returns what executes it."""
    execute = add_rules_check(parser)
    about = (
        "does it learn significantly faster than these runs of its recipe? 1 if so: something differs that should not"
    )
    parser.add_argument("--references", type=Path, nargs="+", metavar="RUN", help=about)

    def judge(args: argparse.Namespace) -> int:
        if args.references is None:
            return execute(args)
        if args.folder is None:
            raise ResultsError(
                "got --references without a run; expected the one to judge: deep500 publish check RUN --references ..."
            )
        result = compare_convergence(args.folder, args.references)
        sys.stdout.write((to_json(asdict(result)) if args.json else str(result)) + "\n")
        return int(result.verdict == FASTER)

    return judge
