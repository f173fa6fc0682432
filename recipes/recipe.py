"""The historical door: ``from recipes.recipe import run_recipe``.

Recipes say ``from deep500.recipe import run_recipe``, which also works beside a package ``recipes`` of your own.
"""

from deep500.recipe import RecipeResult as RecipeResult
from deep500.recipe import run_recipe as run_recipe
