"""Schemes by PyTorch's own engines are their definitions among ours, on random networks; and what they refuse."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import pytest
import torch
import torch.distributed.checkpoint as dcp

from deep500.distributed import Serial, Threads, schemes
from deep500.errors import Deep500Error
from tests.conftest import load_backend
from tests.distributed import forked, jobs
from tests.distributed.ranks import missing, name_of

load_backend("pytorch")
from deep500.frameworks.pytorch import sharded_checkpoint  # noqa: E402 - needs PyTorch
from tests.distributed import native_cases as cases  # noqa: E402
from tests.distributed import native_options_cases as options_cases  # noqa: E402
from tests.distributed import native_parts_cases as parts_cases  # noqa: E402

pytestmark = [pytest.mark.backend("pytorch"), pytest.mark.filterwarnings("ignore::UserWarning")]
SEEDS = list(range(6))
RANDOM = [1, 2]
"""Networks that are trained in every run of the tests."""
Results: TypeAlias = list[list[dict[str, Any]]]


def on_forks(folder: Path, case: Callable[..., Any], *ranks: int, **arguments: Any) -> list[Any]:
    """Results of a case on every rank, for each number of ranks."""
    code, output = forked.launch(name_of(case), folder / "results.json", arguments, ranks)
    assert code == 0, output
    return json.loads((folder / "results.json").read_text(encoding="utf-8"))  # type: ignore[no-any-return]


def check(ranks: list[list[dict[str, Any]]]) -> None:
    for rows in zip(*ranks, strict=True):
        first = rows[0]
        assert first["apart"] < 1e-12, first
        assert first["moved"] > 1e-2, first
        assert first["steps"] == [cases.STEPS, cases.STEPS], first
        assert {row["digest"] for row in rows} == {first["digest"]}, "ranks differ"
        assert {row["resumed"] for row in rows} == {first["digest"]}, f"other bits after a resumption: {first}"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where checkpoints are."""
    return tmp_path_factory.mktemp("forked")


@pytest.fixture(scope="module")
def results(folder: Path) -> Results:
    """Of all cases, on two ranks and on three."""
    return on_forks(folder, options_cases.everything, 2, 3, seeds=RANDOM, under=str(folder))


def test_they_are_their_definitions(results: Results) -> None:
    """20 steps of random networks, optimizers and shares, straight on and in two pieces."""
    for ranks in results:
        check([each["compared"] for each in ranks])


@pytest.mark.long
def test_more_of_them_are_on_more_ranks(tmp_path: Path) -> None:
    for ranks in on_forks(tmp_path, cases.compared, 4, seeds=[0, 3, 4, 5]):
        check(ranks)


@pytest.mark.parametrize("name", sorted(cases.DEFINITIONS))
def test_on_one_rank_they_are_the_base_optimizer(name: str) -> None:
    for seed in SEEDS:
        plain, alone = cases.base(seed, 0, True), getattr(schemes, name)(cases.base(seed, 0, True), Serial())
        for batch in cases.batches(seed, [4], 0, 3):
            plain.step(batch)
            alone.step(batch)
        assert cases.digest(cases.parameters(plain)) == cases.digest(cases.parameters(alone))
        assert alone.state_dict().keys() >= plain.state_dict().keys()


def test_on_one_rank_a_network_without_initial_values_gets_them() -> None:
    later, whole = (
        schemes.FSDP(cases.pytorch.GradientDescent(cases.pytorch.from_model(net, "cpu"), "loss", lr=0.1), Serial())
        for net in (parts_cases.deep(True), parts_cases.deep(False))
    )
    assert cases.digest(cases.parameters(later)) == cases.digest(cases.parameters(whole))


def test_they_count_what_torch_sees(results: Results) -> None:
    for each in results[1]:
        for row in each["counted"]:
            assert row["said"] == row["seen"] > 0, row


@pytest.mark.parametrize("compression", [None, "fp16", "powersgd"])
def test_ddp_is_what_one_writes_by_hand(compression: str | None, results: Results) -> None:
    """PyTorch's hooks; what PowerSGD owes passes through a state."""
    for each in results[0]:
        row = each["by hand"][str(compression)]
        assert row["apart"] < 1e-12
        assert (row["from plain"] > 1e-6) == (compression is not None), "nothing was compressed"


@pytest.mark.parametrize("kind", ["DDP", "FSDP"])
def test_a_batch_in_pieces_is_the_whole(kind: str, results: Results) -> None:
    """DDP exchanges once, ``fully_shard`` in every piece."""
    for row in (each["options"][f"pieces {kind}"] for each in results[0]):
        assert row["apart"] < 1e-12 and row["moved"] > 1e-2, row
        assert row["payload"] == (row["gradients"] if kind == "DDP" else 2 * row["in one"]), row


@pytest.mark.parametrize("kind", ["DDP", "FSDP"])
def test_a_plan_runs_layers_again(kind: str, results: Results) -> None:
    for row in (each["options"][f"plan {kind}"] for each in results[0]):
        assert row["same"], "other bits with a plan"
        assert row["peaks"][1] < 0.9 * row["peaks"][0], row


@pytest.mark.parametrize("kind", ["DDP", "FSDP"])
def test_float16_overflows_on_all_ranks_together(kind: str, results: Results) -> None:
    for row in (each["options"][f"float16 {kind}"] for each in results[0]):
        assert row["apart"] < 5e-4 and row["scales"] == [True, True], row  # weights count before rounding to float16
        assert row["skipped"] > 0 and row["steps"] > 1, row


@pytest.mark.parametrize("kind", ["DDP", "FSDP"])
def test_an_average_judges_though_ranks_hold_parts(kind: str, results: Results) -> None:
    rows = [each["options"][f"averages {kind}"] for each in results[0]]
    assert all(row["judged"] < 1e-12 and row["apart"] < 1e-12 and row["moved"] > 1e-3 for row in rows), rows
    assert sum(row["share"] for row in rows) == (2 if kind == "DDP" else 1), rows


def test_ranks_draw_the_bits_of_the_whole(results: Results) -> None:
    for row in (row for each in results[0] for row in each["parts"]["drawn"]):
        assert row["same"] and row["serial"] and row["moved"], row


def test_no_rank_holds_more_than_its_share_and_the_largest_layer(results: Results) -> None:
    """Counted, from the making of a network to its resumption: shares of parameters, of momenta and of averages are all
    that stays, and besides a layer as it passes by (while it is drawn, in two precisions and two copies)."""
    unit, slack = parts_cases.UNIT, 2 * 2**20  # of 7.1 MB; Python's own objects count among arrays
    share = parts_cases.LAYERS * unit / 2
    for tensors, arrays in (each["parts"]["counted"]["peaks"]["made"] for each in results[0]):
        assert 0.9 * share < tensors < share + unit + slack and arrays < 4 * unit + slack
    stays = {"judged": (share, 0), "saved": (0, 0), "loaded": (0, 2 * share)}
    # of weights while their averages judge; of momenta and averages, which are made of arrays
    for what, (before, after) in stays.items():
        for tensors, arrays in (each["parts"]["counted"]["peaks"][what] for each in results[0]):
            assert tensors < before + 5 * unit + slack and arrays < after + 4 * unit + slack, (what, tensors, arrays)


@pytest.mark.long
def test_a_network_larger_than_the_limit_of_a_rank_is_trained_and_resumed(tmp_path: Path) -> None:
    """1.5 times what the kernel lets a rank allocate: made, trained, killed, resumed, judged and saved, by six ranks;
    with whole networks it cannot be made."""
    recipe, launcher = jobs.RECIPE.with_name("limited_recipe.py"), ["-m", "torch.distributed.run", "--standalone"]

    def run(ranks: int, *words: str, **variables: str) -> Any:
        environment = {**os.environ, "PYTHONPATH": str(jobs.ROOT), "OMP_NUM_THREADS": "1", "MALLOC_ARENA_MAX": "2"}
        command = [sys.executable, *launcher, "--nproc-per-node", str(ranks), str(recipe), *words]
        return subprocess.run(
            command, cwd=tmp_path, env={**environment, **variables}, text=True, capture_output=True, check=False
        )

    whole = run(2, SCHEME="DDP")
    assert whole.returncode != 0 and ("MemoryError" in whole.stderr or "memory" in whole.stderr), whole.stderr[-500:]
    killed = run(6, KILL_AT="3")
    assert killed.returncode != 0 and "rank 1" in killed.stderr, killed.stderr[-2000:]
    done = run(6, "--resume")
    assert done.returncode == 0, done.stderr[-3000:]
    needed = re.findall(r"needed (\d+) of (\d+) for (\d+)", done.stdout)
    assert len(needed) == 6
    assert all(int(most) < int(limit) <= int(size) / 1.5 for most, limit, size in needed), needed
    (path,) = (tmp_path / "results" / recipe.stem).glob("2*/checkpoints/seed-0/epoch-2.safetensors")
    assert path.stat().st_size > 1.5 * int(needed[0][1])


def test_what_is_judged_and_saved_in_parts_is_the_whole(results: Results) -> None:
    for row in (each["parts"]["counted"] for each in results[0]):
        assert row["same"] and row["after"] and row["judged"] == [True, True, 45], row
        assert row["losses"][0] == row["losses"][1]
    first, second = (each["parts"]["counted"]["mine"] for each in results[0])
    assert len(first) == 6 and second == [], "rank 0 writes weights, averages and momenta of all"


def test_a_network_without_initial_values_goes_nowhere_else(results: Results) -> None:
    begin = "InputError: got parameter 'fc1.weight', whose initial value is not drawn, for "
    for said in (each["parts"]["refused"] for each in results[0]):
        assert said["run"].startswith(f"{begin}a run; expected values: make the network outside of undrawn()")
        assert said["step"].startswith(f"{begin}training;") and said["DDP"].startswith(f"{begin}DDP, whose ranks hold")
        assert said["edited"].startswith("InputError: got NaN in 'fc2.bias' of a network whose initial values are")
        assert (
            said["seeds"].startswith("CommunicationError: got different networks: rank") and "seed 1" in said["seeds"]
        )


def test_layers_compute_what_the_network_does() -> None:
    rows = cases.cut_alike(list(range(30)))
    assert all(count >= 2 and same and alone for count, same, alone in rows)
    assert len({count for count, _, _ in rows}) > 2


WANTED = {
    "backend": "InputError: got DDP on backend 'reference', which has no engine for it; expected 'pytorch' or 'jax'",
    "mixed": "CommunicationError: got ranks that train by different schemes: DDP with pytorch on rank 0, FSDP with",
    "explicit": "InputError: got recompute='explicit' with FSDP, which listens to PyTorch's own differentiation",
    "compression": "InputError: got compression='fp15'; expected None, 'fp16' or 'powersgd': did you mean 'fp16'",
    "scalar": "InputError: got parameter 'factor' without dimensions for FSDP",
    "whole": "InputError: got deep500.training.optimizers.lamb.LAMBOptimizer for FSDP, whose ranks update some",
    "between": "InputError: got a run in evaluation mode between steps of FSDP",
    "module": "UnsupportedOperator: got FSDP for a module of your own",
    "edited": "InputError: got a network that was edited, or another loss, after FSDP had shared it out",
    "state": "InputError: got a state that differs in",
}


def test_refusals_are_one_line_with_the_cure(results: Results) -> None:
    for said in (each["refused"] for each in results[0]):
        for what, begin in WANTED.items():
            assert said[what].startswith(begin), (what, said[what])
            assert "\n" not in said[what]


def test_sharded_checkpoints_are_read_by_any_number_of_ranks(results: Results, folder: Path) -> None:
    """And by PyTorch alone; what is lost or cut is named."""
    written = results[0][0]["saved"]
    assert all(row["same"] for each in results[0] for row in each["saved"])
    for seed, row in zip(RANDOM, written, strict=True):
        arrays, numbers = sharded_checkpoint.read(folder / str(seed))
        network = {name: array for name, array in arrays.items() if not name.startswith("optimizer/")}
        assert cases.digest(network) == row["network"] and numbers["step"] == 3
        tensors = {name: torch.empty(array.shape, dtype=torch.float64) for name, array in network.items()}
        dcp.load(tensors, storage_reader=dcp.HuggingFaceStorageReader(str(folder / str(seed))), no_dist=True)
        assert cases.digest({name: tensor.numpy() for name, tensor in tensors.items()}) == row["network"]
    for each in results[1]:
        *whole, cut, lost, none = each["loaded"]
        assert whole == [["nothing", row["network"], row["state"]] for row in written]
        assert "the shard of rank 1 of 2" in cut[0] and "it was cut" in cut[0]
        assert "got no file, the shard of rank 0 of 2" in lost[0]
        assert "got no checkpoint.json, which is written last" in none[0]


def test_threads_are_no_ranks_for_an_engine() -> None:
    with pytest.raises(Deep500Error, match=r"got ranks that are threads of one process.*--ranks"):
        Threads(2).run(lambda comm: schemes.DDP(cases.base(1, 0, True), comm))


@pytest.mark.long
@pytest.mark.mpi
@pytest.mark.skipif(missing() is not None, reason=str(missing()))
@pytest.mark.parametrize("scheme", [*sorted(cases.DEFINITIONS), "NativePipeline"])
def test_a_recipe_whose_rank_was_killed_goes_on(scheme: str, tmp_path: Path) -> None:
    """As a user starts it, over MPI: the rank is named, and the resumed run ends with the bits of one never stopped."""
    words = ("--ranks", "2", "--backend", "pytorch")
    folders = [tmp_path / name for name in ("whole", "killed", "alone")]
    for folder in folders:
        folder.mkdir()
    assert jobs.run(folders[0], *words, SCHEME=scheme).code == 0
    killed = jobs.run(folders[1], *words, SCHEME=scheme, FAIL_RANK="1", FAIL_STEP="25", FAIL_HOW="kill")
    assert killed.code != 0 and "rank 1 ended before the others" in killed.errors.replace("[rank 1]", "rank 1")
    done = jobs.run(folders[1], "--resume", SCHEME=scheme)
    assert done.code == 0, done.errors
    (arrays, lines), (expected, others) = jobs.outcome(folders[1]), jobs.outcome(folders[0])
    assert lines == others and all(np.array_equal(arrays[name], expected[name]) for name in expected)
    assert jobs.run(folders[2], "--backend", "pytorch").code == 0
    alone, _ = jobs.outcome(folders[2])
    for name in (name for name in alone if name.startswith("network/")):
        assert np.abs(arrays[name] - alone[name]).max() < 1e-12


@pytest.mark.long
@pytest.mark.mpi
@pytest.mark.skipif(missing() is not None, reason=str(missing()))
@pytest.mark.parametrize("scheme", [*sorted(cases.DEFINITIONS), "NativePipeline"])
def test_a_rank_that_hangs_is_named(scheme: str, tmp_path: Path) -> None:
    words, variables = ("--ranks", "2", "--backend", "pytorch"), {"FAIL_RANK": "1", "FAIL_STEP": "12"}
    job = jobs.run(tmp_path, *words, SCHEME=scheme, FAIL_HOW="hang", DEEP500_COMM_TIMEOUT="4", **variables)
    assert job.code != 0 and jobs.summary(tmp_path) is None
    assert "rank 1 has not entered" in job.errors, job.errors
