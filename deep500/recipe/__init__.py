"""Recipes: fixed definitions + mutable definitions + acceptable metrics = one benchmark run."""

from deep500.recipe.runner import run_recipe as run_recipe
from deep500.results.verdict import RecipeResult as RecipeResult
