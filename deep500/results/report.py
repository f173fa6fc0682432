"""The report: one self-contained HTML page, made of a results folder's files and of nothing else.

Verdict first, curves second, environment last. All text is escaped; the page loads nothing from anywhere.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from deep500.results.figures import series_svg, to_svg
from deep500.results.files import read_json, to_json, write_atomic
from deep500.results.record import REPORT, Record
from deep500.results.rules import RULES, RULES_FILE
from deep500.results.stats import STATS

ENOUGH = 20
"""Series with fewer samples are not plotted."""

CURVES = (("loss", "loss"), ("accuracy", "accuracy (%)"))
"""Endings of the keys in ``metrics.jsonl`` that are plotted together, and the axis they share."""


def write_report(record: Record) -> Path:
    """Write ``report.html`` into a results folder and return its path; raises ResultsError if that fails."""
    path = record.path / REPORT
    write_atomic(path, render(record))
    return path


def render(record: Record) -> str:
    """The page as text."""
    from jinja2 import Environment, FileSystemLoader
    from markupsafe import Markup

    manifest, epochs = record.manifest(), record.epochs()
    summary = record.summary() or {"verdict": "UNFINISHED", "metrics": [], "labels": []}
    environment = Environment(loader=FileSystemLoader(Path(__file__).parent), autoescape=True)
    environment.filters["number"] = format_number
    environment.filters["pretty"] = to_json
    title = f"{manifest['recipe']} ({', '.join(summary['labels'])})" if summary["labels"] else manifest["recipe"]
    return environment.get_template("report.html.j2").render(
        manifest=manifest,
        summary=summary,
        title=title,
        word=summary["verdict"].split()[0],
        curve=Markup(curve_svg(epochs, ", ".join(summary["labels"]))) if epochs else "",
        epochs=epochs,
        columns=columns(epochs),
        rules=_in_order(_content(record, RULES_FILE, "rules")),
        series=_content(record, STATS, "series"),
        figures=_figures(record, ", ".join(summary["labels"])),
    )


def _content(record: Record, name: str, key: str) -> dict[str, Any]:
    path = record.path / name
    return read_json(path).get(key, {}) if path.exists() else {}


def _in_order(found: Mapping[str, Any]) -> dict[str, Any]:
    return {name: found[name] for name in RULES if name in found}


def _figures(record: Record, label: str) -> dict[str, Any]:
    """Plots of the series that have enough samples to show a distribution."""
    from markupsafe import Markup

    series = _content(record, STATS, "series")
    return {name: Markup(series_svg(record.samples, name, stat, label)) for name, stat in series.items()
            if stat.get("n", 0) >= ENOUGH}  # fmt: skip


def columns(epochs: Sequence[Mapping[str, Any]]) -> list[str]:
    """Keys of the epoch lines that hold numbers, seed and epoch first."""
    found = dict.fromkeys(key for line in epochs for key, value in sorted(line.items()) if _is_number(value))
    return [*(key for key in ("seed", "epoch") if key in found), *(k for k in found if k not in ("seed", "epoch"))]


def format_number(value: Any) -> str:
    """A number in at most four significant digits (integers whole), ``not measured`` for None.

    Example:
        >>> format_number(97.4567), format_number(60000), format_number(None)
        ('97.46', '60000', 'not measured')
    """
    if value is None:
        return "not measured"
    return f"{value:.4g}" if isinstance(value, float) else str(value)


def curve_svg(epochs: Sequence[Mapping[str, Any]], label: str = "") -> str:
    """Loss and accuracy over epochs, one line per seed and quantity, as an SVG element.

    Args:
        epochs: lines of ``metrics.jsonl``.
        label: what must be said beside every number of the run; it goes into the figure's title.
    """
    import matplotlib
    from matplotlib.figure import Figure

    with matplotlib.rc_context({"svg.hashsalt": "deep500", "svg.fonttype": "none"}):
        figure = Figure(figsize=(9, 3.4), layout="constrained")
        for axes, (ending, name) in zip(figure.subplots(1, len(CURVES)), CURVES, strict=True):
            for seed in dict.fromkeys(line["seed"] for line in epochs):
                lines = [line for line in epochs if line["seed"] == seed]
                for number, key in enumerate(k for k in columns(lines) if k.endswith(ending)):
                    points = [(line["epoch"], line[key]) for line in lines if _is_number(line.get(key))]
                    legend = key.replace("_", " ") if seed == epochs[0]["seed"] else None
                    axes.plot(*zip(*points, strict=True), color=f"C{number}", label=legend, marker=".", linewidth=1)
            axes.set_xlabel("epoch")
            axes.set_ylabel(name)
            axes.grid(alpha=0.3)
            if axes.get_legend_handles_labels()[0]:
                axes.legend()
        if label:
            figure.suptitle(label)
        return to_svg(figure)


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)
