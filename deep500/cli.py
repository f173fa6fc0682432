"""The command ``deep500``: run a recipe, compare, optimize a model, work with results, show what there is, set up."""

from __future__ import annotations

import argparse
import json
import os
import re
import sys
import textwrap
from collections.abc import Callable, Mapping, Sequence
from contextlib import redirect_stdout
from importlib import import_module
from pathlib import Path
from typing import Any

import deep500
from deep500 import completion
from deep500.errors import MissingBackend, RecipeError, nearest
from deep500.guard import BOLD, DEBUG, VisibleOutput, guarded, paint
from deep500.progress import above, progress, stage
from deep500.recipe.options import Against, Parser, add_against, add_options, take_options, warn_renamed
from deep500.registry import backend_names, is_installed, load_backend

EXIT_CODES = (
    "Exit codes: 0 every judged metric passes, 1 a target is missed, training failed, frameworks differ, a rule is "
    "broken or a run was altered, 2 bad usage, 3 a backend, device or data set is missing, 130 interrupted."
)

Execute = Callable[[argparse.Namespace], int]
"""Does what a parsed command line says and returns the exit code."""

GROUPS: dict[str, dict[str, tuple[str, str]]] = {
    "measure": {
        "run": ("run a recipe by file or name", "deep500.cli:add_run"),
        "compare": ("frameworks, ONNX files or runs: the same? faster?", "deep500.compare.command:add_command"),
        "measure-op": ("one operator: the same? its gradient? faster?", "deep500.compare.operator_command:add_command"),
        "profile": ("which node takes the time of a step?", "deep500.profiling.command:add_command"),
        "bits": ("the same bits? if not, by which operator?", "deep500.compare.bits_command:add_command"),
        "sweep": ("a recipe with many settings, on one page", "deep500.race.sweep_command:add_command"),
        "race": ("training algorithms over tasks: which is faster?", "deep500.race.command:add_command"),
        "simulate": ("predict how a recipe scales over a network", "deep500.scaling.command:add_command"),
    },
    "models": {
        "optimize": (
            "rewrite an ONNX file by proved substitutions",
            "deep500.transformations.substitutions.command:add_command",
        )
    },
    "results": {
        "report": ("write a page about a run, or several", "deep500.compare.report:add_command"),
        "query": ("ask in SQL over all runs below a folder", "deep500.results.command:add_query"),
        "verify": ("is a run as it was sealed, do its figures follow?", "deep500.compare.reproduction:add_verify"),
    },
    "publish": {
        "check": ("hold a run to the rules of sound measurement", "deep500.compare.convergence:add_check"),
        "seal": ("sign the seal of a run with an SSH key", "deep500.results.command:add_seal"),
        "package": ("pack a finished run for a reviewer", "deep500.compare.package:add_command"),
        "review": ("make a package's figures again, do they agree?", "deep500.compare.review:add_command"),
        "export": ("write a run for other tools", "deep500.results.command:add_export"),
        "average": ("write the mean of a run's last checkpoints", "deep500.results.averaging:add_average"),
    },
    "begin": {
        "list": ("recipes, models, data sets, schemes, backends", "deep500.cli:add_list"),
        "new": ("write a recipe, backend, operator, ... to begin with", "deep500.recipe.skeletons:add_new"),
    },
    "tools": {
        "info": ("versions, backends, devices, data sets, folders", "deep500.cli:add_info"),
        "env": ("this machine; is it fit to measure?", "deep500.results.command:add_env"),
        "setup": ("bring a part that pip alone cannot install", "deep500.cli:add_setup"),
        "operator": ("is the derived gradient of a C++ file right?", "deep500.operators.enzyme.command:add_command"),
        "cache": ("compiled operators: list, measure, clear", "deep500.operators.cpp.cache_command:add_command"),
        "rules": (
            "rules of substitutions: list, prove, apply",
            "deep500.transformations.substitutions.rules_command:add_command",
        ),
        "gradient": (
            "write an ONNX file with gradients as outputs",
            "deep500.networks.execution.gradient_file:add_command",
        ),
        "conformance": ("judge a backend by ONNX's own suite", "deep500.compare.conformance.command:add_command"),
    },
}
"""Every command: what it does, and the function that declares its options and returns its `Execute`. A command's module
is imported when the command is used, so that ``deep500 --help`` loads none of them."""

COMMANDS = {name: entry for group in GROUPS.values() for name, entry in group.items()}

NESTED = ("publish", "tools")
"""Groups whose name is typed before that of the command."""

TWO_WORDS = {name: f"{group} {name}" for group in NESTED for name in GROUPS[group]}
"""Commands that are typed after the name of their group; before version 1.0 they were one word."""

FIRST = [*(name for name in COMMANDS if name not in TWO_WORDS), *NESTED]
"""Words that may follow ``deep500``."""


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line and return the exit code; ``argv`` defaults to the process's own."""
    if completion.WANTED in os.environ:
        completion.offer(FIRST, {group: GROUPS[group] for group in NESTED}, _parser)
    words = sys.argv[1:] if argv is None else list(argv)
    try:
        return guarded(lambda: _main(words), debug=DEBUG in words)
    except SystemExit as leave:
        return leave.code if isinstance(leave.code, int) else int(bool(leave.code))


def _main(argv: list[str]) -> int:
    name = argv[0] if argv else ""
    if name in TWO_WORDS:
        warn_renamed(f"deep500 {name}", f"deep500 {TWO_WORDS[name]}")
    elif argv[1:] and f"{name} {argv[1]}" in TWO_WORDS.values():
        argv = argv[1:]
        name = argv[0]
    if name in COMMANDS:
        parser, execute = _parser(name)
        words = parser.renewed(argv[1:])
        args = parser.parse_intermixed_args(words, argparse.Namespace(argv=[name, *words]))
        if name == "run":  # the recipe is the user's own, and may print in colours
            return execute(args)
        with redirect_stdout(VisibleOutput(sys.stdout)):  # others show names and texts of whoever made a folder
            return execute(args)
    parser = Parser(prog="deep500", usage="deep500 [--version] [--debug] COMMAND ... [--help]", add_help=False)
    parser.add_argument("-h", "--help", action="store_true")
    parser.add_argument("--version", action="version", version=f"deep500 {deep500.__version__}")
    if {"-h", "--help"} & set(argv) or argv in ([group] for group in NESTED):
        sys.stdout.write(overview())
        return 0
    nested = name in NESTED
    if name not in FIRST and re.fullmatch(r"\w[\w-]*", name):
        known = re.sub("'(.+?)'", lambda n: repr(TWO_WORDS.get(n[1], n[1])), nearest(name, [*FIRST, *TWO_WORDS]))
        raise RecipeError(f"got a wrong command line: invalid choice: {name!r}; expected a command; {known}")
    parser.add_argument("command", choices=list(GROUPS[name]) if nested else FIRST)
    return _main([parser.parse_args(argv[nested:][:1]).command])  # leaves with a version or an error


def overview() -> str:
    """Return the help of ``deep500``: every command by its group, on one screen."""
    lines = ["usage: deep500 COMMAND ... ; each has --help, --json and --debug", ""]
    for group, commands in GROUPS.items():
        first = f"deep500 {group} ..." if group in NESTED else group
        lines += [paint(f"{first}:", BOLD), *(f"  {name:12}{about}" for name, (about, _) in commands.items())]
    return "\n".join([*lines, "", *textwrap.wrap(EXIT_CODES, 79), ""])


def _parser(command: str) -> tuple[Parser, Execute]:
    """Return a command's options, and what executes it."""
    module, _, function = COMMANDS[command][1].partition(":")
    parser = Parser(prog=f"deep500 {TWO_WORDS.get(command, command)}", allow_abbrev=False)
    execute: Execute = getattr(import_module(module), function)(parser)
    return parser, execute


def add_run(parser: argparse.ArgumentParser) -> Execute:
    """Declare the options of ``run``; returns what executes it."""
    parser.add_argument("recipe", help="a file, or a name that 'deep500 list' shows")
    add_options(parser)
    add_against(parser)
    return _run


def _run(args: argparse.Namespace) -> int:
    from deep500.recipe.loader import find_recipe, load_recipe
    from deep500.recipe.plan import RecipeFile
    from deep500.recipe.runner import execute

    path = find_recipe(args.recipe)
    command = ["-m", "deep500", *args.argv]  # starts this again, on every rank
    del args.recipe, args.argv
    against, options = Against.taken_from(args), take_options(args)
    if not against.nothing or (options.resume or "").endswith(".json"):
        from deep500.compare.against import run_against

        if options.name or options.tags:
            raise RecipeError("got --name or --tag with --against; expected them for single runs: leave them out")
        return run_against(path, options, against)
    with progress(f"loading {Path(path).name}", quiet=options.quiet or options.json, at_once=True):
        recipe, source = load_recipe(path, options.framework), RecipeFile.at(path)
    return execute(recipe.FIXED, recipe.MUTABLE, recipe.METRICS, options, source, command).exit_code


def add_list(parser: argparse.ArgumentParser) -> Execute:
    """Declare the options of ``list``; returns what executes it."""
    from deep500.results.command import add_json

    parser.add_argument("what", nargs="?", choices=LISTED, help="only these; everything if left out")
    add_json(parser)
    return _list


LISTED = ("recipes", "studies", "models", "datasets", "schemes", "backends", "operators")
"""Sections of `deep500 list`, in this order."""


def _list(args: argparse.Namespace) -> int:
    from deep500.distributed.schemes import by_name
    from deep500.networks.zoo import model_names, model_summary
    from deep500.operators.registry import operator_names, operator_summary
    from deep500.recipe.loader import list_recipes, list_studies
    from deep500.training.data import dataset_info, dataset_names

    sections: dict[str, list[tuple[str, str]]] = {
        "recipes (deep500 run NAME)": [(recipe.name, recipe.summary) for recipe in list_recipes()],
        "studies (python -m recipes.studies.NAME)": [(study.name, study.summary) for study in list_studies()],
        "models": [(name, model_summary(name)) for name in model_names()],
        "data sets": [(name, dataset_info(name).about) for name in dataset_names()],
        "schemes (scheme=NAME, on several ranks)": [
            (name, re.split(r" \(|[:.;] ", " ".join((kind.__doc__ or "").replace("``", "").split()))[0].rstrip("."))
            for name, kind in sorted(by_name().items())
        ],
        "backends": [(name, _backend_state(name)) for name in backend_names()],
        "custom operators (domain deep500)": [(name, operator_summary(name)) for name in operator_names()],
    }
    chosen = [title for what, title in zip(LISTED, sections, strict=True) if args.what in (None, what)]
    return _tables({title: sections[title] for title in chosen}, args.json)


def add_setup(parser: argparse.ArgumentParser) -> Execute:
    """Declare the options of ``setup``; returns what executes it."""
    from deep500.results.command import add_json

    parser.add_argument("part", choices=["enzyme"], help="enzyme: derives gradients of C++ operators")
    add_json(parser)
    return _setup


def _setup(args: argparse.Namespace) -> int:
    from deep500.operators.enzyme.setup import install

    path = install(lambda line: None if args.json else above(line))
    if args.json:
        sys.stdout.write(json.dumps({"engine": str(path)}) + "\n")
    return 0


def add_info(parser: argparse.ArgumentParser) -> Execute:
    """Declare the option of ``info``; returns what executes it."""
    from deep500.results.command import add_json

    add_json(parser)
    return _info


def _info(args: argparse.Namespace) -> int:
    with progress("looking", quiet=args.json, at_once=True):
        sections = _known()
    return _tables(sections, args.json)


def _known() -> dict[str, list[tuple[str, str]]]:
    """The facts that `info` shows, by section."""
    from deep500.measure.environment import describe
    from deep500.operators.enzyme.engine import report
    from deep500.training.data import dataset_names

    facts = describe()
    versions = [(name, version or "not installed") for name, version in facts.pop("versions").items()]
    flat = [
        (
            name,
            ", ".join(f"{k}={v}" for k, v in value.items() if v is not None) if isinstance(value, dict) else str(value),
        )
        for name, value in facts.items()
        if value is not None
    ]
    return {
        "machine": flat,
        "versions": versions,
        "backends": [(name, _backend_state(name)) for name in backend_names()],
        "devices": [(name, _devices(name)) for name in backend_names() if is_installed(name)],
        "enzyme": list(report().items()),
        "data sets": [(name, _data_state(name)) for name in dataset_names()],
        "folders": [("results", str(Path("results").resolve()))],
    }


def _backend_state(name: str) -> str:
    return "installed" if is_installed(name) else f"missing: pip install 'deep500[{name}]'"


def _devices(name: str) -> str:
    stage(f"loading {name}")
    try:
        backend: Any = load_backend(name)
    except MissingBackend as error:
        return str(error)
    count = getattr(backend, "device_count", None)
    return "cpu" if count is None else ", ".join(["cpu", *(f"gpu:{i}" for i in range(count()))])


def _data_state(name: str) -> str:
    from deep500.errors import DataError, MissingDataset
    from deep500.training.data import dataset_info, load_dataset

    if dataset_info(name).built_in:
        return f"built in; licence: {dataset_info(name).licence}"
    stage(f"data set {name}")
    try:
        known, licence = load_dataset(name)[0].provenance, dataset_info(name).licence
        return known if licence in known else f"{known}; licence: {licence}"
    except MissingDataset:
        return "absent"
    except DataError as error:
        return f"cannot be read: {error}"


def _tables(sections: Mapping[str, Sequence[tuple[str, str]]], as_json: bool) -> int:
    """Print them below each other, or as one JSON object."""
    if as_json:
        sys.stdout.write(json.dumps({title.partition(" (")[0]: dict(rows) for title, rows in sections.items()}) + "\n")
        return 0
    for title, rows in sections.items():
        width = max((len(name) for name, _ in rows), default=0)
        lines = [f"{title}:", *(f"  {name.ljust(width)}  {text}".rstrip() for name, text in rows), ""]
        sys.stdout.write("\n".join(lines) + "\n")
    return 0
