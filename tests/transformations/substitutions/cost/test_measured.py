"""Measured prices: what is timed is what a unit adds, it is timed once, and networks are ranked with evidence only."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from deep500.errors import InputError, MissingBackend, UnsupportedOperator
from deep500.networks import Network, create
from deep500.registry import backend_names, is_installed
from deep500.transformations.substitutions.cost import Measured, measured, ranking, remeasure, timing
from deep500.transformations.substitutions.cost.timing import BYTES, COPIES, Margins, Runner, Slope, slope
from deep500.transformations.substitutions.graph.store import Store, StoredGraph, StoreValue
from deep500.transformations.substitutions.graph.units import Units

BACKENDS = [
    pytest.param(name, marks=pytest.mark.skipif(not is_installed(name), reason=f"{name} is not installed"))
    for name in backend_names()
]


def _conv(store: Store, kernel: int, channels: int, size: int = 14) -> tuple[StoreValue, ...]:
    pads = (kernel // 2,) * 4
    w = store.constant(np.full((channels, channels, kernel, kernel), 0.01, "float32"))
    x = store.input("x", (1, channels, size, size), "float32")
    return store.add("conv", x, w, kernel=(kernel, kernel), strides=(1, 1), pads=pads, dilations=(1, 1), groups=1)


@pytest.mark.parametrize("backend", BACKENDS)
def test_copies_cost_and_large_kernels_cost_more_than_small_ones(backend: str) -> None:
    """576 times the operations cost more, however busy the machine is."""
    cost, store = Measured(backend, ":memory:"), Store()
    x, y = (store.input(name, (256, 1024), "float32") for name in "xy")
    concat = cost.total(StoredGraph(store, store.add("concat", x, y, axis=1)))
    assert concat > 1e-5, "4 MB are read and written"
    large, small = (cost.total(StoredGraph(store, _conv(store, *which))) for which in ((3, 512), (1, 64)))
    assert large > small > 0
    assert cost.measured == 3 and cost.seconds > 0


def test_prices_are_measured_once_and_stay(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = _count(monkeypatch, itertools.count(1))
    store = Store()
    x = store.input("x", (3, 4), "float32")
    (y,) = store.add("tanh", x)
    graph = StoredGraph(store, store.add("relu", store.add("tanh", y)[0]))
    first = Measured("reference", tmp_path / "costs.sqlite")
    total = first.total(graph)
    assert (len(asked), first.measured, total) == (2, 2, 2 * 1 + 2)
    assert first.total(graph) == total and len(asked) == 2
    again = Measured("reference", tmp_path / "costs.sqlite")
    assert (again.total(graph), again.measured, len(asked)) == (total, 0, 2)
    first_row, *_, last_row = (again.database.load(again.place)[repr(unit.key(graph))] for unit in Units(graph))
    assert first_row.seconds == 1 and last_row.repeats == 7


def test_prices_of_another_machine_are_not_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = _count(monkeypatch, itertools.count(1))
    store = Store()
    graph = StoredGraph(store, store.add("tanh", store.input("x", (3, 4), "float32")))
    assert Measured("reference", tmp_path / "costs.sqlite").total(graph) == 1
    here = measured.machine_hash()
    monkeypatch.setattr(measured, "machine_hash", lambda: "elsewhere")
    assert Measured("reference", tmp_path / "costs.sqlite").total(graph) == 2
    monkeypatch.setattr(measured, "machine_hash", lambda: here)
    monkeypatch.setattr(measured, "backend_version", lambda backend: "numpy 99")
    assert Measured("reference", tmp_path / "costs.sqlite").total(graph) == 3
    monkeypatch.undo()
    assert len(asked) == 3 and Measured("reference", tmp_path / "costs.sqlite").total(graph) == 1


def _count(monkeypatch: pytest.MonkeyPatch, prices: itertools.count[int]) -> list[Slope]:
    """Let every measurement find the next price instead of timing."""
    asked: list[Slope] = []

    def counted(*_: object) -> Slope:
        asked.append(Slope(float(next(prices)), 0.0, 7))
        return asked[-1]

    monkeypatch.setattr(measured, "slope", counted)
    monkeypatch.setattr(measured, "margins", lambda *_: Margins(0.0, 0.0))
    return asked


def test_margins_are_measured_once_and_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _count(monkeypatch, itertools.count(100, 0))
    feeds = itertools.count(1)
    monkeypatch.setattr(measured, "margins", lambda *_: Margins(float(next(feeds)), 10.0))
    store = Store()
    x = store.input("x", (3, 4), "float32")
    for op in ("tanh", "relu"):  # each in a process of its own, as far as the database can tell
        assert (
            Measured("reference", tmp_path / "costs.sqlite").total(StoredGraph(store, store.add(op, x))) == 100 - 1 - 10
        )
    assert next(feeds) == 2


def test_feeding_and_fetching_are_taken_off(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(measured, "margins", lambda *_: Margins(feed=1.0, fetch=10.0))
    monkeypatch.setattr(measured, "slope", lambda *_: Slope(100.0, 0.0, 7))
    cost, store = Measured("reference", ":memory:"), Store()
    x, y = (store.input(name, (4, 4), "float32") for name in "xy")
    w = store.constant(np.ones((4, 4), "float32"))
    # fmt: off
    prices = {
        "two inputs": store.add("add", x, y), "one twice": store.add("add", x, x), "a constant": store.add("add", x, w),
        "two outputs": store.add("split", x, axis=0, cut=1),
    }
    # fmt: on
    totals = {name: cost.total(StoredGraph(store, values)) for name, values in prices.items()}
    assert totals == {"two inputs": 88, "one twice": 89, "a constant": 89, "two outputs": 79}


def test_what_a_backend_cannot_run_is_infinitely_dear(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(self: Runner, network: Network, inputs: object = None) -> Callable[[], object]:
        raise UnsupportedOperator("got Tanh; expected another; do without")

    monkeypatch.setattr(measured, "margins", lambda *_: Margins(0.0, 0.0))
    monkeypatch.setattr(Runner, "__call__", refuse)
    cost, store = Measured("reference", ":memory:"), Store()
    graph = StoredGraph(store, store.add("tanh", store.input("x", (3, 4), "float32")))
    assert cost.total(graph) == float("inf")
    assert list(cost.unrunnable.values()) == ["got Tanh; expected another; do without"]
    assert set(cost.database.load(cost.place)) == {measured.FEED, measured.FETCH}, "no row: the next version may run it"


@pytest.mark.parametrize(
    ("options", "words"),
    [({"threads": 77}, "start the process with OMP_NUM_THREADS=77"), ({"limit": 0.0}, "a positive limit")],
)
def test_wrong_options_are_errors(options: dict[str, float], words: str) -> None:
    with pytest.raises(InputError, match=words):
        Measured("reference", ":memory:", **options)  # type: ignore[arg-type]


def test_threads_are_those_of_the_process(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OMP_NUM_THREADS", "3")
    assert Measured("reference", ":memory:", threads=3).place.threads == 3
    monkeypatch.setenv("OMP_NUM_THREADS", "many")
    assert Measured("reference", ":memory:").place.threads >= 1


def test_an_unknown_backend_is_named() -> None:
    with pytest.raises(MissingBackend, match="'nothing'"):
        Measured("nothing", ":memory:")


# -- slopes -----------------------------------------------------------------------------------------------------------
class Work:
    """A clock that stands still but for what was worked."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, fixed: float, each: float) -> None:
        self.now, self.fixed, self.each = 0.0, fixed, each
        self.made: list[int] = []
        monkeypatch.setattr(timing, "time", SimpleNamespace(perf_counter=lambda: self.now, perf_counter_ns=self.clock))
        compare, alone = timing.compare_functions, timing.measure
        monkeypatch.setattr(timing, "compare_functions", lambda *a, **k: compare(*a, **k, clock=self.clock))
        monkeypatch.setattr(timing, "measure", lambda *a, **k: alone(*a, **k, clock=self.clock))

    def clock(self) -> int:
        return round(self.now * 1e9)

    def __call__(self, copies: int) -> Callable[[], object]:
        self.made.append(copies)

        def run() -> None:
            self.now += self.fixed + copies * self.each

        return run


@pytest.mark.parametrize("each", [1e-6, 3e-5, 4e-4])
def test_the_fixed_cost_of_a_call_cancels(monkeypatch: pytest.MonkeyPatch, each: float) -> None:
    work = Work(monkeypatch, fixed=2e-4, each=each)
    measured = slope(work, limit=0.05)
    assert measured.seconds == pytest.approx(each, abs=2e-9)
    assert work.made[0] == 1 and 2 <= work.made[1] <= COPIES
    assert work.now < 0.2, "near its limit"


def test_what_takes_long_is_timed_by_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    work = Work(monkeypatch, fixed=2e-4, each=0.3)
    measured = slope(work, limit=0.05)
    assert work.made == [1]
    assert measured.seconds == pytest.approx(0.3002) and measured.rounds < 5
    assert work.now < 3


def test_a_busy_machine_is_asked_again(monkeypatch: pytest.MonkeyPatch) -> None:
    made = iter([Slope(9.0, 5.0, 12), Slope(1.0, 0.01, 12), Slope(0.5, 0.0, 12)])
    assert timing._quietest(lambda: next(made), 60) == Slope(1.0, 0.01, 12)
    loud = iter([Slope(1.0, 5.0, 12), Slope(3.0, 4.0, 12), Slope(2.0, 6.0, 12), Slope(1.0, 0.0, 12)])
    assert timing._quietest(lambda: next(loud), 60) == Slope(3.0, 4.0, 12), "the least spread of three"
    free = iter([Slope(0.0, 5e-8, 12)])
    assert timing._quietest(lambda: next(free), 60).seconds == 0, "below the resolution"
    clock = itertools.count()
    monkeypatch.setattr(timing, "time", SimpleNamespace(perf_counter=lambda: float(next(clock))))
    slow = iter([Slope(1.0, 5.0, 12), Slope(1.0, 4.0, 12)])
    assert timing._quietest(lambda: next(slow), 0.9) == Slope(1.0, 5.0, 12), "twice the limit is over after the first"


def test_copies_fit_in_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    work = Work(monkeypatch, fixed=2e-4, each=1e-6)
    slope(work, limit=0.05, size=BYTES // 3)
    assert work.made == [1, 3]


def test_margins_tell_feeding_from_fetching(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [0.0]

    class Counted:
        """An executor whose time is counted: 5 per call, 3 per input, 2 per output, 1 per node (microseconds)."""

        def __call__(self, network: Network) -> Callable[[], object]:
            taken = 5 + 3 * len(network.inputs) + 2 * len(network.outputs) + len(network.nodes)

            def run() -> None:
                now[0] += taken * 1e-6

            return run

    compare = timing.compare_functions
    clock = lambda: round(now[0] * 1e9)  # noqa: E731
    monkeypatch.setattr(timing, "compare_functions", lambda *a, **k: compare(*a, **k, clock=clock))
    measured = timing.margins(Counted(), 0.01)  # type: ignore[arg-type]
    assert (measured.feed, measured.fetch) == (pytest.approx(3e-6, rel=1e-3), pytest.approx(2e-6, rel=1e-3))


# -- whole networks ---------------------------------------------------------------------------------------------------
def _ticking() -> Callable[[], int]:
    """A clock by which everything takes equally long."""
    ticks = itertools.count()
    return lambda: next(ticks) * 1_000_000


def test_a_network_is_equivalent_to_itself() -> None:
    net = create("mlp", batch=2)
    measured = remeasure({"a": net, "b": net.copy(), "c": net.copy()}, "reference", limit=0.05, clock=_ticking())
    assert [(comparison.first, comparison.second, comparison.verdict) for comparison in measured.comparisons] == [
        ("b", "a", "equivalent"),
        ("c", "a", "equivalent"),
    ]
    assert not measured.faster and measured.control.median == 1 and measured.rounds >= 6
    assert "b and a are equivalent" in str(measured) and "A/A control" in str(measured)


def test_rounds_are_planned_by_the_clock_that_compares(monkeypatch: pytest.MonkeyPatch) -> None:
    """On a busy machine a second passes while a network runs for a millisecond: that ends no comparison early."""
    passed = itertools.count()
    monkeypatch.setattr(timing, "time", SimpleNamespace(perf_counter_ns=lambda: next(passed) * 10**9))
    monkeypatch.setattr(ranking, "time", SimpleNamespace(perf_counter=lambda: float(next(passed))))
    functions = {"a": ranking.twins(lambda: lambda: None, 0), "b": ranking.twins(lambda: lambda: None, 1)}
    assert all(isinstance(function, ranking._Twins) for function in functions.values()), "each is built three times"
    assert ranking.in_turns(functions, limit=0.6, clock=_ticking()).rounds == ranking.MOST


@pytest.mark.slow
def test_networks_are_compared_and_only_a_faster_one_is_said_to_be() -> None:
    sizes = {"middle": (256, 256), "large": (4096, 2048), "small": (8,)}
    nets = {name: create("mlp", batch=8, hidden=hidden) for name, hidden in sizes.items()}
    measured = remeasure(nets, "reference", limit=1.0)
    assert measured.faster == ["small"] and measured.first == "middle"
    assert (measured["small"].verdict, measured["large"].verdict) == ("faster", "slower")
    assert measured["large"].ratio.low is not None and measured["large"].ratio.low > 1
    assert measured.seconds["small"].median < measured.seconds["large"].median
    slower = remeasure({name: nets[name] for name in ("middle", "large")}, "reference", limit=0.3)
    assert not slower.faster
    with pytest.raises(InputError, match="got 'middle'; expected one of"):
        measured["middle"]


def test_inputs_come_from_a_seed_and_symbols_from_a_mapping(monkeypatch: pytest.MonkeyPatch) -> None:
    fed: list[dict[str, np.ndarray]] = []
    call = Runner.__call__
    monkeypatch.setattr(
        Runner, "__call__", lambda self, network, inputs=None: fed.append(inputs) or call(self, network, inputs)
    )
    net = Network("n")
    net.add_input("tokens", ("N", "length"), "int64")
    net.add_parameter("table", np.ones((2, 3), "float32"))
    net.add_node("Gather", ["table", "tokens"], ["y"])
    net.add_output("y")
    pair = {"a": net, "b": net.copy()}
    tokens = []
    for seed in (1, 1, 2):
        fed.clear()
        remeasure(pair, "reference", sizes={"N": 4, "length": 9}, seed=seed, limit=0.01, clock=_ticking())
        tokens.append(fed[0]["tokens"])
    assert tokens[0].shape == (4, 9) and set(np.unique(tokens[0])) == {0, 1}
    assert np.array_equal(tokens[0], tokens[1]) and not np.array_equal(tokens[0], tokens[2])
    with pytest.raises(InputError, match="length"):
        remeasure(pair, "reference", sizes={"N": 4})


def test_networks_that_cannot_be_compared_are_refused() -> None:
    net = create("mlp", batch=2)
    with pytest.raises(InputError, match="expected at least two"):
        remeasure({"a": net}, "reference")
    with pytest.raises(InputError, match="network 'b': got inputs"):
        remeasure({"a": net, "b": create("mlp", batch=3)}, "reference")
