"""A line on a terminal about a build that takes its time: what is built, what is being done, for how long."""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

PATIENCE = 1.0
"""Seconds after which the line appears; libraries from the cache are loaded long before."""

BEAT = 0.5

_shown: list[Any] = []


@contextmanager
def progress(what: str) -> Iterator[None]:
    """Show the line while the block runs, where standard error is a terminal.

    Args:
        what: what is being made.
    """
    if _shown or not sys.stderr.isatty():
        yield
        return
    from tqdm import tqdm

    bar = tqdm(desc=what, file=sys.stderr, bar_format="{desc}{postfix} [{elapsed}]", leave=False, delay=PATIENCE)
    ended = threading.Event()

    def beat() -> None:
        while not ended.wait(BEAT):
            bar.update(0)
            bar.refresh()

    beating = threading.Thread(target=beat, daemon=True)
    _shown.append(bar)
    beating.start()
    try:
        yield
    finally:
        _shown.remove(bar)
        ended.set()
        beating.join()
        bar.close()


def stage(doing: str) -> None:
    """Say what is being done now; nothing where no line is shown."""
    for bar in _shown:
        bar.set_postfix_str(doing, refresh=False)
