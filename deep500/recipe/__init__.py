"""Recipes: fixed definitions + mutable definitions + acceptable metrics = one benchmark run."""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from deep500.recipe.runner import run_recipe as run_recipe
    from deep500.results.verdict import RecipeResult as RecipeResult


def __getattr__(name: str) -> Any:
    """``deep500 --help`` needs this package, but nothing of what a run needs: that is loaded when it is used."""
    if name == "run_recipe":
        from deep500.recipe.runner import run_recipe

        return run_recipe
    if name == "RecipeResult":
        from deep500.results.verdict import RecipeResult

        return RecipeResult
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
