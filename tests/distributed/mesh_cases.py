"""Cases on ranks for meshes: a table of compositions, with networks made by chance, and what each must be equal to."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from deep500.distributed import Communicator, SchemeMesh, schemes
from deep500.registry import load_backend
from deep500.training import optimizers
from deep500.training.clipping import ClipGradientNorm
from deep500.transformations.parallel.costs import StepCosts
from tests.distributed.native_cases import OPTIMIZERS, batches, network
from tests.distributed.scheme_table import digest, flat, parameters

STEPS = 5
CHEAP = StepCosts(latency=1e-9, start=1e-9)
"""Messages that cost next to nothing: plans divide what they can."""


@dataclass(frozen=True)
class Composition:
    """A row of the table, on four ranks.

    Attributes:
        axes, schemes: of the mesh.
        seeds: of networks (a multiple of 3: dense; one more: with one weight in two layers; two more: convolutions with
            batch normalization), optimizers and clipping.
        like: on one axis of four ranks, the same mathematics; None: serial training.
        linear: whether it is so only for rules that are linear in the gradient and remember nothing.
    """

    axes: Mapping[str, int]
    schemes: Any = None
    seeds: tuple[int, ...] = (0, 1, 3)
    like: Callable[..., Any] | None = None
    linear: bool = False


COMPOSITIONS = {
    "data x pipeline": Composition({"data": 2, "pipeline": 2}, seeds=(0, 3, 9)),
    "data x shard": Composition({"data": 2, "shard": 2}),
    "data x shard, normalised": Composition({"data": 2, "shard": 2}, None, (2, 5), schemes.ConsistentDecentralized),
    "data x model": Composition({"data": 2, "model": 2}, partial(schemes.DividedNetwork, costs=CHEAP), (0, 1)),
    "data x data": Composition({"nodes": 2, "data": 2}, {"nodes": schemes.ConsistentDecentralized}),
    "means of parameters": Composition(
        {"nodes": 2, "data": 2}, {"nodes": schemes.ModelAverage}, (0, 1, 2), schemes.ModelAverage, linear=True
    ),
    "averages x data": Composition(
        {"average": 2, "data": 2}, {"average": partial(schemes.LocalSGD, every=1)}, (0, 1), linear=True
    ),
    "one rank on an axis": Composition({"average": 1, "data": 4, "shard": 1}, like=schemes.ConsistentDecentralized),
}


def base(seed: int, start: int, linear: bool, backend: str) -> Any:
    """An optimizer of a network made by chance; ``start`` decides its weights."""
    name, options = ("GradientDescent", {"lr": 0.1}) if linear else list(OPTIMIZERS.items())[seed % len(OPTIMIZERS)]
    clip = ClipGradientNorm(0.3) if seed % 3 == 0 and not linear else None
    executor = load_backend(backend).from_model(network(seed, start), "cpu")
    return getattr(optimizers, name)(executor, "loss", gradient_transform=clip, **options)


def sizes(seed: int, count: int) -> list[int]:
    """Samples of those that compute; on every third network none on the last."""
    drawn = [int(size) for size in np.random.default_rng(70 + seed).integers(1, 4, count)]
    return [*drawn[:-1], 0] if seed % 3 == 0 else drawn


def trained(
    comm: Communicator,
    make: Any,
    ranks: list[int],
    seed: int,
    linear: bool = False,
    backend: str = "reference",
    stop: int = STEPS,
) -> tuple[Any, dict[str, np.ndarray]]:
    """A scheme after some steps, and its parameters within a validation; another one goes on after ``stop`` steps."""
    scheme = make(base(seed, comm.rank, linear, backend), comm)
    place = ranks.index(comm.rank) if comm.rank in ranks else None
    shares = sizes(seed, len(ranks)) if len(ranks) < 4 else sizes(seed, 4)
    none = [*shares, 0]  # a further place, without samples
    for number, batch in enumerate(batches(seed, none, len(shares) if place is None else place, STEPS)):
        if number == stop:
            weights, state = parameters(scheme), {n: a.copy() for n, a in scheme.state_dict().items()}
            scheme = make(base(seed, 7, linear, backend), comm)
            scheme.network.load_state(weights)
            scheme.load_state_dict(state)
        scheme.step(batch)
    with scheme.evaluation():
        arrays = scheme.arrays(scheme.network.fetch_tensors(names := list(scheme.network.parameters)))
        return scheme, {name: np.array(array) for name, array in zip(names, arrays, strict=True)}


def compared(comm: Communicator, name: str, seeds: list[int] | None = None, backend: str = "reference") -> list[Any]:
    """For each network: how far a composition is from what it is equal to, and what else must hold."""
    row, results = COMPOSITIONS[name], []
    mesh = SchemeMesh(row.axes, row.schemes)
    ranks = mesh.computing_ranks(comm.size)
    for seed in seeds or row.seeds:
        scheme, got = trained(comm, mesh, ranks, seed, row.linear, backend)
        _, again = trained(comm, mesh, ranks, seed, row.linear, backend, stop=3)
        if row.like is None:
            alone = base(seed, 0, row.linear, backend)
            for batch in batches(seed, [*sizes(seed, len(ranks)), 0], None, STEPS):
                alone.step(batch)
            want = parameters(alone)
        else:
            _, want = trained(comm, row.like, list(range(comm.size)), seed, row.linear, backend)
        begin = {name: np.array(p.value) for name, p in network(seed, 0).parameters.items()}
        results.append(
            {
                "case": f"{name}, network {seed}, {scheme.title}",
                "apart": float(np.abs(flat(got) - flat(want)).max()),
                "moved": float(np.abs(flat(got) - flat(begin)).max()),
                "digest": digest(got),
                "resumed": digest(again),
                "steps": scheme.steps,
            }
        )
    return results


def divided(comm: Communicator) -> dict[str, Any]:
    """Every call within parts of the ranks: of a row of a grid of two columns, and of a column."""
    found: dict[str, Any] = {}
    for name, color in (("row", comm.rank // 2), ("column", comm.rank % 2)):
        part = comm.split(name, color)
        before = comm.traffic.payload_bytes
        array, after = np.array([10.0 * comm.rank, 1]), (part.rank + 1) % part.size
        pending = part.start_all_reduce(later := array.copy())
        pending.wait()
        incoming, message = np.zeros(2), np.zeros(2)
        part.exchange({after: array}, {after: incoming})
        if part.rank == 0:
            part.send(array, 1, 3)
        else:
            assert part.receive(message, 0, 3) == 0
        reduced = part.reduce(array.copy(), 1)
        found[name] = {
            "members": list(part.members),
            "sum": part.all_reduce(array.copy()).tolist(),
            "later": later.tolist(),
            "reduced": reduced.tolist(),
            "first": part.broadcast(array.copy(), 1).tolist(),
            "all": part.all_gather(array).tolist(),
            "scattered": part.reduce_scatter(array.copy()).tolist(),
            "exchanged": incoming.tolist(),
            "message": message.tolist(),
            "facts": part.gather_facts(comm.rank),
            "counted": part.traffic.payload_bytes == comm.traffic.payload_bytes - before,
            "same": comm.split(name, color) is part,
        }
        part.barrier()
    return found


def real(comm: Communicator, seeds: list[int]) -> dict[str, Any]:
    """The rows that real ranks are asked for; networks of these seeds for PyTorch's own engine."""
    names = ("data x pipeline", "data x shard")
    rows = [row for name in names for row in compared(comm, name, [0])]
    return {"divided": divided(comm), "compared": rows, "native": native(comm, seeds) if seeds else []}


def native(comm: Communicator, seeds: list[int]) -> list[dict[str, Any]]:
    """``fully_shard`` on a mesh of two dimensions, of PyTorch's, beside serial training."""
    ranks, rows = list(range(comm.size)), []
    mesh = SchemeMesh({"data": comm.size // 2, "shard": 2}, schemes.FSDP)
    for seed in seeds:
        scheme, got = trained(comm, mesh, ranks, seed, backend="pytorch")
        _, again = trained(comm, mesh, ranks, seed, backend="pytorch", stop=3)
        _, want = trained(comm, schemes.ConsistentDecentralized, ranks, seed, backend="pytorch")
        rows.append(
            {
                "case": f"network {seed}",
                "apart": float(np.abs(flat(got) - flat(want)).max()),
                "moved": float(np.abs(flat(got) - flat(parameters(base(seed, 0, False, "pytorch")))).max()),
                "digest": digest(got),
                "resumed": digest(again),
                "steps": scheme.steps,
                "dimensions": [part.sharded.device_mesh.ndim for part in scheme.engine.parts.values()],
                "sharing": list(scheme.sharing.members),
                "sent": scheme.engine.sent,
            }
        )
    return rows
