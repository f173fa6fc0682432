"""What a recipe file needs: ``from recipes.recipe import run_recipe``."""

from deep500.recipe import RecipeResult as RecipeResult
from deep500.recipe import run_recipe as run_recipe
