"""One row per scheme: how it is made, which check proves it, and what it may send. A new scheme is a new row, which
test_scheme_table.py asks for.

The network is a small one in float64 with three layers; rank p of P has p + 2 samples of every batch, so that no mean
over ranks is right that forgets the shares.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from typing import Any

import numpy as np

from deep500.distributed import Communicator, DistributedOptimizer, schemes
from deep500.networks.network import Network
from deep500.registry import load_backend
from deep500.training import optimizers

WIDTHS = (12, 16, 10, 4)
MATRICES = list(pairwise(WIDTHS))
COUNT = sum(n * m + m for n, m in MATRICES)
WHOLE = 8 * COUNT
"""Bytes of all gradients."""
STEPS = 6


@dataclass(frozen=True)
class SchemeRow:
    """A row of the table.

    Attributes:
        name: for the test's id.
        make: wraps a base optimizer.
        check: what it must be: ``serial`` (training on the union of the batches), ``average`` (ModelAverage, bit by
            bit), ``conserved`` (gradients applied and residuals add up to all mean gradients), ``bounded`` (every
            element within the sum of the ranks' largest rounding errors), ``outer`` (see test_diloco.py). Where ranks
            differ between steps: the file whose tests prove the scheme.
        payload: bytes per step and rank, of the number of ranks; None where the data decide, and other tests look.
        native: takes a framework's own optimizer too.
    """

    name: str
    make: Callable[[Any, Communicator], DistributedOptimizer]
    check: str
    payload: Callable[[int], float] | None
    native: bool = True


def several(size: float) -> Callable[[int], float]:
    """These bytes on several ranks, nothing on one."""
    return lambda ranks: size if ranks > 1 else 0


def always(size: float) -> Callable[[int], float]:
    return lambda ranks: size


def several_parts(ranks: int) -> float:
    """Each layer's gradients whole, and a rank's part of its parameters twice, of the last layer's once."""
    parts = [math.ceil((n * m + m) / ranks) for n, m in MATRICES]
    return 8 * (ranks * sum(parts) + 2 * sum(parts) - parts[-1]) if ranks > 1 else 0


QSGD_LEVELS, QSGD_CHUNK = 3, 100
LOW_RANK = 8 * sum(n + m + m for n, m in MATRICES)  # factors of rank 1, and the biases

# fmt: off
SCHEMES = [
    SchemeRow("ConsistentDecentralized", schemes.ConsistentDecentralized, "serial", several(WHOLE)),
    SchemeRow("ReproducibleDecentralized", partial(schemes.ReproducibleDecentralized, blocks=60), "serial",
           always(WHOLE + 8)),
    SchemeRow("ConsistentParameterServer", schemes.ConsistentParameterServer, "serial", several(2 * WHOLE)),
    SchemeRow("ModelAverage", schemes.ModelAverage, "serial", several(WHOLE)),
    SchemeRow("LocalSGD-1", partial(schemes.LocalSGD, every=1), "average", several(WHOLE)),
    SchemeRow("DiLoCo-1", partial(schemes.DiLoCo, every=1, outer_lr=1, outer_momentum=0), "average", several(WHOLE)),
    SchemeRow("DiLoCo-2", partial(schemes.DiLoCo, every=2), "outer", several(WHOLE / 2)),
    SchemeRow("ShardedOptimizer", schemes.ShardedOptimizer, "serial", several(2 * WHOLE), native=False),
    SchemeRow("DividedNetwork", partial(schemes.DividedNetwork, pins={"MatMul_p1": "n", "MatMul_p2": "k"}),
           "serial", None, native=False),
    SchemeRow("ShardedParameters", schemes.ShardedParameters, "serial", several_parts, native=False),
    SchemeRow("TopK", partial(schemes.TopK, ratio=0.1), "conserved", always(math.ceil(0.1 * COUNT) * (4 + 8))),
    SchemeRow("TopK-all", partial(schemes.TopK, ratio=1), "serial", always(COUNT * (4 + 8))),
    SchemeRow("TopK-sparse", partial(schemes.TopK, k=20, sparse=True), "conserved", None),
    SchemeRow("SparseAllreduce", schemes.SparseAllreduce, "serial", None),
    SchemeRow("SignSGD", schemes.SignSGD, "conserved", always(math.ceil(COUNT / 8) + 8 * 2 * len(MATRICES))),
    SchemeRow("PowerSGD", partial(schemes.PowerSGD, rank=1), "conserved", always(LOW_RANK)),
    SchemeRow("PowerSGD-whole", partial(schemes.PowerSGD, rank=16), "serial", always(WHOLE)),
    SchemeRow("QSGD", partial(schemes.QSGD, levels=QSGD_LEVELS, seed=5, chunk=QSGD_CHUNK), "bounded",
           always(8 * math.ceil(COUNT / QSGD_CHUNK) + 3 * math.ceil(COUNT / 8))),
]
# fmt: on
RANKS_DIFFER = [
    SchemeRow(
        "ConsistentNeighbors", schemes.ConsistentNeighbors, "test_gossip.py", lambda ranks: WHOLE * min(ranks - 1, 2)
    ),
    SchemeRow("DDP", schemes.DDP, "test_native.py", None),
    SchemeRow("FSDP", schemes.FSDP, "test_native.py", None),
    SchemeRow("InconsistentDecentralized", schemes.InconsistentDecentralized, "test_gossip.py", None),
    SchemeRow(
        "InconsistentParameterServer", schemes.InconsistentParameterServer, "test_asynchronous.py", several(WHOLE)
    ),
    SchemeRow("NativePipeline", schemes.NativePipeline, "test_native_pipeline.py", None),
    SchemeRow("Pipeline", schemes.Pipeline, "test_pipeline.py", None, native=False),
    SchemeRow("StaleSynchronous", schemes.StaleSynchronous, "test_asynchronous.py", several(WHOLE)),
]
"""Schemes in which ranks have parameters of their own after a step, or no samples, or that threads cannot run."""
BY_NAME = {scheme.name: scheme for scheme in SCHEMES}


def network(seed: int = 0, widths: Sequence[int] = WIDTHS) -> Network:
    """A perceptron in float64 with a mean loss; inputs ``input`` (N, 12) and ``label`` (N,)."""
    rng = np.random.default_rng(seed)
    net = Network("perceptron")
    net.add_input("input", ("N", widths[0]), "float64")
    net.add_input("label", ("N",), "int64")
    x = "input"
    for layer, (n, m) in enumerate(pairwise(widths), 1):
        net.add_parameter(f"w{layer}", rng.normal(size=(n, m)) / math.sqrt(n))
        net.add_parameter(f"b{layer}", 0.1 * rng.normal(size=m))
        net.add_node("MatMul", [x, f"w{layer}"], [f"p{layer}"])
        net.add_node("Add", [f"p{layer}", f"b{layer}"], [f"y{layer}"])
        x = f"y{layer}"
        if layer < len(widths) - 1:
            net.add_node("Tanh", [x], [f"h{layer}"])
            x = f"h{layer}"
    net.add_node("SoftmaxCrossEntropyLoss", [x, "label"], ["loss"], reduction="mean")
    net.add_output("loss")
    return net


def batches(sizes: Sequence[int], steps: int = STEPS, rank: int | None = None) -> list[dict[str, np.ndarray]]:
    """The shares of a rank that has ``sizes[rank]`` samples of every batch, or (None) the whole batches."""
    rng, end = np.random.default_rng(3), np.cumsum([0, *sizes])
    part = slice(None) if rank is None else slice(end[rank], end[rank + 1])
    whole = [(rng.normal(size=(end[-1], WIDTHS[0])), rng.integers(0, WIDTHS[-1], end[-1])) for _ in range(steps)]
    return [{"input": x[part], "label": y[part]} for x, y in whole]


def make_base(backend: str, seed: int = 0, kind: str = "MomentumOptimizer", **options: Any) -> Any:
    """A base optimizer with a network of its own; ``"pytorch native"``: the framework's."""
    name = backend.removesuffix(" native")
    module = load_backend(name)
    source = module if backend.endswith(" native") else optimizers
    options = {"lr": 0.1, **options} if kind != "AcceleGradOptimizer" else options
    return getattr(source, kind)(module.from_model(network(seed), "cpu"), "loss", **options)


def parameters(optimizer: Any) -> dict[str, np.ndarray]:
    return {name: np.array(array) for name, array in optimizer.network.state().items()}


def serial(sizes: Sequence[int], backend: str, steps: int = STEPS, **options: Any) -> dict[str, np.ndarray]:
    """Plain training on the whole batches, without any wrapper."""
    base = make_base(backend, **options)
    for batch in batches(sizes, steps):
        base.step(batch)
    return parameters(base)


@dataclass
class Outcome:
    """What a rank saw: parameters and payload after every step, gradients before and after the exchange, residuals."""

    parameters: list[dict[str, np.ndarray]]
    payload: list[int]
    local: list[dict[str, np.ndarray]]
    applied: list[dict[str, np.ndarray]]
    residuals: dict[str, np.ndarray]
    state: dict[str, np.ndarray]


def train(
    comm: Communicator,
    scheme: SchemeRow,
    backend: str,
    sizes: Sequence[int],
    steps: int = STEPS,
    resume_at: int | None = None,
    **options: Any,
) -> Outcome:
    """This rank's part of a training; with ``resume_at`` in two pieces, of which only arrays pass to the second."""
    outcome = Outcome([], [], [], [], {}, {})
    optimizer = _start(comm, scheme, backend, comm.rank, outcome, options)
    for number, batch in enumerate(batches(sizes, steps, comm.rank)):
        if number == resume_at:
            weights, left = parameters(optimizer), optimizer.state_dict()
            state = {name: left[name].copy() for name in sorted(left)}  # a file has an order of its own
            optimizer = _start(comm, scheme, backend, 9, outcome, options)
            optimizer.network.load_state(weights)
            optimizer.load_state_dict(state)
        before = comm.traffic.payload_bytes
        optimizer.step(batch)
        outcome.payload.append(comm.traffic.payload_bytes - before)
        outcome.parameters.append(parameters(optimizer))
    outcome.residuals, outcome.state = getattr(optimizer, "residuals", {}), optimizer.state_dict()
    return outcome


def _start(
    comm: Communicator, scheme: SchemeRow, backend: str, seed: int, outcome: Outcome, options: dict[str, Any]
) -> DistributedOptimizer:
    """Rank p begins with weights of its own: those of rank 0 (seed 0) must replace them."""
    optimizer = scheme.make(make_base(backend, seed, **options), comm)
    exchange = optimizer.exchange_gradients

    def recorded(names: Sequence[str], gradients: Sequence[Any]) -> Sequence[Any]:
        outcome.local.append({n: np.array(g) for n, g in zip(names, optimizer.arrays(gradients), strict=True)})
        result = exchange(names, gradients)
        outcome.applied.append({n: np.array(g) for n, g in zip(names, optimizer.arrays(result), strict=True)})
        return result

    optimizer.exchange_gradients = recorded  # type: ignore[method-assign]
    return optimizer


def digest(arrays: dict[str, np.ndarray]) -> str:
    """A hash of names and bits."""
    joined = b"".join(name.encode() + array.tobytes() for name, array in sorted(arrays.items()))
    return hashlib.sha256(joined).hexdigest()


def flat(arrays: dict[str, np.ndarray]) -> np.ndarray:
    """All elements, in the order of names."""
    return np.concatenate([np.ravel(arrays[name]) for name in sorted(arrays)])


def digest_and_weights(comm: Communicator, backend: str, steps: int = STEPS) -> dict[str, Any]:
    """A case for real ranks: for every scheme the hash of this rank's parameters, their values and the payload."""
    sizes, results = [rank + 2 for rank in range(comm.size)], {}
    for scheme in SCHEMES:
        outcome = train(comm, scheme, backend, sizes, steps)
        last = outcome.parameters[-1]
        results[scheme.name] = [digest(last), flat(last).tolist(), outcome.payload]
    return results
