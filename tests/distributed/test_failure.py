"""One rank fails: all end, soon and loudly; nothing is half written; going on ends as if nothing had happened."""

from __future__ import annotations

import sys
import time

import numpy as np
import pytest

from deep500.results.verify import verify
from tests.distributed import jobs
from tests.distributed.ranks import missing

pytestmark = [pytest.mark.mpi, pytest.mark.skipif(missing() is not None, reason=str(missing()))]


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory):
    """An undisturbed run on two ranks."""
    folder = tmp_path_factory.mktemp("undisturbed")
    job = jobs.run(folder, "--ranks", "2")
    assert job.code == 0, job.errors
    return folder


@pytest.mark.parametrize(
    ("how", "said"),
    [
        ("raise", "[rank 1] ZeroDivisionError: on purpose"),
        ("training", "[rank 1] deep500: error: bad samples"),
        ("interrupt", "[rank 1] deep500: interrupted; go on with: --resume "),
        ("exit", "rank 1 has not entered "),
        ("kill", "[rank 1] ended before the others without a word"),
        ("leave", "[rank 1] ended before the others without a word"),  # os._exit(0): MPICH's launcher returns 0 then
        ("hang", "expected the other ranks to take part: rank 1 has not entered "),
    ],
)
def test_one_rank_ends_all(tmp_path, how, said):
    """A rank that waits gives up after an hour: that the job ends at all shows that it was ended."""
    job = jobs.run(
        tmp_path,
        "--ranks",
        "2",
        marker=f"fail-{how}",
        FAIL_RANK="1",
        FAIL_STEP="12",
        FAIL_HOW=how,
        DEEP500_COMM_TIMEOUT="4" if how == "hang" else str(jobs.LIMIT),
    )
    assert job.code != 0
    assert said in job.errors + job.output, job.errors + job.output
    assert how in ("exit", "hang") or "has not entered" not in job.errors, job.errors
    assert how in ("kill", "leave") or "without a word" not in job.errors, "who told is told of again"
    assert jobs.summary(tmp_path) is None, "a run whose rank failed must not look finished"
    deadline = time.monotonic() + jobs.LIMIT
    while jobs.survivors(f"fail-{how}") and time.monotonic() < deadline:
        time.sleep(0.1)
    assert jobs.survivors(f"fail-{how}") == []
    if how == "raise":
        first = next(line for line in job.errors.splitlines() if line.strip())
        assert first.startswith("[rank 1] Traceback"), job.errors


def test_ranks_that_all_diverge_leave_one_report(tmp_path):
    """Rank 0 writes it; the others neither write nor end rank 0 before it is there."""
    job = jobs.run(tmp_path, "--ranks", "3", "optimizer_kwargs.lr=1e200")
    assert job.code != 0 and "expected a finite number" in job.errors, job.errors
    assert jobs.summary(tmp_path)["status"] == "failed"
    (path,) = (tmp_path / "results" / jobs.RECIPE.stem).glob("2*")
    assert verify(path) == [] and (path / "report.html").exists()


@pytest.mark.slow
def test_resuming_after_a_killed_rank_ends_bit_by_bit_the_same(tmp_path, undisturbed):
    killed = jobs.run(tmp_path, "--ranks", "2", FAIL_RANK="1", FAIL_STEP="25", FAIL_HOW="kill")
    assert killed.code != 0
    done = jobs.run(tmp_path, "--resume")
    assert done.code == 0, done.errors
    (arrays, lines), (expected, expected_lines) = jobs.outcome(tmp_path), jobs.outcome(undisturbed)
    assert arrays.keys() == expected.keys() and len(lines) == 3
    assert all(np.array_equal(arrays[name], expected[name]) for name in expected)
    assert lines == expected_lines
    assert jobs.summary(tmp_path)["metrics"][0]["value"] == jobs.summary(undisturbed)["metrics"][0]["value"]


def test_the_number_of_ranks_changes_rounding_only(tmp_path, undisturbed):
    alone = jobs.run(tmp_path)
    assert alone.code == 0, alone.errors
    (arrays, lines), (expected, expected_lines) = jobs.outcome(tmp_path), jobs.outcome(undisturbed)
    moved = 0.0
    for name in (name for name in arrays if name.startswith("network/")):
        assert np.abs(arrays[name] - expected[name]).max() < 1e-12
        moved = max(moved, float(np.abs(arrays[name]).max()))
    assert moved > 0.1
    assert [line["test_accuracy"] for line in lines] == [line["test_accuracy"] for line in expected_lines]
    assert [line["train_samples"] for line in lines] == [300, 300, 300] == [x["train_samples"] for x in expected_lines]


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux tells a child that its parent is gone")
def test_no_rank_outlives_the_process_that_started_them(tmp_path):
    job = jobs.begin(tmp_path, "--ranks", "2", marker="orphan", FAIL_RANK="1", FAIL_STEP="3", FAIL_HOW="hang")
    try:
        deadline = time.monotonic() + jobs.LIMIT
        while not list(tmp_path.glob("results/*/2*/manifest.json")) and time.monotonic() < deadline:
            time.sleep(0.2)
        assert len(jobs.survivors("orphan")) >= 3
    finally:
        job.kill()
        job.wait()
        for pipe in (job.stdout, job.stderr):
            pipe.close()
    deadline = time.monotonic() + jobs.LIMIT
    while jobs.survivors("orphan") and time.monotonic() < deadline:
        time.sleep(0.1)
    assert jobs.survivors("orphan") == []
