"""``deep500 race`` from the command line, processes and all; bad input is one line and code 2."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from deep500 import cli
from tests.race.test_trial import MINE, RECIPE

SUITE = {"recipe": "job.py", "target": 12.0, "seconds": 60, "steps": 20, "every": 5}
FEW = ["--suite", "suite.json", "--studies", "1", "--trials", "1", "--submissions"]


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("job.py").write_text(RECIPE)
    Path("mine.py").write_text(MINE + "\nTWO = [ALL[4], ALL[0]]\n")
    Path("suite.json").write_text(json.dumps({"workload": [SUITE]}))


def test_a_race_and_its_resumption(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["race", *FEW, "mine.py:TWO", "--json"]) == 0
    result = json.loads(capsys.readouterr().out)
    trials = {path.stem: json.loads(path.read_text()) for path in Path(result["path"], "trials").iterdir()}
    assert set(trials) == {"job-0-0-good", "job-0-0-Nan"} and Path(result["page"]).is_file()
    good, bad = (trials[f"job-0-0-{name}"]["outcome"] for name in ("good", "Nan"))
    assert bad["reason"].startswith("diverged") and (good["seconds"] or 0) > 0, good
    assert trials["job-0-0-good"]["peak_bytes"] > 2**20 and result["scores"][0]["submission"] == "good"
    Path(result["path"], "trials", "job-0-0-Nan.json").unlink()
    assert cli.main(["race", "--resume", result["path"]]) == 0
    out = capsys.readouterr()
    assert "good or Nan: unresolved" in out.out and "Nan on job, 1 times: diverged" in out.out


def test_a_race_that_no_trial_finishes_is_no_success(capsys: pytest.CaptureFixture[str]) -> None:
    Path("suite.json").write_text(json.dumps({"workload": [SUITE | {"target": 200.0}]}))
    assert cli.main(["race", *FEW, "mine.py:TWO"]) == 1
    assert "No trial reached the target of job" in capsys.readouterr().out


def test_a_plan_runs_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["race", "--plan"]) == 0
    text = capsys.readouterr().out
    assert "2 submissions, 2 workloads, 3 studies: 60 trials" in text and "a ratio of 1.24" in text
    assert cli.main(["race", "--plan", "--suite", "small", "--noise", "0.1", "--jobs", "2", "--json"]) == 0
    plan = json.loads(capsys.readouterr().out)
    assert plan["trials"] == 150 and plan["plan"][0]["here"] == pytest.approx(1.12, abs=0.005)
    assert not Path("results").exists()


def test_absent_data_are_told_before_anything_runs(capsys: pytest.CaptureFixture[str]) -> None:
    Path("suite.json").write_text(json.dumps({"workload": [{**SUITE, "words": ["dataset='mnist'"]}]}))
    Path("job.py").write_text(RECIPE.replace("epochs=1", "epochs=1, augmentation=None"))
    Path("data").mkdir()
    assert cli.main(["race", *FEW, "adam,nesterov", "--data", "data"]) == 3
    assert "mnist" in capsys.readouterr().err and not Path("results").exists()


@pytest.mark.parametrize(
    ("words", "says"),
    [
        ("--suite smok", "got suite 'smok'"),
        ("--submissions adam", "got 1 submissions"),
        ("--submissions adam,adam", "two submissions 'adam'"),
        ("--submissions adam,adan", "got submission 'adan'"),
        ("--studies 0", "--studies 0"),
        ("--noise 0.1", "without --plan"),
        ("--plan --noise 0", "noise 0"),
        ("--resume nowhere", "no such file"),
        ("--suite suite.json --submissions mine.py:ALL", "submission 'bad' on 'job'"),
        ("--backend nonsense", "got backend 'nonsense'"),
    ],
)
def test_bad_input(words: str, says: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["race", *words.split()]) == 2
    errors = capsys.readouterr().err.strip().splitlines()
    assert len(errors) == 1 and says in errors[0], errors
    assert not Path("results").exists()


HOARDS = """

class Hoards(GradientDescent):
    def new_input(self):
        self.hoard = [*getattr(self, "hoard", []), np.ones(2**25)]  # beyond the limit before the best time times four
        super().new_input()

HUNGRY = [ALL[4], Submission("Hoards", Hoards, {"lr": 0.1}, "constant")]
"""


def test_an_optimizer_that_allocates_without_end_is_a_miss_with_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    Path("mine.py").write_text(MINE + HOARDS)
    Path("suite.json").write_text(json.dumps({"workload": [SUITE | {"steps": 2000, "target": 70.0}]}))
    assert cli.main(["race", *FEW, "mine.py:HUNGRY", "--memory", "0.75"]) == 0
    out = capsys.readouterr().out
    assert "Hoards on job, 1 times: got more than 0.75 GiB of memory; expected at most that: raise --memory" in out
    assert "good on job" not in out
