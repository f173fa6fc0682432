"""F1-F12: Hoefler's twelve ways to fool the masses when reporting performance of deep learning workloads (2018)."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

import numpy as np

from deep500.results.claims import BY, breakdown, wall_of_run
from deep500.results.ledger import broken_at, entry_of
from deep500.results.record import configuration_hash
from deep500.results.rules.view import CLAIMS, RuleFinding, RunView, failed, missing, not_applicable, passed

MOST_YEARS, MOST_TIMES_PEAK = 2, 4
BREAKDOWN, LISTENING = 0.02, 0.02
"""How far the parts may be from the whole: a share of it, and seconds (of each seed) for what happens around them."""
COVERAGE = 0.9
STEPS, FEWEST = 0.5, 5
"""From this number of steps on they must fill half of the time between their starts."""
TUNING = 2.0
EARLY = "test "
"""How the reason of a stop begins that looked at validation data, see `deep500.training.listeners.StopAtAccuracy`."""

BY_TIME = re.compile(r" s( before this run)? reached the limit of \S+ s$")
"""The reason of a stop that looked at the clock alone, see `deep500.training.listeners.StopAfter`."""

MOST_TRIED = 2
"""Settings of hyper-parameters; with more of them it is a search."""


def f1_accuracy_when_scaling(run: RunView) -> RuleFinding:
    """Scaling tables show the quality at every scale, and it does not fall below that of one process."""
    claims = run.claims("scaling")
    for claim in claims:
        rows = sorted(claim.get("rows", []), key=lambda row: row["processes"])
        if any(row.get("quality") is None for row in rows):
            return failed("a scaling table without accuracy", "add the accuracy that each scale reaches")
        base = rows[0].get("quality_low") if rows else None
        if base is not None and any(row["quality"] < base for row in rows):
            return failed("accuracy falls with scale", "tell time to accuracy, not throughput")
    return passed("quality holds at every scale") if claims else not_applicable("no scaling is claimed")


def f2_test_accuracy(run: RunView) -> RuleFinding:
    """Quality is judged on data that neither training nor tuning saw: no best epoch, no early stop, no search."""
    halves = run.manifest.get("data") or {}
    train, test, third = ((halves.get(half) or {}).get("digest") for half in ("train", "validation", "test"))
    if train is not None and train == test:
        return failed("training and validation are on the same samples", "validate on others")
    if third is not None and third in (train, test):
        return failed("test samples are those of training or validation", "test on others")
    metrics = run.summary.get("metrics", [])
    quality = [m for m in metrics if "accuracy" in m["name"] or "loss" in m["name"]]
    if not quality:
        return not_applicable("no quality is claimed")
    if run.is_of_recipe and halves and (train is None or ("validation" in halves and test is None)):
        return missing("no digests of the data, which tell training from validation", "record dataset.digest()")
    if not any("test" in m["name"] or "time_to_accuracy" in m["name"] or m["name"].startswith("top_") for m in quality):
        return failed("only training quality is reported", "add TestAccuracy()")
    # without a target it is shown, and judges nothing
    best = [m["name"] for m in quality if m["name"].startswith("best_") and m.get("target") is not None]
    if best and not run.manifest.get("selection_data"):
        return failed(f"{best[0]} picks the epoch by the data that judge it", "judge the final epoch")
    if third is not None:
        return passed("quality is reported on test data that were judged once, after training")
    tuned = _tuned_on(run)
    if tuned:
        return failed(f"{tuned} by the data that judge the result", "hold out a third split: validation_split=0.1")
    stop = next((reason for reason in _stops(run) if not BY_TIME.search(reason)), "")
    if stop:
        why = f"a listener stopped training ({stop!r}), and nobody knows whether by the data that judge the result"
        return missing(why, "hold out a third split: validation_split=0.1")
    return passed("quality is reported on data that were not trained on; there is no third split")


def _stops(run: RunView) -> list[str]:
    """Return why seeds stopped before their last epoch."""
    return [entry["stopped_by"] for entry in run.seeds.values() if entry.get("stopped_by")]


def _tuned_on(run: RunView) -> str:
    """Return what of a run of two splits was chosen by its validation data; nothing if nothing was."""
    if any(stop.startswith(EARLY) for stop in _stops(run)):
        return "training was stopped"
    tried = (run.summary.get("tuning") or {}).get("settings") or 0
    return f"{tried} settings of hyper-parameters were compared" if tried > MOST_TRIED else ""


def f3_all_runs(run: RunView) -> RuleFinding:
    """All runs of the recipe are in the ledger, this one too, and the report states how many there were."""
    fix = "keep ledger.jsonl beside the runs"
    if not run.ledger:
        return missing("no ledger beside the run", fix) if run.is_of_recipe else not_applicable("there is no ledger")
    place = broken_at(run.ledger)
    if place is not None:
        return failed(f"the ledger's chain breaks at entry {place}", "restore the ledger: runs are missing")
    noted = run.summary.get("ledger") or {}
    configuration = configuration_hash(run.manifest) if "resolved" in run.manifest else ""
    entry = entry_of(run.ledger, run.path.absolute().name, noted.get("entry"), configuration)
    if run.is_of_recipe and entry is None:
        return failed("the ledger has no entry of this run", "restore the ledger: runs are missing")
    there = noted.get("entries") or (len(run.ledger) if entry is None else entry["number"] + 1)
    reported = (run.summary.get("tuning") or {}).get("runs")
    if reported is not None and reported < there:
        return failed(f"{reported} runs are reported, the ledger has {there}", "report all of them")
    if run.is_finished and reported is None:
        return missing("the summary does not say how many runs it took", "report all of them")
    claimed = [run.summary.get("tuning_runs"), *(claim.get("own_tuning_runs") for claim in run.claims("baseline"))]
    few = [runs for runs in claimed if runs is not None and runs < there - 1]
    if few:
        return failed(f"{few[0]} tuning runs are reported, the ledger holds {there - 1}", "report all of them")
    return passed(f"{there} runs up to this one are in the ledger, in one chain")


def f4_same_generation(run: RunView) -> RuleFinding:
    """A baseline on other hardware is of the same generation, or the comparison is normalised."""
    claims = run.claims("baseline")
    for claim in claims:
        if not claim.get("device") or not claim.get("own_device"):
            return missing("the hardware of the baseline, or of this run", "say year and peak of both")
        old, device = claim["device"], claim["own_device"]
        years = abs(device["year"] - old["year"])
        peak = max(device["peak_flops"], old["peak_flops"]) / min(device["peak_flops"], old["peak_flops"])
        if (years > MOST_YEARS or peak > MOST_TIMES_PEAK) and not claim.get("normalised"):
            return failed(
                f"hardware {years} years and {peak:.1f} times in peak apart",
                "compare per peak, per joule, or on the same hardware",
            )
    return passed("baselines are of one generation") if claims else not_applicable("no baseline on other hardware")


def f5_whole_steps(run: RunView) -> RuleFinding:
    """A breakdown adds up to the time that passed by the clock, and parts that are reported alone cover most of it."""
    claims = run.claims("breakdown")
    for claim in claims:
        wall = _wall(run, claim)
        if wall is None or wall <= 0:
            return missing("the measured wall time of a breakdown", "record the wall time of the whole")
        parts, slack = sum(claim["parts"].values()), LISTENING * max(1, len(run.seeds))
        if claim["wall"] is not None and abs(claim["wall"] - wall) > BREAKDOWN * wall + slack:
            return failed(f"a breakdown of {claim['wall']:.4g} s; by the clock it was {wall:.4g} s", "tell the whole")
        share = parts / wall
        if share < COVERAGE and wall - parts > slack:
            return failed(f"parts that cover {share:.0%} of the time", "tell the whole step")
        if abs(parts - wall) > BREAKDOWN * wall + (slack if run.is_of_recipe else 0.0):
            return failed(f"parts that add up to {share:.1%} of the wall time", "measure the parts within the whole")
    share = _steps_between_starts(run)
    if share is not None and share < STEPS:
        fix = "tell the whole step: what happens between two of them takes longer than they do"
        return failed(f"steps that last {share:.0%} of the time from one's start to the next one's", fix)
    if claims:
        return passed("parts add up to what passed by the clock")
    if run.is_finished and breakdown(run.record, run.manifest):
        return missing("steps and epochs were timed, and nothing says where the time went", f"keep {CLAIMS}")
    return not_applicable("no breakdown is claimed")


def _steps_between_starts(run: RunView) -> float | None:
    """Return the usual share of a step in the time from its start to the next one's; None without steps.

    Between two epochs much else is done, and judgements between steps have a time of their own.
    """
    parts = []
    for series, launch in run.samples.names():
        if series == "step" and run.is_of_recipe and run.manifest.get("ranks", 1) == 1:
            taken, lines = run.samples.load(series, launch), [line for line in run.curve if line["seed"] == launch]
            between = np.diff(taken["start_ns"])
            for number in np.cumsum([(line.get("clock") or {}).get("steps", 0) for line in lines]):
                between[number - 1 : number] = 0
            for check in (check for line in lines for check in line.get("checks", ())):
                between[check["step"] - 1 : check["step"]] -= round(1e9 * check["took"])
            parts.append(taken["duration_ns"][:-1][between > 0] / between[between > 0])
    shares = np.concatenate(parts) if parts else np.empty(0)
    return float(np.median(shares)) if len(shares) >= FEWEST else None


def _wall(run: RunView, claim: Mapping[str, Any]) -> float | None:
    """The whole of a breakdown: what the run's clock recorded where it is of the run, else what it says itself."""
    scope = claim.get("of", "run" if claim.get("by") == BY else "")
    if scope == "epochs" and run.is_of_recipe:
        recorded = breakdown(run.record, run.manifest)
        return recorded[0]["wall"] if recorded else None
    if scope == "run" or (run.is_of_recipe and not scope):
        return wall_of_run(run.record)
    return claim["wall"]


def f6_input(run: RunView) -> RuleFinding:
    """Synthetic or resident data are named; "end to end" means from a cold disk."""
    data = run.manifest.get("data", {})
    stand_in = any(half.get("stand_in") for half in data.values())
    if stand_in and "stand-in data" not in run.summary.get("labels", []):
        return failed("stand-in data that no label names", "label every number from it")
    for claim in run.claims("input"):
        if claim.get("end_to_end") and not (claim.get("source") == "disk" and claim.get("cold")):
            return failed(f"'end to end' with data from {claim.get('source')}", "read from disk with cold caches")
        if claim.get("source") == "synthetic" and not claim.get("labelled"):
            return failed("synthetic input that is not named", "label it")
    if not data and run.is_finished:
        return missing("the manifest does not say what data were used", "record their name and digest")
    return passed("the source of the data is reported") if data else not_applicable("no data")


def f7_operations(run: RunView) -> RuleFinding:
    """Operations per second are counted, in the data type that is reported, without sparsity that is not."""
    claims = run.claims("rate")
    if claims and _undeclared_precision(run):
        return failed("float32 of a GPU, and nothing says whether it was TF32", "record the executor's precision")
    for claim in claims:
        if not claim.get("counted_flops") or not claim.get("seconds"):
            return failed("operations per second without a count", "count the network's operations")
        counted = claim["counted_flops"] / claim["seconds"]
        if claim["flops"] > 1.02 * counted:
            return failed(f"{claim['flops']:.4g} FLOP/s claimed, {counted:.4g} counted", "claim what is counted")
        if claim.get("bound") and not (claim.get("dtype") and claim.get("peak_dtype")):
            return missing("the data type of the peak, or of the work", "say dtype and peak_dtype")
        if claim.get("dtype") != (claim.get("peak_dtype") or claim.get("dtype")) or claim.get("sparse"):
            return failed(f"{claim.get('dtype')} work beside a peak of {claim.get('peak_dtype')}", "use the same peak")
    return passed("operations are counted") if claims else not_applicable("no operations per second are claimed")


def _undeclared_precision(run: RunView) -> bool:
    """Return whether a run was on a GPU, which may round float32 to TF32, and does not say if it did."""
    used = str((run.manifest.get("device") or {}).get("used", ""))
    declared = (run.manifest.get("numerics") or {}).get("float32")
    return used.startswith("gpu") and run.manifest.get("dtype") == "float32" and not declared


def f8_one_configuration(run: RunView) -> RuleFinding:
    """Speed and quality in one headline come from one configuration: this run's recipe and the content of its file."""
    claims = run.claims("headline")
    hashes = {claim["config_sha256"] for claim in claims}
    if len(hashes) > 1:
        return failed("speed and quality of different configurations", "measure both in one")
    if hashes and "resolved" in run.manifest and run.is_of_recipe and hashes != {configuration_hash(run.manifest)}:
        return failed("a headline of another configuration than this run's", "measure it in this one")
    if not claims and run.is_finished and run.series:
        return missing("speed was measured, and no headline says of what configuration", f"keep {CLAIMS}")
    return passed("one configuration") if claims else not_applicable("no headline is claimed")


def f9_native_inputs(run: RunView) -> RuleFinding:
    """Inputs have the data set's own size, and a sample costs what the recipe fixes."""
    claims = run.claims("workload")
    for claim in claims:
        if list(claim.get("shape", [])) != list(claim.get("native_shape", [])):
            return failed(f"inputs of {claim.get('shape')}, the data have {claim.get('native_shape')}", "keep the size")
        cost, fixed = claim.get("flops_per_sample"), claim.get("fixed_flops_per_sample")
        if cost and fixed and cost > 1.01 * fixed:
            return failed(f"{cost / fixed:.2f} times the recipe's work per sample", "run the recipe's network")
    return passed("inputs as they are") if claims else not_applicable("no workload is claimed")


def f10_planned_length(run: RunView) -> RuleFinding:
    """Training is as long as the recipe planned, or as the stopping rule among its events says; no text will do."""
    recipe = run.manifest.get("resolved", {}).get("recipe", {})
    planned = recipe.get("epochs")
    if planned is None or not run.curve:
        return not_applicable("no training")
    if run.summary.get("status") != "finished":
        return not_applicable("the run did not end as planned, and its verdict says so")
    for seed in dict.fromkeys(line["seed"] for line in run.curve):
        done = max(line["epoch"] for line in run.curve if line["seed"] == seed)
        if done > planned:
            return failed(f"seed {seed} was trained for {done} epochs, planned were {planned}", "plan them beforehand")
        stopped = run.seeds.get(str(seed), {}).get("stopped_by")
        if done < planned and not (recipe.get("events") and stopped):
            return failed(f"seed {seed} ended after {done} of {planned} epochs", "name the rule in the recipe's events")
    return passed(f"{planned} epochs, as planned")


def f11_batch_sizes(run: RunView) -> RuleFinding:
    """Scaling rows whose global batch grows are called weak scaling."""
    claims = run.claims("scaling")
    for claim in claims:
        batches = {row.get("global_batch") for row in claim.get("rows", [])}
        if None in batches:
            return failed("scaling without the global batch", "add it to every row")
        if len(batches) > 1 and "weak" not in claim.get("labels", []):
            return failed("a growing global batch is not called weak scaling", "label it")
    return passed("batches are reported") if claims else not_applicable("no scaling is claimed")


def f12_fair_comparison(run: RunView) -> RuleFinding:
    """A comparison with others tells time, final accuracy and cost, and the baseline was tuned about as much."""
    claims = run.claims("baseline")
    for claim in claims:
        absent = {"time_to_accuracy", "final_accuracy", "cost"} - set(claim.get("measures", []))
        if absent:
            return failed(f"compared without {', '.join(sorted(absent))}", "compare all three")
        tuning, other = claim.get("own_tuning_runs"), claim.get("tuning_runs")
        if tuning is not None and other is not None and tuning > TUNING * max(other, 1):
            return failed(f"{tuning} tuning runs against the baseline's {other}", "tune both alike")
    return passed("compared by time, accuracy and cost") if claims else not_applicable("no baseline is claimed")
