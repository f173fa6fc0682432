"""``deep500 tools cache``: list what compiled operators take, say how much of the limit that is, remove it."""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Callable

from deep500.operators.cpp.cache import cache_folder
from deep500.operators.cpp.entries import VARIABLE, Entry, entries, limit, remove, size_of

Execute = Callable[[argparse.Namespace], int]


def add_command(parser: argparse.ArgumentParser) -> Execute:
    """Declare the options of ``deep500 tools cache``."""
    parser.description = (
        "Compiled operators and bridges to frameworks are kept so that they are built once. The least recently used "
        f"ones go when they take more than {VARIABLE} (2G; none: no limit)."
    )
    parser.add_argument("what", nargs="?", default="list", choices=list(COMMANDS), help="what to do (default: list)")
    parser.add_argument(
        "names", nargs="*", metavar="NAME", help="list, clear: only operators of these names, the others stay"
    )
    parser.add_argument("--json", action="store_true", help="print one JSON object and nothing else")
    return lambda options: COMMANDS[options.what](options.names, options.json)


def _chosen(names: list[str]) -> list[Entry]:
    return [entry for entry in entries() if not names or entry.file.removesuffix(".so") in names]


def _as_json(what: str, chosen: list[Entry]) -> int:
    rows = [{"name": x.file.removesuffix(".so"), "bytes": x.size, "folder": x.place.name} for x in chosen]
    about = {what: rows, "most_bytes": limit(), "folder": str(cache_folder())}
    sys.stdout.write(json.dumps(about) + "\n")
    return 0


def _list(names: list[str], as_json: bool) -> int:
    if as_json:
        return _as_json("libraries", _chosen(names))
    for entry in reversed(_chosen(names)):
        used = time.strftime("%Y-%m-%d %H:%M", time.localtime(entry.used)) if entry.used else "not known"
        name = entry.file.removesuffix(".so") or "(damaged)"
        sys.stdout.write(f"{name:32} {readable(entry.size):>10}  used {used}  {entry.place.name}\n")
    return _size(names, as_json)


def _size(names: list[str], as_json: bool) -> int:
    if as_json:
        return _as_json("libraries", _chosen(names))
    chosen, most = _chosen(names), limit()
    total, everything = sum(entry.size for entry in chosen), size_of(cache_folder())
    limit_text = f"of at most {readable(most)}" if most is not None else "without limit"
    sys.stdout.write(
        f"{len(chosen)} libraries, {readable(total)} {limit_text}; all of {cache_folder()}: {readable(everything)}\n"
    )
    return 0


def _clear(names: list[str], as_json: bool) -> int:
    gone = _chosen(names)
    for entry in gone:
        remove(entry)
    if as_json:
        return _as_json("removed", gone)
    sys.stdout.write(f"removed {len(gone)} libraries, {readable(sum(entry.size for entry in gone))}\n")
    return 0


COMMANDS: dict[str, Callable[[list[str], bool], int]] = {"list": _list, "size": _size, "clear": _clear}


def readable(size: int) -> str:
    """A number of bytes for people.

    Example:
        >>> readable(3 << 20)
        '3.0 MiB'
    """
    number = float(size)
    for unit in ("B", "KiB", "MiB"):
        if number < 1024:
            return f"{number:.0f} B" if unit == "B" else f"{number:.1f} {unit}"
        number /= 1024
    return f"{number:.1f} GiB"
