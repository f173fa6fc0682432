"""The tests, one folder per area; what they share is in ``conftest.py`` (fixtures) and ``tolerances.py``."""
