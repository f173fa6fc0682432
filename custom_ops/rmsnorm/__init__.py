"""Plugin: see rmsnorm.py."""
