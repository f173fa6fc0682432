"""The program of the acceptance figures: all eighteen are there, and those that need no time run."""

from __future__ import annotations

import pytest

from tests.benchmarks.measuring import __main__ as program
from tests.benchmarks.measuring.outcome import FIGURES, Figure, Options, Outcome


def test_there_are_eighteen():
    assert sorted(FIGURES) == list(range(1, 19))
    assert all(figure.what and figure.bar for figure in FIGURES.values())


@pytest.mark.parametrize("number", [4, 5, 6, 11])
def test_a_few_trials(number):
    figure = FIGURES[number].measure(Options(trials=4))
    assert figure.measured != "nothing" and figure.met is not None


def test_lines_and_the_exit_code(capsys, monkeypatch):
    outcomes = {1: Outcome("3 of 3", True), 2: Outcome("1 of 3", False), 3: Outcome("nothing", None, "no GPU")}

    def fail(options):
        raise RuntimeError("broken\nsecond line")

    for number, outcome in outcomes.items():
        monkeypatch.setitem(FIGURES, number, Figure(number, "what", "bar", lambda options, o=outcome: o))
    monkeypatch.setitem(FIGURES, 4, Figure(4, "what", "bar", fail))
    monkeypatch.setattr("sys.argv", ["measuring", "--only", "1", "3"])
    assert program.main() == 0
    monkeypatch.setattr("sys.argv", ["measuring", "--only", "1", "2", "4"])
    assert program.main() == 1
    printed = capsys.readouterr().out.splitlines()
    lines = [line for line in printed if not line.startswith("figure: ")]
    figures = [line.rpartition(" | ")[2] for line in printed if line.startswith("figure: ")]
    assert figures == ["met", "not measured", "met", "MISSED", "MISSED"], "for make figures"
    assert [line.partition(" | bar: bar | ")[2].partition(" [")[0] for line in lines] == [
        "met",
        "not measured (no GPU)",
        "met",
        "missed",
        "missed (RuntimeError: broken)",
    ]
