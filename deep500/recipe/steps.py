"""From a recipe and a command line to a plan: five steps in a row over one value, each in a file of its own.

Nothing is built yet, and no data are read.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from deep500.recipe.checking import check
from deep500.recipe.names import load_names
from deep500.recipe.options import Options
from deep500.recipe.overrides import override
from deep500.recipe.plan import RunPlan, merge
from deep500.recipe.target import retarget


def make_plan(
    fixed: Mapping[str, Any],
    mutable: Mapping[str, Any],
    metrics: Sequence[Any],
    options: Options,
    folder: Path | None = None,
) -> RunPlan:
    """Resolve a recipe; raises RecipeError for whatever is wrong with it or with the command line.

    ``folder`` is the recipe's, where files are looked for that it names as ``path.py:Name``.
    """
    plan = merge(RunPlan(fixed, mutable, metrics, options, folder))
    plan = override(plan)  # before names are looked up: a file whose name is replaced is not loaded
    plan = load_names(plan)
    plan = retarget(plan)  # after: a namesake is looked for in the backend that an object belongs to
    return check(plan)
