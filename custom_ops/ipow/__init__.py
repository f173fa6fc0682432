"""Plugin: see ipow.py."""
