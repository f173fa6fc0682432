"""Training with and without overlap, on a network with a custom operator and a parameter that no gradient reaches."""

from __future__ import annotations

import hashlib
from typing import Any

import numpy as np

import deep500 as d5
from deep500.distributed import Communicator
from deep500.distributed.schemes import ConsistentDecentralized
from deep500.events import Event, Events
from deep500.networks import Network, add_loss
from deep500.registry import load_backend

BUCKET = 200
"""Bytes: several buckets for this network."""


@d5.register_op("OverlapSquare")
class OverlapSquare(d5.CustomPythonOp):
    """y = x * x."""

    def forward(self, inputs: Any) -> Any:
        return inputs[0] * inputs[0]

    def backward(self, grads: Any, fwd_inputs: Any, fwd_outputs: Any) -> Any:
        return 2 * fwd_inputs[0] * grads[0]


def network() -> Network:
    """Three layers; the largest element of ``chooser`` picks an offset, which has no derivative."""
    rng = np.random.default_rng(0)
    net = Network("overlap")
    net.add_input("input", ("N", 6))
    for layer, (n, m) in enumerate([(6, 10), (10, 9), (9, 3)]):
        net.add_parameter(f"w{layer}", rng.normal(scale=0.5, size=(n, m)).astype(np.float32))
        net.add_parameter(f"b{layer}", np.zeros(m, np.float32))
    net.add_node("Gemm", ["input", "w0", "b0"], ["y0"])
    net.add_node("OverlapSquare", ["y0"], ["x1"], domain="deep500")
    net.add_node("Gemm", ["x1", "w1", "b1"], ["y1"])
    net.add_node("Tanh", ["y1"], ["x2"])
    net.add_node("Gemm", ["x2", "w2", "b2"], ["y2"])
    net.add_parameter("chooser", np.arange(5, dtype=np.float32))
    net.add_node("ArgMax", ["chooser"], ["choice"], keepdims=0)
    net.add_node("Cast", ["choice"], ["offset"], to=1)
    net.add_node("Add", ["y2", "offset"], ["y"])
    net.add_output("y")
    return add_loss(net)


class Log(Event):
    """Remembers when backward ended."""

    def __init__(self, seen: list[str]) -> None:
        self.seen = seen

    def after_backward(self, executor: Any) -> None:
        self.seen.append("backward")


def native_executor() -> Any:
    """A module of which one layer in the middle is never used."""
    import torch

    class Partly(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first, self.unused, self.last = (torch.nn.Linear(6, m) for m in (8, 8, 8))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.last(torch.tanh(self.first(x))[:, :6])

    torch.manual_seed(0)
    return load_backend("pytorch").from_native(Partly(), torch.zeros(1, 6))


def train(comm: Communicator, backend: str, optimizer: str, overlap: bool, native: bool = False) -> dict[str, Any]:
    """Four steps with unequal shares (in the third the last rank has none): parameters, calls in order, bytes."""
    module = load_backend(backend)
    executor = native_executor() if native else module.from_model(network(), "cpu")
    initial = executor.network.state()
    base = getattr(module, optimizer)(executor, "loss", lr=0.05)
    scheme = ConsistentDecentralized(base, comm, bucket_bytes=BUCKET, overlap=overlap)
    seen: list[str] = []
    base.executor.events = Events([Log(seen)])
    start = comm.start_all_reduce

    def logged(array: np.ndarray, control: int = 0) -> Any:
        seen.append(f"start {array.size}")
        return start(array, control)

    comm.start_all_reduce = logged  # type: ignore[method-assign]
    comm.traffic.reset()
    rng = np.random.default_rng(1 + comm.rank)
    for step in range(4):
        samples = 0 if step == 2 and comm.rank == comm.size - 1 else comm.rank + 2
        inputs = rng.normal(size=(samples, 6)).astype(np.float32)
        scheme.step({"input": inputs, "label": rng.integers(0, 3, samples)})
        seen.append("step")
    comm.start_all_reduce = start  # type: ignore[method-assign]
    state = base.network.state()
    return {
        "hash": hashlib.sha256(b"".join(state[name].tobytes() for name in sorted(state))).hexdigest(),
        "moved": {name: bool((value != initial[name]).any()) for name, value in state.items()},
        "seen": seen,
        "payload": comm.traffic.payload_bytes,
    }


def both(comm: Communicator, backend: str, optimizer: str) -> list[dict[str, Any]]:
    """With overlap and without, one after the other."""
    return [train(comm, backend, optimizer, overlap) for overlap in (True, False)]
