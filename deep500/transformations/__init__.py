"""Networks turned into other networks that compute the same: substitutions, recomputation."""
