"""Experiments with a program of their own: ``python -m recipes.studies.<name>``."""
