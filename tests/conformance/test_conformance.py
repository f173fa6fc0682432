"""A sample of ONNX's suite on every installed backend, and the runner itself. The whole suite: ``make conformance``."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from deep500 import registry
from tests.conformance import gradients, ledger, page, workers
from tests.conformance.known import excuse, loosened
from tests.conformance.suite import VERDICTS, Result, node_group

# The runner forks before any framework is loaded; here, other tests may have loaded JAX, which warns of every fork.
pytestmark = [
    pytest.mark.filterwarnings("ignore:os.fork\\(\\) was called:RuntimeWarning"),
    pytest.mark.filterwarnings("ignore:.*multi-threaded, use of fork\\(\\):DeprecationWarning"),
]
ROOT = Path(__file__).parents[2]
SAMPLE = 40
"""Cases per backend."""


def _judged() -> list[str]:
    wanted = os.environ.get("DEEP500_TEST_BACKENDS", "").replace(" ", "")
    names = wanted.split(",") if wanted else list(registry.BACKENDS)
    return [name for name in names if registry.is_installed(name) and ledger.ever_passed(name)]


def test_a_sample_of_the_cases_that_once_passed_still_passes(tmp_path: Path) -> None:
    """In a process of its own: the suite keeps its cases in module variables, which other tests read as well."""
    chosen = [part for name in _judged() for part in ("--backend", name)]
    command = [sys.executable, "-m", "tests.conformance", "--sample", str(SAMPLE), "--check", "--out", str(tmp_path)]
    done = subprocess.run([*command, *chosen], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    for name in _judged():
        lines = [json.loads(line) for line in (tmp_path / f"{name}.jsonl").read_text().splitlines()]
        verdicts = [line["verdict"] for line in lines if "case" in line]
        assert len(verdicts) >= SAMPLE, name
        assert set(verdicts) == {"passed"}, name


class _Suite:
    """Stands in for the real one: its cases do what they are called."""

    def judge(self, case: str) -> Result:
        if case == "crash":
            os._exit(11)
        if case == "hang":
            time.sleep(60)
        return self.result(case, "passed", "", 0.0)

    def result(self, case: str, verdict: str, message: str, seconds: float, tolerance: float | None = None) -> Result:
        return Result(case, "node", "", verdict, message, seconds, tolerance)


@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_a_crash_and_a_hang_cost_one_case_each(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(workers, "LIMIT", 0.5)
    outcome = workers.run(_Suite(), "reference", ["a", "crash", "b", "hang", "c"], tmp_path)
    verdicts = [(r.case, r.verdict) for r in outcome.results]
    assert verdicts == [("a", "passed"), ("crash", "error"), ("b", "passed"), ("hang", "timeout"), ("c", "passed")]
    lines = (tmp_path / "reference.jsonl").read_text().splitlines()
    assert [json.loads(line).get("started") for line in lines[::2]] == ["a", "crash", "b", "hang", "c"]
    assert outcome.version.startswith("numpy 2")


@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_a_backend_that_cannot_start_is_said_at_once(tmp_path: Path) -> None:
    with pytest.raises(RuntimeError, match=r"before the first case: see .*\.log"):
        workers.run(_Suite(), "no-such-backend", ["a"], tmp_path)
    assert "MissingBackend" in (tmp_path / "no-such-backend.log").read_text()


def test_what_was_lost_and_what_is_wrong_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ledger, "FOLDER", tmp_path)
    ledger.note("jax", ["test_b", "test_a", "test_gone", "test_bernoulli"])  # the last is excused: never owed
    assert (tmp_path / "jax.txt").read_text() == "a\nb\ngone\n"
    verdicts = {"test_a": "error", "test_b": "passed", "test_c": "passed", "test_d": "wrong", "test_bernoulli": "wrong"}
    findings = ledger.examine("jax", [Result(case, "node", "", verdict) for case, verdict in verdicts.items()])
    assert [r.case for r in findings.lost] == ["test_a"]
    assert [r.case for r in findings.wrong] == ["test_d"]
    assert findings.gained == ["test_c"]
    assert not findings.ok


def test_the_lists_agree_with_the_scores_of_the_page() -> None:
    text = page.PAGE.read_text()
    for score in page.stored():
        passed = ledger.ever_passed(score.backend)
        assert score.total("passed") == len(passed), f"{score.backend}: run python -m tests.conformance --update"
        assert sum(score.total(v) for v in VERDICTS) == 2033, score.backend
        assert f"| {score.backend} | **{len(passed)}**" in text, score.backend
        assert all(excuse(score.backend, case) for case in score.wrong), score.backend


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("Conv", "rule"),
        ("LSTM", "body"),
        ("Floor", "zero"),
        ("StringConcat", "discrete"),
        ("ImageDecoder", "discrete"),
        ("Loop", "forward-only"),
        ("If", "forward-only"),
        ("DFT", "forward-only"),
    ],
)
def test_how_the_gradient_passes_an_operator(name: str, kind: str) -> None:
    assert gradients.kind(name) == kind


@pytest.mark.parametrize(
    ("case", "group"),
    [
        ("test_relu_expanded_ver18", "expanded"),
        ("test_adam_multiple", "preview"),
        ("test_relu", "node"),
        ("test_ai_onnx_ml_binarizer", "ml"),
        ("test_flexattention_scaled", "preview"),
    ],
)
def test_groups_go_by_the_names_of_cases(case: str, group: str) -> None:
    assert node_group(case) == group


def test_tolerances_are_loosened_only_where_that_is_excused() -> None:
    assert loosened("test_dft_axis") == 1e-3
    assert loosened("test_relu") is None
