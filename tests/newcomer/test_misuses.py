"""What newcomers type wrongly, and get: one line that tells the cure, and an exit code that says whose fault it is."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from deep500 import cli

pytest.importorskip("torch")
pytestmark = pytest.mark.usefixtures("empty_folder")

RUN = "run digits_lenet "
USAGE, MISSING = 2, 3

MISUSES = [  # words, exit code, what the line must hold
    ("runn", USAGE, "invalid choice: 'runn'"),
    ("rum", USAGE, "did you mean 'run'?"),
    ("run digit_lenet.py", USAGE, "did you mean 'digits_lenet'"),
    (RUN + "optimizer=adam", USAGE, "did you mean 'AdamOptimizer'"),
    (RUN + "batch_size=8 batch_size=16", USAGE, "got the key 'batch_size' more than once"),
    (RUN + "--seed 99999999999999999999", USAGE, "expected at most 9223372036854775807"),
    ("run", USAGE, "required: recipe"),
    ("run nosuch", USAGE, "'digits_lenet'"),
    ("run digits_lent", USAGE, "did you mean 'digits_lenet'"),
    (RUN + "--backend pytorhc", USAGE, "did you mean 'pytorch'?"),
    (RUN + "--backend", USAGE, "--backend: expected one argument"),
    (RUN + "--ranks 0", USAGE, "expected at least 1"),
    (RUN + "--ranks two", USAGE, "'two'"),
    (RUN + "--repeat -1", USAGE, "expected at least 1"),
    (RUN + "--seed x", USAGE, "'x'"),
    (RUN + "--pairs 8", USAGE, "expected --against or --at"),
    (RUN + "--device gpu:7 --strict", MISSING, "expected one that this backend sees"),
    (RUN + "--device tpu", USAGE, "expected 'cpu', 'gpu'"),
    (RUN + "--resume nosuch", USAGE, "nosuch/manifest.json: got no such file"),
    (RUN + "--resume", USAGE, "start without --resume"),
    (RUN + "--precision 2", USAGE, "--repeat auto"),
    (RUN + "batch_size", USAGE, "expected key=value"),
    (RUN + "batch_size=0", USAGE, "at least 1"),
    (RUN + "batch_size=abc", USAGE, "expected int like 32"),
    (RUN + "batchsize=3", USAGE, "did you mean 'batch_size'?"),
    (RUN + "epochs=1", USAGE, "add --open"),
    (RUN + "optimizer=Adm", USAGE, "'AdamOptimizer'"),
    (RUN + "optimizer=AdamOptimizer optimizer_kwargs.momentum=0.3", USAGE, "got hyper-parameter 'momentum'"),
    (RUN + "optimizer_kwargs.lr=x", USAGE, "expected float like 0.05"),
    (RUN + "optimizer_kwargs.learning_rate=1.", USAGE, "'lr'"),
    (RUN + "model=lennet --open", USAGE, "did you mean 'lenet'"),
    (RUN + "dataset=nosuch --open", USAGE, "got data set 'nosuch'"),
    (RUN + "dataset=cifar10 --open --strict", MISSING, "add --download"),
    (RUN + "loss=cross --open", USAGE, "'cross_entropy'"),
    (RUN + "schedule=3", USAGE, "CosineSchedule"),
    (RUN + "events=[3] --open", USAGE, "expected a list of listeners"),
    (RUN + "preprocessing=[3] --open", USAGE, "expected a list of functions"),
    (RUN + "accumulate=0 --open", USAGE, "at least 1"),
    (RUN + "precision=f8 --open", USAGE, "'bf16' or 'f16'"),
    (RUN + "checkpointing=7. --open", USAGE, "checkpointing: got"),
    (RUN + "--dry-run --out /dev/null/x", USAGE, "choose another place with --out"),
    (RUN + "--epochs 3", USAGE, "a key of the recipe is a word: epochs=3"),
    (RUN + "--batch-size=8", USAGE, "batch_size=8"),
    (RUN + "--lr 0.1", USAGE, "optimizer_kwargs.lr=0.05"),
    (RUN + "lr=0.1", USAGE, "write optimizer_kwargs.lr=0.1"),
    (RUN + "--repeat 1.5", USAGE, "invalid integer (or auto) value: '1.5'"),
    (RUN + "--data nosuch", USAGE, "expected a folder with data sets"),
    ("compare digits_lenet --backends pytorch,reference", USAGE, "did you mean --backend?"),
    ("report /dev/null", USAGE, "a file in the place of its folder"),
    ("list nosuch", USAGE, "known: 'recipes'"),
    ("compare", USAGE, "required: subject"),
    ("compare nosuch other", USAGE, "expected two results folders"),
    ("compare digits_lenet", USAGE, "add --backend"),
    ("compare digits_lenet --backend pytorch", USAGE, "at least two different"),
    ("compare digits_lenet --backend pytorch,nosuch", USAGE, "got backend 'nosuch'"),
    ("compare digits_lenet --backend pytorch,reference --rounds -1", USAGE, "at least 0"),
    ("compare nosuch.onnx --backend pytorch,reference", USAGE, "check the path"),
    ("report", USAGE, "required: folder"),
    ("report nosuch", USAGE, "name a results folder"),
    ("verify nosuch", USAGE, "expected the folder of a finished run"),
    ("check nosuch", USAGE, "name a results folder"),
    ("package nosuch", USAGE, "name a results folder"),
    ("review nosuch", USAGE, "expected a package"),
    ("query nosuch", USAGE, "run a recipe first"),
    ("export nosuch --to csv", USAGE, "name a results folder"),
    ("export nosuch", USAGE, "required: --to"),
    ("optimize nosuch.onnx", USAGE, "required: -o"),
    ("optimize nosuch.onnx -o out.onnx", USAGE, "check the path"),
    ("gradient nosuch.onnx -o out.onnx", USAGE, "check the path"),
    ("rules show nosuch", USAGE, "deep500 tools rules list"),
    ("simulate nosuch --network nosuch", USAGE, "nosuch"),
    ("setup nosuch", USAGE, "known: 'enzyme'"),
    ("env --what", USAGE, "--what"),
    ("average nosuch -o mean", USAGE, "nosuch"),
]


@pytest.fixture
def empty_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("DATA_ROOT", raising=False)
    return tmp_path


@pytest.mark.parametrize(("words", "code", "cure"), MISUSES, ids=[row[0] for row in MISUSES])
def test_one_line_and_the_right_code(words: str, code: int, cure: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(words.split()) == code
    lines = capsys.readouterr().err.strip().splitlines()
    said = [line for line in lines if line.startswith("deep500: error: ")]
    assert len(said) == 1 and cure in said[0], lines
    assert not re.search(r"Traceback|\[Errno", "\n".join(lines))


RECIPE = """
import deep500 as d5
import deep500.frameworks.reference as d5fw
{before}
FIXED = {{"model": "mlp", "model_kwargs": {{"hidden": (4,)}}, "dataset": "digits", "epochs": 1}}
MUTABLE = {{
    "batch_size": 512, "executor": d5fw.from_model, "optimizer": d5fw.GradientDescent,
    "optimizer_kwargs": {{"lr": 0.1}}, "seed": 3, "events": [{event}],
}}
METRICS = [(d5.TestAccuracy(), 1.0)]
"""
LISTENER = """
class Mine(d5.Event):
    def after_batch(self, run):
        run.nosuch
"""


@pytest.mark.parametrize(
    ("before", "event", "line", "error"),
    [
        ("x = [][3]", "", "x = [][3]", "IndexError: list index out of range"),
        ("x = ((", "", "x = ((", "SyntaxError: "),
        (LISTENER, "Mine()", "run.nosuch", "AttributeError: "),
    ],
    ids=["module", "syntax", "listener"],
)
def test_an_exception_of_the_users_shows_the_users_lines(
    empty_folder: Path, capsys: pytest.CaptureFixture[str], before: str, event: str, line: str, error: str
) -> None:
    Path("mine.py").write_text(RECIPE.format(before=before, event=event))
    assert cli.main(["run", "mine.py", "--dry-run", "--quiet"]) == 1
    told = capsys.readouterr().err
    assert line in told and error in told and "mine.py" in told and "--debug shows all" in told
    assert told.count('File "') == 1, "frames of ours"
    with pytest.raises((IndexError, SyntaxError, AttributeError)):  # whole, to the interpreter, which prints it
        cli.main(["run", "mine.py", "--dry-run", "--quiet", "--debug"])


def test_a_defect_of_ours_keeps_its_traceback(empty_folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    Path("mine.py").write_text(RECIPE.format(before="", event=""))
    monkeypatch.setattr("deep500.recipe.session.full_environment", None)
    with pytest.raises(TypeError):
        cli.main(["run", "mine.py", "--dry-run", "--quiet"])


def test_another_optimizer_leaves_out_what_it_does_not_take(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main([*RUN.split(), "optimizer=AdamOptimizer", "--dry-run", "--quiet"]) == 0
    assert "momentum of the recipe's optimizer_kwargs left out" in capsys.readouterr().err
