"""A job that torchrun starts again after a rank was killed goes on from its checkpoint to the same bits."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from deep500.results.checkpoint import list_checkpoints, load_checkpoint
from tests.conftest import HANG

pytest.importorskip("torch")
pytestmark = pytest.mark.long

SCRIPT = """
import os
import socket
from pathlib import Path
import deep500 as d5
import deep500.frameworks.reference as d5fw
from deep500.recipe import run_recipe

class DieOnce(d5.Event):
    # the second rank is killed in the second epoch, the first time
    def after_batch(self, run):
        mark = os.environ["MARK"]
        if mark and not Path(mark).exists() and run.epoch == 1 and run.batch == 3 and os.environ.get("RANK") == "1":
            Path(mark).write_text("died")
            os.kill(os.getpid(), 9)

FIXED = {"model": "mlp", "model_kwargs": dict(hidden=(16,)), "dataset": "digits", "epochs": 3}
MUTABLE = {"batch_size": 64, "executor": d5fw.from_model, "optimizer": d5fw.MomentumOptimizer,
           "optimizer_args": (0.1, 0.9), "events": [DieOnce]}
METRICS = [(d5.metrics.BitwiseEqual(), None)]
if __name__ == "__main__":
    run_recipe(FIXED, MUTABLE, METRICS)
"""


def test_a_killed_rank_costs_an_epoch_and_no_bit(tmp_path: Path) -> None:
    (tmp_path / "job.py").write_text(SCRIPT)
    digests = []
    for number, mark in enumerate(("", str(tmp_path / "mark"))):
        out = tmp_path / f"results{number}"
        command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
        command += ["--max-restarts", "2", "job.py", "--resume-or-start", "--quiet", "--out", str(out)]
        variables = {**os.environ, "MARK": mark, "OMP_NUM_THREADS": "1", "DEEP500_COMM_TIMEOUT": "60"}
        variables["TORCH_DISABLE_SHARE_RDZV_TCP_STORE"] = "1"  # see docs/distributed.md, "Started again"
        done = subprocess.run(
            command, cwd=tmp_path, env=variables, capture_output=True, text=True, timeout=HANG, check=False
        )
        assert done.returncode == 0, done.stderr[-2000:]
        (run,) = (path for path in (out / "job").iterdir() if path.is_dir())
        manifest, summary = (json.loads((run / name).read_text()) for name in ("manifest.json", "summary.json"))
        assert len(manifest["resumed"]) == number
        digests.append(summary["metrics"][0]["remark"])
    assert digests[0] == digests[1] and "SHA-256" in digests[0] and (tmp_path / "mark").exists()


def agent(folder: Path, port: int, host: bool, mark: Path) -> subprocess.Popen[str]:
    """One of two machines under torchrun, of one rank; the one that is no host is lost in the second epoch."""
    command = [sys.executable, "-m", "torch.distributed.run", "--nnodes", "1:2", "--nproc-per-node", "1"]
    command += ["--max-restarts", "3", "--rdzv-backend", "c10d", "--rdzv-endpoint", f"localhost:{port}"]
    quick = "last_call_timeout=2,keep_alive_interval=1,keep_alive_max_attempt=3"
    command += ["--rdzv-id", "lost", "--rdzv-conf", f"is_host={str(host).lower()},{quick}", "job.py"]
    words = ["--resume-or-start", "--quiet", "--out", str(folder / "results")]
    ours = {"OMP_NUM_THREADS": "1", "MARK": "" if host else str(mark), "DEEP500_COMM_TIMEOUT": "60"}
    variables = {**os.environ, **ours, "TORCH_DISABLE_SHARE_RDZV_TCP_STORE": "1"}
    output = subprocess.PIPE if host else subprocess.DEVNULL
    return subprocess.Popen(
        [*command, *words], cwd=folder, env=variables, text=True, stdout=output, stderr=subprocess.STDOUT
    )


def test_a_lost_machine_costs_an_epoch(tmp_path: Path) -> None:
    """One of two agents of torchrun dies with its rank: the other goes on alone, and the report says so."""
    one, both = "            os.kill(os.getpid(), 9)\n", "            os.kill(os.getppid(), 9)\n"
    lost = SCRIPT.replace(' and os.environ.get("RANK") == "1"', "").replace(one, both + one)
    (tmp_path / "job.py").write_text(lost)
    with socket.socket() as free:
        free.bind(("localhost", 0))
        port = free.getsockname()[1]
    agents = [agent(tmp_path, port, host, tmp_path / "mark") for host in (True, False)]
    try:
        said, _ = agents[0].communicate(timeout=HANG)
        assert agents[0].returncode == 0, said[-3000:]
        assert agents[1].wait(timeout=HANG) == -9
    finally:
        for one in agents:
            one.kill()
    (run,) = (path for path in (tmp_path / "results" / "job").iterdir() if path.is_dir())
    manifest = json.loads((run / "manifest.json").read_text())
    (resumed,) = manifest["resumed"]
    assert manifest["ranks"] == 1 and resumed["ranks"] == [2, 1] and "up to the order of sums" in resumed["promise"]
    page = (run / "report.html").read_text()
    assert "seed 0: epoch 1 (" in page and "on 2 ranks, epochs 2 to 3 (" in page and "on 1 rank; equal to a run" in page
    command = [sys.executable, "job.py", "--quiet", "--out", str(tmp_path / "alone")]
    variables = {**os.environ, "MARK": "", "OMP_NUM_THREADS": "1"}
    subprocess.run(command, cwd=tmp_path, env=variables, check=True, timeout=HANG)
    (other,) = (path for path in (tmp_path / "alone" / "job").iterdir() if path.is_dir())
    arrays, expected = (
        load_checkpoint(list_checkpoints(folder / "checkpoints" / "seed-0")[-1])["arrays"] for folder in (run, other)
    )
    for name in (name for name in expected if name.startswith("network/")):
        assert np.abs(arrays[name] - expected[name]).max() < 1e-5, name
