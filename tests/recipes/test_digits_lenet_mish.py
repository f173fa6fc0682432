"""LeNet on digits learns as well with an activation in C++, whose gradient Enzyme derived, as with its own."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from deep500.cli import main
from deep500.recipe.loader import load_recipe

RECIPES = Path(__file__).parents[2] / "recipes"


def test_it_is_the_demo_but_for_the_activation():
    demo, mish = (load_recipe(RECIPES / f"{name}.py") for name in ("digits_lenet", "digits_lenet_mish"))
    assert {**mish.FIXED, "model": "lenet"} == demo.FIXED
    assert mish.MUTABLE.keys() == demo.MUTABLE.keys()
    assert [(type(m), t) for m, t in mish.METRICS] == [(type(m), t) for m, t in demo.METRICS]
    network = mish.lenet_with_mish(10, (1, 8, 8), 0)
    assert sum(n.op_type == "Mish" and n.domain == "deep500" for n in network.nodes) == 4
    assert not any(node.op_type == "Relu" for node in network.nodes)


@pytest.mark.slow
@pytest.mark.any_backend
@pytest.mark.backend("pytorch")  # the recipe names it; --backend exchanges it
@pytest.mark.parametrize(
    "backend", [pytest.param(b, marks=pytest.mark.backend(b)) for b in ("pytorch", "tensorflow", "jax", "reference")]
)
def test_it_reaches_the_same_target_in(backend: str, capsys, tmp_path):
    words = ["run", str(RECIPES / "digits_lenet_mish.py"), "--backend", backend, "--out", str(tmp_path), "--json"]
    code = main(words)
    summary = json.loads(capsys.readouterr().out)
    (metric,) = summary["metrics"]
    assert (code, summary["verdict"], metric["target"]) == (0, "PASSED", 97.0)
    assert metric["value"] >= 97.0
    manifest = json.loads((Path(summary["path"]) / "manifest.json").read_text())
    assert manifest["backend"] == backend and manifest["division"] == "closed"
