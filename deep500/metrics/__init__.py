"""Metrics of runs, one class per metric. How to measure it soundly is :mod:`deep500.measure`.

* Quality: `TestAccuracy`, `TrainingAccuracy`, `TestLoss`, `TrainingLoss`, `TestQuality` (of any task), `TopKAccuracy`
  (of arrays `top_k_accuracy`), `VarianceOverSeeds`, `DatasetBias` (of labels `dataset_bias`); of texts without a
  network `NgramBits` and `PackedBits`.
* Time: `WallTime`, `TrainingTime`, `TimeToQuality`, `TimeToAccuracy`, `Throughput`, `StepLatency`,
  `InferenceLatency`, `ServerRate`, `OfflineThroughput`, `DatasetLatency`, `LoaderThroughput`, `TimingBreakdown`,
  of language models `GenerationLatency`, `GenerationRate` and `GenerationUnderLoad`,
  `IOShare`, `CommunicationShare`, `FrameworkOverhead`.
* Work and resources: `Flops`, `FlopRate`, `RoofShare`, `PeakMemory`, `CPUUtilisation`, `GPUUtilisation`, `EnergyUse`,
  `Carbon`, `Cost`.
* Several processes: `CommunicationVolume`, `Messages`, `LoadImbalance`, `WaitShare`, `ScalingEfficiency`.
* Agreement with another backend: `OutputError`, `GradientError`, `DifferenceMap`; with another run: `BitwiseEqual`.
* Norms of differences between arrays, no metrics of a run: `ErrorMetric`, `L1Error`, `L2Error`, `MaxError`,
  `CosineError`, `NormDifference`; beside them `heat_map` and `variance_between_runs`.
* For metrics of one's own: `Metric`, `ObservingMetric` (watches the run), `ProbingMetric` (runs the trained network
  again), `Combined` (what several runs give). `TestMetric` is the original's name of `Metric`.
"""

from typing import TYPE_CHECKING

from deep500.faces import load_when_used

if TYPE_CHECKING:
    from deep500.metrics.agreement import BitwiseEqual as BitwiseEqual
    from deep500.metrics.agreement import DifferenceMap as DifferenceMap
    from deep500.metrics.agreement import GradientError as GradientError
    from deep500.metrics.agreement import OutputError as OutputError
    from deep500.metrics.base import Combined as Combined
    from deep500.metrics.base import Metric as Metric
    from deep500.metrics.base import ObservingMetric as ObservingMetric
    from deep500.metrics.base import ProbingMetric as ProbingMetric
    from deep500.metrics.base import TestMetric as TestMetric
    from deep500.metrics.baselines import NgramBits as NgramBits
    from deep500.metrics.baselines import PackedBits as PackedBits
    from deep500.metrics.bias import DatasetBias as DatasetBias
    from deep500.metrics.bias import dataset_bias as dataset_bias
    from deep500.metrics.breakdown import CommunicationShare as CommunicationShare
    from deep500.metrics.breakdown import IOShare as IOShare
    from deep500.metrics.breakdown import TimingBreakdown as TimingBreakdown
    from deep500.metrics.communication import CommunicationVolume as CommunicationVolume
    from deep500.metrics.communication import LoadImbalance as LoadImbalance
    from deep500.metrics.communication import Messages as Messages
    from deep500.metrics.communication import ScalingEfficiency as ScalingEfficiency
    from deep500.metrics.communication import WaitShare as WaitShare
    from deep500.metrics.energy import Carbon as Carbon
    from deep500.metrics.energy import Cost as Cost
    from deep500.metrics.energy import EnergyUse as EnergyUse
    from deep500.metrics.errors import CosineError as CosineError
    from deep500.metrics.errors import ErrorMetric as ErrorMetric
    from deep500.metrics.errors import L1Error as L1Error
    from deep500.metrics.errors import L2Error as L2Error
    from deep500.metrics.errors import MaxError as MaxError
    from deep500.metrics.errors import NormDifference as NormDifference
    from deep500.metrics.errors import heat_map as heat_map
    from deep500.metrics.errors import variance_between_runs as variance_between_runs
    from deep500.metrics.generation import GenerationLatency as GenerationLatency
    from deep500.metrics.generation import GenerationRate as GenerationRate
    from deep500.metrics.generation import GenerationUnderLoad as GenerationUnderLoad
    from deep500.metrics.latency import InferenceLatency as InferenceLatency
    from deep500.metrics.latency import OfflineThroughput as OfflineThroughput
    from deep500.metrics.latency import ServerRate as ServerRate
    from deep500.metrics.latency import StepLatency as StepLatency
    from deep500.metrics.loading import DatasetLatency as DatasetLatency
    from deep500.metrics.loading import LoaderThroughput as LoaderThroughput
    from deep500.metrics.overhead import FrameworkOverhead as FrameworkOverhead
    from deep500.metrics.quality import TestAccuracy as TestAccuracy
    from deep500.metrics.quality import TestLoss as TestLoss
    from deep500.metrics.quality import TestQuality as TestQuality
    from deep500.metrics.quality import TopKAccuracy as TopKAccuracy
    from deep500.metrics.quality import TrainingAccuracy as TrainingAccuracy
    from deep500.metrics.quality import TrainingLoss as TrainingLoss
    from deep500.metrics.quality import VarianceOverSeeds as VarianceOverSeeds
    from deep500.metrics.quality import top_k_accuracy as top_k_accuracy
    from deep500.metrics.resources import CPUUtilisation as CPUUtilisation
    from deep500.metrics.resources import GPUUtilisation as GPUUtilisation
    from deep500.metrics.resources import PeakMemory as PeakMemory
    from deep500.metrics.speed import Throughput as Throughput
    from deep500.metrics.speed import TimeToAccuracy as TimeToAccuracy
    from deep500.metrics.speed import TimeToQuality as TimeToQuality
    from deep500.metrics.speed import TrainingTime as TrainingTime
    from deep500.metrics.speed import WallTime as WallTime
    from deep500.metrics.work import FlopRate as FlopRate
    from deep500.metrics.work import Flops as Flops
    from deep500.metrics.work import RoofShare as RoofShare

load_when_used(__name__)
