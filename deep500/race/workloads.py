"""Workloads: a recipe, a quality on its validation data to reach, and what that may take.

A target lies on the steep part of the curve and is interpolated between two evaluations: on a plateau, times would
scatter whatever the optimizer does. The test data of a recipe are never looked at.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from deep500.errors import RecipeError, nearest
from deep500.race.submissions import LABEL
from deep500.reading import NO_OTHER, declare, number, problem_of
from deep500.recipe.loader import find_recipe, load_recipe
from deep500.recipe.options import Options
from deep500.recipe.plan import RecipeFile, RunPlan
from deep500.recipe.steps import make_plan
from deep500.recipe.written import is_written, read_written


@dataclass(frozen=True)
class Workload:
    """One task of a race.

    Attributes:
        recipe: its file, or a name that ``deep500 list`` shows.
        target: of the quality on the validation data.
        seconds, steps: the budget; seconds are of training alone.
        every: steps between two evaluations.
        words: ``key=value`` words that change the recipe, its FIXED keys too.
        quality: which is to reach the target; the first of the recipe's task if empty.
        name: within the race; the recipe's if empty.
        variants: ``key=a,b,c``; a variant that is held out of tuning has one value of one of them.

    Raises:
        RecipeError: a budget that is not positive, or fewer steps than an evaluation takes.
    """

    recipe: str
    target: float
    seconds: float
    steps: int
    every: int
    words: tuple[str, ...] = ()
    quality: str = ""
    name: str = ""
    variants: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if not LABEL.fullmatch(self.title):
            raise RecipeError(f"got workload {self.title!r}; expected a name of letters, digits, _ . + -: rename it")
        if not self.seconds > 0 or not 0 < self.every <= self.steps:
            raise RecipeError(
                f"workload {self.title!r}: got {self.seconds:g} seconds, {self.steps} steps, evaluated every "
                f"{self.every}; expected positive numbers and an evaluation within the steps: correct them"
            )

    @property
    def title(self) -> str:
        """The name that results show."""
        return self.name or Path(self.recipe).stem

    def source(self) -> Path:
        """Return the recipe's file; raises RecipeError if there is none."""
        return find_recipe(self.recipe)

    def plan(self, framework: str | None = None, data: Path | None = None) -> RunPlan:
        """Return the recipe with this workload's words, resolved."""
        path = self.source()
        recipe = load_recipe(path, framework)
        options = Options(list(self.words), framework=framework, open=True, data=data)
        return make_plan(recipe.FIXED, recipe.MUTABLE, [], options, path.parent)

    def facts(self) -> dict[str, Any]:
        """Return what it is, as JSON that tells two workloads apart."""
        return {**self.fields(), "sha256": RecipeFile.at(self.source()).sha256()}

    def fields(self) -> dict[str, Any]:
        """Return its fields as JSON has them."""
        return {**asdict(self), **{name: list(getattr(self, name)) for name in _LISTS}}

    @classmethod
    def from_fields(cls, fields: Mapping[str, Any]) -> Workload:
        """Return the workload of :meth:`fields`, of which lists may be left out."""
        return cls(**{**fields, **{name: tuple(fields.get(name, ())) for name in _LISTS}})


_LISTS = "words", "variants"
CPU = ("executor_kwargs={}",)
LENET = (*CPU, "model='lenet'", "model_kwargs={}")
PROSE = (*CPU, "dataset='python_prose'", "model_kwargs={'width':64,'embedding':32}")
SPLIT, CNN = "validation_split=0.15,0.2,0.3", "model=simple_cnn"
LATE, WIDTH, DEPTH = "validation_split=0.03,0.05", "model_kwargs.width=48,80,96", "model_kwargs.depth=14,26"
MIRROR, PLAIN = "augmentation=['deep500:Flip']", "augmentation=[]"

SUITES: dict[str, tuple[Workload, ...]] = {
    "smoke": (
        Workload("digits_lenet", 75.0, 4.0, 500, 10, CPU, variants=(SPLIT, CNN, MIRROR)),
        Workload(
            "digits32_resnet20", 45.0, 12.0, 400, 20, LENET, name="digits32_lenet", variants=(SPLIT, CNN, MIRROR, PLAIN)
        ),
    ),
    "small": (
        Workload("digits_lenet", 85.0, 8.0, 800, 20, CPU, variants=(SPLIT, CNN, MIRROR)),
        Workload("digits32_resnet20", 25.0, 60.0, 200, 20, CPU, variants=(SPLIT, DEPTH, MIRROR, PLAIN)),
        Workload("number_translation", 50.0, 40.0, 300, 30, CPU, variants=(LATE, WIDTH)),
        Workload("digit_scenes_ssd", 0.15, 40.0, 200, 25, CPU, variants=(SPLIT, "model_kwargs.width=12,20,24")),
        Workload("kjv_language_model", 3.7, 30.0, 400, 10, PROSE, name="python_prose", variants=(LATE, WIDTH)),
    ),
}
"""Workloads by suite; their recipes need no download."""

_KIND = declare(
    {
        "recipe": str,
        "target": float,
        "seconds": float,
        "steps": number(1, 10**9, whole=True),
        "every": number(1, 10**9, whole=True),
        "words?": [str],
        "variants?": [str],
        "quality?": str,
        "name?": str,
        "*": NO_OTHER,
    }
)


def find_suite(name: str) -> tuple[Workload, ...]:
    """The workloads of a suite: one of :data:`SUITES`, or a file of the user's in TOML, YAML or JSON.

    ::

        [[workload]]
        recipe = "digits_lenet"
        target = 95.0
        seconds = 10
        steps = 600
        every = 10
        variants = ["validation_split=0.2,0.3"]

    Raises:
        RecipeError: no such suite, or a workload without a recipe, with an unknown one, or of the name of another.
    """
    path = Path(name)
    if name in SUITES:
        workloads = SUITES[name]
    elif is_written(path) and path.is_file():
        workloads = _in_file(path)
    else:
        raise RecipeError(f"got suite {name!r}; expected a file .toml, .yaml or .json, or: {nearest(name, SUITES)}")
    titles = [workload.title for workload in workloads]
    twice = next((title for title in titles if titles.count(title) > 1), None)
    if twice is not None:
        raise RecipeError(f"{name}: got two workloads {twice!r}; expected every name once: give one another name")
    for workload in workloads:
        workload.source()
    return workloads


def _in_file(path: Path) -> tuple[Workload, ...]:
    content = read_written(path)
    entries = content.get("workload") if isinstance(content, dict) else None
    if not isinstance(entries, list) or not entries:
        raise RecipeError(f"{path}: got no workload; expected tables [[workload]]: write one")
    for place, entry in enumerate(entries, 1):
        problem = problem_of(entry, _KIND)
        if problem:
            raise RecipeError(f"{path}, workload {place}: {problem}: correct it")
    return tuple(map(Workload.from_fields, entries))


def quality_of(workload: Workload, qualities: Sequence[Any]) -> tuple[str, bool]:
    """Return the name of the quality that is to reach the target, and whether more of it is better.

    Raises:
        RecipeError: the recipe's task has no such quality.
    """
    by_name: Mapping[str, Any] = {quality.name: quality for quality in qualities}
    name = workload.quality or next(iter(by_name), "")
    if name not in by_name:
        raise RecipeError(f"workload {workload.title!r}: got quality {name!r}; expected {nearest(name, by_name)}")
    return name, by_name[name].direction == "higher"
