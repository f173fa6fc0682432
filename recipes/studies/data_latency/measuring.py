"""Loaders in processes of their own, asked in turns, and the statistics of what they answer."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from deep500.compare.processes import Process
from deep500.measure.machine import usable_cores
from deep500.measure.quantiles import Estimate, quantile
from deep500.measure.statistics import Interval, median_interval, paired_ratio
from recipes.studies.data_latency.systems import LOADERS, reason

OURS = "deep500"
CONTROL = "deep500 again"


@dataclass(frozen=True)
class LatencyCase:
    """Measured at once by all loaders, in turns."""

    storage: str
    decoder: str
    augment: bool

    def __str__(self) -> str:
        decoder = "" if self.storage in ("raw", "HDF5") else f", {self.decoder}"
        return f"{self.storage}{decoder}{', augmented' if self.augment else ''}"


@dataclass
class LoaderResult:
    """Numbers of one loader in one case with one number of workers.

    Attributes:
        missing: why nothing was measured; empty if it was.
        first, cold: seconds until the first batch, opening included; with the files dropped from the cache before.
        median, p99: seconds between batches.
        rate: images per second and core, of as many cores as there are workers, one at least.
        cpu: CPU seconds of all processes per 1,000 images.
        peak, before: bytes of all processes in an epoch, and before it.
        deterministic: the same pixels in the same order with every number of workers.
        resumable: whether it went on in mid-epoch exactly.
        ratio: CPU time per image of Deep500 over this loader's, in pairs.
        wrong: a sample that is lost or doubled, or other pixels than Deep500's.
    """

    case: LatencyCase
    workers: int
    system: str
    missing: str = ""
    first: Interval | None = None
    cold: Interval | None = None
    median: Estimate | None = None
    p99: Estimate | None = None
    rate: Interval | None = None
    cpu: Interval | None = None
    peak: int | None = None
    before: int | None = None
    deterministic: bool | None = None
    resumable: bool | None = None
    ratio: Interval | None = None
    wrong: str = ""


@dataclass(frozen=True)
class LatencySettings:
    """How much is measured.

    Attributes:
        rounds: epochs of every loader; from six on with intervals.
        batch, size, count: of the pictures.
        workers: numbers of them.
        systems: loaders.
    """

    folder: Path
    rounds: int
    batch: int
    size: int
    count: int
    workers: Sequence[int] = (0, 1, 2)
    systems: Sequence[str] = tuple(LOADERS)
    seed: int = 0


@dataclass
class LatencyStudy:
    """Asks the loaders; holds their processes until it is closed.

    Attributes:
        results: so far.
        control: CPU time of Deep500 over that of itself in the same rounds, by case and workers.
    """

    settings: LatencySettings
    results: list[LoaderResult] = field(default_factory=list)
    control: dict[tuple[LatencyCase, int], Interval] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._stack = ExitStack()
        self._processes: dict[str, Process] = {}
        self._turns = np.random.default_rng(self.settings.seed)

    def __enter__(self) -> LatencyStudy:
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def _process(self, system: str) -> Process:
        if system not in self._processes:
            process = Process(system, threads=1, cores=usable_cores(), module="recipes.studies.data_latency.worker")
            self._processes[system] = self._stack.enter_context(process)
        return self._processes[system]

    def run(self, case: LatencyCase) -> None:
        """Measure a case with every number of workers."""
        reasons = {system: reason(system, case.storage, case.decoder) for system in self.settings.systems}
        running = [system for system, why in reasons.items() if not why]
        for system, why in reasons.items():
            if why:
                self.results.append(LoaderResult(case, 0, system, why))
        orders: dict[str, list[list[str]]] = {system: [] for system in running}
        measured: dict[str, list[LoaderResult]] = {system: [] for system in running}
        for workers in self.settings.workers if running else ():
            for result in self._with(case, workers, running, orders):
                measured[result.system].append(result)
        for system in running:
            same = all(order == orders[system][0] for order in orders[system])
            for result in measured[system]:
                result.deterministic = same if len(orders[system]) > 1 else None
            self.results += measured[system]

    def _with(
        self, case: LatencyCase, workers: int, systems: Sequence[str], orders: dict[str, list[list[str]]]
    ) -> Iterator[LoaderResult]:
        settings = self.settings
        job = {"storage": case.storage, "decoder": case.decoder, "augment": case.augment, "workers": workers}
        job |= {"folder": str(settings.folder), "size": settings.size, "batch": settings.batch}
        results = {system: LoaderResult(case, workers, system) for system in systems}
        for system, result in results.items():
            self._process(system).ask("open", system=system, **job)
            self._check(result, orders)
        self._compare(case, results, {system: orders[system][-1] for system in systems})
        firsts = {system: {cold: [self._first(system, cold)] for cold in (False, True)} for system in systems}
        for _, cold in itertools.product(range(1, settings.rounds), (False, True)):
            for system in self._turns.permutation(systems):
                firsts[system][cold].append(self._first(system, cold))
        for system, result in results.items():
            memory = self._process(system).ask("memory")
            result.peak, result.before = memory["peak"], memory["before"]
            seconds, dropped = zip(*firsts[system][False], strict=True)
            result.first = median_interval(seconds)
            seconds, dropped = zip(*firsts[system][True], strict=True)
            result.cold = median_interval(seconds) if all(dropped) else None
        self._epochs(case, workers, results)
        yield from results.values()

    def _first(self, system: str, cold: bool) -> tuple[float, bool]:
        answer = self._process(system).ask("first", cold=cold)
        return answer["seconds"], answer["dropped"]

    def _check(self, result: LoaderResult, orders: dict[str, list[list[str]]]) -> None:
        """Ask for a digest of every picture; what is lost or doubled is wrong."""
        process, count = self._process(result.system), self.settings.count
        digests: list[str] = process.ask("digests")["digests"]
        orders[result.system].append(digests)
        if len(digests) != count or (not result.case.augment and len(set(digests)) != count):
            result.wrong = f"{len(digests)} samples, {len(set(digests))} different ones, of {count}"
        after = max(1, count // self.settings.batch // 2)
        rest = process.ask("resume", after=after)["digests"]
        result.resumable = rest is not None and rest == digests[after * self.settings.batch :]

    @staticmethod
    def _compare(case: LatencyCase, results: Mapping[str, LoaderResult], delivered: Mapping[str, list[str]]) -> None:
        """Without augmentation all loaders deliver the same pixels, bit for bit."""
        if case.augment or OURS not in delivered:
            return
        for system, digests in delivered.items():
            if set(digests) != set(delivered[OURS]):
                apart = len(set(digests) - set(delivered[OURS]))
                results[system].wrong = results[system].wrong or f"{apart} samples with other pixels than {OURS}"

    def _epochs(self, case: LatencyCase, workers: int, results: Mapping[str, LoaderResult]) -> None:
        turns = [*results, CONTROL] if OURS in results else [*results]
        epochs: dict[str, list[dict[str, Any]]] = {name: [] for name in turns}
        for _ in range(self.settings.rounds):
            for name in self._turns.permutation(turns):
                epochs[name].append(self._process(OURS if name == CONTROL else name).ask("epoch"))
        cpu = {name: [1e3 * epoch["cpu"] / epoch["images"] for epoch in epochs[name]] for name in turns}
        if CONTROL in cpu:
            self.control[case, workers] = paired_ratio(cpu[OURS], cpu[CONTROL])
        cores = min(max(1, workers), usable_cores())
        for system, result in results.items():
            seconds = [duration for epoch in epochs[system] for duration in epoch["batches"]]
            result.median, result.p99 = quantile(seconds), quantile(seconds, 0.99)
            result.rate = median_interval([epoch["images"] / epoch["seconds"] / cores for epoch in epochs[system]])
            result.cpu = median_interval(cpu[system])
            if OURS in cpu and system != OURS:
                result.ratio = paired_ratio(cpu[OURS], cpu[system])
