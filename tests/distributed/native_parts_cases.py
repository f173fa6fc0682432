"""Cases on real ranks for networks that no rank ever holds whole: drawn, judged, saved and loaded in parts."""

from __future__ import annotations

import tracemalloc
from collections.abc import Callable, Mapping
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import numpy as np

from deep500.distributed import Communicator, schemes
from deep500.distributed.sampler import DistributedSampler
from deep500.frameworks import pytorch
from deep500.frameworks.pytorch.memory import footprint, settle
from deep500.networks import add_loss, create, undrawn
from deep500.networks.network import Network
from deep500.results.checkpoint import load_checkpoint, save_checkpoint
from deep500.tensors import digest
from deep500.training.data import NumpyDataset
from deep500.training.data.samplers import OrderedSampler, ShuffleSampler
from deep500.training.trainer import Trainer
from tests.distributed.error_text import error_text

WIDTH, LAYERS = 384, 12
UNIT = 4 * WIDTH * (WIDTH + 1)
"""Bytes of the largest layer; all twelve are 7.1 MB."""
MODELS: dict[str, dict[str, Any]] = {
    "resnet": {"shape": (3, 8, 8), "depth": 8},
    "transformer": {"shape": (6,), "vocabulary": 11, "width": 8, "heads": 2, "layers": 2},
    "lstm": {"shape": (5, 4), "width": 6},
    "mlp": {"shape": (4,), "hidden": (5,)},
}


def deep(later: bool, seed: int = 3) -> Network:
    """A perceptron of twelve layers and small ends, drawn later or at once."""
    with undrawn() if later else nullcontext():
        return add_loss(create("mlp", shape=(8,), classes=4, hidden=(WIDTH,) * LAYERS, seed=seed))


def scheme_of(net: Network, comm: Communicator) -> Any:
    """FSDP around momentum of PyTorch's own."""
    return schemes.FSDP(pytorch.MomentumOptimizer(pytorch.from_model(net, "cpu"), "loss", lr=0.01, momentum=0.9), comm)


def samples(count: int = 45) -> NumpyDataset:
    """Random ones."""
    rng = np.random.default_rng(9)
    return NumpyDataset(rng.normal(size=(count, 8)).astype("float32"), "input", rng.integers(0, 4, count))


def trainer_of(scheme: Any, comm: Communicator, ema: float | None = 0.5) -> Trainer:
    """Batches of 22; the last of 45 samples has one, so there are ranks without any."""
    shares = [kind(samples(), 22) for kind in (ShuffleSampler, OrderedSampler)]
    train, judged = (DistributedSampler(sampler, comm.rank, comm.size) for sampler in shares)
    return Trainer(train, judged, scheme.executor, scheme, ema=ema)  # type: ignore[arg-type]


def peaks(run: Callable[[], Any]) -> list[int]:
    """Most bytes of tensors that a call holds at once, and in a second call of arrays."""
    settle()
    tensors = footprint(run).peak
    settle()
    tracemalloc.start()
    try:
        run()
        return [tensors, tracemalloc.get_traced_memory()[1]]
    finally:
        tracemalloc.stop()


def drawn(comm: Communicator) -> list[dict[str, Any]]:
    """Networks of the zoo, made in parts: their initial values, and after steps those of one that was made whole."""
    rows = []
    for name, options in MODELS.items():
        found = []
        for later in (True, False):
            with undrawn() if later else nullcontext():
                net = add_loss(create(name, **options))
            if name == "mlp":  # of which one parameter has a value all the same
                net.set_parameter("fc2.weight", np.full((10, 5), 0.25, np.float32))
            serial = digest({n: p.value for n, p in net.parameters.items()})
            scheme = schemes.FSDP(pytorch.AdamOptimizer(pytorch.from_model(net, "cpu"), "loss", lr=0.01), comm)
            began = digest(scheme.network.state())
            rng, known = np.random.default_rng(comm.rank), net.inputs["input"]
            shape = [2, *(int(size) for size in (known.shape or ())[1:])]
            for _ in range(3):
                inputs = rng.normal(size=shape) if known.dtype == "float32" else rng.integers(0, 11, shape)
                scheme.step({"input": inputs.astype(known.dtype), "label": rng.integers(0, 10, 2)})
            found.append([began, digest(scheme.network.state())])
        moved = found[0][0] != found[0][1]
        rows.append({"case": name, "same": found[0] == found[1], "serial": found[0][0] == serial, "moved": moved})
    return rows


def counted(comm: Communicator, under: str) -> dict[str, Any]:
    """A network in parts from its making to its resumption: bytes at most, of tensors and of arrays, in each."""
    scheme_of(add_loss(create("mlp", shape=(8,), classes=4)), comm)  # which imports
    made: list[Any] = []
    bytes_of = {"made": peaks(lambda: made.append(scheme_of(deep(True), comm)))}
    trainer = trainer_of(made[0], comm)
    trainer.run(1, [])
    states: list[Any] = []
    folder = Path(under) / f"{comm.size}-{comm.rank}"

    def save() -> None:
        save_checkpoint(folder, 1, trainer.state(in_turn=True), gathers_only=comm.rank > 0)

    bytes_of["judged"] = peaks(lambda: states.append(trainer.evaluate(trainer.validation_sampler, "here")))  # type: ignore[arg-type]
    bytes_of["saved"] = peaks(save)
    whole = trainer.state()["arrays"]
    comm.barrier()
    first = load_checkpoint(Path(under) / f"{comm.size}-0" / "epoch-1.safetensors", in_turn=True)
    mine = load_checkpoint(folder / "epoch-1.safetensors")
    other = trainer_of(scheme_of(deep(True, seed=4), comm), comm)
    state = {"values": mine["values"], "arrays": {**first["arrays"], **mine["arrays"]}}
    bytes_of["loaded"] = peaks(lambda: other.load_state(state))
    again = other.state()["arrays"]
    steps = [other.run(2, []), trainer.run(2, [])]
    gathered = trainer.evaluate(iter(trainer.validation_sampler), "here")  # type: ignore[arg-type]
    in_turn = trainer.evaluate(trainer.validation_sampler, "here")  # type: ignore[arg-type]
    return {
        "peaks": bytes_of,
        "same": digest(whole) == digest(again) == digest(first["arrays"]),
        "mine": sorted(name for name in mine["arrays"] if "fc2" in name),
        "after": digest(other.executor.network.state()) == digest(trainer.executor.network.state()),
        "losses": [record.test_loss for each in steps for record in each.epochs[-1:]],
        "judged": [gathered.loss() == in_turn.loss(), gathered.accuracy() == in_turn.accuracy(), in_turn.samples],
    }


def refused(comm: Communicator) -> Mapping[str, str]:
    """A network without initial values goes nowhere else."""
    executor = pytorch.from_model(deep(True), "cpu")
    batch = {"input": np.zeros((2, 8), "float32"), "label": np.zeros(2, "int64")}
    plain = pytorch.MomentumOptimizer(executor, "loss", lr=0.1, momentum=0.9)
    edited = deep(True)
    edited.set_parameter("fc2.bias", edited.parameters["fc2.bias"].value)
    seed = deep(True, seed=comm.rank)
    return {
        "run": error_text(lambda: executor.inference(batch)),
        "step": error_text(lambda: plain.step(batch)),
        "DDP": error_text(lambda: schemes.DDP(plain, comm)),
        "edited": error_text(lambda: scheme_of(edited, comm)),
        "seeds": error_text(lambda: scheme_of(seed, comm)),
    }


def everything(comm: Communicator, under: str) -> dict[str, Any]:
    """All cases, in one start of the ranks."""
    return {"drawn": drawn(comm), "counted": counted(comm, under), "refused": refused(comm)}
