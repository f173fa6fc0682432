"""Benchmark definitions, one file each: fixed and mutable definitions, and the metrics that judge a run."""
