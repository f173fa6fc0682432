"""A case for real ranks: a pipeline whose messages are large."""

from __future__ import annotations

import numpy as np

from deep500.distributed import Communicator
from deep500.distributed.schemes import Pipeline
from deep500.networks import add_loss, create
from deep500.registry import load_backend
from deep500.training.optimizers import MomentumOptimizer
from tests.distributed.scheme_table import digest, parameters


def digest_of_pipeline(comm: Communicator) -> list[object]:
    """The hash of the parameters after two steps of 6 micro-batches, and this rank's payload per step."""
    executor = load_backend("reference").from_model(
        add_loss(create("mlp", shape=(200,), hidden=(200, 200, 200), classes=4))
    )
    optimizer = Pipeline(MomentumOptimizer(executor), comm, 6)
    rng = np.random.default_rng(2)
    samples, labels = rng.normal(size=(900, 200)).astype("float32"), rng.integers(0, 4, 900)
    mine = slice(None) if comm.rank == 0 else slice(0, 0)
    comm.traffic.reset()
    for _ in range(2):
        optimizer.step({"input": samples[mine], "label": labels[mine]})
    payload = comm.traffic.payload_bytes // 2
    return [digest(parameters(optimizer)), payload]
