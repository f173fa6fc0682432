"""The experiments' tables: their figures are those of what ran, and what was not measured says so."""

from __future__ import annotations

import pytest

from deep500.transformations.workshop.substitutions import experiments
from deep500.transformations.workshop.substitutions.exhaustive import Exhausted
from deep500.transformations.workshop.substitutions.validation import Failure


def test_columns_have_one_width() -> None:
    lines = experiments.table(("E", "here"), [("a longer name", 1), ("b", "10,000")]).splitlines()
    assert len({len(line) for line in lines}) == 1 and lines[1].endswith("     1")


def test_a_sample_of_sizes_is_named_as_a_sample(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(experiments, "axioms", lambda: real[:2])
    result = experiments.validation()
    assert list(result.combinations) == [axiom.name for axiom in real[:2]] and not result.failures
    assert "sample" in str(result) and experiments.NOT_MEASURED in str(result)
    wrong = Failure({"x": (1, 2)}, "x has shape (1, 2), not (2, 1)")
    monkeypatch.setattr(experiments, "exhaust", lambda axiom, seed: Exhausted(5, wrong))
    whole = experiments.validation(exhaustive=True)
    assert sum(whole.combinations.values()) == 10 and list(whole.failures.values()) == [wrong] * 2
    assert "not (2, 1)" in str(whole) and "919,920" in str(whole)


real = experiments.axioms()


def test_generation_counts_what_it_found() -> None:
    pytest.importorskip("egglog", reason="an extra: pip install 'deep500[substitutions]'")
    result = experiments.generation(depth=1)
    assert result.seconds > 0 and result.memory > 0
    assert f"{result.outcome.counts['terms']:,}" in str(result) and experiments.NOT_MEASURED in str(result)
    verdicts = experiments.verification([*result.outcome.rules, *result.outcome.open])
    assert verdicts.verdicts.get("proved", 0) >= len(result.outcome.rules) > 0


def test_both_provers_and_what_follows_are_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("egglog", reason="an extra: pip install 'deep500[substitutions]'")
    pytest.importorskip("z3", reason="an extra: pip install 'deep500[substitutions]'")
    result = experiments.generation(depth=1)
    both = experiments.verification(result.outcome.rules, sample=4)
    assert both.compared == both.agreeing == 4 and "same verdict by Z3" in str(both)
    assert experiments.NOT_MEASURED in str(experiments.verification(result.outcome.rules))
    names = ("24 ", "28 ", "29 ", "30 ", "33 ", "sum matmul")
    monkeypatch.setattr(experiments, "axioms", lambda: [axiom for axiom in real if axiom.name.startswith(names)])
    left = experiments.redundancy()
    assert left.redundant == ("28 matmul sum", "sum matmul") and left.tried == 6
    small = experiments.symbols(sample=2)
    assert small.tried == 12 and small.undecided == 0 and not small.failures


def test_kernels_of_a_backend_are_one_row_each() -> None:
    result = experiments.real_kernels(["reference"], count=1)
    assert [(check.backend, check.dtype) for check in result.checks] == [
        ("reference", "float32"),
        ("reference", "float64"),
    ]
    assert len(str(result).splitlines()) == 3 and not any(check.differences or check.refused for check in result.checks)
