"""Plugin: see scaled_dot_product.py."""
