"""Parts of sweeps and races elsewhere: an array of SLURM whose indices are run here, and tasks of Ray."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
import types
from concurrent.futures import ThreadPoolExecutor, wait
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from deep500 import cli
from deep500.errors import RecipeError, ResultsError
from deep500.race.engines import RayTasks, ranges
from deep500.race.running import Race
from deep500.race.worker import Limits, TrialProcess, run_described
from tests.race.common import Curves, race
from tests.race.test_trial import RECIPE

pytestmark = pytest.mark.slow

SUITE = {"recipe": "job.py", "target": 12.0, "seconds": 60, "steps": 20, "every": 5}
VARIED = {"variants": ["batch_size=32,128"]}
WORDS = ["--suite", "suite.json", "--submissions", "adam,momentum", "--studies", "1", "--trials", "1"]
WORDS += ["--held-out", "1"]


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    Path("job.py").write_text(RECIPE)
    Path("suite.json").write_text(json.dumps({"workload": [SUITE | VARIED]}))
    return tmp_path


def array_task(script: Path, task: int) -> subprocess.CompletedProcess[bytes]:
    """Run the script as SLURM does for one index."""
    environment = {**os.environ, "SLURM_ARRAY_TASK_ID": str(task)}
    return subprocess.run(["bash", str(script)], env=environment, capture_output=True, check=False)


def asked_of(script: Path) -> list[int]:
    """The indices of an array, as SLURM reads them."""
    line = next(line for line in script.read_text().splitlines() if line.startswith("#SBATCH --array="))
    ends = [part.split("-") for part in line.partition("--array=")[2].split(",")]
    return [number for end in ends for number in range(int(end[0]), int(end[-1]) + 1)]


@given(st.sets(st.integers(0, 200), min_size=1))
def test_ranges_are_read_back(numbers: set[int]) -> None:
    parts = [part.split("-") for part in ranges(sorted(numbers)).split(",")]
    assert [n for part in parts for n in range(int(part[0]), int(part[-1]) + 1)] == sorted(numbers)
    assert len(parts) == sum(n + 1 not in numbers for n in numbers), "as few as there are"


def results_of(path: Path) -> dict[str, tuple]:
    """Everything about trials that no clock decides."""
    records = {file.stem: json.loads(file.read_text()) for file in sorted((path / "trials").glob("*.json"))}
    return {
        name: (record["settings"], record["seed"], [(point["step"], point["quality"]) for point in record["curve"]])
        for name, record in records.items()
    }


def test_an_array_of_slurm_gives_the_folder_that_processes_give(folder: Path, capsys) -> None:
    assert cli.main(["race", *WORDS, "--engine", "slurm", "--whole", "--json"]) == 0
    answer = json.loads(capsys.readouterr().out)
    script, path = Path(answer["script"]), Path(answer["path"])
    assert asked_of(script) == [0, 1] and not list((path / "trials").iterdir())
    for task in (1, 1):  # one of them again, as a requeued job
        done = array_task(script, task)
        assert done.returncode == 0, done.stderr.decode()
    outside = array_task(script, 2)
    assert outside.returncode == 2 and b"got --trial 2; expected 0 to 1" in outside.stderr
    for left in ([0], [2, 3]):  # what is left, and the variants when all have ended
        assert cli.main(["race", "--resume", str(path), "--engine", "slurm", "--json"]) == 0
        script = Path(json.loads(capsys.readouterr().out)["script"])
        assert asked_of(script) == left
        assert all(array_task(script, task).returncode == 0 for task in asked_of(script))
    assert cli.main(["race", "--resume", str(path), "--json"]) == 0
    result = json.loads(capsys.readouterr().out)
    assert result["finished"] and result["held_out"] and "CPU seconds" in " ".join(result["remarks"])
    assert cli.main(["race", *WORDS, "--whole", "--json"]) == 0
    here = json.loads(capsys.readouterr().out)
    assert results_of(path) == results_of(Path(here["path"])) and len(results_of(path)) == 4
    assert here["held_out"]["drawn"] == result["held_out"]["drawn"]


class StandInForRay(types.ModuleType):
    """Runs tasks in threads, as Ray does in processes."""

    def __init__(self) -> None:
        super().__init__("ray")
        self.pool, self.cancelled = ThreadPoolExecutor(4), list[object]()

    def is_initialized(self) -> bool:
        return True

    def remote(self, **resources: int):
        assert resources == {"num_cpus": 1}
        return lambda function: types.SimpleNamespace(remote=lambda *a: self.pool.submit(function, *map(plain, a)))

    def wait(self, references, timeout: float):
        return [list(part) for part in wait(references, timeout)]

    def get(self, reference):
        return reference.result()

    def cancel(self, reference) -> None:
        self.cancelled.append(reference)


def plain(value):
    """A copy by JSON: nothing else would reach a machine that has not loaded our classes yet."""
    return json.loads(json.dumps(value))


BLOCK = threading.Event()


def waits(*_: object) -> None:
    BLOCK.wait(60)


def quick(request, limits) -> TrialProcess:
    """The answer of one of Ray's machines."""
    from deep500.race.trial import Request

    return Curves()(Request(**request), Limits(**limits), lambda: False)


def test_tasks_of_ray_give_the_folder_that_processes_give(tmp_path: Path, monkeypatch) -> None:
    from deep500.race.command import _as_tasks

    monkeypatch.setitem(sys.modules, "ray", StandInForRay())
    monkeypatch.setattr(sys, "path", sys.path)
    tasks = RayTasks(quick)
    here, there = (race(tmp_path / name, studies=1, trials=2, jobs=2, prune=False) for name in ("1", "2"))
    here.run(lambda line: None, Curves())
    there.run(lambda line: None, _as_tasks(tasks))
    assert there.done == here.done and len(there.done) == 18


def test_a_stopped_race_cancels_its_tasks(monkeypatch) -> None:
    ray = StandInForRay()
    monkeypatch.setitem(sys.modules, "ray", ray)
    try:
        with pytest.raises(KeyboardInterrupt):
            RayTasks(waits)(stopped=lambda: True)
        assert len(ray.cancelled) == 1
    finally:
        BLOCK.set()


def test_ray_itself_runs_a_race(folder: Path, capsys) -> None:
    pytest.importorskip("ray")
    assert cli.main(["race", *WORDS, "--engine", "ray", "--jobs", "2", "--whole", "--json"]) == 0
    there = json.loads(capsys.readouterr().out)
    assert cli.main(["race", *WORDS, "--whole", "--json"]) == 0
    assert results_of(Path(there["path"])) == results_of(Path(json.loads(capsys.readouterr().out)["path"]))


def test_a_trial_that_another_process_runs_is_left_to_it(tmp_path: Path) -> None:
    one, other = race(tmp_path), race(tmp_path)

    def twice(*arguments):
        with pytest.raises(ResultsError, match="another process is working on"):
            other.run_one(5, lambda line: None, Curves())
        return Curves()(*arguments)

    one.run_one(5, lambda line: None, twice)
    asked = []
    other.run_one(5, asked.append, lambda *_: pytest.fail("it has a result"))
    assert other.done == one.done and asked[0].startswith("trial 5, ")
    assert sorted(path.stem for path in (tmp_path / "trials").iterdir()) == [one.entries[5].name]
    with pytest.raises(RecipeError, match="got --trial 108; expected 0 to 107"):
        other.run_one(108, asked.append)


def test_a_trial_described_by_plain_values_runs_apart(monkeypatch) -> None:
    from dataclasses import asdict

    from deep500.race import worker
    from tests.race.test_worker import OUTCOME, REQUEST

    monkeypatch.setattr(worker, "PROGRAM", ("-c", OUTCOME))
    assert run_described(plain(asdict(REQUEST)), asdict(Limits())).outcome["spent"] == 3.0


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["--trial", "0"], "got --trial 0 without a race; expected its folder: add --resume DIR"),
        (["--engine", "ray"], "pip install ray"),
    ],
)
def test_bad_engines(words, says, folder, capsys, monkeypatch) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)
    assert cli.main(["race", *WORDS, *words]) == 2
    assert says in capsys.readouterr().err and not Path("results").exists()


def test_a_race_by_the_walls_clock_stays_on_its_machine(folder: Path, capsys) -> None:
    from deep500.race.running import RaceOptions

    path = Race.begin(RaceOptions("suite.json", ("adam", "momentum"), 1, 1), Path("results")).path
    assert cli.main(["race", "--resume", str(path), "--engine", "slurm"]) == 2
    assert "for a race by the wall's clock" in capsys.readouterr().err
