"""Results for other tools, and one SQLite base over many runs for questions in SQL."""

from __future__ import annotations

import csv
import io
import sqlite3
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from deep500.errors import InputError
from deep500.results.export_mlflow import write_mlflow
from deep500.results.export_mllog import write_mllog
from deep500.results.export_tensorboard import write_tensorboard
from deep500.results.files import read_json, read_lines, write_atomic, writing
from deep500.results.layout import check_layout
from deep500.results.record import MANIFEST, METRICS, SUMMARY
from deep500.results.samples import SampleStore
from deep500.results.stats import STATS

FORMATS = ("csv", "mllog", "tensorboard", "mlflow")
_TABLES = ("runs", "metrics", "curve", "estimates")


def export(path: Path, to: str, out: Path) -> list[Path]:
    """Write a finished run in another format into a folder.

    Args:
        path: results folder.
        to: ``"csv"``: ``metrics.csv``, ``curve.csv``, ``samples.csv``, ``estimates.csv``; ``"mllog"``: MLPerf's log, a
            file per seed; ``"tensorboard"``: event files (needs tensorboardX); ``"mlflow"``: MLflow's file store.
        out: folder, made if absent.

    Returns:
        what was written: files, for MLflow the folders of its runs.

    Raises:
        InputError: the format is not known.
        ResultsError: the run cannot be read, a package is missing, or the files cannot be written.
    """
    makers: dict[str, Callable[[Path, Path], list[Path]]] = {
        "csv": _csv,
        "mllog": write_mllog,
        "tensorboard": write_tensorboard,
        "mlflow": write_mlflow,
    }
    if to not in makers:
        raise InputError(f"got format {to!r}; expected one of {', '.join(FORMATS)}")
    read_json(path / SUMMARY)  # an unfinished run is refused before anything is made
    check_layout(path)
    with writing(out):
        out.mkdir(parents=True, exist_ok=True)
    return makers[to](path, out)


def _csv(path: Path, out: Path) -> list[Path]:
    tables = {
        "metrics": _metrics(read_json(path / SUMMARY)),
        "curve": read_lines(path / METRICS),
        "samples": list(_samples(path)),
        "estimates": list(_estimates(path)),
    }
    for name, rows in tables.items():
        write_atomic(out / f"{name}.csv", _table(rows))
    return [out / f"{name}.csv" for name in tables]


def _metrics(summary: dict[str, Any]) -> list[dict[str, Any]]:
    return [
        {
            "metric": m["name"],
            "unit": m["unit"],
            "seed_number": i,
            "value": value,
            "target": m["target"],
            "verdict": m["verdict"],
            "labels": "; ".join(summary.get("labels", [])),
        }
        for m in summary.get("metrics", [])
        for i, value in enumerate(m["values"])
    ]


def _samples(path: Path) -> Iterator[dict[str, Any]]:
    store = SampleStore(path)
    for series, launch in store.names():
        for i, (start, duration) in enumerate(store.load(series, launch).tolist()):
            yield {"series": series, "launch": launch, "i": i, "start_ns": start, "duration_ns": duration}


def _estimates(path: Path) -> Iterator[dict[str, Any]]:
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


def _table(rows: Sequence[dict[str, Any]]) -> str:
    """RFC 4180; nothing is written for None."""
    columns = list(dict.fromkeys(key for row in rows for key in row))
    text = io.StringIO()
    writer = csv.DictWriter(text, columns, lineterminator="\r\n")
    writer.writeheader()
    writer.writerows(rows)
    return text.getvalue()


def query(folder: Path, sql: str) -> tuple[list[str], list[tuple[Any, ...]]]:
    """Ask a question in SQL over all finished runs below a folder.

    Tables: ``runs`` (path, recipe, verdict, started, backend, division, environment), ``metrics`` (path, metric, unit,
    seed_number, value, target, verdict, labels), ``curve`` (path, and the numbers of every epoch), ``estimates`` (path,
    series, q, value, low, high, n_eff, ...).

    Returns:
        column names and rows.

    Raises:
        InputError: there are no runs, or the question is no SQL that reads.
    """
    paths = sorted(path.parent for path in folder.rglob(SUMMARY))
    if not paths:
        raise InputError(f"got no finished run below {folder}; expected one: run a recipe first, or name its folder")
    base = sqlite3.connect(":memory:")
    tables: dict[str, list[dict[str, Any]]] = {name: [] for name in _TABLES}
    for path in paths:
        _collect(path, tables)
    try:
        for name, rows in tables.items():
            _fill(base, name, rows)
        base.execute("PRAGMA query_only = ON")
        cursor = base.execute(sql)
        return [column[0] for column in cursor.description or ()], cursor.fetchall()
    except (sqlite3.Error, sqlite3.Warning) as error:
        raise InputError(
            f"got {sql!r}, which SQLite refuses ({error}); expected a SELECT over the tables {', '.join(_TABLES)}"
        ) from error
    finally:
        base.close()


def _collect(path: Path, tables: dict[str, list[dict[str, Any]]]) -> None:
    check_layout(path)
    manifest, summary, at = read_json(path / MANIFEST), read_json(path / SUMMARY), {"path": str(path)}
    # fmt: off
    tables["runs"].append({**at, "recipe": manifest.get("recipe"), "verdict": summary.get("verdict"),
                           "started": manifest.get("started"), "backend": manifest.get("backend"),
                           "division": manifest.get("division"),
                           "environment": manifest.get("environment_sha256")})
    # fmt: on
    tables["metrics"] += [{**at, **row} for row in _metrics(summary)]
    tables["curve"] += [
        {**at, **{k: v for k, v in line.items() if not isinstance(v, (dict, list))}}
        for line in read_lines(path / METRICS)
    ]
    tables["estimates"] += [{**at, **row} for row in _estimates(path)]


def _fill(base: sqlite3.Connection, name: str, rows: Sequence[dict[str, Any]]) -> None:
    columns = list(dict.fromkeys(key for row in rows for key in row)) or ["path"]
    quoted = ", ".join('"' + column.replace('"', '""') + '"' for column in columns)
    base.execute(f"CREATE TABLE {name} ({quoted})")
    marks = ", ".join("?" * len(columns))
    base.executemany(f"INSERT INTO {name} VALUES ({marks})", [[row.get(c) for c in columns] for row in rows])
