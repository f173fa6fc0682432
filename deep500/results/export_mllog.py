"""Results as MLPerf's log: ``:::MLLOG`` lines, one file per seed, as MLPerf's compliance checker reads them.

Keys and their order follow MLPerf's rules for training; labels of a run (stand-in data) are in every line's metadata.
What a submission says of itself (organisation, platform, clearing of caches, time of initialisation) is not a run's to
say: add it where a log is to be submitted.
"""

from __future__ import annotations

import datetime
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from deep500.results.files import read_json, read_lines, write_atomic
from deep500.results.outcomes import PASSED, UNJUDGED, outcomes
from deep500.results.record import MANIFEST, METRICS, SUMMARY


def write_mllog(path: Path, out: Path) -> list[Path]:
    """Write ``result_<number of the seed>.txt``, MLPerf's name for the log of one run.

    Times are milliseconds since 1970 (Unix time). Check it with MLPerf's own, ``pip install mlperf-logging``, after the
    lines that a submission needs were added: ``python -m mlperf_logging.compliance_checker --usage training FILE``.

    Raises:
        ResultsError: the run cannot be read, or a file cannot be written.
    """
    manifest, summary = read_json(path / MANIFEST), read_json(path / SUMMARY)
    curve = read_lines(path / METRICS)
    written: list[Path] = []
    for number, seed in enumerate(manifest["seeds"]):
        rows = [row for row in curve if row["seed"] == seed]
        begins = _begins(rows, datetime.datetime.fromisoformat(manifest["started"]).timestamp())
        lines = [
            *_setup(manifest, seed, begins[0] if begins else 0),
            *_run(rows, begins, _status(manifest, summary, number)),
        ]
        if summary["labels"]:
            for line in lines:
                line["metadata"]["labels"] = summary["labels"]
        written.append(out / f"result_{number}.txt")
        write_atomic(written[-1], "".join(f":::MLLOG {json.dumps(line)}\n" for line in lines))
    return written


def _begins(rows: list[dict[str, Any]], started: float) -> list[int]:
    """Milliseconds since 1970 at which epochs began; one after the other from the run's start where nothing tells."""
    if all(row.get("clock") for row in rows):
        return [round(1000 * float(row["clock"]["began"])) for row in rows]
    lasted = [float(row.get("train_seconds") or 0) + float(row.get("test_seconds") or 0) for row in rows]
    return [round(1000 * (started + sum(lasted[:number]))) for number in range(len(rows))]


def _setup(manifest: Mapping[str, Any], seed: int, begin: int) -> list[dict[str, Any]]:
    data = manifest["data"]
    return [
        _line("POINT_IN_TIME", key, value, begin)
        for key, value in (
            ("submission_benchmark", manifest["recipe"]),
            ("submission_division", manifest.get("division", "closed")),
            ("seed", seed),
            ("global_batch_size", manifest["resolved"]["recipe"].get("batch_size")),
            ("train_samples", data["train"]["length"]),
            ("eval_samples", data["validation"]["length"]),
        )
    ]


def _run(rows: list[dict[str, Any]], begins: list[int], status: str) -> list[dict[str, Any]]:
    now = begins[0] if begins else 0
    lines = [_line("INTERVAL_START", "run_start", None, now)]
    for row, begin in zip(rows, begins, strict=True):
        at = {"epoch_num": row["epoch"]}
        now = begin + round(1000 * (row.get("train_seconds") or 0))
        lines += [
            _line("INTERVAL_START", "epoch_start", None, begin, **at),
            _line("INTERVAL_END", "epoch_stop", None, now, **at),
        ]
        if row.get("test_accuracy") is not None:
            lines.append(_line("INTERVAL_START", "eval_start", None, now, **at))
            now += round(1000 * (row.get("test_seconds") or 0))
            lines += [
                _line("POINT_IN_TIME", "eval_accuracy", row["test_accuracy"] / 100, now, **at),
                _line("INTERVAL_END", "eval_stop", None, now, **at),
            ]
    return [*lines, _line("INTERVAL_END", "run_stop", None, now, status=status)]


def _status(manifest: Mapping[str, Any], summary: Mapping[str, Any], number: int) -> str:
    """``success`` where this seed reached every target, in a run that could be judged: MLPerf judges single runs, and
    none by a variance over them."""
    about = [metric for metric in outcomes(manifest, summary) if metric.seeds and metric.target is not None]
    judged = [metric.seeds[number].verdict for metric in about]
    reached = PASSED in judged and set(judged) <= {PASSED} and not summary["verdict"].startswith(UNJUDGED)
    return "success" if reached else "aborted"


def _line(kind: str, key: str, value: Any, milliseconds: int, **metadata: Any) -> dict[str, Any]:
    return {
        "namespace": "",
        "time_ms": milliseconds,
        "event_type": kind,
        "key": key,
        "value": value,
        "metadata": {"file": "deep500", "lineno": 0, **metadata},
    }
