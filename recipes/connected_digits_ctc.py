"""Transcription of spoken strings of three to seven digits by connectionist temporal classification.

python recipes/connected_digits_ctc.py --download
python recipes/connected_digits_ctc.py --backend tensorflow
python recipes/connected_digits_ctc.py --open "task_kwargs={'compiled': True}"

Limits: recordings of single digits are joined without pauses, so boundaries are easier to hear than in connected
speech; all six speakers are in both halves. The test strings are of recordings that are in no training or
validation string; validation strings share recordings with training strings and flatter.
"""

import deep500 as d5
import deep500.frameworks.pytorch as d5fw
from deep500.metrics import TestQuality
from deep500.recipe import run_recipe
from deep500.training.data.samplers import BucketSampler

FIXED = {
    "model": "conv1d_ctc",
    "model_kwargs": dict(stride=2, dropout=0.1, lengths=True),
    "dataset": "connected_digits",
    "task": "transcription",
    "validation_split": 0.1,  # the test strings are judged once, after training
    "train_sampler": BucketSampler,
    "train_sampler_kwargs": dict(num_buckets=4),
    "epochs": 6,
}
MUTABLE = {
    "batch_size": 32,
    "executor": d5fw.from_model,
    "executor_kwargs": dict(device=d5.CPUDevice()),
    "optimizer": d5fw.AdamOptimizer,
    "optimizer_kwargs": dict(lr=3e-3),
    "schedule": d5.schedules.CosineSchedule(total=6),
    "seed": 0,
}
METRICS = [(TestQuality("word_error_rate", "%", direction="lower"), 2.0)]

if __name__ == "__main__":
    run_recipe(FIXED, MUTABLE, METRICS) or exit(1)
