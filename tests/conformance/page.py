"""docs/conformance.md, from the scores that complete runs leave in ``scores/<backend>.json``."""

from __future__ import annotations

import collections
import datetime
import json
import platform
import re
from dataclasses import asdict, dataclass, field
from importlib import metadata
from pathlib import Path

from deep500 import registry
from deep500.compare.conformance.suite import LOOSENED, ORDER, VERDICTS, Result, Suite
from deep500.compare.conformance.workers import BackendOutcome
from deep500.measure import environment
from tests.conformance import gradients, ledger
from tests.conformance.known import NOBODY, excuse
from tests.conformance.ways import WAYS

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "conformance.md"
SCORES = Path(__file__).parent / "scores"
TITLES = {"node": "node", "pytorch-converted": "pt-conv", "pytorch-operator": "pt-op"}

PEERS = {
    "onnx.reference 1.23.2": (2014, 1370, 473, 8, 18, 21, 82, 35, 7),
    "onnxruntime 1.31.1, IR capped, opset converted down": (1731, 1179, 435, 8, 0, 17, 59, 24, 9),
    "onnxruntime 1.31.1, defaults": (1534, 1038, 379, 8, 0, 17, 59, 24, 9),
    "onnx2fx 0.0.1": (1548, 983, 419, 0, 5, 15, 82, 35, 9),
    "onnx2torch 1.5.15, opset converted down": (625, 421, 119, 0, 0, 6, 54, 25, 0),
    "jaxonnxruntime 0.3.0, static arguments, converted down": (823, 503, 201, 0, 0, 5, 76, 29, 9),
}
"""Passes in all and per group of :data:`ORDER`: other systems on the same 2033 cases, by the same kind of loop."""


@dataclass
class Score:
    """What is kept of a complete run; ``ways`` counts passes, by way of execution and operator (single-node cases)."""

    backend: str
    versions: str
    device: str
    date: str
    seconds: float
    counts: dict[str, dict[str, int]]
    operators: dict[str, list[int]]
    wrong: dict[str, str]
    failed: dict[str, str]
    loose: list[str] = field(default_factory=list)
    ways: dict[str, dict[str, int]] = field(default_factory=dict)

    def total(self, verdict: str) -> int:
        """Cases with a verdict, over all groups."""
        return sum(group.get(verdict, 0) for group in self.counts.values())

    def conditions(self) -> str:
        """In what it was obtained, in one line."""
        return f"{self.device}, {self.versions}, {self.date}, {self.seconds:.0f} s of CPU time"


def sample(suite: Suite, backend: str, size: int) -> list[str]:
    """About ``size`` of the cases that must pass, spread evenly over the suite, which is in order of operators."""
    listed = ledger.failing(backend)
    cases = sorted(case for case in suite.cases if case not in listed and suite.groups[case] != "real")
    return cases[:: max(1, len(cases) // size)]


def score(outcome: BackendOutcome, device: str) -> Score:
    """Count an outcome."""
    counts: dict[str, dict[str, int]] = {group: dict.fromkeys(VERDICTS, 0) for group in ORDER}
    operators: dict[str, list[int]] = collections.defaultdict(lambda: [0, 0])
    for result in outcome.results:
        counts[result.group][result.verdict] += 1
        if result.operator and result.group != "expanded":
            operators[result.operator][0] += result.verdict == "passed"
            operators[result.operator][1] += 1
    packages = dict.fromkeys([outcome.version, *(f"{p} {metadata.version(p)}" for p in ("numpy", "onnx"))])
    versions = ", ".join([*packages, f"Python {platform.python_version()}"])
    where = environment.describe()["cpu"] or platform.machine()
    date = datetime.datetime.now(datetime.timezone.utc).date().isoformat()
    return Score(
        outcome.backend,
        versions,
        f"{device} ({where})",
        date,
        outcome.seconds,
        counts,
        dict(operators),
        _messages(outcome.results, "wrong"),
        _messages(outcome.results, "error", "timeout"),
        sorted(r.case for r in outcome.results if r.tolerance),
        _ways(outcome.results),
    )


def _ways(results: list[Result]) -> dict[str, dict[str, int]]:
    counts: dict[str, collections.Counter[str]] = {way: collections.Counter() for way in WAYS}
    for result in results:
        if result.verdict == "passed":
            counts[result.way or "own"][result.operator if result.way not in ("", "own") else ""] += 1
    return {way: dict(sorted(by_operator.items())) for way, by_operator in counts.items()}


def _messages(results: list[Result], *verdicts: str) -> dict[str, str]:
    return {r.case: r.message[:160] for r in results if r.verdict in verdicts}


def keep(score: Score) -> None:
    """Store a score for the page."""
    SCORES.mkdir(exist_ok=True)
    (SCORES / f"{score.backend}.json").write_text(json.dumps(asdict(score), indent=1, sort_keys=True) + "\n")


def stored() -> list[Score]:
    """The scores of all backends, in the registry's order."""
    paths = [SCORES / f"{name}.json" for name in registry.BACKENDS]
    return [Score(**json.loads(path.read_text())) for path in paths if path.exists()]


def write(suite: Suite) -> None:
    """Write the page."""
    PAGE.write_text(render(stored(), len(suite.cases), gradients.table(suite)))


def render(scores: list[Score], total: int, gradient_section: str) -> str:
    """The page's text."""
    # fmt: off
    parts = [
        _HEAD.format(total=total), _counts(scores, total), _executed(scores), _groups(scores), _loose(scores),
        _named(scores), _operators(scores), gradient_section,
    ]
    # fmt: on
    return "\n".join(parts)


_HEAD = """# Conformance

ONNX ships a test suite for its backends, `onnx.backend.test`: models, inputs, and the outputs that they must give.
Every backend is judged by all of its {total} CPU cases. This page is written by `python -m tests.conformance`
(`make conformance`); what fails is listed with its reason in `tests/conformance/failing`, every other case must pass:
the run fails and names it.
"""

_COUNTED = """*Wrong* is a result that differs from the suite's, *unsupported* one `UnsupportedOperator` error while the
executor was built, *error* any other failure. The suite's tolerance is 1e-3 relative and 1e-7 absolute, with exact
shape and dtype; cases that pass only with a looser one are counted in brackets and named below.
"""


def _row(cells: list[str]) -> str:
    return "| " + " | ".join(cells) + " |\n"


def _counts(scores: list[Score], total: int) -> str:
    text = _row(["backend", *VERDICTS, "share", "obtained with"]) + "|---" * (len(VERDICTS) + 3) + "|\n"
    for s in scores:
        numbers = [str(s.total(v)) for v in VERDICTS]
        numbers[0] = f"**{numbers[0]}**" + (f" ({len(s.loose)})" if s.loose else "")
        text += _row([s.backend, *numbers, f"{100 * s.total('passed') / total:.1f} %", s.conditions()])
    return f"{text}\n{_COUNTED}"


def _executed(scores: list[Score]) -> str:
    text = "## Where the passes come from\n\n" + _row(["backend", *WAYS]) + "|---" + "|---:" * len(WAYS) + "|\n"
    for s in scores:
        text += _row([s.backend, *[str(sum(s.ways.get(way, {}).values())) for way in WAYS]])
    text += "\n" + "; ".join(f"*{way}*: {meaning}" for way, meaning in WAYS.items())
    text += ". A case whose nodes went several ways counts for the last of them. By operator (cases of one node):\n\n"
    for s in scores:
        for way in list(WAYS)[1:]:
            named = [f"{name} {count}" for name, count in s.ways.get(way, {}).items() if name]
            if named:
                text += f"- {s.backend}, {way}: {', '.join(named)}.\n"
    return text


def _groups(scores: list[Score]) -> str:
    text = "## Beside other systems\n\nPassed cases by group; *expanded*: function bodies in place of operators.\n\n"
    text += _row(["system", "all", *[TITLES.get(g, g) for g in ORDER]]) + "|---" + "|---:" * (len(ORDER) + 1) + "|\n"
    for s in scores:
        text += _row(
            [
                f"Deep500 {s.backend}",
                *[f"**{n}**" for n in [s.total("passed")]],
                *[str(s.counts[g]["passed"]) for g in ORDER],
            ]
        )
    for peer, numbers in PEERS.items():
        text += _row([peer, *map(str, numbers)])
    return text + (
        "\nThe figures of the other systems were measured by this project earlier, on the same cases with the same"
        " versions of onnx and numpy (CPU, one thread). onnx-tf 1.10 can no longer be imported; onnx2tf 1.29.24 passed"
        " 37 of 88 sampled cases.\n"
    )


def _loose(scores: list[Score]) -> str:
    text = "## Loosened tolerances\n\n"
    for pattern, (atol, reason) in LOOSENED.items():
        text += f"- `{pattern}`: absolute {atol:g}; {reason}.\n"
    for s in scores:
        if s.loose:
            text += f"- {s.backend}, {len(s.loose)}: {', '.join(f'`{c}`' for c in s.loose)}\n"
    return text


def _named(scores: list[Score]) -> str:
    text = "## Wrong results and errors, by name\n\n"
    for pattern, reason in NOBODY.items():
        text += f"- No backend passes `{pattern}`: {reason}.\n"
    for s in scores:
        failed = s.total("error") + s.total("timeout")
        text += f"\n**{s.backend}**: {s.total('wrong')} wrong, {failed} errors and time-outs\n\n"
        for kind, cases in (("wrong", s.wrong), ("error", s.failed)):
            for case, message in cases.items():
                if not any(re.search(pattern, case) for pattern in NOBODY):
                    text += f"- {kind}: `{case}`: {excuse(s.backend, case) or _plain(message)}\n"
    return text


def _plain(message: str) -> str:
    return "`" + " ".join(message.replace("`", "'").split())[:120] + "`"


def _operators(scores: list[Score]) -> str:
    text = (
        "## By operator\n\nOperators of single-node cases that some backend does not pass in full (passed / cases):\n\n"
    )
    text += _row(["operator", *[s.backend for s in scores]]) + "|---" + "|---:" * len(scores) + "|\n"
    for name in sorted({name for s in scores for name in s.operators}):
        numbers = [s.operators.get(name, [0, 0]) for s in scores]
        if any(passed < cases for passed, cases in numbers):
            text += _row([name, *["all" if p == c else f"{p} / {c}" for p, c in numbers]])
    full = [f"{s.backend} {sum(p == c for p, c in s.operators.values())} of {len(s.operators)}" for s in scores]
    return text + f"\nPassed in full: {', '.join(full)} operators.\n"
