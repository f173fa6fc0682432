"""Live logging: what a training run says while it runs, by way of other tools' own clients.

A logger is a listener: all numbers of an epoch's record and of its task when the epoch ends, and in between the
training loss, at most once a second, since reading it waits for the device. ``deep500 run --log tensorboard`` and its
like add one for every seed; from Python, put it among the events.
"""

from __future__ import annotations

import abc
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from time import perf_counter
from typing import Any

from deep500.errors import InputError, nearest
from deep500.events import Event
from deep500.registry import load_package
from deep500.training.listeners import CSVWriter
from deep500.training.run import Run

Settings = Mapping[str, str]


class Logger(Event, abc.ABC):
    """The seam: a logger opens a place before the run, writes numbers with their step, and closes it.

    Args:
        title: what the place calls this training.
        settings: facts to keep beside it, such as the recipe's keys.
        interval: seconds between two readings of the loss within an epoch.
    """

    def __init__(self, title: str = "deep500", settings: Settings | None = None, interval: float = 1.0) -> None:
        self.title, self.settings, self.interval = title, dict(settings or {}), interval
        self._read = 0.0

    @abc.abstractmethod
    def open(self) -> None:
        """Make the place; raises MissingPackage with the line that installs the client."""

    @abc.abstractmethod
    def write(self, values: Mapping[str, float], step: int) -> None:
        """Keep numbers of a step, counted in batches since the beginning."""

    @abc.abstractmethod
    def close(self, finished: bool) -> None:
        """Write what is left; ``finished`` is False where training ended by an error."""

    def before_run(self, run: Run) -> None:
        self.open()
        self._read = perf_counter()

    def after_batch(self, run: Run) -> None:
        if perf_counter() - self._read >= self.interval:
            loss = run.train_loss()
            if loss is not None:
                self.write({"train_loss_so_far": loss}, run.step)
            self._read = perf_counter()

    def after_epoch(self, run: Run) -> None:
        if run.record is not None:
            self.write(dict(numbers({**run.record.to_dict(), "epoch": run.record.epoch + 1})), run.step)

    def after_run(self, run: Run) -> None:
        self.close(sys.exc_info()[0] is None)  # the loop says after_run in either case


class TensorBoardLogger(Logger):
    """Event files by tensorboardX, to look at with ``tensorboard --logdir``.

    Args:
        folder: where they go; made if absent.
        title, settings, interval: see :class:`Logger`; settings are shown as text.
    """

    def __init__(
        self, folder: str | Path, title: str = "deep500", settings: Settings | None = None, **more: Any
    ) -> None:
        super().__init__(title, settings, **more)
        self.folder = Path(folder)

    def open(self) -> None:
        writer = client("tensorboard").SummaryWriter
        self._writer = writer(str(self.folder))
        lines = [f"    {key}: {value}" for key, value in {"run": self.title, **self.settings}.items()]
        self._writer.add_text("settings", "\n".join(lines), 0)

    def write(self, values: Mapping[str, float], step: int) -> None:
        for name, value in values.items():
            self._writer.add_scalar(name, value, step)
        self._writer.flush()

    def close(self, finished: bool) -> None:
        self._writer.close()


class MLflowLogger(Logger):
    """A run of MLflow, wherever MLflow is told to keep it (``MLFLOW_TRACKING_URI``).

    Args:
        experiment: its name; made if absent.
        title, settings, interval: see :class:`Logger`; settings are parameters, cut to MLflow's 6000 characters.
    """

    def __init__(
        self, experiment: str = "deep500", title: str = "deep500", settings: Settings | None = None, **more: Any
    ) -> None:
        super().__init__(title, settings, **more)
        self.experiment = experiment

    def open(self) -> None:
        mlflow = client("mlflow")
        self._client = mlflow.MlflowClient()
        known = self._client.get_experiment_by_name(self.experiment)
        where = known.experiment_id if known else self._client.create_experiment(self.experiment)
        self._run = self._client.create_run(where, run_name=self.title).info.run_id
        for key, value in self.settings.items():
            self._client.log_param(self._run, key, value[:6000])

    def write(self, values: Mapping[str, float], step: int) -> None:
        for name, value in values.items():
            self._client.log_metric(self._run, name, value, step=step)

    def close(self, finished: bool) -> None:
        self._client.set_terminated(self._run, "FINISHED" if finished else "FAILED")


class WandbLogger(Logger):
    """A run of Weights & Biases, online or not as ``WANDB_MODE`` says.

    Args:
        project: its project.
        title, settings, interval: see :class:`Logger`; settings are the run's config.
    """

    def __init__(
        self, project: str = "deep500", title: str = "deep500", settings: Settings | None = None, **more: Any
    ) -> None:
        super().__init__(title, settings, **more)
        self.project = project

    def open(self) -> None:
        wandb = client("wandb")
        self._run = wandb.init(project=self.project, name=self.title, config=dict(self.settings), reinit="create_new")

    def write(self, values: Mapping[str, float], step: int) -> None:
        self._run.log(dict(values), step=step)

    def close(self, finished: bool) -> None:
        self._run.finish(exit_code=0 if finished else 1)


CLIENTS = {"csv": "", "tensorboard": "tensorboardX", "mlflow": "mlflow", "wandb": "wandb"}
"""Values of ``--log``, and the package that each needs."""


def client(kind: str) -> Any:
    """The package that a kind of logging needs; raises MissingPackage with the line that installs it.

    Raises:
        InputError: another kind than those of :data:`CLIENTS`.
    """
    if kind not in CLIENTS:
        raise InputError(f"got --log {kind}; expected one of {', '.join(CLIENTS)}: {nearest(kind, CLIENTS)}")
    return load_package(CLIENTS[kind], kind, f"for --log {kind}") if CLIENTS[kind] else None


def make_loggers(kinds: Sequence[str], recipe: str, title: str, settings: Settings, folder: Path) -> list[Event]:
    """The listeners of ``--log``: files go below a folder, the others where their clients keep what they get.

    Args:
        kinds: of :data:`CLIENTS`.
        recipe: experiment of MLflow, project of Weights & Biases, folder of files.
        title: of this training, labels such as "stand-in data" included.
        settings: facts kept beside it.
        folder: for files.

    Raises:
        InputError, MissingPackage: see :func:`client`.
    """
    place = folder / recipe / title.replace("/", "_")
    loggers: list[Event] = []
    for kind in dict.fromkeys(kinds):
        client(kind)
        if kind == "csv":
            place.mkdir(parents=True, exist_ok=True)
            loggers.append(CSVWriter(place / "epochs.csv"))
        elif kind == "tensorboard":
            loggers.append(TensorBoardLogger(place, title, settings))
        else:
            loggers.append((MLflowLogger if kind == "mlflow" else WandbLogger)(recipe, title, settings))
    return loggers


def numbers(values: Mapping[str, Any], name: str = "") -> Iterator[tuple[str, float]]:
    """The finite and other numbers of a record, those within mappings by dotted names.

    Example:
        >>> dict(numbers({"epoch": 1, "qualities": {"wer": 2.5}, "seconds": None, "names": ["a"]}))
        {'epoch': 1.0, 'qualities.wer': 2.5}
    """
    for key, value in values.items():
        if isinstance(value, Mapping):
            yield from numbers(value, f"{name}{key}.")
        elif isinstance(value, (int, float)) and not isinstance(value, bool):
            yield f"{name}{key}", float(value)
