"""A small network and batches for it, and the case that trains it with a scheme on one rank of any communicator."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from deep500 import registry
from deep500.distributed import Communicator, schemes
from deep500.networks.losses import add_loss
from deep500.networks.network import Network
from deep500.training.optimizers.base import Optimizer

FEATURES, CLASSES = 6, 3


def network(dtype: str = "float64", width: int = 8) -> Network:
    """Gemm, Tanh, Gemm, cross-entropy."""
    rng = np.random.default_rng(7)
    net = Network("small")
    net.add_input("input", ("N", FEATURES), dtype)
    shapes = {"w1": (FEATURES, width), "b1": (width,), "w2": (width, CLASSES), "b2": (CLASSES,)}
    for name, shape in shapes.items():
        net.add_parameter(name, rng.normal(scale=0.5, size=shape).astype(dtype))
    net.add_node("Gemm", ["input", "w1", "b1"], ["h"])
    net.add_node("Tanh", ["h"], ["t"])
    net.add_node("Gemm", ["t", "w2", "b2"], ["y"])
    net.add_output("y")
    return add_loss(net)


def batches(steps: int, size: int, dtype: str = "float64") -> list[dict[str, np.ndarray]]:
    """Global batches, the same on every rank."""
    rng = np.random.default_rng(11)
    return [
        {"input": rng.normal(size=(size, FEATURES)).astype(dtype), "label": rng.integers(0, CLASSES, size)}
        for _ in range(steps)
    ]


def share(batch: Mapping[str, np.ndarray], position: int | None, ranks: int) -> dict[str, np.ndarray]:
    """Every ``ranks``-th sample; none for a rank that does not compute."""
    part = slice(0, 0) if position is None else slice(position, None, ranks)
    return {name: value[part] for name, value in batch.items()}


def make(backend: str, optimizer: str, hyper: Mapping[str, Any], dtype: str = "float64", width: int = 8) -> Optimizer:
    """The backend's optimizer, for an executor of its own."""
    module = registry.load_backend(backend)
    made = getattr(module, optimizer)(module.from_model(network(dtype, width), "cpu"), "loss", **hyper)
    assert isinstance(made, Optimizer)
    return made


def flat(optimizer: Optimizer, names: list[str]) -> np.ndarray:
    """Tensors one after the other, as one float64 array (which holds float32 exactly)."""
    tensors = optimizer.network.fetch_tensors(names)
    return np.concatenate([np.array(optimizer.network.to_numpy(tensor), np.float64).ravel() for tensor in tensors])


def weights(optimizer: Optimizer) -> np.ndarray:
    """All parameters."""
    return flat(optimizer, optimizer.parameter_names())


def serial(
    backend: str = "reference",
    optimizer: str = "GradientDescent",
    hyper: Mapping[str, Any] | None = None,
    steps: int = 12,
    batch: int = 12,
    dtype: str = "float64",
    width: int = 8,
) -> np.ndarray:
    """Parameters after training on the global batches without any scheme."""
    base = make(backend, optimizer, hyper or {}, dtype, width)
    before = weights(base)
    for inputs in batches(steps, batch, dtype):
        base.step(inputs)
    assert np.abs(weights(base) - before).max() > 1e-3
    return weights(base)


def train(
    comm: Communicator,
    scheme: str,
    keywords: Mapping[str, Any] | None = None,
    backend: str = "reference",
    optimizer: str = "GradientDescent",
    hyper: Mapping[str, Any] | None = None,
    steps: int = 12,
    batch: int = 12,
    dtype: str = "float64",
    width: int = 8,
    apart: float = 0.0,
    every_step: bool = True,
) -> dict[str, Any]:
    """One rank's run: parameters before and after every step, its gradients, its payload, and what the scheme says.

    ``apart`` moves this rank's parameters by random numbers of that size, its own, before the first step.
    """
    base = make(backend, optimizer, hyper or {}, dtype, width)
    distributed = getattr(schemes, scheme)(base, comm, **(keywords or {}))
    if apart:
        rng = np.random.default_rng([3, comm.rank])
        distributed.set_parameters(
            distributed.tensors(
                [
                    array + rng.normal(scale=apart, size=array.shape).astype(array.dtype)
                    for array in distributed.arrays(distributed.parameters())
                ]
            )
        )
    computing = list(distributed.computing_ranks(comm.size))
    position = computing.index(comm.rank) if comm.rank in computing else None
    comm.traffic.reset()
    history, gradients, losses = [weights(distributed).tolist()] if every_step else [], [], []
    for inputs in batches(steps, batch, dtype):
        mine = share(inputs, position, len(computing))
        outputs = distributed.step(mine)
        if every_step:
            history.append(weights(distributed).tolist())
            gradients.append(flat(distributed, distributed.gradient_names()).tolist() if outputs else None)
        losses.append(float(distributed.network.to_numpy(outputs["loss"])) if outputs else None)
    payload, facts = comm.traffic.payload_bytes, distributed.communication_facts()
    with distributed.evaluation():
        evaluated = weights(distributed).tolist() if every_step else []
    return {
        "history": history,
        "gradients": gradients,
        "losses": losses,
        "payload": payload,
        "facts": facts,
        "evaluated": evaluated,
        "steps": [distributed.steps, base.steps],
        "log": distributed.log.rows().tolist() if hasattr(distributed, "log") else None,
    }
