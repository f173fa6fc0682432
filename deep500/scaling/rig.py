"""`Rig`: a recipe's training step, alone or under a scheme, on batches of any size up to the recipe's."""

from __future__ import annotations

import ast
import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from itertools import cycle
from time import perf_counter
from typing import Any

import numpy as np

from deep500 import distributed
from deep500.compare.subject import Batch, Setting, Subject
from deep500.distributed import Communicator, DistributedOptimizer
from deep500.errors import InputError, nearest
from deep500.measure import Budget, Plan, Target, measure
from deep500.recipe.build import make_executor, make_optimizer
from deep500.scaling.pretend import Pretend

BATCHES = 8
"""Batches over which measured steps go round."""

Step = Callable[[], object]


@dataclass(frozen=True)
class Scheme:
    """A scheme by name, with arguments.

    Example:
        >>> scheme = Scheme.parse("LocalSGD(every=4)")
        >>> scheme.kind.__name__, scheme.arguments, str(scheme)
        ('LocalSGD', {'every': 4}, 'LocalSGD(every=4)')
    """

    kind: type[DistributedOptimizer]
    arguments: Mapping[str, Any] = field(default_factory=dict)

    @classmethod
    def parse(cls, text: str) -> Scheme:
        """From ``Name`` or ``Name(argument=value)``; raises InputError."""
        known = {
            name: one
            for name, one in vars(distributed).items()
            if inspect.isclass(one) and issubclass(one, DistributedOptimizer) and not inspect.isabstract(one)
        }
        del known["DistributedOptimizer"]
        try:
            word = ast.parse(text.strip(), mode="eval").body
            call = word if isinstance(word, ast.Call) else ast.Call(word, [], [])
            name = call.func.id  # type: ignore[attr-defined]
            arguments = {str(one.arg): ast.literal_eval(one.value) for one in call.keywords}
        except (SyntaxError, ValueError, AttributeError) as error:
            raise InputError(f"got scheme {text!r}; expected a name, or name(argument=value)") from error
        if name not in known:
            raise InputError(f"got scheme {name!r}; expected one of {', '.join(known)}; {nearest(name, known)}")
        try:
            inspect.signature(known[name]).bind(None, **arguments)
        except TypeError as error:
            raise InputError(
                f"got scheme {text!r} ({error}); expected {name}{inspect.signature(known[name])}"
            ) from error
        return cls(known[name], arguments)

    def wrap(self, base: Any, comm: Communicator) -> DistributedOptimizer:
        """The scheme around an optimizer."""
        return self.kind(base, comm=comm, **self.arguments)

    def workers(self, ranks: int) -> list[int]:
        """The ranks that compute."""
        return list(self.kind.computing_ranks(ranks))

    def __str__(self) -> str:
        arguments = ", ".join(f"{name}={value!r}" for name, value in self.arguments.items())
        return f"{self.kind.__name__}({arguments})" if arguments else self.kind.__name__


def parse_schemes(text: str) -> list[Scheme]:
    """Several, with commas between them.

    Example:
        >>> [str(one) for one in parse_schemes("ModelAverage, TopK(ratio=0.1, sparse=True)")]
        ['ModelAverage', 'TopK(ratio=0.1, sparse=True)']
    """
    depth, words = 0, [""]
    for letter in text:
        depth += {"(": 1, ")": -1}.get(letter, 0)
        if letter == "," and not depth:
            words.append("")
        else:
            words[-1] += letter
    return [Scheme.parse(word) for word in words if word.strip()]


class Rig:
    """Steps of a recipe on one framework.

    Args:
        framework: None: the one that the recipe names.
        setting: recipe, overrides, seed, data.
    """

    def __init__(self, framework: str | None, setting: Setting) -> None:
        self.subject = Subject.of(setting, framework)
        self.batch_size = int(self.subject.plan.values["batch_size"])
        self._whole: list[Batch] = self.subject.batches(BATCHES)

    def step(self, batch: int, comm: Communicator | None = None, scheme: Scheme | None = None) -> tuple[Step, Any]:
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
        parts = [{name: array[:batch] for name, array in one.items()} for one in self._whole]
        following, wait = cycle(parts), executor.synchronize

        def step() -> None:
            optimizer.step(next(following))
            wait()

        return step, optimizer

    def trace(self, batch: int, steps: int, seconds: float) -> np.ndarray:
        """Times of serial steps on ``batch`` samples after their warm-up, seconds."""
        step, _ = self.step(batch)
        budget = Budget(min_n=min(30, steps), max_n=steps, max_s=seconds)
        return measure(step, Plan((Target(rel=0.01),), budget)).kept.copy()

    def update_seconds(self, rounds: int = 20) -> float:
        """What applying one gradient takes, at the quickest."""
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

    def own_seconds(self, scheme: Scheme, ranks: int, rounds: int) -> float:
        """What a scheme adds to a step besides the network: copies, compression. Plain steps of one sample and the
        scheme's take turns; the difference of the quickest of each, since others on the machine only add; at least 0.
        """
        plain, _ = self.step(1)
        step, optimizer = self.step(1, Pretend(ranks), scheme)
        period = period_of(optimizer)
        for once in (plain, step):
            for _ in range(3):
                once()
        found: tuple[list[float], list[float]] = ([], [])
        for _ in range(rounds):
            for once, times in zip((plain, step), found, strict=True):
                begin = perf_counter()
                for _ in range(period):
                    once()
                times.append((perf_counter() - begin) / period)
        return max(0.0, min(found[1]) - min(found[0]))


def period_of(optimizer: Any) -> int:
    """Steps after which a scheme does the same again: its ``every``, else 1."""
    return int(getattr(optimizer, "every", 1))
