"""A backend from outside the project is a backend: named by its file, by its module, or installed by somebody else.

It is the one that ``deep500 new backend`` writes, outside the tree; what it computes is compared with the reference.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from deep500 import cli, registry
from deep500.compare.frameworks import compare_frameworks
from deep500.errors import MissingBackend, RecipeError, UnknownBackend
from deep500.networks import create
from deep500.recipe.loader import load_recipe
from deep500.recipe.options import parse_options
from deep500.recipe.plan import RunPlan
from deep500.recipe.skeletons import skeleton
from deep500.recipe.steps import make_plan
from deep500.registry import backend_names, backend_of, load_backend
from deep500.transformations.substitutions.cost.deployments import deployment
from tests.conftest import HANG
from tests.tolerances import assert_close

pytestmark = pytest.mark.slow

JOB = """\
import {module} as d5fw
import deep500 as d5
FIXED = {{"model": "mlp", "dataset": "digits", "epochs": 1, "model_kwargs": {{"hidden": (8,)}}}}
MUTABLE = {{"batch_size": 64, "executor": d5fw.from_model, "optimizer": {optimizer}, "optimizer_kwargs": {{"lr": 0.1}}}}
METRICS = [(d5.TestAccuracy(), 1.0)]
"""
OWN_OPTIMIZER = """

from deep500.training.optimizers import GradientDescent  # noqa: E402


class Signs(GradientDescent):
    def update_rule(self, grad, old_param, name):
        return old_param - self.lr * np.sign(grad)
"""
WORDS = ["mine.py", "mine", "installed"]
"""What a user types: a file, a module that Python finds, the name of an entry point."""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Outside the tree: a backend in a file, and a distribution that brings one, of which ``import`` knows."""
    site = tmp_path / "site"
    about = site / "fast_backend-1.0.dist-info"
    about.mkdir(parents=True)
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: fast-backend\nVersion: 1.0\n")
    (about / "entry_points.txt").write_text("[deep500.frameworks]\ninstalled = fast_backend.plugin\n")
    (site / "fast_backend").mkdir()
    (site / "fast_backend" / "__init__.py").write_text("")
    (site / "fast_backend" / "core.py").write_text(skeleton("backend", "installed")["installed.py"] + OWN_OPTIMIZER)
    (site / "fast_backend" / "plugin.py").write_text("from fast_backend.core import Signs, from_model\n")
    work = tmp_path / "work"
    work.mkdir()
    (work / "mine.py").write_text(skeleton("backend", "mine")["mine.py"] + OWN_OPTIMIZER)
    (work / "job.py").write_text(JOB.format(module="deep500.frameworks.reference", optimizer="d5fw.GradientDescent"))
    monkeypatch.chdir(work)
    for place in (site, work):
        monkeypatch.syspath_prepend(str(place))
    monkeypatch.setenv("PYTHONPATH", f"{site}:{work}", prepend=":")
    monkeypatch.setattr(registry, "_files", {})
    for name in ("mine", "fast_backend", "fast_backend.core", "fast_backend.plugin"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    yield work
    for name in [name for name in sys.modules if name == "mine" or name.startswith(("fast_backend", "deep500_own_"))]:
        del sys.modules[name]


def plan_of(path: Path, *words: str) -> RunPlan:
    options = parse_options(words)
    recipe = load_recipe(path, options.framework)
    return make_plan(recipe.FIXED, recipe.MUTABLE, recipe.METRICS, options, path.parent)


def run(*words: str) -> dict[str, Any]:
    """The manifest and the epochs of a run by the command line."""
    before = set(Path("results").glob("*/*"))
    assert cli.main(["run", *words, "--quiet"]) == 0
    (made,) = {path for path in Path("results").glob("*/*") if (path / "manifest.json").is_file()} - before
    epochs = [json.loads(line) for line in (made / "metrics.jsonl").read_text().splitlines()]
    return {**json.loads((made / "manifest.json").read_text()), "epochs": epochs, "path": made}


@pytest.mark.parametrize("word", WORDS)
def test_a_recipe_trains_on_it_as_on_the_reference(word: str, folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    want, got = run("job.py"), run("job.py", "--backend", word)
    assert got["backend"] == word.removesuffix(".py") != want["backend"]
    assert_close(got["epochs"][0]["train_loss"], want["epochs"][0]["train_loss"], "training", dtype="float32")
    (own,) = got["resolved"]["own"]
    assert own["key"] == "executor" and own["name"].endswith(":from_model") and len(own["sha256"]) == 64


@pytest.mark.parametrize("word", WORDS)
def test_bits_follow_it_step_by_step(word: str, folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    made = run("job.py", "--dry-run")["path"]
    assert cli.main(["bits", "--run", str(made), "--backend", f"reference,{word}", "--steps", "1"]) in (0, 1)
    assert "step" in capsys.readouterr().out


@pytest.mark.parametrize("word", WORDS)
def test_substitutions_are_priced_for_it(word: str, folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    create("mlp", shape=(4,), classes=3).to_onnx("mlp.onnx")
    assert deployment(word).executor(create("mlp", shape=(4,))).backend == word.removesuffix(".py")
    assert cli.main(["optimize", "mlp.onnx", "-o", "out.onnx", "--backend", word, "--budget", "2"]) == 0
    assert f"operators for {word}" in capsys.readouterr().out


@pytest.mark.parametrize("word", ["mine.py", "installed"])
def test_it_is_compared_in_a_process_of_its_own(word: str, folder: Path) -> None:
    result = compare_frameworks("job.py", ["reference", word], dry_run=True, threads=1)
    assert result.gate and {"reference", word} <= set(result.timings["training step"].samples)


@pytest.mark.parametrize("word", ["mine.py", "installed"])
def test_two_ranks_train_on_it(word: str, folder: Path) -> None:
    words = [sys.executable, "-m", "deep500", "run", "job.py", "--backend", word, "--ranks", "2", "--dry-run"]
    done = subprocess.run(words, capture_output=True, text=True, check=False, timeout=HANG)
    assert done.returncode == 0, done.stderr
    (manifest,) = Path("results/job").glob("*/manifest.json")
    facts = json.loads(manifest.read_text())
    assert (facts["backend"], facts["ranks"]) == (word.removesuffix(".py"), 2)


def test_onnx_own_suite_judges_it_in_one_command(folder: Path) -> None:
    words = [
        sys.executable,
        "-m",
        "deep500",
        "conformance",
        "mine.py",
        "--only",
        "test_(relu|matmul_2d|dropout_default)$",
    ]
    done = subprocess.run([*words, "--json"], capture_output=True, text=True, check=False, timeout=HANG)
    assert done.returncode == 0, done.stdout + done.stderr
    assert json.loads(done.stdout)["counts"] == {"passed": 3}
    (folder / "mine.py").write_text((folder / "mine.py").read_text().replace("np.maximum(x, 0)", "np.maximum(x, 1)"))
    done = subprocess.run(words, capture_output=True, text=True, check=False, timeout=HANG)
    assert done.returncode == 1 and "wrong test_relu: " in done.stdout and "2 of 3 cases passed" in done.stdout


@pytest.mark.parametrize(("module", "name"), [("mine", "mine"), ("fast_backend.plugin", "installed")])
def test_a_recipe_imports_it_as_it_does_a_built_in_one(module: str, name: str, folder: Path) -> None:
    (folder / "job.py").write_text(JOB.format(module=module, optimizer="d5fw.Signs"))
    plan = plan_of(folder / "job.py")
    assert backend_of(plan.values["executor"]) == name == backend_of(plan.values["optimizer"])
    with pytest.raises(RecipeError, match=f"'Signs' of backend '{name}'; expected a name in .*reference"):
        plan_of(folder / "job.py", "--backend", "reference")
    plan = plan_of(folder / "job.py", "optimizer=GradientDescent", "--backend", "reference")
    assert backend_of(plan.values["executor"]) == "reference"
    assert plan_of(folder / "job.py", "optimizer=Signs").values["optimizer"].__name__ == "Signs"


@pytest.mark.backend("pytorch")
def test_an_optimizer_that_it_has_not_is_that_of_the_core(folder: Path) -> None:
    (folder / "job.py").write_text(JOB.format(module="deep500.frameworks.pytorch", optimizer="d5fw.AdamOptimizer"))
    optimizer = plan_of(folder / "job.py", "--backend", "mine.py").values["optimizer"]
    assert optimizer.__module__.startswith("deep500.training.optimizers") and optimizer.__name__ == "AdamOptimizer"


def test_a_recipe_without_code_names_it(folder: Path) -> None:
    content = {
        "backend": "mine.py",
        "fixed": {"model": "mlp", "dataset": "digits", "epochs": 1},
        "mutable": {"batch_size": 64, "optimizer": "Signs"},
        "metrics": [],
    }
    (folder / "other").mkdir()
    (folder / "other" / "mine.py").write_text((folder / "mine.py").read_text())
    (folder / "other" / "job.json").write_text(json.dumps(content))
    values = plan_of(folder / "other" / "job.json").values
    assert backend_of(values["executor"]) == "mine" and values["optimizer"].__name__ == "Signs"
    assert Path(str(sys.modules[values["executor"].__module__].__file__)).parent == folder / "other"


def test_prices_of_no_backend_are_not_taken_for_anothers(folder: Path) -> None:
    """An executor of the recipe's own belongs to no backend: formerly the reference's prices decided, silently."""
    text = JOB.format(module="deep500.frameworks.reference", optimizer="d5fw.GradientDescent")
    (folder / "job.py").write_text(f"{text}MUTABLE['executor'] = lambda network: d5fw.from_model(network)\n")
    recipe = load_recipe(folder / "job.py")
    changed = {**recipe.MUTABLE, "network_transformations": ["substitutions"]}
    from deep500.recipe.transformations import transformed

    values = make_plan(recipe.FIXED, changed, recipe.METRICS, parse_options([]), folder).values
    with pytest.raises(RecipeError, match=r"'substitutions' with executor recipe:<lambda>; expected one of a backend"):
        transformed(create("mlp", shape=(4,)), values)


def test_what_is_no_backend_is_refused(folder: Path) -> None:
    (folder / "empty.py").write_text("")
    (folder / "pytorch.py").write_text("def from_model(network): ...\n")
    (folder / "sub").mkdir()
    (folder / "sub" / "mine.py").write_text("def from_model(network): ...\n")
    assert backend_names()[-1] == "installed"
    load_backend("mine.py")
    for word, said in {
        "empty.py": "'empty.py', whose module has no from_model; expected a function from_model",
        "json": "'json', whose module has no from_model",
        "mime.py": "where nothing is; expected a Python file: did you mean 'mine.py'",
        "pytorch.py": "whose name 'pytorch' another one has; expected a name of its own: rename it",
        "sub/mine.py": "whose name 'mine' another one has",
        "instaled": "did you mean 'installed'",
        "no.such.module": "got backend 'no.such.module'; expected one of the known ones",
    }.items():
        with pytest.raises(UnknownBackend, match=said):
            load_backend(word)
    (folder / "needy.py").write_text("import jax.no_such_part_of_it\n")
    with pytest.raises((MissingBackend, ModuleNotFoundError)):
        load_backend("needy.py")
