"""Every error that Deep500 raises on purpose.

Each message says what was *got*, what was *expected* and what to *do*. ``except Deep500Error`` catches them all;
anything else that escapes is a defect of ours.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable, Mapping


class Deep500Error(Exception):
    """Base class of all errors raised on purpose; ``exit_code`` is what the command line returns for it."""

    exit_code = 2


class NetworkError(Deep500Error, ValueError):
    """A network is malformed, or an edit would make it so."""


class UnsupportedOperator(Deep500Error, NotImplementedError):
    """Operators that a backend cannot run, or that have no gradient rule; names every offending node."""

    exit_code = 3


class OutOfMemory(Deep500Error, MemoryError):
    """A value that a network asks for is larger than memory; names the node where that is known."""

    exit_code = 3


class InputError(Deep500Error, ValueError):
    """Arrays handed to an executor or optimizer do not match by name, dtype or shape."""


class DataError(Deep500Error, ValueError):
    """A data set is absent, truncated, altered or holds impossible values."""

    exit_code = 3


class MissingDataset(DataError):
    """A known data set is not on this machine; the message says where it was looked for and how to get it."""


class UnknownDataset(DataError):
    """No data set has this name, or what is given as one is none."""

    exit_code = 2


class MissingBackend(Deep500Error, ImportError):
    """A framework that is asked for is not installed; the message holds the line that installs it."""

    exit_code = 3


class MissingPackage(Deep500Error, ImportError):
    """An optional package is not installed; the message holds the line that installs it."""

    exit_code = 3


class UnknownBackend(MissingBackend):
    """No backend has this name; the message says which have a similar one."""

    exit_code = 2


class MissingDevice(Deep500Error, RuntimeError):
    """A device that is asked for does not exist on this machine (only raised under ``strict``)."""

    exit_code = 3


class CacheError(Deep500Error, OSError):
    """The cache of compiled operators cannot be written."""


class OperatorError(Deep500Error, RuntimeError):
    """A C++ operator failed while it ran: it threw, returned a status, crashed or took too long."""

    exit_code = 1


class RecipeError(Deep500Error, ValueError):
    """A recipe or one of its overrides is wrong: unknown key, key in both halves, value out of range."""


class ResultsError(Deep500Error, OSError):
    """A results directory cannot be written, read or resumed."""


class TrainingError(Deep500Error, ArithmeticError):
    """Training cannot go on, for instance because the loss is not a number."""

    exit_code = 1


class PlanError(Deep500Error, ValueError):
    """A checkpointing plan, a profile or a tree of regions is malformed, or belongs to something else."""


class BudgetError(PlanError):
    """No checkpointing plan fits a memory budget.

    Attributes:
        smallest: the smallest budget in bytes that was found to be met; None where that is not known.
        bound: bytes that no plan goes below, proven; None where that is not known.
    """

    def __init__(self, message: str, smallest: int | None = None, bound: int | None = None) -> None:
        super().__init__(message)
        self.smallest, self.bound = smallest, bound


class CommunicationError(Deep500Error, RuntimeError):
    """Ranks cannot exchange what a scheme asks for: one is missing, stuck, failed, or does something else."""

    exit_code = 1


class ComparisonError(Deep500Error, RuntimeError):
    """Frameworks cannot be compared: a worker process ended, or a model's inputs cannot be made up."""

    exit_code = 1


class CompileError(Deep500Error, RuntimeError):
    """A C++ operator does not compile; holds the compiler's own lines."""


class EnzymeError(CompileError):
    """Enzyme cannot differentiate a C++ operator, or what it made is wrong.

    Attributes:
        log: all that the tool said.
        missing: where only some derivatives fail: why, for each of them.
    """

    def __init__(self, message: str, log: str = "", missing: Mapping[str, str] | None = None) -> None:
        super().__init__(message)
        self.log, self.missing = log, dict(missing or {})


class MissingEngine(Deep500Error, RuntimeError):
    """Enzyme or a compiler is missing; the message holds the command that installs it."""

    exit_code = 3


def nearest(name: str, known: Iterable[str], count: int = 3) -> str:
    """Return a phrase for error messages with the known names closest to ``name``.

    Example:
        >>> nearest("batchsize", ["batch_size", "epochs"])
        "did you mean 'batch_size'?"
        >>> nearest("adam", ["GradientDescent", "AdamWOptimizer", "AdamOptimizer"])
        "did you mean 'AdamOptimizer' or 'AdamWOptimizer'?"
        >>> nearest("adamm", ["GradientDescent", "AdamWOptimizer", "AdamOptimizer"])
        "did you mean 'AdamOptimizer' or 'AdamWOptimizer'?"
        >>> nearest("zzz", ["batch_size", "epochs"])
        "known: 'batch_size', 'epochs'"
    """
    names, lowered = [str(k) for k in known], str(name).lower()
    by_lower = {text.lower(): text for text in names}
    close = [by_lower[text] for text in difflib.get_close_matches(lowered, by_lower, n=count)]
    if not close:  # without the last word, which many have: AdamOptimizer
        short = {re.sub("[A-Z][a-z]+$", "", text).lower(): text for text in names}
        close = [short[text] for text in difflib.get_close_matches(lowered, short, n=count, cutoff=0.75)]
    if not close and len(lowered) > 2:
        close = sorted((text for lower, text in by_lower.items() if lowered in lower), key=len)[:count]
    if close:
        return f"did you mean {' or '.join(map(repr, close))}?"
    shown = ", ".join(map(repr, names[:12]))
    return f"known: {shown or 'none'}" + (f", ... ({len(names)} in all)" if len(names) > 12 else "")


class AccumulationWarning(UserWarning):
    """The run in pieces (``accumulate``) is not the run of whole batches."""
