"""A recipe in float64 for tests on several ranks: an MLP with dropout-free layers on the first digits, in seconds.

Variables decide what a rank does on purpose: ``FAIL_RANK`` and ``FAIL_STEP`` say who and when, ``FAIL_HOW`` what;
``FAIL_AFTER`` instead of ``FAIL_STEP``: at that many seconds from here, in the midst of whatever it is.
``SCHEME``: which; ``MESH``: ranks by axis, as JSON.
"""

import json
import os
import signal
import sys
import threading
import time

import numpy as np

import deep500 as d5
import deep500.frameworks.reference as d5fw
from deep500.networks import create
from deep500.networks.dtype import to_dtype
from deep500.recipe import run_recipe


def data():
    """300 digits to train on, 97 to validate with, in float64."""
    train, test = d5.load_dataset("digits")
    halves = ((train, 300), (test, 97))
    return tuple(
        d5.NumpyDataset(batch["input"].astype(np.float64), "input", batch["label"])
        for batch in (dataset[np.arange(n)] for dataset, n in halves)
    )


def model(classes, shape, seed):
    """Two hidden layers, the loss included."""
    return to_dtype(d5.add_loss(create("mlp", shape=shape, classes=classes, seed=seed, hidden=(16, 16))), "float64")


SUDDENLY = {
    "leave": lambda: os._exit(0),
    "leave-7": lambda: os._exit(7),
    "kill": lambda: os.kill(os.getpid(), signal.SIGKILL),
    "term": lambda: os.kill(os.getpid(), signal.SIGTERM),
}
RANK = next((os.environ[name] for name in ("PMI_RANK", "OMPI_COMM_WORLD_RANK", "RANK") if name in os.environ), "")
AFTER = os.environ.get("FAIL_AFTER")
if AFTER is not None and os.environ["FAIL_RANK"] == RANK:
    timer = threading.Timer(float(AFTER), SUDDENLY[os.environ["FAIL_HOW"]])
    timer.daemon = True
    timer.start()


class Fail(d5.Event):
    """Ends this rank in the way that the variables say."""

    def after_batch(self, run):
        if AFTER is not None:
            time.sleep(0.03)  # so that there is something to be in the midst of
        comm = d5.distributed.world()
        if str(comm.rank) != os.environ.get("FAIL_RANK") or str(run.step) != os.environ.get("FAIL_STEP"):
            return
        how = os.environ["FAIL_HOW"]
        if how == "raise":
            raise ZeroDivisionError("on purpose")
        if how == "training":
            raise d5.errors.TrainingError("bad samples")
        if how == "interrupt":
            raise KeyboardInterrupt
        if how == "exit":
            sys.exit(3)
        if how in SUDDENLY:
            SUDDENLY[how]()
        if how == "hang":
            time.sleep(1000)


MESH = json.loads(os.environ.get("MESH", "null"))
FIXED = {"model": model, "dataset": data, "epochs": 3}
MUTABLE = {
    "batch_size": 32,
    "executor": d5fw.from_model,
    "optimizer": d5fw.MomentumOptimizer,
    "optimizer_kwargs": dict(lr=0.1, momentum=0.9),
    "train_sampler_kwargs": dict(drop_last_batch=False),
    "scheme": None if MESH else getattr(d5.schemes, os.environ.get("SCHEME", "ConsistentDecentralized")),
    "mesh": MESH,
    "events": [Fail],
}
METRICS = [(d5.TestAccuracy(), 10.0), (d5.metrics.TestLoss(), None)]

if __name__ == "__main__":
    run_recipe(FIXED, MUTABLE, METRICS) or sys.exit(1)
