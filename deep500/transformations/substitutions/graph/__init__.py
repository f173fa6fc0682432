"""Networks in the rule language: what the optimizer rewrites, prices and writes back."""
