"""Statistics of a training run, epoch by epoch. What was not measured is None, never 0."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields
from typing import Any

from deep500.errors import InputError


@dataclass
class EpochRecord:
    """One epoch.

    Attributes:
        epoch: counted from 0; -1 is the validation before training.
        train_loss, test_loss: mean over the samples.
        train_accuracy, test_accuracy: percent; the training one is of the batches as they were trained on.
        train_samples, test_samples: how many samples went into those.
        train_seconds, test_seconds: wall time until the device had finished, listeners included.
        skipped_steps: updates left out because float16 gradients were not finite; None without loss scaling.
        complete: False for an epoch that was stopped before its last batch.
        qualities: of tasks other than classification, by the names that results show: ``train_word_error_rate``,
            ``test_word_error_rate``. Read any quality with :meth:`get`.
        checks: evaluations within the epoch (:class:`~deep500.training.listeners.JudgeEvery`): ``step``, ``seconds`` of
            this epoch's training until then, ``took`` (seconds of the evaluation, in no other time), and what it said.
    """

    epoch: int
    train_loss: float | None = None
    train_accuracy: float | None = None
    train_samples: int | None = None
    train_seconds: float | None = None
    test_loss: float | None = None
    test_accuracy: float | None = None
    test_samples: int | None = None
    test_seconds: float | None = None
    skipped_steps: int | None = None
    complete: bool = True
    qualities: dict[str, float | None] = field(default_factory=dict)
    checks: list[dict[str, Any]] = field(default_factory=list)

    def get(self, name: str) -> Any:
        """A field or a quality by name; None if it was not measured."""
        return getattr(self, name) if name in FIELDS else self.qualities.get(name)

    def put(self, half: str, values: Mapping[str, float | None]) -> None:
        """Enter a task's qualities under ``train_<name>`` or ``test_<name>``."""
        for name, value in values.items():
            if f"{half}_{name}" in FIELDS:
                setattr(self, f"{half}_{name}", value)
            else:
                self.qualities[f"{half}_{name}"] = value

    def measured(self) -> dict[str, float]:
        """The fields and qualities of validation or test that have a value."""
        return {n: v for n, v in self.to_dict().items() if n.startswith("test_") and v is not None}

    def to_dict(self) -> dict[str, Any]:
        """Fields and qualities beside each other."""
        return {**{name: getattr(self, name) for name in FIELDS}, **self.qualities}


OF_TASKS = ("qualities", "checks")
FIELDS = tuple(field.name for field in fields(EpochRecord) if field.name not in OF_TASKS)
"""Names that every record has."""


@dataclass
class TrainingStatistics:
    """All epochs of a run, in order.

    Attributes:
        epochs: one record per epoch that was trained, nothing else.
        initial: the validation before the first epoch, if there was one.
        final: what the test data said, once, after training; None without a third split.
        stopped_by: why the run ended before its last epoch, None if it did not.
        communication: of a distributed run, by rank as text ``payload_bytes``, ``messages``, ``wait_seconds`` and
            ``step_seconds``; None of one that was not.

    Example:
        >>> statistics = TrainingStatistics([EpochRecord(0, train_loss=0.5)])
        >>> TrainingStatistics.from_json(statistics.to_json()) == statistics
        True
    """

    epochs: list[EpochRecord] = field(default_factory=list)
    initial: EpochRecord | None = None
    stopped_by: str | None = None
    communication: dict[str, dict[str, float]] | None = None
    final: EpochRecord | None = None

    def column(self, name: str) -> list[Any]:
        """One field of every epoch: ``statistics.column("test_accuracy")``."""
        return [record.get(name) for record in self.epochs]

    def total(self, *names: str) -> float | None:
        """Sum of fields over all epochs; None if nothing of them was measured."""
        values = [value for name in names for value in self.column(name) if value is not None]
        return sum(values) if values else None

    def to_dict(self) -> dict[str, Any]:
        """As dictionaries and lists that JSON can hold."""
        return {
            "epochs": [_content(record) for record in self.epochs],
            "initial": None if self.initial is None else _content(self.initial),
            "stopped_by": self.stopped_by,
            "communication": self.communication,
            **({} if self.final is None else {"final": _content(self.final)}),
        }

    @classmethod
    def from_dict(cls, content: Mapping[str, Any]) -> TrainingStatistics:
        """The inverse of :meth:`to_dict`; raises InputError for fields that it does not know."""
        initial = content.get("initial")
        return cls(
            [_record(record) for record in content.get("epochs", ())],
            None if initial is None else _record(initial),
            content.get("stopped_by"),
            content.get("communication"),
            None if content.get("final") is None else _record(content["final"]),
        )

    def to_json(self) -> str:
        """As JSON text; floats come back bit for bit."""
        return json.dumps(self.to_dict(), allow_nan=False)

    @classmethod
    def from_json(cls, text: str) -> TrainingStatistics:
        """The inverse of :meth:`to_json`."""
        return cls.from_dict(json.loads(text))


def _content(record: EpochRecord) -> dict[str, Any]:
    content = asdict(record)
    return {name: value for name, value in content.items() if value or name in FIELDS}


def _record(content: Mapping[str, Any]) -> EpochRecord:
    odd = set(content) - {*FIELDS, *OF_TASKS}
    if odd or "epoch" not in content:
        raise InputError(
            f"got an epoch record with {sorted(content)}; expected the fields of EpochRecord: check the file"
        )
    return EpochRecord(**content)
