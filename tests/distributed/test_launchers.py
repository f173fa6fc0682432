"""The texts of docs/launchers start ranks: Ray where it is installed, SLURM's under a stand-in for its commands."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.conftest import HANG
from tests.distributed import jobs

LAUNCHERS = jobs.ROOT / "docs" / "launchers"

SRUN = """#!/bin/bash
# starts the tasks of a job on this machine; the first that fails ends the others, as --kill-on-bad-exit says
shift
for ((task = 0; task < SLURM_NTASKS; task++)); do
  SLURM_PROCID=$task SLURM_LOCALID=$task "$@" &
done
for ((task = 0; task < SLURM_NTASKS; task++)); do
  wait -n || { code=$?; kill $(jobs -p) 2>/dev/null; exit $code; }
done
"""
SCONTROL = """#!/bin/bash
[ "$1 $2" = "show hostnames" ] && echo "${3%%,*}"
"""


def start(folder: Path, *command: str, **variables: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(jobs.ROOT), *sys.path]), "HOME": str(folder)}
    given = {"OMP_NUM_THREADS": "1", "RAY_AUTH_MODE": "disabled", "DEEP500_COMM_TIMEOUT": "60", **variables}
    return subprocess.run(
        command, cwd=folder, env={**environment, **given}, text=True, capture_output=True, timeout=HANG, check=False
    )


def slurm(folder: Path, recipe: Path, *words: str, **variables: str) -> subprocess.CompletedProcess[str]:
    """``sbatch`` on a machine without SLURM."""
    bin = folder / "bin"
    bin.mkdir(exist_ok=True)
    for name, text in {
        "srun": SRUN,
        "scontrol": SCONTROL,
        "python": f'#!/bin/bash\nexec {sys.executable} "$@"\n',
    }.items():
        (bin / name).write_text(text)
        (bin / name).chmod(0o755)
    job = {
        "SLURM_JOB_ID": "123456",
        "SLURM_JOB_NODELIST": "localhost,other",
        "SLURM_NTASKS": "2",
        "SLURM_CPUS_PER_TASK": "1",
        "PATH": f"{bin}{os.pathsep}{os.environ['PATH']}",
    }
    text = LAUNCHERS / "slurm.sbatch"
    return start(folder, "bash", str(text), str(recipe), *words, **job, **variables)


def manifest(folder: Path) -> dict[str, Any]:
    (path,) = (folder / "results" / jobs.RECIPE.stem).glob("2*/manifest.json")
    found: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    return found


def check(folder: Path, alone: Path) -> None:
    """Two ranks over torch.distributed, and what one process ends with."""
    said = manifest(folder)
    assert said["ranks"] == 2 and said["processes"]["transport"] == "torch"
    (arrays, lines), (expected, expected_lines) = jobs.outcome(folder), jobs.outcome(alone)
    for name in (name for name in expected if name.startswith("network/")):
        assert np.abs(arrays[name] - expected[name]).max() < 1e-12
    assert [line["test_accuracy"] for line in lines] == [line["test_accuracy"] for line in expected_lines]


@pytest.fixture(scope="module")
def alone(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The recipe in one process."""
    folder = tmp_path_factory.mktemp("alone")
    done = jobs.run(folder)
    assert done.code == 0, done.errors
    return folder


def test_a_job_of_slurm_tells_ranks_who_they_are(tmp_path: Path) -> None:
    who = tmp_path / "who.py"
    who.write_text(
        "import os, sys\n"
        "from deep500.distributed.world import TORCH_VARIABLES, transport_of\n"
        "names = [*TORCH_VARIABLES, 'LOCAL_RANK', 'OMP_NUM_THREADS']\n"
        "words = [transport_of(os.environ), *(os.environ[name] for name in names), *sys.argv[1:]]\n"
        "os.write(1, (' '.join(words) + '\\n').encode())\n"  # in one piece: both ranks write to this pipe
    )
    done = slurm(tmp_path, who, "epochs=2")
    assert done.returncode == 0, done.stderr
    ranks = [f"torch localhost 23456 {rank} 2 {rank} 1 epochs=2 --resume-or-start" for rank in (0, 1)]
    assert sorted(done.stdout.splitlines()) == ranks


@pytest.mark.long
@pytest.mark.backend("pytorch")
def test_a_job_of_slurm_goes_on_when_it_comes_again(tmp_path: Path, alone: Path) -> None:
    """A killed rank ends the job; the same line, started again, ends as if nothing had been."""
    words = ("scheme=ShardedParameters",)
    killed = slurm(tmp_path, jobs.RECIPE, *words, FAIL_RANK="1", FAIL_STEP="25", FAIL_HOW="kill")
    assert killed.returncode != 0 and jobs.summary(tmp_path) is None
    done = slurm(tmp_path, jobs.RECIPE, *words)
    assert done.returncode == 0, done.stderr
    assert len(manifest(tmp_path)["resumed"]) == 1
    check(tmp_path, alone)


@pytest.mark.long
@pytest.mark.backend("pytorch")
@pytest.mark.parametrize("text", ["ray_ranks.py", "ray_train.py"])
def test_ray_starts_ranks(text: str, tmp_path: Path, alone: Path) -> None:
    pytest.importorskip("ray" if text == "ray_ranks.py" else "ray.train.torch", exc_type=ImportError)
    words = ("2", str(jobs.RECIPE), "--out", str(tmp_path / "results"), "scheme=Pipeline")
    done = start(tmp_path, sys.executable, str(LAUNCHERS / text), *words)
    assert done.returncode == 0, done.stdout + done.stderr
    check(tmp_path, alone)


@pytest.mark.long
@pytest.mark.backend("pytorch")
def test_a_worker_of_ray_that_fails_ends_the_others(tmp_path: Path) -> None:
    pytest.importorskip("ray")
    words = ("2", str(jobs.RECIPE), "--out", str(tmp_path / "results"))
    failed = {"FAIL_RANK": "1", "FAIL_STEP": "5", "FAIL_HOW": "raise"}
    done = start(tmp_path, sys.executable, str(LAUNCHERS / "ray_ranks.py"), *words, **failed)
    assert done.returncode != 0 and jobs.summary(tmp_path) is None
