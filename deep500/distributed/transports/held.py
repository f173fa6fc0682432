"""Our launcher runs this file in every rank's process: ``python -m mpi4py``, with the rank's file held before all else.

A rank that is killed while it imports is named then, too. Nothing of Deep500 is imported here, for that takes time.
"""

import os
import runpy
import sys
from pathlib import Path

RANKS = ("PMI_RANK", "OMPI_COMM_WORLD_RANK", "PMIX_RANK")


def hold() -> "Path | None":
    """Create this rank's file and lock it; its descriptor goes to whoever takes it over, by the environment."""
    rank = next((os.environ[name] for name in RANKS if name in os.environ), None)
    if rank is None or "DEEP500_ROLL_CALL" not in os.environ:
        return None
    import fcntl

    path = Path(os.environ["DEEP500_ROLL_CALL"], rank)
    try:
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    except OSError:  # on another machine
        return None
    descriptor = _closed_early(descriptor)
    fcntl.lockf(descriptor, fcntl.LOCK_EX)
    os.environ["DEEP500_HELD"] = str(descriptor)
    return path


def _closed_early(descriptor: int) -> int:
    """The descriptor at the first place after the standard streams; what was there, the launcher's, is moved.

    When a process ends, the kernel closes what it has open from the lowest number on, and MPICH's launcher ends all
    other ranks when its own line to one is closed. On a busy machine those could be gone before our file was closed.
    """
    spoken_of = {value for name, value in os.environ.items() if name.endswith("_FD")}
    place = next(number for number in range(3, descriptor + 1) if str(number) not in spoken_of)
    if place == descriptor:
        return descriptor
    moved = os.dup(place)
    os.set_inheritable(moved, os.get_inheritable(place))
    os.dup2(descriptor, place, inheritable=False)
    os.close(descriptor)
    return place


def main() -> None:
    """Be ``python -m mpi4py``; who ends without ever having been in the world of all ranks owes no word."""
    path = hold()
    sys.path[0] = str(Path.cwd())
    failed = True
    try:
        runpy.run_module("mpi4py", run_name="__main__", alter_sys=True)
        failed = False
    except SystemExit as leave:
        failed = bool(leave.code)
        raise
    finally:
        descriptor = os.environ.pop("DEEP500_HELD", None)  # absent: the communicator has taken it over
        if path is not None and descriptor is not None:
            if failed:
                os.write(int(descriptor), b"r")  # what it was is on stderr
            else:
                path.unlink(missing_ok=True)


if __name__ == "__main__":
    main()
