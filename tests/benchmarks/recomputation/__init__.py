"""The figures of recomputation: profiles and placements against trying, plans against rivals, steps that run again.

    python -m tests.benchmarks.recomputation
    python -m tests.benchmarks.recomputation --only profiler nested

In "steps", which has no figure, networks are planned with counted operations in the place of
measured times, and run on the reference backend; their times are the reference's, as ratios of alternating runs. Bytes
are held by arrays between nodes; views count once, which the prediction does not know. "clock" takes the time of every
node while a step runs; "pytorch" needs torch.
"""

FIGURES = {
    "profiler: predicted bytes that differ from those counted": "0",
    "nested: placements on 60 trees that differ from the best of all": "0",
    "nested: 150 regions, budgets 30, 50, 70 %": "at most 30 s",
    "nested: over greedy plans": "never below 1, mean 1.10",
    "chains: forward steps of a mixed schedule, 100 steps and 10 slots": "237, as published",
    "chains: added time over uniform segments at their peak, by the model": "no bar",
    "clock: a step with the clock over one without": "at most 1.05",
    "pytorch: peaks off the prediction": "at most 1 % (explicit), 5 % (checkpoint); none above its budget",
    "pytorch: steps over those without a plan, at 50, 35, 30 % of the memory": "at most 1.15, 1.20, 1.30",
    "pytorch: over the rival's plans": "never above 1, mean 0.90",
    "pytorch: added time over a rival's at its peak": "at most 0.65",
}
PREDICTED, PLACED, SLOWEST, GREEDY, MIXED, UNIFORM, CLOCK, PEAKS, STEPS, RIVAL, ADDED = FIGURES
