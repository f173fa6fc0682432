"""Results as MLPerf's log: ``:::MLLOG`` lines, one file per seed, as MLPerf's compliance checker reads them.

Keys and their order follow MLPerf's rules for training; labels of a run (stand-in data) are in every line's metadata.
What a submission says of itself (organisation, platform, clearing of caches, time of initialisation) is not a run's to
say: add it where a log is to be submitted.
"""

from __future__ import annotations

import datetime
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from deep500.results.files import write_atomic
from deep500.results.finished import EndedRun
from deep500.results.outcomes import PASSED, UNJUDGED

NO_QUALITY = ("samples", "seconds")
"""Numbers of an evaluation that are none."""


def write_mllog(run: EndedRun, out: Path) -> list[Path]:
    """Write ``result_<number of the seed>.txt``, MLPerf's name for the log of one run.

    Times are milliseconds since 1970 (Unix time). Check it with MLPerf's own, ``pip install mlperf-logging``, after the
    lines that a submission needs were added: ``python -m mlperf_logging.compliance_checker --usage training FILE``.

    Raises:
        ResultsError: a file cannot be written.
    """
    written: list[Path] = []
    started = datetime.datetime.fromisoformat(run.manifest["started"]).timestamp()
    for number, seed in enumerate(run.seeds):
        begins = _begins(run.lines(seed), started)
        start = begins[0] if begins else round(1000 * started)
        lines = [*_setup(run.manifest, seed, start), *_run(run, number, begins, start)]
        if run.labels:
            for line in lines:
                line["metadata"]["labels"] = run.labels
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


def _run(run: EndedRun, number: int, begins: Sequence[int], now: int) -> list[dict[str, Any]]:
    seed = run.seeds[number]
    rows, final = run.lines(seed), run.notes.get(str(seed), {}).get("final")
    qualities = [quality["name"] for quality in (run.manifest.get("task") or {}).get("qualities", ())]
    split = {"data": "validation"} if final else {}
    lines = [_line("INTERVAL_START", "run_start", None, now)]
    for row, begin in zip(rows, begins, strict=True):
        at = {"epoch_num": row["epoch"]}
        now = begin + round(1000 * (row.get("train_seconds") or 0))
        lines += [
            _line("INTERVAL_START", "epoch_start", None, begin, **at),
            _line("INTERVAL_END", "epoch_stop", None, now, **at),
        ]
        end = now + round(1000 * (row.get("test_seconds") or 0))
        lines += _evaluation(row, qualities, (now, end), {**at, **split})
        now = end
    if final and rows:
        lines += _evaluation(final, qualities, (now, now), {"epoch_num": rows[-1]["epoch"], "data": "test"})
    return [*lines, _line("INTERVAL_END", "run_stop", None, now, status=_status(run, number))]


def _evaluation(
    row: Mapping[str, Any], qualities: Sequence[str], times: tuple[int, int], about: Mapping[str, Any]
) -> list[dict[str, Any]]:
    """The qualities of an evaluation, a line each. ``eval_accuracy`` is MLPerf's name for the quality of any benchmark:
    where it is no accuracy, the metadata name it."""
    values = {key.removeprefix("test_"): value for key, value in row.items() if key.startswith("test_")}
    known = {key: value for key, value in values.items() if key not in NO_QUALITY and isinstance(value, (int, float))}
    judged = next((name for name in ("accuracy", *qualities, "loss") if name in known), None)
    if judged is None:
        return []
    share = {key: value / 100 if key == "accuracy" else value for key, value in sorted(known.items())}
    named = {} if judged == "accuracy" else {"metric": judged}
    return [
        _line("INTERVAL_START", "eval_start", None, times[0], **about),
        _line("POINT_IN_TIME", "eval_accuracy", share[judged], times[1], **named, **about),
        *(
            _line("POINT_IN_TIME", f"eval_{k}", v, times[1], **about)
            for k, v in sorted(share.items())
            if k != "accuracy"
        ),
        _line("INTERVAL_END", "eval_stop", None, times[1], **about),
    ]


def _status(run: EndedRun, number: int) -> str:
    """``success`` where this seed reached every target, in a run that could be judged: MLPerf judges single runs, and
    none by a variance over them."""
    about = [metric for metric in run.metrics if metric.seeds and metric.target is not None]
    judged = [metric.seeds[number].verdict for metric in about]
    reached = PASSED in judged and set(judged) <= {PASSED} and not run.summary["verdict"].startswith(UNJUDGED)
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
