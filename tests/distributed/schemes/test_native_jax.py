"""Schemes by JAX's own engine are their definitions among ours, on random networks over MPI; and what they refuse."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from deep500.distributed import Serial, Threads, schemes
from deep500.errors import Deep500Error
from tests.conftest import load_backend
from tests.distributed import jobs
from tests.distributed.ranks import missing

load_backend("jax")
from tests.distributed import jax_cases as cases  # noqa: E402 - needs JAX

pytestmark = [
    pytest.mark.backend("jax"),
    pytest.mark.mpi,
    pytest.mark.skipif(missing() is not None, reason=str(missing())),
]
WANTED = {
    "compression": "UnsupportedOperator: got compression='fp16' with DDP on JAX, whose engine has none",
    "crossing": "UnsupportedOperator: got crossing=2 with FSDP on JAX, whose engine has none",
    "scalar": "InputError: got parameter 'factor' without dimensions for FSDP",
    "between": "InputError: got a run in evaluation mode between steps of FSDP",
    "files": "InputError: got a sharded checkpoint on backend 'jax', whose engine has none; expected 'pytorch'",
}


def check(everyone: list[dict[str, Any]]) -> None:
    """Results of the cases, of all ranks."""
    for rows in zip(*(each["compared"] for each in everyone), strict=True):
        first = rows[0]
        assert first["apart"] < 1e-12, first
        assert first["moved"] > 1e-2, first
        assert first["steps"] == [cases.STEPS, cases.STEPS], first
        assert {row["digest"] for row in rows} == {first["digest"]}, "ranks differ"
        assert {row["resumed"] for row in rows} == {first["digest"]}, f"other bits after a resumption: {first}"


@pytest.mark.slow
def test_they_are_their_definitions(on_ranks: Callable[..., list[Any]]) -> None:
    """20 steps, some of them with shares of different size; and what is refused."""
    everyone = on_ranks(cases.everything, 2, seeds=[0])
    check(everyone)
    ddp, fsdp = everyone[0]["compared"]
    assert ddp["programs"] == fsdp["programs"] == ["fused", "sum"]  # one program a step, another for unequal shares
    whole = {name: list(p.value.shape) for name, p in cases.network(0).parameters.items()}
    assert ddp["held"] == whole
    for name, shape in fsdp["held"].items():
        fit = [size for size in whole[name] if size % 2 == 0]
        assert np.prod(shape) == np.prod(whole[name]) // (2 if fit else 1), name
        assert not fit or max(fit) // 2 == shape[whole[name].index(max(fit))], name
    for what, begin in WANTED.items():
        assert all(each["refused"][what].startswith(begin) for each in everyone), everyone[0]["refused"][what]


@pytest.mark.slow
def test_in_float32_they_are_one_process_on_the_whole_batch(on_ranks: Callable[..., list[Any]]) -> None:
    for apart in on_ranks(cases.serial, 2):
        assert max(apart.values()) < 1e-5, apart


@pytest.mark.long
def test_more_of_them_are_on_more_ranks(on_ranks: Callable[..., list[Any]]) -> None:
    """With batch normalization, with clipping and a rank without samples; and a part of the ranks is refused."""
    everyone = on_ranks(cases.everything, 4, seeds=[1, 2], stop=7)
    check(everyone)
    assert everyone[0]["refused"]["part"].startswith("InputError: got an axis of a mesh, 2 of 4 ranks")


def test_on_one_rank_they_are_the_base_optimizer() -> None:
    for name in cases.DEFINITIONS:
        plain, alone = cases.base(0), getattr(schemes, name)(cases.base(0), Serial())
        for batch in cases.batches(0, [4], 0, 3):
            plain.step(batch)
            alone.step(batch)
        assert cases.digest(cases.parameters(plain)) == cases.digest(cases.parameters(alone))


def test_threads_are_no_ranks_for_an_engine() -> None:
    with pytest.raises(Deep500Error, match=r"got ranks that are threads of one process.*--ranks"):
        Threads(2).run(lambda comm: schemes.DDP(cases.base(0), comm))


@pytest.mark.slow
def test_ranks_meet_before_jax_computes(on_ranks: Callable[..., list[Any]]) -> None:
    said = on_ranks(cases.too_late, 2)
    assert all("got a JAX that has looked for devices before the ranks met" in each for each in said)


@pytest.mark.slow
@pytest.mark.parametrize("scheme", [pytest.param("DDP", marks=pytest.mark.long), "FSDP"])
def test_a_recipe_trains_and_validates(scheme: str, tmp_path: Path) -> None:
    """As a user starts it: its checkpoint is that of the whole, and one process says the same of every epoch."""
    assert (job := jobs.run(tmp_path, "--ranks", "2", "--backend", "jax", SCHEME=scheme)).code == 0, job.errors
    (tmp_path / "alone").mkdir()
    assert jobs.run(tmp_path / "alone", "--backend", "reference").code == 0
    (arrays, lines), (alone, others) = jobs.outcome(tmp_path), jobs.outcome(tmp_path / "alone")
    assert len(lines) == len(others) == 3
    for name in alone:
        assert np.abs(arrays[name] - alone[name]).max() < 1e-12, name


@pytest.mark.long
@pytest.mark.parametrize("scheme", sorted(cases.DEFINITIONS))
def test_a_recipe_whose_rank_was_killed_goes_on(scheme: str, tmp_path: Path) -> None:
    """The rank is named, and the resumed run ends with the bits of one never stopped; on one rank, to rounding."""
    words = ("--ranks", "2", "--backend", "jax")
    folders = [tmp_path / name for name in ("whole", "killed", "fewer")]
    for folder in folders:
        folder.mkdir()
    assert jobs.run(folders[0], *words, SCHEME=scheme).code == 0
    fail = {"FAIL_RANK": "1", "FAIL_STEP": "25", "FAIL_HOW": "kill"}
    for folder in folders[1:]:
        killed = jobs.run(folder, *words, SCHEME=scheme, **fail)
        assert killed.code != 0 and "rank 1 ended before the others" in killed.errors.replace("[rank 1]", "rank 1")
    assert (done := jobs.run(folders[1], "--resume", SCHEME=scheme)).code == 0, done.errors
    assert (done := jobs.run(folders[2], "--resume", "--ranks", "1", SCHEME=scheme)).code == 0, done.errors
    (arrays, lines), (expected, others) = jobs.outcome(folders[1]), jobs.outcome(folders[0])
    assert lines == others and all(np.array_equal(arrays[name], expected[name]) for name in expected)
    fewer, _ = jobs.outcome(folders[2])
    for name in (name for name in expected if name.startswith("network/")):
        assert np.abs(fewer[name] - expected[name]).max() < 1e-12


@pytest.mark.long
@pytest.mark.parametrize("scheme", sorted(cases.DEFINITIONS))
def test_a_rank_that_hangs_is_named(scheme: str, tmp_path: Path) -> None:
    words, variables = ("--ranks", "2", "--backend", "jax"), {"FAIL_RANK": "1", "FAIL_STEP": "12"}
    job = jobs.run(tmp_path, *words, SCHEME=scheme, FAIL_HOW="hang", DEEP500_COMM_TIMEOUT="6", **variables)
    assert job.code != 0 and jobs.summary(tmp_path) is None
    assert "rank 1 has not entered" in job.errors, job.errors
