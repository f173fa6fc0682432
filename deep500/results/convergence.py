"""Does a run learn significantly faster than reference runs of its recipe?

A run that needs fewer samples than it should differs in something that it should not: data, model, evaluation. As in
MLPerf's check of reference convergence points, references at several batch sizes say how many samples a target takes,
between two of them by a straight line; unlike there, the judged run's seeds have a spread of their own, and the test
is Welch's (one-sided, on logarithms, since samples to a target scatter by a factor).

References are runs (``deep500 publish check RUN --references RUN ...``), or numbers that a recipe carries under the key
``references``, which :func:`reference_samples` takes from runs; rule D3 holds every run of the recipe against them.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from deep500.errors import ResultsError
from deep500.results.files import read_json, read_lines
from deep500.results.record import MANIFEST, METRICS

FASTER, AS_FAST = "faster than its references", "not faster than its references"
ALPHA = 0.05
AS_REFERENCED = ("batch_size", "seed")
"""Keys that a run may change and still be held against references of its recipe."""
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
    metric = _judged_metric(manifests[run])
    by_size: dict[int, list[float]] = {}
    for path in references:
        samples = _samples_to(read_lines(path / METRICS), manifests[path], metric)
        by_size.setdefault(_batch_size(manifests[path]), []).extend(samples)
    return held_to(by_size, manifests[run], read_lines(run / METRICS))


def held_to(
    references: Mapping[int, Sequence[float]], manifest: Mapping[str, Any], curve: Sequence[Mapping[str, Any]]
) -> Convergence:
    """Hold a run against what reference runs took.

    Args:
        references: samples that each seed of theirs took to the target, by batch size.
        manifest, curve: of the run: ``manifest.json`` and the lines of ``metrics.jsonl``.

    Raises:
        ResultsError: a run without a target, or too few seeds or references.

    Example:
        >>> facts = {"name": "test_accuracy", "kind": "quality", "direction": "higher", "target": 90.0}
        >>> run = {"resolved": {"recipe": {"batch_size": 32}, "metrics": [facts]}, "seeds": [0, 1, 2]}
        >>> lines = [{"seed": s, "train_samples": 500 + s, "test_accuracy": 90.0} for s in range(3)]
        >>> print(str(held_to({32: [990, 1000, 1010]}, run, lines)).partition(" (")[0])
        faster than its references: 0.501 of their samples to test_accuracy 90
    """
    metric, size = _judged_metric(manifest), _batch_size(manifest)
    samples = _samples_to(curve, manifest, metric)
    ratio, p, sizes = judge_convergence(samples, references, size)
    seeds = len(samples), tuple(len(references[b]) for b in sizes)
    verdict = FASTER if p < ALPHA else AS_FAST
    return Convergence(metric["name"], metric["target"], (size, sizes), ratio, p, seeds, verdict)


def by_recipe(
    carried: Mapping[str, Sequence[float]], manifest: Mapping[str, Any], curve: Sequence[Mapping[str, Any]], whole: bool
) -> Convergence:
    """Hold a run against the references of its recipe, see :func:`held_to`.

    Args:
        carried: samples to the target by batch size, as the manifest has them.
        manifest, curve: of the run.
        whole: whether it was trained to its end.

    Raises:
        ResultsError: they are not of such a run: a dry one, one on other data, or with other settings.
    """
    stand_in = any(half.get("stand_in") for half in manifest.get("data", {}).values())
    if not whole or manifest.get("dry_run") or stand_in:
        raise ResultsError("references are of whole runs, on the data themselves")
    words = [word for word in manifest.get("argv", ()) if "=" in word and word.partition("=")[0] not in AS_REFERENCED]
    if words:
        raise ResultsError(f"references are of the recipe as it is; this run has {', '.join(words)}")
    return held_to({int(size): taken for size, taken in carried.items() if size.isdecimal()}, manifest, curve)


def reference_samples(path: str | Path) -> dict[int, list[float]]:
    """Take from a finished run what a recipe may carry under ``references``: samples to the target by batch size.

    Raises:
        ResultsError: a run without a target.
    """
    manifest = read_json(Path(path) / MANIFEST)
    samples = _samples_to(read_lines(Path(path) / METRICS), manifest, _judged_metric(manifest))
    return {_batch_size(manifest): [round(number, 1) for number in samples]}


def _judged_metric(manifest: Mapping[str, Any]) -> Mapping[str, Any]:
    """The first metric of quality with a target."""
    metrics = (manifest.get("resolved") or {}).get("metrics") or ()
    known = [m for m in metrics if m.get("kind") == "quality" and isinstance(m.get("name"), str)]
    metric: Mapping[str, Any] | None = next((m for m in known if isinstance(m.get("target"), (int, float))), None)
    if metric is None:
        raise ResultsError("got no metric of quality with a target; expected one: references are held to targets")
    return metric


def _batch_size(manifest: Mapping[str, Any]) -> int:
    size = ((manifest.get("resolved") or {}).get("recipe") or {}).get("batch_size")
    if not isinstance(size, int):
        raise ResultsError(f"got batch size {size!r}; expected an integer: references are known by it")
    return size


def _samples_to(
    lines: Sequence[Mapping[str, Any]], manifest: Mapping[str, Any], metric: Mapping[str, Any]
) -> list[float]:
    """Samples seen until the validation curve crosses the target, by seed; interpolated between evaluations."""
    name, target, sign = metric["name"], float(metric["target"]), 1 if metric.get("direction") == "higher" else -1
    curves: dict[int, list[tuple[float, float]]] = {seed: [] for seed in manifest["seeds"]}
    seen = dict.fromkeys(curves, 0.0)
    for line in (line for line in lines if line["seed"] in curves):
        seen[line["seed"]] += float(line.get("train_samples") or 0)
        value = line.get(name)
        if isinstance(value, (int, float)):
            curves[line["seed"]].append((seen[line["seed"]], sign * float(value)))
    if not any(curves.values()):
        raise ResultsError(f"got no curve of {name!r}; expected its value after epochs: train with validation data")
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
