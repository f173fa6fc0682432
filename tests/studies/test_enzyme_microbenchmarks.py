"""The recipe of seven micro-benchmarks: right gradients are called right, planted faults are seen, and it prints."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from scipy.stats import gmean

from deep500.errors import MissingEngine
from recipes.studies.enzyme_microbenchmarks import __main__ as recipe
from recipes.studies.enzyme_microbenchmarks import building, checking, measuring, printing, problems
from recipes.studies.enzyme_microbenchmarks.measuring import ENZYME, OWN, PRIMAL, REF, Measured

PLANTED = """
import os, signal
from recipes.studies.enzyme_microbenchmarks.checking import closed_form
from recipes.studies.enzyme_microbenchmarks.problems import QUICK

def wrong(x, c, n):
    return closed_form(QUICK["euler"]()) * [1.0, 1.0 + 1e-6]

def changing(x, c, n):
    c[1] += 1e-12
    return closed_form(QUICK["euler"]())

def crashing(x, c, n):
    os.kill(os.getpid(), signal.SIGSEGV)

def greedy(x, c, n):
    return bytearray(2**40)

def crashing_later(x, c, n, calls=[]):
    calls.append(1)
    return closed_form(QUICK["euler"]()) if len(calls) < 20 else os.abort()
"""


@pytest.fixture(scope="module", autouse=True)
def engine() -> None:
    """One build for all tests of this file, and for the next run."""
    try:
        building.libraries()
    except MissingEngine as error:
        pytest.skip(str(error))


@pytest.fixture(scope="module")
def measured(engine: None) -> list[Measured]:
    return recipe.run(recipe.options(["--quick"]))


@pytest.fixture
def planted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):  # type: ignore[no-untyped-def]
    """Euler with another function in the place of its own gradient."""
    (tmp_path / "planted_gradients.py").write_text(PLANTED)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))

    def run(function: str, *words: str) -> Measured:
        chosen = recipe.options(["--quick", "--benchmark", "euler", *words])
        (result,) = recipe.run(chosen, {("euler", OWN): ("planted_gradients", function)})
        return result

    return run


def test_all_gradients_agree(measured: list[Measured]) -> None:
    """Enzyme, Ref, by hand or PyTorch, closed forms: one answer, which finite differences confirm."""
    assert [result.problem.name for result in measured] == list(problems.FULL) == list(problems.QUICK)
    for result in measured:
        assert not result.wrong
        assert result.difference <= checking.AGREE and result.finite_difference <= checking.DIFFERENCES
        absent = dict(result.absent)
        if result.problem.name in measuring.BY_TORCH and absent.get(OWN) == "no torch":
            del absent[OWN]
        assert not absent, f"{result.problem.name}: {absent}"


def test_prints_the_table(
    measured: list[Measured], capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By the command line, on what was measured above."""
    monkeypatch.setattr(recipe, "run", lambda chosen: measured)
    assert recipe.main(["--quick", "--json", str(tmp_path / "a.json"), "--plot", str(tmp_path / "a.svg")]) == 0
    out = capsys.readouterr().out
    for result in measured:
        assert sum(line.startswith(result.problem.title) for line in out.splitlines()) == 2
    assert "over 7 of 7" in out and "4.2x (conference), 4.5x (preprint)" in out and "WRONG" not in out
    written = json.loads((tmp_path / "a.json").read_text())
    low, mean, high = (written["geometric_mean"][i] for i in (1, 0, 2))
    assert 0 < low <= mean <= high < 1000
    assert all(len(row["seconds"][ENZYME]) == 6 for row in written["rows"])
    assert "<svg" in (tmp_path / "a.svg").read_text()


def test_wrong_gradient_is_noticed(planted, capsys, monkeypatch) -> None:  # type: ignore[no-untyped-def]
    """A millionth too much in one element of two, against the other gradients and against differences."""
    result = planted("wrong")
    assert [line for line in result.wrong if "own differs from Enzyme by" in line]
    assert [line for line in result.wrong if "own is off finite differences by" in line]
    assert not [line for line in result.wrong if ": Ref" in line or ": Enzyme" in line]
    monkeypatch.setattr(recipe, "run", lambda chosen: [result])
    assert recipe.main(["--quick"]) == 1
    assert "WRONG: Euler: own differs" in capsys.readouterr().out


def test_changed_inputs_are_noticed(planted) -> None:  # type: ignore[no-untyped-def]
    """What Enzyme does without a message where a pointer is to constants and to variables in turn."""
    assert "Euler: own changes its inputs" in planted("changing").wrong


def test_crash_and_lack_of_memory_are_told_apart(planted) -> None:  # type: ignore[no-untyped-def]
    result = planted("crashing")
    assert result.absent == {OWN: "ended by SIGSEGV"} and set(result.seconds) == {PRIMAL, ENZYME, REF}
    assert "ended by SIGSEGV" in printing.tables([result])
    assert planted("greedy").absent == {OWN: "out of memory"}
    result = planted("crashing_later")  # when it has been checked and is being timed
    assert result.absent == {OWN: "ended by SIGABRT"} and set(result.seconds) == {PRIMAL, ENZYME, REF}
    assert not result.wrong


def test_missing_engine_is_one_line(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setenv("DEEP500_ENZYME", "/nowhere/LLVMEnzyme-22.so")
    assert recipe.main(["--quick"]) == MissingEngine.exit_code
    assert capsys.readouterr().err.startswith("error: got DEEP500_ENZYME=/nowhere")


def test_compiled_variant_out_of_memory() -> None:
    """Ref needs several hundred MiB for Euler's full size, and does not look at what malloc returns."""
    (result,) = recipe.run(recipe.options(["--benchmark", "euler", "--rounds", "6", "--memory", "0.5"]))
    assert result.absent == {REF: "out of memory"} and ENZYME in result.seconds and not result.wrong
    text = printing.tables([result])
    assert "out of memory" in text and "over 0 of 1: none" in text


def test_geometric_mean_of_known_samples() -> None:
    """Ratios 2 and 8 in every round: 4, also by SciPy; a benchmark without Ref is left out."""
    rng, problem = np.random.default_rng(0), problems.QUICK["euler"]()
    base = rng.uniform(1, 2, 8)
    first = Measured(problem, {ENZYME: list(base), REF: list(2 * base)})
    second = replace(first, seconds={ENZYME: list(base[::-1]), REF: list(8 * base[::-1])})
    third = Measured(problem, {ENZYME: list(base)}, absent={REF: "out of memory"})
    mean = printing.geometric_mean([first, second, third])
    assert mean is not None and mean.n == 8
    assert mean.median == pytest.approx(gmean([2, 8])) and mean.low == pytest.approx(4)
    assert printing.geometric_mean([third]) is None
    assert "over 2 of 3: 4 [4, 4]" in printing.tables([first, second, third])


def test_gradient_without_effect_is_seen_by_differences() -> None:
    """The directional check, on a function whose gradient is known, and on wrong ones."""
    problem = problems.QUICK["gmm"]()
    right = np.cos(problem.x)
    assert checking.difference_error(problem, right, lambda x: float(np.sin(x).sum())) < 1e-9
    one_wrong = right.copy()
    one_wrong[3] *= 1.01
    assert checking.difference_error(problem, one_wrong, lambda x: float(np.sin(x).sum())) > checking.DIFFERENCES
    assert checking.difference_error(problem, right * np.nan, lambda x: 0.0) == float("inf")
    assert checking.relative(right * np.nan, right) == float("inf")


@pytest.mark.parametrize(
    "words", [["--rounds", "3"], ["--memory", "-1"], ["--benchmark", "adept"], ["--json", "no/a"], ["--plot", "a.txt"]]
)
def test_bad_options(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as end:
        recipe.options(words)
    assert end.value.code == 2 and words[1] in capsys.readouterr().err
