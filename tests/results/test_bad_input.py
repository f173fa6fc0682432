"""Results folders that are damaged, of another version, or cannot be written: one clear line, and never a traceback."""

from __future__ import annotations

import argparse
import errno
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from deep500 import cli
from tests.conftest import HANG
from tests.results.report_cases import finished

COMMANDS = {
    "check": lambda run, out: ["publish", "check", run],
    "report": lambda run, out: ["report", run, "-o", out / "page.html"],
    "verify": lambda run, out: ["verify", run],
    "compare": lambda run, out: ["compare", run, run],
    "csv": lambda run, out: ["publish", "export", run, "--to", "csv", "-o", out],
    "mllog": lambda run, out: ["publish", "export", run, "--to", "mllog", "-o", out],
    "mlflow": lambda run, out: ["publish", "export", run, "--to", "mlflow", "-o", out],
    "query": lambda run, out: ["query", "SELECT * FROM runs, estimates", "--out", run],
}


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """A sound run, copied by each test."""
    return finished(tmp_path_factory.mktemp("whole"), samples=60, seeds=2).path


@pytest.fixture
def run(whole, tmp_path):
    return Path(shutil.copytree(whole, tmp_path / "results" / whole.name))


def cut(name):
    return lambda run: (run / name).write_bytes((run / name).read_bytes()[:-40])


def change(name, **new):
    def apply(run):
        content = json.loads((run / name).read_text())
        (run / name).write_text(json.dumps({**content, **new}))

    return apply


def leave_out(*names):
    def apply(run):
        content = json.loads((run / "manifest.json").read_text())
        (run / "manifest.json").write_text(json.dumps({k: v for k, v in content.items() if k not in names}))

    return apply


def write(name, text):
    return lambda run: (run / name).write_text(text)


# fmt: off
DAMAGE = {
    "another version": change("manifest.json", schema="deep500-results-9"),
    "no schema": leave_out("schema"),
    "manifest cut": cut("manifest.json"),
    "manifest missing": lambda run: (run / "manifest.json").unlink(),
    "manifest is a list": write("manifest.json", "[]"),
    "manifest lacks parts": leave_out("seeds", "resolved", "data", "device", "started"),
    "summary cut": cut("summary.json"),
    "summary of another version": change("summary.json", metrics=None, verdict=None),
    "stats cut": cut("stats.json"),
    "stats of another version": write("stats.json", '{"schema": "deep500-stats-9", "series": {"step": {"median": 1}}}'),
    "rules cut": cut("rules.json"),
    "samples cut": cut("samples/step.0.i64"),
    "samples missing": lambda run: (run / "samples" / "step.0.i64").unlink(),
    "journal is no JSON": write("journal.jsonl", "series\n"),
    "epochs are no JSON": write("metrics.jsonl", "epoch\n"),
    "claims are no JSON": write("claims.json", "{"),
    "scaling of another version": write("scaling.json", '{"schema": "deep500-scaling-9"}'),
    "ranks of another version": write("ranks.json", '{"schema": "deep500-ranks-9"}'),
    "plan of another version": write("checkpointing.json", '{"schema": "deep500-checkpointing-9"}'),
    "stats that do not say of how many launches": lambda run: (run / "stats.json").write_text(
        (run / "stats.json").read_text().replace('"launches": 2', '"launched": 2')
    ),
    "no folder": shutil.rmtree,
    "manifest deep": write("manifest.json", '{"schema": "deep500-results-1", "x": ' + "[" * 9999 + "]" * 9999 + "}"),
    "manifest of 5,000 digits": write("manifest.json", '{"schema": "deep500-results-1", "ranks": ' + "9" * 5000 + "}"),
    "environment is a list": change("manifest.json", environment=[1]),
    "summary with half a character": change("summary.json", verdict="\ud800"),
    "summary beyond numbers": lambda run: (run / "summary.json").write_text('{"metrics": [], "x": 1e400}'),
    "epochs are no objects": write("metrics.jsonl", "1\n"),
    "journal lines are no objects": write("journal.jsonl", "null\n"),
    "claims without time": write("claims.json", '{"claims": [{"type": "breakdown", "parts": {"a": 1}, "wall": 0}]}'),
}
# fmt: on


READERS = {"check", "report", "csv", "mllog", "mlflow", "query"}
REFUSED_BY = {
    "no schema": READERS - {"check"},
    "manifest lacks parts": READERS - {"check"},
    "rules cut": {"report"},
    "samples cut": {"check", "report", "csv"},
    "samples missing": {"check", "report", "csv"},
    "journal is no JSON": READERS,
    "epochs are no JSON": READERS,
    "claims are no JSON": {"check", "report"},
    "scaling of another version": {"report"},
    "ranks of another version": {"report"},
    "plan of another version": {"report"},
    "epochs are no objects": READERS,
    "journal lines are no objects": READERS,
    "claims without time": set(),
}
"""Which commands need what is damaged; every one of them where nothing is said."""


def one_line(said, *names):
    """Whether stderr is one line of ours that names something, and nothing else."""
    assert said.err.startswith("deep500: error: ") and said.err.count("\n") == 1 and "Traceback" not in said.err
    assert any(name in said.err for name in names), said.err
    return True


@pytest.mark.parametrize("damage", DAMAGE)
@pytest.mark.parametrize("command", COMMANDS)
def test_damage_is_one_line_or_does_not_matter(command, damage, run, tmp_path, capsys):
    DAMAGE[damage](run)
    out = tmp_path / "out"
    out.mkdir()
    code = cli.main([str(word) for word in COMMANDS[command](run, out)])
    said = capsys.readouterr()
    if command == "verify" and (run / "manifest.json").exists():
        assert code == 1 and said.out.count("\n") == 1  # the altered file, by name
    elif command in REFUSED_BY.get(damage, READERS) or command in ("verify", "compare"):
        assert code >= 2 and one_line(said, str(run), "results folder", str(run.parent))
        assert not any(path.is_file() for path in out.rglob("*"))
    else:
        assert code in (0, 1) and said.out and not said.err


def test_damage_is_a_table_of_what_can_go_wrong(run, tmp_path, capsys):
    """Undamaged, every command works, and ``check`` and ``compare`` say what they should of such a run."""
    for command, words in COMMANDS.items():
        out = tmp_path / command
        out.mkdir()
        code = cli.main([str(word) for word in words(run, out)])
        assert code == {"check": 1, "compare": 2}.get(command, 0), command
        assert not capsys.readouterr().err


# -- disks ------------------------------------------------------------------------------------------------------------
WRITERS = ("report", "csv", "mllog", "mlflow")


@pytest.mark.parametrize("command", WRITERS)
def test_a_full_disk_is_one_line_and_leaves_no_half_file(command, run, tmp_path, capsys, monkeypatch):
    def full(_):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    out = tmp_path / "out"
    out.mkdir()
    monkeypatch.setattr(os, "fsync", full)
    assert cli.main([str(word) for word in COMMANDS[command](run, out)]) == 2
    assert one_line(capsys.readouterr(), "No space left on device")
    assert not any(path.is_file() for path in out.rglob("*"))


def test_a_limit_of_the_system_is_one_line(run, tmp_path):
    """A real refusal of the system: a process that may write no file larger than a kilobyte.

    It writes no bytecode (-B): the interpreter would keep the half file that the limit lets through, and every
    later process would fail to import it.
    """
    limited = (
        "import resource, runpy, sys; resource.setrlimit(resource.RLIMIT_FSIZE, (1024, 1024)); "
        "sys.argv[0] = 'deep500'; runpy.run_module('deep500', run_name='__main__')"
    )
    done = subprocess.run(
        [sys.executable, "-B", "-c", limited, "report", str(run), "-o", str(tmp_path / "page.html")],
        capture_output=True,
        text=True,
        check=False,
        timeout=HANG,
        cwd=Path(cli.__file__).parent.parent,
    )
    assert done.returncode == 2 and one_line(argparse.Namespace(err=done.stderr), "page.html")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["results"]


@pytest.mark.parametrize("command", WRITERS)
def test_a_folder_that_cannot_be_written_is_one_line(command, run, tmp_path, capsys):
    out = tmp_path / "out"
    if os.geteuid() == 0:  # permissions do not stop root, but no user can make files there
        out = Path("/proc")
    else:
        out.mkdir(mode=0o555)
    assert cli.main([str(word) for word in COMMANDS[command](run, out)]) == 2
    assert one_line(capsys.readouterr(), str(out))


def test_a_run_in_a_folder_that_cannot_be_written_is_one_line(tmp_path, capsys):
    (tmp_path / "file").write_text("")
    words = ["run", "digits_lenet", "--backend", "reference", "--dry-run", "--out", str(tmp_path / "file")]
    assert cli.main(words) == 2
    said = capsys.readouterr().err.splitlines()
    assert "expected a writable folder" in said[-1] and not any("Traceback" in line for line in said)
