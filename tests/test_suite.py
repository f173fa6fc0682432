"""The suite's own machinery: derived markers, the share of a commit, the workshop's hash."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from deep500.operators import compile_custom_cppop
from tests import kinds, share, workshop
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


def _single(name, marked=None):
    """A test without rows."""
    place = {"path": Path("tests/test_x.py"), "originalname": name, "nodeid": f"tests/test_x.py::{name}"}
    return SimpleNamespace(**place, get_closest_marker={"slow": marked}.get)


def _rows(test, *rows, marked=None):
    """Rows of a table of tests as pytest collects them; those with a backend are (backend, row)."""
    return [
        SimpleNamespace(
            path=Path("tests/test_x.py"),
            originalname=test,
            nodeid=f"tests/test_x.py::{test}[{row}]",
            callspec=SimpleNamespace(
                params={"backend": row[0], "row": row[1]} if isinstance(row, tuple) else {"row": row}
            ),
            get_closest_marker={"any_backend": marked}.get,
        )
        for row in rows
    ]


def test_every_row_runs_in_some_commit_and_every_table_in_each():
    tables = [
        _rows("a", *range(30)),
        _rows("b", 0),
        _rows("c", *((name, i) for name in share.BACKENDS for i in range(4))),
    ]
    tables.append(_rows("e", *((name, i) for name in share.BACKENDS for i in range(8)), marked=True))
    single, dear = [_single("d")], [_single(f"dear{i}", marked=True) for i in range(40)]
    items, ran, backends = [item for table in (*tables, single, dear) for item in table], set(), []
    for commit in map(str, range(100)):
        left = {item.nodeid for item in share.left_out(items, commit)}
        now = {item.nodeid for item in items} - left
        assert single[0].nodeid in now and tables[1][0].nodeid in now
        for name in share.BACKENDS:
            assert any(f"c[('{name}'" in nodeid for nodeid in now)
        assert 0 < sum("::a[" in nodeid for nodeid in now) < 30 and 0 < sum("::dear" in nodeid for nodeid in now) < 30
        backends.append(sum(any(f"e[('{name}'" in nodeid for nodeid in now) for name in share.BACKENDS))
        ran |= now
    assert ran == {item.nodeid for item in items}
    assert min(backends) < len(share.BACKENDS)


@pytest.mark.parametrize("count", [1, 100, 300, 501])
def test_every_number_runs_in_some_commit_and_few_in_each(count):
    pieces = [share.numbers(count, str(commit)) for commit in range(100)]
    assert {number for piece in pieces for number in piece} == set(range(count))
    assert max(map(len, pieces)) == -(-count // share.ONE_IN)
