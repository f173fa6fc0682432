"""The public face, frozen: names and signatures that ``import deep500 as d5`` shows, and those of its packages.

On purpose: ``python -m tests.test_face`` writes ``tests/face.txt`` anew, CHANGELOG.md gets its line, and
an old name warns for one version.
"""

from __future__ import annotations

import difflib
import inspect
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import deep500

FILE = Path(__file__).with_name("face.txt")


def face() -> str:
    """Every public name with its kind and signature, one a line."""
    return "".join(f"{line}\n" for line in _lines("d5", deep500))


def _lines(place: str, module: ModuleType) -> Iterator[str]:
    for name in sorted(module.__all__):
        value = getattr(module, name)
        if not isinstance(value, ModuleType):
            yield f"{place}.{name}{_signature(value)}"
        elif place == "d5" and hasattr(value, "__all__"):
            yield from _lines(f"d5.{name}", value)
        else:
            yield f"{place}.{name}: module"


def _signature(value: Any) -> str:
    """Names, kinds and whether there is a default: annotations and values differ between versions of Python."""
    if not callable(value):
        return f": {type(value).__name__}"
    try:
        parameters = inspect.signature(value).parameters.values()
    except (TypeError, ValueError):
        return "(...)"
    marks = {inspect.Parameter.VAR_POSITIONAL: "*", inspect.Parameter.VAR_KEYWORD: "**"}
    words, named = [], False
    for p in parameters:
        if p.kind == p.KEYWORD_ONLY and not named and not any(w.startswith("*") for w in words):
            words.append("*")
        named = named or p.kind == p.KEYWORD_ONLY
        words.append(f"{marks.get(p.kind, '')}{p.name}{'' if p.default is p.empty else '='}")
    return f"({', '.join(words)})"


def test_the_face_is_as_it_was_written_down() -> None:
    old, new = FILE.read_text(encoding="utf-8").splitlines(), face().splitlines()
    changes = [line for line in difflib.unified_diff(old, new, lineterm="", n=0) if line[0] in "+-"][2:]
    assert not changes, "\n".join([*changes, "on purpose? python -m tests.test_face, and a line in CHANGELOG.md"])


if __name__ == "__main__":
    FILE.write_text(face(), encoding="utf-8")
