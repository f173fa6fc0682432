"""How to measure: statistics and the environment that a number was measured in."""

from deep500.measure.statistics import Interval as Interval
from deep500.measure.statistics import median_interval as median_interval
from deep500.measure.statistics import paired_ratio as paired_ratio
