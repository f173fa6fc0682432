"""``kill -9`` at any moment, then ``--resume``: the end is bit-identical to a run that was never stopped."""

from __future__ import annotations

import json
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from deep500.distributed import Serial, set_world
from deep500.errors import ResultsError, TrainingError
from deep500.recipe import run_recipe
from deep500.results import Record
from deep500.results.checkpoint import list_checkpoints, load_checkpoint
from deep500.results.verify import verify
from tests.conftest import HANG
from tests.recipes.common import quick

SCRIPT = '''
import os, signal
import numpy as np
import deep500 as d5
from tests.recipes.common import quick

signal.signal(signal.SIGINT, signal.default_int_handler)  # ignored where the tests were started in the background
calls, sync = 0, os.fsync

def fsync(handle):
    """Kills the process at its n-th write: before, between or after the files of an epoch."""
    global calls
    calls += 1
    if calls == int(os.environ.get("KILL_AT_WRITE", "0")):
        os.kill(os.getpid(), signal.SIGKILL)
    sync(handle)

os.fsync = fsync

def data():
    """Nothing to learn, but quick to import."""
    x = np.random.default_rng(0).normal(size=(960, 1, 8, 8)).astype(np.float32)
    y = np.arange(960) % 10
    return d5.NumpyDataset(x[:800], labels=y[:800]), d5.NumpyDataset(x[800:], labels=y[800:])

FIXED, MUTABLE, METRICS = quick("reference", dataset=data, epochs=6, batch_size=16,
                                schedule=d5.schedules.StepSchedule(2, 0.5),
                                metrics=[(d5.TestAccuracy(), 0.0), d5.metrics.TrainingTime()])

if __name__ == "__main__":
    d5.run_recipe(FIXED, MUTABLE, METRICS) or exit(1)
'''
ROOT = Path(__file__).parents[2]


def start(script: Path, *words: str, kill_at_write: int = 0) -> subprocess.Popen[str]:
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "KILL_AT_WRITE": str(kill_at_write), "OMP_NUM_THREADS": "1"}
    return subprocess.Popen(
        [sys.executable, str(script), *words],
        cwd=script.parent,
        env=environment,
        text=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )


def finish(process: subprocess.Popen[str], code: int) -> tuple[str, str]:
    out, err = process.communicate(timeout=HANG)
    assert process.returncode == code, (out, err)
    assert "Traceback" not in err
    return out, err


def exact(record: Record) -> list[dict]:
    times = ("train_seconds", "test_seconds", "clock", "load")
    return [{k: v for k, v in line.items() if k not in times} for line in record.epochs()]


def arrays(record: Record, seed: int) -> dict[str, np.ndarray]:
    return load_checkpoint(list_checkpoints(record.path / "checkpoints" / f"seed-{seed}")[-1])["arrays"]


def assert_same_end(resumed: Record, whole: Record, seeds: list[int]) -> None:
    assert exact(resumed) == exact(whole) and len(exact(resumed)) == 6 * len(seeds)
    for seed in seeds:
        first, second = arrays(resumed, seed), arrays(whole, seed)
        assert first.keys() == second.keys() and any(name.startswith("optimizer/") for name in first)
        for name, array in first.items():
            np.testing.assert_array_equal(array, second[name], err_msg=name)
    values = [[m["values"] for m in r.summary()["metrics"] if m["unit"] != "s"] for r in (resumed, whole)]
    assert values[0] == values[1]


def only(folder: Path) -> Record:
    (path,) = (folder / "job").glob("20*-*")
    return Record.open(path)


@pytest.mark.skipif(not hasattr(signal, "SIGKILL"), reason="needs SIGKILL")
@pytest.mark.slow
def test_killed_at_any_moment_ends_bit_identically(tmp_path):
    script = tmp_path / "job.py"
    script.write_text(SCRIPT)
    words = ["--repeat", "2", "--out"]
    whole = start(script, *words, "whole")
    broken = start(script, *words, "broken", kill_at_write=8)
    finish(whole, 0)
    finish(broken, -signal.SIGKILL)
    draw = random.Random(time.time_ns())
    for number, at in enumerate((9, 14, None, None)):
        process = start(script, "--resume", "--out", "broken", kill_at_write=at or 0)
        if at is None:  # at a random moment after training began
            while not (line := process.stdout.readline()).startswith("seed "):
                assert line, process.stderr.read()
            time.sleep(draw.uniform(0, 0.1))
            process.kill()
        process.communicate(timeout=HANG)
        if only(tmp_path / "broken").summary() is not None:
            break
        assert number < 3 or process.returncode == -signal.SIGKILL
    out, _ = finish(start(script, "--resume", str(only(tmp_path / "broken").path)), 0)
    assert "verdict: PASSED" in out
    assert only(tmp_path / "broken").manifest()["resumed"]
    assert not list((tmp_path / "broken").rglob("*.tmp"))
    assert_same_end(only(tmp_path / "whole"), only(tmp_path / "broken"), [0, 1])


@pytest.mark.skipif(not hasattr(signal, "SIGKILL"), reason="needs SIGKILL")
@pytest.mark.slow
def test_a_killed_run_with_a_memory_plan_goes_on_with_that_plan(tmp_path):
    script = tmp_path / "job.py"
    script.write_text(SCRIPT.replace("batch_size=16,", "batch_size=160, memory=0.6,"))
    whole, broken = start(script, "--out", "whole"), start(script, "--out", "broken", kill_at_write=14)
    finish(whole, 0)
    finish(broken, -signal.SIGKILL)
    assert 0 < len(only(tmp_path / "broken").epochs()) < 6
    plan = only(tmp_path / "broken").path / "memory_plan.json"
    assert json.loads(plan.read_text())["at_once"] > 1, "it works on pieces"
    before = plan.read_bytes()
    finish(start(script, "--resume", "--out", "broken"), 0)
    assert plan.read_bytes() == before == (only(tmp_path / "whole").path / "memory_plan.json").read_bytes()
    assert_same_end(only(tmp_path / "broken"), only(tmp_path / "whole"), [0])


@pytest.mark.skipif(not hasattr(signal, "SIGKILL"), reason="needs SIGKILL")
@pytest.mark.parametrize("before_the_last", [0, 1, 2, 3])
def test_killed_between_summary_and_seal_is_found_and_completed(tmp_path, before_the_last):
    """The last files are claims, rules, report and seal, in this order."""
    script = tmp_path / "job.py"
    script.write_text(SCRIPT)
    finish(start(script, "--out", "whole"), 0)
    whole = only(tmp_path / "whole").path
    (made := tmp_path / "broken" / "job").mkdir(parents=True)
    broken = made / whole.name
    shutil.copytree(whole, broken)
    shutil.copy(whole.parent / "ledger.jsonl", made)
    last = ["SHA256SUMS", "report.html", "rules.json", "claims.json"]
    for name in last[: before_the_last + 1]:
        (broken / name).unlink()
    (broken / f".{last[before_the_last]}.123.tmp").write_text("cut sh")
    out, _ = finish(start(script, "--resume", "--out", "broken"), 0)
    assert "nothing to resume" in out
    for name in [path.relative_to(whole) for path in whole.rglob("*") if path.is_file()]:
        assert (broken / name).read_bytes() == (whole / name).read_bytes(), name
    assert verify(broken) == [] and not list(broken.rglob(".*"))
    assert "no unfinished run" in finish(start(script, "--resume", "--out", "broken"), 2)[1]


def test_a_folder_with_a_link_is_not_written_to(tmp_path, unfinished):
    file = unfinished.path / "samples" / "step.3.i64"
    outside = tmp_path / "outside"
    file.rename(outside)
    file.symlink_to(outside)
    before = outside.read_bytes()
    with pytest.raises(ResultsError, match=r"step\.3\.i64: got a link"):
        run(tmp_path, "--resume")
    assert outside.read_bytes() == before


def test_interrupt_leaves_one_line_and_a_run_to_resume(tmp_path):
    script = tmp_path / "job.py"
    script.write_text(SCRIPT.replace("epochs=6", "epochs=100000"))
    process = start(script, "--out", "here")
    while not process.stdout.readline().startswith("seed "):
        assert process.poll() is None
    other = finish(start(script, "--resume", "--out", "here"), 2)[1]
    assert "another process is working on" in other
    process.send_signal(signal.SIGINT)
    _, err = finish(process, 130)
    path = only(tmp_path / "here").path
    assert err.strip() == f"deep500: interrupted; go on with: --resume {path.relative_to(tmp_path)}"
    assert only(tmp_path / "here").summary() is None and list_checkpoints(path / "checkpoints" / "seed-0")


def run(out: Path, *words: str, **changes):
    return run_recipe(*quick("pytorch", **changes), argv=["--out", str(out), "--quiet", *words])


@pytest.fixture
def unfinished(tmp_path):
    result = run(tmp_path, "batch_size=64", "--seed", "3")
    (Path(result.path) / "summary.json").unlink()
    return Record(Path(result.path))


def test_resume_takes_the_options_of_the_run(tmp_path, unfinished):
    again = run(tmp_path, "--resume")
    assert again.path == str(unfinished.path) and again.verdict == "PASSED"
    assert unfinished.summary()["seeds"] == [3] and unfinished.manifest()["resolved"]["recipe"]["batch_size"] == 64
    assert run(tmp_path, "--resume", str(unfinished.path)).verdict == "PASSED"  # it is finished: nothing to do
    with pytest.raises(ResultsError, match="no unfinished run"):
        run(tmp_path, "--resume")


def test_a_job_that_is_started_again_goes_on(tmp_path):
    """The same command begins, goes on as often as it is stopped, and begins anew after the end."""
    words = ["batch_size=64", "--repeat", "2", "--resume-or-start"]
    first = run(tmp_path, *words, "--stop-after", "1")
    other = run(tmp_path, "batch_size=32", "--resume-or-start")  # other words are another run
    second = run(tmp_path, *words)
    assert first.path == second.path != other.path and second.verdict == "PASSED"
    assert Record(Path(second.path)).summary()["seeds"] == [0, 1] and run(tmp_path, *words).path != second.path


def test_resume_may_repeat_its_words_but_not_change_them(tmp_path, unfinished):
    with pytest.raises(ResultsError, match=r"got --resume with batch_size=32; expected .*batch_size=64 --seed 3"):
        run(tmp_path, "batch_size=32", "--resume")
    assert run(tmp_path, "batch_size=64", "--seed", "3", "--resume").verdict == "PASSED"


def test_resume_refuses_another_recipe(tmp_path, unfinished):
    with pytest.raises(ResultsError, match=r"recipe that changed .*recipe.epochs"):
        run(tmp_path, "--resume", epochs=3)
    manifest = unfinished.manifest()
    unfinished.write_manifest({**manifest, "recipe_sha256": "0"})
    with pytest.raises(ResultsError, match="the recipe file's content"):
        run(tmp_path, "--resume")
    manifest["data"]["train"]["digest"] = "0"
    unfinished.write_manifest(manifest)
    with pytest.raises(ResultsError, match="other data than the run began with"):
        run(tmp_path, "--resume")


def test_a_run_that_was_stopped_before_its_seal_is_completed_by_rank_0_alone(tmp_path, unfinished):
    run(tmp_path, "--resume")
    path, words = unfinished.path, ("--resume", str(unfinished.path))
    for name in ("claims.json", "SHA256SUMS", "report.html"):
        (path / name).unlink()

    class Second(Serial):
        rank = property(lambda self: 1, lambda self, value: None)

    set_world(Second())
    try:
        run(tmp_path, *words)
    finally:
        set_world(None)
    assert not (path / "SHA256SUMS").exists() and not (path / "report.html").exists()
    run(tmp_path, *words)
    assert verify(path) == [] and (path / "claims.json").exists() and (path / "report.html").exists()


def test_resume_of_something_else(tmp_path):
    with pytest.raises(ResultsError, match="name a results folder"):
        run(tmp_path, "--resume", str(tmp_path))


def test_failed_run_fails_again_without_training(tmp_path):
    import deep500 as d5

    spoilt = d5.schedules.TableSchedule({0: 1e30})
    with pytest.raises(TrainingError):
        run(tmp_path, schedule=spoilt)
    (path,) = (tmp_path / "test_resume").glob("20*-*")
    with pytest.raises(TrainingError, match="had ended so before"):
        run(tmp_path, "--resume", str(path), schedule=spoilt)


def test_damaged_newest_checkpoint_costs_an_epoch_not_the_run(tmp_path):
    whole = run(tmp_path / "a", epochs=4)
    broken = run(tmp_path / "b", epochs=4)
    record = Record(Path(broken.path))
    newest = list_checkpoints(record.path / "checkpoints" / "seed-0")[-1]
    newest.write_bytes(newest.read_bytes()[:100])
    for name in ("summary.json", "seeds.json"):
        (record.path / name).unlink()
    with (record.path / "metrics.jsonl").open("a") as file:
        file.write('{"seed": 0, "ep')  # a line that the crash cut short
    run(tmp_path / "b", "--resume", epochs=4)
    assert exact(record) == exact(Record(Path(whole.path))) and json.loads((record.path / "seeds.json").read_text())


def test_seed_after_seed_is_the_run_in_one_go(tmp_path, capsys):
    """``--stop-after 1``: each process trains one seed, and what they make together is what one would have made."""
    recipe = quick("reference", epochs=1)
    whole = run_recipe(*recipe, argv=["--repeat", "3", "--quiet", "--out", str(tmp_path / "whole")])
    words = ["--stop-after", "1", "--json", "--out", str(tmp_path)]
    capsys.readouterr()
    first = run_recipe(*recipe, argv=["--repeat", "3", "--in-turns", "f00:second", *words])
    assert first.verdict == "UNJUDGED (stopped before seed 1)" and first.exit_code == 0
    assert json.loads(capsys.readouterr().out) == {"path": first.path, "stopped_before": 1}
    assert Record(Path(first.path)).summary() is None
    run_recipe(*recipe, argv=["--resume", first.path, *words])
    assert json.loads(capsys.readouterr().out)["stopped_before"] == 2
    last = run_recipe(*recipe, argv=["--resume", first.path, *words])
    assert json.loads(capsys.readouterr().out)["verdict"] == last.verdict == "PASSED"
    assert last["test_accuracy"].values == whole["test_accuracy"].values and verify(Path(last.path)) == []
    manifest = Record(Path(last.path)).manifest()
    assert manifest["turns"] == {"id": "f00", "side": "second", "apart": []} and manifest["argv"] == ["--repeat", "3"]
    assert "turns" not in Record(Path(whole.path)).manifest()


def test_a_stopped_run_says_how_it_goes_on(tmp_path, capsys):
    result = run_recipe(
        *quick("reference", epochs=1), argv=["--repeat", "2", "--stop-after", "1", "--out", str(tmp_path)]
    )
    assert f"stopped before seed 1; go on with: --resume {result.path}" in capsys.readouterr().out
