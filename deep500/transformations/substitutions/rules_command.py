"""``deep500 tools rules``: list, show, prove and apply rules of substitutions, the shipped ones and one's own."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable
from pathlib import Path

from deep500.errors import InputError
from deep500.networks.network import Network
from deep500.transformations.substitutions.delivery import Source, deliver
from deep500.transformations.substitutions.loading import written_rules
from deep500.transformations.substitutions.operators.own import load_activation
from deep500.transformations.substitutions.report import readable
from deep500.transformations.substitutions.rewriting import apply_rules, one_rule, prove, rule
from deep500.transformations.substitutions.rules.rule_text import to_text


def add_command(parser: argparse.ArgumentParser) -> Callable[[argparse.Namespace], int]:
    """Declare the words of ``rules``; returns what executes it."""
    parser.epilog = __doc__
    add = parser.add_argument
    add("what", choices=sorted(WORDS), help="list [FILE] | show ID [FILE] | prove FILE | apply RULES MODEL -o OUT")
    add("names", nargs="*", metavar="NAME", help="as 'what' says; prove LEFT.onnx RIGHT.onnx takes two networks")
    add("-o", "--out", type=Path, metavar="FILE", help="apply: where the model goes")
    add("--unproved", action="store_true", help="apply: rules without a proof too, unless numbers refute them")
    add("--operator", action="append", default=[], metavar="FILE.py:NAME", help="an activation of your own")
    return execute


def execute(args: argparse.Namespace) -> int:
    """Exit codes: 0 done (prove: all are proved), 1 prove: some rule is refuted or unknown, 2 bad usage."""
    for activation in args.operator:
        load_activation(activation)
    least, most, do = COUNTS[args.what]
    if not least <= len(args.names) <= most or (args.out is not None) != (args.what == "apply"):
        raise InputError(f"got rules {args.what} {' '.join(args.names)}; expected deep500 tools rules {do}")
    return WORDS[args.what](args)


def _list(args: argparse.Namespace) -> int:
    for written in written_rules(args.names[0] if args.names else None):
        name = f"{written.name}  " if written.name != written.rule.id else ""
        sys.stdout.write(f"{written.rule.id}  {name}{readable(written.rule)}\n")
    return 0


def _show(args: argparse.Namespace) -> int:
    name, *files = args.names
    written = one_rule(files[0] if files else None, name)
    sys.stdout.write(
        f"{written.name}\n{readable(written.rule)}\n\n{to_text(written.rule)}\n\n{prove(written.rule)[0]}\n"
    )
    return 0


def _prove(args: argparse.Namespace) -> int:
    if len(args.names) == 2:
        both = rule(Path(args.names[0]), Path(args.names[1]))
        names, verdicts = [to_text(both)], prove(both)
    else:
        names, verdicts = [written.name for written in written_rules(args.names[0])], prove(args.names[0])
    for name, verdict in zip(names, verdicts, strict=True):
        sys.stdout.write(f"{name}: {verdict} ({verdict.seconds:.2f} s)\n")
    count = {kind: sum(verdict.rule.verdict == kind for verdict in verdicts) for kind in KINDS}
    sys.stdout.write(f"{', '.join(f'{number} {kind}' for kind, number in count.items())}\n")
    return 0 if count["proved"] == len(verdicts) else 1


def _apply(args: argparse.Namespace) -> int:
    rules, model = args.names
    if args.out.is_dir() or not args.out.parent.is_dir():
        raise InputError(f"got {args.out}; expected the name of a file in a folder that exists: make the folder first")
    network = Network.from_onnx(model)
    source = Source.read(model, network)
    applied = apply_rules(network, rules, args.unproved)
    how = deliver(applied.network, applied.history, source, args.out, rules=rules)
    sys.stdout.write(f"{len(network.nodes)} -> {len(applied.network.nodes)} operators\n{applied}\n{how}\n{args.out}\n")
    return 0


KINDS = ("proved", "refuted", "unknown")
WORDS: dict[str, Callable[[argparse.Namespace], int]] = {"list": _list, "show": _show, "prove": _prove, "apply": _apply}
COUNTS = {
    "list": (0, 1, "list [FILE]"),
    "show": (1, 2, "show ID [FILE]"),
    "prove": (1, 2, "prove FILE, or prove LEFT.onnx RIGHT.onnx"),
    "apply": (2, 2, "apply RULES MODEL -o OUT"),
}
