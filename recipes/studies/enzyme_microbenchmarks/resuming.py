"""Finished launches in a file, a line of JSON each, so that a study that was stopped goes on where it was."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

from deep500.errors import InputError
from recipes.studies.enzyme_microbenchmarks.measuring import MeasuredBenchmark

Finished = dict[tuple[str, int], list[MeasuredBenchmark]]


def read(file: Path, key: str) -> Finished:
    """The rows of a file by benchmark and launch; a last line that was not finished is cut off.

    Args:
        file: it need not exist.
        key: of the code and settings that the rows have to be of.

    Raises:
        InputError: it holds rows of other code or settings, or is no such file.
    """
    finished: Finished = {}
    if not file.exists():
        return finished
    text = file.read_text(encoding="utf-8")
    whole = text[: text.rfind("\n") + 1]
    for line in whole.splitlines():
        try:
            entry = json.loads(line)
            its_key, at, rows = (
                entry["key"],
                (entry["name"], entry["launch"]),
                [MeasuredBenchmark(**row) for row in entry["rows"]],
            )
        except (ValueError, KeyError, TypeError) as error:
            raise InputError(f"got --rows {file}, which holds other lines; expected rows of this study") from error
        if its_key != key:
            raise InputError(
                f"got --rows {file} of other code, tools or settings; expected rows of these: name another file"
            )
        finished[at] = rows
    if whole != text:
        file.write_text(whole, encoding="utf-8")
    return finished


def append(file: Path, key: str, rows: Sequence[MeasuredBenchmark]) -> None:
    """Add a launch of one benchmark."""
    line = {"key": key, "name": rows[0].name, "launch": rows[0].launch, "rows": [asdict(row) for row in rows]}
    with file.open("a", encoding="utf-8") as stream:
        stream.write(json.dumps(line) + "\n")
        stream.flush()
        os.fsync(stream.fileno())
