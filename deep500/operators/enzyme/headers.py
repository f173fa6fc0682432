"""The C++ library's headers, parsed once for all operators: half of what an operator's compilation would take.

What clang makes of them lies in the cache beside the libraries, under a key of the compiler, the CPU and the switches
that it depends on, sealed and removed like these. A compilation that it does not fit goes without.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Sequence
from pathlib import Path

from deep500.operators.cpp.cache import building, enter, private_folder, sound_library
from deep500.operators.cpp.compilers import cpu_model
from deep500.operators.cpp.spec import INCLUDE
from deep500.operators.enzyme.engine import Clang
from deep500.progress import stage

HEADERS = [INCLUDE / "deep500" / name for name in ("standard.h", "containers.h")]
"""The one that is parsed, and the one of ours that it begins with: what is compiled with it has that first, too."""

FILE = "headers.pch"
UNFIT = ("precompiled file", "PCH file", "AST file")
"""Words of clang's, one of which is in what it says of headers that do not fit."""


def parsed_headers(clang: Clang, flags: Sequence[str], compiled: Callable[[list[str]], int]) -> list[str]:
    """Switches by which clang takes the headers as they were parsed; none where it cannot parse them.

    Args:
        clang: zig, whose own cache must not be asked whether they changed: their name says it.
        flags: switches of the compilation that the headers depend on.
        compiled: runs a command, and returns its exit code.
    """
    texts = [path.read_text(encoding="utf-8") for path in HEADERS]
    parts = [clang.version, cpu_model(), os.environ.get("CPLUS_INCLUDE_PATH", ""), *flags, str(HEADERS[0]), *texts]
    key = hashlib.sha256("\0".join(parts).encode()).hexdigest()[:32]
    folder = private_folder("cpp")
    known = sound_library(folder / key, FILE)
    if known is None:
        with building(folder, key) as place:
            known = sound_library(folder / key, FILE) or _parsed(clang, flags, compiled, place, folder / key)
    return ["-Xclang", "-include-pch", "-Xclang", str(known)] if known else []


def _parsed(
    clang: Clang, flags: Sequence[str], compiled: Callable[[list[str]], int], place: Path, target: Path
) -> Path | None:
    stage("parsing headers")
    parsed = place / "parsed"
    parsed.mkdir()
    command = [*clang.command, *flags, f"-I{INCLUDE}", "-x", "c++-header", str(HEADERS[0]), "-o", str(parsed / FILE)]
    if compiled(command):
        return None
    enter(parsed / FILE, target, target.name)
    return target / FILE
