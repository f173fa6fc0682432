"""``run_recipe``, which scripts, the command line and other programs call."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from typing import Any

from deep500.distributed import world
from deep500.guard import DEBUG, guarded
from deep500.recipe.checking import mutable_lines
from deep500.recipe.console import Console
from deep500.recipe.launches import are_launches, end_with_parent, launch_seeds
from deep500.recipe.options import Options, parse_options
from deep500.recipe.plan import RecipeFile
from deep500.recipe.ranks import check_size, start_ranks
from deep500.recipe.session import Session
from deep500.recipe.steps import make_plan
from deep500.results import UNJUDGED, RecipeResult, Record


def run_recipe(
    fixed: Mapping[str, Any], mutable: Mapping[str, Any], metrics: Sequence[Any], argv: Sequence[str] | None = None
) -> RecipeResult:
    """Run a benchmark recipe: fixed definitions + mutable definitions + acceptable metrics.

    Called from a module that is run as a script (``__name__ == "__main__"``), it reads ``sys.argv``, prints what it
    does, and leaves the process with code 2 (wrong usage), 3 (backend or data missing), 1 (training failed) or 130
    (interrupted) without a traceback. Elsewhere it reads ``argv`` only and raises.

    Args:
        fixed: what defines the benchmark; changed only with ``--open``. Keys: :data:`deep500.recipe.schema.KEYS`.
        mutable: what a participant may change.
        metrics: pairs (metric, acceptable value or None); each metric knows in which direction it is better.
        argv: options and ``key=value`` overrides, see ``--help``.

    Returns:
        a :class:`~deep500.results.RecipeResult`, truthy when every judged metric passes. The arguments stay as they are.

    Raises:
        RecipeError, DataError, MissingBackend, ResultsError, TrainingError, ...: children of Deep500Error.

    Example:
        >>> run_recipe({}, {}, [])
        Traceback (most recent call last):
        deep500.errors.RecipeError: got no 'model'; expected zoo name, ONNX file, Network, a framework's model, or callable that returns one; add it to FIXED or MUTABLE
    """  # noqa: E501
    caller = sys._getframe(1).f_globals
    path = caller.get("__file__")
    source = RecipeFile.at(path)
    if argv is None and caller.get("__name__") == "__main__" and path is not None:
        command, options = [str(path), *sys.argv[1:]], guarded(lambda: _options(sys.argv[1:], source, caller))
        result = guarded(
            lambda: execute(fixed, mutable, metrics, options, source, command), debug=DEBUG in sys.argv[1:]
        )
        if options.launch is not None:  # what a script does with its result is done once, by who launched the seeds
            raise SystemExit(result.exit_code)
        return result
    return execute(fixed, mutable, metrics, _options(argv or (), source, caller), source)


def _options(argv: Sequence[str], source: RecipeFile, caller: Mapping[str, Any]) -> Options:
    return parse_options(argv, program=source.path.name if source.path else "recipe", description=caller.get("__doc__"))


def execute(
    fixed: Mapping[str, Any],
    mutable: Mapping[str, Any],
    metrics: Sequence[Any],
    options: Options,
    source: RecipeFile,
    command: Sequence[str] | None = None,
) -> RecipeResult:
    """Run a recipe with parsed options; see :func:`run_recipe`. ``command`` starts it again, on every rank."""
    if options.launch is not None:
        end_with_parent()
    if options.resume_or_start and options.resume is None:
        start_ranks(options, command)
        check_size(options, world())
        from deep500.recipe.resume import unfinished_like

        begun = unfinished_like(options, source)  # rank 0 decides: the others may look when it has begun a new one
        options.resume = world().gather_facts(None if begun is None else str(begun.path))[0]
    record = None
    if options.resume is not None:
        from deep500.recipe.resume import find_run, options_of  # a run that begins needs none of it

        record = find_run(options, source)
        options = options_of(record, options)
    console = Console(options)
    plan = make_plan(fixed, mutable, metrics, options, source.folder)
    if options.list_mutable:
        for line in mutable_lines(plan):
            console.force(line)
        return RecipeResult(f"{UNJUDGED} (nothing was run)")
    if record is not None:
        from deep500.recipe.resume import check_same, finished_before

        check_same(record, plan, source)
    if are_launches(options, command) and (record is None or record.summary() is None):
        from deep500.recipe.resume import result_of_run

        path = launch_seeds(command or (), None if record is None else record.path)
        return result_of_run(Record.open(path))
    start_ranks(options, command)
    comm = world()
    check_size(options, comm)
    console = Console(options, comm.rank)
    comm.at_rest = True
    if record is not None and record.summary() is not None:
        return finished_before(record, console, writes=comm.rank == 0)
    if record is not None:
        from deep500.recipe.regroup import check_ranks

        check_ranks(record, plan.values, comm.size)
    comm.at_rest = False
    with console.shown():
        result = Session(plan, source, console, comm).run(record)
    comm.at_rest = True
    return result
