"""Every command and every example in the README and in docs/ is run, so that none of them is a promise only.

Python blocks run in one fresh folder, each in a namespace of its own. Commands: ``make`` targets are checked with
``make -n`` (the suite cannot call itself), recipes run with ``--dry-run`` unless they are quick by themselves.
"""

import contextlib
import io
import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.transformations.substitutions.samples import branches

ROOT = Path(__file__).resolve().parent.parent
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md")), ROOT / "CONTRIBUTING.md"]
TUTORIALS = [ROOT / "custom_ops" / "README.md"]
"""Pages to be followed from top to bottom in one folder: a block whose first line names a file is that file."""
FILE_NAME = re.compile(r"^(?://|#) (\S+\.\w+)\n")
BLOCK = re.compile(r"^```(\w+)[^\n]*\n(.*?)^```", re.DOTALL | re.MULTILINE)
INSTALLS = ("git clone", "cd ", "python3 -m venv", "pip install", ". .venv")
"""Beginnings of commands that change the machine; tests/test_packaging.py does what they do, in folders of its own."""
IN_FULL = ("deep500 list", "deep500 info")
"""Commands that are quick as they stand; to the others --dry-run is added."""
ON_RESULTS = ("verify", "check", "report", "env", "export", "query")
"""Commands that work with the results of runs that are there already."""


def blocks(*languages: str) -> list[tuple[str, str]]:
    found = []
    for page in PAGES:
        for language, text in BLOCK.findall(page.read_text(encoding="utf-8")):
            if language in languages:
                found.append((page.name, text))
    return found


def commands() -> list[str]:
    lines = []
    for _, text in blocks("bash", "sh", "console"):
        for line in text.splitlines():
            command = line.removeprefix("$ ").split("  #")[0].strip()
            if command and not command.startswith(("#", *INSTALLS)):
                lines.append(command)
    return list(dict.fromkeys(lines))


def test_pages_have_something_to_check() -> None:
    assert len(commands()) >= 4
    assert len(blocks("python")) >= 2


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder ``results`` with two runs, of which the pages speak."""
    folder = tmp_path_factory.mktemp("runs")
    recipe = [sys.executable, str(ROOT / "recipes" / "digits_lenet.py"), "--framework", "reference", "--quiet"]
    for name in ("first", "second"):
        words = [*recipe, "--open", "epochs=1", "--out", str(folder / name)]
        subprocess.run(words, cwd=folder, check=False, capture_output=True, timeout=300)
        (run,) = (folder / name / "digits_lenet").glob("20*-*")
        shutil.copytree(run, folder / "results" / "digits_lenet" / name)
    return folder


def check_on_results(words: list[str], folder: Path) -> None:
    """A command that works with results ends with one of the codes that say what it found."""
    done = subprocess.run(
        [sys.executable, "-m", "deep500", *words], cwd=folder, capture_output=True, text=True, check=False, timeout=300
    )
    assert done.returncode in ((0, 1, 2) if words[0] == "compare" else (0,)), done.stdout + done.stderr
    assert done.stdout and not done.stderr


def check_on_a_model(words: list[str], folder: Path) -> None:
    """A command that optimizes ``model.onnx``, in a folder with that file, and with the history that it replays."""
    branches("N").to_onnx(folder / "model.onnx")
    if "--replay" in words:
        history = words[words.index("--replay") + 1]
        check_on_a_model(["optimize", "model.onnx", "-o", "first.onnx", "--no-measure", "--history", history], folder)
    environment = {**os.environ, "DEEP500_CACHE": str(folder / "cache")}
    done = subprocess.run(
        [sys.executable, "-m", "deep500", *words],
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout and not done.stderr and (folder / words[words.index("-o") + 1]).is_file()


@pytest.mark.parametrize("command", commands())
def test_command_works(command: str, tmp_path: Path, request: pytest.FixtureRequest) -> None:
    words = shlex.split(command)
    environment = words[0] if "=" in words[0] else None
    words = words[1:] if environment else words
    if words[0] == "make":
        assert subprocess.run(["make", "-n", *words[1:]], cwd=ROOT, capture_output=True, check=False).returncode == 0
        return
    if words[0] == "deep500" and (words[1] in ON_RESULTS or words[2:3] == ["results/digits_lenet/first"]):
        check_on_results(words[1:], request.getfixturevalue("runs"))
        return
    if words[:2] == ["deep500", "optimize"]:
        check_on_a_model(words[1:], tmp_path)
        return
    program = {"python": [sys.executable], "deep500": [sys.executable, "-m", "deep500"]}.get(words[0])
    assert program is not None, f"got {command!r}; expected make, python or deep500: teach this test how to run it"
    shutil.copytree(ROOT / "recipes", tmp_path / "recipes", ignore=shutil.ignore_patterns("__pycache__"))
    runs_training = not command.startswith(IN_FULL) and not words[1:2] == ["-m"]
    if words[1:2] == ["-m"]:  # a module of the repository, such as a benchmark: only that it is there and has help
        words = [*words[:3], "--help"]
    extra = ["--dry-run"] if runs_training and "--dry-run" not in words and "--list-mutable" not in words else []
    where = ROOT if words[1:2] == ["-m"] else tmp_path
    done = subprocess.run(
        [*program, *words[1:], *extra], cwd=where, capture_output=True, text=True, check=False, timeout=300
    )
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("page, code", blocks("python"), ids=lambda value: value if value.endswith(".md") else "code")
def test_example_runs(page: str, code: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    if "__main__" in code:  # a whole recipe: run as a script
        (tmp_path / "example.py").write_text(code)
        done = subprocess.run(
            [sys.executable, "example.py", "--dry-run"], capture_output=True, text=True, check=False, timeout=300
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return
    with contextlib.redirect_stdout(io.StringIO()) as out:
        exec(compile(code, page, "exec"), {"__name__": "example"})  # our own text
    expected = re.findall(r"#> (.*)", code)
    assert out.getvalue().splitlines()[: len(expected)] == expected


def write_files(page: Path, folder: Path) -> None:
    """Write the files that a tutorial shows."""
    for _, text in BLOCK.findall(page.read_text(encoding="utf-8")):
        named = FILE_NAME.match(text)
        if named:
            path = folder / named[1]
            path.parent.mkdir(exist_ok=True)
            path.write_text(text)


@pytest.mark.slow
@pytest.mark.backend("pytorch", "tensorflow")
@pytest.mark.parametrize("page", TUTORIALS, ids=lambda page: page.parent.name)
def test_tutorial_can_be_followed(page: Path, tmp_path: Path) -> None:
    """Every file, every Python block and every command as it stands, by somebody who is not in our folder."""
    write_files(page, tmp_path)
    done = 0
    for language, text in BLOCK.findall(page.read_text(encoding="utf-8")):
        if FILE_NAME.match(text) or language not in ("python", "bash"):
            continue
        if language == "python":
            wanted = [([sys.executable, "-c", text], re.findall(r"#> (.*)", text))]
        else:
            lines = [line.split("  #")[0].strip() for line in text.splitlines() if line.strip()]
            words = [shlex.split(line) for line in lines if not line.startswith(INSTALLS)]
            assert all(one[0] == "deep500" for one in words), words
            wanted = [([sys.executable, "-m", "deep500", *one[1:]], []) for one in words]
        for command, expected in wanted:
            got = _run_elsewhere(command, tmp_path)
            assert got.splitlines()[: len(expected)] == expected
            done += 1
    assert done >= 5


def _run_elsewhere(command: list[str], folder: Path) -> str:
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "PYTHONSAFEPATH": "1"}
    done = subprocess.run(
        command, cwd=folder, env=environment, capture_output=True, text=True, check=False, timeout=300
    )
    assert done.returncode == 0, f"{command}\n{done.stdout}{done.stderr}"
    return done.stdout
