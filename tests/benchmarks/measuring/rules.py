"""Figures 15 and 18: rules that tests hold one by one are counted here."""

from __future__ import annotations

from tests.benchmarks.measuring.outcome import Options, Outcome, figure
from tests.benchmarks.measuring.suites import ROOT, run_tests

RULES = "tests/results/test_rules.py"
COLUMNS = "tests/metrics/test_columns.py"


@figure(15, "rules R1-R12, F1-F12, D1-D3 over 27 bad and 27 good folders", "27 of 27 flagged, 0 of 27 false")
def rules(options: Options) -> Outcome:
    """A bad folder counts if its own rule flags it and no other does; a good one if no rule does."""
    bad = run_tests(RULES, "-k", "breaks_a_rule_is_flagged")
    good = run_tests(RULES, "-k", "keeps_a_rule_raises_no_alarm")
    text = f"{bad.passed} of {bad.total} flagged, {len(good.failed)} of {good.total} false"
    return Outcome(text, bad.passed == bad.total == 27 and good.passed == good.total == 27, bad.why or good.why)


@figure(18, "columns of the Deep500 table", "24 of 24, each with a test that fails when it is stubbed")
def columns(options: Options) -> Outcome:
    """A column counts if its check passes, and fails for every stub."""
    if not (ROOT / COLUMNS).is_file():
        return Outcome("nothing", None, f"{COLUMNS} does not exist yet")
    filled, stubs = run_tests(COLUMNS, "-k", "column_is_filled"), run_tests(COLUMNS, "-k", "stub_is_noticed")
    text = f"{filled.passed} of {filled.total} filled, {stubs.passed} of {stubs.total} stubs noticed"
    return Outcome(text, filled.passed == 24 and filled.all_passed and stubs.all_passed, filled.why or stubs.why)
