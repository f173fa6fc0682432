"""Honest runs of every kind, each drawn from its number, and whether verify or a rule raises an alarm at one of them.

python -m tests.benchmarks.honest_runs [--runs 200] [--first 0] [--folder DIR]

Backends and kinds (of one process, repeated, interrupted and resumed, stopped and resumed, killed and resumed, on two
ranks, launches of processes, until tight, dry, diverged, recipes of the project) go round, settings are drawn: model,
data, optimizer, schedule, metrics, checkpoints, memory, precision, averages, scheme. What the project refuses in words
is drawn anew, and said. With ``--folder`` it goes on where it was stopped, and the runs stay there. In the end all
folders are verified once more, beside those that came after them.
"""

FIGURES = {"honest runs with an alarm": "none of 200"}
(ALARMS,) = FIGURES
