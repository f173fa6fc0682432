"""What reports claim of real runs and comparisons, and that the rules judge it."""

from __future__ import annotations

import json
import re

import numpy as np
import pytest

from deep500.compare.claims import framework_claims, run_claims
from deep500.compare.frameworks import write
from deep500.compare.gate import GateResult
from deep500.compare.report import render_runs
from deep500.compare.result import ComparisonResult
from deep500.compare.runs import compare_runs
from deep500.compare.timing import Timing
from deep500.measure.comparison import Comparison
from deep500.measure.statistics import Interval
from deep500.report.claims import BY, derive, write_claims
from deep500.results.rules import FAIL, MISSING, NOT_APPLICABLE, PASS, check
from tests.results.report_cases import durations, finished


def of_type(claims, name):
    return [claim for claim in claims if claim["type"] == name]


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """Two seeds; within an epoch of 1 s steps take 0.8 s, validation lasts 0.2 s, and 0.3 s pass between two epochs."""
    record = finished(tmp_path_factory.mktemp("run"), samples=0, seeds=2, series=())
    second = 10**9
    for seed in range(2):
        for epoch in range(3):
            begin = int((5 * seed + 1.5 * epoch) * second)
            record.samples.append("step", seed, begin + np.arange(40) * second // 50, np.full(40, second // 50))
            record.samples.append("epoch", seed, [begin], [second])
            record.samples.append("validation", seed, [begin + second], [second // 5])
    from deep500.results.verify import write_stats

    write_stats(record.path)
    return record


def test_a_breakdown_adds_up_to_the_time_that_passed(run):
    (breakdown,) = of_type(derive(run), "breakdown")
    assert breakdown["wall"] == pytest.approx(2 * 4.2)
    assert breakdown["parts"] == pytest.approx(
        {"steps": 4.8, "rest of epochs": 1.2, "validation": 1.2, "between epochs": 1.2}
    )
    (run.path / "claims.json").unlink(missing_ok=True)
    assert check(run.path)["F5"].status == MISSING  # before they are written
    write_claims(run.path)
    assert check(run.path)["F5"].status == PASS
    manifest = run.manifest()
    run.write_manifest({**manifest, "resumed": [{"at": "later"}]})
    assert of_type(derive(run), "breakdown") == []
    run.write_manifest(manifest)


def test_a_report_claims_what_it_shows(tmp_path):
    record = finished(tmp_path, samples=200, seeds=3)
    claims = write_claims(record.path)
    assert {c["type"] for c in claims} == {"centre", "percentile", "headline", "plot"}
    assert [c["q"] for c in of_type(claims, "percentile")] == [0.9]
    assert len({c["config_sha256"] for c in of_type(claims, "headline")}) == 1
    plots = {c["question"]: c for c in of_type(claims, "plot")}
    assert plots["Are they normal?"]["kind"] == "scatter" and plots["Are they normal?"]["n"] == 600 - sum(
        launch["cut"]["index"]
        for launch in json.loads((record.path / "stats.json").read_text())["series"]["step"]["launches"]
    )
    assert plots["Where do most of them lie, and do launches agree?"]["x"] == "categorical"
    findings = check(record.path)
    assert all(findings[rule].status == PASS for rule in ("R8", "R12", "F8"))


def test_a_quantile_without_an_interval_is_not_claimed(tmp_path):
    record = finished(tmp_path, samples=30, seeds=1)
    assert [c["q"] for c in of_type(derive(record), "percentile")] == []


def test_an_authors_claims_stay_and_derived_ones_do_not_pile_up(tmp_path):
    own = {"type": "speedup", "value": 3.0, "base": {"kind": "serial-best"}}
    record = finished(tmp_path, claims=[own])
    first = write_claims(record.path)
    assert write_claims(record.path) == first and first[0] == own and all(c["by"] == BY for c in first[1:])
    assert check(record.path)["R1"].status == FAIL  # the author named no time


def test_what_metrics_measured_is_claimed(run):
    """Parts of time and counted operations stand in the details of metrics, one mapping per seed."""
    before = run.summary()
    parts = {
        "name": "timing_breakdown",
        "value": 5.0,
        "unit": "s",
        "details": [{"io": 1.0, "forward_backward": 4.0}] * 2,
    }
    each = {"FLOP_per_sample": 1e6, "samples": 2000, "seconds": 4.0}
    rate = {"name": "flop_rate", "value": 5e8, "unit": "FLOP/s", "details": [each, each]}
    share = {"name": "roof_share", "value": 25.0, "unit": "%", "details": [{**each, "roof_FLOP/s": 2e9}] * 2}
    common = {
        "values": [],
        "standing": "observation",
        "verdict": "UNJUDGED",
        "target": None,
        "direction": "higher",
        "reason": "",
        "kind": "cost",
    }
    run.write_summary({**before, "metrics": [{**common, **metric} for metric in (parts, rate, share)]})
    for seed in range(2):
        run.finish_seed(seed, {}, None, wall_seconds=5.0)
    manifest = run.manifest()
    run.write_manifest({**manifest, "dtype": "float32"})
    claims = derive(run)
    (claim,) = of_type(claims, "breakdown")
    assert claim["parts"] == {"io": 2.0, "forward backward": 8.0} and claim["wall"] == 10.0
    (claim,) = of_type(claims, "rate")
    assert claim["flops"] == 5e8 and claim["bound"] == 2e9 and claim["counted_flops"] == 4e9
    write_claims(run.path)
    assert check(run.path)["R11"].status == check(run.path)["F7"].status == PASS
    run.write_summary({**before, "metrics": [{**common, **rate}]})
    write_claims(run.path)
    assert check(run.path)["R11"].status == FAIL  # a rate without a roof
    run.write_summary(before)
    run.write_manifest(manifest)
    write_claims(run.path)


# -- comparisons -------------------------------------------------------------------------------------------------------
def test_two_runs_claim_a_speedup_over_a_base_and_a_test(tmp_path):
    runs = [finished(tmp_path, scale=scale, seeds=12) for scale in (1.0, 0.5)]
    comparison = compare_runs(*(run.path for run in runs))
    base = json.loads((runs[0].path / "stats.json").read_text())["series"]["step"]["estimates"][0]
    claims = run_claims(comparison.series, {"step": [base, None]})
    (ratio,), (speedup,) = of_type(claims, "comparison"), of_type(claims, "speedup")
    assert ratio["verdict"] == "faster" and ratio["effect"][1] < 1 and ratio["p"] < 0.05
    assert speedup["value"] == pytest.approx(2, rel=0.05) and speedup["base"]["seconds"] == base["value"]
    judged = check(runs[1].path, claims)
    assert judged["R1"].status == judged["R7"].status == PASS
    assert check(runs[1].path)["R7"].status == NOT_APPLICABLE
    page = render_runs([run.path for run in runs])
    said = re.search(r'aria-label="Rules about comparisons">(.*?)</ul>', page, re.DOTALL)[1]
    assert ["R1", "R7", "R12"] == re.findall(r'<li class="pass">(R\d+) pass', said)
    unbased = [{**speedup, "base": None}, ratio]
    assert check(runs[1].path, unbased)["R1"].status == FAIL


def test_frameworks_claim_their_ratios_and_the_rules_are_beside_them(tmp_path):
    samples = {
        name: (durations(np.random.default_rng(seed), 40, scale) / 1e9).tolist()
        for seed, (name, scale) in enumerate({"a": 1.0, "b": 2.0}.items())
    }
    pair = Comparison("a", "b", Interval(0.5, 0.45, 0.55, 40), 1e-6, "faster")
    timing = Timing(samples, {"a": 1, "b": 1}, {"a": [0], "b": [0]}, Interval(1.0, 0.99, 1.01, 40), [pair])
    result = ComparisonResult(
        "job", ["a", "b"], GateResult("a", []), {"training step": timing}, facts={"a": {"threads": {"cores": 1}}}
    )
    (ratio, speedup) = framework_claims(result)
    assert ratio["effect"] == [0.45, 0.55] and speedup["value"] == 2.0
    assert speedup["base"]["text"] == "b" and speedup["base"]["seconds"] == timing.interval("b").median
    path = write(result, tmp_path, {}).path
    rules = json.loads((tmp_path / "compare-job" / path.rpartition("/")[2] / "rules.json").read_text())["rules"]
    assert list(rules) == ["R1", "R12", "R3", "R4", "R7"] and rules["R7"]["status"] == rules["R1"]["status"] == PASS
