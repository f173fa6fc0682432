"""Resume an unfinished run: find it, take its options, and check that the recipe is the same."""

from __future__ import annotations

import dataclasses
from pathlib import Path

from deep500.distributed import current_world
from deep500.distributed.launch import started
from deep500.errors import ResultsError, TrainingError
from deep500.reading import validate
from deep500.recipe.checking import with_defaults
from deep500.recipe.console import Console
from deep500.recipe.describing import describe
from deep500.recipe.options import Options, parse_options
from deep500.recipe.plan import RecipeFile, RunPlan
from deep500.recipe.ranks import differences
from deep500.report.claims import write_claims
from deep500.report.page import write_report
from deep500.results import RecipeResult, Record
from deep500.results.files import regular_files
from deep500.results.formats import OF_A_RUN
from deep500.results.layout import check_layout
from deep500.results.record import MANIFEST, REPORT, SUMMARY
from deep500.results.rules import write_rules
from deep500.results.sealing import SUMS, seal, write_stats
from deep500.results.verdict import metric_from


def find_run(options: Options, source: RecipeFile) -> Record:
    """The run that ``--resume`` means: its folder, or the recipe's newest unfinished one."""
    record = Record.open(Path(options.resume)) if options.resume else latest_unfinished(options.out, source.name)
    validate(record.manifest(), OF_A_RUN[MANIFEST], record.path / MANIFEST)
    regular_files(record.path)  # a link would lead what is written out of the folder
    return record


def latest_unfinished(base: Path, recipe: str) -> Record:
    """The newest run of the recipe that has no summary or no seal; raises ResultsError if there is none."""
    runs = _unfinished(base / recipe)
    if not runs:
        raise ResultsError(
            f"got --resume but no unfinished run in {base / recipe}; expected one without {SUMMARY} or {SUMS}; start "
            "without --resume, or name the folder: --resume DIR"
        )
    return Record.open(runs[-1])


def unfinished_like(options: Options, source: RecipeFile) -> Record | None:
    """The run that ``--resume-or-start`` goes on with: the newest unfinished one of the recipe that was started by the
    same words, the number of ranks apart; None where there is none. Of as many ranks, if there is one."""
    begun = [Record(path).manifest() | {"path": path} for path in _unfinished(options.out / source.name)]
    same = [manifest for manifest in begun if _but_ranks(parse_options(manifest["argv"])) == _but_ranks(options)]
    same.sort(key=lambda manifest: manifest.get("ranks", 1) == (options.ranks or 1))
    return Record.open(same[-1]["path"]) if same else None


def _unfinished(folder: Path) -> list[Path]:
    """The runs in a folder that have no summary or no seal, the newest last."""
    begun = (path for path in folder.glob("*") if (path / MANIFEST).is_file())
    runs = [path for path in begun if not ((path / SUMMARY).exists() and (path / SUMS).exists())]
    return sorted(runs, key=lambda run: (Record(run).manifest().get("started", ""), run.name))


def options_of(record: Record, now: Options) -> Options:
    """The options that the run was started with; those of now may repeat them but not contradict them.

    How many ranks go on is the number given now, else what the launcher started, else that of the run so far.
    """
    stored = record.manifest()["argv"]
    if _but_ranks(now) and _but_ranks(now) != _but_ranks(parse_options(stored)):
        raise ResultsError(
            f"got --resume with {' '.join(now.defining())}; expected what {record.path.name} was started with "
            f"({' '.join(stored) or 'nothing'}); leave those words out, or start a new run"
        )
    titles = record.titles()
    if now.name not in (None, titles["name"]) or now.tags not in ([], titles["tags"]):
        raise ResultsError(
            f"got --name {now.name!r} and --tag {now.tags} with --resume; expected {titles['name']!r} and "
            f"{titles['tags']}, as {record.path.name} was started: leave them out"
        )
    names = ("out", "resume", "quiet", "json", "stop_after", "log", "turns", "end", "launch")
    of_now = {name: getattr(now, name) for name in names}
    options = dataclasses.replace(parse_options(stored), **of_now, **titles, ranks=now.ranks)
    if options.ranks is None and not started() and current_world().size == 1:
        options.ranks = record.manifest().get("ranks", 1)
    return options


def _but_ranks(options: Options) -> list[str]:
    """The words that define a run, however many ranks train it."""
    return dataclasses.replace(options, ranks=None).defining()


def check_same(record: Record, plan: RunPlan, source: RecipeFile) -> None:
    """Raise ResultsError unless the recipe is still what the run began with."""
    manifest = record.manifest()
    # keys that came after the run began are at what was then done without them
    began = {**manifest["resolved"], "recipe": {**describe(with_defaults({})), **manifest["resolved"]["recipe"]}}
    odd = sorted(path or "everything" for path, _, _ in differences(began, plan.resolved))
    if not odd and manifest["recipe_sha256"] != source.sha256():
        odd = ["the recipe file's content"]
    if odd:
        raise ResultsError(
            f"{record.path}: got a recipe that changed since the run began ({', '.join(odd[:5])}); expected the same; "
            "undo the change, or start a new run"
        )


def finished_before(record: Record, console: Console, writes: bool = True) -> RecipeResult:
    """The result of a run that needs no training; raises TrainingError if it had failed.

    Args:
        record: the run.
        console: says so.
        writes: whether to complete a run that was stopped between its summary and its seal; of several ranks one does.
    """
    check_layout(record.path)
    summary = record.summary() or {}
    if writes and not (record.path / SUMS).exists():
        with record.lock():
            _complete(record)
    if summary["status"] == "failed":
        raise TrainingError(f"{summary.get('error')} (in {record.path}, which had ended so before: start a new run)")
    result = result_of_run(record)
    console.say(f"{record.path} is finished; nothing to resume")
    console.verdict(result, summary)
    return result


def result_of_run(record: Record) -> RecipeResult:
    """The result that a finished run's summary tells."""
    summary = record.summary() or {}
    metrics = [metric_from(metric) for metric in summary["metrics"]]
    labels = tuple(summary["labels"])
    return RecipeResult(summary["verdict"], metrics, str(record.path), str(record.path / REPORT), labels)


def _complete(record: Record) -> None:
    """Write what follows from the figures and was not written, or not sealed, as a run that is not stopped does."""
    record.clear_left_overs()
    write_stats(record.path)
    write_claims(record.path)
    write_rules(record.path)
    write_report(record)
    seal(record.path)
