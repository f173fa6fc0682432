"""`Rig`: a recipe's training step, alone or under a scheme, on batches of any size up to the recipe's."""

from __future__ import annotations

import ast
import inspect
import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import cycle
from time import perf_counter
from typing import Any

import numpy as np

from deep500.compare.subject import Batch, Setting, Subject
from deep500.distributed import Communicator, DistributedOptimizer
from deep500.distributed.schemes import by_name
from deep500.errors import InputError, nearest
from deep500.measure import Budget, Plan, Target, measure
from deep500.measure.load import disturbances, load_between, read_load, together
from deep500.recipe.build import make_executor, make_optimizer
from deep500.recipe.names import resolve_name
from deep500.scaling.pretend import Pretend

BATCHES = 8
"""Batches over which measured steps go round."""

StepFunction = Callable[[], object]
"""Makes one training step."""


@dataclass(frozen=True)
class SchemeChoice:
    """A scheme by name, with arguments.

    Attributes:
        name: in ``d5.schemes``, or of a scheme of the user's own.
        kind: the class.
        arguments: of its constructor, besides optimizer and communicator.

    Example:
        >>> choice = SchemeChoice.parse("LocalSGD(every=4)")
        >>> choice.kind.__name__, choice.arguments, str(choice)
        ('LocalSGD', {'every': 4}, 'LocalSGD(every=4)')
    """

    name: str
    kind: type[DistributedOptimizer]
    arguments: Mapping[str, Any] = field(default_factory=dict)

    @classmethod
    def parse(cls, text: str) -> SchemeChoice:
        """From ``Name`` or ``Name(argument=value)``; a scheme of your own is ``module:Name`` or ``path.py:Name``.

        Raises:
            InputError, RecipeError: there is no such scheme, or it does not take these arguments.
        """
        parts = re.fullmatch(r"\s*([^()\s]+)\s*(\(.*\))?\s*", text)
        arguments = _literal_arguments(parts[2] or "()") if parts else None
        if parts is None or arguments is None:
            raise InputError(f"got scheme {text!r}; expected a name, or name(argument=value)")
        name, known = parts[1], by_name()
        if ":" in name:
            kind = resolve_name("scheme", name, None)
        elif name in known:
            kind = known[name]
        else:
            raise InputError(f"got scheme {name!r}; expected one of {', '.join(known)}; {nearest(name, known)}")
        if not (inspect.isclass(kind) and issubclass(kind, DistributedOptimizer)):
            raise InputError(f"got scheme {name!r}, {kind!r}; expected a class derived from d5.DistributedOptimizer")
        try:
            inspect.signature(kind).bind(None, **arguments)
        except TypeError as error:
            raise InputError(f"got scheme {text!r} ({error}); expected {name}{inspect.signature(kind)}") from error
        return cls(name, kind, arguments)

    def wrap(self, base: Any, comm: Communicator) -> DistributedOptimizer:
        """The scheme around an optimizer."""
        return self.kind(base, comm=comm, **self.arguments)

    def workers(self, ranks: int) -> list[int]:
        """The ranks that compute."""
        return list(self.kind.computing_ranks(ranks))

    def __str__(self) -> str:
        arguments = ", ".join(f"{name}={value!r}" for name, value in self.arguments.items())
        return f"{self.name}({arguments})" if arguments else self.name


def _literal_arguments(text: str) -> dict[str, Any] | None:
    """Arguments by name out of ``(a=1, b='x')``; None where it is no such text."""
    try:
        call = ast.parse(f"call{text}", mode="eval").body
        if not isinstance(call, ast.Call) or call.args:
            return None
        return {str(keyword.arg): ast.literal_eval(keyword.value) for keyword in call.keywords}
    except (SyntaxError, ValueError):
        return None


def parse_schemes(text: str) -> list[SchemeChoice]:
    """Several, with commas between them.

    Example:
        >>> [str(choice) for choice in parse_schemes("ModelAverage, TopK(ratio=0.1, sparse=True)")]
        ['ModelAverage', 'TopK(ratio=0.1, sparse=True)']
    """
    depth, words = 0, [""]
    for letter in text:
        depth += {"(": 1, ")": -1}.get(letter, 0)
        if letter == "," and not depth:
            words.append("")
        else:
            words[-1] += letter
    return [SchemeChoice.parse(word) for word in words if word.strip()]


class Rig:
    """Steps of a recipe on one framework.

    Args:
        framework: None: the one that the recipe names.
        setting: recipe, overrides, seed, data.
    """

    def __init__(self, framework: str | None, setting: Setting) -> None:
        self.subject = Subject.load(setting, framework)
        self.batch_size = int(self.subject.plan.values["batch_size"])
        self._whole: list[Batch] = self.subject.batches(BATCHES)
        self.loads: list[dict[str, Any]] = []

    def step(
        self, batch: int, comm: Communicator | None = None, scheme: SchemeChoice | None = None
    ) -> tuple[StepFunction, Any]:
        """A training step on ``batch`` samples (0: a rank that computes nothing), and its optimizer.

        Raises:
            InputError: more samples than the recipe's batch has.
        """
        if not 0 <= batch <= self.batch_size:
            raise InputError(f"got a batch of {batch}; expected at most the recipe's {self.batch_size}: raise that")
        values = self.subject.plan.values
        executor = make_executor(values, self.subject.network())
        executor.reseed(self.subject.seed)
        optimizer = make_optimizer(values, executor)
        if scheme is not None:
            assert comm is not None
            optimizer = scheme.wrap(optimizer, comm)
        parts = [{name: array[:batch] for name, array in whole.items()} for whole in self._whole]
        following, wait = cycle(parts), executor.synchronize

        def step() -> None:
            optimizer.step(next(following))
            wait()

        return step, optimizer

    @property
    def is_stand_in(self) -> bool:
        """Whether the data are not those that the recipe names."""
        return any(half.stand_in for half in self.subject.data)

    def disturbed(self) -> list[str]:
        """Return what disturbed the measurements so far, in words; empty where nothing did, or they were too short."""
        return disturbances(together(self.loads)) or []

    @contextmanager
    def _watched(self) -> Iterator[None]:
        before = read_load()
        yield
        self.loads.append(load_between(before, read_load()))

    def trace(self, batch: int, steps: int, seconds: float) -> np.ndarray:
        """Times of serial steps on ``batch`` samples after their warm-up, seconds."""
        step, _ = self.step(batch)
        budget = Budget(min_n=min(30, steps), max_n=steps, max_s=seconds)
        with self._watched():
            return measure(step, Plan((Target(rel=0.01),), budget)).kept.copy()

    def update_seconds(self, rounds: int = 20) -> float:
        """Return the seconds that applying one gradient takes, at the quickest."""
        step, optimizer = self.step(1)
        step()
        times = []
        for _ in range(rounds):
            begin = perf_counter()
            optimizer.prepare()
            optimizer.update()
            optimizer.executor.synchronize()
            times.append(perf_counter() - begin)
        return min(times)

    def own_seconds(self, scheme: SchemeChoice, ranks: int, rounds: int) -> float:
        """Return a scheme's share of a step besides the network: copies, compression. Plain steps of one sample and the
        scheme's take turns; the difference of the quickest of each, since others on the machine only add; at least 0.
        """
        plain, _ = self.step(1)
        step, optimizer = self.step(1, Pretend(ranks), scheme)
        period = period_of(optimizer)
        for make_step in (plain, step):
            for _ in range(3):
                make_step()
        without, within = list[float](), list[float]()
        with self._watched():
            for _ in range(rounds):
                for make_step, times in ((plain, without), (step, within)):
                    begin = perf_counter()
                    for _ in range(period):  # a scheme that exchanges now and then does its work once per period
                        make_step()
                    times.append((perf_counter() - begin) / period)
        return max(0.0, min(within) - min(without))


def period_of(optimizer: Any) -> int:
    """Steps after which a scheme does the same again: its ``every``, else 1."""
    return int(getattr(optimizer, "every", 1))
