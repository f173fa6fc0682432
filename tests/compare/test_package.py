"""Packages: the same bytes twice, nothing left out, and a reviewer who finds what was changed in one."""

from __future__ import annotations

import gzip
import hashlib
import io
import json
import os
import tarfile
from pathlib import Path

import pytest

from deep500 import cli
from deep500.compare.package import package
from deep500.compare.review import MOST_FILES, review, unpack
from deep500.errors import ResultsError
from deep500.report.claims import write_claims
from deep500.report.page import write_report
from deep500.results.ledger import enter
from deep500.results.rules import write_rules
from deep500.results.verify import seal, write_stats
from tests.results.report_cases import finished


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """A sealed run with its recipe file and a ledger."""
    base = tmp_path_factory.mktemp("run")
    (base / "job.py").write_text("# nothing to run\n")
    digest = hashlib.sha256((base / "job.py").read_bytes()).hexdigest()
    record = finished(base / "results", samples=60, seeds=2, recipe_file=str(base / "job.py"), recipe_sha256=digest)
    enter(record.path.parent, {"run": record.path.name})
    write_stats(record.path)
    write_claims(record.path)
    write_rules(record.path)
    write_report(record)
    seal(record.path)
    return record.path


def members(path):
    with tarfile.open(path) as archive:
        return {m.name: archive.extractfile(m).read() for m in archive}


def packed(path, files, **changes):
    with gzip.open(path, "wb") as stream, tarfile.open(fileobj=stream, mode="w") as archive:
        for name, content in files:
            entry = tarfile.TarInfo(name)
            entry.size = len(content)
            for key, value in changes.items():
                setattr(entry, key, value)
            archive.addfile(entry, io.BytesIO(content))
    return path


def test_a_package_holds_everything_and_agrees_with_itself(run, tmp_path, capsys):
    first, second = (package(run, tmp_path / name) for name in ("a.tar.gz", "b.tar.gz"))
    assert first.read_bytes() == second.read_bytes()
    names = {name.partition("/")[2] for name in members(first)}
    assert {"CHECKLIST.md", "system.json", "recipe/job.py", "results/ledger.jsonl", "SHA256SUMS"} <= names
    assert {f"results/{run.name}/{path.relative_to(run)}" for path in run.rglob("*") if path.is_file()} <= names
    assert cli.main(["publish", "review", str(first), "-o", str(tmp_path / "out")]) == 0
    said = capsys.readouterr().out
    assert said.count("agrees: ") == 8 and "8 of 8 agree" in said
    checklist = next((tmp_path / "out").glob("*/CHECKLIST.md")).read_text()
    assert checklist.count("- [ ] ") == 6 and "F12: " in checklist and "R1: " in checklist


def forged(run, tmp_path, name, change):
    """A package with one file changed, and all sums made to fit."""
    files = members(package(run, tmp_path / "a.tar.gz"))
    top = next(iter(files)).split("/")[0]
    place = next(path for path in files if path.endswith(name))
    files[place] = change(files[place])
    inner = f"{top}/results/{run.name}/"
    own = {path[len(inner) :]: content for path, content in files.items() if path.startswith(inner)}
    own.pop("SHA256SUMS")
    sums = lambda them: "".join(f"{hashlib.sha256(them[n]).hexdigest()}  {n}\n" for n in sorted(them)).encode()  # noqa: E731
    files[f"{inner}SHA256SUMS"] = sums(own)
    files.pop(f"{top}/SHA256SUMS")
    files[f"{top}/SHA256SUMS"] = sums({path[len(top) + 1 :]: content for path, content in files.items()})
    return packed(tmp_path / "forged.tar.gz", sorted(files.items()))


def edited(**new):
    return lambda content: json.dumps({**json.loads(content), **new}).encode()


FORGERIES = {
    "stats.json": (lambda c: c.replace(b'"n_eff"', b'"n_eff" '), "follow from the samples"),
    "rules.json": (lambda c: c.replace(b'"status": "fail"', b'"status": "pass"'), "came out otherwise"),
    "claims.json": (edited(claims=[]), "the claims of the report"),
    "report.html": (lambda c: c.replace(b"</body>", b"<p>better</p></body>"), "the report, byte for byte"),
    "system.json": (edited(environment={"cpu": "another"}), "the description of the system"),
    "job.py": (lambda c: c + b"# changed\n", "the recipe file"),
    "CHECKLIST.md": (lambda c: c.replace(b"- [!]", b"- [x]").replace(b"- [ ]", b"- [x]"), "the checklist"),
}


@pytest.mark.parametrize("name", FORGERIES)
def test_what_was_changed_in_a_package_is_found_although_its_sums_fit(run, tmp_path, name):
    change, words = FORGERIES[name]
    answers = list(review(unpack(forged(run, tmp_path, name, change), tmp_path / "out")))
    wrong = [answer.what for answer in answers if not answer.agrees]
    assert any(words in what for what in wrong), wrong


def test_a_run_that_was_altered_or_whose_recipe_changed_is_not_packed(run, tmp_path):
    recipe = Path(json.loads((run / "manifest.json").read_text())["recipe_file"])
    before = recipe.read_bytes()
    try:
        recipe.write_bytes(before + b"#")
        with pytest.raises(ResultsError, match="restore the file as it was"):
            package(run, tmp_path / "a.tar.gz")
    finally:
        recipe.write_bytes(before)
    (run / ".more").write_text("")
    try:
        with pytest.raises(ResultsError, match="not there when the run was sealed"):
            package(run, tmp_path / "a.tar.gz")
    finally:
        (run / ".more").unlink()
    assert not list(tmp_path.iterdir())


def test_what_a_run_was_made_with_beside_its_recipe_is_packed_and_reviewed(tmp_path):
    """Files that keys name, and what the recipe and they import from its folder; others are refused by name."""
    files = {"job.py": "import helper, numpy", "helper.py": "from deeper import x", "deeper.py": "x = 1", "opt.py": ""}
    for name, text in files.items():
        (tmp_path / name).write_text(text)
    (tmp_path / "unused.py").write_text("")
    digests = {name: hashlib.sha256(text.encode()).hexdigest() for name, text in files.items()}
    sources = [{"key": "optimizer", "name": "opt.py:Sgd", "sha256": digests["opt.py"]}]
    sources += [{"key": "loss", "name": "installed.place:Loss", "sha256": digests["opt.py"]}]
    about = {"recipe_file": str(tmp_path / "job.py"), "recipe_sha256": digests["job.py"]}
    resolved = {"recipe": {"batch_size": 32}, "own": sources}
    record = finished(tmp_path / "results", samples=20, seeds=1, resolved=resolved, **about)
    names = {name.partition("/recipe/")[2] for name in members(package(record.path, tmp_path / "a.tar.gz"))}
    assert names - {""} == {*files}
    agreed = {a.what: a.agrees for a in review(unpack(tmp_path / "a.tar.gz", tmp_path / "out"))}
    assert agreed["opt.py beside the recipe"]
    (place,) = (tmp_path / "out").glob("*")
    (place / "recipe" / "opt.py").write_text("changed")
    assert any("got another opt.py" in answer.what and not answer.agrees for answer in review(place))
    (tmp_path / "opt.py").write_text("changed")
    with pytest.raises(ResultsError, match=r"opt.py: got another file than .* ran with"):
        package(record.path, tmp_path / "b.tar.gz")
    (tmp_path / "opt.py").unlink()
    with pytest.raises(ResultsError, match=r"got a run made with opt.py; expected that file in the folder of"):
        package(record.path, tmp_path / "b.tar.gz")


# fmt: off
HOSTILE = {
    "above": ([("../x", b"")], {}, "regular files in one new folder"),
    "absolute": ([("/tmp/x", b"")], {}, "regular files in one new folder"),
    "deep above": ([("a/../../x", b"")], {}, "no sound archive|regular files"),
    "a link": ([("a/x", b"")], {"type": tarfile.SYMTYPE, "linkname": "/etc/passwd"}, "regular files in one new folder"),
    "a hard link": ([("a/x", b"")], {"type": tarfile.LNKTYPE, "linkname": "/etc/passwd"}, "regular files in one"),
    "a device": ([("a/x", b"")], {"type": tarfile.CHRTYPE}, "regular files in one new folder"),
    "a name twice": ([("a/x", b"1"), ("a/x", b"2")], {}, "each once"),
    "two folders": ([("a/x", b"1"), ("b/x", b"2")], {}, "one new folder"),
    "a name that is a command": ([("a/\x1b[2J", b"")], {}, "regular files in one new folder"),
    "no run": ([("a/x", b"1")], {}, "got 0 runs"),
    "nothing": ([], {}, "empty archive"),
}
# fmt: on


@pytest.mark.parametrize("name", HOSTILE)
def test_a_hostile_archive_is_one_error_and_touches_nothing_outside(tmp_path, name):
    files, changes, words = HOSTILE[name]
    path = packed(tmp_path / "p.tar.gz", files, **changes)
    with pytest.raises(ResultsError, match=words):
        list(review(unpack(path, tmp_path / "out")))
    assert {p.name for p in tmp_path.iterdir()} <= {"p.tar.gz", "out"}


def test_what_is_no_archive_or_a_bomb_is_one_error(tmp_path):
    path = tmp_path / "p.tar.gz"
    for content in (b"", b"text", gzip.compress(b"x" * 600), gzip.compress(b"")[:-4]):
        path.write_bytes(content)
        with pytest.raises(ResultsError, match=r"got (no sound archive|an empty archive)"):
            unpack(path, tmp_path / "out")
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(ResultsError, match="got 'no regular file'"):
        unpack(tmp_path / "pipe", tmp_path / "out")
    header = tarfile.TarInfo("a/x")
    header.size, header.type = 2**32, tarfile.XHDTYPE  # a header of 4 GiB
    path.write_bytes(gzip.compress(header.tobuf() + b"\0" * 2**20))
    with pytest.raises(ResultsError, match="a piece of 4294967296 bytes"):
        unpack(path, tmp_path / "out")
    large = tarfile.TarInfo("a/x")
    large.size = 2**40
    path.write_bytes(gzip.compress(large.tobuf(tarfile.GNU_FORMAT)))
    with pytest.raises(ResultsError, match=f"{MOST_FILES} and"):
        unpack(path, tmp_path / "out")
