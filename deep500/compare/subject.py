"""The subject of a comparison: one network, the same batches, and for each framework how to build and to train it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np

from deep500.errors import RecipeError
from deep500.networks.execution.executor import GraphExecutor
from deep500.networks.network import Network
from deep500.recipe.build import load_custom_ops, load_data, make_executor, make_network, make_optimizer, make_sampler
from deep500.recipe.loader import load_recipe
from deep500.recipe.options import Options
from deep500.recipe.plan import RunPlan
from deep500.recipe.steps import make_plan
from deep500.registry import backend_of
from deep500.tensors import digest

Batch = Mapping[str, np.ndarray]


@dataclass(frozen=True)
class Candidate:
    """A framework as the gate sees it: ``build`` compiles a network, ``optimizer`` makes the recipe's optimizer."""

    name: str
    build: Callable[[Network], GraphExecutor]
    optimizer: Callable[[GraphExecutor], Any] | None = None


@dataclass(frozen=True)
class Setting:
    """Everything besides the framework that decides what a recipe run computes; JSON can hold it.

    Attributes:
        recipe: the recipe file.
        overrides: ``key=value`` words.
        seed: the first seed, the recipe's own if None.
        data: folder with data sets; download: whether to fetch absent ones.
        open: allow overrides of FIXED keys.
    """

    recipe: str
    overrides: tuple[str, ...] = ()
    seed: int | None = None
    data: str | None = None
    download: bool = False
    open: bool = False

    def options(self, **more: Any) -> Options:
        """Return the options that a recipe takes."""
        folder = None if self.data is None else Path(self.data)
        known = {"overrides": list(self.overrides), "seed": self.seed, "data": folder, "download": self.download}
        return Options(**{**known, "open": self.open, **more})


@dataclass
class Subject:
    """A recipe re-targeted to one framework: its plan, data, network and batches; ``custom_ops``: what was loaded."""

    framework: str
    plan: RunPlan
    data: tuple[Any, ...] = field(repr=False)
    custom_ops: list[dict[str, str]] = field(default_factory=list)

    @classmethod
    def load(cls, setting: Setting, framework: str | None, data: tuple[Any, ...] | None = None) -> Subject:
        """Load the recipe for a framework; None: for its own.

        Raises:
            RecipeError, DataError, MissingBackend: as running it would.
        """
        recipe = load_recipe(Path(setting.recipe), framework)
        halves = recipe.FIXED, recipe.MUTABLE, recipe.METRICS
        folder = Path(setting.recipe).parent
        # Refuses overrides of FIXED keys, which --backend below may change.
        make_plan(*halves, setting.options(), folder)
        plan = make_plan(*halves, setting.options(framework=framework, open=True), folder)
        values = plan.values
        plugins = load_custom_ops(values["custom_ops"], folder)
        loaded = load_data(values, False, setting.download, setting.options().data) if data is None else data
        return cls(framework or backend_of(values["executor"]) or "custom", plan, loaded, plugins)

    @property
    def seed(self) -> int:
        """The first seed."""
        return self.plan.seeds[0]

    def network(self) -> Network:
        """The recipe's network with its loss and its initial weights."""
        return make_network(self.plan.values, self.data[0], self.seed)

    def batches(self, count: int) -> list[Batch]:
        """The first training batches of the first epoch, over again where the epoch has fewer."""
        sampler = make_sampler(self.plan.values, "train_sampler", self.data[0], self.seed, False)
        sampler.set_epoch(0)
        batches = list(islice(iter(sampler), count))
        if not batches:
            raise RecipeError("got a train_sampler without batches; expected at least one: make batch_size smaller")
        return [batches[number % len(batches)] for number in range(count)]

    def candidate(self) -> Candidate:
        """This framework for the gate."""
        values = self.plan.values
        return Candidate(
            self.framework,
            lambda network: make_executor(values, network),
            lambda executor: make_optimizer(values, executor),
        )


def digests(batches: Sequence[Batch]) -> list[str]:
    """One :func:`digest` per batch."""
    return [digest(batch) for batch in batches]
