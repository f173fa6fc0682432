"""``run_recipe``, which scripts, the command line and other programs call."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from typing import Any

from deep500.distributed import world
from deep500.guard import DEBUG, guarded
from deep500.recipe.checking import mutable_lines
from deep500.recipe.console import Console
from deep500.recipe.options import Options, parse_options
from deep500.recipe.plan import RecipeFile
from deep500.recipe.ranks import check_size, start_ranks
from deep500.recipe.regroup import check_ranks
from deep500.recipe.resume import check_same, find_run, finished_before, options_of, unfinished_like
from deep500.recipe.session import Session
from deep500.recipe.steps import make_plan
from deep500.results import UNJUDGED, RecipeResult


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
        command = [str(path), *sys.argv[1:]]
        return guarded(
            lambda: execute(fixed, mutable, metrics, _options(sys.argv[1:], source, caller), source, command),
            debug=DEBUG in sys.argv[1:],
        )
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
    if options.resume_or_start and options.resume is None:
        start_ranks(options, command)
        check_size(options, world())
        begun = unfinished_like(options, source)  # rank 0 decides: the others may look when it has begun a new one
        options.resume = world().gather_facts(None if begun is None else str(begun.path))[0]
    record = find_run(options, source) if options.resume is not None else None
    if record is not None:
        options = options_of(record, options)
    console = Console(options)
    plan = make_plan(fixed, mutable, metrics, options, source.folder)
    if options.list_mutable:
        for line in mutable_lines(plan):
            console.force(line)
        return RecipeResult(f"{UNJUDGED} (nothing was run)")
    if record is not None:
        check_same(record, plan, source)
    start_ranks(options, command)
    comm = world()
    check_size(options, comm)
    console = Console(options, comm.rank)
    comm.at_rest = True
    if record is not None and record.summary() is not None:
        return finished_before(record, console, writes=comm.rank == 0)
    if record is not None:
        check_ranks(record, plan.values, comm.size)
    comm.at_rest = False
    with console.shown():
        result = Session(plan, source, console, comm).run(record)
    comm.at_rest = True
    return result
