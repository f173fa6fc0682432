"""One run of a plan: load data, train once per seed, judge, report."""

from __future__ import annotations

import copy
import dataclasses
import datetime
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Any

from deep500.distributed import Communicator
from deep500.distributed.optimizer import innermost
from deep500.errors import ResultsError, TrainingError
from deep500.events import Event
from deep500.measure.fingerprint import differences, fingerprint, full_environment
from deep500.measure.load import read_load
from deep500.metrics.overhead import unasked_overhead
from deep500.progress import progress, stage
from deep500.recipe.build import Notes, Parts, load_custom_ops, load_data, make_parts
from deep500.recipe.console import Console
from deep500.recipe.describing import describe
from deep500.recipe.launches import in_random_order
from deep500.recipe.model import check_qualities
from deep500.recipe.object_states import ObjectStates
from deep500.recipe.options import TURNS, turns_of
from deep500.recipe.parallel import dividing, keep_plan, take_over_plan
from deep500.recipe.plan import RecipeFile, RunPlan
from deep500.recipe.ranks import (
    WRITING_SECONDS,
    check_agreement,
    common_epoch,
    one_after_the_other,
    ranks_facts,
    record_of_rank,
    result_of_all,
    scheme_of,
    yield_to_rank_0,
)
from deep500.recipe.recomputation import (
    MEMORY_PLAN_FILE,
    PLAN_FILE,
    facts_of,
    first_batch,
    memory_facts,
    memory_plan_of_run,
    plan_of_run,
    record_of_run,
    sentence,
)
from deep500.recipe.recording import OWN, EndOfEpoch, EpochRecorder, StopWithEpoch
from deep500.recipe.turns import turn_listeners
from deep500.report.claims import write_claims
from deep500.report.page import write_report
from deep500.results import FAILED, UNJUDGED, Circumstances, RecipeResult, Record, SeedNotes, judge, ledger, overall
from deep500.results.exhibits import add_exhibits, write_exhibits
from deep500.results.files import write_atomic
from deep500.results.network import write_network
from deep500.results.quiet import BUSY, RANKS_CHANGED, disturbed, mixed, taints
from deep500.results.ranks import STEP, communication_of, ranks_of_run
from deep500.results.record import configuration_hash
from deep500.results.rules import write_rules
from deep500.results.sealing import seal, write_stats
from deep500.results.stats import declared_series
from deep500.training.data import Dataset
from deep500.training.listeners import JudgeEvery
from deep500.training.statistics import TrainingStatistics
from deep500.training.trainer import Trainer
from deep500.transformations.recomputation.plan_file import CheckpointingPlan
from deep500.transformations.recomputation.verify import Verification, verify_plan

if TYPE_CHECKING:
    from deep500.recipe.repetition import Look
    from deep500.transformations.memory_plan import MemoryPlan

LOGS = Path("logs")
"""Where the files of ``--log`` go."""

SUMMARY_SCHEMA = "deep500-summary-1"


class Session:
    """One run of a plan, from data to report."""

    def __init__(self, plan: RunPlan, source: RecipeFile, console: Console, comm: Communicator) -> None:
        self.plan, self.options, self.source, self.console, self.comm = plan, plan.options, source, console, comm
        self.notes = Notes(list(plan.left_out))
        self.ranks: dict[str, Any] = {}
        self.seeds = list(plan.seeds)
        self.look: Look | None = None
        self.trained = 0
        self.labels: tuple[str, ...] = ()
        self.custom_ops: list[dict[str, str]] = []
        self.checkpointing: CheckpointingPlan | None = None
        self.memory: MemoryPlan | None = None
        self.verified: Verification | None = None
        self.object_states = ObjectStates(plan.values)

    def run(self, record: Record | None) -> RecipeResult:
        """Train every seed that is not finished yet, judge, report."""
        if self.options.log:
            from deep500.training.loggers import client

            for kind in self.options.log:
                client(kind)
        self.custom_ops = load_custom_ops(self.plan.values["custom_ops"], self.source.folder)
        with progress("preparing"), self.notes.collecting(self.options.strict):
            with one_after_the_other(self.comm, self.options.download):
                stage("data")
                data = load_data(self.plan.values, self.options.strict, self.options.download, self.options.data)
            stage("network and optimizer")
            parts = make_parts(self.plan.values, data, self.plan.seeds[0], self.options.dry_run, self.comm)
        check_qualities(parts.task, [metric for metric, _ in self.plan.metrics])
        check_agreement(
            self.comm, {"recipe": self.plan.resolved, "recipe file": self.source.sha256(), "data": _data_facts(data)}
        )
        self._label(data)
        for warning in self.notes.warnings:
            self.console.warn(warning)
        resumed = record is not None
        parts = self._plan_memory(parts, data, record)
        self._plan_checkpointing(parts, record.path / PLAN_FILE if record is not None else None)
        self.ranks = ranks_facts(self.comm, parts.optimizer)
        if record is None and self.comm.rank == 0:
            with progress("describing this machine"):
                record = self._new_record(data, parts)
        record = record_of_rank(record, self.comm)
        with record.lock():
            if resumed:
                self._note_resumption(record, data)
                from deep500.recipe.regroup import take_over  # a run that begins needs none of it

                take_over(record, self.comm)
            if self.options.launch is not None and self.comm.rank == 0:
                write_atomic(self.options.launch, os.fsencode(record.path))
            if not (resumed and self.options.launch):
                self.console.say(f"results: {record.path}")
            return result_of_all(self._work(record, data, parts), self.comm)

    def _plan_memory(self, parts: Parts, data: tuple[Dataset, ...], record: Record | None) -> Parts:
        """Choose or take over the plan of the key ``memory``; returns the parts with the network that it makes."""
        asked, sampler = self.plan.values["memory"], parts.train_sampler.sampler
        earlier = None if record is None else record.path / MEMORY_PLAN_FILE
        with nullcontext() if asked is None or _whole(parts) else parts.optimizer.evaluation():
            self.memory = memory_plan_of_run(asked, parts.executor, sampler, self.comm, self.source.folder, earlier)
        if self.memory is None:
            return parts
        self.console.say(f"memory: {self.memory}")
        self.checkpointing = self.memory.checkpointing
        with self.notes.collecting(self.options.strict):  # what was said of the parts before is not said again
            return make_parts(self.plan.values, data, self.plan.seeds[0], self.options.dry_run, self.comm, self.memory)

    def _plan_checkpointing(self, parts: Parts, earlier: Path | None) -> None:
        """Choose or take over the plan, say what it promises, and in a dry run what a step really takes."""
        asked, sampler = self.plan.values["checkpointing"], parts.train_sampler.sampler  # what is prefetched from
        folder = self.source.folder
        if (scheme := dividing(parts.optimizer)) is not None and scheme.comm.size > 1:
            return  # which plans this for its own networks
        with nullcontext() if asked is None or _whole(parts) else parts.optimizer.evaluation():
            plan = plan_of_run(asked, parts.executor, sampler, self.comm, folder, earlier)
            if plan is None:
                return
            self.checkpointing = plan
            self.console.say(sentence(plan))
            if self.options.dry_run and self.comm.rank == 0:
                with self.notes.collecting(self.options.strict):
                    self.verified = verify_plan(parts.executor, plan, first_batch(sampler))
                self.console.say(f"checkpointing: {self.verified}")

    def _new_record(self, data: tuple[Dataset, ...], parts: Parts) -> Record:
        manifest = self._manifest(data, parts)
        record = Record.create(self.options.out, self.source.name, manifest)
        write_network(record.path, parts.executor.network, self.plan.values["batch_size"])
        if self.memory is not None:
            self.memory.save(record.path / MEMORY_PLAN_FILE)
        if self.checkpointing is not None:
            self.checkpointing.save(record.path / PLAN_FILE)
            network, backend = parts.executor.network, parts.executor.backend
            record_of_run(self.checkpointing, network, backend, self.verified).write(record.path)
        ledger.enter(
            record.path.parent,
            {
                "run": record.path.name,
                "at": _now(),
                "argv": manifest["argv"],
                "configuration_sha256": configuration_hash(manifest),
                "environment_sha256": manifest["environment_sha256"],
            },
        )
        return record

    def _work(self, record: Record, data: tuple[Dataset, ...], parts: Parts) -> RecipeResult:
        values: dict[int, list[float | None]] = {}
        try:
            for seed in self._seeds(record):
                if self.options.end and not self._is_finished(record, seed):
                    self._end_before(seed, record)
                    break
                if self.trained == (1 if self.options.launch else self.options.stop_after):
                    return self._stop_before(seed, record)
                values[seed] = self._values_of(record, seed, data, parts if seed == self.plan.seeds[0] else None)
        except TrainingError as error:
            if self.comm.rank != 0:
                yield_to_rank_0(record, self.comm)
                raise
            self._finish(record, RecipeResult(FAILED, [], str(record.path), labels=self.labels), error)
            raise TrainingError(f"{error}; the last good checkpoint and a report are in {record.path}") from error
        except KeyboardInterrupt as interrupt:
            interrupt.args = (f"interrupted; go on with: --resume {record.path}",)
            raise
        if self.comm.rank != 0:
            return RecipeResult(FAILED, [], str(record.path))  # rank 0 says what it is
        stand_in, disturbing = any(half.stand_in for half in data), taints(record.epochs(), record.manifest())
        about = Circumstances(self.options.dry_run, stand_in, disturbing)
        results = [
            judge(
                metric, target, [values[seed][number] for seed in self.seeds], about, self._notes(record, metric.name)
            )
            for number, (metric, target) in enumerate(self.plan.metrics)
        ]
        return self._finish(record, RecipeResult(overall(results), results, str(record.path), labels=self.labels))

    def _stop_before(self, seed: int, record: Record) -> RecipeResult:
        """``--stop-after``: leave the run unfinished, for ``--resume``."""
        if self.options.launch is None:
            self.console.stopped(record.path, seed)
        return RecipeResult(f"{UNJUDGED} (stopped before seed {seed})", [], str(record.path), labels=self.labels)

    def _is_finished(self, record: Record, seed: int) -> bool:
        """Whether rank 0 knows what a seed came to."""
        return bool(self.comm.gather_facts(self.comm.rank == 0 and record.finished_seed(seed) is not None)[0])

    def _end_before(self, seed: int, record: Record) -> None:
        """``--end``: judge the seeds that are trained, as if no more had been asked for."""
        self.seeds = self.seeds[: self.seeds.index(seed)]
        if not self.seeds:
            raise ResultsError(f"{record.path}: got no finished seed; expected one to judge: train it with --resume")

    def _label(self, data: tuple[Dataset, ...]) -> None:
        facts = (
            (self.options.dry_run, "dry run"),
            (any(half.stand_in for half in data), "stand-in data"),
            (bool(self.plan.opened), "open division"),
        )
        self.labels = tuple(label for applies, label in facts if applies)

    def _seeds(self, record: Record) -> Iterator[int]:
        """The seeds of the plan; with ``--repeat auto`` one more, until the intervals are tight or the budget ends."""
        yield from in_random_order(self.plan.seeds) if self.options.launch else self.plan.seeds
        repetition = self.plan.repetition
        judged = [metric for metric, target in self.plan.metrics if target is not None]
        while repetition is not None:
            self.look = repetition.look(record, self.seeds, judged) if self.comm.rank == 0 else None
            if self.comm.gather_facts(self.look is not None and self.look.over)[0]:
                return
            self.seeds.append(self.seeds[-1] + 1)
            record.write_manifest({**record.manifest(), "seeds": self.seeds})
            yield self.seeds[-1]

    # -- training ---------------------------------------------------------------------------------------------------
    def _values_of(
        self, record: Record, seed: int, data: tuple[Dataset, ...], parts: Parts | None
    ) -> list[float | None]:
        """The metrics' values of one seed, trained from its newest checkpoint unless it is finished already."""
        names = [metric.name for metric, _ in self.plan.metrics]
        values = self.comm.gather_facts(record.finished_seed(seed) if self.comm.rank == 0 else None)[0]
        if values is None or not values.keys() >= set(names):
            if parts is None:
                with self.notes.collecting(self.options.strict):
                    parts = make_parts(self.plan.values, data, seed, self.options.dry_run, self.comm, self.memory)
            metrics = [copy.deepcopy(metric) for metric, _ in self.plan.metrics]  # seeds share nothing
            first = seed == self.plan.seeds[0] and not self.options.dry_run
            unasked = unasked_overhead(metrics, serial=self.comm.size == 1) if first else []
            statistics, wall = self._train(record, seed, parts, [*metrics, *unasked])
            if statistics.stopped_by is not None:
                self.console.say(f"seed {seed} stopped before its last epoch: {statistics.stopped_by}")
            measured = [metric.measured(statistics) for metric in (*metrics, *unasked)][: len(metrics)]
            if seed == self.plan.seeds[0] and self.comm.rank == 0:
                shown = [exhibit for metric in metrics for exhibit in getattr(metric, "exhibits", ())]
                add_exhibits(record.path, seed, shown)
            for dataset in data:
                if lacking := getattr(getattr(dataset, "unreadable", None), "sentence", str)():
                    self.console.warn(f"{dataset.name}: {lacking}")
            self.trained += 1
            values = dict(zip(names, measured, strict=True))
            notes = {
                metric.name: {"reason": metric.reason, "details": dict(metric.details)}
                for metric in (*metrics, *unasked)
                if metric.reason or metric.details
            }
            final = None if statistics.final is None else statistics.final.measured()
            record.finish_seed(seed, values, statistics.stopped_by, notes, wall, final)
        return [values[name] for name in names]

    def _notes(self, record: Record, metric: str) -> list[SeedNotes]:
        """The record's notes on a metric besides its values, seed by seed."""
        return [
            SeedNotes(**record.seed_notes(seed).get(metric, {}), lasted=_lasted(record.epochs(seed)))
            for seed in self.seeds
        ]

    def _train(
        self, record: Record, seed: int, parts: Parts, metrics: Sequence[Any]
    ) -> tuple[TrainingStatistics, float | None]:
        """Train a seed: its statistics, and how long it lasted by the clock."""
        parts.executor.set_checkpointing(self.checkpointing)
        trainer = Trainer(
            parts.train_sampler,
            parts.validation_sampler,
            parts.executor,
            parts.optimizer,
            seed=seed,
            ema=self.plan.values["ema"],
            task=parts.task,
            test_sampler=parts.test_sampler,
        )
        for text in self.object_states.begin():
            self._note(text, record)
        record.keep = self.plan.values["keep_checkpoints"]
        take_over_plan(record.path, parts.optimizer)
        in_turn = self.comm.size > 1 and getattr(parts.optimizer, "first_writes", False)
        with self.comm.patience(WRITING_SECONDS):
            state = record.rewind(seed, lambda epochs: common_epoch(epochs, self.comm), in_turn)
        stop, others = self._listeners(seed, metrics)
        if state is not None:
            from deep500.recipe.regroup import fitting

            trainer.load_state(fitting(parts.optimizer, state))
            for text in self.object_states.load(state["values"].get(OWN, {})):
                self._note(text, record)
        # its clock starts when the turn has come
        recorder = EpochRecorder(record, seed, trainer, self.comm, self.object_states)
        heard = [*recorder.among([*others, *self._loggers(seed, record)]), EndOfEpoch(stop)]
        statistics = trainer.run(self.plan.values["epochs"], [*turn_listeners(self.comm.size), *heard])
        if self.comm.rank == 0 and (sentence := keep_plan(record.path, parts.optimizer)) is not None:
            self.console.say(sentence)
        if seed == self.plan.seeds[0]:
            self._show(record, seed, trainer)
        statistics.communication = communication_of(record.epochs(seed)) if self.comm.rank == 0 else None
        return statistics, recorder.wall_seconds

    def _note(self, text: str, record: Record) -> None:
        """Say what the record then says, too."""
        if self.comm.rank == 0 and text not in (manifest := record.manifest())["warnings"]:
            self.console.warn(text)
            record.write_manifest({**manifest, "warnings": [*manifest["warnings"], text]})

    def _show(self, record: Record, seed: int, trainer: Trainer) -> None:
        """Keep what the task shows of a trained network; all ranks judge, rank 0 writes."""
        gallery = trainer.task.gallery()
        sampler = trainer.validation_sampler if trainer.test_sampler is None else trainer.test_sampler
        if gallery is None or sampler is None:
            return
        tally = trainer.evaluate(sampler, "what the report shows", gallery)
        if self.comm.rank == 0:
            write_exhibits(record.path, trainer.task.name, seed, gallery.exhibits(tally.sums))

    def _listeners(self, seed: int, metrics: Sequence[Any]) -> tuple[StopWithEpoch, list[Event]]:
        """The user's, which may stop a run, and all; those of this seed alone begin as they are made."""
        values = self.plan.values
        heard = [listener() if isinstance(listener, type) else listener for listener in values["events"]]
        events = StopWithEpoch(heard)
        schedule = [] if values["schedule"] is None else [copy.deepcopy(values["schedule"])]
        listening: list[Any] = [metric for metric in metrics if isinstance(metric, Event)]
        anew = {f"events[{n}]": heard[n] for n, listener in enumerate(values["events"]) if isinstance(listener, type)}
        anew |= {f"metric {metric.name}": metric for metric in listening}
        anew |= {f"schedule {type(listener).__name__}": listener for listener in schedule}
        self.object_states.add(anew, of_seed=True)
        every = sorted({metric.every for metric in metrics if getattr(metric, "every", None) is not None})
        checks = [JudgeEvery(*every)] if every else []
        return events, [*schedule, *listening, events, *checks, *self.console.progress(seed, self.labels)]

    def _loggers(self, seed: int, record: Record) -> list[Event]:
        """Of rank 0; labels are part of the title, so that they stand beside every number."""
        if self.comm.rank != 0 or not self.options.log:
            return []
        title = " ".join([record.path.name, f"seed {seed}", *(f"[{label}]" for label in self.labels)])
        recipe = {key: describe(value) for key, value in self.plan.values.items()}
        settings = {key: str(value) for key, value in {**recipe, "seed": seed, "division": self.plan.division}.items()}
        from deep500.training.loggers import make_loggers

        return make_loggers(self.options.log, self.source.name, title, settings, LOGS)

    # -- recording --------------------------------------------------------------------------------------------------
    def _manifest(self, data: tuple[Dataset, ...], parts: Parts) -> dict[str, Any]:
        asked = self.plan.values["executor_kwargs"].get("device")
        environment = full_environment(self.source.folder)
        return {
            "resolved": self.plan.resolved,
            "division": self.plan.division,
            "opened": self.plan.opened,
            "seeds": self.seeds,
            "dry_run": self.options.dry_run,
            "recipe_file": str(self.source.path) if self.source.path else None,
            "recipe_sha256": self.source.sha256(),
            "argv": self.options.defining(),
            "data": _data_facts(data),
            "task": {
                "name": parts.task.name,
                "sample": parts.task.sample,
                "qualities": [dataclasses.asdict(quality) for quality in parts.task.qualities],
                **_ignored(parts),
            },
            "backend": parts.executor.backend,
            "ranks": self.comm.size,
            "processes": self.ranks,
            "device": {"asked": describe(asked), "used": str(parts.executor.device)},
            "numerics": {"float32": parts.executor.precision, "deterministic": parts.executor.deterministic},
            "custom_ops": self.custom_ops,
            **memory_facts(self.memory),
            **facts_of(self.checkpointing, self.verified),
            **_training_facts(self.plan.values, parts.optimizer),
            "warnings": self.notes.warnings,
            "series": declared_series(self.plan.values["batch_size"]),
            "batches": len(parts.train_sampler),
            "dtype": str(parts.executor.network.inputs[data[0].input_name].dtype or "float32"),
            "load": read_load(),
            "environment": environment,
            "environment_sha256": fingerprint(environment),
            "resumed": [],
            **turns_of(self.options),
            **{key: value for key in ("name", "tags") if (value := getattr(self.options, key))},
        }

    def _note_resumption(self, record: Record, data: tuple[Dataset, ...]) -> None:
        manifest = record.manifest()
        if manifest["data"] != _data_facts(data):
            raise ResultsError(
                f"{record.path}: got other data than the run began with; expected the same digests; "
                "restore the data, or start a new run"
            )
        if manifest.get("custom_ops", []) != self.custom_ops:
            raise ResultsError(
                f"{record.path}: got custom operators whose files changed since the run began; expected the same; "
                "undo the change, or start a new run"
            )
        changed = list(differences(manifest["environment"], full_environment(self.source.folder)))
        if changed:
            self.console.warn(f"resumed in another environment ({', '.join(changed)}): the last bits may differ")
        entry: dict[str, Any] = {"at": _now(), "environment_changed": changed}
        began, now = manifest.get("ranks", 1), self.comm.size
        if self.comm.rank == 0 and began != now:
            scheme = scheme_of(self.plan.values)
            from deep500.recipe.regroup import put_together

            put_together(record, scheme, began, now)
            promise = scheme.on_other_ranks()
            self.console.warn(f"goes on on {now} ranks instead of {began}: {promise}; times are of both")
            entry.update(ranks=[began, now], processes=manifest.get("processes"), promise=promise)
            manifest.update(ranks=now, processes=self.ranks)
        manifest["resumed"].append(entry)
        record.write_manifest(manifest)

    def _finish(self, record: Record, result: RecipeResult, error: TrainingError | None = None) -> RecipeResult:
        changed, why = mixed(record.manifest()), disturbed(record.epochs(), record.manifest())
        self.labels = (*self.labels, *([RANKS_CHANGED] if changed else ()), *([BUSY] if why else ()))
        if TURNS in turns_of(self.options):
            ended = {"ended": len(self.seeds)} if self.options.end else {}
            turns = {TURNS: {**turns_of(self.options)[TURNS], **ended}}
            record.write_manifest({**record.manifest(), **turns, "seeds": self.seeds})
        result = dataclasses.replace(result, labels=self.labels)
        if why:
            self.console.warn(
                f"the machine was busy ({'; '.join(why)}): times are observations; deep500 tools env --check"
            )
        summary = {
            "schema": SUMMARY_SCHEMA,
            "status": "failed" if error else "finished",
            "error": str(error) if error else None,
            "verdict": result.verdict,
            "labels": list(result.labels),
            "metrics": [metric.as_dict() for metric in result.metrics],
            "seeds": self.seeds,
            "repetition": self.plan.repetition.summary(self.look) if self.plan.repetition and self.look else None,
            "tuning": {**ledger.tuning_cost(record.path.parent), "settings": ledger.settings_tried(record.path.parent)},
            "ledger": ledger.state(record.path.parent, record.path.name),
            "load": read_load(),
            "finished": _now(),
        }
        with progress("writing results and report"):
            record.clear_left_overs()
            self._write_rank_times(record)
            write_stats(record.path)
            record.write_summary(summary)
            write_claims(record.path)
            write_rules(record.path)
            result = dataclasses.replace(result, report=str(write_report(record)))
            seal(record.path)
        if error is None:
            self.console.verdict(result, summary)
        return result

    def _write_rank_times(self, record: Record) -> None:
        communication = communication_of(record.epochs())
        if self.comm.size > 1 and communication:
            plan = record.manifest()["series"][STEP]["plan"]
            ranks = ranks_of_run(record.samples, plan, self.seeds, self.comm.size, communication)
            if ranks is not None:
                disturbing = taints(record.epochs(), record.manifest())
                (ranks.observed() if disturbing else ranks).write(record.path)


def _lasted(epochs: Sequence[dict[str, Any]]) -> float | None:
    """Seconds of training and validation over all epochs; None without any."""
    times = [line.get(key) for line in epochs for key in ("train_seconds", "test_seconds")]
    known = [seconds for seconds in times if seconds is not None]
    return float(sum(known)) if known else None


def _training_facts(values: Mapping[str, Any], optimizer: Any) -> dict[str, Any]:
    """The manifest's entry on what patterns in the keys of training stand for; empty without any."""
    base = innermost(optimizer)
    facts: dict[str, Any] = {}
    if values["precision"] is not None:
        scaling = optimizer.loss_scaling
        facts["precision"] = {"name": values["precision"], "loss_scale": scaling and scaling.scale}
    if values["freeze"]:
        facts["trained"] = optimizer.network.trainable()
    if base.groups:
        facts["groups"] = [{**part.values, "parameters": list(part.names)} for part in base.parts()]
    return {"training": facts} if facts else {}


def _whole(parts: Parts) -> bool:
    """Whether each rank holds the whole network."""
    return bool(getattr(parts.optimizer, "whole", True))


def _ignored(parts: Parts) -> dict[str, int]:
    """The label that counts for nothing, where the loss has one."""
    label = parts.optimizer.batch_weights.ignored(parts.task.label)
    return {} if label is None else {"ignore_index": label}


def _data_facts(data: tuple[Dataset, ...]) -> dict[str, Any]:
    return {
        half: {
            "name": dataset.name,
            "length": len(dataset),
            "shape": list(dataset.shape),
            "classes": dataset.classes,
            "label_counts": dataset.label_counts() if (dataset.classes or 0) <= 1_000 else None,
            "stand_in": dataset.stand_in,
            "provenance": dataset.provenance,
            "digest": dataset.digest(),
        }
        for half, dataset in zip(("train", "validation", "test"), data, strict=False)
    }


def _now() -> str:
    return datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds")
