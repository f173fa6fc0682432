"""Programs that measure what we hold ourselves to; no tests. ``python -m tests.benchmarks`` lists them.

A program says in its docstring what it does, and in ``FIGURES`` what it prints and which bar it is held to: a literal,
so that it is read without importing a framework. ``python -m tests.benchmarks --table`` writes docs/figures.md from
these and from ``recorded.json``, the last recorded figure of each.
"""
