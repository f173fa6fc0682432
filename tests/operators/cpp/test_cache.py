"""The cache of compiled operators: one build for many processes, nothing half-made, soon found again."""

from __future__ import annotations

import io
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

import deep500 as d5
from deep500 import cli, progress
from deep500.errors import CacheError, InputError
from deep500.operators import bridge
from deep500.operators.cpp import build, cache, entries
from deep500.operators.cpp.commands import compile_library
from deep500.operators.cpp.spec import BuildSpec
from tests.conftest import HANG
from tests.operators.cpp_sources import simple

VECTOR = [d5.tensordesc(["N"])]
ROOT = Path(__file__).resolve().parents[3]
BODY = "y[0] = 7;"


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty cache."""
    monkeypatch.setenv("DEEP500_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache" / "cpp"


def compiled(body: str = BODY, **more: object) -> d5.operators.CompiledOp:
    return d5.compile_custom_cppop_inline("simple", simple(body), VECTOR, VECTOR, **more)  # type: ignore[arg-type]


def builds(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """A list that grows with every build."""
    done: list[str] = []
    original = build.compile_library

    def counted(job: build.Job) -> None:
        done.append(job.spec.name)
        original(job)

    monkeypatch.setattr(build, "compile_library", counted)
    return done


def start(code: str, **environment: str) -> subprocess.Popen[str]:
    """Another Python process, in the checkout."""
    return subprocess.Popen(
        [sys.executable, "-c", code],
        cwd=ROOT,
        env=os.environ | environment,
        text=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )


def test_what_is_the_same_is_built_once(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    done = builds(monkeypatch)
    first = compiled()
    assert compiled().path == first.path and len(done) == 1
    assert first.path.is_relative_to(folder)
    changed = [compiled("y[0] = 8;"), compiled(additional_definitions={"MACRO": 1}), compiled(gradient=None)]
    assert len({op.path for op in (first, *changed)}) == len(done) == 1 + len(changed)


def test_a_changed_header_means_a_new_build(tmp_path: Path, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also through a header that another header includes; a folder that moves is found again."""
    done = builds(monkeypatch)
    home = tmp_path / "first $place #1"
    (home / "deep").mkdir(parents=True)
    (home / "deep" / "inner.h").write_text("#define VALUE 1\n", encoding="utf-8")
    (home / "outer.h").write_text('#include "deep/inner.h"\n', encoding="utf-8")
    (home / "op.cpp").write_text(simple("y[0] = VALUE;", '#include "outer.h"\n'), encoding="utf-8")

    def value(place: Path) -> float:
        return float(d5.compile_custom_cppop("simple", place / "op.cpp", VECTOR, VECTOR)(np.zeros(1, "float32"))[0])

    assert [value(home), value(home)] == [1, 1] and len(done) == 1
    (home / "deep" / "inner.h").write_text("#define VALUE 2\n", encoding="utf-8")
    assert [value(home), value(home)] == [2, 2] and len(done) == 2
    moved = home.rename(tmp_path / "second")
    assert value(moved) == 2 and len(done) == 2
    (moved / "deep" / "inner.h").write_text("#define VALUE 1\n", encoding="utf-8")
    assert value(moved) == 1 and len(done) == 2, "the library for the old contents is still there"


def test_a_header_that_appears_where_one_was_asked_for_means_a_new_build(tmp_path: Path, folder: Path) -> None:
    asks = '#if __has_include("value.h")\n#include "value.h"\n#else\n#define VALUE 1\n#endif\n'
    (tmp_path / "op.cpp").write_text(simple("y[0] = VALUE;", asks), encoding="utf-8")
    values = []
    for text in (None, "#define VALUE 2\n", None):
        (tmp_path / "value.h").unlink(missing_ok=True)
        if text is not None:
            (tmp_path / "value.h").write_text(text, encoding="utf-8")
        op = d5.compile_custom_cppop("simple", tmp_path / "op.cpp", VECTOR, VECTOR)
        values.append(float(op(np.zeros(1, "float32"))[0]))
    assert values == [1, 2, 1]


def test_a_changed_header_of_another_source_too(tmp_path: Path, folder: Path) -> None:
    (tmp_path / "value.h").write_text("#define VALUE 1\n", encoding="utf-8")
    (tmp_path / "value.cpp").write_text('#include "value.h"\nfloat value() { return VALUE; }\n', encoding="utf-8")
    source = simple("y[0] = value();", "float value();\n")
    for expected in (1, 2):
        (tmp_path / "value.h").write_text(f"#define VALUE {expected}\n", encoding="utf-8")
        op = d5.compile_custom_cppop_inline("simple", source, VECTOR, VECTOR, [tmp_path / "value.cpp"])
        assert op(np.zeros(1, "float32")) == expected


OTHER_PROCESS = f"""
import sys, time
import deep500 as d5
from deep500.operators.cpp import build
from tests.operators.cpp_sources import simple
original = build.compile_library
def counted(job):
    print("building", flush=True)
    original(job)
    time.sleep({{pause}})
build.compile_library = counted
print("ready", flush=True)
sys.stdin.readline()
op = d5.compile_custom_cppop_inline("simple", simple({BODY!r}), [d5.tensordesc(["N"])], [d5.tensordesc(["N"])])
print(op.path)
"""


def test_two_processes_make_one_build(folder: Path) -> None:
    processes = [
        subprocess.Popen(
            [sys.executable, "-c", OTHER_PROCESS.format(pause=0.5)],
            cwd=ROOT,
            text=True,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )
        for _ in range(2)
    ]
    for process in processes:
        assert process.stdout is not None and process.stdout.readline() == "ready\n"
    for process in processes:
        assert process.stdin is not None
        process.stdin.write("go\n")
        process.stdin.flush()
    said = [process.communicate(timeout=HANG)[0].split("\n") for process in processes]
    assert sorted(len(lines) for lines in said) == [2, 3], said  # one of them said "building"
    assert said[0][-2] == said[1][-2] and Path(said[0][-2]).is_file()
    assert not list(folder.glob("building-*"))


def test_a_killed_build_leaves_nothing_half_made(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with subprocess.Popen(
        [sys.executable, "-c", OTHER_PROCESS.format(pause=100)],
        cwd=ROOT,
        text=True,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    ) as process:
        assert process.stdout is not None and process.stdin is not None
        process.stdin.write("go\n")
        process.stdin.flush()
        assert [process.stdout.readline() for _ in range(2)] == ["ready\n", "building\n"]
        end = time.monotonic() + HANG
        while not list(folder.glob("building-*/made/*.so")):  # the library is there, but not yet where it belongs
            assert time.monotonic() < end
            time.sleep(0.02)
        process.send_signal(signal.SIGKILL)
    assert {path.name.partition("-")[0] for path in folder.iterdir()} == {"building", "locks"}
    done = builds(monkeypatch)
    assert compiled()(np.zeros(1, "float32")) == 7
    assert len(done) == 1
    assert not list(folder.glob("building-*")), "what the killed build left is removed"


def test_a_failed_build_leaves_nothing(folder: Path) -> None:
    with pytest.raises(d5.errors.CompileError):
        compiled("y[0] = ;")
    assert [path.name for path in folder.iterdir()] == ["locks"]


@pytest.mark.parametrize("kind", ["a file in the way", "a read-only file system"])
def test_a_cache_that_cannot_be_written_is_one_error(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = tmp_path / "cache" if kind == "a file in the way" else Path("/proc/deep500")
    if kind == "a file in the way":
        place.write_text("", encoding="utf-8")
    monkeypatch.setenv("DEEP500_CACHE", str(place))
    with pytest.raises(d5.errors.CacheError) as caught:
        compiled()
    assert str(place) in str(caught.value) and "DEEP500_CACHE" in str(caught.value)


def test_the_folder(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("DEEP500_CACHE", str(tmp_path))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "general"))
    assert cache.cache_folder() == tmp_path
    monkeypatch.delenv("DEEP500_CACHE")
    assert cache.cache_folder() == tmp_path / "general" / "deep500"
    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setenv("HOME", str(tmp_path))
    assert cache.cache_folder() == tmp_path / ".cache" / "deep500"


def test_a_cached_operator_starts_no_process(monkeypatch: pytest.MonkeyPatch) -> None:
    compiled()

    def refuse(*_: object, **__: object) -> None:
        raise AssertionError("a process was started")

    monkeypatch.setattr(subprocess, "Popen", refuse)
    assert compiled()(np.zeros(1, "float32")) == 7


@pytest.fixture(scope="module")
def parts(tmp_path_factory: pytest.TempPathFactory) -> tuple[bytes, bytes]:
    """A library that a compiler made, and its list of included files."""
    kept: list[bytes] = []

    def keeping(job: build.Job) -> None:
        compile_library(job)
        kept.extend((job.library.read_bytes(), job.listing.read_bytes()))

    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("DEEP500_CACHE", str(tmp_path_factory.mktemp("cache")))
        patch.setattr(build, "compile_library", keeping)
        compiled()
    return kept[0], kept[1]


@pytest.fixture
def made(parts: tuple[bytes, bytes], folder: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """An empty cache, and a compiler that takes no time: it gives the same library again. Grows with every build."""
    done: list[str] = []

    def again(job: build.Job) -> None:
        done.append(job.spec.name)
        job.library.write_bytes(parts[0])
        job.listing.write_bytes(parts[1])

    monkeypatch.setattr(build, "compile_library", again)
    return done


def found(body: str = BODY) -> Path:
    """The library, which is not loaded."""
    spec = BuildSpec("simple", simple(body), None, ("float32",), ("float32",))
    return build.find_library(spec, VECTOR, lambda inputs: inputs)


@pytest.mark.parametrize("damage", ["cut short", "foreign", "one byte", "no seal", "a link", "writable by all"])
def test_a_library_that_is_not_as_it_was_built_is_built_again(made: list[str], damage: str) -> None:
    """One that was cut short would end this process when it is mapped."""
    library = found()
    assert found() == library and len(made) == 1
    content = library.read_bytes()
    if damage == "cut short":
        library.write_bytes(content[:3000])
    elif damage == "foreign":
        library.write_bytes(Path(sys.executable).resolve().read_bytes()[: len(content)])
    elif damage == "one byte":
        library.write_bytes(content[:-1] + bytes([content[-1] ^ 1]))
    elif damage == "no seal":
        (library.parent / cache.SEAL).unlink()
    elif damage == "writable by all":
        library.parent.chmod(0o777)
    else:
        library.rename(library.with_name("other.so"))
        library.symlink_to("other.so")
    assert compiled()(np.zeros(1, "float32")) == 7 and len(made) == 2
    assert library.read_bytes() == content and library.parent.stat().st_mode & 0o777 == 0o700


def test_bridges_are_held_to_their_seals_too(folder: Path, tmp_path: Path) -> None:
    (tmp_path / "own").mkdir()
    source = tmp_path / "own" / "bridge.cpp"
    source.write_text('extern "C" int seven() { return 7; }\n', encoding="utf-8")
    made = bridge.build_bridge(source, [], [], "1")
    written = made.stat().st_mtime_ns
    assert bridge.build_bridge(source, [], [], "1").stat().st_mtime_ns == written
    made.write_bytes(made.read_bytes()[:500])
    assert bridge.build_bridge(source, [], [], "1") == made and made.stat().st_size > 500


def test_the_cache_is_made_for_nobody_else(folder: Path, made: list[str]) -> None:
    library = found()
    for place in (folder.parent, folder, folder / "locks", library.parent, library):
        assert place.stat().st_mode & 0o077 == 0, place


@pytest.mark.parametrize("fault", ["writable by the group", "writable by all", "a link", "another owner", "above"])
def test_a_cache_that_others_can_write_to_is_refused(
    made: list[str], folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fault: str
) -> None:
    found()
    if fault == "a link":
        folder.rename(tmp_path / "elsewhere")
        folder.symlink_to(tmp_path / "elsewhere")
    elif fault == "another owner":
        owner = folder.stat().st_uid
        monkeypatch.setattr(os, "geteuid", lambda: owner + 1000)
        if owner == 0:
            os.chown(folder, 1234, -1)
    else:
        place, mode = {"writable by the group": (folder, 0o770), "writable by all": (folder.parent, 0o777)}.get(
            fault, (tmp_path, 0o777)
        )
        place.chmod(mode)
    expected = {"above": "everybody can rename", "another owner": "owned by the user", "a link": "which is a link"}
    with pytest.raises(CacheError, match=expected.get(fault, "writable by others") + ".*DEEP500_CACHE"):
        found()


def test_the_least_recently_used_libraries_make_room(
    made: list[str], folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DEEP500_CACHE_LIMIT", "none")
    old, older, recent = (found(f"y[0] = {n};") for n in range(3))
    for library, hours in ((old, 3), (older, 5)):
        then = time.time() - 3600 * hours
        os.utime(library.parent / cache.SEAL, (then, then))
    size = entries.size_of(old.parent)
    monkeypatch.setenv("DEEP500_CACHE_LIMIT", str(int(3.5 * size)))
    found("y[0] = 3;")
    assert (older.exists(), old.exists(), recent.exists()) == (False, True, True)
    assert len(list(folder.glob("*.json"))) == 3
    assert found("y[0] = 0;") == old, "now it was used"
    monkeypatch.setenv("DEEP500_CACHE_LIMIT", "1K")
    assert not entries.make_room(), "what was used within the last hour stays"
    assert found("y[0] = 2;") == recent and found("y[0] = 1;") == older, "what was removed is built again"


def test_a_limit_that_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    for said, expected in (("1.5K", 1536), ("2 GiB", 2 << 30), ("none", None), ("", entries.LIMIT)):
        monkeypatch.setenv("DEEP500_CACHE_LIMIT", said)
        assert entries.limit() == expected
    monkeypatch.setenv("DEEP500_CACHE_LIMIT", "much")
    with pytest.raises(InputError, match="'much'; expected a size such as 500M"):
        entries.limit()


def test_the_command(made: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    library = found()
    assert cli.main(["tools", "cache"]) == 0
    listed = capsys.readouterr().out
    assert "simple" in listed and library.parent.name in listed and "1 libraries" in listed
    assert cli.main(["tools", "cache", "clear", "another"]) == 0 and library.exists()
    assert cli.main(["tools", "cache", "clear"]) == 0 and not library.exists()
    assert cli.main(["tools", "cache", "size"]) == 0
    assert "0 libraries, 0 B of at most 2.0 GiB" in capsys.readouterr().out


def test_a_terminal_shows_that_something_is_built(monkeypatch: pytest.MonkeyPatch) -> None:
    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    monkeypatch.setattr(progress, "PATIENCE", 0.0)
    monkeypatch.setattr(progress, "BEAT", 0.001)
    for screen, seen in ((Terminal(), True), (io.StringIO(), False)):
        monkeypatch.setattr(sys, "stderr", screen)
        with progress.progress("building mish"):
            progress.stage("differentiating")
            end = time.monotonic() + HANG
            while seen and "building mish, differentiating [00:0" not in screen.getvalue() and time.monotonic() < end:
                time.sleep(0.001)
        assert ("building mish, differentiating [00:0" in screen.getvalue()) == seen
