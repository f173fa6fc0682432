"""LeNet on scanned digits, watched by everything there is: what a run costs, where its time goes, what it learns.

python recipes/digits_every_metric.py
python recipes/digits_every_metric.py --ranks 2
python recipes/digits_every_metric.py --backend jax --repeat 3

Limits: what watches a run costs some of its time, so its times are no benchmark of the framework. What this machine
does not measure (energy without a counter, a GPU, communication of one process) is said to be not measured, with the
reason. Prices and the grid's carbon are examples: put in yours.
"""

import deep500 as d5
import deep500.frameworks.pytorch as d5fw
from deep500 import metrics
from deep500.recipe import run_recipe

FIXED = {
    "model": "lenet",
    "dataset": "digits",
    "validation_split": 0.1,
    "train_sampler": d5.ShuffleSampler,
    "epochs": 6,
}
MUTABLE = {
    "batch_size": 32,
    "executor": d5fw.from_model,
    "executor_kwargs": dict(device=d5.CPUDevice()),
    "optimizer": d5fw.MomentumOptimizer,
    "optimizer_kwargs": dict(lr=0.05, momentum=0.9),
    "schedule": d5.schedules.CosineSchedule(total=6),
    "seed": 0,
}
METRICS = [
    (d5.TestAccuracy(), 95.0),
    (d5.TestAccuracy(max_acc=True), None),
    (metrics.TopKAccuracy(3), None),
    (metrics.TrainingLoss(), None),
    (metrics.TimeToAccuracy(90.0), None),
    (metrics.WallTime(), None),
    (metrics.TrainingTime(), None),
    (metrics.TimingBreakdown(), None),
    (metrics.IOShare(), None),
    (metrics.Throughput(), None),
    (metrics.StepLatency(0.9), None),
    (metrics.InferenceLatency("single_stream", queries=200), None),
    (metrics.OfflineThroughput(32), None),
    (metrics.DatasetLatency(), None),
    (metrics.LoaderThroughput(), None),
    (metrics.FrameworkOverhead(), None),
    (metrics.FlopRate(), None),
    (metrics.RoofShare(), None),
    (metrics.PeakMemory("host"), None),
    (metrics.CPUUtilisation(), None),
    (metrics.GPUUtilisation(), None),
    (metrics.EnergyUse(), None),
    (metrics.Carbon(400, "a round figure, not your grid's"), None),
    (metrics.Cost({"cpu": 0.05, "gpu": 2.50}), None),
    (metrics.CommunicationVolume(), None),
    (metrics.LoadImbalance(), None),
]

if __name__ == "__main__":
    run_recipe(FIXED, MUTABLE, METRICS) or exit(1)
