"""The formats of the files of a results folder: every reader's first question, and their documentation.

The notation is that of :func:`deep500.reading.declare`. Fields that are not named may be there, since a recipe's author
and newer writers add some; those that are named are of their kind wherever a file of that name is read
(:func:`deep500.results.files.read_json`). Of the manifest and the summary a folder may hold less, since rules look at
folders that others made; a run's own hold all (:func:`deep500.results.layout.check_layout`).
"""

from __future__ import annotations

import datetime
from typing import Any

from deep500.measure.load import COUNTERS, STATES
from deep500.reading import NO_OTHER, Kind, chosen, declare, number, partial, text, that, word

# -- kinds of values --------------------------------------------------------------------------------------------------
COUNT = number(0, 2**53, whole=True)
SECONDS = number(0, 1e12)
SHARE = number(0, 1)
INNER = number(1e-9, 1 - 1e-9)
"""A quantile, a level: neither 0 nor 1."""

POSITIVE = number(1e-15, 1e30)
MEASURED = number(-1e100, 1e100)
"""A figure that further ones are made of."""

NAME = text("[A-Za-z0-9_-]{1,200}", "a name of letters, digits, _ and -")
FOLDER_NAME = text(r"(?!\.{1,2}$)[^/\0]{1,255}", "the name of a folder")
WORDS = text(r"(?s)\s*\S.*", "words")


def _is_moment(value: Any) -> None:
    _MOMENT.check(value)
    try:
        datetime.datetime.fromisoformat(value)
    except ValueError:
        _NO_MOMENT.check(value)


_MOMENT = text(r"(?!9999)(19[7-9]|[2-9]\d\d)\d-\d\d-\d\d.{0,40}", "a date and time (ISO 8601)")
_NO_MOMENT = text("(?!)", _MOMENT.expected)
MOMENT = Kind(_MOMENT.expected, _is_moment)

# -- manifest.json ----------------------------------------------------------------------------------------------------
PLAN = {
    "targets": [{"q": INNER, "level": INNER, "rel": number(0, 1e9), "*": NO_OTHER}],
    "alpha": INNER,
    "max_fraction": SHARE,
    "min_neff": number(0, 1e12),
}
SERIES = {
    "unit?": str,
    "kind?": str,
    "meaning?": str,
    "plan?": (PLAN, None),
    "samples_each?": (number(1, 1e12), None),
    "latency?": (bool, None),
}
HALF = {
    "name": str,
    "length": COUNT,
    "stand_in": bool,
    "provenance": str,
    "digest": str,
    "shape?": [COUNT],
    "classes?": (COUNT, None),
    "label_counts?": ([COUNT], None),
}
QUALITY = {"name": str, "unit": str, "direction": word("higher", "lower"), "*": NO_OTHER}
ENVIRONMENT = {
    "cpu?": (str, None),
    "cores?": (COUNT, None),
    "usable_cores?": (COUNT, None),
    "memory_bytes?": (COUNT, None),
    "os?": (str, None),
    "python?": (str, None),
    "versions?": ({str: (str, None)}, None),
    "git?": ({"commit?": (str, None), "dirty?": object}, None),
}
PROCESSES = ({"each?": [{"host?": (str, None)}]}, None)
MANIFEST = {
    "schema": str,
    "format?": COUNT,
    "recipe": str,
    "started": MOMENT,
    "division": str,
    "seeds": [int],
    "resolved": {"recipe": {"epochs?": (COUNT, None), "references?": ({str: [POSITIVE]}, None)}},
    "data": {"train": HALF, "validation": HALF, "test?": HALF, "*": HALF},
    "device": {"used": str},
    "argv": [str],
    "warnings": [str],
    "recipe_file": (str, None),
    "recipe_sha256": (str, None),
    "resumed": [{"at": str, "ranks?": [number(1, 2**31, whole=True)], "processes?": PROCESSES, "promise?": str}],
    "opened?": [str],
    "name?": str,
    "tags?": [str],
    "backend?": (str, None),
    "ranks?": number(1, 2**31, whole=True),
    "batches?": (COUNT, None),
    "processes?": PROCESSES,
    "custom_ops?": list,
    "series?": {str: SERIES},
    "environment?": (ENVIRONMENT, None),
    "environment_sha256?": (str, None),
    "task?": (
        {"name": str, "sample": str, "qualities": [QUALITY], "ignore_index?": number(-(2**63), 2**63, whole=True)},
        None,
    ),
    "suite?": {"declared?": [str], "ran?": [str], "skipped?": {str: (str, None)}},
    "cores_used?": (COUNT, None),
}

# -- summary.json, seeds.json -----------------------------------------------------------------------------------------
RATE_DETAILS = {"FLOP_per_sample?": POSITIVE, "samples?": POSITIVE, "seconds?": POSITIVE, "roof_FLOP/s?": POSITIVE}
METRIC = {  # losses are metrics, too, and may be any number
    "name": str,
    "unit": str,
    "direction": str,
    "target": (float, None),
    "values": [(float, None)],
    "value": (float, None),
    "low": (float, None),
    "high": (float, None),
    "verdict": WORDS,
    "standing": str,
    "reason?": str,
    "remark?": str,
    "details?": [dict],
}
SUMMARY: dict[str, Any] = {
    "verdict": WORDS,
    "status": str,
    "labels": [str],
    "metrics": [METRIC],
    "error?": (str, None),
    "finished?": str,
    "seeds?": [int],
    "tuning?": ({"runs": COUNT, "finished": COUNT, "seconds": SECONDS, "settings?": COUNT}, None),
    "tuning_runs?": (COUNT, None),
    "ledger?": ({"entry?": (COUNT, None), "entries?": (COUNT, None), "head?": (str, None)}, None),
    "repetition?": (
        {
            "seeds": COUNT,
            "seconds": SECONDS,
            "budget": SECONDS,
            "level": SHARE,
            "precision": number(0, 1e9),
            "achieved": {str: (number(0, 1e100), None)},
            "reached": bool,
        },
        None,
    ),
}
DETAILS_OF = {
    "timing_breakdown": {"details?": [{str: SECONDS}]},
    "roof_share": {"details?": [RATE_DETAILS]},
    "flop_rate": {"details?": [RATE_DETAILS]},
}
"""Details of some metrics that the report computes with."""

SEEDS = {
    str: {
        "values": {str: (float, None)},
        "stopped_by?": (str, None),
        "wall_seconds?": (SECONDS, None),
        "final?": {str: (float, None)},
        "notes?": {str: {"reason?": str, "details?": dict, "*": NO_OTHER}},
    }
}

# -- stats.json -------------------------------------------------------------------------------------------------------
CUT = {
    "index": COUNT,
    "state": str,
    "trend_p?": (SHARE, None),
    "trend?": (MEASURED, None),
    "change_p?": (SHARE, None),
    "changes?": [COUNT],
}
ESTIMATE = {
    "q": INNER,
    "value": SECONDS,
    "n": COUNT,
    "n_eff": number(0, 2**53),
    "standing": WORDS,
    "launches": COUNT,
    "ci": {"level": INNER, "low": (SECONDS, None), "high": (SECONDS, None), "cluster?": (str, None)},
    "target?": ({"rel": number(0, 1e9), "achieved": (number(0, 1e100), None), "reached": bool}, None),
}
STAT = {
    "unit": str,
    "kind": str,
    "n": COUNT,
    "total": SECONDS,
    "launches": [{"launch": int, "n": COUNT, "median": SECONDS, "cut": CUT}],
    "normality": ({"W": MEASURED, "p": SHARE, "log_p?": (SHARE, None)}, None),
    "estimates": [ESTIMATE],
    "between_launches": {"cv": (number(0, 1e100), None), "kruskal_p": (SHARE, None)},
}
_STAT, _LISTS = declare(STAT), declare({"launches": list, "estimates": list})


def _is_stat(value: Any) -> None:
    _LISTS.check(value)
    if value["launches"] or value["estimates"]:  # else nothing was measured, and no more is said
        _STAT.check(value)


STATS = {"schema?": str, "series": {str: Kind("an object", _is_stat)}}

# -- lines ------------------------------------------------------------------------------------------------------------
_COUNTED = (number(0, 1e15), None)
LOAD = {
    "seconds": SECONDS,
    "cpus": (COUNT, None),
    **dict.fromkeys(COUNTERS, _COUNTED),
    **dict.fromkeys((f"{name}?" for name in STATES), (MEASURED, None)),
}
"""How busy the machine was, see :func:`deep500.measure.load.load_between`."""

EPOCH = {
    "seed": int,
    "epoch": number(1, 2**31, whole=True),
    "train_seconds?": (SECONDS, None),
    "test_seconds?": (SECONDS, None),
    "ranks?": ([{str: MEASURED}], None),
    "checks?": [{"step": COUNT, "seconds": SECONDS, "took": SECONDS, "*": (float, None)}],
    "acting?": {"collection_seconds": SECONDS, "inference_seconds": SECONDS},
    "clock?": (
        {"began": SECONDS, "wall_seconds": SECONDS, "steps": COUNT, "process?": str, "listening_seconds?": SECONDS},
        None,
    ),
    "load?": (LOAD, None),
    "*": (float, str, bool, None),  # a loss that diverges may be any number
}
"""A line of ``metrics.jsonl``."""

BLOCK = {"series": NAME, "launch": int, "from": COUNT, "n": COUNT, "crc32": number(0, 2**32 - 1, whole=True)}
"""A line of ``journal.jsonl``."""

ENTRY = {"hash": str, "argv?": [str], "before?": str, "number?": COUNT, "run?": (FOLDER_NAME, None)}
"""A line of ``ledger.jsonl``."""

# -- rules.json, claims.json ------------------------------------------------------------------------------------------
RULES = {"rules": {str: {"status": str, "reason": str, "rule": str, "fix": str}}}
CLAIMS = {"claims": list}
"""Claims are not held against their types here but by a rule, so that one that is misspelt is a finding, see
:mod:`deep500.results.rules.claim_types`."""

# -- scaling.json, ranks.json, recomputation.json ---------------------------------------------------------------------
_TIME = number(1e-12, 1e12)
INTERVAL = {"value": _TIME, "low": (_TIME, None), "high": (_TIME, None), "n": COUNT, "level": INNER}
SCALING_SCHEMA = "deep500-scaling-1"
SCALING = {
    "schema": word(SCALING_SCHEMA),
    "base": {"text": str, "kind": str, "ranks": COUNT, "global_batch": COUNT, "seconds": INTERVAL, "*": NO_OTHER},
    "entries": [
        {
            "ranks": number(1, 2**31, whole=True),
            "global_batch": COUNT,
            "scheme": str,
            "kind": str,
            "step_seconds": INTERVAL,
            "quality": (MEASURED, None),
            "quality_low": (MEASURED, None),
            "efficiency?": dict,
            "*": NO_OTHER,
        }
    ],
    "quality": (str, None),
    "bounds": [{"name": str, "ranks": [number(1, 2**31, whole=True)], "seconds": [_TIME]}],
    "labels?": [str],
}
_TIMES = {**INTERVAL, "value": SECONDS, "low": (SECONDS, None), "high": (SECONDS, None)}
RANKS_SCHEMA = "deep500-ranks-1"
RANKS = {
    "schema": word(RANKS_SCHEMA),
    "sync": str,
    "summary": str,
    "imbalance": (MEASURED, None),
    "rank_p": (SHARE, None),
    "ranks": [
        {
            "rank": COUNT,
            "seconds": _TIMES,
            "offset": (MEASURED, None),
            "offset_error": (MEASURED, None),
            "waiting": (MEASURED, None),
            "sent_bytes": (SECONDS, None),
            "*": NO_OTHER,
        }
    ],
    "*": NO_OTHER,
}
_AMOUNT = number(0, 1e30)
_BYTES = number(1, 2**53, whole=True)
_CHANGE = number(-(2**53), 2**53, whole=True)
_LINE = {"group": text("gain|neutral|cost", "gain, neutral or cost"), "place": str, "instances": COUNT}
RECOMPUTATION_SCHEMA = "deep500-recomputation-1"
RECOMPUTATIONS = ("recomputation.json", "checkpointing.json")
"""The file, and that of an older layout, which is refused."""

RECOMPUTATION = {
    "schema": word(RECOMPUTATION_SCHEMA),
    "network": str,
    "batch": number(1, 2**53, whole=True),
    "backend": str,
    "time_unit": str,
    "budget": COUNT,
    "source": str,
    "profile": {
        "peak": COUNT,
        "step": _AMOUNT,
        "time_unit": str,
        "lines": [{**_LINE, "time": MEASURED, "memory": _CHANGE, "peak": COUNT, "step": _AMOUNT, "*": NO_OTHER}],
        "*": NO_OTHER,
    },
    "regions": [
        {
            "name": str,
            "depth": number(0, 10_000, whole=True),
            "tape": COUNT,
            "snapshot": COUNT,
            "time": _AMOUNT,
            "location": str,
            "shared": COUNT,
            "candidate": bool,
            "again": COUNT,
            "innermost": bool,
            "*": NO_OTHER,
        }
    ],
    "curves": [{"label": str, "at": [_AMOUNT], "held": [COUNT], "turn": (_AMOUNT, None), "*": NO_OTHER}],
    "choices": [
        {
            "label": str,
            "family": str,
            "regions": (COUNT, None),
            "predicted_peak": (_BYTES, None),
            "predicted_time": (POSITIVE, None),
            "measured_peak": (_BYTES, None),
            "measured_time": (INTERVAL, None),
            "ratio": (INTERVAL, None),
            "note": str,
            "*": NO_OTHER,
        }
    ],
    "kept": [[str, str]],
    "*": NO_OTHER,
}

# -- exhibits.json ----------------------------------------------------------------------------------------------------
_CELL = (float, str, None)
_SHOWN = {"kind": word("matrix", "lines", "table", "pictures"), "title": WORDS, "caption?": str}
_SIDE = number(1, 4096, whole=True)
_BOX = {"box": [MEASURED], "text?": str, "wanted?": bool, "*": NO_OTHER}
_PICTURE = {
    "height": _SIDE,
    "width": _SIDE,
    "channels": number(1, 3, whole=True),
    "pixels": text("[A-Za-z0-9+/]*={0,2}", "base64"),
    "caption": str,
    "boxes?": [_BOX],
    "*": NO_OTHER,
}


def _is_picture(value: Any) -> None:
    _PICTURE_KIND.check(value)
    size, count = len(value["pixels"]), value["height"] * value["width"] * value["channels"]
    boxes = value.get("boxes", ())
    if value["channels"] == 2 or size != 4 * ((count + 2) // 3) or any(len(entry["box"]) != 4 for entry in boxes):
        _NO_PICTURE.check("a picture whose pixels, channels or boxes do not fit it")


_PICTURE_KIND = declare(_PICTURE)
_NO_PICTURE = text("(?!)", "grey or red, green, blue: height x width x channels bytes")
_MATRIX = declare(
    {
        **_SHOWN,
        "values": [[MEASURED]],
        "rows": [str],
        "columns": [str],
        "row_axis": str,
        "column_axis": str,
        "*": NO_OTHER,
    }
)
_LINES = declare({**_SHOWN, "lines": {str: [[MEASURED]]}, "x_axis": str, "y_axis": str, "*": NO_OTHER})
_NO_MATRIX = text("(?!)", "a row of values for every name of a row, a value for every name of a column")
_NO_LINES = text("(?!)", "lines, each of x values and as many y values")


def _is_matrix(value: Any) -> None:
    _MATRIX.check(value)
    sizes = {len(row) for row in value["values"]}
    if len(value["values"]) != len(value["rows"]) or sizes != {len(value["columns"])}:
        _NO_MATRIX.check("a matrix of other sizes")


def _is_lines(value: Any) -> None:
    _LINES.check(value)
    lines = value["lines"].values()
    if not lines or any(len(line) != 2 or not line[0] or len(line[0]) != len(line[1]) for line in lines):
        _NO_LINES.check("points that lack one of both")


EXHIBITS_SCHEMA = "deep500-exhibits-1"
EXHIBITS = {
    "schema": word(EXHIBITS_SCHEMA),
    "task": str,
    "seed": int,
    "exhibits": [
        chosen(
            "kind",
            {
                "matrix": Kind("a matrix", _is_matrix),
                "lines": Kind("lines", _is_lines),
                "table": {**_SHOWN, "columns": [str], "rows": [[_CELL]], "*": NO_OTHER},
                "pictures": {**_SHOWN, "pictures": [Kind("a picture", _is_picture)], "*": NO_OTHER},
            },
            _SHOWN,
        )
    ],
    "*": NO_OTHER,
}

# -- division.json ----------------------------------------------------------------------------------------------------
DIVISION_SCHEMA = "deep500-division-1"
_DIVIDED = {name: str for name in ("node", "operator", "strategy", "shardings", "collectives", "why")}
DIVISION = {
    "schema": word(DIVISION_SCHEMA),
    "ranks": number(1, 2**31, whole=True),
    "seconds": _AMOUNT,
    "nbytes": COUNT,
    "memory": COUNT,
    "nodes": [{**_DIVIDED, "nbytes": COUNT, "*": NO_OTHER}],
    "*": NO_OTHER,
}

# -- network.json -----------------------------------------------------------------------------------------------------
NETWORK_SCHEMA = "deep500-network-1"
_SIZED = {"name": str, "shape": ([(COUNT, str, None)], None), "*": NO_OTHER}
_PARAMETERS = {"parameters": COUNT, "fixed": COUNT}
NETWORK = {
    "schema": word(NETWORK_SCHEMA),
    "name": str,
    "batch": COUNT,
    "inputs": [_SIZED],
    **_PARAMETERS,
    "count": COUNT,
    "nodes": that(
        [{**_SIZED, **_PARAMETERS, "operator": str, "reads": [(COUNT, str)], "operations?": (COUNT, None)}],
        lambda nodes: all(r < at for at, node in enumerate(nodes) for r in node["reads"] if isinstance(r, int)),
        "nodes that read inputs by name and nodes before them by number",
    ),
    "*": NO_OTHER,
}

# -- by name ----------------------------------------------------------------------------------------------------------
FILES: dict[str, Kind] = {
    "manifest.json": declare(partial(MANIFEST)),
    "summary.json": declare({**partial(SUMMARY), "metrics?": [chosen("name", DETAILS_OF, partial(METRIC))]}),
    "seeds.json": declare(SEEDS),
    "stats.json": declare(STATS),
    "metrics.jsonl": declare(EPOCH),
    "journal.jsonl": declare(BLOCK),
    "ledger.jsonl": declare(ENTRY),
    "rules.json": declare(RULES),
    "claims.json": declare(CLAIMS),
    "scaling.json": declare(SCALING),
    "ranks.json": declare(RANKS),
    RECOMPUTATIONS[0]: declare(RECOMPUTATION),
    "exhibits.json": declare(EXHIBITS),
    "division.json": declare(DIVISION),
    "network.json": declare(NETWORK),
}
"""Format of a file of this name, of a line of it where lines end its name; wherever it is read."""

OF_A_RUN: dict[str, Kind] = {"manifest.json": declare(MANIFEST), "summary.json": declare(SUMMARY)}
"""Formats of these two in the folder of a run."""

ANY = declare(dict)
"""An object of a file that has no declaration, such as one that an author put there."""
