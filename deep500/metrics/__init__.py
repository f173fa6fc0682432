"""What to measure: one class per metric. How to measure it soundly is :mod:`deep500.measure`."""

from deep500.metrics.base import Metric as Metric
from deep500.metrics.base import TestMetric as TestMetric
from deep500.metrics.quality import TestAccuracy as TestAccuracy
from deep500.metrics.quality import TestLoss as TestLoss
from deep500.metrics.quality import TrainingAccuracy as TrainingAccuracy
from deep500.metrics.quality import TrainingLoss as TrainingLoss
from deep500.metrics.speed import Throughput as Throughput
from deep500.metrics.speed import TimeToAccuracy as TimeToAccuracy
from deep500.metrics.speed import TrainingTime as TrainingTime
