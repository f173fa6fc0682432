"""``make release``: a wheel and a source distribution with the same bytes twice, checked, and tried as a newcomer does.

    python -m tests.release [--session python3.10 python3.13 ...]

Both are made of the files that git has at the last commit, whose time is theirs; so anyone can make them again and
compare. The session installs the wheel from a package registry into an environment of its own and goes from there to a
published package, in eight commands.
"""

from __future__ import annotations

import argparse
import gzip
import hashlib
import io
import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
SESSION = (
    "deep500 tools info",
    "deep500 list recipes",
    "deep500 run digits_lenet --backend reference --quiet --open epochs=8",
    "deep500 run digits_lenet --backend reference --quiet --open epochs=8 batch_size=16",
    "deep500 report {first} {second} --out comparison.html",
    "deep500 publish check {first}",
    "deep500 publish package {first} --out run.tar.gz",
    "deep500 publish review run.tar.gz",
)
"""From the wheel to a page that compares two runs and a package for a reviewer: eight commands."""


def run(*words: str | Path, cwd: Path, codes: tuple[int, ...] = (0,), **variables: str) -> str:
    """Run a command; returns what it printed, raises SystemExit with that where its code is another."""
    clean = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
    done = subprocess.run(
        [str(word) for word in words], cwd=cwd, env={**clean, **variables}, capture_output=True, text=True, check=False
    )
    if done.returncode not in codes:
        raise SystemExit(f"{' '.join(map(str, words))}: code {done.returncode}\n{done.stdout}{done.stderr}")
    return done.stdout


def build(folder: Path) -> list[Path]:
    """Build the last commit into a folder that is not there yet; returns the two files."""
    moment = int(run("git", "log", "-1", "--format=%ct", cwd=ROOT))
    with tempfile.TemporaryDirectory() as place:
        source = Path(place) / "deep500"
        source.mkdir()
        archive = subprocess.run(["git", "archive", "HEAD"], cwd=ROOT, capture_output=True, check=True).stdout
        with tarfile.open(fileobj=io.BytesIO(archive)) as files:
            files.extractall(source, filter="tar")
        words = (sys.executable, "-m", "build", "--no-isolation", "--outdir", folder, source)
        run(*words, cwd=Path(place), SOURCE_DATE_EPOCH=str(moment), PYTHONHASHSEED="0")
    (sdist,) = folder.glob("*.tar.gz")
    same_times(sdist, moment)
    return sorted(folder.iterdir())


def same_times(path: Path, moment: int) -> None:
    """Write a source distribution again, in order and without what differs from build to build: times and owners."""
    packed = io.BytesIO()
    with tarfile.open(path) as old, tarfile.open(fileobj=packed, mode="w", format=tarfile.PAX_FORMAT) as new:
        for member in sorted(old.getmembers(), key=lambda member: member.name):
            member.mtime, member.uid, member.gid, member.uname, member.gname = moment, 0, 0, "", ""
            member.mode, member.pax_headers = 0o755 if member.isdir() or member.mode & 0o100 else 0o644, {}
            new.addfile(member, old.extractfile(member) if member.isfile() else None)
    with path.open("wb") as raw, gzip.GzipFile("", "wb", 9, raw, mtime=moment) as file:
        file.write(packed.getvalue())


def digests(files: list[Path]) -> dict[str, str]:
    """Name -> SHA-256."""
    return {file.name: hashlib.sha256(file.read_bytes()).hexdigest() for file in files}


def session(python: str, wheel: Path) -> float:
    """Install the wheel and go through the session in an empty folder; returns its seconds, without installing."""
    with tempfile.TemporaryDirectory() as place:
        here = Path(place)
        run(python, "-m", "venv", here / "venv", cwd=here)
        bin_folder = here / "venv" / "bin"
        constraints = ROOT / "constraints.txt"
        run(bin_folder / "python", "-m", "pip", "install", "--quiet", "-c", constraints, wheel, cwd=here)
        begin = time.perf_counter()
        for line in SESSION:
            runs = sorted(here.glob("results/digits_lenet/20*"))
            names = dict(zip(("first", "second"), map(str, runs), strict=False))
            first, *words = line.format(**names).split()
            run(bin_folder / first, *words, cwd=here, codes=(0, 1))  # 1: a rule is broken, an answer too
        seconds = time.perf_counter() - begin
        missing = [name for name in ("comparison.html", "run.tar.gz") if not (here / name).is_file()]
        if missing:
            raise SystemExit(f"{python}: the session left no {', '.join(missing)}")
        return seconds


def main() -> None:
    """Build twice, compare, check, try; prints the files and their digests."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--session", nargs="*", default=[], metavar="PYTHON", help="interpreters to try the wheel in")
    pythons = parser.parse_args().session
    dist = ROOT / "dist"
    shutil.rmtree(dist, ignore_errors=True)
    with tempfile.TemporaryDirectory() as again:
        files = build(dist)
        first, second = digests(files), digests(build(Path(again) / "dist"))
    if first != second:
        raise SystemExit(f"got other bytes when it was built again: {first} and {second}")
    run(sys.executable, "-m", "twine", "check", "--strict", *files, cwd=ROOT)
    for python in pythons:
        seconds = session(python, next(file for file in files if file.suffix == ".whl"))
        sys.stdout.write(f"{python}: {len(SESSION)} commands in {seconds:.0f} s\n")
    sys.stdout.write("".join(f"{digest}  dist/{name}\n" for name, digest in first.items()))


if __name__ == "__main__":
    main()
