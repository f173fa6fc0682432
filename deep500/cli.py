"""The command ``deep500``: run a recipe, compare, optimize a model, work with results, show what there is, set up.

Exit codes: 0 every judged metric passes, 1 a target is missed, training failed, compared frameworks differ, a rule is
broken or a run was altered, 2 bad usage, 3 a backend, device or data set is missing, 130 interrupted.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import redirect_stdout
from importlib import import_module
from pathlib import Path
from typing import Any

import deep500
from deep500 import completion
from deep500.errors import MissingBackend
from deep500.guard import DEBUG, VisibleOutput, guarded
from deep500.progress import above, progress, stage
from deep500.recipe.options import Against, Parser, add_against, add_options, take_options
from deep500.registry import backend_names, is_installed, load_backend

Execute = Callable[[argparse.Namespace], int]
"""Does what a parsed command line says and returns the exit code."""

COMMANDS: dict[str, tuple[str, str]] = {
    "run": ("run a recipe by file or name", "deep500.cli:add_run"),
    "compare": (
        "run a recipe or an ONNX file in several frameworks: same? faster?",
        "deep500.compare.command:add_command",
    ),
    "profile": ("which node takes the time of a step, in every framework?", "deep500.profiling.command:add_command"),
    "bits": (
        "have two runs, models or backends the same bits, and if not, which operator is to blame?",
        "deep500.compare.bits_command:add_command",
    ),
    "optimize": (
        "rewrite an ONNX file by proved substitutions into a faster one",
        "deep500.transformations.substitutions.command:add_command",
    ),
    "rules": (
        "list, show, prove and apply rules of substitutions, your own too",
        "deep500.transformations.substitutions.rules_command:add_command",
    ),
    "gradient": (
        "write an ONNX file with gradients as outputs, which plain ONNX Runtime runs",
        "deep500.networks.execution.gradient_file:add_command",
    ),
    "race": (
        "race training algorithms over several tasks: which is faster, and how sure is that?",
        "deep500.race.command:add_command",
    ),
    "sweep": (
        "run a recipe with many settings: each a sealed run, one page about all",
        "deep500.race.sweep_command:add_command",
    ),
    "simulate": ("predict how a recipe scales over a network", "deep500.scaling.command:add_command"),
    "report": (
        "write one page about a run, or about several with their comparison",
        "deep500.compare.report:add_command",
    ),
    "verify": (
        "are a run's files as they were sealed, do its figures follow from them?",
        "deep500.compare.reproduction:add_verify",
    ),
    "seal": ("sign the seal of a run with an SSH key", "deep500.results.command:add_seal"),
    "check": (
        "hold a run to the twelve rules and the twelve ways to fool the masses",
        "deep500.compare.convergence:add_check",
    ),
    "conformance": (
        "judge a backend, your own too, by the suite that ONNX ships",
        "deep500.compare.conformance.command:add_command",
    ),
    "package": ("pack a finished run for a reviewer", "deep500.compare.package:add_command"),
    "review": ("what in a package agrees, made again from its samples?", "deep500.compare.review:add_command"),
    "average": ("write the mean of a run's last checkpoints", "deep500.results.averaging:add_average"),
    "export": ("write a run for other tools", "deep500.results.command:add_export"),
    "query": ("ask a question in SQL over all runs below a folder", "deep500.results.command:add_query"),
    "list": (
        "list recipes, studies, models, data sets, schemes, backends and custom operators",
        "deep500.cli:add_list",
    ),
    "info": ("show versions, backends, devices, data sets and folders", "deep500.cli:add_info"),
    "env": ("what is known of this machine, as JSON; is it fit to measure?", "deep500.results.command:add_env"),
    "new": (
        "write a recipe, backend, operator, optimizer, scheme, metric or task to begin with, and its test",
        "deep500.recipe.skeletons:add_new",
    ),
    "cache": (
        "list, measure and clear what compiled operators take",
        "deep500.operators.cpp.cache_command:add_command",
    ),
    "setup": ("bring a part that pip alone cannot install", "deep500.cli:add_setup"),
}
"""Every command: what it does, and the function that declares its options and returns its `Execute`. A command's module
is imported when the command is used, so that ``deep500 --help`` loads none of them."""


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line and return the exit code; ``argv`` defaults to the process's own."""
    if completion.WANTED in os.environ:
        completion.offer(COMMANDS, _parser)
    words = sys.argv[1:] if argv is None else list(argv)
    try:
        return guarded(lambda: _main(words), debug=DEBUG in words)
    except SystemExit as leave:
        return leave.code if isinstance(leave.code, int) else int(bool(leave.code))


def _main(argv: list[str]) -> int:
    if argv and argv[0] in COMMANDS:
        parser, execute = _parser(argv[0])
        args = parser.parse_intermixed_args(argv[1:], argparse.Namespace(argv=argv))
        if argv[0] == "run":  # the recipe is the user's own, and may print in colours
            return execute(args)
        with redirect_stdout(VisibleOutput(sys.stdout)):  # others show names and texts of whoever made a folder
            return execute(args)
    parser = Parser(prog="deep500", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--version", action="version", version=f"deep500 {deep500.__version__}")
    commands = parser.add_subparsers(dest="command", metavar="command", required=True, parser_class=Parser)
    for name, (summary, _) in COMMANDS.items():
        commands.add_parser(name, help=summary)
    return _main([parser.parse_args(argv).command])  # leaves with help, version or an error, unless argv begins with --


def _parser(command: str) -> tuple[Parser, Execute]:
    """A command's options, and what executes it."""
    module, _, function = COMMANDS[command][1].partition(":")
    parser = Parser(prog=f"deep500 {command}", allow_abbrev=False)
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
        "data sets": [(name, dataset_info(name).summary) for name in dataset_names()],
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
        return "built in"
    stage(f"data set {name}")
    try:
        return load_dataset(name)[0].provenance
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
