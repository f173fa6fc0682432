"""Operators in C++ that communicate: as alone, forward and gradient, on one to three ranks; trained; refused."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import deep500 as d5
from deep500.distributed import Threads
from deep500.errors import InputError, MissingEngine, UnsupportedOperator
from deep500.operators.enzyme.engine import find_engine
from tests.distributed import operator_cases as cases

try:
    find_engine()
    HAS_ENGINE = True
except MissingEngine:
    HAS_ENGINE = False

needs_engine = [pytest.mark.mpi, pytest.mark.skipif(not HAS_ENGINE, reason="no Enzyme")]


def marked(test: Callable[..., None]) -> Callable[..., None]:
    """With all marks of tests on ranks."""
    for mark in needs_engine:
        test = mark(test)
    return test


@marked
@pytest.mark.parametrize("ranks", [1, 2, 3])
@pytest.mark.slow
def test_an_operator_of_ranks_is_the_operator_alone(on_ranks: Callable[..., list[Any]], ranks: int) -> None:
    """Halo exchange, sums and a minimum, in every backend that keeps to the program's order."""
    for found in on_ranks(cases.is_like_alone, ranks):
        assert "reference" in found["errors"] and max(found["errors"].values()) < 1e-12
        said = found["refused"]
        assert ranks == 1 or "a second communicator for one library in one process" in said["second"]
        assert "one of them in each process" in said["copy"]
        assert "it communicates, and Enzyme passes over" in said["jvp"]
        assert "InputError" in said["isolate"] and "would be no rank" in said["isolate"]


@marked
@pytest.mark.slow
def test_a_loss_of_ranks_trains_as_on_the_whole_batch(on_ranks: Callable[..., list[Any]]) -> None:
    for found in on_ranks(cases.trains, 2):
        assert found["even"]["error"] < 1e-12 and found["even"]["moved"] > 1e-2
        # weights of ranks would not reach what it returns
        assert "got a batch of 6, 5 samples on 2 ranks; expected equal shares" in found["uneven"]["refused"]


def test_threads_are_no_ranks_of_an_operator() -> None:
    with pytest.raises(InputError, match="expected ranks that are processes of MPI"):
        Threads(2).run(cases.compiled)


class Waits(d5.CustomPythonOp):
    """As if it waited for others."""

    communicates = True

    def forward(self, inputs: Any) -> Any:
        return inputs[0]


@pytest.mark.parametrize("backend", [pytest.param(b, marks=pytest.mark.backend(b)) for b in ("jax", "tensorflow")])
def test_where_calls_have_no_order_it_is_refused(backend: str) -> None:
    with pytest.raises(UnsupportedOperator, match="expected one of reference, onnxruntime and pytorch"):
        d5.load_backend(backend).custom_op(Waits())
