"""Operator specifications, one file per family; `specification.operators` loads them."""
