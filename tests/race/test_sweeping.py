"""Sweeps: words to cells, cells to sealed runs, gone on with after a stop, and what is said of the best."""

from __future__ import annotations

import contextlib
import io
import json
import os
import shlex
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from scipy.stats import qmc

from deep500 import cli
from deep500.errors import RecipeError, ResultsError
from deep500.race.adaptive import AdaptiveCells
from deep500.race.sweep_command import PAGE, result_of, write_result
from deep500.race.sweeping import RecipeSweep, SweepOptions, axis_of, cells_of
from deep500.results.verify import verify

RECIPE = """
from tests.recipes.common import quick
FIXED, MUTABLE, METRICS = quick("reference", epochs=1)
"""
WORDS = ("batch_size=64,128", "optimizer_kwargs.lr=log:1e-3..1e-1:2")


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("job.py").write_text(RECIPE)


def here(words) -> tuple[int, str, str]:
    """Run a cell in this process."""
    with contextlib.redirect_stdout(io.StringIO()) as out, contextlib.redirect_stderr(io.StringIO()) as errors:
        code = cli.main(list(words))
    return code, out.getvalue(), (errors.getvalue().strip().splitlines() or [""])[-1]


def test_words_to_values() -> None:
    assert axis_of("a.lr=log:1e-4..1e-1:4").values == ("0.0001", "0.001", "0.01", "0.1")
    assert axis_of("a=lin:0..1:3").values == ("0", "0.5", "1")
    assert axis_of("freeze=['a','b'],['c']").values == ("['a','b']", "['c']")
    assert axis_of("a='x,y',z").values == ("'x,y'", "z") and axis_of("a=(1,2)").values == ("(1,2)",)
    assert axis_of("optimizer=my.py:Sign,AdamOptimizer").values == ("my.py:Sign", "AdamOptimizer")


def test_grids_and_points() -> None:
    grid = cells_of([axis_of("a=1,2"), axis_of("b=3"), axis_of("c=lin:0..1:2")], None, 0)
    assert grid == [(f"a={a}", "b=3", f"c={c}") for a in "12" for c in "01"]
    axes = [axis_of("a=log:1e-4..1"), axis_of("b=x,y"), axis_of("c=7")]
    cells = cells_of(axes, 16, seed=3)
    shares = qmc.Halton(2, scramble=True, seed=3).random(16)
    values = [dict(word.split("=") for word in cell) for cell in cells]
    assert np.allclose([float(value["a"]) for value in values], 10 ** (4 * shares[:, 0] - 4), rtol=1e-4)
    assert [value["b"] for value in values] == ["xy"[int(2 * share)] for share in shares[:, 1]]
    assert {value["c"] for value in values} == {"7"}


@pytest.mark.parametrize(
    ("words", "more", "says"),
    [
        (["batch_size"], {}, "expected key=value"),
        (["batch_size="], {}, "expected key=value"),
        (["batch_size=64"], {}, "got 1 cells"),
        ([], {}, "got 1 cells"),
        (["batch_size=64,64"], {}, "batch_size twice"),
        (["optimizer_kwargs.lr=log:1e-3..1e-1"], {}, "add :7, or --points N"),
        (["optimizer_kwargs.lr=log:0..1:3"], {}, "begin above 0"),
        (["optimizer_kwargs.lr=log:1..x:3"], {}, "expected numbers"),
        (["optimizer_kwargs.lr=lin:1..2:1"], {}, "two points or more"),
        (["optimizer_kwargs.lr=lin:0..1:20000"], {}, "got 20000 cells"),
        (["batch_size=64,many"], {}, "got batch_size=many"),
        (["batchsize=64,128"], {}, "'batch_size'"),
        (["epochs=1,2"], {}, "epochs.*--open|--open"),
        (["optimizer=Adan,AdamOptimizer"], {}, "Adan"),
        (["batch_size=64,128"], {"repeat": 0}, "--repeat 0"),
        (["batch_size=64,128"], {"recipe": "jab.py"}, "got recipe 'jab.py'"),
    ],
)
def test_bad_input(words, more, says) -> None:
    with pytest.raises(RecipeError, match=says) as error:
        RecipeSweep.begin(SweepOptions(**{"recipe": "job.py", "words": tuple(words), **more}), Path("results"))
    assert "\n" not in str(error.value) and not Path("results").exists()


@pytest.mark.parametrize("more", [{}, {"points": 7}, {"points": 7, "sampler": "optuna"}])
def test_ranges_of_whole_numbers_have_whole_numbers(more) -> None:
    """Where the recipe has one, or a key's default is one; other ranges keep their fractions."""
    if "sampler" in more:
        pytest.importorskip("optuna")
    words = ("batch_size=log:16..128:4", "data_threads=lin:1..3:3", "optimizer_kwargs.lr=log:0.01..1:3")
    sweep = RecipeSweep.resolved(SweepOptions("job.py", words, **more))
    asking = AdaptiveCells(sweep.axes, 0, {}) if "sampler" in more else None
    cells = sweep.cells if asking is None else [asking.ask(cell) for cell in range(7)]
    sizes, pieces, rates = ({cell[place].partition("=")[2] for cell in cells} for place in range(3))
    assert all(16 <= int(size) <= 128 for size in sizes) and {int(piece) for piece in pieces} <= {1, 2, 3}
    assert any(float(rate) % 1 for rate in rates) and (more or sizes == {"16", "32", "64", "128"})


def test_every_cell_is_a_sealed_run_and_a_stop_loses_none() -> None:
    sweep = RecipeSweep.begin(SweepOptions("job.py", WORDS, repeat=2), Path("results"))
    commands: list[list[str]] = []

    def counting(words):
        commands.append(list(words))
        return here(words)

    def stop(line: str) -> None:
        if len(sweep.records) == 3:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt, match="deep500 sweep --resume"):
        sweep.run(stop, counting)
    again = RecipeSweep.reopen(sweep.path)
    assert again.records == sweep.records and len(again.records) >= 3
    again.run(lambda line: None, counting)
    assert len(commands) == 4 and sorted(again.records) == [0, 1, 2, 3]
    assert all(verify(Path(record["run"])) == [] for record in again.records.values())
    result = write_result(again)
    rows = {row["cell"]: row for row in result["rows"]}
    assert {tuple(row["words"]) for row in rows.values()} == set(again.cells)
    assert all(len(row["values"]) == 2 for row in rows.values())
    assert [row["median"] for row in result["rows"]] == sorted((r["median"] for r in rows.values()), reverse=True)
    assert shlex.split(result["again"]) == [
        *["deep500", "run", "job.py", *result["best"]["words"], "--seed", "2", "--repeat", "7"]
    ]
    page = (again.path / PAGE).read_text()
    assert page.count('<svg class="plot"') == 2 and "luckiest" in page and "by chance" in page
    Path("job.py").write_text(RECIPE + "\n")
    with pytest.raises(ResultsError, match="got another recipe than the sweep began with"):
        RecipeSweep.reopen(again.path)


def test_what_fails_and_what_is_left_out_is_said() -> None:
    """One optimizer takes momentum and the other does not; one learning rate diverges."""
    words = ("optimizer=AdamOptimizer,MomentumOptimizer", "optimizer_kwargs.lr=0.01,1e30")
    sweep = RecipeSweep.begin(SweepOptions("job.py", words), Path("results"))
    sweep.run(lambda line: None, here)
    result = result_of(sweep)
    failed = [row for row in result["rows"] if row["median"] is None]
    assert failed and all("got loss" in row["reason"] or "nan" in row["reason"] for row in failed)
    assert result["rows"][0]["median"] is not None and result["rows"][-1]["median"] is None
    assert any("momentum of the recipe's optimizer_kwargs left out" in remark for remark in result["remarks"])
    assert "the test data, which are the recipe's validation data" in " ".join(result["remarks"])
    write_result(sweep)


def test_the_command(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["sweep", "job.py", *WORDS, "--list"]) == 0
    assert len(capsys.readouterr().out.splitlines()) == 4 and not Path("results").exists()
    assert cli.main(["sweep", "job.py", "batch_size=64,128", "--jobs", "2", "--json"]) == 0
    result = json.loads(capsys.readouterr().out)
    assert len(result["rows"]) == 2 and Path(result["page"]).is_file()
    assert any("2 cells ran at a time" in remark for remark in result["remarks"])
    assert cli.main(["sweep"]) == 2 and "got no recipe" in capsys.readouterr().err
    assert cli.main(["sweep", "--resume", "results"]) == 2 and "no such file" in capsys.readouterr().err


def array_task(script: Path, task: str) -> subprocess.CompletedProcess[bytes]:
    """Run the script as SLURM does for one index."""
    environment = {**os.environ, "SLURM_ARRAY_TASK_ID": task}
    return subprocess.run(["bash", str(script)], env=environment, capture_output=True, check=False)


@pytest.mark.slow
def test_an_array_of_slurm_runs_cells_by_index_into_the_same_folder(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["sweep", "job.py", "batch_size=64,128", "--engine", "slurm", "--json"]) == 0
    answer = json.loads(capsys.readouterr().out)
    script, folder = Path(answer["script"]), Path(answer["path"])
    assert "#SBATCH --array=0-1\n" in script.read_text() and not list((folder / "cells").iterdir())
    for task in ("1", "0", "1"):  # one of them again, as a requeued job
        done = array_task(script, task)
        assert done.returncode == 0, done.stderr.decode()
    outside = array_task(script, "2")
    assert outside.returncode == 2 and b"got --cell 2; expected 0 to 1" in outside.stderr
    sweep = RecipeSweep.reopen(folder)
    assert sorted(sweep.records) == [0, 1] and len(list((folder / "runs").glob("*/*"))) >= 2
    before = {file.name: file.read_bytes() for file in (folder / "cells").glob("*.json")}
    assert cli.main(["sweep", "--resume", str(folder), "--json"]) == 0
    assert len(json.loads(capsys.readouterr().out)["rows"]) == 2
    assert before == {file.name: file.read_bytes() for file in (folder / "cells").glob("*.json")}


def test_a_cell_that_another_process_runs_is_left_to_it() -> None:
    sweep = RecipeSweep.begin(SweepOptions("job.py", WORDS), Path("results"))
    other = RecipeSweep.reopen(sweep.path)

    def twice(words):
        with pytest.raises(ResultsError, match="another process is working on"):
            other.run_one(2, lambda line: None, here)
        return here(words)

    assert sweep.run_one(2, lambda line: None, twice)
    assert list(RecipeSweep.reopen(sweep.path).records) == [2]


@pytest.mark.parametrize(
    ("more", "says"),
    [
        (["--cell", "0"], "add --resume DIR"),
        (["--sampler", "optuna"], "add --points N"),
        (["--sampler", "tpe", "--points", "3"], "got --sampler 'tpe'; expected optuna"),
        (["--sampler", "optuna", "--points", "3", "--engine", "slurm"], "which sees all cells"),
    ],
)
def test_bad_engines_and_samplers(more: list[str], says: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["sweep", "job.py", "batch_size=64,128", *more]) == 2
    assert says in capsys.readouterr().err and not Path("results").exists()


@pytest.mark.parametrize(
    ("package", "more"), [("optuna", ["--sampler", "optuna", "--points", "3"]), ("ray", ["--engine", "ray"])]
)
def test_what_is_not_installed_is_told_with_its_cure(package: str, more: list[str], capsys, monkeypatch) -> None:
    monkeypatch.setitem(sys.modules, package, None)
    assert cli.main(["sweep", "job.py", "batch_size=64,128", *more]) == 2
    assert f"pip install {package}" in capsys.readouterr().err and not Path("results").exists()


class SweepThatPretends(RecipeSweep):
    """Whose cells train nothing: a learning rate of 0.01 is best, beyond 0.5 training diverges."""

    def _run_cell(self, cell: int, run_cell: object) -> dict:
        rate = float(self.cells[cell][0].partition("=")[2])
        quality = {"name": "accuracy", "direction": "higher", "unit": "%"}
        record = {"schema": "deep500-sweep-1", "words": list(self.cells[cell]), "run": None, "quality": quality}
        value = -abs(np.log10(rate / 1e-2))
        record |= {"values": [] if rate > 0.5 else [value], "reason": "diverged" if rate > 0.5 else "", "warnings": []}
        (self.path / "cells" / f"{cell:04d}.json").write_text(json.dumps(record))
        return record


def test_optunas_sampler_closes_in_on_the_best_and_is_gone_on_with() -> None:
    pytest.importorskip("optuna")
    words = ("optimizer_kwargs.lr=log:1e-5..1", "batch_size=64,128", "seed=3")
    sweep = SweepThatPretends.begin(SweepOptions("job.py", words, points=24, sampler="optuna"), Path("results"))

    def stop(line: str) -> None:
        if len(sweep.records) == 12:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        sweep.run(stop, here)
    sweep = SweepThatPretends.reopen(sweep.path)
    before = dict(sweep.records)
    assert 12 <= len(before) < 24
    sweep.run(lambda line: None, here)
    assert len(sweep.records) == 24 and all(sweep.records[cell] == record for cell, record in before.items())
    known = [sweep.records[cell]["values"] for cell in sorted(set(sweep.records) - set(before))]
    first = [before[cell]["values"] for cell in before]
    assert np.median([v[0] for v in known if v]) > np.median([v[0] for v in first if v])
    assert all(words[2] == "seed=3" for words in sweep.cells)
    write_result(sweep)


def test_ray_runs_cells_into_the_same_folder(capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("ray")
    assert cli.main(["sweep", "job.py", "batch_size=64,128", "--engine", "ray", "--jobs", "2", "--json"]) == 0
    result = json.loads(capsys.readouterr().out)
    assert len(result["rows"]) == 2 and all(verify(Path(row["run"])) == [] for row in result["rows"])
