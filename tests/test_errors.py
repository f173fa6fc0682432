"""Errors: each is ours and Python's, has an exit code, and names the nearest of what is known."""

from __future__ import annotations

from typing import Any

import pytest

from deep500 import errors
from deep500.errors import Deep500Error, nearest

ERRORS = [e for e in vars(errors).values() if isinstance(e, type) and issubclass(e, Deep500Error)]
# fmt: off
BUILT_IN = {
    "NetworkError": ValueError, "UnsupportedOperator": NotImplementedError, "InputError": ValueError,
    "DataError": ValueError, "MissingBackend": ImportError, "MissingDevice": RuntimeError, "RecipeError": ValueError,
    "ResultsError": OSError, "TrainingError": ArithmeticError, "ComparisonError": RuntimeError,
    "CompileError": RuntimeError, "OperatorError": RuntimeError, "EnzymeError": RuntimeError, "CacheError": OSError,
    "MissingEngine": RuntimeError, "CommunicationError": RuntimeError,
    "PlanError": ValueError, "BudgetError": ValueError, "OutOfMemory": MemoryError,
    "UnknownBackend": ImportError, "UnknownDataset": ValueError, "MissingDataset": ValueError,
    "MissingPackage": ImportError,
}
# fmt: on
EXIT_CODES = {
    "UnsupportedOperator": 3,
    "DataError": 3,
    "MissingBackend": 3,
    "MissingPackage": 3,
    "MissingDataset": 3,
    "UnknownBackend": 2,
    "UnknownDataset": 2,
    "MissingDevice": 3,
    "OutOfMemory": 3,
    "TrainingError": 1,
    "ComparisonError": 1,
    "OperatorError": 1,
    "MissingEngine": 3,
    "CommunicationError": 1,
}


@pytest.mark.parametrize("error", ERRORS, ids=lambda e: e.__name__)
def test_every_error_is_ours_and_pythons_and_has_an_exit_code(error: type[Deep500Error]) -> None:
    with pytest.raises(Deep500Error, match="got x; expected y") as raised:
        raise error("got x; expected y; do z")
    assert isinstance(raised.value, BUILT_IN.get(error.__name__, Exception))
    assert raised.value.exit_code == EXIT_CODES.get(error.__name__, 2)
    assert error.__doc__


def test_no_error_is_left_out_of_the_table() -> None:
    assert {e.__name__ for e in ERRORS} == {*BUILT_IN, "Deep500Error"}


@pytest.mark.parametrize(
    ("name", "known", "phrase"),
    [
        ("batchsize", ["batch_size", "epochs"], "did you mean 'batch_size'?"),
        ("relu1", ["relu2", "relu3"], "did you mean 'relu3' or 'relu2'?"),
        ("zzz", ["batch_size", "epochs"], "known: 'batch_size', 'epochs'"),
        ("zzz", [], "known: none"),
        ("zzz", [f"{i}" for i in range(30)], "... (30 in all)"),
        (None, ["a"], "known: 'a'"),
    ],
)
def test_nearest_names(name: Any, known: list[str], phrase: str) -> None:
    assert phrase in nearest(name, known)
