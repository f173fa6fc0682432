"""The experiments of Jia et al., TASO (SOSP 2019), on generation (E1), verification (E5) and validation (E6).

One function per experiment; each returns a plain dataclass whose ``str`` is a table beside the peer's figures. Those
were measured with the published artifact's own programs on one core of a 2-core x86-64 machine; the published text
says 5 to 10 minutes for E1 and about 2 minutes for E5. Times are CPU seconds of this process, memory its peak so far.
"""

from __future__ import annotations

import resource
import sys
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from deep500.networks.substitutions.axioms import axioms
from deep500.networks.substitutions.exhaustive import exhaust
from deep500.networks.substitutions.generate import Generated, generate
from deep500.networks.substitutions.prove import prove
from deep500.networks.substitutions.rules import Rule
from deep500.networks.substitutions.validate import Failure, validate

NOT_MEASURED = "not measured"
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
    lines = [[str(one) for one in row] for row in (head, *rows)]
    widths = [max(len(line[n]) for line in lines) for n in range(len(head))]
    return "\n".join(
        "  ".join([line[0].ljust(widths[0]), *(one.rjust(w) for one, w in zip(line[1:], widths[1:], strict=True))])
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
        found: rules, and counts after every stage.
        seconds: CPU seconds.
        memory: peak memory of the process, MB.
    """

    depth: int
    found: Generated
    seconds: float
    memory: float

    def __str__(self) -> str:
        rows: list[tuple[object, ...]] = [(stage, f"{count:,}", "") for stage, count in self.found.counts.items()]
        peer = PEER_GENERATION if self.depth == 3 else dict.fromkeys(PEER_GENERATION, NOT_MEASURED)
        rows[0] = (*rows[0][:2], peer["terms"])
        rows.append(("rules", f"{len(self.found.rules) + len(self.found.multiple):,}", peer["rules"]))
        rows.append(("CPU s", f"{self.seconds:.2f}", peer["seconds"]))
        rows.append(("peak memory, MB", f"{self.memory:,.0f}", peer["memory"]))
        return table((f"E1, up to {self.depth} operators", "here", "TASO"), rows)


def generation(depth: int = 3, seed: int = 0) -> Generation:
    """E1: generate and prove the rules of up to ``depth`` operators a side.

    Raises:
        MissingEngine: egglog is not installed.
    """
    start = time.process_time()
    found = generate(depth, seed)
    return Generation(depth, found, time.process_time() - start, _peak())


@dataclass(frozen=True)
class Verification:
    """E5: verdicts on rules.

    Attributes:
        verdicts: verdict -> number of rules.
        seconds: CPU seconds of the batch.
    """

    verdicts: dict[str, int]
    seconds: float

    def __str__(self) -> str:
        rows: list[tuple[object, ...]] = [
            (verdict, self.verdicts.get(verdict, 0)) for verdict in ("proved", "refuted", "unknown")
        ]
        rows.append(("CPU s", f"{self.seconds:.2f}"))
        return table(("E5", "rules"), rows)


def verification(rules: Sequence[Rule], seed: int = 0) -> Verification:
    """E5: prove rules from the axioms, whatever verdict they carry.

    Raises:
        MissingEngine: egglog is not installed.
    """
    start = time.process_time()
    decided = prove(rules, seed)
    return Verification(dict(Counter(rule.verdict for rule in decided)), time.process_time() - start)


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
