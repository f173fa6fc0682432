"""The edge between the package and the shell: errors become one line on stderr and an exit code, never a traceback."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from typing import TypeVar

from deep500.errors import Deep500Error

T = TypeVar("T")
INTERRUPTED = 130
"""Exit code after Ctrl-C: 128 + SIGINT, as shells have it."""


def guarded(action: Callable[[], T]) -> T:
    """Call ``action``; leave the process with the right code if it fails on purpose or is interrupted.

    Anything else is a defect of ours and keeps its traceback.
    """
    try:
        return action()
    except Deep500Error as error:
        sys.stderr.write(f"deep500: error: {' '.join(str(error).splitlines())}\n")
        raise SystemExit(error.exit_code) from None
    except KeyboardInterrupt as interrupt:
        sys.stderr.write(f"\ndeep500: {interrupt or 'interrupted'}\n")
        raise SystemExit(INTERRUPTED) from None
    except BrokenPipeError:  # "| head" has read enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # or Python complains once more at exit
        raise SystemExit(1) from None
