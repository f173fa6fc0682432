"""Cases on real ranks for what a step may have besides: batches in pieces, a plan of recomputation, float16, means."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from deep500.distributed import Communicator, schemes
from deep500.frameworks import pytorch
from deep500.frameworks.pytorch.memory import footprint, settle
from deep500.networks.dtype import to_dtype
from deep500.networks.network import Network
from deep500.training.averaging import WeightAverage
from deep500.training.loss_scaling import LossScaling
from deep500.transformations.mixed_precision import mixed_precision
from tests.distributed import native_cases, native_parts_cases
from tests.distributed.native_cases import batches, network, plan_of
from tests.distributed.scheme_table import digest, flat, parameters

DENSE, NORMALISED = 3, 2
"""Networks of ``native_cases``: dense layers with a skip; convolutions with batch normalization."""


def optimizer(net: Network, **options: Any) -> Any:
    """Momentum of PyTorch's own."""
    return pytorch.MomentumOptimizer(pytorch.from_model(net, "cpu"), "loss", lr=0.05, momentum=0.9, **options)


def feeds(seed: int, comm: Communicator, sizes: list[int], steps: int = 6) -> list[dict[str, np.ndarray]]:
    """This rank's shares; in the last step rank 0 has all samples but one of each other."""
    last = [sum(sizes) - comm.size + 1] + [1] * (comm.size - 1)
    return [*batches(seed, sizes, comm.rank, steps - 1), *batches(seed, last, comm.rank, 1)]


def stepped(scheme: Any, given: list[dict[str, np.ndarray]], average: Any = None) -> int:
    """Steps, after each of which an average takes the weights in; the payload of the last."""
    for feed in given:
        scheme.comm.traffic.reset()
        scheme.step(feed)
        if average is not None:
            average.update(scheme.judged_tensors)
    return int(scheme.comm.traffic.payload_bytes)


def far(a: dict[str, np.ndarray], b: dict[str, np.ndarray]) -> float:
    return float(np.abs(flat(a) - flat(b)).max())


def in_pieces(comm: Communicator, kind: str) -> dict[str, Any]:
    """``accumulate``, also where a rank has fewer samples than pieces."""
    given, found, payload = feeds(DENSE, comm, [3, 2, 4][: comm.size]), {}, {}
    for name in (kind, "ConsistentDecentralized"):
        scheme = getattr(schemes, name)(optimizer(network(DENSE, comm.rank), accumulate=2), comm)
        payload[name] = stepped(scheme, given[:-1]), stepped(scheme, given[-1:])
        found[name] = scheme.network.state()
    whole = getattr(schemes, kind)(optimizer(network(DENSE, comm.rank)), comm)
    return {
        "apart": far(found[kind], found["ConsistentDecentralized"]),
        "moved": far(found[kind], {name: p.value for name, p in network(DENSE).parameters.items()}),
        "payload": payload[kind][0],
        "gradients": payload["ConsistentDecentralized"][0],
        "in one": stepped(whole, given[:1]),
    }


def again(comm: Communicator, kind: str) -> dict[str, Any]:
    """A plan by which everything runs again: the same bits, and fewer bytes."""
    found, peaks = [], []
    for planned in (False, True):
        scheme = getattr(schemes, kind)(optimizer(network(NORMALISED, comm.rank)), comm)
        if planned:
            scheme.executor.set_checkpointing(plan_of(network(NORMALISED), 48))
        given = batches(NORMALISED, [48] * comm.size, comm.rank, 4)
        stepped(scheme, given[:3])
        settle()
        comm.barrier()
        peaks.append(footprint(lambda: scheme.step(given[3])).peak)  # noqa: B023 - runs here
        with scheme.evaluation():
            pass
        found.append(digest(parameters(scheme)))
    scheme.executor.set_checkpointing(None)
    stepped(scheme, given[:1])
    return {"same": found[0] == found[1], "peaks": peaks}


def in_float16(comm: Communicator, kind: str) -> dict[str, Any]:
    """Computed in float16, with a scale that overflows at first; also in pieces."""
    net, found = mixed_precision(to_dtype(network(DENSE), "float32", "float64"), "f16"), {}
    given = [
        {n: a.astype("float32") if a.dtype.kind == "f" else a for n, a in f.items()}
        for f in feeds(DENSE, comm, [3, 2, 4][: comm.size])
    ]
    for name in (kind, "ConsistentDecentralized"):
        for pieces in (1, 2):
            base = optimizer(
                net, loss_scaling=LossScaling(2.0**24, backoff_factor=2.0**-12, growth_interval=2), accumulate=pieces
            )
            scheme = getattr(schemes, name)(base, comm)
            stepped(scheme, given)
            found[name, pieces] = scheme.network.state(), base.loss_scaling.state(), base.steps
    definition = "ConsistentDecentralized"
    return {
        "apart": max(far(found[kind, pieces][0], found[definition, pieces][0]) for pieces in (1, 2)),
        "scales": [found[kind, pieces][1:] == found[definition, pieces][1:] for pieces in (1, 2)],
        "skipped": found[kind, 1][1]["skipped"],
        "steps": found[kind, 1][2],
    }


def averaged(comm: Communicator, kind: str) -> dict[str, Any]:
    """An average of weights, of which a rank may hold its parts: what is judged, and after a resumption."""
    given, judged, states, sizes = feeds(DENSE, comm, [3, 2, 4][: comm.size]), {}, {}, {}
    for name in (kind, "ConsistentDecentralized"):
        scheme = getattr(schemes, name)(optimizer(network(DENSE, comm.rank)), comm)
        parts = scheme if scheme.joins_parts else None
        average = WeightAverage(scheme.executor, 0.6, parts)
        stepped(scheme, given[:3], average)
        state = average.state()
        average = WeightAverage(scheme.executor, 0.6, parts)
        average.load_state(state)
        stepped(scheme, given[3:], average)
        sizes[name] = sum(tensor.numel() for tensor in average._averages.values())
        with scheme.evaluation(), average.evaluation():
            names = scheme.network.trainable()
            judged[name] = dict(
                zip(names, map(np.array, scheme.arrays(scheme.network.fetch_tensors(names))), strict=True)
            )
        states[name] = scheme.network.state()
    return {
        "judged": far(judged[kind], judged["ConsistentDecentralized"]),
        "apart": far(states[kind], states["ConsistentDecentralized"]),
        "moved": far(judged[kind], states[kind]),
        "share": sizes[kind] / sizes["ConsistentDecentralized"],
    }


CASES: dict[str, Callable[[Communicator, str], dict[str, Any]]] = {
    "pieces": in_pieces,
    "plan": again,
    "float16": in_float16,
    "averages": averaged,
}


def combined(comm: Communicator) -> dict[str, dict[str, Any]]:
    """All cases with both schemes."""
    return {f"{name} {kind}": case(comm, kind) for name, case in CASES.items() for kind in ("DDP", "FSDP")}


def everything(comm: Communicator, seeds: Sequence[int], under: str) -> dict[str, Any]:
    """All cases of the three files, in one start of the ranks."""
    more = {"options": combined(comm), "parts": native_parts_cases.everything(comm, under)} if comm.size == 2 else {}
    return {**native_cases.everything(comm, seeds, under), **more}
