"""F1-F12: Hoefler's twelve ways to fool the masses when reporting performance of deep learning workloads (2018)."""

from __future__ import annotations

from deep500.results.ledger import broken_at
from deep500.results.rules.view import Finding, RunView, failed, not_applicable, passed

MOST_YEARS, MOST_TIMES_PEAK = 2, 4
BREAKDOWN = 0.02
COVERAGE = 0.9
TUNING = 2.0


def f1_accuracy_when_scaling(run: RunView) -> Finding:
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


def f2_test_accuracy(run: RunView) -> Finding:
    """Quality is judged on data that training did not see, and not by the best epoch on the very data that judge it."""
    metrics = run.summary.get("metrics", [])
    quality = [m for m in metrics if "accuracy" in m["name"] or "loss" in m["name"]]
    if not quality:
        return not_applicable("no quality is claimed")
    if not any("test" in m["name"] or "time_to_accuracy" in m["name"] for m in quality):
        return failed("only training quality is reported", "add TestAccuracy()")
    best = [m["name"] for m in quality if m["name"].startswith("best_") and m.get("target") is not None]
    if best and not run.manifest.get("selection_data"):
        return failed(f"{best[0]} picks the epoch by the data that judge it", "judge the final epoch")
    return passed("quality is reported on test data")


def f3_all_runs(run: RunView) -> Finding:
    """Runs that tuned the recipe are in the ledger, and none is missing from its chain."""
    if not run.ledger:
        return not_applicable("there is no ledger")
    place = broken_at(run.ledger)
    if place is not None:
        return failed(f"the ledger's chain breaks at entry {place}", "restore the ledger: runs are missing")
    claimed, there = run.summary.get("tuning_runs"), len(run.ledger)
    if claimed is not None and claimed < there - 1:
        return failed(f"{claimed} tuning runs are reported, the ledger holds {there - 1}", "report all of them")
    return passed(f"{there} runs are in the ledger, in one chain")


def f4_same_generation(run: RunView) -> Finding:
    """A baseline on other hardware is of the same generation, or the comparison is normalised."""
    claims = [c for c in run.claims("baseline") if c.get("device") and c.get("own_device")]
    for claim in claims:
        old, own = claim["device"], claim["own_device"]
        years = abs(own["year"] - old["year"])
        peak = max(own["peak_flops"], old["peak_flops"]) / min(own["peak_flops"], old["peak_flops"])
        if (years > MOST_YEARS or peak > MOST_TIMES_PEAK) and not claim.get("normalised"):
            return failed(
                f"hardware {years} years and {peak:.1f} times in peak apart",
                "compare per peak, per joule, or on the same hardware",
            )
    return passed("baselines are of one generation") if claims else not_applicable("no baseline on other hardware")


def f5_whole_steps(run: RunView) -> Finding:
    """A breakdown adds up to the wall time, and parts that are reported alone cover most of it."""
    claims = run.claims("breakdown")
    for claim in claims:
        share = sum(claim["parts"].values()) / claim["wall"]
        if share < COVERAGE:
            return failed(f"parts that cover {share:.0%} of the time", "tell the whole step")
        if abs(share - 1) > BREAKDOWN:
            return failed(f"parts that add up to {share:.1%} of the wall time", "measure the parts within the whole")
    return passed("parts add up to the whole") if claims else not_applicable("no breakdown is claimed")


def f6_input(run: RunView) -> Finding:
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
    return passed("the source of the data is reported") if data else not_applicable("no data")


def f7_operations(run: RunView) -> Finding:
    """Operations per second are counted, in the data type that is reported, without sparsity that is not."""
    claims = run.claims("rate")
    for claim in claims:
        if not claim.get("counted_flops") or not claim.get("seconds"):
            return failed("operations per second without a count", "count the network's operations")
        counted = claim["counted_flops"] / claim["seconds"]
        if claim["flops"] > 1.02 * counted:
            return failed(f"{claim['flops']:.4g} FLOP/s claimed, {counted:.4g} counted", "claim what is counted")
        if claim.get("dtype") != claim.get("peak_dtype", claim.get("dtype")) or claim.get("sparse"):
            return failed(f"{claim.get('dtype')} work beside a peak of {claim.get('peak_dtype')}", "use the same peak")
    return passed("operations are counted") if claims else not_applicable("no operations per second are claimed")


def f8_one_configuration(run: RunView) -> Finding:
    """Speed and quality in one headline come from one configuration."""
    claims = run.claims("headline")
    hashes = {claim.get("config_sha256") for claim in claims}
    if len(hashes) > 1:
        return failed("speed and quality of different configurations", "measure both in one")
    return passed("one configuration") if claims else not_applicable("no headline is claimed")


def f9_native_inputs(run: RunView) -> Finding:
    """Inputs have the data set's own size, and a sample costs what the recipe fixes."""
    claims = run.claims("workload")
    for claim in claims:
        if list(claim.get("shape", [])) != list(claim.get("native_shape", [])):
            return failed(f"inputs of {claim.get('shape')}, the data have {claim.get('native_shape')}", "keep the size")
        cost, fixed = claim.get("flops_per_sample"), claim.get("fixed_flops_per_sample")
        if cost and fixed and cost > 1.01 * fixed:
            return failed(f"{cost / fixed:.2f} times the recipe's work per sample", "run the recipe's network")
    return passed("inputs as they are") if claims else not_applicable("no workload is claimed")


def f10_planned_length(run: RunView) -> Finding:
    """Training is as long as the recipe planned, not until a good moment."""
    planned = run.manifest.get("resolved", {}).get("recipe", {}).get("epochs")
    if planned is None or not run.curve:
        return not_applicable("no training")
    for seed in dict.fromkeys(line["seed"] for line in run.curve):
        done = max(line["epoch"] for line in run.curve if line["seed"] == seed)
        if done < planned and not run.manifest.get("stopping_rule") and run.summary.get("status") == "finished":
            return failed(f"seed {seed} ended after {done} of {planned} epochs", "declare the stopping rule beforehand")
    return passed(f"{planned} epochs, as planned")


def f11_batch_sizes(run: RunView) -> Finding:
    """Scaling rows whose global batch grows are called weak scaling."""
    claims = run.claims("scaling")
    for claim in claims:
        batches = {row.get("global_batch") for row in claim.get("rows", [])}
        if None in batches:
            return failed("scaling without the global batch", "add it to every row")
        if len(batches) > 1 and "weak" not in claim.get("labels", []):
            return failed("a growing global batch is not called weak scaling", "label it")
    return passed("batches are reported") if claims else not_applicable("no scaling is claimed")


def f12_fair_comparison(run: RunView) -> Finding:
    """A comparison with others tells time, final accuracy and cost, and the baseline was tuned about as much."""
    claims = run.claims("baseline")
    for claim in claims:
        missing = {"time_to_accuracy", "final_accuracy", "cost"} - set(claim.get("measures", []))
        if missing:
            return failed(f"compared without {', '.join(sorted(missing))}", "compare all three")
        own, other = claim.get("own_tuning_runs"), claim.get("tuning_runs")
        if own is not None and other is not None and own > TUNING * max(other, 1):
            return failed(f"{own} tuning runs against the baseline's {other}", "tune both alike")
    return passed("compared by time, accuracy and cost") if claims else not_applicable("no baseline is claimed")
