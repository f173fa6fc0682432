"""Figures of metrics: each against the numbers behind it, those against the curve, and all against what is possible."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import deep500.metrics
from deep500.measure.load import disturbances
from deep500.measure.quantiles import quantile, samples_needed
from deep500.measure.standing import worth_needed
from deep500.metrics.bias import class_bias
from deep500.metrics.overhead import overhead_facts
from deep500.results.quiet import load_of_run
from deep500.results.ranks import communication_of, of_rank
from deep500.results.recomputed import own_metrics
from deep500.results.relations.declaring import differs, relates, short
from deep500.results.rules.view import RunView

V, D = "seeds.json:*.values", "seeds.json:*.notes"
CLOCK_SLACK, BUSY_SLACK, CLOCK_SHARE = 0.02, 0.5, 0.02
"""Clocks of two listeners around one run differ by what happens between them: 20 ms and 2 %; where others were at work,
or the run was too short to know, by the time that they took in between: 500 ms (200 ms were met at a load of 7)."""

Details = Mapping[str, Any]
FORMULAS: dict[str, Callable[[Details], float | None]] = {
    "EnergyUse": lambda d: None if d["watts"] is None else d["watts"] * d["seconds"],
    "Carbon": lambda d: None if d["J"] is None else d["J"] / 3.6e6 * d["g_per_kWh"],
    "Cost": lambda d: d["time"] + (d["energy"] or 0.0),
    "CPUUtilisation": lambda d: 100 * d["cpu_seconds"] / (d["seconds"] * d["processors"]),
    "FlopRate": lambda d: d["FLOP_per_sample"] * d["samples"] / d["seconds"],
    "RoofShare": lambda d: 100 * d["FLOP_per_sample"] * d["samples"] / d["seconds"] / d["roof_FLOP/s"],
    "IOShare": lambda d: 100 * d["io"] / d[_training(d)],
    "CommunicationShare": lambda d: 100 * d["communication"] / d[_training(d)],
    "ScalingEfficiency": lambda d: 100 * d["speedup"] / d["ideal"],
    "TimingBreakdown": lambda d: sum(d.values()),
    "Flops": lambda d: sum(d.values()),
    "OfflineThroughput": lambda d: d["samples"] / d["seconds"],
    "LoaderThroughput": lambda d: d["samples"] / d["seconds"],
    "DatasetBias": lambda d: class_bias(list(d.values())),
    "CommunicationVolume": lambda d: sum(d.values()),
    "Messages": lambda d: sum(d.values()),
    "LoadImbalance": lambda d: 100 * (max(d.values()) * len(d) / sum(d.values()) - 1),
}
"""A metric's value from the numbers behind it, by its class."""

Lines = Sequence[Mapping[str, Any]]


def _training(details: Details) -> str:
    """The denominator of a share of training; before 27 November 2026 it was all of the run but validation."""
    return "training" if "training" in details else "train_seconds"


def _total(column: str) -> Callable[[Lines], float]:
    return lambda lines: sum(line[column] or 0 for line in lines)


def _of_ranks(combine: Callable[[Mapping[str, float]], float]) -> Callable[[Lines], dict[str, float]]:
    return lambda lines: {rank: combine(facts) for rank, facts in (communication_of(lines) or {}).items()}


def _wait_share(lines: Lines) -> float:
    ranks = (communication_of(lines) or {}).values()
    return 100 * sum(rank["wait_seconds"] for rank in ranks) / sum(rank["step_seconds"] for rank in ranks)


OF_TRAINING = {"train_seconds": _total("train_seconds")}
OF_RATE = {"samples": _total("train_samples"), "seconds": _total("train_seconds")}
NAMED: dict[str, dict[str, Callable[[Lines], Any]]] = {
    "FlopRate": OF_RATE,
    "RoofShare": OF_RATE,
    "IOShare": OF_TRAINING,
    "CommunicationShare": OF_TRAINING,
    "WaitShare": {"": _of_ranks(lambda rank: rank["step_seconds"])},
    "ScalingEfficiency": {
        "seconds": _total("train_seconds"),
        "processes": lambda lines: len(communication_of(lines) or ()),
        "ideal": lambda lines: len(communication_of(lines) or ()),
    },
    "CommunicationVolume": {"": _of_ranks(lambda rank: rank["payload_bytes"])},
    "Messages": {"": _of_ranks(lambda rank: rank["messages"])},
    "LoadImbalance": {"": _of_ranks(lambda rank: rank["step_seconds"] - rank["wait_seconds"])},
}
"""Denominators and parts of metrics as the curve has them, by the name of the number behind; all numbers: no name."""

OPERATIONS = ("Flops", "FlopRate", "RoofShare")

WHOLE = ("EnergyUse", "Carbon", "Cost", "CPUUtilisation")
"""Metrics of which ``seconds`` is the whole run."""


def measured(run: RunView, *kinds: str) -> Iterator[tuple[str, str, str, float | None, dict[str, Any], str]]:
    """Seed, class, name, value, details and reason of every metric of Deep500's of these classes, of all without."""
    for facts in run.manifest["resolved"]["metrics"]:
        kind = _kind(facts)
        if kind is None or (kinds and kind not in kinds):
            continue
        for seed, entry in run.seeds.items():
            note = (entry.get("notes") or {}).get(facts["name"], {})
            value = entry["values"][facts["name"]]
            yield seed, kind, facts["name"], value, note.get("details") or {}, note.get("reason") or ""


def _kind(facts: Mapping[str, Any]) -> str | None:
    module, _, name = str(facts.get("class", "")).partition(":")
    return name if module.startswith("deep500.metrics.") else None


def _slack(run: RunView) -> float:
    load = load_of_run(run.curve, run.manifest)
    return CLOCK_SLACK if load is not None and disturbances(load) == [] else BUSY_SLACK


@relates("metrics against the numbers behind them", V, D)
def _formulas(run: RunView) -> Iterator[str]:
    for seed, kind, name, value, details, reason in measured(run, *FORMULAS):
        expected = FORMULAS[kind](details) if details and not reason else None
        if differs(value, expected, 1e-6):
            what = (
                f"{short(expected)} follows from its details"
                if expected is not None
                else reason or "nothing is behind it"
            )
            yield f"seeds.json: {name} of seed {seed} is {short(value)}; {what}"


@relates("Deep500's own share of a step against its samples", V, D)
def _own_share(run: RunView) -> Iterator[str]:
    for seed, entry in run.seeds.items():
        note = (entry.get("notes") or {}).get("framework_overhead", {})
        details, value = note.get("details") or {}, entry["values"].get("framework_overhead")
        if not details and value is None:
            continue
        derived = overhead_facts(details["plain"], details["clocked"], details["inside"], details["level"])
        for name, expected in derived.items():
            if isinstance(expected, list):
                if min(expected) <= 0:
                    yield f"seeds.json: framework_overhead of seed {seed} has {name} steps of {min(expected)} s"
            elif differs(details[name], expected, 1e-6):
                yield f"seeds.json: {name} of framework_overhead is {short(details[name])}; samples: {short(expected)}"
        if any(i > c for i, c in zip(details["inside"], details["clocked"], strict=True)):
            yield f"seeds.json: framework_overhead of seed {seed}: calls longer than their step"
        if value is not None and differs(value, derived["percent"], 1e-6):
            got, expected = short(value), short(derived["percent"])
            yield f"seeds.json: framework_overhead of seed {seed} is {got}; its samples give {expected}"


@relates("metrics against reasons why there are none", V, D)
def _reasons(run: RunView) -> Iterator[str]:
    for seed, kind, name, value, details, reason in measured(run):
        if value is not None and reason:
            yield f"seeds.json: {name} of seed {seed} is {short(value)}, and there is none: {reason}"
        if kind == "GenerationRate" and value is not None:
            tokens = value * details["seconds"] / details["answers"]
            if differs(tokens, round(tokens), 1e-6):
                yield f"seeds.json: {name} of seed {seed} is {short(value)}: {short(tokens)} tokens an answer"
        low, high = details.get("low"), details.get("high")
        if "n_eff" in details:
            known = [figure for figure in (low, value, high) if figure is not None]
            if known != sorted(known) or len(known) not in (0, 3):
                yield f"seeds.json: {name} of seed {seed} is {short(value)}, its interval {short(low)} to {short(high)}"
            q = float(name.rpartition("_p")[2]) / 100
            if value is not None and details["n"] < samples_needed(q, details["level"]):
                yield f"seeds.json: {name} of seed {seed} from {details['n']} samples"
            if kind == "StepLatency" and value is not None and details["n_eff"] < worth_needed(q) * (1 - 1e-9):
                got = f"{short(value)} from steps worth {details['n_eff']:.6g}"
                yield f"seeds.json: {name} of seed {seed} is {got}; a result takes {worth_needed(q):.6g}"
            if details["n_eff"] > details["n"] * (1 + 1e-9):
                yield f"seeds.json: {name} of seed {seed}: {details['n']} samples are worth {details['n_eff']:.6g}"


@relates(
    "what metrics are shares of, or per, against the curve", V, D, "metrics.jsonl:train_seconds", "metrics.jsonl:ranks"
)
def _shares(run: RunView) -> Iterator[str]:
    for seed, kind, name, value, details, reason in measured(run, "WaitShare", *NAMED):
        lines = [line for line in run.curve if str(line["seed"]) == seed]
        if kind == "WaitShare" and value is not None and differs(value, _wait_share(lines), 1e-6):
            yield f"seeds.json: {name} of seed {seed} is {short(value)}; the curve gives {short(_wait_share(lines))}"
        for field, of_curve in NAMED[kind].items() if details and not reason else ():
            expected = of_curve(lines)
            if field == "train_seconds":
                part = details["io" if kind == "IOShare" else "communication"]
                if not 0 <= part <= expected:
                    yield f"seeds.json: {name} of seed {seed}: {part:.6g} s of {expected:.6g} s of training"
            if field and field not in details and "training" in details:
                most = (run.seeds[seed]["wall_seconds"] - _total("test_seconds")(lines)) * (1 + CLOCK_SHARE)
                if not expected <= details["training"] <= most:
                    got = f"training of {short(details['training'])} s"
                    yield f"seeds.json: {name} of seed {seed}: {got}; it was {expected:.6g} to {most:.6g} s"
                continue
            ranks = [] if field else [(f"rank {n}", details[n], expected[n]) for n in {**details, **expected}]
            for words, got, right in ranks or [(field, details[field], expected)]:
                if differs(got, right):
                    yield f"seeds.json: {name} of seed {seed}: {words} of {short(got)}; the curve has {short(right)}"


@relates("one quantity in two metrics", V, D)
def _twice(run: RunView) -> Iterator[str]:
    """Waiting for batches, by clocks of two listeners; operations of a sample, counted once."""
    for seed in run.seeds:
        slack = CLOCK_SLACK + CLOCK_SHARE * sum(x["train_seconds"] or 0 for x in run.curve if str(x["seed"]) == seed)
        theirs = [facts for facts in measured(run, *OPERATIONS, "IOShare", "TimingBreakdown") if facts[0] == seed]
        known = {kind: (name, details) for _, kind, name, _, details, reason in theirs if details and not reason}
        waited = {kind: known[kind][1].get("io", 0.0) for kind in ("IOShare", "TimingBreakdown") if kind in known}
        seconds = list(waited.values())
        if len(seconds) == 2 and differs(seconds[0], seconds[1], CLOCK_SHARE, slack):
            ends = " and ".join(f"{io:.6g} s of {kind}" for kind, io in waited.items())
            yield f"seeds.json: of seed {seed} io is {ends}"
        counts = {
            known[kind][0]: known[kind][1]["FLOP_per_sample"] for kind in ("FlopRate", "RoofShare") if kind in known
        }
        if run.manifest["task"]["sample"] == "sample":
            counts |= {name: value for _, _, name, value, _, _ in theirs if name == "step_flops" and value is not None}
        if len({round(count, 3) for count in counts.values()}) > 1:
            yield f"seeds.json: of seed {seed} a sample takes {short(counts)} operations"


@relates("numbers behind metrics against the curve", D, "metrics.jsonl:clock.steps")
def _curve(run: RunView) -> Iterator[str]:
    for seed, _, name, _, details, _ in measured(run, "StepLatency"):
        lines = [line for line in run.curve if str(line["seed"]) == seed]
        if "n" in details:
            steps = sum(line["clock"]["steps"] for line in lines)
            if details["n"] + details["warm_up"] != steps:
                got = f"from {details['n']} steps after {details['warm_up']}"
                yield f"seeds.json: {name} of seed {seed} {got}; the curve has {steps}"


@relates("latencies of steps against their samples", V, D, "samples:step", "metrics.jsonl:clock.listening_seconds")
def _latencies(run: RunView) -> Iterator[str]:
    """The recorded step holds what the metric times, so its percentile is no shorter, whoever waits for the device; it
    is as long but for listeners, of which Deep500's own take less than half of any step."""
    bounded = not run.manifest["resolved"]["recipe"]["events"] and not own_metrics(run.manifest)
    series = of_rank("step", 0) if run.manifest["ranks"] > 1 else "step"
    for seed, _, name, value, details, _ in measured(run, "StepLatency"):
        if value is None:
            continue
        steps, q = run.samples.durations(series, int(seed)), float(name.rpartition("_p")[2]) / 100
        most = quantile(steps[details["warm_up"] :], q, independent=True).value
        if not (0.5 * steps.min() if bounded else 0.0) <= value <= most * (1 + 1e-9):
            taken = f"{steps.min():.4g} s or more, and {most:.4g} s at this percentile"
            yield f"seeds.json: {name} of seed {seed} is {value:.4g} s; its steps took {taken}"
    for line in run.curve:
        listening, taken = line["clock"]["listening_seconds"], line["train_seconds"]
        if not 0 <= listening <= taken:
            place = f"metrics.jsonl: seed {line['seed']}, epoch {line['epoch']}"
            yield f"{place}: {listening:.6g} s of listeners within steps, {taken:.6g} s of training"


@relates(
    "metrics of the whole run against its clock", V, D, "seeds.json:*.wall_seconds", "metrics.jsonl:clock.wall_seconds"
)
def _whole(run: RunView) -> Iterator[str]:
    for seed, entry in run.seeds.items():
        lines = [line for line in run.curve if str(line["seed"]) == seed]
        epochs, wall = sum(line["clock"]["wall_seconds"] for line in lines), entry["wall_seconds"]
        if wall is None and not run.manifest["resumed"]:
            yield f"seeds.json: no wall_seconds of seed {seed}, which was not resumed"
        if wall is not None and wall < epochs * (1 - 1e-9):
            yield f"seeds.json: seed {seed} lasted {wall:.6g} s; its epochs lasted {epochs:.6g} s"
    slack = _slack(run)
    for seed, kind, name, value, details, _ in measured(run, *WHOLE, "WallTime", "TimingBreakdown"):
        wall = run.seeds[seed]["wall_seconds"]
        seconds = value if kind in ("WallTime", "TimingBreakdown") else details.get("seconds")
        if None not in (wall, seconds) and differs(seconds, wall, CLOCK_SHARE, slack):
            yield f"seeds.json: {name} of seed {seed} is of {seconds:.6g} s; by the clock it was {wall:.6g} s"
        if kind in ("WallTime", "TimingBreakdown") and seconds is not None:
            lines = [line for line in run.curve if str(line["seed"]) == seed]
            judged = sum(line["test_seconds"] or 0 for line in lines)
            if kind == "TimingBreakdown" and details.get("validation", 0.0) < judged * (1 - 1e-6) - 1e-4 * len(lines):
                got = f"{name} of seed {seed} has {details.get('validation', 0.0):.6g} s of validation"
                yield f"seeds.json: {got}; validation took {judged:.6g} s"
            spent = judged + sum(line["train_seconds"] or 0 for line in lines)
            if seconds < spent * (1 - 1e-6) - 1e-4 * len(lines):
                got = f"{name} of seed {seed} is {seconds:.6g} s"
                yield f"seeds.json: {got}; training and validation took {spent:.6g} s"


@relates(
    "energy, carbon and cost against devices, counters and ranks", D, "manifest.json:device.used", "manifest.json:ranks"
)
def _energy(run: RunView) -> Iterator[str]:
    used, ranks = run.manifest["device"]["used"], run.manifest["ranks"]
    joules = {(seed, "J"): value for seed, kind, _, value, _, _ in measured(run, "EnergyUse")}
    for seed, kind, name, value, details, _ in measured(
        run, *WHOLE, "GPUUtilisation", "CommunicationVolume", "Messages"
    ):
        sources = details.get("sources")
        if kind in ("EnergyUse", "Carbon") and value is not None and not sources:
            yield f"seeds.json: {name} of seed {seed} is {short(value)} without a counter"
        if any(str(source).startswith("gpu:") and source != used for source in sources or ()):
            yield f"seeds.json: {name} of seed {seed} is of {short(sources)}; the run used {used}"
        if kind == "GPUUtilisation" and value is not None and not used.startswith("gpu"):
            yield f"seeds.json: {name} of seed {seed} is {short(value)}; the run used {used}"
        if (
            kind == "Carbon"
            and details
            and (seed, "J") in joules
            and differs(details["J"], joules[seed, "J"], 0.05, 1.0)
        ):
            got = f"{name} of seed {seed} is of {short(details['J'])} J"
            yield f"seeds.json: {got}; energy is {short(joules[seed, 'J'])} J"
        if kind == "Cost" and details:
            time = details["seconds"] / 3600 * details["per_hour"] * details["devices"]
            if differs(details["time"], time, 1e-6):
                got = f"{name} of seed {seed}: {short(details['time'])} for the time"
                yield f"seeds.json: {got}; its price gives {short(time)}"
            if details["devices"] != ranks and not run.manifest["resumed"]:
                yield f"seeds.json: {name} of seed {seed} is of {details['devices']} devices; the run had {ranks} ranks"
        if kind in ("CommunicationVolume", "Messages") and value is not None and ranks == 1:
            yield f"seeds.json: {name} of seed {seed} is {short(value)}, of one rank"


@relates("counters of energy against the machine's", D, "manifest.json:environment.hardware.power_counters")
def _counters(run: RunView) -> Iterator[str]:
    there = run.manifest["environment"]["hardware"]["power_counters"]
    for seed, _, name, _, details, _ in measured(run, "EnergyUse", "Carbon"):
        strange = [source for source in details.get("sources") or () if source not in there and ":" not in source]
        if strange:
            yield f"seeds.json: {name} of seed {seed} by {short(strange)}; the machine has the counters {short(there)}"


@relates("peak of memory against memory after epochs", V, "metrics.jsonl:load.resident_bytes")
def _peaks(run: RunView) -> Iterator[str]:
    """The kernel adds up pages of many CPUs only roughly, so a fifth less is not yet a finding."""
    for seed, _, name, value, _, _ in measured(run, "PeakMemory"):
        known = [line["load"]["resident_bytes"] for line in run.curve if str(line["seed"]) == seed]
        most = max((size for size in known if size is not None), default=0)
        if name == "peak_memory_host" and value is not None and not run.manifest["resumed"] and value < 0.8 * most:
            yield f"seeds.json: {name} of seed {seed} is {short(value)} B; after an epoch it was {most} B"


@relates("memory and cores against the machine", V, D, "manifest.json:environment.memory_bytes")
def _resources(run: RunView) -> Iterator[str]:
    environment = run.manifest["environment"]
    memory, cores = environment["memory_bytes"], environment["usable_cores"]
    for seed, kind, name, value, details, _ in measured(run, "PeakMemory", "CPUUtilisation"):
        if name == "peak_memory_host" and value is not None and memory is not None and not 0 < value <= memory:
            yield f"seeds.json: {name} of seed {seed} is {short(value)} B; the machine has {memory} B"
        if name == "peak_memory_host" and value is not None and value % 1:
            yield f"seeds.json: {name} of seed {seed} is {short(value)} B, not a whole number"
        if kind == "CPUUtilisation" and details and details["processors"] != cores:
            yield f"seeds.json: {name} of seed {seed} is of {details['processors']} cores; the process had {cores}"


@relates("units and directions of metrics", "manifest.json:resolved.metrics", "summary.json:metrics.*.unit")
def _units(run: RunView) -> Iterator[str]:
    for facts in run.manifest["resolved"]["metrics"]:
        known = getattr(deep500.metrics, _kind(facts) or "", None)
        for field in ("unit", "direction", "kind"):
            classes = [part for part in getattr(known, "__mro__", ()) if part.__module__ != "deep500.metrics.base"]
            expected = next((vars(part)[field] for part in classes if field in vars(part)), None)
            priced = field == "unit" and _kind(facts) == "Cost"  # in the user's currency
            if isinstance(expected, str) and expected and facts[field] != expected and not priced:
                yield f"manifest.json: {field} of {facts['name']} is {short(facts[field])}; it is {short(expected)}"


@relates(
    "tuning against the runs of the ledger",
    "summary.json:tuning",
    "summary.json:ledger.entries",
    "metrics.jsonl:train_seconds",
)
def _tuning(run: RunView) -> Iterator[str]:
    tuning: dict[str, Any] = run.summary["tuning"]
    spent_here = sum(line["train_seconds"] or 0.0 for line in run.curve)
    alone = tuning["runs"] == 1
    if tuning["seconds"] < spent_here * (1 - 1e-9) or (alone and differs(tuning["seconds"], spent_here)):
        yield f"summary.json: {tuning['seconds']:.6g} s of training in all runs; this one took {spent_here:.6g} s"
    if not 1 <= tuning["settings"] <= tuning["runs"] or not tuning["finished"] < tuning["runs"] + 1:
        yield f"summary.json: {tuning['runs']} runs, {tuning['finished']} finished, {tuning['settings']} settings"
    entries = run.summary["ledger"]["entries"]
    if entries is not None and tuning["runs"] != entries:
        yield f"summary.json: {tuning['runs']} runs; the ledger had {entries} entries"
