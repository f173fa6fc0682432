"""`Measured`: prices that a backend's own executor was timed to take on this machine, kept in a database."""

from __future__ import annotations

import os
from typing import Any

import numpy as np

from deep500.errors import InputError, UnsupportedOperator
from deep500.measure.machine import threads_to_use
from deep500.measure.pairs import compare_functions
from deep500.transformations.substitutions.cost.analytic import traffic
from deep500.transformations.substitutions.cost.clock import cpu_seconds
from deep500.transformations.substitutions.cost.database import (
    Database,
    Place,
    PriceRow,
    backend_version,
    machine_hash,
    now,
)
from deep500.transformations.substitutions.cost.model import CostModel, OutOfTime
from deep500.transformations.substitutions.cost.timing import (
    REPEATS,
    RESOLUTION,
    Margins,
    Runner,
    Slope,
    mad,
    margins,
    rounds_within,
    slope,
    typical,
)
from deep500.transformations.substitutions.graph.store import StoredGraph
from deep500.transformations.substitutions.graph.units import Unit
from deep500.transformations.substitutions.graph.writing import unit_network

BIASED = {"conv+bias": "conv", "gemm": "gemm"}
"""Units that may take in a bias, and what they are without it."""
DOUBT = 0.25
"""A price whose rounds deviate by more than this part of it is measured again by the next search that needs it."""
FEED, FETCH = "an input", "an output"
"""Under what a database holds `Margins`."""


class Measured(CostModel):
    """Prices by measurement: what one more copy of a unit adds to a network of such copies on the backend.

    A unit is measured when a search first meets it and is looked up from then on, in other processes too. What a
    backend's compiler does across units (fusion, layouts) is in no price: compare the best candidates end to end with
    `remeasure`. A unit that the backend cannot run costs infinitely much, so that no search chooses it; `unrunnable`
    says why.

    Attributes:
        place: where the prices hold: backend, version, machine, device, threads.
        measured: units measured by this object; the others came from the database.
        seconds: time spent on that.
        unrunnable: unit's key -> the backend's words.
        until: the time, of `cpu_seconds`, after which nothing more is measured; no limit if None.

    Args:
        backend: name of a backend.
        database: a file; the user's own if None, ``":memory:"`` for none.
        threads: of this process; ``OMP_NUM_THREADS``, else the usable cores. Threads are set when a process starts, so
            another number is an error.
        seed: of inputs and of the order of measurements.
        device: as executors take it.
        fresh: measure anew whatever is known, and store it.
        limit: seconds to measure a unit for, beside what it takes to compile; three times as much on a busy machine.

    Raises:
        MissingBackend: the backend is not installed.
        CacheError: the database cannot be used.
        InputError: ``threads`` is not what this process runs with, or ``limit`` is not positive.

    Example:
        >>> import numpy as np
        >>> from deep500.transformations.substitutions.graph.store import Store
        >>> store = Store()
        >>> x, w = store.input("x", (64, 256), "float32"), store.constant(np.ones((256, 256), "float32"))
        >>> y, = store.add("matmul", x, w)
        >>> cost = Measured("reference", ":memory:", limit=0.02)
        >>> cost.total(StoredGraph(store, (y,))) > 0, cost.measured
        (True, 1)
    """

    def __init__(
        self,
        backend: str = "reference",
        database: str | os.PathLike[str] | None = None,
        threads: int | None = None,
        seed: int = 0,
        device: Any = None,
        limit: float = 0.05,
        fresh: bool = False,
    ) -> None:
        super().__init__()
        running = threads_to_use()
        if threads not in (None, running) or not limit > 0:
            raise InputError(
                f"got threads={threads} and limit={limit} in a process of {running} threads; expected that number and "
                f"a positive limit: start the process with OMP_NUM_THREADS={threads}"
            )
        self.backend, self.seed, self.limit = backend, seed, limit
        self._run = Runner(backend, device, seed)
        version = backend_version(self._run.deployment.backend)
        self.place = Place(backend, version, machine_hash(), str(self._run.ran_on(device)), running)
        self.database = Database(database)
        known = self.database.load(self.place)
        # A price that was taken on a busy machine says so by its spread. It is measured again when it is asked for, and
        # the quieter one of the two stays.
        self._rows = {} if fresh else {key: row for key, row in known.items() if not doubtful(row)}
        self._doubted, self.fresh = {} if fresh else {k: r for k, r in known.items() if doubtful(r)}, fresh
        self.measured, self.seconds = 0, 0.0
        self.unrunnable: dict[str, str] = {}
        self.until: float | None = None

    def price(self, graph: StoredGraph, unit: Unit) -> float:
        """The stored price, else the measured one, which is stored.

        Raises:
            OutOfTime: it is not stored, and it is too late to measure.
        """
        key = repr(unit.key(graph))
        if key not in self._rows:
            begin = cpu_seconds()
            if self.until is not None and begin > self.until:
                if key in self._doubted:
                    return self._doubted[key].seconds
                raise OutOfTime(f"got no price of {unit.kind}; expected one within the budget; raise it")
            try:
                measured = self._measure(graph, unit)
            except UnsupportedOperator as error:
                self.unrunnable[key] = str(error)
                return float("inf")
            finally:
                self.measured += 1
                self.seconds += cpu_seconds() - begin
            row = PriceRow(measured.seconds, measured.mad, measured.rounds, now())
            self._rows[key] = self._store(key, row)
        return self._rows[key].seconds

    def _store(self, key: str, row: PriceRow) -> PriceRow:
        """Keep a price: the new one in place of a doubtful one that is no quieter, or of any with ``fresh``."""
        before = self._doubted.pop(key, None)
        if before is not None and before.mad / max(before.seconds, RESOLUTION) < row.mad / max(row.seconds, RESOLUTION):
            return before
        return self.database.add(self.place, key, row, replace=self.fresh or before is not None)

    def _measure(self, graph: StoredGraph, unit: Unit) -> Slope:
        """Seconds of a unit without what feeding it and returning its results takes."""
        if unit.kind in BIASED and len(unit.inputs) == 3:
            return self._with_bias(graph, unit)
        margins = self._own_margins()
        size = traffic(graph, unit)
        measured = slope(lambda copies: self._run(unit_network(graph, unit, copies)), self.limit, size, self.seed)
        store = graph.store
        fed = sum(not store.node(value).constant for value in dict.fromkeys(unit.inputs))
        margin = fed * margins.feed + len(unit.outputs) * margins.fetch
        return Slope(max(measured.seconds - margin, 0.0), measured.mad, measured.rounds)

    def _with_bias(self, graph: StoredGraph, unit: Unit) -> Slope:
        """A product's price, and what its bias adds side by side with it: the difference of two prices is noise."""
        base = Unit(BIASED[unit.kind], unit.nodes, unit.inputs[:2], unit.outputs, unit.settings)
        functions = {name: self._run(unit_network(graph, part)) for name, part in (("with", unit), ("without", base))}
        rounds = rounds_within(self.limit, 3 * typical(functions["with"]))
        samples = compare_functions(functions, rounds, seed=self.seed, warm_up=1).samples
        added = samples["with"] - samples["without"]
        fed = 0 if graph.store.node(unit.inputs[2]).constant else self._own_margins().feed
        return Slope(self.unit(graph, base) + max(float(np.median(added)) - fed, 0.0), mad(added), rounds)

    def _own_margins(self) -> Margins:
        """Seconds that this executor takes per input and output: stored like prices, of which they are a part."""
        if not {FEED, FETCH} <= self._rows.keys():
            measured = margins(self._run, self.limit)
            for key, seconds in ((FEED, measured.feed), (FETCH, measured.fetch)):
                self._rows[key] = self._store(key, PriceRow(seconds, 0.0, REPEATS, now()))
        return Margins(self._rows[FEED].seconds, self._rows[FETCH].seconds)


def doubtful(row: PriceRow) -> bool:
    """Return whether a price was measured while the machine was busy, as far as its spread tells.

    Example:
        >>> doubtful(PriceRow(1e-3, 1e-6, 30, "")), doubtful(PriceRow(1e-3, 5e-4, 30, ""))
        (False, True)
    """
    return row.mad > max(DOUBT * row.seconds, 5 * RESOLUTION)
