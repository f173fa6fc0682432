"""Measuring: sampling, statistics, timers for other people's loops, and the environment of a number."""

from typing import TYPE_CHECKING

from deep500.faces import load_when_used

if TYPE_CHECKING:
    from deep500.measure.launches import LaunchEstimate as LaunchEstimate
    from deep500.measure.launches import groups_differ as groups_differ
    from deep500.measure.launches import over_launches as over_launches
    from deep500.measure.means import mean as mean
    from deep500.measure.means import total_rate as total_rate
    from deep500.measure.pairs import PairedComparison as PairedComparison
    from deep500.measure.pairs import compare_functions as compare_functions
    from deep500.measure.plan import Budget as Budget
    from deep500.measure.plan import Plan as Plan
    from deep500.measure.plan import Target as Target
    from deep500.measure.quantiles import Estimate as Estimate
    from deep500.measure.quantiles import quantile as quantile
    from deep500.measure.recorder import Recorder as Recorder
    from deep500.measure.recorder import Recording as Recording
    from deep500.measure.recorder import measured as measured
    from deep500.measure.recorder import region as region
    from deep500.measure.regression import QuantileFit as QuantileFit
    from deep500.measure.regression import quantile_regression as quantile_regression
    from deep500.measure.repeated import measure as measure
    from deep500.measure.sampling import Measurement as Measurement
    from deep500.measure.statistics import Interval as Interval
    from deep500.measure.statistics import median_interval as median_interval
    from deep500.measure.statistics import paired_ratio as paired_ratio
    from deep500.measure.steady import SteadyState as SteadyState
    from deep500.measure.steady import find_steady_state as find_steady_state

load_when_used(__name__)
