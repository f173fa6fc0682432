"""Recognition of spoken digits: convolutions over 13 MFCCs a frame of 3,000 recordings; 98 % in seconds of one core.

python recipes/spoken_digits.py --download
python recipes/spoken_digits.py --backend jax --repeat 5

Limits: six speakers, all of them in both halves, as nothing says who speaks; so it is not known how it does on others.
"""

import deep500 as d5
import deep500.frameworks.pytorch as d5fw
from deep500.recipe import run_recipe

FIXED = {
    "model": "conv1d",
    "model_kwargs": dict(lengths=True),
    "dataset": "spoken_digits",
    "validation_split": 0.1,  # the test recordings are judged once, after training
    "train_sampler": d5.ShuffleSampler,
    "epochs": 10,
}
MUTABLE = {
    "batch_size": 32,
    "executor": d5fw.from_model,
    "executor_kwargs": dict(device=d5.CPUDevice()),
    "optimizer": d5fw.AdamOptimizer,
    "optimizer_kwargs": dict(lr=2e-3),
    "schedule": d5.schedules.CosineSchedule(total=10),
    "seed": 0,
}
METRICS = [(d5.TestAccuracy(), 98.0)]

if __name__ == "__main__":
    run_recipe(FIXED, MUTABLE, METRICS) or exit(1)
