"""A scheme outside the package costs one file: a recipe trains with it and ``deep500 simulate`` predicts it."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from deep500 import cli
from deep500.compare.subject import Setting
from deep500.distributed import Threads, set_world
from deep500.errors import InputError
from deep500.recipe import run_recipe
from deep500.recipe.loader import find_recipe
from deep500.results import Record
from deep500.scaling.model import Interconnect, broadcast
from deep500.scaling.prediction import Compute, Machine, predict
from deep500.scaling.rig import Rig, SchemeChoice
from tests.distributed.own_scheme import TurnTaking
from tests.recipes.common import quick


def test_a_recipe_trains_with_it(tmp_path: Path) -> None:
    recipe = quick("reference", scheme=TurnTaking, scheme_kwargs={"first": 1})

    def work(comm: Any) -> str:
        set_world(comm)
        try:
            return str(run_recipe(*recipe, ["--quiet", "--out", str(tmp_path)]).path)
        finally:
            set_world(None)

    record = Record.open(Path(Threads(2).run(work)[0]))
    assert record.manifest()["processes"]["scheme"] == "TurnTaking"
    summary = record.summary()
    assert summary is not None and summary["verdict"] == "PASSED"  # the accuracy is above its target: it has trained


def test_simulate_predicts_it() -> None:
    rig = Rig("reference", Setting(str(find_recipe("digits_lenet"))))
    net = Interconnect.parse("alpha=1e-3,beta=1e-9")
    choice = SchemeChoice("TurnTaking", TurnTaking, {"first": 1})
    compute = Compute({32: np.full(20, 0.01)}, known_seconds={(str(choice), few): 0.0 for few in (2, 8)})
    table, why = predict(compute, rig, [choice], [16], "weak", Machine(net))
    sizes = [array.nbytes for array in rig.step(1)[1].network.state().values()]
    messages = sum(broadcast(net, 16, size) for size in sizes)
    assert not why and table.entries[0].seconds.median == pytest.approx(0.01 + messages)


def test_one_that_does_not_say_how_it_waits_is_refused_before_anything_is_measured() -> None:
    undeclared = type("Undeclared", (TurnTaking,), {"waits": None})
    with pytest.raises(InputError, match=r"got scheme Undeclared with waits = None; expected one of \"together\""):
        predict(Compute({}), Any, [SchemeChoice("Undeclared", undeclared)], [16], "weak", Machine(Interconnect(1, 1)))


@pytest.mark.parametrize("ending", ["", "(first=1)"])
def test_the_command_line_takes_it_by_its_file(tmp_path: Path, ending: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Copied to somewhere else, so that nothing but the name of its file leads to it."""
    file = Path(shutil.copy(Path(__file__).with_name("own_scheme.py"), tmp_path / "mine.py"))
    words = ["simulate", "digits_lenet", "--ranks", "8", "--mode", "weak", "--network", "alpha=1e-3,beta=1e-9"]
    words += ["--backend", "reference", "--schemes", f"{file}:TurnTaking{ending}", "--dry-run"]
    assert cli.main([*words, "--out", str(tmp_path / "results")]) == 0
    assert f"{file}:TurnTaking{ending}" in capsys.readouterr().out
