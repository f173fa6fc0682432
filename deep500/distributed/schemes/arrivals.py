"""`replay`: an asynchronous run, repeated on one process from its log of arrivals."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

from deep500.errors import InputError
from deep500.training.optimizers.base import Optimizer


def replay(optimizer: Optimizer, shares: Mapping[int, Iterable[Mapping[str, Any]]], arrivals: np.ndarray) -> None:
    """Make the same updates in the same order as an
    :class:`~deep500.distributed.schemes.asynchronous.InconsistentParameterServer` whose ``arrivals`` were kept.

    The parameters become the same bits, if the network is deterministic in training (no Dropout) and the optimizer is
    as at the start of the log. Running statistics become others: there they were those of each worker.

    Args:
        optimizer: the base optimizer, of an executor with the initial parameters.
        shares: by worker, the batches that it computed on, in order; those without samples left out.
        arrivals: (updates, 2) as :attr:`InconsistentParameterServer.arrivals`: worker, and how many updates there were
            in the parameters that its gradient was computed at.

    Raises:
        InputError: a worker has fewer batches than the log has gradients of it, or the log is of another scheme.
    """
    network, names = optimizer.network, optimizer.parameter_names()

    def parameters() -> list[np.ndarray]:
        return [np.array(network.to_numpy(tensor)) for tensor in network.fetch_tensors(names)]

    def assign(arrays: list[np.ndarray]) -> None:
        for name, one in zip(names, arrays, strict=True):
            network.assign_tensor(name, network.to_tensor(one))

    batches = {worker: iter(share) for worker, share in shares.items()}
    last_use = {version: number for number, (_, version) in enumerate(arrivals.tolist())}
    versions: dict[int, list[np.ndarray]] = {}
    for number, (worker, version) in enumerate(arrivals.tolist()):
        optimizer.prepare()
        versions[number] = parameters()
        batch = next(batches.get(worker, iter(())), None)
        if batch is None or version not in versions:
            raise InputError(
                f"got no batch of worker {worker}, or no parameters with {version} updates, for arrival {number}; "
                "expected the shares and the log of one run of InconsistentParameterServer: pass those"
            )
        assign(versions[version])
        optimizer.executor.inference_and_backprop(batch, optimizer.loss)
        assign(versions[number])
        optimizer.update()
        optimizer.steps += 1
        versions = {kept: arrays for kept, arrays in versions.items() if last_use.get(kept, -1) > number}
