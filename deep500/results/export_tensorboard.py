"""Results for TensorBoard: event files, written by tensorboardX, which needs no TensorFlow.

One folder per seed, since TensorBoard knows no repetitions; verdict and medians over the seeds go with each of them as
text. The labels of a run (stand-in data) are part of the folders' names, which TensorBoard shows beside every number.
"""

from __future__ import annotations

import datetime
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from deep500.errors import ResultsError
from deep500.results.files import writing
from deep500.results.finished import EndedRun
from deep500.results.outcomes import MetricOutcome
from deep500.results.samples import SampleStore
from deep500.results.verdict import splits_remark


def write_tensorboard(run: EndedRun, out: Path) -> list[Path]:
    """Scalars of every epoch, every sample's time as scalar and all of them as histogram, metrics, and the verdict.

    Samples have the wall time at which they were taken, counted from the run's start; epochs and metrics have the
    step only. Exporting again writes files beside the older ones.

    Raises:
        ResultsError: tensorboardX is not installed, the run cannot be read, or a file cannot be written.
    """
    try:
        from tensorboardX import SummaryWriter
    except ImportError as error:
        raise ResultsError(
            "got no package 'tensorboardX'; expected it for --to tensorboard: pip install 'deep500[tensorboard]'"
        ) from error
    began, written = datetime.datetime.fromisoformat(run.manifest["started"]).timestamp(), list[Path]()
    for number, seed in enumerate(run.seeds):
        folder = out / " ".join([f"seed-{seed}", *(f"[{label}]" for label in run.labels)]).replace("/", "_")
        with writing(folder):
            writer = SummaryWriter(str(folder))
            try:
                _samples(writer, SampleStore(run.path), seed, began)
                _epochs(writer, run.lines(seed), began)
                _metrics(writer, run.metrics, number, began)
                writer.add_text("verdict", _summary_text(run), 0, walltime=began)
            finally:
                writer.close()
            written += sorted(folder.glob("events.out.tfevents.*"))
    return written


def _samples(writer: Any, store: SampleStore, seed: int, began: float) -> None:
    names = store.names()
    first = min((int(store.load(*name)["start_ns"][0]) for name in names), default=0)
    for series in (series for series, launch in names if launch == seed):
        samples = store.load(series, seed)
        walls = (began + (samples["start_ns"] - first) / 1e9).tolist()
        seconds = samples["duration_ns"] / 1e9
        for step, (value, wall) in enumerate(zip(seconds.tolist(), walls, strict=True)):
            writer.add_scalar(f"seconds/{series}", value, step, walltime=wall)
        writer.add_histogram(f"distribution/{series}", seconds, 0, walltime=walls[-1])


def _epochs(writer: Any, lines: list[dict[str, Any]], began: float) -> None:
    for line in lines:
        for key, value in line.items():
            if key not in ("seed", "epoch") and isinstance(value, (int, float)) and not isinstance(value, bool):
                writer.add_scalar(f"epoch/{key}", value, line["epoch"], walltime=began)


def _metrics(writer: Any, about: Sequence[MetricOutcome], number: int, began: float) -> None:
    for metric in about:
        value = metric.seeds[number].value if metric.seeds else None
        if value is not None:
            writer.add_scalar(
                f"metric/{metric.name}",
                value,
                0,
                walltime=began,
                display_name=metric.name,
                summary_description=f"unit: {metric.unit}",
            )


def _summary_text(run: EndedRun) -> str:
    """Verdict and metrics over all seeds, as Markdown, which is what TensorBoard shows texts in."""
    manifest = run.manifest
    lines = [f"recipe {manifest['recipe']}, {manifest['division']} division, all seeds: {run.summary['verdict']}"]
    lines += [splits_remark(manifest)] if splits_remark(manifest) else []
    lines += [f"{metric.name}: {metric.sentence}" for metric in run.metrics]
    return "\n".join(f"    {line}" for line in lines)  # four blanks: shown as it is, whatever a name holds
