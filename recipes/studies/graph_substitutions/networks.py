"""E2: whole networks as they are and after our substitutions, beside what backends optimise themselves."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

import deep500 as d5
from deep500.measure.comparison import FASTER, SLOWER
from deep500.measure.statistics import Interval, median_interval
from deep500.networks import Network
from deep500.transformations.workshop.substitutions.experiments import table
from recipes.studies.graph_substitutions.published import SEARCH, V100
from recipes.studies.graph_substitutions.settings import Settings
from recipes.studies.graph_substitutions.subjects import SEVEN, SUBJECTS
from recipes.studies.graph_substitutions.timing import CompiledRunner, Timed, difference, in_turns

ORIGINAL, OURS = "original", "ours"
LEVELS = ("disabled", "basic")
"""Optimization levels of ONNX Runtime besides ``"all"``, its default, which ``original`` and ``ours`` run at."""
WRONG = 1e-3
"""Answers of float32 that differ by more, of the largest element, are wrong."""
NOT_MEASURED = "not measured"
OPPOSITE = {FASTER: SLOWER, SLOWER: FASTER}


@dataclass(frozen=True)
class Row:
    """One network in one backend.

    Attributes:
        name, backend: which.
        nodes: of the original and of ours.
        seconds: of the search.
        timed_out: whether the search used up its budget.
        steps: substitutions in the history of the result; 0 where the original stayed.
        reason: why it stayed.
        predicted: seconds before and after by the cost model, opaque operators excluded; None: nothing was searched.
        timed: the variants timed in turns; None after a failure.
        difference: largest difference of a variant's answer from the original's, over the largest element.
        absent: variant -> why it was not measured.
        failure: why there are no figures at all.
    """

    name: str
    backend: str
    nodes: tuple[int, int] = (0, 0)
    seconds: float = 0.0
    timed_out: bool = False
    steps: int = 0
    reason: str = ""
    predicted: tuple[float | None, float | None] = (None, None)
    timed: Timed | None = None
    difference: float = 0.0
    absent: Mapping[str, str] = field(default_factory=dict)
    failure: str = ""

    @property
    def wrong(self) -> str:
        """Say what is wrong with it; empty if nothing is."""
        if self.failure:
            return f"{self.name} in {self.backend}: {self.failure}"
        if not self.difference <= WRONG:
            return f"{self.name} in {self.backend}: answers differ by {self.difference:.1e}"
        return ""

    def as_json(self) -> dict[str, Any]:
        """Everything, samples too."""
        known = dict(vars(self), timed=None if self.timed is None else self.timed.as_json(), absent=dict(self.absent))
        published = SEARCH.get(self.name)
        return known | {"published_search": None if published is None else published._asdict()}


def measure(name: str, backend: str, settings: Settings) -> Row:
    """Optimise one network for one backend and time the result."""
    network = SUBJECTS[name].network(settings.quick, settings.seed)
    try:
        optimized = d5.optimize_network(network, backend=backend, **settings.search)
        runners, absent = _runners(name, network, optimized.network, backend, settings)
        answers = [runner.outputs() for runner in runners.values()]
        apart = max(difference(answer, answers[0]) for answer in answers)
        timed = in_turns(runners, settings.seconds, settings.clock, settings.seed)
    except Exception as error:  # noqa: BLE001  # each framework has its own; one network must not end the others
        return Row(name, backend, failure=line(error))
    history = optimized.history
    steps = len(history.steps)
    nodes = len(network.nodes), len(optimized.network.nodes)
    return Row(
        name,
        backend,
        nodes,
        optimized.seconds,
        optimized.timed_out,
        steps,
        optimized.reason,
        (optimized.before, optimized.after),
        timed,
        apart,
        absent,
    )


def _runners(
    which: str, original: Network, ours: Network, backend: str, settings: Settings
) -> tuple[dict[str, CompiledRunner], dict[str, str]]:
    """All variants of a backend, and why those are absent that are."""
    both = {ORIGINAL: original, OURS: ours}
    runners = {name: CompiledRunner(network, backend, settings.seed) for name, network in both.items()}
    absent: dict[str, str] = {}
    if backend == "onnxruntime":
        runners |= {
            f"{name}, {level}": CompiledRunner(network, backend, settings.seed, optimization=level)
            for level in LEVELS
            for name, network in both.items()
        }
    if backend == "pytorch":
        for name, network in both.items():
            if which not in settings.compiled:
                absent[f"{name}, compiled"] = NOT_MEASURED
                continue
            try:
                runner = CompiledRunner(network, backend, settings.seed, compile=True)
                runner()  # compiles now
                runners[f"{name}, compiled"] = runner
            except Exception as error:  # noqa: BLE001  # no compiler, or one that fails
                absent[f"{name}, compiled"] = line(error)
    return runners, absent


def line(error: Exception) -> str:
    """An error in one line."""
    return f"{type(error).__name__}: {str(error).strip().partition(chr(10))[0][:160]}"


def gain(row: Row, variant: str = OURS) -> str:
    """Time of the original over that of a variant, with its interval."""
    if row.timed is None or variant not in row.timed.gains:
        return NOT_MEASURED
    return cell(row.timed.gains[variant].ratio)


def cell(value: Interval, factor: float = 1.0) -> str:
    """A median with its interval."""
    ends = "" if value.low is None or value.high is None else f" [{factor * value.low:.3g}, {factor * value.high:.3g}]"
    return f"{factor * value.median:.3g}{ends}"


def word(row: Row) -> str:
    """Say what ours is, compared with the original."""
    assert row.timed is not None
    verdict = row.timed.gains[OURS].verdict
    return OPPOSITE.get(verdict, verdict)


def mean_gain(rows: Sequence[Row]) -> Interval | None:
    """Geometric mean of the gains over networks: of every round, then their median with its interval."""
    logs = [np.log(r.timed.samples[ORIGINAL]) - np.log(r.timed.samples[OURS]) for r in rows if r.timed is not None]
    if not logs:
        return None
    rounds = min(map(len, logs))
    return median_interval(np.exp(np.mean([gains[:rounds] for gains in logs], axis=0)))


@dataclass(frozen=True)
class Networks:
    """E2: all rows, with the settings that they were measured at."""

    rows: Sequence[Row]
    settings: Settings

    @property
    def wrong(self) -> list[str]:
        """Networks that failed or answer differently."""
        return [row.wrong for row in self.rows if row.wrong]

    def as_json(self) -> dict[str, Any]:
        """Rows and means."""
        means = {backend: None if (mean := mean_gain(rows)) is None else list(mean) for backend, rows in self._seven()}
        return {"rows": [row.as_json() for row in self.rows], "geometric_mean": means, "published_v100_ms": V100}

    def _backends(self) -> list[tuple[str, list[Row]]]:
        names = dict.fromkeys(row.backend for row in self.rows)
        return [(name, [row for row in self.rows if row.backend == name]) for name in names]

    def _seven(self) -> list[tuple[str, list[Row]]]:
        return [(name, [row for row in rows if row.name in SEVEN]) for name, rows in self._backends()]

    def __str__(self) -> str:
        parts = [_table(backend, rows) for backend, rows in self._backends()]
        parts += [
            _variants(backend, rows) for backend, rows in self._backends() if backend in ("onnxruntime", "pytorch")
        ]
        for backend, rows in self._seven():
            mean = mean_gain(rows)
            measured = sum(row.timed is not None for row in rows)
            gain = NOT_MEASURED if mean is None else cell(mean)
            parts.append(
                f"geometric mean of original/ours in {backend} over {measured} of the {len(SEVEN)} networks: {gain}"
            )
        names = dict.fromkeys(row.name for row in self.rows)
        parts.append("\n".join(f"{name}: {SUBJECTS[name].note}" for name in names))
        return "\n\n".join([*parts, _published()])


def _table(backend: str, rows: Sequence[Row]) -> str:
    head = (
        f"E2, {backend}",
        "nodes",
        "steps",
        "original ms",
        "ours ms",
        "original/ours",
        "ours is",
        "differ by",
        "search s",
        "TASO s",
        "Tensat s",
    )
    cells: list[tuple[object, ...]] = []
    for row in rows:
        if row.timed is None:
            cells.append((row.name, "failed", *[""] * (len(head) - 2)))
            continue
        known = SEARCH.get(row.name)
        published = (NOT_MEASURED, NOT_MEASURED) if known is None else (known.taso_seconds, known.tensat_seconds)
        search = f"{row.seconds:.1f}" + (" (budget)" if row.timed_out else "")
        times = [cell(row.timed.seconds[which], 1e3) for which in (ORIGINAL, OURS)]
        nodes = f"{row.nodes[0]} -> {row.nodes[1]}"
        cells.append(
            (row.name, nodes, row.steps, *times, gain(row), word(row), f"{row.difference:.0e}", search, *published)
        )
    return table(head, cells)


def _variants(backend: str, rows: Sequence[Row]) -> str:
    names = dict.fromkeys(name for row in rows if row.timed is not None for name in (*row.timed.gains, *row.absent))
    head = (f"E2, {backend}: time of original over that of", *names)
    what = {
        "onnxruntime": "original and ours run with all of ONNX Runtime's own optimizations, the others with fewer",
        "pytorch": "compiled: by torch.compile",
    }[backend]
    cells = [(row.name, *(row.absent.get(name) or gain(row, name) for name in names)) for row in rows if row.timed]
    return f"{table(head, cells)}\n{what}"


def _published() -> str:
    head = ("published, NVIDIA V100, batch 1, ms: context only", "TensorFlow", "XLA", "TensorRT", "TASO")
    return table(head, [(name, *figures.values()) for name, figures in V100.items()])
