"""``deep500 publish review PACKAGE``: does what a package says follow from what is in it, and does it come again here?

Everything that can be made again from the samples is: figures, claims, the rules' findings, the report, the checklist.
The recipe itself runs again where ``--run`` is given, since that runs the author's code. A package is somebody's
archive: it holds regular files only, is limited in size and number, and is unpacked by Python's ``data`` filter.
"""

from __future__ import annotations

import argparse
import gzip
import hashlib
import subprocess
import sys
import tarfile
import tempfile
import zlib
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from dataclasses import asdict
from pathlib import Path
from typing import Any

from deep500.compare.package import (
    CHECKLIST,
    MOST_PACKED,
    RECIPE,
    RESULTS,
    SYSTEM,
    checklist,
    sources_beside,
    sums,
    system,
)
from deep500.compare.reproduction import Answer, begun_again, ended_again
from deep500.compare.review_page import write_page
from deep500.compare.runs import compare_runs
from deep500.errors import ResultsError
from deep500.progress import above, progress
from deep500.reading import MOST_BYTES, open_regular, read_bytes
from deep500.recipe.written import READERS
from deep500.report.claims import BY, derive
from deep500.report.page import render
from deep500.results.command import add_json
from deep500.results.files import read_json, regular_files, to_json
from deep500.results.layout import check_layout
from deep500.results.record import MANIFEST, REPORT, SUMMARY, Record
from deep500.results.rules import CLAIMS, RULES_FILE, check
from deep500.results.verify import SUMS, examine

MOST_FILES = 100_000
DISAGREES = 1


def add_command(parser: argparse.ArgumentParser) -> Callable[[argparse.Namespace], int]:
    """Declare the options of ``review``; returns what executes it."""
    parser.add_argument("package", type=Path, help="what 'deep500 publish package' wrote")
    parser.add_argument("-o", "--out", type=Path, metavar="DIR", help="unpack here, leave it there, and write a page")
    parser.add_argument("--run", action="store_true", help="run the recipe again: this runs code from the package")
    add_json(parser)
    return _review


def _review(args: argparse.Namespace) -> int:
    with tempfile.TemporaryDirectory(prefix="deep500-review-") as folder:
        answers = []
        with progress("reviewing", quiet=args.json):
            place = unpack(args.package, args.out or Path(folder))
            for answer in review(place, args.run):
                if not args.json:
                    above(str(answer))
                answers.append(answer)
        if args.out is not None:
            page = write_page(answers, place.with_name(f"{place.name}.html"), _run_of(place), _run_here(place))
            (sys.stderr if args.json else sys.stdout).write(f"page: {page}\n")
    judged = [answer.agrees for answer in answers if answer.agrees is not None]
    if args.json:
        sys.stdout.write(to_json({"answers": [asdict(answer) for answer in answers]}) + "\n")
        return 0 if all(judged) else DISAGREES
    sys.stdout.write(f"{sum(judged)} of {len(judged)} agree; what a person must judge is in {CHECKLIST}\n")
    return 0 if all(judged) else DISAGREES


def review(place: Path, run: bool = False) -> Iterator[Answer]:
    """Yield what agrees and what does not, one after the other.

    Args:
        place: an unpacked package.
        run: run the recipe again, into a folder beside ``place``, and compare.

    Raises:
        ResultsError: it is no package.
    """
    folder = _run_of(place)
    yield _sums(place)
    check_layout(folder)
    recipe = _recipe_of(place)
    again = begun_again(recipe, folder, _again(place)) if run and recipe is not None else nullcontext()
    with again as process:  # while it loads its framework
        examined = examine(folder)
        sound = "the run's seal, and its figures from its samples"
        yield Answer(not examined.problems, examined.problems[0] if examined.problems else sound)
        yield from (Answer(None, remark) for remark in examined.remarks)
        yield from _made_again(place, folder)
        if process is not None:
            yield from _run_again(place, folder, process)
        elif run:
            yield Answer(False, "the recipe cannot run again: it is not in the package")


def unpack(package: Path, out: Path) -> Path:
    """Unpack an archive into a folder; its one top folder.

    Raises:
        ResultsError: it is no archive, holds links, devices, names twice or outside of its folder, or is too large.
    """
    if not hasattr(tarfile, "data_filter"):
        raise ResultsError(
            f"got Python {sys.version.split()[0]}; expected one whose tarfile has data_filter: update it"
        )
    try:
        with open_regular(package, links=True) as file, _Limited(fileobj=_Dense(file), mode="rb") as stream:
            with tarfile.open(fileobj=stream, mode="r:") as archive:
                top = _extract(archive, package, out)
    except (tarfile.TarError, EOFError, ValueError, zlib.error, gzip.BadGzipFile) as error:
        raise ResultsError(
            f"{package}: got no sound archive ({error}); expected what 'deep500 publish package' wrote"
        ) from error
    except OSError as error:
        if isinstance(error, ResultsError):
            raise
        raise ResultsError(
            f"{package}: got '{error.strerror or error}'; expected a package that can be read, and space to unpack it"
        ) from error
    return out / top


class _Dense:
    """A file for gzip, which skips zeros after its data one by one: those of a hole would take it hours."""

    MOST = 4096

    def __init__(self, file: Any) -> None:
        self._file, self._zeros = file, 0

    def read(self, size: int) -> bytes:
        """Read as any file does."""
        data: bytes = self._file.read(size)
        self._zeros = self._zeros + 1 if data == b"\0" else 0
        if self._zeros > self.MOST:
            raise tarfile.ReadError("zeros after its end")
        return data

    def __getattr__(self, name: str) -> Any:
        return getattr(self._file, name)


class _Limited(gzip.GzipFile):
    """Refuses to read much at once: headers of an archive say themselves how long they are."""

    def read(self, size: int | None = -1) -> bytes:
        """Read as any file does."""
        if size is None or not 0 <= size <= MOST_BYTES:
            raise tarfile.ReadError(f"a piece of {size} bytes")
        return super().read(size)


def _extract(archive: tarfile.TarFile, package: Path, out: Path) -> str:
    """Unpack member after member into a new folder, whose name is returned."""
    names: set[str] = set()
    top, size = "", 0
    for member in archive:
        size += member.size
        first = member.name.split("/")[0]
        new = not names and not (out / first).exists()  # nothing may be written into a folder that was there before
        sound = (
            member.isreg() and member.name.isprintable() and member.name not in names and first not in ("", "..", ".")
        )
        if not sound or not (new or first == top) or size > MOST_PACKED or len(names) >= MOST_FILES:
            raise ResultsError(
                f"{package}: got {member.name!a:.80}; expected regular files in one new folder, each once, "
                f"{MOST_FILES} and {MOST_PACKED} bytes at most in all: ask for another package, or unpack elsewhere"
            )
        top = first
        names.add(member.name)
        archive.extract(member, out, set_attrs=False, filter="data")
    if not names:
        raise ResultsError(f"{package}: got an empty archive; expected what 'deep500 publish package' wrote")
    return top


def _run_of(place: Path) -> Path:
    runs = [path for path in sorted((place / RESULTS).glob("*")) if (path / MANIFEST).is_file()]
    if len(runs) != 1:
        raise ResultsError(f"{place}: got {len(runs)} runs in {RESULTS}; expected one: ask for another package")
    return runs[0]


def _sums(place: Path) -> Answer:
    files = {name: read_bytes(place / name, MOST_PACKED) for name in regular_files(place) if name != SUMS}
    same = (place / SUMS).is_file() and read_bytes(place / SUMS) == sums(files)
    return Answer(same, f"{SUMS} of {len(files)} files")


def _made_again(place: Path, folder: Path) -> Iterator[Answer]:
    """Compare what follows from the run's files, made by this version and on this machine."""
    manifest = read_json(folder / MANIFEST)
    record = Record(folder)
    findings = check(folder)
    recorded = read_json(folder / RULES_FILE)["rules"] if (folder / RULES_FILE).is_file() else {}
    other = [name for name, finding in findings.items() if recorded.get(name, {}).get("status") != finding.status]
    subject = f"the findings of {len(findings)} rules"
    yield Answer(not other, f"{subject}: {', '.join(other)} came out otherwise" if other else subject)
    written = read_json(folder / CLAIMS).get("claims", []) if (folder / CLAIMS).is_file() else []
    claims = [to_json(claim) for claim in written if claim.get("by") == BY]
    yield Answer(claims == [to_json({**claim, "by": BY}) for claim in derive(record)], "the claims of the report")
    yield Answer(_is(folder / REPORT, render(record).encode("utf-8")), "the report, byte for byte")
    yield Answer(_is(place / SYSTEM, system(manifest)), "the description of the system")
    recipe = _recipe_of(place)
    digest = None if recipe is None else hashlib.sha256(read_bytes(recipe)).hexdigest()
    yield Answer(digest == manifest["recipe_sha256"], "no recipe file" if recipe is None else "the recipe file")
    sources = sources_beside(manifest)
    digests = {name: _digest(place, name) for name in sources}
    if others := [name for name, (_, is_named) in sources.items() if is_named or digests[name] is not None]:
        wrong = [name for name in others if digests[name] != sources[name][0]]
        subject = f"{', '.join(others)} beside the recipe"
        yield Answer(not wrong, f"{subject}: got another {', '.join(wrong)}, or none" if wrong else subject)
    yield Answer(_is(place / CHECKLIST, checklist(folder, recipe is not None).encode("utf-8")), "the checklist")


def _recipe_of(place: Path) -> Path | None:
    name = read_json(_run_of(place) / MANIFEST).get("recipe_file")
    path = place / RECIPE / Path(str(name)).name
    return path if name is not None and path.suffix in (".py", *READERS) and path.is_file() else None


def _digest(place: Path, name: str) -> str | None:
    """SHA-256 of a file below the recipe's folder, None if it is not there."""
    is_below = not Path(name).is_absolute() and ".." not in Path(name).parts
    path = place / RECIPE / name
    return hashlib.sha256(read_bytes(path, MOST_PACKED)).hexdigest() if is_below and path.is_file() else None


def _is(path: Path, content: bytes) -> bool:
    return path.is_file() and read_bytes(path, MOST_PACKED) == content


def _run_again(place: Path, folder: Path, process: subprocess.Popen[str]) -> Iterator[Answer]:
    """The recipe, run in a process of its own with the options that the manifest holds."""
    yield from ended_again(process, folder, _again(place))
    here = _run_here(place)
    if here is None:
        return
    names = [read_json(path / MANIFEST)["recipe"] for path in (folder, here)]
    if names[0] == names[1]:
        for series in compare_runs(folder, here).series:
            yield Answer(None, f"times, second is this run: {series}")


def _again(place: Path) -> Path:
    """Where the recipe of an unpacked package runs again: beside it, as its sums are of what came in it."""
    return place.with_name(f"{place.name}-again")


def _run_here(place: Path) -> Path | None:
    """The run that was made again, None where there is none."""
    return next((path.parent for path in sorted(_again(place).rglob(SUMMARY))), None)
