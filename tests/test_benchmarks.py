"""The benchmark programs: all are listed with what they print, the page is theirs, ratios are judged by their bars."""

from __future__ import annotations

import ast
import contextlib
import io
import re

import pytest

from deep500.measure.statistics import Interval
from tests.benchmarks import __main__ as listing
from tests.benchmarks import catalog, filling, turns

NAMES = [program.name for program in catalog.programs()]
SHARED = {"__init__", "__main__", "catalog", "filling", "turns"}
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


SAYING = {"say", "say_ratio", "Comparison"}
"""Functions that print a figure."""


def unsaid(sources, figures):
    """Figures of a program that no call in its sources says.

    Their names are unpacked once, ``A, B = FIGURES``. One is said where its name is an argument of a call of
    :data:`SAYING`, or what a loop over such names, or over FIGURES, calls it within that loop.
    """
    nodes = [node for source in sources for node in ast.walk(ast.parse(source))]
    named, said = {}, set().union(*map(given, nodes))
    for node in nodes:
        if isinstance(node, ast.Assign) and getattr(node.value, "id", "") == "FIGURES":
            named |= dict(zip((name.id for name in node.targets[0].elts), figures, strict=True))
        if isinstance(node, ast.For) and names_in(node.target) & set().union(*map(given, ast.walk(node))):
            said |= names_in(node.iter)
    return [] if "FIGURES" in said else sorted(set(figures) - {named.get(name) for name in said})


def given(node):
    """Names within what a call says: the first argument, of a Comparison any."""
    name = getattr(node.func, "id", getattr(node.func, "attr", "")) if isinstance(node, ast.Call) else ""
    values = [*node.args, *(keyword.value for keyword in node.keywords)] if name in SAYING else []
    return set().union(*map(names_in, values if name == "Comparison" else values[:1]))


def names_in(node):
    return {name.id for name in ast.walk(node) if isinstance(name, ast.Name)}


@pytest.mark.parametrize("program", catalog.programs(), ids=NAMES)
def test_every_figure_is_said_by_its_program(program):
    path = catalog.FOLDER / program.name
    files = path.glob("*.py") if path.is_dir() else [path.with_suffix(".py")]
    assert unsaid([file.read_text(encoding="utf-8") for file in files], program.figures) == []


@pytest.mark.parametrize(
    ("source", "missing"),
    [
        ("A, B = FIGURES\nsay(A, '1')\nprint(B)", ["b"]),
        ("A, B = FIGURES\nsay_ratio(A, x)\nyield_(Comparison('x', f, 1, B))", []),
        ("A, B = FIGURES\nfor figure, bar in ((A, 1), (B, 2)):\n    say(figure, '', bar)", []),
        ("for figure, case in zip(FIGURES, cases):\n    say(figure, case)", []),
        ("for n, figure in FIGURES.items():\n    say(figure.name, '')", []),
        ("for figure in FIGURES:\n    print(figure)", ["a", "b"]),
        ("say('a', '1')\nsay_not(B, 'why')", ["a", "b"]),
    ],
)
def test_a_figure_that_nobody_says_is_noticed(source, missing):
    assert unsaid([source], {"a": "", "b": ""}) == missing


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
def test_a_ratio_is_judged_by_its_bar(factor, met, word, capsys, monkeypatch):
    base = [(1.0 + 0.001 * n, 1.0) for n in range(20)]
    times = {"native": base, "native again": base, "deep500": [(factor * cpu, wall) for cpu, wall in base]}
    monkeypatch.setattr(turns, "measure", lambda variants, rounds, calls: times)
    compared = [turns.Comparison("work", dict, 1, "speed", bar=1.1), turns.Comparison("other", dict, 1)]
    assert turns.say_all(compared, 9) is met
    out = capsys.readouterr().out
    assert out.count("figure: ") == 1 and re.search(
        rf"^figure: speed = work: {factor:g}.* \| {word}$", out, re.MULTILINE
    )
    assert out.count("/ native") == 8


def test_the_sound_end_of_an_interval_decides(capsys):
    known, unknown = Interval(1.0, 0.9, 1.2, 9), Interval(1.0, None, None, 3)
    assert filling.say_ratio("a", {"x": known, "y": known}, at_most=1.2)
    assert not filling.say_ratio("b", known, at_most=1.1) and not filling.say_ratio("c", known, at_least=0.95)
    assert not filling.say_ratio("d", unknown, at_most=1.1) and filling.say_ratio("e", unknown)
    assert not filling.say_ratio("f", {f"{n}": float(n) for n in range(5)}, at_most=3, unit="ms")
    assert not filling.say_ratio("g", {}, at_most=3)
    assert [line.removeprefix("figure: ") for line in capsys.readouterr().out.splitlines()] == [
        "a = x: 1 [0.9, 1.2]; y: 1 [0.9, 1.2]; n 9 | met",
        "b = 1 [0.9, 1.2]; n 9 | MISSED",
        "c = 1 [0.9, 1.2]; n 9 | MISSED",
        "d = 1 (no interval); n 3 | MISSED",
        "e = 1 (no interval); n 3 | no bar",
        "f = 0 (0) to 4 (4) ms, 5 in all, bar missed by 4 | MISSED",
        "g = nothing | MISSED",
    ]
    assert turns.geometric_mean([known, Interval(4.0, 3.6, 4.8, 9)]) == Interval(
        2.0, pytest.approx(1.8), pytest.approx(2.4), 2
    )
    assert turns.geometric_mean([known, unknown]) == Interval(1.0, None, None, 2)


def test_variants_take_turns():
    calls = []
    times = turns.measure(
        {"a": lambda: calls.append("a"), "b": lambda: calls.append("b")}, rounds=4, calls=2, warm_up=1
    )
    assert calls[:2] == ["a", "b"] and sorted(calls[2:6]) == ["a", "a", "b", "b"]
    assert {name: len(pairs) for name, pairs in times.items()} == {"a": 4, "b": 4}


@pytest.fixture
def filled(tmp_path, monkeypatch):
    """``fill`` for one program of four figures that says three and fails; returns its runs so far."""
    figures = {"speed": ">= 2", "share": "at most 1", "energy": "no bar", "read": "no bar"}
    program = catalog.Program("fake", "A fake.", figures)
    monkeypatch.setattr(catalog, "programs", lambda: [program])
    for name, file in (("RECORDED", "recorded.json"), ("PAGE", "figures.md")):
        monkeypatch.setattr(catalog, name, tmp_path / file)
    monkeypatch.setattr(filling, "LOGS", tmp_path / "logs")
    monkeypatch.setattr(filling, "commit_here", lambda: "abc")
    catalog.RECORDED.write_text("{}")
    runs = []

    def run(name):
        runs.append(name)
        with contextlib.redirect_stdout(io.StringIO()) as out:
            filling.say("speed", "3.0 [2.9, 3.1]", True)
            filling.say("share", "1.5 = too |\n much", False)
            filling.say_not("energy", "no counter here")
        return 1, f"a line\n{out.getvalue()}last words\n"

    monkeypatch.setattr(filling, "_run", run)
    return runs


def test_figures_are_filled_in_and_not_measured_twice(filled):
    assert filling.fill([], busy=True, report=lambda text: None) == 1
    page, known = catalog.PAGE.read_text(), catalog.recorded()["fake"]
    assert known["speed"]["met"] is True and known["speed"]["commit"] == "abc" and known["speed"]["machine"]
    assert "3.0 [2.9, 3.1] (2" in page and "**missed**: 1.5 = too / much (2" in page
    assert "not measured: the program ended with 1: last words" in page and "not measured: no counter here" in page
    assert filling.fill([], busy=True) == 0 and filling.fill(["other"], again=True, busy=True) == 0
    assert len(filled) == 1
    assert filling.fill(["fake"], again=True, busy=True) == 1 and len(filled) == 2


def test_nothing_is_measured_while_others_work(filled, monkeypatch):
    monkeypatch.setattr(filling, "LOOK", 0.0)
    monkeypatch.setattr(filling, "disturbances", lambda load: ["other processes took 44 % of its 2 processors"])
    said = []
    assert filling.fill([], report=said.append) == 3 and not filled
    assert "other processes took 44 %" in said[0]


def test_what_nobody_measured_is_listed(filled):
    catalog.record("fake", "speed", {"text": "3", "date": "2020-01-01"})
    catalog.record("fake", "share", {"text": "1 (2099-01-01)"})
    assert [line.split(":")[1].strip() for line in catalog.stale(30)] == ["speed", "energy", "read"]
