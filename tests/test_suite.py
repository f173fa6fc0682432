"""The suite's own machinery: derived markers, the workshop's hash."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from deep500.operators import compile_custom_cppop
from tests import kinds, slow, workshop
from tests.distributed import conftest as with_ranks
from tests.distributed import jobs


def _starts() -> None:
    subprocess.run([sys.executable, "-c", ""], check=True)


def _by_a_helper() -> None:
    _starts()


def _by_a_helper_elsewhere() -> None:
    jobs.run(Path())


def _compiles() -> None:
    compile_custom_cppop("x", "x.cpp", [], [])


def _stays() -> None:
    len(jobs.RECIPE.name)


@pytest.mark.parametrize("function", [_starts, _by_a_helper, _by_a_helper_elsewhere, _compiles])
def test_what_starts_a_process_is_seen(function):
    assert kinds.starts_process(function)


def test_what_starts_none_is_a_unit(request):
    assert not kinds.starts_process(_stays)
    assert request.node.get_closest_marker("unit")


def test_a_fixture_counts(on_ranks_item):
    kinds.mark(on_ranks_item)
    assert on_ranks_item.added == ["process"]


@pytest.fixture
def on_ranks_item():
    """A test that takes the fixture ``on_ranks``, as pytest would present it."""
    fixture = SimpleNamespace(func=with_ranks.on_ranks.__wrapped__)
    added: list[str] = []
    return SimpleNamespace(
        path=Path("tests/distributed/test_x.py"),
        nodeid="tests/distributed/test_x.py::test_x",
        function=_stays,
        _fixtureinfo=SimpleNamespace(name2fixturedefs={"on_ranks": [fixture]}),
        added=added,
        add_marker=added.append,
        iter_markers=lambda: [SimpleNamespace(name=name) for name in added],
    )


def test_the_workshop_runs_again_when_a_source_changed(tmp_path, monkeypatch):
    source = tmp_path / "rules.py"
    source.write_text("a")
    monkeypatch.setattr(workshop, "SOURCES", [tmp_path])
    monkeypatch.setattr(workshop, "ROOT", tmp_path)
    monkeypatch.setattr(workshop, "PASSED", tmp_path.with_name("passed.txt"))
    assert workshop.reason_to_skip() is None, "nothing passed yet"
    workshop.PASSED.write_text(workshop.digest() + "\n")
    assert "passed" in workshop.reason_to_skip()
    source.write_text("b")
    assert workshop.reason_to_skip() is None


def _report(file, outcome):
    report = SimpleNamespace(when="call", nodeid=f"{file}::test_a", keywords={"workshop": 1})
    report.passed, report.failed = outcome == "passed", outcome == "failed"
    return report


@pytest.mark.parametrize(
    ("outcomes", "expression", "written"),
    [
        ({"test_a.py": "passed", "test_b.py": "passed"}, "", True),
        ({"test_a.py": "passed", "test_b.py": "failed"}, "", False),
        ({"test_a.py": "passed"}, "", False),
        ({"test_a.py": "passed", "test_b.py": "passed"}, "not slow", False),
    ],
    ids=["all", "a failure", "a file left out", "a selection"],
)
def test_the_hash_is_written_when_all_of_the_workshop_passed(outcomes, expression, written, tmp_path, monkeypatch):
    for name in ("test_a.py", "test_b.py"):
        (tmp_path / name).touch()
    for name in ("ROOT", "TESTS"):
        monkeypatch.setattr(workshop, name, tmp_path)
    monkeypatch.setattr(workshop, "SOURCES", [tmp_path])
    monkeypatch.setattr(workshop, "PASSED", tmp_path / "passed.txt")
    plugin = workshop.Outcomes()
    for file, outcome in outcomes.items():
        plugin.pytest_runtest_logreport(_report(file, outcome))
    chosen = SimpleNamespace(keyword="", markexpr=expression)
    plugin.pytest_sessionfinish(SimpleNamespace(config=SimpleNamespace(option=chosen)))
    assert workshop.PASSED.is_file() == written


def _row(name, ranks, backend="reference", *, mpi=False):
    item = SimpleNamespace(
        path=Path("tests/distributed/test_x.py"),
        originalname=name,
        callspec=SimpleNamespace(params={"ranks": ranks, "backend": backend}),
        get_closest_marker=lambda marker: mpi or None,
    )
    item.said = (name, ranks, backend)
    return item


def test_tables_of_ranks_are_thinned_out():
    table = [_row("all", ranks, backend) for ranks in (1, 2, 3, 4, 5) for backend in ("reference", "jax")]
    table += [_row("real", ranks, mpi=True) for ranks in (2, 3)]
    table += [_row("even", ranks, "jax") for ranks in (2, 4)]
    left = {item.said for item in table} - {item.said for item in kinds.crossed_too_often(table)}
    assert left == {
        *[("all", ranks, "reference") for ranks in (1, 2, 3, 5)],
        ("all", 3, "jax"),
        ("real", 3, "reference"),
        ("even", 2, "jax"),
        ("even", 4, "jax"),
    }


def _dear(test, row):
    item = SimpleNamespace(path=Path("tests/test_x.py"), originalname=test, nodeid=f"tests/test_x.py::{test}[{row}]")
    item.callspec = SimpleNamespace(params={"row": row})
    return item


def test_dear_rows_of_a_table_repeat_and_its_cheapest_row_stays(monkeypatch):
    took = {"a": {"x": 9.0, "y": 0.5, "z": 3.0}, "b": {"x": 9.0, "y": 8.0}, "c": {"x": 30.0}}
    seconds = {f"tests/test_x.py::{test}[{row}]": value for test, rows in took.items() for row, value in rows.items()}
    monkeypatch.setattr(kinds, "_seconds", lambda: seconds)
    table = [_dear(test, row) for test, rows in took.items() for row in rows]
    single = SimpleNamespace(path=Path("tests/test_x.py"), originalname="d", nodeid="tests/test_x.py::d")
    dear = {item.nodeid.partition("::")[2] for item in kinds.dear_rows([*table, single])}
    assert dear == {"a[x]", "a[z]", "b[x]"}


# -- slow tests -------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize(("files", "written"), [([], True), (["tests/a.py"], False)])
def test_slow_tests_are_written_after_a_whole_run(files, written, tmp_path, monkeypatch):
    monkeypatch.setattr(slow, "FILE", tmp_path / "slow_tests.txt")
    assert slow.seconds() == {}
    writer = slow.Writer()
    for name, seconds in {"tests/a.py::test_b[1 2]": 1.26, "tests/a.py::test_c": 0.1}.items():
        writer.pytest_runtest_logreport(
            SimpleNamespace(nodeid=name, user_properties=[("processor seconds", seconds), ("other", 3)])
        )
    option = SimpleNamespace(keyword="", markexpr="", file_or_dir=files)
    writer.pytest_sessionfinish(SimpleNamespace(config=SimpleNamespace(option=option)))
    assert slow.seconds() == ({"tests/a.py::test_b[1 2]": 1.3} if written else {})


def test_a_slow_test_is_no_unit(on_ranks_item, monkeypatch):
    monkeypatch.setattr(kinds, "_seconds", lambda: {on_ranks_item.nodeid: 1.0})
    on_ranks_item._fixtureinfo.name2fixturedefs.clear()
    kinds.mark(on_ranks_item)
    assert on_ranks_item.added == ["slow"]
