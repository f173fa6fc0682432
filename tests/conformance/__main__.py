"""Judge backends by ONNX's own suite, and write docs/conformance.md: ``python -m tests.conformance [--backend NAME]``.

Fails (exit code 1) if a case does not pass that tests/conformance/failing does not list, or if a result is wrong
without a reason that is written down in tests/conformance/known.py; both are named. A run with ``--only`` or
``--sample`` writes no page.
"""

from __future__ import annotations

import argparse
import collections
import os
import sys
import tempfile
from pathlib import Path

from deep500 import registry
from deep500.compare.conformance import workers
from deep500.compare.conformance.command import SURROUNDINGS
from deep500.compare.conformance.suite import VERDICTS, Result, Suite
from tests.conformance import ledger, page, ways


def _options(arguments: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.conformance", description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--backend", action="append", help="may be given several times; all that are installed if not")
    parser.add_argument("--only", default="", help="regular expression on the cases' names")
    parser.add_argument("--sample", type=int, metavar="N", help="about N cases per backend, drawn from every operator")
    parser.add_argument("--device", default="cpu", help="where they run: cpu, gpu, gpu:1")
    parser.add_argument(
        "--jobs", type=int, default=os.cpu_count() or 1, metavar="N", help="processes at a time (all cores)"
    )
    parser.add_argument("--update", action="store_true", help="write what fails now, of these cases, into the lists")
    parser.add_argument("--check", action="store_true", help="write neither the page nor the lists")
    parser.add_argument("--out", type=Path, default=Path("build/conformance"), help="folder of the JSON lines and logs")
    return parser.parse_args(arguments)


def main(arguments: list[str] | None = None) -> int:
    """Run, count, compare, write."""
    options = _options(arguments)
    names = options.backend or [name for name in registry.BACKENDS if registry.is_installed(name)]
    unknown = sorted(set(names) - set(registry.backend_names()))
    if unknown:
        print(
            f"got backend {', '.join(unknown)}; expected some of {', '.join(registry.backend_names())}", file=sys.stderr
        )
        return 2
    missing = [name for name in names if not registry.is_installed(name)]
    if missing:
        print(
            f"got backend {', '.join(missing)}, not installed; expected: pip install 'deep500[{','.join(missing)}]'",
            file=sys.stderr,
        )
        return 3
    whole = not options.only and options.sample is None
    with tempfile.TemporaryDirectory(prefix="deep500-onnx-") as home:
        os.environ.update(SURROUNDINGS, ONNX_HOME=home)  # the suite writes its real models there
        suite = Suite(options.device)
        size = options.sample
        cases = {name: page.sample(suite, name, size) if size else suite.select(options.only) for name in names}
        outcomes = workers.run(suite, cases, options.out, options.jobs, ways.Recorder)
        findings = {name: ledger.examine(name, outcome.results) for name, outcome in outcomes.items()}
        for name, outcome in outcomes.items():
            score = page.score(outcome, options.device)
            _report(score, outcome.results, findings[name])
            if options.update:
                ledger.note(name, outcome.results)
            if whole and not options.check and options.device == "cpu":
                page.keep(score)
        if whole and not options.check:
            page.write(suite)
    return 0 if options.update or all(each.ok for each in findings.values()) else 1


def _report(score: page.Score, results: list[Result], findings: ledger.Findings) -> None:
    """The score, then whatever needs a look."""
    for result in results:
        if result.verdict in ("error", "timeout"):
            print(f"  {result.verdict:>7}  {result.case}: {result.message[:160]}")
    for result in findings.wrong:
        print(f"    WRONG  {result.case}: {result.message[:240]}")
    for result in findings.lost:
        print(f"     LOST  {result.case} must pass, now {result.verdict}: {result.message[:240]}")
    counts = collections.Counter(r.verdict for r in results)
    print(
        f"{score.backend}: "
        + ", ".join(f"{counts[v]} {v}" for v in VERDICTS)
        + f" of {len(results)}; {score.conditions()}"
    )
    if findings.gained:
        print(
            f"{score.backend}: {len(findings.gained)} cases pass that are listed as failing; strike them with --update"
        )


if __name__ == "__main__":
    sys.exit(main())
