"""Cases on real ranks for schemes by JAX's own engine: random networks, optimizers and shares."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np

from deep500.distributed import Communicator, schemes
from deep500.frameworks import jax as backend
from deep500.networks.network import Network
from deep500.training import optimizers
from deep500.training.clipping import ClipGradientNorm
from tests.distributed.error_text import error_text
from tests.distributed.scheme_table import digest, flat, parameters

STEPS = 20
OPTIMIZERS = {
    "MomentumOptimizer": {"lr": 0.05, "momentum": 0.9, "weight_decay": 1e-3},
    "AdamWOptimizer": {"lr": 0.01, "no_decay": "norms_and_biases"},
    "GradientDescent": {"lr": 0.1},
}
DEFINITIONS = {"DDP": "ConsistentDecentralized", "FSDP": "ConsistentDecentralized"}


def network(seed: int, start: int = 0, dtype: str = "float64") -> Network:
    """Dense layers of random widths, some of them odd, with a skip; or a convolution with batch normalization. Labels
    of class 1 do not count: some ranks divide by other numbers than others."""
    rng, weights = np.random.default_rng(seed), np.random.default_rng([seed, start])
    net = Network(f"random {seed}")
    net.add_input("input", ("N", 2, 5, 5) if seed % 2 else ("N", 6), dtype)
    net.add_input("label", ("N",), "int64")
    x, width = "input", 6
    if seed % 2:
        net.add_parameter("c.w", (weights.normal(size=(4, 2, 3, 3)) / 4).astype(dtype))
        net.add_node("Conv", [x, "c.w"], ["c"], pads=[1, 1, 1, 1])
        for name, value in {"scale": 1.0, "bias": 0.1, "mean": 0.0, "var": 1.0}.items():
            net.add_parameter(f"n.{name}", np.full(4, value, dtype), trainable=name in ("scale", "bias"))
        net.add_node("BatchNormalization", ["c", *(f"n.{part}" for part in ("scale", "bias", "mean", "var"))], ["n"])
        net.add_node("Relu", ["n"], ["r"])
        net.add_node("GlobalAveragePool", ["r"], ["pool"])
        net.add_node("Flatten", ["pool"], ["flat"])
        x, width = "flat", 4
    for number, wider in enumerate([*rng.integers(3, 12, 2).tolist(), 3]):
        net.add_parameter(f"d{number}.w", (weights.normal(size=(width, wider)) / np.sqrt(width)).astype(dtype))
        net.add_parameter(f"d{number}.b", (weights.normal(size=wider) / 10).astype(dtype))
        net.add_node("MatMul", [x, f"d{number}.w"], [f"p{number}"])
        net.add_node("Add", [f"p{number}", f"d{number}.b"], [f"s{number}"])
        net.add_node("Tanh", [f"s{number}"], [f"y{number}"])
        x, width = f"y{number}", wider
    net.add_node("SoftmaxCrossEntropyLoss", ["s2", "label"], ["loss"], reduction="mean", ignore_index=1)
    net.add_output("loss")
    return net


def batches(seed: int, sizes: Sequence[int], rank: int | None, steps: int = STEPS) -> list[dict[str, np.ndarray]]:
    """A rank's shares of random batches; every fifth batch is smaller by the first rank's last sample."""
    rng, rows = np.random.default_rng(1000 + seed), []
    for number in range(steps):
        now = [sizes[0] - (number % 5 == 4), *sizes[1:]]
        ends = np.cumsum([0, *now])
        x = rng.normal(size=(ends[-1], *((2, 5, 5) if seed % 2 else (6,))))
        y, mine = rng.integers(0, 3, ends[-1]), slice(None) if rank is None else slice(ends[rank], ends[rank + 1])
        rows.append({"input": x[mine], "label": y[mine]})
    return rows


def base(seed: int, start: int = 0, dtype: str = "float64") -> Any:
    """A random optimizer; on every third network gradients are clipped."""
    name, options = list(OPTIMIZERS.items())[seed % len(OPTIMIZERS)]
    clip = ClipGradientNorm(0.3) if seed % 3 == 2 else None
    executor = backend.from_model(network(seed, start, dtype), "cpu")
    return getattr(optimizers, name)(executor, "loss", gradient_transform=clip, **options)


def trained(make: Callable[..., Any], seed: int, comm: Communicator, sizes: Sequence[int], stop: int = STEPS) -> Any:
    """A scheme's parameters after 20 steps; after ``stop`` steps another one goes on from its state."""
    scheme = make(base(seed, comm.rank), comm)  # each rank begins with weights of its own
    for number, batch in enumerate(batches(seed, sizes, comm.rank)):
        if number == stop:
            weights, state = parameters(scheme), {n: array.copy() for n, array in scheme.state_dict().items()}
            scheme = make(base(seed, 7), comm)
            scheme.network.load_state(weights)
            scheme.load_state_dict(state)
        scheme.step(batch)
    with scheme.evaluation():  # statistics are means over ranks in it
        return scheme, parameters(scheme)


def compared(comm: Communicator, seeds: Sequence[int], stop: int) -> list[dict[str, Any]]:
    """For every random network and both schemes: how far they are from their definition, and what else must hold; with
    ``stop`` they are resumed after so many steps."""
    rows = []
    for seed in seeds:
        sizes = [4] * comm.size if seed != 2 else [*[3] * (comm.size - 1), 0]  # or none on the last rank
        _, want = trained(schemes.ConsistentDecentralized, seed, comm, sizes)
        for name in DEFINITIONS:
            scheme, got = trained(getattr(schemes, name), seed, comm, sizes)
            again = trained(getattr(schemes, name), seed, comm, sizes, stop)[1] if stop else got
            fused = [key for c in scheme.executor._compiled.values() for key in c.variants if key[:1] == ("ranks",)]
            rows.append(
                {
                    "case": f"{name}, network {seed}, {sizes}",
                    "apart": float(np.abs(flat(got) - flat(want)).max()),
                    "moved": float(np.abs(flat(got) - flat(parameters(base(seed)))).max()),
                    "digest": digest(got),
                    "resumed": digest(again),
                    "steps": [scheme.steps, scheme.base_optimizer.steps],
                    "programs": sorted({"fused" if key[1] not in (None, "sum") else str(key[1]) for key in fused}),
                    "held": {n: list(t.shape) for n, t in scheme.executor.tensors.items()},
                }
            )
    return rows


def serial(comm: Communicator, seed: int = 0) -> dict[str, float]:
    """How far both schemes are from one process that trains on the whole batches, in float32."""
    backend.meet(comm)
    sizes, alone = [4] * comm.size, base(seed, 0, "float32")
    for batch in batches(seed, sizes, None):
        alone.step({name: a.astype("float32") if a.dtype.kind == "f" else a for name, a in batch.items()})
    apart = {}
    for name in DEFINITIONS:
        scheme = getattr(schemes, name)(base(seed, 0, "float32"), comm)
        for batch in batches(seed, sizes, comm.rank):
            scheme.step({n: a.astype("float32") if a.dtype.kind == "f" else a for n, a in batch.items()})
        apart[name] = float(np.abs(flat(parameters(scheme)) - flat(parameters(alone))).max())
    return apart


def refused(comm: Communicator) -> dict[str, str]:
    """Each thing that the engine cannot do is one line with the cure."""
    fsdp = schemes.FSDP(base(0), comm)
    scalar = network(0)
    scalar.add_parameter("factor", np.array(1.0))
    scalar.add_node("Mul", ["loss", "factor"], ["scaled"])
    scalar.add_output("scaled")
    odd = optimizers.GradientDescent(backend.from_model(scalar, "cpu"), "scaled", lr=0.1)
    half = comm.split("half", comm.rank % 2)
    return {
        "compression": error_text(lambda: schemes.DDP(base(0), comm, compression="fp16")),
        "crossing": error_text(lambda: schemes.FSDP(base(0), comm, crossing=2)),
        "scalar": error_text(lambda: schemes.FSDP(odd, comm)),
        "between": error_text(lambda: fsdp.executor.inference(batches(0, [2] * comm.size, comm.rank, 1)[0])),
        "files": error_text(partial(fsdp.save_sharded, "nowhere")),
        "part": error_text(lambda: schemes.DDP(base(0), half)) if comm.size > 3 else "",
    }


def too_late(comm: Communicator) -> str:
    """The error where JAX has computed before the ranks met."""
    optimizer = base(0)
    return error_text(lambda: schemes.DDP(optimizer, comm))


def everything(comm: Communicator, seeds: Sequence[int], stop: int = 0) -> dict[str, Any]:
    """Comparisons and refusals, in one start of the ranks."""
    backend.meet(comm)
    return {"compared": compared(comm, seeds, stop), "refused": refused(comm)}
