"""A one-scale detector on scenes of real scanned digits (64x64 pixels): mAP .60 in a minute of one core.

python recipes/digit_scenes_ssd.py
python recipes/digit_scenes_ssd.py --backend jax
python recipes/digit_scenes_ssd.py task_kwargs.box_loss=smooth_l1 --open

Quality: COCO's mean average precision over overlaps from .5 to .95, equal to pycocotools'. Limits: the digits are real
scans, the scenes are composed; no scan is in both halves, but their backgrounds come from one generator.
"""

import deep500 as d5
import deep500.frameworks.pytorch as d5fw
from deep500.recipe import run_recipe

EPOCHS = 8
STRIDE, SIZES = 4, [[13.0, 20.0]]
FIXED = {
    "dataset": "digit_scenes",
    "validation_split": 0.1,  # the test scenes are judged once, after training
    "task": d5.tasks.Detection,
    "task_kwargs": dict(image=(64, 64), stride=STRIDE, sizes=SIZES, ratios=[1.45]),
    "train_sampler": d5.ShuffleSampler,
    "epochs": EPOCHS,
}
MUTABLE = {
    "model": "ssd",
    "model_kwargs": dict(width=16, stride=STRIDE, anchors=len(SIZES[0]), depth=2),
    "batch_size": 32,
    "executor": d5fw.from_model,
    "executor_kwargs": dict(device=d5.CPUDevice()),
    "optimizer": d5fw.AdamOptimizer,
    "optimizer_kwargs": dict(lr=3e-3),
    "schedule": d5.schedules.CosineSchedule(total=EPOCHS),
    "seed": 0,
}
METRICS = [(d5.metrics.TestQuality("map"), 0.60)]

if __name__ == "__main__":
    run_recipe(FIXED, MUTABLE, METRICS) or exit(1)
