"""A language model of the King James Bible's characters, by a recurrent network, judged in bits a character.

python recipes/kjv_language_model.py --download
python recipes/kjv_language_model.py --open "dataset='python_prose'"
python recipes/kjv_language_model.py --backend jax

Judged are all characters but the first of the last 5 % of the text, each after 64 others at least (but the first
ones). Beside it stands what n-grams and xz know of the same text after the whole training text. That takes eight
minutes of one core.

Data: Debian's package ``bible-kjv-text`` 4.38, fetched by apt-get without root.
Limits: the split is by place, so the test is the end of the New Testament, whose phrases are often those of the rest.
"""

import deep500 as d5
import deep500.frameworks.pytorch as d5fw
from deep500.metrics import NgramBits, PackedBits, TestQuality
from deep500.recipe import run_recipe

FIXED = {
    "model": "gru_language_model",
    "model_kwargs": dict(width=256, embedding=64),
    "dataset": "kjv",
    "validation_split": 0.02,
    "task": "language_modelling",
    "train_sampler": d5.ShuffleSampler,
    "epochs": 3,
}
MUTABLE = {
    "batch_size": 32,
    "executor": d5fw.from_model,
    "executor_kwargs": dict(device=d5.CPUDevice()),
    "loss_pieces": 4,
    "optimizer": d5fw.AdamOptimizer,
    "optimizer_kwargs": dict(lr=4e-3),
    "schedule": d5.schedules.CosineSchedule(total=3),
    "seed": 0,
}
METRICS = [
    (TestQuality("bits_per_character", "bits", direction="lower"), 2.10),
    (NgramBits(4), None),  # three characters of context
    (NgramBits(6), None),
    (PackedBits(), None),  # xz
]

if __name__ == "__main__":
    run_recipe(FIXED, MUTABLE, METRICS) or exit(1)
