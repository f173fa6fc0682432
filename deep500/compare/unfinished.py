"""The file of a comparison in turns: written before and after every pair, so that nothing more than a pair is lost.

Whoever ends the process, and however, finds in it what the pairs so far have shown, and ``--resume FILE`` goes on with
it. A pair that was being trained when it ended is trained to its end, but not in turns: it is ``apart``, and counts for
quality alone.
"""

from __future__ import annotations

import contextlib
import datetime
import json
import signal
import threading
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import FrameType
from typing import Any

from deep500.errors import ResultsError
from deep500.reading import declare, number, read_json, word
from deep500.results.files import to_json, write_atomic, writing
from deep500.results.record import Record

SCHEMA = "deep500-against-2"
UNFINISHED, FINISHED = "unfinished", "finished"

_COUNT = number(0, 2**63 - 1, whole=True)
FORMAT = declare(
    {
        "schema": word(SCHEMA),
        "status": word(UNFINISHED, FINISHED),
        "turns": str,
        "recipe": str,
        "argv": [str],
        "against": (str, None),
        "at": (str, None),
        "control": bool,
        "most": number(1, 10**6, whole=True),
        "first_seed": _COUNT,
        "order_seed": _COUNT,
        "begun": _COUNT,
        "apart": [_COUNT],
        "pairs": [{"seed": _COUNT, "seconds": number(0, 1e12)}],
        "looks": [{"pairs": _COUNT, "verdict": str}],
        "runs": {str: str},
        "seconds": number(0, 1e12),
    }
)
"""Content of the file before it is finished; the comparison itself is added then."""

PATIENCE = 600.0
"""Seconds to wait for launches of a comparison that was killed, which end with their epoch."""


class ComparisonFile:
    """The state of a comparison, on the disk after every change.

    Args:
        place: the file.
        facts: its content, see :data:`FORMAT`.
    """

    def __init__(self, place: Path, facts: dict[str, Any]) -> None:
        self.place, self.facts = place, facts
        self._begin, self._before = time.monotonic(), float(facts["seconds"])

    @classmethod
    def new(cls, folder: Path, facts: Mapping[str, Any]) -> ComparisonFile:
        """One of which nothing is done yet, and nothing written; ``facts`` are what is compared."""
        now = datetime.datetime.now(datetime.timezone.utc)
        done: dict[str, Any] = {"begun": 0, "apart": [], "pairs": [], "looks": [], "runs": {}, "seconds": 0.0}
        place = folder / f"{now:%Y%m%d-%H%M%S}-{facts['turns']}.json"
        return cls(place, {"schema": SCHEMA, "status": UNFINISHED, **facts, **done})

    @classmethod
    def open(cls, place: Path) -> ComparisonFile:
        """One that was stopped; raises ResultsError for a file that is none, or that is finished."""
        facts = read_json(place, FORMAT, links=True, do="name a file that 'deep500 run --against' wrote")
        if facts["status"] == FINISHED:
            raise ResultsError(f"{place}: got a comparison that is finished; expected one that was stopped: read it")
        return cls(place, facts)

    @property
    def done(self) -> int:
        """Return the number of pairs that are trained."""
        return len(self.facts["pairs"])

    @property
    def seconds(self) -> float:
        """Seconds that it has taken so far, over all processes."""
        return self._before + time.monotonic() - self._begin

    def save(self, **changes: Any) -> None:
        """Change facts and write them."""
        self.facts.update(changes, seconds=self.seconds)
        with writing(self.place):
            self.place.parent.mkdir(parents=True, exist_ok=True)
        write_atomic(self.place, json.dumps(json.loads(to_json(self.facts)), indent=1) + "\n")


def wait_until_free(folder: Path) -> None:
    """Wait until no process works on a run any more; raises ResultsError after ten minutes."""
    end = time.monotonic() + PATIENCE
    while True:
        try:
            with Record(folder).lock():
                return
        except ResultsError:
            if time.monotonic() > end:
                raise
            time.sleep(0.2)


@contextlib.contextmanager
def stopped_by_signals() -> Iterator[None]:
    """Let SIGTERM stop the process as Ctrl-C does: what it started is ended, and what it has is said."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def stop(signum: int, frame: FrameType | None) -> None:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGTERM, stop)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)
