"""Plugin: see gelu.py."""
