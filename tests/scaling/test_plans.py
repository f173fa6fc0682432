"""``deep500 simulate --plans``: times that follow from plans, what wins where, limits of memory, and bad input."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from deep500 import cli
from deep500.errors import InputError
from deep500.measure.statistics import Interval
from deep500.networks import add_loss, create
from deep500.results.scaling import STRONG, WEAK, Scaling
from deep500.scaling.model import Interconnect, all_reduce
from deep500.scaling.page import text
from deep500.scaling.plans import BOTH, DATA, MODEL, GridReplays, fitted_costs, replayed
from deep500.transformations.parallel.costs import StepCosts
from deep500.transformations.parallel.planning import Wishes, parallelize

NET = Interconnect(alpha=1e-6, beta=1e-9)
BASE = Interval(1e-2, None, None, 1)
COSTS = StepCosts(NET.alpha, NET.beta, operation_time=1e-9, memory_time=1e-9, start=1e-7)


def replays(batch: int = 4, hidden: int = 64, memory: int | None = None, net: Interconnect = NET) -> GridReplays:
    network = add_loss(create("mlp", shape=(32,), hidden=(hidden, hidden), classes=8))
    return GridReplays(network, {"input": (batch, 32), "label": (batch,)}, batch, COSTS, net, memory)


def test_a_grid_is_the_plan_of_a_group_and_an_all_reduce_around() -> None:
    mine = replays()
    grids = {str(replay).partition(" (")[0]: replay for replay in mine.on(4, 4)}
    assert list(grids) == ["data 4", "data 2 x model 2", "model 4"]
    shapes = {"input": (2, 32), "label": (2,)}
    plan = parallelize(mine.network, 2, shapes, wishes=Wishes(model=COSTS))
    halves = sum(p.value.nbytes // (2 if name in plan.sources else 1) for name, p in mine.network.parameters.items())
    assert plan.sources, "nothing is divided"
    assert grids["data 2 x model 2"].seconds == pytest.approx(plan.seconds + all_reduce(NET, 2, halves))
    whole = sum(p.value.nbytes for p in mine.network.parameters.values())
    alone = parallelize(mine.network, 1, {"input": (1, 32), "label": (1,)}, wishes=Wishes(model=COSTS))
    assert grids["data 4"].seconds == pytest.approx(alone.seconds + all_reduce(NET, 4, whole))
    assert [replay.way for replay in grids.values()] == [DATA, BOTH, MODEL]


def test_what_wins_is_the_least_of_all_grids_and_the_break_even_follows() -> None:
    table, lacking, lines = replayed(replays(), [2, 4, 8], STRONG, BASE)
    mine, times = replays(), {(entry.scheme, entry.ranks): entry.seconds.median for entry in table.entries}
    for ranks in (2, 4, 8):
        everywhere = list(mine.on(ranks, 4))
        for way in {replay.way for replay in everywhere}:
            assert times[way, ranks] == min(replay.seconds for replay in everywhere if replay.way == way)
        best = min(everywhere, key=lambda replay: replay.seconds)
        assert lines[(2, 4, 8).index(ranks)].startswith(f"strong, {ranks} ranks: {best}, ")
    assert lacking == {(DATA, 8): "4 samples are too few"}
    assert "from 2 ranks on something is quicker" in lines[-1] and all(line.endswith("; modelled") for line in lines)
    assert "model         8      4      " in text(table, lacking) and " modelled " in text(table, lacking)
    large = replays(batch=1024, hidden=8)
    large.costs = StepCosts(NET.alpha, NET.beta, operation_time=1e-6)
    assert "up to 4 ranks nothing is quicker than data" in replayed(large, [2, 4], WEAK, BASE)[2][-1]


def test_ranks_hold_what_they_may() -> None:
    whole = parallelize(replays().network, 1, replays().shapes).memory
    table, lacking, _ = replayed(replays(memory=whole * 2 // 3), [1, 2, 4], STRONG, BASE)
    assert lacking[DATA, 2] == lacking[DATA, 4] == "a rank would hold too much"
    assert {(entry.scheme, entry.ranks) for entry in table.entries} == {(MODEL, 2), (MODEL, 4), (BOTH, 4)}
    with pytest.raises(InputError, match="got ranks that may hold 100 bytes; expected as many as"):
        replayed(replays(memory=100), [2], STRONG, BASE)


def test_nodes_are_scaled_to_a_measured_step() -> None:
    mine = replays()
    costs = fitted_costs(mine.network, mine.shapes, 0.25, NET)
    assert parallelize(mine.network, 1, mine.shapes, wishes=Wishes(model=costs)).seconds == pytest.approx(0.25)
    assert (costs.latency, costs.byte_time) == (NET.alpha, NET.beta)


def test_the_command_says_what_wins(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["simulate", "digits_lenet", "--dry-run", "--backend", "reference", "--out", str(tmp_path)]
    words += ["--network", "alpha=2e-6,beta=1e-10", "--ranks", "2"]
    assert cli.main([*words, "--plans", "--mode", "strong"]) == 0
    said = capsys.readouterr().out
    assert "strong, 2 ranks: " in said and "break-even: " in said and "nodes take " in said
    table = Scaling.read(tmp_path / "simulate" / "digits_lenet" / "strong")
    assert table is not None and {entry.scheme for entry in table.entries} == {DATA, MODEL}
    assert {entry.kind for entry in table.entries} == {"predicted"}
    assert np.isfinite([entry.seconds.median for entry in table.entries]).all()
    assert cli.main([*words, "--plan-memory", "5"]) == 2
    assert "got --plan-memory 5; expected bytes above 0, with --plans" in capsys.readouterr().err


def test_the_page_s_figures_of_the_perceptron_are_the_model_s() -> None:
    network = add_loss(create("mlp", shape=(784,), hidden=(4096, 4096), classes=10))
    net = Interconnect(2e-6, 1e-10, 5e-11)
    costs = StepCosts(net.alpha, net.beta, sum_time=net.gamma)
    grids = list(GridReplays(network, {"input": (64, 784), "label": (64,)}, 64, costs, net).on(16, 64))
    best, data = min(grids, key=lambda grid: grid.seconds), next(grid for grid in grids if grid.way == DATA)
    assert str(best) == "model 16 (parameters)"
    said = f"{1e3 * best.seconds:.0f} ms, not {1e3 * data.seconds:.0f} |"
    assert said in (Path(__file__).parents[2] / "docs" / "scaling.md").read_text(encoding="utf-8")
