"""The experiments of Jia et al., TASO (SOSP 2019), on generation (E1), verification (E5) and validation (E6).

One function per experiment; each returns a plain dataclass whose ``str`` is a table beside the peer's figures. Those
were measured with the published artifact's own programs on one core of a 2-core x86-64 machine; the published text
says 5 to 10 minutes for E1 and about 2 minutes for E5. Times are CPU seconds of this process, memory its peak so far.
"""

from __future__ import annotations

import random
import resource
import sys
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from deep500.registry import backend_names, is_installed
from deep500.transformations.substitutions.proofs.axioms import axioms
from deep500.transformations.substitutions.proofs.kernels import KernelCheck, check_kernels
from deep500.transformations.substitutions.proofs.lowering import cases
from deep500.transformations.workshop.substitutions.exhaustive import exhaust
from deep500.transformations.workshop.substitutions.generate import Generated, generate
from deep500.transformations.workshop.substitutions.prove import attempts, prove
from deep500.transformations.workshop.substitutions.rules import Rule
from deep500.transformations.workshop.substitutions.solver import TermSolver
from deep500.transformations.workshop.substitutions.symbolic import prove_small
from deep500.transformations.workshop.substitutions.validation import Failure, validate

NOT_MEASURED = "not measured"
SOLVER_LIMIT = 400_000  # Z3's resource units per goal, about 0.3 CPU seconds
PEER_GENERATION = {"terms": "21,234,454 graphs", "rules": "820", "seconds": "96", "memory": "7,130"}
# of the peer's 919,920 combinations 258 were tried: the serial time of all is what these took, times their share
PEER_VALIDATION = {"combinations": "919,920", "wrong": "0 of 258 tried", "seconds": "32,000 (extrapolated)"}


def table(head: Sequence[str], rows: Sequence[Sequence[object]]) -> str:
    """Rows in columns of equal width; the first column to the left, the others to the right.

    Example:
        >>> print(table(("stage", "left"), [("terms", 12)]))
        stage  left
        terms    12
    """
    lines = [[str(cell) for cell in row] for row in (head, *rows)]
    widths = [max(len(line[n]) for line in lines) for n in range(len(head))]
    return "\n".join(
        "  ".join([line[0].ljust(widths[0]), *(cell.rjust(w) for cell, w in zip(line[1:], widths[1:], strict=True))])
        for line in lines
    )


def _peak() -> float:
    """Greatest resident memory of this process so far, in MB."""
    unit = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit / 1e6


@dataclass(frozen=True)
class Generation:
    """E1: what generation found, and what it took.

    Attributes:
        depth: greatest number of operators of a side.
        outcome: rules, and counts after every stage.
        seconds: CPU seconds.
        memory: peak memory of the process, MB.
    """

    depth: int
    outcome: Generated
    seconds: float
    memory: float

    def __str__(self) -> str:
        rows: list[tuple[object, ...]] = [(stage, f"{count:,}", "") for stage, count in self.outcome.counts.items()]
        peer = PEER_GENERATION if self.depth == 3 else dict.fromkeys(PEER_GENERATION, NOT_MEASURED)
        rows[0] = (*rows[0][:2], peer["terms"])
        rows.append(("rules", f"{len(self.outcome.rules) + len(self.outcome.multiple):,}", peer["rules"]))
        rows.append(("CPU s", f"{self.seconds:.2f}", peer["seconds"]))
        rows.append(("peak memory, MB", f"{self.memory:,.0f}", peer["memory"]))
        return table((f"E1, up to {self.depth} operators", "here", "TASO"), rows)


def generation(depth: int = 3, seed: int = 0) -> Generation:
    """E1: generate and prove the rules of up to ``depth`` operators a side.

    Raises:
        MissingEngine: egglog is not installed.
    """
    start = time.process_time()
    generated = generate(depth, seed)
    return Generation(depth, generated, time.process_time() - start, _peak())


@dataclass(frozen=True)
class RuleVerification:
    """E5: verdicts on rules.

    Attributes:
        verdicts: verdict -> number of rules.
        seconds: CPU seconds of the batch, by equality saturation.
        compared: rules that Z3 was given as well; 0: not measured.
        agreeing: how many of these it proved where equality saturation did, or left open where that did.
        solver_seconds: CPU seconds it took.
    """

    verdicts: dict[str, int]
    seconds: float
    compared: int = 0
    agreeing: int = 0
    solver_seconds: float = 0.0

    def __str__(self) -> str:
        rows: list[tuple[object, ...]] = [
            (verdict, self.verdicts.get(verdict, 0), peer)
            for verdict, peer in (("proved", "777 of 820"), ("refuted", "0"), ("unknown", "43"))
        ]
        rows.append(("CPU s, all at once", f"{self.seconds:.2f}", ""))
        rows.append(("given to Z3 as well", self.compared or NOT_MEASURED, "820"))
        if self.compared:
            rows.append(("same verdict by Z3", self.agreeing, ""))
            rows.append(("CPU s, Z3", f"{self.solver_seconds:.2f}", "127"))
        return table(("E5", "here", "TASO"), rows)


def verification(rules: Sequence[Rule], seed: int = 0, sample: int = 0, limit: int = SOLVER_LIMIT) -> RuleVerification:
    """E5: prove rules from the axioms, whatever verdict they carry.

    Args:
        rules: what is to be proved.
        seed: of the values that refute, and of the sample.
        sample: how many rules Z3 is given as well, drawn at random; more than there are: all.
        limit: Z3's resource units per output.

    Raises:
        MissingEngine: egglog, or Z3 if asked for, is not installed.
    """
    start = time.process_time()
    decided = prove(rules, seed)
    seconds, verdicts = time.process_time() - start, dict(Counter(rule.verdict for rule in decided))
    if not sample:
        return RuleVerification(verdicts, seconds)
    chosen = random.Random(seed).sample(decided, min(sample, len(decided)))
    start = time.process_time()
    tried = attempts(chosen, TermSolver(), limit)
    same = sum(attempt.proved == (rule.verdict == "proved") for rule, attempt in zip(chosen, tried, strict=True))
    return RuleVerification(verdicts, seconds, len(chosen), same, time.process_time() - start)


@dataclass(frozen=True)
class Redundancy:
    """E6: which axioms follow from the others.

    Attributes:
        tried: number of axioms.
        redundant: axioms that Z3 proves from all others, each by itself.
        seconds: CPU seconds.
    """

    tried: int
    redundant: tuple[str, ...]
    seconds: float

    def __str__(self) -> str:
        rows = [
            ("axioms", self.tried, "44"),
            ("follow from the others", len(self.redundant), "0"),
            ("CPU s", f"{self.seconds:.2f}", "106"),
            *((f"follows: {name}", "", "") for name in self.redundant),
        ]
        return table(("E6, redundancy", "here", "TASO"), rows)


def redundancy(limit: int = SOLVER_LIMIT) -> Redundancy:
    """E6: try to prove every axiom from the others by Z3. Some are meant to follow: provers need them spelled out.

    Raises:
        MissingEngine: Z3 is not installed.
    """
    start, known = time.process_time(), axioms()
    redundant = []
    for axiom in known:
        others = TermSolver(other for other in known if other is not axiom)
        if others.prove_axiom(axiom, limit).proved:
            redundant.append(axiom.name)
    return Redundancy(len(known), tuple(redundant), time.process_time() - start)


@dataclass(frozen=True)
class Symbols:
    """E6: the axioms for small sizes with a symbol for every element.

    Attributes:
        combinations, tried, undecided: of all axioms together, as in `symbolic.Proved`.
        failures: axiom -> the first combination for which its sides differ.
        seconds: CPU seconds.
    """

    combinations: int
    tried: int
    undecided: int
    failures: dict[str, Failure]
    seconds: float

    def __str__(self) -> str:
        rows = [
            ("combinations of sizes 1 and 2", f"{self.combinations:,}", "18,212"),
            ("tried", f"{self.tried:,}", "845"),
            ("not decided", self.undecided, "0"),
            ("wrong", len(self.failures), "0"),
            ("CPU s", f"{self.seconds:.2f}", "62 (all, extrapolated)"),
        ]
        return table(("E6, symbols", "here", "TASO"), rows)


def symbols(sample: int | None = None, seed: int = 0) -> Symbols:
    """E6: prove every axiom for all combinations of the sizes 1 and 2, or for ``sample`` of each, by Z3.

    Raises:
        MissingEngine: Z3 is not installed.
    """
    start = time.process_time()
    proofs = {axiom.name: prove_small(axiom, sample=sample, seed=seed) for axiom in axioms()}
    return Symbols(
        sum(proof.combinations for proof in proofs.values()),
        sum(proof.tried for proof in proofs.values()),
        sum(proof.undecided for proof in proofs.values()),
        {name: proof.failure for name, proof in proofs.items() if proof.failure},
        time.process_time() - start,
    )


@dataclass(frozen=True)
class Kernels:
    """E6: the axioms with the real kernels of backends.

    Attributes:
        checks: one per backend and dtype.
    """

    checks: tuple[KernelCheck, ...]

    def __str__(self) -> str:
        rows = [
            (
                f"{check.backend} {check.dtype}",
                check.cases,
                len(check.differences),
                len(check.refused),
                f"{check.worst:.2f}",
                f"{check.seconds:.1f}",
            )
            for check in self.checks
        ]
        return table(("E6, real kernels", "cases", "differ", "refused", "worst / tolerance", "s"), rows)


def real_kernels(
    backends: Sequence[str] | None = None, dtypes: Sequence[str] = ("float32", "float64"), count: int = 3, seed: int = 0
) -> Kernels:
    """E6: run both sides of every axiom on backends, for ``count`` random choices of sizes each.

    Args:
        backends: names; all installed ones without it.
        dtypes: of the values.
        count: choices of sizes per axiom.
        seed: of sizes and values.

    Raises:
        MissingBackend: a backend that was named is not installed.
    """
    names = [name for name in backend_names() if is_installed(name)] if backends is None else backends
    chosen = [case for axiom in axioms() for case in cases(axiom, count, seed)]
    return Kernels(tuple(check_kernels(name, chosen, dtype) for name in names for dtype in dtypes))


@dataclass(frozen=True)
class Validated:
    """E6: what evaluating both sides of every axiom found.

    Attributes:
        exhaustive: whether all combinations of sizes 1 to 4 and kernels of 1 and 3 were evaluated, or a random sample.
        combinations: axiom -> combinations of sizes and parameters for which a side fits together.
        failures: axiom -> the first for which it is wrong; empty if all hold.
        seconds: CPU seconds.
    """

    exhaustive: bool
    combinations: dict[str, int]
    failures: dict[str, Failure]
    seconds: float

    def __str__(self) -> str:
        peer = PEER_VALIDATION if self.exhaustive else dict.fromkeys(PEER_VALIDATION, NOT_MEASURED)
        rows = [
            ("axioms", len(self.combinations), "44"),
            ("combinations of sizes", f"{sum(self.combinations.values()):,}", peer["combinations"]),
            ("wrong", len(self.failures), peer["wrong"]),
            ("CPU s", f"{self.seconds:.2f}", peer["seconds"]),
            *((f"wrong: {name}", str(failure.shapes), failure.what) for name, failure in self.failures.items()),
        ]
        return table((f"E6, {'all combinations' if self.exhaustive else 'sample'}", "here", "TASO"), rows)


def validation(exhaustive: bool = False, seed: int = 0) -> Validated:
    """E6: evaluate both sides of every axiom modulo a prime, for a random sample of sizes or for all small ones.

    Args:
        exhaustive: sizes 1 to 4 and kernels of 1 and 3 in all combinations, which takes minutes.
        seed: of the residues and of the sample.
    """
    start, combinations, failures = time.process_time(), {}, {}
    for axiom in axioms():
        if exhaustive:
            whole = exhaust(axiom, seed=seed)
            combinations[axiom.name], failure = whole.combinations, whole.failure
        else:
            sample = validate(axiom, seed)
            combinations[axiom.name], failure = sample.legal, sample.failure
        if failure:
            failures[axiom.name] = failure
    return Validated(exhaustive, combinations, failures, time.process_time() - start)
