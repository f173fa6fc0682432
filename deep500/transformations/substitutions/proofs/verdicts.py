"""Verdicts on rules that someone wrote: proved, refuted by numbers, or unknown and then tried.

The provers are those of the shipped rules: equality saturation, then Z3 where it is installed. The axioms of people's
own activations (`operators.own`) are tried on numbers before they are used.
"""

from __future__ import annotations

import dataclasses
import functools
import time
from collections.abc import Sequence

from deep500.errors import DataError, MissingEngine
from deep500.registry import is_installed
from deep500.transformations.substitutions.operators.own import OWN
from deep500.transformations.substitutions.operators.specification import ShapeMismatch
from deep500.transformations.substitutions.proofs.axioms import Axiom, axioms, equations
from deep500.transformations.substitutions.proofs.kernels import check_kernels
from deep500.transformations.substitutions.proofs.lowering import cases
from deep500.transformations.substitutions.proofs.pattern_proofs import proved
from deep500.transformations.substitutions.proofs.saturation import rewrites
from deep500.transformations.substitutions.proofs.solver import Solver
from deep500.transformations.substitutions.proofs.trials import (
    Counterexample,
    counterexample,
    field_counterexample,
    field_trials,
    polynomial,
)
from deep500.transformations.substitutions.rules.rule_file import PatternRule, read
from deep500.transformations.substitutions.rules.rule_text import from_text

STAGES = ((1000, 2), (1000, 4))
LIMIT = 400_000  # of Z3's resource units for each output: about a second
CASES, BACKENDS = 6, ("reference", "onnxruntime")


@dataclasses.dataclass(frozen=True)
class Verdict:
    """Verdict on a rule.

    Attributes:
        rule: with its ``verdict`` (``"proved"``, ``"refuted"``, ``"unknown"``) and ``prover``.
        seconds: CPU time of deciding it alone; a share where many were decided at once.
        counterexample: of a refuted rule.
        fields: of an unknown rule: (choices of sizes that fit, those equal modulo primes) for each output.
        kernels: of an unknown rule: backend -> greatest difference as a share of what rounding explains, or why not.
    """

    rule: PatternRule
    seconds: float = 0.0
    counterexample: Counterexample | None = None
    fields: tuple[tuple[int, int], ...] = ()
    kernels: tuple[tuple[str, float | str], ...] = ()

    @property
    def fits(self) -> bool:
        """Return whether the sides were seen to fit together for some sizes; proofs need no sizes."""
        return not self.fields or all(fitting for fitting, _ in self.fields)

    def __str__(self) -> str:
        if self.counterexample is not None:
            return f"refuted: {self.counterexample}"
        if self.rule.verdict == "proved":
            return f"proved by {self.rule.prover}"
        lines = ["unknown: neither proved nor refuted"]
        for output, (fitting, equal) in enumerate(self.fields):
            which = f"output {output}: " if len(self.fields) > 1 else ""
            if not fitting:
                lines.append(f"  {which}the two sides fit together for no sizes that were tried")
            elif equal == fitting:
                lines.append(f"  {which}equal in finite fields for all {fitting} choices of sizes")
            else:
                lines.append(f"  {which}not equal in finite fields, where an activation is any polynomial")
        for backend, worst in self.kernels:
            share = worst if isinstance(worst, str) else f"differs by {worst:.2g} of what rounding explains"
            lines.append(f"  on {backend}: {share}")
        return "\n".join(lines)


@functools.cache
def shipped_ids() -> frozenset[str]:
    """Ids of the rules that the package ships, which were proved when their file was written."""
    return frozenset(rule.id for rule in read())


def own_axioms() -> list[Axiom]:
    """The axioms of activations that were added to this process.

    Raises:
        DataError: one is no rule, or numbers refute it.
    """
    return [axiom for activation in OWN.values() for axiom in _axioms_of(activation.name, activation.axioms)]


@functools.cache
def _axioms_of(name: str, texts: tuple[str, ...]) -> tuple[Axiom, ...]:
    checked: list[Axiom] = []
    for number, text in enumerate(texts):
        rule = from_text(text, f"axiom {number} of {name}").rule
        wrong = counterexample(rule, extreme=True)
        if wrong is not None:
            raise DataError(f"axiom {number} of {name}: got {text}; expected one that holds: {wrong}")
        checked += [dataclasses.replace(axiom, name=f"{name} {number}") for axiom in equations(rule)]
    return tuple(checked)


def judge(rules: Sequence[PatternRule], thorough: bool = True) -> list[Verdict]:
    """Verdicts on rules, whatever verdicts they come with.

    Args:
        rules: in canonical form.
        thorough: try proved rules on numbers as well (a third of a second each), and unknown ones on kernels; without,
            unknown ones are tried on numbers and in finite fields alone.

    Raises:
        MissingEngine: egglog is not installed, and a rule is not one of the shipped ones.
        DataError: an axiom of an activation of one's own is wrong.

    Example:
        >>> rule = from_text("(matmul (add x y) (add z w)) = (matmul (add y x) (add w z))").rule
        >>> str(judge([rule])[0])
        'proved by egglog'
    """
    decided: dict[str, Verdict] = {}
    for rule in rules:
        if rule.id in shipped_ids():
            decided[rule.id] = Verdict(dataclasses.replace(rule, verdict="proved", prover="egglog"))
    left = list({rule.id: rule for rule in rules if rule.id not in decided}.values())
    if left:
        decided.update({verdict.rule.id: verdict for verdict in _judged(left, thorough)})
    return [dataclasses.replace(decided[rule.id], rule=_as(rule, decided[rule.id].rule)) for rule in rules]


def _as(rule: PatternRule, decided: PatternRule) -> PatternRule:
    return dataclasses.replace(rule, verdict=decided.verdict, prover=decided.prover)


def _judged(rules: list[PatternRule], thorough: bool) -> list[Verdict]:
    added, start = own_axioms(), time.process_time()
    known = proved(rules, STAGES, rewrites(axioms()))
    provers = dict.fromkeys((n for n, ok in enumerate(known) if ok), "egglog")
    if added:
        rest = [n for n in range(len(rules)) if n not in provers]
        more = proved([rules[n] for n in rest], STAGES, rewrites([*axioms(), *added])) if rest else []
        provers.update({n: f"egglog, from axioms of {_names()}" for n, ok in zip(rest, more, strict=True) if ok})
    share = (time.process_time() - start) / len(rules)
    verdicts = []
    for n, rule in enumerate(rules):
        start = time.process_time()
        # With time, what is proved is tried all the same: axioms know no types, and numbers are a second opinion.
        wrong = counterexample(rule) if thorough or n not in provers else None
        if wrong is None and n not in provers and (prover := _z3(rule, added)):
            provers[n] = prover
        fields: tuple[tuple[int, int], ...] = ()
        if wrong is None and n not in provers:  # nobody proved it: all numbers count
            fields = tuple(map(field_trials, equations(rule)))
            if not polynomial(rule):
                wrong = counterexample(rule, extreme=True)
            elif any(equal < fitting for fitting, equal in fields):
                wrong = field_counterexample(rule)
        verdict = "refuted" if wrong is not None else "proved" if n in provers else "unknown"
        decided = dataclasses.replace(rule, verdict=verdict, prover=provers.get(n) if verdict == "proved" else None)
        kernels = _kernels(rule) if thorough and verdict == "unknown" and all(fitting for fitting, _ in fields) else ()
        verdicts.append(Verdict(decided, share + time.process_time() - start, wrong, fields, kernels))
    return verdicts


def _names() -> str:
    return ", ".join(name for name, activation in OWN.items() if activation.axioms)


def _z3(rule: PatternRule, added: list[Axiom]) -> str | None:
    try:
        solver = Solver([*axioms(), *added])
    except MissingEngine:
        return None  # the second prover: what it might have proved stays unknown
    if not all(solver.prove_axiom(axiom, LIMIT).proved for axiom in equations(rule)):
        return None
    return f"z3, from axioms of {_names()} too" if _names() else "z3"


def _kernels(rule: PatternRule) -> tuple[tuple[str, float | str], ...]:
    outcomes: list[tuple[str, float | str]] = []
    for backend in filter(is_installed, BACKENDS):
        worst: float | str = 0.0
        for axiom in equations(rule):
            try:
                check = check_kernels(backend, cases(axiom, CASES))
            except ShapeMismatch:
                worst = "no sizes found that fit"
                break
            refused = next(iter(check.refused.values()), None)
            worst = f"not run: {refused}" if refused else max(float(worst), check.worst)
            if refused:
                break
        outcomes.append((backend, worst))
    return tuple(outcomes)
