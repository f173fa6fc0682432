"""Collectives on pieces that may differ by one, as functions and as nodes of networks, against the whole in NumPy."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import deep500 as d5
from deep500.distributed import Serial, Threads
from deep500.distributed.collectives import COLLECTIVES, communicating_by, run_collective
from deep500.errors import CommunicationError, InputError, NetworkError, UnsupportedOperator
from deep500.networks import Network
from deep500.transformations.parallel.shardings import (
    PARTIAL,
    R,
    Sharding,
    collective_attributes,
    conversion,
    local_shape,
    piece,
    pieces,
    split,
)


def part_of(whole: np.ndarray, sharding: Sharding, ranks: int, rank: int) -> np.ndarray:
    """A rank's part of a tensor; terms of a sum differ between ranks, in sign too."""
    if sharding == R:
        return whole.copy()
    if sharding == PARTIAL:
        rng = np.random.default_rng(whole.size)
        terms = rng.integers(-9, 9, (ranks, *whole.shape)) + whole.dtype.type(0.5)
        terms[-1] = whole - terms[:-1].sum(0)
        return terms[rank]
    if sharding.kind == "P":  # the last rank has the largest (smallest) term
        return whole - (3 * (ranks - 1 - rank)) * (1 if sharding.reduction == "max" else -1)
    index = [slice(None)] * whole.ndim
    index[sharding.axis] = piece(whole.shape[sharding.axis], ranks, rank)
    return np.ascontiguousarray(whole[tuple(index)])


@st.composite
def changes(draw: st.DrawFn) -> tuple[int, tuple[int, ...], Sharding, Sharding]:
    """A number of ranks, a shape that they can share out, and two shardings with a collective between them."""
    ranks = draw(st.integers(1, 4))
    shape = tuple(draw(st.lists(st.integers(ranks, ranks + 3), min_size=1, max_size=3)))
    places = [R, PARTIAL, Sharding("P", 0, "max"), Sharding("P", 0, "min"), *map(split, range(len(shape)))]
    before = draw(st.sampled_from(places))
    after = draw(st.sampled_from([s for s in places if conversion(before, s, shape, 8, ranks) is not None]))
    return ranks, shape, before, after


@settings(max_examples=60, deadline=None)
@given(changes())
def test_every_conversion_gives_the_parts_of_the_whole(change: tuple[int, tuple[int, ...], Sharding, Sharding]) -> None:
    ranks, shape, before, after = change
    whole = np.arange(np.prod(shape), dtype=float).reshape(shape) - 7
    planned = conversion(before, after, shape, 8, ranks)
    assert planned is not None

    def run(comm: d5.Communicator) -> tuple[np.ndarray, int]:
        mine = part_of(whole, before, ranks, comm.rank)
        if planned.collective not in COLLECTIVES:
            return part_of(whole, after, ranks, comm.rank), 0
        attributes = collective_attributes(before, after, shape, ranks, comm.rank)
        return run_collective(planned.collective, mine, attributes, comm), comm.traffic.payload_bytes

    for rank, (got, sent) in enumerate(Threads(ranks).run(run)):
        expected = part_of(whole, after, ranks, rank)
        assert got.shape == local_shape(shape, after, ranks, rank)
        if after != PARTIAL:
            np.testing.assert_array_equal(got, expected)
        if planned.collective != "AllToAll":
            assert sent == planned.nbytes
        elif all(n % ranks == 0 for n in shape):
            assert sent == planned.nbytes


def network_of(op_type: str, shape: tuple[int, ...], **attributes: Any) -> Network:
    network = Network("meeting")
    network.add_parameter("w", np.zeros(shape))
    network.add_input("x", shape, "float64")
    network.add_node("Mul", ["x", "w"], ["part"])
    network.add_node(op_type, ["part"], ["whole"], domain="deep500", **attributes)
    network.add_node("Tanh", ["whole"], ["y"])
    network.add_node("ReduceSum", ["y"], ["loss"], keepdims=0)
    network.add_output("whole")
    network.add_output("loss")
    return network


def serial_gradient(total: np.ndarray) -> np.ndarray:
    return 1 - np.tanh(total) ** 2


@pytest.mark.parametrize(
    "backend", [pytest.param(b, marks=pytest.mark.backend(b)) for b in ("reference", "onnxruntime", "pytorch")]
)
def test_nodes_communicate_and_differentiate_by_the_dual_type(backend: str) -> None:
    """The sum over ranks of tanh's argument: every term has the gradient of the whole (f and g of Megatron)."""
    ranks, shape = 3, (4, 5)
    terms = np.random.default_rng(0).normal(size=(ranks, *shape))
    from_model = d5.load_backend(backend).from_model

    def run(comm: d5.Communicator) -> tuple[np.ndarray, np.ndarray]:
        network = network_of("AllReduce", shape)
        assert network.descriptors()["whole"].shape == shape
        with communicating_by(comm):
            executor = from_model(network)
            executor.network.feed_tensor("w", np.full(shape, 2.0))
            outputs = executor.inference_and_backprop({"x": terms[comm.rank]})
            (gradient,) = executor.network.fetch_tensors(["w.grad"])
            return np.asarray(outputs["whole"]), np.asarray(gradient)

    total = 2 * terms.sum(0)
    for rank, (whole, gradient) in enumerate(Threads(ranks).run(run)):
        np.testing.assert_allclose(whole, total, rtol=1e-13)
        np.testing.assert_allclose(gradient, serial_gradient(total) * terms[rank], rtol=1e-12, atol=1e-14)


CASES = {
    "AllGather": (split(1), R),
    "ReduceScatter": (PARTIAL, split(1)),
    "AllToAll": (split(1), split(0)),
    "Broadcast": (R, R),
}


@pytest.mark.backend("reference")
@pytest.mark.parametrize("op_type", CASES)
@pytest.mark.parametrize("ranks", [1, 2, 3])
def test_the_gradient_of_every_collective_is_the_rank_s_part_of_the_serial_gradient(op_type: str, ranks: int) -> None:
    before, after = CASES[op_type]
    shape = (4, 5)
    whole = np.random.default_rng(1).normal(size=shape)
    from_model = d5.load_backend("reference").from_model

    def run(comm: d5.Communicator) -> np.ndarray:
        x = part_of(whole, before, ranks, comm.rank)
        attributes: dict[str, Any] = {"root": ranks - 1}
        if op_type != "Broadcast":
            attributes = dict(collective_attributes(before, after, shape, ranks, comm.rank))
        network = network_of(op_type, x.shape, **attributes)
        w = part_of(np.full(shape, 1.5), R if before == PARTIAL else before, ranks, comm.rank)
        network.set_parameter("w", w)
        with communicating_by(comm):
            executor = from_model(network)
            executor.inference_and_backprop({"x": x})
            (gradient,) = executor.network.fetch_tensors(["w.grad"])
        assert x.all()
        return np.asarray(gradient) / x

    def one_loss(total: np.ndarray) -> np.ndarray:
        return serial_gradient(1.5 * total)

    for rank, slope in enumerate(Threads(ranks).run(run)):
        expected = one_loss(whole)
        if op_type == "Broadcast":
            expected = expected * (rank == ranks - 1)
        elif before != PARTIAL:
            expected = part_of(expected, before, ranks, rank)
        np.testing.assert_allclose(slope, expected, rtol=1e-10, atol=1e-12)


def test_nodes_pass_through_files(tmp_path: Any) -> None:
    network = network_of("ReduceScatter", (4, 5), axis=0, sizes=[2, 2], rank=1)
    network.to_onnx(tmp_path / "rank.onnx")
    again = Network.from_onnx(tmp_path / "rank.onnx", trainable="w")
    assert again == network
    assert again.descriptors()["whole"].shape == (2, 5)


def test_what_does_not_fit_the_ranks_is_refused() -> None:
    x = np.ones((4, 5))
    with pytest.raises(CommunicationError, match="got sizes=\\(2, 2\\) on 1 ranks; expected one size a rank"):
        run_collective("AllGather", x, {"axis": 0, "sizes": (2, 2)}, Serial())
    with pytest.raises(CommunicationError, match="got the network of rank 1 on rank 0"):
        run_collective("ReduceScatter", x, {"axis": 0, "sizes": (4,), "rank": 1}, Serial())
    with pytest.raises(InputError, match="got group 'columns'"):
        run_collective("AllReduce", x, {"group": "columns"}, Serial())
    with pytest.raises(InputError, match="got reduction 'mean'; expected sum, max or min"):
        run_collective("AllReduce", x, {"reduction": "mean"}, Serial())
    with pytest.raises(NetworkError, match="got 3 elements along the axis that sizes describe; expected 4"):
        network_of("ReduceScatter", (3, 5), axis=0, sizes=[2, 2], rank=1).descriptors()
    network = network_of("AllReduce", (2,), reduction="max")
    executor = d5.load_backend("reference").from_model(network)
    with pytest.raises(UnsupportedOperator, match="differentiate the serial network"):
        executor.inference_and_backprop({"x": np.ones(2)})


def test_pieces_differ_by_one_and_cover_the_axis() -> None:
    for ranks in range(1, 6):
        for size in range(ranks, 13):
            sizes = pieces(size, ranks)
            assert sum(sizes) == size
            assert max(sizes) - min(sizes) <= 1
            covered = [i for rank in range(ranks) for i in range(size)[piece(size, ranks, rank)]]
            assert covered == list(range(size))
