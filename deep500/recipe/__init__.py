"""Recipes: fixed definitions + mutable definitions + acceptable metrics = one benchmark run."""

from typing import TYPE_CHECKING

from deep500.faces import load_when_used

if TYPE_CHECKING:
    from deep500.recipe.runner import run_recipe as run_recipe
    from deep500.results.verdict import RecipeResult as RecipeResult

load_when_used(__name__)
