"""Rules as code: what may be called a result, and which ways of presenting results mislead.

Each rule is a function of a results folder: pass, fail, missing (it does not find what it needs) or not applicable,
with a reason. ``deep500 publish check DIR`` runs
them; a run writes ``rules.json`` and its report shows them first.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from pathlib import Path
from typing import Any

from deep500.results.files import to_json, write_atomic
from deep500.results.layout import check_layout
from deep500.results.rules import own_rules, twelve_rules, twelve_ways
from deep500.results.rules.view import CLAIMS as CLAIMS
from deep500.results.rules.view import FAIL as FAIL
from deep500.results.rules.view import FLAGGED as FLAGGED
from deep500.results.rules.view import MISSING as MISSING
from deep500.results.rules.view import NOT_APPLICABLE as NOT_APPLICABLE
from deep500.results.rules.view import PASS as PASS
from deep500.results.rules.view import RuleFinding as RuleFinding
from deep500.results.rules.view import RunView as RunView

RULES_FILE = "rules.json"

Rule = Callable[[RunView], RuleFinding]


def _numbered(module: Any, letter: str) -> dict[str, Rule]:
    rules = [(name, rule) for name, rule in vars(module).items() if name[0] == letter and name[1:2].isdigit()]
    return {name.partition("_")[0].upper(): rule for name, rule in rules}


def title_of(name: str) -> str:
    """A rule's name in words.

    Example:
        >>> title_of("R1"), title_of("F3")
        ('base of speedups', 'all runs')
    """
    return RULES[name].__name__.partition("_")[2].replace("_", " ")


RULES: dict[str, Rule] = {**_numbered(twelve_rules, "r"), **_numbered(twelve_ways, "f"), **_numbered(own_rules, "d")}
"""All rules by id, R1 to R12, F1 to F12, and our own D1 to D3."""


def summary_of(rule: Rule) -> str:
    """A rule in one sentence."""
    return (rule.__doc__ or "").strip().splitlines()[0]


def check(
    path: Path, more: Sequence[dict[str, Any]] = (), only: Collection[str] | None = None
) -> dict[str, RuleFinding]:
    """Judge a results folder by the rules, by id; raises ResultsError if the folder is none.

    Args:
        path: results folder.
        more: claims beyond those in the folder.
        only: ids of the rules; all of them if None.
    """
    check_layout(path, of_a_run=False)
    run = RunView(path, more=more)
    return {name: rule(run) for name, rule in RULES.items() if only is None or name in only}


def write_rules(path: Path, only: Collection[str] | None = None) -> dict[str, RuleFinding]:
    """Check, by all rules or some, and write ``rules.json``."""
    findings = check(path, only=only)
    content = {
        name: {"rule": summary_of(RULES[name]), "status": finding.status, "reason": finding.reason, "fix": finding.fix}
        for name, finding in findings.items()
    }
    write_atomic(path / RULES_FILE, to_json({"schema": "deep500-rules-1", "rules": content}) + "\n")
    return findings
