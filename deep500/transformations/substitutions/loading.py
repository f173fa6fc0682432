"""Rules from wherever they are named: the shipped file, files of other people, texts, objects.

Only what the shipped file holds is taken at its word: everything else is proved again here, whatever it says of itself.
"""

from __future__ import annotations

import functools
from collections.abc import Iterable, Sequence
from pathlib import Path

from deep500.errors import DataError
from deep500.transformations.substitutions.operators.own import OWN
from deep500.transformations.substitutions.proofs.verdicts import Verdict, judge
from deep500.transformations.substitutions.rules.rule_file import SHIPPED, PatternRule, read
from deep500.transformations.substitutions.rules.rule_text import WrittenRule, read_text, to_text

Rules = str | Path | PatternRule | Iterable["str | Path | PatternRule"] | None
"""Values of ``rules=``: None or ``"shipped"``, a file (``.txt``, or lines of JSON), a rule, or several of these."""
WORD = "shipped"


def written_rules(rules: Rules) -> list[WrittenRule]:
    """Rules as they are written, each once, with the names of a text file; nothing is proved by that.

    Raises:
        DataError: a file is absent or holds no rules.
    """
    rules_by_id: dict[str, WrittenRule] = {}
    for source in [rules] if rules is None or isinstance(rules, (str, Path, PatternRule)) else rules:
        rules_by_id.update({written.rule.id: written for written in _read_source(source)})
    return list(rules_by_id.values())


def _read_source(source: str | Path | PatternRule | None) -> list[WrittenRule]:
    if isinstance(source, PatternRule):
        return [WrittenRule(source.id, source)]
    if source is not None and str(source).endswith(".txt"):
        return read_text(source)
    path = SHIPPED if source is None or str(source) == WORD else Path(source)
    return [WrittenRule(rule.id, rule, where=path.name) for rule in read(path)]


def load_rules(rules: Rules = None, unproved: bool = False) -> list[PatternRule]:
    """Rules that may be applied, with the verdicts that were reached here.

    Args:
        rules: where they are.
        unproved: take rules that are neither proved nor refuted, too.

    Raises:
        DataError: a file is absent or holds no rules; a rule is refuted, unknown without ``unproved``, or fits nowhere.
        MissingEngine: egglog is not installed, and there are rules other than the shipped ones.

    Example:
        >>> len(load_rules()) == len(load_rules("shipped")) > 300
        True
    """
    written = written_rules(rules)
    for rule, verdict in zip(written, judged(tuple(rule.rule for rule in written)), strict=True):
        refuse(rule, verdict, unproved)
    return [verdict.rule for verdict in judged(tuple(rule.rule for rule in written))]


def judged(rules: Sequence[PatternRule], thorough: bool = False) -> list[Verdict]:
    """Judge rules as `judge` does, once per process for the same rules, and activations of one's own."""
    return _judged(tuple(rules), thorough, tuple(OWN))


@functools.lru_cache(maxsize=16)
def _judged(rules: tuple[PatternRule, ...], thorough: bool, activations: tuple[str, ...]) -> list[Verdict]:
    return judge(rules, thorough)


def refuse(written: WrittenRule, verdict: Verdict, unproved: bool) -> None:
    """Raise DataError for a rule that may not be applied."""
    text = f"{written.where}: got rule {written.name}, {to_text(written.rule)}"
    if verdict.rule.verdict == "refuted":
        raise DataError(f"{text}; expected one that holds, which this does not: {verdict.counterexample}")
    if not verdict.fits:
        raise DataError(f"{text}; expected sides that fit together; these do for no sizes that were tried")
    if verdict.rule.verdict != "proved" and not unproved:
        raise DataError(
            f"{text}; expected a rule that the provers prove, which they did not: see 'deep500 tools rules prove', or "
            "apply it on your own responsibility with --unproved (unproved=True)"
        )


def texts_of(rules: Rules) -> dict[str, tuple[PatternRule, str]]:
    """Id -> (rule, name as written), for reports of what was applied already."""
    return {written.rule.id: (written.rule, written.name) for written in written_rules(rules)}
