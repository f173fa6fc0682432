"""The driver of real ranks: it returns every rank's result, and a failed or hanging rank is a failed test."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from deep500.distributed import Threads
from tests.distributed import cases, ranks

pytestmark = pytest.mark.mpi


@pytest.mark.parametrize("size", [1, 3])
def test_every_rank_reports(size: int, on_ranks: Callable[..., list[Any]]) -> None:
    results = on_ranks(cases.who, size)
    assert [result["rank"] for result in results] == list(range(size))
    assert {result["size"] for result in results} == {size} and {result["transport"] for result in results} == {"mpi"}
    assert [result["sum"] for result in results] == [result["sum"] for result in Threads(size).run(cases.who)]


def test_a_rank_that_raises_fails_the_test_and_is_named(on_ranks: Callable[..., list[Any]]) -> None:
    with pytest.raises(AssertionError, match=r"(?s)on 3 ranks ended with.*\[rank 1\] ValueError: this rank fails"):
        on_ranks(cases.fail, 3, rank=1)


@pytest.mark.slow
def test_a_case_that_hangs_ends_with_all_its_ranks(on_ranks: Callable[..., list[Any]], tmp_path: Path) -> None:
    code, output = ranks.launch(ranks.name_of(cases.hang), 2, tmp_path / "none.json", {}, limit=15)
    assert code != 0 and re.search("got no end of (receive|barrier) within", output), output
    assert not (tmp_path / "none.json").exists()


def test_a_case_that_takes_too_long_is_ended(tmp_path: Path, on_ranks: Callable[..., list[Any]]) -> None:
    code, output = ranks.launch(ranks.name_of(cases.sleep), 2, tmp_path / "none.json", {"seconds": 100.0}, limit=4)
    assert code != 0, output
