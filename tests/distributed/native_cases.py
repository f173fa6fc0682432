"""Cases on real ranks for schemes by engines of PyTorch's: random networks, optimizers and shares, in float64."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.distributed as dist
from torch.distributed.algorithms.ddp_comm_hooks import default_hooks
from torch.distributed.algorithms.ddp_comm_hooks.powerSGD_hook import PowerSGDState, powerSGD_hook
from torch.nn.parallel import DistributedDataParallel

from deep500.distributed import Communicator, schemes
from deep500.frameworks import pytorch, reference
from deep500.frameworks.pytorch.layers import in_layers
from deep500.networks.hashing import structure_hash
from deep500.networks.network import Network
from deep500.training import optimizers
from deep500.training.clipping import ClipGradientNorm
from deep500.transformations.recomputation.plan_file import CheckpointingPlan, PlannedRegion
from deep500.transformations.stages import layers
from tests.distributed.error_text import error_text
from tests.distributed.scheme_table import digest, flat, parameters

STEPS = 20
OPTIMIZERS = {
    "GradientDescent": {"lr": 0.1},
    "MomentumOptimizer": {"lr": 0.05, "momentum": 0.9, "weight_decay": 1e-3},
    "AdamOptimizer": {"lr": 0.01},
    "AdamWOptimizer": {"lr": 0.01, "no_decay": "norms_and_biases"},
    "RMSPropOptimizer": {"lr": 0.01},
    "AdaGradOptimizer": {"lr": 0.05},
}
DEFINITIONS = {"DDP": "ConsistentDecentralized", "FSDP": "ShardedParameters"}


def network(seed: int, start: int = 0) -> Network:
    """A random one of float64 with inputs ``input`` and ``label``, its weights by ``start``: dense layers of random
    widths with a skip, with one weight in two layers, or convolutions with batch normalization. In half of them labels
    of class 1 do not count: ranks and pieces divide by different numbers, and some by none."""
    rng, weights = np.random.default_rng(seed), np.random.default_rng([seed, start])
    net, kind = Network(f"random {seed}"), seed % 3
    side = 5 if kind == 2 else 0
    shape = (2, side, side) if side else (int(rng.integers(3, 9)),)
    net.add_input("input", ("N", *shape), "float64")
    net.add_input("label", ("N",), "int64")

    def parameter(name: str, *size: int, trainable: bool = True) -> str:
        scale = 1 / np.sqrt(np.prod(size[1:]) if len(size) > 2 else size[0])
        net.add_parameter(name, weights.normal(size=size) * scale, trainable=trainable)
        return name

    def dense(x: str, n: int, m: int, name: str) -> str:
        net.add_node("MatMul", [x, parameter(f"{name}.w", n, m)], [f"{name}.p"])
        net.add_node("Add", [f"{name}.p", parameter(f"{name}.b", m)], [f"{name}.y"])
        net.add_node("Tanh", [f"{name}.y"], [name])
        return name

    x, width = "input", shape[0]
    if kind == 2:
        for number in range(3):
            net.add_node("Conv", [x, parameter(f"c{number}.w", 4, width, 3, 3)], [f"c{number}"], pads=[1, 1, 1, 1])
            net.add_parameter(f"n{number}.scale", 1 + 0.1 * weights.normal(size=4))
            net.add_parameter(f"n{number}.bias", 0.1 * weights.normal(size=4))
            net.add_parameter(f"n{number}.mean", np.zeros(4), trainable=False)
            net.add_parameter(f"n{number}.var", np.ones(4), trainable=False)
            names = [f"c{number}", *(f"n{number}.{part}" for part in ("scale", "bias", "mean", "var"))]
            net.add_node("BatchNormalization", names, [f"n{number}"])
            net.add_node("Relu", [f"n{number}"], [f"r{number}"])
            x, width = f"r{number}", 4
            if number == 1:
                net.add_node("Add", ["r0", "r1"], ["skip"])
                x = "skip"
        net.add_node("GlobalAveragePool", [x], ["pool"])
        net.add_node("Flatten", ["pool"], ["flat"])
        x = "flat"
    else:
        for number in range(int(rng.integers(2, 5))):
            wider = int(rng.integers(3, 12))
            before, x = x, dense(x, width, wider, f"d{number}")
            if kind == 1 and number == 0:  # and back by the same weight
                net.add_node("Transpose", ["d0.w"], ["d0.wt"], perm=[1, 0])
                net.add_node("MatMul", [x, "d0.wt"], ["back"])
                x, wider = "back", width
            elif wider == width:
                net.add_node("Add", [before, x], [f"s{number}"])
                x = f"s{number}"
            width = wider
    net.add_node("MatMul", [x, parameter("last.w", width, 3)], ["score"])
    ignored = {"ignore_index": 1} if seed % 4 > 1 else {}
    net.add_node("SoftmaxCrossEntropyLoss", ["score", "label"], ["loss"], reduction="mean", **ignored)
    net.add_output("loss")
    return net


def batches(seed: int, sizes: Sequence[int], rank: int | None, steps: int = STEPS) -> list[dict[str, np.ndarray]]:
    """A rank's shares of random batches."""
    rng, ends = np.random.default_rng(1000 + seed), np.cumsum([0, *sizes])
    shape = [int(size) for size in (network(seed).inputs["input"].shape or ())[1:]]
    mine = slice(None) if rank is None else slice(ends[rank], ends[rank + 1])
    whole = [(rng.normal(size=(ends[-1], *shape)), rng.integers(0, 3, ends[-1])) for _ in range(steps)]
    return [{"input": x[mine], "label": y[mine]} for x, y in whole]


def base(seed: int, start: int, native: bool, **more: Any) -> Any:
    """A random optimizer, PyTorch's own or ours; on every fourth network gradients are clipped."""
    name, options = list(OPTIMIZERS.items())[seed % len(OPTIMIZERS)]
    clip = ClipGradientNorm(0.3) if seed % 4 == 0 else None
    kind = getattr(pytorch if native else optimizers, name)
    return kind(pytorch.from_model(network(seed, start), "cpu"), "loss", gradient_transform=clip, **options, **more)


def shares(seed: int, ranks: int) -> list[int]:
    """Samples of each rank: some, or on every fifth network none on the last."""
    sizes = np.random.default_rng(50 + seed).integers(1, 5, ranks).tolist()
    return [*sizes[:-1], 0] if seed % 5 == 1 else [int(size) for size in sizes]


def trained(make: Callable[..., Any], seed: int, comm: Communicator, native: bool, stop: int = STEPS) -> Any:
    """A scheme after 20 steps; after ``stop`` steps another one goes on from its state."""
    scheme = make(base(seed, comm.rank, native), comm)  # each rank begins with weights of its own
    for number, batch in enumerate(batches(seed, shares(seed, comm.size), comm.rank)):
        if number == stop:
            weights, state = parameters(scheme), {n: array.copy() for n, array in scheme.state_dict().items()}
            scheme = make(base(seed, 7, native), comm)
            scheme.network.load_state(weights)
            scheme.load_state_dict(state)
        scheme.step(batch)
    with scheme.evaluation():  # statistics are means over ranks in it
        return scheme, {name: np.array(array) for name, array in zip(*_held(scheme), strict=True)}


def _held(scheme: Any) -> tuple[list[str], list[np.ndarray]]:
    names = list(scheme.network.parameters)
    return names, scheme.arrays(scheme.network.fetch_tensors(names))


def compared(comm: Communicator, seeds: Sequence[int]) -> list[dict[str, Any]]:
    """For every random network and both schemes: how far they are from their definition, and what else must hold."""
    rows = []
    for seed in seeds:
        for name, definition in DEFINITIONS.items():
            native = bool((seed + (name == "FSDP")) % 2)
            _, want = trained(getattr(schemes, definition), seed, comm, False)
            scheme, got = trained(getattr(schemes, name), seed, comm, native)
            _, again = trained(getattr(schemes, name), seed, comm, native, stop=7 if seed != 1 else STEPS)
            begin = parameters(base(seed, 0, False))
            rows.append(
                {
                    "case": f"{name}, network {seed}, {'native' if native else 'ours'}, {shares(seed, comm.size)}",
                    "apart": float(np.abs(flat(got) - flat(want)).max()),
                    "moved": float(np.abs(flat(got) - flat(begin)).max()),
                    "digest": digest(got),
                    "resumed": digest(again),
                    "steps": [scheme.steps, scheme.base_optimizer.steps],
                }
            )
    return rows


def counted(comm: Communicator, seeds: Sequence[int]) -> list[dict[str, Any]]:
    """Bytes of a step: as the scheme counts them, and as PyTorch's profiler sees tensors handed to its collectives."""
    rows = []
    makers = {
        "DDP": schemes.DDP,
        "DDP fp16": partial(schemes.DDP, compression="fp16"),
        "DDP powersgd": partial(schemes.DDP, compression="powersgd", begin=2, bucket_bytes=200),
        "FSDP": schemes.FSDP,
    }
    for seed in seeds:
        for name, make in makers.items():
            scheme = make(base(seed, 0, True), comm)
            feeds = batches(seed, [2] * comm.size, comm.rank, 5)
            for batch in feeds[:4]:
                scheme.step(batch)
            comm.traffic.reset()
            with torch.profiler.profile(record_shapes=True) as profile:
                scheme.step(feeds[4])
            inputs = _OF_SHARDING if name == "FSDP" else {"gloo:all_reduce": 0}
            seen = 0 if name == "FSDP" else -sum(count.control_bytes for count in comm.traffic.kinds.values())
            if name == "DDP powersgd":  # whose calls in threads of gloo's the profiler does not see
                seen = sum(low_rank(tensor.shape) for tensor in scheme.parameters())
            for event in profile.events():
                if event.name in inputs and name != "DDP powersgd":
                    elements = int(np.prod(event.input_shapes[inputs[event.name]]))
                    seen += elements * (2 if name == "DDP fp16" and elements > 1 else 8)
            rows.append({"case": f"{name}, network {seed}", "said": comm.traffic.payload_bytes, "seen": seen})
    return rows


def low_rank(shape: Sequence[int]) -> int:
    """Bytes of factors of rank 1 of a tensor as a matrix, or of itself where these are more than half of it."""
    n, m = int(shape[0]), int(np.prod(shape[1:]))
    return 8 * (n + m if len(shape) > 1 and 2 * (n + m) < n * m else n * m)


_OF_SHARDING = {"c10d::_allgather_base_": 1, "c10d::_reduce_scatter_base_": 1}
"""Operators of torch's collectives, and which of their inputs is handed in. (Over gloo the second makes sums.)"""


def by_hand(comm: Communicator, compression: str | None, steps: int = 8) -> dict[str, float]:
    """A scheme and the same training with ``DistributedDataParallel`` written by hand: the same mathematics."""
    size = 25_000_000 if compression == "powersgd" else 1000  # by hand it stands still with two buckets, over gloo
    make = partial(schemes.DDP, compression=compression, rank=2, begin=2, bucket_bytes=size)
    scheme = make(wide(comm.rank), comm)
    module = wide(0).executor.module
    bare = DistributedDataParallel(module, bucket_cap_mb=size / 2**20)
    if compression == "fp16":
        bare.register_comm_hook(dist.group.WORLD, default_hooks.fp16_compress_hook)
    if compression == "powersgd":
        bare.register_comm_hook(PowerSGDState(dist.group.WORLD, 2, 2), powerSGD_hook)
    native = torch.optim.SGD(module.parameters(), lr=0.1, momentum=0.9)
    rng = np.random.default_rng(comm.rank)
    for number in range(steps):
        feeds = {"input": rng.normal(size=(6, 20)), "label": rng.integers(0, 10, 6)}
        scheme.step(feeds)
        native.zero_grad()
        bare(*(torch.from_numpy(feeds[name]) for name in ("input", "label"))).backward()
        native.step()
        if compression == "powersgd" and number == 4:  # what it owes passes through a state
            state, weights = scheme.state_dict(), parameters(scheme)
            scheme = make(wide(9), comm)
            scheme.network.load_state(weights)
            scheme.load_state_dict(state)
    want = {module.names[name]: tensor.detach().numpy() for name, tensor in module.named_parameters()}
    got = parameters(scheme)
    plain = schemes.DDP(wide(0), comm)
    rng = np.random.default_rng(comm.rank)
    for _ in range(steps):
        plain.step({"input": rng.normal(size=(6, 20)), "label": rng.integers(0, 10, 6)})
    return {
        "apart": max(float(np.abs(got[name] - array).max()) for name, array in want.items()),
        "from plain": float(np.abs(flat(got) - flat(parameters(plain))).max()),
    }


def wide(seed: int) -> Any:
    """An optimizer for a perceptron with matrices that are worth compressing."""
    rng, net, x = np.random.default_rng(seed), Network("wide"), "input"
    net.add_input("input", ("N", 20), "float64")
    net.add_input("label", ("N",), "int64")
    for number, (n, m) in enumerate([(20, 30), (30, 25), (25, 10)]):
        net.add_parameter(f"w{number}", rng.normal(size=(n, m)) / np.sqrt(n))
        net.add_node("MatMul", [x, f"w{number}"], [f"p{number}"])
        net.add_node("Tanh", [f"p{number}"], [f"h{number}"])
        x = f"h{number}"
    net.add_node("SoftmaxCrossEntropyLoss", ["p2", "label"], ["loss"], reduction="mean")
    net.add_output("loss")
    return pytorch.MomentumOptimizer(pytorch.from_model(net, "cpu"), "loss", lr=0.1, momentum=0.9)


def everything(comm: Communicator, seeds: Sequence[int], under: str) -> dict[str, Any]:
    """All cases, in one start of the ranks: two write checkpoints, then three read them."""
    if comm.size == 2:
        kinds = {str(kind): by_hand(comm, kind) for kind in (None, "fp16", "powersgd")}
        results = {"compared": compared(comm, seeds), "by hand": kinds, "refused": refused(comm)}
        return {**results, "saved": saved(comm, under, seeds)}
    if comm.rank == 0:
        damaged(Path(under), seeds[0])
    comm.barrier()
    places = [(f"{under}/{seed}", seed) for seed in seeds] + [(f"{under}/{n}", seeds[0]) for n in ("cut", "lost", "no")]
    return {"compared": compared(comm, seeds), "counted": counted(comm, [2]), "loaded": loaded(comm, places)}


def damaged(under: Path, seed: int) -> None:
    """Copies of a checkpoint: one with a file cut, one without it, one without the index."""
    for name in ("cut", "lost", "no"):
        shutil.copytree(under / str(seed), under / name)
    (shard,) = (under / "cut").glob("shard-00002-*")
    shard.write_bytes(shard.read_bytes()[:-10])
    (shard,) = (under / "lost").glob("shard-00001-*")
    shard.unlink()
    (under / "no" / "checkpoint.json").unlink()


def saved(comm: Communicator, under: str, seeds: Sequence[int]) -> list[dict[str, Any]]:
    """Sharded checkpoints, every second one written by a thread while training goes on; and bits to compare with."""
    rows = []
    for number, seed in enumerate(seeds):
        scheme = schemes.FSDP(base(seed, comm.rank, seed % 2 == 0), comm)
        feeds = batches(seed, [2] * comm.size, comm.rank, 6)
        for batch in feeds[:3]:
            scheme.step(batch)
        with scheme.evaluation():
            pass  # makes statistics alike
        then, state = parameters(scheme), scheme.state_dict()
        saving = scheme.save_sharded(f"{under}/{seed}", asynchronous=number % 2 == 1)
        for batch in feeds[3:]:
            scheme.step(batch)
        saving.wait()
        other = schemes.FSDP(base(seed, 5, seed % 2 == 0), comm)
        other.load_sharded(f"{under}/{seed}")
        same = digest(parameters(other)) == digest(then) and digest(other.state_dict()) == digest(state)
        for batch in feeds[3:]:
            other.step(batch)
        same = same and digest(parameters(other)) == digest(parameters(scheme))
        rows.append({"same": same, "network": digest(then), "state": digest(state)})
    return rows


def loaded(comm: Communicator, places: Sequence[tuple[str, int]]) -> list[list[str]]:
    """Bits of checkpoints that other numbers of ranks wrote; or what is said of one that is not complete."""
    found = []
    for place, seed in places:
        scheme = schemes.FSDP(base(seed, 5, seed % 2 == 0), comm)
        said = error_text(partial(scheme.load_sharded, place))
        found.append([said, digest(parameters(scheme)), digest(scheme.state_dict())])
    return found


def refused(comm: Communicator) -> dict[str, str]:
    """Each thing that an engine cannot do is one line with the cure."""
    plain = partial(base, 1, 0, True)
    scalar = network(0)
    scalar.add_parameter("factor", np.array(1.0))
    scalar.add_node("Mul", ["loss", "factor"], ["scaled"])
    scalar.add_output("scaled")
    odd = schemes.FSDP(plain(), comm)
    feeds = batches(1, [2] * comm.size, comm.rank, 1)[0]
    module = pytorch.from_native(torch.nn.Linear(4, 3), torch.zeros(1, 4))
    explicit = schemes.FSDP(
        pytorch.GradientDescent(pytorch.from_model(network(1), "cpu", recompute="explicit"), "loss", lr=0.1), comm
    )
    explicit.executor.set_checkpointing(plan_of(network(1), 2))
    edited = schemes.FSDP(plain(), comm)
    edited.network.add_output("score")
    own = optimizers.LAMBOptimizer(pytorch.from_model(network(1), "cpu"), "loss")
    here = schemes.DDP if comm.rank == 0 else schemes.FSDP
    return {
        "backend": error_text(
            lambda: schemes.DDP(optimizers.GradientDescent(reference.from_model(network(1)), "loss", lr=0.1), comm)
        ),
        "mixed": error_text(lambda: here(plain(), comm)),
        "explicit": error_text(lambda: explicit.step(feeds)),
        "compression": error_text(lambda: schemes.DDP(plain(), comm, compression="fp15")),
        "scalar": error_text(
            lambda: schemes.FSDP(pytorch.GradientDescent(pytorch.from_model(scalar, "cpu"), "scaled", lr=0.1), comm)
        ),
        "whole": error_text(lambda: schemes.FSDP(own, comm)),
        "between": error_text(lambda: odd.executor.inference(feeds)),
        "module": error_text(lambda: schemes.FSDP(pytorch.GradientDescent(module, "loss", lr=0.1), comm)),
        "edited": error_text(lambda: edited.step(feeds)),
        "state": error_text(lambda: odd.network.load_state({"w": np.zeros(1)})),
    }


def plan_of(net: Network, batch: int) -> CheckpointingPlan:
    """Three regions, each of which ends in another layer."""
    values = [value for node in net.nodes[:-4] for value in node.writes]
    third = len(values) // 3
    regions = [values[:third], values[third : 2 * third], values[2 * third :]]
    named = tuple(PlannedRegion(f"region {i}", f"region {i}", tuple(region)) for i, region in enumerate(regions))
    return CheckpointingPlan(structure_hash(net), batch, "loss", "none", named, 0, 0, 0.0, 0.0, "FLOP", "by hand")


def cut_alike(seeds: Sequence[int]) -> list[tuple[int, bool, bool]]:
    """For random networks: layers, whether their outputs are those of the module, and whether every layer's parameters
    are read in it alone."""
    rows = []
    for seed in seeds:
        executor = pytorch.from_model(network(seed), "cpu")
        feeds = batches(seed, [3], 0, 1)[0]
        cut = in_layers(executor.module, layers(executor.network))
        tensors = [torch.from_numpy(feeds[name]) for name in executor.network.inputs]
        executor.module.eval()
        cut.root.eval()
        same = torch.equal(executor.module(*tensors), cut.root(*tensors))
        held = [id(t) for layer in cut.layers for t in layer.parameters()]
        rows.append((len(cut.layers), same, len(held) == len(set(held))))
    return rows
