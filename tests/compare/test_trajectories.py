"""Two trainings beside each other: equal ones never part, a planted difference parts them where it was planted."""

from __future__ import annotations

import json

import numpy as np
import pytest

from deep500 import cli
from deep500.compare.trajectories import AGAIN, OTHER, ROUNDING, Distances, TrajectoryComparison, compare_trajectories
from deep500.errors import ComparisonError, RecipeError
from deep500.recipe.options import parse_options
from tests.report.test_page import check_accessible

RECIPE = """
import deep500 as d5
import deep500.frameworks.reference as d5fw

class Late(d5.UpdateRuleOptimizer):
    '''Gradient descent whose rate changes from some step on.'''

    lr: float = 0.1
    begin: int = 10**9

    def update_rule(self, grad, old_param, name):
        return old_param - (self.lr if self.steps < self.begin else 1.001 * self.lr) * grad

FIXED = {"model": "mlp", "model_kwargs": {"hidden": (8,)}, "dataset": "digits", "epochs": 3}
MUTABLE = {
    "batch_size": 64, "executor": d5fw.from_model, "optimizer": Late,
    "optimizer_kwargs": {"lr": 0.1, "begin": 10**9}, "seed": 3,
}
METRICS = [(d5.TestAccuracy(), 1.0)]
"""


@pytest.fixture(scope="module")
def recipe(tmp_path_factory):
    path = tmp_path_factory.mktemp("recipes") / "tiny.py"
    path.write_text(RECIPE)
    return path


def compared(recipe, words, steps=30, base=()):
    return compare_trajectories((recipe, parse_options(list(base))), (recipe, parse_options(words)), steps)


def test_equal_trainings_never_part(recipe):
    found = compared(recipe, [])
    assert (found.parts, found.differs, found.steps) == (None, None, 30)
    assert "they do not part beyond rounding in 30 steps" in str(found) and "no bit differs" in str(found)
    assert all(distance == 0 for distance in found.distances[AGAIN].l2["all parameters"])
    assert found.distances[ROUNDING].l2["all parameters"][-1] > 0 and found.moved[-1] > 0.1  # something happened


@pytest.mark.parametrize("step", [1, 7, 23])
def test_a_planted_difference_is_found_at_its_step(recipe, step):
    found = compared(recipe, [f"optimizer_kwargs.begin={step - 1}"])
    assert found.parts == found.differs == step
    assert f"they part at step {step}, beyond rounding" in str(found)
    assert all(distance == 0 for distance in found.distances[OTHER].l2["all parameters"][:step])


def test_the_number_that_is_printed_is_the_one_that_decided():
    """The largest element is twelve times its floor, the Euclidean distance three: they part, by twelve."""

    def sides(l2, largest):
        l2s, most = ({name: [0.0, apart] for name in ("all parameters", "w")} for apart in (l2, largest))
        return Distances(l2s, most, [1.0, 1.0])

    distances = {AGAIN: sides(0.0, 0.0), ROUNDING: sides(1.0, 0.5), OTHER: sides(3.0, 6.0)}
    found = TrajectoryComparison(("a", "b"), 1, [0.0, 30.0], [1.0, 1.0], distances)
    found.judge()
    assert found.parts == 1
    assert "3 apart, 10 % of the way from the start: largest element 6, 12 times rounding alone (0.5)" in str(found)
    assert all(row["decided_by"] == {"distance": "largest element", "value": 6.0, "floor": 0.5} for row in found.rows())
    assert "largest element: 6, by rounding 0.5" in found._page()


def test_distances_are_those_of_the_parameters(recipe):
    """Over one step of gradient descent the distance is the difference of the rates times the gradient's norm."""
    found = compared(recipe, ["optimizer_kwargs.lr=0.3"], steps=1)
    assert found.distances[OTHER].l2["all parameters"][1] == pytest.approx(2 * found.moved[1], rel=1e-5)
    parts = [values[1] for name, values in found.distances[OTHER].l2.items() if name != "all parameters"]
    assert np.linalg.norm(parts) == pytest.approx(found.distances[OTHER].l2["all parameters"][1])


@pytest.mark.backend("pytorch")
def test_frameworks_do_not_part(recipe):
    found = compared(recipe, ["--backend", "pytorch"])
    assert found.parts is None and found.distances[OTHER].same_batches == 30


def test_other_batches_are_named_and_other_networks_refused(recipe):
    found = compared(recipe, ["--seed", "4"], steps=3)
    assert found.parts is not None and any("other batches" in note for note in found.notes)
    with pytest.raises(ComparisonError, match="expected the same network"):
        compared(recipe, ["model_kwargs.hidden=(9,)", "--open"], steps=3)


def test_a_memory_plan_is_refused_where_none_is_made(recipe):
    with pytest.raises(RecipeError, match=r"memory=0.5 in a comparison of two trainings"):
        compared(recipe, ["memory=0.5"], steps=3)


def test_the_command_writes_a_page(recipe, tmp_path, capsys):
    words = ["compare", str(recipe), "--against", "optimizer_kwargs.begin=4", "--steps", "9", "--out", str(tmp_path)]
    assert cli.main([*words, "--quiet"]) == 1
    assert "they part at step 5" in capsys.readouterr().out
    (page,) = tmp_path.rglob("*.html")
    check_accessible(page.read_text())
    assert "they part at step 5" in page.read_text() and "<svg" in page.read_text()
    (facts,) = tmp_path.rglob("*.json")
    assert json.loads(facts.read_text())["parts"] == 5
    assert cli.main(["compare", str(recipe), "--against", "", "--backend", "reference", "--out", str(tmp_path)]) == 2
