"""A recipe on workers of Ray Train: ``python ray_train.py 2 recipes/digits_lenet.py batch_size=64``.

Ray Train starts a process group of ``torch.distributed`` and sets its variables; the recipe's ranks are its workers.
"""

import runpy
import sys
from pathlib import Path

from ray.train import ScalingConfig
from ray.train.torch import TorchTrainer


def rank(config):
    """What every worker does."""
    sys.argv = config["argv"]
    try:
        runpy.run_path(sys.argv[0], run_name="__main__")
    except SystemExit as end:
        if end.code:
            raise RuntimeError(f"the recipe ended with {end.code}") from end


if __name__ == "__main__":
    ranks, recipe, *words = sys.argv[1:]
    config = {"argv": [str(Path(recipe).resolve()), *words]}
    TorchTrainer(rank, train_loop_config=config, scaling_config=ScalingConfig(num_workers=int(ranks))).fit()
