"""Every command and every example in the README and in docs/ is run, so that none of them is a promise only.

Python blocks run in one fresh folder, each in a namespace of its own. Commands run in this process, which imports each
framework once. ``make`` targets are checked with ``make -n`` (the suite cannot call itself), recipes
run with ``--dry-run`` unless they are quick by themselves, of modules (studies, benchmarks) the help is read, once for
all commands of a module, and has to name every option; their dry runs are in tests/studies.
"""

import argparse
import contextlib
import functools
import importlib
import inspect
import io
import os
import re
import runpy
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from deep500 import cli
from deep500.distributed.schemes import by_name
from deep500.errors import InputError
from deep500.training import optimizers
from tests.conftest import HANG
from tests.packages import serve
from tests.transformations.substitutions.samples import branches, own_activations

ROOT = Path(__file__).resolve().parent.parent
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md")), ROOT / "CONTRIBUTING.md"]
TUTORIALS = [ROOT / "custom_ops" / "README.md"]
"""Pages to be followed from top to bottom in one folder: a block whose first line names a file is that file."""
FILE_NAME = re.compile(r"^(?://|#) (\S+\.\w+)\n")
BLOCK = re.compile(r"^```(\w+)[^\n]*\n(.*?)^```", re.DOTALL | re.MULTILINE)
INSTALLS = ("git clone", "cd ", "python3 -m venv", "pip install", ". .venv")
"""Beginnings of commands that change the machine; tests/test_packaging.py does what they do, in folders of its own."""
NEEDS = "# needs: "
"""First line of an example that takes a package which comes with no extra of ours, or not with `[all]`."""
IN_FULL = ("deep500 list", "deep500 tools info")
"""Commands that are quick as they stand; to the others --dry-run is added."""
DRY = {"race": "--plan", "sweep": "--list"}
"""Commands whose dry run has another name."""
ON_RESULTS = ("verify", "check", "report", "env", "export", "query", "package", "review")
"""Commands that work with the results of runs that are there already."""

# python -m warns if the module was imported before, here by its own tests
pytestmark = pytest.mark.filterwarnings("ignore:.*found in sys.modules after import of package:RuntimeWarning")


@pytest.fixture(autouse=True, scope="module")
def _environment() -> Iterator[None]:
    """Commands leave the environment as it was."""
    before = dict(os.environ)
    yield
    os.environ.clear()
    os.environ.update(before)


@pytest.fixture(scope="module")
def prices(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A cache for the prices of operators, which the commands that measure some share."""
    return str(tmp_path_factory.mktemp("cache"))


def blocks(*languages: str) -> list[tuple[str, str]]:
    return [
        (page.name, text)
        for page in PAGES
        for language, text in BLOCK.findall(page.read_text(encoding="utf-8"))
        if language in languages
    ]


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


def run_here(words: list[str]) -> int:
    """Run ``deep500 ...``, ``python FILE ...`` or ``python -m MODULE ...`` in this process; returns the exit code."""
    if words[0] == "deep500":
        return cli.main([*cli.TWO_WORDS.get(words[1], words[1]).split(), *words[2:]])
    arguments = sys.argv
    try:
        if words[1] == "-m":
            sys.argv = words[2:]
            sys.modules.pop(f"{words[2]}.__main__", None)  # another test's: runpy warns of it
            runpy.run_module(words[2], run_name="__main__", alter_sys=True)
        else:
            sys.argv = words[1:]
            runpy.run_path(words[1], run_name="__main__")
    except SystemExit as leave:
        return leave.code if isinstance(leave.code, int) else int(bool(leave.code))
    finally:
        sys.argv = arguments
    return 0


@functools.cache
def help_of(module: str) -> str:
    """What ``python -m MODULE --help`` prints."""
    with contextlib.redirect_stdout(io.StringIO()) as out:
        assert run_here(["python", "-m", module, "--help"]) == 0
    return out.getvalue()


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder ``results`` with two runs, of which the pages speak."""
    folder = tmp_path_factory.mktemp("runs")
    recipe = ["python", str(ROOT / "recipes" / "digits_lenet.py"), "--backend", "reference", "--quiet"]
    for name in ("first", "second"):
        with contextlib.redirect_stdout(io.StringIO()):
            run_here([*recipe, "--open", "epochs=1", "--out", str(folder / "results")])
        (run,) = (folder / "results" / "digits_lenet").glob("20*-*")
        run.rename(run.with_name(name))
    return folder


def check_on_results(words: list[str], capfd: pytest.CaptureFixture[str]) -> None:
    """A command that works with results ends with one of the codes that say what it found."""
    if words[1] == "review":  # what the page packs in the line before
        check_on_results(["deep500", "package", "results/digits_lenet/first", "-o", words[2]], capfd)
    code = run_here(words)
    out, err = capfd.readouterr()
    assert code in ((0, 1, 2) if words[1] in ("compare", "review") else (0,)), out + err
    assert out and not err


def check_on_a_model(words: list[str], capfd: pytest.CaptureFixture[str]) -> None:
    """A command that rewrites ``model.onnx``, in a folder with that file, and with the history that it replays."""
    branches("N").to_onnx("model.onnx")
    if "--replay" in words:
        history = words[words.index("--replay") + 1]
        first = ["deep500", "optimize", "model.onnx", "-o", "first.onnx", "--no-measure", "--history", history]
        check_on_a_model(first, capfd)
    code = run_here(words)
    out, err = capfd.readouterr()
    assert code == 0, out + err
    assert out and not err and Path(words[words.index("-o") + 1]).is_file()


def files_of_the_page(page: Path) -> None:
    """Write the blocks of a page that begin with the comment of a file's name."""
    for name, body in re.findall(r"^```\w+\n# (\w+\.\w+)\n(.*?)^```", page.read_text("utf-8"), re.M | re.S):
        Path(name).write_text(body, encoding="utf-8")


def covered(words: list[str]) -> bool:
    """Whether another command of the pages shows what this one does, which differs by an option that is understood.

    A comparison in more frameworks serves for one in fewer; one prediction of a recipe's scaling, that of the fewest
    schemes, for all.
    """
    if words[:2] not in (["deep500", "compare"], ["deep500", "simulate"]):
        return False
    mine = parsed(words)
    for others in (shlex.split(command) for command in commands()):
        if others[:2] != words[:2]:
            continue
        other = parsed(others)
        if words[1] == "compare" and "--backend" in words and mine.subject == other.subject:
            if set(mine.frameworks.split(",")) < set((other.frameworks or "").split(",")):
                return True
        elif words[1] == "simulate" and mine.recipe == other.recipe and len(other.schemes) < len(mine.schemes):
            return True
    return False


def parsed(words: list[str]) -> argparse.Namespace:
    """The options of a ``deep500`` command, read as the command does."""
    module, _, function = cli.COMMANDS[words[1]][1].partition(":")
    parser = argparse.ArgumentParser(allow_abbrev=False)
    getattr(importlib.import_module(module), function)(parser)
    return parser.parse_intermixed_args(words[2:])


@pytest.mark.parametrize("command", commands())
def test_command_works(
    command: str,
    tmp_path: Path,
    request: pytest.FixtureRequest,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    words = shlex.split(command)
    if words[0] == "deep500" and words[1] in cli.NESTED:
        del words[1]  # run_here types it again
    if words[0] == "make":
        assert subprocess.run(["make", "-n", *words[1:]], cwd=ROOT, capture_output=True, check=False).returncode == 0
        return
    if words[0] == "sbatch":  # tests/race/test_engines.py runs what is written, index by index
        assert words[1:] and words[1].endswith(("/sweep.sbatch", "/race.sbatch")), words
        return
    assert words[0] in ("python", "deep500"), f"got {command!r}; expected make, python or deep500: teach this test"
    if words[1] == "-m":
        shown = help_of(words[2])
        missing = [word for word in words[3:] if word.startswith("--") and word.partition("=")[0] not in shown]
        assert "usage:" in shown and not missing, shown
        return
    if words[0] == "deep500" and (words[1] in ON_RESULTS or "results/digits_lenet/first" in words):
        monkeypatch.chdir(request.getfixturevalue("runs"))
        check_on_results(words, capfd)
        return
    monkeypatch.chdir(tmp_path)
    if words[:2] == ["deep500", "rules"] or "--rules" in words:
        files_of_the_page(ROOT / "docs" / "own_rules.md")
        branches("N").to_onnx("model.onnx")
        unknown = words[-2:] == ["prove", "my_rules.txt"]  # the page says so of one of its rules
        with own_activations():
            assert run_here(words) == int(unknown), capfd.readouterr()
        out = capfd.readouterr().out
        assert out and ("1 unknown" in out) == unknown
        return
    if words[:2] in (["deep500", "optimize"], ["deep500", "gradient"]):
        monkeypatch.setenv("DEEP500_CACHE", request.getfixturevalue("prices"))
        check_on_a_model(words, capfd)
        return
    if covered(words) or words[2:3] == ["--resume"]:  # of what a page's reader began
        return
    for package in sorted({"ray", "optuna"} & set(words)):
        pytest.importorskip(package, reason=f"{package} is not installed: pip install {package}")
    serve(monkeypatch)
    if "--ranks" in words and words[1] != "simulate":  # two show what four would
        words[words.index("--ranks") + 1] = "2"
    ignored = shutil.ignore_patterns("__pycache__", "studies")
    shutil.copytree(ROOT / "recipes", tmp_path / "recipes", ignore=ignored)
    files_of_the_page(ROOT / "docs" / "race.md")
    dry = not command.startswith(IN_FULL) and not {"--dry-run", "--list-mutable", "--plan", "--list"} & set(words)
    code = run_here([*words, *[DRY.get(words[1], "--dry-run")] * dry])
    part = words[1] == "compare" and "--against" in words  # two optimizers: the page says that they part
    assert code == int(part), capfd.readouterr()


@pytest.mark.parametrize("page, code", blocks("python"), ids=lambda value: value if value.endswith(".md") else "code")
def test_example_runs(page: str, code: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    if code.startswith(NEEDS):
        pytest.importorskip(code.removeprefix(NEEDS).splitlines()[0])
    if "__main__" in code:  # a whole recipe: run as a script
        (tmp_path / "example.py").write_text(code)
        assert run_here(["python", "example.py", "--dry-run"]) == 0
        return
    with contextlib.redirect_stdout(io.StringIO()) as out:
        try:
            exec(compile(code, page, "exec"), {"__name__": "example"})  # our own text
        except InputError as error:
            if "windows missed" in str(error):  # the refusal that the page describes
                pytest.skip(f"the machine is busy: {error}")
            raise
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
    """Every file, every Python block and every command as it stands, from a folder that is not ours."""
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
            assert all(program == "deep500" for program, *_ in words), words
            wanted = [([sys.executable, "-m", "deep500", *arguments], []) for _, *arguments in words]
        for command, expected in wanted:
            got = _run_elsewhere(command, tmp_path)
            assert got.splitlines()[: len(expected)] == expected
            done += 1
    assert done >= 5


def _run_elsewhere(command: list[str], folder: Path) -> str:
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "PYTHONSAFEPATH": "1"}
    done = subprocess.run(
        command, cwd=folder, env=environment, capture_output=True, text=True, check=False, timeout=HANG
    )
    assert done.returncode == 0, f"{command}\n{done.stdout}{done.stderr}"
    return done.stdout


def words_of(section: str) -> dict[str, int]:
    """Words of each page that the index lists under a caption."""
    index = (ROOT / "docs" / "index.md").read_text(encoding="utf-8")
    listed = index.partition(f":caption: {section}\n")[2].partition("```")[0].partition("\n\n")[2].split("\n")
    pages = [line.rpartition("<")[2].strip(">") for line in listed if line]
    assert pages, section
    return {page: len((ROOT / "docs" / f"{page}.md").read_text(encoding="utf-8").split()) for page in pages}


def test_guides_are_short():
    screens = {**words_of("Guides"), **words_of("Tutorials")}
    assert {page: words for page, words in screens.items() if words > 600} == {}, "more belongs to the manual"
    words = sum(sum(words_of(section).values()) for section in ("Begin", "Tutorials", "Guides", "Concepts"))
    assert words <= 12_000, f"{words} words: more belongs to the manual"
    words += sum(words_of("Manual").values())
    assert words <= 47_500, f"{words} words: logs and records of measurements belong to Research"


def test_pages_count_the_schemes():
    number = {17: "seventeen", 18: "eighteen", 19: "nineteen", 20: "twenty", 21: "twenty-one", 22: "twenty-two"}[
        len(by_name())
    ]
    for page in ("README.md", "docs/tutorials/processes.md"):
        assert f"{number} schemes" in (ROOT / page).read_text(encoding="utf-8"), page


def test_the_readme_counts_the_optimizers():
    bases = {"Optimizer", "ThreeStepOptimizer", "UpdateRuleOptimizer", "ScheduleFree"}
    named = {name for name in dir(optimizers) if inspect.isclass(getattr(optimizers, name))} - bases
    assert f", {len(named)} optimizers (" in (ROOT / "README.md").read_text(encoding="utf-8")
