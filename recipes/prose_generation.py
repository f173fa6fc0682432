"""Costs of a small language model as it writes: prefill, decode, and answers under load, with a key-value cache.

python recipes/prose_generation.py
deep500 run prose_generation --backend onnxruntime

The network is trained for one epoch, so that it writes words; its speed does not depend on what it has learned. Every
query reads 32 characters at once and writes 16, one by one, each the likeliest. The report shows the curve of latencies
over arrival rates.

Data: the texts of Python's help(), which come with Python.
Limits: one query at a time is answered, or a batch that begins together: no continuous batching.
"""

import deep500 as d5
import deep500.frameworks.pytorch as d5fw
from deep500.metrics import GenerationLatency, GenerationRate, GenerationUnderLoad
from deep500.recipe import run_recipe

FIXED = {
    "model": "causal_transformer",
    "model_kwargs": dict(width=64, heads=4, layers=2),
    "dataset": "python_prose",
    "task": "language_modelling",
    "train_sampler": d5.ShuffleSampler,
    "epochs": 1,
}
MUTABLE = {
    "batch_size": 32,
    "executor": d5fw.from_model,
    "executor_kwargs": dict(device=d5.CPUDevice()),
    "optimizer": d5fw.AdamOptimizer,
    "optimizer_kwargs": dict(lr=3e-3),
    "seed": 0,
}
METRICS = [
    (GenerationLatency("first_token", 0.5, new=2, queries=150), None),
    (GenerationLatency("next_token", 0.9, new=16, queries=20), None),
    (GenerationRate(8, new=16), None),
    (GenerationUnderLoad(0.5, new=16, shares=(0.3, 0.6, 0.9), queries=50), None),
]

if __name__ == "__main__":
    run_recipe(FIXED, MUTABLE, METRICS) or exit(1)
