"""Plugin: see mish.py."""
