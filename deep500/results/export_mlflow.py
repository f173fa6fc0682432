"""Results for MLflow: the layout of its file store, which needs no package to be written.

``<experiment>/<run>/{meta.yaml, params/, metrics/, tags/}``, one file per value, as MLflow's ``FileStore`` reads it.
MLflow keeps this layout as it is and prefers databases: ``mlflow migrate-filestore`` brings the runs into one. A run of
MLflow is a seed, since MLflow knows no repetitions. Exporting again replaces the same runs.
"""

from __future__ import annotations

import datetime
import hashlib
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from deep500.results.files import read_json, read_lines, to_json, write_atomic, writing
from deep500.results.outcomes import outcomes
from deep500.results.record import MANIFEST, METRICS, SUMMARY
from deep500.results.verdict import splits_remark

FINISHED, FAILED = 3, 4
"""MLflow's codes of how a run ended."""

LONGEST = 6000
"""MLflow's limit for the value of a parameter, in characters."""


def write_mlflow(path: Path, out: Path) -> list[Path]:
    """Write one MLflow run per seed: resolved recipe as parameters, epochs and metrics, verdict and labels as tags.

    Look at it with ``MLFLOW_ALLOW_FILE_STORE=true mlflow ui --backend-store-uri DIR``.

    Returns:
        the runs' folders.

    Raises:
        ResultsError: the run cannot be read, or a file cannot be written.
    """
    manifest, summary, curve = read_json(path / MANIFEST), read_json(path / SUMMARY), read_lines(path / METRICS)
    began = round(1000 * datetime.datetime.fromisoformat(manifest["started"]).timestamp())
    experiment = str(int(hashlib.sha256(manifest["recipe"].encode("utf-8")).hexdigest()[:15], 16))
    folder = out / experiment
    _write(
        folder / "meta.yaml",
        _yaml(
            {
                "artifact_location": folder.resolve().as_uri(),
                "creation_time": began,
                "experiment_id": experiment,
                "last_update_time": began,
                "lifecycle_stage": "active",
                "name": manifest["recipe"],
            }
        ),
    )
    runs = []
    for number, seed in enumerate(manifest["seeds"]):
        run = folder / hashlib.sha256(f"{path.name} {seed}".encode()).hexdigest()[:32]
        lines = [line for line in curve if line["seed"] == seed]
        times = _times(lines, summary, began)
        _write(run / "meta.yaml", _yaml(_meta(run, experiment, path, seed, summary, times)))
        for kind, values in (
            ("params", _params(manifest["resolved"], seed)),
            ("tags", _tags(manifest, summary, path, number)),
            ("metrics", _metrics(manifest, summary, lines, number, times)),
        ):
            for name, text in values.items():
                _write(run / kind / _name(name), text)
        with writing(run):
            (run / "artifacts").mkdir(exist_ok=True)
        runs.append(run)
    return runs


def _meta(
    run: Path, experiment: str, path: Path, seed: int, summary: Mapping[str, Any], times: list[int]
) -> dict[str, Any]:
    return {
        "artifact_uri": (run.resolve() / "artifacts").as_uri(),
        "end_time": times[-1],
        "entry_point_name": "",
        "experiment_id": experiment,
        "lifecycle_stage": "active",
        "run_id": run.name,
        "run_uuid": run.name,
        "run_name": _title(path, seed, summary),
        "source_name": "",
        "source_type": FINISHED + 1,
        "source_version": "",
        "start_time": times[0],
        "status": FINISHED if summary["status"] == "finished" else FAILED,
        "tags": [],
        "user_id": "",
    }


def _title(path: Path, seed: int, summary: Mapping[str, Any]) -> str:
    """Labels are part of the name, which MLflow shows beside every number."""
    return " ".join([path.name, f"seed {seed}", *(f"[{label}]" for label in summary["labels"])])


def _milliseconds(summary: Mapping[str, Any], began: int) -> int:
    """Return when the run ended, all seeds together."""
    try:
        return round(1000 * datetime.datetime.fromisoformat(summary["finished"]).timestamp())
    except (KeyError, ValueError):
        return began


def _tags(manifest: Mapping[str, Any], summary: Mapping[str, Any], path: Path, number: int) -> dict[str, str]:
    seed = manifest["seeds"][number]
    # fmt: off
    tags = {
        "mlflow.runName": _title(path, seed, summary), "verdict over seeds": summary["verdict"],
        "labels": ", ".join(summary["labels"]), "division": manifest["division"], "seed": str(seed),
        "backend": str(manifest.get("backend")), "device": str(manifest["device"]["used"]),
        "environment_sha256": str(manifest.get("environment_sha256")), "results": path.name,
    }
    # fmt: on
    tags |= {"splits": splits_remark(manifest)} if splits_remark(manifest) else {}
    tags |= {"name": manifest["name"]} if "name" in manifest else {}
    tags |= {"tags": ", ".join(manifest["tags"])} if "tags" in manifest else {}
    for metric in outcomes(manifest, summary):
        if metric.seeds and metric.target is not None:
            tags[f"{metric.name} verdict"] = metric.seeds[number].verdict
        tags[f"{metric.name} over seeds"] = metric.sentence
    return tags


def _times(lines: list[dict[str, Any]], summary: Mapping[str, Any], began: int) -> list[int]:
    """Milliseconds since 1970: when a seed began, and its epochs had ended; those of the run where nothing tells."""
    clocks = [line.get("clock") for line in lines]
    known = [(float(clock["began"]), float(clock["wall_seconds"])) for clock in clocks if clock]
    if not known or len(known) < len(lines):
        return [began, *[began] * max(0, len(lines) - 1), _milliseconds(summary, began)]
    return [round(1000 * known[0][0]), *(round(1000 * (begin + lasted)) for begin, lasted in known)]


def _metrics(
    manifest: Mapping[str, Any], summary: Mapping[str, Any], lines: list[dict[str, Any]], number: int, times: list[int]
) -> dict[str, str]:
    """Per name its lines ``time value step``; the time is when the epoch had ended."""
    lines_of: dict[str, str] = {}
    for line, ended in zip(lines, times[1:], strict=True):
        for key, value in line.items():
            if key not in ("seed", "epoch") and isinstance(value, (int, float)) and not isinstance(value, bool):
                lines_of[key] = lines_of.get(key, "") + f"{ended} {value!r} {line['epoch']}\n"
    for metric in outcomes(manifest, summary):
        value = metric.seeds[number].value if metric.seeds else None
        if value is not None:
            unit = f" in {metric.unit}" if metric.unit else ""
            lines_of[f"final {metric.name}{unit}"] = f"{times[-1]} {value!r} {len(lines)}\n"
    return lines_of


def _params(resolved: Mapping[str, Any], seed: int) -> dict[str, str]:
    """The resolved recipe, with the seed of this run in place of the first."""
    own_seed = {"recipe.seed": seed}
    return {name: _short(own_seed.get(name, value)) for name, value in _flat(resolved)}


def _flat(value: Any, name: str = "") -> Iterator[tuple[str, Any]]:
    if isinstance(value, Mapping) and value:
        for key, inner in value.items():
            yield from _flat(inner, f"{name}.{key}" if name else str(key))
    else:
        yield name, value


def _name(text: str) -> str:
    """A name that is a file within its folder: what MLflow does not allow is replaced, slashes and dots first too."""
    return re.sub(r"[^\w. -]", "_", text).lstrip(".")[:200] or "_"


def _short(value: Any) -> str:
    text = value if isinstance(value, str) else to_json(value, indent=None)
    return text[:LONGEST]


def _yaml(content: Mapping[str, Any]) -> str:
    return to_json(content) + "\n"  # JSON is YAML


def _write(path: Path, text: str) -> None:
    with writing(path):
        path.parent.mkdir(parents=True, exist_ok=True)
    write_atomic(path, text)
