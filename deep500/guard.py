"""Between the package and the shell: an error becomes one line on stderr and an exit code, not a traceback."""

from __future__ import annotations

import contextlib
import errno
import io
import os
import re
import sys
import sysconfig
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn, TextIO, TypeVar

from deep500.errors import Deep500Error
from deep500.registry import check_folder

if TYPE_CHECKING:
    from deep500.distributed.transports.communicator import Communicator

T = TypeVar("T")
INTERRUPTED = 130
"""Exit code after Ctrl-C: 128 + SIGINT, as shells have it."""


PACKAGE = str(Path(__file__).resolve().parent) + os.sep
FACES = f"{PACKAGE}faces.py"
LIBRARIES = tuple(f"{sysconfig.get_path(name)}{os.sep}" for name in ("stdlib", "platstdlib", "purelib", "platlib"))
DEBUG = "--debug"
"""The option, of every command, that shows whole tracebacks."""


HIDDEN = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200b-\u200f\u2028-\u202e\u2066-\u2069\ufeff]")
"""Characters that a terminal obeys or hides instead of showing them, all but the tabulator and the end of a line."""


def visible(text: str) -> str:
    r"""Write characters that steer a terminal as JSON does: names in a stranger's folder then only look odd.

    Example:
        >>> visible("loss\x1b[2K")
        'loss\\u001b[2K'
    """
    return HIDDEN.sub(lambda match: f"\\u{ord(match[0]):04x}", text)


class VisibleOutput:
    """A text stream that shows what would steer a terminal, see :func:`visible`."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def write(self, text: str) -> int:
        """Write the text; returns how many characters it had."""
        self._stream.write(visible(text))
        return len(text)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)


def guarded(action: Callable[[], T], debug: bool = False) -> T:
    """Call ``action``; leave the process with an exit code if it raises an error of Deep500 or is interrupted.

    An exception that code of the user's raises, in a recipe, a listener or another object of it, is told with the lines
    of that code. Any other is a defect of Deep500 and keeps its traceback. With ``debug`` all do.
    """
    if sys.stderr is None:  # closed: results and the exit code still say how it went
        sys.stderr = open(os.devnull, "w", encoding="utf-8")  # noqa: PTH123
    for stream in (sys.stdout, sys.stderr):  # in what else than UTF-8 a terminal may be, no character ends a run
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")
    try:
        _check_process()
        result = action()
        if not sys.stdout.closed:
            sys.stdout.flush()  # here a full disk is still an error of ours
        return result
    except Deep500Error as error:
        if debug:
            traceback.print_exc()
        _leave(f"{_error()} {visible(' '.join(str(error).splitlines()))}", error.exit_code)
    except KeyboardInterrupt as interrupt:
        _leave(f"\ndeep500: {str(interrupt) or 'interrupted'}", INTERRUPTED)
    except BrokenPipeError:  # "| head" has read enough
        _drop_output()
        raise SystemExit(1) from None
    except Exception as error:
        text = None if debug else users_lines(error)
        if text is not None:
            _leave(f"{text}\n{_error()} that is an exception of your code; {DEBUG} shows all of it", 1)
        if debug or not isinstance(error, OSError) or error.errno not in REFUSALS:
            raise
        _drop_output()
        where = f"{error.filename!r}" if error.filename else "the standard output or a file"
        _leave(
            f"{_error()} got '{error.strerror}' at {where}; expected a place that can be read and written, with "
            f"free space: free some, or choose another; {DEBUG} shows where",
            2,
        )


REFUSALS = (errno.ENOSPC, errno.EDQUOT, errno.EIO, errno.EROFS, errno.EACCES, errno.EPERM, errno.EMFILE, errno.EFBIG)
"""Errors by which a system refuses any program: no defect of ours, and a traceback is of no use."""


def _check_process() -> None:
    """Raise Deep500Error where a process cannot work, whatever it is asked for."""
    if sys.stdout is None:
        raise Deep500Error("got a closed standard output; expected an open one: >/dev/null throws it away")
    if sys.flags.optimize > 1:
        raise Deep500Error("got Python -OO, which takes the rules' texts away; expected -O or none: leave it out")
    check_folder()
    for text in (*sys.argv, str(Path.cwd())):  # a run's files, which hold them, are UTF-8
        if any("\ud800" <= character <= "\udfff" for character in text):
            raise Deep500Error(f"got {text!a}, bytes that are no UTF-8; expected UTF-8: rename the file or folder")


BOLD, RED, GREEN = 1, 31, 32


def paint(text: str, colour: int, stream: TextIO | None = None) -> str:
    """Return text in a colour where a stream, standard output if None, is a terminal; NO_COLOR is heeded.

    Example:
        >>> paint("PASS", GREEN, io.StringIO())
        'PASS'
    """
    plain = os.environ.get("NO_COLOR") or os.environ.get("TERM") == "dumb" or not (stream or sys.stdout).isatty()
    return text if plain else f"\x1b[{colour}m{text}\x1b[0m"


def _leave(text: str, code: int) -> NoReturn:
    """Write lines on stderr, end the other ranks and leave with an exit code; a full stderr changes no code."""
    start = len(text) - len(text.lstrip("\n"))
    with contextlib.suppress(OSError):
        sys.stderr.write("\n" * start + "".join(f"{_rank()}{line}\n" for line in text[start:].splitlines()))
        sys.stderr.flush()
    _end_other_ranks(code)
    raise SystemExit(code) from None


def _error() -> str:
    return paint("deep500: error:", RED, sys.stderr)


def _drop_output() -> None:
    """Lead the standard output to nowhere, or Python complains once more at exit."""
    with contextlib.suppress(OSError, ValueError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def users_lines(error: BaseException) -> str | None:
    """The traceback of an exception without the frames of Deep500; None if it was not the user's code that raised it.

    It was where the innermost frame that is of no library is of none of our files.
    """
    if isinstance(error, SyntaxError) and error.filename and _whose(error.filename) == "user":
        return "".join(traceback.format_exception_only(type(error), error)).rstrip()
    frames = traceback.extract_tb(error.__traceback__)
    whose = [_whose(frame.filename) for frame in frames]
    if next((who for who in reversed(whose) if who != "library"), "deep500") != "user":
        return None
    last = max((place for place, who in enumerate(whose) if who == "deep500"), default=-1)
    shown = [frame for frame in frames[last + 1 :] if not frame.filename.startswith("<") and frame.filename != FACES]
    lines = [*traceback.format_list(shown), *traceback.format_exception_only(type(error), error)]
    return "".join(["Traceback (most recent call last):\n", *lines]).rstrip()


def _whose(filename: str) -> str:
    """``deep500``, ``library`` or ``user``."""
    if filename.startswith("<"):
        return "library"
    real = os.path.realpath(filename)
    if real == FACES:  # a name that a package of ours has not, asked for by whoever stands above
        return "library"
    return "deep500" if real.startswith(PACKAGE) else "library" if real.startswith(LIBRARIES) else "user"


def _several() -> Communicator | None:
    """The communicator of this process if it is one of several; a world that was never loaded was never made."""
    loaded = sys.modules.get("deep500.distributed.world")
    comm = loaded.current_world() if loaded is not None else None
    return comm if comm is not None and comm.size > 1 else None


def _rank() -> str:
    comm = _several()
    return f"[rank {comm.rank}] " if comm is not None else ""


def _end_other_ranks(code: int) -> None:
    """End the other ranks with this one, for which they would wait."""
    comm = _several()
    if comm is not None and not comm.at_rest:
        sys.stderr.flush()
        comm.abort(code)
