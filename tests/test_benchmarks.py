"""The benchmark programs: all are listed with what they print, the page is theirs, ratios are judged by their bars."""

from __future__ import annotations

import ast

import pytest

from tests.benchmarks import __main__ as listing
from tests.benchmarks import catalog, turns

NAMES = [program.name for program in catalog.programs()]
SHARED = {"__init__", "__main__", "catalog", "turns"}
"""Files beside the programs."""


def test_every_program_says_what_it_prints():
    files = {path.stem for path in catalog.FOLDER.glob("*.py")} - SHARED
    assert set(NAMES) == files | {path.parent.name for path in catalog.FOLDER.glob("*/__init__.py")}
    assert all(program.summary and all(program.figures.values()) for program in catalog.programs())
    measuring = {program.name: program for program in catalog.programs()}["measuring"]
    assert len(measuring.figures) == 18, "of its decorators"


def test_the_page_is_the_programs_own():
    assert catalog.PAGE.read_text(encoding="utf-8") == catalog.page(), "python -m tests.benchmarks --table"


def test_recorded_figures_are_printed_by_a_program():
    known = {program.name: program.figures for program in catalog.programs()}
    for program, figures in catalog.recorded().items():
        assert set(figures) <= set(known[program]), program


@pytest.mark.parametrize("name", NAMES)
def test_every_program_can_be_started(name):
    path = catalog.FOLDER / name
    path = path / "__main__.py" if path.is_dir() else path.with_suffix(".py")
    last = ast.parse(path.read_text()).body[-1]
    assert isinstance(last, ast.If) and ast.unparse(last.test) == "__name__ == '__main__'"


def test_a_figure_is_kept(tmp_path, monkeypatch):
    monkeypatch.setattr(catalog, "RECORDED", tmp_path / "recorded.json")
    monkeypatch.setattr(catalog, "PAGE", tmp_path / "figures.md")
    catalog.RECORDED.write_text("{}")
    figure = next(iter(catalog.programs()[0].figures))
    monkeypatch.setattr("sys.argv", ["benchmarks", "--record", NAMES[0], figure, "9.5 ms, 2026-11-22"])
    assert listing.main() == 0
    assert f"{figure} | " in catalog.PAGE.read_text() and "9.5 ms, 2026-11-22" in catalog.PAGE.read_text()
    with pytest.raises(KeyError):
        catalog.record(NAMES[0], "no such figure", "1")


def test_all_are_listed(capsys, monkeypatch):
    monkeypatch.setattr("sys.argv", ["benchmarks"])
    assert listing.main() == 0
    out = capsys.readouterr().out
    assert all(f"python -m tests.benchmarks.{name}\n" in out for name in NAMES)


@pytest.mark.parametrize(("factor", "met", "word"), [(1.5, False, "MISSED"), (1.0, True, "met")])
def test_a_ratio_is_judged_by_its_bar(factor, met, word, capsys):
    base = [(1.0 + 0.001 * n, 1.0) for n in range(20)]
    times = {"native": base, "native again": base, "deep500": [(factor * cpu, wall) for cpu, wall in base]}
    assert turns.report(turns.Comparison("work", dict, 1, bar=1.1), times) is met
    out = capsys.readouterr().out
    assert out.count("bar 1.1") == 1 and word in out and out.count("/ native") == 4


def test_variants_take_turns():
    calls = []
    times = turns.measure(
        {"a": lambda: calls.append("a"), "b": lambda: calls.append("b")}, rounds=4, calls=2, warm_up=1
    )
    assert calls[:2] == ["a", "b"] and sorted(calls[2:6]) == ["a", "a", "b", "b"]
    assert {name: len(pairs) for name, pairs in times.items()} == {"a": 4, "b": 4}
