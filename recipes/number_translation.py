"""Digits to English words by a transformer with encoder and decoder: 40312 is forty thousand three hundred twelve.

python recipes/number_translation.py
deep500 run number_translation --open "dataset_kwargs={'back':True}" model_kwargs.source=32 model_kwargs.target_length=7
python recipes/number_translation.py --open "task_kwargs={'beam': 4}"

Limits: numbers are generated; none of the test is in training. ``exact_match`` is of lengths seen (1 to 5 digits),
``exact_match_longer`` of 6 digits, which learned positions cannot be expected to reach.
"""

import deep500 as d5
import deep500.frameworks.pytorch as d5fw
from deep500.metrics import TestQuality
from deep500.recipe import run_recipe

FIXED = {
    "model": "encoder_decoder",
    "model_kwargs": dict(source=12, target_length=12, width=64, layers=2),
    "dataset": "number_pairs",
    "validation_split": 0.02,
    "task": "transduction",
    "train_sampler": d5.ShuffleSampler,
    "epochs": 3,
}
MUTABLE = {
    "batch_size": 64,
    "executor": d5fw.from_model,
    "executor_kwargs": dict(device=d5.CPUDevice()),
    "optimizer": d5fw.AdamOptimizer,
    "optimizer_kwargs": dict(lr=2e-3),
    "schedule": d5.schedules.CosineSchedule(total=3),
    "seed": 0,
}
METRICS = [
    (TestQuality("exact_match", "%"), 98.0),
    (TestQuality("exact_match_longer", "%"), None),
    (TestQuality("bleu"), None),
]

if __name__ == "__main__":
    run_recipe(FIXED, MUTABLE, METRICS) or exit(1)
