"""The budget: all that optimizing does is counted, by a clock that advances only where a test says so."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from deep500.networks import Network
from deep500.transformations.substitutions import Optimized, equivalence, optimize
from deep500.transformations.substitutions import deadline as deadline_module
from deep500.transformations.substitutions.cost import Analytic, Measured, OutOfTime, ranking
from deep500.transformations.substitutions.cost.timing import Slope
from deep500.transformations.substitutions.deadline import Deadline
from deep500.transformations.substitutions.graph import writing
from deep500.transformations.substitutions.graph.importing import import_network
from deep500.transformations.substitutions.rules.matching import Matcher
from deep500.transformations.substitutions.rules.rule_file import read
from deep500.transformations.substitutions.search import backtracking
from tests.transformations.substitutions.samples import branches, images, saved

ALLOWED = 1.2


class Clock:
    """Seconds that pass where they are spent, and a little whenever one looks."""

    def __init__(self) -> None:
        self.now, self.spent = 1000.0, dict[str, float]()

    def __call__(self) -> float:
        self.now += 1e-5
        return self.now

    def spend(self, name: str, seconds: float, function: Callable[..., Any]) -> Callable[..., Any]:
        """The function, which takes some seconds a call by this clock."""

        def spending(*arguments: Any, **named: Any) -> Any:
            self.now += seconds
            self.spent[name] = self.spent.get(name, 0.0) + seconds
            return function(*arguments, **named)

        return spending


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    """As for a large network: folding constants, answers, files, prices and matching take long."""
    made = Clock()
    monkeypatch.setattr(time, "process_time", made)
    monkeypatch.setattr(writing, "constant_array", made.spend("folding", 0.05, writing.constant_array))
    monkeypatch.setattr(equivalence, "outputs", made.spend("answers", 0.2, equivalence.outputs))
    monkeypatch.setattr(equivalence, "_gradients", made.spend("gradients", 0.4, equivalence._gradients))
    monkeypatch.setattr(optimize, "export_network", made.spend("writing", 0.1, optimize.export_network))
    monkeypatch.setattr(Analytic, "total", made.spend("pricing", 0.02, Analytic.total))
    monkeypatch.setattr(backtracking, "apply", made.spend("moves", 0.01, backtracking.apply))
    monkeypatch.setattr(
        Measured,
        "_measure",
        made.spend("measuring", 0.1, lambda self, graph, unit: Slope(1e-6 * len(unit.inputs), 0.0, 9)),
    )
    return made


def run(clock: Clock, network: Network, budget: float, **options: Any) -> tuple[Optimized, float]:
    """The result, and the seconds that passed."""
    begin = clock.now
    options = {"measure": False, "database": ":memory:", **options}
    found = optimize.optimize_network(network, "reference", budget, **options)
    return found, clock.now - begin


@pytest.mark.parametrize("training", [False, True])
@pytest.mark.parametrize("make", [branches, images])
def test_everything_is_within_the_budget(clock: Clock, make: Callable[[], Network], training: bool) -> None:
    network, taken = make(), 0
    for budget in (0.3, 1.0, 3.0, 10.0, 40.0):
        found, seconds = run(clock, network, budget, training=training)
        assert seconds <= ALLOWED * budget, (budget, seconds, clock.spent)
        taken += found.chosen is not None
        if found.chosen is None:
            assert saved(found.network) == saved(network) and found.reason
    assert taken or (training and make is images), "with time enough something is found"
    assert clock.spent.keys() >= {"answers", "pricing", *(() if training else ("folding", "writing"))}


@pytest.mark.parametrize("budget", [3.0, 10.0, 30.0])
def test_measuring_and_timing_are_within_the_budget(
    clock: Clock, monkeypatch: pytest.MonkeyPatch, budget: float
) -> None:
    def timed(*_: Any, limit: float, **__: Any) -> Any:
        clock.now += limit
        raise OutOfTime("as planned")

    monkeypatch.setattr(optimize, "remeasure", timed)
    monkeypatch.setattr(ranking, "typical", lambda _: 1e-3)
    _, seconds = run(clock, branches(), budget, measure=True)
    assert seconds <= ALLOWED * budget, clock.spent
    assert clock.spent["measuring"] > 0


@pytest.mark.parametrize("budget", [0.5, 2.0])
def test_the_search_ends_in_time(clock: Clock, budget: float) -> None:
    result = backtracking.Backtracking(Matcher(read(), 1), Analytic(), budget).run(import_network(branches(4, 8)).graph)
    assert result.timed_out and result.seconds <= ALLOWED * budget
    assert result.best[0].cost <= result.first.cost


def test_a_check_that_would_not_end_in_time_is_not_begun(clock: Clock) -> None:
    found, seconds = run(clock, branches(), 1.0)
    assert "float64" in found.reason and "raise the budget" in found.reason
    assert seconds < 1.0 and found.timed_out


def test_progress_says_what_is_done(clock: Clock) -> None:
    told: list[tuple[float, float, float, str]] = []
    run(clock, branches(4, 8), 400.0, progress=lambda *what: told.append(what))
    said = [what for *_, what in told]
    assert said[0] == "the original's answers" and "the search" in said
    assert any("priced by formula, from the network" in what for what in said)
    assert any("from form 1" in what for what in said) and said[-1].startswith("the result's answers")
    seconds = [when for when, *_ in told]
    assert seconds == sorted(seconds) and all(best <= first for _, best, first, _ in told)


def test_time_for_the_check_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [0.0]
    monkeypatch.setattr(deadline_module, "cpu_seconds", lambda: now[0])
    deadline = Deadline(10.0)
    deadline.keep_for_check(1.5)
    now[0] = 4.0
    assert deadline.left() == 3.0 and deadline.left(with_kept=True) == 6.0
    deadline.check("what takes 5 s", 5.0)
    with pytest.raises(OutOfTime, match=r"got 6 of 10 s for more; expected about 7 s; raise the budget"):
        deadline.check("more", 7.0)


def test_concatenated_constants_are_copied_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nested in pairs, parts of 134 MB would be copied as often as there are parts."""
    from deep500.transformations.substitutions.graph.store import Store, joined

    store, copied = Store(), []
    rows = [store.constant(np.full((2, 3), n, "float32")) for n in range(6)]
    join = np.concatenate
    monkeypatch.setattr(np, "concatenate", lambda parts, axis: copied.append(len(parts)) or join(parts, axis))
    whole = writing.constant_array(store, joined(store, rows, 1))
    assert copied == [6] and whole.dtype == np.float32
    assert np.array_equal(whole, join([store.arrays[row.node] for row in rows], 1))
