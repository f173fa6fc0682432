"""Proximal policy optimization on CartPole-v1: a mean return of 475 over 100 fresh greedy episodes.

python recipes/cartpole_ppo.py
python recipes/cartpole_ppo.py --backend reference --repeat 3

It acts in 8 environments at once. Seeds of training and of judging are apart. Limits: CartPole is the smallest
task there is, and 500 the most that an episode can come to; seeds differ in how soon they get there, so repeat. With
8 epochs the learning rate is near 0 before some seeds have learnt to stand.
"""

import deep500 as d5
import deep500.frameworks.pytorch as d5fw
from deep500.recipe import run_recipe

EPOCHS = 12
FIXED = {
    "environment": "CartPole-v1",
    "environment_kwargs": dict(samples=102400, judged=100),
    "task": "ppo",
    "epochs": EPOCHS,
}
MUTABLE = {
    "model": "actor_critic",
    "task_kwargs": dict(environments=8, horizon=32, passes=20, trace=0.8, discount=0.98, entropy_weight=0.0),
    "batch_size": 256,
    "executor": d5fw.from_model,
    "executor_kwargs": dict(device=d5.CPUDevice()),
    "optimizer": d5fw.AdamOptimizer,
    "optimizer_kwargs": dict(lr=1e-3),
    "gradient_transform": d5.ClipGradientNorm(0.5),
    "schedule": d5.schedules.CosineSchedule(total=EPOCHS),
    "seed": 0,
}
METRICS = [(d5.metrics.TestQuality("mean_return"), 475.0)]

if __name__ == "__main__":
    run_recipe(FIXED, MUTABLE, METRICS) or exit(1)
