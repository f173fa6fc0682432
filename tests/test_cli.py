"""The command line: exit codes, one-line errors, lists."""

from __future__ import annotations

import ast
import io
import json
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from deep500 import cli, registry
from deep500.guard import HIDDEN, RED, guarded, paint
from deep500.recipe import loader
from tests.conftest import HANG

HEAD = """\
'''A quick one.'''
from tests.recipes.common import quick
import deep500 as d5
FIXED, MUTABLE, METRICS = quick("reference", epochs=1{more})
"""


@pytest.fixture
def recipe(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)

    def write(more="", name="job.py"):
        path = tmp_path / name
        path.write_text(HEAD.format(more=more))
        return str(path)

    return write


def error_line(capsys):
    err = capsys.readouterr().err
    lines = [line for line in err.splitlines() if line.startswith("deep500: error: ")]
    assert len(lines) == 1 and "Traceback" not in err, err
    return lines[0]


CODES = [  # more of the recipe, words, exit code, what the error says
    ("", [], 0, None),
    (", metrics=[(d5.TestAccuracy(), 101.0)]", [], 1, None),
    (", schedule=d5.schedules.TableSchedule({0: 1e30})", [], 1, "got loss"),
    ("", ["batchsize=3"], 2, "'batch_size'"),
    ("", ["epochs=3"], 2, "--open"),
    ("", ["--nonsense"], 2, "unrecognized"),
    ("", ["--out", "/dev/null/x"], 2, "while writing /dev/null/x"),
    ("", ["--resume"], 2, "no unfinished run"),
    (", dataset='mnist', augmentation=None", ["--strict", "--data", "."], 3, "mnist"),
    ("", ["--data", "nowhere"], 2, "expected a folder with data sets"),
    ("", ["--backend", "nonsense"], 2, "got backend 'nonsense'"),
    ("", ["--device", "gpu", "--strict"], 3, "--strict"),
]


@pytest.mark.parametrize(("more", "words", "code", "message"), CODES, ids=[" ".join(c[1]) + f"-{c[2]}" for c in CODES])
def test_exit_codes(recipe, capsys, more, words, code, message):
    assert cli.main(["run", recipe(more), *words, "--quiet"]) == code
    if message is not None:
        line = error_line(capsys)
        assert message in line and "got" in line


@pytest.mark.parametrize(
    ("flags", "words", "text"),
    [
        (["-OO"], ["list", "recipes"], "got Python -OO"),
        ([], ["list", "recipes", ">&-"], "got a closed standard output"),
        ([], ["list", "models", ">/dev/full"], "No space left on device"),
        ([], ["run", "nothing.py", "2>&-"], ""),
        ([], ["run", "nothing.py", "2>/dev/full"], ""),
        ([], ["verify", "'\udcff'"], "bytes that are no UTF-8"),
    ],
)
def test_a_process_that_cannot_work_says_why(tmp_path, flags, words, text):
    command = " ".join([sys.executable, *flags, "-m", "deep500", *words])
    done = subprocess.run(os.fsencode(command), shell=True, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 2 and text in done.stderr and "Traceback" not in done.stderr


def test_an_interrupt_while_modules_are_loaded_is_quiet():
    waits = "import sys, time; from importlib import abc\n"
    waits += "class Slow(abc.MetaPathFinder):\n    def find_spec(self, name, *_):\n"
    waits += "        if name == 'deep500.cli': print('now', flush=True); time.sleep(60)\n"
    waits += "sys.meta_path.insert(0, Slow())\nfrom deep500.__main__ import main\nmain()"
    with subprocess.Popen([sys.executable, "-c", waits], stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout.readline() == b"now\n"
        process.send_signal(signal.SIGINT)
        assert process.wait(HANG) == 130 and process.stderr.read() == b""


PLUG = b"""{"backend": "reference", "fixed": {"model": "mlp", "dataset": "digits", "epochs": 1},
"mutable": {"batch_size": 8, "optimizer": "GradientDescent"}, "metrics": [{"metric": "argparse:Action"}]}"""
ODD = [  # name, content, what the error says; a function makes the file itself
    ("leaves.py", b"import sys\nsys.exit(0)\n", "got sys.exit(0) while it was read"),
    ("closes.py", b"import sys\nsys.stdout = None\n", "got a standard output that it closes"),
    ("nul.py", b"x = 1\0\n", "got NUL bytes"),
    ("utf16.py", "FIXED = {}\n".encode("utf-16"), "got NUL bytes"),
    ("empty.py", b"", "got no FIXED"),
    ("folder.py", Path.mkdir, "which is a folder"),
    ("pipe.py", os.mkfifo, "which is no regular file"),
    ("link.py", lambda path: path.symlink_to("nowhere"), "which is a link to nothing"),
    ("twice.json", b'{"fixed": {"epochs": 1, "epochs": 2}}', "the key 'epochs' twice"),
    ("twice.yaml", b"fixed:\n  epochs: 1\n  epochs: 2\n", "the key 'epochs' twice"),
    ("twice.toml", b"[fixed]\nepochs = 1\nepochs = 2\n", "Cannot overwrite a value"),
    ("plug.json", PLUG, "a class made of nothing"),
    ("bytes.toml", b"\xff\xfe", "expected TOML"),
]


@pytest.mark.parametrize(("name", "content", "text"), ODD, ids=[odd[0] for odd in ODD])
def test_an_odd_recipe_is_one_line(tmp_path, capsys, name, content, text):
    path = tmp_path / name
    path.write_bytes(content) if isinstance(content, bytes) else content(path)
    assert cli.main(["run", str(path)]) == 2
    assert text in error_line(capsys)


WORDS = [  # words after a recipe, what the error says
    (["seed=18446744073709551616"], "in 64 bits"),
    (["--seed", "18446744073709551616"], "expected at most"),
    (["--ranks", "1000000000"], "expected at most 1024"),
    (["batch_size=1", "batch_size=2"], "more than once"),
    (["optimizer_kwargs.lr=1", "optimizer_kwargs={}"], "the part or the whole"),
    (["optimizer=adamm"], "did you mean 'AdamOptimizer'"),
    (["model_kwargs.hidden=[0]"], "got hidden=(0,)"),
]


@pytest.mark.parametrize(("words", "text"), WORDS, ids=[" ".join(words) for words, _ in WORDS])
def test_odd_words_are_one_line(recipe, capsys, words, text):
    assert cli.main(["run", recipe(", model_kwargs={'hidden': (4,)}"), *words, "--quiet", "--open"]) == 2
    assert text in error_line(capsys)


def test_a_wrong_name_of_ours_is_told_with_the_lines_of_the_recipe_alone(tmp_path, capsys):
    path = tmp_path / "job.py"
    path.write_text("import deep500 as d5\nMETRICS = [(d5.TestAcuracy(), 97.0)]\n")
    assert cli.main(["run", str(path)]) == 1
    told = capsys.readouterr().err
    assert "TestAcuracy" in told and told.count('File "') == 1


def test_the_nearest_file_is_offered(recipe, capsys):
    path = recipe(name="mlp_digits.py")
    assert cli.main(["run", path.replace("digits", "digit")]) == 2
    assert "did you mean 'mlp_digits.py'" in error_line(capsys)


def test_unknown_recipe_and_command(capsys):
    assert cli.main(["run", "digits_lent"]) == 2
    assert "'digits_lenet'" in error_line(capsys)
    assert cli.main(["rum"]) == 2
    assert "rum" in error_line(capsys)
    assert cli.main(["check-operator", "x.cpp"]) == 2
    assert "did you mean 'tools operator'" in error_line(capsys)
    assert cli.main([]) == 2


def test_a_file_that_is_no_recipe(tmp_path, capsys):
    path = tmp_path / "x.py"
    path.write_text("FIXED = {}\nMUTABLE = {}\n")
    assert cli.main(["run", str(path)]) == 2
    assert "got no METRICS" in error_line(capsys)
    path.write_text("import deep500.frameworks.nonsense\n")
    assert cli.main(["run", str(path)]) == 1
    told = capsys.readouterr().err
    assert "x.py" in told and "ModuleNotFoundError" in told and told.count('File "') == 1


def test_a_backend_that_is_not_installed_says_how_to_install_it(recipe, monkeypatch, capsys, tmp_path):
    path = tmp_path / "x.py"
    path.write_text("import no_such_framework\n")
    monkeypatch.setitem(registry.BACKENDS, "absent", ("no_such_framework", "absent"))
    assert cli.main(["run", str(path)]) == 3
    assert "pip install 'deep500[absent]'" in error_line(capsys)
    assert cli.main(["list"]) == 0
    assert "pip install 'deep500[absent]'" in capsys.readouterr().out


SCRIPT = """\
import deep500.frameworks.reference as d5fw
from deep500.recipe import run_recipe
FIXED = {"model": "mlp", "dataset": "digits", "epochs": 1}
MUTABLE = {"batch_size": 64, "executor": d5fw.from_model, "optimizer": d5fw.GradientDescent}
METRICS = []
if __name__ == "__main__":
    run_recipe(FIXED, MUTABLE, METRICS)
"""


def in_a_deleted_folder(folder, *words):
    """Run Python in a folder that is deleted before it starts."""
    gone = folder / "gone"
    gone.mkdir()
    root = str(Path(__file__).resolve().parents[1])
    return subprocess.run(
        ["sh", "-c", 'rmdir "$PWD" && exec "$@"', "sh", sys.executable, *map(str, words)],
        cwd=gone,
        env={**os.environ, "PYTHONPATH": root},
        capture_output=True,
        text=True,
        check=False,
        timeout=HANG,
    )


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere a folder in use cannot be deleted, or keeps its name")
def test_a_deleted_working_folder_is_one_error(tmp_path):
    path = tmp_path / "job.py"
    path.write_text(SCRIPT)
    for words in ([path], ["-m", "deep500", "run", path], ["-m", "deep500", "list"]):
        done = in_a_deleted_folder(tmp_path, *words)
        (line,) = done.stderr.splitlines()
        assert line.startswith("deep500: error: got a working folder that was deleted; expected") and "cd" in line
        assert done.returncode == 2 and not done.stdout


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere a folder in use cannot be deleted, or keeps its name")
@pytest.mark.backend("pytorch")
def test_a_framework_is_not_imported_in_a_deleted_folder(tmp_path):
    """oneMKL, which PyTorch loads, would end the process with words about a file that is there."""
    done = in_a_deleted_folder(tmp_path, "-c", "import deep500.frameworks.pytorch")
    assert done.stderr.splitlines()[-1].startswith("deep500.errors.InputError: got a working folder that was deleted")


def test_interrupt(recipe, monkeypatch, capsys):
    path = recipe(", events=[Stop]")
    text = (
        "import deep500\nclass Stop(deep500.Event):\n    def after_batch(self, run):\n        raise KeyboardInterrupt\n"
    )
    Path(path).write_text(text + Path(path).read_text())
    assert cli.main(["run", path]) == 130
    err = capsys.readouterr().err.strip()
    assert err.startswith("deep500: interrupted; go on with: --resume ") and len(err.splitlines()) == 1


def test_interrupt_while_the_ranks_run(capsys):
    """The process that started them has no results folder to name."""

    def interrupted():
        raise KeyboardInterrupt

    with pytest.raises(SystemExit) as left:
        guarded(interrupted)
    assert left.value.code == 130 and capsys.readouterr().err == "\ndeep500: interrupted\n"


@pytest.mark.parametrize("words", [[], ["-m", "deep500", "run"]], ids=["script", "command"])
def test_a_recipe_beside_another_package_of_that_name(tmp_path, words):
    """The folder in which a recipe is started may have a package ``recipes`` of its own."""
    (tmp_path / "recipes").mkdir()
    (tmp_path / "recipes" / "__init__.py").write_text("raise SystemExit('imported')\n")
    (tmp_path / "job.py").write_text(SCRIPT)
    done = subprocess.run(
        [sys.executable, *words, "job.py", "--dry-run", "--quiet"],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(Path(__file__).resolve().parents[1])},
        capture_output=True,
        text=True,
        check=False,
        timeout=HANG,
    )
    assert done.returncode == 0 and "verdict: UNJUDGED" in done.stdout, done.stderr


STUDIES = loader.list_studies()


@pytest.mark.parametrize("study", STUDIES, ids=[study.name for study in STUDIES])
def test_a_study_is_one_program_with_a_sentence_about_it(study):
    (program,) = study.path.rglob("__main__.py")
    functions = {node.name: node for node in ast.parse(program.read_text()).body if isinstance(node, ast.FunctionDef)}
    assert [argument.arg for argument in functions["main"].args.args] == ["argv"]
    assert study.summary.endswith(".") and len(study.summary) <= 120


def test_the_studies_are_listed(capsys):
    assert cli.main(["list"]) == 0
    listed = capsys.readouterr().out
    assert len(STUDIES) >= 5 and all(f"  {study.name} " in listed and study.summary in listed for study in STUDIES)
    done = subprocess.run([sys.executable, "-m", "recipes.studies"], capture_output=True, text=True, check=True)
    assert [line.split()[0] for line in done.stdout.splitlines()] == [study.name for study in STUDIES]


def test_list_names_everything(capsys):
    assert cli.main(["list"]) == 0
    out = capsys.readouterr().out
    for name in (
        "digits_lenet",
        "cifar10_resnet44",
        "digits32_resnet20",
        "transformer",
        "cifar10",
        "pytorch",
        "reference",
    ):
        assert f"  {name} " in out or f"  {name}\n" in out


def test_info_is_honest(capsys, monkeypatch, tmp_path):
    monkeypatch.setenv("DATA_ROOT", str(tmp_path))
    assert cli.main(["tools", "info"]) == 0
    out = capsys.readouterr().out
    for word in ("numpy", sys.version.split()[0], "backends:", "devices:", "built in", "results"):
        assert word in out


def test_help_and_version(capsys):
    for words in (["--help"], ["run", "--help"], ["--version"]):
        assert cli.main(words) == 0
    out = capsys.readouterr().out
    known = "backend repeat device seed dry-run out resume strict open download data quiet json list-mutable"
    for option in known.split():
        assert f"--{option}" in out


def test_recipes_are_listed_without_being_imported(tmp_path, monkeypatch):
    (tmp_path / "recipes").mkdir()
    (tmp_path / "recipes" / "mine.py").write_text("'''Mine.'''\nraise SystemExit(9)\nFIXED = MUTABLE = METRICS = 0\n")
    (tmp_path / "recipes" / "broken.py").write_text("FIXED = (\n")
    monkeypatch.chdir(tmp_path)
    listed = {recipe.name: recipe.summary for recipe in loader.list_recipes()}
    assert listed["mine"] == "Mine." and "broken" not in listed and "recipe" not in listed


STEERING = "\x1b[2J\x1b]0;owned\x07\u202e\x9b"
"""Clears a terminal, sets its title, rings its bell, writes backwards."""


@pytest.fixture
def hostile(recipe, capsys):
    """A run's folder with texts and files of somebody who would like to steer the reader's terminal."""
    assert cli.main(["run", recipe(), "--quiet", "--out", "results"]) == 0
    (made,) = (path.parent for path in Path("results").rglob("manifest.json"))
    manifest = json.loads((made / "manifest.json").read_text())

    def steered(value):
        if isinstance(value, dict):
            return {name: steered(part) for name, part in value.items()}
        if isinstance(value, list):
            return [steered(part) for part in value]
        return value + STEERING if isinstance(value, str) else value

    for name in ("partly", "wholly"):
        folder = shutil.copytree(made, Path("hostile") / f"{name}{STEERING}")
        changed = steered(manifest) if name == "wholly" else {**manifest, "machine": STEERING, "name": STEERING}
        (folder / "manifest.json").write_text(json.dumps(changed))
        (folder / f"more{STEERING}.json").write_text("{}")
    capsys.readouterr()
    return sorted(str(path) for path in Path("hostile").iterdir())


READERS = ["verify", "check", "compare", "report", "package", "export --to csv", "seal", "bits", "average"]


@pytest.mark.parametrize("words", READERS)
def test_what_a_folder_holds_does_not_steer_a_terminal(words, hostile, capsys):
    for folders in [hostile] if words in ("compare", "bits") else [[folder] for folder in hostile]:
        command, *more = words.split()
        cli.main([command, *folders, *more])
        out, err = capsys.readouterr()
        assert out + err and not HIDDEN.search(out + err)


def test_a_query_shows_one_row_a_line(hostile, capsys):
    sql = f"select 'a' || char(10) || '{STEERING}' || char(9) || 'x' as cell"
    cli.main(["query", sql, "--out", "results"])
    header, row = capsys.readouterr().out.splitlines()
    assert header == "cell" and row.count("\\n") == row.count("\\t") == 1 and not HIDDEN.search(row)


def test_a_terminal_that_lacks_a_character_ends_no_command(recipe):
    path = recipe(name="r\u00e9seau_\u2713.py")
    words = [sys.executable, "-c", f"import sys; from deep500.cli import main; sys.exit(main(['run', {path!r}]))"]
    variables = {**os.environ, "PYTHONIOENCODING": "ascii", "PYTHONUTF8": "0", "PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run(words, env=variables, capture_output=True, timeout=HANG, check=False)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize(
    ("words", "warning"),
    [
        (["env", "--check"], "deep500 env is deep500 tools env now"),
        (["query", "SELECT 1", "--results=."], "--results is --out now"),
        (["tools", "env", "--check"], ""),
    ],
)
def test_old_names_warn(capsys, tmp_path, monkeypatch, words, warning):
    monkeypatch.chdir(tmp_path)
    assert cli.main(words) in (0, 1, 2)
    err = capsys.readouterr().err
    assert (warning in err) if warning else (err == "")


def test_commands_are_few_and_their_help_is_one_screen(capsys):
    assert len(cli.FIRST) <= 16
    assert cli.main(["--help"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) <= 44 and max(map(len, lines)) <= 80
    assert all(any(line.split()[:1] == [name] for line in lines) for name in cli.COMMANDS)


def test_colours_are_for_terminals(monkeypatch):
    class Terminal(io.StringIO):
        def isatty(self):
            return True

    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.setenv("TERM", "xterm")
    assert paint("x", RED, io.StringIO()) == "x" and paint("x", RED, Terminal()) == "\x1b[31mx\x1b[0m"
    monkeypatch.setenv("NO_COLOR", "1")
    assert paint("x", RED, Terminal()) == "x"


def test_every_data_set_states_its_licence(capsys):
    assert cli.main(["list", "datasets", "--json"]) == 0
    listed = json.loads(capsys.readouterr().out)["data sets"]
    assert len(listed) >= 18 and {name for name, about in listed.items() if "licence: not stated" in about} <= {
        "stripes"
    }
    assert "CC BY 4.0" in listed["digits"] and all("; licence: " in about for about in listed.values())
