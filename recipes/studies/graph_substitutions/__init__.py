"""Experiments E1 to E6 of graph substitutions: rules generated, proved and validated; networks rewritten, timed."""
