"""Strong and weak scaling of a recipe, measured."""
