"""Keep what converters of frameworks write to this process's streams away from its user."""

from __future__ import annotations

import contextlib
import ctypes
import io
import logging
import os
import sys
import tempfile
from collections.abc import Callable, Iterator


@contextlib.contextmanager
def quiet() -> Iterator[Callable[[], str]]:
    """Keep standard output and error, those of C++ too, and logging below errors from anybody.

    Gives:
        a function that returns what was written so far.

    Example:
        >>> with quiet() as written:
        ...     _ = os.write(2, b"from C++")
        ...     print("from Python")
        >>> "from C++" in written() and "from Python" in written()
        True
    """
    with contextlib.ExitStack() as stack:
        file = stack.enter_context(tempfile.TemporaryFile())
        text = ""

        def written() -> str:
            nonlocal text
            if not file.closed:
                _flush()
                file.seek(0)
                text = file.read().decode(errors="replace")
            return text

        before = logging.root.manager.disable
        logging.disable(max(before, logging.ERROR))
        stack.callback(logging.disable, before)
        _flush()
        for number in (1, 2):
            with contextlib.suppress(OSError):  # a process may have none
                copy = os.dup(number)
                stack.callback(os.close, copy)
                os.dup2(file.fileno(), number)
                stack.callback(os.dup2, copy, number)
        stream = stack.enter_context(io.TextIOWrapper(os.fdopen(os.dup(file.fileno()), "wb"), write_through=True))
        stack.enter_context(contextlib.redirect_stdout(stream))
        stack.enter_context(contextlib.redirect_stderr(stream))
        stack.callback(written)
        yield written


def _flush() -> None:
    """Hand on what Python's and C's streams hold back."""
    for stream in (sys.stdout, sys.stderr):
        if stream is not None and not stream.closed:
            stream.flush()
    ctypes.CDLL(None).fflush(None)
