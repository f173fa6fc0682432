"""ResNet-20 on ``digits32``, real scanned digits over photographs in the shape of CIFAR-10: minutes, no download.

python recipes/digits32_resnet20.py
"""

import deep500 as d5
import deep500.frameworks.pytorch as d5fw
from deep500.recipe import run_recipe

FIXED = {
    "model": "resnet",
    "model_kwargs": dict(depth=20),
    "dataset": "digits32",
    "validation_split": 0.1,  # the test digits are looked at once, after training
    "train_sampler": d5.ShuffleSampler,
    "augmentation": [d5.Crop(32, padding=4)],
    "epochs": 30,
}
MUTABLE = {
    "batch_size": 32,
    "executor": d5fw.from_model,
    "executor_kwargs": dict(device=d5.GPUDevice()),
    "optimizer": d5fw.MomentumOptimizer,
    "optimizer_kwargs": dict(lr=0.1, momentum=0.9, weight_decay=5e-4, nesterov=True),
    "schedule": d5.schedules.CosineSchedule(total=30),
    "scheme": None,  # on several ranks: mean gradients; or scheme=FSDP, scheme=LocalSGD, ...
    "seed": 0,
}
METRICS = [(d5.TestAccuracy(), 93.0)]

if __name__ == "__main__":
    run_recipe(FIXED, MUTABLE, METRICS) or exit(1)
