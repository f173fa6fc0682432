"""Proofs of rules: the axioms, equality saturation and Z3, trials in finite fields, and both sides on real kernels."""
