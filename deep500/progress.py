"""A line on a terminal about what takes its time: what it is, what is being done now and how far, for how long."""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterable, Iterator, Sized
from contextlib import contextmanager
from typing import Any, TypeVar

PATIENCE = 1.0
"""Seconds after which the line appears; what is done sooner shows nothing."""

BEAT = 0.5
"""Seconds between two drawings."""

Item = TypeVar("Item")

_shown: list[Any] = []


@contextmanager
def progress(what: str, quiet: bool = False) -> Iterator[None]:
    """Show a line while the block runs, where standard error is a terminal. Inside another one, its stage is this.

    Args:
        what: what is waited for.
        quiet: show nothing, neither of this nor of what the block does.

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
    from tqdm import tqdm

    form = "{desc}{postfix} [{elapsed}]"
    bar = tqdm(desc=what, file=sys.stderr, bar_format=form, leave=False, delay=max(PATIENCE, 1e-9), disable=quiet)
    ended, drawn = threading.Event(), list[bool]()

    def beat() -> None:
        pause = PATIENCE
        while not ended.wait(pause):
            drawn[:] = [True]
            bar.refresh()
            pause = BEAT

    beating = threading.Thread(target=beat, daemon=True)
    _shown.append(bar)
    beating.start()
    try:
        yield
    finally:
        _shown.remove(bar)
        ended.set()
        beating.join()
        if drawn:
            bar.clear()  # close() alone leaves the line where only refresh() has drawn it
        bar.close()


def stage(doing: str) -> None:
    """Say what is being done now; nothing where no line is shown."""
    for bar in _shown:
        bar.set_postfix_str(doing, refresh=False)


def numbered(doing: str, items: Iterable[Item], total: int | str | None = None) -> Iterator[Item]:
    """The items, with ``doing`` as the stage and how many of them are done.

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
    of = "" if total is None else f" of {total}"
    for number, item in enumerate(items, 1):
        stage(f"{doing} {number}{of}")
        yield item
