"""``deep500 publish package RUN``: a finished run as one archive that a reviewer can check without its author.

::

    <recipe>-<run>/
      CHECKLIST.md          what a machine found of each question of a reviewer, and what a person must judge
      system.json           the machine, its software and settings, as the manifest has them
      recipe/<name>.py      the recipe file, whose hash the manifest holds
      results/ledger.jsonl  every run of the recipe that was begun beside this one
      results/<run>/        the results folder with its seal: samples, figures, rules, report
      SHA256SUMS            of all of these

The archive is a function of these files: packaged twice, it has the same bytes.
"""

from __future__ import annotations

import argparse
import ast
import gzip
import hashlib
import io
import tarfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from deep500.errors import ResultsError
from deep500.progress import progress
from deep500.reading import MOST_BYTES, read_bytes
from deep500.results.command import add_json, say_written
from deep500.results.files import read_json, read_lines, regular_files, to_json, write_atomic
from deep500.results.layout import check_layout
from deep500.results.ledger import NAME as LEDGER
from deep500.results.ledger import broken_at
from deep500.results.record import MANIFEST, SUMMARY
from deep500.results.rules import FAIL, PASS, RULES, check, summary_of
from deep500.results.verify import SUMS, verify

CHECKLIST, SYSTEM, RECIPE, RESULTS = "CHECKLIST.md", "system.json", "recipe", "results"
MOST_PACKED = 4 * 2**30
"""Bytes of all files of a package together."""

SYSTEM_PARTS = ("environment", "environment_sha256", "backend", "device", "ranks", "processes")
OF_PERSONS = (
    "The recipe measures what the text around it says it measures.",
    "What the recipe fixes is what the benchmark fixes, or the text says why not.",
    "Baselines are the best that were to be had, and were tuned about as much.",
    "The machine was the author's to measure on: nothing else ran, nobody else was on it.",
    "Text and tables outside of this package claim no more than `claims.json` holds.",
    "Runs that the ledger holds and this package does not were left out for a reason that is given.",
)
"""Facts of a run that no machine can tell."""


def add_command(parser: argparse.ArgumentParser) -> Callable[[argparse.Namespace], int]:
    """Declare the options of ``package``; returns what executes it."""
    parser.add_argument("folder", type=Path, help="results folder of a finished run")
    parser.add_argument("-o", "--out", type=Path, metavar="FILE", help="the archive (./<recipe>-<run>.tar.gz)")
    add_json(parser)
    return _package


def _package(args: argparse.Namespace) -> int:
    with progress("packing", quiet=args.json):
        packed = package(args.folder, args.out)
    say_written(args, packed)
    return 0


def package(folder: Path, out: Path | None = None) -> Path:
    """Write the archive of a finished run and return its path.

    Args:
        folder: results folder.
        out: the archive; beside the working directory's other files, named after recipe and run, if None.

    Raises:
        ResultsError: the run is unfinished, was altered since it was sealed, its recipe file is gone or another, or the
            archive cannot be written.
    """
    folder = folder.resolve()
    check_layout(folder)
    problems = verify(folder)
    if problems:
        raise ResultsError(f"{folder}: got a run that was altered ({problems[0]}); expected it as it was sealed")
    manifest = read_json(folder / MANIFEST)
    name = f"{''.join(c if c.isalnum() or c in '._-' else '_' for c in manifest['recipe'])[:80]}-{folder.name}"
    files = parts(folder, manifest)
    files[SUMS] = sums(files)
    out = Path(f"{name}.tar.gz") if out is None else out
    write_atomic(out, _archive(name, files))
    return out


def parts(folder: Path, manifest: Mapping[str, Any]) -> dict[str, bytes]:
    """The files of a package by their path in it, without the sums."""
    names = regular_files(folder)
    size = sum((folder / name).stat().st_size for name in names)
    if size > MOST_PACKED:
        raise ResultsError(f"{folder}: got {size} bytes; expected at most {MOST_PACKED} in a package")
    files = {f"{RESULTS}/{folder.name}/{name}": read_bytes(folder / name, MOST_PACKED) for name in names}
    if (folder.parent / LEDGER).exists():
        files[f"{RESULTS}/{LEDGER}"] = read_bytes(folder.parent / LEDGER, MOST_PACKED)
    recipe = _recipe(folder, manifest)
    if recipe is not None:
        files[f"{RECIPE}/{Path(manifest['recipe_file']).name}"] = recipe
        files |= {f"{RECIPE}/{name}": content for name, content in beside(folder, manifest).items()}
    files[SYSTEM] = system(manifest)
    files[CHECKLIST] = checklist(folder, recipe is not None).encode("utf-8")
    return files


def system(manifest: Mapping[str, Any]) -> bytes:
    """``system.json``: what the manifest says of the machine."""
    return (to_json({name: manifest.get(name) for name in SYSTEM_PARTS}) + "\n").encode("utf-8")


def sums(files: Mapping[str, bytes]) -> bytes:
    """``SHA256SUMS`` as ``sha256sum -c`` reads it."""
    return "".join(f"{hashlib.sha256(files[name]).hexdigest()}  {name}\n" for name in sorted(files)).encode("utf-8")


def _recipe(folder: Path, manifest: Mapping[str, Any]) -> bytes | None:
    """The recipe file as it ran; None for a run that had none, such as one from a notebook."""
    if manifest["recipe_file"] is None:
        return None
    path = Path(manifest["recipe_file"])
    do = f"restore the recipe of {folder}" + ("" if path.is_absolute() else ", or go to the folder it was started in")
    content = read_bytes(path, MOST_BYTES, links=True, do=do)
    digest = hashlib.sha256(content).hexdigest()
    if digest != manifest["recipe_sha256"]:
        raise ResultsError(
            f"{path}: got SHA-256 {digest}; expected {manifest['recipe_sha256']}, with which {folder} ran: restore the "
            "file as it was"
        )
    return content


def sources_beside(manifest: Mapping[str, Any]) -> dict[str, tuple[str, bool]]:
    """Files of the author's own, beside the recipe's, by their place from there: the hash that the manifest holds, and
    whether a key names the file (``optimizer=opt.py:Sgd``); a module may be installed elsewhere.

    Example:
        >>> sources_beside({"resolved": {"own": [{"key": "optimizer", "name": "opt.py:Sgd", "sha256": "07"}]}})
        {'opt.py': ('07', True)}
    """
    places: dict[str, tuple[str, bool]] = {}
    for source in (manifest.get("resolved") or {}).get("own") or ():
        place, colon, _ = str(source["name"]).partition(":")
        is_file = place.endswith(".py")
        places[place if is_file else f"{place.replace('.', '/')}.py"] = (source["sha256"], is_file and bool(colon))
    return places


def beside(folder: Path, manifest: Mapping[str, Any]) -> dict[str, bytes]:
    """The files that a run was made with beside its recipe's: those of objects of the author's own, and what they and
    the recipe import from its folder.

    Raises:
        ResultsError: a file is gone, another one than the run was made with, or not in that folder.
    """
    recipe, files, sources = Path(manifest["recipe_file"]), dict[str, bytes](), sources_beside(manifest)
    todo = [*(name for name, (_, is_named) in sources.items() if is_named), *_imported(recipe)]
    while todo:
        name = todo.pop()
        digest, is_named = sources.get(name, (None, False))
        path = next((place / name for place in (recipe.parent, Path()) if (place / name).is_file()), None)
        if name in files or (path is None and not is_named):
            continue
        if path is None or Path(name).is_absolute() or ".." in Path(name).parts:
            raise ResultsError(
                f"{folder}: got a run made with {name}; expected that file in the folder of {recipe}, which a package "
                "holds: put it there, and run again"
            )
        files[name] = read_bytes(path, MOST_BYTES, links=True)
        if digest not in (None, hashlib.sha256(files[name]).hexdigest()):
            raise ResultsError(
                f"{path}: got another file than {folder} ran with; expected SHA-256 {digest}: restore it as it was"
            )
        todo += _imported(path)
    return files


def _imported(path: Path) -> list[str]:
    """Files that a module may import from its folder, by their names from there."""
    try:
        tree = ast.parse(path.read_bytes()) if path.suffix == ".py" else ast.Module([], [])
    except (SyntaxError, ValueError):
        return []
    names: list[str] = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names += [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            names += [node.module, *(f"{node.module}.{alias.name}" for alias in node.names)]
    ours = [name.replace(".", "/") for name in names if name.partition(".")[0] != "deep500"]
    return [f"{name}{end}" for name in ours for end in (".py", "/__init__.py")]


def _archive(name: str, files: Mapping[str, bytes]) -> bytes:
    """A compressed tar archive in which nothing depends on when, where and by whom it was made."""
    packed = io.BytesIO()
    with gzip.GzipFile(fileobj=packed, mode="wb", mtime=0) as stream:
        with tarfile.open(fileobj=stream, mode="w", format=tarfile.PAX_FORMAT) as archive:
            for path in sorted(files):
                entry = tarfile.TarInfo(f"{name}/{path}")
                entry.size, entry.mode = len(files[path]), 0o644
                archive.addfile(entry, io.BytesIO(files[path]))
    return packed.getvalue()


def checklist(folder: Path, has_recipe: bool) -> str:
    """Write a reviewer's questions on a run in Markdown: ticked or crossed where a machine can say, else open."""
    manifest, summary = read_json(folder / MANIFEST), read_json(folder / SUMMARY)
    labels = ", ".join(summary["labels"])
    lines = [
        f"# {_plain(manifest['recipe'])}, {folder.name}",
        "",
        f"Verdict: {_plain(summary['verdict'])}; {_plain(manifest['division'])} division; "
        f"seeds: {len(manifest['seeds'])}.",
        "",
        "## Found by a machine",
        "",
        _item(True, "Every file is as it was sealed, and the figures follow from the samples (`deep500 verify`)."),
        _item(has_recipe, "The recipe file is in the package, with the hash that the manifest holds."),
        _item(*_ledger(folder)),
        _item(not labels, "No label limits what the numbers mean." if not labels else f"Labels: {_plain(labels)}."),
        "",
    ]
    for name, finding in check(folder).items():
        state = {PASS: True, FAIL: False}.get(finding.status)
        what = f"{name}: {summary_of(RULES[name])} {finding.status}: {_plain(finding.reason)}"
        lines.append(_item(state, what) if state is not None else f"- ( ) {what}")
    lines += ["", "## For a person to judge", "", *(f"- [ ] {question}" for question in OF_PERSONS), ""]
    return "\n".join(lines)


def _ledger(folder: Path) -> tuple[bool, str]:
    entries = read_lines(folder.parent / LEDGER)
    place = broken_at(entries)
    if place is not None:
        return False, f"The ledger's chain breaks at entry {place}."
    times = sum(entry.get("run") == folder.name for entry in entries)
    return times == 1, f"The ledger holds {len(entries)} runs in one chain, this one {times} times."


def _item(holds: bool, what: str) -> str:
    return f"- [x] {what}" if holds else f"- [!] {what}"


def _plain(text: str) -> str:
    """Text from a run's files within a line of Markdown."""
    return "".join(c if c.isprintable() and c not in "<>`[]*_|#" else " " for c in str(text))[:300]
