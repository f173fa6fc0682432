"""Seeds of ``--repeat`` as processes of their own: when, in which order, stopped and gone on with, what they claim."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from deep500.recipe import run_recipe
from deep500.recipe.launches import are_launches, in_random_order
from deep500.recipe.options import parse_options
from deep500.results.verify import verify
from tests.recipes.common import quick

RECIPE = """
import sys
from deep500.recipe import run_recipe
from tests.recipes.common import quick
FIXED, MUTABLE, METRICS = quick("reference", epochs=1)
if __name__ == "__main__":
    print("a script has", run_recipe(FIXED, MUTABLE, METRICS).verdict)
"""
COMMAND = ["-m", "deep500", "run", "job.py"]


@pytest.mark.parametrize(
    ("words", "command", "launches"),
    [
        (["--repeat", "6"], COMMAND, True),
        (["--repeat", "auto", "--budget", "9"], COMMAND, True),
        (["--repeat", "5"], COMMAND, False),  # no interval over launches is claimed
        ([], COMMAND, False),
        (["--repeat", "6"], None, False),  # of a program, which cannot be started again
        (["--repeat", "6", "--dry-run"], COMMAND, False),
        (["--repeat", "6", "--stop-after", "1"], COMMAND, False),
        (["--repeat", "6", "--in-turns", "1:base"], COMMAND, False),
        (["--repeat", "6", "--launch", "here"], COMMAND, False),
    ],
)
def test_where_launches_are_claimed_seeds_are_processes(words, command, launches, monkeypatch):
    assert are_launches(parse_options(words), command) is launches
    monkeypatch.setattr("deep500.recipe.launches.started", lambda: True)
    assert not are_launches(parse_options(words), command)


def test_the_order_is_random_and_the_same_for_all_processes():
    assert all(sorted(in_random_order(list(range(k, k + 8)))) == list(range(k, k + 8)) for k in range(40))
    firsts = [in_random_order(list(range(first, first + 8))).index(first) for first in range(200)]
    assert all(10 < firsts.count(place) < 45 for place in range(8))  # 25 expected


def facts_of(path):
    lines = [json.loads(line) for line in (path / "metrics.jsonl").read_text().splitlines()]
    step = json.loads((path / "stats.json").read_text())["series"]["step"]
    return [line["seed"] for line in lines], [line["clock"]["process"] for line in lines], step


@pytest.mark.slow
def test_seeds_are_launches_that_can_be_interrupted_and_are_the_seeds_of_one_process(tmp_path):
    (tmp_path / "job.py").write_text(RECIPE)
    words = [sys.executable, "job.py", "--repeat", "6", "--quiet"]
    running = subprocess.Popen(words, cwd=tmp_path, stderr=subprocess.PIPE, start_new_session=True)
    end = time.monotonic() + 120
    while not list(tmp_path.glob("results/job/*/seeds.json")) and time.monotonic() < end:
        time.sleep(0.05)
    os.killpg(running.pid, signal.SIGINT)  # as a terminal does
    running.communicate(timeout=60)
    assert running.returncode == 130
    (path,) = tmp_path.glob("results/job/2*")
    assert not (path / "summary.json").exists()
    done = subprocess.run([*words, "--resume"], cwd=tmp_path, capture_output=True, text=True, check=True)
    assert done.stdout.count("a script has PASSED") == 1
    seeds, processes, step = facts_of(path)
    assert verify(path) == [] and seeds == in_random_order(list(range(6))) and len(set(processes)) == 6
    assert step["estimates"][0]["ci"]["cluster"] == "launches"
    whole = run_recipe(*quick("reference", epochs=1), argv=["--repeat", "6", "--quiet", "--out", str(tmp_path)])
    values = json.loads((path / "summary.json").read_text())["metrics"][0]["values"]
    assert values == whole["test_accuracy"].values  # in the order of the seeds, not of the launches
    seeds, processes, step = facts_of(Path(whole.path))
    assert seeds == list(range(6)) and len(set(processes)) == 1
    assert step["estimates"][0]["ci"]["cluster"] == "within launches of one process"


def test_a_launch_that_fails_ends_it(tmp_path):
    (tmp_path / "job.py").write_text(RECIPE.replace("epochs=1", "epochs=1, model_kwargs={'hidden': 'many'}"))
    words = [sys.executable, "-m", "deep500", "run", "job.py", "--repeat", "6"]
    done = subprocess.run(words, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode not in (0, 130) and done.stderr.count("error") == 1
