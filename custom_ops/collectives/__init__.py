"""Plugin: see collectives.py."""
