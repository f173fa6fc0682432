"""LeNet on scikit-learn's 1,797 real scanned digits (8x8 pixels): a whole benchmark in seconds, without a download.

python recipes/digits_lenet.py
python recipes/digits_lenet.py batch_size=16 --backend reference --repeat 5
"""

import deep500 as d5
import deep500.frameworks.pytorch as d5fw
from deep500.recipe import run_recipe

FIXED = {
    "model": "lenet",
    "dataset": "digits",
    "validation_split": 0.1,  # the test digits are looked at once, after training
    "train_sampler": d5.ShuffleSampler,
    "epochs": 20,
}
MUTABLE = {
    "batch_size": 32,
    "executor": d5fw.from_model,
    "executor_kwargs": dict(device=d5.CPUDevice()),
    "optimizer": d5fw.MomentumOptimizer,
    "optimizer_kwargs": dict(lr=0.05, momentum=0.9, weight_decay=1e-3),
    "schedule": d5.schedules.CosineSchedule(total=20),
    "seed": 0,
}
METRICS = [(d5.TestAccuracy(), 97.0)]

if __name__ == "__main__":
    run_recipe(FIXED, MUTABLE, METRICS) or exit(1)
