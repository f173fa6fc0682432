"""Costs of a language model as it writes: time to the first token, time for each further one, tokens a second.

A query is a prompt that is read at once (prefill) and a number of tokens that are written one by one (decode), each the
likeliest; a ``causal_transformer`` keeps the keys and values of what it has read. Prompts are the beginnings of the
validation texts.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from deep500.errors import InputError
from deep500.measure.quantiles import quantile
from deep500.measure.scenarios import Served, offline, server, single_stream
from deep500.measure.standing import worth_needed
from deep500.metrics.base import Direction, Kind, ProbingMetric
from deep500.metrics.latency import WARM_UP, _percentile, _report

PARTS = ("first_token", "next_token", "answer")


class _Answers:
    """Answers queries, and keeps the nanoseconds to each first token and between tokens."""

    def __init__(self, reader: Any, prompts: np.ndarray, new: int, clock: Callable[[], int]) -> None:
        self.reader, self.prompts, self.new, self.clock = reader, prompts, new, clock
        self.firsts: list[int] = []
        self.nexts: list[int] = []

    def __call__(self, _: int) -> None:
        self.reader.forget()
        tokens, begin = self.prompts, self.clock()
        for place in range(self.new):
            tokens = np.concatenate([tokens, self.reader.scores(tokens).argmax(axis=1)[:, None]], axis=1)
            now = self.clock()
            (self.nexts if place else self.firsts).append(now - begin)
            begin = now

    def warmed(self) -> _Answers:
        """After some queries that do not count."""
        for _ in range(WARM_UP):
            self(1)
        self.firsts, self.nexts = [], []
        return self

    def decoding(self) -> np.ndarray:
        """Seconds from the first token of each query to its last."""
        return np.reshape(self.nexts, (len(self.firsts), self.new - 1)).sum(axis=1) / 1e9


class _Generation(ProbingMetric):
    """A metric that lets the trained language model write."""

    direction: Direction = "lower"
    kind: Kind = "cost"

    def __init__(self, prompt: int, new: int, batch: int, clock: Callable[[], int]) -> None:
        if min(prompt, new - 1, batch) < 1:
            raise InputError(
                f"got prompt={prompt}, new={new}, batch={batch}; expected at least 1, 2 and 1: give larger numbers"
            )
        self.prompt, self.new, self.batch, self._clock = prompt, new, batch, clock

    def writer(self) -> _Answers | None:
        """Answers queries of this metric's size; None, and a reason, where the network cannot write so much."""
        batch = self.first(self.batch) if self.ready() else None
        if batch is None:
            return None
        if not hasattr(self.run.trainer.task, "open_reader"):
            self.reason = f"the task {self.run.trainer.task.name!r} writes no text: use it with language_modelling"
            return None
        tokens = np.asarray(batch.get("input", np.zeros(0)))
        if tokens.ndim != 2 or tokens.dtype.kind != "i" or tokens.shape[1] < self.prompt + self.new:
            self.reason = (
                f"the network reads {tokens.dtype}{list(tokens.shape)}, not texts of {self.prompt} + {self.new} tokens"
            )
            return None
        reader = self.run.trainer.task.open_reader(self.run.executor, tokens.shape[1])
        return _Answers(reader, tokens[:, : self.prompt].astype(np.int64), self.new, self._clock).warmed()


class GenerationLatency(_Generation):
    """A percentile of the time to the first token of an answer, to each further one, or to the last, one query at a
    time.

    Args:
        part: ``"first_token"`` (prefill), ``"next_token"`` (decode) or ``"answer"`` (both).
        q: which percentile.
        prompt, new: tokens that are read and written in each query.
        queries: how many; what the percentile's interval needs and half as many again by default.
        clock: nanoseconds.

    Raises:
        InputError: an unknown part, or a number out of range.
    """

    unit = "s"

    def __init__(
        self,
        part: str = "first_token",
        q: float = 0.9,
        prompt: int = 32,
        new: int = 32,
        queries: int | None = None,
        clock: Callable[[], int] = time.perf_counter_ns,
    ) -> None:
        if part not in PARTS:
            raise InputError(f"got part {part!r}; expected one of {', '.join(PARTS)}: choose one")
        super().__init__(prompt, new, 1, clock)
        self.part, self.q = part, _percentile(q)
        self.queries = math.ceil(1.5 * worth_needed(self.q)) if queries is None else queries
        self.name = f"{part}_p{100 * q:g}"

    def measure(self, statistics: Any) -> float | None:
        """The percentile; ``details`` has its interval and tokens a second."""
        writer = self.writer()
        if writer is None:
            return None
        served = single_stream(writer, self.queries, self._clock)
        times = {"first_token": writer.firsts, "next_token": writer.nexts}.get(self.part)
        seconds = served.latencies if times is None else np.asarray(times) / 1e9
        value, self.details, self.reason = _report(quantile(seconds, self.q, 0.95))
        self.details["tokens_per_second"] = served.throughput * self.new
        return value


class GenerationRate(_Generation):
    """Tokens a second that are written when many prompts are there at once: the offline scenario.

    Args:
        batch: prompts that are answered together.
        prompt, new: tokens that are read and written for each.
        repeats: batches.
        clock: nanoseconds.
    """

    unit = "tokens/s"
    direction = "higher"
    kind = "rate"

    def __init__(
        self,
        batch: int = 8,
        prompt: int = 32,
        new: int = 32,
        repeats: int = 8,
        clock: Callable[[], int] = time.perf_counter_ns,
    ) -> None:
        super().__init__(prompt, new, batch, clock)
        self.repeats, self.name = repeats, f"generation_rate_{batch}"

    def measure(self, statistics: Any) -> float | None:
        """The rate."""
        writer = self.writer()
        if writer is None:
            return None
        served = offline(writer, self.repeats * self.batch, self.batch, self._clock)
        self.details = {"answers": served.samples, "seconds": served.seconds, "batch": self.batch}
        return served.throughput * self.new


class GenerationUnderLoad(_Generation):
    """A percentile of the time to an answer's last token where queries arrive at random: the server scenario.

    It is measured at several shares of the rate that one query after the other reaches; the value is that at the
    largest share, and the report shows the curve, with the time to the first token, which grows as queries wait.

    Args:
        q: which percentile.
        prompt, new: tokens that are read and written in each query.
        shares: of the rate of one query after the other, in rising order, below 1.
        queries: at each share.
        seed: of the arrivals.
        clock, sleep: of the machine.

    Raises:
        InputError: a number out of range.
    """

    unit = "s"

    def __init__(
        self,
        q: float = 0.9,
        prompt: int = 32,
        new: int = 32,
        shares: Sequence[float] = (0.2, 0.4, 0.6, 0.8),
        queries: int = 100,
        seed: int = 0,
        clock: Callable[[], int] = time.perf_counter_ns,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        super().__init__(prompt, new, 1, clock)
        if not shares or list(shares) != sorted(shares) or not (0 < shares[0] and shares[-1] < 1) or queries < 1:
            raise InputError(
                f"got shares={shares}, queries={queries}; expected shares between 0 and 1 in rising order, and a query"
            )
        self.q, self.shares, self.queries, self.seed = _percentile(q), tuple(shares), queries, seed
        self._sleep, self.name = sleep, f"answer_under_load_p{100 * q:g}"
        self.exhibits: list[dict[str, Any]] = []

    def measure(self, statistics: Any) -> float | None:
        """The percentile at the largest share; ``details`` has the rates."""
        self.exhibits = []
        writer = self.writer()
        if writer is None:
            return None
        alone = single_stream(writer, max(10, self.queries // 5), self._clock).throughput
        rates = [share * alone for share in self.shares]
        whole, first = [], []
        for rate in rates:
            writer.firsts, writer.nexts = [], []
            served = server(writer, self.queries, rate, self.seed, self._clock, self._sleep)
            whole.append(served)
            first.append(served.latencies - writer.decoding())
        self.exhibits = [self._curve(rates, whole, first)]
        value, self.details, self.reason = _report(whole[-1].percentile(self.q))
        self.details |= {"rate": rates[-1], "rate_alone": alone, "tokens_per_second": whole[-1].throughput * self.new}
        return value

    def _curve(self, rates: Sequence[float], whole: Sequence[Served], first: Sequence[np.ndarray]) -> dict[str, Any]:
        percentile = f"p{100 * self.q:g}"
        lines = {
            "last token, median": [1e3 * float(np.median(served.latencies)) for served in whole],
            f"last token, {percentile}": [1e3 * float(np.quantile(served.latencies, self.q)) for served in whole],
            "first token, median": [1e3 * float(np.median(seconds)) for seconds in first],
            f"first token, {percentile}": [1e3 * float(np.quantile(seconds, self.q)) for seconds in first],
        }
        return {
            "kind": "lines",
            "title": "How long does an answer take as more queries arrive?",
            "caption": f"{self.queries} queries at each rate, {self.prompt} tokens read and {self.new} written in each;"
            " waiting counts; observations",
            "lines": {name: [list(rates), values] for name, values in lines.items()},
            "x_axis": "queries per second",
            "y_axis": "time (ms)",
        }
