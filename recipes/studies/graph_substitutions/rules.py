"""E1, E5 and E6: generation, verification and validation, with what is wrong about what they found."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from importlib.util import find_spec
from typing import Any

from deep500.transformations.workshop.substitutions.experiments import (
    Generation,
    Validated,
    Verification,
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
class Told:
    """What one of the experiments on rules found.

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


def generated(settings: Settings, made: Callable[..., Generation] = generation) -> tuple[Told, Generation]:
    """E1, and what it generated, for E5."""
    found = made(settings.depth, settings.seed)
    rules = [*found.found.rules, *found.found.multiple]
    values = {
        "depth": found.depth,
        "counts": found.found.counts,
        "rules": len(rules),
        "cpu_seconds": found.seconds,
        "peak_memory_mb": found.memory,
    }
    unproved = [rule.id for rule in rules if rule.verdict != "proved"]
    return Told(
        str(found), values, [f"E1: rules kept without a proof: {', '.join(unproved)}"] if unproved else []
    ), found


def verified(settings: Settings, made: Generation) -> Told:
    """E5 on the rules of E1, kept and open ones; Z3, where it is installed, gives a second opinion on all of them."""
    rules = [*made.found.rules, *made.found.multiple, *made.found.open]
    sample = (QUICK_SAMPLE if settings.quick else len(rules)) if find_spec("z3") else 0
    found: Verification = verification(rules, settings.seed, sample)
    kept = len(made.found.rules) + len(made.found.multiple)
    proved = found.verdicts.get("proved", 0)
    wrong = [f"E5: {proved} rules proved anew; expected the {kept} that E1 kept"] if proved < kept else []
    return Told(str(found), dict(vars(found)), wrong)


def validated(settings: Settings) -> Told:
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
    failures = [f"{name} is wrong: {one}" for name, one in whole.failures.items()]
    values: dict[str, Any] = {"fields": _plain(whole), "kernels": [_plain(one) for one in kernels.checks]}
    texts = [str(whole)]
    for one in kernels.checks:
        where = f"with kernels of {one.backend} in {one.dtype}"
        failures += [f"{name} is wrong {where}: {how}" for name, how in one.differences.items()]
    if find_spec("z3"):
        small = symbols(1 if settings.quick else None, settings.seed)
        failures += [f"{name} is wrong for symbols: {one}" for name, one in small.failures.items()]
        values["symbols"] = _plain(small)
        texts.append(str(small))
        if not settings.quick:
            known = redundancy()
            values["redundancy"] = _plain(known)
            texts.append(str(known))
    for name in ("symbols", "redundancy"):
        if name not in values:
            texts.append(f"E6, {name}: not measured ({'Z3 is not installed' if not find_spec('z3') else 'dry run'})")
    return Told("\n\n".join([*texts, str(kernels)]), values, [f"E6: axiom {one}" for one in failures])


def _plain(found: Any) -> dict[str, Any]:
    """Fields of a result; what JSON does not know, as text."""
    return {
        name: value
        if isinstance(value, (int, float, str))
        else str(value)
        if not isinstance(value, dict)
        else {key: one if isinstance(one, int) else str(one) for key, one in value.items()}
        for name, value in vars(found).items()
    }
