"""The types of claims and their fields: one table, against which every claim is held before a rule looks at it.

``claims.json`` holds what the run's report says (written by :mod:`deep500.report.claims`), and what a text or a table
of its author says beyond that, so that it can be checked: ``{"claims": [{"type": "speedup", ...}, ...]}``. A type or
field that is not in :data:`TYPES` is refused: a misspelt claim would be judged by no rule.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from deep500.errors import nearest
from deep500.reading import NO_OTHER, at_least, declare, number, problem_of, that, word
from deep500.results.formats import COUNT, MEASURED, POSITIVE, SECONDS, SHARE

RANKS = number(1, 2**31, whole=True)
RANGE = that([MEASURED, MEASURED], lambda ends: ends[0] <= ends[1], "[low, high]")
PARTS = that({str: SECONDS}, bool, "{name: seconds, ...}")
_MAYBE = (MEASURED, None)

COMMON = {"type": str, "by?": str, "of?": str, "note?": str, "name?": str, "question?": str}
"""Fields that every claim may have: who makes it, of what, and what must be said beside it."""

BASE = {
    "kind?": word("serial-best", "parallel-1", "other"),
    "seconds?": POSITIVE,
    "text?": str,
    "low?": _MAYBE,
    "high?": _MAYBE,
    "*": NO_OTHER,
}
ROW = {
    "processes": RANKS,
    "seconds": POSITIVE,
    "global_batch?": (RANKS, None),
    "quality?": _MAYBE,
    "quality_low?": _MAYBE,
    "*": NO_OTHER,
}
DEVICE = {"year": number(1900, 2200), "peak_flops": POSITIVE, "name?": str, "*": NO_OTHER}

TYPES: dict[str, dict[str, Any]] = {
    "speedup": {"value": POSITIVE, "base": (BASE, None), "processes?": RANKS, "seconds?": POSITIVE},
    "aggregate": {
        "kind": word("cost", "rate", "ratio", "count", "quality"),
        "mean": word("arithmetic", "harmonic", "total", "geometric"),
    },
    "centre": {"series": str, "statistic": word("mean", "median"), "interval": word("t", "rank", "bootstrap", "none")},
    "comparison": {
        "verdict": word("faster", "slower", "equivalent", "unresolved"),
        "p?": (SHARE, None),
        "corrected?": (word("Holm"), bool),
        "effect?": (RANGE, None),
        "margin?": SHARE,
        "series?": at_least(2, str),
    },
    "percentile": {"series": str, "q": SHARE, "value": MEASURED},
    "parallel": {
        "ranks": RANKS,
        "sync": word("barrier", "window", "none"),
        "summary": word("max", "median", "pooled"),
        "rank_p?": (SHARE, None),
    },
    "rate": {
        "flops": POSITIVE,
        "counted_flops?": POSITIVE,
        "seconds?": POSITIVE,
        "bound?": (POSITIVE, None),
        "dtype?": (str, None),
        "peak_dtype?": (str, None),
        "sparse?": bool,
        "bytes?": POSITIVE,
        "roofs?": {"flops": POSITIVE, "bandwidth": POSITIVE, "*": NO_OTHER},
    },
    "scaling": {"rows": at_least(1, ROW), "bounds?": [str], "labels?": [word("strong", "weak")], "scheme?": str},
    "plot": {
        "kind": word("line", "bar", "violin", "box", "ecdf", "quantile", "scatter", "band"),
        "x": word("ordered", "categorical"),
        "from_zero?": bool,
        "axis?": RANGE,
        "level?": (SHARE, None),
        "n?": (COUNT, None),
    },
    "breakdown": {"parts": PARTS, "wall": (POSITIVE, None)},
    "input": {"source": word("disk", "memory", "synthetic"), "end_to_end?": bool, "cold?": bool, "labelled?": bool},
    "baseline": {
        "device?": DEVICE,
        "own_device?": DEVICE,
        "normalised?": str,
        "tuning_runs?": COUNT,
        "own_tuning_runs?": COUNT,
        "measures": [word("time_to_accuracy", "final_accuracy", "cost", "throughput", "energy", "memory")],
    },
    "headline": {"quantity": word("speed", "quality"), "config_sha256": str},
    "workload": {
        "shape": [MEASURED],
        "native_shape": [MEASURED],
        "flops_per_sample?": POSITIVE,
        "fixed_flops_per_sample?": POSITIVE,
    },
}
"""Every type of claim with its fields.

==============  ======================================================================================================
``speedup``     ``value`` over ``base``, its time, and its text where the kind is "other"; ``processes``: used for it
``aggregate``   a mean of a ``kind`` of metric; ``note``: why geometric
``centre``      a mean or median of a ``series``, with its interval
``comparison``  ``effect`` is the interval of the ratio of times: below 1 is faster; ``series``: of the two, if here
``percentile``  quantile ``q`` of a ``series``
``parallel``    how times of ranks were synchronised and summarised; ``rank_p``: that they do not differ
``rate``        operations per second, what was counted, the bound and the data type that it holds for
``scaling``     one row per number of processes; ``note``: why it is better than linear, where it is
``plot``        what was drawn, with ``axis``, the limits, where it has bars; ``level`` and ``n`` of the caption
``breakdown``   parts of the ``wall`` time; ``of``: run | epochs (those recorded), or what else
``input``       where data came from
``baseline``    somebody else's result that this one is compared with
``headline``    what stands first, and the hash of the configuration that it is of
``workload``    the size of inputs and the operations of a sample, and what the recipe fixes
==============  ======================================================================================================
"""

_KINDS = {
    name: {field.rstrip("?"): declare(kind) for field, kind in {**COMMON, **fields}.items()}
    for name, fields in TYPES.items()
}


def problems_of(claim: Any) -> list[str]:
    """Return what is wrong with a claim, in words; empty where it is one that rules can judge.

    Example:
        >>> problems_of({"type": "speed-up", "value": 3.0})
        ["'speed-up' is no type of claim; did you mean 'speedup'?"]
        >>> problems_of({"type": "headline", "quantity": "fame", "config_sha256": "aa"})
        ["headline, quantity: got 'fame'; expected 'speed' or 'quality'"]
    """
    if not isinstance(claim, Mapping) or not isinstance(claim.get("type"), str):
        return [f"{str(claim)[:60]!r} is no claim: it has no type"]
    name = claim["type"]
    if name not in TYPES:
        return [f"{name[:40]!r} is no type of claim; {nearest(name, TYPES)}"]
    kinds = _KINDS[name]
    unknown = [f"{name}: {field[:40]!r} is no field of it; {nearest(field, kinds)}" for field in claim.keys() - kinds]
    absent = [f"{name}: no {field}" for field in TYPES[name] if not field.endswith("?") and field not in claim]
    problems = {field: problem_of(claim[field], kind) for field, kind in kinds.items() if field in claim}
    return sorted(unknown) + absent + [f"{name}, {field}: {problem}" for field, problem in problems.items() if problem]


def sound(claims: Sequence[Any]) -> list[dict[str, Any]]:
    """The claims that rules can judge; the others are a finding of rule D1."""
    return [claim for claim in claims if not problems_of(claim)]


def close(a: float, b: float, rel: float = 1e-6, least: float = 0.0) -> bool:
    """Return whether two figures agree but for rounding.

    Example:
        >>> close(1.0, 1.0 + 1e-9), close(1.0, 1.1)
        (True, False)
    """
    return math.isclose(a, b, rel_tol=rel, abs_tol=least)
