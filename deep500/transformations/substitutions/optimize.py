"""`optimize_network`: from a network to a faster one that is proved to compute the same, and is checked to."""

from __future__ import annotations

import dataclasses
import importlib
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

from deep500.errors import InputError, MissingBackend, NetworkError, UnsupportedOperator
from deep500.keywords import takes
from deep500.networks.network import Network
from deep500.networks.objects import as_network
from deep500.transformations.substitutions.choosing import fastest
from deep500.transformations.substitutions.cost import (
    Analytic,
    CostModel,
    Measured,
    OutOfTime,
    Remeasured,
    deployment,
    remeasure,
)
from deep500.transformations.substitutions.cost.clock import cpu_seconds
from deep500.transformations.substitutions.deadline import Deadline, Progress, Stop
from deep500.transformations.substitutions.equivalence import Answers, check_equivalent
from deep500.transformations.substitutions.graph.attention import fused
from deep500.transformations.substitutions.graph.importing import Imported, import_network, named
from deep500.transformations.substitutions.graph.store import StoredGraph
from deep500.transformations.substitutions.graph.writing import export_network
from deep500.transformations.substitutions.loading import Rules, load_rules
from deep500.transformations.substitutions.result import History, Optimized
from deep500.transformations.substitutions.rules.matching import Matcher
from deep500.transformations.substitutions.search.backtracking import Backtracking, SearchResult, State
from deep500.transformations.substitutions.search.moves import Moved, replay

CANDIDATES = 3
"""States, by predicted cost, that are measured from end to end."""
GROWTH = 1
"""Rules that add more operators than this to what they replace are not tried in that direction."""
FORMULA = 0.6
"""Share of the search for that by formulas, before operators are measured: they find the forms that are far away."""
FORMULAS = (0.5, 0.25, 0.25)
"""Shares of that for each formula."""
SEARCH = 0.6
"""Share of the budget for the search, where candidates are timed afterwards."""
ALONE = 0.75
"""Likewise where none are timed: what is left is for writing them."""
WRITING = 0.5
"""Share of the time left that writing one more candidate may take; the others took as long."""
GRACE = 0.1
"""Share of the budget that the check may take in any case: timing takes longer on a machine that became busy."""
FOLDING = frozenset({"conv", "matmul", "gain", "bias", "mul"})
"""Operators of the rules that only move vectors into weights; single numbers stay, as GELU has some."""
FOLDING_SECONDS = 1.0
"""For that, at most."""
FAILURES = (NetworkError, UnsupportedOperator, MissingBackend, MemoryError)
"""Errors that end a candidate, and not the run."""
_T = TypeVar("_T")


@dataclass(frozen=True)
class OptimizeOptions:
    """The options of :func:`optimize_network`.

    Args:
        network: or any model that :func:`deep500.networks.as_network` takes; stays as it is.
            Operators outside the rule language stay opaque; the rest is rewritten around them.
        backend: name of the backend or deployment that shall run it (``"pytorch-compiled"`` is ``torch.compile``). What
            compiles networks itself has no prices of operators: candidates by formula are compiled and timed instead.
        budget: seconds of CPU time for all of it, so that a busy machine finds the same; 0 searches nothing. The check
            of a result has its time kept; what cannot be checked within the budget is not taken. See ``timed_out``.
        training: the network will be trained: parameters stay as they are, with their names, and nothing is computed
            from them beforehand; normalization and dropout are left alone. Otherwise the result is for inference.
        alpha: the search looks again at states that cost up to this many times the best.
        rules: a rule file, a text of rules (``.txt``), rules, or several of these; ``"shipped"``, or None alone, are
            those that come with Deep500. All others are proved again here.
        database: SQLite file of measured times; the user's cache if None.
        measure: time operators on the backend, and candidates from end to end. False prices by formula, which gives the
            same result on every machine.
        seed: of the inputs for timing and checking.
        sizes: numbers for symbolic sizes, for which times are taken; the result holds for all.
        progress: called now and then with seconds so far, the best and the first predicted seconds, and words for what
            is being done.
        example: inputs to trace a model of a framework with.
        fresh_prices: measure operators anew and store these times instead of the known ones.
        unproved: take rules that are neither proved nor refuted, too; every result says which of them were applied.
        stop: asked now and then; where it says True the search ends as if the budget were spent, and the best so far is
            written, checked and timed in some seconds.
    """

    network: Network | Any
    backend: str = "reference"
    budget: float = 30.0
    _: KW_ONLY
    training: bool = False
    alpha: float = 1.05
    rules: Rules = None
    database: str | Path | None = None
    measure: bool = True
    seed: int = 0
    sizes: Mapping[str, int] | None = None
    progress: Progress | None = None
    example: Any = None
    fresh_prices: bool = False
    unproved: bool = False
    stop: Stop | None = None


@takes(OptimizeOptions)
def optimize_network(options: OptimizeOptions) -> Optimized:
    """Rewrite a network by proved substitutions into one that a backend runs faster.

    Only rules with a proof are loaded. What is found is compared with the original in float64 (and its gradients, with
    ``training``), and, with ``measure``, timed beside it: if none of the best candidates is faster, the network is
    returned as it was.

    Raises:
        InputError: no model, a budget or seed below 0, an alpha below 1, sizes of symbols that
            the inputs do not have, inputs that cannot be made up for timing and checking.
        CacheError: a database that is none.
        DataError: a rule file that is damaged, foreign, or stale; a rule that is refuted, or unknown without
            ``unproved``.
        MissingEngine: rules other than the shipped ones, and no egglog to prove them.
        NotEquivalent: what was found computes something else (an error of ours: please report it).
        MissingBackend: the backend is unknown, or, with ``measure``, not installed.
        UnsupportedOperator: the backend that shall time, or the reference that shall check, lacks one of the operators.

    Example:
        >>> from deep500.networks import create
        >>> optimized = optimize_network(create("nasrnn", hidden=8), measure=False)
        >>> len(optimized.network.nodes) < len(optimized.original.nodes)
        True
    """
    network, backend, training = as_network(options.network, options.example), options.backend, options.training
    _check(network, options)
    if options.budget == 0:
        return Optimized.unchanged(network, backend, "the budget is 0: nothing was searched", training)
    if options.measure:
        prepare(backend)
    started = cpu_seconds()
    try:
        matcher = Matcher(load_rules(options.rules, options.unproved), GROWTH)  # proving is nobody's search either
        alone = options.measure and not deployment(backend).compiles
        cost = Measured(backend, options.database, seed=options.seed, fresh=options.fresh_prices) if alone else None
        deadline = Deadline(options.budget, options.progress, options.stop)
        imported = import_network(network, training, options.sizes)
        try:
            deadline.check("the original's answers")
            answers = Answers(imported, options.seed, options.sizes, deadline.check)
            deadline.keep_for_check(answers.seconds)
            deadline.check("the search")
        except OutOfTime as ended:
            return Optimized.unchanged(network, backend, f"{ended}", training, timed_out=True)
        except (*FAILURES, InputError) as error:
            if options.measure and isinstance(error, InputError):
                raise
            reason = f"the check failed: {type(error).__name__}: {error}"
            return Optimized.unchanged(network, backend, reason, training)
        result = _search(imported, matcher, cost, deadline, options)
        return _choose(imported, matcher, result, deadline, answers, options)
    except MemoryError as error:  # both forms do not fit: the one that was given does
        reason = f"memory ended ({error or 'MemoryError'}): the network and a second form of it did not fit"
        return Optimized.unchanged(network, backend, reason, training, seconds=cpu_seconds() - started)


def prepare(backend: str) -> None:
    """Load what is loaded once per process to time networks: that is nobody's search.

    Example:
        >>> prepare("reference")
    """
    deployment(backend).prepare()
    importlib.import_module("scipy.stats")


def _search(
    imported: Imported, matcher: Matcher, cost: Measured | None, deadline: Deadline, options: OptimizeOptions
) -> SearchResult:
    """Search by formula, and then, where there are measured prices, from what was found and from the start by these.

    Where candidates are timed but operators have no prices, since the backend compiles networks, several formulas
    search: what fuses makes one of them right for one network and another for the next.

    The best state by formula is a candidate whatever measured prices of single operators say: prices that lie close
    together are noisy, and candidates are timed from end to end.
    """
    begin = cpu_seconds()
    runs = deployment(options.backend).backend
    by_formula: CostModel = Analytic(runs)

    def searched(cost: CostModel, seconds: float, what: str, starts: Sequence[State] = ()) -> SearchResult:
        def progress(_: float, best: float, first: float, where: str) -> None:
            deadline.tell(f"{what}, {where}", best, first)

        backtracking = Backtracking(
            matcher, cost, seconds, options.alpha, CANDIDATES, progress=progress, stop=options.stop
        )
        return backtracking.run(imported.graph, starts)

    # What is found must be written and checked in time as well; prices by formula alone leave more for the search.
    budget = (SEARCH if options.measure else ALONE) * deadline.left()
    if cost is None and not options.measure:
        return searched(by_formula, budget, "priced by formula")
    every = [by_formula, Analytic(runs, fused=True), Analytic(runs, fused=True, without=("split", "concat"))]
    names = "priced by formula", "priced by formula, fused", "priced by formula, fused and without parts"
    seconds = budget if cost is None else FORMULA * budget
    results = [
        searched(cost_model, part * seconds, what)
        for cost_model, part, what in zip(every, FORMULAS, names, strict=True)
    ]
    # What compilers fuse comes first: compiling takes long, and the last candidates may find no time left.
    quick = _joined([results[1], results[0], results[2]] if cost is None else results, by_formula, results[0])
    if cost is None:
        return quick
    cost.until = begin + budget
    try:
        left = max(cost.until - cpu_seconds(), 0.0)
        result = searched(cost, left, "priced by measuring", quick.best[:1])
    except OutOfTime:
        quick.timed_out = True
        return quick
    known = {state.graph.outputs for state in result.best}
    others = [state for state in quick.best if state.graph.outputs not in known]
    if others:  # one measured state less: what formulas found is there to be different
        result.best = result.best[: CANDIDATES - 1]
    result.best += [dataclasses.replace(state, cost=_price(cost, state.graph)) for state in others[: CANDIDATES - 1]]
    result.priced += quick.priced
    result.refused = quick.refused
    return result


def _joined(results: Sequence[SearchResult], cost: CostModel, result: SearchResult) -> SearchResult:
    """One of the results with the best states of all, those that came first in any of them first."""
    states = dict[Any, State]()
    for place in range(CANDIDATES):
        for partial_result in results:
            for state in partial_result.best[place : place + 1]:
                if state.cost < partial_result.first.cost:
                    states.setdefault(state.graph.outputs, dataclasses.replace(state, cost=cost.total(state.graph)))
    priced, late = (
        sum(partial_result.priced for partial_result in results),
        any(partial_result.timed_out for partial_result in results),
    )
    return dataclasses.replace(result, best=list(states.values())[:CANDIDATES], priced=priced, timed_out=late)


def _folded(imported: Imported, matcher: Matcher, backend: str, seconds: float) -> list[State]:
    """The network with gains in the weights before them; nothing is merged or cut."""
    rules = {way.rule.id: way.rule for way in matcher.directed if way.rule.operators <= FOLDING}
    cost = Analytic(deployment(backend).backend)
    result = Backtracking(Matcher(rules.values(), GROWTH), cost, seconds, keep=1).run(imported.graph)
    return result.best


def _price(cost: CostModel, graph: StoredGraph) -> float:
    """Seconds of a graph; nan where there is no time to measure some of its operators."""
    try:
        return cost.total(graph)
    except OutOfTime:
        return math.nan


def replay_history(network: Network, history: History, rules: Rules = None, unproved: bool = False) -> Network:
    """Rewrite a network as a history says; the same network and rules give the same bytes.

    Raises:
        InputError: the history is of another network.
        DataError: of other rules, or the rule file cannot be read.
        NetworkError: a step does not apply.

    Example:
        >>> from deep500.networks import create
        >>> net = create("nasrnn", hidden=8)
        >>> optimized = optimize_network(net, measure=False)
        >>> replay_history(net, optimized.history) == optimized.network
        True
    """
    history.check(network)
    if history.unchanged:
        return network.copy()
    return export_network(*retrace(network, history, rules, unproved), whole=history.fused)


def retrace(
    network: Network, history: History, rules: Rules = None, unproved: bool = False, became: Moved = None
) -> tuple[Imported, StoredGraph]:
    """A network, imported, and the graph that a history leads to; ``became`` receives what all its values are there."""
    imported = import_network(network, history.training, history.sizes)
    if became is not None:
        became.update((value, value) for value in imported.values.values())
    return imported, replay(imported.graph, history.steps, Matcher(load_rules(rules, unproved)), became)


def _check(network: Network, options: OptimizeOptions) -> None:
    """Raise InputError for options that mean nothing."""
    deployment(options.backend)  # raises, with the nearest name
    sizes, seed, budget, alpha = dict(options.sizes or {}), options.seed, options.budget, options.alpha
    symbols = {
        size for described in named(network).inputs.values() for size in described.shape or () if isinstance(size, str)
    }
    whole = all(isinstance(size, int) and size > 0 for size in sizes.values())
    if not (whole and sizes.keys() <= symbols):
        raise InputError(
            f"got sizes {sizes}; expected whole numbers above 0 for the inputs' symbolic sizes, which are "
            f"{', '.join(sorted(symbols)) or 'none'}: name those"
        )
    if not isinstance(seed, int) or seed < 0:
        raise InputError(f"got seed {seed!r}; expected a whole number, 0 or more: seed=0")
    if not (isinstance(budget, (int, float)) and budget >= 0):
        raise InputError(f"got budget {budget!r}; expected seconds, 0 or more: 0 searches nothing")
    if not (isinstance(alpha, (int, float)) and alpha >= 1):
        raise InputError(f"got alpha {alpha!r}; expected 1 or more: 1 only descends, 1.05 crosses small hills")


def _choose(
    imported: Imported,
    matcher: Matcher,
    result: SearchResult,
    deadline: Deadline,
    answers: Answers,
    options: OptimizeOptions,
) -> Optimized:
    """Write and check the candidates, time them, and take the fastest; or leave the network as it was."""
    network, backend, measure = imported.network, options.backend, options.measure
    sizes, seed = options.sizes or {}, options.seed
    searched: dict[str, Any] = {
        "seconds": deadline.spent(),
        "before": result.first.cost,
        "timed_out": result.timed_out,
        "priced": result.priced,
        "refused": tuple(dict.fromkeys(result.refused)),
    }
    candidates, place = _candidates(imported, matcher, result, options), deployment(backend)
    failed: dict[str, str] = {}
    timed: Remeasured | None = None
    written: dict[str, tuple[Imported, StoredGraph, Network]] = {}
    order = [name for name, state in candidates.items() if state.cost < result.first.cost]
    if measure:
        written = _write_in_time(imported, candidates, matcher, deadline, failed)
        networks = {name: written_one[2] for name, written_one in written.items()}
        compare = partial(remeasure, sizes={**imported.sizes, **sizes}, seed=seed, clock=place.clock())
        timed, order = fastest(network, networks, backend, compare, deadline, failed)
        deadline.extend(GRACE * deadline.budget)
    for name in order:
        kernels = place.backend if candidates[name].fused else ""
        written_one = written.get(name) or _try(failed, name, partial(_written, imported, candidates[name], matcher))
        check = written_one and _try(
            failed, name, partial(check_equivalent, *written_one, seed, sizes, answers, deadline.check, kernels)
        )
        if written_one and check:
            return Optimized(
                network,
                written_one[2],
                backend,
                History.from_search(imported, candidates[name], matcher.unproved),
                after=candidates[name].cost,
                measured=timed,
                chosen=name,
                equivalence=check,
                reason=_failures(failed),
                **searched,
            )
    reason = "; ".join(filter(None, ("nothing faster was found", _failures(failed))))
    return Optimized.unchanged(network, backend, reason, imported.training, measured=timed, **searched)


def _candidates(
    imported: Imported, matcher: Matcher, result: SearchResult, options: OptimizeOptions
) -> dict[str, State]:
    """States to be written and timed, the likeliest first; none where a search that found nothing took all the time."""
    place, network = deployment(options.backend), imported.network
    better = [state for state in result.best if options.measure or state.cost <= result.first.cost]
    changed = [state for state in better if state.graph.outputs != result.first.graph.outputs]
    whole = options.measure and place.whole and not imported.training and fused(network) is not network
    if not changed and result.timed_out and not whole:
        return {}
    # With its constants folded, or just written anew, biases and all, a network may be faster than with what was found.
    plain = _folded(imported, matcher, options.backend, FOLDING_SECONDS) if options.measure else []
    attention = [dataclasses.replace(state, fused=True) for state in (*changed[:1], result.first) if whole]
    states = [*changed[:1], *attention, *plain, *changed[1:], result.first]
    every = {(state.graph.outputs, state.fused): state for state in states}
    return {f"candidate {n}": state for n, state in enumerate(every.values(), 1)}


def _write_in_time(
    imported: Imported, candidates: Mapping[str, State], matcher: Matcher, deadline: Deadline, failed: dict[str, str]
) -> dict[str, tuple[Imported, StoredGraph, Network]]:
    """Candidates as networks, the cheapest first, as long as the next would leave time for the check."""
    written: dict[str, tuple[Imported, StoredGraph, Network]] = {}
    longest = 0.0
    for name, state in candidates.items():
        begin = deadline.spent()
        if longest * (1 + 1 / WRITING) > deadline.left() or (written and deadline.left() <= 0):
            break
        deadline.tell(f"writing {name}")
        candidate = _try(failed, name, partial(_written, imported, state, matcher))
        written.update({name: candidate} if candidate else {})
        longest = max(longest, deadline.spent() - begin)
    return written


def _try(failed: dict[str, str], name: str, action: Callable[[], _T]) -> _T | None:
    """Do something for a candidate; what goes wrong is noted, and ends this candidate only."""
    try:
        return action()
    except (*FAILURES, OutOfTime) as error:
        failed[name] = f"{type(error).__name__}: {error}"
        return None


def _failures(failed: Mapping[str, str]) -> str:
    return "; ".join(f"{name} failed: {text}" for name, text in failed.items())


def _written(imported: Imported, state: State, matcher: Matcher) -> tuple[Imported, StoredGraph, Network]:
    """A state's graph and network over a store of their own, from the history alone: a replay gives the same bytes."""
    again = import_network(imported.network, imported.training, imported.sizes)
    graph = replay(again.graph, state.history, matcher)
    return again, graph, export_network(again, graph, whole=state.fused)
