"""LeNet on 5,000 real handwritten digits of MNIST (28x28 pixels): 96 % in ten seconds or less of one core.

python recipes/mnist5k_lenet.py --download
python recipes/mnist5k_lenet.py --backend jax --repeat 5

Limits: training and test digits are both of MNIST's training half, so the figure is not one on MNIST's test half.
"""

import deep500 as d5
import deep500.frameworks.pytorch as d5fw
from deep500.recipe import run_recipe

FIXED = {
    "model": "lenet",
    "dataset": "mnist_5k",
    "validation_split": 0.1,  # the test digits are judged once, after training
    "train_sampler": d5.ShuffleSampler,
    "epochs": 10,
}
MUTABLE = {
    "batch_size": 32,
    "executor": d5fw.from_model,
    "executor_kwargs": dict(device=d5.CPUDevice()),
    "optimizer": d5fw.MomentumOptimizer,
    "optimizer_kwargs": dict(lr=0.05, momentum=0.9, weight_decay=2e-3),
    "schedule": d5.schedules.CosineSchedule(total=10),
    "seed": 0,
}
METRICS = [(d5.TestAccuracy(), 96.0)]

if __name__ == "__main__":
    run_recipe(FIXED, MUTABLE, METRICS) or exit(1)
