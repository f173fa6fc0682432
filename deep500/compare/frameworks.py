"""``compare_frameworks``: the gate, then timing in turns, then training over seeds, then a result with its words."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import KW_ONLY, asdict, dataclass
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple

from deep500.compare.checks import Check
from deep500.compare.claims import ABOUT, framework_claims
from deep500.compare.gate import check_equivalence
from deep500.compare.result import SCHEMA, ComparisonResult
from deep500.compare.subject import Setting, Subject, digests
from deep500.compare.timing import Team
from deep500.compare.traces import CURVE
from deep500.errors import InputError, RecipeError
from deep500.keywords import takes
from deep500.measure.environment import describe
from deep500.measure.machine import threads_to_use
from deep500.recipe.build import Notes
from deep500.recipe.loader import find_recipe
from deep500.registry import load_backend
from deep500.results.files import to_json, write_atomic
from deep500.tensors import digest

ROUNDS = 15
"""Blocks per framework; six are the least for an interval."""
Say = Callable[[str], None]


def silent(_: str) -> None:
    """Print nothing."""


@dataclass(frozen=True, kw_only=True)
class Effort:
    """The options that all comparisons have: how much is measured, and where it goes."""

    rounds: int = ROUNDS
    steps: int | None = None
    threads: int | None = None
    out: str | Path | None = None
    dry_run: bool = False
    say: Say = silent


@dataclass(frozen=True)
class RecipeComparison(Effort):
    """The options of :func:`compare_frameworks`.

    Args:
        recipe: a recipe's file, name or module.
        frameworks: at least two backends; ``reference`` judges if it is among them, else the first.
        overrides: ``key=value`` words, as for ``deep500 run``.
        repeat: trainings per framework, each with another seed; 0 trains none.
        rounds: blocks timed per framework; 0 times nothing.
        steps: training steps per block; None: as many as take about 0.2 s.
        threads: threads and cores per process; None: ``OMP_NUM_THREADS``, else all that this process may use.
        seed: the first seed; the recipe's own if None.
        out: folder for results; None writes nothing.
        data: folder with data sets; download: fetch absent ones; open: allow overrides of FIXED keys.
        dry_run: one round of one step, no training: does it work?
        say: called with a line of text for every stage.
    """

    recipe: str | Path | ModuleType
    frameworks: Sequence[str]
    _: KW_ONLY
    overrides: Sequence[str] = ()
    repeat: int = 1
    seed: int | None = None
    data: str | Path | None = None
    download: bool = False
    open: bool = False

    def setting(self, path: Path) -> Setting:
        """Return what decides, besides the framework, what the recipe at a path computes."""
        folder = None if self.data is None else str(Path(self.data).resolve())
        return Setting(str(path.resolve()), tuple(self.overrides), self.seed, folder, self.download, self.open)


@takes(RecipeComparison)
def compare_frameworks(options: RecipeComparison) -> ComparisonResult:
    """Run one recipe in several frameworks: do they compute the same, and which is faster?

    Nothing is timed unless all of them pass the equivalence gate (:mod:`deep500.compare.gate`). Each framework is timed
    in a process of its own, in turns.

    Raises:
        MissingBackend: with the line that installs it.
        InputError, RecipeError, DataError: what is asked for cannot be run.

    Example:
        >>> compare_frameworks("digits_lenet", ["pytorch"])
        Traceback (most recent call last):
        deep500.errors.InputError: got frameworks ['pytorch']; expected at least two different ones: name another
    """
    names, say, dry_run = check_frameworks(options.frameworks), options.say, options.dry_run
    rounds, steps, repeat = (1, 1, 0) if dry_run else (options.rounds, options.steps, options.repeat)
    path = _path_of(options.recipe)
    setting = options.setting(path)
    say(f"checking that {', '.join(names)} compute the same ...")
    notes = Notes()
    with notes.collecting(strict=False):
        subjects = _subjects(setting, names)
        batches = {subject.framework: subject.batches(2 if dry_run else CURVE) for subject in subjects}
        judged = batches[names[0]]
        gate = check_equivalence(subjects[0].network(), judged, [subject.candidate() for subject in subjects])
    gate.notes += notes.warnings
    # first: on different batches nothing that follows could agree
    gate.checks[:0] = _batch_checks({name: digests(drawn) for name, drawn in batches.items()})
    marks = (("dry run", dry_run), ("stand-in data", any(half.stand_in for half in subjects[0].data)))
    labels = tuple(label for label, applies in marks if applies)
    result = ComparisonResult(path.stem, names, gate, labels=labels, environment=describe(path.parent))
    if gate and (rounds or repeat):
        expected = {"weights": digest(_weights(subjects[0])), "batches": digests(judged)}
        with Team(names, options.threads or threads_to_use(), "training", asdict(setting)) as team:
            _measure(result, team, expected, Amount(rounds, steps, repeat, subjects[0].seed), say)
    asked = {**asdict(setting), "rounds": rounds, "steps": steps, "repeat": repeat}
    return write(result, options.out, {**asked, "custom_ops": subjects[0].custom_ops})


class Amount(NamedTuple):
    """The amount to measure, and the first seed."""

    rounds: int
    steps: int | None
    repeat: int
    seed: int


def _measure(result: ComparisonResult, team: Team, expected: dict[str, Any], amount: Amount, say: Say) -> None:
    """Time in turns and train over seeds, if the workers hold what the gate compared."""
    result.facts = team.facts
    result.gate.checks += _worker_checks(team, expected)
    result.batch_sizes["training step"] = team.facts[result.frameworks[0]]["batch_size"]
    if result.gate and amount.rounds:
        say(f"timing {amount.rounds} rounds ...")
        result.timings["training step"] = team.time(amount.rounds, amount.seed, amount.steps)
        result.memory = team.memory()
    if result.gate and amount.repeat:
        say(f"training {amount.repeat} time(s) in each framework ...")
        result.runs = team.train([amount.seed + number for number in range(amount.repeat)], amount.seed)


def check_frameworks(frameworks: Sequence[str]) -> list[str]:
    """The names, each of whose backends is there; raises InputError or MissingBackend."""
    names = list(dict.fromkeys(frameworks))
    if len(names) < 2 or len(names) != len(frameworks):
        raise InputError(f"got frameworks {list(frameworks)}; expected at least two different ones: name another")
    for name in names:
        load_backend(name)
    return names


def _path_of(recipe: str | Path | ModuleType) -> Path:
    if isinstance(recipe, ModuleType):
        if recipe.__file__ is None:
            raise RecipeError(f"got module {recipe.__name__!r} without a file; expected a recipe that workers can load")
        return Path(recipe.__file__)
    return find_recipe(str(recipe))


def _subjects(setting: Setting, names: Sequence[str]) -> list[Subject]:
    first = Subject.load(setting, names[0])
    return [first, *(Subject.load(setting, name, first.data) for name in names[1:])]


def _weights(subject: Subject) -> dict[str, Any]:
    return {name: parameter.value for name, parameter in subject.network().parameters.items()}


def _batch_checks(digests_of: dict[str, list[str]]) -> list[Check]:
    """Check that every framework is given the same batches, one digest per batch."""
    names = list(digests_of)
    return [_same_batches(name, digests_of[name], digests_of[names[0]]) for name in names[1:]]


def _same_batches(name: str, got: Sequence[str], want: Sequence[str]) -> Check:
    wrong = next((number for number, pair in enumerate(zip(got, want, strict=False)) if pair[0] != pair[1]), None)
    return Check(name, "batches", None, None, wrong is None, "" if wrong is None else f"batch {wrong + 1}")


def _worker_checks(team: Team, expected: dict[str, Any]) -> list[Check]:
    """Check that the processes that are timed hold the weights and batches that the gate compared."""
    checks = []
    for name, facts in team.facts.items():
        checks.append(_same_batches(name, facts.pop("batches"), expected["batches"]))
        same = facts["weights"] == expected["weights"]
        checks.append(Check(name, "weights of the worker", None, None, same, "" if same else facts["weights"][:12]))
    return checks


def write(result: ComparisonResult, out: str | Path | None, asked: dict[str, Any]) -> ComparisonResult:
    """Write result, claims and what the rules say of them into a new folder below ``out``; None writes nothing."""
    if out is None:
        return result
    from deep500.compare.page import write_page
    from deep500.results import Record
    from deep500.results.rules import CLAIMS, write_rules

    content = result.as_dict()
    resolved = {"subject": result.subject, "frameworks": result.frameworks, "asked": asked}
    record = Record.create(Path(out), f"compare-{result.subject}", {"resolved": resolved, "comparison": SCHEMA})
    result.path = str(record.path)
    write_atomic(record.path / "comparison.json", to_json({**content, "path": result.path}) + "\n")
    write_atomic(record.path / "comparison.txt", f"{result}\n")
    write_atomic(record.path / CLAIMS, to_json({"claims": framework_claims(result)}) + "\n")
    write_rules(record.path, ABOUT)
    write_page(result, record.path)
    return result
