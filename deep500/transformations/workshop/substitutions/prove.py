"""Verdicts: proved from the axioms, by equality saturation or else by Z3; refuted by a counterexample; or unknown.

Unknown is an answer: a rule may hold and the axioms not say so, or a prover may have met its limit. A limit never
refutes. Only proved rules may be applied.
"""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Sequence

from deep500.transformations.substitutions.proofs.axioms import axioms
from deep500.transformations.substitutions.proofs.saturation import rewrites
from deep500.transformations.substitutions.proofs.solver import Attempt
from deep500.transformations.workshop.substitutions.refute import counterexample
from deep500.transformations.workshop.substitutions.rules import GeneratedRule
from deep500.transformations.workshop.substitutions.saturation import saturate
from deep500.transformations.workshop.substitutions.solver import TermSolver

# (goals per e-graph, iterations): what two rounds leave open gets an e-graph of its own, which can grow longer
STAGES = ((1000, 2), (1000, 4))


def implied(
    rules: Sequence[GeneratedRule], by: Sequence[str], stages: Sequence[tuple[int, int]] = STAGES
) -> list[bool]:
    """For every rule, whether rewrites prove all its outputs equal.

    Args:
        rules: what is to be proved.
        by: egglog rules, of `saturation.rewrites` or `rewrites.rule_rewrites`.
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


def attempts(rules: Sequence[GeneratedRule], solver: TermSolver, limit: int) -> list[Attempt]:
    """Try to prove every rule by Z3: proved if all outputs are; seconds are those of all outputs tried.

    Args:
        rules: what is to be proved.
        solver: holds the axioms.
        limit: Z3's resource units per output.
    """
    outcomes = []
    for rule in rules:
        seconds, last = 0.0, Attempt(True, 0.0)
        for goal in zip(rule.source, rule.target, strict=True):
            last = solver.prove(goal, limit)
            seconds += last.seconds
            if not last.proved:
                break
        outcomes.append(dataclasses.replace(last, seconds=seconds))
    return outcomes


def prove(
    rules: Sequence[GeneratedRule], seed: int = 0, stages: Sequence[tuple[int, int]] = STAGES, limit: int = 0
) -> list[GeneratedRule]:
    """The rules with their verdicts, provers and proof times (`Rule.seconds`).

    Args:
        rules: candidates; their own verdicts are ignored.
        seed: of the values that try to refute what is not proved.
        stages: see `implied`.
        limit: Z3's resource units per output for what equality saturation leaves open and nothing refutes; 0: no Z3.

    Raises:
        MissingEngine: egglog, or Z3 if asked for, is not installed.
    """
    start = time.process_time()
    known = implied(rules, rewrites(axioms()), stages)
    share = (time.process_time() - start) / max(1, len(rules))
    decided = [_verdict(rule, "proved", "egglog", share) if ok else rule for rule, ok in zip(rules, known, strict=True)]
    unproved = [n for n, ok in enumerate(known) if not ok]
    for n in unproved:
        start = time.process_time()
        refuted = counterexample(rules[n], seed) is not None
        seconds = time.process_time() - start
        decided[n] = (
            _verdict(rules[n], "refuted", "finite field", seconds) if refuted else _verdict(rules[n], "unknown")
        )
    unknown = [n for n in unproved if decided[n].verdict == "unknown"]
    if limit and unknown:
        for n, attempt in zip(unknown, attempts([rules[n] for n in unknown], TermSolver(), limit), strict=True):
            if attempt.proved:
                decided[n] = _verdict(rules[n], "proved", "z3", attempt.seconds)
    return decided


def _verdict(
    rule: GeneratedRule, verdict: str, prover: str | None = None, seconds: float | None = None
) -> GeneratedRule:
    return dataclasses.replace(rule, verdict=verdict, prover=prover, seconds=seconds)
