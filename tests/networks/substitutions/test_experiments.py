"""The experiments' tables: their figures are those of what ran, and what was not measured says so."""

from __future__ import annotations

import pytest

from deep500.networks.substitutions import experiments
from deep500.networks.substitutions.exhaustive import Exhausted
from deep500.networks.substitutions.validate import Failure


def test_columns_have_one_width() -> None:
    lines = experiments.table(("E", "here"), [("a longer name", 1), ("b", "10,000")]).splitlines()
    assert len({len(line) for line in lines}) == 1 and lines[1].endswith("     1")


def test_a_sample_of_sizes_is_told_from_all_of_them(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(experiments, "axioms", lambda: real[:2])
    found = experiments.validation()
    assert list(found.combinations) == [axiom.name for axiom in real[:2]] and not found.failures
    assert "sample" in str(found) and experiments.NOT_MEASURED in str(found)
    wrong = Failure({"x": (1, 2)}, "x has shape (1, 2), not (2, 1)")
    monkeypatch.setattr(experiments, "exhaust", lambda axiom, seed: Exhausted(5, wrong))
    whole = experiments.validation(exhaustive=True)
    assert sum(whole.combinations.values()) == 10 and list(whole.failures.values()) == [wrong] * 2
    assert "not (2, 1)" in str(whole) and "919,920" in str(whole)


real = experiments.axioms()


def test_generation_counts_what_it_found() -> None:
    pytest.importorskip("egglog", reason="an extra: pip install 'deep500[substitutions]'")
    found = experiments.generation(depth=1)
    assert found.seconds > 0 and found.memory > 0
    assert f"{found.found.counts['terms']:,}" in str(found) and experiments.NOT_MEASURED in str(found)
    verdicts = experiments.verification([*found.found.rules, *found.found.open])
    assert verdicts.verdicts.get("proved", 0) >= len(found.found.rules) > 0
