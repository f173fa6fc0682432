"""Programs that end without ``close()``: well where every rank ends, and with a code of their own."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from deep500.distributed import launch as launch_module
from tests.conftest import load_backend
from tests.distributed.ranks import LIMIT, environment, finish, missing

PROGRAM = """
import sys
import time

import numpy as np
from {module} import {kind}

comm = {kind}(timeout=3600)
total = comm.all_reduce(np.ones(3))
print("sum", total.sum(), flush=True)
time.sleep(2 * comm.rank if {late} else 0)
if {code}:
    sys.exit({code})
"""
TRANSPORTS = [
    pytest.param(
        "MPI", marks=[pytest.mark.mpi, pytest.mark.skipif(missing() is not None, reason=str(missing()))], id="mpi"
    ),
    pytest.param("TorchDistributed", marks=pytest.mark.backend("pytorch"), id="torchrun"),
]


def run(kind: str, folder: Path, late: bool, code: int) -> tuple[int, str]:
    """Exit code and output of the program on two ranks."""
    module = "deep500.distributed.transports.mpi" if kind == "MPI" else "deep500.frameworks.pytorch.distributed"
    source = PROGRAM.format(module=module, kind=kind, late=late, code=code)
    if kind == "MPI":
        command, variables = [launch_module.find_mpiexec(), "-n", "2", sys.executable], environment(2, LIMIT)
    else:
        load_backend("pytorch")
        command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
        variables = {**os.environ, "OMP_NUM_THREADS": "1"}
    file = folder / "program.py"
    file.write_text(source, encoding="utf-8")
    return finish([*command, str(file)], variables, LIMIT)


@pytest.mark.parametrize("kind", TRANSPORTS)
@pytest.mark.parametrize("late", [False, True], ids=["together", "one after the other"])
def test_a_program_that_ends_without_close_ends_well(kind: str, late: bool, tmp_path: Path) -> None:
    code, output = run(kind, tmp_path, late, 0)
    assert code == 0 and output.count("6.0") == 2 and "Error" not in output, output


@pytest.mark.parametrize("kind", TRANSPORTS)
def test_a_code_of_the_program_s_own_is_kept(kind: str, tmp_path: Path) -> None:
    code, output = run(kind, tmp_path, False, 3)
    assert code != 0 and output.count("6.0") == 2 and "has not entered" not in output, output
