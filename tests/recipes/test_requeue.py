"""A job that torchrun starts again after a rank was killed goes on from its checkpoint to the same bits."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.conftest import HANG

pytest.importorskip("torch")
pytestmark = pytest.mark.long

SCRIPT = """
import os
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
