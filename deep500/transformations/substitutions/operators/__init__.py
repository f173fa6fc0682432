"""Operator specifications, one file per family; `deep500.transformations.substitutions.specification` loads them."""
