"""Dates, clocks and the counters of the kernel: they go forward, together, and no faster than there are CPUs."""

from __future__ import annotations

import datetime
import re
from collections.abc import Iterator, Mapping
from itertools import pairwise
from typing import Any

from deep500.measure.load import COUNTERS, STATES, TICKS
from deep500.results.relations.declaring import differs, relates, short
from deep500.results.rules.view import RunView

SET = 2.0
"""Seconds by which dates in whole seconds, and clocks that are read one after the other, may disagree."""

LOAD = "metrics.jsonl:load"


def _seconds(date: str) -> float:
    moment = datetime.datetime.fromisoformat(date)
    return (moment if moment.tzinfo else moment.replace(tzinfo=datetime.timezone.utc)).timestamp()


@relates(
    "dates against each other",
    "manifest.json:started",
    "summary.json:finished",
    "metrics.jsonl:clock",
    "manifest.json:resumed",
)
def _dates(run: RunView) -> Iterator[str]:
    moments = [("started in manifest.json", _seconds(run.manifest["started"]))]
    for line in run.curve:
        clock, place = line["clock"], f"of seed {line['seed']}, epoch {line['epoch']}"
        moments += [(f"begin {place}", clock["began"]), (f"end {place}", clock["began"] + clock["wall_seconds"])]
    moments.append(("finished in summary.json", _seconds(run.summary["finished"])))
    for (before, first), (after, second) in pairwise(moments):
        if second < first - SET:
            yield f"the {after} is {first - second:.4g} s before the {before}"
    for entry in run.manifest["resumed"]:
        if not moments[0][1] - SET <= _seconds(entry["at"]) <= moments[-1][1] + SET:
            yield f"manifest.json: resumed at {entry['at']}, which is not between its start and its end"


@relates("start against the ledger", "manifest.json:started")
def _entered(run: RunView) -> Iterator[str]:
    number = (run.summary.get("ledger") or {}).get("entry")
    entry = run.ledger[number] if isinstance(number, int) and number < len(run.ledger) else {}
    dated = re.match(r"(\d{4})(\d\d)(\d\d)-(\d\d)(\d\d)(\d\d)-", str(entry.get("run", "")))
    if dated and "{}-{}-{}T{}:{}:{}".format(*dated.groups()) != run.manifest["started"][:19]:
        yield f"manifest.json: started {run.manifest['started']}; the ledger has the run {entry['run']}"
    if "at" in entry and not -SET <= _seconds(entry["at"]) - _seconds(run.manifest["started"]) <= 60:
        yield f"manifest.json: started {run.manifest['started']}; the ledger entered it at {entry['at']}"


@relates(
    "load of the run against its clocks",
    "manifest.json:load",
    "summary.json:load",
    "summary.json:finished",
    "manifest.json:started",
    LOAD,
)
def _readings(run: RunView) -> Iterator[str]:
    before, after = run.manifest["load"], run.summary["load"]
    if run.manifest["resumed"]:
        return
    passed, dated = after["at"] - before["at"], _seconds(run.summary["finished"]) - _seconds(run.manifest["started"])
    if not -SET - 0.02 * passed <= passed - dated <= 60 + 0.02 * passed:
        yield f"{passed:.4g} s between the readings of the load, {dated:.4g} s between start and end"
    lasted = sum(line["load"]["seconds"] for line in run.curve)
    if lasted > passed + SET:
        yield f"{lasted:.4g} s of epochs between readings that lie {passed:.4g} s apart"
    spent = {name: None if None in (before[name], after[name]) else after[name] - before[name] for name in COUNTERS}
    for problem in _impossible({**after, **spent, "seconds": passed}, passed):
        yield f"load of the whole run: {problem}"
    for name in COUNTERS:
        parts = [line["load"].get(name) for line in run.curve]
        known = [part for part in parts if part is not None]
        if len({value is None for value in (*parts, before[name], after[name])}) > 1 and name != "own":
            yield f"{name} of the load is known in some readings only"
        elif (
            None not in (before[name], after[name])
            and sum(known) > after[name] - before[name] + 0.05 + 1e-6 * after[name]
        ):
            there = after[name] - before[name]
            yield f"{name} of the load is {sum(known):.6g} in the epochs, {there:.6g} in the whole run"


@relates("load of epochs against their clocks and CPUs", LOAD, "metrics.jsonl:clock.wall_seconds")
def _epochs(run: RunView) -> Iterator[str]:
    for line in run.curve:
        for problem in _impossible(line["load"], line["clock"]["wall_seconds"]):
            yield f"metrics.jsonl: seed {line['seed']}, epoch {line['epoch']}: {problem}"


def _impossible(load: Mapping[str, Any], wall: float) -> Iterator[str]:
    """Amounts that no kernel counts; ticks are charged to whoever runs at them."""
    seconds, cpus = load["seconds"], load["cpus"]
    if differs(seconds, wall, 0.05, 0.25):
        yield f"load over {seconds:.4g} s of an epoch of {wall:.4g} s"
    room = (seconds * cpus * 1.1 if cpus else float("inf")) + 10 / TICKS * (cpus or 1)
    for name, most in (
        ("busy", room),
        ("own", room),
        ("steal", room),
        ("pressure", 1.1 * seconds + 0.1),
        ("throttled", 1.1 * room),
    ):
        value = load.get(name)
        if value is not None and not -1e-9 <= value <= most:
            yield f"{name} of {value:.4g} s in {seconds:.4g} s on {short(cpus)} CPUs"
    process, busy = load.get("own"), load.get("busy")
    if process is not None and busy is not None and process > 1.1 * busy + 10 / TICKS * (cpus or 1):
        yield f"the process worked {process:.4g} s, all processes together {busy:.4g} s"
    for name in ("load_average", "running", "mhz", "swapped_pages", "thermal_events"):
        if load.get(name) is not None and load[name] < 0:
            yield f"{name} of {load[name]:.4g}"


@relates("readings of the load are whole", "manifest.json:load", "summary.json:load", LOAD)
def _readings_whole(run: RunView) -> Iterator[str]:
    readings = [run.manifest["load"], run.summary["load"], *(line["load"] for line in run.curve)]
    names = [frozenset(reading) - {"at", "seconds"} for reading in readings]
    lacking = sorted(frozenset().union(*names) - frozenset.intersection(*names))
    if lacking:
        yield f"a reading of the load lacks what others have: {', '.join(lacking)}"
    for name in STATES:
        if len({reading.get(name) is None for reading in readings}) > 1:
            yield f"{name} of the load is known in some readings only"
    if any(reading.get("mhz") == 0 for reading in readings):
        yield "a CPU of 0 MHz"


@relates("neighbours against pressure", LOAD + ".busy", LOAD + ".pressure", LOAD + ".own")
def _neighbours(run: RunView) -> Iterator[str]:
    """Who waits for a CPU waits while all of them work, or a quota, or a hypervisor, takes them away."""
    loads = [line["load"] for line in run.curve]
    if any(load.get(name) is None for load in loads for name in ("busy", "pressure")):
        return
    seconds, cpus = sum(load["seconds"] for load in loads), loads[0]["cpus"] or 1
    waited, busy = sum(load["pressure"] for load in loads), sum(load["busy"] for load in loads)
    taken = sum((load.get("steal") or 0.0) + (load.get("throttled") or 0.0) for load in loads)
    if seconds > 1 and waited > 0.3 * seconds and busy + taken < 0.5 * waited:
        yield f"something waited for a CPU for {waited:.4g} of {seconds:.4g} s, while {cpus} CPUs worked {busy:.4g} s"
