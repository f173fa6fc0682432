"""The outcome of a race: numbers, sentences and plots, made of its trials alone."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from deep500.measure.comparison import EQUIVALENT, FASTER, SLOWER, Comparison
from deep500.race.held_out import does_it_hold
from deep500.race.judging import BEYOND, PairOfSubmissions, detectable, judge, noise
from deep500.race.running import Race
from deep500.race.scores import (
    R_MAX,
    StudyTable,
    TrialTime,
    fastest,
    first_again,
    leave_one_out,
    profile,
    ratios,
    scores,
)
from deep500.report.figures import Figure
from deep500.report.plot import Axis, Plot
from deep500.results.files import to_json, write_atomic

RESULT, PAGE = "result.json", "race.html"


def standing_of(race: Race) -> dict[str, Any]:
    """Return what is known after the trials so far, the best score first; random draws are the race's own."""
    names, trials = [s.name for s in race.submissions], _tuned(race)
    field = names, [w.title for w in race.workloads], race.options.studies
    tables = [fastest(trials, by, field) for by in ("seconds", "steps")]
    order = sorted(names, key=lambda name: -scores(tables[0])[name])
    # beyond four times the best all is a miss, as trials stop there: nothing below sees whether they were stopped
    table, in_steps = tables[0].only(order).capped(), tables[1].only(order)
    in_steps = replace(in_steps, times=np.where(np.isinf(table.times), np.inf, in_steps.times))
    pairs, spread = judge(table), noise(table)
    values, steps = scores(table), scores(in_steps)
    again = [first_again(table, np.random.default_rng(race.options.seed), workloads=over) for over in (False, True)]
    rows = [
        {
            "submission": name,
            "score": values[name],
            "score_in_steps": steps[name],
            "first_with_other_seeds": again[0][name],
            "first_with_other_workloads": again[1][name],
            "spent_seconds": sum(trial.spent for trial in trials if trial.submission == name),
            "trials": sum(trial.submission == name for trial in trials),
            "misses": sum(trial.submission == name and not np.isfinite(trial.seconds) for trial in trials),
        }
        for name in order
    ]
    return {
        "suite": race.options.suite,
        "finished": len(race.done) == len(race.entries),
        "scores": rows,
        "pairs": [_pair(pair) for pair in pairs],
        "noise": spread,
        "times": _times(race, table),
        "held_out": _held_out(race, values),
        "leave_one_out": leave_one_out(table),
        "remarks": _remarks(race, table, spread),
        "misses": _misses(race),
        "spent_seconds": sum(trial.spent for trial in trials),
    }


def _tuned(race: Race) -> list[TrialTime]:
    """The outcomes on the workloads, not those on variants of them."""
    titles = {workload.title for workload in race.workloads}
    return [trial for trial in race.done.values() if trial.workload in titles]


def _held_out(race: Race, tuned: Mapping[str, float]) -> dict[str, Any] | None:
    """The settings found, taken to variants that nobody tuned for; None before any was drawn."""
    variants = race.variants
    if not variants:
        return None
    titles = {variant.workload.title: variant for variant in variants}
    trials = [trial for trial in race.done.values() if trial.workload in titles]
    table = fastest(trials, field=(list(tuned), list(titles), race.options.studies))
    whole = len(race.done) == len(race.entries)  # a study without settings to take misses; others may be still to come
    table = (replace(table, times=np.nan_to_num(table.times, nan=np.inf, posinf=np.inf)) if whole else table).capped()
    return {
        "drawn": [{"name": name, "workload": v.base, "word": v.word} for name, v in titles.items()],
        "holds": does_it_hold(tuned, table),
        "scores": scores(table),
        "pairs": [_pair(pair, ("for these variants", "for variants like these")) for pair in judge(table)],
        "times": _times(race, table),
        "spent_seconds": sum(trial.spent for trial in trials),
    }


def _pair(
    pair: PairOfSubmissions, where: Sequence[str] = ("for these workloads", "for workloads like these")
) -> dict[str, Any]:
    here, elsewhere = (
        {
            "ratio": comparison.ratio.median,
            "interval": [comparison.ratio.low, comparison.ratio.high],
            "p": comparison.p,
            "verdict": comparison.verdict,
            "sentence": _sentence(comparison, words),
        }
        for comparison, words in zip((pair.here, pair.elsewhere), where, strict=True)
    )
    names = {"first": pair.here.first, "second": pair.here.second}
    return _finite(
        {**names, "here": here, "elsewhere": elsewhere, "censored": pair.censored, "workloads": pair.workloads}
    )


def _sentence(comparison: Comparison, where: str) -> str:
    """The word in words, with its numbers; the word itself comes from :func:`deep500.measure.comparison.verdict`."""
    first, second, ratio = comparison.first, comparison.second, comparison.ratio
    words = {
        FASTER: f"{first} is faster than {second} {where}",
        SLOWER: f"{first} is slower than {second} {where}",
        EQUIVALENT: f"{first} and {second} are equivalent {where}",
    }.get(comparison.verdict, f"{first} or {second}: unresolved {where}")
    if not ratio.n:
        return f"{words}: no study of either reached a target"
    ends = "no interval" if ratio.low is None else f"95 % CI {_ratio(ratio.low)} to {_ratio(ratio.high or 0)}"
    middle = {
        "0": f"{second} missed in half of the pairs or more",
        "infinite": f"{first} missed in half of the pairs or more",
    }
    shown = middle.get(_ratio(ratio.median), f"time ratio {_ratio(ratio.median)}")
    p = "not tested" if comparison.p is None else f"p {comparison.p:.2g}, Holm"
    return f"{words}: {shown}, {ends}, {p}, n {ratio.n}"


def _ratio(value: float) -> str:
    far = BEYOND / 4
    return "0" if value < np.exp(-far) else "infinite" if value > np.exp(far) else f"{value:.3g}"


def _times(race: Race, table: StudyTable) -> list[dict[str, Any]]:
    """Median seconds per workload and submission, and the settings of the fastest trial."""
    medians, rows = table.medians(), []
    for column, workload in enumerate(table.workloads):
        for row, submission in enumerate(table.submissions):
            mine = [e for e in race.done if (e.workload, e.submission) == (workload, submission)]
            best = min(mine, key=lambda entry: race.done[entry].seconds, default=None)
            reached = best is not None and np.isfinite(race.done[best].seconds)
            rows.append(
                {
                    "workload": workload,
                    "submission": submission,
                    "seconds": medians[row, column],
                    "studies": table.times[row, column].tolist(),
                    "settings": race.records[best]["settings"] if best is not None and reached else None,
                }
            )
    return [_finite(row) for row in rows]


def _remarks(race: Race, table: StudyTable, spread: float | None) -> list[str]:
    o, remarks = race.options, []
    if race.options.held_out and not race.variants:
        remarks.append(f"{race.options.held_out} variants are drawn when tuning has ended.")
    if len(race.done) < len(race.entries):
        remarks.append(f"Unfinished: {len(race.done)} of {len(race.entries)} trials; go on with --resume {race.path}.")
    clock = "CPU seconds, as trials shared the machine" if o.cpu_time else "seconds by the wall's clock"
    remarks.append(f"Times are {clock}, of training without evaluations, until the target was crossed.")
    kinds = {r["outcome"]["cpu"] for r in race.records.values() if "cpu" in r["outcome"]}
    if len(kinds) > 1:
        remarks.append(f"Trials ran on {len(kinds)} kinds of CPU, whose times are not alike.")
    for column, workload in enumerate(table.workloads):
        if not np.isfinite(table.times[:, column]).any():
            best = [r["outcome"].get("best") for e, r in race.records.items() if e.workload == workload]
            seen = [value for value in best if value is not None]
            around = f"; the best that they saw is {min(seen):.4g} to {max(seen):.4g}" if seen else ""
            remarks.append(f"No trial reached the target of {workload}{around}: choose another target.")
    if spread is not None:
        plan = detectable(spread, (len(table.submissions), len(table.workloads), race.options.studies))
        remarks.append(
            f"A study's time scatters by {100 * spread:.2g} % (pairs of seeds); with that, a race of this size finds a "
            f"ratio of {plan.here:.3g} for these workloads in four of five cases."
        )
    remarks.append(
        "Shares of being first are of races with other seeds drawn from these (and other workloads drawn from these): "
        "they say how stable the order is, and are no confidence."
    )
    warnings = (text for record in race.records.values() for text in record["outcome"].get("warnings", ()))
    return [*remarks, *dict.fromkeys(warnings)]


def _misses(race: Race) -> list[dict[str, Any]]:
    """Reasons of misses by submission and workload, those that a limit explains left out."""
    counts: dict[tuple[str, str, str], int] = {}
    for trial in race.done.values():
        if trial.reason and not trial.reason.startswith("not within"):
            key = trial.submission, trial.workload, trial.reason
            counts[key] = counts.get(key, 0) + 1
    return [dict(zip(("submission", "workload", "reason"), key, strict=True), count=n) for key, n in counts.items()]


def _finite(value: Any) -> Any:
    """JSON has no infinity: None."""
    if isinstance(value, Mapping):
        return {key: _finite(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_finite(item) for item in value]
    return None if isinstance(value, float) and not np.isfinite(value) else value


def profile_figure(table: StudyTable) -> Figure:
    """The performance profiles: stairs from 1 to :data:`~deep500.race.scores.R_MAX`."""
    ratio = ratios(table.medians())
    taus = np.unique(np.concatenate([[1.0, R_MAX], ratio[np.isfinite(ratio)]]))
    plot = Plot(
        Axis(1.0, R_MAX, "time over the fastest one's"),
        Axis(0.0, 1.04, "share of workloads"),
        "; ".join(f"{name} scores {value:.3f}" for name, value in scores(table).items()),
    )
    for colour, shares in enumerate(profile(ratio, taus)):
        plot.line(taus, shares, colour, stairs=True)
    plot.legend(table.submissions)
    caption = f"higher is better; the score is the area below, n = {len(table.workloads)} workloads"
    return Figure.from_plot("On how many workloads is it nearly the fastest?", plot, caption, len(table.workloads))


def answer(standing: Mapping[str, Any]) -> str:
    """The outcome in a sentence: who scores best, whom it beats on these workloads, and with whom that is open.

    Example:
        >>> pair = {"first": "a", "second": "b", "here": {"verdict": "faster"}}
        >>> answer({"scores": [{"submission": "a", "score": 1.0}, {"submission": "b", "score": 0.4}], "pairs": [pair]})
        'a has the best score, 1.000; on these workloads it is faster than b.'
    """
    best, *others = (row["submission"] for row in standing["scores"])
    words = {(pair["first"], pair["second"]): pair["here"]["verdict"] for pair in standing["pairs"]}
    beaten = [o for o in others if words.get((best, o)) == FASTER or words.get((o, best)) == SLOWER]
    unclear = [other for other in others if other not in beaten]
    parts = [f"it is faster than {', '.join(beaten)}"] * bool(beaten)
    parts += [f"{'not told apart from' if not beaten else 'and not told apart from'} {', '.join(unclear)}"] * bool(
        unclear
    )
    score = f"{best} has the best score, {standing['scores'][0]['score']:.3f}"
    return f"{score}; on these workloads {'it is ' * (not beaten)}{' '.join(parts)}." if parts else f"{score}."


def write_standing(race: Race) -> dict[str, Any]:
    """Write ``result.json`` and the page into the race's folder; returns what the first holds."""
    from deep500.report.rendering import render_template

    standing = standing_of(race)
    write_atomic(race.path / RESULT, to_json(standing))
    field = [row["submission"] for row in standing["scores"]], [w.title for w in race.workloads], race.options.studies
    figure = profile_figure(fastest(_tuned(race), field=field))
    plans = {"studies": race.options.studies, "trials": race.options.trials, "seed": race.options.seed}
    page = render_template(
        "race.html.j2", race=standing, figure=figure, plans=plans, workloads=race.workloads, answered=answer(standing)
    )
    write_atomic(race.path / PAGE, page)
    return standing


def text_of(standing: Mapping[str, Any]) -> str:
    """Return the outcome as lines for a terminal."""
    width = max(len(row["submission"]) for row in standing["scores"])
    lines = [f"{'':{width}}  score  steps  first: seeds  workloads  tuning (s)  misses"]
    for row in standing["scores"]:
        shares = f"{row['first_with_other_seeds']:13.2f}  {row['first_with_other_workloads']:9.2f}"
        lines.append(
            f"{row['submission']:{width}}  {row['score']:5.3f}  {row['score_in_steps']:5.3f}  {shares}  "
            f"{row['spent_seconds']:10.1f}  {row['misses']} of {row['trials']}"
        )
    sentences: Sequence[str] = [
        pair[question]["sentence"] for pair in standing["pairs"] for question in ("here", "elsewhere")
    ]
    held_out = standing["held_out"]
    if held_out is not None:
        drawn = "; ".join(f"{entry['workload']} with {entry['word']}" for entry in held_out["drawn"])
        sentences = [*sentences, "", f"Held out of tuning: {drawn}.", held_out["holds"]]
        sentences += [pair["here"]["sentence"] for pair in held_out["pairs"]]
    reasons = [f"{m['submission']} on {m['workload']}, {m['count']} times: {m['reason']}" for m in standing["misses"]]
    return "\n".join([*lines, "", *sentences, "", *reasons, *standing["remarks"]])
