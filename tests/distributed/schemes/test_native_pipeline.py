"""Pipelines by PyTorch's schedules are ``Pipeline`` and one process, on random networks; and what they refuse."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from deep500.distributed import Serial, Threads, schemes
from deep500.distributed.schemes.native_pipeline import SCHEDULES
from deep500.errors import Deep500Error
from tests.conftest import load_backend
from tests.distributed import forked
from tests.distributed.ranks import name_of

load_backend("pytorch")
from tests.distributed import native_pipeline_cases as cases  # noqa: E402 - needs PyTorch

pytestmark = [pytest.mark.backend("pytorch"), pytest.mark.filterwarnings("ignore::UserWarning")]
CASES = {2: [(2, "1F1B", 4), (-1, "InterleavedZeroBubble", 4)], 3: [(-1, "1F1B", 5)]}
"""By number of ranks: networks (convolutions with batch normalization, dense and deep), schedules, micro-batches of 7
samples."""
MORE = {
    2: [(0, "1F1B", 4), *((-1, name, 3 + (name == "Interleaved1F1B")) for name in SCHEDULES if name != "1F1B")],
    3: [(2, "1F1B", 7), (-1, "Interleaved1F1B", 6)],
}
"""With clipping, and by all schedules."""


def on_forks(file: Path, cases_of: dict[int, Any], *ranks: int) -> list[list[Any]]:
    """Results of all cases on every rank, for each number of ranks."""
    code, output = forked.launch(name_of(cases.everything), file, {"cases": cases_of}, ranks)
    assert code == 0, output
    return json.loads(file.read_text(encoding="utf-8"))  # type: ignore[no-any-return]


def check(ranks: list[Any]) -> None:
    for rows in zip(*(each["compared"] for each in ranks), strict=True):
        first = rows[0]
        assert max(first["apart"], first["serial"], first["outputs"]) < 1e-12, first
        assert first["moved"] > 1e-2, first
        assert {row["digest"] for row in rows} == {first["digest"]}, "ranks differ"
        assert {row["resumed"] for row in rows} == {first["digest"]}, f"other bits after a resumption: {first}"
        assert sum(row["holds"] for row in rows) == first["trained"], rows


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> list[list[Any]]:
    """On two ranks and on three."""
    return on_forks(tmp_path_factory.mktemp("forked") / "results.json", CASES, 2, 3)


def test_they_are_pipelines_and_one_process(results: list[list[Any]]) -> None:
    """20 steps, straight on and in two pieces; every rank holds its stages only."""
    for ranks in results:
        check(ranks)


def test_the_schedule_that_was_asked_for_runs(results: list[list[Any]]) -> None:
    """7 samples in 4 pieces are three of 2 and one of 1: fewer than 1F1B takes."""
    first, second = (row["ran"] for row in results[0][0]["compared"])
    assert first == ["Schedule1F1B", "ScheduleGPipe"]
    assert second[0] == "ScheduleInterleavedZeroBubble"


@pytest.mark.long
def test_by_every_schedule_and_on_an_axis_of_a_mesh(tmp_path: Path) -> None:
    *ranks, meshed = on_forks(tmp_path / "results.json", MORE, 2, 3, 4)
    for each in ranks:
        check(each)
    assert {row["ran"][0] for row in ranks[0][0]["compared"]} == {f"Schedule{name}" for name in SCHEDULES}
    assert {each["digest"] for each in meshed} == {meshed[0]["digest"]} and meshed[0]["apart"] < 1e-12
    assert meshed[0]["title"] == "data: ConsistentDecentralized, pipeline: NativePipeline"


@pytest.mark.slow
def test_micro_batches_count_by_what_the_loss_is_a_mean_over(results: list[list[Any]]) -> None:
    assert all(each["ignored"] < 1e-12 for each in results[0])


def test_they_count_what_torch_sends(results: list[list[Any]]) -> None:
    counted = results[0][0]["counted"]
    assert counted["said"] == counted["seen"] > 0, counted


def test_averages_of_weights_are_those_of_one_process(results: list[list[Any]]) -> None:
    for near, far in (each["averaged"] for each in results[0]):
        assert near < 1e-12 and far > 1e-4


WANTED = {
    "schedule": "InputError: got schedule='1F2B'; expected one of GPipe, 1F1B, ",
    "stages": "InputError: got stages_per_rank=2 with the schedule 1F1B; expected 1: leave it out",
    "backend": "InputError: got NativePipeline on backend 'reference', which has no engine for it",
    "accumulate": "InputError: got accumulate or loss scaling with NativePipeline; expected none: it divides batches",
    "adapted": "InputError: got ",
    "module": "UnsupportedOperator: got NativePipeline for a module of your own",
    "fixed": "InputError: got input 'input' without a first size that is symbolic for NativePipeline",
    "tied": "InputError: got parameter 'w0', which stages 0 and 1 of NativePipeline read",
    "many": "InputError: got a network that can be cut in 9 stages with parameters",
    "alone": "InputError: got a training run of the executor with NativePipeline",
}


def test_refusals_are_one_line_with_the_cure(results: list[list[Any]]) -> None:
    for said in (each["refused"] for each in results[0]):
        for what, begin in WANTED.items():
            assert said[what].startswith(begin), (what, said[what])
            assert "\n" not in said[what]


def test_on_one_rank_it_is_the_base_optimizer() -> None:
    plain, alone = cases.optimizer(-1, 0, True), schemes.NativePipeline(cases.optimizer(-1, 0, True), Serial())
    for batch in cases.given(-1, 4)[:3]:
        plain.step(batch)
        alone.step(batch)
    assert cases.digest(cases.parameters(plain)) == cases.digest(cases.parameters(alone))
    assert alone.state_dict().keys() >= plain.state_dict().keys()


def test_threads_are_no_ranks_for_an_engine() -> None:
    with pytest.raises(Deep500Error, match=r"got ranks that are threads of one process.*--ranks"):
        Threads(2).run(lambda comm: schemes.NativePipeline(cases.optimizer(-1, 0, True), comm))


@pytest.mark.parametrize("count", [2, 4])
def test_a_chain_of_stages_computes_what_the_network_does(count: int) -> None:
    assert all(cases.chained(seed, count, copied) for seed in (0, 2, -1) for copied in (False, True))
