from .runner import RecipeResult as RecipeResult
from .runner import run_recipe as run_recipe
