"""Ready-made listeners for training loops."""

from deep500.training.listeners.files import CSVWriter as CSVWriter
from deep500.training.listeners.progress import DefaultTrainerEvents as DefaultTrainerEvents
from deep500.training.listeners.progress import ProgressBar as ProgressBar
from deep500.training.listeners.stops import StopAfter as StopAfter
from deep500.training.listeners.stops import StopAtAccuracy as StopAtAccuracy
from deep500.training.listeners.stops import StopOnNaN as StopOnNaN
