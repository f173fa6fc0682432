"""Cells of a sweep that a sampler of Optuna proposes, each from the values of those before."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from importlib import import_module
from typing import Any

from deep500.errors import RecipeError


def load_optuna() -> Any:
    """Import Optuna; raises RecipeError with the cure where it is not installed."""
    try:
        optuna: Any = import_module("optuna")
    except ImportError:
        raise RecipeError(
            "got --sampler optuna without the package optuna; expected it installed: pip install optuna, or leave "
            "--sampler out for a quasi-random sweep"
        ) from None
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    return optuna


class AdaptiveCells:
    """Asks Optuna's TPE for words, and tells it what became of them.

    Args:
        axes: the `SweepAxis` of each word: values, or a range.
        seed: of the sampler.
        records: of the cells that have ended, by number; what they found is told first.
    """

    def __init__(self, axes: Sequence[Any], seed: int, records: Mapping[int, Mapping[str, Any]]) -> None:
        self.optuna, self.axes = load_optuna(), list(axes)
        kinds = self.optuna.distributions
        self.kinds = {
            axis.key: self._range(axis.span) if axis.span else kinds.CategoricalDistribution(axis.values)
            for axis in axes
        }
        sampler = self.optuna.samplers.TPESampler(seed=seed + len(records), constant_liar=True)
        self.study, self.asked = self.optuna.create_study(sampler=sampler), dict[int, Any]()
        for _, record in sorted(records.items()):
            texts = dict(word.partition("=")[::2] for word in record["words"])
            chosen = {
                axis.key: (int if axis.span.whole else float)(texts[axis.key]) if axis.span else texts[axis.key]
                for axis in self.axes
            }
            value = cost_of(record)
            state = self.optuna.trial.TrialState.COMPLETE if value is not None else self.optuna.trial.TrialState.FAIL
            trial = self.optuna.trial.create_trial(params=chosen, distributions=self.kinds, value=value, state=state)
            self.study.add_trial(trial)

    def _range(self, span: Any) -> Any:
        kinds = self.optuna.distributions
        if span.whole:
            return kinds.IntDistribution(round(span.low), round(span.high), log=span.log)
        return kinds.FloatDistribution(span.low, span.high, log=span.log)

    def ask(self, cell: int) -> tuple[str, ...]:
        """Return the words of a cell."""
        trial = self.asked[cell] = self.study.ask(self.kinds)
        values = {key: f"{value:.6g}" if isinstance(value, float) else value for key, value in trial.params.items()}
        return tuple(f"{axis.key}={values[axis.key]}" for axis in self.axes)

    def tell(self, cell: int, record: Mapping[str, Any]) -> None:
        """Tell what became of a cell."""
        value, trial = cost_of(record), self.asked.pop(cell)
        if value is None:
            self.study.tell(trial, state=self.optuna.trial.TrialState.FAIL)
        else:
            self.study.tell(trial, value)


def cost_of(record: Mapping[str, Any]) -> float | None:
    """The median quality of a cell, smaller for better; None where it failed.

    Example:
        >>> cost_of({"values": [3.0, None, 5.0], "reason": "", "quality": {"direction": "higher"}})
        -4.0
    """
    known = sorted(value for value in record["values"] if value is not None)
    if record["reason"] or not known:
        return None
    middle = (known[(len(known) - 1) // 2] + known[len(known) // 2]) / 2
    return float(-middle if record["quality"]["direction"] == "higher" else middle)
