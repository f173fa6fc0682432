"""Folders that break one rule each and folders that keep it, one of both per rule: all found, no false alarm."""

from __future__ import annotations

import copy
import json
from types import SimpleNamespace

import numpy as np
import pytest

from deep500.errors import ResultsError
from deep500.events import StopTraining
from deep500.measure import Plan, Target
from deep500.measure.fingerprint import fingerprint, full_environment
from deep500.results import ledger
from deep500.results.recomputed import rule_problems
from deep500.results.record import configuration_hash
from deep500.results.rules import FAIL, NOT_APPLICABLE, PASS, RULES, RunView, check, summary_of, write_rules
from deep500.results.rules.twelve_ways import BY_TIME
from deep500.results.samples import SampleStore
from deep500.results.stats import plan_to_json
from deep500.results.verify import write_stats
from deep500.training.listeners import StopAfter

ENVIRONMENT = {**full_environment(), "cores": 2, "usable_cores": 2}
# fmt: off
MANIFEST = {
    "schema": "deep500-results-1", "recipe": "made_up", "resolved": {"recipe": {"epochs": 2}}, "seeds": list(range(6)),
    "data": {"train": {"name": "digits", "stand_in": False, "digest": "aa"},
             "validation": {"name": "digits", "stand_in": False, "digest": "bb"}},
    "recipe_sha256": "aa", "environment": ENVIRONMENT, "environment_sha256": fingerprint(ENVIRONMENT),
    "suite": {"declared": ["a", "b"], "ran": ["a", "b"]},
    "series": {"step": {"unit": "s", "kind": "cost", "latency": True,
                        "plan": plan_to_json(Plan(targets=(Target(0.5), Target(0.99, 0.95, 0.2))))}},
}
# fmt: on
ACCURACY = {"name": "test_accuracy", "target": 90.0, "values": [95.0] * 6, "standing": "result"}
SUMMARY = {"status": "finished", "labels": [], "metrics": [ACCURACY], "tuning_runs": 3, "tuning": {"runs": 4}}
CONFIGURATION = configuration_hash(MANIFEST)
LOAD = {
    "seconds": 2.0,
    "cpus": 2,
    "busy": 2.1,
    "own": 2.0,
    "steal": 0.0,
    "pressure": 0.1,
    "throttled": 0.0,
    "thermal_events": 0,
    "swapped_pages": 0,
    "load_average": 1.0,
    "running": 1,
    "mhz": None,
    "celsius": None,
}
ROW = {"processes": 1, "seconds": 8.0, "global_batch": 64, "quality": 95.0, "quality_low": 94.0}
ROWS = [ROW, {**ROW, "processes": 4, "seconds": 2.2}]
# fmt: off
GOOD_CLAIMS = [
    {"type": "speedup", "value": 3.6, "base": {"kind": "serial-best", "seconds": 8.0, "low": 7.9, "high": 8.1}},
    {"type": "aggregate", "kind": "rate", "mean": "total"}, {"type": "aggregate", "kind": "cost", "mean": "arithmetic"},
    {"type": "aggregate", "kind": "ratio", "mean": "geometric", "note": "costs of the parts are not known"},
    {"type": "centre", "series": "step", "statistic": "median", "interval": "rank"},
    {"type": "centre", "series": "normal", "statistic": "mean", "interval": "t"},
    {"type": "comparison", "verdict": "faster", "p": 0.001, "corrected": True, "effect": [0.8, 0.9], "margin": 0.02},
    {"type": "comparison", "verdict": "unresolved", "p": 0.4, "corrected": True, "effect": [0.9, 1.1], "margin": 0.02},
    {"type": "percentile", "series": "step", "q": 0.99, "value": None},
    {"type": "parallel", "ranks": 4, "sync": "window", "summary": "max", "rank_p": 0.001},
    {"type": "rate", "flops": 1e9, "counted_flops": 2e9, "seconds": 2.0, "bound": 4e9, "dtype": "float32",
     "peak_dtype": "float32"},
    {"type": "scaling", "rows": ROWS, "bounds": ["ideal", "amdahl"], "labels": ["strong"]},
    {"type": "plot", "kind": "line", "x": "ordered", "n": 800, "level": 0.95},
    {"type": "plot", "kind": "bar", "x": "categorical", "from_zero": True, "axis": [0, 3], "n": 800,
     "level": 0.95},
    {"type": "breakdown", "of": "run", "parts": {"forward": 3.6, "backward": 2.37}, "wall": 6.0},
    {"type": "input", "source": "disk", "end_to_end": True, "cold": True},
    {"type": "baseline", "device": {"year": 2024, "peak_flops": 1e12}, "own_device": {"year": 2025, "peak_flops": 2e12},
     "tuning_runs": 5, "own_tuning_runs": 6, "measures": ["time_to_accuracy", "final_accuracy", "cost"]},
    {"type": "headline", "quantity": "speed", "config_sha256": CONFIGURATION, "by": "report"},
    {"type": "headline", "quantity": "quality", "config_sha256": CONFIGURATION, "by": "report"},
    {"type": "workload", "shape": [3, 32, 32], "native_shape": [3, 32, 32], "flops_per_sample": 1e6,
     "fixed_flops_per_sample": 1e6},
]
# fmt: on


def claim(of_type, number=0, /, **changes):
    """A change of the number-th claim of a type."""

    def change(parts):
        claimed = [c for c in parts["claims"] if c["type"] == of_type][number]
        claimed.update(changes)

    return change


def edit(part, function):
    return lambda parts: function(parts[part])


def add(**new):
    return lambda parts: parts["claims"].append(new)


def learned_after(samples):
    """A recipe that carries references of about 1,000 samples, and a run that takes so many."""

    def change(parts):
        recipe = parts["manifest"]["resolved"]["recipe"]
        recipe.update(batch_size=32, references={"32": [990.0, 1000.0, 1010.0]})
        parts["manifest"]["resolved"]["metrics"] = [
            {"name": "test_accuracy", "kind": "quality", "direction": "higher", "target": 90.0}
        ]
        for line in parts["curve"]:
            line["train_samples"] = samples + line["seed"]
        headline(parts)

    return change


# fmt: off
BAD = {
    "R1": claim("speedup", base={"kind": "serial-best"}),
    "R2": edit("manifest", lambda m: m["suite"].update(ran=["a"])),
    "R3": claim("aggregate", kind="rate", mean="arithmetic"),
    "R4": claim("aggregate", 2, mean="arithmetic"),
    "R5": edit("summary", lambda s: s["metrics"].append({**ACCURACY, "values": [95.0]})),
    "R6": claim("centre", 0, interval="t"),
    "R7": claim("comparison", 0, effect=[0.9, 1.1]),
    "R8": claim("percentile", q=0.999),
    "R9": edit("manifest", lambda m: m["environment"].pop("kernel")),
    "R10": claim("parallel", summary="pooled"),
    "R11": claim("rate", bound=None),
    "R12": claim("plot", x="categorical"),
    "F1": claim("scaling", rows=[ROW, {**ROW, "processes": 4, "quality": 90.0}]),
    "F2": edit("summary", lambda s: s["metrics"].__setitem__(0, {**ACCURACY, "name": "train_accuracy"})),
    "F3": edit("ledger", lambda entries: entries.pop(1)),
    "F4": claim("baseline", device={"year": 2017, "peak_flops": 1e11}),
    "F5": claim("breakdown", parts={"forward": 3.6}),
    "F6": edit("manifest", lambda m: m["data"]["train"].update(stand_in=True)),
    "F7": claim("rate", counted_flops=1e9),
    "F8": claim("headline", config_sha256="bb"),
    "F9": claim("workload", shape=[3, 224, 224]),
    "F10": edit("curve", lambda lines: lines.pop()),
    "F11": claim("scaling", rows=[ROW, {**ROW, "processes": 4, "global_batch": 256}]),
    "F12": claim("baseline", measures=["time_to_accuracy"]),
    "D1": add(type="speed-up", value=3.0),
    "D2": edit("curve", lambda lines: [line["load"].update(busy=3.9, own=0.3) for line in lines]),
    "D3": learned_after(700.0),
}
# fmt: on


LIMIT = "12.5 s reached the limit of 10 s"


def stopped(why):
    """A run that a listener stopped, of a recipe that has one."""
    return lambda parts: VARIATIONS["F10"](parts) or parts["seeds"]["5"].update(stopped_by=why)


@pytest.mark.parametrize(
    ("why", "status"),
    [
        ("no better for 2 epochs", "missing"),
        ("test accuracy 99.00 % reached the target of 99 %", "fail"),
        (LIMIT, "pass"),
    ],
)
def test_who_stops_by_data_that_nobody_knows_is_not_passed(why, status, measured, tmp_path):
    assert check(write(tmp_path, measured, stopped(why)))["F2"].status == status
    with pytest.raises(StopTraining, match="reached the limit of 1e-09 s") as time:
        run = SimpleNamespace(statistics=SimpleNamespace(total=lambda *_: 0.0))
        limit = StopAfter(1e-9)
        limit.before_run(run)
        limit.after_epoch(run)
    assert BY_TIME.search(str(time.value)) and BY_TIME.search(LIMIT)


def stand(what, cluster="within launches", kruskal_p=None):
    """A change of what an interval of the steps claims to be."""

    def change(parts):
        step = parts["stats"]["series"]["step"]
        for estimate in step["estimates"]:
            estimate["standing"], estimate["ci"]["cluster"] = what, cluster
        step["between_launches"]["kruskal_p"] = kruskal_p

    return change


def stopping_text(parts):
    """Fewer epochs, and a text that was written afterwards."""
    parts["curve"].pop()
    parts["manifest"].update(stopping_rule="accuracy of 99 %")


def busy(parts):
    """Others had nearly all of both processors."""
    for line in parts["curve"]:
        line["load"].update(busy=3.9, own=0.3)
    for estimate in parts["stats"]["series"]["normal"]["estimates"]:
        estimate["standing"] = "observation"


def headline(parts):
    """Headlines of the configuration that is in the manifest."""
    for claimed in parts["claims"]:
        if claimed["type"] == "headline":
            claimed["config_sha256"] = configuration_hash(parts["manifest"])


# fmt: off
ALSO_BAD = [
    ("R5", stand("result")), ("R5", stand("result within 3 launches", kruskal_p=1e-9)),
    ("R1", claim("speedup", base=None)), ("R3", claim("aggregate", 1, mean="geometric")),
    ("R4", claim("aggregate", 2, note="")), ("R7", claim("comparison", 0, corrected=False)),
    ("R7", claim("comparison", 0, p=None)), ("D1", claim("parallel", sync=None)),
    ("R11", claim("scaling", bounds=[])), ("R11", claim("rate", bound=5e8)),
    ("R12", claim("plot", 1, from_zero=False)), ("R12", claim("plot", 1, axis=[2, 3])),
    ("R12", add(type="plot", kind="box", x="categorical")),
    ("R2", edit("manifest", lambda m: m.update(cores_used=1))),
    ("F1", claim("scaling", rows=[{**ROW, "quality": None}])),
    ("F3", edit("summary", lambda s: s.update(tuning_runs=1))),
    ("F3", edit("summary", lambda s: s["tuning"].update(runs=1))),
    ("F5", claim("breakdown", parts={"a": 6.6})), ("F5", claim("breakdown", wall=5.0, parts={"a": 5.0})),
    ("R7", claim("comparison", 0, effect=[1.2, 1.4])), ("F10", stopping_text), ("F6", claim("input", cold=False)),
    ("F7", claim("rate", dtype="tf32")),
    ("F7", edit("manifest", lambda m: m.update(dtype="float32", device={"asked": "gpu", "used": "gpu:0"}))),
    ("F7", claim("rate", peak_dtype="float16")), ("F12", claim("baseline", tuning_runs=1)),
]
# fmt: on
ALSO_GOOD = [
    ("R5", stand("result", "launches", 1e-9)),
    ("R5", stand("result within 3 launches", kruskal_p=0.5)),
    ("R5", stand("observation", kruskal_p=1e-9)),
]
# fmt: off
VARIATIONS = {
    "R2": edit("manifest", lambda m: m["suite"].update(ran=["a"], skipped={"b": "no GPU"})),
    "R5": edit("summary", lambda s: s["metrics"].append({**ACCURACY, "values": [95.0], "standing": "observation"})),
    "F4": claim("baseline", device={"year": 2017, "peak_flops": 1e11}, normalised="per peak"),
    "F6": lambda parts: (parts["manifest"]["data"]["train"].update(stand_in=True),
                         parts["summary"]["labels"].append("stand-in data")),
    "F7": edit("manifest", lambda m: m.update(dtype="float32", device={"asked": "gpu", "used": "gpu:0"},
                                              numerics={"float32": "ieee", "deterministic": False})),
    "F10": lambda parts: (parts["curve"].pop(), parts["seeds"]["5"].update(stopped_by=LIMIT),
                          parts["manifest"]["resolved"]["recipe"].update(events=["Stop"])) and headline(parts),
    "D2": lambda parts: (busy(parts), stand("observation")(parts)),
    "F11": claim("scaling", rows=[ROW, {**ROW, "processes": 4, "global_batch": 256}], labels=["weak"]),
    "D3": learned_after(1000.0),
}
# fmt: on
"""Good folders that look like the bad one but say what must be said."""


@pytest.fixture(scope="module")
def measured(tmp_path_factory):
    """Samples and their statistics, made once."""
    folder = tmp_path_factory.mktemp("measured")
    (folder / "manifest.json").write_text(json.dumps(MANIFEST))
    rng, store = np.random.default_rng(0), SampleStore(folder)
    skewed = (1e6 * np.exp(0.5 * rng.standard_normal(2000))).astype(np.int64)
    normal = (1e6 * (1 + 0.05 * rng.standard_normal(200))).astype(np.int64)
    store.append("step", 0, np.cumsum(skewed), skewed)
    store.append("normal", 0, np.cumsum(normal), normal)
    write_stats(folder)
    return (folder / "stats.json").read_text()


def write(folder, stats, change=lambda parts: None):
    """A folder below one of its own, in which the ledger is."""
    folder = folder / "run"
    folder.mkdir(parents=True)
    for name in ("run-0", "run-1", "run-2", folder.name):
        ledger.enter(folder.parent, {"run": name})
    entries = [json.loads(line) for line in (folder.parent / ledger.NAME).read_text().splitlines()]
    curve = [
        {"seed": seed, "epoch": epoch, "test_accuracy": 95.0, "load": dict(LOAD)}
        for seed in range(6)
        for epoch in (1, 2)
    ]
    seeds = {
        str(seed): {"values": {"test_accuracy": 95.0}, "stopped_by": None, "wall_seconds": 1.0} for seed in range(6)
    }
    parts = {"manifest": MANIFEST, "summary": SUMMARY, "claims": GOOD_CLAIMS, "ledger": entries, "curve": curve}
    parts = copy.deepcopy(parts) | {"stats": json.loads(stats), "seeds": seeds}
    tail = next(e["value"] for e in parts["stats"]["series"]["step"]["estimates"] if e["q"] == 0.99)
    claim("percentile", value=tail)(parts)
    change(parts)
    for name in ("manifest", "summary", "stats", "seeds"):
        (folder / f"{name}.json").write_text(json.dumps(parts[name]))
    (folder / "claims.json").write_text(json.dumps({"claims": parts["claims"]}))
    (folder / "journal.jsonl").write_text("")
    for path, lines in ((folder.parent / ledger.NAME, parts["ledger"]), (folder / "metrics.jsonl", parts["curve"])):
        path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return folder


def test_every_rule_says_what_it_wants():
    assert (
        list(RULES)
        == [f"R{i}" for i in range(1, 13)] + [f"F{i}" for i in range(1, 13)] + ["D1", "D2", "D3"]
        == list(BAD)
    )
    assert all(summary_of(rule).endswith(".") for rule in RULES.values())


@pytest.mark.parametrize("rule", RULES)
def test_a_folder_that_breaks_a_rule_is_flagged_by_that_rule_alone(rule, tmp_path, measured):
    findings = check(write(tmp_path / "bad", measured, BAD[rule]))
    broken = {name for name, finding in findings.items() if finding.status == FAIL}
    assert broken == {rule} and findings[rule].reason and findings[rule].fix


@pytest.mark.parametrize("rule", RULES)
def test_a_folder_that_keeps_a_rule_raises_no_alarm(rule, tmp_path, measured):
    findings = check(write(tmp_path / "good", measured, VARIATIONS.get(rule, lambda parts: None)))
    assert findings[rule].status == PASS, findings[rule].reason
    assert not [(name, finding.reason) for name, finding in findings.items() if finding.status == FAIL]


@pytest.mark.parametrize(("rule", "change"), ALSO_BAD)
def test_other_ways_to_break_a_rule(rule, change, tmp_path, measured):
    assert check(write(tmp_path / "bad", measured, change))[rule].status == FAIL


@pytest.mark.parametrize(("rule", "change"), ALSO_GOOD)
def test_other_ways_to_keep_a_rule(rule, change, tmp_path, measured):
    assert check(write(tmp_path / "good", measured, change))[rule].status == PASS


def test_references_judge_whole_runs_of_enough_seeds(tmp_path, measured):
    def alone(parts):
        learned_after(700.0)(parts)
        parts["manifest"]["seeds"] = [0, 1]
        parts["curve"] = [line for line in parts["curve"] if line["seed"] < 2]

    found = check(write(tmp_path / "two", measured, alone), only=["D3"])["D3"]
    assert (found.status, found.reason[:10]) == (NOT_APPLICABLE, "got 2 seed")
    assert check(write(tmp_path / "none", measured), only=["D3"])["D3"].status == NOT_APPLICABLE

    for number, (facts, status) in enumerate(
        (
            ({"dry_run": True}, NOT_APPLICABLE),
            ({"argv": ["optimizer=Better"]}, NOT_APPLICABLE),
            ({"argv": ["batch_size=32", "--seed", "4"]}, FAIL),
        )
    ):

        def change(parts, facts=facts):
            learned_after(700.0)(parts)
            parts["manifest"].update(facts)

        assert check(write(tmp_path / str(number), measured, change), only=["D3"])["D3"].status == status


def test_findings_are_written_and_a_folder_that_is_none_is_refused(tmp_path, measured):
    folder = write(tmp_path / "run", measured)
    write_rules(folder)
    written = json.loads((folder / "rules.json").read_text())["rules"]
    assert set(written) == set(RULES) and written["R1"]["status"] == PASS
    with pytest.raises(ResultsError, match="got no such file"):
        check(tmp_path)


@pytest.mark.parametrize(("name", "problems"), [("D3", []), ("R1", ["rules.json: R1 was taken out"])])
def test_a_rule_that_is_not_there_must_not_apply(tmp_path, measured, name, problems):
    """Folders from before a rule was added lack it: D3 says nothing without references, R1 always something."""
    folder = write(tmp_path / "run", measured)
    write_rules(folder)
    content = json.loads((folder / "rules.json").read_text())
    del content["rules"][name]
    (folder / "rules.json").write_text(json.dumps(content))
    assert rule_problems(RunView(folder)) == problems


def test_the_ledger_adds_up_what_tuning_cost(tmp_path):
    for number in range(3):
        ledger.enter(tmp_path, {"run": f"run-{number}"})
        (tmp_path / f"run-{number}").mkdir()
        (tmp_path / f"run-{number}" / "metrics.jsonl").write_text(
            '{"seed": 0, "epoch": 1, "train_seconds": 2.5}\n{"seed": 0, "epoch": 2, "train_seconds": null}\n'
        )
    (tmp_path / "run-1" / "summary.json").write_text("{}")
    assert ledger.tuning_cost(tmp_path) == {"runs": 3, "finished": 1, "seconds": 7.5}
