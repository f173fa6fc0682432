"""``deep500 race``: training algorithms over several tasks, and how sure it is which is faster."""

from __future__ import annotations

import argparse
import shlex
import sys
from collections.abc import Callable, Sequence
from dataclasses import asdict
from pathlib import Path

from deep500.errors import RecipeError
from deep500.progress import above
from deep500.race.course import budget
from deep500.race.engines import ENGINES, RayTasks, write_array
from deep500.race.held_out import draw_variants
from deep500.race.judging import detectable
from deep500.race.running import Race, RaceOptions, RunTrial
from deep500.race.standing import PAGE, text_of, write_standing
from deep500.race.submissions import BUILT_IN, find_submissions
from deep500.race.trial import Request
from deep500.race.worker import Limits, TrialProcess, run_described, run_isolated
from deep500.race.workloads import SUITES, find_suite
from deep500.results.command import add_json
from deep500.results.files import to_json

PLANNED = (0.05, 0.10, 0.15, 0.25)
"""Noises for which ``--plan`` says what is found."""


def add_command(parser: argparse.ArgumentParser) -> Callable[[argparse.Namespace], int]:
    """Declare the options of ``race``; returns what executes it."""
    add = parser.add_argument
    # fmt: off
    add("--suite", default="smoke", metavar="NAME", help=f"{', '.join(SUITES)}, or a file of TOML, YAML or JSON")
    add("--submissions", default="adamw,nesterov", metavar="A,B",
        help=f"two or more of {', '.join(BUILT_IN)}, or path.py:Name (adamw,nesterov)")
    add("--studies", type=int, default=3, metavar="N", help="studies of each workload, with a seed of its own each (3)")
    add("--trials", type=int, default=5, metavar="N", help="settings that a study tries; its fastest counts (5)")
    add("--seed", type=int, default=0, metavar="S", help="of settings, training and order (0)")
    add("--jobs", type=int, default=1, metavar="N",
        help="trials at a time, on a core each; with several, times are CPU seconds (1)")
    add("--engine", choices=ENGINES, default="processes",
        help="where trials run: processes, tasks of ray (--jobs at a time), or an array of slurm, whose script is "
        "written (processes)")
    add("--trial", type=int, metavar="N", help="with --resume: run this trial only, as the array of slurm does")
    add("--memory", type=float, default=4.0, metavar="GIB", help="most memory of a trial (4)")
    add("--backend", dest="framework", metavar="NAME", help="run on another backend than the recipes'")
    add("--data", type=Path, metavar="DIR", help="the folder with data sets ($DATA_ROOT, ./data)")
    add("--held-out", type=int, default=0, metavar="N",
        help="variants of workloads, drawn when tuning has ended, to which the settings found are taken (0)")
    add("--whole", action="store_true", help="let trials run on that can no longer count; the result is the same")
    add("--plan", action="store_true", help="say what this race can find and may take, and stop")
    add("--noise", type=float, metavar="CV", help="with --plan: scatter of a study's time, from an earlier race")
    add("--resume", type=Path, metavar="DIR", help="go on with a race; other options are its own")
    add("--out", type=Path, default=Path("results"), metavar="DIR", help="where results go (./results)")
    add("--quiet", action="store_true", help="print the result only")
    # fmt: on
    add_json(parser)
    return _race


def _race(args: argparse.Namespace) -> int:
    if args.trial is not None and args.resume is None:
        raise RecipeError(f"got --trial {args.trial} without a race; expected its folder: add --resume DIR")
    tasks = RayTasks(run_described) if args.engine == "ray" and not args.plan else None  # before a folder is made
    if args.resume is not None:
        race = Race.reopen(args.resume)
        if args.engine != "processes" and not race.options.cpu_time:
            raise RecipeError(
                f"got --engine {args.engine} for a race by the wall's clock; expected this machine alone: leave it out"
            )
    else:
        words = tuple(word for word in args.submissions.split(",") if word)
        data = None if args.data is None else str(args.data.resolve())
        shared = args.studies, args.trials, args.seed, args.jobs, args.memory
        options = RaceOptions(
            args.suite, words, *shared, args.framework, data, not args.whole, args.held_out, args.engine
        )
        if args.plan:
            return _plan(options, args)
        if args.noise is not None:
            raise RecipeError(f"got --noise {args.noise:g} without --plan; expected both or none: add --plan")
        race = Race.begin(options, args.out)
    say = _silent if args.quiet or args.json else above
    if args.trial is not None:
        race.run_one(args.trial, above)
        return 0
    say(f"results: {race.path}")
    left = [number for number, entry in enumerate(race.entries) if entry not in race.done]
    if args.engine == "slurm" and left:
        return _write_script(race, left, say, args.json)
    race.run(say, run_isolated if tasks is None else _as_tasks(tasks))
    standing = write_standing(race)
    place = {"path": str(race.path), "page": str(race.path / PAGE)}
    sys.stdout.write(
        to_json({**standing, **place}) + "\n" if args.json else f"{text_of(standing)}\n\npage: {place['page']}\n"
    )
    return 0 if any(row["misses"] < row["trials"] for row in standing["scores"]) else 1


def _write_script(race: Race, left: Sequence[int], say: Callable[[str], None], as_json: bool) -> int:
    """Write the array of the trials that are left, and say how it is submitted."""
    script = write_array(race.path, "race", "--trial", Path(race.options.suite).stem, left)
    then = " --engine slurm, for the variants" if race.options.held_out and not race.variants else ""
    say(f"then: deep500 race --resume {race.path}{then}")
    shown = {"path": str(race.path), "script": str(script)}
    sys.stdout.write((to_json(shown) if as_json else f"sbatch {shlex.quote(str(script))}") + "\n")
    return 0


def _as_tasks(tasks: RayTasks) -> RunTrial:
    def run_trial(request: Request, limits: Limits, stopped: Callable[[], bool]) -> TrialProcess:
        result: TrialProcess = tasks(asdict(request), asdict(limits), stopped=stopped)
        return result

    return run_trial


def _plan(options: RaceOptions, args: argparse.Namespace) -> int:
    """Say what a race of this size can find, and the most that it can take."""
    workloads, submissions = find_suite(options.suite), find_submissions(options.submissions)
    shape = len(submissions), len(workloads), options.studies
    plans = [detectable(noise, shape) for noise in (PLANNED if args.noise is None else (args.noise,))]
    counts = {s.name: options.studies * s.trials(options.trials) for s in submissions}
    variants = draw_variants(workloads, submissions, options.held_out, options.seed)
    runs = [(s, w, counts[s.name]) for s in submissions for w in workloads]
    runs += [(s, v.workload, options.studies) for s in submissions for v in variants]
    most = sum(count * budget(s, w)[0] for s, w, count in runs) / options.jobs
    trials = sum(count for *_, count in runs)
    if args.json:
        answers = [{"noise": plan.noise, "here": plan.here, "elsewhere": plan.elsewhere} for plan in plans]
        sys.stdout.write(to_json({"plan": answers, "trials": trials, "most_seconds": most}) + "\n")
        return 0
    lines = [f"{shape[0]} submissions, {shape[1]} workloads, {shape[2]} studies: {trials} trials, at most {most:.0f} s"]
    lines += [
        f"noise {100 * plan.noise:.3g} %: a ratio of {plan.here:.3g} is found for these workloads in four of "
        f"five cases, {plan.elsewhere:.3g} for workloads like these (if true ratios differ by 15 % between them)"
        for plan in plans
    ]
    sys.stdout.write("\n".join(lines) + "\n")
    return 0


def _silent(_: str) -> None:
    pass
