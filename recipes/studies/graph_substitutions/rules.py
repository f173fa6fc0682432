"""E1, E5 and E6: generation, verification and validation, with what is wrong about what they found."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from importlib.util import find_spec
from typing import Any

from deep500.transformations.workshop.substitutions.experiments import (
    Generation,
    RuleVerification,
    Validated,
    generation,
    real_kernels,
    redundancy,
    symbols,
    validation,
    verification,
)
from recipes.studies.graph_substitutions.settings import Settings

QUICK_SAMPLE = 3
"""Rules that Z3 is given in a dry run."""


@dataclass(frozen=True)
class RuleOutcome:
    """The outcome of one of the experiments on rules.

    Attributes:
        text: its table.
        values: its figures.
        wrong: what must not be.
    """

    text: str
    values: dict[str, Any]
    wrong: list[str]

    def as_json(self) -> dict[str, Any]:
        """Its figures."""
        return self.values

    def __str__(self) -> str:
        return self.text


def generated(settings: Settings, generate: Callable[..., Generation] = generation) -> tuple[RuleOutcome, Generation]:
    """E1, and what it generated, for E5."""
    run = generate(settings.depth, settings.seed)
    rules = [*run.outcome.rules, *run.outcome.multiple]
    values = {
        "depth": run.depth,
        "counts": run.outcome.counts,
        "rules": len(rules),
        "cpu_seconds": run.seconds,
        "peak_memory_mb": run.memory,
    }
    unproved = [rule.id for rule in rules if rule.verdict != "proved"]
    return RuleOutcome(
        str(run), values, [f"E1: rules kept without a proof: {', '.join(unproved)}"] if unproved else []
    ), run


def verified(settings: Settings, generated_rules: Generation) -> RuleOutcome:
    """E5 on the rules of E1, kept and open ones; Z3, where it is installed, gives a second opinion on all of them."""
    rules = [*generated_rules.outcome.rules, *generated_rules.outcome.multiple, *generated_rules.outcome.open]
    sample = (QUICK_SAMPLE if settings.quick else len(rules)) if find_spec("z3") else 0
    verdicts: RuleVerification = verification(rules, settings.seed, sample)
    expected = len(generated_rules.outcome.rules) + len(generated_rules.outcome.multiple)
    proved = verdicts.verdicts.get("proved", 0)
    wrong = [f"E5: {proved} rules proved anew; expected the {expected} that E1 kept"] if proved < expected else []
    return RuleOutcome(str(verdicts), dict(vars(verdicts)), wrong)


def validated(settings: Settings) -> RuleOutcome:
    """E6: axioms in finite fields, as symbols, against each other, and with the kernels of the backends.

    A dry run takes samples and leaves redundancy out. What needs Z3 is "not measured" without it.
    """
    whole: Validated = validation(not settings.quick, settings.seed)
    kernels = real_kernels(
        settings.backends,
        ("float32",) if settings.quick else ("float32", "float64"),
        1 if settings.quick else 3,
        settings.seed,
    )
    failures = [f"{name} is wrong: {failure}" for name, failure in whole.failures.items()]
    values: dict[str, Any] = {"fields": _plain(whole), "kernels": [_plain(check) for check in kernels.checks]}
    texts = [str(whole)]
    for check in kernels.checks:
        where = f"with kernels of {check.backend} in {check.dtype}"
        failures += [f"{name} is wrong {where}: {how}" for name, how in check.differences.items()]
    if find_spec("z3"):
        small = symbols(1 if settings.quick else None, settings.seed)
        failures += [f"{name} is wrong for symbols: {failure}" for name, failure in small.failures.items()]
        values["symbols"] = _plain(small)
        texts.append(str(small))
        if not settings.quick:
            known = redundancy()
            values["redundancy"] = _plain(known)
            texts.append(str(known))
    for name in ("symbols", "redundancy"):
        if name not in values:
            texts.append(f"E6, {name}: not measured ({'Z3 is not installed' if not find_spec('z3') else 'dry run'})")
    return RuleOutcome("\n\n".join([*texts, str(kernels)]), values, [f"E6: axiom {failure}" for failure in failures])


def _plain(result: Any) -> dict[str, Any]:
    """Fields of a result; what JSON does not know, as text."""
    return {
        name: value
        if isinstance(value, (int, float, str))
        else str(value)
        if not isinstance(value, dict)
        else {key: item if isinstance(item, int) else str(item) for key, item in value.items()}
        for name, value in vars(result).items()
    }
