"""The running of a race: a folder with its definition and a file per trial, from which it goes on after any end."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from deep500.errors import RecipeError, ResultsError, nearest
from deep500.measure.fingerprint import full_environment
from deep500.race.course import Heat, budget, course, limit
from deep500.race.folder import DO, begin_folder, definition_of, part_lock, run_all
from deep500.race.held_out import HeldOutVariant, draw_variants, held_out_course, variants_of
from deep500.race.scores import TrialTime
from deep500.race.submissions import Submission, find_submissions
from deep500.race.trial import Request
from deep500.race.worker import Limits, TrialProcess, run_isolated
from deep500.race.workloads import Workload, find_suite
from deep500.reading import declare, number, read_json, word
from deep500.recipe.build import load_data
from deep500.recipe.calls import check_call
from deep500.recipe.describing import describe
from deep500.results.files import to_json, write_atomic
from deep500.results.record import full_hash
from deep500.training.data import dataset_info

SCHEMA = "deep500-race-1"
DEFINITION, TRIALS = "race.json", "trials"
PHASES = "tuning", "entries"
"""Lists of trials, the second known when all of the first have ended."""
_POSITIVE = number(0, 1e300)
_TRIAL = declare(
    {
        "schema": word(SCHEMA),
        "submission": str,
        "workload": str,
        "study": number(0, 10**6, whole=True),
        "trial": number(0, 10**6, whole=True),
        "settings": dict,
        "outcome": {"seconds": (_POSITIVE, None), "steps": (_POSITIVE, None), "spent": _POSITIVE, "reason": str},
        "curve": [dict],
    }
)

RunTrial = Callable[[Request, Limits, Callable[[], bool]], TrialProcess]
Say = Callable[[str], None]


@dataclass(frozen=True)
class RaceOptions:
    """The words of a race, from which it can be begun again.

    Attributes:
        suite: name or file.
        submissions: names, or ``path.py:Name``.
        studies, trials: per workload, and per study.
        seed: of everything that is drawn.
        jobs: trials at a time; with several, times are CPU seconds.
        memory: GiB that a trial's process may take.
        framework, data: as for ``deep500 run``.
        prune: stop trials that cannot count any more.
        held_out: variants of workloads that are drawn when tuning has ended.
        engine: where trials run; others than processes of this machine measure CPU time.
    """

    suite: str
    submissions: tuple[str, ...]
    studies: int = 3
    trials: int = 5
    seed: int = 0
    jobs: int = 1
    memory: float = 4.0
    framework: str | None = None
    data: str | None = None
    prune: bool = True
    held_out: int = 0
    engine: str = "processes"

    def __post_init__(self) -> None:
        if self.held_out < 0:
            raise RecipeError(f"got --held-out {self.held_out}; expected 0 or more: give a larger number")
        for name in ("studies", "trials", "jobs"):
            if getattr(self, name) < 1:
                raise RecipeError(f"got --{name} {getattr(self, name)}; expected at least 1: give a larger number")
        if not self.memory > 0:
            raise RecipeError(f"got --memory {self.memory:g}; expected GiB above 0: give a larger number")

    @property
    def cpu_time(self) -> bool:
        """Whether trials share machines, so that times are those of their processes."""
        return self.jobs > 1 or self.engine != "processes"


@dataclass
class Race:
    """A race in its folder.

    Attributes:
        path: the folder.
        options: its words.
        workloads, submissions: what they stand for.
        done: the outcomes of the trials so far.
        records: the files of these trials.
    """

    path: Path
    options: RaceOptions
    workloads: Sequence[Workload]
    submissions: Sequence[Submission]
    done: dict[Heat, TrialTime] = field(default_factory=dict)
    records: dict[Heat, dict[str, Any]] = field(default_factory=dict)

    @classmethod
    def begin(cls, options: RaceOptions, out: Path) -> Race:
        """Check everything that can be checked, and make the folder.

        Raises:
            MissingDataset: data of a workload are absent.
            RecipeError: an unknown suite, recipe or submission, or settings that an optimizer does not take.
            ResultsError: the folder cannot be made.
        """
        race = cls(out, options, *_checked(options))
        facts = {**race._facts(), "environment": full_environment(None)}
        race.path = begin_folder(out / f"race-{Path(options.suite).stem}", DEFINITION, TRIALS, facts)
        return race

    @classmethod
    def reopen(cls, path: Path) -> Race:
        """Read a race that was begun, with its finished trials.

        Raises:
            ResultsError: no race, or one whose recipes or submissions have changed since.
        """
        definition = definition_of(path / DEFINITION, SCHEMA)
        try:
            words = {**definition["options"], "submissions": tuple(definition["options"]["submissions"])}
            options = RaceOptions(**words)
        except (TypeError, KeyError) as error:
            raise ResultsError(f"{path / DEFINITION}: got other options ({error}); {DO}") from error
        race = cls(path, options, *_checked(options))
        if race._facts()["sha256"] != definition["sha256"]:
            raise ResultsError(
                f"{path}: got recipes or submissions other than the race began with; expected the same: restore them, "
                "or begin another race"
            )
        records = {file.stem: read_json(file, _TRIAL, do=DO) for file in sorted((path / TRIALS).glob("*.json"))}
        for phase in PHASES:
            for entry in getattr(race, phase):
                if entry.name in records:
                    race._take(entry, records[entry.name])
        return race

    @property
    def tuning(self) -> list[Heat]:
        """All trials on the workloads, in the order in which they run."""
        o = self.options
        return course(self.submissions, self.workloads, o.studies, o.trials, o.seed)

    @property
    def variants(self) -> list[HeldOutVariant]:
        """The variants that are held out of tuning: empty before it has ended."""
        o = self.options
        if not o.held_out or any(entry not in self.done for entry in self.tuning):
            return []
        return draw_variants(self.workloads, self.submissions, o.held_out, o.seed)

    @property
    def entries(self) -> list[Heat]:
        """All trials that are known so far, in the order in which they run: those on variants follow from tuning."""
        tuning, variants, o = self.tuning, self.variants, self.options
        tuned = [self.done[entry] for entry in tuning if entry in self.done]
        return tuning + held_out_course(variants, self.submissions, tuned, o.studies, o.seed)

    def run(self, say: Say, run_trial: RunTrial = run_isolated) -> None:
        """Run what is left; every finished trial is on the disk before the next begins.

        Args:
            say: takes a line about each.
            run_trial: runs a process, or stands in for one.

        Raises:
            KeyboardInterrupt: with how to go on.
            ResultsError: results cannot be written.
        """
        guard = threading.Lock()

        def one_trial(entry: Heat, stopped: Callable[[], bool]) -> None:
            try:
                self._run_entry(entry, run_trial, stopped, guard)
            except KeyboardInterrupt:
                return  # stopped
            with guard:
                say(f"{len(self.done)}/{count} {self.line(entry)}")

        for phase in PHASES:
            entries = getattr(self, phase)
            count, left = len(entries), [entry for entry in entries if entry not in self.done]
            if phase == "entries" and left:
                say(f"held out: {', '.join(f'{v.base} with {v.word}' for v in self.variants)}")
            run_all(self.path, left, one_trial, self.options.jobs, "race")

    def run_one(self, number: int, say: Say, run_trial: RunTrial = run_isolated) -> None:
        """Run one trial, for an array of jobs that share the folder.

        Raises:
            RecipeError: there is no such trial.
            ResultsError: another process is at it.
        """
        entries = self.entries
        if not 0 <= number < len(entries):
            raise RecipeError(f"got --trial {number}; expected 0 to {len(entries) - 1}: choose one of the race's")
        if entries[number] not in self.done:
            self._run_entry(entries[number], run_trial, lambda: False, threading.Lock())
        say(f"trial {number}, {self.line(entries[number])}")

    def _run_entry(self, entry: Heat, run_trial: RunTrial, stopped: Callable[[], bool], guard: threading.Lock) -> None:
        """Run a trial and write its file, or read what another process has written meanwhile."""
        with part_lock(self.path, entry.name):
            file = self.path / TRIALS / f"{entry.name}.json"
            if file.exists():
                with guard:
                    self._take(entry, read_json(file, _TRIAL, do=DO))
                return
            with guard:
                request = self.request(entry)
            result = run_trial(request, self._limits(entry), stopped)
            with guard:
                self._keep(entry, request, result)

    def line(self, entry: Heat) -> str:
        """Return what became of a trial, in words."""
        trial = self.done[entry]
        end = f"{trial.seconds:.3g} s, {trial.steps:.4g} steps" if not trial.reason else f"miss: {trial.reason}"
        return f"{entry.workload}, study {entry.study}, trial {entry.trial}, {entry.submission}: {end}"

    def request(self, entry: Heat) -> Request:
        """Return what the process of a trial is asked for."""
        o, submission, workload = self.options, self._submission(entry), self._workload(entry)
        seconds, steps = budget(submission, workload)
        drawn = (
            entry.trial if workload in self.workloads else o.trials
        )  # on variants, trials of a pair have other numbers
        seeds = np.random.SeedSequence([o.seed, entry.study, drawn]).generate_state(1)
        return Request(
            workload.fields(),
            list(o.submissions),
            entry.submission,
            entry.study * o.trials + entry.trial,
            entry.trial,
            o.seed,
            int(seeds[0] % 2**31),
            limit(entry, self.done.values(), seconds, o.studies) if o.prune else seconds,
            steps,
            o.cpu_time,
            o.framework,
            o.data,
        )

    def _keep(self, entry: Heat, request: Request, result: TrialProcess) -> None:
        settings = self._submission(entry).settings(request.index, request.point_seed, request.trial)
        record = {
            "schema": SCHEMA,
            **asdict(entry),
            "settings": describe(settings),
            "seed": request.seed,
            "limit": request.limit,
            "outcome": result.outcome,
            "peak_bytes": result.peak,
            "curve": result.curve,
        }
        write_atomic(self.path / TRIALS / f"{entry.name}.json", to_json(record))
        self._take(entry, json.loads(to_json(record)))

    def _take(self, entry: Heat, record: dict[str, Any]) -> None:
        outcome = record["outcome"]
        seconds, steps = (np.inf if outcome[key] is None else float(outcome[key]) for key in ("seconds", "steps"))
        reason = outcome["reason"] or ("" if np.isfinite(seconds) else "no reason recorded")
        self.done[entry] = TrialTime(
            **asdict(entry), seconds=seconds, steps=steps, spent=outcome["spent"], reason=reason
        )
        self.records[entry] = record

    def _submission(self, entry: Heat) -> Submission:
        return next(s for s in self.submissions if s.name == entry.submission)

    def _workload(self, entry: Heat) -> Workload:
        known = next((w for w in self.workloads if w.title == entry.workload), None)
        return known or next(v.workload for v in self.variants if v.workload.title == entry.workload)

    def _limits(self, entry: Heat) -> Limits:
        seconds, _ = budget(self._submission(entry), self._workload(entry))
        return Limits(int(self.options.memory * 2**30), 180.0 + 3 * seconds, threads=1)

    def _facts(self) -> dict[str, Any]:
        facts = {
            "schema": SCHEMA,
            "options": _options_of(self.options),
            "workloads": [workload.facts() for workload in self.workloads],
            "submissions": [submission.facts() for submission in self.submissions],
        }
        return {**facts, "sha256": full_hash(json.loads(to_json(facts)))}


def _options_of(options: RaceOptions) -> dict[str, Any]:
    """The words of a race; what it does not use is left out, so that races of before are gone on with."""
    unused = {"held_out": 0, "engine": "processes"}
    plain = {key: value for key, value in asdict(options).items() if key not in unused or value != unused[key]}
    return {**plain, "submissions": list(options.submissions)}


def _checked(options: RaceOptions) -> tuple[tuple[Workload, ...], list[Submission]]:
    """The workloads and submissions of a race, after every submission was put into every recipe."""
    workloads, submissions = find_suite(options.suite), find_submissions(options.submissions)
    draw_variants(workloads, submissions, options.held_out, options.seed)  # enough of them
    variants = [v.workload for w in workloads for v in variants_of(w)] if options.held_out else []
    for workload in (*workloads, *variants):
        data = None if options.data is None else Path(options.data)
        plan, folder = workload.plan(options.framework, data), workload.source().parent
        name = plan.values["dataset"]
        if isinstance(name, str) and not dataset_info(name).built_in:
            load_data(plan.values, True, False, data)  # absent data are told before anything runs
        for submission in submissions:
            values = dict(plan.values)
            settings = submission.settings(0, options.seed)
            try:
                submission.put_into(values, settings, workload.steps, folder)
                check_call("optimizer", values["optimizer"], 2, (), values["optimizer_kwargs"])
                _check_settings(values["optimizer"], values["optimizer_kwargs"])
            except RecipeError as error:
                raise RecipeError(f"submission {submission.name!r} on {workload.title!r}: {error}") from error
    return workloads, submissions


def _check_settings(optimizer: Any, settings: Mapping[str, Any]) -> None:
    """Raise RecipeError for a setting that a class of ours, which hands keywords on, does not know."""
    known = getattr(optimizer, "hyperparameters", None)
    odd = [name for name in settings if isinstance(known, tuple) and name not in known]
    if odd:
        raise RecipeError(f"got {odd[0]!r}; expected a setting of {optimizer.__name__}: {nearest(odd[0], known or ())}")
