"""Plugin: see softplus_conv.py."""
