"""Between the package and the shell: an error becomes one line on stderr and an exit code, not a traceback."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, TypeVar

from deep500.errors import Deep500Error
from deep500.registry import check_folder

if TYPE_CHECKING:
    from deep500.distributed.transports.communicator import Communicator

T = TypeVar("T")
INTERRUPTED = 130
"""Exit code after Ctrl-C: 128 + SIGINT, as shells have it."""


def guarded(action: Callable[[], T]) -> T:
    """Call ``action``; leave the process with an exit code if it raises an error of Deep500 or is interrupted.

    Any other exception is a defect of Deep500 and keeps its traceback.
    """
    try:
        check_folder()
        return action()
    except Deep500Error as error:
        sys.stderr.write(f"{_rank()}deep500: error: {' '.join(str(error).splitlines())}\n")
        _end_other_ranks(error.exit_code)
        raise SystemExit(error.exit_code) from None
    except KeyboardInterrupt as interrupt:
        sys.stderr.write(f"\n{_rank()}deep500: {str(interrupt) or 'interrupted'}\n")
        _end_other_ranks(INTERRUPTED)
        raise SystemExit(INTERRUPTED) from None
    except BrokenPipeError:  # "| head" has read enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # or Python complains once more at exit
        raise SystemExit(1) from None


def _several() -> Communicator | None:
    """The communicator of this process if it is one of several; a world that was never loaded was never made."""
    loaded = sys.modules.get("deep500.distributed.world")
    comm = loaded.current_world() if loaded is not None else None
    return comm if comm is not None and comm.size > 1 else None


def _rank() -> str:
    comm = _several()
    return f"[rank {comm.rank}] " if comm is not None else ""


def _end_other_ranks(code: int) -> None:
    """What ends one rank ends all: the others would wait for it."""
    comm = _several()
    if comm is not None and not comm.at_rest:
        sys.stderr.flush()
        comm.abort(code)
