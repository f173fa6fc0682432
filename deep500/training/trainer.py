"""`Trainer`: the loop over epochs and batches, validation, statistics, and a state from which it goes on exactly.

Nothing in the loop waits for the device: losses and outputs are kept as tensors and read at the end of an epoch, or
when a listener asks. A loss that is not finite is therefore noticed at the end of its epoch (sooner: ``StopOnNaN``).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, nullcontext
from time import perf_counter
from typing import TYPE_CHECKING, Any

import numpy as np

from deep500.errors import InputError, nearest
from deep500.events import SILENT, Event, Events, StopTraining
from deep500.networks.execution.executor import GraphExecutor
from deep500.tasks.classification import Classification
from deep500.tasks.task import Task, batch_length
from deep500.training.listeners import DefaultTrainerEvents
from deep500.training.optimizers.base import Optimizer
from deep500.training.run import Run
from deep500.training.statistics import EpochRecord, TrainingStatistics
from deep500.training.tally import Tally
from deep500.training.unsaved import watching_steps

if TYPE_CHECKING:
    from deep500.training.data.prefetch import Prefetch
    from deep500.training.data.samplers import Sampler


CALIBRATION = 50
"""Training batches by which batch normalization is brought to weights that a network is judged by and did not train."""


class Trainer:
    """Trains a network epoch by epoch and validates it after each.

    With an optimizer that judges by other weights than it trains (:class:`ScheduleFree`), the network holds those from
    the end of an epoch to the begin of the next, so that all that is validated, stored and exported has them. Running
    statistics of its normalizations are brought to them by :data:`CALIBRATION` training batches, in the epoch's time.

    Args:
        train_sampler: batches to train on.
        validation_sampler: batches to validate on; None: no validation is made, and none is reported.
        executor: runs the network.
        optimizer: made for the same executor.
        network_output: what is judged (class scores); the network's first output besides the loss if None.
        loss: the scalar loss.
        label: the input with what is wanted (class numbers).
        validate_first: also validate before the first epoch (``statistics.initial``).
        seed: each epoch restarts the executor's randomness (Dropout) from (seed, epoch).
        ema: decay of a :class:`~deep500.training.averaging.WeightAverage`, by which validations judge; None: none.
        task: what is learned; it knows output, loss and label, and the three arguments are not read. None: a
            :class:`~deep500.tasks.Classification` by them.
        test_sampler: batches that are judged once, after training, as ``statistics.final``; no decision sees them.

    Attributes:
        statistics: of the epochs so far.
        epoch, step: number of completed epochs, and of batches trained on.
        checked_seconds: what :meth:`check` took in this epoch.

    Raises:
        InputError: a name is not in the network, the optimizer belongs to another executor, or there are no batches.
    """

    def __init__(
        self,
        train_sampler: Sampler | Prefetch,
        validation_sampler: Sampler | Prefetch | None,
        executor: GraphExecutor,
        optimizer: Optimizer,
        network_output: str | None = None,
        loss: str = "loss",
        label: str = "label",
        *,
        validate_first: bool = False,
        seed: int = 0,
        ema: float | None = None,
        task: Task | None = None,
        test_sampler: Sampler | Prefetch | None = None,
    ) -> None:
        outputs = executor.network.outputs
        self.task = task = Classification(label, network_output, loss) if task is None else task
        if task.loss not in outputs:
            raise InputError(
                f"got loss={task.loss!r}; expected an output of the network: {nearest(task.loss, outputs)}"
            )
        # an inner value that the task knows by name can be judged: inference gives it
        task.bind([*outputs, *(name for name in [task.output] if name and executor.network.has_value(name))])
        if optimizer.executor is not executor:
            raise InputError(
                "got an optimizer of another executor; expected one made for the executor given: pass that"
            )
        if len(train_sampler) == 0:
            raise InputError("got a sampler without batches; expected at least one batch: make them smaller")
        self.train_sampler, self.validation_sampler = train_sampler, validation_sampler
        self.test_sampler = test_sampler
        self.executor, self.optimizer = executor, optimizer
        self.network_output, self.loss, self.label = task.output, task.loss, task.label
        optimizer.batch_weights.ask(task)
        if isinstance(task, Classification):
            task.ignore_index = optimizer.batch_weights.ignored(task.label)
        self.validate_first, self.seed = validate_first, seed
        self.average: Any = None
        if ema is not None:
            from deep500.training.averaging import WeightAverage  # here, because few runs have one

            parts = optimizer if getattr(optimizer, "joins_parts", False) else None
            self.average = WeightAverage(executor, ema, parts)
        self._calibrates = self._check_judged(ema)
        self.statistics = TrainingStatistics()
        self.epoch = self.step = 0
        self._begun = self.checked_seconds = 0.0
        self._checks: list[dict[str, Any]] = []
        self._shown: ExitStack | None = None  # the evaluation that lasts from epoch to epoch
        self._calibrated = 0  # the step whose weights the running statistics belong to

    def _check_judged(self, ema: float | None) -> bool:
        """Whether running statistics are brought to the weights that judge; InputError for those that cannot."""
        optimizer, sampler = self.optimizer, self.train_sampler
        if self.average is not None and not getattr(optimizer, "consistent", True):
            raise InputError(
                f"got ema={ema} with {type(optimizer).__name__}, whose ranks differ in their parameters; expected a "
                "scheme that keeps them the same, such as ConsistentDecentralized: choose one, or leave ema out"
            )
        sharded = optimizer.judges_other and optimizer.owned is not None
        joined = getattr(optimizer, "whole", True) or getattr(optimizer, "joins_parts", False)
        if self.average is not None and (sharded or not joined):
            raise InputError(
                f"got ema={ema} with {type(optimizer).__name__}, whose ranks hold parts of the parameters or of "
                "the weights by which they are judged; expected a scheme that keeps them whole or joins them, such as "
                "ConsistentDecentralized or FSDP: choose one, or leave ema out"
            )
        normalizes = any(node.op_type == "BatchNormalization" for node in self.executor.network.nodes)
        calibrates = optimizer.judges_other and normalizes
        agrees = getattr(optimizer, "whole", True) and getattr(optimizer, "agrees_on_statistics", True)
        plain = type(self.task).batches is Task.batches and _maker(sampler)
        if calibrates and not (agrees and plain):
            raise InputError(
                f"got BatchNormalization with {type(optimizer).__name__}, which judges by other weights than it "
                f"trains, {type(sampler).__name__} and {type(self.task).__name__}; expected a scheme whose ranks hold "
                "the network and agree on its statistics, and batches of a sampler's batch(epoch, number), by which "
                "these are brought to those weights: choose others, or another optimizer"
            )
        return calibrates

    def run(self, epochs: int, events: Iterable[Event] | None = None) -> TrainingStatistics:
        """Train until ``epochs`` epochs are complete in all (a trainer with loaded state has some already).

        Args:
            epochs: total number of epochs.
            events: listeners; None means :func:`~deep500.training.listeners.DefaultTrainerEvents`.

        Returns:
            the statistics of all epochs. ``after_run`` hooks are called however the run ends.

        Raises:
            TrainingError: a loss is not finite.
        """
        listeners = Events(DefaultTrainerEvents(epochs) if events is None else events)
        run = Run(self.executor, self.optimizer, self, epochs, len(self.train_sampler), self.epoch, 0, self.step)
        run.statistics = self.statistics
        self.statistics.stopped_by = None
        before, self.executor.events = self.executor.events, listeners
        try:
            listeners.emit(listeners.before_run, run)
            if self.validate_first and self.epoch == 0 and self.statistics.initial is None:
                self.statistics.initial = EpochRecord(-1)
                self._validate(run, listeners, self.statistics.initial)
            while self.epoch < epochs:
                self._run_epoch(run, listeners)
        except StopTraining as stop:
            run.stopped_by = self.statistics.stopped_by = str(stop) or type(stop).__name__
        finally:
            self.executor.events = before
            listeners.emit(listeners.after_run, run)
        self._show()  # where no epoch was left
        if self.test_sampler is not None:
            self.statistics.final = final = EpochRecord(self.epoch)
            self._judge(final, self.test_sampler, "test, after training")
        return self.statistics

    run_loop = run

    def _run_epoch(self, run: Run, listeners: Events) -> None:
        run.epoch, run.batch = self.epoch, 0
        run.tally = self._tally(f"training, epoch {run.epoch + 1}")
        record = EpochRecord(run.epoch)
        skipped = self._skipped()
        self.train_sampler.set_epoch(run.epoch)
        run.batches = len(self.train_sampler)  # an order may have other samples in each epoch
        self.executor.reseed(epoch_seed(self.seed, run.epoch, self.optimizer.rank))
        listeners.emit(listeners.before_epoch, run)
        self._begun, self._checks, self.checked_seconds = perf_counter(), [], 0.0
        self._hide()
        try:
            self._train(run, listeners, run.tally)
        except StopTraining:
            record.complete = False
            record.skipped_steps = self._skipped(skipped)
            self._close(run, record)
            raise
        record.skipped_steps = self._skipped(skipped)
        self._close(run, record)
        self.epoch += 1
        early = None
        try:
            self._validate(run, listeners, record)
        except StopTraining as stop:
            if record.test_samples is None:
                raise  # in the middle of the validation
            early = stop
        listeners.emit(listeners.after_epoch, run)
        if early is not None:
            raise early

    def _train(self, run: Run, listeners: Events, tally: Tally) -> None:
        """All batches of an epoch; each line that is not a hook is the work itself."""
        batches = iter(self.task.batches(self.train_sampler, self.executor))
        step, count, average = watching_steps(self.optimizer), run.batches, self.average
        try:
            for run.batch in range(count):
                if listeners.before_batch:
                    listeners.emit(listeners.before_batch, run)
                if listeners.before_io:
                    listeners.emit(listeners.before_io, run)
                inputs = next(batches, None)
                if inputs is None:
                    break
                run.inputs = inputs
                if listeners.after_io:
                    listeners.emit(listeners.after_io, run)
                run.outputs = outputs = step(inputs)
                if average is not None:
                    average.update(self.optimizer.judged_tensors)
                tally.add(run.step, inputs, outputs)
                run.step = self.step = run.step + 1
                if listeners.after_batch:
                    listeners.emit(listeners.after_batch, run)
        finally:
            if hasattr(batches, "close"):
                batches.close()  # prefetching threads end here, not when the garbage is collected

    def _skipped(self, before: int | None = 0) -> int | None:
        scaling = self.optimizer.loss_scaling
        return None if scaling is None else scaling.skipped - (before or 0)

    def _close(self, run: Run, record: EpochRecord) -> None:
        tally = run.tally
        assert tally is not None
        tally.combine(self.optimizer.totals, self.optimizer.rank)
        record.train_loss, record.train_samples = tally.loss(), tally.samples
        record.put("train", tally.qualities())
        self._show()
        self.executor.synchronize()
        record.train_seconds, record.checks = self._seconds(), self._checks
        records = self.statistics.epochs
        if records and records[-1].epoch == record.epoch:
            records.pop()  # the epoch was stopped in an earlier run and is done again
        if tally.samples:
            records.append(record)

    def _show(self) -> None:
        """Let the network hold the weights and statistics by which it is judged, until the next epoch begins."""
        if not self.optimizer.judges_other or self._shown is not None:
            return
        self.calibrate()
        self._shown = ExitStack()
        self._shown.enter_context(self.optimizer.evaluation())

    def calibrate(self) -> None:
        """Bring running statistics to the weights that are judged, where these are not the trained ones.

        An epoch ends with it. Whoever calls :meth:`evaluate` within an epoch calls it before, and counts its time as
        training: up to ``CALIBRATION`` batches are passed forward at those weights.
        """
        if not self._calibrates or self._calibrated == self.step:
            return
        events, self.executor.events = self.executor.events, SILENT
        with self.optimizer.evaluation():
            for number in range(min(CALIBRATION, len(self.train_sampler))):
                inputs = self.task.complete(_maker(self.train_sampler)(self.train_sampler.epoch, number))
                if batch_length(inputs, self.label):
                    self.optimizer.backprop(inputs)
        self.executor.events, self._calibrated = events, self.step

    def _hide(self) -> None:
        """Let the network hold again what it trains."""
        if self._shown is not None:
            self._shown.close()
        self._shown = None

    def _validate(self, run: Run, listeners: Events, record: EpochRecord) -> None:
        if self.validation_sampler is None:
            return
        listeners.emit(listeners.before_validation, run)
        self._judge(
            record,
            self._validation_batches(self.validation_sampler, run, listeners),
            f"validation, epoch {record.epoch + 1}",
            _length(self.validation_sampler),
        )
        listeners.emit(listeners.after_validation, run)

    @staticmethod
    def _validation_batches(
        sampler: Iterable[Mapping[str, Any]], run: Run, listeners: Events
    ) -> Iterator[Mapping[str, Any]]:
        """The batches of a validation; each is over when the next is asked for."""
        run.judged = 0
        for batch in sampler:
            if listeners.before_validation_batch:
                listeners.emit(listeners.before_validation_batch, run)
            yield batch
            run.judged += 1
            if listeners.after_validation_batch:
                listeners.emit(listeners.after_validation_batch, run)

    def _seconds(self) -> float:
        """Seconds of training in this epoch so far, without what its checks took."""
        return perf_counter() - self._begun - self.checked_seconds

    def check(self) -> None:
        """Judge the network now, in the middle of an epoch; the time that it takes is in no other time.

        Raises:
            InputError: there is no validation sampler.
        """
        if self.validation_sampler is None:
            raise InputError("got no validation sampler to judge steps by; expected one: give the trainer one")
        self._show()
        self.executor.synchronize()
        seconds, begun = self._seconds(), perf_counter()
        record, events = EpochRecord(self.epoch), self.executor.events
        self.executor.events = SILENT  # what it runs is no part of the step
        try:
            self._judge(record, self.validation_sampler, f"validation, step {self.step}")
        finally:
            self.executor.events = events
        took = perf_counter() - begun
        self.checked_seconds += took
        self._hide()
        self._checks.append({"step": self.step, "seconds": seconds, "took": took, **record.measured()})

    def _judge(
        self, record: EpochRecord, sampler: Iterable[Mapping[str, Any]], what: str, batches: int | None = None
    ) -> None:
        started = perf_counter()
        tally = self.evaluate(sampler, what, batches=batches)
        record.test_loss, record.test_samples = tally.loss(), tally.samples
        record.put("test", tally.qualities())
        record.test_seconds = perf_counter() - started

    def evaluate(
        self, sampler: Iterable[Mapping[str, Any]], what: str, judge: Any = None, batches: int | None = None
    ) -> Tally:
        """Judge the network, by its averages if there are some, on all batches of a sampler and of all ranks together.

        Args:
            sampler: the batches.
            what: they are called so if a loss is not finite.
            judge: judges them; the task if None, whose ``predict`` is asked in any case.
            batches: how many there are, if the sampler does not say it itself. Where all ranks have as many, and the
                task makes one inference for each, ranks that hold parts of the network need not hold it whole.
        """
        judge = self.task if judge is None else judge
        tally = self._tally(what, judge)
        names = list(dict.fromkeys([*judge.judged_outputs(), self.loss]))
        asks = getattr(self.optimizer, "judges_in_turn", None) if self.task.infers_once(names) else None
        in_turn = asks is not None and asks(names, _length(sampler) if batches is None else batches)
        completes = self.optimizer.batch_weights.counted and type(self.task).complete is not Task.complete
        with self.judged(in_turn):
            for number, inputs in enumerate(sampler):
                if batch_length(inputs, self.label):  # a rank may have no share of a small batch
                    batch = {**self.task.complete(dict(inputs)), **inputs} if completes else inputs
                    tally.add(number, batch, self.task.predict(self.executor, batch, names))
                elif in_turn:  # it takes part in what the others gather
                    made_up: Any = self.optimizer
                    self.task.predict(self.executor, made_up.made_up(inputs), names)
        tally.combine(self.optimizer.totals, self.optimizer.rank)
        return tally

    @contextmanager
    def judged(self, in_turn: bool = False) -> Iterator[None]:
        """Inside, the network holds the weights and running statistics by which it is judged: its averages (``ema``)
        if there are some, and what the optimizer judges by. ``with trainer.judged(): network.to_onnx()`` writes them.

        Args:
            in_turn: whether ranks that hold parts of the network hold parts inside, too; else all enter together.
        """
        optimizer: Any = self.optimizer
        average = nullcontext() if self.average is None else self.average.evaluation(in_turn)
        with optimizer.judging() if in_turn else optimizer.evaluation(), average:
            yield

    def _tally(self, what: str, judge: Any = None) -> Tally:
        """Sums of a judge, or of the task over batches that are trained on."""
        judged = judge is not None or self.task.judges_training
        judge = self.task if judge is None else judge
        tally = Tally(self.executor.network.to_numpy, None, self.loss, self.label, what, judge, judged)
        tally.weights = self.optimizer.batch_weights
        return tally

    # -- state ------------------------------------------------------------------------------------------------------
    def state(self, in_turn: bool = False) -> dict[str, Any]:
        """Everything from which :meth:`load_state` continues as if never stopped; take it between epochs.

        Args:
            in_turn: whether arrays of which ranks hold parts (``FSDP`` on PyTorch) may be
                :class:`~deep500.tensors.LaterArray`: no rank then holds all at once, but all ranks must read them at
                once, in one order, and before the next step.

        Returns:
            ``{"arrays": {name: array}, "values": what JSON can hold}``.
        """
        parts: Any = self.optimizer if in_turn and hasattr(self.optimizer, "states_in_turn") else None
        states = (
            (self.executor.network.state(), self.optimizer.state_dict()) if parts is None else parts.states_in_turn()
        )
        network, optimizer = (
            {f"{place}/{name}": array for name, array in state.items()}
            for place, state in zip(("network", "optimizer"), states, strict=True)
        )
        # fmt: off
        values = {
            "epoch": self.epoch, "step": self.step, "seed": self.seed, "sampler": self.train_sampler.state(),
            "hyperparameters": self.optimizer.get_parameters(), "statistics": self.statistics.to_dict(),
        }
        # fmt: on
        if self.optimizer.loss_scaling is not None:
            values["loss_scaling"] = self.optimizer.loss_scaling.state()
        average = {} if self.average is None else self.average.state(parts is not None)
        return {
            "arrays": {**network, **optimizer, **{f"ema/{name}": array for name, array in average.items()}},
            "values": values,
        }

    def load_state(self, state: Mapping[str, Any]) -> None:
        """Go on from :meth:`state`.

        Raises:
            InputError: the state is of another network, optimizer or data set. Part of it may be loaded by then, so
                make a new trainer.
        """
        arrays, values = state["arrays"], state["values"]
        absent = sorted({"hyperparameters", "sampler", "statistics", "epoch", "step", "seed"} - values.keys())
        if absent:
            raise InputError(
                f"got a state without {', '.join(absent)}; expected one of Trainer.state(): load another checkpoint"
            )
        self._hide()
        self.executor.network.load_state(_below(arrays, "network/"))
        for name, value in values["hyperparameters"].items():
            self.optimizer.set_parameter(name, value)
        self.optimizer.load_state_dict(_below(arrays, "optimizer/"))
        if self.optimizer.loss_scaling is not None:
            self.optimizer.loss_scaling.load_state(values["loss_scaling"])
        if self.average is not None:
            self.average.load_state(_below(arrays, "ema/"))
        self.train_sampler.resume(values["sampler"])
        self.statistics = TrainingStatistics.from_dict(values["statistics"])
        self.epoch, self.step, self.seed = values["epoch"], values["step"], values["seed"]
        self._calibrated = self.step


def epoch_seed(seed: int, epoch: int, rank: int = 0) -> int:
    """With what the executor's randomness begins in an epoch: ranks drop different units, rank 0 as one process does.

    Example:
        >>> epoch_seed(0, 1) == epoch_seed(0, 1, 0) != epoch_seed(0, 1, 1)
        True
    """
    return int(np.random.SeedSequence([seed, epoch, *([rank] if rank else [])]).generate_state(1)[0])


def _maker(sampler: Any) -> Any:
    """The function of (epoch, number) that makes a sampler's batches; None if it has none."""
    while not hasattr(sampler, "batch") and hasattr(sampler, "sampler"):
        sampler = sampler.sampler
    return getattr(sampler, "batch", None)


def _length(sampler: Any) -> int | None:
    """How many batches a sampler has, if it knows."""
    return len(sampler) if hasattr(sampler, "__len__") else None


def _below(arrays: Mapping[str, Any], prefix: str) -> dict[str, Any]:
    return {name[len(prefix) :]: array for name, array in arrays.items() if name.startswith(prefix)}
