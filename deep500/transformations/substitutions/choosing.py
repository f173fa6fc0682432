"""Choice of a candidate: all of them timed beside the original, and the fastest of them once more, built anew.

The fastest of several noisy times is too fast by chance, and one compiled network may be slower than its own twin by
where its arrays lie. So those that were fastest are built and timed a second time, and both times count.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping

from deep500.errors import MissingBackend, NetworkError, UnsupportedOperator
from deep500.networks.graph import Graph
from deep500.transformations.substitutions.cost import OutOfTime, Remeasured, deployment, work_hash
from deep500.transformations.substitutions.cost.clock import cpu_seconds
from deep500.transformations.substitutions.deadline import Deadline

ORIGINAL = "original"
TIMING = 0.6
"""Share of what is left, for timing; the second time and the check have the rest."""
TIMING_COMPILED = 0.9
"""Likewise where candidates must be compiled first: that is what takes long, and the second time they are known."""
COMPILING = {False: 0.3, True: 0.9}
"""Share of the time for timing that is kept for compiling candidates, at least, by whether the backend compiles."""
MOST_TIMING = 4.0
"""Seconds of timing, in which some percent are seen."""
AGAIN, CLOSE = 3, 0.05
"""So many are timed a second time, of those that take this much longer than the fastest at most."""
FAILURES = (NetworkError, UnsupportedOperator, MissingBackend, MemoryError, OutOfTime)

Compare = Callable[..., Remeasured]


def fastest(
    original: Graph,
    candidates: Mapping[str, Graph],
    backend: str,
    compare: Compare,
    deadline: Deadline,
    failed: dict[str, str],
) -> tuple[Remeasured | None, list[str]]:
    """Candidates timed beside the original, and the names of those that are faster beyond noise, the fastest first.

    Args:
        original: what they are compared with.
        candidates: by name; one that does the work of the original or of another before it is not timed.
        backend: name of the deployment.
        compare: as :func:`~deep500.transformations.substitutions.cost.remeasure`.
        deadline: how long all may take.
        failed: receives why some were left out.
    """
    deadline.tell("timing")
    known, different = {work_hash(original): ORIGINAL}, dict[str, Graph]()
    for name, network in candidates.items():
        if known.setdefault(work_hash(network), name) == name:
            different[name] = network
    if not different:
        return None, []
    compiles = deployment(backend).compiles
    limit, begin = (TIMING_COMPILED if compiles else TIMING) * deadline.left(), cpu_seconds()
    seconds = min(MOST_TIMING, (1 - COMPILING[compiles]) * limit)
    until = begin + limit - seconds
    try:
        # The original may not run there either: nothing is faster than that, and it stays.
        first = compare({ORIGINAL: original, **different}, backend, limit=seconds, failed=failed, until=until)
    except FAILURES as error:
        failed[ORIGINAL] = f"{type(error).__name__}: {error}"
        return None, []
    if not first.comparisons:
        return None, []
    order = first.faster
    close = [name for name in order[:AGAIN] if _ratio(first, name) <= (1 + CLOSE) * _ratio(first, order[0])]
    left, taken = deadline.left(), _rounds_took(first)
    if not close or left < min(taken, MOST_TIMING):
        return first, order
    again = {ORIGINAL: original, **{name: different[name] for name in close}}
    deadline.tell("timing the fastest again")
    try:
        second = compare(again, backend, limit=min(MOST_TIMING, left), failed={}, until=cpu_seconds() + left)
    except FAILURES:
        return first, order
    return first, _both(first, second, order)


def _both(first: Remeasured, second: Remeasured, order: list[str]) -> list[str]:
    """By both times those that were timed twice, without what was not faster the second time; then the others."""
    twice = {comparison.first: comparison.ratio.median for comparison in second.comparisons}
    faster = [name for name in order if twice.get(name, 0.0) < 1]
    return sorted(faster, key=lambda name: (name not in twice, math.sqrt(twice.get(name, 1.0) * _ratio(first, name))))


def _ratio(timed: Remeasured, name: str) -> float:
    return timed[name].ratio.median


def _rounds_took(timed: Remeasured) -> float:
    """About the seconds that the rounds took: every network once, and the first twice."""
    medians = [interval.median for interval in timed.seconds.values()]
    return timed.rounds * (sum(medians) + medians[0])
