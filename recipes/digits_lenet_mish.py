"""LeNet on digits with Mish instead of ReLU: a C++ operator whose gradient Enzyme derives, in any framework.

python recipes/digits_lenet_mish.py
python recipes/digits_lenet_mish.py --backend jax --repeat 5
"""

import deep500 as d5
import deep500.frameworks.pytorch as d5fw
from deep500.networks import create, replace_operator
from deep500.recipe import run_recipe


def lenet_with_mish(classes, shape, seed):
    """The zoo's LeNet, every Relu replaced by the operator of custom_ops/mish."""
    return replace_operator(create("lenet", classes=classes, shape=shape, seed=seed), "Relu", "Mish", domain="deep500")


FIXED = {
    "model": lenet_with_mish,
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
