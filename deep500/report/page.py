"""The report: one self-contained HTML page, made of a results folder's files and of nothing else.

Verdict and rules first, then setup, results, distributions, curves; environment last. All text is escaped; the page
loads nothing from anywhere, and is complete without its script, which only shows values under the pointer and switches
axes to a logarithmic scale. :mod:`deep500.compare.report` puts several runs on one page.
"""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from deep500.measure.launches import DIFFER, LAUNCHES
from deep500.measure.steady import SteadyState
from deep500.pages.rendering import format_number, format_time
from deep500.report.curves import ACCURACY, bar_figure, columns, curve_figures
from deep500.report.exhibits import exhibit_views
from deep500.report.figures import series_figures
from deep500.report.network import network_view
from deep500.report.rendering import holds_over, render_template
from deep500.results.claims import scaling_of
from deep500.results.division import read_division
from deep500.results.exhibits import read_exhibits
from deep500.results.files import read_json, write_atomic
from deep500.results.formats import RECOMPUTATIONS
from deep500.results.network import read_network
from deep500.results.outcomes import outcome
from deep500.results.quiet import BUSY, disturbed, mixed, taints
from deep500.results.ranks import Ranks, is_of_rank
from deep500.results.record import REPORT, Record
from deep500.results.rules import CLAIMS, FAIL, MISSING, NOT_APPLICABLE, PASS, RULES, RULES_FILE, title_of
from deep500.results.rules.claim_types import sound
from deep500.results.stats import STATS
from deep500.results.verdict import repetition_sentence, splits_remark, standing_words

ENOUGH = 20
"""Series with fewer samples are not plotted."""

UNFINISHED: dict[str, Any] = {"verdict": "UNFINISHED", "metrics": [], "labels": []}
MARKS = {"PASSED": "✓", "FAILED": "✗", "UNJUDGED": "–", "UNFINISHED": "…"}
SPENT = {"energy": ("J", "kJ", "W", "Wh", "kWh"), "carbon": ("g", "kg"), "cost": ("EUR", "USD", "CHF", "GBP", "JPY")}
"""Costs of a run, by the units of their metrics."""


def write_report(record: Record) -> Path:
    """Write ``report.html`` into a results folder and return its path; raises ResultsError if that fails."""
    path = record.path / REPORT
    write_atomic(path, render(record))
    return path


def render(record: Record) -> str:
    """The page of one run as text."""
    return render_views([view(record)])


def render_views(views: Sequence[Mapping[str, Any]], comparison: Mapping[str, Any] | None = None) -> str:
    """A page of several runs.

    Args:
        views: one :func:`view` per run.
        comparison: what the template needs for the comparison of the first run with the others; None without one.
    """
    several, board = len(views) > 1, None
    if several:
        from deep500.report.leaderboard import leaderboard

        board = leaderboard(views)
    return render_template("report.html.j2", views=views, comparison=comparison, several=several, board=board)


def view(record: Record, name: str = "", claims: Sequence[Mapping[str, Any]] | None = None) -> dict[str, Any]:
    """Collect what the page shows of a run; ``name`` tells it from others on one page, ``claims`` are to be written."""
    manifest, epochs = record.manifest(), record.epochs()
    summary = record.summary() or UNFINISHED
    rules = _content(record, RULES_FILE, "rules")
    # ranks have a figure and a table of their own
    series = {name: stat for name, stat in _content(record, STATS, "series").items() if not is_of_rank(name)}
    claims = sound(_content(record, CLAIMS, "claims") or []) if claims is None else sound(claims)
    word = summary["verdict"].split()[0]
    return {
        "name": name or manifest.get("name") or manifest["recipe"],
        "manifest": manifest,
        "summary": summary,
        "labels": [label for label in summary["labels"] if label != BUSY],
        "busy": BUSY if BUSY in summary["labels"] else "",
        "recipe_file": Path(manifest["recipe_file"] or "").name,
        "word": word,
        "mark": MARKS.get(word, "–"),
        "rules": {name: {**rules[name], "title": title_of(name)} for name in RULES if name in rules},
        "counts": {
            status: sum(rule["status"] == status for rule in rules.values())
            for status in (PASS, FAIL, MISSING, NOT_APPLICABLE)
        },
        "metrics": [metric_row(metric, manifest) for metric in summary["metrics"]],
        "series": {name: {**stat, "sentence": sentence(stat)} for name, stat in series.items() if stat["estimates"]},
        "headline": _headline(series),
        "disturbed": disturbed(epochs, manifest),
        "splits": splits_remark(manifest) if summary["metrics"] else "",
        "repetition": _repetition(summary),
        "figures": {
            name: series_figures(record.samples, name, stat)
            for name, stat in series.items()
            if stat.get("n", 0) >= ENOUGH
        },
        "epochs": epochs,
        "columns": columns(epochs),
        "curves": curve_figures(
            epochs,
            (manifest.get("task") or {}).get("qualities") or (ACCURACY,),
            "validation" if "test" in manifest["data"] else "test",
        ),
        "exhibits": exhibit_views(read_exhibits(record.path)),
        "network": network_view(read_network(record.path)),
        "breakdown": _breakdown(record, series, claims),
        "spent": {
            what: [metric_row(m) for m in summary["metrics"] if m["unit"].split("/")[0] in units]
            for what, units in SPENT.items()
        },
        **_limits(record, claims),
        **_plans(record),
        "rerun": rerun(manifest),
    }


def _limits(record: Record, claims: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Rates, ranks and numbers of ranks beside what bounds them: most runs have none, and load no code for them."""
    scaling, ranks = scaling_of(record.path), Ranks.read(record.path)
    if ranks is not None and taints(record.epochs(), record.manifest()):
        ranks = ranks.observed()  # folders of older versions have intervals
    rates = _bounds(claims)
    views: dict[str, Any] = {"scaling": scaling, "ranks": ranks, "bounds": [] if rates is None else [rates]}
    views |= {"scaling_rows": [], "scaling_figures": [], "ranks_figure": None}
    if scaling is not None or ranks is not None or any(claim.get("type") == "rate" for claim in claims):
        from deep500.report import bounds

        roofline = bounds.roofline_figure(claims)
        views["bounds"] = [*([] if roofline is None else [roofline]), *views["bounds"]]
        views["scaling_rows"], views["scaling_figures"] = bounds.scaling_rows(scaling), bounds.scaling_figures(scaling)
        views["ranks_figure"] = bounds.ranks_figure(ranks)
    return views


def _plans(record: Record) -> dict[str, Any]:
    """The views that few runs have, plans and changes of ranks: their code is loaded for these alone."""
    views: dict[str, Any] = {"division": None, "recomputation": None, "course": []}
    if mixed(manifest := record.manifest()):
        from deep500.results.course import course

        views["course"] = course(manifest, record.epochs())
    if (division := read_division(record.path)) is not None:
        from deep500.report.division import division_view

        views["division"] = division_view(division)
    if any((record.path / name).exists() for name in RECOMPUTATIONS):
        from deep500.report.recomputation import recomputation_view
        from deep500.results.recomputation import RecomputationRecord

        views["recomputation"] = recomputation_view(RecomputationRecord.read(record.path))
    return views


def _content(record: Record, name: str, key: str) -> Any:
    path = record.path / name
    return read_json(path).get(key, {}) if path.exists() else {}


def _repetition(summary: Mapping[str, Any]) -> dict[str, Any] | None:
    """Say how ``--repeat auto`` ended; None for a number of seeds that was given."""
    content = summary.get("repetition")
    return content and {"reached": content["reached"], "sentence": repetition_sentence(content)}


def _headline(series: Mapping[str, Any]) -> dict[str, Any] | None:
    """The median that stands beside the verdict: of the steps, else of the first series."""
    name = "step" if "step" in series else next(iter(series), None)
    estimates = [estimate for estimate in series[name]["estimates"] if estimate["q"] == 0.5] if name is not None else []
    return {"series": name, "estimate": estimates[0]} if estimates else None


def metric_row(metric: Mapping[str, Any], manifest: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """A metric as ``summary.json`` has it, with its interval and what that is, see :mod:`deep500.results.outcomes`.

    Args:
        metric: of the summary.
        manifest: of the run; without it nothing is shown by seed.
    """
    seen = outcome(metric, (), manifest)
    values = [format_number(seed.value) for seed in seen.seeds]
    return {**metric, "interval": seen.interval, "basis": seen.basis, "n": len(metric["values"]), "by_seed": values}


def sentence(stat: Mapping[str, Any]) -> str:
    """Say how the figures of a series were obtained."""
    launches = stat["launches"]
    sizes = sorted({launch["n"] for launch in launches})
    sizes_text = f"{sizes[0]}" if len(sizes) == 1 else f"{sizes[0]} to {sizes[-1]}"
    cut = sum(launch["cut"]["index"] for launch in launches)
    parts = [
        f"{len(launches)} launch{'es' if len(launches) > 1 else ''} of {sizes_text} samples, {cut} of them discarded "
        "as warm-up (MSER-5)"
    ]
    unsteady = [(launch["launch"], _steady_state(launch["cut"])) for launch in launches]
    parts += [f"no steady state in launch {number}: {state}" for number, state in unsteady if not state.is_steady]
    if stat["clock"]["warning"]:
        parts.append(stat["clock"]["warning"])
    normality = stat.get("normality")
    if normality is not None:
        word = "rejected" if normality["p"] < 0.01 else "not rejected"
        parts.append(
            f"normality {word} (Shapiro-Wilk W {normality['W']:.3g}), intervals are of ranks and do not need it"
        )
    between = stat["between_launches"]
    if between["kruskal_p"] is not None:
        word = "differ" if between["kruskal_p"] < DIFFER else "do not differ visibly"
        spread = "" if between["cv"] is None else f", standard deviation of their medians {100 * between['cv']:.2g} %"
        parts.append(f"launches {word} (Kruskal-Wallis p {between['kruskal_p']:.2g}{spread})")
    median = next((estimate for estimate in stat["estimates"] if estimate["q"] == 0.5), None)
    if median is not None:
        parts.append(_holds(median, between["kruskal_p"], stat.get("disturbed")))
    return "; ".join(parts) + "."


def _steady_state(cut: Mapping[str, Any]) -> SteadyState:
    trend_p, change_p = cut.get("trend_p"), cut.get("change_p")
    return SteadyState(
        cut["index"], cut["state"], trend_p, cut.get("trend") or 0.0, change_p, tuple(cut.get("changes", ()))
    )


def _holds(median: Mapping[str, Any], kruskal_p: float | None, disturbing: Any) -> str:
    """Say what the interval of the median holds over."""
    over = holds_over(median)
    if median["ci"]["low"] is None:
        return f"the median is an observation, without interval: {BUSY if disturbing else median['reason']}"
    if median["ci"].get("cluster") == LAUNCHES:
        return f"the interval of the median holds {over}: each launch is one value"
    unknown = kruskal_p is None and median.get("launches", 1) > 1
    return f"the interval of the median holds {over} only" + (
        "; each has too few samples to tell whether they differ" if unknown else ""
    )


def headline_line(path: Path) -> str | None:
    """The median of a run's steps in one line of text, None where nothing was timed.

    It says what the report's first section says: unit, interval, what it holds over, whether it is a result.
    """
    head = _headline(read_json(path / STATS).get("series", {})) if (path / STATS).exists() else None
    if head is None:
        return None
    median = head["estimate"]
    low, high = median["ci"]["low"], median["ci"]["high"]
    ends = "without interval"
    if low is not None:
        interval = f"[{format_time(low, median['value'], True)}, {format_time(high, median['value'])}]"
        ends = f"{interval}, {100 * median['ci']['level']:g} % CI {holds_over(median)}"
    size = f"n {median['n']}, n_eff {median['n_eff']:.4g}"
    return f"{head['series']} median {format_time(median['value'])} {ends}, {size}: {standing_words(median)}"


def _breakdown(record: Record, series: Mapping[str, Any], claims: Sequence[Mapping[str, Any]]) -> Any:
    """Bars of where the time went: as claimed, or what the recorded steps, epochs and validations add up to."""
    claimed = next((c for c in claims if c.get("type") == "breakdown"), None)
    if claimed is not None:
        parts = {str(name): float(s) for name, s in sorted(claimed["parts"].items(), key=lambda part: -part[1])}
        caption = f"parts of {format_time(claimed['wall'])}; {_overhead(record)}observation"
        return bar_figure(parts, "s", "Where did the time go?", caption)
    samples = record.samples
    sums = {
        name: sum(float(samples.durations(name, launch["launch"]).sum()) for launch in series[name]["launches"])
        for name in ("step", "epoch", "validation")
        if name in series
    }
    if not {"step", "epoch"} <= sums.keys():
        return None
    parts = {"steps": sums["step"], "rest of epochs": max(0.0, sums["epoch"] - sums["step"])}
    parts |= {"validation": sums["validation"]} if "validation" in sums else {}
    whole = format_time(sum(parts.values()))
    caption = f"{whole} in all, warm-up included; {_overhead(record)}one sum each: observation"
    return bar_figure(parts, "s, all seeds together", "Where did the time go?", caption)


def _overhead(record: Record) -> str:
    """Deep500's share of a step, as the first seed measured it."""
    seeds = record.manifest().get("seeds") or []
    noted = [record.seed_notes(seed).get("framework_overhead", {}).get("details", {}) for seed in seeds[:1]]
    percent, low, high = (next((d.get(key) for d in noted), None) for key in ("percent", "low", "high"))
    if percent is None:
        return ""
    interval = "" if low is None else f" [{low:.2g}, {high:.2g}]"
    return f"{percent:.2g} %{interval} of forward and backward is Deep500's own; "


def _bounds(claims: Sequence[Mapping[str, Any]]) -> Any:
    """Bars of claimed rates as a share of what is possible, of those that the roofline has no place for."""
    rates = [
        c for c in claims if c.get("type") == "rate" and c.get("bound") and not (c.get("bytes") and c.get("roofs"))
    ]
    if not rates:
        return None
    parts = {str(c.get("name", f"rate {n}")): 100 * c["flops"] / c["bound"] for n, c in enumerate(rates, 1)}
    return bar_figure(
        parts,
        "% of the bound",
        "What share of its bound does each reach?",
        "the guide is the measured roof; observation",
        100.0,
    )


def rerun(manifest: Mapping[str, Any]) -> list[str]:
    """Command lines that repeat a run."""
    git = (manifest.get("environment") or {}).get("git") or {}
    lines = [shlex.join(["git", "checkout", git["commit"]])] if git.get("commit") else []
    file = Path(manifest["recipe_file"] or manifest["recipe"])
    recipe = file.stem if file.parent.name == "recipes" else file.name  # those of Deep500 go by name
    return [*lines, shlex.join(["deep500", "run", recipe, *manifest["argv"]])]
