"""What to measure: one class per metric. How to measure it soundly is :mod:`deep500.measure`."""

from deep500.metrics.base import Metric as Metric
from deep500.metrics.base import TestMetric as TestMetric
from deep500.metrics.errors import CosineError as CosineError
from deep500.metrics.errors import ErrorMetric as ErrorMetric
from deep500.metrics.errors import L1Error as L1Error
from deep500.metrics.errors import L2Error as L2Error
from deep500.metrics.errors import MaxError as MaxError
from deep500.metrics.errors import NormDifference as NormDifference
from deep500.metrics.errors import dataset_bias as dataset_bias
from deep500.metrics.errors import heat_map as heat_map
from deep500.metrics.errors import top_k_accuracy as top_k_accuracy
from deep500.metrics.errors import variance_between_runs as variance_between_runs
from deep500.metrics.quality import TestAccuracy as TestAccuracy
from deep500.metrics.quality import TestLoss as TestLoss
from deep500.metrics.quality import TrainingAccuracy as TrainingAccuracy
from deep500.metrics.quality import TrainingLoss as TrainingLoss
from deep500.metrics.speed import Throughput as Throughput
from deep500.metrics.speed import TimeToAccuracy as TimeToAccuracy
from deep500.metrics.speed import TrainingTime as TrainingTime
