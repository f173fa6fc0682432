"""Questions in SQL over runs: answered if they read, refused in one line if they would do more, ended if long."""

from __future__ import annotations

import time

import pytest

from deep500.errors import InputError
from deep500.results import query as module
from deep500.results.query import query
from tests.results.report_cases import finished


@pytest.fixture(scope="module")
def base(tmp_path_factory):
    """A folder with two runs."""
    folder = tmp_path_factory.mktemp("base")
    for name in ("a", "b"):
        finished(folder, recipe=name, samples=60, seeds=2)
    return folder


def test_what_reads_is_answered(base):
    columns, rows = query(base, "SELECT recipe, count(*) AS n FROM runs GROUP BY recipe ORDER BY recipe DESC")
    assert columns == ["recipe", "n"] and rows == [("b", 1), ("a", 1)]
    _, rows = query(base, "SELECT r.recipe, max(m.value) FROM runs r JOIN metrics m USING (path) GROUP BY 1 ORDER BY 1")
    assert [name for name, _ in rows] == ["a", "b"] and all(value > 90 for _, value in rows)
    ten = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 10) SELECT sum(i) FROM n"
    assert query(base, ten)[1] == [(55,)]
    assert query(base, "SELECT printf('%.2f', round(2.345, 1)) || upper('x'), quantile FROM (SELECT 1 AS quantile)")[1]


# fmt: off
REFUSED = [
    "ATTACH DATABASE '{made}' AS other", "VACUUM INTO '{made}'", "DROP TABLE runs", "CREATE TABLE t (a)",
    "CREATE TEMP TABLE t (a)", "INSERT INTO runs (path) VALUES ('x')", "DELETE FROM runs", "UPDATE runs SET path = ''",
    "PRAGMA user_version = 3", "PRAGMA journal_mode", "BEGIN", "SELECT load_extension('{made}')", "SELECT 1; SELECT 2",
    "SELECT", "", "-- nothing", "SELECT * FROM nothing", "DETACH main", "REINDEX", "SELECT zeroblob(2000000000)",
    "CREATE TRIGGER t AFTER INSERT ON runs BEGIN SELECT 1; END", "SELECT '\x00",
]
# fmt: on


@pytest.mark.parametrize("sql", REFUSED)
def test_what_does_more_is_refused_and_makes_no_file(base, sql, tmp_path):
    with pytest.raises(InputError, match="expected a SELECT"):
        query(base, sql.replace("{made}", str(tmp_path / "made")))
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("what", ["count(*)", "i", "max(printf('%.*c', 1000000, 'x'))"])
def test_a_question_without_end_is_ended(base, what, monkeypatch):
    monkeypatch.setattr(module, "MOST_STEPS", 1_000_000)
    monkeypatch.setattr(module, "MOST_SECONDS", 3)
    monkeypatch.setattr(module, "MOST_ROWS", 10_000_000)
    begin = time.process_time()
    with pytest.raises(InputError, match="ended after 1000000 steps or 3 s"):
        query(base, f"WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) SELECT {what} FROM n")
    assert time.process_time() - begin < 30


def test_an_answer_of_too_many_rows_is_refused(base, monkeypatch):
    monkeypatch.setattr(module, "MOST_ROWS", 3)
    assert len(query(base, "SELECT * FROM curve LIMIT 3")[1]) == 3
    with pytest.raises(InputError, match=r"more than 3 rows; expected .* LIMIT 3"):
        query(base, "SELECT * FROM curve")


def test_runs_have_a_name_tags_and_their_configuration(tmp_path):
    kwargs = {"lr": 0.05, "momentum": 0.9}
    settings = {"optimizer": "a.b:SGD", "optimizer_kwargs": kwargs, "freeze": ["w"], "environment": "CartPole"}
    finished(tmp_path, samples=20, seeds=1, resolved={"recipe": settings}, name="base", tags=["old", "slow"])
    finished(tmp_path, samples=20, seeds=1)
    asked = "name, tags, optimizer, optimizer_kwargs_lr, freeze_0, environment FROM runs"
    assert query(tmp_path, f"SELECT {asked} WHERE tags LIKE '%slow%'")[1] == [
        ("base", "old slow", "SGD", 0.05, "w", None)
    ]
    assert query(tmp_path, "SELECT count(*) FROM runs WHERE name IS NULL AND optimizer IS NULL")[1] == [(1,)]
