"""Damaged results folders, plans, rule files, prices, cache entries and checkpoints: every command ends in one line.

``python -m tests.fuzz --count 5000 --seed 1`` damages so many; ``--replay 17`` shows number 17 of a seed.
"""
