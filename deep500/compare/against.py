"""``deep500 run A --against B``: launches of two sides in turns, each a process of its own, compared pair by pair.

The launches of a pair are there at the same time and train epoch by epoch in turns, in an order that chance decides.
What the machine does (its clock, its neighbours, its temperature) hits both, and nothing that drifts can favour a side,
which no comparison of runs taken apart can say of itself. What stands after ``run`` is judged, what stands after
``--against`` is the base. A side is an ordinary run: its first launch begins it with ``--repeat N --stop-after 1``,
every later one goes on with ``--resume``, the last one judges and seals it. Both sides of a pair train with the same
seed. After every pair there is a look, which holds whenever one stops (:mod:`deep500.measure.sequential`): the first
verdict ends the comparison.
"""

from __future__ import annotations

import dataclasses
import shlex
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from deep500.compare.launches import Side, launch_in_turns
from deep500.compare.revision import Revision, checked_out
from deep500.compare.runs import HEADLINE, RunComparison, SeriesComparison, compare_runs, look_at
from deep500.compare.unfinished import FINISHED, ComparisonFile, stopped_by_signals, wait_until_free
from deep500.distributed.launch import started
from deep500.errors import RecipeError
from deep500.measure.comparison import UNRESOLVED
from deep500.measure.sequential import FEWEST
from deep500.progress import above, progress
from deep500.recipe.loader import find_recipe, load_recipe
from deep500.recipe.options import AUTO, MOST_PAIRS, PAIRS, RUN_DEFINING, Against, Options, parse_options
from deep500.recipe.plan import RecipeFile
from deep500.recipe.steps import make_plan
from deep500.results import Record
from deep500.results.files import to_json
from deep500.results.record import full_hash

Say = Callable[[str], None]


def run_against(recipe: Path, options: Options, asked: Against) -> int:
    """Run both sides in turns, print the comparison, write it beside the results; returns the exit code.

    Args:
        recipe: file of the run that is judged.
        options: of that run; ``resume`` names the file of a comparison that was stopped.
        asked: what it is judged against.

    Returns:
        0 it is as fast as the base or faster, 1 slower or worse, 2 unresolved; in a dry run 0 where both sides run.

    Raises:
        RecipeError: options that do not go together, a recipe or words that are wrong.
        LaunchFailed: a launch of either side failed.
        KeyboardInterrupt: it was stopped; its file has what it has found, and the message says how to go on.
    """
    say = _silent if options.quiet or options.json else _say
    state = None
    if options.resume is not None:
        state, options, asked = _reopened(recipe, options)
    most = 1 if options.dry_run else _most(asked.pairs)
    _check(options, most)
    base, its_options = base_of(recipe, options, asked.against or "")
    seed = _first_seed(recipe, options)
    with checked_out(asked.at, recipe) as revision, stopped_by_signals():
        if revision is None:  # what is wrong is told before the first turn
            _first_seed(base, dataclasses.replace(its_options, seed=seed))
        if state is None:
            state = _begun(recipe, options, asked, its_options, most, seed, revision)
        sides = [
            _side(name, *((recipe, options, None) if name == "judged" else (base, its_options, revision)), state)
            for name in ("base", "judged", *(["control"] if asked.control else []))
        ]
        say("\n".join(f"{side.name}: {side}" for side in sides))
        if options.dry_run:
            launch_in_turns(sides, np.random.default_rng(state.facts["order_seed"]), say)
            say("dry run: both sides run; nothing was compared")
            return 0
        try:
            _all_turns(sides, state, say)
        except KeyboardInterrupt as interrupt:
            raise KeyboardInterrupt(_stopped(recipe, state)) from interrupt
    return _finished(sides, state, options.json)


def _most(pairs: int | str | None) -> int:
    return PAIRS if pairs is None else MOST_PAIRS if pairs == AUTO else int(pairs)


def _begun(
    recipe: Path, options: Options, asked: Against, other: Options, most: int, seed: int, revision: Revision | None
) -> ComparisonFile:
    """A new comparison and its file."""
    facts = {
        "turns": full_hash([options.defining(), other.defining(), time.time_ns()])[:8],
        "recipe": str(recipe.resolve()),
        "argv": options.defining(),
        "against": asked.against,
        "at": None if revision is None else revision.commit,
        "control": asked.control,
        "most": most,
        "first_seed": seed,
        "order_seed": int(np.random.SeedSequence().generate_state(1)[0]),
    }
    return ComparisonFile.new(options.out / f"against-{recipe.stem}", facts)


def _reopened(recipe: Path, now: Options) -> tuple[ComparisonFile, Options, Against]:
    """A comparison that was stopped, with the options that it was begun with."""
    if not now.resume:
        raise RecipeError("got --resume alone; expected the file of a comparison: against-RECIPE/....json below --out")
    state = ComparisonFile.open(Path(now.resume or ""))
    facts = state.facts
    if Path(facts["recipe"]).resolve() != recipe.resolve() or (now.defining() or facts["argv"]) != facts["argv"]:
        words = shlex.join([facts["recipe"], *facts["argv"]])
        raise RecipeError(f"got --resume of another comparison; expected that of {words}: leave the words out")
    options = dataclasses.replace(
        parse_options(facts["argv"]), out=state.place.parent.parent, quiet=now.quiet, json=now.json
    )
    for folder in facts["runs"].values():
        wait_until_free(Path(folder))
    return state, options, Against(facts["against"], facts["at"], facts["most"], facts["control"])


def base_of(recipe: Path, options: Options, text: str) -> tuple[Path, Options]:
    """Recipe and options of what a run is judged against: the run's own words, and these added to them.

    Raises:
        RecipeError: the words are no command line, or change what both sides share.

    Example:
        >>> path, options = base_of(Path("a.py"), parse_options(["batch_size=8"]), "batch_size=16 --backend jax")
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
            "key=value or --backend: give it to the whole command"
        )
    again = {word.partition("=")[0] for word in chosen.overrides}
    mine = dataclasses.replace(options, overrides=[o for o in options.overrides if o.partition("=")[0] not in again])
    both = parse_options([*mine.defining(), *words])
    return recipe, dataclasses.replace(both, out=options.out)


def _is_given(options: Options, name: str) -> bool:
    return bool(getattr(options, name) != getattr(Options([]), name))


def _check(options: Options, pairs: int) -> None:
    """Raise RecipeError for options that mean nothing here."""
    single = {"repeat": "--pairs", "stop_after": "--pairs", "list_mutable": "a run"}
    odd = next((name for name in single if _is_given(options, name)), None)
    if odd is not None:
        flag = f"--{odd.replace('_', '-')}"
        raise RecipeError(f"got {flag} with --against or --at; expected {single[odd]}: leave {flag} out")
    if not options.dry_run and pairs < FEWEST:
        raise RecipeError(
            f"got --pairs {pairs}; expected {FEWEST} or more: fewer do not show whether they depend on each other"
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


def _side(name: str, recipe: Path, options: Options, revision: Revision | None, state: ComparisonFile) -> Side:
    facts = state.facts
    defining = dataclasses.replace(options, seed=facts["first_seed"], repeat=facts["most"]).defining()
    root = Path(__file__).resolve().parents[2]
    file = recipe.resolve() if revision is None else revision.recipe(recipe)
    side = Side(name, file, defining, options.defining(), options.out, root, f"{facts['turns']}:{name}")
    if revision is not None:
        side = dataclasses.replace(side, root=revision.moved(root), revision=revision)
    if name in facts["runs"]:
        side.summary = {"path": facts["runs"][name]}
    return side


def _all_turns(sides: Sequence[Side], state: ComparisonFile, say: Say) -> None:
    """Pair after pair, until a look decides or there are as many as were asked for; then both sides are judged."""
    facts, quiet = state.facts, say is _silent
    while state.done < facts["most"] and not _is_decided(state):
        turn, seed, begin = state.done + 1, facts["first_seed"] + state.done, time.monotonic()
        if facts["begun"] == turn and facts["runs"]:  # somebody stopped it then
            facts["apart"] = sorted({*facts["apart"], seed})
            say(f"pair {turn} was stopped: it is trained to its end, but its times do not count")
        for side in sides:
            side.apart = facts["apart"]
        state.save(begun=turn)
        rng = np.random.default_rng([facts["order_seed"], turn])
        waiting = [side for side in sides if not side.summary or Record(side.result).finished_seed(seed) is None]
        with progress(f"pair {turn} of at most {facts['most']}", quiet=quiet):
            launch_in_turns(waiting, rng, say)
        facts["pairs"].append({"seed": seed, "seconds": time.monotonic() - begin})
        state.save(runs={side.name: str(side.result) for side in sides})
        looked = _look(sides, state)
        say(f"pair {turn}: {facts['pairs'][-1]['seconds']:.1f} s; {looked}{_time_left(state)}")
    for side in sides:
        if Record(side.result).summary() is None:
            with progress(f"judging {side.name}", quiet=quiet):
                launch_in_turns([side], np.random.default_rng(0), say, end=True)
        elif "verdict" not in side.summary:
            side.summary = {**(Record(side.result).summary() or {}), **side.summary}


def _look(sides: Sequence[Side], state: ComparisonFile) -> str:
    """Look at the pairs so far; in words."""
    facts = state.facts
    if len(facts["apart"]) == state.done:
        return "no pair in turns yet"
    compared = {series.series: series for series in look_at([side.result for side in sides], facts["apart"])}
    step = compared.get(HEADLINE)
    if step is None:
        return "no steps were timed"
    facts["looks"].append({"pairs": state.done, **_facts_of(step)})
    state.save()
    return step.sentence(step.reason)


def _facts_of(series: SeriesComparison) -> dict[str, Any]:
    ratio = series.ratio
    return {
        "verdict": series.verdict,
        "reason": series.reason,
        "ratio": ratio.median,
        "low": ratio.low,
        "high": ratio.high,
        "p": series.p,
    }


def _is_decided(state: ComparisonFile) -> bool:
    looks = state.facts["looks"]
    return bool(looks) and looks[-1]["pairs"] == state.done and looks[-1]["verdict"] != UNRESOLVED


def _time_left(state: ComparisonFile) -> str:
    """After the first pair of a process: how long it will take."""
    if state.done != 1:
        return ""
    seconds, most = state.facts["pairs"][0]["seconds"], state.facts["most"]
    fewest = f"a verdict takes {FEWEST} pairs or more, about {_minutes(seconds * FEWEST)}"
    return f"\n{fewest}; all {most} take about {_minutes(seconds * most)}"


def _minutes(seconds: float) -> str:
    if seconds < 100:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 6000 else f"{seconds / 3600:.1f} h"


def _stopped(recipe: Path, state: ComparisonFile) -> str:
    """Say what there is, and how to go on."""
    looks = state.facts["looks"]
    last = f"; {looks[-1]['verdict']} so far" if looks else ""
    ratio = f", time ratio {looks[-1]['ratio']:.3f}" if looks else ""
    ends = "" if not looks or looks[-1]["low"] is None else f" [{looks[-1]['low']:.3f}, {looks[-1]['high']:.3f}]"
    command = shlex.join(["deep500", "run", str(recipe), "--resume", str(state.place)])
    pairs = "1 pair" if state.done == 1 else f"{state.done} pairs"
    return f"stopped after {pairs}{last}{ratio}{ends}; go on with: {command}"


def _finished(sides: Sequence[Side], state: ComparisonFile, as_json: bool) -> int:
    """Compare the sealed runs, write and print it; returns the exit code."""
    paths = {side.name: side.result for side in sides}
    comparison = compare_runs(paths["base"], paths["judged"], control=paths.get("control"))
    state.save(status=FINISHED, sides={side.name: side.facts() for side in sides}, **comparison.as_dict())
    facts = {**state.facts, "path": str(state.place)}
    sys.stdout.write(to_json(facts) + "\n" if as_json else _text(comparison, sides, state.place))
    return comparison.exit_code


def _text(comparison: RunComparison, sides: Sequence[Side], place: Path) -> str:
    verdicts = ", ".join(f"{side.name} {side.summary.get('verdict')}" for side in sides)
    who = "the first is the base, the second is judged"
    return f"\n{comparison}\n\n{who}; targets: {verdicts}\ncomparison: {place}\n"


def _silent(_: str) -> None:
    pass


def _say(text: str) -> None:
    above(text)
