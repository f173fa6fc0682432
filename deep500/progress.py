"""A line on a terminal about what takes its time: what it is, what is being done now and how far, for how long."""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterable, Iterator, Sized
from contextlib import contextmanager
from time import perf_counter
from typing import Any, TextIO, TypeVar

PATIENCE = 1.0
"""Seconds after which the line appears; what is done sooner shows nothing."""

BEAT = 0.5
"""Seconds between two drawings."""

_APART = 0.05  # seconds, at least, between two drawings of stages

Item = TypeVar("Item")


class _Line:
    """The line on the terminal, drawn by a thread of its own: libraries that are loaded or built draw nothing."""

    def __init__(self, what: str, at_once: bool) -> None:
        from tqdm import tqdm

        form = "{desc}{postfix} [{elapsed}]"
        self.bar: Any = tqdm(desc=what, file=sys.stderr, bar_format=form, leave=False, delay=0 if at_once else 1e-9)
        self.drawn, self.last = at_once, perf_counter()
        self.still, self.ended = False, threading.Event()
        self.beating = threading.Thread(target=self._beat, daemon=True)
        self.beating.start()

    def _beat(self) -> None:
        pause = PATIENCE
        while not self.ended.wait(pause):
            if not self.still:
                self.draw()
            pause = BEAT

    def draw(self) -> None:
        self.drawn, self.last = True, perf_counter()
        self.bar.refresh()

    def end(self) -> None:
        self.ended.set()
        self.beating.join()
        if self.drawn:
            self.bar.clear()  # close() alone leaves the line where only refresh() has drawn it
        self.bar.close()


_shown: list[_Line | None] = []  # None: nothing is to be shown


@contextmanager
def progress(what: str, quiet: bool = False, at_once: bool = False) -> Iterator[None]:
    """Show a line while the block runs, where standard error is a terminal. Inside another one, its stage is this.

    Args:
        what: what is waited for.
        quiet: show nothing, neither of this nor of what the block does.
        at_once: do not wait for :data:`PATIENCE`: what loads a library may let no other thread draw for seconds.

    Example:
        >>> with progress("adding"):
        ...     sum(numbered("a number", [1, 2, 3]))
        6
    """
    if _shown:
        stage(what)
        yield
        return
    if not (quiet or sys.stderr.isatty()):
        yield
        return
    line = None if quiet else _Line(what, at_once)
    _shown.append(line)
    try:
        yield
    finally:
        _shown.remove(line)
        if line is not None:
            line.end()


def stage(doing: str) -> None:
    """Say what is being done now; nothing where no line is shown."""
    for line in _shown:
        if line is not None:
            line.bar.set_postfix_str(doing, refresh=False)
            if line.drawn and perf_counter() - line.last > _APART:
                line.draw()  # at once: what comes now may let no other thread draw


def numbered(doing: str, items: Iterable[Item], total: int | str | None = None) -> Iterator[Item]:
    """The items, with ``doing`` and a number as the stage of each.

    Args:
        doing: with each item.
        items: what is gone through.
        total: how many there are; the length of ``items`` if None and they have one.

    Example:
        >>> list(numbered("an item", "ab"))
        ['a', 'b']
    """
    if total is None and isinstance(items, Sized):
        total = len(items)
    count = "" if total is None else f" of {total}"
    for number, item in enumerate(items, 1):
        stage(f"{doing} {number}{count}")
        yield item


@contextmanager
def still() -> Iterator[None]:
    """Draw between stages only while the block runs, which times something."""
    lines = [line for line in _shown if line is not None]
    for line in lines:
        line.still = True
    try:
        yield
    finally:
        for line in lines:
            line.still = False


def above(text: str, file: TextIO | None = None) -> None:
    """Print a line above the line that is shown, on standard output if ``file`` is None."""
    if not any(_shown):
        print(text, file=file, flush=True)
        return
    from tqdm import tqdm

    with tqdm.external_write_mode(file=file):
        print(text, file=file, flush=True)
