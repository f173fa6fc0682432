"""The types of claims and their fields: one table, against which every claim is held before a rule looks at it.

``claims.json`` holds what the run's report says (written by :mod:`deep500.report.claims`), and what a text or a table
of its author says beyond that, so that it can be checked: ``{"claims": [{"type": "speedup", ...}, ...]}``. A type or
field that is not in :data:`TYPES` is refused: a misspelt claim would be judged by no rule.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from deep500.errors import nearest


@dataclass(frozen=True)
class Kind:
    """What a field may hold: in words, and as a test."""

    words: str
    holds: Callable[[Any], bool]


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool) and abs(value) <= 1e300


def _optional(kind: Kind) -> Kind:
    return Kind(f"{kind.words} or null", lambda value: value is None or kind.holds(value))


def _one_of(*words: Any) -> Kind:
    return Kind(" | ".join(map(str, words)), lambda value: isinstance(value, (str, bool)) and value in words)


def _list_of(kind: Kind, fewest: int = 0) -> Kind:
    return Kind(
        f"a list of {kind.words}",
        lambda value: isinstance(value, list) and len(value) >= fewest and all(map(kind.holds, value)),
    )


def _object(required: Mapping[str, Kind], optional: Mapping[str, Kind] | None = None) -> Kind:
    known = {**required, **(optional or {})}

    def holds(value: Any) -> bool:
        return (
            isinstance(value, Mapping)
            and required.keys() <= value.keys() <= known.keys()
            and all(known[name].holds(item) for name, item in value.items())
        )

    return Kind("{" + ", ".join(f"{name}: {kind.words}" for name, kind in known.items()) + "}", holds)


TEXT = Kind("text", lambda value: isinstance(value, str))
FLAG = Kind("true | false", lambda value: isinstance(value, bool))
NUMBER = Kind("a number", _is_number)
POSITIVE = Kind("a positive number", lambda value: _is_number(value) and value > 0)
PART = Kind("a number from 0 to 1", lambda value: _is_number(value) and 0 <= value <= 1)
COUNT = Kind("a whole number", lambda v: isinstance(v, int) and not isinstance(v, bool) and 0 <= v < 2**53)
RANKS = Kind("a positive whole number", lambda value: COUNT.holds(value) and value > 0)
RANGE = Kind("[low, high]", lambda v: isinstance(v, list) and len(v) == 2 and all(map(_is_number, v)) and v[0] <= v[1])
SECONDS = Kind(
    "{name: seconds}",
    lambda v: isinstance(v, Mapping) and bool(v) and all(_is_number(s) and s >= 0 for s in v.values()),
)
NUMBERS = Kind("a list of numbers", lambda value: isinstance(value, list) and all(map(_is_number, value)))
DEVICE = _object({"year": NUMBER, "peak_flops": POSITIVE}, {"name": TEXT})
BASE = _object(
    {},
    {
        "kind": _one_of("serial-best", "parallel-1", "other"),
        "seconds": POSITIVE,
        "text": TEXT,
        "low": _optional(NUMBER),
        "high": _optional(NUMBER),
    },
)
ROW = _object(
    {"processes": RANKS, "seconds": POSITIVE},
    {"global_batch": _optional(RANKS), "quality": _optional(NUMBER), "quality_low": _optional(NUMBER)},
)

COMMON = {"type": TEXT, "by": TEXT, "of": TEXT, "note": TEXT, "name": TEXT, "question": TEXT}
"""Fields that every claim may have: who makes it, of what, and what must be said beside it."""

TYPES: dict[str, dict[str, Kind]] = {
    "speedup": {"value": POSITIVE, "base": _optional(BASE), "processes": RANKS, "seconds": POSITIVE},
    "aggregate": {
        "kind": _one_of("cost", "rate", "ratio", "count", "quality"),
        "mean": _one_of("arithmetic", "harmonic", "total", "geometric"),
    },
    "centre": {
        "series": TEXT,
        "statistic": _one_of("mean", "median"),
        "interval": _one_of("t", "rank", "bootstrap", "none"),
    },
    "comparison": {
        "verdict": _one_of("faster", "slower", "equivalent", "unresolved"),
        "p": _optional(PART),
        "corrected": Kind("Holm | true | false", lambda value: isinstance(value, bool) or value == "Holm"),
        "effect": _optional(RANGE),
        "margin": PART,
        "series": _list_of(TEXT, 2),
    },
    "percentile": {"series": TEXT, "q": PART, "value": NUMBER},
    "parallel": {
        "ranks": RANKS,
        "sync": _one_of("barrier", "window", "none"),
        "summary": _one_of("max", "median", "pooled"),
        "rank_p": _optional(PART),
    },
    "rate": {
        "flops": POSITIVE,
        "counted_flops": POSITIVE,
        "seconds": POSITIVE,
        "bound": _optional(POSITIVE),
        "dtype": _optional(TEXT),
        "peak_dtype": _optional(TEXT),
        "sparse": FLAG,
        "bytes": POSITIVE,
        "roofs": _object({"flops": POSITIVE, "bandwidth": POSITIVE}),
    },
    "scaling": {
        "rows": _list_of(ROW, 1),
        "bounds": _list_of(TEXT),
        "labels": _list_of(_one_of("strong", "weak")),
        "scheme": TEXT,
    },
    "plot": {
        "kind": _one_of("line", "bar", "violin", "box", "ecdf", "quantile", "scatter", "band"),
        "x": _one_of("ordered", "categorical"),
        "from_zero": FLAG,
        "axis": RANGE,
        "level": _optional(PART),
        "n": _optional(COUNT),
    },
    "breakdown": {"parts": SECONDS, "wall": _optional(NUMBER)},
    "input": {"source": _one_of("disk", "memory", "synthetic"), "end_to_end": FLAG, "cold": FLAG, "labelled": FLAG},
    "baseline": {
        "device": DEVICE,
        "own_device": DEVICE,
        "normalised": TEXT,
        "tuning_runs": COUNT,
        "own_tuning_runs": COUNT,
        "measures": _list_of(_one_of("time_to_accuracy", "final_accuracy", "cost", "throughput", "energy", "memory")),
    },
    "headline": {"quantity": _one_of("speed", "quality"), "config_sha256": TEXT},
    "workload": {
        "shape": NUMBERS,
        "native_shape": NUMBERS,
        "flops_per_sample": POSITIVE,
        "fixed_flops_per_sample": POSITIVE,
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

OPTIONAL = {
    "speedup": {"processes", "seconds"},
    "comparison": {"p", "corrected", "effect", "margin", "series"},
    "parallel": {"rank_p"},
    "rate": {"counted_flops", "seconds", "bound", "dtype", "peak_dtype", "sparse", "bytes", "roofs"},
    "scaling": {"bounds", "labels", "scheme"},
    "plot": {"from_zero", "axis", "level", "n"},
    "input": {"end_to_end", "cold", "labelled"},
    "baseline": {"device", "own_device", "normalised", "tuning_runs", "own_tuning_runs"},
    "workload": {"flops_per_sample", "fixed_flops_per_sample"},
}
"""Fields that may be left out; what a rule needs of them it asks for itself."""


def problems_of(claim: Any) -> list[str]:
    """What is wrong with a claim, in words; empty where it is one that rules can judge.

    Example:
        >>> problems_of({"type": "speed-up", "value": 3.0})
        ["'speed-up' is no type of claim; did you mean 'speedup'?"]
        >>> problems_of({"type": "headline", "quantity": "fame", "config_sha256": "aa"})
        ["headline: quantity is 'fame', not speed | quality"]
    """
    if not isinstance(claim, Mapping) or not isinstance(claim.get("type"), str):
        return [f"{str(claim)[:60]!r} is no claim: it has no type"]
    name = claim["type"]
    if name not in TYPES:
        return [f"{name[:40]!r} is no type of claim; {nearest(name, TYPES)}"]
    known = {**COMMON, **TYPES[name]}
    said = [
        f"{name}: {field[:40]!r} is no field of it; {nearest(field, known)}" for field in claim if field not in known
    ]
    needed = TYPES[name].keys() - OPTIONAL.get(name, set())
    said += [f"{name}: no {field}" for field in sorted(needed - claim.keys())]
    said += [
        f"{name}: {field} is {_short(value)}, not {known[field].words}"
        for field, value in claim.items()
        if field in known and not known[field].holds(value)
    ]
    return said


def sound(claims: Sequence[Any]) -> list[dict[str, Any]]:
    """The claims that rules can judge; the others are a finding of rule D1."""
    return [claim for claim in claims if not problems_of(claim)]


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 40 else f"{text[:37]}..."


def close(a: float, b: float, rel: float = 1e-6, least: float = 0.0) -> bool:
    """Whether two figures agree but for rounding.

    Example:
        >>> close(1.0, 1.0 + 1e-9), close(1.0, 1.1)
        (True, False)
    """
    return math.isclose(a, b, rel_tol=rel, abs_tol=least)
