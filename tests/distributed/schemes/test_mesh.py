"""Meshes: schemes composed by axis are serial training, on threads, MPI and torch; bad meshes are refused in a line."""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from deep500.distributed import SchemeMesh, Serial, Threads, schemes
from deep500.distributed.transports.failstop import lateness, place_of
from deep500.errors import CommunicationError, InputError
from tests.conftest import load_backend
from tests.distributed import forked, jobs, page_cases
from tests.distributed import mesh_cases as cases
from tests.distributed.ranks import missing, name_of
from tests.distributed.scheme_table import flat, make_base
from tests.distributed.test_page import close_to, start


def check(ranks: list[list[dict[str, Any]]]) -> None:
    for rows in zip(*ranks, strict=True):
        assert rows[0]["apart"] < 1e-12, rows[0]
        assert rows[0]["moved"] > 1e-2 and rows[0]["steps"] == cases.STEPS, rows[0]
        assert {row["digest"] for row in rows} == {rows[0]["digest"]}, f"ranks differ: {rows[0]}"
        assert {row["resumed"] for row in rows} == {rows[0]["digest"]}, f"other bits after a resumption: {rows[0]}"


def check_parts(results: list[dict[str, Any]]) -> None:
    """Parts of four ranks, two by two, by their definition."""
    for rank, found in enumerate(results):
        for name, members in (("row", [rank // 2 * 2, rank // 2 * 2 + 1]), ("column", [rank % 2, rank % 2 + 2])):
            arrays = [np.array([10.0 * member, 1]) for member in members]
            other, place = 1 - members.index(rank), members.index(rank)
            total = sum(arrays).tolist()
            assert found[name] == {
                "members": members,
                "sum": total,
                "later": total,
                "reduced": total if place == 1 else arrays[0].tolist(),
                "first": arrays[1].tolist(),
                "all": [array.tolist() for array in arrays],
                "scattered": [total[place]],
                "exchanged": arrays[other].tolist(),
                "message": arrays[0].tolist() if place else [0.0, 0.0],
                "facts": members,
                "counted": True,
                "same": True,
            }


@pytest.mark.parametrize("name", list(cases.COMPOSITIONS))
def test_a_composition_is_what_it_should_be(name: str) -> None:
    check(Threads(4, seed=1).run(cases.compared, name))


def test_parts_of_ranks_communicate_among_themselves() -> None:
    check_parts(Threads(4, seed=2).run(cases.divided))


@pytest.mark.mpi
@pytest.mark.slow
def test_over_mpi(on_ranks: Callable[..., list[Any]]) -> None:
    results = on_ranks(cases.real, 4, seeds=[])
    check_parts([each["divided"] for each in results])
    check([each["compared"] for each in results])


@pytest.mark.backend("pytorch")
@pytest.mark.slow
def test_over_torch(tmp_path: Path) -> None:
    """``fully_shard`` has a mesh of two dimensions, of PyTorch's own."""
    load_backend("pytorch")
    file = tmp_path / "results.json"
    code, output = forked.launch(name_of(cases.real), file, {"seeds": [0, 1, 2]}, (4,))
    assert code == 0, output
    (results,) = json.loads(file.read_text(encoding="utf-8"))
    check_parts([each["divided"] for each in results])
    check([each["compared"] for each in results])
    check([each["native"] for each in results])
    for rank, row in ((rank, row) for rank, each in enumerate(results) for row in each["native"]):
        assert set(row["dimensions"]) == {2} and row["sharing"] == [rank // 2 * 2, rank // 2 * 2 + 1]
        assert 2 * row["sent"]["all_reduce"] == row["sent"]["reduce_scatter"] > 0


@pytest.mark.long
@pytest.mark.mpi
@pytest.mark.skipif(missing() is not None, reason=str(missing()))
@pytest.mark.parametrize("mesh", ['{"data": 2, "pipeline": 2}', '{"data": 2, "shard": 2}'])
def test_a_recipe_whose_rank_was_killed_goes_on(mesh: str, tmp_path: Path) -> None:
    """As a user starts it: the rank is named by its number of all, and the end is that of a run never stopped."""
    folders = [tmp_path / name for name in ("whole", "killed", "alone")]
    for folder in folders:
        folder.mkdir()
    assert jobs.run(folders[0], "--ranks", "4", MESH=mesh).code == 0
    killed = jobs.run(folders[1], "--ranks", "4", MESH=mesh, FAIL_RANK="3", FAIL_STEP="25", FAIL_HOW="kill")
    assert killed.code != 0 and "[rank 3] ended before the others without a word" in killed.errors, killed.errors
    done = jobs.run(folders[1], "--resume", MESH=mesh)
    assert done.code == 0, done.errors
    (arrays, lines), (expected, others) = jobs.outcome(folders[1]), jobs.outcome(folders[0])
    assert lines == others and all(np.array_equal(arrays[name], expected[name]) for name in expected)
    assert jobs.run(folders[2]).code == 0
    alone, _ = jobs.outcome(folders[2])
    for name in (name for name in alone if name.startswith("network/")):
        assert np.abs(arrays[name] - alone[name]).max() < 1e-12
    hanging = jobs.run(
        folders[2], "--ranks", "4", MESH=mesh, FAIL_RANK="3", FAIL_STEP="12", FAIL_HOW="hang", DEEP500_COMM_TIMEOUT="4"
    )
    assert hanging.code != 0 and "rank 3 has not entered" in hanging.errors, hanging.errors


@pytest.mark.parametrize("every", [2, 3])
def test_averages_within_and_around_nodes_are_the_simulation(every: int) -> None:
    """Parameters of two ranks after each step, of all four after some, by NumPy in one process."""

    def work(comm: Any) -> Any:
        executor = load_backend("reference").from_model(page_cases.network(), "cpu")
        mesh = SchemeMesh({"average": 2, "data": 2}, {"average": partial(schemes.LocalSGD, every=every)})
        scheme, seen = mesh(page_cases.GradientDescent(executor, lr=page_cases.LR), comm), []
        for step in range(page_cases.STEPS):
            samples, classes = page_cases.batch(comm.rank, step)
            scheme.step({"input": samples, "label": classes})
            seen.append([array.tolist() for array in scheme.arrays(scheme.parameters())])
        return {"names": scheme.parameter_names(), "seen": seen}

    results = Threads(4).run(work)
    close_to(results, page_cases.hierarchical(start(), 4, 2, every))
    assert results[0]["seen"][0] != results[2]["seen"][0], "nodes never parted"


def test_traffic_is_counted_by_axis() -> None:
    """A part of the gradients around, of what one rank would send alone: 2 n/P."""

    def work(comm: Any) -> Any:
        scheme = SchemeMesh({"data": 2, "shard": 2})(make_base("reference", comm.rank), comm)
        scheme.step({"input": np.ones((2, 12)), "label": np.zeros(2, np.int64)})
        facts = scheme.communication_facts()
        axes = {axis: sum(kind["payload_bytes"] for kind in kinds.values()) for axis, kinds in facts["axes"].items()}
        return axes, comm.traffic.payload_bytes, facts["scheme"], facts["ranks"], scheme.rank

    broadcasts = 8 * 422 * 2  # from rank 0 to all, and within a part
    for rank, (axes, whole, scheme, ranks, number) in enumerate(Threads(4).run(work)):
        assert axes["data"] == 8 * 211 and axes["shard"] > axes["data"]
        assert whole == sum(axes.values()) + broadcasts // 2
        assert (scheme, ranks, number) == ("data: ConsistentDecentralized, shard: ShardedParameters", 4, rank)


@pytest.mark.parametrize("samples", [[3, 1, 2, 1], [1, 0, 0, 0]])
def test_a_network_is_divided_the_same_on_both_sides(samples: list[int]) -> None:
    """Other numbers of samples on each; also none at all on one side. Plans are one, parameters too, and serial's."""
    batch = {"input": np.random.default_rng(3).normal(size=(sum(samples), 12)), "label": np.arange(sum(samples)) % 3}

    def work(comm: Any) -> Any:
        end = sum(samples[: comm.rank + 1])
        scheme = SchemeMesh({"data": 2, "model": 2}, partial(schemes.DividedNetwork, costs=cases.CHEAP))(
            make_base("reference", comm.rank), comm
        )
        before = flat(scheme.network.state())
        for _ in range(2):
            scheme.step({name: array[end - samples[comm.rank] : end] for name, array in batch.items()})
        return scheme.inside, before, flat(scheme.network.state())

    results = Threads(4).run(work)
    base = make_base("reference", 0)
    for _ in range(2):
        base.step(batch)
    for scheme, before, after in results:
        assert scheme.shardings == results[0][0].shardings and "S" in {s.kind for s in scheme.shardings.values()}
        assert np.abs(after - flat(base.network.state())).max() < 1e-12
        assert np.abs(after - before).max() > 1e-3


@pytest.mark.parametrize(
    ("axes", "makers", "said"),
    [
        ({"data": 3, "shard": 2}, None, "got a mesh of 3 data x 2 shard on 4 ranks; expected sizes whose product is 4"),
        (
            {"data": 2, "pipelin": 2},
            None,
            "got axis 'pipelin'; expected one of average, data, model, shard, pipeline, or a",
        ),
        ({"data": 4}, {"shard": schemes.Pipeline}, "got axis 'shard'; expected one of data: "),
        ({}, None, "got a mesh without axes"),
        ({"data": 0}, None, "got mesh['data'] 0; expected"),
        ({"pipeline": 2, "data": 2}, None, "got Pipeline on axis 'pipeline', outside of axis 'data'; expected one of"),
        ({"data": 2, "shard": 2}, schemes.TopK, "got TopK on axis 'shard', inside of axis 'data'; expected one of"),
        ({"average": 2, "shard": 2}, None, "got LocalSGD on axis 'average', outside of axis 'shard', whose ranks hold"),
        ({"average": 2, "shard": 2}, schemes.FSDP, "got LocalSGD on axis 'average', around FSDP, which averages"),
    ],
)
def test_bad_meshes_are_refused_with_the_cure(axes: dict[str, int], makers: Any, said: str) -> None:
    with pytest.raises(InputError) as caught:
        Threads(4).run(lambda comm: SchemeMesh(axes, makers)(make_base("reference", comm.rank), comm))
    message = str(caught.value)
    assert message.startswith(said) and "; expected" in message and "\n" not in message, message


def test_parts_need_a_name_and_ranks_that_are_real() -> None:
    with pytest.raises(InputError, match="got 'a b' for parts of ranks"):
        Serial().split("a b", 0)
    assert Serial().split("data", 0).all_reduce(np.ones(1)).tolist() == [1.0]


def test_ranks_of_a_part_that_wait_are_named_by_their_number_of_all() -> None:
    """Rank 3 leaves the column of 1 and 3; the row of 0 and 1 would have gone on."""

    def work(comm: Any) -> None:
        column, row = comm.split("column", comm.rank % 2), comm.split("row", comm.rank // 2)
        row.barrier()
        if comm.rank != 3:
            column.barrier()

    with pytest.raises(CommunicationError, match=r"rank 1 in barrier of column \(ended: 0, 2, 3\)"):
        Threads(4).run(work)


def test_who_is_late_is_looked_for_in_the_part_that_waits() -> None:
    """By what ranks have noted of themselves: 3 is a call behind in the column, 0 and 2 are none of its ranks."""

    def work(comm: Any) -> Any:
        part = comm.split("column", comm.rank % 2)
        for _ in range(1 if comm.rank == 3 else 2):
            part.entered += 1
        comm.busy, comm.inside = ("all_reduce", 0.0), part
        return comm, place_of(comm, together=True)

    results = Threads(4).run(work)
    comm = results[1][0]
    comm.places = lambda: {rank: place for rank, (_, place) in enumerate(results)}
    said = lateness(comm)
    assert said.startswith("rank 3 has not entered all_reduce 2 of column") and "rank 0" not in said, said
