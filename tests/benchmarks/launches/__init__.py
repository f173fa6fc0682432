"""False verdicts of comparisons between runs, simulated and real: ``python -m tests.benchmarks.launches``.

python -m tests.benchmarks.launches [--only simulated apart turns planted] [--trials N] [--comparisons N] [--pairs N]

``simulated`` prints tables over the spread of launches, their number and the noise between runs. ``apart`` makes runs
of one recipe one after the other and compares them two by two; ``turns`` and ``planted`` are ``deep500 run A --against
B`` of the recipe with itself, and with itself when its step takes 3 and 10 % longer, calibrated in pairs of steps.
The load of the machine stands beside each: they are worth most on a quiet machine and on a busy one (``--at-once 4``).
The defaults end in half an hour; a whole night allows ``--trials 2000 --comparisons 30``.
"""

FIGURES = {
    "simulated: false verdicts, 12 launches 1, 2, 5 % apart": "<= 6 % of the trials; none of fewer by themselves",
    "simulated: 1, 3, 12 launches of runs 0, 1, 3 % apart, earlier runs known": "<= 6 %",
    "simulated: 2 % found, 12 launches 1 % apart": ">= 80 % of those compared, coverage >= 94 %",
    "simulated: false verdicts, 12, 16, 30 launches that depend on those before them, AR(.3), (.5), (.9)": "<= 6 %",
    "simulated: false verdicts in turns, looked at after every pair, AR(0), (.5), (.9)": "<= 6 %",
    "simulated: 1, 1.5, 3 standard deviations found by 24 pairs": ">= 80 %",
    "apart: false verdicts of real A/A runs of 12 launches": "<= 5 % of the comparisons",
    "turns: false verdicts of real A/A comparisons": "<= 5 % of the comparisons",
    "planted: 3 % found in turns": ">= 80 % of the comparisons",
    "planted: 10 % found in turns": ">= 80 % of the comparisons",
    "turns: seconds of a comparison over two plain runs": "no bar",
}
APART_SIMULATED, KNOWN, FOUND, DEPENDENT, LOOKED, BY_PAIRS, APART, TURNS, SLIGHT, TENTH, SECONDS = FIGURES
