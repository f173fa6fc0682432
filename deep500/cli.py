"""The command ``deep500``: run a recipe, compare, optimize a model, work with results, show what there is, set up.

Exit codes: 0 every judged metric passes, 1 a target is missed, training failed, compared frameworks differ, a rule is
broken or a run was altered, 2 bad usage, 3 a backend, device or data set is missing, 130 interrupted.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import deep500
from deep500.compare.command import add_options as add_compare_options
from deep500.compare.command import execute as execute_comparison
from deep500.compare.report import add_command as add_report_command
from deep500.errors import MissingBackend
from deep500.measure.environment import describe
from deep500.recipe.guard import guarded
from deep500.recipe.loader import find_recipe, list_recipes, load_recipe
from deep500.recipe.options import Parser, add_options, take_options
from deep500.registry import backend_names, is_installed, load_backend
from deep500.results.command import add_commands as add_results_commands
from deep500.scaling.command import add_command as add_simulate_command
from deep500.transformations.substitutions.command import add_command as add_optimize_command


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line and return the exit code; ``argv`` defaults to the process's own."""
    try:
        return guarded(lambda: _main(sys.argv[1:] if argv is None else list(argv)))
    except SystemExit as leave:
        return leave.code if isinstance(leave.code, int) else int(bool(leave.code))


def _main(argv: list[str]) -> int:
    parser = Parser(prog="deep500", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--version", action="version", version=f"deep500 {deep500.__version__}")
    commands = parser.add_subparsers(dest="command", metavar="command", required=True, parser_class=Parser)
    run = commands.add_parser("run", help="run a recipe by file or name", allow_abbrev=False)
    run.add_argument("recipe", help="a file, or a name that 'deep500 list' shows")
    add_options(run)
    compare = commands.add_parser(
        "compare", help="run a recipe or an ONNX file in several frameworks: same? faster?", allow_abbrev=False
    )
    add_compare_options(compare)
    commands.add_parser("list", help="list recipes, models, data sets, backends and custom operators")
    commands.add_parser("info", help="show versions, backends, devices, data sets and folders")
    setup = commands.add_parser("setup", help="bring a part that pip alone cannot install", allow_abbrev=False)
    setup.add_argument("part", choices=["enzyme"], help="enzyme: derives gradients of C++ operators")
    actions: dict[str, Callable[[list[str]], int]] = {"list": _list, "info": _info, "setup": _setup}
    on_results = {
        **add_results_commands(commands),
        **add_report_command(commands),
        **add_simulate_command(commands),
        **add_optimize_command(commands),
    }
    if argv and argv[0] == "run":  # intermixed options and overrides need the sub-parser itself
        return _run(run, argv[1:])
    if argv and argv[0] == "compare":
        return execute_comparison(compare.parse_intermixed_args(argv[1:]))
    words = parser.parse_args(argv)
    return on_results[words.command](words) if words.command in on_results else actions[words.command]([])


def _run(parser: argparse.ArgumentParser, argv: list[str]) -> int:
    from deep500.recipe.plan import Source
    from deep500.recipe.runner import execute

    words = parser.parse_intermixed_args(argv)
    command = ["-m", "deep500", "run", *argv]
    path = find_recipe(words.recipe)
    del words.recipe
    recipe = load_recipe(path)
    options, source = take_options(words), Source.of(path)
    return execute(recipe.FIXED, recipe.MUTABLE, recipe.METRICS, options, source, command).exit_code


def _list(_: list[str]) -> int:
    from deep500.networks.zoo import model_names
    from deep500.operators.registry import operator_names, operator_summary
    from deep500.training.data import dataset_info, dataset_names

    sections = {
        "recipes (deep500 run NAME)": [(one.name, one.summary) for one in list_recipes()],
        "models": [(name, "") for name in model_names()],
        "data sets": [(name, dataset_info(name).summary) for name in dataset_names()],
        "backends": [(name, _backend_state(name)) for name in backend_names()],
        "custom operators (domain deep500)": [(name, operator_summary(name)) for name in operator_names()],
    }
    for title, rows in sections.items():
        _table(title, rows)
    return 0


def _setup(_: list[str]) -> int:
    from deep500.operators.enzyme.setup import install

    install(lambda line: sys.stdout.write(line + "\n"))
    return 0


def _info(_: list[str]) -> int:
    from deep500.operators.enzyme.engine import report
    from deep500.training.data import dataset_names

    facts = describe()
    versions = [(name, version or "not installed") for name, version in facts.pop("versions").items()]
    flat = [
        (name, ", ".join(f"{k}={v}" for k, v in value.items()) if isinstance(value, dict) else str(value))
        for name, value in facts.items()
    ]
    _table("machine", flat)
    _table("versions", versions)
    _table("backends", [(name, _backend_state(name)) for name in backend_names()])
    _table("devices", [(name, _devices(name)) for name in backend_names() if is_installed(name)])
    _table("enzyme", list(report().items()))
    _table("data sets", [(name, _data_state(name)) for name in dataset_names()])
    _table("folders", [("results", str(Path("results").resolve()))])
    return 0


def _backend_state(name: str) -> str:
    return "installed" if is_installed(name) else f"missing: pip install 'deep500[{name}]'"


def _devices(name: str) -> str:
    try:
        backend: Any = load_backend(name)
    except MissingBackend as error:
        return str(error)
    count = getattr(backend, "device_count", None)
    return "cpu" if count is None else ", ".join(["cpu", *(f"gpu:{i}" for i in range(count()))])


def _data_state(name: str) -> str:
    from deep500.errors import DataError
    from deep500.training.data import dataset_info, load_dataset

    if dataset_info(name).built_in:
        return "built in"
    try:
        return load_dataset(name)[0].provenance
    except DataError as error:
        return f"absent or damaged: {error}"


def _table(title: str, rows: Sequence[tuple[str, str]]) -> None:
    width = max((len(name) for name, _ in rows), default=0)
    lines = [f"{title}:", *(f"  {name.ljust(width)}  {text}".rstrip() for name, text in rows), ""]
    sys.stdout.write("\n".join(lines) + "\n")
