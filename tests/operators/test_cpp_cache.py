"""The cache of compiled operators: one build for many processes, nothing half-made, soon found again."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

import deep500 as d5
from deep500.operators.cpp import build, cache
from tests.conftest import HANG
from tests.operators.cpp_sources import simple

VECTOR = [d5.tensordesc(["N"])]
ROOT = Path(__file__).resolve().parents[2]
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
