"""Figures 7, 9 and 11: what a sample costs, the right mean, and the record of the machine."""

from __future__ import annotations

import gc
import json
import os
import time
import tracemalloc
from collections.abc import Callable

import numpy as np

from deep500.measure import Budget, Plan, Recorder, Recording, measure, region
from deep500.measure.fingerprint import count_fields, differences, fingerprint, full_environment
from deep500.measure.means import mean, total_rate
from tests.benchmarks.measuring.outcome import Options, Outcome, figure

SAMPLES, COUNT, TURNS = 100_000, 2000, 300


def _timed(recorder: Recorder, count: int) -> int:
    now, stop = recorder.now, recorder.stop
    begin = time.perf_counter_ns()
    for _ in range(count):
        start = now()
        stop(start)
    return time.perf_counter_ns() - begin


def _regions(count: int) -> int:
    part = region("x")
    with Recording(count):
        begin = time.perf_counter_ns()
        for _ in range(count):
            with part:
                pass
        return time.perf_counter_ns() - begin


def _bare(count: int) -> int:
    begin = time.perf_counter_ns()
    for _ in range(count):
        pass
    return time.perf_counter_ns() - begin


def _allocated(work: Callable[[], object]) -> tuple[int, int]:
    """Bytes and blocks that are more after some work than before it, tracemalloc's own left out."""
    gc.collect()
    tracemalloc.start()
    try:
        before = tracemalloc.take_snapshot()
        work()
        after = tracemalloc.take_snapshot()
    finally:
        tracemalloc.stop()
    own = [tracemalloc.Filter(False, tracemalloc.__file__)]
    grown = after.filter_traces(own).compare_to(before.filter_traces(own), "filename")
    recorder = [difference for difference in grown if difference.traceback[0].filename.endswith("recorder.py")]
    return sum(difference.size_diff for difference in recorder), sum(difference.count_diff for difference in recorder)


@figure(
    7,
    "overhead of a sample",
    "<= 1 us a sample, <= 150 ns inside the interval, 0 allocations over 1e5 samples, a "
    "timer above 5 % of a sample is refused",
)
def overhead(options: Options) -> Outcome:
    """Loops with a sample and without, in turns; the least of many short turns of each, since load only adds."""
    times: dict[str, list[int]] = {"sample": [], "region": [], "bare": []}
    inside = []
    for _ in options.each(range(TURNS), "figure 7"):
        recorder = Recorder("x", COUNT)
        times["sample"].append(_timed(recorder, COUNT))
        times["region"].append(_regions(COUNT))
        times["bare"].append(_bare(COUNT))
        inside.append(float(np.median(recorder.seconds()[100:])) * 1e9)
    sample, part = ((min(times[name]) - min(times["bare"])) / COUNT for name in ("sample", "region"))
    recorder = Recorder("x", SAMPLES)
    grown, blocks = _allocated(lambda: _timed(recorder, SAMPLES))
    coarse = measure(lambda: None, Plan(budget=Budget(max_n=60)))
    refused = any("more than 5 %" in problem for problem in coarse.problems)
    text = (
        f"{sample:.0f} ns a sample, {min(inside):.0f} ns inside, a region {part:.0f} ns; {blocks} block of {grown} "
        f"bytes left by {SAMPLES} samples, coarse timer {'refused' if refused else 'NOT refused'}"
    )
    # the count of samples is an integer that lives on: one block, however many samples
    return Outcome(text, max(sample, part) <= 1000 and min(inside) <= 150 and blocks <= 1 and grown < 64 and refused)


@figure(9, "means by kind of metric", "10, 1, 2.5 Gflop/s: harmonic 2, not 4.5 and not 2.9; over ranks sum / sum")
def means(options: Options) -> Outcome:
    """Three equal pieces of work at these rates, and two ranks that worked for different times."""
    rate, ranks = mean([10.0, 1.0, 2.5], "rate"), total_rate([100, 150], [1.0, 3.0])
    text = f"{rate:g} Gflop/s; 100 per s for 1 s and 50 per s for 3 s: {ranks:g} per s (sum / sum is 62.5)"
    return Outcome(text, abs(rate - 2.0) < 1e-12 and abs(ranks - 62.5) < 1e-12)


@figure(
    11,
    "record of the machine",
    ">= 60 fields in < 2 s; same machine twice: same hash; changed threads, package, "
    "variable: another hash, and the difference names it",
)
def machine(options: Options) -> Outcome:
    """The least of five times; the changes are real where they can be (a variable), else made in the record."""
    times, records = [], []
    for _ in options.each(range(5), "figure 11"):
        begin = time.perf_counter()
        records.append(full_environment())
        times.append(time.perf_counter() - begin)
    first, hashes = records[0], {fingerprint(record) for record in records}
    changed = [json.loads(json.dumps(first)) for _ in range(2)]
    changed[0]["threads"]["torch"] = 77
    changed[1]["process"]["packages"]["numpy"] = "0"
    before = os.environ.get("XLA_FLAGS")
    os.environ["XLA_FLAGS"] = "--made_up"
    changed.append(full_environment())
    os.environ.pop("XLA_FLAGS") if before is None else os.environ.update(XLA_FLAGS=before)
    names = ["threads.torch", "process.packages.numpy", "variables.XLA_FLAGS"]
    named = sum(
        fingerprint(record) not in hashes and list(differences(first, record)) == [name]
        for record, name in zip(changed, names, strict=True)
    )
    fields = count_fields(first)
    text = f"{fields} fields in {min(times):.2f} s, {len(hashes)} hash of 5 records, {named} of 3 changes named"
    return Outcome(text, fields >= 60 and min(times) < 2 and len(hashes) == 1 and named == 3)
