"""Results for MLflow: the layout of its file store, which needs no package to be written.

``<experiment>/<run>/{meta.yaml, params/, metrics/, tags/}``, one file per value, as MLflow's ``FileStore`` reads it.
MLflow keeps this layout as it is and prefers databases: ``mlflow migrate-filestore`` brings the runs into one. A run of
MLflow is a seed, since MLflow knows no repetitions. Exporting again replaces the same runs.
"""

from __future__ import annotations

import datetime
import hashlib
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from deep500.results.files import to_json, write_atomic, writing
from deep500.results.finished import EndedRun
from deep500.results.verdict import splits_remark

FINISHED, FAILED = 3, 4
"""MLflow's codes of how a run ended."""

LONGEST = 6000
"""MLflow's limit for the value of a parameter, in characters."""


def write_mlflow(run: EndedRun, out: Path) -> list[Path]:
    """Write one MLflow run per seed: resolved recipe as parameters, epochs and metrics, verdict and labels as tags.

    Look at it with ``MLFLOW_ALLOW_FILE_STORE=true mlflow ui --backend-store-uri DIR``.

    Returns:
        the runs' folders.

    Raises:
        ResultsError: the run cannot be read, or a file cannot be written.
    """
    manifest = run.manifest
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
    for number, seed in enumerate(run.seeds):
        place = folder / hashlib.sha256(f"{run.path.name} {seed}".encode()).hexdigest()[:32]
        times = _times(run.lines(seed), run.summary, began)
        _write(place / "meta.yaml", _yaml(_meta(place, experiment, run, seed, times)))
        for kind, values in (
            ("params", _params(manifest["resolved"], seed)),
            ("tags", _tags(run, number)),
            ("metrics", _metrics(run, number, times)),
        ):
            for name, file in _files(values).items():
                _write(place / kind / file, values[name])
        with writing(place):
            (place / "artifacts").mkdir(exist_ok=True)
        runs.append(place)
    return runs


def _meta(place: Path, experiment: str, run: EndedRun, seed: int, times: Times) -> dict[str, Any]:
    return {
        "artifact_uri": (place.resolve() / "artifacts").as_uri(),
        "end_time": times.end,
        "entry_point_name": "",
        "experiment_id": experiment,
        "lifecycle_stage": "active",
        "run_id": place.name,
        "run_uuid": place.name,
        "run_name": _title(run, seed),
        "source_name": "",
        "source_type": FINISHED + 1,
        "source_version": "",
        "start_time": times.begin,
        "status": FINISHED if run.is_whole(seed) else FAILED,
        "tags": [],
        "user_id": "",
    }


def _title(run: EndedRun, seed: int) -> str:
    """Labels are part of the name, which MLflow shows beside every number."""
    return " ".join([run.path.name, f"seed {seed}", *(f"[{label}]" for label in run.labels)])


def _milliseconds(summary: Mapping[str, Any], began: int) -> int:
    """Return when the run ended, all seeds together."""
    try:
        return round(1000 * datetime.datetime.fromisoformat(summary["finished"]).timestamp())
    except (KeyError, ValueError):
        return began


def _tags(run: EndedRun, number: int) -> dict[str, str]:
    manifest, seed = run.manifest, run.seeds[number]
    # fmt: off
    tags = {
        "mlflow.runName": _title(run, seed), "verdict over seeds": run.summary["verdict"],
        "labels": ", ".join(run.labels), "division": manifest["division"], "seed": str(seed),
        "backend": str(manifest.get("backend")), "device": str(manifest["device"]["used"]),
        "environment_sha256": str(manifest.get("environment_sha256")), "results": run.path.name,
    }
    # fmt: on
    tags |= {"splits": splits_remark(manifest)} if splits_remark(manifest) else {}
    tags |= {"name": manifest["name"]} if "name" in manifest else {}
    tags |= {"tags": ", ".join(manifest["tags"])} if "tags" in manifest else {}
    for metric in run.metrics:
        if metric.seeds and metric.target is not None:
            tags[f"{metric.name} verdict"] = metric.seeds[number].verdict
        tags[f"{metric.name} over seeds"] = metric.sentence
    return tags


class Times(NamedTuple):
    """Milliseconds since 1970: when a seed began, when each of its epochs ended, and when it ended."""

    begin: int
    epochs: list[int]
    end: int


def _times(lines: list[dict[str, Any]], summary: Mapping[str, Any], began: int) -> Times:
    """Times of a seed; those of the run where nothing tells."""
    clocks = [line.get("clock") for line in lines]
    known = [(float(clock["began"]), float(clock["wall_seconds"])) for clock in clocks if clock]
    if not known or len(known) < len(lines):
        end = _milliseconds(summary, began)
        return Times(began, [*[began] * (len(lines) - 1), end][: len(lines)], end)
    ends = [round(1000 * (begin + lasted)) for begin, lasted in known]
    return Times(round(1000 * known[0][0]), ends, ends[-1])


def _metrics(run: EndedRun, number: int, times: Times) -> dict[str, str]:
    """Per name its lines ``time value step``; the time is when the epoch had ended."""
    lines_of: dict[str, str] = {}
    lines = run.lines(run.seeds[number])
    for line, ended in zip(lines, times.epochs, strict=True):
        for key, value in line.items():
            if key not in ("seed", "epoch") and isinstance(value, (int, float)) and not isinstance(value, bool):
                lines_of[key] = lines_of.get(key, "") + f"{ended} {value!r} {line['epoch']}\n"
    for metric in run.metrics:
        value = metric.seeds[number].value if metric.seeds else None
        if value is not None:
            unit = metric.unit.replace("%", "percent").replace("/", " per ")  # MLflow's names hold neither
            lines_of[f"final {metric.name}{f' in {unit}' if unit else ''}"] = f"{times.end} {value!r} {len(lines)}\n"
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


def _files(names: Iterable[str]) -> dict[str, str]:
    """The file of each name; names that would share one are told apart by their hashes.

    Example:
        >>> _files(["top_err", "top/err"])
        {'top_err': 'top_err', 'top/err': 'top_err 92a327'}
    """
    files = {name: _name(name) for name in names}
    shared = Counter(files.values())
    return {
        name: file
        if shared[file] == 1 or file == name
        else f"{file[:190]} {hashlib.sha256(name.encode()).hexdigest()[:6]}"
        for name, file in files.items()
    }


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
