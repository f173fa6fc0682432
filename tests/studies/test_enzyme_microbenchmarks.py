"""The recipe of seven micro-benchmarks: right gradients are called right, planted faults are seen, and it prints."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from scipy.stats import gmean

from deep500.errors import InputError, MissingEngine
from recipes.studies.enzyme_microbenchmarks import __main__ as recipe
from recipes.studies.enzyme_microbenchmarks import checking, measuring, printing, problems, resuming
from recipes.studies.enzyme_microbenchmarks.measuring import ENZYME, HAND, JAX, PRIMAL, REF, TORCH, MeasuredBenchmark
from recipes.studies.enzyme_microbenchmarks.plotting import plot
from recipes.studies.enzyme_microbenchmarks.summary import Summary
from recipes.studies.enzyme_microbenchmarks.tapes import from_checkout

pytestmark = pytest.mark.slow

ALONE = ["--quick", "--no-styles", "--without", "CppAD", "--without", "JAX", "--without", "PyTorch"]
PLANTED = """
import os, signal
from recipes.studies.enzyme_microbenchmarks.checking import closed_form
from recipes.studies.enzyme_microbenchmarks.problems import problems

def answer():
    return closed_form(problems("euler", True)[0])

def wrong(x, c, n):
    return answer() * [1.0, 1.0 + 1e-6, 1.0]

def changing(x, c, n):
    c[0] += 1e-12
    return answer()

def crashing(x, c, n):
    os.kill(os.getpid(), signal.SIGSEGV)

def greedy(x, c, n):
    return bytearray(2**40)

def crashing_later(x, c, n, calls=[]):
    calls.append(1)
    return answer() if len(calls) < 4 else os.abort()
"""


@pytest.fixture(scope="module")
def study() -> recipe.Study:
    """One build of Euler alone for all tests of this file, and for the next run."""
    try:
        return recipe.prepare(recipe.options([*ALONE, "--benchmark", "euler"]))
    except MissingEngine as error:
        pytest.skip(str(error))


@pytest.fixture
def planted(study: recipe.Study, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):  # type: ignore[no-untyped-def]
    """Euler with another function in the place of the gradient by hand."""
    (tmp_path / "planted_gradients.py").write_text(PLANTED)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))

    def run(function: str, *words: str) -> MeasuredBenchmark:
        chosen = recipe.options([*ALONE, "--benchmark", "euler", *words])
        (result,) = recipe.run(chosen, study, {("euler", HAND): ("planted_gradients", function)})
        return result

    return run


def test_all_gradients_agree(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    """Enzyme, Ref, by hand, PyTorch, JAX, closed forms: one answer, which finite differences confirm; styles, too."""
    file = tmp_path / "a.json"
    code = recipe.main(["--quick", "--without", "CppAD", "--json", str(file), "--plot", str(tmp_path / "a.svg")])
    out, err = capsys.readouterr()
    if code == MissingEngine.exit_code:
        pytest.skip(err)
    assert code == 0 and "WRONG" not in out, out
    rows = json.loads(file.read_text())["rows"]
    assert [row["name"] for row in rows] == list(problems.ALL)
    for row in rows:
        assert row["difference"] <= checking.AGREE and row["finite_difference"] <= checking.DIFFERENCES
        assert {PRIMAL, ENZYME, REF} <= set(row["seconds"]), row["name"]
        assert row["name"] in problems.STYLES or HAND in row["seconds"]
        assert set(row["absent"].values()) <= {"no torch", "no jax"}
    assert "over 7 of 7 benchmarks, 7 of 7 sizes" in out and "4.2x (conference), 4.5x (preprint)" in out
    assert "over all choices of style: from" in out
    assert "<svg" in (tmp_path / "a.svg").read_text()


@pytest.mark.long
def test_tape_tools_agree(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    """CppAD out of its wheel differentiates the same templates, and its gradients are the same."""
    file = tmp_path / "a.json"
    words = ["--quick", "--no-styles", "--without", "JAX", "--without", "PyTorch", "--json", str(file)]
    code = recipe.main(words)
    out, err = capsys.readouterr()
    if code == MissingEngine.exit_code or "no CppAD" in err:
        pytest.skip(err)
    assert code == 0 and "WRONG" not in out, out
    rows = json.loads(file.read_text())["rows"]
    assert [row["name"] for row in rows] == list(problems.BENCHMARKS)
    assert all(recipe.CPPAD in row["seconds"] for row in rows)


def test_wrong_gradient_is_noticed(planted, study, capsys, monkeypatch) -> None:  # type: ignore[no-untyped-def]
    """A millionth too much in one element of three; what is wrong is not timed."""
    result = planted("wrong")
    (line,) = result.wrong
    assert line.startswith("by hand differs from Enzyme by")
    assert result.absent == {HAND: "wrong gradient"} and set(result.seconds) == {PRIMAL, ENZYME, REF}
    monkeypatch.setattr(recipe, "prepare", lambda chosen: study)
    monkeypatch.setattr(recipe, "run", lambda chosen, study: [result])
    assert recipe.main(ALONE) == 1
    assert "WRONG: Euler (2000 steps): by hand differs" in capsys.readouterr().out


def test_changed_inputs_are_noticed(planted) -> None:  # type: ignore[no-untyped-def]
    """What Enzyme does without a message where a pointer is to constants and to variables in turn."""
    assert "by hand changes its inputs" in planted("changing").wrong


def test_crash_and_lack_of_memory_are_told_apart(planted) -> None:  # type: ignore[no-untyped-def]
    result = planted("crashing")
    assert result.absent == {HAND: "ended by SIGSEGV"} and set(result.seconds) == {PRIMAL, ENZYME, REF}
    text = printing.tables([result])
    assert "without: by hand, ended by SIGSEGV: Euler (2000 steps)" in text
    assert planted("greedy").absent == {HAND: "out of memory"}
    result = planted("crashing_later", "--rounds", "9")  # when it has been checked and is being timed
    assert result.absent == {HAND: "ended by SIGABRT"} and set(result.seconds) == {PRIMAL, ENZYME, REF}
    assert not result.wrong


def test_goes_on_where_it_was(study: recipe.Study, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Finished launches are read, a line that was cut short is measured again, other settings are refused."""
    file = tmp_path / "rows.jsonl"
    words = [*ALONE, "--benchmark", "euler", "--rows", str(file), "--launches"]
    first = recipe.run(recipe.options([*words, "2"]), study)
    whole = file.read_text()
    file.write_text(whole + whole[:20])
    with monkeypatch.context() as patch:
        patch.setattr(recipe, "measure", lambda *arguments: pytest.fail("measured again"))
        assert recipe.run(recipe.options([*words, "2"]), study) == first
    assert file.read_text() == whole
    longer = recipe.run(recipe.options([*words, "3"]), study)
    assert longer[:2] == first and [row.launch for row in longer] == [0, 1, 2]
    with pytest.raises(InputError, match="other code, tools or settings"):
        recipe.run(recipe.options([*words, "3", "--rounds", "2"]), study)
    file.write_text("{}\n")
    with pytest.raises(InputError, match="holds other lines"):
        resuming.read(file, "")


def test_missing_engine_is_one_line(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setenv("DEEP500_ENZYME", "/nowhere/LLVMEnzyme-22.so")
    assert recipe.main(ALONE) == MissingEngine.exit_code
    assert capsys.readouterr().err.startswith("error: got DEEP500_ENZYME=/nowhere")


def test_no_wheel_is_said(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """Without an index the study does without CppAD, and says so."""

    def none() -> None:
        raise recipe.WheelError("got no wheel")

    monkeypatch.setattr(recipe, "cppad", none)
    monkeypatch.setattr(recipe, "libraries", lambda names, tapes: measuring.Libraries({}, {"enzyme": {}, "ref": {}}))
    study = recipe.prepare(recipe.options(["--benchmark", "gmm"]))
    assert study.tapes == [] and study.refused("gmm") == {"CppAD": "no wheel"}
    assert "warning: no CppAD: got no wheel" in capsys.readouterr().err


def test_a_folder_that_is_no_tool(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="expected a checkout of CoDiPack or Adept"):
        from_checkout(tmp_path)
    (tmp_path / "include").mkdir()
    (tmp_path / "include/codi.hpp").write_text("")
    tape = from_checkout(tmp_path)
    assert (tape.title, tape.include) == ("CoDiPack", tmp_path / "include") and len(tape.version) == 12


def rows_of(ratios: dict[str, list[float]], launches: int = 6) -> list[MeasuredBenchmark]:
    """Rows with known quotients of Ref and Enzyme by benchmark and size; the Enzyme of every round is at random."""
    rng, rows = np.random.default_rng(0), []
    for launch in range(launches):
        for name, by_size in ratios.items():
            for at, ratio in enumerate(by_size):
                base = rng.uniform(1, 2, 5)
                seconds = {PRIMAL: list(base / 3), ENZYME: list(base), REF: list(ratio * base)}
                rows.append(MeasuredBenchmark(name, f"size {at}", 10.0**at, launch, seconds))
    return rows


def test_geometric_means_of_known_samples(tmp_path: Path) -> None:
    """Over sizes first, then over benchmarks: also by SciPy; missing sizes are counted; styles move the mean."""
    rows = rows_of({"euler": [2.0, 8.0], "gmm": [1.0, 1.0], "euler_plain": [1.0, 1.0]})
    summary = Summary(rows)
    mean = summary.ratio(["euler", "gmm"], REF, ENZYME)
    assert mean is not None and mean.n == 6
    assert mean.median == pytest.approx(gmean([gmean([2, 8]), 1])) == mean.low
    with_style = summary.instead("euler_plain")
    assert with_style is not None and with_style.median == pytest.approx(1.0)
    assert summary.extremes() == pytest.approx((1.0, 2.0))
    text = printing.tables(rows)
    assert "over 2 of 7 benchmarks, 4 of 4 sizes: 2 [2, 2]" in text and "from 1.00" in text
    gone = next(row for row in rows if (row.name, row.size, row.launch) == ("euler", "size 1", 3))
    del gone.seconds[REF]
    gone.absent[REF] = "out of memory"
    summary = Summary(rows)
    assert summary.count(["euler", "gmm"], REF, ENZYME) == (3, 4)
    assert summary.absences() == ["Ref, out of memory: Euler (size 1)"]
    text = printing.tables(rows)
    assert "3 of 4 sizes: 1.41 [1.41, 1.41]" in text and "without: Ref, out of memory: Euler (size 1)" in text
    assert printing.as_json(rows, {})["geometric_mean"] == pytest.approx([2**0.5] * 3)
    plot(rows, tmp_path / "a.png")
    assert (tmp_path / "a.png").read_bytes().startswith(b"\x89PNG")


def test_interval_covers_launches() -> None:
    """Launches that differ make the interval wide, however well the rounds of each agree."""
    rows = [
        MeasuredBenchmark("euler", "s", 1.0, launch, {ENZYME: [1.0] * 5, REF: [2.0 + launch] * 5})
        for launch in range(6)
    ]
    mean = Summary(rows).ratio(["euler"], REF, ENZYME)
    assert mean is not None and (mean.low, mean.high) == pytest.approx((2.0, 7.0))


def test_gradient_without_effect_is_seen_by_differences() -> None:
    """The directional check, on a function whose gradient is known, and on wrong ones."""
    (problem,) = problems.problems("gmm", True)
    right = np.cos(problem.x)
    assert checking.difference_error(problem, right, lambda x: float(np.sin(x).sum())) < 1e-9
    one_wrong = right.copy()
    one_wrong[3] *= 1.01
    assert checking.difference_error(problem, one_wrong, lambda x: float(np.sin(x).sum())) > checking.DIFFERENCES
    assert checking.difference_error(problem, right * np.nan, lambda x: 0.0) == float("inf")
    assert checking.relative(right * np.nan, right) == float("inf")


def test_optional_variants_have_names() -> None:
    """What --without may leave out is what there is."""
    assert set(recipe.OPTIONAL) == {recipe.CPPAD, TORCH, JAX}


@pytest.mark.parametrize(
    "words",
    [
        ["--rounds", "0"],
        ["--launches", "-1"],
        ["--memory", "-1"],
        ["--benchmark", "adept"],
        ["--without", "Ref"],
        ["--rows", "no/a"],
        ["--json", "no/a"],
        ["--plot", "a.txt"],
    ],
)
def test_bad_options(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as end:
        recipe.options(words)
    assert end.value.code == 2 and words[1] in capsys.readouterr().err
