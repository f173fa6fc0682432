"""The commands ``seal``, ``check``, ``env``, ``export`` and ``query``: what can be done with results."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

from deep500.errors import RecipeError
from deep500.measure.advice import BAD, advise
from deep500.measure.fingerprint import fingerprint, full_environment
from deep500.results.attestation import NOT_PROVED, attest, request_time_stamp
from deep500.results.export import FORMATS, export
from deep500.results.files import to_json
from deep500.results.query import query
from deep500.results.rules import FLAGGED, RULES, check, summary_of
from deep500.results.sealing import STAMP
from deep500.results.signing import sign
from deep500.results.verify import verify

PROBLEM = 1


def add_seal(parser: argparse.ArgumentParser) -> Callable[[argparse.Namespace], int]:
    """Declare the options of ``seal``; returns what executes it."""
    parser.add_argument("folder", type=Path, help="results folder of a finished run")
    add = parser.add_argument
    add("--sign", type=Path, metavar="KEY", help="SSH key that signs the seal, and an attestation (in-toto) of the run")
    add("--time-stamp", action="store_true", help="write the request of a time stamp (RFC 3161), for an authority")
    add_json(parser)
    return _seal


def add_check(parser: argparse.ArgumentParser) -> Callable[[argparse.Namespace], int]:
    """Declare the options of ``check``; returns what executes it."""
    parser.add_argument("folder", type=Path, nargs="?", help="results folder")
    parser.add_argument("--list", action="store_true", help="show the rules")
    add_json(parser)
    return _check


def add_env(parser: argparse.ArgumentParser) -> Callable[[argparse.Namespace], int]:
    """Declare the option of ``env``; returns what executes it."""
    parser.add_argument(
        "--check", action="store_true", help="what disturbs measurements here and what to change, a line each"
    )
    add_json(parser)
    return _env


def add_export(parser: argparse.ArgumentParser) -> Callable[[argparse.Namespace], int]:
    """Declare the options of ``export``; returns what executes it."""
    parser.add_argument("folder", type=Path, help="results folder")
    parser.add_argument("--to", required=True, choices=FORMATS, help="the format")
    parser.add_argument("-o", "--out", type=Path, metavar="DIR", help="folder for the files (./export)")
    add_json(parser)
    return _export


def add_query(parser: argparse.ArgumentParser) -> Callable[[argparse.Namespace], int]:
    """Declare the options of ``query``; returns what executes it."""
    parser.add_argument("sql", help="over the tables runs, metrics, curve and estimates")
    parser.add_argument(
        "--out", type=Path, default=Path("results"), metavar="DIR", help="where the runs are (./results)"
    )
    add_json(parser)
    return _query


def add_json(parser: argparse.ArgumentParser) -> None:
    """Declare ``--json``."""
    parser.add_argument("--json", action="store_true", help="print one JSON object and nothing else")


def say_written(args: argparse.Namespace, *files: Path, text: str | None = None) -> None:
    """Print what was written: the paths or ``text``; with ``--json`` the paths as one object."""
    _say([to_json({"files": [str(file) for file in files]})] if args.json else [text] if text else files)


def _seal(args: argparse.Namespace) -> int:
    if args.sign is None and not args.time_stamp:
        raise RecipeError("got a folder to seal and nothing to do; expected --sign KEY or --time-stamp: add one")
    problems = verify(args.folder)
    if problems:
        _say([to_json({"problems": problems})] if args.json else problems)
        return PROBLEM
    files = [] if args.sign is None else [sign(args.folder, args.sign), attest(args.folder, args.sign)]
    lines = [f"{file}: signed; deep500 verify {args.folder} --signers FILE checks it" for file in files]
    lines += [NOT_PROVED] if files else []
    if args.time_stamp:
        files.append(request_time_stamp(args.folder))
        lines.append(f"{files[-1]}: send it to a time stamp authority (RFC 3161), put the answer to {STAMP} beside it")
    say_written(args, *files, text="\n".join(lines))
    return 0


def _check(args: argparse.Namespace) -> int:
    if args.list or args.folder is None:
        rules = {name: summary_of(rule) for name, rule in RULES.items()}
        _say([to_json(rules)] if args.json else (f"{name:4}{summary}" for name, summary in rules.items()))
        return 0
    findings = check(args.folder)
    _say(
        [to_json({name: asdict(finding) for name, finding in findings.items()})]
        if args.json
        else (
            f"{name:4}{finding.status:15}{finding.reason}{'; ' + finding.fix if finding.fix else ''}"
            for name, finding in findings.items()
        )
    )
    return PROBLEM if any(finding.status in FLAGGED for finding in findings.values()) else 0


def _env(args: argparse.Namespace) -> int:
    if args.check:
        findings = advise()
        _say([to_json({"advice": [asdict(finding) for finding in findings]})] if args.json else findings)
        return PROBLEM if any(advice.state == BAD for advice in findings) else 0
    environment = full_environment()
    _say([to_json({"sha256": fingerprint(environment), **environment})])
    return 0


def _export(args: argparse.Namespace) -> int:
    say_written(args, *export(args.folder, args.to, args.out or Path("export")))
    return 0


def _query(args: argparse.Namespace) -> int:
    columns, rows = query(args.out, args.sql)
    if args.json:
        _say([to_json({"rows": [dict(zip(columns, row, strict=True)) for row in rows]})])
        return 0
    _say("\t".join(map(_cell, row)) for row in [tuple(columns), *rows])
    return 0


def _cell(value: object) -> str:
    """A value on one line and in one column."""
    return "" if value is None else str(value).replace("\n", "\\n").replace("\t", "\\t")


def _say(lines: Any) -> None:
    sys.stdout.write("".join(f"{line}\n" for line in lines))
