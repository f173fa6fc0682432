"""E1, E5 and E6: generation, verification and validation, with what is wrong about what they found."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from deep500.networks.substitutions.experiments import (
    Generation,
    Validated,
    Verification,
    generation,
    validation,
    verification,
)
from recipes.graph_substitutions_experiments.settings import Settings


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
    values = {"depth": found.depth, "counts": found.found.counts, "rules": len(rules), "cpu_seconds": found.seconds,
              "peak_memory_mb": found.memory}  # fmt: skip
    unproved = [rule.id for rule in rules if rule.verdict != "proved"]
    return Told(
        str(found), values, [f"E1: rules kept without a proof: {', '.join(unproved)}"] if unproved else []
    ), found


def verified(settings: Settings, made: Generation) -> Told:
    """E5 on the rules of E1, kept and open ones."""
    rules = [*made.found.rules, *made.found.multiple, *made.found.open]
    found: Verification = verification(rules, settings.seed)
    kept = len(made.found.rules) + len(made.found.multiple)
    proved = found.verdicts.get("proved", 0)
    wrong = [f"E5: {proved} rules proved anew; expected the {kept} that E1 kept"] if proved < kept else []
    return Told(str(found), {"verdicts": found.verdicts, "cpu_seconds": found.seconds}, wrong)


def validated(settings: Settings) -> Told:
    """E6: all combinations of small sizes; a sample of them in a dry run."""
    found: Validated = validation(not settings.quick, settings.seed)
    failures = {name: str(one) for name, one in found.failures.items()}
    values = {"exhaustive": found.exhaustive, "combinations": found.combinations, "failures": failures,
              "cpu_seconds": found.seconds}  # fmt: skip
    return Told(str(found), values, [f"E6: axiom {name} is wrong: {one}" for name, one in found.failures.items()])
