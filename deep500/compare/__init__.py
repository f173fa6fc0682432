"""Comparison of frameworks: the equivalence gate first, then timing in turns, then words with evidence."""
