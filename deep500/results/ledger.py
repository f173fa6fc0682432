"""The ledger of a recipe: one line per run that was begun, chained by hashes, so that a missing run is noticed.

``results/<recipe>/ledger.jsonl``; each entry holds the hash of the one before. What the best run cost includes what it
cost to find it: :func:`tuning_cost`.
"""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from deep500.results.files import append_line, read_lines, writing
from deep500.results.record import full_hash

NAME = "ledger.jsonl"
FIRST = "0" * 64
TUNED = re.compile(r"(optimizer|schedule|groups|no_decay|ema|augmentation|batch_size)(_args|_kwargs)?\b[^=]*=")
"""Words of a command line that change hyper-parameters."""


def enter(folder: Path, entry: Mapping[str, Any]) -> dict[str, Any]:
    """Append an entry to the ledger in a folder and return it with its number and hashes; raises ResultsError."""
    with _locked(folder):
        entries = read_lines(folder / NAME)
        before = entries[-1]["hash"] if entries else FIRST
        body = {**entry, "number": len(entries), "before": before}
        whole = {**body, "hash": full_hash(body)}
        append_line(folder / NAME, whole)
    return whole


def broken_at(entries: Sequence[Mapping[str, Any]]) -> int | None:
    """Position of the first entry that was altered, or before which one is missing; None if the chain is whole.

    Example:
        >>> broken_at([])
    """
    before = FIRST
    for place, entry in enumerate(entries):
        body = {key: value for key, value in entry.items() if key != "hash"}
        if entry.get("before") != before or entry.get("number") != place or entry.get("hash") != full_hash(body):
            return place
        before = entry["hash"]
    return None


def state(folder: Path, run: str) -> dict[str, Any]:
    """Return the place of a run in its recipe's ledger, for its summary: an anchor that its report prints.

    Args:
        folder: of the ledger.
        run: name of the run's folder.

    Returns:
        ``entry``: the run's number, ``entries``: how many there are now, ``head``: the hash of the last one, with which
        the whole chain is fixed. Whoever keeps it elsewhere notices any later change of any run's entry.
    """
    entries = read_lines(folder / NAME)
    numbers = [entry["number"] for entry in entries if entry.get("run") == run]
    head = entries[-1]["hash"] if entries else None
    return {"entry": numbers[0] if numbers else None, "entries": len(entries), "head": head}


def entry_of(
    entries: Sequence[Mapping[str, Any]], name: str, noted: int | None, configuration: str
) -> Mapping[str, Any] | None:
    """The entry of a run: by its folder's name; of a folder that was renamed, by the number that its summary notes.

    Args:
        entries: the ledger.
        name: of the folder.
        noted: ``entry`` of :func:`state`, as the summary has it.
        configuration: :func:`deep500.results.record.configuration_hash`, which an entry found by number must have.

    Example:
        >>> entry_of([{"run": "a", "configuration_sha256": "ff"}], "first", 0, "ff")["run"]
        'a'
    """
    for entry in entries:
        if entry.get("run") == name:
            return entry
    if noted is None or not 0 <= noted < len(entries):
        return None
    return entries[noted] if entries[noted].get("configuration_sha256") == configuration else None


def tuning_cost(folder: Path) -> dict[str, float]:
    """Runs begun, runs finished and seconds of training in all, over a recipe's ledger and the runs that it names.

    Beside a run that has just ended, and has no summary yet, it tells what it cost to find it, itself included.
    """
    entries, finished, seconds = read_lines(folder / NAME), 0, 0.0
    for run in {entry["run"] for entry in entries if entry.get("run")}:
        place = folder / run
        finished += (place / "summary.json").exists()
        lines = read_lines(place / "metrics.jsonl")
        seconds += sum(line.get("train_seconds") or 0.0 for line in lines)
    return {"runs": len(entries), "finished": finished, "seconds": seconds}


def settings_tried(folder: Path) -> int:
    """Count the settings of hyper-parameters that the command lines of a recipe's runs name, that without any too."""
    argv = [entry.get("argv") or () for entry in read_lines(folder / NAME)]
    return len({tuple(sorted(word for word in words if TUNED.match(word))) for words in argv})


@contextlib.contextmanager
def _locked(folder: Path) -> Iterator[None]:
    """One writer at a time, where the file system can lock."""
    with writing(folder):
        handle = os.open(folder, os.O_RDONLY)
    try:
        with contextlib.suppress(ImportError, OSError):
            import fcntl

            fcntl.flock(handle, fcntl.LOCK_EX)
        yield
    finally:
        os.close(handle)
