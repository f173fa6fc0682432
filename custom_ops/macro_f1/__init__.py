"""Plugin: see macro_f1.py."""
