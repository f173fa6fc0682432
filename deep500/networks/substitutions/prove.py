"""Verdicts: proved by equality saturation from the axioms, refuted by a counterexample, or unknown.

Unknown is an answer: a rule may hold and the axioms not say so. Only proved rules may be applied.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

from deep500.networks.substitutions.axioms import axioms
from deep500.networks.substitutions.refute import counterexample
from deep500.networks.substitutions.rules import Rule
from deep500.networks.substitutions.saturation import rewrites, saturate

# (goals per e-graph, iterations): what two rounds leave open gets an e-graph of its own, which can grow longer
STAGES = ((1000, 2), (1000, 4))


def implied(rules: Sequence[Rule], by: Sequence[str], stages: Sequence[tuple[int, int]] = STAGES) -> list[bool]:
    """For every rule, whether rewrites prove all its outputs equal.

    Args:
        rules: what is to be proved.
        by: egglog rules, of `saturation.rewrites` or `patterns.rule_rewrites`.
        stages: (goals per e-graph, iterations) for what the stage before leaves open.

    Raises:
        MissingEngine: egglog is not installed.
    """
    goals = [(n, pair) for n, rule in enumerate(rules) for pair in zip(rule.source, rule.target, strict=True)]
    for batch, iterations in stages:
        left = []
        for first in range(0, len(goals), batch):
            part = goals[first : first + batch]
            proofs = saturate([pair for _, pair in part], by, iterations)
            left += [goal for goal, iteration in zip(part, proofs, strict=True) if iteration is None]
        goals = left
    missing = {n for n, _ in goals}
    return [n not in missing for n in range(len(rules))]


def prove(rules: Sequence[Rule], seed: int = 0, stages: Sequence[tuple[int, int]] = STAGES) -> list[Rule]:
    """The rules with their verdicts.

    Args:
        rules: candidates; their own verdicts are ignored.
        seed: of the values that try to refute what is not proved.
        stages: see `implied`.

    Raises:
        MissingEngine: egglog is not installed.
    """
    found = []
    for rule, holds in zip(rules, implied(rules, rewrites(axioms()), stages), strict=True):
        if holds:
            found.append(dataclasses.replace(rule, verdict="proved", prover="egglog"))
        elif counterexample(rule, seed) is not None:
            found.append(dataclasses.replace(rule, verdict="refuted", prover="finite field"))
        else:
            found.append(dataclasses.replace(rule, verdict="unknown", prover=None))
    return found
