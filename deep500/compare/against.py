"""``deep500 run A --against B``: launches of two sides in turns, each a process of its own, compared pair by pair.

The launches of a pair are there at the same time and train epoch by epoch in turns, in an order that chance decides.
What the machine does (its clock, its neighbours, its temperature) hits both, and nothing that drifts can favour a side,
which no comparison of runs taken apart can say of itself. What stands after ``run`` is judged, what stands after
``--against`` is the base. A side is an ordinary run: its first launch begins it with
``--repeat N --stop-after 1``, every later one goes on with ``--resume``, the last one judges and seals it. Both sides
of a pair train with the same seed.
"""

from __future__ import annotations

import dataclasses
import datetime
import json
import shlex
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from deep500.compare.launches import Side, launch_in_turns
from deep500.compare.revision import Revision, checked_out
from deep500.compare.runs import RunComparison, compare_runs, scatter
from deep500.distributed.launch import started
from deep500.errors import RecipeError
from deep500.measure.comparison import rounds_needed
from deep500.measure.launch_comparison import pairs_to_find
from deep500.progress import above, progress
from deep500.recipe.loader import find_recipe, load_recipe
from deep500.recipe.options import AUTO, EFFECT, MOST_PAIRS, PAIRS, RUN_DEFINING, Against, Options, parse_options
from deep500.recipe.plan import RecipeFile
from deep500.recipe.steps import make_plan
from deep500.results.files import to_json, write_atomic, writing
from deep500.results.record import full_hash

SCHEMA = "deep500-against-1"
Say = Callable[[str], None]


def run_against(recipe: Path, options: Options, asked: Against) -> int:
    """Run both sides in turns, print the comparison, write it beside the results; returns the exit code.

    Args:
        recipe: file of the run that is judged.
        options: of that run.
        asked: what it is judged against.

    Returns:
        0 it is as fast as the base or faster, 1 slower or worse, 2 unresolved; in a dry run 0 where both sides run.

    Raises:
        RecipeError: options that do not go together, a recipe or words that are wrong.
        LaunchFailed: a launch of either side failed.
    """
    begun, say = time.monotonic(), _silent if options.quiet or options.json else _say
    auto = asked.pairs == AUTO and not options.dry_run
    pairs = 1 if options.dry_run else PAIRS if auto or asked.pairs is None else int(asked.pairs)
    _check(options, pairs)
    base, its_options = base_of(recipe, options, asked.against or "")
    seed = _first_seed(recipe, options)
    with checked_out(asked.at, recipe) as revision:
        if revision is None:
            _first_seed(
                base, dataclasses.replace(its_options, seed=seed)
            )  # what is wrong is told before the first turn
        name = full_hash([options.defining(), its_options.defining(), time.time_ns()])[:8]
        order_seed = int(np.random.SeedSequence().generate_state(1)[0])

        def all_sides(pairs: int, name: str, names: Sequence[str]) -> list[Side]:
            mine = {"judged": (recipe, options, None)}
            both = [_side(s, *mine.get(s, (base, its_options, revision)), seed, pairs, name) for s in names]
            say("\n".join(f"{side.name}: {side}" for side in both))
            return both

        pilot: dict[str, Any] = {}
        if auto:
            first = all_sides(pairs, f"{name}p", ("base", "judged"))
            _all_turns(first, pairs, order_seed, say)
            pilot, pairs = _pilot(first, pairs, say)
        sides = all_sides(pairs, name, ("base", "judged", *(["control"] if asked.control else [])))
        _all_turns(sides, pairs, order_seed + 1 if auto else order_seed, say)
    if options.dry_run:
        say("dry run: both sides run; nothing was compared")
        return 0
    paths = {side.name: side.result for side in sides}
    comparison = compare_runs(paths["base"], paths["judged"], control=paths.get("control"))
    facts = {
        "schema": SCHEMA,
        "turns": name,
        "sides": {side.name: side.facts() for side in sides},
        "order_seed": order_seed,
        "pilot": pilot,
        "seconds": time.monotonic() - begun,
        **comparison.as_dict(),
    }
    place = _write(options.out / f"against-{recipe.stem}", facts)
    sys.stdout.write(to_json({**facts, "path": str(place)}) + "\n" if options.json else _text(comparison, sides, place))
    return comparison.exit_code


def base_of(recipe: Path, options: Options, text: str) -> tuple[Path, Options]:
    """Recipe and options of what a run is judged against: the run's own words, and these added to them.

    Raises:
        RecipeError: the words are no command line, or change what both sides share.

    Example:
        >>> path, options = base_of(Path("a.py"), parse_options(["batch_size=8"]), "batch_size=16 --framework jax")
        >>> path.name, options.overrides, options.framework
        ('a.py', ['batch_size=16'], 'jax')
    """
    try:
        words = shlex.split(text)
    except ValueError as error:
        raise RecipeError(
            f"got --against {text!r} ({error}); expected words as in a shell: close the quotes"
        ) from error
    if words and not words[0].startswith("-") and "=" not in words[0]:
        recipe = find_recipe(words.pop(0))
    chosen = parse_options(words, program="--against")
    apart = {*RUN_DEFINING, "overrides"} - {"repeat", "budget", "precision", "dry_run", "seed"}
    odd = [
        field.name for field in dataclasses.fields(Options) if field.name not in apart and _is_given(chosen, field.name)
    ]
    if odd:
        raise RecipeError(
            f"got --{odd[0].replace('_', '-')} within --against; expected words that tell the sides apart, such as "
            "key=value or --framework: give it to the whole command"
        )
    again = {word.partition("=")[0] for word in chosen.overrides}
    mine = dataclasses.replace(options, overrides=[o for o in options.overrides if o.partition("=")[0] not in again])
    both = parse_options([*mine.defining(), *words])
    return recipe, dataclasses.replace(both, out=options.out)


def _is_given(options: Options, name: str) -> bool:
    return bool(getattr(options, name) != getattr(Options([]), name))


def _check(options: Options, pairs: int) -> None:
    """Raise RecipeError for options that mean nothing here."""
    single = {"repeat": "--pairs", "resume": "a new comparison", "stop_after": "--pairs", "list_mutable": "a run"}
    odd = next((name for name in single if _is_given(options, name)), None)
    if odd is not None:
        flag = f"--{odd.replace('_', '-')}"
        raise RecipeError(f"got {flag} with --against or --at; expected {single[odd]}: leave {flag} out")
    if not options.dry_run and pairs < rounds_needed(1):
        raise RecipeError(
            f"got --pairs {pairs}; expected {rounds_needed(1)} or more: fewer cannot show a difference, however large"
        )
    if started():
        raise RecipeError(
            "got --against or --at in a process that mpirun, srun or torchrun started; expected the command without "
            "a launcher: say --ranks P, and every launch starts its own"
        )


def _first_seed(recipe: Path, options: Options) -> int:
    """The seed with which a side begins; raises RecipeError for whatever is wrong with its recipe or its words."""
    loaded, source = load_recipe(recipe, options.framework), RecipeFile.at(recipe)
    return make_plan(loaded.FIXED, loaded.MUTABLE, loaded.METRICS, options, source.folder).seeds[0]


def _pilot(sides: Sequence[Side], pairs: int, say: Say) -> tuple[dict[str, Any], int]:
    """Tell the scatter of the first pairs, and how many the comparison takes (Stein 1945).

    They are not part of the comparison: what decides how many pairs there are is then independent of what they show.
    """
    sd = scatter(sides[0].result, sides[1].result)
    needed = pairs_to_find(EFFECT, sd)
    taken = min(max(needed, PAIRS), MOST_PAIRS)
    less = "" if taken >= needed else f", of which {MOST_PAIRS} are made"
    say(f"{pairs} pairs lie {100 * sd:.2g} % apart: to find {EFFECT:.0%} takes {needed}{less}; they are new ones")
    facts = {"pairs": pairs, "scatter": sd, "wanted": needed, "runs": [str(side.result) for side in sides]}
    return facts, taken


def _side(
    name: str, recipe: Path, options: Options, revision: Revision | None, seed: int, pairs: int, turns: str
) -> Side:
    defining = dataclasses.replace(options, seed=seed, repeat=pairs).defining()
    words = [*defining, "--turns", f"{turns}:{name}"]
    root = Path(__file__).resolve().parents[2]
    if revision is None:
        return Side(name, recipe.resolve(), words, options.defining(), options.out, root)
    return Side(name, revision.recipe(recipe), words, options.defining(), options.out, revision.moved(root), revision)


def _all_turns(sides: Sequence[Side], pairs: int, seed: int, say: Say) -> None:
    """Every seed of every side."""
    rng = np.random.default_rng(seed)
    for turn in range(1, pairs + 1):
        begin = time.monotonic()
        with progress(f"pair {turn} of {pairs}", quiet=say is _silent):
            launch_in_turns(sides, rng, say)
        say(f"pair {turn} of {pairs}: {time.monotonic() - begin:.1f} s")


def _write(folder: Path, facts: dict[str, Any]) -> Path:
    now = datetime.datetime.now(datetime.timezone.utc)
    place = folder / f"{now:%Y%m%d-%H%M%S}-{facts['turns']}.json"
    with writing(folder):
        folder.mkdir(parents=True, exist_ok=True)
    write_atomic(place, json.dumps(json.loads(to_json(facts)), indent=1) + "\n")
    return place


def _text(comparison: RunComparison, sides: Sequence[Side], place: Path) -> str:
    verdicts = ", ".join(f"{side.name} {side.summary.get('verdict')}" for side in sides)
    who = "the first is the base, the second is judged"
    return f"\n{comparison}\n\n{who}; targets: {verdicts}\ncomparison: {place}\n"


def _silent(_: str) -> None:
    pass


def _say(text: str) -> None:
    above(text)
