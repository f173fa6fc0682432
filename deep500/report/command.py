"""``deep500 verify DIR``: everything that :mod:`deep500.results.verify` checks, and the page that people read."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable
from pathlib import Path

from deep500.errors import ResultsError
from deep500.progress import progress
from deep500.report.claims import figures_of, plot_claims
from deep500.report.page import render, view
from deep500.results.attestation import NOT_PROVED, attested_by, stamped_at
from deep500.results.claims import BY
from deep500.results.command import add_json
from deep500.results.files import to_json
from deep500.results.record import REPORT, SUMMARY, Record
from deep500.results.rules import CLAIMS, RunView
from deep500.results.sealing import ATTESTATION
from deep500.results.signing import signer_of
from deep500.results.verify import Examined, FolderCheck, examine

PROBLEM = 1


def add_verify(parser: argparse.ArgumentParser) -> Callable[[argparse.Namespace], int]:
    """Declare the options of ``verify``; returns what executes it."""
    parser.add_argument("folder", type=Path, help="results folder of a finished run")
    parser.add_argument(
        "--signers", type=Path, metavar="FILE", help="it must be signed by one of these: lines of NAME and public key"
    )
    parser.add_argument(
        "--authority", type=Path, metavar="PEM", help="its time stamp must be by one with these certificates"
    )
    add_json(parser)
    return _verify


def examine_with_page(path: Path) -> Examined:
    """Examine a folder, and also whether the report and its plots follow from the files.

    Raises:
        ResultsError: the folder is no results folder, or was never sealed.
    """
    return examine(path, (PAGE,))


def page_problems(run: RunView) -> list[str]:
    """A report that is not the page which follows from the run's files, and plots that are not claimed as drawn."""
    record = Record(run.path)
    page = (run.path / REPORT).read_text(encoding="utf-8", errors="replace")
    problems = [] if page == render(record) else [f"{REPORT}: it is not the page that follows from the run's files"]
    if not run.has(CLAIMS):
        return problems
    drawn = [{**claim, "by": BY} for claim in plot_claims(figures_of(view(record)))]
    claimed = [c for c in run.sound_claims if c["type"] == "plot" and c.get("by") == BY]
    wrong = [claim for claim in claimed if claim not in drawn] + [claim for claim in drawn if claim not in claimed]
    named = f"{wrong[0].get('question', wrong[0]['kind'])!r}" if wrong else ""
    return problems + ([f"{CLAIMS}: the plot {named} is not claimed as it is drawn"] if wrong else [])


PAGE = FolderCheck("report from all files", page_problems, lambda run: run.has(REPORT) and run.has(SUMMARY))
"""The check of the page."""


def _verify(args: argparse.Namespace) -> int:
    with progress("verifying", quiet=args.json):
        examined = examine_with_page(args.folder)
    problems, signed = list(examined.problems), ""
    if args.signers is not None:
        try:
            signed = f"; signed by {signer_of(args.folder, args.signers)}"
            if (args.folder / ATTESTATION).is_file():
                signed += f", attested by {attested_by(args.folder, args.signers)}"
        except ResultsError as error:
            problems.append(str(error))
    stamped = ""
    if args.authority is not None:
        try:
            stamped = f"; there at {stamped_at(args.folder, args.authority)}, by a time stamp"
        except ResultsError as error:
            problems.append(str(error))
    if args.json:
        about = {"folder": str(args.folder), "problems": problems, "signed": bool(signed), "found": str(examined)}
        about |= {"absent": list(examined.absent), "unjudged": list(examined.unjudged), "older": list(examined.older)}
        sys.stdout.write(to_json(about) + "\n")
        return PROBLEM if problems else 0
    remark = [NOT_PROVED] if signed else []
    lines = problems or [f"{args.folder}: {examined}{signed}{stamped}", *remark]
    sys.stdout.write("".join(f"{line}\n" for line in lines))
    return PROBLEM if problems else 0
