"""Bringing the engine: what is pinned is compared, two at once do no harm, a missing one is one error."""

from __future__ import annotations

import hashlib
import threading
import zipfile
from pathlib import Path

import pytest

from deep500.cli import main
from deep500.errors import CacheError, MissingEngine
from deep500.operators.enzyme import engine, setup

SCRIPT = '#!/bin/sh\necho "ret double 2.000000e+00"\n'


@pytest.fixture
def empty(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A user without an engine."""
    monkeypatch.setenv("DEEP500_CACHE", str(tmp_path))
    monkeypatch.delenv(engine.VARIABLE, raising=False)
    monkeypatch.setattr(engine, "PLUGIN_FOLDERS", ())
    return tmp_path


@pytest.fixture
def index(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> list[Path]:
    """A package index with a small wheel; returns the list of downloads."""
    wheel = tmp_path_factory.mktemp("index") / "engine.whl"
    with zipfile.ZipFile(wheel, "w") as archive:
        archive.writestr("pennylane_catalyst.data/data/bin/catalyst", SCRIPT)
    monkeypatch.setattr(setup, "WHEEL_SHA256", hashlib.sha256(wheel.read_bytes()).hexdigest())
    monkeypatch.setattr(engine, "BINARY_SHA256", hashlib.sha256(SCRIPT.encode()).hexdigest())
    downloads: list[Path] = []

    def download(folder: Path) -> Path:
        downloads.append(folder)
        target = folder / wheel.name
        target.write_bytes(wheel.read_bytes())
        return target

    monkeypatch.setattr(setup, "_download", download)
    monkeypatch.setattr(setup, "warm_up", lambda folder, say: None)
    return downloads


def test_a_missing_engine_is_one_error_with_the_command(empty: Path) -> None:
    """Not a traceback from the depths of a build."""
    with pytest.raises(MissingEngine, match=r"got no Enzyme engine .* deep500 tools setup enzyme$"):
        engine.find_engine()
    assert "deep500 tools setup enzyme" in engine.report()["engine"]


def test_setup_unpacks_the_engine_once(empty: Path, index: list[Path], capsys: pytest.CaptureFixture[str]) -> None:
    """Twice in a row is one download; nothing but the executable and a lock stays."""
    assert main(["tools", "setup", "enzyme"]) == 0 and main(["tools", "setup", "enzyme"]) == 0
    assert len(index) == 1 and capsys.readouterr().out.count("Bringing the Enzyme engine") == 1
    path = engine.engine_path()
    assert path.read_text() == SCRIPT and engine.find_engine().path == path
    assert sorted(p.name for p in (empty / "enzyme").iterdir()) == sorted([path.parent.name, "lock"])


def test_two_at_once_download_once(empty: Path, index: list[Path]) -> None:
    """The second waits for the first and finds it there."""
    threads = [threading.Thread(target=setup.install) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(index) == 1 and engine.engine_path().is_file()


@pytest.mark.parametrize("pinned", ["WHEEL_SHA256", "BINARY_SHA256"])
def test_another_file_than_the_pinned_one_is_refused(
    empty: Path, index: list[Path], monkeypatch: pytest.MonkeyPatch, pinned: str
) -> None:
    """It is not run, and nothing of it stays."""
    monkeypatch.setattr(setup if pinned == "WHEEL_SHA256" else engine, pinned, "0" * 64)
    with pytest.raises(MissingEngine, match=r"with SHA-256 [0-9a-f]{64}; expected 0{64}"):
        setup.install()
    assert not engine.engine_path().exists() and [p.name for p in (empty / "enzyme").iterdir()] == ["lock"]


def test_an_engine_that_does_not_run_is_an_error(empty: Path, index: list[Path]) -> None:
    """Setting up ends with a trial."""
    setup.install()
    engine.engine_path().write_text("#!/bin/sh\necho broken >&2; exit 3\n")
    with pytest.raises(MissingEngine, match=r"does not run \(broken\); .* then deep500 tools setup enzyme"):
        setup.install()


def test_an_own_engine_is_named_by_a_variable(empty: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An executable, or a plugin with its version in its name."""
    for name, kind, llvm in (("catalyst", "catalyst", 22), ("LLVMEnzyme-19.so", "plugin", 19)):
        (empty / name).write_text(SCRIPT)
        (empty / name).chmod(0o755)
        monkeypatch.setenv(engine.VARIABLE, str(empty / name))
        own = engine.find_engine()
        assert (own.kind, own.llvm) == (kind, llvm)
    monkeypatch.setenv("PATH", "")
    with pytest.raises(MissingEngine, match=r"got no clang\+\+ 19; .*: install clang 19"):
        engine.find_clang(own)
    monkeypatch.setenv(engine.VARIABLE, str(empty / "nothing"))
    with pytest.raises(MissingEngine, match="which is no file"):
        engine.find_engine()


def test_a_plugin_of_the_system_is_used_with_its_clang(empty: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The newest one whose clang is there."""
    for llvm in (17, 19, 21):
        (empty / f"LLVMEnzyme-{llvm}.so").write_text("")
    for llvm in (17, 19):
        (empty / f"clang++-{llvm}").write_text(f"#!/bin/sh\necho clang version {llvm}.1.0\n")
        (empty / f"clang++-{llvm}").chmod(0o755)
    monkeypatch.setattr(engine, "PLUGIN_FOLDERS", (str(empty),))
    monkeypatch.setenv("PATH", f"{empty}:/bin:/usr/bin")
    newest = engine.find_engine()
    assert newest.path == empty / "LLVMEnzyme-19.so"
    assert engine.find_clang(newest).version == "clang 19.1.0"


def test_a_folder_that_cannot_be_written_is_an_error(empty: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It names the variable to set."""
    (empty / "file").write_text("")
    monkeypatch.setenv("DEEP500_CACHE", str(empty / "file"))
    with pytest.raises(CacheError, match="DEEP500_CACHE to another"):
        setup.install()
