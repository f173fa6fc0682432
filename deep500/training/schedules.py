"""Schedules: hyper-parameters as functions of (epoch, step), acting from the very first step.

A schedule is a listener. It knows no history, so a resumed run needs nothing from it: the value depends on the epoch,
the step and the optimizer's *initial* value alone. The formulas are PyTorch's.

One hyper-parameter: :class:`StepSchedule`, :class:`CosineSchedule`, :class:`TableSchedule`, :class:`FunctionSchedule`,
:class:`WarmUp` before any of them; :class:`Schedule` is their base. Several at once, as the original had them:
:class:`HyperparameterSchedule`, :func:`EpochHPSchedule`, :func:`StepHPSchedule`.
"""

from __future__ import annotations

import abc
import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from numbers import Integral, Real
from typing import TYPE_CHECKING, Any

from deep500.errors import InputError
from deep500.events import Event

if TYPE_CHECKING:
    from deep500.training.run import Run

UNITS = ("epoch", "step")


@dataclass
class Schedule(Event, abc.ABC):
    """Base of all schedules; a subclass gives ``value(position, base)``.

    Args:
        parameter: the hyper-parameter to set.
        unit: what the position counts: ``"epoch"`` or ``"step"`` (batches since the beginning), from 0.
        base: the value to start from; None: what the optimizer was made with.
    """

    parameter: str = field(default="lr", kw_only=True)
    unit: str = field(default="epoch", kw_only=True)
    base: float | None = field(default=None, kw_only=True)

    def __post_init__(self) -> None:
        if self.unit not in UNITS:
            raise InputError(f"got unit {self.unit!r}; expected one of {UNITS}: choose one")
        self.listen(self.unit)

    def listen(self, unit: str) -> None:
        """Set the value before each epoch or before each step; only that hook exists, so the other costs nothing."""
        setattr(self, {"epoch": "before_epoch", "step": "before_batch"}[unit], self.apply)

    @abc.abstractmethod
    def value(self, position: int, base: Any) -> Any:
        """The hyper-parameter at an epoch or step, given its initial value."""

    def at(self, epoch: int, step: int, base: Any) -> Any:
        """The value at an epoch and step, in whichever of the two the schedule counts."""
        return self.value(epoch if self.unit == "epoch" else step, base if self.base is None else self.base)

    def apply(self, run: Run) -> None:
        """Set the hyper-parameter; raises InputError if the optimizer has none of that name."""
        base = run.optimizer.initial_parameter(self.parameter)
        run.optimizer.set_parameter(self.parameter, self.at(run.epoch, run.step, base))


@dataclass
class StepSchedule(Schedule):
    """``base * gamma ** (position // step_size)``.

    Example:
        >>> [StepSchedule(2, 0.5).value(epoch, 1.0) for epoch in range(5)]
        [1.0, 1.0, 0.5, 0.5, 0.25]
    """

    step_size: int
    gamma: float = 0.1

    def __post_init__(self) -> None:
        super().__post_init__()
        _at_least_one("step_size", self.step_size)

    def value(self, position: int, base: float) -> float:
        return base * self.gamma ** (position // self.step_size)


@dataclass
class CosineSchedule(Schedule):
    """Half a cosine from ``base`` to ``minimum`` (Loshchilov and Hutter 2017, without restarts), which then stays.

    ``minimum + (base - minimum) (1 + cos(pi position / total)) / 2``.
    """

    total: int
    minimum: float = 0.0

    def __post_init__(self) -> None:
        super().__post_init__()
        _at_least_one("total", self.total)

    def value(self, position: int, base: float) -> float:
        share = min(position, self.total) / self.total
        return self.minimum + (base - self.minimum) * (1 + math.cos(math.pi * share)) / 2


@dataclass
class TableSchedule(Schedule):
    """The entry with the largest key that is not above the position; before the first key the initial value.

    Example:
        >>> table = TableSchedule({0: 0.1, 80: 0.01})
        >>> table.value(0, None), table.value(79, None), table.value(80, None)
        (0.1, 0.1, 0.01)
    """

    table: Mapping[int, Any] | Iterable[tuple[int, Any]]

    def __post_init__(self) -> None:
        super().__post_init__()
        table = dict(self.table)
        if (odd := next((key for key in table if not isinstance(key, Integral)), None)) is not None:
            raise InputError(f"got position {odd!r} in a table; expected whole numbers: in TOML, pairs [[0, 0.1], ...]")
        self.table = dict(sorted(table.items()))

    def value(self, position: int, base: Any) -> Any:
        latest = base
        for start, value in dict(self.table).items():
            if start <= position:
                latest = value
        return latest


@dataclass
class FunctionSchedule(Schedule):
    """``function(position)``: the value itself, not a factor."""

    function: Callable[[int], Any]

    def value(self, position: int, base: Any) -> Any:
        return self.function(position)


@dataclass
class WarmUp(Schedule):
    """Multiplies another schedule by a factor that rises from ``start`` to 1 during the first ``steps``.

    ``start + (1 - start) position / steps``, then 1. Both count from the beginning, each in its own unit: a warm-up in
    steps (the default here) goes with a decay per epoch.

    Args:
        steps: length of the warm-up, in ``unit``.
        schedule: what it multiplies; None: the initial value. It sets the parameter no more by itself.
        start: the first factor, 0 to 1.
    """

    steps: int
    schedule: Schedule | None = None
    start: float = 0.1
    unit: str = field(default="step", kw_only=True)

    def __post_init__(self) -> None:
        super().__post_init__()
        _at_least_one("steps", self.steps)
        if not isinstance(self.start, Real) or not 0 <= self.start <= 1:
            raise InputError(f"got start={self.start!r}; expected a factor from 0 to 1: choose one")
        if self.schedule is not None:
            if not isinstance(self.schedule, Schedule):
                raise InputError(f"got schedule={self.schedule!r}; expected a Schedule, or None: make one")
            if self.schedule.parameter != self.parameter:
                raise InputError(
                    f"got a warm-up of {self.parameter!r} for a schedule of {self.schedule.parameter!r}; expected the "
                    "same: pass parameter="
                )
            self.listen(self.schedule.unit)  # its own unit moves the product, too

    def value(self, position: int, base: float) -> float:
        return base * (self.start + (1 - self.start) * min(position, self.steps) / self.steps)

    def at(self, epoch: int, step: int, base: float) -> float:
        base = base if self.base is None else self.base
        inner = base if self.schedule is None else self.schedule.at(epoch, step, base)
        return self.value(epoch if self.unit == "epoch" else step, inner)


class HyperparameterSchedule(Event):
    """The original's schedules, several hyper-parameters at once.

    Args:
        per_epoch: whether positions are epochs (else steps).
        hyperparameters: by name a list of ``(position, value)``, a dictionary, or a function of the position.

    Example:
        >>> HyperparameterSchedule(True, lr=[(0, 0.1), (80, 0.01)], momentum=lambda epoch: 0.9).per_epoch
        True
    """

    def __init__(self, per_epoch: bool = True, **hyperparameters: Any) -> None:
        self.per_epoch = per_epoch
        unit = "epoch" if per_epoch else "step"
        self.schedules: list[Schedule] = [
            FunctionSchedule(what, parameter=name, unit=unit)
            if callable(what)
            else TableSchedule(what, parameter=name, unit=unit)
            for name, what in hyperparameters.items()
        ]
        setattr(self, "before_epoch" if per_epoch else "before_batch", self._apply)

    def _apply(self, run: Run) -> None:
        for schedule in self.schedules:
            schedule.apply(run)


def EpochHPSchedule(**hyperparameters: Any) -> HyperparameterSchedule:
    """:class:`HyperparameterSchedule` whose positions are epochs."""
    return HyperparameterSchedule(True, **hyperparameters)


def StepHPSchedule(**hyperparameters: Any) -> HyperparameterSchedule:
    """:class:`HyperparameterSchedule` whose positions are steps."""
    return HyperparameterSchedule(False, **hyperparameters)


def _at_least_one(name: str, value: int) -> None:
    if not isinstance(value, Real) or not value >= 1:
        raise InputError(f"got {name}={value!r}; expected a whole number >= 1: choose another")
