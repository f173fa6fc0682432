"""Plans of recomputation and pieces together: within the budget, the same results, never worse than one means alone."""

from __future__ import annotations

import json
import subprocess
import sys

import numpy as np
import pytest

import deep500.frameworks.reference as d5ref
from deep500 import cli
from deep500.compare.jobs import Training
from deep500.errors import BudgetError, RecipeError
from deep500.networks import add_loss, create
from deep500.registry import load_backend
from deep500.transformations import memory_planning
from deep500.transformations.memory_plan import load_memory_plan
from deep500.transformations.memory_planning import plan_memory
from deep500.transformations.microbatching import microbatch
from deep500.transformations.recomputation import plan_checkpointing
from deep500.transformations.recomputation.pieces import plan_pieces
from deep500.transformations.substitutions.equivalence import in_float64
from tests.transformations.test_microbatching import BACKENDS, batch_of, step

pytestmark = pytest.mark.slow

BATCH = 16
NETWORKS = {
    "causal_transformer": {"width": 32, "heads": 2, "layers": 2, "shape": (32,)},
    "lenet": {},
    "mlp": {},
    "resnet": {"depth": 8},
    "unet": {"levels": 2},
}


def network_of(name):
    return add_loss(create(name, **NETWORKS[name]))


@pytest.mark.parametrize("backend", [pytest.param(b, marks=pytest.mark.backend(b)) for b in BACKENDS])
@pytest.mark.parametrize(("name", "budget", "at_once"), [("lenet", 0.8, True), ("causal_transformer", 0.35, False)])
def test_results_are_those_without_a_plan(name, budget, at_once, backend, monkeypatch):
    """The whole step in pieces, or, as if it could not be cut, parts in pieces and regions that run again."""
    if not at_once:
        monkeypatch.setattr(memory_planning._Planning, "_at_once", lambda *_: ())
    network = in_float64(network_of(name))
    inputs = batch_of(network, BATCH)
    plan = plan_memory(network, budget, batch=BATCH)
    assert plan.at_once > 1 if at_once else plan.parts and plan.checkpointing.regions
    executor = plan.executor(load_backend(backend).from_model(network))
    outputs = executor.inference_and_backprop(inputs, "loss")
    whole = step(network, inputs, backend)
    names = [f"{name}.grad" for name in network.trainable()]
    under_plan = {**outputs, **dict(zip(names, executor.network.fetch_tensors(names), strict=True))}
    for key, value in whole.items():
        got = np.asarray(executor.network.to_numpy(under_plan[key]))
        np.testing.assert_allclose(got, value, rtol=1e-9, atol=1e-12, err_msg=key)


@pytest.mark.parametrize("share", [0.9, 0.6, 0.4])
@pytest.mark.parametrize("name", NETWORKS)
def test_no_plan_of_one_means_alone_is_better(name, share):
    """Where a plan of one means fits, a plan of both does; that it is as quick, test_joint holds for the model."""
    network = network_of(name)
    alone = []
    try:
        alone.append(plan_checkpointing(network, share, batch=BATCH))
    except BudgetError:
        pass
    if name in ("causal_transformer", "lenet", "mlp"):
        pieces = [plan_pieces(microbatch(network, count), BATCH) for count in (2, 4, 8, 16)]
        alone += [
            plan for plan in pieces if plan.predicted_peak <= int(share * plan_memory(network, 1.0, batch=BATCH).peak)
        ]
    try:
        plan = plan_memory(network, share, batch=BATCH)
    except BudgetError as error:
        assert not alone
        again = plan_memory(network, error.smallest, batch=BATCH)
        assert again.peak <= error.smallest
        return
    assert plan.peak <= plan.budget < plan.peak_without and plan.bound <= plan.predicted * (1 + 1e-6)


@pytest.mark.parametrize("backend", [pytest.param(b, marks=pytest.mark.backend(b)) for b in ("reference", "pytorch")])
def test_the_measured_peak_is_within_the_budget(backend):
    network = add_loss(create("causal_transformer"))  # in smaller ones parameters outweigh activations
    executor, inputs = load_backend(backend).from_model(network), batch_of(network, BATCH)
    plan = plan_memory(executor, 0.35, inputs)
    assert plan.measured and plan.at_once > 1 and plan.operations < 1.35
    assert plan.executor(executor).step_memory(inputs) <= plan.budget < 0.36 * executor.step_memory(inputs)


def test_a_budget_that_is_met_already_needs_no_plan():
    network = network_of("mlp")
    plan = plan_memory(network, 1.0, batch=BATCH)
    assert plan.apply(network) is network and plan.checkpointing is None and "no pieces" in str(plan)


def test_the_same_question_has_the_same_answer():
    executor = d5ref.from_model(network_of("lenet"))
    inputs = batch_of(executor.network, BATCH)
    assert plan_memory(executor, 0.85, inputs) == plan_memory(executor, 0.85, inputs)


RECIPE = """
import deep500 as d5
import deep500.frameworks.reference as d5fw

FIXED = {"model": "lenet", "dataset": "digits", "epochs": 1}
MUTABLE = {
    "batch_size": 256, "executor": d5fw.from_model, "optimizer": d5fw.GradientDescent, "optimizer_kwargs": {"lr": 0.5},
    "seed": 3,
}
METRICS = [(d5.TestAccuracy(), 1.0)]
"""


def curve_of(folder):
    (path,) = folder.rglob("metrics.jsonl")
    return path.parent, json.loads(path.read_text().splitlines()[-1])


def test_a_recipe_trains_within_its_memory_to_the_same_curve(tmp_path):
    recipe = tmp_path / "tiny.py"
    recipe.write_text(RECIPE)
    folders = [tmp_path / name for name in ("whole", "within", "again")]
    for folder, words in zip(folders, ([], ["memory=0.8"], ["memory=0.8"]), strict=True):
        assert cli.main(["run", str(recipe), *words, "--quiet", "--out", str(folder)]) == 0
    (_, whole), (path, within), (_, again) = map(curve_of, folders)
    facts = json.loads((path / "manifest.json").read_text())["memory"]
    assert facts["peak"] <= facts["budget"] < 0.81 * facts["peak_without"] and facts["measured"]
    assert facts["at_once"] == load_memory_plan(path / "memory_plan.json").at_once > 1
    assert within["train_loss"] == pytest.approx(whole["train_loss"], rel=1e-4)
    assert within["train_loss"] == again["train_loss"]  # the same plan, so the same bits


def test_memory_and_checkpointing_are_not_given_together(tmp_path, capsys):
    (tmp_path / "tiny.py").write_text(RECIPE)
    words = ["memory=0.6", "checkpointing=0.5", "--out", str(tmp_path)]
    assert cli.main(["run", str(tmp_path / "tiny.py"), *words]) == 2
    assert "memory plans recomputation, too" in capsys.readouterr().err


def test_a_comparison_refuses_memory_that_nothing_would_plan(tmp_path):
    (tmp_path / "tiny.py").write_text(RECIPE.replace('"seed": 3,', '"seed": 3, "memory": 0.8,'))
    with pytest.raises(RecipeError, match=r"got memory=0\.8 in a comparison of frameworks; expected none"):
        Training("reference", recipe=str(tmp_path / "tiny.py"))


LIMITED = """
import json, re, resource, sys
import numpy as np
import deep500 as d5
from deep500.registry import load_backend
backend, share, limit = sys.argv[1], float(sys.argv[2]), int(sys.argv[3])
def size(name):
    return 1024 * int(re.search(rf"{name}:\\s+(\\d+)", open("/proc/self/status").read())[1])
executor = load_backend(backend).from_model(d5.add_loss(d5.networks.create("resnet", depth=20)))
rng = np.random.default_rng(0)
batch = {"input": rng.normal(size=(256, 3, 32, 32)).astype("float32"), "label": rng.integers(0, 10, 256)}
before = size("VmSize")
if limit:
    resource.setrlimit(resource.RLIMIT_AS, (before + limit,) * 2)
if share < 1:
    executor = d5.plan_memory(executor, share, batch).executor(executor)
loss = executor.inference_and_backprop(batch, "loss")["loss"]
print(json.dumps([float(executor.network.to_numpy(loss)), size("VmPeak") - before]))
"""


@pytest.mark.long
@pytest.mark.parametrize("backend", [pytest.param("pytorch", marks=pytest.mark.backend("pytorch"))])
def test_a_step_that_dies_at_a_limit_runs_within_it_by_a_plan(backend):
    """A limit of the kernel, at seven tenths of what the step takes without a plan: the same loss.

    Not on the reference, whose columns of convolutions are no values of the network: OpenBLAS ends the process there.
    """

    def run(share, limit):
        words = [sys.executable, "-W", "ignore", "-c", LIMITED, backend, str(share), str(limit)]
        return subprocess.run(words, capture_output=True, text=True, check=False)

    loss, taken = json.loads(run(1, 0).stdout)
    died = run(1, int(0.7 * taken))
    assert died.returncode != 0 and "memory cannot hold" in died.stderr, died.stderr[-300:]
    within = run(0.4, int(0.7 * taken))
    assert within.returncode == 0, within.stderr[-500:]
    assert json.loads(within.stdout)[0] == pytest.approx(loss, rel=1e-6)


@pytest.mark.parametrize(("batch", "share"), [(9, 0.95), (12, 0.95), (20, 0.8), (33, 0.8), (50, 0.8)])
def test_any_batch_is_planned(batch, share):
    """Also those that no power of two divides; the loss is that of the whole."""
    network = network_of("lenet")
    inputs = batch_of(network, batch)
    plan = plan_memory(network, share, batch=batch)
    assert plan.peak <= plan.budget < plan.peak_without
    loss = d5ref.from_model(network).inference_and_backprop(inputs, "loss")["loss"]
    under_plan = plan.executor(d5ref.from_model(network)).inference_and_backprop(inputs, "loss")["loss"]
    np.testing.assert_allclose(under_plan, loss, rtol=1e-5)


@pytest.mark.backend("pytorch")
def test_what_recomputation_alone_reaches_is_reached(monkeypatch):
    """By measured stages too, where counted ones find nothing; pieces are left out here."""
    executor, inputs = load_backend("pytorch").from_model(network_of("causal_transformer")), None
    inputs = batch_of(executor.network, BATCH)
    alone = plan_checkpointing(executor, 0.6, inputs=inputs)
    for kind in ("_together", "_at_once", "_all_cuttable"):
        monkeypatch.setattr(memory_planning._Planning, kind, lambda *_: ())
    original, asked = memory_planning.PlanningSubject.plan, []

    def counted_stages_find_nothing(self, budget, profile):
        asked.append(profile is not None)
        if profile is not None:
            raise BudgetError("got counted stages; expected measured ones", 1)
        return original(self, budget, profile)

    monkeypatch.setattr(memory_planning.PlanningSubject, "plan", counted_stages_find_nothing)
    plan = plan_memory(executor, int(alone.budget), inputs)
    assert asked == [True, False] and plan.peak <= plan.budget
