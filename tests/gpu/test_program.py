"""``python -m tests.gpu --fake``: cases run where there is no card, so that they are right when there is one."""

from __future__ import annotations

import pytest

pytest.importorskip("torch")
pytest.importorskip("yaml")

from tests.gpu import runs
from tests.gpu.__main__ import main

QUICK = {"zoo mlp pytorch", "zoo attention_block pytorch", "optimizer AdamOptimizer", "optimizer AdaGradOptimizer"}
FAKE = [
    pytest.param(name, marks=[] if name in QUICK else [pytest.mark.long])
    for name, case in runs.CASES.items()
    if case.fake
]


@pytest.mark.parametrize("name", FAKE)
def test_cases_pass_on_the_stand_in(name: str) -> None:
    assert runs.run(name, fake=True)


def test_the_table_says_what_did_not_run_and_why(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["1", "--fake", "--only", "driver"]) == 0
    assert "| 1 | driver | not run | needs a card |" in capsys.readouterr().out


def test_a_case_that_fails_is_counted(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setitem(runs.CASES, "no such case", runs.Case(3, lambda fake: {}, True))
    assert main(["3", "--fake", "--only", "no such"]) == 1  # its process knows no such case
    assert "failed" in capsys.readouterr().out
