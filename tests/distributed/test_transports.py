"""One suite for every transport: ranks in threads, over MPI, and over torch.distributed as torchrun starts them."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from deep500.distributed import Threads
from tests.conftest import load_backend
from tests.distributed import ranks, torchrun, transport_cases

LENGTHS = [1, 7, 65_537]
Run = Callable[..., list[Any]]


@pytest.fixture(params=["threads", pytest.param("mpi", marks=pytest.mark.mpi), "torch"])
def run(request: pytest.FixtureRequest, tmp_path: Path) -> Run:
    """``run(case, size, **arguments)``: what the case returned on every rank."""
    if request.param == "threads":
        return lambda case, size, **arguments: json.loads(
            json.dumps(Threads(size).run(lambda comm: case(comm, **arguments)))
        )
    if request.param == "mpi":
        return request.getfixturevalue("on_ranks")  # type: ignore[no-any-return]
    load_backend("pytorch")

    def by_torchrun(case: Callable[..., Any], size: int, **arguments: Any) -> list[Any]:
        file = tmp_path / "results.json"
        code, output = torchrun.launch(ranks.name_of(case), size, file, arguments)
        assert code == 0, f"{case.__name__} on {size} ranks ended with {code}:\n{output}"
        return json.loads(file.read_text(encoding="utf-8"))  # type: ignore[no-any-return]

    return by_torchrun


@pytest.mark.parametrize("size", [2, 3])
@pytest.mark.slow
def test_a_transport_keeps_its_promises(run: Run, size: int) -> None:
    results = run(transport_cases.everything, size, lengths=LENGTHS)
    for rank, result in enumerate(results):
        assert result["collectives"] == json.loads(json.dumps(transport_cases.expected_collectives(rank, size)))
        assert result["messages"] == json.loads(json.dumps(transport_cases.expected_messages(rank, size)))
        assert result["counted"] == transport_cases.COUNTED
        assert result["overlapping"]
        assert len(result["bits"]) == 2 * len(LENGTHS)
        assert result["bits"] == results[0]["bits"], "ranks differ in their sums"


@pytest.mark.backend("pytorch")
@pytest.mark.slow
def test_what_nobody_answers_raises_in_time(tmp_path: Path) -> None:
    load_backend("pytorch")
    file = tmp_path / "results.json"
    code, output = torchrun.launch(ranks.name_of(transport_cases.times_out), 2, file, {})
    assert code == 0, output
    raised = json.loads(file.read_text(encoding="utf-8"))[0]
    assert sorted(raised) == ["any", "pending", "receive", "sum"]
    for name, (error, seconds) in raised.items():
        assert "Timed out waiting 1000ms" in error and 0.9 < seconds, (name, error, seconds)


@pytest.mark.backend("pytorch")
@pytest.mark.parametrize(
    "how, says",  # of a killed rank, torchrun itself may be the first to tell
    [
        ("raise", r"\[rank 1\] ValueError: this rank fails"),
        ("leave", r"\[rank 0\] CommunicationError: rank 1 has not entered \w+ \d+: it is at its end"),
        ("kill", r"rank 1 ended before the others without a word|rank +: 1 \(local_rank: 1\)"),
        ("exit", "rank 1 ended before the others without a word"),
        ("hang", r"Timed out waiting 15000ms.*rank 1 has not entered \w+ \d+: it is"),
    ],
    ids=["raise", "leave", "kill", "exit", "hang"],
)
def test_a_rank_that_ends_ends_all(how: str, says: str, tmp_path: Path) -> None:
    load_backend("pytorch")
    file = tmp_path / "results.json"
    timeout = 15 if how == "hang" else ranks.LIMIT  # the others end by themselves, however slowly ranks start
    code, output = torchrun.launch(ranks.name_of(transport_cases.fails), 2, file, {"how": how}, timeout=timeout)
    assert code not in (0, 124) and re.search(says, output), output
    assert not file.exists()
    if how == "raise":
        assert next(line for line in output.splitlines() if line.startswith("[rank")).startswith("[rank 1]"), output


@pytest.mark.mpi
@pytest.mark.backend("pytorch")
def test_a_traceback_reaches_the_user_past_the_hook_of_torch(on_ranks: Run, tmp_path: Path) -> None:
    load_backend("pytorch")
    with pytest.raises(AssertionError, match=r"(?s)ended with.*\[rank 0\] ValueError: this rank fails"):
        on_ranks(transport_cases.fails_beside_torch, 2, store=str(tmp_path / "store"))
