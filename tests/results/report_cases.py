"""Results folders for tests of the report, made without training: fixed samples, a manifest, a seal."""

from __future__ import annotations

import numpy as np

from deep500.measure.plan import Plan, Target
from deep500.metrics import TestAccuracy
from deep500.report.page import write_report
from deep500.results import Circumstances, Record, judge, overall
from deep500.results.rules import write_rules
from deep500.results.stats import plan_to_json
from deep500.results.verify import seal, write_stats

HOSTILE = "<script>alert('x')</script>"
PLAN = Plan(targets=(Target(0.5), Target(0.9, 0.95, 0.1), Target(0.99, 0.95, 0.2)))
ABOUT = {"unit": "s", "kind": "cost", "meaning": "one step", "plan": plan_to_json(PLAN)}


def manifest(seeds=6, **more):
    """A manifest with all that a page shows."""
    half = {"name": "digits", "length": 3, "stand_in": False, "provenance": "scans", "digest": "0" * 64}
    return {
        "resolved": {"recipe": {"batch_size": 32}},
        "division": "closed",
        "opened": [],
        "seeds": list(range(seeds)),
        "recipe_file": "job.py",
        "recipe_sha256": "1" * 64,
        "argv": ["--repeat", str(seeds)],
        "warnings": [],
        "backend": "pytorch",
        "device": {"asked": None, "used": "cpu:0"},
        "data": {"train": half, "validation": {**half, "digest": "2" * 64}},
        "environment": {"cpu": "a processor", "cores": 2, "usable_cores": 2, "threads": {"torch": 1}},
        "resumed": [],
        **more,
    }


def durations(rng, size, scale=1.0):
    """Nanoseconds: a slow start, dependent noise, now and then a spike."""
    noise = rng.normal(0, 0.03, size)
    noise[1:] += 0.5 * noise[:-1]
    spikes = np.where(rng.random(size) < 0.01, rng.pareto(2, size), 0)
    return (2e6 * scale * (1 + noise + spikes) * (1 + (np.arange(size) < 20))).clip(1e4).astype(np.int64)


def finished(
    base,
    recipe="job",
    samples=400,
    seeds=6,
    series=("step",),
    scale=1.0,
    labels=(),
    claims=None,
    samples_each=32,
    **more,
):
    """A finished and sealed run."""
    declared = {name: {**ABOUT, "samples_each": samples_each} for name in series}
    record = Record.create(base, recipe, manifest(seeds, series=declared, **more))
    rng = np.random.default_rng(0)
    for name in series:
        for seed in range(seeds):
            taken = durations(rng, samples, scale)
            record.samples.append(name, seed, np.cumsum(taken) - taken, taken)
    for seed in range(seeds):
        for epoch in (1, 2, 3):
            line = {"train_loss": (1 + 0.1 * seed) / epoch, "test_accuracy": 90.0 + epoch + 0.1 * seed}
            record.add_epoch(seed, epoch, line, {"arrays": {}, "values": {}})
    metrics = [judge(TestAccuracy(), 93.0, [93.0 + 0.1 * seed for seed in range(seeds)], Circumstances())]
    record.write_summary(
        {
            "verdict": overall(metrics),
            "labels": list(labels),
            "finished": "now",
            "status": "finished",
            "metrics": [m.as_dict() for m in metrics],
        }
    )
    if claims is not None:
        from deep500.results.files import to_json

        (record.path / "claims.json").write_text(to_json({"claims": claims}))
    write_stats(record.path)
    write_rules(record.path)
    write_report(record)
    seal(record.path)
    return record
