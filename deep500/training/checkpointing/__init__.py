"""Checkpointing: recompute what a budget of memory does not let us keep, where a profile says that it costs least."""

from deep500.training.checkpointing.baselines import everything as everything
from deep500.training.checkpointing.baselines import greedy as greedy
from deep500.training.checkpointing.baselines import pareto as pareto
from deep500.training.checkpointing.failures import BudgetError as BudgetError
from deep500.training.checkpointing.failures import PlanError as PlanError
from deep500.training.checkpointing.nested import Placement as Placement
from deep500.training.checkpointing.nested import optimal_placement as optimal_placement
from deep500.training.checkpointing.nested import smallest_placement as smallest_placement
from deep500.training.checkpointing.profiler import Profiler as Profiler
from deep500.training.checkpointing.profiler import Saving as Saving
from deep500.training.checkpointing.profiler import groups as groups
from deep500.training.checkpointing.profiler import profile as profile
from deep500.training.checkpointing.sweep import Event as Event
from deep500.training.checkpointing.sweep import Outcome as Outcome
from deep500.training.checkpointing.sweep import simulate as simulate
from deep500.training.checkpointing.tree import Region as Region
from deep500.training.checkpointing.tree import locations as locations
from deep500.training.checkpointing.tree import per_instance as per_instance
