"""A sample of ONNX's suite on every installed backend, and the runner itself. The whole suite: ``make conformance``."""

from __future__ import annotations

import importlib
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from deep500 import registry
from deep500.compare.conformance import workers
from deep500.compare.conformance.suite import VERDICTS, Result, loosened, node_group
from deep500.errors import ComparisonError
from deep500.networks import Network
from tests import kinds
from tests.conformance import gradients, ledger, page, ways
from tests.conformance.known import excuse
from tests.conftest import load_backend

# The runner forks before any framework is loaded; here, other tests may have loaded JAX, which warns of every fork.
pytestmark = [
    pytest.mark.filterwarnings("ignore:os.fork\\(\\) was called:RuntimeWarning"),
    pytest.mark.filterwarnings("ignore:.*multi-threaded, use of fork\\(\\):DeprecationWarning"),
]
ROOT = Path(__file__).parents[2]
SAMPLE = 20
"""Cases per backend."""


def _judged() -> list[str]:
    wanted = os.environ.get("DEEP500_TEST_BACKENDS", "").replace(" ", "")
    names = wanted.split(",") if wanted else list(registry.BACKENDS)
    return [name for name in names if registry.is_installed(name) and ledger.failing(name)]


@pytest.mark.slow
def test_a_sample_of_the_cases_that_must_pass_passes(tmp_path: Path) -> None:
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

    recorder = None

    def judge(self, case: str) -> Result:
        if case == "crash":
            os._exit(11)
        if case == "hang":
            time.sleep(600)
        return self.result(case, "passed", "", 0.0)

    def result(self, case: str, verdict: str, message: str, seconds: float, tolerance: float | None = None) -> Result:
        return Result(case, "node", "", verdict, message, seconds, tolerance)


@pytest.mark.parametrize("jobs", [1, 2])
@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_a_crash_and_a_hang_cost_one_case_each(jobs: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(workers, "LIMIT", 3.0)
    monkeypatch.setattr(workers, "SHARE", 3)
    outcomes = workers.run(_Suite(), {"reference": ["a", "crash", "b", "hang", "c"]}, tmp_path, jobs)
    verdicts = [(r.case, r.verdict) for r in outcomes["reference"].results]
    assert verdicts == [("a", "passed"), ("crash", "error"), ("b", "passed"), ("hang", "timeout"), ("c", "passed")]
    lines = [json.loads(line) for line in (tmp_path / "reference.jsonl").read_text().splitlines()]
    assert sorted(line["started"] for line in lines if "started" in line) == ["a", "b", "c", "crash", "hang"]
    assert outcomes["reference"].version.startswith("numpy 2")


@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_a_backend_that_cannot_start_is_said_at_once(tmp_path: Path) -> None:
    with pytest.raises(ComparisonError, match=r"before the first case: see .*\.log"):
        workers.run(_Suite(), {"no-such-backend": ["a"]}, tmp_path)
    assert "UnknownBackend" in (tmp_path / "no-such-backend.log").read_text()


def _results(**verdicts: str) -> list[Result]:
    return [Result(f"test_{case}", "node", "", verdict, "message") for case, verdict in verdicts.items()]


def test_what_was_lost_and_what_is_wrong_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ledger, "FOLDER", tmp_path)
    ledger.note("jax", _results(b="error", d="wrong", e="error", bernoulli="wrong", a="passed"))
    assert set(ledger.failing("jax")) == {"test_b", "test_d", "test_e", "test_bernoulli"}
    assert ledger.failing("jax")["test_b"] == ("error", "message")
    findings = ledger.examine("jax", _results(a="error", b="passed", c="wrong", d="wrong", bernoulli="passed"))
    assert [r.case for r in findings.lost] == ["test_a", "test_c"]
    assert [r.case for r in findings.wrong] == ["test_d"], "listed, but without a reason in known.py"
    assert findings.gained == ["test_b"], "what chance decides is never owed"
    assert not findings.ok
    ledger.note("jax", _results(b="passed", bernoulli="passed"))
    assert set(ledger.failing("jax")) == {"test_d", "test_e", "test_bernoulli"}


@pytest.mark.parametrize(
    ("message", "reason"),
    [
        ("got 1 node(s) that backend 'jax' cannot run: 'y' (Cast of uint4); expected", "Cast of uint4"),
        ("cannot run: 'a' (Pow: no kernel for Pow(15) node with name ''); 'b' (ai.onnx.ml.X); ", "Pow, ai.onnx.ml.X"),
    ],
)
def test_the_reason_of_a_refusal_is_the_operators(message: str, reason: str) -> None:
    assert ledger.why("jax", Result("test_a", "node", "", "unsupported", message)) == reason


def test_the_lists_agree_with_the_scores_of_the_page() -> None:
    text = page.PAGE.read_text()
    for score in page.stored():
        listed, passed = ledger.failing(score.backend), score.total("passed")
        by_chance = sum(excuse(score.backend, case) is not None for case in listed)  # these stay listed when they pass
        fewest = 2033 - len(listed)
        assert fewest <= passed <= fewest + by_chance, f"{score.backend}: run python -m tests.conformance --update"
        assert sum(score.total(v) for v in VERDICTS) == 2033, score.backend
        assert sum(sum(cases.values()) for cases in score.ways.values()) == passed
        assert f"| {score.backend} | **{passed}**" in text, score.backend
        assert all(excuse(score.backend, case) for case in score.wrong), score.backend


# -- where passes come from -------------------------------------------------------------------------------------------
def _network(op_type: str) -> Network:
    net = Network("one node")
    net.add_input("x", (3, 3, 1, 1), "float32")
    net.add_node(op_type, ["x"], ["y"])
    net.add_output("y")
    return net


WAYS = [  # backend, operator, how it is executed there
    ("reference", "Relu", "own"),
    ("reference", "Det", "evaluator"),
    ("pytorch", "Relu", "own"),
    ("pytorch", "MeanVarianceNormalization", "body"),
    ("pytorch", "Unique", "host"),
    ("jax", "Unique", "host"),
    ("tensorflow", "Unique", "host"),
    ("onnxruntime", "Relu", "own"),
]


@pytest.mark.parametrize(("backend", "operator", "way"), WAYS)
def test_how_a_case_was_executed_is_seen(
    backend: str, operator: str, way: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    module = load_backend(backend)
    monkeypatch.setattr(ways, "_watch", _undone(monkeypatch))
    recorder = ways.Recorder(backend)
    recorder.start()
    module.Executor(_network(operator)).inference({"x": np.ones((3, 3, 1, 1), "float32")})
    assert recorder.way() == way


def _undone(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """``ways._watch``, until the test is over."""
    watch = ways._watch

    def watched(module: str, name: str, listener: Callable[[object], None]) -> None:
        owner = importlib.import_module(module)
        monkeypatch.setattr(owner, name, getattr(owner, name))
        watch(module, name, listener)

    return watched


@pytest.mark.parametrize(("backend", "to_numpy"), [("pytorch", "to_array"), ("tensorflow", "value_of")])
def test_no_other_operator_computes_on_the_host(backend: str, to_numpy: str) -> None:
    load_backend(backend)
    table = importlib.import_module(f"deep500.frameworks.{backend}.operators").OPS
    on_host = {name for (_, name), entry in table.items() if _takes(entry.function, to_numpy)}
    assert on_host - {"Pad"} == ways.HOST[backend]  # Pad asks for a size


def _takes(function: object, name: str) -> bool:
    """Whether a function, or one of its module's that it calls, names another."""
    seen: set[object] = set()
    todo = [function]
    while todo:
        current = todo.pop()
        code = getattr(current, "__code__", None)
        if code is None or current in seen:
            continue
        seen.add(current)
        names = set(kinds.names_of(code))
        if name in names:
            return True
        inner = [vars(sys.modules[current.__module__]).get(other) for other in names]
        todo += [other for other in inner if getattr(other, "__module__", "") == current.__module__]
    return False


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("Conv", "rule"),
        ("LSTM", "body"),
        ("Floor", "zero"),
        ("StringConcat", "discrete"),
        ("ImageDecoder", "discrete"),
        ("Loop", "rule"),
        ("If", "rule"),
        ("DFT", "rule"),
        ("STFT", "forward-only"),
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
