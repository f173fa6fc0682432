"""The end of a run on the terminal says in short what its report says."""

from __future__ import annotations

import argparse
import json

from deep500.metrics import TestAccuracy
from deep500.recipe.console import Console, metric_table, rules_lines
from deep500.results import Circumstances, RecipeResult, judge
from tests.results.report_cases import finished


def judged(values):
    return judge(TestAccuracy(), 93.0, values, Circumstances())


def test_it_ends_with_verdict_results_rules_and_the_reports_path(tmp_path, capsys):
    record = finished(tmp_path, samples=200, seeds=6, labels=["open division"])
    metrics = [judged([93.0 + 0.1 * seed for seed in range(6)])]
    result = RecipeResult("PASSED", metrics, str(record.path), str(record.path / "report.html"), ("open division",))
    Console(argparse.Namespace(quiet=False, json=False)).verdict(result, record.summary())
    lines = capsys.readouterr().out.splitlines()
    assert lines[-1] == f"report:  {record.path / 'report.html'}" and lines[-2] == "verdict: PASSED [open division]"
    rules = json.loads((record.path / "rules.json").read_text())["rules"]
    (said,) = [line for line in lines if line.startswith("rules:")]
    assert said.startswith(f"rules:   {sum(r['status'] == 'pass' for r in rules.values())} hold, 1 broken (R9), ")
    assert f"  R9: {rules['R9']['reason']}; to do: {rules['R9']['fix']}" in lines
    (time,) = [line for line in lines if line.startswith("step median")]
    assert "99 % CI within 6 launches, n 1055, n_eff" in time and time.endswith("[open division]")
    assert "93.25 % [93, 93.5], 95 % CI of the median of 6 [open division]" in "\n".join(lines)


def test_quiet_leaves_metrics_and_verdict(tmp_path, capsys):
    record = finished(tmp_path, samples=40, seeds=2)
    result = RecipeResult("PASSED", [judged([93.0, 94.0])], str(record.path), str(record.path / "report.html"))
    Console(argparse.Namespace(quiet=True, json=False)).verdict(result, record.summary())
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in lines] == ["metric", "test_accuracy", "verdict:"]


def test_few_seeds_have_a_spread_and_no_interval():
    (_, line) = metric_table([judged([93.0, 94.0])], ())
    assert "93.5 % (observation: median of 2, 93 to 94)" in line and "CI" not in line


def test_without_rules_nothing_is_said_of_them(tmp_path):
    assert rules_lines(tmp_path) == []
