"""Results for other tools: tables, MLPerf's log, TensorBoard, MLflow."""

from __future__ import annotations

import csv
import io
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

from deep500.errors import InputError
from deep500.results.export_mlflow import write_mlflow
from deep500.results.export_mllog import write_mllog
from deep500.results.export_tensorboard import write_tensorboard
from deep500.results.files import read_json, write_atomic, writing
from deep500.results.finished import EndedRun, read_finished
from deep500.results.outcomes import MetricOutcome
from deep500.results.samples import SampleStore
from deep500.results.stats import STATS

FORMATS = ("csv", "mllog", "tensorboard", "mlflow")


def export(path: Path, to: str, out: Path) -> list[Path]:
    """Write a finished run in another format into a folder.

    Args:
        path: results folder.
        to: ``"csv"``: ``metrics.csv``, ``over_seeds.csv``, ``curve.csv``, ``samples.csv`` (whose launches are named by
            their seeds) and ``estimates.csv``; ``"mllog"``: MLPerf's log, a file per seed; ``"tensorboard"``: event
            files (needs tensorboardX); ``"mlflow"``: MLflow's file store.
        out: folder, made if absent.

    Returns:
        what was written: files, for MLflow the folders of its runs.

    Raises:
        InputError: the format is not known.
        ResultsError: the run cannot be read, a package is missing, or the files cannot be written.
    """
    makers: dict[str, Callable[[EndedRun, Path], list[Path]]] = {
        "csv": _csv,
        "mllog": write_mllog,
        "tensorboard": write_tensorboard,
        "mlflow": write_mlflow,
    }
    if to not in makers:
        raise InputError(f"got format {to!r}; expected one of {', '.join(FORMATS)}")
    run = read_finished(path)  # an unfinished run is refused before anything is made
    with writing(out):
        out.mkdir(parents=True, exist_ok=True)
    return makers[to](run, out)


COLUMNS = {
    "metrics": ("metric", "unit", "data", "seed", "value", "target", "verdict", "verdict_over_seeds"),
    "over_seeds": (
        *("metric", "unit", "data", "value", "low", "high", "standing", "basis", "target", "verdict", "reason"),
    ),
    "curve": ("seed", "epoch"),
    "estimates": (
        *("series", "unit", "q", "value", "low", "high", "level", "n", "n_eff", "standing", "launches", "cluster"),
    ),
    "samples": ("series", "launch", "i", "start_ns", "duration_ns"),
}
"""Columns of tables, which they have without rows, too; an epoch has more."""


def _csv(run: EndedRun, out: Path) -> list[Path]:
    rows_of = tables(run, samples=_samples(run.path))
    for name, rows in rows_of.items():
        write_atomic(out / f"{name}.csv", _table(rows, [*COLUMNS[name], "labels"]))
    return [out / f"{name}.csv" for name in rows_of]


def tables(run: EndedRun, **more: Iterable[dict[str, Any]]) -> dict[str, list[dict[str, Any]]]:
    """Tables of a run by name, as exports and queries have them, and ``more``; every row has the run's labels."""
    labels = {"labels": "; ".join(run.labels)}
    rows_of: dict[str, Iterable[dict[str, Any]]] = {
        "metrics": metric_rows(run.metrics),
        "over_seeds": outcome_rows(run.metrics),
        "curve": [dict(flattened(line)) for line in run.curve],
        "estimates": estimate_rows(run.path),
        **more,
    }
    return {name: [{**row, **labels} for row in rows] for name, rows in rows_of.items()}


def flattened(value: Any, name: str = "") -> Iterator[tuple[str, Any]]:
    """Columns of a line: what lies within others by dotted names, places of lists as numbers.

    Example:
        >>> dict(flattened({"lr": 0.1, "args": [2, {"eps": 0}]}))
        {'lr': 0.1, 'args.0': 2, 'args.1.eps': 0}
    """
    if isinstance(value, (dict, list)):
        for key, inner in value.items() if isinstance(value, dict) else enumerate(value):
            yield from flattened(inner, f"{name}.{key}" if name else str(key))
    else:
        yield name, value


def metric_rows(about: Sequence[MetricOutcome]) -> list[dict[str, Any]]:
    """A row per metric and seed: ``verdict`` is on the value beside it, ``verdict_over_seeds`` is the run's. A metric
    that is another quantity over the seeds has none."""
    return [
        {
            "metric": metric.name,
            "unit": metric.unit,
            "data": metric.data,
            "seed": seed.seed,
            "value": seed.value,
            "target": metric.target,
            "verdict": seed.verdict,
            "verdict_over_seeds": metric.verdict,
        }
        for metric in about
        for seed in metric.seeds
    ]


def outcome_rows(about: Sequence[MetricOutcome]) -> list[dict[str, Any]]:
    """A row per metric: its value over all seeds, with an interval if it is a result."""
    return [
        {
            "metric": metric.name,
            "unit": metric.unit,
            "data": metric.data,
            "value": metric.value,
            "low": None if metric.interval is None else metric.interval[0],
            "high": None if metric.interval is None else metric.interval[1],
            "standing": metric.standing,
            "basis": metric.basis,
            "target": metric.target,
            "verdict": metric.verdict,
            "reason": metric.reason,
        }
        for metric in about
    ]


def _samples(path: Path) -> Iterator[dict[str, Any]]:
    store = SampleStore(path)
    for series, launch in store.names():
        for i, (start, duration) in enumerate(store.load(series, launch).tolist()):
            yield {"series": series, "launch": launch, "i": i, "start_ns": start, "duration_ns": duration}


def estimate_rows(path: Path) -> Iterator[dict[str, Any]]:
    """A row per series and quantile."""
    stats = read_json(path / STATS) if (path / STATS).exists() else {"series": {}}
    for series, stat in stats["series"].items():
        for estimate in stat["estimates"]:
            yield {
                "series": series,
                "unit": stat["unit"],
                "q": estimate["q"],
                "value": estimate["value"],
                "low": estimate["ci"]["low"],
                "high": estimate["ci"]["high"],
                "level": estimate["ci"]["level"],
                "n": estimate["n"],
                "n_eff": estimate["n_eff"],
                "standing": estimate["standing"],
                "launches": estimate.get("launches"),
                "cluster": estimate["ci"].get("cluster"),
            }


def _table(rows: Sequence[dict[str, Any]], first: Sequence[str]) -> str:
    """RFC 4180, with columns that stand first; nothing is written for None."""
    columns = list(dict.fromkeys([*first, *(key for row in rows for key in row)]))
    text = io.StringIO()
    writer = csv.DictWriter(text, columns, lineterminator="\r\n")
    writer.writeheader()
    writer.writerows(rows)
    return text.getvalue()
