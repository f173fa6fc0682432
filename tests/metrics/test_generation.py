"""Costs of a language model as it writes, by a clock that ticks once a reading, so that every figure is known."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest

import deep500 as d5
from deep500.errors import InputError
from deep500.metrics import GenerationLatency, GenerationRate, GenerationUnderLoad
from deep500.networks import create
from deep500.reading import validate
from deep500.results.formats import FILES
from deep500.tasks import Classification
from deep500.tasks.language_modelling import LanguageModelling
from deep500.tasks.tokens import Characters

TICK = 1_000_000
"""Nanoseconds from one reading of the clock to the next."""


class Clock:
    """Ticks with every reading, and jumps where somebody sleeps."""

    def __init__(self):
        self.now = 0

    def __call__(self):
        self.now += TICK
        return self.now

    def sleep(self, seconds):
        self.now += int(seconds * 1e9)


def watched(metric, task=None, length=12):
    """The metric after a run of a tiny model, whose batches have four texts."""
    sizes = {"classes": 5, "shape": (length,), "width": 8, "heads": 2, "layers": 1}
    executor = d5.load_backend("reference").from_model(create("causal_transformer", **sizes))
    batch = {"input": np.arange(4 * length).reshape(4, length) % 5}
    task = LanguageModelling(vocabulary=Characters("abcde")) if task is None else task
    trainer = SimpleNamespace(task=task, train_sampler=[batch], validation_sampler=None, network_output="output")
    metric.run = SimpleNamespace(executor=executor, trainer=trainer)
    return metric


@pytest.mark.parametrize(("part", "ticks"), [("first_token", 1), ("next_token", 1), ("answer", 6)])
def test_parts_of_an_answer(part, ticks):
    metric = watched(GenerationLatency(part, 0.5, prompt=3, new=4, queries=150, clock=Clock()))
    assert metric.measure(None) == pytest.approx(ticks * TICK / 1e9) and not metric.reason
    assert metric.details["n"] == (450 if part == "next_token" else 150) and metric.name == f"{part}_p50"
    assert metric.details["tokens_per_second"] == pytest.approx(4 / 6e-3)


def test_many_prompts_at_once():
    metric = watched(GenerationRate(4, prompt=3, new=4, repeats=5, clock=Clock()))
    assert metric.measure(None) == pytest.approx(4 * 4 / 6e-3)
    assert metric.details["answers"] == 20 and metric.name == "generation_rate_4"


def test_answers_take_longer_as_more_queries_arrive():
    clock = Clock()
    metric = GenerationUnderLoad(0.5, 3, 4, (0.1, 0.9), queries=200, clock=clock, sleep=clock.sleep)
    value = watched(metric).measure(None)
    assert value is not None or "samples" in metric.reason
    (curve,) = metric.exhibits
    content = {"schema": "deep500-exhibits-1", "task": "", "seed": 0, "exhibits": [curve]}
    validate(content, FILES["exhibits.json"], "exhibits.json")
    rates, last = curve["lines"]["last token, median"]
    first = curve["lines"]["first token, median"][1]
    assert rates[1] == pytest.approx(9 * rates[0]) and last[1] > last[0] and min(last) > 3
    assert np.subtract(last, first) == pytest.approx([3.0, 3.0]), "what is written after the first token"


def test_what_cannot_be_measured_says_why():
    short = watched(GenerationLatency(prompt=8, new=8, clock=Clock()))
    assert short.measure(None) is None and "not texts of 8 + 8 tokens" in short.reason
    other = watched(GenerationRate(2, 3, 4), task=Classification())
    assert other.measure(None) is None and "writes no text" in other.reason
    many = watched(GenerationRate(9, 3, 4))
    assert many.measure(None) is None and "not of 9 samples" in many.reason


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: GenerationLatency("prefill"), "expected one of first_token"),
        (lambda: GenerationLatency(new=1), "new=1"),
        (lambda: GenerationLatency(q=1.0), "percentile 1.0"),
        (lambda: GenerationRate(0), "batch=0"),
        (lambda: GenerationUnderLoad(shares=(0.5, 1.2)), "between 0 and 1"),
    ],
)
def test_bad_arguments(make, message):
    with pytest.raises(InputError, match=message):
        make()
