"""Operator specifications, one file per family; `deep500.networks.substitutions.specification` loads them."""
